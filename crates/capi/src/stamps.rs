//! Stamps: ids of transactions that a host writes into rows. The contract is `include/pbxt_stamps.h`.

use crate::guard::call;
use crate::session::{PbxtSession, session};
use crate::status::Status;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_stamp(handle: *mut PbxtSession, txn_id: *mut u64) -> Status {
    call(|| {
        // SAFETY: a valid handle, used by its one thread; a place of the caller.
        unsafe { *txn_id = session(handle)?.stamp()?.raw() };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_commit_stamp(
    handle: *mut PbxtSession,
    txn_id: *mut u64,
    commit_id: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, used by its one thread.
        let told = unsafe { session(handle)? }.commit_stamp()?;
        let (txn, commit) = told.map_or((0, 0), |(txn, commit)| (txn.raw(), commit.raw()));
        // SAFETY: places of the caller.
        unsafe { (*txn_id, *commit_id) = (txn, commit) };
        Ok(())
    })
}
