//! Host: a program behind the C interface that makes whatever calls an input chooses, in any order.
//!
//! Why it exists: a host is written in another language by somebody else. Within the contract of the header - handles that are
//! open, pointers to what they are said to point to - nothing that it passes, and no order of calls, may be more than refused.
//! Format of an input: a byte for each choice (`Feed`): a definition, then calls with their arguments, until it ends.
//! State: a database of its own for each input, in a temporary directory; two sessions, which never wait; two tables.
//! Rules: FZ5 of docs/testing.md. H1: every handle that is passed is open; a session is given up by its cursors before it is
//! closed, a table before it is altered, replaced or dropped. H2: a call that needs records or tuples is made for sound
//! definitions only, and a row is changed that the statement has read last, with the columns that are set now.

mod calls;
mod feed;
mod made;
mod schema_calls;

use feed::Feed;
use made::{Made, weights};
use pbxt_capi::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// Sessions that work side by side.
const SESSIONS: usize = 2;
/// Tables that may be open; the second one can refer to the first.
const TABLES: [&[u8]; 2] = [b"./f/t0", b"./f/t1"];
/// Calls of an input: longer ones have said enough.
const CALLS_MAX: usize = 300;

/// A table that is open, with one cursor.
struct Opened {
    made: Made,
    table: *mut PbxtTable,
    cursor: *mut PbxtCursor,
    /// The session that the cursor is bound to.
    bound: Option<usize>,
    /// As last read: what an update says was there.
    record: Vec<u8>,
    /// The row in it, while the statement that read it goes on: the only one that may be changed.
    row: Option<u64>,
    /// The index of the scan under way.
    index: usize,
}

/// See the module.
struct Host {
    db: *mut PbxtDb,
    sessions: [*mut PbxtSession; SESSIONS],
    tables: [Option<Opened>; TABLES.len()],
    savepoints: [u64; 2],
    /// Values that records point to.
    kept: Vec<Box<[u8]>>,
}

/// Reads an input.
pub(crate) fn calls(input: &[u8]) {
    let directory = directory().expect("a directory for the database");
    let path = CString::new(directory.path().display().to_string()).expect("a path without zeros");
    let mut feed = Feed::new(input);
    let mut host = Host::open(&path, feed.byte() & 1);
    host.create(0, &mut feed);
    host.bind(0, 0, true);
    let mut made = 0..CALLS_MAX;
    while !feed.is_empty() && made.next().is_some() {
        host.call(&mut feed);
    }
    host.close();
}

/// In memory, if the system has such a place: what is asked is not how quick the disk is.
fn directory() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// Random choices: every input is a row of calls.
pub(crate) fn calls_seeds() -> Vec<Vec<u8>> {
    let mut rng = pbxt_testkit::Rng::new(1);
    let mut seed = |_| {
        let mut input = vec![0; 600];
        rng.fill(&mut input);
        input
    };
    (0..24).map(&mut seed).collect()
}

static HOST: PbxtHost = PbxtHost {
    weights: Some(host_weights),
    weights_context: Some(host_context),
    ..PbxtHost::NOTHING
};

unsafe extern "C" fn host_weights(
    context: *const c_void,
    src: *const u8,
    len: usize,
    out: *mut u8,
    cap: usize,
) -> usize {
    let src = if len == 0 {
        &[]
    } else {
        // SAFETY: the engine passes the value with its length.
        unsafe { std::slice::from_raw_parts(src, len) }
    };
    let weights = weights(context.addr(), src);
    // SAFETY: there is room for `cap` bytes.
    unsafe { std::ptr::copy_nonoverlapping(weights.as_ptr(), out, weights.len().min(cap)) };
    weights.len()
}

unsafe extern "C" fn host_context(collation: u32, _: u32, _: i32, _: i32) -> *const c_void {
    std::ptr::without_provenance(collation as usize)
}

/// Sentence of the last error.
fn sentence() -> String {
    // SAFETY: a string of this thread that ends with a zero.
    let text = unsafe { CStr::from_ptr(pbxt_error_text()) };
    text.to_string_lossy().into_owned()
}

/// Passes on what the engine answered, unless it is what no call may bring about.
fn answered(status: Status) -> Status {
    assert!(
        !matches!(
            status,
            Status::Internal | Status::Corrupt | Status::Poisoned | Status::Io | Status::WrongVersion
        ),
        "FZ5: {status:?}: {}",
        sentence()
    );
    status
}

impl Host {
    fn open(path: &CStr, background: u8) -> Self {
        let options = PbxtOptions {
            abi_version: ABI_VERSION,
            directory: path.as_ptr(),
            cache_bytes: 16 << 20,
            read_only: 0,
            background_threads: background,
            direct_io: 0,
            instruments: null(),
            keys: null(),
            encryption_key: 0,
            encrypt_all: 0,
        };
        let mut db = null_mut();
        // SAFETY: options and host outlive the call, and there is a place for the handle.
        let opened = unsafe { pbxt_open(&raw const options, &raw const HOST, &raw mut db) };
        assert_eq!(opened, Status::Ok, "a new database opens: {}", sentence());
        let mut host = Self {
            db,
            sessions: [null_mut(); SESSIONS],
            tables: [const { None }; TABLES.len()],
            savepoints: [0; 2],
            kept: Vec::new(),
        };
        (0..SESSIONS).for_each(|number| host.open_session(number));
        host
    }

