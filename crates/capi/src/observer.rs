//! Observer: the host's callbacks behind the engine's traits.

use pbxt::WaitObserver;
use pbxt_rows::Weigher;
use std::ffi::{CString, c_char, c_void};

/// `pbxt_host`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtHost {
    pub log: Option<unsafe extern "C" fn(i32, *const c_char)>,
    pub weights: Option<unsafe extern "C" fn(*const c_void, *const u8, usize, *mut u8, usize) -> usize>,
    pub wait_report: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub victim_preference: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32>,
    pub wait_begin: Option<unsafe extern "C" fn(*mut c_void)>,
    pub wait_end: Option<unsafe extern "C" fn(*mut c_void)>,
    pub is_killed: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
}

impl PbxtHost {
    pub(crate) fn note(&self, level: i32, text: &str) {
        let (Some(log), Ok(text)) = (self.log, CString::new(text.replace('\0', " "))) else {
            return;
        };
        // SAFETY: the host's function, with a string that outlives the call.
        unsafe { log(level, text.as_ptr()) }
    }
}

fn pointer(host_session: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(host_session)
}

impl WaitObserver for PbxtHost {
    fn waiting(&self, waiter: usize, blocker: usize) {
        if let (Some(report), true) = (self.wait_report, waiter != 0 && blocker != 0) {
            // SAFETY: both are pointers the host gave at session open; the sessions are open while they are attached.
            unsafe { report(pointer(waiter), pointer(blocker)) }
        }
    }

    fn begin(&self, host_session: usize) {
        if let (Some(begin), true) = (self.wait_begin, host_session != 0) {
            // SAFETY: as above.
            unsafe { begin(pointer(host_session)) }
        }
    }

    fn end(&self, host_session: usize) {
        if let (Some(end), true) = (self.wait_end, host_session != 0) {
            // SAFETY: as above.
            unsafe { end(pointer(host_session)) }
        }
    }

    fn is_killed(&self, host_session: usize) -> bool {
        // SAFETY: as above.
        self.is_killed
            .is_some_and(|killed| host_session != 0 && unsafe { killed(pointer(host_session)) } != 0)
    }
}

impl Weigher for PbxtHost {
    fn weights(&self, part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        let Some(weights) = self.weights else { return };
        let start = out.len();
        let mut room = src.len() * 4 + 64;
        loop {
            out.resize(start + room, 0);
            let target = out.get_mut(start..).unwrap_or_default();
            // SAFETY: the context was given by the host for this part and is kept while the table is open; source and
            // target are valid for their lengths.
            let needed = unsafe {
                weights(
                    pointer(part_ctx),
                    src.as_ptr(),
                    src.len(),
                    target.as_mut_ptr(),
                    room,
                )
            };
            if needed <= room {
                out.truncate(start + needed);
                return;
            }
            room = needed;
        }
    }
}
