//! T10, T11: model check of whole chains. Every legal schedule of a few steps by three transactions on one
//! row is run; after each, every viewer's answer by chain walk and by index events is compared with an oracle
//! that knows neither chains nor LSN comparisons: it replays, in the order they happened, the steps the
//! viewer is entitled to see.

use std::collections::BTreeSet;
use std::ops::Range;

use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{
    EventDecision, IndexEvent, ReadMode, Sign, Stamp, Standing, TxnStatus, Verdict, Viewer, decide_events,
    judge,
};

const KEYS: [char; 2] = ['A', 'B'];

/// The key a write leaves, and its index events.
type Change = (Option<char>, Vec<(Sign, char)>);

/// One step on the row: its new key, or `None` for a tombstone.
#[derive(Clone, Debug)]
struct Step {
    txn: u64,
    lsn: u64,
    key: Option<char>,
    events: Vec<(Sign, char)>,
}

#[derive(Clone, Debug)]
struct Txn {
    status: TxnStatus,
    voids: Vec<Range<u64>>,
    /// Taken before the first write, which then may meet versions the snapshot does not see.
    snapshot: Option<u64>,
}

/// A history so far. Transaction 0 stands for settled work.
#[derive(Clone, Debug)]
struct World {
    steps: Vec<Step>,
    txns: Vec<Txn>,
    log_end: u64,
    last_ts: u64,
}

impl World {
    fn new(row_exists: bool) -> Self {
        let txn = |status| Txn {
            status,
            voids: Vec::new(),
            snapshot: None,
        };
        let mut txns = vec![txn(TxnStatus::Settled)];
        txns.resize(4, txn(TxnStatus::Active));
        let mut world = World {
            steps: Vec::new(),
            txns,
            log_end: 8,
            last_ts: 0,
        };
        if row_exists {
            world.write(0, Some('A'), vec![(Sign::Entry, 'A')]);
        }
        world
    }

    fn write(&mut self, txn: u64, key: Option<char>, events: Vec<(Sign, char)>) {
        self.txns[txn as usize].snapshot.get_or_insert(self.last_ts);
        self.steps.push(Step {
            txn,
            lsn: self.log_end,
            key,
            events,
        });
        self.log_end += 8;
    }

    fn exists(&self, step: &Step) -> bool {
        let txn = &self.txns[step.txn as usize];
        txn.status != TxnStatus::Aborted && !txn.voids.iter().any(|range| range.contains(&step.lsn))
    }

    fn newest(&self) -> Option<&Step> {
        self.steps.iter().rev().find(|step| self.exists(step))
    }

    fn standing(&self, step: &Step) -> Standing {
        let txn = &self.txns[step.txn as usize];
        Standing {
            status: txn.status,
            void: txn.voids.iter().any(|range| range.contains(&step.lsn)),
        }
    }

    /// All worlds one legal step further.
    fn successors(&self) -> Vec<World> {
        let mut next = Vec::new();
        for txn in 1..self.txns.len() as u64 {
            let begun = |id: u64| self.steps.iter().any(|step| step.txn == id);
            if txn > 1 && self.txns[txn as usize - 1].snapshot.is_none() {
                break; // transactions are interchangeable: take them in order of their first step
            }
            match self.txns[txn as usize].status {
                TxnStatus::Active => {
                    next.extend(self.writes_of(txn));
                    if txn == 1 && self.txns[1].snapshot.is_none() {
                        let mut world = self.clone();
                        world.txns[1].snapshot = Some(self.last_ts);
                        next.push(world);
                    }
                    if begun(txn) {
                        next.extend(self.rollback_of_last(txn));
                        next.push(self.ended(txn, TxnStatus::Prepared));
                        next.extend(self.ends_of(txn));
                    }
                }
                TxnStatus::Prepared => next.extend(self.ends_of(txn)),
                _ => {}
            }
        }
        next
    }

    fn writes_of(&self, txn: u64) -> Vec<World> {
        let newest = self.newest();
        let locked = newest.is_some_and(|step| step.txn != txn && self.standing(step).status.is_unfinished());
        let changes: Vec<Change> = match newest.map(|step| step.key) {
            _ if locked => Vec::new(),
            None if self.steps.is_empty() => KEYS
                .iter()
                .map(|key| (Some(*key), vec![(Sign::Entry, *key)]))
                .collect(),
            Some(None) | None => Vec::new(),
            Some(Some(old)) => {
                let update = |key: &char| (Some(*key), self.events_of_update(txn, old, *key));
                KEYS.iter().map(update).chain([(None, Vec::new())]).collect()
            }
        };
        let write = |(key, events)| {
            let mut world = self.clone();
            world.write(txn, key, events);
            world
        };
        changes.into_iter().map(write).collect()
    }

