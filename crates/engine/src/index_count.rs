//! Index count: how many rows a range of an index has for the statement.
//!
//! Why it exists: who wants the number alone needs neither keys nor rows. Of lone entries, which are most, the stamp is asked once for
//! hundreds, and of each whether its row may be deleted; all others are walked as a covering scan walks them.
//! Rules: X61. What is noted, locked or waited for is what a scan would.
//! Latches and I/O: none held between calls; may read blocks of the index, and of rows that may be deleted.

use super::{Cursor, IndexRange, Seek, Session};
use crate::error::Result;
use crate::version::{RowVersion, Show};

/// Entries walked one by one before strips are looked for again where there were none.
const WALKED_BEFORE: u32 = 16;

/// Is shown rows and does nothing about them.
#[derive(Clone, Copy)]
struct Counted {
    by_entries: bool,
}

impl Show for Counted {
    fn row(&mut self, _: &RowVersion<'_>) -> Result<()> {
        Ok(())
    }

    fn wants_key(&self) -> bool {
        self.by_entries
    }
}

impl Cursor {
    /// After `index_start`: the number of rows in the range.
    pub(crate) fn count_range(&mut self, session: &mut Session, range: &IndexRange) -> Result<u64> {
        let show = Counted {
            by_entries: self.reads_snapshot(),
        };
        session.db.counters.ranges_counted.add(1);
        self.set_end(range.has_high.then_some((&range.high, range.high_inclusive)));
        let seek = if range.low_inclusive {
            Seek::OrNext
        } else {
            Seek::After
        };
        let mut is_found = if range.low.is_empty() {
            self.index_edge_showing(session, false, show)?
        } else {
            self.seek_showing(session, &range.low, seek, show)?
        };
        let (mut rows, mut until_look) = (0, 1);
        while is_found {
            rows += 1;
            until_look -= 1;
            if until_look == 0 {
                let counted = self.count_lone(session, show)?;
                rows += counted.unwrap_or(0);
                // Behind strips comes the last entry of their block, and then a block that may be like it.
                until_look = if counted.is_some() { 1 } else { WALKED_BEFORE };
            }
            is_found = self.index_move_showing(session, true, false, show)?;
        }
        Ok(rows)
    }

    fn count_lone(&mut self, session: &mut Session, mut show: Counted) -> Result<Option<u64>> {
        let table = self.borrow_table();
        let index = self.index_of(&table);
        let counted = index.and_then(|index| self.count_strips(session, index, &mut show));
        self.give_back(table);
        counted
    }
}
