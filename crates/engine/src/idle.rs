//! Idle: when the foreground does so little that background work may do what is merely useful.
//!
//! Why it exists: what gives space back, and what brings a table back to its compacted size, costs work that load should not
//! have to share the machine with. Whether there is load is told by what it does: bytes of log, not the time of day.
//! State: where the log's end stood at the beginning of a stretch of time.
//! Rules: S36 the foreground is idle when it logged less than 16 KiB in a second or more. Records that background work leaves in the
//! log, some bytes a checkpoint, are far below that, so it does not take itself for load.
//! Latches and I/O: none.

/// Bytes of log that are work.
const WORK_BYTES: u64 = 16 << 10;
/// Milliseconds with less than that before the foreground counts as idle.
const IDLE_MILLIS: u64 = 1_000;

/// See the module. The first look begins the first stretch.
#[derive(Debug, Default)]
pub(crate) struct IdleWatch {
    /// When the stretch began, and the log's end then.
    began: Option<(u64, u64)>,
}

impl IdleWatch {
    /// True if the foreground is idle, with the log ending at `tail` now.
    pub(crate) fn look(&mut self, now_millis: u64, tail: u64) -> bool {
        let (began, from) = *self.began.get_or_insert((now_millis, tail));
        if tail.saturating_sub(from) >= WORK_BYTES {
            self.began = Some((now_millis, tail));
            return false;
        }
        let quiet = now_millis.saturating_sub(began);
        if quiet >= 2 * IDLE_MILLIS {
            // A new stretch, of which a second has passed: what is logged slowly does not add up to work.
            self.began = Some((now_millis - IDLE_MILLIS, tail));
        }
        quiet >= IDLE_MILLIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_work_is_idle_and_work_ends_it_at_once() {
        let mut watch = IdleWatch::default();
        assert!(!watch.look(5_000, 1 << 30), "S36: nothing is known yet");
        assert!(!watch.look(5_999, 1 << 30));
        assert!(watch.look(6_000, 1 << 30));
        assert!(
            watch.look(60_000, (1 << 30) + 48),
            "a checkpoint's mark is not work"
        );
        let tail = (1 << 30) + 48 + WORK_BYTES;
        assert!(!watch.look(60_001, tail), "S36: load ends it at once");
        assert!(!watch.look(60_900, tail));
        assert!(watch.look(61_001, tail));
    }

    #[test]
    fn what_trickles_is_no_work_and_what_flows_is() {
        let idle_after = |bytes_a_look: u64| {
            let mut watch = IdleWatch::default();
            (0..100)
                .filter(|look| watch.look(look * 200, look * bytes_a_look))
                .count()
        };
        assert!(idle_after(1 << 10) >= 94, "5 KiB a second");
        assert_eq!(idle_after(4 << 10), 0, "20 KiB a second");
        assert_eq!(idle_after(1 << 20), 0);
    }
}
