//! Reader of row blocks: columns into one buffer of heads and one arena of values, then both into payloads, row by row.
//!
//! Why it exists:    columns are read each by its own loop, without a decision per row; the one loop over rows copies 16 bytes
//!                   at a time and writes strictly forward, so that what one copy spills the next one overwrites.
//! Format / state:   docs/format-rows.md#row-blocks.
//! Rules:            F20: sizes are checked against the header's before memory is asked for. F30, F31, F32.
//! Latches and I/O:  none.
//! After a crash:    nothing.

use super::bits::{SLACK, copy_over};
use super::builder::{HeadColumn, head_columns};
use super::numbers::{Bytes, read_bytes, read_numbers};
use super::streams::{FRONT, StreamReader};
use super::values::Values;
use super::{
    BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, FORMAT, ROW_ID_MAX, RowBlock, RowIds, SPARSE, Starts, TOMBSTONES, View,
};
use crate::blob::BlobRef;
use crate::error::Result;
use crate::fields::ImageReader;
use crate::payload::{EXTERNAL, WIDE};
use crate::schema::{Schema, Shape};
use pbxt_base::codec::{put_u16, put_u32};

pub(super) fn schema_version_of(bytes: &[u8]) -> Result<u16> {
    let mut reader = ImageReader::new(FRONT, bytes);
    reader.format(FORMAT)?;
    reader.u8()?;
    reader.u16()
}

struct Header<'a> {
    flags: u8,
    rows: usize,
    first: u64,
    payload_bytes: usize,
    streams: StreamReader<'a>,
}

fn limited(reader: &mut ImageReader<'_>, limit: u64, expected: &'static str) -> Result<u64> {
    let value = reader.varint()?;
    if value <= limit {
        Ok(value)
    } else {
        Err(reader.corrupt(expected, value))
    }
}

fn read_header<'a>(schema: &Schema, bytes: &'a [u8]) -> Result<Header<'a>> {
    let mut reader = ImageReader::new(FRONT, bytes);
    reader.format(FORMAT)?;
    let flags = reader.u8()?;
    if flags & !(SPARSE | TOMBSTONES) != 0 {
        return Err(reader.corrupt("known flags", flags as u64));
    }
    if bytes.len() > 4 * BLOCK_BYTES_MAX {
        return Err(reader.corrupt("at most 64 MiB in a block", bytes.len() as u64));
    }
    let version = reader.u16()?;
    if version != schema.version() {
        return Err(reader.corrupt("the version of the schema it is read with", version as u64));
    }
    let rows = limited(&mut reader, BLOCK_ROWS_MAX as u64, "at most 65536 rows")? as usize;
    let first = limited(
        &mut reader,
        ROW_ID_MAX - rows.saturating_sub(1) as u64,
        "a row id of 48 bits",
    )?;
    let payload_bytes = limited(&mut reader, BLOCK_BYTES_MAX as u64, "at most 16 MiB of payloads")? as usize;
    let tail = limited(&mut reader, bytes.len() as u64, "a packed tail inside the block")? as usize;
    let Some(front) = bytes
        .len()
        .checked_sub(tail)
        .filter(|&front| front >= reader.position())
    else {
        return Err(reader.corrupt("a packed tail inside the block", tail as u64));
    };
    let mut front_reader = ImageReader::new(FRONT, &bytes[..front]);
    front_reader.take(reader.position())?;
    Ok(Header {
        flags,
        rows,
        first,
        payload_bytes,
        streams: StreamReader::new(front_reader, &bytes[front..]),
    })
}

pub(super) fn decode(schema: &Schema, bytes: &[u8]) -> Result<RowBlock> {
    let mut header = read_header(schema, bytes)?;
    let ids = read_ids(&mut header)?;
    let tombstones = read_tombstones(&mut header)?;
    let deleted: u32 = tombstones.iter().map(|byte| byte.count_ones()).sum();
    let live = header.rows - deleted as usize;
    let shape = schema.shape();
    let least = live * (shape.fixed_end + shape.var_count * 2);
    if header.payload_bytes < least || live == 0 && header.payload_bytes != 0 {
        let found = header.payload_bytes as u64;
        return Err(header.streams.corrupt("payload bytes for every row", found));
    }
    let mut body = Body {
        shape,
        live,
        payload_bytes: header.payload_bytes,
        heads: Vec::new(),
        marks: Vec::new(),
        values: Values {
            arena: Vec::new(),
            views: Vec::new(),
            stride: shape.var_count.max(1),
            limit: header.payload_bytes,
        },
    };
    if live != 0 {
        body.read(&mut header.streams, &head_columns(schema))?;
    }
    header.streams.end()?;
    let (payloads, starts) = body.rows(&header.streams)?;
    Ok(RowBlock {
        schema_version: schema.version(),
        rows: header.rows as u32,
        ids,
        starts: Starts::of(with_tombstones(starts, tombstones, header.rows)),
        payloads: payloads.into_boxed_slice(),
    })
}

