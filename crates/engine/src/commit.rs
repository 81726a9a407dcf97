//! Commit: how a transaction ends, whole or in part: commit, rollback, prepare, rollback to a mark.
//!
//! Why it exists: everything that decides what a transaction's versions are worth stands in one file.
//! Rules: D6 committed iff END(commit) is in the valid log. T2 END's log space and the commit timestamp are taken in
//! one critical section, so timestamp order is log order; inside it nothing blocks on I/O. T13 state is stored before
//! the waiters are woken. T8 a rollback to a mark is one record and one void range; nothing is undone row by row. V2 what
//! was said of a prepared transaction is durable before it is answered.
//! Latches and I/O: the commit critical section (txn table); the wait for the disk comes after it, with no latch held.
//! After a crash: a transaction without END is aborted, one with PREPARE and no END comes back prepared.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::image::PreparedImage;
use crate::session::{FlushAtCommit, Mark, Phase, ROWS_BETWEEN_LOOKS, Session, Work};
use pbxt_base::limits::XID_BYTES_MAX;
use pbxt_base::{CommitTs, Lsn, TxnId, planted, stop_point};
use pbxt_txlog::{CountDelta, EndRecord, Log, Outcome, PrepareRecord, RollbackToRecord, Space, VoidRange};

/// Void ranges an END or PREPARE record repeats at most.
const VOIDS_REPEATED_MAX: usize = 256;

impl Session {
    /// Commits. Returns when the commit is as durable as the session asks for; visible to others before that.
    pub fn commit(&mut self) -> Result<()> {
        if let Err(error) = self.flush_all_bulk() {
            return Err(self.give_up_commit(error));
        }
        match self.phase {
            Phase::Idle => {
                self.end_unbegun();
                Ok(())
            }
            Phase::Doomed(why) => Err(self.give_up_commit(Error::TransactionAborted { why })),
            Phase::Active | Phase::Prepared => {
                // V2: its coordinator forgets it at the answer.
                let is_voted = self.phase == Phase::Prepared && self.work.outlives_session();
                let end = match self.publish_commit() {
                    Err(Error::Unserializable) => return Err(self.give_up_unserializable()),
                    Err(error) => return Err(self.give_up_commit(error)),
                    Ok(end) => end,
                };
                let flush = if is_voted {
                    FlushAtCommit::Durable
                } else {
                    self.config.flush
                };
                let logged = self.work.logged;
                self.finish();
                if logged {
                    // Rule T52: what a guest commits is not the transaction that has a place in the host's order.
                    if !self.is_guest() {
                        self.db.waits.ordered(&self.gate);
                    }
                    self.db.wait_for(end, flush)?;
                }
                self.pause_if_due();
                Ok(())
            }
            Phase::Ordered => {
                // The prepare record is durable and the host's own log decides: no second flush.
                self.finish();
                self.pause_if_due();
                Ok(())
            }
        }
    }

    /// Rule T44: what could not be committed is rolled back, or the next commit of the session would bring it. The host takes this answer
    /// for the end of the transaction, and a rollback that follows in the session is not about it: so one that has voted is left to
    /// whoever decides, as if its session had gone, and one that was rolled back whole before has now ended.
    fn give_up_commit(&mut self, error: Error) -> Error {
        match self.phase {
            Phase::Prepared if self.work.outlives_session() => self.detach_prepared(),
            // An abort that cannot be logged is still an abort. About a vote without a record nobody else can decide (rule V11).
            Phase::Active | Phase::Prepared | Phase::Doomed(_) => drop(self.rollback()),
            Phase::Idle | Phase::Ordered => {}
        }
        error
    }

    /// Rule D25, for transactions of few rows: with nothing held.
    fn pause_if_due(&mut self) {
        if self.rows_since_pause >= ROWS_BETWEEN_LOOKS {
            self.rows_since_pause = 0;
            self.db.pressure();
        }
    }

    /// After prepare: makes the transaction visible. Never waits for the disk.
    pub fn commit_ordered(&mut self) -> Result<()> {
        if self.phase != Phase::Prepared {
            return Err(Error::Invalid(
                "commit_ordered needs a prepared transaction".into(),
            ));
        }
        self.publish_commit()?;
        self.phase = Phase::Ordered;
        Ok(())
    }

