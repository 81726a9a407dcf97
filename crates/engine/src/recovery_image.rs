//! Image recovery: makes tables of the newest checkpoint's image, and opens the pieces that image and log name.
//!
//! Why it exists: everything below the image's LSN comes from here; the log below it may be gone.
//! Rules: D20 what the tail says wins. D22 each piece file is opened once, and is there: a missing one is damage. D39 one of
//! index entries that is there and damaged is stood in for. D23 a run
//! that a load named in the tail is added unless the image has it already; its row ids are in no other run, so it goes to
//! the bottom. D36 what an item says is believed only if it can be: it has its place, nobody else says it, and it agrees with
//! manifest, log and piece files. D24 files that nobody names go, after the tail was read and made durable.
//! Latches and I/O: no other thread uses the database yet.
//! After a crash during recovery: it starts again; a removed orphan is named by nothing.

use crate::blob_reclaim::BlobAccounts;
use crate::catalog::Catalog;
use crate::counts::check_delta;
use crate::definition::TableDef;
use crate::error::{Error, Result};
use crate::fates::Fates;
use crate::image::{ImageHead, ImageItem, ImageReader, PreparedImage, RunImage, TableHead, damage};
use crate::image_words::decode_words;
use crate::key_sample::KeySample;
use crate::opening_progress::OpeningProgress;
use crate::recovery::FoundLoad;
use crate::row_shape::{RowPiece, RowRun, RowShape};
use crate::row_writer::SECTION_ROWS;
use crate::table::{Index, Table};
use pbxt_base::limits::XID_BYTES_MAX;
use pbxt_base::{CommitTs, Error as StorageError, IndexId, Lsn, RowId, SegmentId, TableId, TxnId, planted};
use pbxt_index::{IndexParts, Run, RunPiece};
use pbxt_rowmap::ROW_MAX;
use pbxt_segment::{Checkpoint, DamagedPiece, MaybePiece, PieceFile, SegmentClass, SegmentStore};
use pbxt_txn::{EndedAs, Stamp, TxnTableImage};
use std::collections::{BTreeSet, HashMap, HashSet};
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
    pub facts: ImageFacts,
    /// What is known of large values.
    pub blobs: BlobAccounts,
    head: ImageHead,
    reader: ImageReader,
    /// The first table, which ended the list of transactions.
    first: Option<Box<TableHead>>,
}

/// What the log behind the image says on top of it.
pub(crate) struct Tail<'a> {
    /// Tables of which nothing is loaded.
    pub dropped: &'a BTreeSet<TableId>,
    /// Rows added.
    pub rows: &'a HashMap<TableId, i64>,
    /// Marks of automatic values.
    pub marks: &'a HashMap<TableId, u64>,
    /// The log ends here.
    pub end: Lsn,
    /// Beyond this it has had no tail, which is what a load takes for its stamp (rule L11).
    pub tail_max: Lsn,
}

/// Tables as they are read.
struct Loading<'a> {
    catalog: &'a Catalog,
    pieces: &'a mut Pieces,
    tail: Tail<'a>,
    head: ImageHead,
    /// Of all tables so far, the dropped ones too.
    tables: HashSet<TableId>,
    names: HashSet<String>,
    indexes: HashSet<IndexId>,
    open: Option<Open>,
}

/// A table whose items are being read.
struct Open {
    table: Table,
    row_runs: Vec<Arc<RowRun>>,
    gone: Vec<u8>,
    index: Option<OpenIndex>,
    /// Indexes that have had their item.
    seen: HashSet<IndexId>,
}

struct OpenIndex {
    id: IndexId,
    runs: Vec<Arc<Run>>,
    has_sample: bool,
}

impl OpenImage {
    /// Reads up to the first table.
    pub(crate) fn open(store: &SegmentStore, checkpoint: Checkpoint) -> Result<Self> {
        let mut reader = ImageReader::open(store, checkpoint.image)?;
        let Some(ImageItem::Head(head)) = reader.next_item()? else {
            return Err(reader.in_item(damage("the head of an image", "another item")));
        };
        let blobs = check_head(&head, checkpoint)
            .and_then(|()| BlobAccounts::decode(&head.blobs))
            .map_err(|error| reader.in_item(error))?;
        let (mut prepared, mut txns) = (Vec::new(), Vec::new());
        let first = loop {
            let taken = match reader.next_item()? {
                Some(ImageItem::Txns(part)) => {
                    txns.extend_from_slice(part);
                    Ok(())
                }
                Some(ImageItem::Prepared(found)) => add_prepared(found, &mut prepared),
                Some(ImageItem::Table(table)) => break Some(table),
                None => break None,
                Some(_) => Err(damage("a table before its parts", "another item")),
            };
            taken.map_err(|error| reader.in_item(error))?;
        };
        let txns = TxnTableImage::decode(&txns, reader.name(), 0)?;
        check_prepared(&txns, &prepared).map_err(|error| reader.in_item(error))?;
        Ok(Self {
            facts: ImageFacts { txns, prepared },
            blobs,
            head,
            reader,
            first,
        })
    }

