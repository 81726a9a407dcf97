//! Poison: a sticky "no more writes" with its reason.
//!
//! Why it exists: after a failed write or sync nobody can know what is on disk; going on would turn one bad sector
//! into lost commits. The first failure is kept, everybody after it gets it as the answer.

use parking_lot::Mutex;
use pbxt_base::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once, never cleared.
#[derive(Debug, Default)]
pub struct Poison {
    set: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Poison {
    /// Healthy.
    pub fn new() -> Self {
        Self::default()
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
        self.reason.lock().clone()
    }

    /// Poisons; only the first reason is kept.
    pub fn set(&self, reason: impl Into<String>) {
        let mut kept = self.reason.lock();
        if kept.is_none() {
            *kept = Some(reason.into());
        }
        self.set.store(true, Ordering::Release);
    }

    /// The error everybody gets.
    pub fn error(&self) -> Error {
        Error::Poisoned {
            reason: self.reason().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let poison = Poison::new();
        poison.check().expect("healthy");
        poison.set("sync of hot-1 failed");
        poison.set("later");
        assert!(
            poison
                .check()
                .expect_err("poisoned")
                .to_string()
                .contains("sync of hot-1 failed")
        );
    }
}
