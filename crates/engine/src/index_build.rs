//! Index build: new indexes over the rows that a table has, made beside its readers, for an ALTER to make them part of it.
//!
//! Why it exists: a table that gets an index need not be copied for it; all that is written is the index.
//! State: opened (a snapshot of which no change is missing) -> run (entries of all rows, sorted, one durable run an index) -> as often as
//! may be caught up with writers (index_catch_up) -> part of the table by `alter_tables_with`; dropped at any time, with its files.
//! Rules: AL17 to AL31 (docs/alter.md). L2, L4, B6, D18.
//! Latches and I/O: none held between the snapshot and the ALTER; reads rows, writes piece files.
//! After a crash: without the ALTER's END nothing names the files; they are removed at open.

#[path = "index_catch_up.rs"]
mod catch_up;

use crate::alter::Alteration;
use crate::bulk::{Share, duplicate, least_chunk};
use crate::bulk_chunk::KeyArena;
use crate::bulk_files::{Held, LoadFiles};
use crate::bulk_ingest::{piece_of, pieces_of_a_record};
use crate::bulk_keys::{KeySorter, Pulse, Unbuilt};
use crate::bulk_spill::Source;
use crate::cursor::{Bind, Cursor};
use crate::database::Database;
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::host::StoredRecords;
use crate::index_keys::RowKeys;
use crate::session::{Isolation, Session, SessionConfig};
use crate::table::Table;
use crate::touched::Watch;
use catch_up::ROUNDS_MAX;
use pbxt_base::{CommitTs, IndexId, Lsn, RowId, TxnId, planted, stop_point};
use pbxt_index::Run;
use pbxt_segment::SegmentClass;
use pbxt_txlog::{IngestPiece, IngestRecord, Space};
use std::sync::Arc;

/// Rows between two reports of progress and looks at the kill flag.
const PULSE_ROWS: u64 = 4096;

/// See the module.
pub struct IndexBuild {
    db: Arc<Database>,
    table: Arc<Table>,
    /// The table with its new indexes, which nobody else has.
    next: Arc<Table>,
    /// Positions of the new indexes.
    numbers: Vec<usize>,
    /// Rows written since the snapshot (rule AL28).
    watch: Watch,
    /// Has the snapshot that the indexes stand at.
    reader: Session,
    answers_from: CommitTs,
    /// The cut of gone rows when the first snapshot was taken (rule X36).
    cut: u64,
    /// What the first snapshot saw, a run for each index.
    runs: Vec<Arc<Run>>,
    /// What changed since, for each index, the oldest first.
    changes: Vec<Vec<Arc<Run>>>,
    rounds: u64,
    /// Of these, until it had been run.
    rounds_before: u64,
    /// A round was not finished: the rows that were noted for it are forgotten.
    is_broken: bool,
    /// Records of the log that name them.
    named_at: Vec<Lsn>,
    files: LoadFiles,
    held: Option<Held>,
    /// A row with a key of this new index that another row has.
    refused: Option<(usize, RowId)>,
    /// Has the values of the refused row.
    shown: Option<StoredRecords>,
}

impl std::fmt::Debug for IndexBuild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexBuild")
            .field("table", &self.table.name())
            .field("indexes", &self.numbers)
            .finish_non_exhaustive()
    }
}

/// Tells how much of `total` is done; an error once the session's statement is killed.
fn pulse_of<'p>(
    reader: &Session,
    total: u64,
    progress: &'p mut dyn FnMut(u64, u64),
) -> impl FnMut(u64) -> Result<()> + use<'p> {
    let (db, gate) = (Arc::clone(&reader.db), Arc::clone(reader.gate()));
    let mut done = 0;
    move |more| {
        done += more;
        progress(done.min(total), total);
        if db.waits.host_killed(&gate) {
            return Err(Error::Killed);
        }
        Ok(())
    }
}

/// Keys of rows that are not sorted yet, one arena for each index.
struct KeyChunk {
    arenas: Vec<KeyArena>,
    /// The first row; the others are numbered from it.
    base: RowId,
}

impl KeyChunk {
    fn new(indexes: usize) -> Self {
        Self {
            arenas: std::iter::repeat_with(KeyArena::default).take(indexes).collect(),
            base: RowId::new(0),
        }
    }

    fn bytes(&self) -> usize {
        self.arenas.iter().map(KeyArena::bytes).sum()
    }

    /// The number of a row that comes behind those it has; none if it is too far from the first one.
    fn number_of(&mut self, row: RowId) -> Option<u32> {
        if self.bytes() == 0 {
            self.base = row;
        }
        u32::try_from(row.raw() - self.base.raw()).ok()
    }

    fn spill(&mut self, sorter: &mut KeySorter, pulse: Pulse<'_>) -> Result<()> {
        sorter.spill(&self.arenas, None, self.base, pulse)?;
        self.arenas.iter_mut().for_each(KeyArena::clear);
        Ok(())
    }
}

