//! Census of large values: finds the dead ones that nobody met.
//!
//! Why it exists: compactor and merges note the values of versions they pass. A value whose row was never written (its
//! statement failed, or the power did), one of a table that was dropped, and one whose note was lost in a crash have no such
//! version. To note each of them where it comes to be would take a record in the log for every such place; instead, now and then, all that
//! rows name is collected, and the rest is dead. It is exact, so it makes good whatever was missed before.
//! Order: 1 segments are chosen of which every value is named by now or never will be (rule S26); they take no more.
//! 2 all that rows name is collected (`count`). 3 what is left of these segments is noted as dead.
//! When: while the foreground is idle, if anything asks for it (S29); under load, if as much may be dead as lives (S63).
//! Where little happens now and then it rests after one, longer the more rows that read (S64).
//! Rules: S26 to S29, S63, S64 (docs/storage.md, large values), S53.
//! Latches and I/O: none; reads the log and all row pieces of tables with columns of variable length, in steps.
//! After a crash: ranges that no image has are found by the next one; each opening asks for one.

use super::can_have_large;
use crate::database::Database;
use crate::error::Result;
use crate::pacing::Progress;
use crate::row_merge_plan::Need;
use count::Count;
use pbxt_base::{Lsn, SegmentId};
use pbxt_segment::SEGMENT_HEADER_BYTES;
use std::collections::BTreeMap;

#[path = "blob_count.rs"]
mod count;

/// Rows are read for a census if they have at most so many times the bytes it is about (rules S29, S63).
const ROWS_PER_VALUES: u64 = 4;
/// So many bytes of rows may be read for a census as often as something changed.
const CHEAP_BYTES: u64 = 64 << 20;
/// While the database is idle no more of rows is read for them in a second, and so much at once (rule S64).
const IDLE_BYTES_A_SECOND: u64 = 4 << 20;
const IDLE_BYTES_AT_ONCE: u64 = 1 << 20;
/// A census is taken under load for no less than such a part of a segment (rule S63), and a step of any reads no more of rows (S21).
const PART_OF_SEGMENT: u64 = 16;

/// What was examined last, and whether that is enough.
#[derive(Debug, Default)]
pub(super) struct CensusState {
    under_way: Option<Box<Census>>,
    last: Option<Done>,
    /// Something happened that leaves values behind which only a census finds.
    suspects: bool,
    /// Start of the newest checkpoint when one failed (rule S53).
    failed: Option<Lsn>,
    /// What rule S63 compares with; none before it was asked for the first time.
    baseline: Option<Baseline>,
    /// Milliseconds of the clock until which an idle database begins none (rule S64).
    rests_until: u64,
}

/// One that was begun.
#[derive(Debug)]
struct Census {
    begun: Done,
    /// Bytes of rows that it reads.
    rows: u64,
    /// With their bytes.
    segments: BTreeMap<SegmentId, u64>,
    count: Count,
}

/// How things were when a census was begun.
#[derive(Clone, Copy, Debug)]
struct Done {
    changes: u64,
    checkpoints: u64,
    /// The greatest segment that was examined.
    greatest: Option<SegmentId>,
    /// Others were not, because somebody held them.
    was_held: bool,
}

/// How things were at the end of the last census, or at the opening.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    /// Bytes of values that were not known to be dead.
    unknown: u64,
    /// Bytes of values written since the opening.
    written: u64,
}

impl Baseline {
    /// So many bytes more are worth a census under load, in segments of so many.
    fn worth(self, segment_bytes: u64) -> u64 {
        self.unknown.max(segment_bytes / PART_OF_SEGMENT)
    }
}

impl Database {
    /// A step of a census, if something asks for one (rule S29).
    pub fn census_step(&self) -> Result<Progress> {
        self.census_step_for(Need::Useful)
    }

    /// The same for what is needed: under load more has to ask for it (rule S63).
    pub(crate) fn census_step_for(&self, need: Need) -> Result<Progress> {
        let is_due = if need.is_more_than_due() {
            self.census_due()?
        } else {
            self.census_is_pressing()?
        };
        if !is_due {
            return Ok(Progress::Idle);
        }
        let gone_on = self.go_on_with_census();
        if gone_on.is_err() {
            let mut state = self.upkeep.blobs.census.lock();
            state.suspects = true;
            state.failed = Some(self.checkpoint_start());
        }
        gone_on.map(|()| Progress::Worked)
    }

