//! Blob walk: the values of a blob segment, one behind the other, without the rows that name them.
//!
//! Why it exists: rows name values by address, length and hash; a file alone names none. But the checksum of a frame is
//! seeded with the place of its value, so where a value begins and which frames belong to it proves itself.
//! Format: docs/format.md#blob-values.
//! Rules: F4 no frame passes for one of another place. Where offset and distance have no bit in common, their sum and their
//! exclusive or are the same number, and a frame behind a full one may belong to the value before or begin another one:
//! then that is said. What does not verify is told of and stepped over to the next
//! value that proves itself; whether a row names it nobody can say from here, but for what the newest checkpoint knows to be dead: that is
//! passed over, as its room may have been given back (rule S50).
//! Latches and I/O: none; reads of 1 MiB in order. A step is one frame, or one of the others.

use crate::header::SEGMENT_HEADER_BYTES;
use pbxt_base::checksum::{RunningHash, crc32c};
use pbxt_base::codec::get_u32;
use pbxt_base::{Result, SegmentId};
use pbxt_io::DiskFile;
use std::ops::Range;
use std::sync::Arc;

const FRAME_BYTES_MAX: u64 = 256 << 10;
const HEAD_BYTES: u64 = 8;
const ALIGN: u64 = 8;
const WINDOW_BYTES: u64 = 1 << 20;

