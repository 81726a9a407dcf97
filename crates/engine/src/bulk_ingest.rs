//! Bulk ingest: makes what a load has written part of its table.
//!
//! Why it exists: rows and entries of a load appear all at once, and the log says so in a few records, however many there are.
//! Order: 1 all files are durable (rule L3). 2 runs of unique indexes are published: from now on every writer meets their keys;
//! they are probed against all others (bulk_unique). 3 records are appended, then rows and the other runs published. A
//! checkpoint may see the tagged runs at any moment: they belong to an unfinished transaction until its END.
//! Rules: L10 a load that is given up after its runs were published is logged and made void: a checkpoint may have saved the
//! runs. L11 the tag of a load is the log's end before its records and after the newest mark, so a void range has both or
//! none. D18, G1, B1, B3, B5.
//! Latches and I/O: the table's shape latch and an operation guard around records and exchange of shapes; no I/O under them.
//! After a crash: the records and the transaction's END decide; without END the load is absent.

use crate::bulk::duplicate;
use crate::bulk_unique::Met;
use crate::bulk_writer::{Loaded, payload_of};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::row_shape::{RowRun, RowShape};
use crate::session::{Mark, MarkedRows, Session};
use crate::table::{Index, Table};
use crate::unique::claimant;
use crate::waits::Turn;
use pbxt_base::{IndexId, Lsn, SegmentId, TxnId, planted, stop_point};
use pbxt_index::{IndexParts, Run};
use pbxt_segment::SegmentClass;
use pbxt_txlog::{INGEST_PIECES_MAX, IngestPiece, IngestRecord, Space};
use pbxt_txn::{LockMode, Resource, Stamp};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an ingest record beside its pieces, and of a piece, at most.
const RECORD_BYTES: usize = 64;
const PIECE_BYTES: usize = 12;
/// Binary logarithm of the longest pause of a load that gives way to another one, in milliseconds.
const PAUSE_MILLIS_LOG2_MAX: u32 = 9;

/// Pieces that one ingest record names at most, whatever the log.
pub(crate) fn pieces_of_a_record(db: &Database) -> usize {
    ((db.log.record_bytes_max() - RECORD_BYTES) / PIECE_BYTES).min(INGEST_PIECES_MAX)
}

impl Session {
    /// Makes the load part of the table, or nothing of it.
    pub(crate) fn ingest(
        &mut self,
        table: &Arc<Table>,
        mut loaded: Loaded,
        tag: (TxnId, Lsn),
        payload_bytes: u64,
    ) -> Result<()> {
        self.claim_runs(table, &mut loaded, tag.1)?;
        stop_point!("bulk.before_records");
        let db = Arc::clone(&self.db);
        let operation = db.guards.enter(self.shard);
        let logged = match self.log_load(table, &loaded, Space::Row) {
            Ok(lsn) => lsn,
            Err(error) => {
                drop(operation);
                return self.give_up(table, &mut loaded, tag.1, error);
            }
        };
        stop_point!("bulk.after_records");
        self.publish_rows(table, &loaded, logged);
        drop(operation);
        for piece in &loaded.rows.pieces {
            table.watchers.note_range(piece.first, piece.last);
        }
        stop_point!("bulk.after_publish");
        loaded.files.keep();
        let position = self.enter_table(table)?;
        let work = &mut self.work.tables[position];
        work.rows += loaded.count.cast_signed() - i64::from(planted!("load.count_off"));
        work.bytes += payload_bytes.cast_signed();
        work.shown.note_many(loaded.count);
        self.work.rows_written += loaded.count;
        self.shown.rows_loading(0);
        self.db.counters.rows_inserted.add(loaded.count);
        self.meet_readers_of_load(table)
    }

