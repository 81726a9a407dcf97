//! Keys of a host, given and taken away: rules EN10 to EN12 of docs/encryption.md through the C interface.

use pbxt_capi::{
    ABI_VERSION, PbxtColumn, PbxtDb, PbxtHost, PbxtKeys, PbxtOptions, PbxtTableDef, Status, pbxt_close,
    pbxt_error_text, pbxt_open, pbxt_table_create, pbxt_table_exists,
};
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const NO_KEY_VERSION: u32 = u32::MAX;

static NO_HOST: PbxtHost = PbxtHost::NOTHING;

/// Byte that the key consists of; 0: there is none. This is the only test that changes it.
static BYTE: AtomicU32 = AtomicU32::new(9);

unsafe extern "C" fn latest_version(key_id: u32) -> u32 {
    let is_there = key_id == 5 && BYTE.load(Ordering::Relaxed) != 0;
    if is_there { 3 } else { NO_KEY_VERSION }
}

unsafe extern "C" fn key(key_id: u32, version: u32, bytes: *mut u8, len: *mut u32) -> i32 {
    let byte = BYTE.load(Ordering::Relaxed) as u8;
    if (key_id, version) != (5, 3) || byte == 0 {
        return 1;
    }
    // SAFETY: there is room for at least as many bytes, as the header says.
    unsafe {
        bytes.write_bytes(byte, 32);
        *len = 32;
    }
    0
}

/// Opens and closes; with a key all new files are encrypted.
fn open(directory: &Path, keys: *const PbxtKeys, encryption_key: u32) -> Status {
    open_with(
        directory,
        keys,
        encryption_key,
        u8::from(encryption_key != 0),
        |_| {},
    )
}

/// The same, and does something meanwhile.
fn open_with(
    directory: &Path,
    keys: *const PbxtKeys,
    encryption_key: u32,
    encrypt_all: u8,
    meanwhile: impl FnOnce(*mut PbxtDb),
) -> Status {
    let name = CString::new(directory.display().to_string()).expect("a path without zeros");
    let options = PbxtOptions {
        abi_version: ABI_VERSION,
        directory: name.as_ptr(),
        cache_bytes: 64 << 20,
        read_only: 0,
        background_threads: 0,
        direct_io: 1,
        instruments: std::ptr::null(),
        keys,
        encryption_key,
        encrypt_all,
    };
    let mut db = std::ptr::null_mut();
    // SAFETY: options, host and the place for the handle outlive the call; the handle is closed once.
    unsafe {
        match pbxt_open(&raw const options, &raw const NO_HOST, &raw mut db) {
            Status::Ok => {
                meanwhile(db);
                pbxt_close(db)
            }
            refused => refused,
        }
    }
}

fn text() -> String {
    // SAFETY: a string of this thread that ends with a zero.
    unsafe { CStr::from_ptr(pbxt_error_text()) }
        .to_string_lossy()
        .into_owned()
}

#[test]
fn a_host_gives_keys_and_is_told_which_one_is_missing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("db");
    let table = PbxtKeys {
        latest_version,
        key,
        remedy: c"bring it back".as_ptr(),
    };
    let table = &raw const table;
    assert_eq!(open(&path, table, 6), Status::NoKey);
    assert!(
        text().contains("are to be encrypted with key 6: there is no such key"),
        "{}",
        text()
    );
    assert_eq!(open(&path, table, 5), Status::Ok);
    assert_eq!(
        open(&path, table, 0),
        Status::Ok,
        "what is encrypted is read without the setting"
    );
    BYTE.store(0, Ordering::Relaxed);
    assert_eq!(open(&path, table, 0), Status::NoKey);
    let said = text();
    let words = "is encrypted with version 3 of key 5: there is no such key: bring it back";
    assert!(said.starts_with('\'') && said.ends_with(words), "{said}");
    BYTE.store(10, Ordering::Relaxed);
    assert_eq!(open(&path, table, 5), Status::NoKey);
    assert!(text().contains("is another one now: bring it back"), "{}", text());
    assert_eq!(open(&path, std::ptr::null(), 0), Status::NoKey);
    assert!(text().contains("this program has no keys"), "{}", text());
    BYTE.store(9, Ordering::Relaxed);
    assert_eq!(open(&path, table, 0), Status::Ok, "EN11: nothing is lost");
    let other = directory.path().join("other");
    tables_are_encrypted_where_they_ask_for_it(&other, table);
}

/// How many files of a directory are encrypted.
fn encrypted_files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).expect("a listing");
    let content = entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("the file"));
    content.filter(|content| content.starts_with(b"PBXTENC1")).count()
}

/// A table of one number.
fn create(db: *mut PbxtDb, encrypted: u8) -> Status {
    // SAFETY: a struct of numbers and pointers, of which null is one.
    let mut column: PbxtColumn = unsafe { std::mem::zeroed() };
    (column.offset, column.length, column.stored) = (0, 4, 1);
    // SAFETY: as above.
    let mut def: PbxtTableDef = unsafe { std::mem::zeroed() };
    (def.name, def.name_len) = (c"./d/t".as_ptr(), 5);
    (def.record_length, def.column_count, def.columns) = (4, 1, &raw const column);
    def.encrypted = encrypted;
    // SAFETY: the handle is open, and the definition outlives the call.
    unsafe { pbxt_table_create(db, std::ptr::null_mut(), &raw const def) }
}

fn tables_are_encrypted_where_they_ask_for_it(path: &Path, keys: *const PbxtKeys) {
    let all_without_key = open_with(path, keys, 0, 1, |_| {});
    assert!(
        all_without_key != Status::Ok && text().contains("no key is named"),
        "{}",
        text()
    );
    // A key that is not there, and then one that is.
    assert_eq!(
        open_with(path, keys, 6, 0, |db| {
            assert_eq!(create(db, 1), Status::NoKey);
            assert!(
                text().contains("are to be encrypted with key 6: there is no such key"),
                "{}",
                text()
            );
        }),
        Status::Ok
    );
    assert_eq!(encrypted_files(path), 0, "EN12");
    let made = open_with(path, keys, 5, 0, |db| assert_eq!(create(db, 1), Status::Ok));
    assert_eq!(made, Status::Ok);
    assert!(encrypted_files(path) > 0, "EN17");
    // New files have to be encrypted, with a key that is there, as long as the table is.
    assert_eq!(open_with(path, keys, 6, 0, |_| {}), Status::NoKey, "EN20");
    let found = open_with(path, keys, 5, 0, |db| {
        // SAFETY: the handle is open.
        assert_eq!(unsafe { pbxt_table_exists(db, c"./d/t".as_ptr(), 5) }, 1);
    });
    assert_eq!(found, Status::Ok);
}
