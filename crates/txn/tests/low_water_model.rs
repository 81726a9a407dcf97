//! T5, T6, T7: whatever the mark has passed, every live snapshot gets the answers a table that keeps
//! everything gives.

use std::convert::Infallible;

use crossbeam_epoch::pin;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{LiveSnapshots, Snapshot, TxnStatus, TxnTable};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    /// Begin this many and commit those whose number does not divide by the second figure; the rest stay
    /// open.
    Burst(u16, u16),
    /// End an open one: commit, abort or prepare, chosen by the second figure.
    End(usize, u8),
    /// Add a void range to an open one.
    Void(usize),
    OpenSnapshot,
    CloseSnapshot(usize),
    /// Look at the live snapshots and keep the look.
    Look,
    /// One step with the newest look, or with a kept one.
    Step(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (1u16..5000, 2u16..2000).prop_map(|(count, open)| Act::Burst(count, open)),
        6 => (any::<usize>(), any::<u8>()).prop_map(|(at, how)| Act::End(at, how)),
        2 => any::<usize>().prop_map(Act::Void),
        3 => Just(Act::OpenSnapshot),
        2 => any::<usize>().prop_map(Act::CloseSnapshot),
        1 => Just(Act::Look),
        4 => any::<bool>().prop_map(Act::Step),
    ];
    prop::collection::vec(act, 1..40)
}

/// The table and, beside it, everything that ever happened.
struct Pair {
    table: TxnTable,
    /// By id: true status and whether it has the void range.
    truth: Vec<(TxnStatus, bool)>,
    open: Vec<u64>,
    snapshots: Vec<Snapshot>,
    look: LiveSnapshots,
}

const VOID: std::ops::Range<Lsn> = Lsn::new(800)..Lsn::new(880);

impl Pair {
    fn new() -> Self {
        let table = TxnTable::new();
        let look = table.live_snapshots();
        Pair {
            table,
            truth: vec![(TxnStatus::Settled, false)],
            open: Vec::new(),
            snapshots: Vec::new(),
            look,
        }
    }

    fn commit(&mut self, id: u64) {
        let reserve = |_| Ok::<(), Infallible>(());
        let (ts, ()) = self
            .table
            .commit_critical(TxnId::new(id), reserve)
            .expect("the closure cannot fail");
        self.truth[id as usize].0 = TxnStatus::Committed(ts);
    }

    fn burst(&mut self, count: u16, open: u16) {
        for number in 1..=count {
            let id = self.table.begin().raw();
            assert_eq!(id as usize, self.truth.len());
            self.truth.push((TxnStatus::Active, false));
            if number % open == 0 {
                self.open.push(id);
            } else {
                self.commit(id);
            }
        }
    }

    fn end(&mut self, at: usize, how: u8) {
        if self.open.is_empty() {
            return;
        }
        let at = at % self.open.len();
        let id = self.open[at];
        match how % 3 {
            0 if self.truth[id as usize].0 == TxnStatus::Active => {
                self.table.prepare(TxnId::new(id));
                self.truth[id as usize].0 = TxnStatus::Prepared;
                return;
            }
            1 => {
                self.table.abort(TxnId::new(id));
                self.truth[id as usize].0 = TxnStatus::Aborted;
            }
            _ => self.commit(id),
        }
        self.open.swap_remove(at);
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Burst(count, open) => self.burst(*count, *open),
            Act::End(at, how) => self.end(*at, *how),
            Act::Void(at) => {
                if let Some(id) = self.open.get(at % self.open.len().max(1)).copied() {
                    self.table.add_void(TxnId::new(id), VOID);
                    self.truth[id as usize].1 = true;
                }
            }
            Act::OpenSnapshot => self.snapshots.push(self.table.open_snapshot()),
            Act::CloseSnapshot(at) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.swap_remove(at % self.snapshots.len());
                }
            }
            Act::Look => self.look = self.table.live_snapshots(),
            Act::Step(fresh) => {
                let look = if *fresh {
                    self.table.live_snapshots()
                } else {
                    self.look.clone()
                };
                self.table.advance_low_water(&look);
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let guard = pin();
        let newest = self.table.open_snapshot();
        let views: Vec<CommitTs> = self.snapshots.iter().chain([&newest]).map(Snapshot::ts).collect();
        for (id, (truth, void)) in self.truth.iter().enumerate().skip(1) {
            let said = self.table.status(TxnId::new(id as u64), &guard);
            match (truth, said) {
                (TxnStatus::Committed(true_ts), TxnStatus::Committed(ts)) => {
                    for view in &views {
                        prop_assert_eq!(
                            *true_ts <= *view,
                            ts <= *view,
                            "T6: {} at {}, said {}",
                            id,
                            true_ts,
                            ts
                        );
                    }
                }
                (TxnStatus::Committed(true_ts), TxnStatus::Settled) => {
                    prop_assert!(
                        views.iter().all(|view| true_ts <= view),
                        "T5: {} at {} is settled",
                        id,
                        true_ts
                    );
                }
                (truth, said) => prop_assert_eq!(*truth, said, "T7: {}", id),
            }
            prop_assert_eq!(
                self.table.is_void(TxnId::new(id as u64), VOID.start, &guard),
                *void,
                "T7: void of {}",
                id
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    #[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
    fn every_live_snapshot_sees_exactly_what_a_full_table_says(acts in acts()) {
        let mut pair = Pair::new();
        for act in &acts {
            pair.act(act);
            if matches!(act, Act::Step(_)) {
                pair.check()?;
            }
        }
        pair.check()?;
    }
}
