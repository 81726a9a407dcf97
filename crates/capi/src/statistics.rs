//! Statistics: options of a table, and ANALYZE. The contract is `include/pbxt_statistics.h`.

use crate::guard::call;
use crate::progress::{Report, advance};
use crate::session::{PbxtSession, session};
use crate::status::Status;
use crate::table::{PbxtTable, table};
use pbxt::StatisticsOptions;
use std::ffi::c_void;

/// `pbxt_statistics_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtStatisticsOptions {
    pub leaves: u32,
    pub is_fixed: u8,
    pub is_passing: u8,
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_set_statistics_options(
    handle: *mut PbxtTable,
    options: *const PbxtStatisticsOptions,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, and options that are valid for the call.
        let (table, options) = unsafe { (table(handle)?, &*options) };
        table.host.set_statistics_options(&StatisticsOptions {
            leaves: (options.leaves != 0).then_some(options.leaves),
            follow: options.is_fixed == 0,
            saved: options.is_passing == 0,
        });
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_analyze(
    handle: *mut PbxtTable,
    session_handle: *mut PbxtSession,
    progress: Report,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (table, session) = unsafe { (table(handle)?, session(session_handle)?) };
        Ok(table.host.analyze(session, &mut advance(progress, ctx))?)
    })
}
