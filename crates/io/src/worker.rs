//! Worker: a named background thread with a stop signal; a panic in it poisons the database.
//!
//! Why it exists: background work is a step function; the thread around it is these lines and nothing else.
//! After a crash: nothing; what the steps do has its own rules.

use crate::poison::Poison;
use parking_lot::{Condvar, Mutex};
use pbxt_base::PoisonCause;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Debug, Default)]
struct Signals {
    stop: bool,
    wake: bool,
}

/// Tells a worker to look for work or to stop.
#[derive(Debug, Default)]
pub struct StopSignal {
    signals: Mutex<Signals>,
    changed: Condvar,
}

impl StopSignal {
    /// Not stopped.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// True once `stop` was called.
    pub fn is_stopped(&self) -> bool {
        self.signals.lock().stop
    }

    /// Wakes the worker for good.
    pub fn stop(&self) {
        self.signals.lock().stop = true;
        self.changed.notify_all();
    }

    /// Wakes the worker once.
    pub fn wake(&self) {
        self.signals.lock().wake = true;
        self.changed.notify_all();
    }

    /// Sleeps until woken, stopped or the time is over. False if stopped.
    pub fn sleep(&self, at_most: Duration) -> bool {
        let mut signals = self.signals.lock();
        if !signals.stop && !signals.wake {
            self.changed.wait_for(&mut signals, at_most);
        }
        signals.wake = false;
        !signals.stop
    }
}

/// How a thread shares processors with the others of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// As all others.
    Equal,
    /// Whoever wakes up goes first, and where processors are short it gets about a tenth of what another thread gets. Where the system has no
    /// such thing for single threads it is as all others.
    Behind,
}

/// See setpriority(2): each of so many steps takes a tenth to a fifth of the weight.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

impl Rank {
    /// Ranks the calling thread, for its whole life: to come back takes a privilege.
    fn take(self) {
        #[cfg(target_os = "linux")]
        if self == Rank::Behind {
            // SAFETY: nice() has no memory of ours. In Linux it is about the calling thread.
            let _ = unsafe { libc::nice(NICE) };
        }
    }
}

/// What a panic had to say.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given")
}

/// A running background thread; stopped and joined when dropped.
#[derive(Debug)]
pub struct Worker {
    signal: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Runs `step` again and again, with at most `pause` between two runs, until stopped. A panic poisons.
    pub fn spawn(
        name: &str,
        poison: Arc<Poison>,
        pause: Duration,
        step: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::spawn_ranked(name, Rank::Equal, poison, pause, step)
    }

    /// The same with a thread of this rank.
    pub fn spawn_ranked(
        name: &str,
        rank: Rank,
        poison: Arc<Poison>,
        pause: Duration,
        mut step: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let signal = StopSignal::new();
        let seen = Arc::clone(&signal);
        let title = name.to_owned();
        let run = move || {
            rank.take();
            while seen.sleep(pause) {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(&mut step)) {
                    let why = panic_text(&*panic).replace('\n', " ");
                    let reason = format!("background thread '{title}' failed: {why}");
                    poison.set(PoisonCause::Panic, reason);
                    return;
                }
            }
        };
        let thread = crate::instruments::spawn(name, run)?;
        Ok(Self {
            signal,
            thread: Some(thread),
        })
    }

    /// Asks for a run at once.
    pub fn wake(&self) {
        self.signal.wake();
    }

    /// Stops and waits for the end of the running step; called from within the step, it ends when the step does.
    pub fn stop(&mut self) {
        self.signal.stop();
        let Some(thread) = self.thread.take() else { return };
        // The step may own the last reference to whoever owns the worker; a thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            // A panic was turned into poison inside; there is nothing left to tell.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_behind_others_has_less_weight_and_others_have_not() {
        // proc(5): the nineteenth field; the second one is the name in brackets.
        fn nice() -> i64 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("readable");
            let (_, behind_name) = stat.rsplit_once(')').expect("a name");
            behind_name
                .split_whitespace()
                .nth(16)
                .expect("nineteen fields")
                .parse()
                .expect("a number")
        }
        let own = nice();
        for (rank, wanted) in [
            (Rank::Equal, own),
            (Rank::Behind, (own + i64::from(NICE)).min(19)),
        ] {
            let (told, heard) = std::sync::mpsc::channel();
            let step = move || told.send(nice()).unwrap_or_default();
            let poison = Arc::new(Poison::new());
            let _worker =
                Worker::spawn_ranked("rank", rank, poison, Duration::from_millis(1), step).expect("a thread");
            assert_eq!(heard.recv().expect("a step"), wanted, "{rank:?}");
        }
        assert_eq!(nice(), own);
    }

    #[test]
    fn a_worker_steps_and_stops() {
        let steps = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&steps);
        let poison = Arc::new(Poison::new());
        let mut worker = Worker::spawn("test", poison, Duration::from_millis(1), move || {
            seen.fetch_add(1, Ordering::Relaxed);
        })
        .expect("a thread");
        while steps.load(Ordering::Relaxed) < 3 {
            worker.wake();
            std::thread::yield_now();
        }
        worker.stop();
    }

    #[test]
    fn a_worker_may_be_dropped_by_its_own_step() {
        let owner: Arc<Mutex<Option<Worker>>> = Arc::new(Mutex::new(None));
        let (inside, dropped) = (Arc::clone(&owner), Arc::new(AtomicU64::new(0)));
        let (seen, poison) = (Arc::clone(&dropped), Arc::new(Poison::new()));
        let step = move || {
            if let Some(worker) = inside.lock().take() {
                drop(worker);
                seen.store(1, Ordering::Release);
            }
        };
        let worker =
            Worker::spawn("own", Arc::clone(&poison), Duration::from_millis(1), step).expect("a thread");
        *owner.lock() = Some(worker);
        while dropped.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert!(!poison.is_set());
    }

    #[test]
    fn a_panic_in_a_step_poisons() {
        let poison = Arc::new(Poison::new());
        let mut worker = Worker::spawn("bad", Arc::clone(&poison), Duration::from_millis(1), || {
            panic!("planted")
        })
        .expect("a thread");
        while !poison.is_set() {
            std::thread::yield_now();
        }
        worker.stop();
        let sentence = poison.error().to_string();
        assert!(
            sentence.contains("internal error (background thread 'bad' failed: planted)"),
            "{sentence}"
        );
    }
}
