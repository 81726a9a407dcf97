//! Lane: a thread that works through the jobs of one owner, in order, while the owner prepares the next one.
//!
//! Why it exists: a load has two halves that can run side by side, making rows and writing them; the owner hands over a
//! full buffer and fills the other one. At most one job waits, so a slow disk slows the owner and not the memory.
//! After a panic: the thread ends, its owner is told that no answer will come; nothing else is harmed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// See the module. Dropped, it waits until the thread has ended.
#[derive(Debug)]
pub struct Lane<J, A> {
    jobs: Option<SyncSender<J>>,
    answers: Receiver<A>,
    thread: Option<JoinHandle<()>>,
}

/// What came back from a lane.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<A> {
    /// The answer to the oldest job without one.
    Ready(A),
    /// None within the time.
    NotYet,
    /// None will come: the thread panicked.
    Never,
}

impl<J: Send + 'static, A: Send + 'static> Lane<J, A> {
    /// Starts the thread. `work` is dropped by it when the lane is.
    pub fn spawn(name: &str, mut work: impl FnMut(J) -> A + Send + 'static) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(1);
        let (done, answers) = channel();
        let run = move || {
            while let Ok(job) = waiting.recv() {
                if done.send(work(job)).is_err() {
                    return;
                }
            }
        };
        let thread = crate::instruments::spawn(name, run)?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
        })
    }

    /// Hands a job over; waits while another one is waiting. False if the thread is gone.
    pub fn give(&self, job: J) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// The next answer, in the order of the jobs.
    pub fn answer(&self, at_most: Duration) -> Answer<A> {
        match self.answers.recv_timeout(at_most) {
            Ok(answer) => Answer::Ready(answer),
            Err(RecvTimeoutError::Timeout) => Answer::NotYet,
            Err(RecvTimeoutError::Disconnected) => Answer::Never,
        }
    }
}

impl<J, A> Drop for Lane<J, A> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The owner was told of a panic by `Answer::Never`.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_lane_answers_in_order_and_tells_of_a_panic() {
        let lane = Lane::spawn("test", |job: u32| {
            assert_ne!(job, 7, "planted");
            job * 2
        })
        .expect("a thread");
        assert!(lane.give(1) && lane.give(2));
        assert_eq!(lane.answer(LONG), Answer::Ready(2));
        assert_eq!(lane.answer(LONG), Answer::Ready(4));
        assert_eq!(lane.answer(Duration::from_millis(1)), Answer::NotYet);
        assert!(lane.give(7));
        assert_eq!(lane.answer(LONG), Answer::Never);
        assert!(!lane.give(8));
    }
}
