//! Session: transactions, statements, savepoints, two-phase commit.

use crate::database::{PbxtDb, database};
use crate::definition::conflict_mode;
use crate::guard::{bytes, call, value};
use crate::status::Status;
use pbxt::{Error, FlushAtCommit, Isolation, Session, SessionConfig, SessionGate};
use pbxt_base::Lsn;
use std::ffi::c_void;
use std::sync::Arc;

/// `pbxt_session_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtSessionConfig {
    pub isolation: i32,
    pub conflict_mode: i32,
    pub lock_wait_timeout_ms: u64,
    pub flush_at_commit: u8,
    pub read_only: u8,
    pub ordered: u8,
}

/// `pbxt_session`. The gate stands apart because a killer's thread reads it while the owner works.
#[derive(Debug)]
pub struct PbxtSession {
    gate: Arc<SessionGate>,
    session: Session,
}

/// The session behind a handle, for its one thread.
///
/// # Safety
/// `session` came from `pbxt_session_open`, is open, and no other reference to it exists.
pub(crate) unsafe fn session<'a>(session: *mut PbxtSession) -> Result<&'a mut Session, Error> {
    if session.is_null() {
        return Err(Error::Invalid("the session handle is null".into()));
    }
    // SAFETY: by the contract above; only this field is borrowed, so a killer may look at the gate.
    Ok(unsafe { &mut (*session).session })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_session_open(
    db: *mut PbxtDb,
    host_session: *mut c_void,
    host_thread_id: u64,
    out: *mut *mut PbxtSession,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let db = unsafe { database(db)? };
        let session = Session::open(&db.db, host_session.expose_provenance(), host_thread_id);
        let handle = Box::new(PbxtSession {
            gate: Arc::clone(session.gate()),
            session,
        });
        // SAFETY: a place of the caller for the handle.
        unsafe { *out = Box::into_raw(handle) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_session_close(session: *mut PbxtSession) {
    value((), || {
        if !session.is_null() {
            // SAFETY: the handle came from `pbxt_session_open` and is given back once.
            drop(unsafe { Box::from_raw(session) });
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_session_configure(
    handle: *mut PbxtSession,
    config: *const PbxtSessionConfig,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (session, config) = unsafe { (session(handle)?, &*config) };
        session.configure(SessionConfig {
            isolation: match config.isolation {
                1 => Isolation::ReadCommitted,
                3 => Isolation::Serializable,
                _ => Isolation::RepeatableRead,
            },
            conflict_mode: conflict_mode(config.conflict_mode)?,
            lock_wait_timeout_ms: config.lock_wait_timeout_ms,
            flush: match config.flush_at_commit {
                0 => FlushAtCommit::Background,
                2 => FlushAtCommit::Written,
                _ => FlushAtCommit::Durable,
            },
            read_only: config.read_only != 0,
            ordered: config.ordered != 0,
        });
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_session_kill(session: *mut PbxtSession) {
    if !session.is_null() {
        // SAFETY: the session is open; only the gate is looked at, which is made for other threads.
        let gate = unsafe { &(*session).gate };
        value((), || gate.kill());
    }
}

macro_rules! simple {
    ($($name:ident => $method:ident;)*) => {$(
        /// See the header.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut PbxtSession) -> Status {
            // SAFETY: a valid handle, used by its one thread.
            call(|| Ok(unsafe { session(handle)? }.$method()?))
        }
    )*};
}

simple! {
    pbxt_statement_begin => begin_statement;
    pbxt_statement_end => finish_statement;
    pbxt_statement_rollback => rollback_statement;
    pbxt_row_hold => hold_row;
    pbxt_commit => commit;
    pbxt_commit_ordered => commit_ordered;
    pbxt_rollback => rollback;
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_take_snapshot(handle: *mut PbxtSession) -> Status {
    call(|| {
        // SAFETY: a valid handle, used by its one thread.
        unsafe { session(handle)? }.snapshot();
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_savepoint(handle: *mut PbxtSession, out: *mut u64) -> Status {
    call(|| {
        // SAFETY: a valid handle, used by its one thread; a place of the caller.
        unsafe { *out = session(handle)?.savepoint()?.raw() };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_rollback_to(handle: *mut PbxtSession, savepoint: u64) -> Status {
    // SAFETY: a valid handle, used by its one thread.
    call(|| Ok(unsafe { session(handle)? }.rollback_to(Lsn::new(savepoint))?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_savepoint_release(
    handle: *mut PbxtSession,
    savepoint: u64,
    with_newer: i32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, used by its one thread.
        unsafe { session(handle)? }.release_savepoint(Lsn::new(savepoint), with_newer != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_row_release(handle: *mut PbxtSession, stays: i32) -> Status {
    // SAFETY: a valid handle, used by its one thread.
    call(|| Ok(unsafe { session(handle)? }.release_row(stays != 0)?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_prepare(handle: *mut PbxtSession, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a valid handle, used by its one thread; bytes of the caller.
    call(|| Ok(unsafe { session(handle)?.prepare(bytes(xid, xid_len)) }?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_detach_prepared(handle: *mut PbxtSession) {
    value((), || {
        // SAFETY: a valid handle, used by its one thread.
        if let Ok(session) = unsafe { session(handle) } {
            session.detach_prepared();
        }
    });
}

macro_rules! question {
    ($($name:ident => $method:ident;)*) => {$(
        /// See the header.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const PbxtSession) -> i32 {
            // SAFETY: a valid handle, used by its one thread.
            value(0, || i32::from(unsafe { session(handle.cast_mut()) }.is_ok_and(|session| session.$method())))
        }
    )*};
}

question! {
    pbxt_session_holds_locks => holds_locks;
    pbxt_session_has_changes => has_changes;
    pbxt_session_is_prepared => is_prepared;
}

/// `pbxt_xid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtXid {
    pub len: u8,
    pub bytes: [u8; 255],
}

impl PbxtXid {
    /// Ids have 255 bytes at most (rule V12).
    fn of(xid: &[u8]) -> Self {
        let mut item = Self {
            len: xid.len() as u8,
            bytes: [0; 255],
        };
        if let Some(place) = item.bytes.get_mut(..xid.len()) {
            place.copy_from_slice(xid);
        }
        item
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_prepared_list(
    db: *mut PbxtDb,
    from: usize,
    out: *mut PbxtXid,
    cap: usize,
) -> usize {
    value(0, || {
        // SAFETY: a valid handle.
        let Ok(db) = (unsafe { database(db) }) else {
            return 0;
        };
        let xids = db.db.prepared.xids();
        let mut count = 0;
        for xid in xids.iter().skip(from).take(cap) {
            // SAFETY: the caller has room for `cap` items.
            unsafe { out.add(count).write(PbxtXid::of(xid)) };
            count += 1;
        }
        count
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_prepared_alike(
    db: *mut PbxtDb,
    xid: *const u8,
    xid_len: usize,
    but_for: usize,
    out: *mut PbxtXid,
) -> Status {
    call(|| {
        // SAFETY: a valid handle; bytes of the caller.
        let found = unsafe { database(db)?.db.prepared.alike(bytes(xid, xid_len), but_for) };
        let found = found.ok_or(Error::NoSuchXid)?;
        // SAFETY: the caller has room for one.
        unsafe { out.write(PbxtXid::of(&found)) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_commit_prepared(db: *mut PbxtDb, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a valid handle; bytes of the caller.
    call(|| Ok(unsafe { database(db)?.db.commit_prepared(bytes(xid, xid_len)) }?))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_rollback_prepared(db: *mut PbxtDb, xid: *const u8, xid_len: usize) -> Status {
    // SAFETY: a valid handle; bytes of the caller.
    call(|| Ok(unsafe { database(db)?.db.rollback_prepared(bytes(xid, xid_len)) }?))
}
