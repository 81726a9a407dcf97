//! Tests of the exception set against a sorted map.

use std::collections::BTreeMap;

use pbxt_base::ids::TxnId;
use proptest::prelude::*;

use super::ExceptionSet;
use crate::status::Word;
use crate::sync::Ordering;

/// Miri looks up one id in so many.
const STRIDE: usize = if cfg!(miri) { 101 } else { 1 };

/// Ids of a batch, at most.
const BATCH: usize = if cfg!(miri) { 60 } else { 700 };

fn contents(set: &ExceptionSet) -> Vec<(u64, u64)> {
    set.iter().map(|(id, word)| (id.raw(), word.0)).collect()
}

/// Distances between neighbouring ids of one batch.
fn gaps() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(1u64..40, 0..BATCH)
}

proptest! {
    #[test]
    fn the_set_answers_like_a_sorted_map(
        steps in prop::collection::vec((gaps(), prop::collection::vec(0..3 * BATCH, 0..40)), 1..5)
    ) {
        let mut set = ExceptionSet::default();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last = 0;
        for (gaps, removals) in steps {
            let mut added = Vec::new();
            for gap in gaps {
                last += gap;
                added.push((TxnId::new(last), Word(gap)));
                model.insert(last, gap);
            }
            set.append(&added);
            let known: Vec<u64> = model.keys().copied().collect();
            let chosen = removals.iter().filter_map(|at| known.get(*at));
            let mut gone: Vec<TxnId> = chosen.map(|id| TxnId::new(*id)).collect();
            gone.sort_unstable();
            model.retain(|id, _| !gone.contains(&TxnId::new(*id)));
            set.remove(&gone);
            prop_assert_eq!(contents(&set), model.iter().map(|(id, word)| (*id, *word)).collect::<Vec<_>>());
            for id in (0..=last + 1).step_by(STRIDE) {
                let found = set.find(TxnId::new(id)).map(|word| word.load(Ordering::Acquire));
                prop_assert_eq!(found, model.get(&id).copied());
            }
            prop_assert_eq!(set.len(), model.len());
        }
    }
}

#[test]
#[should_panic(expected = "T5")]
fn entries_never_come_in_below_the_mark() {
    let mut set = ExceptionSet::new(&[(TxnId::new(9), Word::NEW)]);
    set.append(&[(TxnId::new(8), Word::NEW)]);
}
