//! Judging index entries: the host's pushed conditions behind the engine's trait.

use crate::cursor::{PbxtCursor, cursor};
use crate::guard::call;
use crate::status::Status;
use pbxt::Error;
use pbxt::host::{Admission, EntryJudge};
use pbxt_base::RowId;
use std::ffi::c_void;
use std::sync::Arc;

/// `pbxt_judge`.
pub type PbxtJudge = unsafe extern "C" fn(*mut c_void, *mut u8, u64) -> i32;

/// The host's function with its context.
#[derive(Debug)]
struct HostJudge {
    judge: PbxtJudge,
    context: usize,
}

impl EntryJudge for HostJudge {
    #[inline]
    fn judge(&self, record: &mut [u8], row: RowId) -> Result<Admission, Error> {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: the host's function and context, which it keeps while the cursor is open; the record is its own buffer, lent for
        // the call, and nothing else uses it meanwhile.
        match unsafe { (self.judge)(context, record.as_mut_ptr(), row.raw()) } {
            0 => Ok(Admission::Unwanted),
            1 => Ok(Admission::Wanted),
            2 => Ok(Admission::Beyond),
            _ => Err(Error::Killed),
        }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_judge(
    handle: *mut PbxtCursor,
    judge: Option<PbxtJudge>,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        let judge = judge.ok_or_else(|| Error::Invalid("the judge is null".into()))?;
        let context = context.expose_provenance();
        cursor.inner().set_judge(Arc::new(HostJudge { judge, context }));
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_judge_entries(handle: *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        let index = cursor.index_in_use();
        Ok(cursor.inner().judge_entries(index)?)
    })
}