    /// Votes yes: durable on return. The transaction keeps its locks until the outcome is told.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        self.refuse_if_over()?;
        if xid.len() > XID_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "a transaction id of {} bytes: at most {XID_BYTES_MAX} are kept",
                xid.len()
            )));
        }
        self.flush_all_bulk()?;
        if !self.work.outlives_session() {
            self.vote_serial(|_| Ok(()))?;
            self.note_vote(xid);
            return Ok(());
        }
        self.collect_deltas();
        let lsn = self.vote_serial(|this| {
            let record = PrepareRecord {
                txn: this.work.txn,
                xid,
                deltas: &this.delta_buffer,
                voids: few(&this.work.voids),
            };
            let vote = PreparedImage {
                txn: this.work.txn,
                xid: xid.to_vec(),
                rows_written: this.work.rows_written,
                deltas: this.delta_buffer.clone(),
                voids: this.work.voids.clone(),
            };
            let log = &this.db.log;
            let append = || append(log, record.encoded_len(), |out| record.encode_into(out));
            this.db.prepared.vote(vote, append)
        })?;
        stop_point!("prepare.after_append");
        self.db.wait_for(lsn, FlushAtCommit::Durable)?;
        self.db.txns.prepare(self.work.txn);
        self.note_vote(xid);
        Ok(())
    }

    /// The vote is given: nothing is read any more, so nothing need be kept for a snapshot (rule V14).
    fn note_vote(&mut self, xid: &[u8]) {
        self.work.xid = xid.to_vec();
        self.work.snapshot = None;
        self.shown.snapshot(CommitTs::new(0));
        self.phase = Phase::Prepared;
        self.shown.prepared();
    }

    /// Rolls the whole transaction back. Costs one record; it is waited for only after a durable vote, which would come
    /// back after a crash (rule V2).
    pub fn rollback(&mut self) -> Result<()> {
        self.forget_bulk();
        match self.phase {
            Phase::Idle => {
                self.end_unbegun();
                return Ok(());
            }
            Phase::Ordered => {
                return Err(Error::Invalid(
                    "the transaction is committed and others see it: only commit can follow (rule V13)"
                        .into(),
                ));
            }
            _ => {}
        }
        let voted = self.phase == Phase::Prepared && self.work.outlives_session();
        let result = self.db.abort(self.work.txn, self.work.logged);
        self.suspect_kept();
        self.finish();
        result?;
        if voted {
            self.db.wait_for(self.db.log.tail(), FlushAtCommit::Durable)?;
        }
        Ok(())
    }

    /// Ends a statement that has begun no transaction, with the kill that was meant for it (rule T39). What a guest does is part of its
    /// host's statement.
    fn end_unbegun(&mut self) {
        if self.work.statement.take().is_some() && !self.is_guest() {
            self.gate.clear_kill();
        }
    }

    /// Leaves a prepared transaction behind for `commit_prepared` or `rollback_prepared`. One that has changed nothing but
    /// temporary tables ends with its session, as they do (rule V11).
    pub fn detach_prepared(&mut self) {
        if self.phase == Phase::Prepared && self.work.outlives_session() {
            let work = std::mem::take(&mut self.work);
            self.db.waits.detach(work.txn);
            self.shown.end();
            self.db.prepared.insert(work);
            self.phase = Phase::Idle;
        }
    }

    /// Ends the session: rolls back what is active, leaves what is prepared, finishes what is ordered (rule V13).
    pub(crate) fn close(&mut self) {
        self.detach_prepared();
        if self.phase == Phase::Ordered {
            self.finish();
        }
        // An abort that cannot be logged is still an abort: without END recovery says the same.
        let _ = self.rollback();
    }

    /// The engine rolls the whole transaction back (deadlock victim); the session accepts only ROLLBACK afterwards.
    pub(crate) fn doom(&mut self, why: &'static str) {
        let _ = self.rollback();
        self.phase = Phase::Doomed(why);
    }

    /// Rule T8: what lies in [mark, now) is void for everyone. If that cannot be logged the whole transaction is rolled back (T44).
    pub(crate) fn roll_back_to_mark(&mut self, mark: &Mark) -> Result<()> {
        let done = self.void_since(mark).and_then(|()| self.remove_again(mark.lsn));
        if done.is_err() {
            self.doom("work could not be taken back");
        }
        done
    }

    fn void_since(&mut self, mark: &Mark) -> Result<()> {
        self.referenced_changes += 1;
        self.work.stamped = self.work.stamped.filter(|&lsn| lsn < mark.lsn);
        for (position, work) in self.work.tables.iter_mut().enumerate() {
            let marked = mark.rows.get(position).copied().unwrap_or_default();
            (work.rows, work.unseen) = (marked.rows, marked.unseen);
        }
        if !self.work.logged || self.work.last_lsn <= mark.lsn {
            return Ok(());
        }
        let txn = self.work.txn;
        // Rule G1: a checkpoint beyond the record must know the range.
        let operation = self.db.guards.enter(self.shard);
        let record = |to| RollbackToRecord {
            txn,
            range: VoidRange { from: mark.lsn, to },
        };
        let mut reservation = self
            .db
            .log
            .reserve(record(mark.lsn).encoded_len(), Space::Spare)?;
        let range = VoidRange {
            from: mark.lsn,
            to: reservation.lsn(),
        };
        record(range.to).encode_into(reservation.bytes_mut());
        // Before the latch of the transaction table: a commit that has it may wait until this record can be written.
        let end = reservation.publish();
        stop_point!("rollback.after_append");
        self.db.txns.add_void(self.work.txn, range.from..range.to);
        drop(operation);
        merge_void(&mut self.work.voids, range);
        self.work.last_lsn = end;
        self.db.waits.gave_up(self.work.txn);
        Ok(())
    }

    /// Makes the event at `lsn` void for everyone (rule X14). The caller is inside an operation guard.
    pub(crate) fn void_one(&mut self, lsn: Lsn) -> Result<()> {
        let range = VoidRange {
            from: lsn,
            to: Lsn::new(lsn.raw() + 1),
        };
        let record = RollbackToRecord {
            txn: self.work.txn,
            range,
        };
        self.db.txns.add_void(self.work.txn, range.from..range.to);
        merge_void(&mut self.work.voids, range);
        self.work.last_lsn = append(&self.db.log, record.encoded_len(), |out| record.encode_into(out))?;
        self.work.logged = true;
        Ok(())
    }

    fn collect_deltas(&mut self) {
        self.delta_buffer.clear();
        let deltas = self.work.tables.iter().map(|work| CountDelta {
            table: work.table.id,
            rows: work.rows,
        });
        self.delta_buffer.extend(deltas);
    }

    /// END(commit) and visibility (rule T2). Returns the end of the record.
    fn publish_commit(&mut self) -> Result<Lsn> {
        if !self.work.logged
            && let Some(serial) = &mut self.work.serial
        {
            self.db.serial.commit_unchanged(serial)?;
        }
        if self.work.txn.raw() == 0 {
            return Ok(Lsn::new(0));
        }
        if !self.work.logged {
            // Only locks were taken: nothing to make visible.
            self.db.txns.abort(self.work.txn);
            return Ok(Lsn::new(0));
        }
        self.collect_deltas();
        self.db.publish_commit(&mut self.work, &self.delta_buffer)
    }

    /// Gives back everything the ended transaction held and returns to Idle.
    pub(crate) fn finish(&mut self) {
        let work = &mut self.work;
        // Those before were looked at under way.
        self.rows_since_pause += work.rows_written % ROWS_BETWEEN_LOOKS;
        self.db.waits.detach(work.txn);
        self.shown.end();
        self.db.release(work);
        work.clear();
        // A guest ends in the middle of what its host does and may be killed for.
        if !self.is_guest() {
            self.gate.clear_kill();
        }
        self.phase = Phase::Idle;
    }
}

