//! Blobs: large values, written once by the thread that has them, beside the log.
//!
//! Why it exists: a value of many kilobytes in the hot log would push small commits apart and be copied again by
//! whatever reclaims the log. The row keeps address, length and hash.
//! Format: docs/format.md#blob-values: frames of at most 256 KiB, each with length and checksum.
//! Rules: D2 a log record may name a value only after `append` returned, and the flusher calls `sync` before it writes
//! the batch with that record; so a valid batch never names a value that is not durable. P1 ranges are reserved by one
//! addition and written once; after a crash a new segment is begun.
//! Latches and I/O: a latch for reservation and for the list of files; no I/O under it except creating a segment. The
//! syncing latch is held across syncs, so that nobody returns before what he needs is durable.
//! S16 a segment is as long as its file when no more can come, and only then is dropped.
//! S26 a `ValueHold` keeps the segments it was taken for, and later ones, from being judged by what rows name.
//! After a crash: values no record names are garbage inside their segment, until a census finds them.

use crate::geometry::SEGMENT_BYTES_MAX;
use crate::header::SEGMENT_HEADER_BYTES;
use crate::names::SegmentClass;
use crate::piece::is_missing;
use crate::store::SegmentStore;
use parking_lot::Mutex;
use pbxt_base::codec::{get_u32, put_u32};
use pbxt_base::{Addr, AddrClass, Error, PoisonCause, Result, SegmentId, checksum, stop_point};
use pbxt_io::{DiskFile, GIVE_BACK_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FRAME_BYTES_MAX: usize = 256 << 10;
const FRAME_HEAD_BYTES: usize = 8;
/// Segments that are smaller than one in so many parts of what they may have ...
const SMALL_PART: u64 = 16;
/// ... are so many at most, but for those that openings leave (rule S29).
const SMALL_MAX: usize = 16;

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

impl BlobRef {
    /// Bytes the value takes in its segment, frames included; 0 for a length no value can have.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self.len).unwrap_or(0)
    }
}

#[derive(Debug)]
struct Current {
    id: SegmentId,
    file: Arc<dyn DiskFile>,
    end: u64,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    /// Start addresses of the ranges that are reserved and not yet completely written.
    in_flight: BTreeSet<u64>,
    /// Files with completely written, not yet synced ranges.
    dirty: Vec<Arc<dyn DiskFile>>,
    /// Address behind the last reservation.
    reserved_end: u64,
    /// Why nothing can be appended any more.
    failed: Option<String>,
    /// The greatest segment there ever was.
    last: SegmentId,
    /// Oldest segment that may have a value of each hold.
    holds: BTreeMap<u64, SegmentId>,
    holds_taken: u64,
    /// Segments with values that nobody held.
    unheld: BTreeSet<SegmentId>,
}

/// Keeps values that no row names yet (rule S26): from before the first is written until its transaction has ended.
#[derive(Debug)]
pub struct ValueHold {
    blobs: Arc<BlobStore>,
    number: u64,
}

impl Drop for ValueHold {
    fn drop(&mut self) {
        self.blobs.state.lock().holds.remove(&self.number);
    }
}

impl State {
    fn is_examinable(&self, id: SegmentId) -> bool {
        let is_held = self.holds.values().any(|oldest| id >= *oldest) || self.unheld.contains(&id);
        id <= self.last && !is_held && !self.is_in_flight(id)
    }

    /// True if a value of this segment is being written.
    fn is_in_flight(&self, id: SegmentId) -> bool {
        let is_in = |start: &u64| Addr::from_raw(*start).segment() == id;
        self.in_flight.iter().any(is_in)
    }

    /// New values go to a segment that is not one of these.
    fn retire(&mut self, is_one: impl FnOnce(SegmentId) -> bool) {
        self.current = self.current.take().filter(|current| !is_one(current.id));
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |reason| {
            Err(Error::Poisoned {
                cause: PoisonCause::Disk,
                reason: reason.clone(),
            })
        })
    }
}

/// All large values of a database.
#[derive(Debug)]
pub struct BlobStore {
    store: Arc<SegmentStore>,
    state: Mutex<State>,
    /// Held by the thread that syncs.
    syncing: Mutex<()>,
    durable_end: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
}

impl BlobStore {
    /// Values of `store`; new ones go to a new segment (P1). Refuses if a blob segment has not the header it has to have.
    pub fn open(store: Arc<SegmentStore>) -> Result<Self> {
        store.check_begun(SegmentClass::Blob)?;
        let state = State {
            last: store
                .begun(SegmentClass::Blob)
                .last()
                .copied()
                .unwrap_or_default(),
            ..State::default()
        };
        Ok(Self {
            store,
            state: Mutex::new(state),
            syncing: Mutex::default(),
            durable_end: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        })
    }

