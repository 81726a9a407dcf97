//! Bulk: statements that bring many rows go around the hot log.
//!
//! Why it exists: row by row, a load writes each row to the log, each key to a tree, and later all of it again to runs. Here the
//! rows go to row runs at once and the keys to one sorted run an index, all tagged with the transaction: visible by its
//! commit, gone by its rollback, whatever their number.
//! State of a bracket:
//! ```text
//!   Single --enough rows--> Loading --flush, end--> Single      Refused: every row by itself
//! ```
//! A load that turned out small is played back row by row: runs are for many rows (rule L5).
//! Rules: L6 a load exists only inside a bracket of the host. L7 any reading or writing of the table by the same transaction,
//! a savepoint and the end of the statement flush the load first. L8 a load that failed makes its bracket fail: rows that
//! were taken in are not forgotten silently. L9 all loads together take a quarter of the cache budget at most.
//! Latches and I/O: none held; the files are written by a thread of the load.
//! After a crash: a load that was not made part of the table has left no trace but files that are removed at open.

use crate::bulk_chunk::Chunk;
use crate::bulk_writer::{BulkWriter, Failed, Loaded, Signals};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::table::Table;
use crate::write::NewVersion;
use pbxt_base::{Error as StorageError, Lsn, RowId, TxnId};
use pbxt_io::{Answer, Lane};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rows, or bytes of payload and keys, of a bracket that are written row by row before a load begins.
const SINGLE_ROWS: u64 = 1000;
const SINGLE_BYTES: u64 = 256 << 10;
/// A load of fewer bytes is played back row by row (rule L5).
const LOAD_BYTES_MIN: usize = 8 << 20;
/// A chunk with keys is handed over early only if it has this part of what was handed over before (rule L13).
const PART_OF_ALL: usize = 8;
/// A chunk without keys is handed over early only if it has so many bytes.
const PLAIN_BYTES_MIN: usize = 1 << 20;
/// Bytes that come between two looks at whether the thread of a load is free.
const LOOK_BYTES: usize = 256 << 10;
/// Bytes of a chunk.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=64 << 20;
/// A chunk that is filled, one that is written, and what sorting and merging need.
const CHUNKS_OF_A_LOAD: u64 = 4;
/// Time between two looks at the kill flag.
const KILL_CHECK: Duration = Duration::from_millis(50);
/// Rows between two reports of progress.
const PROGRESS_ROWS: u64 = 1024;

/// Memory that loads have taken (rule L9).
#[derive(Debug, Default)]
pub(crate) struct LoadBudget {
    taken: AtomicU64,
}