    /// Publishes the runs of unique indexes and waits until no other transaction has one of their keys (rule X15).
    fn claim_runs(&mut self, table: &Arc<Table>, loaded: &mut Loaded, from: Lsn) -> Result<()> {
        if !table.indexes.iter().any(|index| index.def.unique) {
            return Ok(());
        }
        let db = Arc::clone(&self.db);
        let mut turn = Turn::none(&db.waits);
        let mut waited_for = None;
        let mut rival = Rival::default();
        loop {
            let given_up = db.waits.given_up();
            self.publish_claims(table, loaded);
            stop_point!("bulk.after_claims");
            match self.probe_load(table, loaded) {
                Ok(Met::Nothing) => {
                    turn.took();
                    return Ok(());
                }
                Ok(Met::Unfinished { index, key, txn }) => {
                    self.withdraw_load(table, loaded);
                    let resource = Resource::Key(table.indexes[index].def.id, key);
                    self.shown.about_key(&[]);
                    // A place in a line is for its key alone (rule T13).
                    if waited_for
                        .replace(resource)
                        .is_some_and(|before| before != resource)
                    {
                        turn = Turn::none(&db.waits);
                    }
                    // One more, by this load itself.
                    let blockers = || claimant(&db, txn, given_up + 1);
                    let waited = self.wait(&mut turn, table, resource, LockMode::Exclusive, false, blockers);
                    if let Err(error) = waited {
                        return self.give_up(table, loaded, from, error);
                    }
                    if let Some(pause) = rival.met(self.work.txn, txn) {
                        self.gate.sleep(pause);
                    }
                }
                Ok(Met::Row { index, holder, row }) => {
                    let payload = payload_of(&db, table, &loaded.rows, row);
                    let error = match payload {
                        Ok(payload) => {
                            self.note_refused(payload);
                            duplicate(table, index, holder)
                        }
                        Err(error) => error,
                    };
                    return self.give_up(table, loaded, from, error);
                }
                Ok(Met::Newer { holder }) => {
                    db.counters.write_conflicts.add(1);
                    let error = Error::WriteConflict {
                        table: table.name().to_string(),
                        row: holder,
                    };
                    return self.give_up(table, loaded, from, error);
                }
                Err(error) => return self.give_up(table, loaded, from, error),
            }
        }
    }

    /// From here on every writer meets the keys of the load. Writers that did not see the runs have published their own claims
    /// when this returns, so the probe that follows meets those.
    fn publish_claims(&self, table: &Table, loaded: &Loaded) {
        {
            let _operation = self.db.guards.enter(self.shard);
            let _shaping = table.shaping.lock();
            for (index, run) in table.indexes.iter().zip(&loaded.runs) {
                if index.def.unique {
                    add_run(table, index, run);
                    index.note_load();
                }
            }
        }
        self.db.guards.drain();
    }

    /// Publishes rows, with the stamp that recovery would give them, and entries that are not yet published (rule B1). The
    /// caller is inside an operation guard.
    fn publish_rows(&self, table: &Table, loaded: &Loaded, lsn: Lsn) {
        let _shaping = table.shaping.lock();
        let stamp = Stamp {
            txn: self.work.txn,
            lsn,
        };
        let mut runs = vec![Arc::new(RowRun::new(stamp, loaded.rows.pieces.clone()))];
        runs.extend(table.base.shape().runs.iter().cloned());
        table.base.install(RowShape { runs });
        for (index, run) in table.indexes.iter().zip(&loaded.runs) {
            if !index.def.unique {
                add_run(table, index, run);
            }
        }
    }

    /// Takes the load's claims back and tells those who met them (rule T13).
    fn withdraw_load(&self, table: &Table, loaded: &Loaded) {
        withdraw_claims(table, loaded);
        self.db.waits.gave_up(self.work.txn);
    }

    /// Withdraws the load (rule L10).
    fn give_up(&mut self, table: &Arc<Table>, loaded: &mut Loaded, from: Lsn, error: Error) -> Result<()> {
        self.withdraw_load(table, loaded);
        if matches!(error, Error::Deadlock { .. } | Error::Unserializable) {
            // The whole transaction is rolled back.
            loaded.files.keep();
            return Err(error);
        }
        let db = Arc::clone(&self.db);
        let operation = db.guards.enter(self.shard);
        let logged = self.log_load(table, loaded, Space::Spare);
        drop(operation);
        // The log names them now; a checkpoint will find that nothing else does.
        loaded.files.keep();
        let rows = self.work.tables.iter().map(|work| MarkedRows {
            rows: work.rows,
            unseen: work.unseen,
        });
        let mark = Mark {
            lsn: from,
            rows: rows.collect(),
        };
        if logged.and_then(|_| self.roll_back_to_mark(&mark)).is_err() {
            self.doom("a bulk load could not be taken back");
        }
        Err(error)
    }