    /// Writes a value. Durable after the next `sync` that begins after this returned.
    ///
    /// A full disk or a failed write is the caller's error alone: nothing refers to the range yet, and what was written of it takes no
    /// room (rule D10). As nothing holds the value (rule S26), its segment is not examined before the next opening.
    pub fn append(&self, value: &[u8]) -> Result<BlobRef> {
        self.write(value, None)
    }

    /// As `append`, for a value that is named before the hold is dropped, or never.
    pub fn append_held(&self, value: &[u8], hold: &ValueHold) -> Result<BlobRef> {
        debug_assert!(
            std::ptr::eq(self, Arc::as_ptr(&hold.blobs)),
            "S26: a hold of this store"
        );
        self.write(value, Some(hold))
    }

    /// See `ValueHold`.
    pub fn hold(self: &Arc<Self>) -> ValueHold {
        let mut state = self.state.lock();
        state.holds_taken += 1;
        let number = state.holds_taken;
        let oldest = match &state.current {
            Some(current) => current.id,
            None => SegmentId::new(state.last.raw() + 1),
        };
        state.holds.insert(number, oldest);
        ValueHold {
            blobs: Arc::clone(self),
            number,
        }
    }

    /// New values go to a segment that is made from now on (rule EN18).
    pub fn leave_segment(&self) {
        self.state.lock().retire(|_| true);
    }

    /// Segments of which every value is named by a row now or never will be (rule S26).
    pub fn examinable(&self) -> Result<BTreeSet<SegmentId>> {
        let listed = self.store.list(SegmentClass::Blob)?.into_iter();
        let state = self.state.lock();
        Ok(listed.filter(|id| state.is_examinable(*id)).collect())
    }

    /// Those of `listed`, which are all segments with their bytes, that `examine` would answer: not the one that takes new values, if it is
    /// small and there are enough small ones (rule S29).
    pub fn worth_examining(&self, listed: &[(SegmentId, u64)]) -> BTreeSet<SegmentId> {
        self.worth_it(&self.state.lock(), listed)
    }

    fn worth_it(&self, state: &State, listed: &[(SegmentId, u64)]) -> BTreeSet<SegmentId> {
        let least = self.store.geometry().blob_segment_bytes / SMALL_PART;
        let small = listed.iter().filter(|(_, bytes)| *bytes < least).count();
        let current = state.current.as_ref().filter(|current| current.end < least);
        let stays = current.filter(|_| small > SMALL_MAX).map(|current| current.id);
        let ids = listed.iter().map(|(id, _)| *id);
        ids.filter(|id| state.is_examinable(*id) && Some(*id) != stays)
            .collect()
    }

    /// Segments to be examined, with their bytes: those of `examinable` that are worth it. New values go to none of them from now on.
    pub fn examine(&self) -> Result<BTreeMap<SegmentId, u64>> {
        let listed = self.segments()?;
        let known = {
            let mut state = self.state.lock();
            let known = self.worth_it(&state, &listed);
            state.retire(|current| known.contains(&current));
            known
        };
        // Only now: they do not grow any more.
        known.into_iter().map(|id| self.with_bytes(id)).collect()
    }

