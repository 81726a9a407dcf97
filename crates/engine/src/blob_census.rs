//! Census of large values: finds the dead ones that nobody met.
//!
//! Why it exists: compactor and merges note the values of versions they pass. A value whose row was never written (its
//! statement failed, or the power did), one of a table that was dropped, and one whose note was lost in a crash have no such
//! version. To note each of them where it comes to be would take a record in the log for every such place; instead, now and then, all that
//! rows name is collected, and the rest is dead. It is exact, so it makes good whatever was missed before.
//! Order: 1 segments are chosen of which every value is named by now or never will be (rule S26); they take no more.
//! 2 table by table the words, then the shape (rule B2). 3 what is left of these segments is noted as dead.
//! Rules: S26 to S29 (docs/storage.md, large values), S53.
//! Latches and I/O: none; reads the log and all row pieces of tables with columns of variable length, in one step.
//! After a crash: ranges that no image has are found by the next one; each opening asks for one.

use super::{can_have_large, has_large, large_values, values_of};
use crate::database::Database;
use crate::error::Result;
use crate::homing::{RowFate, fate_of};
use crate::pacing::Progress;
use crate::row_pieces::SlotReader;
use crate::table::Table;
use pbxt_base::{CommitTs, Lsn, RowId, SegmentId};
use pbxt_rows::BlobRef;
use pbxt_segment::SEGMENT_HEADER_BYTES;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows are read for a census if they have at most so many times the bytes it is about (rule S29).
const ROWS_PER_VALUES: u64 = 4;
/// So many bytes of rows may be read for a census as often as something changed.
const CHEAP_BYTES: u64 = 64 << 20;
/// Slots and rows between two looks at whether the database closes.
const ROWS_BETWEEN_LOOKS: u64 = 4096;

/// What was examined last, and whether that is enough.
#[derive(Debug, Default)]
pub(super) struct CensusState {
    last: Option<Done>,
    /// Something happened that leaves values behind which only a census finds.
    suspects: bool,
    /// Start of the newest checkpoint when one failed (rule S53).
    failed: Option<Lsn>,
}

/// How things were when a census was taken.
#[derive(Clone, Copy, Debug)]
struct Done {
    changes: u64,
    checkpoints: u64,
    /// The greatest segment that was examined, if others were not because somebody held them.
    upto: Option<SegmentId>,
}

/// How a census ended.
enum Taken {
    /// All segments were examined.
    Whole,
    /// Others than those up to this one, or none, were held.
    Partly(Option<SegmentId>),
    /// The database is about to close.
    Stopped,
}

/// Begin and end of the values that rows name, by segment; of the examined ones only.
type Living = BTreeMap<SegmentId, Vec<(u64, u64)>>;

impl Database {
    /// A census, if something asks for one (rule S29).
    pub fn census_step(&self) -> Result<Progress> {
        if !self.census_due()? {
            return Ok(Progress::Idle);
        }
        let (changes, checkpoints) = self.census_counts();
        let suspects = std::mem::take(&mut self.upkeep.blobs.census.lock().suspects);
        let taken = self.take_census();
        let mut state = self.upkeep.blobs.census.lock();
        let upto = match taken {
            Ok(Taken::Whole) => None,
            Ok(Taken::Partly(greatest)) => greatest,
            Ok(Taken::Stopped) => {
                state.suspects |= suspects;
                return Ok(Progress::Idle);
            }
            Err(error) => {
                state.suspects |= suspects;
                state.failed = Some(self.checkpoint_start());
                return Err(error);
            }
        };
        state.failed = None;
        state.last = Some(Done {
            changes,
            checkpoints,
            upto,
        });
        Ok(Progress::Worked)
    }

    /// There are values that no version names any more, or none ever will: a table went, a statement failed.
    pub(crate) fn suspect_values(&self) {
        self.upkeep.blobs.census.lock().suspects = true;
    }

