//! Sight: lists of transactions, locks, waits and latches, line by line through a function of the caller.

use crate::database::{PbxtDb, database};
use crate::guard::call;
use crate::status::Status;
use pbxt::{
    ConflictMode, Isolation, LockInfo, LockKind, LockState, LockWaitInfo, Locked, TxnInfo, TxnState, TxnWait,
};
use pbxt_txn::LockMode;
use std::ffi::{c_char, c_void};

/// `pbxt_text`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtText {
    pub bytes: *const c_char,
    pub len: usize,
}

/// `pbxt_locked`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtLocked {
    pub table: PbxtText,
    pub index: PbxtText,
    pub key: PbxtText,
    pub key_hash: u64,
    pub row_id: u64,
    pub kind: u32,
    pub mode: u32,
}

/// `pbxt_txn_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtTxnInfo {
    pub txn_id: u64,
    pub host_thread_id: u64,
    pub started_unix_seconds: u64,
    pub age_seconds: u64,
    pub rows_changed: u64,
    pub rows_locked: u64,
    pub snapshot_ts: u64,
    pub snapshot_age_seconds: u64,
    pub log_bytes_held: u64,
    pub savepoints: u64,
    pub statement: PbxtText,
    pub state: u32,
    pub isolation: u32,
    pub conflict_mode: u32,
    pub waits: u32,
    pub waits_for: PbxtLocked,
    pub waits_since_unix_seconds: u64,
    pub waited_millis: u64,
    pub blocking_txn: u64,
    pub blocking_host_thread_id: u64,
}

/// `pbxt_lock_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtLockInfo {
    pub txn_id: u64,
    pub host_thread_id: u64,
    pub what: PbxtLocked,
    pub count: u64,
    pub state: u32,
}

/// `pbxt_lock_wait_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtLockWaitInfo {
    pub waiting_txn: u64,
    pub waiting_host_thread_id: u64,
    pub what: PbxtLocked,
    pub since_unix_seconds: u64,
    pub waited_millis: u64,
    pub blocking_txn: u64,
    pub blocking_host_thread_id: u64,
    pub blockers: u64,
    pub in_line: u32,
}

pub(crate) fn text_of(bytes: &[u8]) -> PbxtText {
    PbxtText {
        bytes: bytes.as_ptr().cast(),
        len: bytes.len(),
    }
}

fn mode_code(mode: LockMode) -> u32 {
    match mode {
        LockMode::Intent => 0,
        LockMode::Shared => 1,
        LockMode::Exclusive => 2,
    }
}

fn locked(what: &Locked, mode: LockMode) -> PbxtLocked {
    PbxtLocked {
        table: text_of(what.table.as_bytes()),
        index: text_of(what.index.as_bytes()),
        key: text_of(&what.key),
        key_hash: what.key_hash,
        row_id: what.row,
        kind: match what.kind {
            LockKind::Table => 0,
            LockKind::Row => 1,
            LockKind::Rows => 2,
            LockKind::Key => 3,
            LockKind::TxnEnd => 4,
        },
        mode: mode_code(mode),
    }
}

fn nothing() -> PbxtLocked {
    PbxtLocked {
        table: text_of(b""),
        index: text_of(b""),
        key: text_of(b""),
        key_hash: 0,
        row_id: 0,
        kind: 0,
        mode: 0,
    }
}

