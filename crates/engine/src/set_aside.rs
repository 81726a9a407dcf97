//! Set aside: merges that failed for reasons of their own, and so keep no other from its turn.
//!
//! Why it exists: over a damaged block the same merge fails again and again. Merges are planned in the order of the catalog, several
//! for one step: what stands behind the one that fails would never be merged.
//! State: for each that failed, which checkpoint was the newest. Behind another checkpoint it has a turn again, alone and after all others,
//! until it ends well: that its table has got another shape meanwhile says nothing about the block.
//! Rules: S53, S57 (docs/storage.md).
//! Latches and I/O: none; the latch of whoever has it is held by whoever asks.

use crate::error::Error;
use pbxt_base::{Error as StorageError, Lsn};
use std::collections::HashMap;
use std::hash::Hash;

/// When a piece of work may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It did not fail when it was done last.
    InLine,
    /// It failed before the newest checkpoint: when nothing else is due, and with no other.
    Alone,
    /// It failed since.
    NotYet,
}

/// See the module. `K` names what is merged.
#[derive(Debug)]
pub(crate) struct SetAside<K> {
    failed: HashMap<K, Lsn>,
}

impl<K> Default for SetAside<K> {
    fn default() -> Self {
        Self {
            failed: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash> SetAside<K> {
    /// It failed; the newest checkpoint began at `start`. Want of space is nobody's own reason, nor is that it was told to end.
    pub(crate) fn note(&mut self, key: K, start: Lsn, error: &Error) {
        if !matches!(
            error,
            Error::Storage(StorageError::NoSpace { .. }) | Error::Killed
        ) {
            self.failed.insert(key, start);
        }
    }

    /// Forgets what is not there any more (rule S57).
    pub(crate) fn keep(&mut self, is_there: impl Fn(&K) -> bool) {
        self.failed.retain(|key, _| is_there(key));
    }

    /// It ended well.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// When it may be done.
    pub(crate) fn turn(&self, key: &K, start: Lsn) -> Turn {
        match self.failed.get(key) {
            None => Turn::InLine,
            Some(since) if *since == start => Turn::NotYet,
            Some(_) => Turn::Alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_waits_for_a_checkpoint_and_then_goes_alone() {
        let mut aside = SetAside::default();
        let damaged = Error::Invalid("damaged".into());
        let (old, new) = (Lsn::new(100), Lsn::new(200));
        assert_eq!(aside.turn(&7, old), Turn::InLine);
        aside.note(7, old, &damaged);
        assert_eq!(aside.turn(&7, old), Turn::NotYet, "S53");
        assert_eq!(aside.turn(&7, new), Turn::Alone);
        assert_eq!(aside.turn(&8, old), Turn::InLine);
        aside.note(7, new, &damaged);
        assert_eq!(aside.turn(&7, new), Turn::NotYet, "it failed again");
        aside.forget(&7);
        assert_eq!(aside.turn(&7, new), Turn::InLine, "it ended well");
        aside.note(5, new, &damaged);
        aside.note(6, new, &damaged);
        aside.keep(|key| *key == 6);
        assert_eq!(aside.turn(&5, new), Turn::InLine, "S57: it was dropped");
        assert_eq!(aside.turn(&6, new), Turn::NotYet);
        let full: Error = StorageError::NoSpace {
            what: "a file".into(),
        }
        .into();
        aside.note(9, old, &full);
        assert_eq!(
            aside.turn(&9, old),
            Turn::InLine,
            "a full disk is not its own reason"
        );
        aside.note(9, old, &Error::Killed);
        assert_eq!(aside.turn(&9, old), Turn::InLine, "OP4: nor is a kill");
    }
}
