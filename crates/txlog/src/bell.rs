//! Bell: a place to sleep in that one system call wakes as a whole.
//!
//! Why it exists:    a condition variable hands its sleepers the latch they slept with, so they wake one after the other, each by a
//!                   system call of the one before. Whoever sleeps here sleeps on a word and takes nothing along.
//! State:            `rings`, a number that each ring changes: who read it before its last look at the world does not sleep when
//!                   the world changed since. `calls` counts the rings for all: it changes before `rings` does and is read after
//!                   it, so who finds it unchanged may be the only one that was woken. `sleepers` spares the system call when
//!                   nobody sleeps.
//! Rules:            D37.
//! Latches and I/O:  none; sleeping is a futex (Franke, Russell, Kirkwood: Fuss, Futexes and Furwocks, 2002).

#[cfg(loom)]
pub(crate) use modelled::Bell;
#[cfg(not(loom))]
pub(crate) use real::Bell;

/// What a thread has heard before its last look at what it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    rings: u32,
    calls: u32,
}

#[cfg(not(loom))]
mod real {
    use super::Heard;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// See the module.
    #[derive(Debug, Default)]
    pub(crate) struct Bell {
        rings: AtomicU32,
        calls: AtomicU32,
        sleepers: AtomicU32,
    }

    impl Bell {
        /// To be asked before the last look at what is waited for.
        pub(crate) fn heard(&self) -> Heard {
            let rings = self.rings.load(Ordering::SeqCst);
            let calls = self.calls.load(Ordering::SeqCst);
            Heard { rings, calls }
        }

        /// Sleeps until the bell rings, if it has not since. May also return for no reason. True: all who slept were woken; false: maybe
        /// only this thread was.
        pub(crate) fn sleep(&self, heard: Heard) -> bool {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            atomic_wait::wait(&self.rings, heard.rings);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            self.calls.load(Ordering::SeqCst) != heard.calls
        }

        /// True if somebody sleeps, or is about to.
        pub(crate) fn has_sleepers(&self) -> bool {
            self.sleepers.load(Ordering::Relaxed) > 0
        }

        /// Wakes all who sleep, and keeps awake who is about to.
        pub(crate) fn ring_all(&self) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            if self.ring() {
                atomic_wait::wake_all(&raw const self.rings);
            }
        }

        /// Wakes one of those who sleep, and keeps awake who is about to.
        pub(crate) fn ring_one(&self) {
            if self.ring() {
                atomic_wait::wake_one(&raw const self.rings);
            }
        }

        /// Whether somebody may sleep. Who counts itself after this look finds the number changed when the system compares it.
        fn ring(&self) -> bool {
            self.rings.fetch_add(1, Ordering::SeqCst);
            self.sleepers.load(Ordering::SeqCst) > 0
        }
    }
}

/// The same for loom, which knows no futex: what the system does between comparing and sleeping is done under a latch.
#[cfg(loom)]
mod modelled {
    use super::Heard;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(crate) struct Bell {
        rings: Mutex<u32>,
        calls: AtomicU32,
        rung: Condvar,
    }

    impl Default for Bell {
        fn default() -> Bell {
            Bell {
                rings: Mutex::new(0),
                calls: AtomicU32::new(0),
                rung: Condvar::new(),
            }
        }
    }

    impl Bell {
        pub(crate) fn heard(&self) -> Heard {
            let rings = *self.rings.lock().expect("no panic");
            let calls = self.calls.load(Ordering::SeqCst);
            Heard { rings, calls }
        }

        pub(crate) fn sleep(&self, heard: Heard) -> bool {
            let now = self.rings.lock().expect("no panic");
            if *now == heard.rings {
                drop(self.rung.wait(now).expect("no panic"));
            }
            self.calls.load(Ordering::SeqCst) != heard.calls
        }

        /// Loom tries every order of threads anyway.
        pub(crate) fn has_sleepers(&self) -> bool {
            false
        }

        pub(crate) fn ring_all(&self) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            *self.rings.lock().expect("no panic") += 1;
            self.rung.notify_all();
        }

        pub(crate) fn ring_one(&self) {
            *self.rings.lock().expect("no panic") += 1;
            self.rung.notify_one();
        }
    }
}
