//! Random lives: segments are sealed, values written, the power fails, again and again; a model says what must be there.

mod common;

use common::{open, write_sealed};
use pbxt_base::SegmentId;
use pbxt_segment::{BlobRef, BlobStore, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    Seal,
    Append(usize),
    Sync,
    DropOldest,
    Crash(u64),
    Kill,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Seal),
        6 => (1_usize..20_000).prop_map(Step::Append),
        3 => Just(Step::Sync),
        1 => Just(Step::DropOldest),
        2 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Kill),
    ]
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

/// One opening of the database.
struct Life {
    disk: SimDisk,
    store: Arc<SegmentStore>,
    blobs: BlobStore,
}

impl Life {
    fn begin(disk: SimDisk) -> Self {
        let store = Arc::new(open(&disk).expect("every crash image opens"));
        let blobs = BlobStore::open(Arc::clone(&store)).expect("every crash image has its blob segments");
        Self { disk, store, blobs }
    }
}

/// What was acknowledged.
#[derive(Default)]
struct Model {
    sealed: Vec<u32>,
    next_segment: u32,
    unsynced: Vec<(BlobRef, usize)>,
    durable: Vec<(BlobRef, usize)>,
    incarnation: u32,
}

impl Model {
    fn check(&mut self, life: &Life) {
        for id in &self.sealed {
            let segment = SegmentId::new(*id);
            assert!(
                life.store.sealed(SegmentClass::Hot, segment).is_some(),
                "segment {id} is sealed"
            );
            life.store
                .verify_sealed(SegmentClass::Hot, segment)
                .expect("a sealed segment stays as it is");
        }
        let mut out = Vec::new();
        for (place, len) in &self.durable {
            life.blobs
                .read(place, &mut out)
                .expect("a durable value stays readable");
            assert_eq!(out, value(*len));
        }
        assert!(
            life.store.incarnation() > self.incarnation,
            "F2: incarnations rise"
        );
        self.incarnation = life.store.incarnation();
    }

    fn step(&mut self, life: Life, step: &Step) -> Life {
        match step {
            Step::Seal => {
                self.next_segment += 1;
                write_sealed(&life.store, self.next_segment).expect("sealed");
                self.sealed.push(self.next_segment);
            }
            Step::Append(len) => self
                .unsynced
                .push((life.blobs.append(&value(*len)).expect("written"), *len)),
            Step::Sync => {
                life.blobs.sync().expect("synced");
                self.durable.append(&mut self.unsynced);
            }
            Step::DropOldest if self.sealed.is_empty() => {}
            Step::DropOldest => {
                let id = SegmentId::new(self.sealed.remove(0));
                life.store.drop_segment(SegmentClass::Hot, id).expect("dropped");
            }
            Step::Crash(seed) => {
                self.unsynced.clear();
                return self.reopen(life.disk.crash(*seed));
            }
            // What was written and not synced is still there, but the next power cut may take it: nobody counts on it.
            Step::Kill => {
                self.unsynced.clear();
                return self.reopen(life.disk.kill());
            }
        }
        life
    }

    fn reopen(&mut self, disk: SimDisk) -> Life {
        let life = Life::begin(disk);
        self.check(&life);
        life
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn what_was_acknowledged_survives_every_life(steps in proptest::collection::vec(any_step(), 1..60)) {
        let mut model = Model::default();
        let mut life = model.reopen(SimDisk::new());
        for step in &steps {
            life = model.step(life, step);
        }
        model.reopen(life.disk.crash(steps.len() as u64));
    }
}
