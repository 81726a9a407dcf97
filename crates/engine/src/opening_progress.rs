//! Opening progress: how far an opening is that takes long.
//!
//! Why it exists: who starts a server after a crash and waits should see that something goes on, what, and how much of it is left.
//! Rules: D40. An opening that is quick says nothing.
//! Latches and I/O: none; the host writes the lines. All threads of recovery may tell; of those that come together one does.

use crate::waits::WaitObserver;
use pbxt_io::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds before the first line, and between two.
const PATIENCE_MILLIS: u64 = 5000;

/// See the module.
#[derive(Debug)]
pub(crate) struct OpeningProgress {
    clock: Arc<dyn Clock>,
    observer: Option<Arc<dyn WaitObserver>>,
    /// Milliseconds of the clock.
    began: u64,
    /// When the next line is due, by the clock.
    due: AtomicU64,
}

/// Work of the opening that is done piece by piece, by many threads.
#[derive(Debug)]
pub(crate) struct OpeningPieces<'a> {
    progress: &'a OpeningProgress,
    what: &'static str,
    total: usize,
    done: AtomicU64,
}

impl OpeningProgress {
    /// Of an opening that begins now.
    pub(crate) fn new(clock: &Arc<dyn Clock>, observer: Option<&Arc<dyn WaitObserver>>) -> Self {
        let began = clock.now_millis();
        Self {
            clock: Arc::clone(clock),
            observer: observer.cloned(),
            began,
            due: AtomicU64::new(began + PATIENCE_MILLIS),
        }
    }

    /// Milliseconds of the clock at which the opening began.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// Tells what is being done and how far it is, if a line is due. Asks for the time, so it is not for every
    /// row.
    pub(crate) fn tell(&self, how_far: impl FnOnce() -> String) {
        let Some(observer) = &self.observer else { return };
        // Relaxed: nothing but the line depends on who tells it.
        let (now, due) = (self.clock.now_millis(), self.due.load(Ordering::Relaxed));
        if now < due {
            return;
        }
        let next = now + PATIENCE_MILLIS;
        let taken = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            observer.opening(&format!("the database is being opened: {}", how_far()));
        }
    }

    /// Progress of `total` pieces of `what`.
    pub(crate) fn pieces(&self, what: &'static str, total: usize) -> OpeningPieces<'_> {
        OpeningPieces {
            progress: self,
            what,
            total,
            done: AtomicU64::new(0),
        }
    }
}

impl OpeningPieces<'_> {
    /// One more piece is done.
    pub(crate) fn done(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.progress
            .tell(|| format!("{}, {done} of {} segments so far", self.what, self.total));
    }
}
