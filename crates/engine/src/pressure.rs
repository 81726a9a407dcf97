//! Pressure: slows writers down when background work does not keep up with them.
//!
//! Why it exists: entries that wait for a checkpoint take memory, log that waits to be homed takes disk. A limit at which
//! everybody stops would be felt as a standstill, so the pause grows with what waits, until both sides are equally fast.
//! State: none of its own; how far the compactor has looked is in `Upkeep`.
//! Rules: D25 a writer is slowed down, never stopped. S30 for the log: what counts is what nobody has looked at yet. Log that
//! an old snapshot or a long transaction keeps does not become less when writers wait.
//! Latches and I/O: called with nothing held; two loads in the usual case.

use crate::database::Database;
use pbxt_io::{WaitKind, while_waiting};
use std::time::Duration;

/// By how much trees may pass their limit before writers are slowed down.
const TREES: u64 = 4;
/// How many times the log that is kept without need may wait for the compactor before writers are slowed down.
const LOG: u64 = 2;
/// That log counts as so much at least.
const HOT_BYTES_MIN: u64 = 64 << 20;
/// Pause, for a batch of rows, when twice as much waits as may without one; it grows and falls in proportion.
const PAUSE_MICROS: u64 = 16_000;
/// Longest pause.
const PAUSE_MICROS_MAX: u64 = 250_000;

impl Database {
    /// Slows a writer down while background work is behind (rules D25, S30). To be called once per batch of rows, with
    /// nothing held.
    pub fn pressure(&self) {
        let (trees, tree_limit) = self.tree_bytes();
        let pause = pause_for(trees, tree_limit * TREES).max(pause_for(
            self.log_backlog(),
            self.hot_bytes_limit().max(HOT_BYTES_MIN) * LOG,
        ));
        if !pause.is_zero() && self.wake_background() {
            while_waiting(WaitKind::Background, || std::thread::sleep(pause));
        }
    }

    /// Bytes of finished and unfinished log that the compactor has not looked at.
    pub fn log_backlog(&self) -> u64 {
        let looked_at = self.upkeep.looked_at().max(self.log_floor().raw());
        self.log.tail().raw().saturating_sub(looked_at)
    }
}

/// The pause when so much waits.
fn pause_for(waiting: u64, limit: u64) -> Duration {
    let excess = waiting.saturating_sub(limit);
    let micros = u128::from(excess) * u128::from(PAUSE_MICROS) / u128::from(limit.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).min(PAUSE_MICROS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pause_begins_at_nothing_and_grows_in_proportion() {
        assert_eq!(pause_for(512 * MIB, 512 * MIB), Duration::ZERO);
        assert_eq!(pause_for(768 * MIB, 512 * MIB), Duration::from_millis(8));
        assert_eq!(pause_for(1024 * MIB, 512 * MIB), Duration::from_millis(16));
        assert_eq!(pause_for(u64::MAX, 512 * MIB), Duration::from_millis(250));
        let pauses: Vec<_> = (0..4000).map(|mib| pause_for(mib * MIB, 512 * MIB)).collect();
        let step = Duration::from_micros(32);
        assert!(
            pauses
                .windows(2)
                .all(|pair| pair[0] <= pair[1] && pair[1].saturating_sub(pair[0]) <= step),
            "S30: no cliff"
        );
    }

    /// Writers of `batch` bytes a millisecond each, against a compactor: the most that ever waits.
    fn most_waiting(writers: usize, batch: u64, homed_per_milli: u64) -> u64 {
        let limit = 512 * MIB;
        let mut next_at = vec![0_u64; writers];
        let (mut waiting, mut most) = (0_u64, 0);
        for micros in (0..600_000_000_u64).step_by(1000) {
            for at in next_at.iter_mut().filter(|at| **at <= micros) {
                waiting += batch;
                *at = micros + 1000 + pause_for(waiting, limit).as_micros() as u64;
            }
            waiting = waiting.saturating_sub(homed_per_milli);
            most = most.max(waiting);
        }
        most
    }

    #[test]
    fn writers_far_faster_than_the_compactor_leave_a_bounded_log() {
        // 256 rows of 200 bytes a batch; the compactor homes 40 MB a second.
        let (batch, homed) = (256 * 200, 40_000);
        assert!(
            most_waiting(1, batch / 2, homed) < 512 * MIB,
            "S30: a slower writer never waits"
        );
        let most = most_waiting(16, batch, homed);
        assert!(most < 1280 * MIB, "S30: {} MiB", most / MIB);
        let most = most_waiting(64, batch, homed);
        assert!(most < 4096 * MIB, "S30: {} MiB", most / MIB);
    }
}
