//! Table: one generation of a table with the columns it has now: row map, row shape, indexes, row count, auto-increment counter.
//!
//! Why it exists: readers and writers need these together, found once per statement and then shared by pointer.
//! State: hot rows by the map and new index entries in trees, both in memory; the others by immutable runs on disk. The map
//! and the trees come back from the checkpoint image and the log's tail.
//! An ALTER that leaves the rows where they are makes another `Table` over the same `Generation` and the same entries of the indexes
//! that stay; who has the one before goes on with it, and begins nothing new.
//! Rules: T19 a snapshot older than `created_ts` must not read this generation. The name may change under a
//! running reader (RENAME): it is only for messages. B5 shapes of one table are changed under its shape latch only. AL7, AL10, AL11, FK8.
//! Latches: the name; `shaping`, held while shapes are exchanged, never across I/O.

use crate::autoinc::AutoIncrement;
use crate::counts::RowCount;
use crate::definition::{ConflictMode, IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::gone::GoneRows;
use crate::gone_sweep::Sweep;
use crate::key_hints::{HintsOfIndex, finder_of};
use crate::key_sample::KeySample;
use crate::references::References;
use crate::row_shape::{BlockSource, RowBase, Slot};
use crate::statistics::KeyStatistics;
use crate::superseded::{Former, Superseded};
use crate::touched::Watchers;
use crate::version::Found;
use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use pbxt_base::{CommitTs, IndexId, Lsn, RowId, TableId, TxnId, stop_point};
use pbxt_index::{EntryRef, IndexParts, Sign, Tree};
use pbxt_rowmap::RowMap;
use pbxt_rows::{PayloadKeyMaker, Schema, Versions};
use pbxt_txlog::RowRef;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// One index in memory.
#[derive(Debug)]
pub struct Index {
    /// Its definition.
    pub def: IndexDef,
    /// Keys can be made from the row payload alone, so row records carry no image of them.
    pub derivable: bool,
    /// Bytes at the end of every key that blocks keep apart (rule X43).
    suffix_bytes: usize,
    /// Tells whether a row has a key, if at most one row can have it (rule X58).
    finder: Option<PayloadKeyMaker>,
    entries: Arc<Entries>,
}

/// The entries of an index, whatever its table's columns are called and numbered (rule AL10).
#[derive(Debug, Default)]
struct Entries {
    /// Where they are: trees and runs.
    parts: ArcSwap<IndexParts>,
    /// Twice how often they were exchanged; odd while they are being so.
    installs: AtomicU64,
    /// Those before, as long as somebody reads them.
    superseded: Superseded,
    /// Bulk loads that published a run of this index (rule X15).
    loads: AtomicU64,
    /// Of an index that an ALTER has built, the oldest snapshot it answers for (rule AL20); 0: it answers for all.
    answers_from: AtomicU64,
    /// The same index's record in the log (rule AL23); 0 if no tail can have it.
    named_at: AtomicU64,
    /// Of its keys, for whoever opens the table.
    statistics: KeyStatistics,
    /// Which rows its keys led to.
    hints: HintsOfIndex,
}

/// What one generation has, whatever its columns are now. Shared by all its `Table`s.
#[derive(Debug)]
pub struct Generation {
    /// Generation id.
    pub id: TableId,
    /// Row id -> newest version, of rows that are hot.
    pub map: RowMap,
    /// All other rows.
    pub(crate) base: RowBase,
    /// Rows whose deletion is settled: their index entries mean nothing any more.
    pub(crate) gone: GoneRows,
    /// How rows leave `gone`.
    pub(crate) sweep: Sweep,
    /// Held by whoever exchanges `base` or the parts of an index (rule B5).
    pub(crate) shaping: Mutex<()>,
    /// Exact row counts.
    pub count: RowCount,
    /// Auto-increment counter.
    pub autoinc: AutoIncrement,
    /// Payload bytes appended and not deleted; an estimate for the optimizer.
    pub data_bytes: AtomicU64,
    /// Unix seconds of the last commit that changed the table.
    pub updated: AtomicU64,
    /// Not kept over a restart.
    pub temporary: bool,
    /// Who wants to know which rows are written (rule AL28).
    pub(crate) watchers: Watchers,
    created_ts: CommitTs,
    dropped: AtomicBool,
}

/// One table generation in memory.
#[derive(Debug)]
pub struct Table {
    generation: Arc<Generation>,
    name: RwLock<Arc<str>>,
    def: RwLock<Arc<TableDef>>,
    /// That of `def`: asked for each row that is changed, where a latch would be a line that all writers write.
    conflict_mode: AtomicU8,
    versions: Versions,
    /// Indexes in the definition's order.
    pub indexes: Vec<Index>,
    /// Of the index of which most of a key is kept apart; 0 if none has a suffix.
    longest_suffix: usize,
    /// What makes their keys of payloads of now, once it was asked for; none where the host has to.
    key_makers: OnceLock<Option<Vec<PayloadKeyMaker>>>,
    references: ArcSwap<References>,
    /// The table whose place it was made to take and has not taken yet (rule FK8). Not kept over a restart: who was about to
    /// exchange the two is gone then.
    stands_in_for: RwLock<Option<Arc<str>>>,
    /// Another `Table` has taken its place (rule AL7).
    superseded: AtomicBool,
}

impl Deref for Table {
    type Target = Generation;

    #[inline]
    fn deref(&self) -> &Generation {
        &self.generation
    }
}

impl Table {
    /// An empty generation.
    pub fn new(def: TableDef, created_ts: CommitTs, next_auto_increment: u64, rows: i64) -> Self {
        let generation = Generation {
            id: def.id,
            temporary: def.temporary,
            updated: AtomicU64::new(def.created),
            map: RowMap::new(),
            base: RowBase::default(),
            gone: GoneRows::default(),
            sweep: Sweep::default(),
            shaping: Mutex::default(),
            count: RowCount::starting_at(rows),
            autoinc: AutoIncrement::starting_at(next_auto_increment),
            data_bytes: AtomicU64::new(0),
            watchers: Watchers::default(),
            created_ts,
            dropped: AtomicBool::new(false),
        };
        Self::over(Arc::new(generation), def, |_| None)
    }

    /// The same generation with the columns and indexes of `def`; indexes that were there, and those that `built` has beside them,
    /// keep their entries (rules AL10, AL18). This one is still to be superseded.
    pub(crate) fn altered(&self, def: TableDef, built: Option<&Self>) -> Self {
        let entries = |id| {
            let index = self.index_by_id(id);
            let index = index.or_else(|| built.and_then(|built| built.index_by_id(id)));
            index.map(|index| Arc::clone(&index.entries))
        };
        let altered = Self::over(Arc::clone(&self.generation), def, entries);
        altered.stand_in_for(self.stands_in_for());
        altered
    }

    fn over(
        generation: Arc<Generation>,
        def: TableDef,
        entries: impl Fn(IndexId) -> Option<Arc<Entries>>,
    ) -> Self {
        let index = |index: &IndexDef| Index::new(index, &def.schema, entries(index.id).unwrap_or_default());
        let indexes: Vec<Index> = def.indexes.iter().map(index).collect();
        Self {
            name: RwLock::new(Arc::from(def.name.as_str())),
            longest_suffix: indexes.iter().map(Index::suffix_bytes).max().unwrap_or_default(),
            indexes,
            key_makers: OnceLock::new(),
            versions: def.versions(),
            references: ArcSwap::default(),
            stands_in_for: RwLock::default(),
            superseded: AtomicBool::new(false),
            conflict_mode: AtomicU8::new(def.conflict_mode.code()),
            def: RwLock::new(Arc::new(def)),
            generation,
        }
    }

    /// Columns now; the same for the whole life of a `Table`.
    pub fn schema(&self) -> &Schema {
        self.versions.current()
    }

    /// A key of so many bytes is long enough for every index (rule X43).
    #[inline]
    pub(crate) fn longest_suffix(&self) -> usize {
        self.longest_suffix
    }

    /// What makes the keys of all indexes, in their order, of payloads with the columns of now; none if the core cannot make all.
    pub(crate) fn key_makers(&self) -> Option<&[PayloadKeyMaker]> {
        let made = self.key_makers.get_or_init(|| {
            let makers = self.indexes.iter().map(|index| {
                let maker = index
                    .derivable
                    .then(|| PayloadKeyMaker::new(&index.def.spec, self.schema()));
                maker.and_then(std::result::Result::ok)
            });
            makers.collect()
        });
        made.as_deref()
    }

    /// Columns now and before.
    #[inline]
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// A version of the log as readers get it (rule AL8).
    #[inline]
    pub(crate) fn present<'g>(&self, record: RowRef<'g>, lsn: Lsn) -> Result<Found<'g>> {
        if record.schema_version() == self.versions.current().version() {
            return Ok(Found::Hot(record, lsn));
        }
        self.present_older(&record, lsn)
    }

    #[cold]
    fn present_older<'g>(&self, record: &RowRef<'g>, lsn: Lsn) -> Result<Found<'g>> {
        let mut payload = Vec::new();
        self.append_payload(record, &mut payload)?;
        Ok(Found::Older {
            record: *record,
            lsn,
            payload: Arc::from(payload),
            version: self.versions.current().version(),
        })
    }

    /// Appends the payload of a version of the log, with the columns of now (rule AL8).
    pub(crate) fn append_payload(&self, record: &RowRef<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.append_converted(record.schema_version(), record.payload(), out)
    }

    /// The same of a payload that was written with the columns of this version.
    pub(crate) fn append_converted(&self, version: u16, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if version > self.versions.current().version() {
            return Err(self.superseded_error());
        }
        Ok(self.versions.convert(version, payload, out)?)
    }

    /// The same without a copy where none is needed.
    pub(crate) fn payload_of<'p>(&self, record: &RowRef<'p>, scratch: &'p mut Vec<u8>) -> Result<&'p [u8]> {
        if record.is_tombstone() || record.schema_version() == self.versions.current().version() {
            return Ok(record.payload());
        }
        scratch.clear();
        self.append_payload(record, scratch)?;
        Ok(scratch)
    }

    /// What a reader or writer is told whose table has got another definition (rules AL7, AL11).
    pub(crate) fn superseded_error(&self) -> Error {
        Error::DefinitionChanged {
            table: self.name().to_string(),
            why: "it was altered meanwhile".into(),
        }
    }

    /// Lets nobody begin anything with this definition (rule AL7).
    pub(crate) fn supersede(&self) {
        self.superseded.store(true, Ordering::Release);
    }

    /// Refuses a table that is gone, or has got another definition (rule AL7).
    pub(crate) fn check_current(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::DefinitionChanged {
                table: self.name().to_string(),
                why: "it was dropped or truncated".into(),
            });
        }
        if self.superseded.load(Ordering::Acquire) {
            return Err(self.superseded_error());
        }
        Ok(())
    }

    /// What a reader is told whom an error keeps from a row: no damage if it is of a definition that has gone meanwhile (rule T19).
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.check_current() {
            Err(gone) if error.is_unreadable() => gone,
            _ => error,
        }
    }

    /// The row outside the hot log. The row's word was loaded before (rule B2).
    #[inline]
    pub(crate) fn find_base(&self, blocks: &impl BlockSource, row: RowId) -> Result<Slot> {
        stop_point!("read.before_shape");
        self.base.find(&self.versions, blocks, row)
    }

    /// Name now.
    pub fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Definition now.
    pub fn def(&self) -> Arc<TableDef> {
        self.def.read().clone()
    }

    /// True if rows and indexes of the definition are those of this one: names may differ, but for those of indexes.
    pub(crate) fn takes(&self, def: &TableDef) -> bool {
        let old = self.def();
        old.schema == def.schema && old.older == def.older && old.indexes == def.indexes
    }

    /// Takes over a changed definition of the same generation (RENAME) that `takes`.
    pub fn redefine(&self, def: TableDef) {
        *self.name.write() = Arc::from(def.name.as_str());
        self.conflict_mode
            .store(def.conflict_mode.code(), Ordering::Relaxed);
        *self.def.write() = Arc::new(def);
    }

    /// What a change of a row that somebody else changed is, by the table's option.
    #[inline]
    pub(crate) fn conflict_mode(&self) -> ConflictMode {
        ConflictMode::from_code(self.conflict_mode.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// The table whose place it is to take (rule FK8).
    pub(crate) fn stands_in_for(&self) -> Option<Arc<str>> {
        self.stands_in_for.read().clone()
    }

    /// Says whose place it is to take; none once it has taken it.
    pub(crate) fn stand_in_for(&self, replaced: Option<Arc<str>>) {
        *self.stands_in_for.write() = replaced;
    }

    /// Its constraints and those that lead to it, as they are bound now.
    pub fn references(&self) -> Arc<References> {
        self.references.load_full()
    }

    /// Exchanges the bindings; the caller counts it (rule FK23).
    pub(crate) fn bind(&self, references: References) {
        self.references.store(Arc::new(references));
    }

    /// Commit at which this generation came to be.
    pub fn created_ts(&self) -> CommitTs {
        self.created_ts
    }

    /// True once the generation was dropped or truncated away.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Notes what a commit changed, for estimates.
    pub fn note_commit(&self, bytes: i64, now: u64) {
        self.data_bytes
            .fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
        self.updated.store(now, Ordering::Relaxed);
    }

    /// Marks the generation as gone.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Index by its id.
    pub fn index_by_id(&self, id: IndexId) -> Option<&Index> {
        self.indexes.iter().find(|index| index.def.id == id)
    }

    /// Goes by what the log says an ANALYZE found (rule ST6). Indexes that are gone have nothing to go by.
    pub(crate) fn restore_samples(&self, samples: &[(IndexId, KeySample)]) -> Result<()> {
        for (id, sample) in samples {
            if let Some(index) = self.index_by_id(*id) {
                index.restore_sample(&self.name(), sample.clone())?;
            }
        }
        Ok(())
    }

    /// Bytes of its runs on disk.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let runs = |index: &Index| -> u64 { index.parts().runs.iter().map(|run| run.stored_bytes()).sum() };
        self.base.shape().stored_bytes() + self.indexes.iter().map(runs).sum::<u64>()
    }

    /// Of those, what is not in the oldest runs.
    pub(crate) fn upper_bytes(&self) -> u64 {
        let shape = self.base.shape();
        let rows = shape.runs.iter().rev().skip(1).map(|run| run.stored_bytes());
        let of_index = |index: &Index| -> u64 {
            let parts = index.parts();
            let uppers = parts.runs.iter().rev().skip(1);
            uppers.map(|run| run.stored_bytes()).sum()
        };
        rows.sum::<u64>() + self.indexes.iter().map(of_index).sum::<u64>()
    }

    /// Bytes of key hints.
    pub(crate) fn hint_bytes(&self) -> u64 {
        self.indexes
            .iter()
            .map(|index| index.hints().memory_bytes())
            .sum()
    }

    /// Bytes of index entries in memory.
    pub fn index_bytes(&self) -> u64 {
        self.indexes.iter().map(Index::memory_bytes).sum()
    }
}

