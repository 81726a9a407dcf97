//! Player: one session and the transaction it is in, moved on by one small step at a time.
//!
//! Why it exists: begin, savepoint, statement failure and end of a transaction, as a host would have them.
//! Waiting: see `theatre`. A session that is told by whom it is kept (`LockTimeout`) undoes its statement and begins it anew later.
//! Errors: a duplicate key or write conflict fails a statement; any error that says so, and any that this file does not
//! know, ends the transaction.

use crate::client::Client;
use crate::history::mix::{Mix, Plan, Statement};
use crate::history::record::{Level, Moment, Op, Read, Record, TxnNo};
use crate::history::stage::{Stage, count};
use crate::history::statement::Running;
use pbxt::{Error, FlushAtCommit, Isolation, Result};
use pbxt_base::{Lsn, TxnId};

/// How often a statement begins anew before it gives up.
const TRIES_MAX: u32 = 30;

/// What became of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The session may be chosen again.
    Went,
    /// It waits for this transaction.
    Blocked(TxnId),
    /// This transaction ended, or undid something.
    Released(TxnId),
}

/// One session.
#[derive(Debug)]
pub(super) struct Player {
    pub client: Client,
    /// The engine's id of the transaction, also when the engine has rolled it back already.
    txn: TxnId,
    /// Level of the transaction.
    pub level: Level,
    pub live: Option<Live>,
}

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Live {
    number: TxnNo,
    plan: Plan,
    left: u64,
    savepoints: Vec<(Lsn, Moment)>,
    pub running: Option<Running>,
    tries: u32,
}

