//! Index ranges: many ranges of an index read as one scan.
//!
//! Why it exists: `id IN (...)` and conditions like it are many short ranges. Read one after the other, each row costs its block by
//! itself, and a block that is not in memory costs a wait. Here the entries of many ranges go into one stretch, whose rows are read
//! in row id order, all blocks of a batch at once; they are handed out in the order of the ranges (multi-range read with sorted
//! fetch, without giving up the order).
//! Rules: X53. X16 entries that the host does not want are not fetched. X49 a range of one whole key asks for that key only.
//! Latches and I/O: none held between calls; reads blocks of the index and of rows.

use super::{Admission, Cursor, Index, RowVersion, Session, Show, behind, is_beyond};
use crate::cursor::Access;
use crate::error::Result;
use crate::fetch_ahead::Turn;
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_index::SeekPos;
use std::sync::Arc;

/// One of many ranges, as keys of the index.
#[derive(Debug, Default)]
pub(crate) struct IndexRange {
    /// Empty: from the first entry.
    pub low: Vec<u8>,
    pub low_inclusive: bool,
    pub has_high: bool,
    pub high: Vec<u8>,
    pub high_inclusive: bool,
    /// One whole key.
    pub is_key: bool,
    /// The host's name for it, told with each of its rows.
    pub tag: u64,
}

/// How far a read of many ranges is.
#[derive(Debug, Default)]
pub(crate) struct ReadRanges {
    range: IndexRange,
    /// There may be more entries in the range.
    is_open: bool,
    /// The read was begun, and there may be more ranges.
    goes_on: bool,
    /// The entry read last, if the range goes on behind a stretch.
    last: (Vec<u8>, RowId),
}

impl ReadRanges {
    /// There is nothing more to be read.
    pub(super) fn stop(&mut self) {
        (self.is_open, self.goes_on) = (false, false);
    }
}

impl Cursor {
    /// After `index_start`: begins a read of many ranges. False if they have to be read one by one: rows that are locked, changed or
    /// noted as read are so in the order in which they are asked for.
    pub(crate) fn ranges_begin(&mut self) -> bool {
        self.index.ranges.is_open = false;
        self.index.ahead.reset();
        self.index.ranges.goes_on = self.access == Access::Snapshot && !self.is_noting;
        self.index.ranges.goes_on
    }

    /// Shows the next row of the ranges that `next` gives, in their order, and tells whose it is; none at the end. `next` fills in a range,
    /// and is false if there is none.
    pub(crate) fn ranges_next(
        &mut self,
        session: &mut Session,
        next: &mut dyn FnMut(&mut IndexRange) -> Result<bool>,
        mut show: impl Show,
    ) -> Result<Option<u64>> {
        let table = self.borrow_table();
        let found = self.ranges_next_in(session, &table, next, &mut show);
        self.give_back(table);
        found
    }

    fn ranges_next_in(
        &mut self,
        session: &mut Session,
        table: &Arc<Table>,
        next: &mut dyn FnMut(&mut IndexRange) -> Result<bool>,
        show: &mut impl Show,
    ) -> Result<Option<u64>> {
        let index = self.index_of(table)?;
        loop {
            if let Some(tag) = self.serve_ranges(session, index, show)? {
                return Ok(Some(tag));
            }
            if !self.index.ranges.is_open && !self.index.ranges.goes_on {
                return Ok(None);
            }
            self.fetch_ranges(session, index, next, show)?;
        }
    }

