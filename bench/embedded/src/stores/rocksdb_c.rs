//! The part of RocksDB's C interface that the comparison needs, with handles that free themselves.
//!
//! Why it exists: the usual crate builds RocksDB from source, a quarter of an hour on two cores, and needs libclang for its bindings.
//! Debian has the library; its C interface is stable, and few calls are needed. Signatures are those of `rocksdb/c.h` 7.8.

use crate::store::Result;
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::ptr;

/// A handle of the library; which kind it is, the functions' names say.
type Handle = *mut c_void;
type ErrorSlot = *mut *mut c_char;

#[link(name = "librocksdb.so.7.8", kind = "dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn rocksdb_open(options: Handle, name: *const c_char, error: ErrorSlot) -> Handle;
    fn rocksdb_close(db: Handle);
    fn rocksdb_cancel_all_background_work(db: Handle, wait: c_uchar);
    fn rocksdb_free(memory: *mut c_void);

    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, on: c_uchar);
    fn rocksdb_options_increase_parallelism(options: Handle, threads: c_int);
    fn rocksdb_options_set_db_write_buffer_size(options: Handle, bytes: usize);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);

    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(table: Handle);
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(table: Handle, on: c_uchar);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> Handle;
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);

    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_set_sync(options: Handle, on: c_uchar);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_clear(batch: Handle);
    fn rocksdb_writebatch_put(
        changes: Handle,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn rocksdb_writebatch_delete(batch: Handle, key: *const c_char, key_bytes: usize);
    fn rocksdb_write(db: Handle, options: Handle, batch: Handle, error: ErrorSlot);

    fn rocksdb_create_snapshot(db: Handle) -> Handle;
    fn rocksdb_release_snapshot(db: Handle, snapshot: Handle);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_readoptions_set_snapshot(options: Handle, snapshot: Handle);
    fn rocksdb_get_pinned(
        db: Handle,
        options: Handle,
        key: *const c_char,
        key_bytes: usize,
        error: ErrorSlot,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, bytes: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Handle);

    fn rocksdb_create_iterator(db: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const c_char, key_bytes: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, bytes: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: Handle, bytes: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iterator: Handle, error: ErrorSlot);

    fn rocksdb_compact_range(
        db: Handle,
        start: *const c_char,
        start_bytes: usize,
        limit: *const c_char,
        limit_bytes: usize,
    );
}

/// Calls a function that says in a slot what went wrong.
fn checked<T>(call: impl FnOnce(ErrorSlot) -> T) -> Result<T> {
    let mut error = ptr::null_mut();
    let answer = call(&raw mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: the library has put a text of its own there, which ends with a zero and is the caller's to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        text
    };
    Err(text.into())
}

/// Bytes that the library shows.
///
/// # Safety
/// `start` is null or has `length` bytes that stay as they are for `'a`.
unsafe fn bytes<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// An open database.
pub(super) struct Db(Handle);

// SAFETY: the library's database may be used by any number of threads at once.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

/// What a database is opened with.
pub(super) struct Settings {
    pub(super) cache_bytes: usize,
    pub(super) write_buffers_bytes: usize,
    pub(super) bloom_bits_per_key: f64,
    pub(super) threads: i32,
}

impl Db {
    pub(super) fn open(directory: &str, settings: &Settings) -> Result<Self> {
        let name = CString::new(directory)?;
        // SAFETY: every handle is made here and destroyed once; the database and the table options count their own references to
        // what they were given, and the filter policy is theirs.
        unsafe {
            let table = rocksdb_block_based_options_create();
            let cache = rocksdb_cache_create_lru(settings.cache_bytes);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
            let bloom = rocksdb_filterpolicy_create_bloom_full(settings.bloom_bits_per_key);
            rocksdb_block_based_options_set_filter_policy(table, bloom);
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_increase_parallelism(options, settings.threads);
            rocksdb_options_set_db_write_buffer_size(options, settings.write_buffers_bytes);
            rocksdb_options_set_block_based_table_factory(options, table);
            let opened = checked(|error| rocksdb_open(options, name.as_ptr(), error));
            rocksdb_options_destroy(options);
            rocksdb_block_based_options_destroy(table);
            rocksdb_cache_destroy(cache);
            opened.map(Self)
        }
    }

