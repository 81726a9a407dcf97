//! Delete all: a table scan that deletes every row it comes to.
//!
//! Why it exists: a host that deletes all rows has no use for what is in them; handing each row out and its id back costs it more than
//! the delete.
//! Rules: those of a scan and of a delete, which are done by the same code in the same order.
//! Latches and I/O: as these.

use crate::error::Result;
use crate::host::HostCursor;
use crate::session::Session;

impl HostCursor {
    /// Deletes the rows that the table scan comes to next, at most so many; their number: fewer at the end of the scan. After an error the
    /// statement must be rolled back.
    pub fn delete_scanned(&mut self, session: &mut Session, limit: u64) -> Result<u64> {
        let mut deleted = 0;
        while deleted < limit && self.cursor.scan_next(session, |_| Ok(()))? {
            self.row = self.cursor.row();
            // Rule FK53.
            if self.is_gone_by_action(session)? {
                continue;
            }
            self.delete(session, self.row)?;
            deleted += 1;
        }
        Ok(deleted)
    }
}
