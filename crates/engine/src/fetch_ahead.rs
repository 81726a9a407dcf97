//! Fetch ahead: rows behind index entries, read block by block instead of entry by entry.
//!
//! Why it exists: rows that stand together in an index are strewn over the row blocks. Read one by one, each costs a block;
//! with less memory than data the same block is decoded again and again. Here the rows of a stretch of entries are read in
//! row id order and handed out in index order (the idea of the sorted multi-range read, without giving up the order).
//! State: a stretch of entries the reader may see, each with a copy of its row. It begins small and grows while the scan goes on,
//! so a scan that is left early has read little too much. All stretches together take
//! about a quarter of the cache budget at most, beyond which each still has 256 KiB.
//! Rules: only for consistent reads: what the snapshot sees does not change while the stretch waits. X51 how long stretches are.
//! X55 a short scan whose rows are at hand does without.
//! Latches and I/O: none held; reads blocks.

use crate::row_ahead::BATCH_BLOCKS;
use crate::row_shape::{RowPiece, RowShape};
use pbxt_base::RowId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of the first stretch.
const FIRST: usize = 32;
/// By how much a stretch is longer than the one before: each may have to decode every block.
const GROWTH: usize = 32;
/// The same behind as many rows as were expected.
const GROWTH_BEYOND: usize = 2;
/// Entries of a stretch at most.
const ENTRIES_MAX: usize = 1 << 20;
/// Bytes of a stretch at least, whatever others have taken, and at most.
const BYTES: Range<u64> = 256 << 10..256 << 20;
/// Bytes of memory that are asked for an entry, and that one takes at least.
const ENTRY_BYTES: u64 = 256;
const ENTRY_BYTES_MIN: u64 = 48;
/// Entries that are not wanted count as one that is: a scan that is left early has not looked for the next wanted one far and wide.
const PASSED_AS_ONE: usize = 16;
/// Moves of a scan before it fetches ahead.
const MOVES_BEFORE: u32 = 16;
/// The same while rows were at hand (rule X55): all but one in so many.
const MOVES_AT_HAND: u32 = 256;
const MISSED_OF: u32 = 8;

/// Memory that all stretches may take: a quarter of the cache budget. One takes three quarters of what is left.
#[derive(Debug, Default)]
pub(crate) struct FetchBudget {
    all: u64,
    taken: AtomicU64,
}

impl FetchBudget {
    pub(crate) fn new(cache_bytes: u64) -> Self {
        Self {
            all: cache_bytes / 4,
            taken: AtomicU64::new(0),
        }
    }

    /// Bytes that stretches have taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes up to `wish` bytes.
    fn take(self: &Arc<Self>, wish: u64) -> Share {
        let size = |taken: u64| wish.min(self.all.saturating_sub(taken) / 4 * 3).max(BYTES.start);
        let order = Ordering::Relaxed;
        let before = self
            .taken
            .fetch_update(order, order, |taken| Some(taken + size(taken)));
        let bytes = size(before.unwrap_or_default());
        Share {
            budget: Arc::clone(self),
            bytes,
        }
    }
}

/// A stretch's part of the budget.
#[derive(Debug)]
struct Share {
    budget: Arc<FetchBudget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is known of an entry's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The reader does not see it.
    Hidden,
    /// There was no room: it is looked up when its turn comes.
    Nothing,
    /// Its payload and schema version.
    Payload,
}

/// One entry and its row. Keys stand in the order of the entries, payloads in that of the rows.
#[derive(Debug, Clone)]
struct Ahead {
    row: RowId,
    key_end: u32,
    payload_start: u32,
    payload_len: u32,
    schema_version: u16,
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
    /// Moves that came to a row before the first stretch.
    alone: u32,
    /// Rows that were not at hand (rule X55).
    missed: u32,
    /// Rows that the scan is expected to hand out; 0: all (rule X51).
    expected: u64,
    /// Of stretches that are over.
    served: u64,
    limit: usize,
    share: Option<Share>,
    /// Bytes of an entry with its row, as the last stretch had them.
    entry_bytes: u64,
    keys: Vec<u8>,
    payloads: Vec<u8>,
    entries: Vec<Ahead>,
    /// Of a read of many ranges: whose range each entry is in.
    tags: Vec<u64>,
    /// Entries that were met and not wanted.
    passed: usize,
    /// Places of `entries` in row id order.
    order: Vec<u32>,
    at: usize,
}

