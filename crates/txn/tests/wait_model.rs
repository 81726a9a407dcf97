//! T13, T14: random work of a few transactions on a few resources, against a model that recomputes everything
//! from scratch. After every step: no circle, nobody sleeps while nothing stands against it, holders go
//! together.

use std::collections::{BTreeMap, BTreeSet};

use pbxt_base::ids::{RowId, TableId, TxnId};
use pbxt_txn::{Enqueued, LockMode, Resource, WaitGraph, WaitRequest, WaitState, WaitToken, Wakes};
use proptest::prelude::*;

const TXNS: u64 = 6;
const RESOURCES: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Ask for a resource.
    Lock(u64, u64, LockMode),
    /// A woken transaction tries.
    Run(u64),
    /// A sleeping or woken transaction gives up: timeout or kill.
    GiveUp(u64),
    /// The transaction ends and a new one takes its number.
    End(u64),
    /// Rollback to a savepoint that gives up one resource.
    Savepoint(u64, u64),
    /// Gives up one resource early.
    Unlock(u64, u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let txn = || 1..=TXNS;
    let resource = || 1..=RESOURCES;
    let mode = prop_oneof![
        Just(LockMode::Exclusive),
        Just(LockMode::Shared),
        Just(LockMode::Intent)
    ];
    let act = prop_oneof![
        8 => (txn(), resource(), mode).prop_map(|(txn, resource, mode)| Act::Lock(txn, resource, mode)),
        6 => txn().prop_map(Act::Run),
        1 => txn().prop_map(Act::GiveUp),
        3 => txn().prop_map(Act::End),
        1 => (txn(), resource()).prop_map(|(txn, resource)| Act::Savepoint(txn, resource)),
        1 => (txn(), resource()).prop_map(|(txn, resource)| Act::Unlock(txn, resource)),
    ];
    prop::collection::vec(act, 1..if cfg!(miri) { 20 } else { 80 })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleeper {
    txn: u64,
    resource: u64,
    mode: LockMode,
    token: WaitToken,
    woken: bool,
}

/// Who holds what, and who sleeps; lines are kept as a plain list in order of arrival.
struct Model {
    graph: WaitGraph,
    held: BTreeMap<(u64, u64), BTreeSet<LockMode>>,
    sleepers: Vec<Sleeper>,
    deadlocks: usize,
}

fn resource_of(number: u64) -> Resource {
    Resource::Row(TableId::new(1), RowId::new(number))
}

impl Model {
    fn new() -> Self {
        Model {
            graph: WaitGraph::new(),
            held: BTreeMap::new(),
            sleepers: Vec::new(),
            deadlocks: 0,
        }
    }

    fn blockers(&self, txn: u64, resource: u64, mode: LockMode) -> Vec<TxnId> {
        let others = self
            .held
            .iter()
            .filter(|((holder, of), _)| *holder != txn && *of == resource);
        let against = others.filter(|(_, modes)| modes.iter().any(|held| !held.goes_with(mode)));
        against.map(|((holder, _), _)| TxnId::new(*holder)).collect()
    }

    fn asleep(&self, txn: u64) -> Option<Sleeper> {
        self.sleepers.iter().copied().find(|sleeper| sleeper.txn == txn)
    }

    fn hold(&mut self, txn: u64, resource: u64, mode: LockMode) {
        self.held.entry((txn, resource)).or_default().insert(mode);
    }

    fn wake(&mut self, Wakes(tokens): Wakes) {
        for token in tokens {
            let sleeper = self.sleepers.iter_mut().find(|sleeper| sleeper.token == token);
            let sleeper = sleeper.expect("only waiters are woken");
            assert!(!sleeper.woken, "T13: woken once per turn");
            sleeper.woken = true;
        }
    }

    fn lock(&mut self, txn: u64, resource: u64, mode: LockMode) {
        if self.asleep(txn).is_some()
            || self
                .held
                .get(&(txn, resource))
                .is_some_and(|held| held.contains(&mode))
        {
            return;
        }
        let blockers = self.blockers(txn, resource, mode);
        let request = WaitRequest {
            txn: TxnId::new(txn),
            resource: resource_of(resource),
            mode,
            blockers: &blockers,
        };
        match self.graph.enqueue(request) {
            Enqueued::Free => {
                assert!(blockers.is_empty(), "T13: free only if nobody stands against it");
                self.hold(txn, resource, mode);
                let wakes = self
                    .graph
                    .taken_by_newcomer(TxnId::new(txn), resource_of(resource), mode);
                self.wake(wakes);
            }
            Enqueued::Waiting(token, wakes) => {
                self.sleepers.push(Sleeper {
                    txn,
                    resource,
                    mode,
                    token,
                    woken: false,
                });
                self.wake(wakes);
            }
            Enqueued::Deadlock(report, wakes) => {
                assert!(
                    self.would_close_a_circle(txn, resource, mode, &blockers),
                    "T14: {report:?}"
                );
                self.wake(wakes);
                self.deadlocks += 1;
                self.end(txn);
            }
        }
    }

    fn run(&mut self, txn: u64) {
        let Some(sleeper) = self.asleep(txn).filter(|sleeper| sleeper.woken) else {
            return;
        };
        let blockers = self.blockers(txn, sleeper.resource, sleeper.mode);
        if blockers.is_empty() {
            self.sleepers.retain(|other| other.txn != txn);
            self.hold(txn, sleeper.resource, sleeper.mode);
            let wakes = self.graph.take(sleeper.token);
            self.wake(wakes);
            return;
        }
        match self.graph.requeue(sleeper.token, &blockers) {
            Enqueued::Waiting(_, wakes) => {
                let same = self.sleepers.iter_mut().find(|other| other.txn == txn);
                same.expect("it still sleeps").woken = false;
                self.wake(wakes);
            }
            Enqueued::Deadlock(_, wakes) => {
                self.sleepers.retain(|other| other.txn != txn);
                self.wake(wakes);
                self.deadlocks += 1;
                self.end(txn);
            }
            Enqueued::Free => panic!("there are blockers"),
        }
    }

    fn give_up(&mut self, txn: u64) {
        if let Some(sleeper) = self.asleep(txn) {
            self.sleepers.retain(|other| other.txn != txn);
            let wakes = self.graph.leave(sleeper.token);
            self.wake(wakes);
        }
    }

    fn end(&mut self, txn: u64) {
        if self.asleep(txn).is_none() {
            self.held.retain(|(holder, _), _| *holder != txn);
            let wakes = self.graph.released(TxnId::new(txn));
            self.wake(wakes);
        }
    }

    fn unlock(&mut self, txn: u64, resource: u64) {
        if self.asleep(txn).is_none() && self.held.remove(&(txn, resource)).is_some() {
            let wakes = self.graph.released_one(TxnId::new(txn), resource_of(resource));
            self.wake(wakes);
        }
    }

    fn savepoint(&mut self, txn: u64, resource: u64) {
        if self.asleep(txn).is_some() {
            return;
        }
        self.held.remove(&(txn, resource));
        let held = &self.held;
        let wakes = self.graph.rolled_back(TxnId::new(txn), |resource, mode| {
            let mut own = held
                .iter()
                .filter(|((holder, of), _)| *holder == txn && resource_of(*of) == resource);
            own.any(|(_, modes)| modes.iter().any(|held| !held.goes_with(mode)))
        });
        self.wake(wakes);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Lock(txn, resource, mode) => self.lock(txn, resource, mode),
            Act::Run(txn) => self.run(txn),
            Act::GiveUp(txn) => self.give_up(txn),
            Act::End(txn) => self.end(txn),
            Act::Savepoint(txn, resource) => self.savepoint(txn, resource),
            Act::Unlock(txn, resource) => self.unlock(txn, resource),
        }
    }

    /// Edges from first principles: a sleeper waits for the true holders that stand against it and for those
    /// before it in line.
    fn edges_of(&self, sleeper: &Sleeper) -> BTreeSet<u64> {
        let holders = self.blockers(sleeper.txn, sleeper.resource, sleeper.mode);
        let known = self.graph.waits_for(TxnId::new(sleeper.txn));
        holders.into_iter().chain(known).map(TxnId::raw).collect()
    }

    /// Those awake in the line of a sleeper that stand against it. Behind them nothing is stuck yet, whoever
    /// holds the resource: they will judge again, and their next request is walked.
    fn awake_before(&self, sleeper: &Sleeper) -> BTreeSet<u64> {
        let line = self
            .sleepers
            .iter()
            .filter(|other| other.resource == sleeper.resource && other.woken);
        line.filter(|other| !other.mode.goes_with(sleeper.mode))
            .map(|other| other.txn)
            .collect()
    }

    fn edges(&self) -> BTreeMap<u64, BTreeSet<u64>> {
        let sleeping = self.sleepers.iter().filter(|sleeper| !sleeper.woken);
        sleeping
            .map(|sleeper| (sleeper.txn, self.edges_of(sleeper)))
            .collect()
    }

    fn stuck_edges(&self) -> BTreeMap<u64, BTreeSet<u64>> {
        let mut edges = self.edges();
        for sleeper in self
            .sleepers
            .iter()
            .filter(|sleeper| !self.awake_before(sleeper).is_empty())
        {
            edges.remove(&sleeper.txn);
        }
        edges
    }

    fn would_close_a_circle(&self, txn: u64, resource: u64, mode: LockMode, blockers: &[TxnId]) -> bool {
        let mut edges = self.edges();
        let line = self
            .sleepers
            .iter()
            .filter(|sleeper| sleeper.resource == resource);
        let against = line
            .filter(|sleeper| !sleeper.mode.goes_with(mode))
            .map(|sleeper| sleeper.txn);
        let own: BTreeSet<u64> = blockers
            .iter()
            .map(|blocker| blocker.raw())
            .chain(against)
            .collect();
        edges.insert(txn, own);
        has_circle(&edges)
    }

    fn check(&self) {
        let stuck = self.stuck_edges();
        assert!(!has_circle(&stuck), "T14: a circle outlived its call: {stuck:?}");
        for sleeper in &self.sleepers {
            let state = self.graph.state(sleeper.token);
            assert_eq!(
                sleeper.woken,
                state == WaitState::Turn,
                "T13: a turn is announced: {sleeper:?}"
            );
        }
        for resource in 1..=RESOURCES {
            self.check_line(resource);
            self.check_holders(resource);
        }
    }

    /// No lost wake-up: in every line somebody is awake, or somebody is waited for who holds the resource.
    fn check_line(&self, resource: u64) {
        let line: Vec<&Sleeper> = self
            .sleepers
            .iter()
            .filter(|sleeper| sleeper.resource == resource)
            .collect();
        let awake: Vec<&&Sleeper> = line.iter().filter(|sleeper| sleeper.woken).collect();
        let modes_of_awake = awake.iter().map(|sleeper| sleeper.mode);
        assert!(
            modes_of_awake
                .clone()
                .all(|one| awake.len() == 1 || one.goes_with(awake[0].mode)),
            "T13: turns go together: {awake:?}"
        );
        let held = self.held.keys().any(|(_, of)| *of == resource);
        assert!(
            line.is_empty() || held || !awake.is_empty(),
            "T13: free, with waiters, and nobody woken: {line:?}"
        );
        for sleeper in line.iter().filter(|sleeper| !sleeper.woken) {
            let waits = self.graph.waits_for(TxnId::new(sleeper.txn));
            assert!(
                !waits.is_empty(),
                "T13: nothing stands against {sleeper:?}, and it sleeps"
            );
            let alive = |other: &TxnId| {
                self.held.contains_key(&(other.raw(), resource)) || self.stands(other.raw(), resource)
            };
            assert!(
                waits.iter().all(alive),
                "T13: {sleeper:?} waits for one that neither holds nor waits: {waits:?}"
            );
        }
    }

    fn stands(&self, txn: u64, resource: u64) -> bool {
        self.asleep(txn)
            .is_some_and(|sleeper| sleeper.resource == resource)
    }

    fn check_holders(&self, resource: u64) {
        let held: Vec<(&(u64, u64), &BTreeSet<LockMode>)> =
            self.held.iter().filter(|((_, of), _)| *of == resource).collect();
        for (one, modes) in &held {
            for (other, others) in held.iter().filter(|(other, _)| other.0 != one.0) {
                let together = modes
                    .iter()
                    .all(|mode| others.iter().all(|held| held.goes_with(*mode)));
                assert!(together, "T18: {one:?} {modes:?} and {other:?} {others:?}");
            }
        }
    }
}

/// Takes away, again and again, everybody who waits for nobody left; what remains is circles.
fn has_circle(edges: &BTreeMap<u64, BTreeSet<u64>>) -> bool {
    let mut left: BTreeMap<u64, BTreeSet<u64>> = edges.clone();
    loop {
        let stuck: BTreeSet<u64> = left.keys().copied().collect();
        let before = left.len();
        left.retain(|_, waits| waits.iter().any(|other| stuck.contains(other)));
        if left.len() == before {
            return before > 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 3000 }))]
    #[test]
    fn no_wake_up_is_lost_and_no_circle_stays(acts in acts()) {
        let mut model = Model::new();
        for act in acts {
            model.act(act);
            model.check();
        }
        // Whatever happened: if everybody runs, ends and lets go, nobody is left sleeping.
        for _ in 0..TXNS {
            for txn in 1..=TXNS {
                model.run(txn);
                model.end(txn);
                model.check();
            }
        }
        prop_assert!(model.sleepers.is_empty(), "T13: {:?} sleep for ever", model.sleepers);
    }
}
