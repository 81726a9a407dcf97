//! Check: verifies a table's rows, chains, runs and indexes against each other.
//!
//! Why it exists: structural damage hides behind right answers until the day it does not; CHECK TABLE, the tools and
//! every test ask here.
//! What is checked, for one snapshot: every block of every run is read from disk and decodes, holds what its piece says, in
//! order (check_runs.rs); every head in the log and every version under it reads, belongs to its row and table, and goes down
//! in LSN; every payload decodes whole, large values included; the number of visible rows equals the row count; each tree is
//! in order, and each index shows exactly the visible rows under the keys their payloads give, by sums that do not depend on
//! order (check_digest.rs); every piece file can be opened again (check_files.rs). Only where sums differ the rows are looked for (check_diff.rs): the memory a check takes does not
//! grow with the table.
//! Rules: B15 damage is a finding and ends only the part that met it, be it other bytes or a disk that does not give them; what is
//! wanting for a while is none, and ends the check as every other error.
//! Latches and I/O: as a reader; can be stopped by a kill.

use crate::check_diff::name_differences;
use crate::check_digest::{Digests, digests_of_index, digests_of_rows};
use crate::check_files::{check_files, files_of};
use crate::check_quick::check_table_quickly;
use crate::check_runs::{check_index_runs, check_row_runs};
use crate::error::{Error, Result};
use crate::host::HostTable;
use crate::session::Session;
use crate::table::{Index, Table};
use crate::view::read_version;
use pbxt_base::RowId;
use std::sync::Arc;

/// Findings told in full; of the rest only the number is told.
const TOLD_MAX: u64 = 20;
/// Steps between two reports of progress and looks at the kill flag.
const STEPS_PER_REPORT: u64 = 4096;

