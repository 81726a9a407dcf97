//! Merges against brute force: whatever is merged, every snapshot goes on seeing the same rows under the same keys.

#![cfg(not(loom))]

mod run_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pbxt_base::{Lsn, RowId, TxnId};
use pbxt_index::{
    EventStanding, MergeJudge, MergeRange, MergeSources, Run, RunCursor, SeekPos, Sign, Tree, merge_events,
};
use proptest::collection::vec;
use proptest::prelude::*;
use run_support::{Event, builder, config, deal, event, int_key, key, run_of, sizes, sorted, store, tree_of};

const TXNS: usize = 7;
const ALL: Lsn = MergeSources::ALL_COVERED;
const NONE: Lsn = MergeSources::NONE_COVERED;

/// Standing of each transaction, and the rows that are gone.
#[derive(Clone, Debug)]
struct World {
    standings: [EventStanding; TXNS],
    gone: BTreeSet<u64>,
}

impl MergeJudge for World {
    fn next_pair(&mut self) {}

    fn standing(&mut self, txn: TxnId, _: Lsn) -> EventStanding {
        assert_ne!(txn.raw(), 0, "transaction 0 is settled");
        self.standings[txn.raw() as usize]
    }

    fn is_gone(&mut self, row: RowId) -> bool {
        self.gone.contains(&row.raw())
    }
}

fn world() -> impl Strategy<Value = World> {
    let standing = prop_oneof![
        3 => Just(EventStanding::Settled),
        1 => Just(EventStanding::Aborted),
        2 => Just(EventStanding::Unsettled),
    ];
    let gone = prop::collection::btree_set(1_u64..6, 0..3);
    (vec(standing, TXNS), gone).prop_map(|(mut standings, gone)| {
        standings[0] = EventStanding::Settled;
        World {
            standings: standings.try_into().expect("as many as there are transactions"),
            gone,
        }
    })
}

/// What decides a pair: LSN and sign of an event, and its unpack information.
type Decision = (u64, Sign, Vec<u8>);

/// Which rows a snapshot finds under which keys, with which unpack information. `seen` says which unsettled transactions
/// it sees.
fn visible(events: &[Event], world: &World, seen: u32) -> BTreeMap<(Vec<u8>, u64), Vec<u8>> {
    let mut decided: BTreeMap<(Vec<u8>, u64), Decision> = BTreeMap::new();
    for event in events {
        let is_seen = match world.standings[event.txn as usize] {
            EventStanding::Settled => true,
            EventStanding::Aborted => false,
            EventStanding::Unsettled => seen >> event.txn & 1 != 0,
        };
        if !is_seen || world.gone.contains(&event.row) {
            continue;
        }
        let mine = (event.lsn, event.sign, event.unpack.clone());
        let best = decided
            .entry((event.key.clone(), event.row))
            .or_insert_with(|| mine.clone());
        if (best.0, best.1) < (mine.0, mine.1) {
            *best = mine;
        }
    }
    decided.retain(|_, (_, sign, _)| *sign == Sign::Entry);
    decided
        .into_iter()
        .map(|(pair, (_, _, unpack))| (pair, unpack))
        .collect()
}

fn events_of(run: &Arc<Run>) -> Vec<Event> {
    let mut cursor = RunCursor::uncached(Arc::clone(run));
    cursor.seek(&SeekPos::START, true).expect("readable");
    let mut found = Vec::new();
    while let Some(entry) = cursor.peek() {
        found.push(Event::of(entry));
        cursor.advance().expect("readable");
    }
    found
}

