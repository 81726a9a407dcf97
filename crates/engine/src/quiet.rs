//! Quiet: parts of tables that were looked at and need no merge, so that no step looks at them again.
//!
//! Why it exists: a step would plan merges of all tables to find the one that needs something.
//! State: for each key and need the parts that were looked at, by their place in memory. They are held weakly: others stand in their
//! place once a table has changed, and none once it is dropped.
//! Rules: S57 (docs/storage.md).
//! Latches and I/O: none; the latch of whoever has it is held by whoever asks.

use crate::row_merge_plan::Need;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// See the module. `K` names what is merged, `T` is what it consists of.
#[derive(Debug)]
pub(crate) struct Quiet<K, T> {
    known: HashMap<(K, Need), Weak<T>>,
}

impl<K, T> Default for Quiet<K, T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash, T> Quiet<K, T> {
    /// These parts need nothing.
    pub(crate) fn note(&mut self, key: K, need: Need, parts: &Arc<T>) {
        self.known.insert((key, need), Arc::downgrade(parts));
    }

    /// True if these very parts were looked at. While they are known, no others come to stand where they stood.
    pub(crate) fn has(&self, key: K, need: Need, parts: &Arc<T>) -> bool {
        let known = self.known.get(&(key, need));
        known.is_some_and(|known| Weak::as_ptr(known) == Arc::as_ptr(parts))
    }

    /// Forgets parts that nobody has any more, and with them what was dropped (rule S57).
    pub(crate) fn forget_replaced(&mut self) {
        self.known.retain(|_, known| known.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_quiet_until_others_stand_in_their_place() {
        let (mut quiet, old) = (Quiet::default(), Arc::new(1));
        assert!(!quiet.has(7, Need::Due, &old));
        quiet.note(7, Need::Due, &old);
        assert!(quiet.has(7, Need::Due, &old));
        assert!(!quiet.has(7, Need::Useful, &old), "another need");
        assert!(!quiet.has(8, Need::Due, &old), "another key");
        assert!(!quiet.has(7, Need::Due, &Arc::new(1)), "others, though alike");
    }

    #[test]
    fn what_nobody_has_any_more_is_forgotten() {
        let (mut quiet, old, dropped) = (Quiet::default(), Arc::new(1), Arc::new(2));
        quiet.note(7, Need::Due, &old);
        quiet.note(8, Need::Due, &dropped);
        drop(dropped);
        quiet.forget_replaced();
        assert_eq!(quiet.known.len(), 1, "S57");
        assert!(quiet.has(7, Need::Due, &old), "S57: it is still there");
    }
}
