//! HostIndex: an index as the host describes it, brought together with the one that is stored.
//!
//! Why it exists: which columns of the primary key stand behind those of another index is decided when a table is made. A host that
//! has learned since to extend its indexes, or one that was told to leave it, describes another extension than the table has.
//! Rules: X47 what is stored decides; the declared parts have to be the same.

use super::{HostCursor, HostTable};
use crate::error::Result;
use crate::index_cursor::{IndexRange, Seek};
use crate::session::Session;
use crate::version::Show;
use pbxt_base::RowId;
use pbxt_rows::{ColumnSet, HostRecord, KeyMaker, KeyPart, KeySpec};

/// One index as the host sees it when it opens a table.
pub struct HostIndex {
    /// Must equal the stored one, but for its extension.
    pub spec: KeySpec,
    /// Contexts of the parts for the weigher.
    pub contexts: Vec<usize>,
}

impl HostIndex {
    /// The index with the parts that are stored; `all` are those of the table. None if it is another index.
    pub(crate) fn fitted_to(&self, stored: &KeySpec, all: &[Self]) -> Option<Self> {
        let mut contexts = self.contexts.clone();
        if self.spec.bare() == *stored {
            contexts.truncate(stored.parts().len());
        } else if self.spec == stored.bare() {
            let extension = stored.parts().iter().skip(stored.declared().len());
            let lent = extension
                .map(|part| context_of(part, all))
                .collect::<Option<Vec<_>>>()?;
            contexts.extend(lent);
        } else if self.spec != *stored {
            return None;
        }
        Some(Self {
            spec: stored.clone(),
            contexts,
        })
    }
}

/// The context of a part that another index has as well: the primary key, whose part it is.
fn context_of(part: &KeyPart, all: &[HostIndex]) -> Option<usize> {
    let parts = all
        .iter()
        .flat_map(|index| index.spec.parts().iter().zip(&index.contexts));
    parts
        .into_iter()
        .find(|(has, _)| *has == part)
        .map(|(_, &context)| context)
}

/// One end of a range: a search tuple.
#[derive(Clone, Copy, Debug)]
pub struct HostBound<'t> {
    /// As for `seek`.
    pub tuple: &'t [u8],
    /// How many parts it has.
    pub parts: usize,
    /// Entries that begin with it are in the range.
    pub inclusive: bool,
}

/// One of many ranges to be read.
#[derive(Clone, Copy, Debug)]
pub struct HostRange<'t> {
    /// None: from the first entry.
    pub low: Option<HostBound<'t>>,
    /// None: to the last one.
    pub high: Option<HostBound<'t>>,
    /// The host's name for it.
    pub tag: u64,
}

impl Seek {
    /// How a scan goes on behind what it has found: forward or not, and whether only while keys begin with the prefix.
    pub(super) fn goes_on(self) -> (bool, bool) {
        match self {
            Self::Exact | Self::Key => (true, true),
            Self::OrNext | Self::After => (true, false),
            Self::OrPrev | Self::Before => (false, false),
            Self::Last => (false, true),
        }
    }
}

impl HostTable {
    /// The range as keys of the index.
    fn range_of(&self, index: usize, range: &HostRange<'_>, out: &mut IndexRange) -> Result<()> {
        out.low.clear();
        out.high.clear();
        if let Some(low) = &range.low {
            self.search_key(index, low.tuple, low.parts, &mut out.low)?;
        }
        if let Some(high) = &range.high {
            self.search_key(index, high.tuple, high.parts, &mut out.high)?;
        }
        out.low_inclusive = range.low.is_none_or(|low| low.inclusive);
        out.high_inclusive = range.high.is_none_or(|high| high.inclusive);
        out.has_high = range.high.is_some();
        let whole = self.part_count(index)?;
        let is_whole = |bound: &Option<HostBound<'_>>| {
            bound.is_some_and(|bound| bound.inclusive && bound.parts == whole)
        };
        // Rule X49.
        out.is_key = is_whole(&range.low) && is_whole(&range.high) && out.low == out.high;
        out.tag = range.tag;
        Ok(())
    }
}

impl HostCursor {
    /// After `index_start`: begins a read of many ranges; false if they have to be read one by one (rule X53).
    pub fn ranges_begin(&mut self) -> bool {
        self.cursor.ranges_begin() && self.covering.is_none()
    }

