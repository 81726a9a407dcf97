//! Prefetch: bytes that will be read soon, asked for before they are.
//!
//! Why it exists: a row that was not read lately is a hundred nanoseconds away, about what the rest of a reader's work with it takes.
//! Who knows which one comes next has the processor fetch it meanwhile.
//! Latches and I/O: none.

/// Bytes of a line of memory.
const LINE_BYTES: usize = 64;
/// Lines that are asked for at most: longer reads are in order, which processors see by themselves.
const LINES_MAX: usize = 4;

/// Asks the processor to bring the first lines of these bytes near. Changes nothing but time.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_at(bytes.as_ptr(), bytes.len());
}

/// The same of so many bytes at an address, of which others may be writing some: none is read.
#[inline]
pub fn prefetch_at(begin: *const u8, bytes: usize) {
    // What begins in the middle of a line ends in one more.
    let before = begin.addr() % LINE_BYTES;
    for at in (0..before + bytes).step_by(LINE_BYTES).take(LINES_MAX) {
        prefetch_line(begin.wrapping_sub(before).wrapping_add(at));
    }
}

#[inline]
fn prefetch_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch neither reads nor faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = line;
}
