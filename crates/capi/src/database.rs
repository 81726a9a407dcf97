//! Database: open, close, flush.

use crate::guard::{Failure, call};
use crate::instruments::{MemoryTeller, PbxtInstruments, measured};
use crate::keys::{NewFiles, PbxtKeys, encryption};
use crate::observer::PbxtHost;
use crate::status::Status;
use pbxt::{Database, Error, Options};
use pbxt_io::{DirectIo, Disk, OsDisk};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `PBXT_ABI_VERSION`: version of the header.
pub const ABI_VERSION: u32 = 13;

/// `pbxt_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtOptions {
    pub abi_version: u32,
    pub directory: *const c_char,
    pub cache_bytes: u64,
    pub read_only: u8,
    pub background_threads: u8,
    pub direct_io: u8,
    pub instruments: *const PbxtInstruments,
    pub keys: *const PbxtKeys,
    pub encryption_key: u32,
    pub encrypt_all: u8,
}

/// `pbxt_db`.
#[derive(Debug)]
pub struct PbxtDb {
    pub(crate) db: Arc<Database>,
    pub(crate) host: Arc<PbxtHost>,
    memory: Option<MemoryTeller>,
}

/// The database behind a handle.
///
/// # Safety
/// `db` came from `pbxt_open` and was not closed.
pub(crate) unsafe fn database<'a>(db: *const PbxtDb) -> Result<&'a PbxtDb, Error> {
    // SAFETY: by the contract above.
    unsafe { db.as_ref() }.ok_or_else(|| Error::Invalid("the database handle is null".into()))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_open(
    options: *const PbxtOptions,
    host: *const PbxtHost,
    out: *mut *mut PbxtDb,
) -> Status {
    call(|| {
        // SAFETY: the caller's pointers are valid for the call.
        let (Some(options), Some(host)) = (unsafe { options.as_ref() }, unsafe { host.as_ref() }) else {
            return Err(Error::Invalid("options or host callbacks are missing".into()).into());
        };
        if options.abi_version != ABI_VERSION {
            let text = format!(
                "the caller was built for version {} of the interface, this library has {ABI_VERSION}: rebuild it",
                options.abi_version
            );
            return Err(Error::Invalid(text).into());
        }
        if options.read_only != 0 {
            return Err(Error::Invalid(
                "a database is not opened read-only by this version: copy it first".into(),
            )
            .into());
        }
        // SAFETY: a string of the caller.
        let directory = unsafe { CStr::from_ptr(options.directory) }
            .to_string_lossy()
            .into_owned();
        let host = Arc::new(*host);
        let cache_bytes = cache_bytes(options.cache_bytes, &host);
        let observer: Arc<PbxtHost> = Arc::clone(&host);
        let table_host: Arc<PbxtHost> = Arc::clone(&host);
        let engine_options = Options {
            background: options.background_threads != 0,
            observer: Some(observer),
            host: Some(table_host),
            ..Options::for_cache(cache_bytes)
        };
        let disk = OsDisk::open(Path::new(&directory), true)?.with_direct_io(direct_io(options.direct_io)?);
        // SAFETY: null, or a table of the caller with all its functions, which is copied.
        let instruments = unsafe { options.instruments.as_ref() }.map(|table| Arc::new(*table));
        let disk: Arc<dyn Disk> = Arc::new(disk);
        // SAFETY: null, or a table of the caller as the header describes it.
        let encryption = unsafe { encryption(Arc::clone(&disk), options.keys, new_files(options)?)? };
        // Told is what is done to the medium, but not that headers were looked at.
        let mut disk = measured(disk, instruments.as_ref());
        if let Some(encryption) = encryption {
            disk = Arc::new(encryption.over(disk));
        }
        let db = Database::open(disk, &engine_options)?;
        let memory = instruments
            .map(|table| MemoryTeller::start(&db, &table))
            .transpose()?;
        let found = &db.counters;
        if found.recovery_records.get() > 0 {
            host.note(
                2,
                &format!(
                    "{} log records read in {} ms",
                    found.recovery_records.get(),
                    found.recovery_micros.get() / 1000
                ),
            );
        }
        // SAFETY: a place of the caller for the handle.
        unsafe { *out = Box::into_raw(Box::new(PbxtDb { db, host, memory })) };
        Ok(())
    })
}

/// When new files are encrypted, and with which key.
fn new_files(options: &PbxtOptions) -> Result<NewFiles, Error> {
    match (options.encryption_key, options.encrypt_all) {
        (0, 0) => Ok(NewFiles::Plain),
        (0, _) => Err(Error::Invalid(
            "all new files are to be encrypted, and no key is named: set encryption_key, or encrypt_all to 0"
                .into(),
        )),
        (key, 0) => Ok(NewFiles::AsTablesAsk(key)),
        (key, _) => Ok(NewFiles::Encrypted(key)),
    }
}

fn direct_io(option: u8) -> Result<DirectIo, Error> {
    match option {
        0 => Ok(DirectIo::Off),
        1 => Ok(DirectIo::Auto),
        other => Err(Error::Invalid(format!(
            "direct_io is {other}: it may be 0, through the page cache, or 1, past it where the system can"
        ))),
    }
}

/// What was asked for, or a quarter of the machine's memory. More than all of that is told to the host.
fn cache_bytes(option: u64, host: &PbxtHost) -> u64 {
    let memory = pbxt_io::memory_bytes();
    if option > memory {
        host.note(
            1,
            &format!(
                "the cache is to have {option} bytes, and the machine has {memory}: the system ends the process when they are used up; give it less"
            ),
        );
    }
    if option == 0 { memory / 4 } else { option }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_is_new(db: *mut PbxtDb) -> c_int {
    // SAFETY: a valid handle, or none.
    unsafe { database(db) }.map_or(0, |db| c_int::from(db.db.is_new()))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_close(db: *mut PbxtDb) -> Status {
    call(|| {
        if db.is_null() {
            return Ok(());
        }
        // SAFETY: the handle came from `pbxt_open` and is given back once.
        let handle = *unsafe { Box::from_raw(db) };
        // First, because its thread looks at the database.
        drop(handle.memory);
        handle.db.close().map_err(Failure::from)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_set_max_snapshot_age(db: *mut PbxtDb, seconds: u64) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        unsafe { database(db)? }.db.set_max_snapshot_age(seconds);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_set_print_all_deadlocks(db: *mut PbxtDb, on: u8) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let waits = &unsafe { database(db)? }.db.waits;
        waits.print_deadlocks.store(on != 0, Ordering::Relaxed);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_set_scrub_hours(db: *mut PbxtDb, hours: u64) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        unsafe { database(db)? }.db.set_scrub_hours(hours);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_scrub_now(db: *mut PbxtDb, on: u8) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        unsafe { database(db)? }.db.scrub_now(on != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_flush(db: *mut PbxtDb) -> Status {
    // SAFETY: a valid handle.
    call(|| Ok(unsafe { database(db)? }.db.flush()?))
}