impl Database {
    /// Begins to build the indexes that `change` adds, for a table of this definition: waits until nobody changes the table, up to the
    /// session's limit, and takes a snapshot.
    ///
    /// # Errors
    /// `NeedsCopy` says why it cannot be done this way; `LockTimeout`, `Killed`.
    pub fn open_index_build(
        self: &Arc<Self>,
        session: Option<&Session>,
        def: TableDef,
        change: &Alteration,
    ) -> Result<IndexBuild> {
        let table = self.catalog.find(&def.name)?;
        self.refuse_own_changes(session, &table)?;
        let locked = self.lock_for_ddl(session, &table)?;
        let new_id = |_: &IndexDef, _: usize| {
            let id = self.catalog.next_index_id();
            id.map_err(|error| error.to_string())
        };
        let next = change.applied(&table.def(), def, &new_id)?;
        let added = change.indexes.iter().enumerate();
        let added = added.filter(|(_, origin)| origin.is_none());
        let numbers: Vec<usize> = added.map(|(number, _)| number).collect();
        let mut reader = match session {
            Some(session) => session.for_ddl(),
            None => Session::open(self, 0, 0),
        };
        reader.configure(SessionConfig {
            isolation: Isolation::RepeatableRead,
            read_only: true,
            ..reader.config()
        });
        let build = IndexBuild {
            db: Arc::clone(self),
            watch: Watch::begin(&table),
            answers_from: reader.snapshot(),
            cut: table.sweep.cut(),
            changes: vec![Vec::new(); numbers.len()],
            rounds: 0,
            rounds_before: 0,
            is_broken: false,
            numbers,
            next: Arc::new(table.altered(next, None)),
            table,
            reader,
            runs: Vec::new(),
            named_at: Vec::new(),
            files: LoadFiles::new(self),
            held: None,
            refused: None,
            shown: None,
        };
        drop(locked);
        Ok(build)
    }
}

impl IndexBuild {
    /// Builds the indexes. `progress` is told how much is done, and of how much.
    ///
    /// # Errors
    /// `DuplicateKey` if two rows have a key that only one may have (see `show_refused`); `Killed`.
    pub fn run(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let db = Arc::clone(&self.db);
        let rows = self.table.count.latest().max(0).cast_unsigned();
        let total = rows * (1 + self.numbers.len() as u64);
        let mut pulse = pulse_of(&self.reader, total, progress);
        let share = Share::take(&db);
        let room = share.as_ref().map_or_else(least_chunk, Share::chunk_bytes);
        let mut sorter = KeySorter::new(&db, self.numbers.len());
        let last = self.collect(&mut sorter, room, &mut pulse)?;
        self.build_runs(&sorter, &last, &mut pulse)?;
        drop(pulse);
        stop_point!("build.after_files");
        while self.rounds < ROUNDS_MAX && self.catch_up_if_many(progress)? {}
        self.rounds_before = self.rounds;
        Ok(())
    }

    /// Makes the keys of all rows and spills them; what is left is the last chunk.
    fn collect(&mut self, sorter: &mut KeySorter, room: usize, pulse: Pulse<'_>) -> Result<KeyChunk> {
        let mut keys = RowKeys::new(&self.db, &self.next, &self.numbers)?;
        let mut chunk = KeyChunk::new(self.numbers.len());
        let mut cursor = Cursor::new(&self.table);
        cursor.bind(&mut self.reader, Bind::default())?;
        cursor.scan_start(&mut self.reader)?;
        let mut rows = 0_u64;
        while cursor.scan_next(&mut self.reader, |version| {
            let row = version.row();
            if planted!("build.row_missed") && row.raw() % 16 == 7 {
                return Ok(());
            }
            let number = if let Some(number) = chunk.number_of(row) {
                number
            } else {
                chunk.spill(sorter, &mut *pulse)?;
                chunk.number_of(row).unwrap_or_default()
            };
            keys.add(number, version.payload(), &mut chunk.arenas)
        })? {
            rows += 1;
            if rows.is_multiple_of(PULSE_ROWS) {
                pulse(PULSE_ROWS)?;
            }
            if chunk.bytes() >= room {
                chunk.spill(sorter, &mut *pulse)?;
            }
        }
        Ok(chunk)
    }

    fn build_runs(&mut self, sorter: &KeySorter, last: &KeyChunk, pulse: Pulse<'_>) -> Result<()> {
        // Rule B6: files begun from here on.
        let held = Held::begin(&self.db);
        let codec = self.table.def().compression.base();
        let mut items = Vec::new();
        for (at, &number) in self.numbers.iter().enumerate() {
            last.arenas[at].sort(None, &mut items);
            let source = Source::memory(&last.arenas[at], &items, last.base);
            let def = &self.next.indexes[number].def;
            let built = sorter.build_run(at, def, (None, codec), Some(source), &mut *pulse);
            let run = match built {
                Ok(built) => Arc::new(built.run),
                Err(Unbuilt::Twins(_, second)) => {
                    self.refused = Some((number, second));
                    return Err(duplicate(&self.next, number, second));
                }
                Err(Unbuilt::Error(error)) => return Err(error),
            };
            for piece in &run.pieces {
                self.files.add(SegmentClass::Meta, piece.reference().0);
            }
            self.runs.push(run);
        }
        self.held = Some(held);
        self.hold_files();
        Ok(())
    }

