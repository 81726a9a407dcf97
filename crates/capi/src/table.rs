//! Tables: DDL, open, information, auto-increment, range estimates, check.

use crate::database::{PbxtDb, database};
use crate::definition::PbxtTableDef;
use crate::guard::{Failure, bytes, call, text, value};
use crate::observer::PbxtHost;
use crate::progress::{Report, advance};
use crate::session::{PbxtSession, session};
use crate::status::Status;
use pbxt::host::{HostTable, SharedWeigher};
use pbxt::{Creation, Error, Renaming, Session};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// `pbxt_table`.
#[derive(Debug)]
pub struct PbxtTable {
    pub(crate) host: Arc<HostTable>,
}

/// # Safety
/// `table` came from `pbxt_table_open` and is open.
pub(crate) unsafe fn table<'a>(table: *const PbxtTable) -> Result<&'a PbxtTable, Error> {
    // SAFETY: by the contract above.
    unsafe { table.as_ref() }.ok_or_else(|| Error::Invalid("the table handle is null".into()))
}

/// # Safety
/// `handle` is null or as for `session`.
pub(crate) unsafe fn optional_session<'a>(handle: *mut PbxtSession) -> Option<&'a Session> {
    // SAFETY: passed on.
    unsafe { session(handle) }.ok().map(|session| &*session)
}

