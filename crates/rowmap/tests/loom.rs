//! M3 in every interleaving: `RUSTFLAGS="--cfg loom" cargo test -p pbxt-rowmap --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use pbxt_base::{Addr, RowId};
use pbxt_rowmap::{MapWord, RowMap};

fn word(raw: u64) -> MapWord {
    MapWord::version(Addr::new(raw))
}

/// One homes the last row of a leaf, one gives the leaf back, one writes a row of it meanwhile.
#[test]
fn a_swap_into_a_leaf_that_is_given_back_is_not_lost() {
    loom::model(|| {
        let map = Arc::new(RowMap::new());
        map.bump_to(RowId::new(1));
        map.store_recovered(RowId::new(1), MapWord::ABSENT);
        let sweeper = {
            let map = Arc::clone(&map);
            thread::spawn(move || map.release_leaves(0..2, |_, _| {}))
        };
        let writer = {
            let map = Arc::clone(&map);
            thread::spawn(move || map.compare_exchange(RowId::new(1), MapWord::ABSENT, word(8)))
        };
        let seen = map.load(RowId::new(1));
        assert!(
            seen == MapWord::ABSENT || seen == word(8),
            "M3: nobody sees a seal"
        );
        assert_eq!(writer.join().expect("no panic"), Ok(()));
        sweeper.join().expect("no panic");
        assert_eq!(map.load(RowId::new(1)), word(8), "M3: the swap is not lost");
    });
}

#[test]
fn a_homed_row_is_read_as_base_while_its_leaf_goes() {
    loom::model(|| {
        let map = Arc::new(RowMap::new());
        map.store_recovered(RowId::new(1), word(8));
        let homer = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                map.compare_exchange(RowId::new(1), word(8), MapWord::ABSENT)
                    .expect("nobody else writes");
                map.release_leaves(0..1, |_, _| {})
            })
        };
        let first = map.load(RowId::new(1));
        let second = map.load(RowId::new(1));
        assert!(
            first == word(8) || second == MapWord::ABSENT,
            "BASE is final here"
        );
        assert_eq!(homer.join().expect("no panic"), 1);
        assert_eq!(map.load(RowId::new(1)), MapWord::ABSENT);
    });
}

/// Whoever finds a tombstone in a word was told before that there may be one.
#[test]
fn a_tombstone_is_announced_before_it_stands() {
    loom::model(|| {
        let map = Arc::new(RowMap::new());
        map.store_recovered(RowId::new(1), word(8));
        let deleter = {
            let map = Arc::clone(&map);
            let tombstone = MapWord::tombstone(Addr::new(16));
            thread::spawn(move || map.compare_exchange(RowId::new(1), word(8), tombstone))
        };
        let guard = crossbeam_epoch::pin();
        let seen = map.load_in(RowId::new(1), &guard);
        assert!(
            !seen.is_tombstone() || map.may_be_deleted(RowId::new(1), &guard),
            "M4: announced first"
        );
        assert_eq!(deleter.join().expect("no panic"), Ok(()));
    });
}