impl FetchAhead {
    /// Forgets everything: the scan begins anew.
    pub(crate) fn reset(&mut self) {
        self.moves = 0;
        self.alone = 0;
        self.missed = 0;
        self.served = 0;
        self.limit = 0;
        self.clear();
    }

    /// About so many rows will be wanted, 0: all.
    pub(crate) fn expect(&mut self, rows: u64) {
        self.expected = rows;
    }

    /// How many rows were said to be wanted.
    #[inline]
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Gives back the memory of long stretches.
    pub(crate) fn release(&mut self) {
        *self = Self::default();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.payloads.clear();
        self.entries.clear();
        self.tags.clear();
        self.passed = 0;
        self.order.clear();
        self.at = 0;
    }

    /// Counts a move; true when the scan has gone on for long enough.
    #[inline]
    pub(crate) fn is_worth_it(&mut self) -> bool {
        self.moves = self.moves.saturating_add(1);
        let is_strewn = self.missed.saturating_mul(MISSED_OF) >= self.moves;
        let before = if is_strewn { MOVES_BEFORE } else { MOVES_AT_HAND };
        self.moves > before
    }

    /// A row was looked for in a block that was not at hand (rule X55).
    #[inline]
    pub(crate) fn miss(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }

    /// Begins a stretch, longer than the last one.
    pub(crate) fn begin(&mut self, budget: &Arc<FetchBudget>) {
        let average = self.bytes().checked_div(self.entries.len() as u64);
        self.entry_bytes = average.unwrap_or(self.entry_bytes);
        self.served += self.at as u64;
        if self.limit == 0 {
            self.alone = self.moves.saturating_sub(1).max(MOVES_BEFORE);
        }
        self.clear();
        self.limit = self.next_limit();
        self.share = None;
        let wish = (self.limit as u64 * ENTRY_BYTES).clamp(BYTES.start, BYTES.end);
        self.share = Some(budget.take(wish));
        self.make_room();
    }

    /// Takes memory for as many entries as will come, by the size of those before: what grows step by step is copied each time.
    fn make_room(&mut self) {
        let Some(most) = self.room().checked_div(self.entry_bytes) else {
            return;
        };
        let entries = self.limit.min(most as usize);
        make_room_in(&mut self.entries, entries);
        make_room_in(&mut self.order, entries);
        // Of these the keys have the lesser part.
        make_room_in(&mut self.payloads, entries * self.entry_bytes as usize);
    }

    /// Rule X51.
    fn next_limit(&self) -> usize {
        let grown = |growth: usize| (self.limit * growth).clamp(FIRST, ENTRIES_MAX);
        let shown = self.served + u64::from(self.alone);
        let left = self.expected.saturating_sub(shown) as usize;
        match (self.expected, left) {
            (0, _) => grown(GROWTH),
            (_, 0) => grown(GROWTH_BEYOND),
            (_, left) => grown(GROWTH).min(left.max(FIRST)),
        }
    }

    /// Bytes of keys, entries and rows.
    fn bytes(&self) -> u64 {
        let of_entries = self.entries.len() * (size_of::<Ahead>() + size_of::<u32>());
        let of_tags = size_of_val(self.tags.as_slice());
        (of_entries + of_tags + self.keys.len() + self.payloads.len()) as u64
    }

    fn room(&self) -> u64 {
        self.share.as_ref().map_or(BYTES.start, |share| share.bytes)
    }

