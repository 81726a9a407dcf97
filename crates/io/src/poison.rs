//! Poison: a sticky "no more writes" with its reason.
//!
//! Why it exists: after a failed write or sync nobody can know what is on disk; going on would turn one bad sector
//! into lost commits. A thread that panicked has left something half done. The first failure is kept, everybody after it gets it as the
//! answer.
//! Rules: D9 the first failure is told once to whoever watches.
//! Latches and I/O: one, for the look at the reason; whoever watches is called without it, by the thread that met the failure.

use parking_lot::Mutex;
use pbxt_base::{Error, PoisonCause, Result};
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once, never cleared.
#[derive(Debug, Default)]
pub struct Poison {
    set: AtomicBool,
    first: Mutex<First>,
}

/// Who is to hear of the first failure.
type Watcher = Box<dyn FnOnce(&Error) + Send>;

/// The first failure, and who is to hear of it.
#[derive(Default)]
struct First {
    failure: Option<(PoisonCause, String)>,
    watcher: Option<Watcher>,
}

impl Debug for First {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.failure.fmt(out)
    }
}

impl Poison {
    /// Healthy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `watcher` with the error everybody gets when the first failure comes, at once if it has come.
    pub fn watch(&self, watcher: impl FnOnce(&Error) + Send + 'static) {
        let mut first = self.first.lock();
        if first.failure.is_none() {
            first.watcher = Some(Box::new(watcher));
            return;
        }
        drop(first);
        watcher(&self.error());
    }

    /// Fails with the first reason if poisoned.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.set.load(Ordering::Acquire) {
            Err(self.error())
        } else {
            Ok(())
        }
    }

    /// True if poisoned.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// The reason, if poisoned.
    pub fn reason(&self) -> Option<String> {
        let first = self.first.lock();
        first.failure.as_ref().map(|(_, reason)| reason.clone())
    }

    /// Poisons; only the first reason is kept.
    pub fn set(&self, cause: PoisonCause, reason: impl Into<String>) {
        let mut first = self.first.lock();
        if first.failure.is_none() {
            first.failure = Some((cause, reason.into()));
        }
        self.set.store(true, Ordering::Release);
        let watcher = first.watcher.take();
        drop(first);
        if let Some(watcher) = watcher {
            watcher(&self.error());
        }
    }

    /// The error everybody gets.
    pub fn error(&self) -> Error {
        let failure = self.first.lock().failure.clone();
        let (cause, reason) = failure.unwrap_or((PoisonCause::Disk, String::new()));
        Error::Poisoned { cause, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_first_reason_stays() {
        let poison = Poison::new();
        poison.check().expect("healthy");
        poison.set(PoisonCause::Disk, "sync of hot-1 failed");
        poison.set(PoisonCause::Panic, "later");
        let sentence = "the database is read-only since a disk failure (sync of hot-1 failed): check the disk, then restart";
        assert_eq!(poison.check().expect_err("poisoned").to_string(), sentence);
    }

    #[test]
    fn the_first_failure_is_told_once_to_who_watches_before_or_behind_it() {
        for is_early in [true, false] {
            let (poison, told) = (Poison::new(), Arc::<Mutex<Vec<String>>>::default());
            let heard = Arc::clone(&told);
            let watcher = move |error: &Error| heard.lock().push(error.to_string());
            if is_early {
                poison.watch(watcher);
                assert_eq!(told.lock().len(), 0);
                poison.set(PoisonCause::Panic, "first");
            } else {
                poison.set(PoisonCause::Panic, "first");
                poison.watch(watcher);
            }
            poison.set(PoisonCause::Disk, "second");
            let told = told.lock();
            assert_eq!(told.len(), 1, "D9: {told:?}");
            assert!(told[0].contains("internal error (first)"), "D9: {told:?}");
        }
    }
}