impl Index {
    fn new(def: &IndexDef, schema: &Schema, entries: Arc<Entries>) -> Self {
        Self {
            def: def.clone(),
            derivable: def.spec.derivable(schema),
            suffix_bytes: def.spec.suffix_bytes(),
            finder: finder_of(def, schema),
            entries,
        }
    }

    /// Bytes of a key at least (rule X43).
    #[inline]
    pub(crate) fn suffix_bytes(&self) -> usize {
        self.suffix_bytes
    }

    /// The parts now.
    #[inline]
    pub(crate) fn parts(&self) -> Arc<IndexParts> {
        self.entries.parts.load_full()
    }

    /// Tells whether a row has a key of this index; only where a hint may be followed (rule X58).
    #[inline]
    pub(crate) fn finder(&self) -> Option<&PayloadKeyMaker> {
        self.finder.as_ref()
    }

    /// Which rows its keys led to.
    #[inline]
    pub(crate) fn hints(&self) -> &HintsOfIndex {
        &self.entries.hints
    }

    /// What is known of its keys.
    pub(crate) fn statistics(&self) -> &KeyStatistics {
        &self.entries.statistics
    }

    /// Goes by a sample that an opening found.
    pub(crate) fn restore_sample(&self, table: &str, sample: KeySample) -> Result<()> {
        let whose = format!("index '{}' of table '{table}'", self.def.name);
        let parts = self.def.spec.parts().len();
        self.entries.statistics.restore(sample, parts, &whose)
    }

