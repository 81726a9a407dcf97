//! Ring: many reads of one file at once, through io_uring.
//!
//! Why it exists: a disk that is asked one question at a time is idle most of the time. Threads that ask side by side would do too,
//! but cost a change of threads a block; here one system call hands over a batch and waits for all of it.
//! States of a ring: idle in its slot, or owned by the one thread whose batch it reads. Between batches nothing is in flight.
//! Rules: memory that the kernel writes to is owned by `read` until every read of the batch has ended. Should the kernel refuse to
//! say so, that memory is given up for good rather than used again, and the ring with it.
//! Latches and I/O: a slot is held during a read, and tried, never waited for: who finds all of them in use makes one for itself.
//! Fall-back: a kernel, sandbox or limit that refuses rings is asked once; from then on there are none, and `refusal` says why.

use crate::page_buffer::{BUFFER_BYTES, PageBuffer};
use io_uring::{IoUring, Probe, opcode, types};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// Reads in flight at most.
pub(crate) const DEPTH: usize = 32;
/// Slots: each has a ring, which is an open file, and a buffer.
const SLOTS: usize = 16;
/// How often the kernel may say "try again" before the ring counts as broken.
const TRIES: usize = 1000;

/// One read of a batch.
#[derive(Debug)]
pub(crate) struct RingRead {
    /// Where in the file.
    pub(crate) offset: u64,
    /// Place in the buffer.
    pub(crate) place: Range<usize>,
    /// Bytes that came, fewer at the end of the file, or the error.
    pub(crate) outcome: io::Result<usize>,
}

impl RingRead {
    pub(crate) fn new(offset: u64, place: Range<usize>) -> Self {
        Self {
            offset,
            place,
            outcome: Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// What a thread needs while it reads.
#[derive(Default)]
pub(crate) struct ReadSlot {
    ring: Option<Ring>,
    /// Kept from read to read: making and clearing it anew would cost as much as a read.
    buffer: Option<PageBuffer>,
}

impl ReadSlot {
    /// The slot's buffer, `BUFFER_BYTES` in whole pages.
    pub(crate) fn buffer(&mut self) -> io::Result<&mut [u8]> {
        let buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => PageBuffer::new()?,
        };
        Ok(self.buffer.insert(buffer).bytes())
    }
}

/// Slots for the threads of a process, few, so that neither open files nor memory grow with their number.
#[derive(Default)]
pub(crate) struct ReadSlots {
    slots: [Mutex<ReadSlot>; SLOTS],
    refusal: OnceLock<String>,
}

impl std::fmt::Debug for ReadSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadSlots(refusal: {:?})", self.refusal.get())
    }
}

impl ReadSlots {
    /// Why there are no rings, if that is known.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// From now on there are no rings.
    pub(crate) fn refuse(&self, source: &io::Error) {
        // Whoever was first has said why.
        let _ = self.refusal.set(source.to_string());
    }

    /// Calls `work` with a slot that nobody else uses.
    pub(crate) fn with<A>(&self, work: impl FnOnce(&mut ReadSlot) -> A) -> A {
        // The first free one: as many slots are in use as threads read at the same time.
        match self.slots.iter().find_map(Mutex::try_lock) {
            Some(mut slot) => work(&mut slot),
            None => work(&mut ReadSlot::default()),
        }
    }

    /// Does all reads, of which there are at most `DEPTH`, into the slot's buffer. False if there is no ring: then nothing is
    /// known of any of them.
    pub(crate) fn read(&self, slot: &mut ReadSlot, file: &File, reads: &mut [RingRead]) -> bool {
        if self.refusal.get().is_some() {
            return false;
        }
        let (ring, buffer) = (slot.ring.take().or_else(|| self.new_ring()), slot.buffer.take());
        let (Some(mut ring), Some(buffer)) = (ring, buffer) else {
            return false;
        };
        match ring.read(file, buffer, reads) {
            Ok(buffer) => {
                slot.buffer = Some(buffer);
                slot.ring = Some(ring);
                true
            }
            Err(source) => {
                self.refuse(&source);
                false
            }
        }
    }

    fn new_ring(&self) -> Option<Ring> {
        Ring::new().map_err(|source| self.refuse(&source)).ok()
    }

    /// Asks the kernel for a first ring.
    pub(crate) fn try_out(&self) {
        self.with(|slot| slot.ring = self.new_ring());
    }
}

/// One io_uring.
struct Ring {
    ring: IoUring,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().setup_clamp().build(DEPTH as u32)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { ring })
    }

    /// Does the reads; their outcomes are in them. After an error the ring is of no further use and the buffer is gone.
    fn read(
        &mut self,
        file: &File,
        mut buffer: PageBuffer,
        reads: &mut [RingRead],
    ) -> io::Result<PageBuffer> {
        for read in reads.iter() {
            assert!(read.place.start <= read.place.end && read.place.end <= BUFFER_BYTES);
        }
        assert!(reads.len() <= DEPTH);
        let memory = buffer.bytes().as_mut_ptr();
        let descriptor = types::Fd(file.as_raw_fd());
        let mut pending = 0;
        for (number, read) in reads.iter().enumerate() {
            // SAFETY: `place` was checked to lie within `buffer`.
            let to = unsafe { memory.add(read.place.start) };
            let entry = opcode::Read::new(descriptor, to, read.place.len() as u32)
                .offset(read.offset)
                .build()
                .user_data(number as u64);
            // SAFETY: the kernel writes to `place` of `buffer` and reads nothing of ours. `buffer` is ours and is not
            // touched, and `await_all` returns either when all that was pushed has ended or with an error, after
            // which the memory is leaked; nothing between here and there panics. `file` is borrowed for as long.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            pending += 1;
        }
        if let Err(source) = self.await_all(pending, reads) {
            // The kernel may write to it at any time.
            buffer.leak();
            return Err(source);
        }
        Ok(buffer)
    }

    /// Submits what was pushed and waits until all of it has ended.
    fn await_all(&mut self, mut pending: usize, reads: &mut [RingRead]) -> io::Result<()> {
        let mut tries = 0;
        while pending > 0 {
            if let Err(source) = self.ring.submit_and_wait(pending) {
                let again = matches!(
                    source.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                );
                tries += 1;
                if !again || tries > TRIES {
                    return Err(source);
                }
                std::thread::yield_now();
            }
            for completed in self.ring.completion() {
                pending -= 1;
                let Some(read) = reads.get_mut(completed.user_data() as usize) else {
                    continue;
                };
                let result = completed.result();
                read.outcome = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            }
        }
        Ok(())
    }
}