    fn open_session(&mut self, number: usize) {
        let place = &raw mut self.sessions[number];
        // SAFETY: H1; there is a place for the handle.
        answered(unsafe { pbxt_session_open(self.db, null_mut(), number as u64 + 1, place) });
        self.configure(number, 2, 0, [1, 0, 0]);
    }

    /// Never waits: there is one thread.
    fn configure(
        &self,
        number: usize,
        isolation: i32,
        conflict_mode: i32,
        [flush, read_only, ordered]: [u8; 3],
    ) {
        let config = PbxtSessionConfig {
            isolation,
            conflict_mode,
            lock_wait_timeout_ms: 0,
            flush_at_commit: flush,
            read_only,
            ordered,
        };
        // SAFETY: H1; the configuration outlives the call.
        answered(unsafe { pbxt_session_configure(self.sessions[number], &raw const config) });
    }

    /// Cursors of a session, or of a table, let go.
    fn unbind(&mut self, of: impl Fn(usize, usize) -> bool) {
        for (number, opened) in self.tables.iter_mut().enumerate() {
            let Some(opened) = opened else { continue };
            if opened.bound.is_some_and(|session| of(number, session)) {
                // SAFETY: H1.
                unsafe { pbxt_cursor_unbind(opened.cursor) };
                opened.bound = None;
            }
        }
    }

    fn close_session(&mut self, number: usize) {
        self.unbind(|_, session| session == number);
        let session = std::mem::replace(&mut self.sessions[number], null_mut());
        // SAFETY: H1; the handle is not used again.
        unsafe { pbxt_session_close(session) };
    }

    /// Sessions let go of transactions that are prepared.
    fn detach_all(&self) {
        for session in self.sessions {
            // SAFETY: H1.
            unsafe {
                if pbxt_session_is_prepared(session) != 0 {
                    pbxt_detach_prepared(session);
                }
            }
        }
    }

    /// Ends the transactions of all sessions; prepared ones go on without them.
    fn end_all(&mut self) {
        self.unbind(|_, _| true);
        self.detach_all();
        for session in self.sessions {
            // SAFETY: H1.
            answered(unsafe { pbxt_rollback(session) });
        }
    }

    fn close_table(&mut self, number: usize) {
        if let Some(opened) = self.tables[number].take() {
            // SAFETY: H1; cursor and table are not used again.
            unsafe {
                pbxt_cursor_close(opened.cursor);
                pbxt_table_close(opened.table);
            }
        }
    }

    /// Everything goes, in order, and the database is whole.
    fn close(mut self) {
        (0..SESSIONS).for_each(|number| self.close_session(number));
        self.end_prepared();
        self.open_session(0);
        for number in 0..TABLES.len() {
            self.check(number);
            self.close_table(number);
        }
        self.close_session(0);
        // SAFETY: H1: all that was opened is closed.
        let closed = unsafe { pbxt_close(self.db) };
        assert_eq!(closed, Status::Ok, "FZ5: closing: {}", sentence());
    }

    /// Rolls back what is prepared and held by nobody.
    fn end_prepared(&self) {
        let mut xids = [PbxtXid {
            len: 0,
            bytes: [0; 255],
        }; 8];
        loop {
            // SAFETY: H1; there is room for so many.
            let count = unsafe { pbxt_prepared_list(self.db, 0, xids.as_mut_ptr(), xids.len()) };
            for xid in &xids[..count] {
                // SAFETY: H1; the bytes are there.
                let ended =
                    unsafe { pbxt_rollback_prepared(self.db, xid.bytes.as_ptr(), usize::from(xid.len)) };
                assert_eq!(
                    ended,
                    Status::Ok,
                    "FZ5: what is listed can be ended: {}",
                    sentence()
                );
            }
            if count == 0 {
                return;
            }
        }
    }

    /// CHECK TABLE finds nothing.
    fn check(&mut self, number: usize) {
        let Some(opened) = &self.tables[number] else {
            return;
        };
        let (mut findings, mut lines) = (0, Vec::<String>::new());
        let context = (&raw mut lines).cast();
        // SAFETY: H1; there is a place for the count, and `add_line` is given the lines.
        answered(unsafe {
            pbxt_table_check(
                opened.table,
                self.sessions[0],
                0,
                add_line,
                None,
                context,
                &raw mut findings,
            )
        });
        assert!(
            findings == 0 && lines.is_empty(),
            "FZ5: CHECK finds {findings}: {lines:?}"
        );
    }
}

unsafe extern "C" fn add_line(lines: *mut c_void, text: *const c_char) {
    // SAFETY: the lines of `check`, which nobody else uses meanwhile, and a string of the engine that ends with a zero.
    let (lines, text) = unsafe { (&mut *lines.cast::<Vec<String>>(), CStr::from_ptr(text)) };
    lines.push(text.to_string_lossy().into_owned());
}