    /// Rule B6: the files of all runs.
    fn hold_files(&self) {
        let Some(held) = &self.held else { return };
        let runs = self.runs.iter().chain(self.changes.iter().flatten());
        let pieces = runs.flat_map(|run| &run.pieces);
        held.narrow_to(
            pieces
                .map(|piece| (SegmentClass::Meta, piece.reference().0))
                .collect(),
        );
    }

    /// After `DuplicateKey`: fills a record of the host's new definition with the row that is one too many; the position of the
    /// index, or none if there is no such row. What the record points to lives as long as this build.
    pub fn show_refused(&mut self, record: &mut [u8]) -> Result<Option<usize>> {
        let Some((index, row)) = self.refused else {
            return Ok(None);
        };
        let mut records = StoredRecords::open(&self.db, &self.next, &[])?;
        let mut cursor = Cursor::new(&self.table);
        cursor.bind(&mut self.reader, Bind::default())?;
        let found = cursor.fetch(&mut self.reader, row, |version| {
            records.show(version.payload(), record)
        })?;
        self.shown = Some(records);
        Ok(found.then_some(index))
    }

    /// True if it is of this table, whatever its definition is by now.
    pub(crate) fn is_of(&self, table: &Table) -> bool {
        self.table.id == table.id
    }

    /// The table with the new indexes.
    pub(crate) fn next(&self) -> &Table {
        &self.next
    }

    /// Refuses what was built for a table that has another definition by now.
    pub(crate) fn check_still_true(&self, table: &Arc<Table>) -> Result<()> {
        if !Arc::ptr_eq(&self.table, table) {
            return Err(self.table.superseded_error());
        }
        if self.runs.len() != self.numbers.len() || self.is_broken {
            let text = "an index build was begun and not run to its end, or a round of it failed";
            return Err(Error::Invalid(text.into()));
        }
        Ok(())
    }

    /// Id of the new index at this position of the definition, which has to be the one that was built.
    pub(crate) fn id_of(&self, index: &IndexDef, number: usize) -> std::result::Result<IndexId, String> {
        let built = self.next.indexes.get(number).map(|index| &index.def);
        let is_same = |built: &&IndexDef| {
            (&built.name, built.unique, &built.spec) == (&index.name, index.unique, &index.spec)
        };
        let built = built.filter(|_| self.numbers.contains(&number));
        let built = built.filter(is_same).map(|built| built.id);
        built.ok_or_else(|| format!("index '{}' is to be built, and another one was", index.name))
    }

    /// Appends the records that name the runs (rules AL21, AL31).
    pub(crate) fn log(&mut self, txn: TxnId, space: Space) -> Result<()> {
        for (at, run) in self.runs.iter().enumerate() {
            let mut named_at = self.log_run(at, 0, run, txn, space)?;
            for (number, run) in self.changes[at].iter().enumerate() {
                named_at = self.log_run(at, number as u64 + 1, run, txn, space)?;
            }
            self.named_at.push(named_at);
        }
        Ok(())
    }

    /// The records of a run; LSN of the last one. The first run of an index has one even without a piece (rule AL22: events of before
    /// count for such an index as little).
    fn log_run(&self, at: usize, number: u64, run: &Run, txn: TxnId, space: Space) -> Result<Lsn> {
        let pieces = run.pieces.iter();
        let pieces: Vec<IngestPiece> = pieces
            .map(|piece| piece_of(SegmentClass::Meta, piece.reference()))
            .collect();
        let mut parts: Vec<&[IngestPiece]> = pieces.chunks(pieces_of_a_record(&self.db)).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let mut named_at = Lsn::new(0);
        for pieces in parts {
            let record = IngestRecord {
                first: false,
                txn,
                table: self.table.id,
                index: self.next.indexes[self.numbers[at]].def.id,
                pieces,
                first_row: number,
                last_row: 0,
                rows: run.entries(),
            };
            let mut reservation = self.db.log.reserve_patiently(record.encoded_len(), space)?;
            record.encode_into(reservation.bytes_mut());
            named_at = reservation.lsn();
            reservation.publish();
        }
        Ok(named_at)
    }

    /// The files stay: an END that names them is about to be logged. If it is not, a checkpoint finds that nothing else does.
    pub(crate) fn keep_files(&mut self) {
        self.files.keep();
    }

    /// Gives the new indexes their entries; nobody else has these indexes yet.
    pub(crate) fn install(&self) {
        let _shaping = self.table.shaping.lock();
        for (at, (&number, &named_at)) in self.numbers.iter().zip(&self.named_at).enumerate() {
            let parts = self.parts_of(at);
            // Rule X36: the rows that the first snapshot saw are none that was gone then; later ones may have gone since.
            for piece in parts.runs.iter().flat_map(|run| &run.pieces) {
                piece.swept().set(self.cut);
            }
            parts.active.swept().set(self.table.sweep.cut());
            self.next.indexes[number].install_built(parts, self.answers_from, named_at);
        }
    }
}
