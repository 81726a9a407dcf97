//! Key changes: the index events one row change is about to cause.
//!
//! Why it exists: the host layer makes key images, the writer claims, logs and publishes them; between them goes one
//! reusable buffer, so that a row costs no allocation.
//! Rules: X11 "changed" means key bytes or unpack information differ. X43, X63 a key without room for its suffix, or over the limit, is
//! refused before anything is written.

use std::convert::Infallible;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::table::Table;
use pbxt_base::limits::KEY_BYTES_MAX;

/// Appends the bytes of one key to a buffer.
pub(crate) type MakeKey<'a, E> = &'a mut dyn FnMut(&mut Vec<u8>) -> std::result::Result<(), E>;

/// Old and new key of a row in one index.
#[derive(Debug, Clone)]
pub(crate) struct KeyChange {
    /// Position of the index in the table.
    pub index: usize,
    old: Option<Range<usize>>,
    new: Option<Range<usize>>,
    unpack: Range<usize>,
    /// The new key must be the only one (unique index, no part NULL).
    pub claim: bool,
}

/// Appends these bytes.
fn copy_of(bytes: &[u8]) -> impl FnMut(&mut Vec<u8>) -> std::result::Result<(), Infallible> {
    move |out| {
        out.extend_from_slice(bytes);
        Ok(())
    }
}

/// The key changes of one row, in index order.
#[derive(Debug)]
pub struct KeyChanges {
    bytes: Vec<u8>,
    items: Vec<KeyChange>,
    /// Bytes of the longest new key or unpack information.
    longest: usize,
    /// Bytes of the shortest key, old or new.
    shortest: usize,
}

impl Default for KeyChanges {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            items: Vec::new(),
            longest: 0,
            shortest: usize::MAX,
        }
    }
}

impl KeyChanges {
    /// Nothing changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.longest = 0;
        self.shortest = usize::MAX;
    }

    /// Adds the change of one index. Each closure appends bytes to the buffer it is given.
    pub fn push<E>(
        &mut self,
        index: usize,
        claim: bool,
        old: Option<MakeKey<'_, E>>,
        new: Option<MakeKey<'_, E>>,
        unpack: MakeKey<'_, E>,
    ) -> std::result::Result<(), E> {
        let old = self.fill(old)?;
        let new = self.fill(new)?;
        let unpack = self.fill(Some(unpack))?.unwrap_or_default();
        let bytes = new.as_ref().map_or(0, Range::len).max(unpack.len());
        self.longest = self.longest.max(bytes);
        for key in [&old, &new].into_iter().flatten() {
            self.shortest = self.shortest.min(key.len());
        }
        self.items.push(KeyChange {
            index,
            old,
            new,
            unpack,
            claim,
        });
        Ok(())
    }

    /// Adds the change from the first key to the second one.
    pub(crate) fn push_keys(&mut self, index: usize, claim: bool, (old, new): (&[u8], &[u8]), unpack: &[u8]) {
        let (mut old, mut new, mut unpack) = (copy_of(old), copy_of(new), copy_of(unpack));
        let Ok(()) = self.push(index, claim, Some(&mut old), Some(&mut new), &mut unpack);
    }

    fn fill<E>(&mut self, make: Option<MakeKey<'_, E>>) -> std::result::Result<Option<Range<usize>>, E> {
        let Some(make) = make else { return Ok(None) };
        let start = self.bytes.len();
        make(&mut self.bytes)?;
        Ok(Some(start..self.bytes.len()))
    }

    /// A key whose bytes stay (only its unpack information changes) is held already: it needs no claim, and entry and
    /// anti-entry carry the same LSN, where the entry wins (rule T11).
    pub(crate) fn unclaim_unchanged(&mut self) {
        for change in &mut self.items {
            let same = change.old.is_some()
                && change.old.clone().map(|old| &self.bytes[old])
                    == change.new.clone().map(|new| &self.bytes[new]);
            change.claim &= !same;
        }
    }

    /// Rules X43, X63: what no index of the table can have. `record_bytes_max` is that of the log.
    #[inline]
    pub(crate) fn check(&self, table: &Table, record_bytes_max: usize) -> Result<()> {
        let limit = key_limit(record_bytes_max);
        if self.longest <= limit && self.shortest >= table.longest_suffix() {
            return Ok(());
        }
        self.find_refused(table, limit)
    }

    #[cold]
    fn find_refused(&self, table: &Table, limit: usize) -> Result<()> {
        for item in &self.items {
            let index = &table.indexes[item.index];
            for key in [&item.old, &item.new].into_iter().flatten() {
                if key.len() < index.suffix_bytes() {
                    return Err(Error::KeyTooSmall {
                        table: table.name().to_string(),
                        index: index.def.name.clone(),
                        bytes: key.len(),
                        suffix: index.suffix_bytes(),
                    });
                }
            }
            let bytes = item.new.as_ref().map_or(0, Range::len);
            let kept = item.unpack.len();
            if bytes > limit || kept > pbxt_index::KEY_BYTES_MAX {
                return Err(Error::KeyTooLarge {
                    table: table.name().to_string(),
                    index: index.def.name.clone(),
                    bytes: bytes.max(kept),
                    limit,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn items(&self) -> &[KeyChange] {
        &self.items
    }

    pub(crate) fn old(&self, change: &KeyChange) -> Option<&[u8]> {
        change.old.clone().map(|range| &self.bytes[range])
    }

    pub(crate) fn new_key(&self, change: &KeyChange) -> Option<&[u8]> {
        change.new.clone().map(|range| &self.bytes[range])
    }

    pub(crate) fn unpack(&self, change: &KeyChange) -> &[u8] {
        &self.bytes[change.unpack.clone()]
    }
}

/// Bytes of a key at most: a record has to have room for some.
pub(crate) fn key_limit(record_bytes_max: usize) -> usize {
    KEY_BYTES_MAX.min(record_bytes_max / 8)
}
