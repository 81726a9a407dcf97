//! Observer: the host's callbacks behind the engine's traits.

use pbxt::host::TableHost;
use pbxt::{Error, WaitObserver};
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
    pub commit_ordered: Option<unsafe extern "C" fn(*mut c_void)>,
    pub statement: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> usize>,
    pub weights_context: Option<unsafe extern "C" fn(u32, u32, i32, i32) -> *const c_void>,
    pub generate: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut u8) -> i32>,
    pub fits: Option<unsafe extern "C" fn(*const c_char, usize, usize, *const u8, usize) -> i32>,
    pub progress: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
}

impl PbxtHost {
    /// A host that offers nothing.
    pub const NOTHING: Self = Self {
        log: None,
        weights: None,
        wait_report: None,
        victim_preference: None,
        wait_begin: None,
        wait_end: None,
        is_killed: None,
        commit_ordered: None,
        statement: None,
        weights_context: None,
        generate: None,
        fits: None,
        progress: None,
    };

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
            // SAFETY: both are pointers the host gave at session open; the sessions are open while they are attached, and
            // the engine keeps them attached during the call (rule V4).
            unsafe { report(pointer(waiter), pointer(blocker)) }
        }
    }

    fn prefer_victim(&self, a: usize, b: usize) -> i32 {
        // SAFETY: as above; members of a circle wait, so their sessions are open.
        self.victim_preference
            .map_or(0, |prefer| unsafe { prefer(pointer(a), pointer(b)) })
    }

    fn ordered(&self, host_session: usize) {
        if let (Some(ordered), true) = (self.commit_ordered, host_session != 0) {
            // SAFETY: as above; the session's own thread calls.
            unsafe { ordered(pointer(host_session)) }
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

    fn progress(&self, host_session: usize, done: u64, total: u64) {
        if let (Some(progress), true) = (self.progress, host_session != 0) {
            // SAFETY: as above; the session's own thread calls.
            unsafe { progress(pointer(host_session), done, total) }
        }
    }

    fn statement(&self, host_session: usize, bytes_max: usize) -> Option<String> {
        let statement = self.statement.filter(|_| host_session != 0)?;
        let mut text = vec![0; bytes_max];
        // SAFETY: the pointer the host gave at session open, which the engine uses only until the session is closed (rule
        // T38); the text has room for its length.
        let length = unsafe { statement(pointer(host_session), text.as_mut_ptr().cast(), bytes_max) };
        text.truncate(length);
        (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    fn deadlock(&self, text: &str) {
        // Line by line, because logs cut long entries.
        text.lines().for_each(|line| self.note(2, line));
    }

    fn damage(&self, text: &str) {
        self.note(0, text);
    }

    fn opening(&self, text: &str) {
        self.note(2, text);
    }

    fn failure(&self, text: &str) {
        self.note(1, text);
    }

    fn removed(&self, text: &str) {
        self.note(2, text);
    }

    fn left_alone(&self, text: &str) {
        self.note(1, text);
    }

    fn read_only(&self, text: &str) {
        self.note(0, text);
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

    fn context(&self, collation: u32, length: u32, is_prefix: bool, is_char: bool) -> Option<usize> {
        let context = self.weights_context?;
        // SAFETY: the host's function, which takes plain numbers; what it gives is kept by the host until the database is closed.
        let part = unsafe { context(collation, length, i32::from(is_prefix), i32::from(is_char)) };
        (!part.is_null()).then(|| part.expose_provenance())
    }
}

impl TableHost for PbxtHost {
    fn generate(&self, host_session: usize, table: &str, record: &mut [u8]) -> pbxt::Result<()> {
        let failed =
            |why: &str| Error::Invalid(format!("columns of table '{table}' could not be computed: {why}"));
        let generate = self
            .generate
            .ok_or_else(|| failed("the host does not offer it"))?;
        if host_session == 0 {
            return Err(failed("no connection of the host runs the statement"));
        }
        // SAFETY: the pointer the host gave at session open, used by the session's own thread; name and record are valid for the
        // call, and the record has the layout that the host gave at create.
        let answer = unsafe {
            generate(
                pointer(host_session),
                table.as_ptr().cast(),
                table.len(),
                record.as_mut_ptr(),
            )
        };
        match answer {
            0 => Ok(()),
            error => Err(failed(&format!("the host gave error {error}"))),
        }
    }

    fn fits(&self, type_text: &str, field_bytes: usize, value: &[u8]) -> bool {
        let Some(fits) = self.fits else { return true };
        // SAFETY: text and value are valid for the call.
        let answer = unsafe {
            fits(
                type_text.as_ptr().cast(),
                type_text.len(),
                field_bytes,
                value.as_ptr(),
                value.len(),
            )
        };
        answer != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::sync::{Mutex, PoisonError};

    static LINES: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn keep(level: i32, text: *const c_char) {
        // SAFETY: `note` gives a string that ends with 0 and outlives the call.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        LINES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((level, text));
    }

    #[test]
    fn each_kind_of_line_has_its_level() {
        let host = PbxtHost {
            log: Some(keep),
            ..PbxtHost::NOTHING
        };
        host.damage("damage");
        host.read_only("read\0only");
        host.failure("failure");
        host.left_alone("left alone");
        host.removed("removed");
        host.opening("opening");
        host.deadlock("two\nlines");
        let told = std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner));
        let told: Vec<(i32, &str)> = told.iter().map(|(level, text)| (*level, text.as_str())).collect();
        let errors = [(0, "damage"), (0, "read only")];
        let warnings = [(1, "failure"), (1, "left alone")];
        let notes = [(2, "removed"), (2, "opening"), (2, "two"), (2, "lines")];
        assert_eq!(told, [&errors[..], &warnings, &notes].concat());
        // A host without a log is told nothing, and nothing breaks.
        PbxtHost::NOTHING.damage("unheard");
    }
}
