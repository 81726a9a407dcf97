//! Who wakes when a flush ends (rule D37), with flushes that end when the test says so.

use crate::log::Goal;
use crate::marks::Marks;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Longer than a thread that is about to sleep takes to do it.
const A_WHILE: Duration = Duration::from_millis(50);

/// A log whose flushes wait for the test.
struct Model {
    tail: AtomicU64,
    turn: Mutex<()>,
    marks: Marks,
    looks: AtomicU64,
    begun: Sender<u64>,
    go_on: Mutex<Receiver<()>>,
}

impl Model {
    fn new() -> (Arc<Model>, Receiver<u64>, Sender<()>) {
        let ((begun, flushes), (go, go_on)) = (channel(), channel());
        let model = Model {
            tail: AtomicU64::new(0),
            turn: Mutex::new(()),
            marks: Marks::starting_at(0),
            looks: AtomicU64::new(0),
            begun,
            go_on: Mutex::new(go_on),
        };
        (Arc::new(model), flushes, go)
    }

    fn turn(&self) -> Option<Result<(), ()>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let turn = self.turn.try_lock().ok()?;
        let round = self.marks.begin();
        let end = self.tail.load(Ordering::SeqCst);
        self.marks.set_covers(Goal::Durable, end);
        self.begun.send(round).ok()?;
        self.go_on.lock().ok()?.recv().ok()?;
        self.marks.set_written(end);
        self.marks.set_durable(end);
        drop(turn);
        self.marks.end(round);
        Some(Ok(()))
    }
}

fn commit(model: &Arc<Model>) -> JoinHandle<()> {
    let model = Arc::clone(model);
    spawn(move || {
        let lsn = model.tail.fetch_add(8, Ordering::SeqCst) + 8;
        let is_done = || model.marks.get(Goal::Durable) >= lsn;
        let waited = model
            .marks
            .wait_until(lsn, Goal::Durable, is_done, || model.turn());
        assert_eq!(waited, Ok(()));
        assert!(is_done(), "D1: released by the mark");
    })
}

#[test]
fn the_end_of_a_flush_wakes_whom_it_served_and_one_more() {
    let (model, flushes, go) = Model::new();
    let first = commit(&model);
    assert_eq!(flushes.recv(), Ok(1));
    // Five that the second flush serves: asleep, each after one look.
    let second: Vec<_> = (0..5).map(|_| commit(&model)).collect();
    sleep(A_WHILE);
    assert_eq!(model.looks.load(Ordering::SeqCst), 6);
    go.send(()).expect("the flush waits");
    assert_eq!(flushes.recv(), Ok(2), "D37: one of them was woken to run it");
    first.join().expect("the first flush has served it");
    sleep(A_WHILE);
    assert_eq!(model.looks.load(Ordering::SeqCst), 7, "D37: and only one");
    // Three more wait meanwhile, for the third flush.
    let third: Vec<_> = (0..3).map(|_| commit(&model)).collect();
    sleep(A_WHILE);
    go.send(()).expect("the flush waits");
    assert_eq!(flushes.recv(), Ok(3));
    for one in second {
        one.join().expect("the second flush has served all five");
    }
    sleep(A_WHILE);
    assert_eq!(
        model.looks.load(Ordering::SeqCst),
        7 + 3 + 1,
        "D37: who was served never looked again"
    );
    go.send(()).expect("the flush waits");
    for one in third {
        one.join().expect("the third flush has served all three");
    }
}

#[test]
fn a_crowd_is_who_waits_beside_the_one_that_flushes() {
    let (model, flushes, go) = Model::new();
    let first = commit(&model);
    assert_eq!(flushes.recv(), Ok(1));
    assert!(!model.marks.is_crowded(), "D37: alone, nobody is given way to");
    let second = commit(&model);
    // However long a busy machine takes to get there: it is the only thing that thread can do.
    while !model.marks.is_crowded() {
        sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        go.send(()).expect("the flush waits");
    }
    for one in [first, second] {
        one.join().expect("served");
    }
    assert!(!model.marks.is_crowded());
}

#[test]
fn an_error_reaches_all_who_wait() {
    let marks = Arc::new(Marks::starting_at(0));
    let (is_broken, asleep) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (marks, is_broken, asleep) =
                (Arc::clone(&marks), Arc::clone(&is_broken), Arc::clone(&asleep));
            spawn(move || {
                marks.wait_until(
                    8,
                    Goal::Durable,
                    || false,
                    || {
                        asleep.fetch_add(1, Ordering::SeqCst);
                        (is_broken.load(Ordering::SeqCst) == 1).then_some(Err("broken"))
                    },
                )
            })
        })
        .collect();
    while asleep.load(Ordering::SeqCst) < 4 {
        sleep(Duration::from_millis(1));
    }
    sleep(A_WHILE);
    is_broken.store(1, Ordering::SeqCst);
    // As the end of a flush does: one is told, and tells the others.
    marks.end(0);
    for waiter in waiters {
        assert_eq!(waiter.join().expect("no panic"), Err("broken"));
    }
}

#[test]
fn many_commits_on_many_threads_all_come_to_an_end() {
    let (model, flushes, go) = Model::new();
    let flushing = spawn(move || while flushes.recv().is_ok() && go.send(()).is_ok() {});
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let model = Arc::clone(&model);
            spawn(move || {
                for _ in 0..500 {
                    commit(&model).join().expect("served");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all served");
    }
    drop(model);
    flushing.join().expect("no panic");
}
