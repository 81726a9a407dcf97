//! PageBuffer: memory that a disk can write to directly.
//!
//! Why it exists: a direct read wants its memory in whole pages. When these are scattered, as those of ordinary memory are, the
//! system makes a list of single pages of one read, which costs more than the transfer: reads of 1 MiB came with 590 MiB/s into
//! ordinary memory and with 1300 to 1750 into a huge page (docs/decisions/0005). So a buffer is one huge page, if there is one.
//! Latches and I/O: none.

use std::io;
use std::ptr::NonNull;

/// Bytes of a buffer: one huge page of x86-64, and of most other machines.
pub(crate) const BUFFER_BYTES: usize = 2 << 20;

/// See the module.
pub(crate) struct PageBuffer {
    /// `BUFFER_BYTES` of our own, at a multiple of that.
    memory: NonNull<u8>,
}

// SAFETY: the memory belongs to the buffer alone, and is reached through `&mut self` only.
unsafe impl Send for PageBuffer {}

impl PageBuffer {
    pub(crate) fn new() -> io::Result<Self> {
        let (mapped, access) = (2 * BUFFER_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the system's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = start.cast::<u8>().align_offset(BUFFER_BYTES);
        let after = BUFFER_BYTES - before;
        // SAFETY: `before` is less than `BUFFER_BYTES`, so the buffer lies in the mapping, and so do the parts before and
        // behind it, which nobody has used and which are given back; a length of 0 is an error without effect.
        let memory = unsafe {
            let memory = start.cast::<u8>().add(before);
            libc::munmap(start, before);
            libc::munmap(memory.add(BUFFER_BYTES).cast(), after);
            // Advice: without it the buffer is scattered pages.
            libc::madvise(memory.cast(), BUFFER_BYTES, libc::MADV_HUGEPAGE);
            libc::madvise(memory.cast(), BUFFER_BYTES, libc::MADV_DONTFORK);
            memory
        };
        NonNull::new(memory)
            .map(|memory| Self { memory })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// All of it.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `memory` is a mapping of that size, zeroed by the system, ours until `drop`, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), BUFFER_BYTES) }
    }

    /// Gives the memory up for good: somebody else may go on writing to it.
    pub(crate) fn leak(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BUFFER_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_all_of_it_can_be_used() {
        let mut buffers: Vec<_> = (0..5).map(|_| PageBuffer::new().expect("memory")).collect();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.bytes().as_ptr().align_offset(BUFFER_BYTES), 0);
            assert!(buffer.bytes().iter().all(|byte| *byte == 0));
            buffer.bytes().fill(number as u8 + 1);
        }
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.bytes().iter().all(|byte| *byte == number as u8 + 1));
        }
    }
}
