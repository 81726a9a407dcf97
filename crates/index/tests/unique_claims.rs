//! Unique claims as decision 0002 describes them, by several threads at once.
//!
//! A file of its own: the mutex of the stripes turns integers into pointers, which Miri accepts, but not under strict
//! provenance, as `threads.rs` is run.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pbxt_base::{IndexId, Lsn, RowId, TxnId};
use pbxt_index::{Sign, StripeLatches, Tree};

#[test]
fn claims_under_stripe_latches_never_give_one_key_twice() {
    const KEYS: u64 = if cfg!(miri) { 15 } else { 5_000 };
    let (tree, stripes, granted) = (Tree::new(), StripeLatches::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for row in 1..=4 {
            let (tree, stripes, granted) = (&tree, &stripes, &granted);
            scope.spawn(move || {
                for number in 0..KEYS {
                    let key = number.to_le_bytes();
                    let claimed = loop {
                        let group = tree.key_group(&key);
                        if group.entries() > 0 {
                            break false;
                        }
                        let _stripe = stripes.hold(IndexId::new(1), &key);
                        if !tree.group_changed(&key, &group) {
                            let row = RowId::new(row);
                            tree.insert(&key, row, TxnId::new(1), Lsn::new(8), Sign::Entry, &[])
                                .unwrap();
                            break true;
                        }
                    };
                    granted.fetch_add(u64::from(claimed), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(granted.load(Ordering::Relaxed), KEYS);
    assert_eq!(tree.len(), KEYS);
    assert_eq!(tree.check(), Ok(()));
}