/// A check under way: what it found, and how far it is.
pub(crate) struct Check<'a> {
    tell: &'a mut dyn FnMut(&str),
    findings: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl<'a> Check<'a> {
    /// A check of about `total` steps.
    pub(crate) fn new(
        tell: &'a mut dyn FnMut(&str),
        progress: &'a mut dyn FnMut(u64, u64),
        total: u64,
    ) -> Self {
        Self {
            tell,
            findings: 0,
            progress,
            done: 0,
            total,
        }
    }

    /// How many sentences there are.
    pub(crate) fn findings(&self) -> u64 {
        self.findings
    }

    /// Says that all is done, and how much of it was not told.
    pub(crate) fn end(&mut self) {
        (self.progress)(self.total, self.total);
        if self.findings > TOLD_MAX {
            (self.tell)(&format!("and {} more", self.findings - TOLD_MAX));
        }
    }

    /// A sentence about something that is not as it must be.
    pub(crate) fn find(&mut self, text: &str) {
        self.findings += 1;
        if self.findings <= TOLD_MAX {
            (self.tell)(text);
        }
    }

    /// True if further findings would not be told.
    pub(crate) fn has_told_all(&self) -> bool {
        self.findings >= TOLD_MAX
    }

    /// Damage becomes a finding, and `None`; other errors end the check (rule B15).
    pub(crate) fn absorb<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        self.absorb_in(|| what.to_owned(), result)
    }

    /// The same, for whoever has to look where it is that is damaged.
    pub(crate) fn absorb_in<T>(
        &mut self,
        what: impl FnOnce() -> String,
        result: Result<T>,
    ) -> Result<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_damage(&error) => {
                self.find(&format!("{}: {error}", what()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes a row, slot or entry done.
    #[inline]
    pub(crate) fn step(&mut self, session: &Session) -> Result<()> {
        self.done += 1;
        if self.done.is_multiple_of(STEPS_PER_REPORT) {
            self.report(session)?;
        }
        Ok(())
    }

    /// Notes something done that took reads of its own.
    pub(crate) fn step_far(&mut self, session: &Session) -> Result<()> {
        self.done += 1;
        self.report(session)
    }

    fn report(&mut self, session: &Session) -> Result<()> {
        (self.progress)(self.done.min(self.total), self.total);
        if session.db.waits.host_killed(session.gate()) {
            return Err(Error::Killed);
        }
        Ok(())
    }
}

/// Rule B15. A row that does not decode is as it must not be, whatever the reason.
pub(crate) fn is_damage(error: &Error) -> bool {
    match error {
        Error::Row(pbxt_rows::Error::Base(_)) => error.is_unreadable(),
        Error::Row(_) => true,
        _ => error.is_unreadable(),
    }
}

impl HostTable {
    /// Checks the table, all of it for the session's snapshot, or `quickly` the ends of its pieces. Calls `tell` for 20 findings at most and
    /// once more for the number of the others. Returns how many there are in all.
    pub fn check(
        &self,
        session: &mut Session,
        quickly: bool,
        tell: &mut dyn FnMut(&str),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64> {
        if quickly {
            check_table_quickly(session, self.table(), tell, progress)
        } else {
            check_table(session, self.table(), tell, progress)
        }
    }
}

/// See the module.
pub fn check_table(
    session: &mut Session,
    table: &Arc<Table>,
    tell: &mut dyn FnMut(&str),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let total = steps_of(session, table)?;
    let mut check = Check::new(tell, progress, total);
    check_row_runs(session, table, &mut check)?;
    check_chains(session, table, &mut check)?;
    let rows = digests_of_rows(session, table, &mut check)?;
    if let Some(rows) = &rows {
        let counted = session.count(table)?;
        if counted != rows.count {
            check.find(&format!(
                "the row count says {counted}, the table has {} visible rows",
                rows.count
            ));
        }
    }
    for number in 0..table.indexes.len() {
        let rows = rows.as_ref().map(|rows| &rows.by_index[number]);
        check_index(session, table, number, rows, &mut check)?;
    }
    check_files(session, table, &mut check)?;
    check.end();
    Ok(check.findings)
}

/// About how many rows, slots and entries a check looks at. Of a damaged table its numbers may say anything.
fn steps_of(session: &mut Session, table: &Arc<Table>) -> Result<u64> {
    let slots = table.base.shape().slots();
    let parts = table.indexes.iter().map(Index::parts);
    let runs = parts.flat_map(|parts| parts.runs.iter().map(|run| run.entries()).collect::<Vec<u64>>());
    let passes = 1 + table.indexes.len() as u64;
    let rows = session.count(table)?.saturating_mul(passes);
    let files = files_of(table).len() as u64;
    Ok(runs.fold(
        slots.saturating_add(rows).saturating_add(files),
        u64::saturating_add,
    ))
}

/// Walks the versions of every row that has any in the log.
fn check_chains(session: &Session, table: &Table, check: &mut Check<'_>) -> Result<()> {
    let db = session.database();
    for (row, word) in table.map.rows_from(RowId::new(1)) {
        check.step(session)?;
        let guard = crossbeam_epoch::pin();
        let mut addr = word.addr();
        let mut above = None;
        while !addr.is_none() {
            let version = match read_version(db, addr, &guard) {
                Ok(Some(version)) => version,
                Ok(None) => break,
                Err(error) => {
                    check.absorb::<()>(&format!("row {row}"), Err(error))?;
                    break;
                }
            };
            if version.row() != row || version.table() != table.id {
                check.find(&format!(
                    "row {row}: the version at {addr:?} belongs to row {} of table {}",
                    version.row(),
                    version.table()
                ));
                break;
            }
            if above.is_some_and(|above| addr.lsn() >= above) {
                check.find(&format!("row {row}: the chain does not go down at {addr:?}"));
                break;
            }
            above = Some(addr.lsn());
            addr = version.prev();
        }
    }
    Ok(())
}

/// Checks one index; `rows` are the sums that the table scan gives for it, if it came to its end.
fn check_index(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    rows: Option<&Digests>,
    check: &mut Check<'_>,
) -> Result<()> {
    let index = &table.indexes[number];
    let name = &index.def.name;
    let parts = index.parts();
    for tree in std::iter::once(&parts.active).chain(&parts.frozen) {
        if let Err(problem) = tree.check() {
            check.find(&format!("index '{name}': {problem}"));
        }
    }
    check_index_runs(session, index, &parts, check)?;
    drop(parts);
    let Some(rows) = rows else { return Ok(()) };
    let shown = digests_of_index(session, table, number, rows, check);
    let shown = check.absorb(&format!("index '{name}'"), shown)?;
    let Some(shown) = shown else {
        return Ok(());
    };
    let stretches = rows.differing(&shown);
    if !stretches.is_empty() {
        let named = name_differences(session, table, number, rows, &stretches, check);
        check.absorb(&format!("index '{name}'"), named)?;
    }
    Ok(())
}
