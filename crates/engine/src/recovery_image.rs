//! Image recovery: makes tables of the newest checkpoint's image, and opens the pieces that image and log name.
//!
//! Why it exists: everything below the image's LSN comes from here; the log below it may be gone.
//! Rules: D20 what the tail says wins. D22 each piece file is opened once, and is there: a missing one is damage. D23 a run
//! that a load named in the tail is added unless the image has it already; its row ids are in no other run, so it goes to
//! the bottom. D24 files that nobody names go, after the tail was read and made durable.
//! Latches and I/O: no other thread uses the database yet.
//! After a crash during recovery: it starts again; a removed orphan is named by nothing.

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::fates::Fates;
use crate::image::{ImageHead, ImageItem, ImageReader, PreparedImage, RunImage, TableHead};
use crate::image_words::decode_words;
use crate::key_sample::KeySample;
use crate::recovery::FoundLoad;
use crate::row_shape::{RowPiece, RowRun, RowShape};
use crate::table::{Index, Table};
use pbxt_base::{CommitTs, Error as StorageError, IndexId, RowId, SegmentId, TableId, TxnId};
use pbxt_index::{IndexParts, Run, RunPiece};
use pbxt_segment::{PieceFile, SegmentClass, SegmentStore};
use pbxt_txn::{Stamp, TxnTableImage};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an image says about transactions.
#[derive(Debug, Default)]
pub(crate) struct ImageFacts {
    pub txns: TxnTableImage,
    pub prepared: Vec<PreparedImage>,
}

/// An image whose head and transactions have been read; its tables follow.
pub(crate) struct OpenImage {
    pub head: ImageHead,
    pub facts: ImageFacts,
    reader: ImageReader,
    /// The first table, which ended the list of transactions.
    first: Option<Box<TableHead>>,
}

/// A table whose items are being read.
struct Open {
    table: Table,
    row_runs: Vec<Arc<RowRun>>,
    gone: Vec<u8>,
    index: Option<(IndexId, Vec<Arc<Run>>)>,
}

impl OpenImage {
    /// Reads up to the first table.
    pub(crate) fn open(store: &SegmentStore, id: SegmentId) -> Result<Self> {
        let mut reader = ImageReader::open(store, id)?;
        let mut facts = ImageFacts::default();
        let (mut head, mut txns) = (None, Vec::new());
        let first = loop {
            match reader.next_item()? {
                Some(ImageItem::Head(found)) => head = Some(found),
                Some(ImageItem::Txns(part)) => txns.extend_from_slice(part),
                Some(ImageItem::Prepared(found)) => facts.prepared.push(found),
                Some(ImageItem::Table(table)) => break Some(table),
                None => break None,
                Some(_) => return Err(misplaced(&reader, "a table before its parts").into()),
            }
        };
        let Some(head) = head else {
            return Err(misplaced(&reader, "the head of an image").into());
        };
        facts.txns = TxnTableImage::decode(&txns, reader.name(), 0)?;
        Ok(Self {
            head,
            facts,
            reader,
            first,
        })
    }

    /// Reads all tables but the dropped ones into `catalog`. `rows` and `marks` are what the tail says on top.
    pub(crate) fn load(
        mut self,
        catalog: &Catalog,
        pieces: &mut Pieces,
        dropped: &BTreeSet<TableId>,
        rows: &HashMap<TableId, i64>,
        marks: &HashMap<TableId, u64>,
    ) -> Result<ImageHead> {
        catalog.note_last_ids(self.head.last_table, self.head.last_index);
        let begin = |head: TableHead| {
            let id = head.def.id;
            let next = marks.get(&id).copied().unwrap_or(head.next_auto_increment);
            let rows = head.rows + rows.get(&id).copied().unwrap_or(0);
            (!dropped.contains(&id)).then(|| Open::begin(head, next, rows))
        };
        let mut open = self.first.take().and_then(|head| begin(*head));
        while let Some(item) = self.reader.next_item()? {
            match (item, &mut open) {
                (ImageItem::Table(head), _) => {
                    if let Some(open) = open.take() {
                        catalog.put(open.finish()?);
                    }
                    open = begin(*head);
                }
                (ImageItem::Words(part), Some(open)) => {
                    decode_words(part, |row, word| open.table.map.store_recovered(row, word))?;
                }
                (ImageItem::Gone(part), Some(open)) => open.gone.extend_from_slice(part),
                (ImageItem::RowRun(run), Some(open)) => open.row_runs.push(pieces.row_run(&run)?),
                (ImageItem::Index(id), Some(open)) => open.begin_index(id)?,
                (ImageItem::Sample(sample), Some(open)) => open.add_sample(sample)?,
                (ImageItem::IndexRun(run), Some(open)) => open.add_index_run(&run, pieces)?,
                (ImageItem::Head(_) | ImageItem::Txns(_) | ImageItem::Prepared(_), _) => {
                    return Err(misplaced(&self.reader, "parts of tables").into());
                }
                (_, None) => {}
            }
        }
        if let Some(open) = open.take() {
            catalog.put(open.finish()?);
        }
        Ok(self.head)
    }
}

