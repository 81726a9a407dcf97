//! Tests of row sets against a plain set.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::RowSet;

/// Miri asks for one row in so many.
const STRIDE: usize = if cfg!(miri) { 41 } else { 1 };

proptest! {
    #[test]
    fn a_row_set_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u16..4096), 0..300)) {
        let mut set = RowSet::default();
        let mut model = BTreeSet::new();
        for (insert, at) in steps {
            if insert {
                set.insert(at);
                model.insert(at);
            } else {
                prop_assert_eq!(set.remove(at), model.remove(&at));
            }
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.is_empty(), model.is_empty());
        }
        for at in (0..4096).step_by(STRIDE) {
            prop_assert_eq!(set.contains(at), model.contains(&at));
        }
        let mut listed = Vec::new();
        set.for_each(|at| listed.push(at));
        prop_assert_eq!(listed, model.iter().copied().collect::<Vec<u16>>());
    }
}

#[test]
fn a_full_leaf_costs_512_bytes_and_a_single_row_much_less() {
    let mut set = RowSet::default();
    set.insert(4095);
    assert!(
        set.heap_bytes() <= 16,
        "one row takes a few bytes, not {}",
        set.heap_bytes()
    );
    (0..4096).for_each(|at| set.insert(at));
    assert_eq!((set.len(), set.heap_bytes()), (4096, 512));
}
