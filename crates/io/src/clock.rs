//! Clock: time as a parameter, so that tests can hold it.

use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since some fixed moment; never goes back.
    fn now_millis(&self) -> u64;
    /// The same in microseconds.
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
}

impl SystemClock {
    /// Counts milliseconds from now on.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
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

    fn now_micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn unix_seconds(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }
}