    /// True if a census would be taken.
    pub(crate) fn census_due(&self) -> Result<bool> {
        let (last, suspects) = {
            let state = self.upkeep.blobs.census.lock();
            if state.failed == Some(self.checkpoint_start()) {
                return Ok(false);
            }
            (state.last, state.suspects)
        };
        let (changes, checkpoints) = self.census_counts();
        let has_changed = suspects || last.is_none_or(|last| last.changes != changes);
        let was_held = last.and_then(|last| last.upto);
        if !has_changed && was_held.is_none() {
            return Ok(false);
        }
        let segments = self.blobs.segments()?;
        let values = self.unknown_bytes(&segments);
        let tables = self
            .catalog
            .tables()
            .into_iter()
            .filter(|table| can_have_large(table));
        let rows: u64 = tables.map(|table| table.base.shape().stored_bytes()).sum();
        let is_new = last.is_none_or(|last| last.checkpoints != checkpoints);
        if values == 0 || rows / ROWS_PER_VALUES > values || rows > CHEAP_BYTES && !is_new {
            return Ok(false);
        }
        let greatest = self.blobs.worth_examining(&segments).last().copied();
        Ok(greatest.is_some() && (has_changed || greatest > was_held))
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

    /// Notes what is dead in the segments that nobody holds.
    fn take_census(&self) -> Result<Taken> {
        self.poison.check()?;
        let segments = self.blobs.examine()?;
        let mut living: Living = segments.keys().map(|id| (*id, Vec::new())).collect();
        let horizon = self.txns.horizon();
        for table in self.catalog.tables() {
            if can_have_large(&table) && !self.count_table(&table, horizon, &mut living)? {
                return Ok(Taken::Stopped);
            }
        }
        let was_held = self.blobs.segments()?.len() > segments.len();
        let mut known = self.upkeep.blobs.segments.lock();
        for (id, mut values) in living {
            values.sort_unstable();
            let end = segments.get(&id).copied().unwrap_or_default();
            for (from, to) in gaps(&values, end) {
                known.entry(id).or_default().insert(from, to);
            }
        }
        let greatest = segments.last_key_value().map(|(id, _)| *id);
        Ok(if was_held {
            Taken::Partly(greatest)
        } else {
            Taken::Whole
        })
    }

    /// Collects the values of one table (rule S27). False if the database is about to close.
    fn count_table(&self, table: &Arc<Table>, horizon: CommitTs, living: &mut Living) -> Result<bool> {
        let mut looked_at = 0_u64;
        let mut is_stopping = || {
            looked_at += 1;
            looked_at.is_multiple_of(ROWS_BETWEEN_LOOKS) && self.upkeep.is_stopping()
        };
        // Rows whose newest settled version is in the log: their slots are nobody's.
        let mut hidden = RoaringTreemap::new();
        for (row, _) in table.map.rows_from(RowId::new(0)) {
            if is_stopping() {
                return Ok(false);
            }
            if self.count_versions(table, row, horizon, living)? {
                hidden.insert(row.raw());
            }
        }
        for run in &table.base.shape().runs {
            let mut reader = SlotReader::new(table.versions(), run.pieces.clone())?;
            while let Some(row) = reader.row() {
                if is_stopping() {
                    return Ok(false);
                }
                let large = reader.payload().filter(|payload| has_large(payload));
                if let Some(payload) = large.filter(|_| !hidden.contains(row.raw())) {
                    count(living, &large_values(table.schema(), payload)?);
                }
                reader.advance()?;
            }
        }
        Ok(true)
    }

    /// Collects the values of a row's versions in the log. True if they hide all slots of it.
    fn count_versions(
        &self,
        table: &Table,
        row: RowId,
        horizon: CommitTs,
        living: &mut Living,
    ) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let mut found = Ok(());
        let fate = fate_of(self, table, row, horizon, &guard, |version| {
            match values_of(table, version) {
                Ok(values) => count(living, &values),
                Err(error) => found = Err(error),
            }
        })?;
        found?;
        Ok(matches!(fate, RowFate::Home { .. }))
    }
}

fn count(living: &mut Living, values: &[BlobRef]) {
    for value in values {
        if let Some(found) = living.get_mut(&value.addr.segment()) {
            let stored = pbxt_segment::BlobRef {
                addr: value.addr,
                len: value.len,
                hash: value.hash,
            };
            let begin = value.addr.offset();
            found.push((begin, begin + stored.stored_bytes()));
        }
    }
}

/// What lies between values, from the header to `end`; values come in rising order, the same may come twice. Where there is no value, what
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
