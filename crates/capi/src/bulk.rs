//! Brackets of many rows.

use crate::cursor::{PbxtCursor, cursor, record_mut};
use crate::guard::{Failure, call};
use crate::status::Status;
use pbxt::Error;

/// `PBXT_BULK_ROW_ANSWERS`.
const ROW_ANSWERS: u32 = 1;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_bulk_begin(handle: *mut PbxtCursor, expected_rows: u64, flags: u32) -> Status {
    call(|| {
        if flags & !ROW_ANSWERS != 0 {
            return Err(Error::Invalid(format!("{flags:#x} are no flags of a bulk bracket")).into());
        }
        // SAFETY: a valid handle.
        let outer = unsafe { cursor(handle)? };
        if outer.is_autonomous() {
            // Each row commits by itself.
            return Ok(());
        }
        // SAFETY: a valid handle with its session.
        let (cursor, session, _) = unsafe { outer.split()? };
        cursor.bulk_begin(session, expected_rows, flags & ROW_ANSWERS != 0);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_bulk_end(handle: *mut PbxtCursor, abort: i32) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: a valid handle with its session.
        let (cursor, session, _) = unsafe { outer.split()? };
        let ended = cursor.bulk_end(session, abort != 0);
        Ok(outer.judged(ended)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_bulk_refused(handle: *mut PbxtCursor, record: *mut u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        if cursor.refused_row(session, unsafe { record_mut(record, length) })? {
            Ok(())
        } else {
            Err(Failure::Answer(Status::NotFound))
        }
    })
}