fn read_ids(header: &mut Header<'_>) -> Result<RowIds> {
    if header.flags & SPARSE == 0 {
        return Ok(RowIds::Dense(header.first));
    }
    let mut ids = Vec::new();
    read_numbers(&mut header.streams, header.rows.saturating_sub(1), 8, &mut ids)?;
    let mut id = header.first;
    for gap in &mut ids {
        let next = gap.checked_add(id + 1).filter(|&next| next <= ROW_ID_MAX);
        let Some(next) = next else {
            return Err(header.streams.corrupt("row ids of 48 bits", *gap));
        };
        *gap = std::mem::replace(&mut id, next);
    }
    if header.rows != 0 {
        ids.push(id);
    }
    Ok(RowIds::Sparse(ids.into_boxed_slice()))
}

/// The bitmap; empty without tombstones.
fn read_tombstones<'a>(header: &mut Header<'a>) -> Result<&'a [u8]> {
    if header.flags & TOMBSTONES == 0 {
        return Ok(&[]);
    }
    let bitmap = header.streams.take(false, header.rows.div_ceil(8))?;
    let unused = match header.rows % 8 {
        0 => 0,
        used => bitmap.last().map_or(0, |last| last >> used),
    };
    if unused == 0 {
        Ok(bitmap)
    } else {
        Err(header
            .streams
            .corrupt("zero in unused bits of a bitmap", unused as u64))
    }
}

/// Gives tombstones the place of the row behind them.
fn with_tombstones(starts: Vec<u32>, tombstones: &[u8], rows: usize) -> Vec<u32> {
    if tombstones.is_empty() {
        return starts;
    }
    let mut live = 0;
    let mut all = Vec::with_capacity(rows + 1);
    for row in 0..rows {
        all.push(starts[live]);
        live += usize::from(tombstones[row / 8] >> (row % 8) & 1 == 0);
    }
    all.push(starts[live]);
    all
}

/// The columns of a block on their way to rows.
struct Body {
    shape: Shape,
    /// Rows that are no tombstones.
    live: usize,
    payload_bytes: usize,
    /// Flags, null bits and fixed columns, row by row.
    heads: Vec<u8>,
    /// Bitmaps of external values of the rows that have some.
    marks: Vec<u8>,
    values: Values,
}

impl Body {
    fn read(&mut self, streams: &mut StreamReader<'_>, columns: &[HeadColumn]) -> Result<()> {
        let stride = self.shape.fixed_end;
        let mut numbers = Vec::with_capacity(self.live);
        self.heads.resize(self.live * stride + SLACK, 0);
        for column in columns {
            let nulls_are_zero = if column.len == 1 {
                match read_bytes(streams, self.live, &mut numbers)? {
                    Bytes::AsTheyAre(bytes) => {
                        let heads = self.heads.chunks_exact_mut(stride);
                        heads
                            .zip(bytes)
                            .for_each(|(head, &byte)| head[column.offset] = byte);
                        continue;
                    }
                    Bytes::Numbers(nulls_are_zero) => nulls_are_zero,
                }
            } else {
                read_numbers(streams, self.live, column.len, &mut numbers)?
            };
            if let Some(null) = column.null.filter(|_| nulls_are_zero) {
                clear_nulls(&self.heads, stride, null, &mut numbers);
            }
            scatter(&mut self.heads, stride, *column, &numbers);
        }
        let external = self.read_marks(streams, &mut numbers)?;
        self.values
            .views
            .resize(self.live * self.shape.var_count, View::default());
        self.values
            .arena
            .reserve(self.payload_bytes.min(streams.left() * 2) + SLACK);
        for ordinal in 0..self.shape.var_count {
            self.values.read(streams, ordinal, self.live)?;
        }
        if external != 0 {
            self.read_references(streams)?;
        }
        self.values.arena.resize(self.values.arena.len() + SLACK, 0);
        Ok(())
    }

    /// Reads the bitmaps of external values; returns how many rows have one.
    fn read_marks(&mut self, streams: &mut StreamReader<'_>, numbers: &mut Vec<u64>) -> Result<usize> {
        let mut all = 0;
        let mut external = 0;
        for head in self.heads.chunks_exact(self.shape.fixed_end).take(self.live) {
            all |= head[0];
            external += usize::from(head[0] & EXTERNAL != 0);
        }
        if all & !(WIDE | EXTERNAL) != 0 {
            return Err(streams.corrupt("known flags of payloads", all as u64));
        }
        let stride = self.shape.external_bytes();
        if external != 0 {
            self.marks.resize(external * stride, 0);
            for byte in 0..stride {
                read_numbers(streams, external, 1, numbers)?;
                for (mark, &number) in self
                    .marks
                    .iter_mut()
                    .skip(byte)
                    .step_by(stride)
                    .zip(numbers.iter())
                {
                    *mark = number as u8;
                }
            }
        }
        Ok(external)
    }

