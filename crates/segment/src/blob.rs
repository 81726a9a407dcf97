//! Blobs: large values, written once by the thread that has them, beside the log.
//!
//! Why it exists: a value of many kilobytes in the hot log would push small commits apart and be copied again by
//! whatever reclaims the log. The row keeps address, length and hash.
//! Format: docs/format.md#blob-values: frames of at most 256 KiB, each with length and checksum.
//! Rules: D4 a log record may name a value only after `append` returned, and the flusher calls `sync` before it writes
//! the batch with that record; so a valid batch never names a value that is not durable. P1 ranges are reserved by one
//! addition and written once; after a crash a new segment is begun.
//! Latches and I/O: a latch for reservation and for the list of files; no I/O under it except creating a segment.
//! After a crash: values no record names are garbage inside their segment.

use crate::header::SEGMENT_HEADER_BYTES;
use crate::names::SegmentClass;
use crate::store::SegmentStore;
use parking_lot::Mutex;
use pbxt_base::codec::{get_u32, put_u32};
use pbxt_base::{Addr, AddrClass, Error, Result, SegmentId, checksum};
use pbxt_io::DiskFile;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FRAME_BYTES_MAX: usize = 256 << 10;
const FRAME_HEAD_BYTES: usize = 8;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    /// Address of its first frame.
    pub addr: Addr,
    /// Its bytes.
    pub len: u64,
    /// XXH3 of the value.
    pub hash: u64,
}

#[derive(Debug)]
struct Current {
    id: SegmentId,
    file: Arc<dyn DiskFile>,
    end: u64,
}

#[derive(Debug, Default)]
struct State {
    next_id: u32,
    current: Option<Current>,
    /// Reservations not yet completely written: start address -> nothing else is needed.
    in_flight: BTreeMap<u64, ()>,
    /// Files with completely written, not yet synced ranges.
    dirty: Vec<Arc<dyn DiskFile>>,
    /// Address behind the last reservation.
    reserved_end: u64,
}

/// All large values of a database.
#[derive(Debug)]
pub struct BlobStore {
    store: Arc<SegmentStore>,
    state: Mutex<State>,
    durable_end: AtomicU64,
    bytes_written: AtomicU64,
}

impl BlobStore {
    /// Values of `store`; new ones go to a new segment (P1).
    pub fn open(store: Arc<SegmentStore>) -> Result<Self> {
        let last = store.list(SegmentClass::Blob)?.last().map_or(0, |id| id.raw());
        let state = State { next_id: last + 1, ..State::default() };
        Ok(Self { store, state: Mutex::new(state), durable_end: AtomicU64::new(0), bytes_written: AtomicU64::new(0) })
    }

    /// Writes a value. Durable after the next `sync` that begins after this returned.
    pub fn append(&self, value: &[u8]) -> Result<BlobRef> {
        let stored = stored_bytes(value.len());
        let (file, id, offset) = self.reserve(stored)?;
        let addr = Addr::in_segment(AddrClass::Blob, id, offset);
        let written = write_frames(&*file, value, offset, frame_seed(id, offset));
        let mut state = self.state.lock();
        state.in_flight.remove(&addr.raw());
        written?;
        if !state.dirty.iter().any(|dirty| dirty.name() == file.name()) {
            state.dirty.push(file);
        }
        self.bytes_written.fetch_add(stored, Ordering::Relaxed);
        Ok(BlobRef { addr, len: value.len() as u64, hash: checksum::xxh3(value) })
    }