impl Player {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            txn: TxnId::new(0),
            level: Level::ALL[0],
            live: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.live.is_none()
    }

    /// The transaction it is in, as the record numbers it.
    pub(super) fn number(&self) -> Option<TxnNo> {
        self.live.as_ref().map(|live| live.number)
    }

    pub(super) fn begin(&mut self, stage: &Stage) -> Result<()> {
        let level = stage.level();
        let flush = match stage.below(10) {
            0 => FlushAtCommit::Durable,
            1 => FlushAtCommit::Written,
            _ => FlushAtCommit::Background,
        };
        let mut config = self.client.session.config();
        config.isolation = level.isolation;
        config.conflict_mode = level.conflict;
        config.lock_wait_timeout_ms = 0;
        config.flush = flush;
        self.client.session.configure(config);
        let plan = stage.draw(Mix::plan);
        self.level = level;
        self.txn = TxnId::new(0);
        self.live = Some(Live {
            number: stage.note(|record| record.begin(level)),
            plan,
            left: plan.statements,
            savepoints: Vec::new(),
            running: None,
            tries: 0,
        });
        if plan.early && level.isolation != Isolation::ReadCommitted {
            self.client.session.begin_statement()?;
            self.take_snapshot(stage);
            self.client.session.end_statement();
        }
        Ok(())
    }

    /// One small step of the transaction.
    pub(super) fn step(&mut self, stage: &Stage) -> Result<Step> {
        self.note_id();
        let step = self.try_step(stage);
        self.note_id();
        match step {
            Err(error) => self.fail(stage, error),
            step => step,
        }
    }

    fn note_id(&mut self) {
        let txn = self.client.session.txn();
        if txn.raw() != 0 {
            self.txn = txn;
        }
    }

    fn try_step(&mut self, stage: &Stage) -> Result<Step> {
        let Some(live) = &mut self.live else {
            return self.begin(stage).map(|()| Step::Went);
        };
        if live.running.is_none() {
            if live.left == 0 {
                return self.end(stage);
            }
            live.left -= 1;
            live.tries = 0;
            let statement = stage.draw(|rng| stage.mix.statement(rng, live.plan));
            match statement {
                Statement::Savepoint => return self.savepoint(stage),
                Statement::RollBackTo => return self.roll_back_to(stage),
                _ => live.running = Some(Running::new(statement, stage)),
            }
        }
        if self.advance(stage)? {
            self.finish(stage);
        }
        Ok(Step::Went)
    }

    /// Ends the transaction; now and then in two phases, which others see between.
    fn end(&mut self, stage: &Stage) -> Result<Step> {
        let Some(live) = &mut self.live else {
            return Ok(Step::Went);
        };
        let session = &mut self.client.session;
        if live.plan.prepares && !session.is_prepared() {
            session.prepare(format!("x{}", live.number).as_bytes())?;
            return Ok(Step::Went);
        }
        if !live.plan.commits {
            return self.abort(stage);
        }
        if session.is_prepared() && stage.chance(50) {
            session.commit_ordered()?;
        }
        session.commit()?;
        let number = live.number;
        stage.note(|record| record.commit(number));
        self.live = None;
        Ok(Step::Released(self.txn))
    }

    /// Rolls the transaction back.
    pub(super) fn abort(&mut self, stage: &Stage) -> Result<Step> {
        self.note_id();
        self.client.session.rollback()?;
        if let Some(live) = self.live.take() {
            stage.note(|record| record.abort(live.number));
        }
        Ok(Step::Released(self.txn))
    }

    fn savepoint(&mut self, stage: &Stage) -> Result<Step> {
        let Some(live) = &mut self.live else {
            return Ok(Step::Went);
        };
        let lsn = self.client.session.savepoint()?;
        let now = stage.note(Record::tick);
        stage.note(|record| record.txns[live.number].ops.push(Op::Savepoint(now)));
        // The log has not grown: it is the same savepoint.
        if live.savepoints.last().is_none_or(|(newest, _)| *newest < lsn) {
            live.savepoints.push((lsn, now));
        }
        Ok(Step::Went)
    }

    fn roll_back_to(&mut self, stage: &Stage) -> Result<Step> {
        let Some(live) = &mut self.live else {
            return Ok(Step::Went);
        };
        if live.savepoints.is_empty() {
            return Ok(Step::Went);
        }
        let place = stage.below(live.savepoints.len() as u64) as usize;
        live.savepoints.truncate(place + 1);
        let (lsn, moment) = live.savepoints[place];
        self.client.session.rollback_to(lsn)?;
        stage.note(|record| record.roll_back_to(live.number, moment));
        Ok(Step::Released(self.txn))
    }

    /// The running statement is done.
    fn finish(&mut self, stage: &Stage) {
        self.client.session.end_statement();
        let Some(live) = &mut self.live else { return };
        let Some(running) = live.running.take() else {
            return;
        };
        let Statement::Rows { predicate, .. } = running.statement else {
            return;
        };
        let read = Read {
            predicate,
            how: running.how,
            began: running.began,
            ended: stage.note(Record::tick),
            seen: running.seen,
        };
        stage.note(|record| record.read(live.number, read));
    }

    /// A step failed: the statement is undone, or the whole transaction.
    fn fail(&mut self, stage: &Stage, error: Error) -> Result<Step> {
        let Some(live) = &mut self.live else {
            return Err(error);
        };
        if is_fatal(&error) {
            return Err(error);
        }
        let running = live.running.take();
        let (Some(running), Some(why)) = (running, why_undone(&error)) else {
            return self.refuse(stage);
        };
        if self.client.session.rollback_statement().is_err() {
            return self.refuse(stage);
        }
        if let Error::LockTimeout { holder, .. } = error
            && live.tries < TRIES_MAX
            && !running.statement.fails_if_busy()
        {
            live.tries += 1;
            stage.note(|record| record.wait(live.number, running.began));
            live.running = Some(Running::new(running.statement, stage));
            return Ok(Step::Blocked(holder.txn));
        }
        stage.note(|record| record.fail(live.number, running.began, why));
        count(&stage.tally.failed);
        if matches!(error, Error::WriteConflict { .. }) && stage.chance(50) {
            return self.abort(stage);
        }
        Ok(Step::Released(self.txn))
    }

    /// The engine does not go on with this transaction: a deadlock, or no serial order has it.
    fn refuse(&mut self, stage: &Stage) -> Result<Step> {
        let now = stage.note(Record::tick);
        let number = self.number().unwrap_or_default();
        let ended = Op::Failed(now, "the engine ends the transaction");
        stage.note(|record| record.txns[number].ops.push(ended));
        count(&stage.tally.refused);
        self.abort(stage)
    }

    pub(super) fn take_snapshot(&mut self, stage: &Stage) -> Moment {
        let number = self.number().unwrap_or_default();
        self.client.session.snapshot();
        stage.note(|record| record.snapshot(number))
    }
}

/// Why a statement alone was undone; none if the transaction cannot go on.
fn why_undone(error: &Error) -> Option<&'static str> {
    match error {
        Error::LockTimeout { .. } => Some("another transaction has what it needs"),
        Error::DuplicateKey { .. } => Some("duplicate key"),
        Error::WriteConflict { .. } => Some("write conflict"),
        Error::RowNotFound { .. } => Some("the row is not there"),
        _ => None,
    }
}

/// Not an answer that any schedule may get.
fn is_fatal(error: &Error) -> bool {
    matches!(
        error,
        Error::Storage(_)
            | Error::Row(_)
            | Error::Killed
            | Error::NoSuchTable { .. }
            | Error::TableExists { .. }
            | Error::DefinitionChanged { .. }
            | Error::KeyTooLarge { .. }
            | Error::KeyTooSmall { .. }
            | Error::Invalid(_)
            | Error::NoSuchXid
            | Error::SnapshotTooOld { .. }
    )
}
