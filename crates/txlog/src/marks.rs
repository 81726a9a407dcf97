//! Marks: how far the log is written and durable, and where threads wait until it is.
//!
//! Why it exists:    of those who wait, some are served by the flush that is running and the others by the next one. They sleep
//!                   apart, so the end of a flush wakes whom it has served, all at once, and one more, who runs the next. Nobody
//!                   wakes to find that it has to sleep again.
//! State:            two marks that only grow, `written` and `durable`, `durable <= written`; flushes are numbered, and `begun` says
//!                   which was the last; `covers` says how far it will have brought each mark, and decides only who sleeps where.
//! Rules:            D1 (waiters are released by the mark, never by hope), D37 (who sleeps where, and who wakes whom).
//!                   PS6 (only who sleeps tells instruments of it).
//! Latches and I/O:  none. Whose turn it is to flush, and the flush, are the caller's.

use crate::bell::Bell;
use crate::log::Goal;
use crate::sync::{AtomicU64, Ordering};
use pbxt_io::{WaitKind, while_waiting};

/// See the module.
#[derive(Debug)]
pub(crate) struct Marks {
    reached: [AtomicU64; 2],
    covers: [AtomicU64; 2],
    begun: AtomicU64,
    /// Where those sleep whom the even, and the odd, flushes serve.
    bells: [Bell; 2],
}

impl Marks {
    pub(crate) fn starting_at(lsn: u64) -> Marks {
        let both = || [AtomicU64::new(lsn), AtomicU64::new(lsn)];
        Marks {
            reached: both(),
            covers: both(),
            begun: AtomicU64::new(0),
            bells: [Bell::default(), Bell::default()],
        }
    }

    pub(crate) fn get(&self, goal: Goal) -> u64 {
        self.reached[goal as usize].load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, lsn: u64) {
        self.reached[Goal::Written as usize].store(lsn, Ordering::Release);
    }

    /// Everything written so far is durable.
    pub(crate) fn set_durable(&self, lsn: u64) {
        self.reached[Goal::Durable as usize].store(lsn, Ordering::Release);
    }

    /// A flush begins, whose turn the caller has. Its number.
    pub(crate) fn begin(&self) -> u64 {
        // Only who has the turn comes here.
        let round = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(round, Ordering::SeqCst);
        round
    }

    /// The flush under way brings everything below `lsn` to `goal`. Who does not know it yet sleeps with those of the next one.
    pub(crate) fn set_covers(&self, goal: Goal, lsn: u64) {
        self.covers[Goal::Written as usize].store(lsn, Ordering::Release);
        if goal == Goal::Durable {
            self.covers[Goal::Durable as usize].store(lsn, Ordering::Release);
        }
    }

    /// That flush is over, and the turn is given back: whom it served goes on, and one of the others has the next turn.
    pub(crate) fn end(&self, round: u64) {
        // First: the medium idles until that thread runs, which is behind those woken before it.
        self.bell(round + 1).ring_one();
        self.bell(round).ring_all();
    }

    /// True if others wait for the log.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bells.iter().any(Bell::has_sleepers)
    }

    /// All who wait look again: the turn was taken without a flush, or nothing will be written any more.
    pub(crate) fn wake_all(&self) {
        self.bells.iter().for_each(Bell::ring_all);
    }

    /// Waits until `is_done`, for which everything below `lsn` has to reach `goal`. `turn` runs a flush, or says by `None` that somebody
    /// else has the turn.
    pub(crate) fn wait_until<E>(
        &self,
        lsn: u64,
        goal: Goal,
        is_done: impl Fn() -> bool,
        mut turn: impl FnMut() -> Option<Result<(), E>>,
    ) -> Result<(), E> {
        while !is_done() {
            let begun = self.begun.load(Ordering::SeqCst);
            let is_covered = self.covers[goal as usize].load(Ordering::Acquire) >= lsn;
            let round = if is_covered { begun } else { begun + 1 };
            let bell = self.bell(round);
            let heard = bell.heard();
            // Else the flush it would wait for may have rung before that look.
            if self.begun.load(Ordering::SeqCst) != begun {
                continue;
            }
            match turn() {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    self.wake_all();
                    return Err(error);
                }
                None if is_done() => break,
                None => {
                    let all = while_waiting(WaitKind::Log, || bell.sleep(heard));
                    if !all && is_done() {
                        // It was woken to run a flush and needs none; somebody else may.
                        bell.ring_one();
                    }
                }
            }
        }
        Ok(())
    }

    fn bell(&self, round: u64) -> &Bell {
        &self.bells[(round % 2) as usize]
    }
}