// The flags of the header.
const DROP_UNLESS_REFERENCED: u32 = 1;
const RENAME_KEEP_REFERENCES: u32 = 1;
const RENAME_SETS_ASIDE: u32 = 2;
const RENAME_TAKES_PLACE: u32 = 4;
const CHECK_FOREIGN_KEYS: u32 = 8;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_create(
    db: *mut PbxtDb,
    _session: *mut PbxtSession,
    def: *const PbxtTableDef,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, def) = unsafe { (database(db)?, &*def) };
        // SAFETY: the definition's pointers are valid for the call.
        let (definition, replaces) = unsafe { (def.definition()?, def.replaces()?) };
        let creation = Creation {
            checks: def.check_foreign_keys != 0,
            replaces,
        };
        db.db
            .create_table_with(definition, def.auto_increment, creation)?;
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_drop(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    name: *const c_char,
    name_len: usize,
    flags: u32,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, session, name) =
            unsafe { (database(db)?, optional_session(session), text(name, name_len)?) };
        let unless_referenced = flags & DROP_UNLESS_REFERENCED != 0;
        Ok(db.db.drop_table_unless(session, name, unless_referenced)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_rename(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    from: *const c_char,
    from_len: usize,
    to: *const c_char,
    to_len: usize,
    flags: u32,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, session) = unsafe { (database(db)?, optional_session(session)) };
        // SAFETY: valid for the call.
        let (from, to) = unsafe { (text(from, from_len)?, text(to, to_len)?) };
        let renaming = Renaming {
            keep_references: flags & RENAME_KEEP_REFERENCES != 0,
            sets_aside: flags & RENAME_SETS_ASIDE != 0,
            takes_place: flags & RENAME_TAKES_PLACE != 0,
            checks: flags & CHECK_FOREIGN_KEYS != 0,
        };
        Ok(db.db.rename_table_with(session, from, to, renaming)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_redefine(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    def: *const PbxtTableDef,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, session, def) = unsafe { (database(db)?, optional_session(session), &*def) };
        // SAFETY: the definition's pointers are valid for the call.
        let definition = unsafe { def.definition()? };
        Ok(db
            .db
            .redefine_table(session, definition, def.check_foreign_keys != 0)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_truncate(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    name: *const c_char,
    name_len: usize,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, session, name) =
            unsafe { (database(db)?, optional_session(session), text(name, name_len)?) };
        Ok(db.db.truncate_table(session, name)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_exists(db: *mut PbxtDb, name: *const c_char, name_len: usize) -> i32 {
    value(0, || {
        // SAFETY: valid for the call.
        let (Ok(db), Ok(name)) = (unsafe { database(db) }, unsafe { text(name, name_len) }) else {
            return 0;
        };
        i32::from(db.db.table_id(name).is_some())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_list(
    db: *mut PbxtDb,
    prefix: *const c_char,
    prefix_len: usize,
    each: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> i32,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, prefix) = unsafe { (database(db)?, text(prefix, prefix_len)?) };
        for name in db.db.catalog.names(prefix) {
            // SAFETY: the caller's function; the name outlives the call.
            if unsafe { each(ctx, name.as_ptr().cast(), name.len()) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_open(
    db: *mut PbxtDb,
    def: *const PbxtTableDef,
    out: *mut *mut PbxtTable,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, def) = unsafe { (database(db)?, &*def) };
        // SAFETY: the definition's pointers are valid for the call.
        let (name, layout, indexes) = unsafe { (def.name()?, def.layout()?, def.host_indexes()?) };
        let host: Arc<PbxtHost> = Arc::clone(&db.host);
        let weigher: SharedWeigher = host;
        let host = Arc::new(HostTable::open(&db.db, name, layout, &indexes, weigher)?);
        // SAFETY: a place of the caller for the handle.
        unsafe { *out = Box::into_raw(Box::new(PbxtTable { host })) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_close(table: *mut PbxtTable) {
    value((), || {
        if !table.is_null() {
            // SAFETY: the handle came from `pbxt_table_open` and is given back once.
            drop(unsafe { Box::from_raw(table) });
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_parts(handle: *const PbxtTable, index: u32, out: *mut u32) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let parts = unsafe { table(handle)? }.host.part_count(index as usize)?;
        // SAFETY: a place of the caller.
        unsafe { *out = parts as u32 };
        Ok(())
    })
}

/// `pbxt_table_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtTableInfo {
    pub rows_estimate: u64,
    pub data_bytes: u64,
    pub index_bytes: u64,
    pub superseded_bytes: u64,
    pub mean_row_bytes: u64,
    pub auto_increment_next: u64,
    pub created_unix_seconds: u64,
    pub updated_unix_seconds: u64,
    pub table_id: u64,
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_get_table_info(handle: *mut PbxtTable, out: *mut PbxtTableInfo) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let info = unsafe { table(handle)? }.host.table().info();
        // SAFETY: a place of the caller.
        unsafe {
            *out = PbxtTableInfo {
                rows_estimate: info.rows,
                data_bytes: info.data_bytes,
                index_bytes: info.index_bytes,
                superseded_bytes: info.superseded_bytes,
                mean_row_bytes: info.mean_row_bytes,
                auto_increment_next: info.next_auto_increment,
                created_unix_seconds: info.created,
                updated_unix_seconds: info.updated,
                table_id: u64::from(info.id.raw()),
            };
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_rows_estimate(handle: *mut PbxtTable) -> u64 {
    value(0, || {
        // SAFETY: a valid handle.
        let table = unsafe { table(handle) };
        table.map_or(0, |table| table.host.table().latest_rows())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_rows_of_own(handle: *mut PbxtTable, session_handle: *mut PbxtSession) -> i64 {
    value(0, || {
        // SAFETY: valid handles.
        match unsafe { (table(handle), session(session_handle)) } {
            (Ok(table), Ok(session)) => session.own_rows(table.host.table()),
            _ => 0,
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_rows_per_key(
    handle: *mut PbxtTable,
    index: u32,
    out: *mut u64,
    parts: u32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, and room for `parts` numbers, which are plain.
        let (host, out) = unsafe { (&table(handle)?.host, numbers(out, parts as usize)?) };
        Ok(host.rows_per_key(index as usize, out)?)
    })
}

/// # Safety
/// `out` is null or has room for `count` initialized numbers that nobody else uses during the call.
unsafe fn numbers<'a>(out: *mut u64, count: usize) -> Result<&'a mut [u64], Error> {
    if out.is_null() {
        return Err(Error::Invalid("the room for the numbers is null".into()));
    }
    // SAFETY: by the contract above.
    Ok(unsafe { std::slice::from_raw_parts_mut(out, count) })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_host_version(
    db: *mut PbxtDb,
    name: *const c_char,
    name_len: usize,
    out: *mut u8,
    len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, name) = unsafe { (database(db)?, text(name, name_len)?) };
        let version = db.db.catalog.find(name)?.def().host_version.clone();
        // SAFETY: `*len` says how much room the caller has.
        unsafe {
            if version.len() > *len {
                return Err(Error::Invalid(format!("the version takes {} bytes", version.len())).into());
            }
            std::ptr::copy_nonoverlapping(version.as_ptr(), out, version.len());
            *len = version.len();
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_host_image(
    db: *mut PbxtDb,
    name: *const c_char,
    name_len: usize,
    give: unsafe extern "C" fn(*mut c_void, *const u8, usize),
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, name) = unsafe { (database(db)?, text(name, name_len)?) };
        let def = db.db.catalog.find(name)?.def();
        // SAFETY: the caller's function; the image outlives the call.
        unsafe { give(ctx, def.host_image.as_ptr(), def.host_image.len()) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_check(
    handle: *mut PbxtTable,
    session_handle: *mut PbxtSession,
    quick: i32,
    report: unsafe extern "C" fn(*mut c_void, *const c_char),
    progress: Report,
    ctx: *mut c_void,
    findings: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (table, session) = unsafe { (table(handle)?, session(session_handle)?) };
        let mut tell = |text: &str| {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // SAFETY: the caller's function; the text outlives the call.
            unsafe { report(ctx, text.as_ptr()) }
        };
        let count = table
            .host
            .check(session, quick != 0, &mut tell, &mut advance(progress, ctx))?;
        // SAFETY: a place of the caller.
        unsafe { *findings = count };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_autoinc_reserve(
    handle: *mut PbxtTable,
    offset: u64,
    increment: u64,
    count: u64,
    first: *mut u64,
    reserved: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let answer = unsafe { table(handle)? }
            .host
            .reserve_auto_increment(offset, increment, count)?;
        // SAFETY: places of the caller.
        unsafe {
            *first = answer.first;
            *reserved = answer.count;
        }
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_autoinc_raise(handle: *mut PbxtTable, next: u64) -> Status {
    // SAFETY: a valid handle.
    call(|| Ok(unsafe { table(handle)? }.host.raise_auto_increment(next)?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_autoinc_set(handle: *mut PbxtTable, next: u64) -> Status {
    // SAFETY: a valid handle.
    call(|| Ok(unsafe { table(handle)? }.host.set_auto_increment(next)?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_range_estimate(
    handle: *mut PbxtTable,
    index: u32,
    low: *const u8,
    low_parts: u32,
    low_inclusive: i32,
    high: *const u8,
    high_parts: u32,
    high_inclusive: i32,
    rows: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let host = &unsafe { table(handle)? }.host;
        let index = index as usize;
        let border = |tuple: *const u8, parts: u32| -> Result<Option<Vec<u8>>, Failure> {
            if parts == 0 {
                return Ok(None);
            }
            let parts = parts as usize;
            // SAFETY: a search tuple of that many parts.
            let tuple = unsafe { bytes(tuple, host.tuple_length(index, parts)?) };
            let mut key = Vec::new();
            host.search_key(index, tuple, parts, &mut key)?;
            Ok(Some(key))
        };
        let (low, high) = (border(low, low_parts)?, border(high, high_parts)?);
        let estimate = host.estimate_range(
            index,
            low.as_deref().map(|key| (key, low_inclusive != 0)),
            high.as_deref().map(|key| (key, high_inclusive != 0)),
        );
        // SAFETY: a place of the caller.
        unsafe { *rows = estimate };
        Ok(())
    })
}
