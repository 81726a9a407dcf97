//! Holding one thread at a named stop point while the test does something else.

use parking_lot::{Condvar, Mutex, MutexGuard};
use pbxt_base::stop_point::{NAMES, set_hook};
use std::sync::Arc;
use std::time::Duration;

/// There is one hook for the process, so tests that use it take turns.
static TURN: Mutex<()> = Mutex::new(());
/// Name of the thread that is held.
const HELD: &str = "held";
/// Nothing in these tests takes this long.
const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Gate {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn stop_here(&self) {
        let mut state = self.state.lock();
        if state.0 {
            return;
        }
        state.0 = true;
        self.changed.notify_all();
        let ended = self.changed.wait_while_for(&mut state, |state| !state.1, LONG);
        assert!(!ended.timed_out(), "the test never released the thread it held");
    }
}

/// The right to use the hook; gives it back when dropped.
pub(crate) struct Turn(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Drop for Turn {
    fn drop(&mut self) {
        set_hook(None);
    }
}

pub(crate) fn turn() -> Turn {
    Turn(TURN.lock())
}

/// A thread that has come to a stop point and waits there.
pub(crate) struct Held<T> {
    gate: Arc<Gate>,
    thread: std::thread::JoinHandle<T>,
}

/// Runs `work` in a thread of its own until it reaches `point` for the first time.
pub(crate) fn hold_at<T: Send + 'static>(
    _turn: &Turn,
    point: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Held<T> {
    assert!(NAMES.contains(&point), "{point} is a stop point");
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    set_hook(Some(Arc::new(move |name| {
        if name == point && std::thread::current().name() == Some(HELD) {
            at_gate.stop_here();
        }
    })));
    let thread = std::thread::Builder::new()
        .name(HELD.into())
        .spawn(work)
        .expect("a thread");
    let mut state = gate.state.lock();
    let reached = gate.changed.wait_while_for(&mut state, |state| !state.0, LONG);
    drop(state);
    assert!(!reached.timed_out(), "the thread never came to {point}");
    Held { gate, thread }
}

impl<T> Held<T> {
    /// Lets the thread go on.
    #[allow(dead_code, reason = "each test file uses a part of this")]
    pub(crate) fn let_go(&self) {
        self.gate.state.lock().1 = true;
        self.gate.changed.notify_all();
    }

    /// True if it has done its work.
    #[allow(dead_code, reason = "each test file uses a part of this")]
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Lets the thread go on and gives what it did.
    pub(crate) fn release(self) -> T {
        self.let_go();
        self.thread.join().expect("the held thread ends well")
    }
}
