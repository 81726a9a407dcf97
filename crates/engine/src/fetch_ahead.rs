//! Fetch ahead: rows behind index entries, read block by block instead of entry by entry.
//!
//! Why it exists: rows that stand together in an index are strewn over the row blocks. Read one by one, each costs a block;
//! with less memory than data the same block is decoded again and again. Here the rows of a stretch of entries are read in
//! row id order and handed out in index order (the idea of the sorted multi-range read, without giving up the order).
//! State: a stretch of entries the reader may see, each with a copy of its row. It begins small and grows while the scan goes on,
//! so a scan that is left early has read little too much.
//! Rules: only for consistent reads: what the snapshot sees does not change while the stretch waits.
//! Latches and I/O: none held; reads blocks.

use pbxt_base::RowId;
use std::ops::Range;

/// Entries of the first stretch.
const FIRST: usize = 32;
/// By how much a stretch is longer than the one before: each may have to decode every block.
const GROWTH: usize = 32;
/// Entries and bytes of a stretch at most.
const ENTRIES_MAX: usize = 1 << 18;
const BYTES_MAX: usize = 16 << 20;
/// Moves of a scan before it fetches ahead.
const MOVES_BEFORE: u32 = 16;

/// What is known of an entry's row.
#[derive(Debug, Clone)]
enum Known {
    /// The reader does not see it.
    Hidden,
    /// There was no room: it is looked up when its turn comes.
    Nothing,
    /// Its payload and schema version.
    Payload(Range<usize>, u16),
}

/// One entry and its row.
#[derive(Debug, Clone)]
struct Ahead {
    row: RowId,
    key: Range<usize>,
    known: Known,
}

/// An entry whose turn it is.
pub(crate) enum Turn<'a> {
    /// Key, row id, payload and schema version.
    Kept(&'a [u8], RowId, &'a [u8], u16),
    /// Key and row id of an entry to be looked up.
    LookUp(&'a [u8], RowId),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FetchAhead {
    moves: u32,
    limit: usize,
    keys: Vec<u8>,
    payloads: Vec<u8>,
    entries: Vec<Ahead>,
    /// Places of `entries` in row id order.
    order: Vec<u32>,
    at: usize,
}

impl FetchAhead {
    /// Forgets everything: the scan begins anew.
    pub(crate) fn reset(&mut self) {
        self.moves = 0;
        self.limit = FIRST;
        self.clear();
    }

    /// Gives back the memory of long stretches.
    pub(crate) fn release(&mut self) {
        *self = Self::default();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.payloads.clear();
        self.entries.clear();
        self.order.clear();
        self.at = 0;
    }

    /// Counts a move; true when the scan has gone on for long enough.
    #[inline]
    pub(crate) fn is_worth_it(&mut self) -> bool {
        self.moves = self.moves.saturating_add(1);
        self.moves > MOVES_BEFORE
    }

    /// Begins a stretch, longer than the last one.
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.limit = (self.limit * GROWTH).clamp(FIRST, ENTRIES_MAX);
    }

    /// True if the stretch takes no more entries.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit || self.keys.len() >= BYTES_MAX
    }

    pub(crate) fn push(&mut self, key: &[u8], row: RowId) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.entries.push(Ahead {
            row,
            key: start..self.keys.len(),
            known: Known::Nothing,
        });
    }

    /// Places of the entries in row id order; how many there are.
    pub(crate) fn sort(&mut self) -> usize {
        self.order.extend(0..self.entries.len() as u32);
        let entries = &self.entries;
        self.order
            .sort_unstable_by_key(|&place| entries[place as usize].row);
        self.order.len()
    }

    /// Row at a place of the row id order.
    pub(crate) fn row_at(&self, place: usize) -> RowId {
        self.entries[self.order[place] as usize].row
    }

    /// Keeps the row at a place of the row id order; none if the reader does not see it. False if there is no room for more.
    pub(crate) fn keep(&mut self, place: usize, row: Option<(&[u8], u16)>) -> bool {
        let known = match row {
            None => Known::Hidden,
            Some((payload, schema_version)) => {
                let start = self.payloads.len();
                self.payloads.extend_from_slice(payload);
                Known::Payload(start..self.payloads.len(), schema_version)
            }
        };
        self.entries[self.order[place] as usize].known = known;
        self.payloads.len() < BYTES_MAX
    }

    /// The next entry that is or may be visible.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Turn<'_>> {
        while let Some(entry) = self.entries.get(self.at) {
            self.at += 1;
            let key = &self.keys[entry.key.clone()];
            match &entry.known {
                Known::Hidden => {}
                Known::Nothing => return Some(Turn::LookUp(key, entry.row)),
                Known::Payload(payload, version) => {
                    return Some(Turn::Kept(
                        key,
                        entry.row,
                        &self.payloads[payload.clone()],
                        *version,
                    ));
                }
            }
        }
        None
    }

    /// True if the stretch has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if entries are waiting.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.at < self.entries.len()
    }
}
