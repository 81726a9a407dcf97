//! Stripe latches: make "nobody has this key" and "now I have it" one step for unique indexes.
//!
//! Why it exists:    two inserts of one key that probe at the same time both find nothing. One latch per key would need a
//!                   table of latches; a fixed set of them, chosen by the hash of the key, costs 16 KiB per database.
//! Format / state:   256 latches, one cache line each. `docs/decisions/0002-unique-claims-under-stripe-latches.md`.
//! Rules:            X9 a claim is inserted under the stripe latch of its key, after the group of the key was found
//!                   unchanged since it was judged; X10 nobody holds two stripes, and nobody waits for a lock, for log
//!                   space or for I/O while holding one.
//! Latches and I/O:  rank: above node latches (an insert happens below it), below everything else. No I/O.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use pbxt_base::IndexId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRIPES: usize = 256;

/// Keeps a stripe on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Line(Mutex<()>);

/// The stripe latches of a database; one set serves all its unique indexes.
pub struct StripeLatches {
    lines: Box<[Line]>,
}

/// A stripe in our hands; dropping it lets the next claim in.
#[must_use = "a claim is protected only while the stripe is held"]
#[derive(Debug)]
pub struct StripeGuard<'a> {
    _held: MutexGuard<'a, ()>,
}

impl StripeLatches {
    /// All stripes free.
    pub fn new() -> StripeLatches {
        StripeLatches {
            lines: (0..STRIPES).map(|_| Line::default()).collect(),
        }
    }

    /// Waits for the stripe of a key; its holders only compare and insert, so that is short (X10).
    pub fn hold(&self, index: IndexId, key: &[u8]) -> StripeGuard<'_> {
        let hash = xxh3_64_with_seed(key, u64::from(index.raw()));
        StripeGuard {
            _held: self.lines[hash as usize % STRIPES].0.lock(),
        }
    }
}

impl Default for StripeLatches {
    fn default() -> StripeLatches {
        StripeLatches::new()
    }
}

impl fmt::Debug for StripeLatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripeLatches")
            .field("stripes", &STRIPES)
            .finish_non_exhaustive()
    }
}