fn misplaced(reader: &ImageReader, expected: &str) -> StorageError {
    StorageError::Corrupt {
        file: reader.name().to_owned(),
        offset: 0,
        expected: expected.to_owned(),
        found: "another item".into(),
    }
}

impl Open {
    fn begin(head: TableHead, next_auto_increment: u64, rows: i64) -> Self {
        let table = Table::new(head.def, CommitTs::new(0), next_auto_increment, rows);
        table.data_bytes.store(head.data_bytes, Ordering::Relaxed);
        table.updated.store(head.updated, Ordering::Relaxed);
        if head.high_mark > 0 {
            table.map.bump_to(RowId::new(head.high_mark));
        }
        Self {
            table,
            row_runs: Vec::new(),
            gone: Vec::new(),
            index: None,
        }
    }

    fn begin_index(&mut self, id: IndexId) -> Result<()> {
        self.end_index()?;
        self.index = Some((id, Vec::new()));
        Ok(())
    }

    fn end_index(&mut self) -> Result<()> {
        if let Some((id, runs)) = self.index.take() {
            let index = self.table.index_by_id(id).ok_or_else(|| {
                Error::Invalid(format!(
                    "the checkpoint image names index {id} of table '{}', which its definition does not: restore the \
                     database from a backup",
                    self.table.name()
                ))
            })?;
            install_runs(index, runs);
        }
        Ok(())
    }

    fn add_sample(&self, sample: KeySample) -> Result<()> {
        let open = self.index.as_ref();
        match open.and_then(|(id, _)| self.table.index_by_id(*id)) {
            Some(index) => index.restore_sample(&self.table.name(), sample),
            None => Ok(()),
        }
    }

