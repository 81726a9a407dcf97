//! `Swept`: up to which cut a part of an index is known to have no entries of gone rows.
//!
//! Why it exists:    who keeps a set of gone rows may forget one when no part has an entry of it any more. Parts are asked,
//!                   not searched: each knows the number of the newest cut through that set whose rows are not in it.
//! Rules:            X36 a merge that covers the base gives its output the cut it began at, any other the least of its
//!                   sources; a part that begins empty has the cut of its beginning, and the least of what is copied to it.
//! After a crash:    0, which is always true.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Swept(AtomicU64);

impl Swept {
    /// The part has no entry of a row that was gone at this cut or before.
    pub fn cut(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Says so of a part that nobody else has yet.
    pub fn set(&self, cut: u64) {
        self.0.store(cut, Ordering::Release);
    }

    /// Entries were copied here from a part of that cut.
    pub fn lower(&self, cut: u64) {
        self.0.fetch_min(cut, Ordering::AcqRel);
    }
}
