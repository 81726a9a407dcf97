//! Clock: time as a parameter, so that tests can hold it.

use pbxt_base::invariant;
use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since some fixed moment; never goes back.
    fn now_millis(&self) -> u64;
    /// The same, some milliseconds off either way, for who asks at every statement.
    fn rough_millis(&self) -> u64 {
        self.now_millis()
    }
    /// `now_millis` in microseconds.
    fn now_micros(&self) -> u64 {
        self.now_millis() * 1000
    }
    /// Seconds since 1970.
    fn unix_seconds(&self) -> u64;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    started_rough: u64,
}

impl SystemClock {
    /// Counts milliseconds from now on.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            started_rough: tick_millis(),
        }
    }
}

/// Milliseconds at the last tick of the system's timer. To read it takes no look at a counter of the processor, which waits for all
/// instructions before it.
fn tick_millis() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a place for the one struct that the call writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    invariant!(failed == 0, "the system has a clock of ticks");
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn rough_millis(&self) -> u64 {
        tick_millis().saturating_sub(self.started_rough)
    }

    fn now_micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn unix_seconds(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A tick takes 10 ms at most.
    const TICK_MILLIS: u64 = 10;

    #[test]
    fn rough_time_is_a_tick_off_at_most() {
        let clock = SystemClock::new();
        for _ in 0..20 {
            let (before, rough, after) = (clock.now_millis(), clock.rough_millis(), clock.now_millis());
            assert!(
                rough + TICK_MILLIS >= before && rough <= after + TICK_MILLIS,
                "{before} {rough} {after}"
            );
            std::thread::sleep(Duration::from_millis(7));
        }
    }
}
