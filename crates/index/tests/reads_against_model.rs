//! Every seek, both directions and batches of every size, against an ordered set.

#![cfg(not(loom))]

mod common;

use std::collections::BTreeSet;

use common::{Event, event_of, events, expected, insert};
use pbxt_base::{Lsn, RowId};
use pbxt_index::{Batch, SeekPos, Sign, Tree};
use proptest::collection::vec;
use proptest::prelude::*;

/// Keys that share prefixes, are prefixes of each other, contain zeros, and some longer than a node's inline prefix.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop_oneof![Just(0_u8), Just(1), Just(7), Just(255)], 0..6),
        2 => any::<u16>().prop_map(|number| [0x80, 0, 0, 0, 0, 0, (number >> 8) as u8, number as u8].to_vec()),
        2 => (0_usize..3, vec(any::<u8>(), 0..3)).prop_map(|(long, tail)| {
            let mut key = vec![b'k'; 31 + 2 * long];
            key.extend(tail);
            key
        }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    (key(), 1_u64..6, 0_u64..3, any::<bool>())
        .prop_map(|(key, row, lsn, entry)| (key, row, lsn * 8, if entry { Sign::Entry } else { Sign::Anti }))
}

/// A cut and its definition.
#[derive(Clone, Debug)]
enum Cut {
    Start,
    End,
    Lower(Vec<u8>),
    Upper(Vec<u8>),
    Before(Event),
    After(Event),
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        Just(Cut::Start),
        Just(Cut::End),
        key().prop_map(Cut::Lower),
        key().prop_map(Cut::Upper),
        event().prop_map(Cut::Before),
        event().prop_map(Cut::After),
    ]
}

impl Cut {
    fn pos(&self) -> SeekPos<'_> {
        match self {
            Cut::Start => SeekPos::START,
            Cut::End => SeekPos::END,
            Cut::Lower(key) => SeekPos::lower_bound(key),
            Cut::Upper(key) => SeekPos::upper_bound(key),
            Cut::Before((key, row, lsn, sign)) => {
                SeekPos::before(key, RowId::new(*row), Lsn::new(*lsn), *sign)
            }
            Cut::After((key, row, lsn, sign)) => SeekPos::after(key, RowId::new(*row), Lsn::new(*lsn), *sign),
        }
    }

    fn is_left(&self, event: &Event) -> bool {
        let first = |len: usize| &event.0[..len.min(event.0.len())];
        match self {
            Cut::Start => false,
            Cut::End => true,
            Cut::Lower(prefix) => first(prefix.len()) < prefix.as_slice(),
            Cut::Upper(prefix) => first(prefix.len()) <= prefix.as_slice(),
            Cut::Before(other) => event < other,
            Cut::After(other) => event <= other,
        }
    }
}

fn build(inserts: &[Event]) -> (Tree, BTreeSet<Event>) {
    let (tree, mut model) = (Tree::new(), BTreeSet::new());
    for event in inserts {
        if model.insert(event.clone()) {
            insert(&tree, event);
        }
    }
    (tree, model)
}

