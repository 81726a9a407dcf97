//! `RunBuilder`: writes a run, entry by entry, in the order of the index.
//!
//! Why it exists:    a run is larger than memory; entries are encoded block by block as they come.
//! Format / state:   `docs/indexes.md`, runs: sections of piece files of class Meta, one for each piece of the run.
//! Rules:            X1 entries come in order, each once, X43 and have room for their suffix: what does not is damage;
//!                   X31 entries of a tagged run carry no stamps, X32 a piece ends between two (key, row id) pairs, so no
//!                   pair's events lie in two pieces.
//! Latches and I/O:  none held; the writes of `PieceWriter`. What is dropped unfinished removes its files.
//! After a crash:    nothing names an unfinished run; its files are removed as orphans.

use std::sync::Arc;

use pbxt_base::codec::put_varint;
use pbxt_base::{Error, IndexId, Lsn, Result, RowId, SegmentId, TxnId, invariant};
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore};

use crate::entry::{KEY_BYTES_MAX, Sign};
use crate::filter::FilterBuilder;
use crate::run::{EXTRA_FILTER, EXTRA_STAMPS, EXTRA_TAG, Run, RunPiece, SECTION_INDEX_RUN};
use crate::run_encode::{BLOCK_BYTES, BlockWriter, Item};

/// Stored bytes at which a piece of a run ends.
pub const PIECE_BYTES_MAX: u64 = 64 << 20;

/// Stamps that the entries of a piece have.
#[derive(Clone, Copy, Debug, Default)]
struct Stamps {
    /// Least and greatest transaction id other than 0.
    txns: Option<(TxnId, TxnId)>,
    greatest_lsn: Lsn,
}

/// Where sections go.
enum Target<'w> {
    /// Files of the run's own, the last one open while it takes blocks.
    Files {
        store: Arc<SegmentStore>,
        open: Option<Box<PieceWriter>>,
        finished: Vec<SegmentId>,
    },
    /// One section of a file that many small runs share.
    Section(&'w mut PieceWriter),
}

/// See the module.
#[must_use = "a run is there once `finish` has returned"]
pub struct RunBuilder<'w> {
    target: Target<'w>,
    index: IndexId,
    tag: Option<(TxnId, Lsn)>,
    level: Option<i32>,
    piece_bytes_max: u64,
    block: BlockWriter,
    encoded: Vec<u8>,
    /// Last entry of the block before: key, row id, LSN and sign.
    last: Option<(Vec<u8>, (RowId, Lsn, Sign))>,
    is_section_open: bool,
    with_filter: bool,
    filter: FilterBuilder,
    stamps: Stamps,
    entries: u64,
    /// Stored bytes of finished pieces.
    bytes_before: u64,
}

impl RunBuilder<'static> {
    /// A run in files of its own. With a `tag`, all entries have that stamp, whatever `push` is told. `codec` is for keys
    /// and unpack information; numbers are packed in any case.
    pub fn new(
        store: &Arc<SegmentStore>,
        index: IndexId,
        tag: Option<(TxnId, Lsn)>,
        codec: Codec,
    ) -> RunBuilder<'static> {
        let target = Target::Files {
            store: Arc::clone(store),
            open: None,
            finished: Vec::new(),
        };
        RunBuilder::with_target(target, index, tag, codec)
    }

    /// Makes the files durable and opens the run; without entries it has no piece.
    pub fn finish(mut self) -> Result<Run> {
        self.end_piece()?;
        let Target::Files { store, finished, .. } = &mut self.target else {
            unreachable!("X32: `new` writes to files of its own")
        };
        let mut pieces = Vec::with_capacity(finished.len());
        for &id in &*finished {
            let file = PieceFile::open(store, SegmentClass::Meta, id)?;
            pieces.push(RunPiece::open(file, 0)?);
        }
        finished.clear();
        Run::new(self.index, self.tag, pieces)
    }
}