    /// The events of an update (T11): against the key it replaces, and, if the writer's snapshot does not see
    /// the replaced version, against the key that it does see.
    fn events_of_update(&self, txn: u64, old: char, new: char) -> Vec<(Sign, char)> {
        let ts = self.txns[txn as usize].snapshot.unwrap_or(self.last_ts);
        let viewer = Viewer::snapshot(CommitTs::new(ts), TxnId::new(txn), Viewer::NO_CURSOR);
        let replaced = self.newest().expect("an update replaces a version");
        let stamp = Stamp {
            txn: TxnId::new(replaced.txn),
            lsn: Lsn::new(replaced.lsn),
        };
        let mut lost: BTreeSet<char> = BTreeSet::from([old]);
        let hidden = judge(&viewer, stamp, self.standing(replaced)) == Verdict::Skip;
        if let (true, Answer::Is(Some(seen))) = (hidden, chain_row(self, &viewer)) {
            lost.insert(seen);
        }
        lost.remove(&new);
        let gained = hidden || old != new;
        let entry = gained.then_some((Sign::Entry, new));
        entry
            .into_iter()
            .chain(lost.into_iter().map(|key| (Sign::AntiEntry, key)))
            .collect()
    }

    /// True if an index scan by this viewer must agree with the row: it reads as a transaction really can.
    fn is_consistent(&self, viewer: &Viewer) -> bool {
        let own = viewer.own.raw() as usize;
        match viewer.mode {
            ReadMode::Snapshot => own == 0 || self.txns[own].snapshot == Some(viewer.snapshot.raw()),
            ReadMode::Current => true,
            _ => false,
        }
    }

    /// Rollback to a savepoint set just before the transaction's last step that is still there.
    fn rollback_of_last(&self, txn: u64) -> Option<World> {
        let last = self
            .steps
            .iter()
            .rev()
            .find(|step| step.txn == txn && self.exists(step))?;
        let mut world = self.clone();
        world.txns[txn as usize].voids.push(last.lsn..self.log_end);
        world.log_end += 8;
        Some(world)
    }

    fn ended(&self, txn: u64, status: TxnStatus) -> World {
        let mut world = self.clone();
        world.txns[txn as usize].status = status;
        world.log_end += 8;
        world
    }

    fn ends_of(&self, txn: u64) -> Vec<World> {
        let mut committed = self.ended(txn, TxnStatus::Committed(CommitTs::new(self.last_ts + 1)));
        committed.last_ts += 1;
        vec![self.ended(txn, TxnStatus::Aborted), committed]
    }

    fn viewers(&self) -> Vec<Viewer> {
        let open = |id: &u64| self.txns[*id as usize].status == TxnStatus::Active;
        let owns: Vec<u64> = [0]
            .into_iter()
            .chain((1..self.txns.len() as u64).filter(open))
            .collect();
        let cursors: Vec<u64> = self.steps.iter().map(|step| step.lsn).chain([u64::MAX]).collect();
        let modes = [
            ReadMode::Snapshot,
            ReadMode::Current,
            ReadMode::Write { error_on_newer: true },
            ReadMode::Write {
                error_on_newer: false,
            },
            ReadMode::ReadCommittedNoWait,
        ];
        let mut viewers = Vec::new();
        for mode in modes {
            for ts in 0..=self.last_ts {
                for own in &owns {
                    viewers.extend(cursors.iter().map(|cursor| Viewer {
                        snapshot: CommitTs::new(ts),
                        own: TxnId::new(*own),
                        cursor: Lsn::new(*cursor),
                        mode,
                    }));
                }
            }
        }
        viewers
    }
}

/// What a viewer is told about a row or about one key of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer<T> {
    Is(T),
    Wait(u64),
    Conflict,
}

/// The oracle's view of one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Hidden,
    Seen,
    Blocks,
    TooNew,
}

fn sight(world: &World, viewer: &Viewer, step: &Step) -> Sight {
    if !world.exists(step) {
        return Sight::Hidden;
    }
    if step.txn != 0 && step.txn == viewer.own.raw() {
        let looks_back = viewer.mode != ReadMode::Current;
        return if looks_back && step.lsn >= viewer.cursor.raw() {
            Sight::Hidden
        } else {
            Sight::Seen
        };
    }
    let committed_at = match world.txns[step.txn as usize].status {
        TxnStatus::Committed(ts) => Some(ts.raw()),
        TxnStatus::Settled => Some(0),
        _ => None,
    };
    match (viewer.mode, committed_at) {
        (ReadMode::Snapshot | ReadMode::ReadCommittedNoWait, None) => Sight::Hidden,
        (_, None) => Sight::Blocks,
        (ReadMode::Snapshot, Some(ts)) if ts > viewer.snapshot.raw() => Sight::Hidden,
        (ReadMode::Write { error_on_newer: true }, Some(ts)) if ts > viewer.snapshot.raw() => Sight::TooNew,
        (_, Some(_)) => Sight::Seen,
    }
}

