//! Reservation: a piece of the log that is yours until you publish it or give it up.
//!
//! Why it exists:    between "space taken" and "record there" lie errors, lost compare-and-swaps and panics. Whatever
//!                   happens, the bytes go back to their batch as a record or as a filler, or no commit would ever end.
//! Rules:            D8. Encode into scratch memory first if encoding can fail; hold a reservation for as short as the
//!                   copy takes: the flusher waits for it.
//! Latches and I/O:  none; the release that completes an awaited batch wakes the flusher.

use crate::core::Core;
use crate::record::put_filler;
use crate::stats::count;
use pbxt_base::Lsn;
use std::ptr::NonNull;

/// See the module. Made by `Log::reserve`.
#[derive(Debug)]
pub struct Reservation<'a> {
    core: &'a Core,
    lsn: u64,
    bytes: NonNull<u8>,
    len: usize,
    slot: usize,
}

// SAFETY: the bytes belong to this value alone until it is released, whichever thread holds it.
unsafe impl Send for Reservation<'_> {}

impl<'a> Reservation<'a> {
    /// # Safety
    /// `bytes` are `len` initialised bytes of a chunk that stays in memory until they are released to `slot`, and
    /// nobody else may touch them until then.
    #[inline]
    pub(crate) unsafe fn new(
        core: &'a Core,
        lsn: u64,
        bytes: NonNull<u8>,
        len: usize,
        slot: usize,
    ) -> Reservation<'a> {
        Reservation {
            core,
            lsn,
            bytes,
            len,
            slot,
        }
    }

    /// Position of the record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.lsn)
    }

    /// Position behind the record: wait for this one to know the record durable.
    #[inline]
    pub fn end_lsn(&self) -> Lsn {
        Lsn::new(self.lsn + self.len as u64)
    }

    /// The record's bytes, to be filled completely.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: by `new`, the bytes are valid, initialised and exclusive to `self`, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }

    /// Gives the filled record to its batch. Returns the position behind it.
    #[inline]
    pub fn publish(self) -> Lsn {
        let end = self.end_lsn();
        self.release();
        #[expect(
            clippy::mem_forget,
            reason = "dropping would turn the published record into a filler"
        )]
        std::mem::forget(self);
        end
    }

    #[inline]
    fn release(&self) {
        if self.core.tail.release(self.slot, self.len as u64) {
            self.core.wake_filled();
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        put_filler(self.bytes_mut());
        count(&self.core.counters.fillers, 1);
        self.release();
    }
}
