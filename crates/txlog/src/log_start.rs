//! Log start: the address below which the log is no longer read, and the segments that may go because of it.
//!
//! Why it exists:    rows leave the log for runs, and checkpoints make its beginning needless for recovery; whoever still
//!                   holds an address from there must be told "not here any more" and not "damaged".
//! State:            one LSN that only rises. An address below it means BASE: ask the row shape.
//! Rules:            D16, D17: start rises -> chunks leave memory -> files are dropped, oldest first; a read that meets a file
//!                   that is gone looks at the start again before it calls it damage.
//! Latches and I/O:  the ring latch of the cache, for moments.
//! After a crash:    the start is in the manifest's checkpoint record; the engine gives it to `LogEnd::with_log_start`.

use crate::core::Core;
use crate::files::HotFiles;
use crate::log::Goal;
use crate::scan::LogEnd;
use crate::tail::BATCH_HEADER_BYTES;
use pbxt_base::{Error, Lsn, Result, SegmentId, invariant};
use std::sync::atomic::Ordering;

impl LogEnd {
    /// The same end of a log that is readable only from `start` on (D16); see `Log::start`.
    #[must_use]
    pub fn with_log_start(mut self, start: Lsn) -> LogEnd {
        self.log_start = start;
        self
    }

    /// Refuses a start beyond the end: whoever noted it saw a log that was durable up to there.
    pub(crate) fn check_log_start(&self, files: &HotFiles) -> Result<()> {
        if self.log_start <= self.tail_max() {
            return Ok(());
        }
        Err(Error::Corrupt {
            file: files.name(self.segment),
            offset: files.layout().file_offset(self.cut.raw()),
            expected: format!("a log that reaches its own start at LSN {}", self.log_start),
            found: format!("its end at LSN {}", self.cut),
        })
    }
}

impl Core {
    /// See `Log::start`.
    #[inline]
    pub(crate) fn start(&self) -> Lsn {
        // Acquire: who sees the new start also sees the row shape that was installed before it.
        Lsn::new(self.start.load(Ordering::Acquire))
    }

    /// See `Log::set_start`.
    pub(crate) fn set_start(&self, lsn: Lsn) {
        invariant!(
            lsn.raw() <= self.marks.get(Goal::Durable),
            "D16: the log starts in its durable part"
        );
        if self.start.fetch_max(lsn.raw(), Ordering::AcqRel) < lsn.raw() {
            self.forget_below_start();
        }
    }

    /// Takes the chunks below the start out of memory.
    pub(crate) fn forget_below_start(&self) {
        let start = self.start().raw();
        self.cache.forget_below(self, self.layout.chunk_of(start));
    }

    /// See `Log::droppable_segments`.
    pub(crate) fn droppable_segments(&self, below: Lsn) -> Result<Vec<SegmentId>> {
        let end = below.min(self.start()).raw();
        let durable = self.durable_batches_end();
        let mut segments = self.files.hot_ids()?;
        segments.retain(|segment| {
            let next = SegmentId::new(segment.raw() + 1);
            self.layout.segment_start(next) <= end && self.layout.segment_body(next) < durable
        });
        Ok(segments)
    }

    /// Where the log of a segment ends that takes no more batches and is durable.
    pub(crate) fn finished_end(&self, segment: SegmentId) -> Option<u64> {
        if segment <= self.past.segment {
            return self.past.end_of(segment);
        }
        self.files.sealed_end(segment)
    }

    /// Position behind the last durable batch. D17: a segment goes only when a batch behind it is durable; recovery
    /// then knows by that batch's sequence where it stands, and a missing one is damage.
    fn durable_batches_end(&self) -> u64 {
        let next = self.marks.get(Goal::Durable) - BATCH_HEADER_BYTES;
        let opened_at = self
            .layout
            .segment_body(SegmentId::new(self.past.segment.raw() + 1));
        if next > opened_at {
            next
        } else {
            self.past.cut.raw()
        }
    }
}