/// Merges all of the sources in stretches of about `bytes`, each a run of its own.
fn merge_all(
    trees: &[Arc<Tree>],
    runs: &[Arc<Run>],
    covered_below: Lsn,
    world: &World,
    bytes: u64,
) -> (Vec<Event>, usize) {
    let store = store();
    let (mut merged, mut stretches) = (Vec::new(), 0);
    let mut stop = None::<pbxt_index::MergeStop>;
    loop {
        let sources = MergeSources {
            trees,
            runs,
            covered_below,
        };
        let range = MergeRange {
            from: stop.as_ref().map_or(SeekPos::START, |stop| stop.pos()),
            until: None,
            bytes,
        };
        let mut out = builder(&store, None);
        let next = merge_events(&sources, &range, &mut world.clone(), &mut out).expect("merged");
        merged.extend(events_of(&Arc::new(out.finish().expect("a run"))));
        stretches += 1;
        if next.is_none() {
            return (merged, stretches);
        }
        assert_ne!(stop, next, "every stretch goes on");
        stop = next;
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn a_merge_changes_nothing_that_any_snapshot_sees(
        events in vec(event(), sizes(400)),
        world in world(),
        seed: u64,
        parts in 1_usize..5,
        covers_base: bool,
        bytes in prop_oneof![Just(u64::MAX), 1_u64..600],
    ) {
        let all = sorted(events);
        // Part 0 is the base, or stays out of the merge.
        let dealt = deal(&all, parts + 1, seed);
        let store = store();
        let inside = if covers_base { &dealt[..] } else { &dealt[1..] };
        let outside: &[Event] = if covers_base { &[] } else { &dealt[0] };
        let trees: Vec<_> = inside.iter().skip(1).step_by(2).map(|events| tree_of(events)).collect();
        let runs: Vec<_> = inside.iter().step_by(2).map(|events| run_of(&store, events)).collect();
        let covered_below = if covers_base { ALL } else { NONE };
        let (merged, _) = merge_all(&trees, &runs, covered_below, &world, bytes);
        let after: Vec<Event> = merged.iter().chain(outside).cloned().collect();
        for seen in 0..1 << TXNS {
            prop_assert_eq!(visible(&all, &world, seen), visible(&after, &world, seen), "seen {:#b}", seen);
        }
        check_reduced(&merged, &world, covered_below)?;
    }

    /// Rule X48: a younger run is left out, as that of a load whose transaction has not ended.
    #[test]
    fn a_merge_with_a_younger_run_left_out_changes_nothing_that_any_snapshot_sees(
        events in vec(event(), sizes(400)),
        world in world(),
        seed: u64,
        begin in 0_u64..6,
        bytes in prop_oneof![Just(u64::MAX), 1_u64..600],
    ) {
        let all = sorted(events);
        let begin = begin * 8;
        let mut dealt = deal(&all, 3, seed);
        let (outside, below): (Vec<Event>, Vec<Event>) =
            std::mem::take(&mut dealt[0]).into_iter().partition(|event| event.lsn >= begin);
        let store = store();
        let runs = [run_of(&store, &below), run_of(&store, &dealt[1])];
        let (merged, _) = merge_all(&[tree_of(&dealt[2])], &runs, Lsn::new(begin), &world, bytes);
        let after: Vec<Event> = merged.iter().chain(&outside).cloned().collect();
        for seen in 0..1 << TXNS {
            prop_assert_eq!(visible(&all, &world, seen), visible(&after, &world, seen), "seen {:#b}", seen);
        }
        check_reduced(&merged, &world, Lsn::new(begin))?;
    }

    #[test]
    fn a_stretch_ends_before_its_right_end(events in vec(event(), sizes(200)), until in key(), from in key()) {
        let model = sorted(events);
        let mut world = World { standings: [EventStanding::Unsettled; TXNS], gone: BTreeSet::new() };
        world.standings[0] = EventStanding::Settled;
        let store = store();
        let sources = MergeSources { trees: &[tree_of(&model)], runs: &[], covered_below: NONE };
        let range = MergeRange { from: SeekPos::lower_bound(&from), until: Some(&until), bytes: u64::MAX };
        let mut out = builder(&store, None);
        let stop = merge_events(&sources, &range, &mut world.clone(), &mut out).expect("merged");
        prop_assert_eq!(stop, None);
        let merged = events_of(&Arc::new(out.finish().expect("a run")));
        let is_inside = |event: &&Event| event.key[..from.len().min(event.key.len())] >= *from && event.key < until;
        let inside: Vec<Event> = model.iter().filter(is_inside).cloned().collect();
        for seen in 0..1 << TXNS {
            prop_assert_eq!(visible(&inside, &world, seen), visible(&merged, &world, seen));
        }
    }
}

/// What rule X35 says may not be left.
fn check_reduced(merged: &[Event], world: &World, covered_below: Lsn) -> Result<(), TestCaseError> {
    for pair in merged.chunk_by(|a, b| (&a.key, a.row) == (&b.key, b.row)) {
        let standing = |event: &Event| world.standings[event.txn as usize];
        let settled: Vec<&Event> = pair
            .iter()
            .filter(|event| standing(event) == EventStanding::Settled)
            .collect();
        prop_assert!(pair.iter().all(|event| standing(event) != EventStanding::Aborted));
        prop_assert!(settled.len() <= 1, "{:?}", pair);
        prop_assert!(settled.iter().all(|event| event.txn == 0));
        let is_first = settled
            .first()
            .is_some_and(|event| event.name() == pair[0].name());
        if is_first && settled[0].lsn < covered_below.raw() {
            prop_assert_eq!((settled[0].lsn, settled[0].sign), (0, Sign::Entry));
        }
        prop_assert!(covered_below == NONE || !world.gone.contains(&pair[0].row));
    }
    Ok(())
}

#[test]
fn a_merge_in_stretches_equals_one_in_one_go() {
    let entry = |id: u64, lsn: u64| Event {
        key: int_key(id),
        row: id % 50 + 1,
        lsn,
        sign: if lsn == 16 { Sign::Anti } else { Sign::Entry },
        txn: lsn / 8,
        unpack: Vec::new(),
    };
    let ids = if cfg!(miri) { 60 } else { 2000 };
    let base: Vec<Event> = (0..ids).map(|id| entry(id, 0)).collect();
    let upper: Vec<Event> = sorted(
        (0..ids)
            .step_by(3)
            .flat_map(|id| [entry(id, 16), entry(id, 8)])
            .collect(),
    );
    let store = store();
    let (trees, runs) = ([tree_of(&upper)], [run_of(&store, &base)]);
    let world = World {
        standings: [EventStanding::Settled; TXNS],
        gone: BTreeSet::from([5]),
    };
    let (whole, one) = merge_all(&trees, &runs, ALL, &world, u64::MAX);
    let stretch = if cfg!(miri) { 10 } else { 100 };
    let (pieced, many) = merge_all(&trees, &runs, ALL, &world, stretch);
    assert_eq!(whole, pieced);
    assert!(one == 1 && many > 3, "{many} stretches");
    let expected: Vec<Event> = base
        .iter()
        .enumerate()
        .filter(|(id, event)| id % 3 != 0 && event.row != 5)
        .map(|(_, event)| event.clone())
        .collect();
    assert_eq!(whole, expected, "every third entry was taken away, row 5 is gone");
}

#[test]
fn an_aba_change_is_decided_by_the_last_event() {
    // Design: A -> B -> A by two transactions and by one alone; transaction ids do not order events, LSNs do.
    let event = |key: &[u8], lsn, sign, txn| Event {
        key: key.to_vec(),
        row: 1,
        lsn,
        sign,
        txn,
        unpack: vec![lsn as u8],
    };
    let store = store();
    let base = run_of(&store, &[event(b"A", 0, Sign::Entry, 0)]);
    for (first, second) in [(5, 2), (3, 3)] {
        let upper = sorted(vec![
            event(b"A", 64, Sign::Anti, first),
            event(b"B", 64, Sign::Entry, first),
            event(b"B", 80, Sign::Anti, second),
            event(b"A", 80, Sign::Entry, second),
        ]);
        let world = World {
            standings: [EventStanding::Settled; TXNS],
            gone: BTreeSet::new(),
        };
        let (partly, _) = merge_all(&[tree_of(&upper)], &[], NONE, &world, u64::MAX);
        let kept: Vec<_> = partly
            .iter()
            .map(|event| (event.key.as_slice(), event.lsn, event.sign, event.txn))
            .collect();
        assert_eq!(
            kept,
            [(&b"A"[..], 80, Sign::Entry, 0), (b"B", 80, Sign::Anti, 0)],
            "the base may have B"
        );
        let (fully, _) = merge_all(
            &[],
            &[run_of(&store, &partly), Arc::clone(&base)],
            ALL,
            &world,
            u64::MAX,
        );
        let kept: Vec<_> = fully
            .iter()
            .map(|event| (event.key.as_slice(), event.lsn, event.unpack.clone()))
            .collect();
        assert_eq!(kept, [(&b"A"[..], 0, vec![80])]);
    }
}

/// Counts the pairs it is told of.
struct Told(World, usize);

impl MergeJudge for Told {
    fn next_pair(&mut self) {
        self.1 += 1;
    }

    fn standing(&mut self, txn: TxnId, lsn: Lsn) -> EventStanding {
        self.0.standing(txn, lsn)
    }

    fn is_gone(&mut self, row: RowId) -> bool {
        self.0.is_gone(row)
    }
}

#[test]
fn whoever_merges_is_told_of_every_pair() {
    let settled = |id: u64| Event {
        key: int_key(id),
        row: id + 1,
        lsn: 64,
        sign: Sign::Entry,
        txn: 0,
        unpack: Vec::new(),
    };
    let events: Vec<Event> = (0..600).map(settled).collect();
    let store = store();
    let sources = MergeSources {
        trees: &[],
        runs: &[run_of(&store, &events)],
        covered_below: NONE,
    };
    let all = MergeRange {
        from: SeekPos::START,
        until: None,
        bytes: u64::MAX,
    };
    let world = World {
        standings: [EventStanding::Settled; TXNS],
        gone: BTreeSet::new(),
    };
    let (mut told, mut out) = (Told(world, 0), builder(&store, None));
    merge_events(&sources, &all, &mut told, &mut out).expect("merged");
    assert_eq!(told.1, 600, "S43: without a question nobody could pause");
}

/// Only a damaged run has one: a checkpoint that merges it stops with a sentence.
#[test]
fn a_key_without_room_for_its_suffix_stops_a_merge() {
    let short = |bytes: usize| Event {
        key: vec![9; bytes],
        row: 1,
        lsn: 64,
        sign: Sign::Entry,
        txn: 0,
        unpack: Vec::new(),
    };
    for bytes in 0..8 {
        let store = store();
        let sources = MergeSources {
            trees: &[],
            runs: &[run_of(&store, &[short(bytes)])],
            covered_below: NONE,
        };
        let all = MergeRange {
            from: SeekPos::START,
            until: None,
            bytes: u64::MAX,
        };
        let mut world = World {
            standings: [EventStanding::Settled; TXNS],
            gone: BTreeSet::new(),
        };
        let mut out = builder(&store, None).with_suffix(4);
        let merged = merge_events(&sources, &all, &mut world, &mut out);
        let refused = matches!(&merged, Err(error) if error.to_string().contains("keys of at least 4 bytes"));
        assert_eq!(
            (refused, merged.is_ok()),
            (bytes < 4, bytes >= 4),
            "{bytes} bytes: {merged:?}"
        );
    }
}