    /// Appends the records of a load: one for its rows, one for each index. LSN of the first one.
    fn log_load(&mut self, table: &Table, loaded: &Loaded, space: Space) -> Result<Lsn> {
        let class = SegmentClass::Cold;
        let rows = loaded
            .rows
            .pieces
            .iter()
            .map(|piece| piece_of(class, piece.reference()));
        let lsn = self.log_pieces(table, IndexId::new(0), &rows.collect::<Vec<_>>(), loaded, space)?;
        // Rule D23: a run is not merged as long as a record of the log's tail names it.
        self.db.maintenance.note_load(lsn, self.work.last_lsn);
        for (index, run) in table.indexes.iter().zip(&loaded.runs) {
            let class = SegmentClass::Meta;
            let pieces = run.pieces.iter().map(|piece| piece_of(class, piece.reference()));
            self.log_pieces(table, index.def.id, &pieces.collect::<Vec<_>>(), loaded, space)?;
            let stamp = run.tag.map_or(lsn, |(_, lsn)| lsn);
            self.db.maintenance.note_load(stamp, self.work.last_lsn);
        }
        Ok(lsn)
    }

    fn log_pieces(
        &mut self,
        table: &Table,
        index: IndexId,
        pieces: &[IngestPiece],
        loaded: &Loaded,
        space: Space,
    ) -> Result<Lsn> {
        let ends = |at: usize| loaded.rows.pieces.get(at);
        let first_row = ends(0).map_or(0, |piece| piece.first.raw());
        let last_row = ends(loaded.rows.pieces.len().saturating_sub(1)).map_or(0, |piece| piece.last.raw());
        let mut first_lsn = None;
        for pieces in pieces.chunks(pieces_of_a_record(&self.db)) {
            let record = IngestRecord {
                first: !self.work.logged,
                txn: self.work.txn,
                table: table.id,
                index,
                pieces,
                first_row,
                last_row,
                rows: loaded.count,
            };
            let mut reservation = self.db.log.reserve_patiently(record.encoded_len(), space)?;
            record.encode_into(reservation.bytes_mut());
            first_lsn.get_or_insert(reservation.lsn());
            self.work.last_lsn = reservation.publish();
            self.work.logged = true;
        }
        Ok(first_lsn.unwrap_or(self.work.last_lsn))
    }
}

/// Who stood in a load's way last. Two loads that meet each other both give their claims up and go on at once: of those the younger one
/// makes longer and longer pauses, until the older one has got through a whole probe.
#[derive(Default)]
struct Rival {
    txn: TxnId,
    pauses: u32,
}

impl Rival {
    /// How long the load of `own` pauses before it tries again.
    fn met(&mut self, own: TxnId, txn: TxnId) -> Option<Duration> {
        let is_another = std::mem::replace(&mut self.txn, txn) != txn;
        if is_another || own < txn {
            return None;
        }
        self.pauses += 1;
        Some(Duration::from_millis(1 << self.pauses.min(PAUSE_MILLIS_LOG2_MAX)))
    }
}

pub(crate) fn piece_of(class: SegmentClass, (segment, section): (SegmentId, u32)) -> IngestPiece {
    IngestPiece {
        class: class as u8,
        segment,
        section,
    }
}

/// Puts a run in front of the others. The caller holds the table's shape latch (rule B5).
fn add_run(table: &Table, index: &Index, run: &Arc<Run>) {
    if run.is_empty() {
        return;
    }
    // Rule X36: nobody could delete its rows before.
    for piece in &run.pieces {
        piece.swept().set(table.sweep.cut());
    }
    let parts = index.parts();
    let mut runs = vec![Arc::clone(run)];
    runs.extend(parts.runs.iter().cloned());
    index.install(IndexParts {
        active: Arc::clone(&parts.active),
        frozen: parts.frozen.clone(),
        runs,
    });
}

/// Parts of an index without this run.
pub(crate) fn without_run(parts: &IndexParts, run: &Arc<Run>) -> IndexParts {
    let others = parts.runs.iter().filter(|other| !Arc::ptr_eq(other, run));
    IndexParts {
        active: Arc::clone(&parts.active),
        frozen: parts.frozen.clone(),
        runs: others.cloned().collect(),
    }
}

fn withdraw_claims(table: &Table, loaded: &Loaded) {
    let _shaping = table.shaping.lock();
    for (index, run) in table.indexes.iter().zip(&loaded.runs) {
        if index.def.unique {
            index.install(without_run(&index.parts(), run));
        }
    }
}
