//! RowBlockBuilder: collects rows and writes them as one block.
//!
//! Why it exists:    forms of columns are chosen by what all their values look like, so rows are kept until the block is cut.
//! Format / state:   docs/format-rows.md#row-blocks.
//! Rules:            F30: what cannot come back byte by byte is refused when it is pushed. F31: row ids rise.
//! Latches and I/O:  none.
//! After a crash:    nothing.

use super::numbers::{NULLS_ARE_ZERO, write_bytes, write_numbers};
use super::streams::StreamWriter;
use super::values::{ValueColumn, write_values};
use super::{BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, FORMAT, ROW_ID_MAX, SPARSE, TOMBSTONES, View};
use crate::blob::BlobRef;
use crate::error::{Error, Result};
use crate::fields::le_uint;
use crate::payload::{EXTERNAL, Payload};
use crate::schema::{Place, Schema, Shape};
use pbxt_base::RowId;
use pbxt_base::codec::{push_u16, put_varint};

/// A part of every payload that has a fixed place: flags, null bits, fixed columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadColumn {
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Byte and bit that say the column is NULL.
    pub(super) null: Option<(usize, u8)>,
}

/// All such parts in their order. Columns of more than 8 bytes are cut into single bytes.
pub(super) fn head_columns(schema: &Schema) -> Vec<HeadColumn> {
    let single = |offset, null| HeadColumn { offset, len: 1, null };
    let mut heads: Vec<_> = (0..=schema.shape().null_bytes)
        .map(|offset| single(offset, None))
        .collect();
    for placed in (0..schema.columns().len()).filter_map(|number| schema.placed(number)) {
        let null = placed
            .null_ordinal
            .map(|ordinal| (1 + ordinal as usize / 8, 1 << (ordinal % 8)));
        if let Place::Fixed { offset, len } = placed.place {
            let (offset, len) = (offset as usize, len as usize);
            match len {
                0 => {}
                1..=8 => heads.push(HeadColumn { offset, len, null }),
                _ => heads.extend((offset..offset + len).map(|offset| single(offset, null))),
            }
        }
    }
    heads
}

/// Collects rows of one schema. Can be used for block after block.
#[derive(Clone, Debug)]
pub struct RowBlockBuilder {
    shape: Shape,
    version: u16,
    heads: Vec<HeadColumn>,
    ids: Vec<u64>,
    /// Bit i of the bitmap: row i is a tombstone.
    tombstones: Vec<u8>,
    tombstone_count: usize,
    payloads: Vec<u8>,
    /// Where the payload of each row that is no tombstone begins.
    starts: Vec<u32>,
    /// Inline values of each such row; empty for external ones.
    views: Vec<View>,
    /// Bitmaps of external values of the rows that have some.
    marks: Vec<u8>,
    references: Vec<u8>,
    numbers: Vec<u64>,
    bytes: Vec<u8>,
    streams: StreamWriter,
}

impl RowBlockBuilder {
    /// A builder for rows of `schema`.
    pub fn new(schema: &Schema) -> Self {
        Self {
            shape: schema.shape(),
            version: schema.version(),
            heads: head_columns(schema),
            ids: Vec::new(),
            tombstones: Vec::new(),
            tombstone_count: 0,
            payloads: Vec::new(),
            starts: Vec::new(),
            views: Vec::new(),
            marks: Vec::new(),
            references: Vec::new(),
            numbers: Vec::new(),
            bytes: Vec::new(),
            streams: StreamWriter::default(),
        }
    }