impl<'w> RunBuilder<'w> {
    /// A run of one section in a file that the caller finishes; for small runs.
    pub fn into_section(
        writer: &'w mut PieceWriter,
        index: IndexId,
        tag: Option<(TxnId, Lsn)>,
        codec: Codec,
    ) -> RunBuilder<'w> {
        RunBuilder::with_target(Target::Section(writer), index, tag, codec)
    }

    /// Ends the section; its number in the file, for [`RunPiece::open`]. None if there was no entry.
    pub fn finish_section(mut self) -> Result<Option<u32>> {
        invariant!(
            matches!(self.target, Target::Section(_)),
            "X32: `into_section` writes one section"
        );
        self.end_block()?;
        Ok(self.end_section())
    }

    fn with_target(
        target: Target<'w>,
        index: IndexId,
        tag: Option<(TxnId, Lsn)>,
        codec: Codec,
    ) -> RunBuilder<'w> {
        RunBuilder {
            target,
            index,
            tag,
            level: match codec {
                Codec::Plain => None,
                // Text of a few letters: what LZ4 finds in it is next to nothing.
                Codec::Lz4 => Some(1),
                Codec::Zstd(level) => Some(i32::from(level)),
            },
            piece_bytes_max: PIECE_BYTES_MAX,
            block: BlockWriter::default(),
            encoded: Vec::new(),
            last: None,
            is_section_open: false,
            with_filter: false,
            filter: FilterBuilder::default(),
            stamps: Stamps::default(),
            entries: 0,
            bytes_before: 0,
        }
    }

    /// Whether to write a filter that answers for keys that are not there; for unique indexes.
    pub fn with_filter(mut self, with_filter: bool) -> Self {
        self.with_filter = with_filter;
        self
    }

    /// How many bytes at the end of every key blocks keep apart, 0 to 8 (rule X43).
    pub fn with_suffix(mut self, bytes: usize) -> Self {
        invariant!(bytes <= 8, "X43: a suffix has at most 8 bytes");
        self.block.suffix_bytes = bytes;
        self
    }

    /// Ends pieces at another size than [`PIECE_BYTES_MAX`].
    pub fn with_piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes_max = bytes;
        self
    }

    /// Ends blocks at another number of decoded bytes, at most the usual one.
    pub fn with_block_bytes(mut self, bytes: usize) -> Self {
        self.block.full_at = bytes.min(BLOCK_BYTES);
        self
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes written so far; a block counts once it is full.
    pub fn stored_bytes(&self) -> u64 {
        self.bytes_before
            + match &self.target {
                Target::Section(writer) if self.is_section_open => writer.section_bytes(),
                Target::Files {
                    open: Some(writer), ..
                } => writer.section_bytes(),
                _ => 0,
            }
    }

    /// Adds an entry that lies right of all before.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for keys beyond [`KEY_BYTES_MAX`]; `Corrupt` for one without room for its suffix (rule X43), and if the entry
    /// does not lie right of the one before (rule X1): what a damaged run gives to a merge. Those of writing.
    pub fn push(
        &mut self,
        key: &[u8],
        row: RowId,
        lsn: Lsn,
        sign: Sign,
        txn: TxnId,
        unpack: &[u8],
    ) -> Result<()> {
        let longest = key.len().max(unpack.len());
        if longest > KEY_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "the key of an index entry",
                bytes: longest as u64,
                limit: KEY_BYTES_MAX as u64,
            });
        }
        if key.len() < self.block.suffix_bytes {
            let expected = format!("keys of at least {} bytes", self.block.suffix_bytes);
            return Err(self.damage(expected, format!("one of {}", key.len())));
        }
        let stamped = self.tag.is_none();
        let item = Item {
            key,
            row,
            lsn: if stamped { lsn } else { Lsn::new(0) },
            sign,
            txn: if stamped { txn } else { TxnId::new(0) },
            unpack,
        };
        self.check_order(&item)?;
        if self.block.is_full() {
            self.end_full_block(&item)?;
        }
        if self.with_filter {
            self.filter.add(key);
        }
        self.note_stamp(&item);
        self.entries += 1;
        self.block.push(&item);
        Ok(())
    }

    fn check_order(&self, item: &Item<'_>) -> Result<()> {
        let order = match &self.last {
            Some((key, event)) if self.block.len() == 0 => {
                let new = (item.row, item.lsn, item.sign);
                key.as_slice().cmp(item.key).then_with(|| event.cmp(&new))
            }
            _ => self.block.last_against(item),
        };
        if order.is_lt() {
            return Ok(());
        }
        let found = format!("row {} behind a key of a later place", item.row);
        Err(self.damage("entries in order, each once".into(), found))
    }

    /// What comes to this run is not what another one may have.
    #[cold]
    fn damage(&self, expected: String, found: String) -> Error {
        Error::Corrupt {
            file: format!("a run of index {}", self.index),
            offset: 0,
            expected,
            found,
        }
    }

    fn note_stamp(&mut self, item: &Item<'_>) {
        self.stamps.greatest_lsn = self.stamps.greatest_lsn.max(item.lsn);
        if item.txn != TxnId::new(0) {
            let (least, greatest) = self.stamps.txns.unwrap_or((item.txn, item.txn));
            self.stamps.txns = Some((least.min(item.txn), greatest.max(item.txn)));
        }
    }

    /// Ends a block that is full, and its piece if that is full too and `next` is about another key or row (X32).
    fn end_full_block(&mut self, next: &Item<'_>) -> Result<()> {
        self.end_block()?;
        let is_piece_full = self.stored_bytes() - self.bytes_before >= self.piece_bytes_max;
        let is_same_pair = self
            .last
            .as_ref()
            .is_some_and(|(key, event)| key == next.key && event.0 == next.row);
        if is_piece_full && !is_same_pair && matches!(self.target, Target::Files { .. }) {
            self.end_piece()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.len() == 0 {
            return Ok(());
        }
        let first_key = self.block.first_key().to_vec();
        let entries = self.block.len() as u32;
        self.last = Some(self.block.last());
        self.encoded.clear();
        self.block.encode(self.level, &mut self.encoded);
        self.filter.end_block();
        let owner = u64::from(self.index.raw());
        let begin = !std::mem::replace(&mut self.is_section_open, true);
        let writer: &mut PieceWriter = match &mut self.target {
            Target::Section(writer) => writer,
            Target::Files { store, open, .. } => match open {
                Some(writer) => writer,
                None => open.insert(Box::new(PieceWriter::create(store, SegmentClass::Meta)?)),
            },
        };
        if begin {
            writer.begin_section(owner, SECTION_INDEX_RUN);
        }
        writer.push_block(&first_key, entries, &self.encoded, Codec::Plain)
    }

    /// Ends the open section, if there is one.
    fn end_section(&mut self) -> Option<u32> {
        if !std::mem::take(&mut self.is_section_open) {
            return None;
        }
        let extra = self.extra();
        let last_key = self.last.as_ref().map_or(&[][..], |(key, _)| key);
        match &mut self.target {
            Target::Section(writer) => Some(writer.end_section(last_key, &extra)),
            Target::Files { open, .. } => open.as_mut().map(|writer| writer.end_section(last_key, &extra)),
        }
    }

    fn end_piece(&mut self) -> Result<()> {
        self.end_block()?;
        self.bytes_before = self.stored_bytes();
        if self.end_section().is_none() {
            return Ok(());
        }
        if let Target::Files { open, finished, .. } = &mut self.target
            && let Some(writer) = open.take()
        {
            finished.push(writer.finish()?);
        }
        Ok(())
    }

    /// What a piece says of itself, and begins anew for the next one.
    fn extra(&mut self) -> Vec<u8> {
        let Stamps { txns, greatest_lsn } = std::mem::take(&mut self.stamps);
        let filter = std::mem::take(&mut self.filter);
        let mut flags = 0;
        for (flag, is_set) in [
            (EXTRA_TAG, self.tag.is_some()),
            (EXTRA_STAMPS, txns.is_some()),
            (EXTRA_FILTER, self.with_filter),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let mut out = vec![flags];
        put_varint(&mut out, greatest_lsn.raw());
        if let Some((txn, lsn)) = self.tag {
            put_varint(&mut out, txn.raw());
            put_varint(&mut out, lsn.raw());
        }
        if let Some((least, greatest)) = txns {
            put_varint(&mut out, least.raw());
            put_varint(&mut out, greatest.raw());
        }
        if self.with_filter {
            filter.finish(&mut out);
        }
        out
    }
}

impl Drop for RunBuilder<'_> {
    fn drop(&mut self) {
        if let Target::Files { store, finished, .. } = &self.target {
            for &id in finished {
                // Nothing names it. If it cannot go now, the next opening removes it as an orphan.
                let _ = store.remove_piece(SegmentClass::Meta, id);
            }
        }
    }
}

impl std::fmt::Debug for RunBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunBuilder")
            .field("index", &self.index)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}