    /// True if one was taken so lately that an idle database leaves the next one for later (rule S64).
    pub(crate) fn census_rests(&self) -> bool {
        let state = self.upkeep.blobs.census.lock();
        state.under_way.is_none() && self.clock.now_millis() < state.rests_until
    }

    /// There are values that no version names any more, or none ever will: a table went, a statement failed.
    pub(crate) fn suspect_values(&self) {
        self.upkeep.blobs.census.lock().suspects = true;
    }

    /// True if a census would be gone on with, or taken while the foreground is idle.
    pub(crate) fn census_due(&self) -> Result<bool> {
        let (last, suspects) = {
            let state = self.upkeep.blobs.census.lock();
            if state.under_way.is_some() {
                return Ok(true);
            }
            if state.failed == Some(self.checkpoint_start()) {
                return Ok(false);
            }
            (state.last, state.suspects)
        };
        let (changes, checkpoints) = self.census_counts();
        let has_changed = suspects || last.is_none_or(|last| last.changes != changes);
        let was_held = last.filter(|last| last.was_held);
        if !has_changed && was_held.is_none() {
            return Ok(false);
        }
        let segments = self.blobs.segments()?;
        let values = self.unknown_bytes(&segments);
        let rows = self.bytes_of_rows();
        let is_new = last.is_none_or(|last| last.checkpoints != checkpoints);
        if values == 0 || rows / ROWS_PER_VALUES > values || rows > CHEAP_BYTES && !is_new {
            return Ok(false);
        }
        let greatest = self.greatest_examinable(&segments);
        Ok(greatest.is_some() && (has_changed || greatest > was_held.and_then(|last| last.greatest)))
    }

    /// True if a census would be gone on with or begun under load.
    fn census_is_pressing(&self) -> Result<bool> {
        let segment_bytes = self.store.geometry().blob_segment_bytes;
        let (baseline, last, suspects, written) = {
            let state = self.upkeep.blobs.census.lock();
            // Under the latch: one that ends meanwhile has counted no more.
            let written = self.blobs.bytes_written();
            if state.under_way.is_some() {
                return Ok(true);
            }
            let opening = Baseline {
                unknown: 0,
                written: 0,
            };
            let least = state.baseline.unwrap_or(opening);
            // No more can have come than was written: nothing is listed before that.
            if written - least.written < least.worth(segment_bytes)
                || state.failed == Some(self.checkpoint_start())
            {
                return Ok(false);
            }
            (state.baseline, state.last, state.suspects, written)
        };
        let segments = self.blobs.segments()?;
        let values = self.unknown_bytes(&segments);
        let baseline = baseline.unwrap_or_else(|| {
            let opening = Baseline {
                unknown: values.saturating_sub(written),
                written: 0,
            };
            *self.upkeep.blobs.census.lock().baseline.insert(opening)
        });
        let more = values.saturating_sub(baseline.unknown);
        if more < baseline.worth(segment_bytes) || self.bytes_of_rows() / ROWS_PER_VALUES > more {
            return Ok(false);
        }
        let greatest = self.greatest_examinable(&segments);
        let examined = last.and_then(|last| last.greatest);
        Ok(greatest.is_some() && (suspects || greatest > examined))
    }

    /// What has changed rows since open, and checkpoints.
    fn census_counts(&self) -> (u64, u64) {
        let counters = &self.counters;
        let changes = counters.rows_deleted.get() + counters.rows_updated.get() + counters.rolled_back.get();
        (changes, self.maintenance_status().checkpoints)
    }

    /// Bytes of blob segments that are not known to be dead; of one that has no values its header, until that is known.
    fn unknown_bytes(&self, segments: &[(SegmentId, u64)]) -> u64 {
        let known = self.upkeep.blobs.segments.lock();
        let unknown = |(id, bytes): &(SegmentId, u64)| {
            let dead = known.get(id);
            match bytes.saturating_sub(SEGMENT_HEADER_BYTES as u64) {
                0 if dead.is_none_or(|dead| !dead.covers(*bytes)) => *bytes,
                values => values.saturating_sub(dead.map_or(0, |dead| dead.bytes(*bytes))),
            }
        };
        segments.iter().map(unknown).sum()
    }

