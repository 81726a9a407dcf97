//! Salvage: what the scans of a cursor have left out.

use crate::cursor::{PbxtCursor, cursor};
use crate::guard::call;
use crate::status::Status;
use std::ffi::{CString, c_char, c_void};

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_left_out(
    handle: *mut PbxtCursor,
    each: unsafe extern "C" fn(*mut c_void, u64, u64, *const c_char),
    ctx: *mut c_void,
    more: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let (ranges, beyond) = unsafe { cursor(handle)? }.inner().take_left_out();
        for range in ranges {
            let why = CString::new(range.why.replace('\0', " ")).unwrap_or_default();
            // SAFETY: the caller's function; the text outlives the call.
            unsafe { each(ctx, range.first.raw(), range.last.raw(), why.as_ptr()) }
        }
        // SAFETY: a place of the caller.
        unsafe { *more = beyond };
        Ok(())
    })
}