/// Replays the steps from first to last; the state after the last one is the answer.
fn replay<T: Copy>(
    world: &World,
    viewer: &Viewer,
    empty: T,
    apply: impl Fn(T, &Step) -> Option<T>,
) -> Answer<T> {
    let mut state = empty;
    let mut answer = Answer::Is(empty);
    for step in &world.steps {
        let Some(next) = apply(state, step) else { continue };
        answer = match sight(world, viewer, step) {
            Sight::Hidden => continue,
            Sight::Seen => Answer::Is(next),
            Sight::Blocks => Answer::Wait(step.txn),
            Sight::TooNew => Answer::Conflict,
        };
        state = next;
    }
    answer
}

fn oracle_row(world: &World, viewer: &Viewer) -> Answer<Option<char>> {
    replay(world, viewer, None, |_, step| Some(step.key))
}

fn oracle_key(world: &World, viewer: &Viewer, key: char) -> Answer<bool> {
    replay(world, viewer, false, |_, step| {
        let signs: Vec<Sign> = step
            .events
            .iter()
            .filter(|(_, of)| *of == key)
            .map(|(sign, _)| *sign)
            .collect();
        (!signs.is_empty()).then(|| signs.contains(&Sign::Entry))
    })
}

fn chain_row(world: &World, viewer: &Viewer) -> Answer<Option<char>> {
    for step in world.steps.iter().rev() {
        let stamp = Stamp {
            txn: TxnId::new(step.txn),
            lsn: Lsn::new(step.lsn),
        };
        match judge(viewer, stamp, world.standing(step)) {
            Verdict::Skip => {}
            Verdict::Visible => return Answer::Is(step.key),
            Verdict::Wait(txn) => return Answer::Wait(txn.raw()),
            Verdict::Conflict => return Answer::Conflict,
        }
    }
    Answer::Is(None)
}

fn events_key(world: &World, viewer: &Viewer, key: char) -> Answer<bool> {
    let of_step = |step: &Step| {
        let stamp = Stamp {
            txn: TxnId::new(step.txn),
            lsn: Lsn::new(step.lsn),
        };
        let standing = world.standing(step);
        let signs = step
            .events
            .iter()
            .filter(|(_, of)| *of == key)
            .map(|(sign, _)| *sign)
            .collect::<Vec<_>>();
        signs.into_iter().map(move |sign| IndexEvent {
            sign,
            stamp,
            standing,
        })
    };
    let forward: Vec<IndexEvent> = world.steps.iter().flat_map(of_step).collect();
    let decision = decide_events(viewer, forward.iter().copied());
    assert_eq!(
        decision,
        decide_events(viewer, forward.iter().rev().copied()),
        "T11: the order given does not matter"
    );
    match decision {
        EventDecision::Present => Answer::Is(true),
        EventDecision::Absent => Answer::Is(false),
        EventDecision::Wait(txn) => Answer::Wait(txn.raw()),
        EventDecision::Conflict => Answer::Conflict,
    }
}

fn check(world: &World) {
    for viewer in world.viewers() {
        let row = chain_row(world, &viewer);
        assert_eq!(row, oracle_row(world, &viewer), "T10: {viewer:?} in {world:?}");
        for key in KEYS {
            let found = events_key(world, &viewer, key);
            assert_eq!(
                found,
                oracle_key(world, &viewer, key),
                "T11: key {key}, {viewer:?} in {world:?}"
            );
            if let Answer::Is(Some(actual)) = row
                && world.is_consistent(&viewer)
            {
                let expected = Answer::Is(actual == key);
                assert_eq!(
                    found, expected,
                    "T11: the row is found under {key}: {viewer:?} in {world:?}"
                );
            }
        }
    }
}

fn explore(world: &World, depth: usize, seen: &mut BTreeSet<String>) {
    if !seen.insert(format!("{world:?}")) {
        return;
    }
    check(world);
    if depth > 0 {
        world
            .successors()
            .iter()
            .for_each(|next| explore(next, depth - 1, seen));
    }
}

#[test]
fn chains_and_index_events_agree_with_a_forward_replay() {
    let (depth, states_min) = if cfg!(miri) { (2, 40) } else { (6, 100) };
    let mut seen = BTreeSet::new();
    explore(&World::new(true), depth, &mut seen);
    explore(&World::new(false), depth, &mut seen);
    assert!(
        seen.len() > states_min,
        "{} states are too few to mean anything",
        seen.len()
    );
    println!("{} states of depth {depth}", seen.len());
}
