//! Storage runs: many storage lives, in as many threads as there are processors, until there are enough or somebody says stop.
//!
//! Why it exists: a life is one thread's work from one number; which numbers are played, how fast, and what the first failure says is
//! told here. A life that does not answer is a failure too.

use crate::storage::{Done, Wrong, play_life};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A life that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(3);
/// How often it is looked whether there is reason to stop.
const LOOK: Duration = Duration::from_millis(200);

/// What many lives did.
#[derive(Debug)]
pub struct Run {
    /// All of it.
    pub done: Done,
    /// How long they took.
    pub took: Duration,
    /// The first failure.
    pub wrong: Option<Wrong>,
}

impl Run {
    /// Lives a minute.
    pub fn per_minute(&self) -> f64 {
        per_minute(self.done.lives, self.took)
    }
}

fn per_minute(lives: u64, took: Duration) -> f64 {
    lives as f64 * 60.0 / took.as_secs_f64().max(0.001)
}

/// What the threads of a run share.
struct Shared {
    next: AtomicU64,
    end: u64,
    is_over: AtomicBool,
}

/// What a thread tells.
enum News {
    Began {
        worker: usize,
        seed: u64,
    },
    Ended {
        worker: usize,
        life: Box<Result<Done, Wrong>>,
    },
}

/// Plays the lives of `count` seeds from the first one on, as many at a time as there are `workers`, until one fails or `is_stopped`.
/// `tell` is given the lives so far, now and then.
pub fn play_lives(
    first: u64,
    count: u64,
    workers: usize,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Run),
) -> Run {
    let shared = Arc::new(Shared {
        next: AtomicU64::new(first),
        end: first.saturating_add(count),
        is_over: AtomicBool::new(false),
    });
    let (news, told) = channel();
    for worker in 0..workers.max(1) {
        let (shared, news) = (Arc::clone(&shared), news.clone());
        // Not waited for: one that hangs must not keep the report.
        thread::spawn(move || work(&shared, worker, &news));
    }
    drop(news);
    follow(&shared, workers.max(1), &told, is_stopped, tell)
}

fn work(shared: &Shared, worker: usize, news: &Sender<News>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        // Nobody listens any more once the run is over.
        if seed >= shared.end || news.send(News::Began { worker, seed }).is_err() {
            return;
        }
        let life = Box::new(play_life(seed));
        if news.send(News::Ended { worker, life }).is_err() {
            return;
        }
    }
}

fn follow(
    shared: &Shared,
    workers: usize,
    told: &Receiver<News>,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Run),
) -> Run {
    let began = Instant::now();
    let mut run = Run {
        done: Done::default(),
        took: Duration::ZERO,
        wrong: None,
    };
    let mut playing: Vec<Option<(u64, Instant)>> = vec![None; workers];
    loop {
        match told.recv_timeout(LOOK) {
            Ok(News::Began { worker, seed }) => playing[worker] = Some((seed, Instant::now())),
            Ok(News::Ended { worker, life }) => {
                playing[worker] = None;
                match *life {
                    Ok(done) => run.done.add(&done),
                    Err(wrong) => run.wrong = Some(wrong),
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        run.took = began.elapsed();
        tell(&run);
        if is_stopped() {
            shared.is_over.store(true, Ordering::Relaxed);
        }
        let hangs = playing
            .iter()
            .flatten()
            .find(|(_, since)| since.elapsed() > PATIENCE);
        if let Some((seed, _)) = hangs.filter(|_| run.wrong.is_none()) {
            let text =
                format!("seed {seed}: no answer in {PATIENCE:?}\nagain: pbxt-sim --storage 1 --seed {seed}");
            run.wrong = Some(Wrong { text });
        }
        if run.wrong.is_some() {
            shared.is_over.store(true, Ordering::Relaxed);
            break;
        }
    }
    run
}