    /// True if the stretch takes no more entries: with their rows they will take about all the room.
    pub(crate) fn is_full(&self) -> bool {
        // Rows are not known yet; keys are, and may be longer than those of the last stretch.
        let expected = (self.entries.len() as u64 * self.entry_bytes.max(ENTRY_BYTES_MIN)).max(self.bytes());
        let has_gone_far = self.entries.len() + self.passed / PASSED_AS_ONE >= self.limit;
        (has_gone_far && !self.is_empty()) || expected >= self.room() / 10 * 9
    }

    /// Counts an entry that is not wanted.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn push(&mut self, key: &[u8], row: RowId) {
        self.keys.extend_from_slice(key);
        self.entries.push(Ahead {
            row,
            key_end: self.keys.len() as u32,
            payload_start: 0,
            payload_len: 0,
            schema_version: 0,
            known: Known::Nothing,
        });
    }

    /// The same for an entry of one of many ranges.
    pub(crate) fn push_of(&mut self, tag: u64, key: &[u8], row: RowId) {
        self.tags.push(tag);
        self.push(key, row);
    }

    /// The tag of the entry whose turn it was last.
    pub(crate) fn tag(&self) -> u64 {
        let last = self.at.checked_sub(1);
        last.and_then(|at| self.tags.get(at)).copied().unwrap_or_default()
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

    /// The blocks of one piece that rows from a place of the row id order on stand in, as many as are read at once, and the
    /// first place whose row is not in them. Rows that are not `cold` stand in none.
    pub(crate) fn blocks_from<'s>(
        &self,
        shape: &'s RowShape,
        place: usize,
        blocks: &mut Vec<usize>,
        mut is_cold: impl FnMut(RowId) -> bool,
    ) -> (Option<&'s Arc<RowPiece>>, usize) {
        blocks.clear();
        let mut piece: Option<&Arc<RowPiece>> = None;
        for next in place..self.order.len() {
            let row = self.row_at(next);
            let Some((found, block)) = is_cold(row).then(|| shape.place_of(row)).flatten() else {
                continue;
            };
            if piece.is_some_and(|piece| !Arc::ptr_eq(piece, found)) {
                return (piece, next);
            }
            piece = Some(found);
            if blocks.last() != Some(&block) {
                if blocks.len() == BATCH_BLOCKS {
                    return (piece, next);
                }
                blocks.push(block);
            }
        }
        (piece, self.order.len())
    }

    /// Keeps the row at a place of the row id order; none if the reader does not see it. False if there is no room for more.
    pub(crate) fn keep(&mut self, place: usize, row: Option<(&[u8], u16)>) -> bool {
        let entry = &mut self.entries[self.order[place] as usize];
        match row {
            None => entry.known = Known::Hidden,
            Some((payload, schema_version)) => {
                entry.payload_start = self.payloads.len() as u32;
                entry.payload_len = payload.len() as u32;
                entry.schema_version = schema_version;
                entry.known = Known::Payload;
                self.payloads.extend_from_slice(payload);
            }
        }
        self.bytes() < self.room()
    }

    /// Key, row id, payload and schema version of the next entry, if its row is kept. `pass_next` goes on behind it.
    #[inline]
    pub(crate) fn kept(&self) -> Option<(&[u8], RowId, &[u8], u16)> {
        let entry = self.entries.get(self.at)?;
        if !matches!(entry.known, Known::Payload) {
            return None;
        }
        let start = entry.payload_start as usize;
        let payload = &self.payloads[start..start + entry.payload_len as usize];
        Some((self.key_at(self.at), entry.row, payload, entry.schema_version))
    }

    /// Goes on behind the next entry.
    #[inline]
    pub(crate) fn pass_next(&mut self) {
        self.at += 1;
    }

    #[inline]
    fn key_at(&self, place: usize) -> &[u8] {
        let before = place.checked_sub(1).map_or(0, |at| self.entries[at].key_end);
        &self.keys[before as usize..self.entries[place].key_end as usize]
    }

    /// The next entry that is or may be visible.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Turn<'_>> {
        while let Known::Hidden = self.entries.get(self.at)?.known {
            self.at += 1;
        }
        self.at += 1;
        let place = self.at - 1;
        let entry = &self.entries[place];
        if !matches!(entry.known, Known::Payload) {
            return Some(Turn::LookUp(self.key_at(place), entry.row));
        }
        let start = entry.payload_start as usize;
        let payload = &self.payloads[start..start + entry.payload_len as usize];
        Some(Turn::Kept(
            self.key_at(place),
            entry.row,
            payload,
            entry.schema_version,
        ))
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