/// What stands somewhere in the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A value whose frames all verify.
    Value {
        /// Where it begins.
        offset: u64,
        /// Its bytes, without frames.
        bytes: u64,
        /// Its frames.
        frames: u64,
        /// XXH3 of the value.
        hash: u64,
        /// False if it may be several values that follow each other.
        is_one: bool,
    },
    /// Values that no row names any more, as the newest checkpoint has it: parts of them may be holes (rule S50).
    Dead {
        /// Where the range begins.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Zeros: set aside and never written.
    Hole {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Neither.
    Damaged {
        /// Where it begins.
        offset: u64,
        /// How much was stepped over.
        bytes: u64,
        /// The value it belongs to, if that is known.
        value: Option<u64>,
    },
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum BlobStep {
    /// A frame of a value that may have more.
    Frame,
    /// Something whole.
    Found(Found),
    /// The end.
    End,
}

/// A value whose frames are being read.
#[derive(Debug)]
struct Value {
    offset: u64,
    bytes: u64,
    frames: u64,
    is_one: bool,
    hash: RunningHash,
}

impl Value {
    fn at(offset: u64) -> Self {
        Self {
            offset,
            bytes: 0,
            frames: 0,
            is_one: true,
            hash: RunningHash::new(),
        }
    }

    fn found(self) -> Found {
        Found::Value {
            offset: self.offset,
            bytes: self.bytes,
            frames: self.frames,
            hash: self.hash.finish(),
            is_one: self.is_one,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct BlobWalk {
    file: Arc<dyn DiskFile>,
    segment: SegmentId,
    end: u64,
    /// Dead ranges, rising.
    dead: Vec<Range<u64>>,
    at: u64,
    /// The value at hand.
    open: Option<Value>,
    window: Vec<u8>,
    window_at: u64,
}

impl BlobWalk {
    /// Begins behind the header of a blob segment and goes to the end of the file; passes over the dead ranges.
    pub fn new(file: Arc<dyn DiskFile>, segment: SegmentId, dead: Vec<Range<u64>>) -> Result<Self> {
        let end = file.len()?;
        Ok(Self::up_to(file, segment, dead, end))
    }

    /// The same, up to a place where a value ends.
    pub fn up_to(file: Arc<dyn DiskFile>, segment: SegmentId, dead: Vec<Range<u64>>, end: u64) -> Self {
        Self {
            file,
            segment,
            end,
            dead,
            at: SEGMENT_HEADER_BYTES as u64,
            open: None,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// Where the next step begins.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Goes on about so many bytes behind the place of a step that failed. What was passed over.
    pub fn pass_over(&mut self, bytes: u64) -> Range<u64> {
        let begin = self.at;
        self.open = None;
        self.at = (begin + bytes).next_multiple_of(ALIGN).min(self.end);
        self.window.clear();
        begin..self.at
    }

    /// What comes next; `None` at the end of the file.
    pub fn next_found(&mut self) -> Result<Option<Found>> {
        loop {
            match self.step()? {
                BlobStep::Frame => {}
                BlobStep::Found(found) => return Ok(Some(found)),
                BlobStep::End => return Ok(None),
            }
        }
    }

    /// Goes one frame on, or over what is no value.
    pub fn step(&mut self) -> Result<BlobStep> {
        if let Some(value) = self.open.take() {
            return self.value(value);
        }
        if self.at >= self.end {
            return Ok(BlobStep::End);
        }
        let offset = self.at;
        if let Some(end) = self.dead_until(offset) {
            self.at = end.min(self.end);
            let bytes = self.at - offset;
            return Ok(BlobStep::Found(Found::Dead { offset, bytes }));
        }
        if self.is_zero(offset)? {
            return self.hole(offset).map(BlobStep::Found);
        }
        if self.frame(offset, offset)?.is_some() {
            return self.value(Value::at(offset));
        }
        self.damage(offset, None).map(BlobStep::Found)
    }

    /// End of the dead range that begins at `at`, or has it inside.
    fn dead_until(&self, at: u64) -> Option<u64> {
        let next = self.dead.partition_point(|range| range.end <= at);
        let range = self.dead.get(next).filter(|range| range.start <= at)?;
        Some(range.end)
    }

    fn hole(&mut self, offset: u64) -> Result<Found> {
        while self.at < self.end && self.dead_until(self.at).is_none() && self.is_zero(self.at)? {
            self.at += ALIGN;
        }
        let bytes = self.at.min(self.end) - offset;
        Ok(Found::Hole { offset, bytes })
    }

    /// The next frame of a value, or its end.
    fn value(&mut self, mut value: Value) -> Result<BlobStep> {
        let offset = value.offset;
        if let Some(length) = self.frame(self.at, offset)? {
            value.is_one &= value.frames == 0 || self.frame(self.at, self.at)?.is_none();
            let body = self.bytes(self.at + HEAD_BYTES, length)?;
            value.hash.update(body.unwrap_or_default());
            value.bytes += length;
            value.frames += 1;
            self.at += stride(length);
            if length < FRAME_BYTES_MAX || self.dead_until(self.at).is_some() {
                return Ok(BlobStep::Found(value.found()));
            }
            self.open = Some(value);
            return Ok(BlobStep::Frame);
        }
        // A full frame may be the last one; another one that is neither of this value nor of the next one is damage.
        if self.at < self.end && !self.is_zero(self.at)? && self.frame(self.at, self.at)?.is_none() {
            return self.damage(self.at, Some(offset)).map(BlobStep::Found);
        }
        Ok(BlobStep::Found(value.found()))
    }

    /// Steps to the next place where something proves itself.
    fn damage(&mut self, offset: u64, value: Option<u64>) -> Result<Found> {
        let length = self.length(offset)?;
        let behind = offset + length.map_or(ALIGN, stride);
        let owner = value.unwrap_or(offset);
        if length.is_some() && self.is_sound(behind, owner)? {
            self.at = behind;
        } else {
            self.at += ALIGN;
            while self.at < self.end
                && self.dead_until(self.at).is_none()
                && self.frame(self.at, self.at)?.is_none()
            {
                self.at += ALIGN;
            }
        }
        // Further frames of the same value: they verify, and the value is damaged all the same.
        while self.at < self.end {
            let Some(length) = self.frame(self.at, owner)?.filter(|_| self.at != owner) else {
                break;
            };
            self.at += stride(length);
        }
        let bytes = self.at.min(self.end) - offset;
        Ok(Found::Damaged { offset, bytes, value })
    }

    /// True if here is the end, nothing, a value, or a further frame of the value at `owner`.
    fn is_sound(&mut self, at: u64, owner: u64) -> Result<bool> {
        Ok(at == self.end
            || self.dead_until(at).is_some()
            || self.is_zero(at)?
            || self.frame(at, at)?.is_some()
            || self.frame(at, owner)?.is_some())
    }

    /// Length of the frame at `at` of the value at `value`, if it verifies.
    fn frame(&mut self, at: u64, value: u64) -> Result<Option<u64>> {
        let Some(length) = self.length(at)? else {
            return Ok(None);
        };
        let seed = ((u64::from(self.segment.raw()) << 32) ^ value) ^ (at - value);
        let Some(frame) = self.bytes(at, HEAD_BYTES + length)? else {
            return Ok(None);
        };
        let (head, body) = frame.split_at(HEAD_BYTES as usize);
        Ok((crc32c(seed, body) == get_u32(head, 4)).then_some(length))
    }

    /// Length in the head at `at`, if a frame can have it.
    fn length(&mut self, at: u64) -> Result<Option<u64>> {
        let Some(head) = self.bytes(at, HEAD_BYTES)? else {
            return Ok(None);
        };
        let length = u64::from(get_u32(head, 0));
        Ok((1..=FRAME_BYTES_MAX).contains(&length).then_some(length))
    }

    fn is_zero(&mut self, at: u64) -> Result<bool> {
        let bytes = self.end.saturating_sub(at).min(ALIGN);
        let found = self.bytes(at, bytes)?;
        Ok(found.is_some_and(|found| found.iter().all(|byte| *byte == 0)))
    }

    /// Bytes of the file; `None` beyond its end.
    fn bytes(&mut self, at: u64, count: u64) -> Result<Option<&[u8]>> {
        if at + count > self.end {
            return Ok(None);
        }
        let held = self.window_at..self.window_at + self.window.len() as u64;
        if at < held.start || at + count > held.end {
            let bytes = (self.end - at).min(WINDOW_BYTES.max(count));
            self.window.resize(bytes as usize, 0);
            self.window_at = at;
            if let Err(error) = self.file.read_at(&mut self.window, at) {
                self.window.clear();
                return Err(error);
            }
        }
        let begin = (at - self.window_at) as usize;
        Ok(self.window.get(begin..begin + count as usize))
    }
}

/// Bytes of a frame in the file. The zeros behind the last frame may be missing at the end of the file.
fn stride(length: u64) -> u64 {
    (HEAD_BYTES + length).next_multiple_of(ALIGN)
}
