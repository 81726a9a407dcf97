//! Salvage: a table scan that leaves out what cannot be read, and tells which rows those are.
//!
//! Why it exists: one damaged block of rows ends every scan of its table, and nobody can name the rows of a block that
//! cannot be read; so without help a damaged table is worth no more than its backup.
//! Rules: B13 nothing is left out unless the statement asks for it and changes nothing in the table; a row of which the newest
//! version may lie in what cannot be read is left out too, because an older one would be a wrong answer; everything
//! left out is told, as ranges of row ids with the reason; want of a descriptor or of memory is no damage, and an error as
//! always.
//! Latches and I/O: none.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::host::HostCursor;
use pbxt_base::{Error as StorageError, RowId};
use pbxt_io::is_passing_want;

/// Ranges that are kept to be told one by one.
const TOLD_MAX: usize = 100;

/// Row ids whose rows a scan left out, if there were any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// First of them.
    pub first: RowId,
    /// Last of them.
    pub last: RowId,
    /// What could not be read, with file and place.
    pub why: String,
}

/// What the scans of a cursor have left out.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// The scan under way leaves out what it cannot read.
    pub(crate) is_on: bool,
    told: Vec<LeftOut>,
    /// Ranges beyond those.
    more: u64,
}

impl LeftOut {
    pub(crate) fn new(first: RowId, last: RowId, why: &Error) -> Self {
        Self {
            first,
            last,
            why: why.to_string(),
        }
    }

    pub(crate) fn covers(&self, row: RowId) -> bool {
        (self.first..=self.last).contains(&row)
    }
}

impl Salvage {
    /// Remembers a range, once.
    pub(crate) fn note(&mut self, range: &LeftOut) {
        let is_known = |told: &LeftOut| told.first <= range.first && range.last <= told.last;
        if self.told.iter().any(is_known) {
            return;
        }
        if self.told.len() < TOLD_MAX {
            self.told.push(range.clone());
        } else {
            self.more += 1;
        }
    }

    fn take(&mut self) -> (Vec<LeftOut>, u64) {
        (std::mem::take(&mut self.told), std::mem::take(&mut self.more))
    }
}

impl Cursor {
    /// What scans of this cursor have left out since the last call, and how many ranges more than these (rule B13).
    pub fn take_left_out(&mut self) -> (Vec<LeftOut>, u64) {
        self.scan.collect_left_out();
        self.scan.salvage.take()
    }

    /// Passes on why a row could not be shown, or leaves it out.
    #[cold]
    pub(crate) fn leave_out(&mut self, row: RowId, error: Error) -> Result<(), Error> {
        if !self.scan.salvage.is_on || !error.is_unreadable() {
            return Err(self.table.explain(error));
        }
        self.scan.salvage.note(&LeftOut::new(row, row, &error));
        Ok(())
    }
}

impl HostCursor {
    /// See `Cursor::take_left_out`.
    pub fn take_left_out(&mut self) -> (Vec<LeftOut>, u64) {
        self.cursor.take_left_out()
    }
}

impl Error {
    /// True if stored bytes are not what was written, or the disk does not give them. What is lacking for a while leaves them
    /// as they are.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Storage(error) | Self::Row(pbxt_rows::Error::Base(error)) => match error {
                StorageError::Corrupt { .. } => true,
                StorageError::Io { .. } => !is_passing_want(error),
                _ => false,
            },
            Self::Row(error) => matches!(error, pbxt_rows::Error::Corrupt { .. }),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn of(source: io::Error) -> StorageError {
        StorageError::Io {
            file: "blob-1.seg".into(),
            op: "open",
            source,
        }
    }

    #[test]
    fn want_of_descriptors_and_of_memory_leaves_out_nothing() {
        let system = |code| of(io::Error::from_raw_os_error(code));
        // EIO; then EMFILE, ENFILE and ENOMEM.
        assert!(Error::Storage(system(5)).is_unreadable(), "B13");
        for code in [24, 23, 12] {
            assert!(!Error::Storage(system(code)).is_unreadable(), "B13: {code}");
            let wrapped = Error::Row(pbxt_rows::Error::Base(system(code)));
            assert!(!wrapped.is_unreadable(), "B13: {code}");
        }
        let numberless = of(io::Error::new(
            io::ErrorKind::OutOfMemory,
            "100 bytes at offset 4096",
        ));
        assert!(!Error::Storage(numberless).is_unreadable(), "B13");
    }
}