impl LoadBudget {
    /// Bytes now.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The part of the budget that a load has, or an index that is built.
#[derive(Debug)]
pub(crate) struct Share {
    db: Arc<Database>,
    bytes: u64,
}

impl Share {
    /// Takes what a load can use or three quarters of what is left; none if that is too little for a load.
    pub(crate) fn take(db: &Arc<Database>) -> Option<Self> {
        let budget = db.cache_bytes / 4;
        let least = (CHUNK_BYTES.start() * CHUNKS_OF_A_LOAD).min(budget);
        let wish = |taken: u64| {
            let left = budget.saturating_sub(taken);
            (CHUNK_BYTES.end() * CHUNKS_OF_A_LOAD)
                .min(left / 4 * 3)
                .max(least.min(left))
        };
        let grow = |taken: u64| (wish(taken) >= least).then(|| taken + wish(taken));
        let order = Ordering::Relaxed;
        let before = db.loads.taken.fetch_update(order, order, grow).ok()?;
        db.fit_block_cache();
        Some(Self {
            db: Arc::clone(db),
            bytes: wish(before),
        })
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        (self.bytes / CHUNKS_OF_A_LOAD).max(1) as usize
    }
}

/// Bytes of a chunk for who has to go on without a share.
pub(crate) fn least_chunk() -> usize {
    *CHUNK_BYTES.start() as usize
}

impl Drop for Share {
    fn drop(&mut self) {
        self.db.loads.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Brackets of a session.
#[derive(Debug, Default)]
pub(crate) struct Brackets {
    open: Vec<Bracket>,
    /// Payload of the new row that met a duplicate key.
    refused: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Bracket {
    table: Arc<Table>,
    rows: u64,
    bytes: u64,
    expected: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Single,
    Loading(Box<Load>),
    /// The load is being made part of the table.
    Flushing,
    /// Every row by itself.
    Refused,
    /// A load of this bracket failed (rule L8).
    Failed,
}

/// Rows being collected.
#[derive(Debug)]
struct Load {
    chunk: Chunk,
    /// At which the chunk may be handed over, and at which it must be (rule L13).
    chunk_bytes: usize,
    chunk_bytes_max: usize,
    handed_over_bytes: usize,
    spare: Option<Chunk>,
    rows: u64,
    payload_bytes: u64,
    /// A chunk was handed over and is not back.
    is_writing: bool,
    /// Chunks were handed over.
    has_written: bool,
    signals: Arc<Signals>,
    place: Place,
    _share: Share,
}

/// Where the files are written.
#[derive(Debug)]
enum Place {
    /// By the caller, where there are no background threads.
    Here(Option<Box<BulkWriter>>),
    Lane(Lane<Job, Done>),
}

#[derive(Debug)]
enum Job {
    Take(Chunk),
    Finish(Chunk, (TxnId, Lsn)),
}

#[derive(Debug)]
enum Done {
    /// The chunk, empty.
    Taken(Result<Chunk>),
    Finished(std::result::Result<Box<Loaded>, Failed>),
}

fn work(writer: &mut Option<Box<BulkWriter>>, job: Job) -> Done {
    let over = || Error::Invalid("a bulk load goes on after its end".into());
    match (job, writer.as_mut()) {
        (Job::Take(mut chunk), Some(writer)) => Done::Taken(writer.take(&chunk).map(|()| {
            chunk.clear();
            chunk
        })),
        (Job::Take(_), None) => Done::Taken(Err(over())),
        (Job::Finish(last, tag), _) => Done::Finished(match writer.take() {
            Some(writer) => writer.finish(last, tag).map(Box::new),
            None => Err(over().into()),
        }),
    }
}

impl Load {
    fn open(db: &Arc<Database>, table: &Arc<Table>) -> Result<Option<Self>> {
        let Some(share) = Share::take(db) else {
            return Ok(None);
        };
        let signals = Arc::new(Signals::default());
        let chunk_bytes_max = share.chunk_bytes();
        let mut writer = Some(Box::new(BulkWriter::new(db, table, &signals, chunk_bytes_max)));
        let place = if db.has_background() {
            let lane = Lane::spawn("pbxt-load", move |job| work(&mut writer, job));
            Place::Lane(lane.map_err(|source| StorageError::Io {
                file: db.store.location(),
                op: "start a thread for",
                source,
            })?)
        } else {
            Place::Here(writer)
        };
        Ok(Some(Self {
            chunk: Chunk::new(table.indexes.len()),
            chunk_bytes: LOAD_BYTES_MIN.min(chunk_bytes_max),
            chunk_bytes_max,
            handed_over_bytes: 0,
            spare: Some(Chunk::new(table.indexes.len())),
            rows: 0,
            payload_bytes: 0,
            is_writing: false,
            has_written: false,
            signals,
            place,
            _share: share,
        }))
    }

    /// True if the chunk may be handed over.
    #[inline]
    fn add(&mut self, version: NewVersion<'_>) -> bool {
        self.chunk.push(version.payload, version.keys);
        self.rows += 1;
        self.payload_bytes += version.payload.len() as u64;
        self.chunk.bytes() >= self.chunk_bytes
    }

    /// True if the rows are so few that runs are not worth it (rule L5).
    fn is_small(&self) -> bool {
        !self.has_written && self.chunk.bytes() < LOAD_BYTES_MIN.min(self.chunk_bytes_max / 2)
    }

    /// Gives the chunk to the writer: at once if that is free, once it has given back the one before if the chunk is full, later
    /// otherwise.
    fn hand_over(&mut self, session: &Session) -> Result<()> {
        if self.chunk.bytes() < self.chunk_bytes_max && !self.is_writer_free()? {
            self.chunk_bytes = (self.chunk.bytes() + LOOK_BYTES).min(self.chunk_bytes_max);
            return Ok(());
        }
        self.wait_for_chunk(session)?;
        let empty = self
            .spare
            .take()
            .unwrap_or_else(|| Chunk::new(self.chunk.indexes.len()));
        let full = std::mem::replace(&mut self.chunk, empty);
        self.has_written = true;
        self.is_writing = true;
        self.handed_over_bytes += full.bytes();
        let least = if self.chunk.indexes.is_empty() {
            PLAIN_BYTES_MIN
        } else {
            LOAD_BYTES_MIN.max(self.handed_over_bytes / PART_OF_ALL)
        };
        self.chunk_bytes = least.min(self.chunk_bytes_max);
        match self.give(Job::Take(full)) {
            Some(done) => self.take_back(done),
            None => Ok(()),
        }
    }

    fn is_writer_free(&mut self) -> Result<bool> {
        let Place::Lane(lane) = &self.place else {
            return Ok(true);
        };
        if !self.is_writing {
            return Ok(true);
        }
        match lane.answer(Duration::ZERO) {
            Answer::Ready(done) => self.take_back(done).map(|()| true),
            Answer::NotYet => Ok(false),
            Answer::Never => Err(thread_is_gone()),
        }
    }

    fn wait_for_chunk(&mut self, session: &Session) -> Result<()> {
        if self.is_writing {
            let done = self.answer(session)?;
            self.take_back(done)?;
        }
        Ok(())
    }

    fn take_back(&mut self, done: Done) -> Result<()> {
        self.is_writing = false;
        if let Done::Taken(chunk) = done {
            self.spare = Some(chunk?);
        }
        Ok(())
    }

    /// Hands a job over; the answer, if it was done at once.
    fn give(&mut self, job: Job) -> Option<Done> {
        match &mut self.place {
            Place::Here(writer) => Some(work(writer, job)),
            Place::Lane(lane) => {
                // If the thread is gone, the wait for its answer says so.
                let _ = lane.give(job);
                None
            }
        }
    }

    fn answer(&self, session: &Session) -> Result<Done> {
        let Place::Lane(lane) = &self.place else {
            return Err(thread_is_gone());
        };
        loop {
            match lane.answer(KILL_CHECK) {
                Answer::Ready(done) => return Ok(done),
                Answer::Never => return Err(thread_is_gone()),
                Answer::NotYet if session.db.waits.host_killed(&session.gate) => {
                    self.signals.stop();
                    return Err(Error::Killed);
                }
                Answer::NotYet => session
                    .db
                    .waits
                    .host_progress(&session.gate, self.signals.progress()),
            }
        }
    }

    /// Writes what is left and makes runs of all.
    fn finish(&mut self, session: &Session, tag: (TxnId, Lsn)) -> std::result::Result<Box<Loaded>, Failed> {
        self.wait_for_chunk(session)?;
        let last = std::mem::take(&mut self.chunk);
        let done = match self.give(Job::Finish(last, tag)) {
            Some(done) => done,
            None => self.answer(session)?,
        };
        match done {
            Done::Finished(loaded) => loaded,
            Done::Taken(_) => Err(thread_is_gone().into()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.signals.stop();
    }
}

fn thread_is_gone() -> Error {
    Error::Invalid(
        "the thread of this bulk load failed; nothing of the statement was kept: try it again".into(),
    )
}

impl Session {
    /// Begins a bracket: many rows may come for the table (0: nobody knows how many). With `row_answers` the host wants to
    /// know of each row by itself whether its keys are free, as for INSERT IGNORE and REPLACE.
    pub fn bulk_begin(&mut self, table: &Arc<Table>, expected_rows: u64, row_answers: bool) {
        let is_unique = table.indexes.iter().any(|index| index.def.unique);
        let refused = table.temporary || (row_answers && is_unique);
        self.bulk.open.retain(|bracket| bracket.table.id != table.id);
        self.bulk.refused = None;
        self.bulk.open.push(Bracket {
            table: Arc::clone(table),
            rows: 0,
            bytes: 0,
            expected: expected_rows,
            state: if refused { State::Refused } else { State::Single },
        });
    }

    /// Ends the bracket. Without `abort`, everything taken in is part of the table on return, or nothing of the load is.
    pub fn bulk_end(&mut self, table: &Arc<Table>, abort: bool) -> Result<()> {
        let flushed = if abort { Ok(()) } else { self.flush_bulk(table) };
        self.bulk.open.retain(|bracket| bracket.table.id != table.id);
        flushed
    }

    /// Payload of the new row behind the latest `DuplicateKey` of a load.
    pub fn refused_row(&self) -> Option<&[u8]> {
        self.bulk.refused.as_deref()
    }

    /// Inserts a row, or takes it into the load of its table's bracket; then nobody knows its id yet.
    pub fn insert_or_load(&mut self, table: &Arc<Table>, version: NewVersion<'_>) -> Result<Option<RowId>> {
        if self.bulk.open.is_empty() {
            return self.insert(table, version).map(Some);
        }
        let result = self.insert_in_bracket(table, version);
        self.settle(result)
    }

    fn insert_in_bracket(&mut self, table: &Arc<Table>, version: NewVersion<'_>) -> Result<Option<RowId>> {
        let found = self
            .bulk
            .open
            .iter()
            .position(|bracket| bracket.table.id == table.id);
        let Some(number) = found else {
            return self.insert(table, version).map(Some);
        };
        version.keys.check(table, self.db.log.record_bytes_max())?;
        let bracket = &mut self.bulk.open[number];
        if matches!(bracket.state, State::Single) && bracket.is_due() {
            self.open_load(number)?;
        }
        let bracket = &mut self.bulk.open[number];
        bracket.rows += 1;
        match &mut bracket.state {
            State::Single => {
                let keys = version.keys.items().iter();
                let key_bytes: usize = keys
                    .filter_map(|change| version.keys.new_key(change))
                    .map(<[u8]>::len)
                    .sum();
                bracket.bytes += (version.payload.len() + key_bytes) as u64;
                self.insert(table, version).map(Some)
            }
            State::Refused | State::Flushing => self.insert(table, version).map(Some),
            State::Failed => Err(failed_before()),
            State::Loading(load) => {
                let is_full = load.add(version);
                let rows = load.rows;
                if is_full {
                    self.hand_over(number)?;
                }
                if rows.is_multiple_of(PROGRESS_ROWS) {
                    self.shown.rows_loading(rows);
                    if self.db.waits.host_killed(&self.gate) {
                        self.bulk.open[number].state = State::Failed;
                        return Err(Error::Killed);
                    }
                }
                Ok(None)
            }
        }
    }

    fn open_load(&mut self, number: usize) -> Result<()> {
        let table = Arc::clone(&self.bulk.open[number].table);
        self.enter_table(&table)?;
        let load = Load::open(&self.db, &table)?;
        self.bulk.open[number].state = match load {
            Some(load) => State::Loading(Box::new(load)),
            None => State::Refused,
        };
        Ok(())
    }

    fn hand_over(&mut self, number: usize) -> Result<()> {
        let state = std::mem::replace(&mut self.bulk.open[number].state, State::Failed);
        if let State::Loading(mut load) = state {
            load.hand_over(self)?;
            self.bulk.open[number].state = State::Loading(load);
        }
        Ok(())
    }

    /// Makes the rows taken in for this table part of it (rule L7). Nothing to do if there are none.
    #[inline]
    pub(crate) fn flush_bulk(&mut self, table: &Table) -> Result<()> {
        if self.bulk.open.is_empty() {
            return Ok(());
        }
        let found = self
            .bulk
            .open
            .iter()
            .position(|bracket| bracket.table.id == table.id);
        found.map_or(Ok(()), |number| self.flush_bracket(number))
    }

    /// The same for all tables.
    pub fn flush_all_bulk(&mut self) -> Result<()> {
        (0..self.bulk.open.len()).try_for_each(|number| self.flush_bracket(number))
    }

    /// Forgets all brackets and what they took in: the transaction or statement is rolled back.
    pub(crate) fn forget_bulk(&mut self) {
        self.bulk.open.clear();
        self.shown.rows_loading(0);
    }

    fn flush_bracket(&mut self, number: usize) -> Result<()> {
        let bracket = &mut self.bulk.open[number];
        match &bracket.state {
            State::Single | State::Refused | State::Flushing => return Ok(()),
            State::Failed => return Err(failed_before()),
            State::Loading(_) => {}
        }
        let table = Arc::clone(&bracket.table);
        let State::Loading(load) = std::mem::replace(&mut bracket.state, State::Flushing) else {
            return Ok(());
        };
        // A statement that looks at its table all the time gets nothing from loads.
        (bracket.expected, bracket.rows, bracket.bytes) = (0, 0, 0);
        let result = self.flush_load(&table, load);
        let result = self.settle(result);
        // A deadlock has ended the transaction and all its brackets.
        if let Some(bracket) = self.bulk.open.get_mut(number) {
            bracket.state = if result.is_ok() {
                State::Single
            } else {
                State::Failed
            };
        }
        result
    }

    fn flush_load(&mut self, table: &Arc<Table>, mut load: Box<Load>) -> Result<()> {
        self.refuse_if_doomed()?;
        if load.rows == 0 {
            return Ok(());
        }
        if load.is_small() {
            return self.play_back(table, &load.chunk);
        }
        let tag = (self.ensure_txn()?, self.db.log.tail());
        let payload_bytes = load.payload_bytes;
        let made = load.finish(self, tag);
        drop(load);
        match made {
            Ok(loaded) => self.ingest(table, *loaded, tag, payload_bytes),
            Err(Failed::Error(error)) => Err(error),
            Err(Failed::Twins(twins)) => {
                self.bulk.refused = Some(twins.payload);
                Err(duplicate(table, twins.index, twins.rows.0))
            }
        }
    }

    /// Rule L5.
    fn play_back(&mut self, table: &Arc<Table>, chunk: &Chunk) -> Result<()> {
        let schema_version = table.schema().version();
        chunk.replay(|payload, keys| {
            let version = NewVersion {
                payload,
                schema_version,
                keys,
            };
            let inserted = self.insert(table, version);
            if matches!(inserted, Err(Error::DuplicateKey { .. })) {
                self.bulk.refused = Some(payload.to_vec());
            }
            inserted.map(|_| ())
        })
    }

    pub(crate) fn note_refused(&mut self, payload: Vec<u8>) {
        self.bulk.refused = Some(payload);
    }
}

impl Bracket {
    /// True if so many rows came, or are to come, that the next ones are better loaded.
    fn is_due(&self) -> bool {
        self.rows >= SINGLE_ROWS || self.bytes >= SINGLE_BYTES || self.expected >= 4 * SINGLE_ROWS
    }
}

fn failed_before() -> Error {
    Error::Invalid("a bulk load of this statement failed: roll the statement back".into())
}

pub(crate) fn duplicate(table: &Table, index: usize, holder: RowId) -> Error {
    Error::DuplicateKey {
        table: table.name().to_string(),
        index: table.indexes[index].def.name.clone(),
        index_no: index,
        row: holder,
    }
}
