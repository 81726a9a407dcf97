//! Image: everything a checkpoint saves, as one meta piece file; its one encoder and its one decoder.
//!
//! Why it exists: recovery starts from it and reads only the log behind it. It holds what the log below said and no file
//! says: transaction states, definitions, counts, the words of the row maps, and the names of all pieces.
//! Format: docs/format-checkpoint.md: items in blocks of about 256 KiB; both ends stream, so memory does not grow with it.
//! Rules: D21 an image says how many items it has; one that ends too soon is damage. D36 an item that is not exactly what the
//! encoder writes is damage, named by file, block and item. K2 a format this program does not know is refused.
//! Latches and I/O: writes or reads one piece file; nothing is durable before `finish`.
//! After a crash: an image that no manifest record names is removed at open.

use crate::definition::TableDef;
use crate::error::{Error, Result};
use crate::fates::check_void;
use crate::image_words::encode_words;
use crate::key_sample::KeySample;
use crate::row_writer::SECTION_IMAGE;
use pbxt_base::codec::{Reader, push_bytes, push_u8, push_u32, push_u64, put_u32, put_varint};
use pbxt_base::{Error as StorageError, IndexId, Lsn, SegmentId, TableId, TxnId};
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_txlog::{CountDelta, VoidRange};
use pbxt_txn::{Stamp, TxnTableImage};
use std::ops::Range;
use std::sync::Arc;

/// Format of the items.
const FORMAT: u32 = 2;
/// Had no samples of indexes.
const FORMAT_WITHOUT_SAMPLES: u32 = 1;
/// Raw bytes after which a block is full.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of a large value that go into one item.
const PART_BYTES: usize = 128 << 10;
/// Kind and length before an item's fields.
const ITEM_HEAD_BYTES: usize = 5;
const CODEC: Codec = Codec::Zstd(1);

/// Numbers of the kinds of items, and what they are called.
mod kind {
    /// For messages.
    pub(super) fn name(kind: u8) -> &'static str {
        const NAMES: [&str; 12] = [
            "of no kind",
            "head",
            "transactions",
            "prepared transaction",
            "table",
            "words",
            "deleted rows",
            "row run",
            "index",
            "index run",
            "end",
            "sample",
        ];
        NAMES.get(usize::from(kind)).unwrap_or(&"of unknown kind")
    }

    pub(super) const HEAD: u8 = 1;
    pub(super) const TXNS: u8 = 2;
    pub(super) const PREPARED: u8 = 3;
    pub(super) const TABLE: u8 = 4;
    pub(super) const WORDS: u8 = 5;
    pub(super) const GONE: u8 = 6;
    pub(super) const ROW_RUN: u8 = 7;
    pub(super) const INDEX: u8 = 8;
    pub(super) const INDEX_RUN: u8 = 9;
    pub(super) const END: u8 = 10;
    pub(super) const SAMPLE: u8 = 11;
}

/// What holds for the whole database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageHead {
    /// Recovery reads the log from here on.
    pub start: Lsn,
    /// Nothing below is read from the log.
    pub log_start: Lsn,
    /// The greatest table id handed out.
    pub last_table: u32,
    /// The greatest index id handed out.
    pub last_index: u32,
    /// For whoever reclaims large values.
    pub blobs: Vec<u8>,
}

/// A prepared transaction, as its PREPARE record has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreparedImage {
    pub txn: TxnId,
    pub xid: Vec<u8>,
    pub rows_written: u64,
    pub deltas: Vec<CountDelta>,
    pub voids: Vec<VoidRange>,
}

/// What is small of a table; words, deleted rows, runs and indexes follow it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableHead {
    pub def: TableDef,
    pub next_auto_increment: u64,
    pub rows: i64,
    pub high_mark: u64,
    pub data_bytes: u64,
    pub updated: u64,
}

/// A run: whose it is, and the sections that are its pieces, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunImage {
    /// Transaction 0 if settled.
    pub stamp: Stamp,
    pub pieces: Vec<(SegmentId, u32)>,
}