    /// Reads all tables but the dropped ones into `catalog`; what is known of large values.
    pub(crate) fn load(
        mut self,
        catalog: &Catalog,
        pieces: &mut Pieces,
        tail: Tail<'_>,
        progress: &OpeningProgress,
    ) -> Result<BlobAccounts> {
        catalog.note_last_ids(self.head.last_table, self.head.last_index);
        let mut loading = Loading {
            catalog,
            pieces,
            tail,
            head: self.head,
            tables: HashSet::new(),
            names: HashSet::new(),
            indexes: HashSet::new(),
            open: None,
        };
        if let Some(first) = self.first.take() {
            let taken = loading.take(ImageItem::Table(first));
            taken.map_err(|error| self.reader.in_item(error))?;
        }
        while let Some(item) = self.reader.next_item()? {
            let taken = loading.take(item);
            taken.map_err(|error| self.reader.in_item(error))?;
            progress.tell(|| format!("the checkpoint is read, tables so far: {}", loading.tables.len()));
        }
        loading.end_table().map_err(|error| self.reader.in_item(error))?;
        Ok(self.blobs)
    }
}

/// The manifest names the image, and both say what it is the image of.
fn check_head(head: &ImageHead, checkpoint: Checkpoint) -> Result<()> {
    if (head.start, head.log_start) == (checkpoint.start, checkpoint.log_start) {
        return Ok(());
    }
    let of =
        |start: Lsn, log_start: Lsn| format!("an image of LSN {start} and a log from LSN {log_start} on");
    Err(damage(
        of(checkpoint.start, checkpoint.log_start),
        of(head.start, head.log_start),
    ))
}

fn add_prepared(found: PreparedImage, prepared: &mut Vec<PreparedImage>) -> Result<()> {
    let is_same = |other: &PreparedImage| other.txn == found.txn || other.xid == found.xid;
    if found.xid.len() > XID_BYTES_MAX || prepared.iter().any(is_same) {
        return Err(damage(
            "a transaction and a transaction id that no other has",
            format!(
                "transaction {} with an id of {} bytes",
                found.txn,
                found.xid.len()
            ),
        ));
    }
    if found.rows_written > ROW_MAX {
        let expected = format!("at most {ROW_MAX} rows written");
        return Err(damage(expected, found.rows_written.to_string()));
    }
    found.deltas.iter().copied().try_for_each(check_delta)?;
    prepared.push(found);
    Ok(())
}

/// Rule D19: who has voted is in the list of transactions.
fn check_prepared(txns: &TxnTableImage, prepared: &[PreparedImage]) -> Result<()> {
    let listed = txns
        .exceptions
        .iter()
        .filter(|txn| txn.ended == EndedAs::Prepared);
    let listed: HashSet<TxnId> = listed.map(|txn| txn.id).collect();
    match prepared.iter().find(|found| !listed.contains(&found.txn)) {
        None => Ok(()),
        Some(found) => Err(damage(
            format!("transaction {} among the transactions, as prepared", found.txn),
            "it is not, in an item before this one",
        )),
    }
}

