//! Faults: what the disk is told to do wrong, and when.
//!
//! State: counters that are changed under the disk's latch.

/// One thing the disk does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th write from now (1 = the next) to files whose name begins so fails; half of its bytes are written.
    FailWrite {
        /// Beginning of file names; empty for all.
        prefix: String,
        /// Which write.
        nth: u64,
    },
    /// The n-th sync from now of files whose name begins so fails; what was pending stays uncertain for ever.
    FailSync {
        /// Beginning of file names; empty for all.
        prefix: String,
        /// Which sync.
        nth: u64,
    },
    /// The n-th read from now of files whose name begins so fails; later ones go well.
    FailRead {
        /// Beginning of file names; empty for all.
        prefix: String,
        /// Which read.
        nth: u64,
    },
    /// Syncs of files whose name begins so do nothing and report success. To prove that a test would catch a sync that
    /// the code forgot.
    SkipSync {
        /// Beginning of file names; empty for all.
        prefix: String,
    },
    /// Syncs of the directory do nothing and report success.
    SkipDirectorySync,
}

/// What a fault makes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Skipped,
}

/// All faults of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    active: Vec<Fault>,
}

impl Faults {
    pub(crate) fn plant(&mut self, fault: Fault) {
        self.active.push(fault);
    }

    pub(crate) fn of_write(&mut self, name: &str) -> Outcome {
        let due = self.count_down(|fault| match fault {
            Fault::FailWrite { prefix, nth } if name.starts_with(prefix.as_str()) => Some(nth),
            _ => None,
        });
        if due { Outcome::Failed } else { Outcome::Done }
    }

    pub(crate) fn of_read(&mut self, name: &str) -> Outcome {
        let due = self.count_down(|fault| match fault {
            Fault::FailRead { prefix, nth } if name.starts_with(prefix.as_str()) => Some(nth),
            _ => None,
        });
        if due { Outcome::Failed } else { Outcome::Done }
    }

    pub(crate) fn of_sync(&mut self, name: &str) -> Outcome {
        let skips =
            |fault: &Fault| matches!(fault, Fault::SkipSync { prefix } if name.starts_with(prefix.as_str()));
        if self.active.iter().any(skips) {
            return Outcome::Skipped;
        }
        let due = self.count_down(|fault| match fault {
            Fault::FailSync { prefix, nth } if name.starts_with(prefix.as_str()) => Some(nth),
            _ => None,
        });
        if due { Outcome::Failed } else { Outcome::Done }
    }

    pub(crate) fn of_directory_sync(&self) -> Outcome {
        if self.active.contains(&Fault::SkipDirectorySync) {
            Outcome::Skipped
        } else {
            Outcome::Done
        }
    }

    /// Counts every fault that `counter` selects down by one; true if one of them has come.
    fn count_down(&mut self, counter: impl Fn(&mut Fault) -> Option<&mut u64>) -> bool {
        let mut due = false;
        self.active.retain_mut(|fault| match counter(fault) {
            Some(nth) if *nth <= 1 => {
                due = true;
                false
            }
            Some(nth) => {
                *nth -= 1;
                true
            }
            None => true,
        });
        due
    }
}