/// One item of an image.
#[derive(Debug, PartialEq)]
pub(crate) enum ImageItem<'a> {
    Head(ImageHead),
    /// The next part of the image of the transaction table.
    Txns(&'a [u8]),
    Prepared(PreparedImage),
    Table(Box<TableHead>),
    /// Words of the table before; for `decode_words`.
    Words(&'a [u8]),
    /// The next part of the deleted rows of the table before.
    Gone(&'a [u8]),
    /// The next older run of the table before.
    RowRun(RunImage),
    Index(IndexId),
    /// What is known of the keys of the index before.
    Sample(KeySample),
    /// The next older run of the index before.
    IndexRun(RunImage),
}

/// Writes an image, item by item.
#[derive(Debug)]
pub(crate) struct ImageWriter {
    piece: PieceWriter,
    block: Vec<u8>,
    items: u64,
    items_in_block: u32,
    blocks: u64,
}

impl ImageWriter {
    /// Begins an image with its head.
    pub(crate) fn create(store: &Arc<SegmentStore>, head: &ImageHead) -> Result<Self> {
        let mut piece = PieceWriter::create(store, SegmentClass::Meta)?;
        piece.begin_section(0, SECTION_IMAGE);
        let mut writer = Self {
            piece,
            block: Vec::with_capacity(BLOCK_BYTES + PART_BYTES),
            items: 0,
            items_in_block: 0,
            blocks: 0,
        };
        writer.item(kind::HEAD, |out| {
            push_u32(out, FORMAT);
            push_u64(out, head.start.raw());
            push_u64(out, head.log_start.raw());
            push_u32(out, head.last_table);
            push_u32(out, head.last_index);
            push_bytes(out, &head.blobs);
        })?;
        Ok(writer)
    }

    /// Number of the file.
    pub(crate) fn id(&self) -> SegmentId {
        self.piece.id()
    }

    /// The transaction table.
    pub(crate) fn txns(&mut self, image: &TxnTableImage) -> Result<()> {
        self.parts(kind::TXNS, &image.encode())
    }

    /// A prepared transaction.
    pub(crate) fn prepared(&mut self, found: &PreparedImage) -> Result<()> {
        self.item(kind::PREPARED, |out| {
            put_varint(out, found.txn.raw());
            push_bytes(out, &found.xid);
            put_varint(out, found.rows_written);
            put_varint(out, found.deltas.len() as u64);
            for delta in &found.deltas {
                push_u32(out, delta.table.raw());
                push_u64(out, delta.rows.cast_unsigned());
            }
            let ranges = found.voids.iter().map(|range| (range.from, range.to));
            push_ranges(out, found.voids.len(), ranges);
        })
    }

    /// Begins a table.
    pub(crate) fn table(&mut self, table: &TableHead) -> Result<()> {
        let mut def = Vec::new();
        table.def.encode(&mut def);
        self.item(kind::TABLE, |out| {
            push_bytes(out, &def);
            push_u64(out, table.next_auto_increment);
            push_u64(out, table.rows.cast_unsigned());
            push_u64(out, table.high_mark);
            push_u64(out, table.data_bytes);
            push_u64(out, table.updated);
        })
    }

    /// Row map words of the table: `words[i]` is that of row `first + i`. Words that name nothing below `log_start` or at
    /// all take no room.
    pub(crate) fn words(&mut self, first: u64, words: &[u64], log_start: Lsn) -> Result<()> {
        self.item_if(kind::WORDS, |out| encode_words(first, words, log_start, out))
    }

    /// Rows of the table whose deletion is settled, as the bitmap serializes itself.
    pub(crate) fn gone(&mut self, bytes: &[u8]) -> Result<()> {
        self.parts(kind::GONE, bytes)
    }

    /// The next older run of rows of the table.
    pub(crate) fn row_run(&mut self, run: &RunImage) -> Result<()> {
        self.item(kind::ROW_RUN, |out| push_run(out, run))
    }

    /// Begins an index of the table.
    pub(crate) fn index(&mut self, id: IndexId) -> Result<()> {
        self.item(kind::INDEX, |out| push_u32(out, id.raw()))
    }

    /// What is known of the keys of the index.
    pub(crate) fn sample(&mut self, sample: &KeySample) -> Result<()> {
        self.item(kind::SAMPLE, |out| sample.encode(out))
    }

    /// The next older run of the index.
    pub(crate) fn index_run(&mut self, run: &RunImage) -> Result<()> {
        self.item(kind::INDEX_RUN, |out| push_run(out, run))
    }

    /// Ends the image; durable on return.
    pub(crate) fn finish(mut self) -> Result<SegmentId> {
        let items = self.items;
        self.item(kind::END, |out| push_u64(out, items))?;
        self.flush()?;
        self.piece.end_section(&[], &[]);
        Ok(self.piece.finish()?)
    }

    fn parts(&mut self, kind: u8, bytes: &[u8]) -> Result<()> {
        bytes
            .chunks(PART_BYTES)
            .try_for_each(|part| self.item(kind, |out| out.extend_from_slice(part)))
    }

    fn item(&mut self, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.item_if(kind, |out| {
            fields(out);
            true
        })
    }

    /// Appends an item unless `fields` says that it has nothing to say.
    fn item_if(&mut self, kind: u8, fields: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<()> {
        let start = self.block.len();
        push_u8(&mut self.block, kind);
        push_u32(&mut self.block, 0);
        if !fields(&mut self.block) {
            self.block.truncate(start);
            return Ok(());
        }
        let length = (self.block.len() - start - ITEM_HEAD_BYTES) as u32;
        put_u32(&mut self.block, start + 1, length);
        self.items += 1;
        self.items_in_block += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            let fence = fence_of(self.blocks);
            self.piece
                .push_block(&fence, self.items_in_block, &self.block, CODEC)?;
            self.blocks += 1;
            self.items_in_block = 0;
            self.block.clear();
        }
        Ok(())
    }
}

/// Images are read in order; their fences only have to rise.
#[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
fn fence_of(block: u64) -> [u8; 8] {
    block.to_be_bytes()
}

fn push_ranges(out: &mut Vec<u8>, count: usize, ranges: impl Iterator<Item = (Lsn, Lsn)>) {
    put_varint(out, count as u64);
    for (from, to) in ranges {
        push_u64(out, from.raw());
        push_u64(out, to.raw());
    }
}

fn push_run(out: &mut Vec<u8>, run: &RunImage) {
    put_varint(out, run.stamp.txn.raw());
    put_varint(out, run.stamp.lsn.raw());
    put_varint(out, run.pieces.len() as u64);
    for (segment, section) in &run.pieces {
        push_u32(out, segment.raw());
        push_u32(out, *section);
    }
}

/// Reads an image, item by item.
#[derive(Debug)]
pub(crate) struct ImageReader {
    file: Arc<PieceFile>,
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    items: u64,
    /// Kind of the item that was read last.
    kind: u8,
    ended: bool,
}

impl ImageReader {
    /// Opens the image in this meta piece file.
    pub(crate) fn open(store: &SegmentStore, id: SegmentId) -> Result<Self> {
        let file = PieceFile::open(store, SegmentClass::Meta, id)?;
        let reader = Self {
            file,
            next_block: 0,
            block: Vec::new(),
            at: 0,
            items: 0,
            kind: 0,
            ended: false,
        };
        match reader.file.sections() {
            [section] if section.kind == SECTION_IMAGE => Ok(reader),
            sections => Err(reader
                .damaged(
                    "one section with an image",
                    &format!("{} sections", sections.len()),
                )
                .into()),
        }
    }

    /// Name of the file, for messages.
    pub(crate) fn name(&self) -> &str {
        self.file.name()
    }

    /// The next item; `None` behind the last one.
    ///
    /// # Errors
    /// `Corrupt`, which names file, block and item.
    pub(crate) fn next_item(&mut self) -> Result<Option<ImageItem<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let blocks = self.file.section(0)?.block_count();
        if self.at >= self.block.len() {
            if self.next_block >= blocks {
                let found = format!("none behind item {}", self.items);
                return Err(self.damaged("the end of the image", &found).into());
            }
            self.file.read_block(0, self.next_block, &mut self.block)?;
            self.next_block += 1;
            self.at = 0;
        }
        self.items += 1;
        let (kind, fields, next) = self.split_item().map_err(|error| self.in_item(error))?;
        (self.kind, self.at) = (kind, next);
        if kind == kind::END {
            let end = read_end(&self.block[fields]).map_err(|error| self.in_item(error.into()))?;
            let items = self.items - 1;
            if end != items {
                let found = format!("{end} in the item that ends it");
                return Err(self.damaged(&format!("{items} items"), &found).into());
            }
            if self.at < self.block.len() || self.next_block < blocks {
                return Err(self
                    .damaged("the end of the image", "more behind the item that ends it")
                    .into());
            }
            self.ended = true;
            return Ok(None);
        }
        match decode(kind, &self.block[fields], self.file.name()) {
            Ok(item) => Ok(Some(item)),
            Err(error) => Err(self.in_item(error)),
        }
    }

    /// Kind, place of the fields and of the next item.
    fn split_item(&self) -> Result<(u8, Range<usize>, usize)> {
        let mut reader = Reader::new(&self.block[self.at..]);
        let kind = reader.u8()?;
        let length = reader.u32()? as usize;
        let start = self.at + ITEM_HEAD_BYTES;
        if reader.bytes(length).is_err() {
            let found = format!("one of {length} bytes, over the end of its block");
            return Err(damage("an item of an image", found));
        }
        Ok((kind, start..start + length, start + length))
    }

    /// An error about the item that was read last, with its place, unless it names another file (rule D36).
    pub(crate) fn in_item(&self, error: Error) -> Error {
        let item = format!("item {}, {}", self.items, kind::name(self.kind));
        match error {
            Error::Storage(StorageError::Corrupt {
                file,
                offset,
                expected,
                found,
            }) if file.is_empty() => {
                let expected = format!("{expected} at byte {offset} of {item}");
                self.damaged(&expected, &found).into()
            }
            named @ Error::Storage(_) => named,
            other => self
                .damaged(&format!("what is possible in {item}"), &other.to_string())
                .into(),
        }
    }

    fn damaged(&self, expected: &str, found: &str) -> StorageError {
        let sections = self.file.sections().first();
        let block = self.next_block.saturating_sub(1);
        StorageError::Corrupt {
            file: self.file.name().to_owned(),
            offset: sections
                .filter(|section| block < section.block_count())
                .map_or(0, |section| section.block_offset(block)),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }
}

/// Damage of an item, for `in_item`.
pub(crate) fn damage(expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::Storage(StorageError::Corrupt {
        file: String::new(),
        offset: 0,
        expected: expected.into(),
        found: found.into(),
    })
}

fn read_end(fields: &[u8]) -> pbxt_base::Result<u64> {
    let mut reader = Reader::new(fields);
    let items = reader.u64()?;
    reader.end()?;
    Ok(items)
}

fn decode<'a>(kind: u8, fields: &'a [u8], file: &str) -> Result<ImageItem<'a>> {
    let mut reader = Reader::new(fields);
    let item = match kind {
        kind::HEAD => ImageItem::Head(read_head(&mut reader, file)?),
        kind::TXNS => ImageItem::Txns(fields),
        kind::PREPARED => ImageItem::Prepared(read_prepared(&mut reader)?),
        kind::TABLE => ImageItem::Table(Box::new(TableHead {
            def: TableDef::decode(reader.length_prefixed()?)?,
            next_auto_increment: reader.u64()?,
            rows: reader.u64()?.cast_signed(),
            high_mark: reader.u64()?,
            data_bytes: reader.u64()?,
            updated: reader.u64()?,
        })),
        kind::WORDS => ImageItem::Words(fields),
        kind::GONE => ImageItem::Gone(fields),
        kind::ROW_RUN => ImageItem::RowRun(read_run(&mut reader)?),
        kind::INDEX => ImageItem::Index(IndexId::new(reader.u32()?)),
        kind::INDEX_RUN => ImageItem::IndexRun(read_run(&mut reader)?),
        kind::SAMPLE => ImageItem::Sample(KeySample::decode(fields)?),
        other => {
            let expected = "an item of a checkpoint image that this program knows";
            return Err(damage(expected, format!("number {other}")));
        }
    };
    // Of the others all fields are one value.
    if !matches!(kind, kind::TXNS | kind::WORDS | kind::GONE | kind::SAMPLE) {
        reader.end()?;
    }
    Ok(item)
}