/// Room for so many in a vector that is empty: to grow it would be to copy what was in it before.
fn make_room_in<T>(empty: &mut Vec<T>, count: usize) {
    if empty.capacity() < count {
        *empty = Vec::with_capacity(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of the stretches of a scan that is expected to hand out so many rows, and goes on.
    fn stretches(expected: u64, count: usize) -> Vec<usize> {
        let budget = Arc::new(FetchBudget::new(4 << 30));
        let mut ahead = FetchAhead::default();
        ahead.expect(expected);
        while !ahead.is_worth_it() {
            ahead.miss();
        }
        let mut sizes = Vec::new();
        for _ in 0..count {
            ahead.begin(&budget);
            while !ahead.is_full() {
                ahead.push(b"key", RowId::new(1));
            }
            sizes.push(ahead.entries.len());
            while ahead.next().is_some() {}
        }
        sizes
    }

    #[test]
    fn a_stretch_ends_where_the_expected_rows_do_and_grows_slowly_behind_them() {
        assert_eq!(stretches(0, 3), [32, 1024, 32_768]);
        assert_eq!(stretches(20, 3), [32, 64, 128], "the first one is not shorter");
        assert_eq!(stretches(60, 4), [32, 32, 64, 128]);
        assert_eq!(stretches(1000, 4), [32, 952, 1904, 3808]);
    }

    /// Rule X55.
    #[test]
    fn a_scan_whose_rows_are_at_hand_fetches_ahead_later() {
        let moves = |is_missed: fn(u32) -> bool| {
            let mut ahead = FetchAhead::default();
            (1..=100_000)
                .find(|&at| {
                    let is_worth_it = ahead.is_worth_it();
                    if is_missed(at) {
                        ahead.miss();
                    }
                    is_worth_it
                })
                .unwrap_or(0)
        };
        assert_eq!(moves(|_| true), MOVES_BEFORE + 1);
        assert_eq!(moves(|at| at.is_multiple_of(MISSED_OF / 2)), MOVES_BEFORE + 1);
        let in_order = moves(|at| at % (2 * MISSED_OF) == 1);
        assert_eq!(in_order, MOVES_AT_HAND + 1, "blocks of rows in order");
        assert_eq!(moves(|at| at > 100), 116, "as soon as one in eight was missed");
        assert_eq!(moves(|_| false), MOVES_AT_HAND + 1);
        let mut ahead = FetchAhead::default();
        (0..MOVES_BEFORE).for_each(|_| ahead.miss());
        ahead.reset();
        assert!(
            (0..=MOVES_BEFORE).all(|_| !ahead.is_worth_it()),
            "each scan has its own rows"
        );
    }

    #[test]
    fn long_keys_behind_short_ones_end_a_stretch() {
        let budget = Arc::new(FetchBudget::new(64 << 20));
        let mut ahead = FetchAhead::default();
        for key_bytes in [1, 1, 1, 4096] {
            ahead.begin(&budget);
            while !ahead.is_full() {
                ahead.push(&vec![0; key_bytes], RowId::new(1));
            }
        }
        assert!(
            ahead.bytes() <= ahead.room(),
            "{} bytes in room for {}",
            ahead.bytes(),
            ahead.room()
        );
    }
}
