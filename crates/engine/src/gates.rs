//! Gates: the session of each transaction that has an id.
//!
//! Why it exists: who meets a transaction asks for its session: to tell the host, to name a connection, to choose a victim. Every
//! transaction that writes comes and goes here, so it is many latches, and a number is its own hash.
//! State: a view of the session from the first write of a transaction until it ends or is left to others.
//! Latches and I/O: one latch of many, held for a moment; never two of them.

use crate::latch::CountedLatch;
use crate::who::SessionView;
use pbxt_base::TxnId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// More than there are processors that meet here; neighbours in time have different ones.
const SHARDS: usize = 64;

/// Transaction ids count up and come from nobody outside, so they need no hash that is hard to guess.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    /// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
}

type Shard = HashMap<TxnId, SessionView, BuildHasherDefault<Spread>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gates {
    shards: [CountedLatch<Shard>; SHARDS],
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| CountedLatch::default()),
        }
    }
}

impl Gates {
    #[inline]
    fn shard(&self, txn: TxnId) -> &CountedLatch<Shard> {
        &self.shards[txn.raw() as usize % SHARDS]
    }

    #[inline]
    pub(crate) fn insert(&self, txn: TxnId, view: SessionView) {
        self.shard(txn).lock().insert(txn, view);
    }

    #[inline]
    pub(crate) fn remove(&self, txn: TxnId) {
        let gone = self.shard(txn).lock().remove(&txn);
        // Beyond the latch: it may be the last one.
        drop(gone);
    }

    /// What `ask` says of the transaction's session, if it has one.
    pub(crate) fn of<A>(&self, txn: TxnId, ask: impl FnOnce(&SessionView) -> A) -> Option<A> {
        self.shard(txn).lock().get(&txn).map(ask)
    }

    /// All of them; those of one latch are of one moment.
    pub(crate) fn all(&self) -> Vec<(TxnId, SessionView)> {
        let of_shard = |shard: &CountedLatch<Shard>| -> Vec<_> {
            let shard = shard.lock();
            shard.iter().map(|(txn, view)| (*txn, view.clone())).collect()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Times that somebody found a latch taken.
    pub(crate) fn contended(&self) -> u64 {
        self.shards.iter().map(CountedLatch::contended).sum()
    }
}