fn read_head(reader: &mut Reader<'_>, file: &str) -> Result<ImageHead> {
    let format = reader.u32()?;
    if !(FORMAT_WITHOUT_SAMPLES..=FORMAT).contains(&format) {
        return Err(Error::Storage(StorageError::WrongVersion {
            file: file.to_owned(),
            found: format,
            expected: FORMAT,
        }));
    }
    Ok(ImageHead {
        start: Lsn::new(reader.u64()?),
        log_start: Lsn::new(reader.u64()?),
        last_table: reader.u32()?,
        last_index: reader.u32()?,
        blobs: reader.length_prefixed()?.to_vec(),
    })
}

fn read_prepared(reader: &mut Reader<'_>) -> Result<PreparedImage> {
    let txn = TxnId::new(reader.varint()?);
    let xid = reader.length_prefixed()?.to_vec();
    let rows_written = reader.varint()?;
    let mut deltas = Vec::new();
    for _ in 0..reader.varint()? {
        deltas.push(CountDelta {
            table: TableId::new(reader.u32()?),
            rows: reader.u64()?.cast_signed(),
        });
    }
    Ok(PreparedImage {
        txn,
        xid,
        rows_written,
        deltas,
        voids: read_ranges(reader)?,
    })
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<Vec<VoidRange>> {
    let mut ranges = Vec::new();
    for _ in 0..reader.varint()? {
        let (from, to) = (Lsn::new(reader.u64()?), Lsn::new(reader.u64()?));
        let range = VoidRange { from, to };
        check_void(range)?;
        ranges.push(range);
    }
    Ok(ranges)
}

fn read_run(reader: &mut Reader<'_>) -> Result<RunImage> {
    let stamp = Stamp {
        txn: TxnId::new(reader.varint()?),
        lsn: Lsn::new(reader.varint()?),
    };
    let mut pieces = Vec::new();
    for _ in 0..reader.varint()? {
        pieces.push((SegmentId::new(reader.u32()?), reader.u32()?));
    }
    Ok(RunImage { stamp, pieces })
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod image_tests;