impl Loading<'_> {
    fn take(&mut self, item: ImageItem<'_>) -> Result<()> {
        let (log, tail_max) = (self.head.log_start..self.tail.end, self.tail.tail_max);
        match (item, &mut self.open) {
            (ImageItem::Table(head), _) => {
                self.end_table()?;
                self.begin_table(*head)?;
            }
            (ImageItem::Head(_) | ImageItem::Txns(_) | ImageItem::Prepared(_), _) => {
                return Err(damage("a table or a part of one", "another item"));
            }
            // Of a table that the tail has dropped.
            (_, None) => {}
            (ImageItem::Words(part), Some(open)) => {
                decode_words(part, &log, |row, word| open.table.map.store_recovered(row, word))?;
            }
            (ImageItem::Gone(part), Some(open)) => open.gone.extend_from_slice(part),
            (ImageItem::RowRun(run), Some(open)) => {
                check_stamp(run.stamp, tail_max)?;
                open.row_runs.push(self.pieces.row_run(open.table.id, &run)?);
            }
            (ImageItem::Index(id), Some(open)) => open.begin_index(id)?,
            (ImageItem::Sample(sample), Some(open)) => open.add_sample(sample)?,
            (ImageItem::IndexRun(run), Some(open)) => {
                check_stamp(run.stamp, tail_max)?;
                open.add_index_run(&run, self.pieces)?;
            }
        }
        Ok(())
    }

    fn begin_table(&mut self, head: TableHead) -> Result<()> {
        self.check_ids(&head.def)?;
        let id = head.def.id;
        if self.tail.dropped.contains(&id) {
            return Ok(());
        }
        if head.high_mark > ROW_MAX {
            let expected = format!("a greatest row id up to {ROW_MAX}");
            return Err(damage(expected, head.high_mark.to_string()));
        }
        // It may be the row id that is wrong, and then rows would be overwritten.
        if u64::try_from(head.rows).is_ok_and(|rows| rows > head.high_mark) {
            let expected = format!("at most {} rows, the greatest row id", head.high_mark);
            return Err(damage(expected, head.rows.to_string()));
        }
        let added = self.tail.rows.get(&id).copied().unwrap_or(0);
        let rows = if planted!("recovery.count_below_none") {
            -1
        } else {
            head.rows.saturating_add(added)
        };
        let next = self.tail.marks.get(&id).copied();
        let next = next.unwrap_or(head.next_auto_increment);
        self.open = Some(Open::begin(head, next, rows));
        Ok(())
    }

    /// Rules K1 and K3, for who believes them later.
    fn check_ids(&mut self, def: &TableDef) -> Result<()> {
        let name = || format!("table {}, '{}'", def.id, def.name);
        if def.id.raw() == 0 || def.id.raw() > self.head.last_table {
            return Err(damage(
                format!("a table of a number from 1 to {}", self.head.last_table),
                name(),
            ));
        }
        if def.temporary || !self.tables.insert(def.id) || !self.names.insert(def.name.clone()) {
            return Err(damage(
                "a lasting table whose number and name no other has",
                format!("{}, temporary: {}", name(), def.temporary),
            ));
        }
        for index in &def.indexes {
            let number = index.id.raw();
            if number == 0 || number > self.head.last_index || !self.indexes.insert(index.id) {
                return Err(damage(
                    format!(
                        "an index of a number from 1 to {} that no other has",
                        self.head.last_index
                    ),
                    format!("index {number} of {}", name()),
                ));
            }
            index.spec.check(&def.schema)?;
        }
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            self.catalog.put(open.finish()?);
        }
        Ok(())
    }
}

