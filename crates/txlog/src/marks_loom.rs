//! Every interleaving of those who wait for the log, by loom: run with `RUSTFLAGS="--cfg loom" cargo test --release --lib`.
//!
//! Rule: D37. Loom says so when a thread sleeps for ever, which is what a ring too few comes to.

use crate::log::Goal;
use crate::marks::Marks;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

const RECORD: u64 = 8;

struct Model {
    tail: AtomicU64,
    turn: Mutex<()>,
    marks: Marks,
}

impl Model {
    fn commit(&self, goal: Goal) {
        let lsn = self.tail.fetch_add(RECORD, Ordering::SeqCst) + RECORD;
        let is_done = || self.marks.get(goal) >= lsn;
        let turn = || {
            let turn = self.turn.try_lock().ok()?;
            if is_done() {
                drop(turn);
                self.marks.wake_all();
                return Some(Ok::<(), ()>(()));
            }
            let round = self.marks.begin();
            let end = self.tail.load(Ordering::SeqCst);
            self.marks.set_covers(goal, end);
            self.marks.set_written(end);
            if goal == Goal::Durable {
                self.marks.set_durable(end);
            }
            drop(turn);
            self.marks.end(round);
            Some(Ok(()))
        };
        let waited = self.marks.wait_until(lsn, goal, is_done, turn);
        assert!(waited.is_ok() && is_done(), "D1: released by the mark");
    }
}

/// Every interleaving with at most two preemptions; three take minutes.
fn explore(goals: &'static [Goal]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let model = Arc::new(Model {
            tail: AtomicU64::new(0),
            turn: Mutex::new(()),
            marks: Marks::starting_at(0),
        });
        let (&first, others) = goals.split_first().expect("somebody commits");
        let others: Vec<_> = others
            .iter()
            .map(|&goal| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.commit(goal))
            })
            .collect();
        model.commit(first);
        for other in others {
            other.join().expect("no panic");
        }
    });
}

#[test]
fn nobody_who_waits_for_the_log_sleeps_for_ever() {
    explore(&[Goal::Durable, Goal::Durable, Goal::Durable]);
}

#[test]
fn nor_when_some_ask_for_less_than_others() {
    explore(&[Goal::Durable, Goal::Written, Goal::Durable]);
}