    /// Adds a row, or a tombstone with `None`.
    ///
    /// # Errors
    /// `RowOrder` if the row does not come after the last one, `TooLarge` if the block is full, `Corrupt` if the payload is none of
    /// the schema. The builder is then as before.
    pub fn push(&mut self, row: RowId, payload: Option<&[u8]>) -> Result<()> {
        let id = row.raw();
        if let Some(&last) = self.ids.last().filter(|&&last| last >= id) {
            return Err(Error::RowOrder { row: id, last });
        }
        let bytes = self.payloads.len() + payload.map_or(0, <[u8]>::len);
        let limits = [
            ("a row id", id, ROW_ID_MAX),
            (
                "the number of rows in a block",
                self.ids.len() as u64 + 1,
                BLOCK_ROWS_MAX as u64,
            ),
            ("a row block", bytes as u64, BLOCK_BYTES_MAX as u64),
        ];
        if let Some(&(what, found, limit)) = limits.iter().find(|(_, found, limit)| found > limit) {
            return Err(Error::TooLarge { what, found, limit });
        }
        if let Some(payload) = payload {
            self.push_payload(payload)?;
        }
        let index = self.ids.len();
        if index.is_multiple_of(8) {
            self.tombstones.push(0);
        }
        if payload.is_none() {
            self.tombstones[index / 8] |= 1 << (index % 8);
            self.tombstone_count += 1;
        }
        self.ids.push(id);
        Ok(())
    }

    fn push_payload(&mut self, bytes: &[u8]) -> Result<()> {
        let payload = Payload::parse(self.shape, bytes)?;
        let start = self.payloads.len();
        let (views, marks, references) = (self.views.len(), self.marks.len(), self.references.len());
        if let Err(error) = self.push_values(&payload, start) {
            self.views.truncate(views);
            self.marks.truncate(marks);
            self.references.truncate(references);
            return Err(error);
        }
        self.starts.push(start as u32);
        self.payloads.extend_from_slice(bytes);
        Ok(())
    }

    fn push_values(&mut self, payload: &Payload<'_>, start: usize) -> Result<()> {
        let shape = self.shape;
        let bytes = payload.bytes();
        if bytes[0] & EXTERNAL != 0 {
            let at = shape.fixed_end;
            self.marks
                .extend_from_slice(&bytes[at..at + shape.external_bytes()]);
        }
        let mut at = payload.values_start();
        for ordinal in 0..shape.var_count {
            let value = payload.var(ordinal)?;
            let inline = if payload.is_external(ordinal) {
                self.references
                    .extend_from_slice(&payload.blob(ordinal)?.to_bytes());
                0
            } else {
                value.len()
            };
            self.views.push(View::new(start + at, inline));
            at += value.len();
        }
        Ok(())
    }

    /// Rows so far, tombstones included.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Bytes of payloads and row ids so far: what the block will take in memory.
    pub fn raw_bytes(&self) -> usize {
        self.payloads.len() + self.ids.len() * size_of::<u64>()
    }

    /// Id of the first row.
    pub fn first_row(&self) -> Option<RowId> {
        self.ids.first().copied().map(RowId::new)
    }

