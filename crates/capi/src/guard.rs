//! Guard: the way from C into Rust and back: panics stop here, the last error keeps its sentence.

use crate::status::Status;
use pbxt_io::panic_text;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::LocalKey;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static SUBJECT: RefCell<CString> = RefCell::default();
}

/// The result of an entry point: a status with or without a sentence.
pub(crate) enum Failure {
    /// An engine error.
    Engine(pbxt::Error),
    /// An answer that is no error (end of scan, not found).
    Answer(Status),
}

impl<E: Into<pbxt::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

/// Runs the body of an entry point.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(Failure::Answer(status))) => status,
        Ok(Err(Failure::Engine(error))) => {
            remember(&error.to_string());
            keep(&SUBJECT, error.subject());
            Status::from(&error)
        }
        Err(panic) => {
            let text = panic_text(&*panic);
            remember(&format!("internal error, please report it: {text}"));
            Status::Internal
        }
    }
}

/// Like `call` for entry points that return a value; `fallback` after a panic.
pub(crate) fn value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

fn remember(text: &str) {
    keep(&LAST, text);
}

fn keep(place: &'static LocalKey<RefCell<CString>>, text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    place.with(|place| *place.borrow_mut() = text);
}

/// Name that the last error of this thread is about; empty if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn pbxt_error_subject() -> *const c_char {
    SUBJECT.with(|subject| subject.borrow().as_ptr())
}

/// Sentence of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pbxt_error_text() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Name, version and format version.
#[unsafe(no_mangle)]
pub extern "C" fn pbxt_version_text() -> *const c_char {
    concat!("PBXT ", env!("CARGO_PKG_VERSION"), " (format 1)\0")
        .as_ptr()
        .cast()
}

/// The bytes a caller names by pointer and length.
///
/// # Safety
/// `data` is null with `len` 0, or names `len` readable bytes that nobody changes while `'a` lasts.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// The text a caller names by pointer and length.
///
/// # Safety
/// As `bytes`.
pub(crate) unsafe fn text<'a>(data: *const c_char, len: usize) -> Result<&'a str, pbxt::Error> {
    // SAFETY: passed on.
    let bytes = unsafe { bytes(data.cast(), len) };
    std::str::from_utf8(bytes)
        .map_err(|_| pbxt::Error::Invalid("a name is not UTF-8: use the host's file name encoding".into()))
}