    /// Shows the next row of the stretch that is visible, and tells whose it is; none if none is left.
    fn serve_ranges(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<u64>> {
        let mut ahead = std::mem::take(&mut self.index.ahead);
        let mut served = Ok(None);
        while let Some(turn) = ahead.next() {
            let (Turn::Kept(key, row, ..) | Turn::LookUp(key, row)) = turn;
            let shown = match turn {
                Turn::Kept(_, _, payload, version) => {
                    self.note_shown(row);
                    show.row(&RowVersion::new(row, payload, version)).map(|()| true)
                }
                Turn::LookUp(..) => self.show_entry(session, index, key, row, show),
            };
            match shown {
                Ok(false) => continue,
                Ok(true) => served = Ok(Some(ahead.tag())),
                Err(error) => served = Err(error),
            }
            break;
        }
        self.index.ahead = ahead;
        served
    }

    /// Fills the next stretch with entries of as many ranges as it takes, and reads their rows.
    fn fetch_ranges(
        &mut self,
        session: &mut Session,
        index: &Index,
        next: &mut dyn FnMut(&mut IndexRange) -> Result<bool>,
        show: &mut impl Show,
    ) -> Result<()> {
        self.go_on_in_range(session, index)?;
        let mut ahead = std::mem::take(&mut self.index.ahead);
        ahead.begin(&session.db.fetches);
        while !ahead.is_full() {
            self.check_kill(session)?;
            if !self.index.ranges.is_open && !self.open_range(session, index, next)? {
                break;
            }
            if self
                .index
                .entries
                .peek()
                .is_none_or(|first| is_beyond(&self.index, first.key()))
            {
                self.index.ranges.is_open = false;
                continue;
            }
            if !self.take_group(session, show.is_choosy())? {
                continue;
            }
            match self.admission(session, show)? {
                Admission::Wanted => {
                    let tag = self.index.ranges.range.tag;
                    ahead.push_of(tag, &self.index.group_key, self.index.group_row);
                }
                Admission::Unwanted => ahead.pass(),
                Admission::Beyond => self.index.ranges.is_open = false,
            }
        }
        if self.index.ranges.is_open {
            let scan = &mut self.index;
            scan.ranges.last.0.clone_from(&scan.group_key);
            scan.ranges.last.1 = scan.group_row;
        }
        self.fetch_rows(session, ahead)
    }

    /// Begins the next range; false if there is none.
    fn open_range(
        &mut self,
        session: &Session,
        index: &Index,
        next: &mut dyn FnMut(&mut IndexRange) -> Result<bool>,
    ) -> Result<bool> {
        let mut range = std::mem::take(&mut self.index.ranges.range);
        let given = next(&mut range)?;
        let begun = if given {
            self.begin_range(session, index, &range)
        } else {
            Ok(())
        };
        self.index.ranges.range = range;
        self.index.ranges.is_open = given;
        self.index.ranges.goes_on = given;
        begun.map(|()| given)
    }

    fn begin_range(&mut self, session: &Session, index: &Index, range: &IndexRange) -> Result<()> {
        let scan = &mut self.index;
        (scan.must_match, scan.wishes_prefix) = (false, false);
        let (mut end, _) = scan.end.take().unwrap_or_default();
        end.clear();
        end.extend_from_slice(&range.high);
        scan.end = range.has_high.then_some((end, range.high_inclusive));
        let from = if range.low_inclusive {
            SeekPos::lower_bound(&range.low)
        } else {
            SeekPos::upper_bound(&range.low)
        };
        if range.is_key {
            scan.begin_key(&session.db, index, &from)
        } else {
            scan.begin(&session.db, index, &from, true)
        }
    }

    /// Seeks again behind the entry read last, if the index has other parts by now (see `renew`).
    fn go_on_in_range(&mut self, session: &Session, index: &Index) -> Result<()> {
        let scan = &mut self.index;
        let has_same = |parts| index.is_unchanged(scan.installs) || index.has_parts(parts);
        if !scan.ranges.is_open || scan.parts.as_ref().is_some_and(has_same) {
            return Ok(());
        }
        let (key, row) = std::mem::take(&mut scan.ranges.last);
        let from = behind(&key, row, true);
        let begun = if scan.is_of_key {
            scan.begin_key(&session.db, index, &from)
        } else {
            scan.begin(&session.db, index, &from, true)
        };
        self.index.ranges.last = (key, row);
        begun
    }
}
