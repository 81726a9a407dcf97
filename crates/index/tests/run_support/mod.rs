//! What tests of runs share: a store on a simulated disk, events, and how to make parts of them.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::sync::Arc;

use pbxt_base::{IndexId, Lsn, RowId, TxnId};
use pbxt_index::{EntryView, Run, RunBuilder, Sign, Tree};
use pbxt_segment::{Codec, Geometry, OpenMode, SegmentStore};
use pbxt_testkit::SimDisk;
use proptest::collection::vec;
use proptest::prelude::*;

/// Key, row, LSN, sign, transaction, unpack information; compares as the index orders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) key: Vec<u8>,
    pub(crate) row: u64,
    pub(crate) lsn: u64,
    pub(crate) sign: Sign,
    pub(crate) txn: u64,
    pub(crate) unpack: Vec<u8>,
}

pub(crate) const INDEX: IndexId = IndexId::new(7);

impl Event {
    pub(crate) fn of(entry: EntryView<'_>) -> Event {
        Event {
            key: entry.key().to_vec(),
            row: entry.row().raw(),
            lsn: entry.lsn().raw(),
            sign: entry.sign(),
            txn: entry.txn().raw(),
            unpack: entry.unpack().to_vec(),
        }
    }

    /// What tells events apart.
    pub(crate) fn name(&self) -> (&[u8], u64, u64, Sign) {
        (&self.key, self.row, self.lsn, self.sign)
    }
}

/// A database without anything in it.
pub(crate) fn store() -> Arc<SegmentStore> {
    store_on(&SimDisk::new())
}

pub(crate) fn store_on(disk: &SimDisk) -> Arc<SegmentStore> {
    let geometry = Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        blob_segment_bytes: 64 << 10,
    };
    let mode = OpenMode {
        create: Some(geometry),
        read_only: false,
        new_uuid: 77,
        now: 1_800_000_000,
    };
    Arc::new(SegmentStore::open(Arc::new(disk.clone()), mode).expect("a new database"))
}

/// Codec that runs everywhere: Miri cannot call C.
pub(crate) fn codec() -> Codec {
    if cfg!(miri) { Codec::Plain } else { Codec::Zstd(1) }
}

/// A builder of small blocks and pieces, so that few entries fill many.
pub(crate) fn builder(store: &Arc<SegmentStore>, tag: Option<(TxnId, Lsn)>) -> RunBuilder<'static> {
    RunBuilder::new(store, INDEX, tag, codec())
        .with_block_bytes(400)
        .with_piece_bytes(700)
        .with_filter(true)
}

pub(crate) fn try_push(out: &mut RunBuilder<'_>, event: &Event) -> pbxt_base::Result<()> {
    let Event {
        key,
        row,
        lsn,
        sign,
        txn,
        unpack,
    } = event;
    out.push(
        key,
        RowId::new(*row),
        Lsn::new(*lsn),
        *sign,
        TxnId::new(*txn),
        unpack,
    )
}

pub(crate) fn push(out: &mut RunBuilder<'_>, event: &Event) {
    try_push(out, event).expect("room for an entry");
}

pub(crate) fn push_all(out: &mut RunBuilder<'_>, events: &[Event]) {
    for event in events {
        push(out, event);
    }
}

/// Bytes that all keys have at their end, at most 8.
fn suffix_of(events: &[Event]) -> usize {
    let lengths = events.iter().map(|event| event.key.len());
    lengths.min().unwrap_or(0).min(8)
}

/// A run of events in order, with suffixes wherever keys have room for them (rule X43).
pub(crate) fn run_of(store: &Arc<SegmentStore>, events: &[Event]) -> Arc<Run> {
    let mut out = builder(store, None).with_suffix(suffix_of(events));
    push_all(&mut out, events);
    Arc::new(out.finish().expect("a run"))
}

pub(crate) fn tree_of(events: &[Event]) -> Arc<Tree> {
    let tree = Tree::new();
    for Event {
        key,
        row,
        lsn,
        sign,
        txn,
        unpack,
    } in events
    {
        tree.insert(
            key,
            RowId::new(*row),
            TxnId::new(*txn),
            Lsn::new(*lsn),
            *sign,
            unpack,
        )
        .expect("room for an entry");
    }
    Arc::new(tree)
}

pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { cases },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

pub(crate) fn sizes(max: usize) -> std::ops::Range<usize> {
    0..if cfg!(miri) { 30 } else { max }
}

/// The key of a signed integer of four bytes.
pub(crate) fn int_key(number: u64) -> Vec<u8> {
    let image = 0x8000_0000 + number;
    [24, 16, 8, 0].map(|shift| (image >> shift) as u8).to_vec()
}

/// Few keys, so that pairs have several events; some are prefixes of others.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop_oneof![Just(0_u8), Just(7), Just(255)], 0..4),
        2 => (0_u64..60).prop_map(int_key),
    ]
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    (
        key(),
        1_u64..6,
        0_u64..6,
        any::<bool>(),
        0_u64..7,
        vec(any::<u8>(), 0..3),
    )
        .prop_map(|(key, row, lsn, is_entry, txn, unpack)| Event {
            key,
            row,
            lsn: lsn * 8,
            sign: if is_entry { Sign::Entry } else { Sign::Anti },
            txn,
            unpack,
        })
}

/// Events in order, each once; in every second case behind their keys a counted primary key.
pub(crate) fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    if events.len() % 2 == 1 {
        for event in &mut events {
            event.key.extend(int_key(event.row * 3));
        }
    }
    events.sort();
    events.dedup_by(|a, b| a.name() == b.name());
    events
}

/// Deals events to `parts` parts; each stays in order.
pub(crate) fn deal(events: &[Event], parts: usize, seed: u64) -> Vec<Vec<Event>> {
    let mut dealt = vec![Vec::new(); parts];
    let mut state = seed | 1;
    for event in events {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        dealt[(state >> 33) as usize % parts].push(event.clone());
    }
    dealt
}
