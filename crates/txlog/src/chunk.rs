//! Chunk: a fixed piece of the log in memory, filled by many threads, written by one, read by all.
//!
//! Why it exists:    records are written and read in place by threads that share the chunk but never a byte; Rust's
//!                   references cannot say that for a whole buffer, so the buffer is raw memory and every access names
//!                   its range.
//! State:            filling (readable up to the log's tail) -> complete (readable up to `readable_end`), never back.
//! Rules:            D8 (a range belongs to one reservation until released), D12 (only complete chunks leave memory).
//! Latches and I/O:  none; the buffer pool has a latch of its own held for a push or pop.

use parking_lot::Mutex;
use pbxt_base::prefetch_at;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Buffers are aligned for direct I/O.
const BUFFER_ALIGN: usize = 4096;
/// Buffers kept for reuse; more go back to the system.
const POOL_COUNT_MAX: usize = 64;

/// Initialised raw memory. All of it holds some byte value at any time; who may touch which range is the caller's proof.
#[derive(Debug)]
pub(crate) struct Buffer {
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Buffer owns its memory and has no thread affinity; concurrent access goes through the unsafe range functions,
// whose callers prove that ranges do not overlap or are only read.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory of `bytes` bytes (not 0).
    pub(crate) fn zeroed(bytes: usize) -> Buffer {
        let layout = Buffer::layout(bytes);
        assert!(bytes > 0, "a chunk has bytes");
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else {
            handle_alloc_error(layout)
        };
        Buffer { ptr, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, BUFFER_ALIGN).expect("a chunk is far smaller than the address space")
    }

    /// The bytes `[offset, offset + len)` for reading.
    ///
    /// # Safety
    /// No thread may write to this range while the result lives, and all writes to it must happen before.
    #[inline]
    pub(crate) unsafe fn read(&self, offset: usize, len: usize) -> &[u8] {
        assert!(
            offset <= self.bytes && len <= self.bytes - offset,
            "a range lies in its chunk"
        );
        // SAFETY: in bounds (asserted), initialised since allocation, unaliased by writers (caller).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr().add(offset), len) }
    }

    /// The bytes `[offset, offset + len)` for writing.
    ///
    /// # Safety
    /// The range must belong to the caller alone while the result lives.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "ranges are handed to one owner each by the tail's protocol (D8)"
    )]
    pub(crate) unsafe fn write(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(
            offset <= self.bytes && len <= self.bytes - offset,
            "a range lies in its chunk"
        );
        // SAFETY: in bounds (asserted), initialised since allocation, exclusive (caller).
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr().add(offset), len) }
    }

    /// Where the bytes `[offset, offset + len)` are, for an owner that proves its accesses itself.
    #[inline]
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(
            offset <= self.bytes && len <= self.bytes - offset,
            "a range lies in its chunk"
        );
        // SAFETY: in bounds (asserted), so the sum stays inside the allocation.
        unsafe { self.ptr.add(offset) }
    }

    /// Has the processor bring the first bytes from `offset` on near. None is read.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        let begin = self.ptr.as_ptr().cast_const().wrapping_add(offset);
        prefetch_at(begin, self.bytes.saturating_sub(offset));
    }

    /// All bytes of a buffer nobody shares.
    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: `&mut self` proves that no other range is lent out.
        unsafe { self.write(0, self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with the same layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr(), Buffer::layout(self.bytes)) }
    }
}

/// Buffers of dropped chunks, so that a steady log asks the system for no memory.
#[derive(Debug)]
pub(crate) struct BufferPool {
    bytes: usize,
    free: Mutex<Vec<Buffer>>,
    /// Buffers there are: in chunks, in chunks that wait for their last reader, and free.
    made: AtomicU64,
}

impl BufferPool {
    /// A pool for chunks of this size.
    pub(crate) fn new(bytes: usize) -> Arc<BufferPool> {
        Arc::new(BufferPool {
            bytes,
            free: Mutex::new(Vec::new()),
            made: AtomicU64::new(0),
        })
    }

    /// Bytes of all buffers.
    pub(crate) fn made_bytes(&self) -> u64 {
        self.made.load(Ordering::Relaxed) * self.bytes as u64
    }

    fn make(&self) -> Buffer {
        self.made.fetch_add(1, Ordering::Relaxed);
        Buffer::zeroed(self.bytes)
    }

    /// A buffer with any contents.
    pub(crate) fn take(&self) -> Buffer {
        let reused = self.free.lock().pop();
        reused.unwrap_or_else(|| self.make())
    }

    /// A buffer of zeros, so that what nobody writes is the same on every disk.
    pub(crate) fn take_zeroed(&self) -> Buffer {
        let reused = self.free.lock().pop();
        match reused {
            Some(mut buffer) => {
                buffer.whole_mut().fill(0);
                buffer
            }
            None => self.make(),
        }
    }

    /// Takes back a buffer of a chunk that is dropped, or was never made.
    pub(crate) fn give_back(&self, buffer: Buffer) {
        let mut free = self.free.lock();
        if free.len() < POOL_COUNT_MAX {
            free.push(buffer);
        } else {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One chunk of the log in memory.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// `None` only while it is dropped.
    buffer: Option<Buffer>,
    pool: Arc<BufferPool>,
    /// LSN of its first byte.
    start: u64,
    /// LSN behind its last record once it is complete, 0 while it is filling.
    readable_end: AtomicU64,
    /// Set by readers, cleared by the eviction hand.
    referenced: AtomicBool,
}

impl Chunk {
    /// A chunk that writers will fill.
    pub(crate) fn filling(start: u64, pool: &Arc<BufferPool>) -> Chunk {
        let buffer = Some(pool.take_zeroed());
        let (readable_end, referenced) = (AtomicU64::new(0), AtomicBool::new(false));
        Chunk {
            buffer,
            pool: Arc::clone(pool),
            start,
            readable_end,
            referenced,
        }
    }

    /// A chunk read from its segment, verified up to `readable_end`.
    pub(crate) fn loaded(start: u64, readable_end: u64, buffer: Buffer, pool: &Arc<BufferPool>) -> Chunk {
        let (readable_end, referenced) = (AtomicU64::new(readable_end), AtomicBool::new(false));
        Chunk {
            buffer: Some(buffer),
            pool: Arc::clone(pool),
            start,
            readable_end,
            referenced,
        }
    }

    #[inline]
    pub(crate) fn buffer(&self) -> &Buffer {
        self.buffer
            .as_ref()
            .expect("D12: the buffer leaves its chunk only when the chunk is dropped")
    }

    /// LSN of the first byte.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// LSN behind the last record, or `None` while writers are filling it.
    #[inline]
    pub(crate) fn readable_end(&self) -> Option<u64> {
        match self.readable_end.load(Ordering::Acquire) {
            0 => None,
            end => Some(end),
        }
    }

    /// All of the chunk is written: from now on it may leave memory (D12).
    pub(crate) fn complete(&self, readable_end: u64) {
        self.readable_end.store(readable_end, Ordering::Release);
    }

    /// Notes a use; a shared line is written only when that changes something.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// True if it was used since the last call.
    pub(crate) fn forget_touch(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}
