//! Inserts of callers that have another row in mind as well. The contract is `include/pbxt_inserts.h`.

use crate::cursor::{PbxtCursor, cursor, finish_autonomous, host_record};
use crate::guard::call;
use crate::status::Status;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_insert_or_hold(handle: *mut PbxtCursor, record: *const u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record of the table.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let inserted = cursor.insert_or_hold(session, unsafe { host_record(record, length) });
        outer.judged(inserted)?;
        Ok(finish_autonomous(outer)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_insert_beside(handle: *mut PbxtCursor, record: *const u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record of the table.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let inserted = cursor.insert_beside(session, unsafe { host_record(record, length) });
        Ok(outer.judged(inserted)?)
    })
}
