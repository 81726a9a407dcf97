//! Key changes: the index events one row change is about to cause.
//!
//! Why it exists: the host layer makes key images, the writer claims, logs and publishes them; between them goes one
//! reusable buffer, so that a row costs no allocation.
//! Rules: X11 "changed" means key bytes or unpack information differ.

use std::convert::Infallible;
use std::ops::Range;

/// Appends the bytes of one key to a buffer.
pub(crate) type MakeKey<'a, E> = &'a mut dyn FnMut(&mut Vec<u8>) -> Result<(), E>;

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
fn copy_of(bytes: &[u8]) -> impl FnMut(&mut Vec<u8>) -> Result<(), Infallible> {
    move |out| {
        out.extend_from_slice(bytes);
        Ok(())
    }
}

/// The key changes of one row, in index order.
#[derive(Debug, Default)]
pub struct KeyChanges {
    bytes: Vec<u8>,
    items: Vec<KeyChange>,
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
    }

    /// Adds the change of one index. Each closure appends bytes to the buffer it is given.
    pub fn push<E>(
        &mut self,
        index: usize,
        claim: bool,
        old: Option<MakeKey<'_, E>>,
        new: Option<MakeKey<'_, E>>,
        unpack: MakeKey<'_, E>,
    ) -> Result<(), E> {
        let old = self.fill(old)?;
        let new = self.fill(new)?;
        let unpack = self.fill(Some(unpack))?.unwrap_or_default();
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

    fn fill<E>(&mut self, make: Option<MakeKey<'_, E>>) -> Result<Option<Range<usize>>, E> {
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
