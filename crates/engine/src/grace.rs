//! Grace: the time after which nobody has what he had found when it began.
//!
//! Why it exists: a reader takes a version out of the log under an epoch guard and asks for its transaction a moment later. Who wants the
//! answer to become another one has to let all such readers pass, and none of them can be asked. It is a grace period as of
//! read-copy-update (McKenney, Slingwine 1998), told by the epochs that readers pin anyway (Fraser 2004).
//! Rules: S23.
//! Latches and I/O: none. The thread that waits has no guard, or nothing passes.
//! After a crash: there are no readers.

use crossbeam_epoch::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug)]
pub(crate) struct Grace(Arc<AtomicBool>);

impl Grace {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        pin().defer(move || told.store(true, Ordering::Release));
        Self(is_over)
    }

    /// True once everybody has let go of his guard. Looks so many times at most, with a little sleep between two: readers seldom have one for
    /// longer than a read.
    pub(crate) fn is_over(&self, looks: u32) -> bool {
        for look in 0..looks {
            if look > 0 {
                std::thread::sleep(LOOK);
            }
            // What was deferred is done by who pins while nobody is two epochs behind.
            pin().flush();
            if self.0.load(Ordering::Acquire) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn it_is_over_when_those_have_let_go_who_had_a_guard() {
        let (pinned, has_pinned) = channel();
        let (release, released) = channel();
        let reader = std::thread::spawn(move || {
            let guard = pin();
            pinned.send(()).expect("the test waits");
            released.recv().expect("the test tells");
            drop(guard);
        });
        has_pinned.recv().expect("pinned");
        let grace = Grace::begin();
        assert!(!grace.is_over(20), "S23: it has its guard yet");
        release.send(()).expect("it waits");
        reader.join().expect("it ends well");
        assert!(grace.is_over(200_000), "S23: nobody has one");
        assert!(grace.is_over(1), "and so it stays");
    }
}
