//! `Strip`: copies of entries that follow each other in one packed block.
//!
//! Why it exists:    a scan that needs nothing but entries pays more for going from one to the next than for the entry. A strip takes
//!                   many at once, and holds no block while they wait to be shown.
//! Format / state:   of each entry the bytes of its key and of its unpack information, one behind the other, and its row id. All have
//!                   one stamp. Who only counts has the key of the last entry alone, from which a scan may have to go on.
//! Rules:            X56.
//! Latches and I/O:  none.

use pbxt_base::{Lsn, RowId, TxnId};

/// What of entries is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of each.
    Entries,
    /// Row ids, and of the last entry all.
    Rows,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Strip {
    bytes: Vec<u8>,
    entries: Vec<StripEntry>,
    stamp: (TxnId, Lsn),
}

#[derive(Clone, Copy, Debug)]
struct StripEntry {
    row: RowId,
    at: u32,
    key: u16,
    unpack: u16,
}

impl Strip {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Key, unpack information and row of entry `index`; none beyond the last one. Where row ids were copied, key and unpack information
    /// of all but the last are empty.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8], RowId)> {
        let entry = self.entries.get(index)?;
        let (key, rest) = self
            .bytes
            .get(entry.at as usize..)?
            .split_at_checked(usize::from(entry.key))?;
        Some((key, rest.get(..usize::from(entry.unpack))?, entry.row))
    }

    /// Row of entry `index`.
    #[inline]
    pub fn row(&self, index: usize) -> Option<RowId> {
        self.entries.get(index).map(|entry| entry.row)
    }

    /// Row of each entry.
    pub fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.entries.iter().map(|entry| entry.row)
    }

    /// Who made all of the entries, and when.
    pub fn stamp(&self) -> (TxnId, Lsn) {
        self.stamp
    }

    /// Forgets all entries; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Forgets the entries before, and makes room for so many.
    pub(crate) fn begin(&mut self, stamp: (TxnId, Lsn), entries: usize) {
        self.clear();
        self.stamp = stamp;
        self.entries.reserve(entries);
    }

    /// Makes room for so many bytes of keys and unpack information.
    pub(crate) fn reserve_bytes(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Adds entries of which no more than the row is wanted.
    #[inline]
    pub(crate) fn push_rows(&mut self, rows: impl Iterator<Item = RowId>) {
        self.entries.extend(rows.map(|row| StripEntry {
            row,
            at: 0,
            key: 0,
            unpack: 0,
        }));
    }

    /// Adds an entry: what all keys begin with, and the rest of its key before its unpack information, of which there are `unpack` bytes.
    #[inline]
    pub(crate) fn push(&mut self, prefix: &[u8], cell: &[u8], unpack: u16, row: RowId) {
        let key = prefix.len() + cell.len() - usize::from(unpack);
        self.entries.push(StripEntry {
            row,
            at: self.bytes.len() as u32,
            key: key as u16,
            unpack,
        });
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(cell);
    }
}