    fn read_references(&mut self, streams: &mut StreamReader<'_>) -> Result<()> {
        let (stride, mark_bytes) = (self.shape.var_count, self.shape.external_bytes());
        let heads = self.heads.chunks_exact(self.shape.fixed_end).take(self.live);
        let rows = heads.enumerate().filter(|(_, head)| head[0] & EXTERNAL != 0);
        for ((row, _), marks) in rows.zip(self.marks.chunks_exact(mark_bytes.max(1))) {
            for ordinal in (0..stride).filter(|ordinal| marks[ordinal / 8] >> (ordinal % 8) & 1 == 1) {
                let reference = streams.take(false, BlobRef::BYTES)?;
                self.values.views[row * stride + ordinal] =
                    View::new(self.values.arena.len(), BlobRef::BYTES);
                self.values.arena.extend_from_slice(reference);
            }
        }
        Ok(())
    }

    /// Where each row begins, and the end.
    fn starts(&self, streams: &StreamReader<'_>) -> Result<Vec<u32>> {
        let (stride, wrong) = (self.shape.var_count, "payloads of the size that the header says");
        let mut starts = Vec::with_capacity(self.live + 1);
        let mut at = 0_u64;
        for row in 0..self.live {
            starts.push(at as u32);
            let flags = self.heads[row * self.shape.fixed_end];
            let views = &self.values.views[row * stride..row * stride + stride];
            let values: u64 = views.iter().map(|view| view.len as u64).sum();
            let marks = if flags & EXTERNAL == 0 {
                0
            } else {
                self.shape.external_bytes()
            };
            let width = if flags & WIDE == 0 { 2 } else { 4 };
            if values > u16::MAX as u64 && width == 2 {
                return Err(streams.corrupt("wide end offsets for long values", values));
            }
            at += (self.shape.fixed_end + marks + stride * width) as u64 + values;
            if at > self.payload_bytes as u64 {
                return Err(streams.corrupt(wrong, at));
            }
        }
        if at != self.payload_bytes as u64 {
            return Err(streams.corrupt(wrong, at));
        }
        starts.push(at as u32);
        Ok(starts)
    }

    /// Puts the rows together.
    fn rows(&self, streams: &StreamReader<'_>) -> Result<(Vec<u8>, Vec<u32>)> {
        let starts = self.starts(streams)?;
        let mut payloads = vec![0; self.payload_bytes + SLACK];
        let (head_len, stride) = (self.shape.fixed_end, self.shape.var_count);
        let mark_bytes = self.shape.external_bytes();
        let arena = &self.values.arena[..];
        let mut marks = self.marks.chunks_exact(mark_bytes.max(1));
        for (row, &start) in starts[..self.live].iter().enumerate() {
            let mut at = start as usize;
            copy_over(&mut payloads, at, &self.heads, row * head_len, head_len);
            let flags = payloads[at];
            at += head_len;
            if flags & EXTERNAL != 0
                && let Some(marks) = marks.next()
            {
                payloads[at..at + marks.len()].copy_from_slice(marks);
                at += marks.len();
            }
            let views = &self.values.views[row * stride..row * stride + stride];
            if flags & WIDE == 0 {
                copy_values::<2>(&mut payloads, at, arena, views);
            } else {
                copy_values::<4>(&mut payloads, at, arena, views);
            }
        }
        payloads.truncate(self.payload_bytes);
        Ok((payloads, starts))
    }
}

/// Writes end offsets of `WIDTH` bytes and the values behind them.
#[inline]
fn copy_values<const WIDTH: usize>(payloads: &mut [u8], table: usize, arena: &[u8], views: &[View]) {
    let data = table + views.len() * WIDTH;
    let mut end = 0;
    for (ordinal, view) in views.iter().enumerate() {
        copy_over(
            payloads,
            data + end,
            arena,
            view.start as usize,
            view.len as usize,
        );
        end += view.len as usize;
        let at = table + ordinal * WIDTH;
        match WIDTH {
            2 => put_u16(payloads, at, end as u16),
            _ => put_u32(payloads, at, end as u32),
        }
    }
}

fn clear_nulls(heads: &[u8], stride: usize, (byte, bit): (usize, u8), numbers: &mut [u64]) {
    for (number, head) in numbers.iter_mut().zip(heads.chunks_exact(stride)) {
        if head[byte] & bit != 0 {
            *number = 0;
        }
    }
}

fn scatter(heads: &mut [u8], stride: usize, column: HeadColumn, numbers: &[u64]) {
    match column.len {
        1 => scatter_of::<1>(heads, stride, column.offset, numbers),
        2 => scatter_of::<2>(heads, stride, column.offset, numbers),
        3 => scatter_of::<3>(heads, stride, column.offset, numbers),
        4 => scatter_of::<4>(heads, stride, column.offset, numbers),
        5 => scatter_of::<5>(heads, stride, column.offset, numbers),
        6 => scatter_of::<6>(heads, stride, column.offset, numbers),
        7 => scatter_of::<7>(heads, stride, column.offset, numbers),
        _ => scatter_of::<8>(heads, stride, column.offset, numbers),
    }
}

#[inline]
fn scatter_of<const LEN: usize>(heads: &mut [u8], stride: usize, offset: usize, numbers: &[u64]) {
    for (head, number) in heads.chunks_exact_mut(stride).zip(numbers) {
        head[offset..offset + LEN].copy_from_slice(&number.to_le_bytes()[..LEN]);
    }
}
