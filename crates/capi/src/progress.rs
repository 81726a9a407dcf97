//! Progress: the function of a caller that hears how far a long operation is.

use std::ffi::c_void;

/// Is told what is done, and of how much; none if the caller does not want to know.
pub(crate) type Report = Option<unsafe extern "C" fn(*mut c_void, u64, u64)>;

/// What the engine calls: it tells the caller, with what the caller wants to be given.
pub(crate) fn advance(report: Report, ctx: *mut c_void) -> impl FnMut(u64, u64) {
    move |done, total| {
        if let Some(report) = report {
            // SAFETY: the caller's function, during the caller's call.
            unsafe { report(ctx, done, total) }
        }
    }
}
