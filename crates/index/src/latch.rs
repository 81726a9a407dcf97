//! Optimistic latches: a version word that readers compare and writers step.
//!
//! Why it exists:    a reader of a latched tree writes to the latch word of every node on its path, and the root's cache
//!                   line then travels between all cores for each look-up. Here a reader only reads: the version
//!                   before, the content, the version after (optimistic lock coupling: Leis, Haubenschild, Neumann, "The
//!                   ART of Practical Synchronization", DaMoN 2016, and IEEE Data Eng. Bull. 42(1), 2019).
//! Format / state:   bit 0 LATCHED, bit 1 OBSOLETE (the node was replaced; it never gets a version again), rest counts
//!                   changes. Free -> latched -> free with a greater count, or -> obsolete.
//! Rules:            X4 content changes only while LATCHED stands, and with release stores; content is read with acquire
//!                   loads and believed only if the version is the same afterwards.
//! Latches and I/O:  a holder runs a few hundred instructions and takes further latches only parent before child and
//!                   left before right, and never waits for the second: it gives up and starts anew.

use crate::sync::{AtomicU64, Ordering, pause};

const LATCHED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// What was read does not fit together, because a writer was at work: begin again from the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restart;

/// State of a latch at a moment when nobody held it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

/// The version word of a node, or of the tree's root pointer.
#[repr(transparent)]
pub(crate) struct Latch(AtomicU64);

impl Latch {
    pub(crate) fn new() -> Latch {
        Latch(AtomicU64::new(0))
    }

    /// The version now; waits while somebody holds the latch. `Restart` if the node was replaced.
    #[inline]
    pub(crate) fn read(&self) -> Result<Version, Restart> {
        let word = self.0.load(Ordering::Acquire);
        if word & (LATCHED | OBSOLETE) == 0 {
            Ok(Version(word))
        } else {
            self.read_slowly()
        }
    }

    #[cold]
    fn read_slowly(&self) -> Result<Version, Restart> {
        for round in 0.. {
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                break;
            }
            if word & LATCHED == 0 {
                return Ok(Version(word));
            }
            pause(round);
        }
        Err(Restart)
    }

    /// Says whether everything read since `version` was taken fits together.
    ///
    /// Relaxed is enough: had one of those acquire loads seen a store of a later holder, then that holder's latching
    /// would have happened before this load, which so could not see the old version (X4).
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> Result<(), Restart> {
        if self.0.load(Ordering::Relaxed) == version.0 {
            Ok(())
        } else {
            Err(Restart)
        }
    }

    /// Takes the latch if nothing has changed since `version`. Never waits.
    #[inline]
    pub(crate) fn upgrade(&self, version: Version) -> Result<Held<'_>, Restart> {
        let latched = version.0 | LATCHED;
        match self
            .0
            .compare_exchange(version.0, latched, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Ok(Held {
                latch: self,
                after: version.0 + STEP,
            }),
            Err(_) => Err(Restart),
        }
    }

    /// Takes the latch if it is free, whatever its version. Never waits.
    pub(crate) fn try_hold(&self) -> Result<Held<'_>, Restart> {
        let word = self.0.load(Ordering::Acquire);
        if word & (LATCHED | OBSOLETE) == 0 {
            self.upgrade(Version(word))
        } else {
            Err(Restart)
        }
    }
}

/// A latch in our hands. Dropping it lets readers in again, with a new version.
pub(crate) struct Held<'a> {
    latch: &'a Latch,
    after: u64,
}

impl Held<'_> {
    /// Lets go of a node that was replaced: whoever still reads it must start anew.
    pub(crate) fn retire(mut self) {
        self.after |= OBSOLETE;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.latch.0.store(self.after, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn version_is_refused_after_a_change_and_after_retirement() {
        let latch = Latch::new();
        let before = latch.read().unwrap();
        latch.validate(before).unwrap();
        let held = latch.upgrade(before).unwrap();
        assert_eq!(latch.validate(before), Err(Restart));
        assert!(latch.try_hold().is_err());
        drop(held);
        assert!(latch.upgrade(before).is_err());
        let after = latch.read().unwrap();
        assert_ne!(after, before);
        latch.upgrade(after).unwrap().retire();
        assert_eq!(latch.read(), Err(Restart));
        assert!(latch.try_hold().is_err());
    }
}