impl Database {
    /// Appends END(commit) and publishes the timestamp in one critical section (rule T2).
    pub(crate) fn publish_commit(&self, work: &mut Work, deltas: &[CountDelta]) -> Result<Lsn> {
        let Some(mut serial) = work.serial.take() else {
            return self.publish_end(work, deltas).map(|(_, end)| end);
        };
        let published = self.serial.commit(&mut serial, || self.publish_end(work, deltas));
        work.serial = Some(serial);
        published?.map(|(_, end)| end)
    }

    fn publish_end(&self, work: &Work, deltas: &[CountDelta]) -> Result<(CommitTs, Lsn)> {
        let voids = few(&work.voids);
        let length = EndRecord {
            txn: work.txn,
            outcome: Outcome::Abort,
            deltas,
            voids,
        }
        .encoded_len();
        let now = self.clock.unix_seconds();
        let (ts, end) = self
            .txns
            .commit_critical(work.txn, |ts: CommitTs| -> Result<Lsn> {
                stop_point!("commit.after_ts");
                let mut reservation = self.log.reserve(length, Space::Spare)?;
                let record = EndRecord {
                    txn: work.txn,
                    outcome: Outcome::Commit(ts),
                    deltas,
                    voids,
                };
                record.encode_into(reservation.bytes_mut());
                for table in work.tables.iter().filter(|table| table.rows != 0) {
                    table.table.count.push(ts, table.rows);
                }
                stop_point!("commit.before_publish");
                Ok(reservation.publish())
            })?;
        stop_point!("commit.after_publish");
        self.prepared.forget_vote(work.txn);
        self.counters.committed.add(1);
        for table in &work.tables {
            table.table.note_commit(table.bytes, now);
        }
        Ok((ts, end))
    }