    /// Writes what is in memory and merges everything.
    pub(super) fn compact(&self) {
        // SAFETY: the database is open; without borders the range is everything.
        unsafe { rocksdb_compact_range(self.0, ptr::null(), 0, ptr::null(), 0) }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: sessions and snapshots borrow the database, so there are none; it is closed once.
        unsafe {
            rocksdb_cancel_all_background_work(self.0, 1);
            rocksdb_close(self.0);
        }
    }
}

/// Changes that are written as one, in memory that is used again.
pub(super) struct Batch<'d> {
    db: &'d Db,
    changes: Handle,
    options: Handle,
}

impl<'d> Batch<'d> {
    pub(super) fn new(db: &'d Db) -> Self {
        // SAFETY: no argument can be wrong.
        let (changes, options) = unsafe { (rocksdb_writebatch_create(), rocksdb_writeoptions_create()) };
        Self { db, changes, options }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: pointers and lengths are of slices; the batch copies them.
        unsafe {
            rocksdb_writebatch_put(
                self.changes,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        // SAFETY: as in `put`.
        unsafe { rocksdb_writebatch_delete(self.changes, key.as_ptr().cast(), key.len()) }
    }

    /// Writes the changes, and forgets them.
    pub(super) fn write(&mut self, synced: bool) -> Result<()> {
        // SAFETY: the database outlives this, and all handles are live.
        unsafe {
            rocksdb_writeoptions_set_sync(self.options, c_uchar::from(synced));
            checked(|error| rocksdb_write(self.db.0, self.options, self.changes, error))?;
            rocksdb_writebatch_clear(self.changes);
        }
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SAFETY: both were made in `new` and are destroyed once.
        unsafe {
            rocksdb_writebatch_destroy(self.changes);
            rocksdb_writeoptions_destroy(self.options);
        }
    }
}

/// A view that does not change.
pub(super) struct Frozen<'d> {
    db: &'d Db,
    snapshot: Handle,
    options: Handle,
}

impl<'d> Frozen<'d> {
    pub(super) fn new(db: &'d Db) -> Self {
        // SAFETY: the database is open; the options live no longer than the snapshot they name.
        unsafe {
            let (snapshot, options) = (rocksdb_create_snapshot(db.0), rocksdb_readoptions_create());
            rocksdb_readoptions_set_snapshot(options, snapshot);
            Self {
                db,
                snapshot,
                options,
            }
        }
    }

    /// Shows the value of a key where the store keeps it; false if there is none.
    pub(super) fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // SAFETY: pointer and length are of a slice; the value stays where it is until the slice is destroyed, after it was seen.
        unsafe {
            let found = checked(|error| {
                rocksdb_get_pinned(self.db.0, self.options, key.as_ptr().cast(), key.len(), error)
            })?;
            if found.is_null() {
                return Ok(false);
            }
            let mut length = 0;
            let start = rocksdb_pinnableslice_value(found, &raw mut length);
            see(bytes(start, length));
            rocksdb_pinnableslice_destroy(found);
        }
        Ok(true)
    }

    /// Shows pairs from a key on, until `see` has enough.
    pub(super) fn walk(&self, from: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // SAFETY: the iterator lives as long as this function; key and value stay until it moves.
        unsafe {
            let iterator = rocksdb_create_iterator(self.db.0, self.options);
            rocksdb_iter_seek(iterator, from.as_ptr().cast(), from.len());
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = rocksdb_iter_key(iterator, &raw mut key_bytes);
                let value = rocksdb_iter_value(iterator, &raw mut value_bytes);
                if !see(bytes(key, key_bytes), bytes(value, value_bytes)) {
                    break;
                }
                rocksdb_iter_next(iterator);
            }
            let ended = checked(|error| rocksdb_iter_get_error(iterator, error));
            rocksdb_iter_destroy(iterator);
            ended
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // SAFETY: both were made in `new` and are given back once, the options first.
        unsafe {
            rocksdb_readoptions_destroy(self.options);
            rocksdb_release_snapshot(self.db.0, self.snapshot);
        }
    }
}