    /// Payloads of the rows so far that are no tombstones.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).map(|&start| start as usize);
        let ends = ends.chain(std::iter::once(self.payloads.len()));
        let rows = self.starts.iter().zip(ends);
        rows.map(|(&start, end)| &self.payloads[start as usize..end])
    }

    /// Appends the block to `out` and starts the next one. Returns the length of the packed tail: so many bytes at the end of the
    /// block look random, and a compressor may be spared them.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> usize {
        self.streams.clear();
        self.write_rows();
        if !self.starts.is_empty() {
            self.write_heads();
            self.write_columns();
        }
        let gaps = self
            .ids
            .last()
            .is_some_and(|last| last - self.ids[0] + 1 != self.ids.len() as u64);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(FORMAT);
        out.push(flag(gaps, SPARSE) | flag(self.tombstone_count != 0, TOMBSTONES));
        push_u16(out, self.version);
        put_varint(out, self.ids.len() as u64);
        put_varint(out, self.ids.first().copied().unwrap_or(0));
        put_varint(out, self.payloads.len() as u64);
        put_varint(out, self.streams.tail.len() as u64);
        out.extend_from_slice(&self.streams.front);
        out.extend_from_slice(&self.streams.tail);
        self.clear();
        self.streams.tail.len()
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.tombstones.clear();
        self.tombstone_count = 0;
        self.payloads.clear();
        self.starts.clear();
        self.views.clear();
        self.marks.clear();
        self.references.clear();
    }

    /// Gaps between row ids, and tombstones.
    fn write_rows(&mut self) {
        self.numbers.clear();
        self.numbers
            .extend(self.ids.windows(2).map(|pair| pair[1] - pair[0] - 1));
        if self.numbers.iter().any(|&gap| gap != 0) {
            write_numbers(&self.numbers, 8, 0, &mut self.streams);
        }
        if self.tombstone_count != 0 {
            self.streams.push(false, &self.tombstones);
        }
    }

    fn write_heads(&mut self) {
        for head in &self.heads {
            if head.len == 1 && head.null.is_none() {
                self.bytes.clear();
                let places = self.starts.iter().map(|&start| start as usize + head.offset);
                self.bytes.extend(places.map(|at| self.payloads[at]));
                write_bytes(&self.bytes, &mut self.numbers, &mut self.streams);
                continue;
            }
            self.numbers.clear();
            gather(&self.payloads, &self.starts, *head, &mut self.numbers);
            let nulls = head
                .null
                .is_some_and(|null| fill_nulls(&self.payloads, &self.starts, null, &mut self.numbers));
            let extra = if nulls { NULLS_ARE_ZERO } else { 0 };
            write_numbers(&self.numbers, head.len, extra, &mut self.streams);
        }
    }

    fn write_columns(&mut self) {
        let shape = self.shape;
        let mark_bytes = shape.external_bytes();
        for byte in 0..if self.marks.is_empty() { 0 } else { mark_bytes } {
            self.numbers.clear();
            let marks = self.marks.iter().skip(byte).step_by(mark_bytes);
            self.numbers.extend(marks.map(|&mark| mark as u64));
            write_numbers(&self.numbers, 1, 0, &mut self.streams);
        }
        for ordinal in 0..shape.var_count {
            let column = ValueColumn {
                bytes: &self.payloads,
                views: &self.views,
                stride: shape.var_count,
                ordinal,
            };
            write_values(column, &mut self.streams);
        }
        debug_assert!(self.references.len().is_multiple_of(BlobRef::BYTES));
        self.streams.push(false, &self.references);
    }
}

fn gather(payloads: &[u8], starts: &[u32], head: HeadColumn, out: &mut Vec<u64>) {
    let fields = |len: usize| {
        starts
            .iter()
            .map(move |&start| start as usize + head.offset)
            .map(move |at| &payloads[at..at + len])
    };
    match head.len {
        1 => out.extend(fields(1).map(le_uint)),
        2 => out.extend(fields(2).map(le_uint)),
        3 => out.extend(fields(3).map(le_uint)),
        4 => out.extend(fields(4).map(le_uint)),
        5 => out.extend(fields(5).map(le_uint)),
        6 => out.extend(fields(6).map(le_uint)),
        8 => out.extend(fields(8).map(le_uint)),
        len => out.extend(fields(len).map(le_uint)),
    }
}

/// Gives rows that are NULL the value of a neighbour, which costs least; false, and nothing changed, if no row is NULL or one
/// that is has a value besides zero.
fn fill_nulls(payloads: &[u8], starts: &[u32], (byte, bit): (usize, u8), values: &mut [u64]) -> bool {
    let is_null = |start: u32| payloads[start as usize + byte] & bit != 0;
    let mut nulls = starts
        .iter()
        .zip(values.iter())
        .filter(|&(&start, _)| is_null(start))
        .peekable();
    if nulls.peek().is_none() || nulls.any(|(_, &value)| value != 0) {
        return false;
    }
    let first = starts.iter().position(|&start| !is_null(start)).unwrap_or(0);
    let mut last = values.get(first).copied().unwrap_or(0);
    for (value, &start) in values.iter_mut().zip(starts) {
        if is_null(start) {
            *value = last;
        }
        last = *value;
    }
    true
}