/// A run's stamp is of something that is in the log or was, or the tail of the log at a moment (rule L11).
fn check_stamp(stamp: Stamp, tail_max: Lsn) -> Result<()> {
    if stamp.lsn <= tail_max && stamp.txn.raw() < TxnTableImage::NUMBERS_END {
        return Ok(());
    }
    Err(damage(
        format!("a run of a transaction that wrote it up to LSN {tail_max}"),
        format!("transaction {}, LSN {}", stamp.txn, stamp.lsn),
    ))
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
            seen: HashSet::new(),
        }
    }

    fn begin_index(&mut self, id: IndexId) -> Result<()> {
        self.end_index();
        if self.table.index_by_id(id).is_none() || !self.seen.insert(id) {
            let name = self.table.name();
            return Err(damage(
                format!("an index of table '{name}' that was not read yet"),
                format!("index {id}"),
            ));
        }
        self.index = Some(OpenIndex {
            id,
            runs: Vec::new(),
            has_sample: false,
        });
        Ok(())
    }

    fn end_index(&mut self) {
        if let Some(OpenIndex { id, runs, .. }) = self.index.take()
            && let Some(index) = self.table.index_by_id(id)
        {
            install_runs(index, runs);
        }
    }

    fn add_sample(&mut self, sample: KeySample) -> Result<()> {
        let Some(open) = self.index.as_mut().filter(|open| !open.has_sample) else {
            return Err(damage("one sample behind an index", "another one, or no index"));
        };
        open.has_sample = true;
        match self.table.index_by_id(open.id) {
            Some(index) => index.restore_sample(&self.table.name(), sample),
            None => Ok(()),
        }
    }

    fn add_index_run(&mut self, run: &RunImage, pieces: &mut Pieces) -> Result<()> {
        let Some(open) = &mut self.index else {
            return Err(damage("an index before its runs", "none"));
        };
        let tag = (run.stamp.txn.raw() != 0).then_some((run.stamp.txn, run.stamp.lsn));
        open.runs.push(pieces.index_run(open.id, tag, &run.pieces)?);
        Ok(())
    }

    fn finish(mut self) -> Result<Arc<Table>> {
        self.end_index();
        let missing = self
            .table
            .indexes
            .iter()
            .find(|index| !self.seen.contains(&index.def.id));
        if let Some(index) = missing {
            let name = self.table.name();
            return Err(damage(
                format!("index {} of table '{name}' before this item", index.def.id),
                "none",
            ));
        }
        self.table.base.install(RowShape { runs: self.row_runs });
        if !self.gone.is_empty() {
            self.table.gone.restore(&self.gone).map_err(|source| {
                let name = self.table.name();
                damage(
                    format!("the deleted rows of table '{name}' before this item to be sound"),
                    source.to_string(),
                )
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

/// The stamp of a run. A checkpoint may have taken that of a load's record for it, when none of its files could be read; now they can.
fn tag_of(named: Option<(TxnId, Lsn)>, sound: &[Option<Arc<RunPiece>>]) -> Option<(TxnId, Lsn)> {
    let own = sound.iter().flatten().next().and_then(|piece| piece.tag());
    match (named, own) {
        (Some((txn, lsn)), Some(own)) if own.0 == txn && own.1 < lsn => Some(own),
        _ => named,
    }
}

/// Piece files that image and tail name, each opened once (rule D22).
pub(crate) struct Pieces {
    store: Arc<SegmentStore>,
    /// Transactions whose stamps the image's runs have.
    pub stamps: BTreeSet<TxnId>,
    files: HashMap<(SegmentClass, SegmentId), Arc<PieceFile>>,
    /// Files of index entries that are there and damaged.
    damaged: HashMap<SegmentId, DamagedPiece>,
    /// Indexes with entries in those (rule D39), each once a file.
    aside: BTreeSet<(IndexId, SegmentId)>,
    /// Sections that runs have.
    taken: HashSet<(SegmentClass, SegmentId, u32)>,
}

impl Pieces {
    pub(crate) fn new(store: &Arc<SegmentStore>) -> Self {
        Self {
            store: Arc::clone(store),
            stamps: BTreeSet::new(),
            files: HashMap::new(),
            damaged: HashMap::new(),
            aside: BTreeSet::new(),
            taken: HashSet::new(),
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

    /// A file of index entries; none if it is damaged (rule D39).
    fn index_file(&mut self, id: SegmentId) -> Result<Option<Arc<PieceFile>>> {
        let class = SegmentClass::Meta;
        if let Some(file) = self.files.get(&(class, id)) {
            return Ok(Some(Arc::clone(file)));
        }
        if self.damaged.contains_key(&id) {
            return Ok(None);
        }
        let found = PieceFile::open_if_sound(&self.store, class, id)?;
        self.store.bump_next_piece_id(class, id);
        Ok(match found {
            MaybePiece::Sound(file) => {
                self.files.insert((class, id), Arc::clone(&file));
                Some(file)
            }
            MaybePiece::Damaged(damaged) => {
                self.damaged.insert(id, damaged);
                None
            }
        })
    }

    /// A section for the next piece of a run; no other run has that.
    fn take(&mut self, class: SegmentClass, id: SegmentId, section: u32) -> Result<()> {
        if self.taken.insert((class, id, section)) {
            return Ok(());
        }
        Err(damage(
            "a piece that no other run has",
            format!("section {section} of '{}'", self.store.name(class, id)),
        ))
    }

    fn row_run(&mut self, table: TableId, run: &RunImage) -> Result<Arc<RowRun>> {
        self.stamps.insert(run.stamp.txn);
        let mut pieces: Vec<Arc<RowPiece>> = Vec::with_capacity(run.pieces.len());
        for &(id, section) in &run.pieces {
            let file = self.file(SegmentClass::Cold, id)?;
            self.take(SegmentClass::Cold, id, section)?;
            let piece = RowPiece::open(file, section)?;
            let found = piece.section();
            let is_next = pieces.last().is_none_or(|before| before.last < piece.first);
            if (found.kind, found.owner) != (SECTION_ROWS, u64::from(table.raw())) || !is_next {
                return Err(damage(
                    format!("the next piece of a run of rows of table {table}"),
                    format!(
                        "section {section} of '{}': kind {}, owner {}, rows {} to {}",
                        piece.file.name(),
                        found.kind,
                        found.owner,
                        piece.first,
                        piece.last
                    ),
                ));
            }
            pieces.push(Arc::new(piece));
        }
        Ok(Arc::new(RowRun::new(run.stamp, pieces)))
    }

    fn index_run(
        &mut self,
        index: IndexId,
        tag: Option<(TxnId, Lsn)>,
        references: &[(SegmentId, u32)],
    ) -> Result<Arc<Run>> {
        self.stamps.extend(tag.map(|(txn, _)| txn));
        let mut sound = Vec::with_capacity(references.len());
        for &(id, section) in references {
            let file = self.index_file(id)?;
            self.take(SegmentClass::Meta, id, section)?;
            sound.push(file.map(|file| RunPiece::open(file, section)).transpose()?);
        }
        let tag = tag_of(tag, &sound);
        let mut pieces: Vec<Arc<RunPiece>> = Vec::with_capacity(references.len());
        for (at, &(id, section)) in references.iter().enumerate() {
            if let Some(piece) = sound.get(at).and_then(Option::as_ref) {
                pieces.push(Arc::clone(piece));
            } else if let Some(damaged) = self.damaged.get(&id) {
                let first = pieces.last().map_or(&[][..], |before| before.last_key());
                let last = sound[at..].iter().flatten().next().map(|next| next.first_key());
                pieces.push(RunPiece::stand_in(damaged, section, (index, tag), first, last)?);
                self.aside.insert((index, id));
            }
        }
        Ok(Arc::new(Run::new(index, tag, pieces)?))
    }

    /// Indexes that were set aside, and the damage of the file.
    pub(crate) fn set_aside(&self) -> impl Iterator<Item = (IndexId, StorageError)> {
        let found = self.aside.iter();
        found.filter_map(|(index, id)| Some((*index, self.damaged.get(id)?.damage())))
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
                let added = self.add_load(&table, load);
                added.map_err(|error| in_log(&self.store, error, load.lsn))?;
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
            let run = RunImage {
                stamp,
                pieces: references,
            };
            runs.push(self.row_run(table.id, &run)?);
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
        if references.is_empty() {
            return Ok(());
        }
        let tag = self.tag_of_load(load, &references)?;
        // Which run is older decides nothing (X34); the last one is what the others are merged into, and this one must wait (D23).
        let mut runs = vec![self.index_run(load.index, tag, &references)?];
        runs.extend(parts.runs.iter().cloned());
        install_runs(index, runs);
        Ok(())
    }

    /// The stamp of a load's entries, which their files know. If none of them can be read, it is that of the record, which is not older.
    fn tag_of_load(
        &mut self,
        load: &FoundLoad,
        references: &[(SegmentId, u32)],
    ) -> Result<Option<(TxnId, Lsn)>> {
        for &(id, section) in references {
            if let Some(file) = self.index_file(id)? {
                return Ok(RunPiece::open(file, section)?.tag());
            }
        }
        Ok((!load.is_build()).then_some((load.txn, load.lsn)))
    }

    /// Removes the piece files that neither image nor tail name, and segments of values that were never begun (rule D24). Only once all that
    /// was read of the tail is durable: a DROP that a power cut takes back would miss them.
    pub(crate) fn remove_orphans(&self) -> Result<()> {
        let image = self.store.checkpoint().map(|checkpoint| checkpoint.image);
        for class in [SegmentClass::Cold, SegmentClass::Meta] {
            let is_named = |id| {
                let is_meta = class == SegmentClass::Meta;
                let is_damaged = is_meta && self.damaged.contains_key(&id);
                self.files.contains_key(&(class, id)) || is_damaged || is_meta && image == Some(id)
            };
            self.store.remove_orphans(class, &is_named)?;
        }
        let of_values = self.store.begun(SegmentClass::Blob);
        self.store
            .remove_orphans(SegmentClass::Blob, &|id| of_values.contains(&id))?;
        Ok(())
    }
}

/// An error about what this record of the log says, unless it names another file.
pub(crate) fn in_log(store: &SegmentStore, error: Error, record: Lsn) -> Error {
    match error {
        Error::Storage(StorageError::Corrupt {
            file,
            expected,
            found,
            ..
        }) if file.is_empty() => Error::Storage(StorageError::Corrupt {
            file: store.location(),
            offset: record.raw(),
            expected,
            found,
        }),
        other => other,
    }
}
