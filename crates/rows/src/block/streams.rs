//! Streams: the two byte sequences of a row block, one worth compressing and one that is not.
//!
//! Why it exists:    random bits between text spoil the statistics of a compressor and cost it time. They stand together at the
//!                   end of a block, where the caller may leave them as they are.
//! Format / state:   docs/format-rows.md#row-blocks: *front* and *packed tail*.
//! Rules:            F20 checked reads; F32: both streams are read in the order in which they were written, to the end.
//! After a crash:    nothing.

use crate::error::{Error, Result};
use crate::fields::ImageReader;

/// Names in errors.
pub(super) const FRONT: &str = "row block";
const TAIL: &str = "packed tail of a row block";

#[derive(Clone, Debug, Default)]
pub(super) struct StreamWriter {
    pub(super) front: Vec<u8>,
    pub(super) tail: Vec<u8>,
}

impl StreamWriter {
    pub(super) fn clear(&mut self) {
        self.front.clear();
        self.tail.clear();
    }

    /// Appends to the tail or to the front.
    pub(super) fn push(&mut self, to_tail: bool, bytes: &[u8]) {
        let stream = if to_tail { &mut self.tail } else { &mut self.front };
        stream.extend_from_slice(bytes);
    }
}

pub(super) struct StreamReader<'a> {
    front: ImageReader<'a>,
    tail: ImageReader<'a>,
}

impl<'a> StreamReader<'a> {
    /// Begins with `front`, which may have been read in part.
    pub(super) fn new(front: ImageReader<'a>, tail: &'a [u8]) -> Self {
        Self {
            front,
            tail: ImageReader::new(TAIL, tail),
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.front.u8()
    }

    pub(super) fn varint(&mut self) -> Result<u64> {
        self.front.varint()
    }

    /// A number of bytes or values that must not pass `limit`.
    pub(super) fn size(&mut self, limit: usize) -> Result<usize> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(size) if size <= limit => Ok(size),
            _ => Err(self.corrupt("a number within the size of the block", value)),
        }
    }

    pub(super) fn take(&mut self, from_tail: bool, count: usize) -> Result<&'a [u8]> {
        let stream = if from_tail {
            &mut self.tail
        } else {
            &mut self.front
        };
        stream.take(count)
    }

    pub(super) fn corrupt(&self, expected: &'static str, found: u64) -> Error {
        self.front.corrupt(expected, found)
    }

    /// Bytes not yet read.
    pub(super) fn left(&self) -> usize {
        self.front.left() + self.tail.left()
    }

    /// Fails unless all was read.
    pub(super) fn end(&self) -> Result<()> {
        self.front.end()?;
        self.tail.end()
    }
}