    fn write(&self, value: &[u8], hold: Option<&ValueHold>) -> Result<BlobRef> {
        let stored = stored_bytes(value.len() as u64)?;
        let (file, id, offset) = self.reserve(stored, hold)?;
        let addr = Addr::in_segment(AddrClass::Blob, id, offset);
        stop_point!("blob.after_reserve");
        let written = write_frames(&*file, value, offset, frame_seed(id, offset));
        if written.is_err() {
            give_up(&*file, offset..offset + stored);
        }
        let mut state = self.state.lock();
        state.in_flight.remove(&addr.raw());
        written?;
        if !state.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, &file)) {
            state.dirty.push(file);
        }
        self.bytes_written.fetch_add(stored, Ordering::Relaxed);
        Ok(BlobRef {
            addr,
            len: value.len() as u64,
            hash: checksum::xxh3(value),
        })
    }

    /// Reads a value into `out` (replacing what it held), checking every frame and the whole.
    pub fn read(&self, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        let (id, offset) = (blob.addr.segment(), blob.addr.offset());
        let name = || self.store.name(SegmentClass::Blob, id);
        let damaged = |expected: String, found: &str| Error::Corrupt {
            file: name(),
            offset,
            expected,
            found: found.to_owned(),
        };
        if blob.addr.class() != AddrClass::Blob {
            return Err(damaged(
                "the address of a value".into(),
                &format!("{:?}", blob.addr),
            ));
        }
        let file = self.store.file(SegmentClass::Blob, id).map_err(|error| {
            if is_missing(&error) {
                damaged(
                    "a segment of values".into(),
                    "no such file: it was dropped, or lost",
                )
            } else {
                error
            }
        })?;
        self.read_from(&*file, blob, out)?;
        self.bytes_read.fetch_add(blob.stored_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// The same, from this file of its segment.
    pub fn read_from(&self, file: &dyn DiskFile, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        let (id, offset) = (blob.addr.segment(), blob.addr.offset());
        let damaged = |expected: String, found: &str| Error::Corrupt {
            file: self.store.name(SegmentClass::Blob, id),
            offset,
            expected,
            found: found.to_owned(),
        };
        let stored = stored_bytes(blob.len)?;
        if offset.saturating_add(stored) > file.len()? {
            return Err(damaged(
                format!("a value of {} bytes", blob.len),
                "the end of the file",
            ));
        }
        out.clear();
        out.resize(stored as usize, 0);
        file.read_at(out, offset)?;
        unframe(out, blob.len as usize, frame_seed(id, offset)).map_err(|crc| {
            damaged(
                format!("a frame of a value with checksum {crc:08x}"),
                "other bytes",
            )
        })?;
        if checksum::xxh3(out) != blob.hash {
            return Err(damaged(
                format!("a value with hash {:016x}", blob.hash),
                "another value",
            ));
        }
        Ok(())
    }

    /// A segment for whoever compares it with what was written: its file, with a sound header, and where the values end in it of which
    /// each was written to its end.
    pub fn open_written(&self, id: SegmentId) -> Result<(Arc<dyn DiskFile>, u64)> {
        let end = {
            let state = self.state.lock();
            let mut starts = state.in_flight.iter().map(|start| Addr::from_raw(*start));
            let first = starts.find(|start| start.segment() == id).map(Addr::offset);
            let current = state.current.as_ref().filter(|current| current.id == id);
            first.or(current.map(|current| current.end))
        };
        let file = self.store.open_past_cache(SegmentClass::Blob, id)?;
        if self.store.header_in(SegmentClass::Blob, id, &*file)?.is_none() {
            let expected = "the mark of a PBXT segment";
            return Err(self.store.damaged(SegmentClass::Blob, id, 0, expected, "zeros"));
        }
        let bytes = file.len()?;
        Ok((file, end.map_or(bytes, |end| end.min(bytes))))
    }

    /// Makes every value whose `append` has returned durable (rule D2). A failure is final: it is never made good by
    /// another sync (rule D9).
    pub fn sync(&self) -> Result<()> {
        // Whoever comes while another thread syncs may need what that thread has taken in hand: it waits.
        let _turn = self.syncing.lock();
        let (dirty, end) = {
            let mut state = self.state.lock();
            state.check()?;
            let end = state.in_flight.first().copied().unwrap_or(state.reserved_end);
            (std::mem::take(&mut state.dirty), end)
        };
        for file in dirty {
            stop_point!("blob.before_sync");
            // Durable now: values the log is about to name. Without it a valid batch could name bytes that are not there.
            if let Err(error) = file.sync_data() {
                self.state.lock().failed = Some(error.to_string());
                return Err(error);
            }
            stop_point!("blob.after_sync");
        }
        self.durable_end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Segments with values and their bytes, rising.
    pub fn segments(&self) -> Result<Vec<(SegmentId, u64)>> {
        let ids = self.store.list(SegmentClass::Blob)?.into_iter();
        ids.map(|id| self.with_bytes(id)).collect()
    }

    fn with_bytes(&self, id: SegmentId) -> Result<(SegmentId, u64)> {
        Ok((id, self.store.file(SegmentClass::Blob, id)?.len()?))
    }

    /// Removes a segment of which no record names a value below `end` any more, for good. Says false, and removes nothing,
    /// if it has others. A later read of a value in it is an error that names the segment.
    pub fn drop_segment(&self, id: SegmentId, end: u64) -> Result<bool> {
        {
            let mut state = self.state.lock();
            if state.is_in_flight(id) {
                return Ok(false);
            }
            state.retire(|current| current == id);
        }
        // Only now, as it does not grow any more: a value may have come since its end was looked at, also one that was written
        // when others went to the next segment already.
        if self.with_bytes(id)?.1 != end {
            return Ok(false);
        }
        self.store.drop_segment(SegmentClass::Blob, id)?;
        self.state.lock().unheld.remove(&id);
        Ok(true)
    }

    /// Gives the room of these bytes back, which belong to values that nobody reads any more (rules S50, S52). Says false if
    /// the medium keeps it.
    pub fn give_back(&self, id: SegmentId, range: Range<u64>) -> Result<bool> {
        let file = self.store.file(SegmentClass::Blob, id)?;
        debug_assert!(
            range.start >= SEGMENT_HEADER_BYTES as u64 && range.end <= file.len()?,
            "S52: {range:?} of {}",
            file.name()
        );
        stop_point!("blob.before_give_back");
        file.give_back(range)
    }

    /// Everything below this address (as a number) is durable.
    pub fn durable_end(&self) -> u64 {
        self.durable_end.load(Ordering::Acquire)
    }

    /// Bytes written since open, frames included.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Bytes read since open, frames included.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64, hold: Option<&ValueHold>) -> Result<(Arc<dyn DiskFile>, SegmentId, u64)> {
        let mut state = self.state.lock();
        state.check()?;
        let segment_bytes = self.store.geometry().blob_segment_bytes;
        let is_full = |current: &Current| {
            current.end > SEGMENT_HEADER_BYTES as u64 && current.end + bytes > segment_bytes
        };
        let current = match state.current.take() {
            Some(current) if !is_full(&current) => current,
            _ => {
                let (id, file) = self.store.create_growing(SegmentClass::Blob)?;
                state.last = id;
                Current {
                    id,
                    file,
                    end: SEGMENT_HEADER_BYTES as u64,
                }
            }
        };
        let (file, id, offset) = (Arc::clone(&current.file), current.id, current.end);
        let start = Addr::in_segment(AddrClass::Blob, id, offset).raw();
        state.current = Some(Current {
            end: offset + bytes,
            ..current
        });
        state.in_flight.insert(start);
        if hold.is_none() {
            state.unheld.insert(id);
        }
        state.reserved_end = start + bytes / 8;
        Ok((file, id, offset))
    }
}

/// Bytes a value takes with its frames.
fn stored_bytes(len: u64) -> Result<u64> {
    let limit = SEGMENT_BYTES_MAX - SEGMENT_HEADER_BYTES as u64;
    let too_large = Error::TooLarge {
        what: "a value",
        bytes: len,
        limit,
    };
    if len > limit {
        return Err(too_large);
    }
    let frame = |bytes: u64| (FRAME_HEAD_BYTES as u64 + bytes).next_multiple_of(8);
    let (whole, rest) = (len / FRAME_BYTES_MAX as u64, len % FRAME_BYTES_MAX as u64);
    let stored = whole * frame(FRAME_BYTES_MAX as u64) + if rest > 0 { frame(rest) } else { 0 };
    if stored <= limit {
        Ok(stored)
    } else {
        Err(too_large)
    }
}

/// Turns the frames in `bytes` into the `len` bytes of their value. The error is the checksum that did not match.
fn unframe(bytes: &mut Vec<u8>, len: usize, seed: u64) -> std::result::Result<(), u32> {
    let (mut from, mut to) = (0, 0);
    while to < len {
        let head = bytes.get(from..from + FRAME_HEAD_BYTES).ok_or(0_u32)?;
        let (length, crc) = (get_u32(head, 0) as usize, get_u32(head, 4));
        let body = from + FRAME_HEAD_BYTES..from + FRAME_HEAD_BYTES + length;
        let is_whole = length == (len - to).min(FRAME_BYTES_MAX);
        let verifies = |body: &[u8]| checksum::crc32c(seed ^ from as u64, body) == crc;
        if !is_whole || !bytes.get(body.clone()).is_some_and(verifies) {
            return Err(crc);
        }
        bytes.copy_within(body, to);
        to += length;
        from += (FRAME_HEAD_BYTES + length).next_multiple_of(8);
    }
    bytes.truncate(len);
    Ok(())
}

/// Gives back what was written of a value that failed: a checkpoint would do so too, but on a full disk there is none for want of this very
/// room (rule D10). What cannot be given back waits for a census (rule S29).
fn give_up(file: &dyn DiskFile, range: Range<u64>) {
    let begin = range.start.next_multiple_of(GIVE_BACK_BYTES);
    let written = file.len().map_or(0, |len| len.min(range.end));
    let end = written / GIVE_BACK_BYTES * GIVE_BACK_BYTES;
    if begin < end {
        let _ = file.give_back(begin..end);
    }
}

fn frame_seed(id: SegmentId, offset: u64) -> u64 {
    (u64::from(id.raw()) << 32) ^ offset
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