    /// Reads a value into `out` (replacing what it held), checking every frame and the whole.
    pub fn read(&self, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        let (id, offset) = (blob.addr.segment(), blob.addr.offset());
        let file = self.store.file(SegmentClass::Blob, id)?;
        let damaged = |expected: String, found: String| Error::Corrupt { file: file.name().to_owned(), offset, expected, found };
        let stored = stored_bytes(usize::try_from(blob.len).unwrap_or(usize::MAX));
        if blob.addr.class() != AddrClass::Blob || offset.saturating_add(stored) > file.len()? {
            return Err(damaged(format!("a value of {} bytes", blob.len), "the end of the file".into()));
        }
        let mut bytes = vec![0; stored as usize];
        file.read_at(&mut bytes, offset)?;
        out.clear();
        let mut at = 0;
        while out.len() < blob.len as usize {
            let head = bytes.get(at..at + FRAME_HEAD_BYTES).unwrap_or(&[0; FRAME_HEAD_BYTES]);
            let (length, crc) = (get_u32(head, 0) as usize, get_u32(head, 4));
            let body = bytes.get(at + FRAME_HEAD_BYTES..at + FRAME_HEAD_BYTES + length).unwrap_or_default();
            let seed = frame_seed(id, offset) ^ at as u64;
            if body.is_empty() || checksum::crc32c(seed, body) != crc {
                return Err(damaged(format!("a frame of a value with checksum {crc:08x}"), "other bytes".into()));
            }
            out.extend_from_slice(body);
            at += (FRAME_HEAD_BYTES + length).next_multiple_of(8);
        }
        if out.len() as u64 != blob.len || checksum::xxh3(out) != blob.hash {
            return Err(damaged(format!("a value with hash {:016x}", blob.hash), "another value".into()));
        }
        Ok(())
    }

    /// Makes every value whose `append` has returned durable (rule D4).
    pub fn sync(&self) -> Result<()> {
        let (dirty, end) = {
            let mut state = self.state.lock();
            let end = state.in_flight.keys().next().copied().unwrap_or(state.reserved_end);
            (std::mem::take(&mut state.dirty), end)
        };
        for file in dirty {
            // Durable now: values the log is about to name. Without it a valid batch could name bytes that are not there.
            file.sync_data()?;
        }
        self.durable_end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Everything below this address (as a number) is durable.
    pub fn durable_end(&self) -> u64 {
        self.durable_end.load(Ordering::Acquire)
    }

    /// Bytes written since open, frames included.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64) -> Result<(Arc<dyn DiskFile>, SegmentId, u64)> {
        let limit = 1 << 30;
        if bytes + SEGMENT_HEADER_BYTES as u64 > limit {
            return Err(Error::TooLarge { what: "a value", bytes, limit });
        }
        let mut state = self.state.lock();
        let segment_bytes = self.store.geometry().blob_segment_bytes;
        let full = |current: &Current| {
            current.end > SEGMENT_HEADER_BYTES as u64 && current.end + bytes > segment_bytes
        };
        if state.current.as_ref().is_none_or(full) {
            let id = SegmentId::new(state.next_id);
            let file = self.store.create_growing(SegmentClass::Blob, id)?;
            state.next_id += 1;
            state.dirty.push(Arc::clone(&file));
            state.current = Some(Current { id, file, end: SEGMENT_HEADER_BYTES as u64 });
        }
        let Some(current) = state.current.as_mut() else { return Err(Error::Closed) };
        let (file, id, offset) = (Arc::clone(&current.file), current.id, current.end);
        current.end += bytes;
        state.in_flight.insert(Addr::in_segment(AddrClass::Blob, id, offset).raw(), ());
        state.reserved_end = Addr::in_segment(AddrClass::Blob, id, offset).raw() + bytes / 8;
        Ok((file, id, offset))
    }
}

/// Bytes a value takes with its frames.
fn stored_bytes(len: usize) -> u64 {
    let whole = len / FRAME_BYTES_MAX;
    let rest = len % FRAME_BYTES_MAX;
    let frame = |bytes: usize| (FRAME_HEAD_BYTES + bytes).next_multiple_of(8);
    (whole * frame(FRAME_BYTES_MAX) + if rest > 0 { frame(rest) } else { 0 }) as u64
}

fn frame_seed(id: SegmentId, offset: u64) -> u64 {
    u64::from(id.raw()) << 32 ^ offset
}

fn write_frames(file: &dyn DiskFile, value: &[u8], offset: u64, seed: u64) -> Result<()> {
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + value.len().min(FRAME_BYTES_MAX) + 8);
    let mut at = 0;
    for body in value.chunks(FRAME_BYTES_MAX) {
        frame.clear();
        frame.resize(FRAME_HEAD_BYTES, 0);
        put_u32(&mut frame, 0, body.len() as u32);
        put_u32(&mut frame, 4, checksum::crc32c(seed ^ at, body));
        frame.extend_from_slice(body);
        frame.resize(frame.len().next_multiple_of(8), 0);
        file.write_at(&frame, offset + at)?;
        at += frame.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
#[path = "blob_tests.rs"]
mod blob_tests;
