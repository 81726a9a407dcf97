//! Index ahead: rows behind a longer stretch of entries, fetched in row id order and handed out in index order.
//!
//! Why it exists: see fetch_ahead.rs, which keeps such a stretch; here it is filled and served.
//! Rules: X16 entries that the host does not want are not fetched. X49 a stretch of one key ends with it. T30 rows that are fetched are
//! noted as read.
//! Latches and I/O: none held between calls; reads blocks of the index and of rows.

use super::{Access, Admission, Cursor, Database, Index, RowVersion, Session, Show, is_beyond};
use crate::error::Result;
use crate::fetch_ahead::{FetchAhead, Turn};
use crate::row_ahead::{BATCH_BLOCKS, Together};
use crate::view::Resolved;

impl Cursor {
    /// Fetches stretches until one of them has a row to be shown; none where the scan has ended, or goes on by itself.
    pub(super) fn show_of_ahead(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        if self.access != Access::Snapshot {
            return Ok(None);
        }
        while !self.index.ended && !self.index.is_past_wish() {
            self.fetch_ahead(session, show)?;
            if let Some(shown) = self.serve_ahead(session, index, show)? {
                return Ok(Some(shown));
            }
        }
        Ok(None)
    }

    /// Shows the next row that was fetched ahead and is visible; none if none is left.
    pub(super) fn serve_ahead(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        let mut ahead = std::mem::take(&mut self.index.ahead);
        let mut served = None;
        while let Some(turn) = ahead.next() {
            let (Turn::Kept(key, row, ..) | Turn::LookUp(key, row)) = turn;
            if is_beyond(&self.index, key) {
                self.index.ended = true;
                ahead.reset();
                served = Some(Ok(false));
                break;
            }
            let shown = match turn {
                Turn::Kept(_, _, payload, version) => {
                    self.note_shown(row);
                    show.row(&RowVersion::new(row, payload, version)).map(|()| true)
                }
                Turn::LookUp(..) => self.show_entry(session, index, key, row, show),
            };
            if matches!(shown, Ok(false)) {
                continue;
            }
            self.index.current_key.clear();
            self.index.current_key.extend_from_slice(key);
            self.index.current_row = row;
            served = Some(shown);
            break;
        }
        self.index.ahead = ahead;
        served.transpose()
    }

    /// Reads the rows of the next stretch of entries, in row id order.
    pub(super) fn fetch_ahead(&mut self, session: &mut Session, show: &mut impl Show) -> Result<()> {
        let mut ahead = std::mem::take(&mut self.index.ahead);
        ahead.begin(&session.db.fetches);
        while !ahead.is_full() {
            let Some(first) = self.index.entries.peek() else {
                // Of one key: as below.
                self.index.ended = !self.index.is_of_key || ahead.is_empty();
                break;
            };
            if is_beyond(&self.index, first.key()) {
                // The scan has come here itself only if nothing was fetched; by the time it has, it may look for other keys.
                self.index.ended = ahead.is_empty();
                break;
            }
            // Rule X50.
            if self.index.is_past_wish() {
                break;
            }
            self.check_kill(session)?;
            if !self.take_group(session, show.is_choosy())? {
                continue;
            }
            match self.admission(session, show)? {
                Admission::Wanted => ahead.push(&self.index.group_key, self.index.group_row),
                Admission::Unwanted => ahead.pass(),
                Admission::Beyond => {
                    // As above; entries behind this one are beyond too.
                    self.index.ended = ahead.is_empty();
                    break;
                }
            }
        }
        self.fetch_rows(session, ahead)
    }

    /// Reads the rows of a stretch of entries, in row id order, and makes it the one that is served.
    pub(super) fn fetch_rows(&mut self, session: &mut Session, mut ahead: FetchAhead) -> Result<()> {
        let count = ahead.sort();
        if self.is_noting {
            for place in 0..count {
                session.note_row_read(&self.table, ahead.row_at(place));
            }
        }
        let mut place = 0;
        while place < count {
            let (together, end) = self.load_together(&session.db, &ahead, place)?;
            while place < end {
                self.check_kill(session)?;
                if !self.keep_ahead(session, &mut ahead, place, &together)? {
                    place = count;
                    break;
                }
                place += 1;
            }
        }
        self.index.ahead = ahead;
        Ok(())
    }

    /// Reads the blocks that the next rows of a stretch stand in, all at once; they, and the place behind these rows.
    fn load_together<'d>(
        &self,
        db: &'d Database,
        ahead: &FetchAhead,
        place: usize,
    ) -> Result<(Together<'d>, usize)> {
        let guard = crossbeam_epoch::pin();
        let is_cold = |row| self.table.map.load_in(row, &guard).is_absent();
        let shape = self.table.base.shape();
        let mut blocks = Vec::with_capacity(BATCH_BLOCKS);
        let (piece, end) = ahead.blocks_from(&shape, place, &mut blocks, is_cold);
        drop(guard);
        let together = Together::load(self.table.versions(), &db.cache, piece, &blocks)?;
        Ok((together, end))
    }

    /// Keeps one row of a stretch; false if there is no room for more.
    fn keep_ahead(
        &mut self,
        session: &Session,
        ahead: &mut FetchAhead,
        place: usize,
        together: &Together<'_>,
    ) -> Result<bool> {
        let row = ahead.row_at(place);
        let guard = crossbeam_epoch::pin();
        let word = self.table.map.load_in(row, &guard);
        let (db, table) = (&session.db, &self.table);
        let resolved = self.view.resolve_in(db, table, row, word, &guard, together)?;
        Ok(match &resolved {
            Resolved::Row(found) => ahead.keep(place, Some((found.payload(), found.schema_version()))),
            Resolved::Absent | Resolved::Wait(..) | Resolved::Conflict => ahead.keep(place, None),
        })
    }
}
