//! Failures: why background work could not be done, told to whoever runs the database.
//!
//! Why it exists: background work answers to nobody. A merge over a damaged block is tried again after each checkpoint, a checkpoint every
//! second; without a word of that a database grows until its disk is full, and nobody knows why.
//! State: the reasons that were told, so many at most; whether the last checkpoint failed.
//! Rules: S65 (docs/storage.md). What poisons the database is told by whoever meets it (D9), and want of room by those who write.
//! Latches and I/O: its own latch, for a look-up.

use crate::database::Database;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use pbxt_base::Error as StorageError;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reasons that are told between two openings.
const REASONS_MAX: usize = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    told: Mutex<HashSet<String>>,
    checkpoints_fail: AtomicBool,
}

impl Failures {
    /// True for a reason that was not told yet and still may be.
    fn is_new(&self, reason: &str) -> bool {
        let mut told = self.told.lock();
        told.len() < REASONS_MAX && told.insert(reason.to_owned())
    }

    /// What is to be said after a checkpoint, of which the first one that fails and the first that does not count.
    fn after_checkpoint(&self, made: &Result<()>) -> Option<String> {
        let fails = made.is_err();
        if self.checkpoints_fail.swap(fails, Ordering::Relaxed) == fails {
            return None;
        }
        Some(match made {
            Ok(()) => "checkpoints are made again".into(),
            Err(error) => format!("a checkpoint failed and is tried again until one is made: {error}"),
        })
    }
}

impl Database {
    /// A step of background work failed, whoever took it (rule S65).
    pub(crate) fn tell_of_step(&self, error: &Error) {
        let is_told_elsewhere = matches!(
            error,
            Error::Storage(StorageError::NoSpace { .. }) | Error::Killed
        );
        if is_told_elsewhere || self.poison.check().is_err() {
            return;
        }
        let reason = format!("background work failed and is tried again now and then: {error}");
        if self.upkeep.failures.is_new(&reason) {
            self.tell_of_failure(&reason);
        }
    }

    /// A checkpoint that was due was made, or failed (rule S65).
    pub(crate) fn tell_of_checkpoint(&self, made: &Result<()>) {
        if self.poison.check().is_ok()
            && let Some(text) = self.upkeep.failures.after_checkpoint(made)
        {
            self.tell_of_failure(&text);
        }
    }

    fn tell_of_failure(&self, text: &str) {
        if let Some(observer) = &self.waits.observer {
            observer.failure(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_and_no_more_than_some_are() {
        let failures = Failures::default();
        assert!(failures.is_new("a") && !failures.is_new("a"), "S65: once");
        let told = (0..1000)
            .filter(|number| failures.is_new(&number.to_string()))
            .count();
        assert_eq!(told, REASONS_MAX - 1, "S65: no more than {REASONS_MAX} in all");
    }

    #[test]
    fn of_checkpoints_that_fail_in_a_row_the_first_is_told_and_their_end() {
        let failures = Failures::default();
        let failed = || Err(Error::Invalid("no more files".into()));
        assert_eq!(failures.after_checkpoint(&Ok(())), None);
        let told = failures.after_checkpoint(&failed()).expect("S65: the first");
        assert!(told.contains("no more files"), "{told}");
        assert_eq!(failures.after_checkpoint(&failed()), None, "S65: it is known");
        assert!(failures.after_checkpoint(&Ok(())).is_some(), "S65: they go on");
        assert!(failures.after_checkpoint(&failed()).is_some(), "another time");
    }
}