    /// Marks a transaction aborted and says so in the log.
    pub(crate) fn abort(&self, txn: TxnId, logged: bool) -> Result<()> {
        if txn.raw() == 0 {
            return Ok(());
        }
        self.txns.abort(txn);
        self.counters.rolled_back.add(1);
        if !logged {
            return Ok(());
        }
        let record = EndRecord {
            txn,
            outcome: Outcome::Abort,
            deltas: &[],
            voids: &[],
        };
        let appended = append(&self.log, record.encoded_len(), |out| record.encode_into(out));
        // Without an END in the log it may come back prepared after a crash; here and now it is over.
        self.prepared.forget_vote(txn);
        appended.map(|_| ())
    }

    /// Gives back the locks of an ended transaction and wakes its waiters (rule T13).
    pub(crate) fn release(&self, work: &mut Work) {
        if let Some(serial) = work.serial.take() {
            self.serial.end(*serial);
        }
        if work.txn.raw() == 0 {
            return;
        }
        if let Some(list) = work.row_locks.take() {
            self.row_locks.release_all(list);
        }
        let tables = work.tables.iter().map(|table| table.table.id);
        self.table_locks.release_all(work.txn, tables);
        self.waits.released(work.txn);
        self.note_end(&work.tables);
    }

    /// Waits until `lsn` is as durable as `flush` asks for.
    pub(crate) fn wait_for(&self, lsn: Lsn, flush: FlushAtCommit) -> Result<()> {
        match flush {
            FlushAtCommit::Durable if planted!("commit.not_awaited") => {}
            FlushAtCommit::Durable => self.log.wait_durable(lsn)?,
            FlushAtCommit::Written => self.log.wait_written(lsn)?,
            // Rule D9: nobody syncs it any more.
            FlushAtCommit::Background => self.poison.check()?,
        }
        Ok(())
    }
}

/// Appends a record that must always find room. Returns its end.
pub(crate) fn append(log: &Log, length: usize, encode: impl FnOnce(&mut [u8])) -> Result<Lsn> {
    let mut reservation = log.reserve(length, Space::Spare)?;
    encode(reservation.bytes_mut());
    Ok(reservation.publish())
}

/// Every range also stands in its own ROLLBACK-TO record; END and PREPARE repeat them only while they are few.
fn few(voids: &[VoidRange]) -> &[VoidRange] {
    if voids.len() <= VOIDS_REPEATED_MAX {
        voids
    } else {
        &[]
    }
}

/// Adds a void range; ranges it swallows or touches become one, so the list stays short.
fn merge_void(voids: &mut Vec<VoidRange>, mut range: VoidRange) {
    while let Some(last) = voids.last().copied().filter(|last| last.to >= range.from) {
        range.from = range.from.min(last.from);
        voids.pop();
    }
    voids.push(range);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64) -> VoidRange {
        VoidRange {
            from: Lsn::new(from),
            to: Lsn::new(to),
        }
    }

    #[test]
    fn an_outer_rollback_swallows_the_inner_ranges() {
        let mut voids = Vec::new();
        for next in [range(10, 20), range(30, 40), range(50, 60), range(25, 70)] {
            merge_void(&mut voids, next);
        }
        assert_eq!(voids, [range(10, 20), range(25, 70)]);
    }
}