fn read(tree: &Tree, pos: &SeekPos<'_>, forward: bool, batch: &mut Batch, max: usize) {
    if forward {
        tree.read_batch_forward(pos, batch, max);
    } else {
        tree.read_batch_backward(pos, batch, max);
    }
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 6 } else { 300 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn sizes() -> std::ops::Range<usize> {
    if cfg!(miri) { 0..40 } else { 0..900 }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reading_on_in_batches_gives_all_entries_on_one_side_of_a_cut(
        inserts in vec(event(), sizes()),
        cuts in vec(cut(), 1..8),
        max in prop_oneof![1_usize..5, 1_usize..400],
        forward: bool,
    ) {
        let (tree, model) = build(&inserts);
        prop_assert_eq!(tree.check(), Ok(()));
        prop_assert_eq!(tree.len(), model.len() as u64);
        let mut batch = Batch::new();
        for cut in &cuts {
            let mut found = Vec::new();
            read(&tree, &cut.pos(), forward, &mut batch, max);
            while !batch.is_empty() {
                prop_assert!(batch.len() == max || batch.reached_end());
                found.extend(events(&tree, &batch));
                tree.read_batch_on(&mut batch, max);
            }
            prop_assert!(batch.reached_end());
            prop_assert_eq!(found, expected(&model, |event| cut.is_left(event), forward));
        }
    }

    #[test]
    fn seeking_again_behind_the_last_entry_equals_reading_on(
        inserts in vec(event(), sizes()),
        max in 1_usize..60,
        forward: bool,
    ) {
        let (tree, model) = build(&inserts);
        let mut batch = Batch::new();
        let mut found: Vec<Event> = Vec::new();
        loop {
            let last = found.last().cloned();
            let pos = match &last {
                None if forward => SeekPos::START,
                None => SeekPos::END,
                Some((key, row, lsn, sign)) if forward => SeekPos::after(key, RowId::new(*row), Lsn::new(*lsn), *sign),
                Some((key, row, lsn, sign)) => SeekPos::before(key, RowId::new(*row), Lsn::new(*lsn), *sign),
            };
            read(&tree, &pos, forward, &mut batch, max);
            if batch.is_empty() {
                break;
            }
            found.extend(batch.entries(&tree).map(|entry| event_of(entry)));
        }
        prop_assert_eq!(found, expected(&model, |_| !forward, forward));
    }

    #[test]
    fn dead_entries_are_left_out_wherever_they_lie(
        inserts in vec(event(), sizes()),
        dead in vec(any::<prop::sample::Index>(), 0..200),
        dead_range in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        forward: bool,
        max in 1_usize..300,
    ) {
        let (tree, mut model) = (Tree::new(), BTreeSet::new());
        let mut entries = Vec::new();
        for event in &inserts {
            if model.insert(event.clone()) {
                entries.push((event.clone(), insert(&tree, event)));
            }
        }
        if !entries.is_empty() {
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            let (from, to) = (dead_range.0.index(entries.len()), dead_range.1.index(entries.len()));
            let singles = dead.iter().map(|index| index.index(entries.len()));
            for index in singles.chain(from.min(to)..from.max(to)) {
                let (event, entry) = &entries[index];
                prop_assert_eq!(tree.mark_dead(*entry), model.remove(event));
                prop_assert!(tree.entry(*entry).is_dead());
            }
        }
        prop_assert_eq!(tree.check(), Ok(()));
        let mut batch = Batch::new();
        let mut found = Vec::new();
        read(&tree, if forward { &SeekPos::START } else { &SeekPos::END }, forward, &mut batch, max);
        while !batch.is_empty() {
            found.extend(events(&tree, &batch));
            tree.read_batch_on(&mut batch, max);
        }
        prop_assert_eq!(found, expected(&model, |_| !forward, forward));
        // New entries among dead ones split their leaves; the counts must follow.
        for event in &inserts {
            insert(&tree, &(event.0.clone(), event.1 + 100, event.2, event.3));
        }
        prop_assert_eq!(tree.check(), Ok(()));
    }

    #[test]
    fn groups_change_when_their_key_gets_an_entry_and_only_then(
        inserts in vec(event(), sizes()),
        probed in key(),
        later in vec(event(), 0..40),
    ) {
        let (tree, model) = build(&inserts);
        let group = tree.key_group(&probed);
        prop_assert_eq!(group.entries(), model.iter().filter(|event| event.0 == probed).count() as u64);
        prop_assert!(!tree.group_changed(&probed, &group));
        let mut touched = false;
        for (key, row, lsn, sign) in later {
            touched |= key == probed;
            insert(&tree, &(key, row + 1000, lsn, sign));
            prop_assert_eq!(tree.group_changed(&probed, &group), touched);
        }
    }

    #[test]
    fn short_ranges_are_counted_exactly(inserts in vec(event(), 0..if cfg!(miri) { 20 } else { 200 }), from in cut(), to in cut()) {
        let (tree, model) = build(&inserts);
        // The engine asks for ranges whose ends are in order.
        let (from, to) = if model.iter().all(|event| to.is_left(event) || !from.is_left(event)) { (from, to) } else { (to, from) };
        let exact = model.iter().filter(|event| !from.is_left(event) && to.is_left(event)).count() as u64;
        prop_assert_eq!(tree.range_count_estimate(&from.pos(), &to.pos()), exact);
    }
}