    /// Bytes of pieces that a census would read.
    fn bytes_of_rows(&self) -> u64 {
        let tables = self.catalog.tables();
        let tables = tables.iter().filter(|table| can_have_large(table));
        tables.map(|table| table.base.shape().stored_bytes()).sum()
    }

    fn greatest_examinable(&self, segments: &[(SegmentId, u64)]) -> Option<SegmentId> {
        self.blobs.worth_examining(segments).last().copied()
    }

    fn begin_census(&self) -> Result<Census> {
        let (changes, checkpoints) = self.census_counts();
        self.upkeep.blobs.census.lock().suspects = false;
        let segments = self.blobs.examine()?;
        let begun = Done {
            changes,
            checkpoints,
            greatest: segments.last_key_value().map(|(id, _)| *id),
            was_held: self.blobs.segments()?.len() > segments.len(),
        };
        let count = self.begin_count(segments.keys().copied());
        Ok(Census {
            begun,
            rows: self.bytes_of_rows(),
            segments,
            count,
        })
    }

    /// A step of the one under way, or of a new one.
    fn go_on_with_census(&self) -> Result<()> {
        self.poison.check()?;
        let under_way = self.upkeep.blobs.census.lock().under_way.take();
        let mut census = match under_way {
            Some(census) => census,
            None => Box::new(self.begin_census()?),
        };
        let bytes_max = self.store.geometry().blob_segment_bytes / PART_OF_SEGMENT;
        if self.count_on(&mut census.count, bytes_max)? {
            return self.end_census(*census);
        }
        self.upkeep.blobs.census.lock().under_way = Some(census);
        Ok(())
    }

    /// Notes as dead what nothing names in the segments that were examined.
    fn end_census(&self, census: Census) -> Result<()> {
        let listed = self.blobs.segments()?;
        let mut known = self.upkeep.blobs.segments.lock();
        for (id, values) in census.count.into_living() {
            // One that has gone meanwhile has no account any more.
            if listed.binary_search_by_key(&id, |(id, _)| *id).is_err() {
                continue;
            }
            let end = census.segments.get(&id).copied().unwrap_or_default();
            for (from, to) in gaps(&values, end) {
                known.entry(id).or_default().insert(from, to);
            }
        }
        drop(known);
        let unknown = self.unknown_bytes(&listed);
        let mut state = self.upkeep.blobs.census.lock();
        state.failed = None;
        state.rests_until = self.clock.now_millis() + rest_after(census.rows);
        state.last = Some(census.begun);
        state.baseline = Some(Baseline {
            unknown,
            written: self.blobs.bytes_written(),
        });
        Ok(())
    }
}

/// Milliseconds between the end of a census that read so many bytes of rows and the next one of an idle database (rule S64).
fn rest_after(rows: u64) -> u64 {
    match rows {
        ..IDLE_BYTES_AT_ONCE => 0,
        _ => rows * 1000 / IDLE_BYTES_A_SECOND,
    }
}

/// What lies between values, from the header to `end`; they rise. Where there is no value, what
/// there is, even if that is nothing.
fn gaps(values: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES as u64;
    for (begin, to) in values.iter().copied().chain([(end, end)]) {
        if begin > at || values.is_empty() {
            gaps.push((at, begin.max(at)));
        }
        at = at.max(to);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_no_value_covers() {
        let first = SEGMENT_HEADER_BYTES as u64;
        assert_eq!(gaps(&[], first + 8), [(first, first + 8)], "all");
        assert_eq!(gaps(&[], first), [(first, first)], "all of a header");
        assert_eq!(gaps(&[(first, first + 8)], first + 8), [], "nothing");
        let values = [
            (first + 8, first + 16),
            (first + 8, first + 16),
            (first + 16, first + 24),
        ];
        assert_eq!(
            gaps(&values, first + 32),
            [(first, first + 8), (first + 24, first + 32)]
        );
    }
}