    /// Fills `record` with the next row of the ranges that `next` gives, in their order, and tells whose it is; none at the end. `next` is
    /// told the table, whose tuples it gives.
    ///
    /// # Errors
    /// Those of reading, and of `next`.
    pub fn ranges_next<'t>(
        &mut self,
        session: &mut Session,
        index: usize,
        next: &mut dyn FnMut(&HostTable) -> Result<Option<HostRange<'t>>>,
        record: &mut [u8],
    ) -> Result<Option<u64>> {
        loop {
            let (cursor, fill) = self.filling(record);
            let host = fill.host;
            let mut next_keys = |out: &mut IndexRange| match next(host)? {
                Some(range) => host.range_of(index, &range, out).map(|()| true),
                None => Ok(false),
            };
            let found = cursor.ranges_next(session, &mut next_keys, fill)?;
            self.row = self.cursor.row();
            if found.is_none() || !self.is_gone_by_action(session)? {
                return Ok(found);
            }
        }
    }

    /// After `index_start`: the number of rows that the range has for the statement (rule X61). No row of it is where the cursor stands.
    ///
    /// # Errors
    /// Those of reading.
    pub fn count_range(&mut self, session: &mut Session, index: usize, range: &HostRange<'_>) -> Result<u64> {
        let mut keys = IndexRange::default();
        self.host.range_of(index, range, &mut keys)?;
        self.cursor.count_range(session, &keys)
    }

    /// Fills `record` as `fetch` does; see `Cursor::fetch_unjudged`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn fetch_unjudged(&mut self, session: &mut Session, row: RowId, record: &mut [u8]) -> Result<bool> {
        let (cursor, mut fill) = self.filling(record);
        let found = cursor.fetch_unjudged(session, row, |row| fill.row(row))?;
        self.row = row;
        Ok(found)
    }

    /// The row last read is one to be changed, and stays as it is; see `Cursor::hold_row`.
    ///
    /// # Errors
    /// Those of locking a row, and a write conflict.
    pub fn hold_row(&mut self, session: &mut Session) -> Result<()> {
        self.cursor.hold_row(session, self.row)
    }

    /// After `index_start`: about so many rows will be asked for, 0: all (rule X51).
    pub fn expect(&mut self, rows: u64) {
        self.cursor.expect(rows);
    }

    /// After `index_start`: true if rows are filled from the entries of the index, also where the row had to be looked at.
    pub fn covers(&self) -> bool {
        self.covering.is_some()
    }

    /// Only these columns are filled by reads from now on.
    pub fn project(&mut self, columns: ColumnSet) {
        if *self.projection.columns() == columns {
            return;
        }
        self.is_whole = columns == ColumnSet::all(self.host.codec.layout().columns().len());
        self.projection = self.host.codec.projection(columns);
        if let Some((index, _)) = self.covering {
            self.covering = self.coverage(index, &self.host.makers[index]);
        }
    }

    /// Reads of index `index` take what is wanted from its entries, if they have it.
    pub(super) fn cover(&mut self, index: usize) -> Result<()> {
        self.covering = self.coverage(index, self.host.maker(index)?);
        Ok(())
    }

    fn coverage(&self, index: usize, maker: &KeyMaker) -> Option<(usize, usize)> {
        let wanted = self.projection.columns();
        // Rule X52: who reads the newest version may be shown another one than the entry's.
        let covers = self.cursor.reads_snapshot() && wanted.is_subset(maker.restorable_columns());
        covers.then(|| (index, maker.parts_for(wanted)))
    }

    /// Fills `record` with the next entry, if it lies ready and nothing has to be asked (rule X56).
    #[inline]
    pub(super) fn next_covered(&mut self, same: bool, record: &mut [u8]) -> Result<bool> {
        let Some((index, parts_used)) = self.covering else {
            return Ok(false);
        };
        let (None, Some(maker)) = (self.judged, self.host.makers.get(index)) else {
            return Ok(false);
        };
        let Some(entry) = self.cursor.next_of_strip(same) else {
            return Ok(false);
        };
        if self.has_blobs {
            self.values.begin(RowId::new(0));
        }
        maker.record_from_key(
            entry,
            parts_used,
            &self.projection,
            record,
            &mut self.values,
            &mut self.scratch,
        )?;
        self.row = self.cursor.row();
        Ok(true)
    }

    /// The key of a record in an index.
    ///
    /// # Errors
    /// Those of making a key.
    pub fn key_of(&mut self, index: usize, record: HostRecord<'_>) -> Result<&[u8]> {
        self.scratch.clear();
        let maker = self.host.maker(index)?;
        maker.key_from_record(record, &*self.host.weigher, &mut self.scratch)?;
        Ok(&self.scratch)
    }
}