    /// Bulk loads so far.
    #[inline]
    pub(crate) fn loads(&self) -> u64 {
        self.entries.loads.load(Ordering::SeqCst)
    }

    /// Tells claims that a run is about to be published (rule X15).
    pub(crate) fn note_load(&self) {
        self.entries.loads.fetch_add(1, Ordering::SeqCst);
    }

    /// True if these are the parts now.
    #[inline]
    pub(crate) fn has_parts(&self, parts: &Arc<IndexParts>) -> bool {
        Arc::ptr_eq(&self.entries.parts.load(), parts)
    }

    /// A number for `is_unchanged`, to be asked for before the parts are.
    #[inline]
    pub(crate) fn installs(&self) -> u64 {
        self.entries.installs.load(Ordering::Acquire)
    }

    /// True if parts that were taken after the number are those of now: every move of a cursor asks, and a look at the parts themselves
    /// costs more. An even number that has not changed says that no exchange has begun of which this thread could have seen
    /// anything, the new parts included. False says nothing.
    #[inline]
    pub(crate) fn is_unchanged(&self, installs: u64) -> bool {
        installs & 1 == 0 && self.installs() == installs
    }

    /// Adds an event to the active tree. The caller is inside an operation guard (rule G1).
    #[inline]
    pub(crate) fn insert(
        &self,
        key: &[u8],
        row: RowId,
        txn: TxnId,
        lsn: Lsn,
        sign: Sign,
        unpack: &[u8],
    ) -> Result<EntryRef> {
        Ok(self
            .entries
            .parts
            .load()
            .active
            .insert(key, row, txn, lsn, sign, unpack)?)
    }

