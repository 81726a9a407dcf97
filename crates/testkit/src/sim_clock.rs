//! SimClock: a clock that stands still until a test moves it.

use pbxt_io::Clock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock moved by hand.
#[derive(Debug, Default)]
pub struct SimClock {
    millis: AtomicU64,
}

impl SimClock {
    /// Stands at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on.
    pub fn advance_millis(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::AcqRel);
    }
}

impl Clock for SimClock {
    fn now_millis(&self) -> u64 {
        self.millis.load(Ordering::Acquire)
    }

    fn unix_seconds(&self) -> u64 {
        self.now_millis() / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_only_when_told() {
        let clock = SimClock::new();
        assert_eq!(clock.now_millis(), 0);
        clock.advance_millis(2500);
        assert_eq!((clock.now_millis(), clock.unix_seconds()), (2500, 2));
    }
}