    fn add_index_run(&mut self, run: &RunImage, pieces: &mut Pieces) -> Result<()> {
        if let Some((id, runs)) = &mut self.index {
            let tag = (run.stamp.txn.raw() != 0).then_some((run.stamp.txn, run.stamp.lsn));
            runs.push(pieces.index_run(*id, tag, &run.pieces)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Arc<Table>> {
        self.end_index()?;
        self.table.base.install(RowShape { runs: self.row_runs });
        if !self.gone.is_empty() {
            self.table.gone.restore(&self.gone).map_err(|source| {
                Error::Invalid(format!(
                    "the deleted rows of table '{}' in the checkpoint image are damaged ({source}): restore the \
                     database from a backup",
                    self.table.name()
                ))
            })?;
        }
        Ok(Arc::new(self.table))
    }
}

/// Installs an index as recovery finds it: nobody else looks.
fn install_runs(index: &Index, runs: Vec<Arc<Run>>) {
    index.install(IndexParts {
        runs,
        ..IndexParts::new()
    });
}

/// Piece files that image and tail name, each opened once (rule D22).
pub(crate) struct Pieces {
    store: Arc<SegmentStore>,
    /// Transactions whose stamps the image's runs have.
    pub stamps: BTreeSet<TxnId>,
    files: HashMap<(SegmentClass, SegmentId), Arc<PieceFile>>,
}

impl Pieces {
    pub(crate) fn new(store: &Arc<SegmentStore>) -> Self {
        Self {
            store: Arc::clone(store),
            stamps: BTreeSet::new(),
            files: HashMap::new(),
        }
    }

    fn file(&mut self, class: SegmentClass, id: SegmentId) -> Result<Arc<PieceFile>> {
        if let Some(file) = self.files.get(&(class, id)) {
            return Ok(Arc::clone(file));
        }
        let file = PieceFile::open(&self.store, class, id)?;
        self.store.bump_next_piece_id(class, id);
        self.files.insert((class, id), Arc::clone(&file));
        Ok(file)
    }

    fn row_run(&mut self, run: &RunImage) -> Result<Arc<RowRun>> {
        self.stamps.insert(run.stamp.txn);
        let mut pieces = Vec::with_capacity(run.pieces.len());
        for &(id, section) in &run.pieces {
            let file = self.file(SegmentClass::Cold, id)?;
            pieces.push(Arc::new(RowPiece::open(file, section)?));
        }
        Ok(Arc::new(RowRun::new(run.stamp, pieces)))
    }

    fn index_run(
        &mut self,
        index: IndexId,
        tag: Option<(TxnId, pbxt_base::Lsn)>,
        references: &[(SegmentId, u32)],
    ) -> Result<Arc<Run>> {
        self.stamps.extend(tag.map(|(txn, _)| txn));
        let mut pieces = Vec::with_capacity(references.len());
        for &(id, section) in references {
            let file = self.file(SegmentClass::Meta, id)?;
            pieces.push(RunPiece::open(file, section)?);
        }
        Ok(Arc::new(Run::new(index, tag, pieces)?))
    }

    /// Adds the runs of surviving loads of the tail (rule D23).
    pub(crate) fn add_loads(&mut self, catalog: &Catalog, loads: &[FoundLoad], fates: &Fates) -> Result<()> {
        for load in loads {
            for piece in &load.pieces {
                if let Some(class) = SegmentClass::from_disk(piece.class) {
                    self.store.bump_next_piece_id(class, piece.segment);
                }
            }
            let Some(table) = catalog.by_id(load.table) else {
                continue;
            };
            if load.last_row > 0 {
                table.map.bump_to(RowId::new(load.last_row));
            }
            if fates.survives(load.txn, load.lsn) {
                self.add_load(&table, load)?;
            }
        }
        Ok(())
    }

    fn add_load(&mut self, table: &Table, load: &FoundLoad) -> Result<()> {
        let references: Vec<(SegmentId, u32)> = load
            .pieces
            .iter()
            .map(|piece| (piece.segment, piece.section))
            .collect();
        if load.index.raw() == 0 {
            let shape = table.base.shape();
            let known: Vec<_> = shape
                .runs
                .iter()
                .flat_map(|run| run.pieces.iter().map(|piece| piece.reference()))
                .collect();
            if references.iter().any(|piece| known.contains(piece)) {
                return Ok(());
            }
            let stamp = Stamp {
                txn: load.txn,
                lsn: load.lsn,
            };
            let mut runs = shape.runs.clone();
            runs.push(self.row_run(&RunImage {
                stamp,
                pieces: references,
            })?);
            table.base.install(RowShape { runs });
            return Ok(());
        }
        let Some(index) = table.index_by_id(load.index) else {
            return Ok(());
        };
        if load.is_build() {
            index.note_named(load.lsn);
        }
        let parts = index.parts();
        let pieces = parts.runs.iter().flat_map(|run| &run.pieces);
        let known: Vec<_> = pieces.map(|piece| piece.reference()).collect();
        if references.iter().any(|piece| known.contains(piece)) {
            return Ok(());
        }
        let Some(&(first, section)) = references.first() else {
            return Ok(());
        };
        let tag = RunPiece::open(self.file(SegmentClass::Meta, first)?, section)?.tag();
        // Which run is older decides nothing (X34); the last one is what the others are merged into, and this one must wait (D23).
        let mut runs = vec![self.index_run(load.index, tag, &references)?];
        runs.extend(parts.runs.iter().cloned());
        install_runs(index, runs);
        Ok(())
    }

    /// Removes the piece files that neither image nor tail name (rule D24). Only once all that was read of the tail is durable: a DROP
    /// that a power cut takes back would miss them.
    pub(crate) fn remove_orphans(&self) -> Result<()> {
        let image = self.store.checkpoint().map(|checkpoint| checkpoint.image);
        for class in [SegmentClass::Cold, SegmentClass::Meta] {
            let is_named = |id| {
                self.files.contains_key(&(class, id)) || class == SegmentClass::Meta && image == Some(id)
            };
            self.store.remove_orphans(class, &is_named)?;
        }
        Ok(())
    }
}
