//! Group commit: many threads wait for the log, one of them writes it for all.
//!
//! Why it exists:    handing every commit to a flusher thread costs two thread switches; letting every thread sync costs a
//!                   sync each. So whoever waits and finds no flush running runs it; the others sleep, and the end of a
//!                   flush lets one of the unsatisfied run the next. Greedy: no delay, and while one flush is in
//!                   flight the next batch fills.
//! State:            two marks that only grow, `written` and `durable`; `durable <= written`.
//! Rules:            D1 (waiters are released by the mark, never by hope), D9 (an error reaches every waiter).
//!                   PS6 (only who sleeps tells instruments of it).
//! Latches and I/O:  the flush latch is held across writes and syncs - the one latch of this crate that is, and only
//!                   `try_lock` is used while the waiting latch is held. The waiting latch is held for moments; instruments,
//!                   if there are any, are told under it.

use crate::core::Core;
use crate::flush::Flusher;
use crate::log::Goal;
use parking_lot::{Condvar, Mutex, MutexGuard};
use pbxt_base::{Lsn, Result};
use pbxt_io::{WaitKind, while_waiting};
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks, and the place where threads wait for them.
#[derive(Debug)]
pub(crate) struct Marks {
    written: AtomicU64,
    durable: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Marks {
    pub(crate) fn starting_at(lsn: u64) -> Marks {
        let (written, durable) = (AtomicU64::new(lsn), AtomicU64::new(lsn));
        Marks {
            written,
            durable,
            waiting: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn get(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Written => self.written.load(Ordering::Acquire),
            Goal::Durable => self.durable.load(Ordering::Acquire),
        }
    }

    pub(crate) fn set_written(&self, lsn: u64) {
        self.written.store(lsn, Ordering::Release);
    }

    /// Everything written so far is durable.
    pub(crate) fn set_durable(&self, lsn: u64) {
        self.durable.store(lsn, Ordering::Release);
    }

    /// Wakes all who wait. They hold the waiting latch from their last look at the marks until they sleep, so a change
    /// made before this call is seen by each of them.
    pub(crate) fn wake_all(&self) {
        drop(self.waiting.lock());
        self.changed.notify_all();
    }
}

/// The flush latch, which on its way out always wakes the others: after success, error and panic alike.
struct Turn<'a> {
    core: &'a Core,
    flusher: Option<MutexGuard<'a, Flusher>>,
}

impl<'a> Turn<'a> {
    fn run(core: &'a Core, flusher: MutexGuard<'a, Flusher>, goal: Goal) -> Result<()> {
        let mut turn = Turn {
            core,
            flusher: Some(flusher),
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
            self.core
                .fail("a thread panicked while it wrote the transaction log");
        }
        drop(self.flusher.take());
        self.core.marks.wake_all();
    }
}

impl Core {
    /// Waits until everything below `lsn` has reached `goal`, running the flush if nobody does.
    pub(crate) fn wait_for(&self, lsn: Lsn, goal: Goal) -> Result<()> {
        self.run_until(goal, || self.marks.get(goal) >= lsn.raw())
    }

    /// Waits until the flusher has written something behind `before`.
    pub(crate) fn wait_for_backlog(&self, before: u64) -> Result<()> {
        crate::stats::count(&self.counters.row_waits, 1);
        self.wake_worker();
        self.run_until(Goal::Written, || self.marks.get(Goal::Written) > before)
    }

    fn run_until(&self, goal: Goal, done: impl Fn() -> bool) -> Result<()> {
        while !done() {
            let mut waiting = self.marks.waiting.lock();
            if done() {
                break;
            }
            self.check_writable()?;
            if let Some(flusher) = self.flusher.try_lock() {
                drop(waiting);
                if done() {
                    drop(flusher);
                    self.marks.wake_all();
                    break;
                }
                Turn::run(self, flusher, goal)?;
            } else {
                while_waiting(WaitKind::Log, || self.marks.changed.wait(&mut waiting));
            }
        }
        Ok(())
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