    /// Exchanges the parts. The caller holds the table's shape latch (rule B5).
    pub(crate) fn install(&self, parts: IndexParts) {
        self.entries.installs.fetch_add(1, Ordering::AcqRel);
        let before = self.entries.parts.swap(Arc::new(parts));
        self.entries.installs.fetch_add(1, Ordering::AcqRel);
        self.entries.superseded.note(&before);
    }

    /// Adds earlier parts that somebody still reads (rule S23). The caller holds the table's shape latch.
    pub(crate) fn held_parts(&self, out: &mut Vec<Former>) {
        self.entries.superseded.held(out);
    }

    /// What an ALTER has built becomes the entries (rules AL18, AL20, AL23). Nobody else has the index yet; the caller holds the
    /// table's shape latch.
    pub(crate) fn install_built(&self, parts: IndexParts, answers_from: CommitTs, named_at: Lsn) {
        self.install(parts);
        let entries = &self.entries;
        entries.answers_from.store(answers_from.raw(), Ordering::Release);
        self.note_named(named_at);
    }

    /// The log's tail names its first run with the record at this LSN.
    pub(crate) fn note_named(&self, record: Lsn) {
        self.entries.named_at.store(record.raw(), Ordering::Release);
    }

    /// True if the index has all that this snapshot sees (rule AL20).
    #[inline]
    pub(crate) fn answers(&self, snapshot: CommitTs) -> bool {
        snapshot.raw() >= self.entries.answers_from.load(Ordering::Acquire)
    }

    /// True if the log's tail behind this checkpoint may name its first run (rule AL23).
    pub(crate) fn is_named_behind(&self, checkpoint: Lsn) -> bool {
        let named_at = self.entries.named_at.load(Ordering::Acquire);
        named_at != 0 && named_at >= checkpoint.raw()
    }

    /// Bytes of trees.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let parts = self.entries.parts.load();
        let trees = std::iter::once(&parts.active).chain(&parts.frozen);
        trees.map(|tree: &Arc<Tree>| tree.memory_bytes() as u64).sum()
    }
}
