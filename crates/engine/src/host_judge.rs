//! Pushed conditions: a host judges index entries before the rows behind them are read.
//!
//! Why it exists: a condition on columns of the index turns rows away that would have cost a block, a lock or a copy each. Only
//! the host can evaluate its conditions, and it does so in a record buffer; so the columns of the entry are put there first.
//! State: the judge of a cursor, kept for its life, and whether the index being read is judged; no allocation for an entry.
//! Rules: X16 (docs/indexes.md).
//! Latches and I/O: none held while the host judges.

use super::{Fill, HostCursor, HostTable};
use crate::error::{Error, Result};
use crate::version::Admission;
use pbxt_base::RowId;
use pbxt_rows::{KeyMaker, Projection};
use std::sync::Arc;

/// A host that judges entries.
pub trait EntryJudge: std::fmt::Debug + Send + Sync {
    /// Whether the row `row` is wanted, by the columns of its index entry, which were put into `record`; other columns are what
    /// they were. Fails to end the statement.
    fn judge(&self, record: &mut [u8], row: RowId) -> Result<Admission>;
}

/// Who judges, and what of an entry it is shown.
#[derive(Clone, Copy)]
pub(super) struct Judging<'a> {
    judge: &'a dyn EntryJudge,
    maker: &'a KeyMaker,
    columns: &'a Projection,
}

impl HostCursor {
    /// Who judges entries for this cursor, once `judge_entries` says so.
    pub fn set_judge(&mut self, judge: Arc<dyn EntryJudge>) {
        self.judge = Some(judge);
    }

    /// Has the entries of index `index`, which was just started, judged until another is started.
    pub fn judge_entries(&mut self, index: usize) -> Result<()> {
        let maker = self.host.maker(index)?;
        if self.judge.is_none() || !maker.restores_all() {
            return Err(Error::Invalid(format!(
                "the entries of index number {index} of table '{}' cannot be judged: {}",
                self.host.table.name(),
                if self.judge.is_none() {
                    "there is no judge"
                } else {
                    "they do not have whole columns"
                }
            )));
        }
        self.judged = Some(index);
        Ok(())
    }
}

impl<'a> Judging<'a> {
    #[inline]
    pub(super) fn of(judge: Option<&'a dyn EntryJudge>, host: &'a HostTable, index: usize) -> Option<Self> {
        Some(Self {
            judge: judge?,
            maker: host.makers.get(index)?,
            columns: host.key_columns.get(index)?,
        })
    }
}

impl Fill<'_> {
    /// Puts an entry's columns into the record and asks the host.
    #[inline]
    pub(super) fn ask(&mut self, key: &[u8], unpack: &[u8], row: RowId) -> Result<Admission> {
        let Some(Judging {
            judge,
            maker,
            columns,
        }) = self.judging
        else {
            return Ok(Admission::Wanted);
        };
        let all = maker.part_count();
        maker.record_from_key(
            (key, unpack),
            all,
            columns,
            self.record,
            self.values,
            self.scratch,
        )?;
        judge.judge(self.record, row)
    }
}
