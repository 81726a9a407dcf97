//! Group commit: many threads wait for the log, one of them writes it for all.
//!
//! Why it exists:    handing every commit to a flusher thread costs two thread switches; letting every thread sync costs a
//!                   sync each. So whoever waits and finds no flush running runs it; the others sleep, and the end of a
//!                   flush lets one of the unsatisfied run the next. Greedy: no delay, and while one flush is in
//!                   flight the next batch fills. In a crowd the one whose turn it is lets those run first who are ready
//!                   to: where processors are scarce, a flush for seven costs as much as one for ten.
//! Rules:            D1 (waiters are released by the mark, never by hope), D9 (an error reaches every waiter), D37 (`marks`).
//!                   PS6 (only who sleeps tells instruments of it).
//! Latches and I/O:  the flush latch is held across writes and syncs - the one latch of this crate that is. Who waits for a mark
//!                   only tries it.

use crate::core::Core;
use crate::flush::Flusher;
use crate::log::Goal;
use parking_lot::MutexGuard;
use pbxt_base::{Lsn, PoisonCause, Result};
use pbxt_io::{WaitKind, while_waiting};

/// The flush latch, which on its way out always wakes others: after success, error and panic alike.
struct Turn<'a> {
    core: &'a Core,
    flusher: Option<MutexGuard<'a, Flusher>>,
    round: u64,
}

impl<'a> Turn<'a> {
    fn run(core: &'a Core, flusher: MutexGuard<'a, Flusher>, goal: Goal) -> Result<()> {
        let mut turn = Turn {
            core,
            flusher: Some(flusher),
            round: core.marks.begin(),
        };
        match &mut turn.flusher {
            Some(flusher) => core.flush(flusher, goal),
            None => Ok(()),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "a thread panicked while it wrote the transaction log";
            self.core.fail(PoisonCause::Panic, reason);
        }
        // Whoever is woken tries the latch at once.
        drop(self.flusher.take());
        self.core.marks.end(self.round);
        if self.core.check_writable().is_err() {
            self.core.marks.wake_all();
        }
    }
}

impl Core {
    /// Waits until everything below `lsn` has reached `goal`, running the flush if nobody does.
    pub(crate) fn wait_for(&self, lsn: Lsn, goal: Goal) -> Result<()> {
        let lsn = lsn.raw();
        self.run_until(lsn, goal, || self.marks.get(goal) >= lsn)
    }

    /// Waits until the flusher has written something behind `before`.
    pub(crate) fn wait_for_backlog(&self, before: u64) -> Result<()> {
        crate::stats::count(&self.counters.row_waits, 1);
        self.wake_worker();
        let is_done = || self.marks.get(Goal::Written) > before;
        self.run_until(before + 1, Goal::Written, is_done)
    }

    fn run_until(&self, lsn: u64, goal: Goal, is_done: impl Fn() -> bool) -> Result<()> {
        self.marks
            .wait_until(lsn, goal, &is_done, || self.try_turn(goal, &is_done))
    }

    /// Runs a flush if it is needed and nobody else does: `None`.
    fn try_turn(&self, goal: Goal, is_done: impl Fn() -> bool) -> Option<Result<()>> {
        if let Err(error) = self.check_writable() {
            return Some(Err(error));
        }
        let flusher = self.flusher.try_lock()?;
        if self.marks.is_crowded() {
            // Those just served may have their next commit ready before this flush is worth its price.
            std::thread::yield_now();
        }
        if is_done() {
            drop(flusher);
            self.marks.wake_all();
            return Some(Ok(()));
        }
        Some(Turn::run(self, flusher, goal))
    }

    /// Runs one flush now, waiting for a running one to end first.
    pub(crate) fn flush_once(&self, goal: Goal) -> Result<()> {
        self.check_writable()?;
        let flusher = match self.flusher.try_lock() {
            Some(flusher) => flusher,
            None => while_waiting(WaitKind::Log, || self.flusher.lock()),
        };
        Turn::run(self, flusher, goal)
    }
}
