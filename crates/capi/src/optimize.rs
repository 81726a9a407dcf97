//! OPTIMIZE: a table in as few and as full files as can be. The contract is `include/pbxt_optimize.h`.

use crate::guard::call;
use crate::progress::{Report, advance};
use crate::session::{PbxtSession, session};
use crate::status::Status;
use crate::table::{PbxtTable, table};
use std::ffi::c_void;

/// `pbxt_optimized`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtOptimized {
    pub is_held: u8,
    pub is_scattered: u8,
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_optimize(
    handle: *mut PbxtTable,
    session_handle: *mut PbxtSession,
    progress: Report,
    ctx: *mut c_void,
    out: *mut PbxtOptimized,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (table, session) = unsafe { (table(handle)?, session(session_handle)?) };
        let done = table.host.optimize(session, &mut advance(progress, ctx))?;
        // SAFETY: a place of the caller.
        unsafe {
            *out = PbxtOptimized {
                is_held: u8::from(done.is_held),
                is_scattered: u8::from(done.is_scattered),
            };
        }
        Ok(())
    })
}