fn txn_info(txn: &TxnInfo) -> PbxtTxnInfo {
    let wait = txn.wait.as_ref();
    let of_wait = |get: fn(&TxnWait) -> u64| wait.map_or(0, get);
    PbxtTxnInfo {
        txn_id: txn.txn.raw(),
        host_thread_id: txn.host_thread,
        started_unix_seconds: txn.started_unix_seconds,
        age_seconds: txn.age_seconds,
        rows_changed: txn.rows_changed,
        rows_locked: txn.rows_locked,
        snapshot_ts: txn.snapshot.raw(),
        snapshot_age_seconds: txn.snapshot_age_seconds,
        log_bytes_held: txn.log_bytes_held,
        savepoints: txn.savepoints,
        statement: text_of(txn.statement.as_deref().unwrap_or_default().as_bytes()),
        state: match txn.state {
            TxnState::Active => 0,
            TxnState::Waiting => 1,
            TxnState::Prepared => 2,
            TxnState::Detached => 3,
        },
        isolation: match txn.isolation {
            Isolation::ReadCommitted => 1,
            Isolation::RepeatableRead => 2,
            Isolation::Serializable => 3,
        },
        conflict_mode: match txn.conflict_mode {
            ConflictMode::Default => 0,
            ConflictMode::Error => 1,
            ConflictMode::Wait => 2,
        },
        waits: u32::from(wait.is_some()),
        waits_for: wait.map_or_else(nothing, |wait| locked(&wait.what, wait.mode)),
        waits_since_unix_seconds: of_wait(|wait| wait.since_unix_seconds),
        waited_millis: of_wait(|wait| wait.waited_millis),
        blocking_txn: of_wait(|wait| wait.blocker.txn.raw()),
        blocking_host_thread_id: of_wait(|wait| wait.blocker.host_thread),
    }
}

fn lock_info(lock: &LockInfo) -> PbxtLockInfo {
    PbxtLockInfo {
        txn_id: lock.owner.txn.raw(),
        host_thread_id: lock.owner.host_thread,
        what: locked(&lock.what, lock.mode),
        count: lock.count,
        state: match lock.state {
            LockState::Changed => 0,
            LockState::Granted => 1,
            LockState::Waiting => 2,
        },
    }
}

fn wait_info(wait: &LockWaitInfo) -> PbxtLockWaitInfo {
    PbxtLockWaitInfo {
        waiting_txn: wait.waiter.txn.raw(),
        waiting_host_thread_id: wait.waiter.host_thread,
        what: locked(&wait.what, wait.mode),
        since_unix_seconds: wait.since_unix_seconds,
        waited_millis: wait.waited_millis,
        blocking_txn: wait.blocker.txn.raw(),
        blocking_host_thread_id: wait.blocker.host_thread,
        blockers: wait.blockers,
        in_line: u32::from(wait.in_line),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_list_txns(
    db: *mut PbxtDb,
    each: unsafe extern "C" fn(*mut c_void, *const PbxtTxnInfo) -> i32,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let list = unsafe { database(db)? }.db.list_txns();
        // SAFETY: the caller's function; what the line points to outlives the call.
        let _ = list.iter().find(|txn| unsafe { each(ctx, &txn_info(txn)) } != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_list_locks(
    db: *mut PbxtDb,
    each: unsafe extern "C" fn(*mut c_void, *const PbxtLockInfo) -> i32,
    ctx: *mut c_void,
    left_out: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let list = unsafe { database(db)? }.db.list_locks();
        // SAFETY: a place of the caller.
        unsafe { *left_out = list.left_out };
        // SAFETY: the caller's function; what the line points to outlives the call.
        let _ = list
            .lines
            .iter()
            .find(|lock| unsafe { each(ctx, &lock_info(lock)) } != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_list_lock_waits(
    db: *mut PbxtDb,
    each: unsafe extern "C" fn(*mut c_void, *const PbxtLockWaitInfo) -> i32,
    ctx: *mut c_void,
    left_out: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let list = unsafe { database(db)? }.db.list_lock_waits();
        // SAFETY: a place of the caller.
        unsafe { *left_out = list.left_out };
        // SAFETY: the caller's function; what the line points to outlives the call.
        let _ = list
            .lines
            .iter()
            .find(|wait| unsafe { each(ctx, &wait_info(wait)) } != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_list_latches(
    db: *mut PbxtDb,
    each: unsafe extern "C" fn(*mut c_void, PbxtText, u64) -> i32,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let list = unsafe { database(db)? }.db.contended_latches();
        // SAFETY: the caller's function; names outlive the call.
        let _ = list
            .iter()
            .find(|(name, times)| unsafe { each(ctx, text_of(name.as_bytes()), *times) } != 0);
        Ok(())
    })
}
