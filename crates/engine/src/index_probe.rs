//! Index probe: the rows that may be under one key prefix for a current read, whatever the statement's snapshot.
//!
//! Why it exists: constraints are judged by the newest versions (rule FK11). A scan of a statement passes over what the statement
//! itself wrote and shows what its isolation level shows; a probe does neither, and reads no row: who asks judges it.
//! Rules: FK11; T9 mode Current ignores the cursor. T30 under SERIALIZABLE the prefix and the rows are noted (rule FK25).
//! Latches and I/O: none held between calls; may read blocks of the index.

use super::{Access, Cursor, IndexScan, Seek, SeekPos, Session, Sign, View, Viewer, is_beyond};
use crate::error::Result;
use pbxt_base::{Lsn, RowId};

impl Cursor {
    /// Begins with the first entry of index `number` under `prefix`.
    pub(crate) fn probe_start(&mut self, session: &mut Session, number: usize, prefix: &[u8]) -> Result<()> {
        self.probe_begin(session, number, prefix)?;
        let index = &self.table.indexes[number];
        self.index
            .begin(&session.db, index, &SeekPos::lower_bound(prefix), true)
    }

    /// The same of a whole key (rule X49).
    pub(crate) fn probe_key_start(&mut self, session: &mut Session, number: usize, key: &[u8]) -> Result<()> {
        self.probe_begin(session, number, key)?;
        let index = &self.table.indexes[number];
        self.index
            .begin_key(&session.db, index, &SeekPos::lower_bound(key))
    }

    /// Goes on behind an entry that was met before.
    pub(crate) fn probe_resume(
        &mut self,
        session: &mut Session,
        number: usize,
        prefix: &[u8],
        (key, row): (&[u8], RowId),
    ) -> Result<()> {
        self.probe_begin(session, number, prefix)?;
        let behind = SeekPos::after(key, row, Lsn::new(u64::MAX), Sign::Entry);
        let index = &self.table.indexes[number];
        self.index.begin(&session.db, index, &behind, true)
    }

    fn probe_begin(&mut self, session: &mut Session, number: usize, prefix: &[u8]) -> Result<()> {
        session.settle_victim()?;
        session.refuse_if_doomed()?;
        // Rule L7.
        session.flush_bulk(&self.table)?;
        self.access = Access::Current;
        self.view = View::new(Viewer::current(session.work.txn));
        self.note_reads(session);
        self.index.close_noted();
        let scan = &mut self.index;
        scan.change_to(number);
        (scan.end, scan.must_match) = (None, true);
        scan.prefix.clear();
        scan.prefix.extend_from_slice(prefix);
        if self.is_noting {
            self.note_seek(session, prefix, Seek::Exact);
        }
        Ok(())
    }

    /// The next row that may be under the prefix; it is not judged.
    #[inline]
    pub(crate) fn probe_next(&mut self, session: &mut Session) -> Result<Option<RowId>> {
        while let Some(first) = self.index.entries.peek() {
            if is_beyond(&self.index, first.key()) {
                break;
            }
            self.check_kill(session)?;
            if self.take_group(session, false)? {
                let row = self.index.group_row;
                self.note_row(session, row);
                return Ok(Some(row));
            }
        }
        self.index.ended = true;
        Ok(None)
    }

    /// The whole key under which `probe_next` met the row.
    pub(crate) fn probe_key(&self) -> &[u8] {
        &self.index.group_key
    }

    /// The row that `probe_next` met is not there: if nobody can see it any more, later readers need not meet it (rule X12).
    pub(crate) fn probe_missed(&self, session: &Session) -> Result<()> {
        if self.is_gone_for_all(session, self.index.group_row)? {
            self.mark_group_dead();
        }
        Ok(())
    }

    /// Lets go of trees, files and blocks.
    pub(crate) fn probe_end(&mut self) {
        self.index.must_match = false;
        IndexScan::stop(&mut self.index);
    }
}
