//! A packed block: decoded entries that have one stamp, in little memory.
//!
//! Why it exists:    most blocks of an index are settled. An entry of its own costs 28 bytes beside its key, and two words to find
//!                   it; a primary key that counts needs two bytes a row. With more data than memory the primary key alone would
//!                   fill the cache otherwise.
//! Format / state:   the bytes that all keys begin with, once; *cells*: the rest of each key and its unpack information, entry after
//!                   entry, all of one size or listed; row ids as a number to count from, 4 bytes or 8 bytes each; a bit for DEAD.
//! Rules:            X1, X38. Nothing but DEAD changes.
//! Latches and I/O:  none. DEAD is a hint that dies with the cached block.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use pbxt_base::codec::word_of;
use pbxt_base::{Lsn, RowId, TxnId};

use crate::entry::{EntryView, NewEntry, Sign};
use crate::entry_room::{Common, EntryRoom, Own, SPARE};
use crate::seek::{SeekPos, Side, gallop, head_of};
use crate::strip::{Copied, Strip};
use crate::sync::prefetch;

/// One entry of so many has its word beside: the first eight bytes of its key's rest.
const SAMPLED: usize = 16;
/// Words of a line of memory, and lines of words that are asked for before a search begins.
const LINE_WORDS: usize = 8;
const LINES_AHEAD: usize = 4;

/// Entries in the order of the index; see the module.
pub(crate) struct PackedBlock {
    prefix: Box<[u8]>,
    /// `SPARE` bytes more than entries have, so that a word is read and a cell is copied anywhere.
    cells: Box<[u8]>,
    places: Places,
    /// Words of every `SAMPLED`th entry, and of the last one: most of a search needs no cell.
    samples: Box<[u64]>,
    last_word: u64,
    rows: Rows,
    len: usize,
    stamp: (TxnId, Lsn),
    cell_bytes_max: usize,
    dead: Box<[AtomicU64]>,
}

/// Where cells are.
enum Places {
    /// One behind the other, all alike: bytes of the key and of unpack information. Bits of a word that are the key's.
    Even {
        tail: u16,
        unpack: u16,
        word_mask: u64,
    },
    Uneven(Box<[Place]>),
}

struct Place {
    at: u32,
    tail: u16,
    unpack: u16,
    /// First bytes of the key's rest.
    head: u32,
}

enum Rows {
    /// Each is one more than the one before.
    Counted(u64),
    /// Above the least one.
    Near {
        least: u64,
        above: Box<[u32]>,
    },
    Far(Box<[u64]>),
}

impl Rows {
    fn of(rows: Vec<u64>) -> Rows {
        let first = rows[0];
        if (first..).zip(&rows).all(|(counted, &row)| counted == row) {
            return Rows::Counted(first);
        }
        let least = rows.iter().copied().min().unwrap_or(first);
        let above = |row: &u64| u32::try_from(row - least).ok();
        match rows.iter().map(above).collect::<Option<Box<[u32]>>>() {
            Some(above) => Rows::Near { least, above },
            None => Rows::Far(rows.into_boxed_slice()),
        }
    }

    #[inline]
    fn get(&self, index: usize) -> u64 {
        match self {
            Rows::Counted(first) => first + index as u64,
            Rows::Near { least, above } => least + u64::from(above[index]),
            Rows::Far(rows) => rows[index],
        }
    }

    /// Asks for the row ids from this one on.
    #[inline]
    fn prefetch(&self, index: usize) {
        match self {
            Rows::Counted(_) => {}
            Rows::Near { above, .. } => prefetch(above[index..].as_ptr().cast()),
            Rows::Far(rows) => prefetch(rows[index..].as_ptr().cast()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Rows::Counted(_) => 0,
            Rows::Near { above, .. } => size_of_val(&**above),
            Rows::Far(rows) => size_of_val(&**rows),
        }
    }
}

impl Places {
    fn even(tail: u16, unpack: u16) -> Places {
        let word_mask = u64::MAX
            .checked_shr(8 * u32::from(tail))
            .map_or(u64::MAX, |rest| !rest);
        Places::Even {
            tail,
            unpack,
            word_mask,
        }
    }
}

impl PackedBlock {
    /// A block of keys of one length, all of `tail` bytes behind the prefix, without unpack information. Behind its cells there are
    /// `SPARE` bytes; there is a row at least.
    pub(crate) fn of_even(
        prefix: &[u8],
        cells: Vec<u8>,
        tail: u16,
        rows: Vec<u64>,
        stamp: (TxnId, Lsn),
    ) -> PackedBlock {
        let places = Places::even(tail, 0);
        PackedBlock::of(prefix.into(), cells, places, usize::from(tail), rows, stamp)
    }

    fn of(
        prefix: Box<[u8]>,
        cells: Vec<u8>,
        places: Places,
        cell_bytes_max: usize,
        rows: Vec<u64>,
        stamp: (TxnId, Lsn),
    ) -> PackedBlock {
        let len = rows.len();
        let mut block = PackedBlock {
            prefix,
            samples: Box::default(),
            last_word: 0,
            cells: cells.into_boxed_slice(),
            places,
            rows: Rows::of(rows),
            len,
            stamp,
            cell_bytes_max,
            dead: (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        };
        let sampled = (0..len).step_by(SAMPLED);
        block.samples = sampled.map(|index| word_of(block.tail(index))).collect();
        block.last_word = word_of(block.tail(len - 1));
        block
    }

    /// Begin of its cell, bytes of the key's rest and of unpack information.
    #[inline]
    fn cell(&self, index: usize) -> (usize, u16, u16) {
        match &self.places {
            &Places::Even { tail, unpack, .. } => {
                let bytes = usize::from(tail) + usize::from(unpack);
                (index * bytes, tail, unpack)
            }
            Places::Uneven(places) => {
                let place = &places[index];
                (place.at as usize, place.tail, place.unpack)
            }
        }
    }

    /// The key of an entry behind the prefix.
    fn tail(&self, index: usize) -> &[u8] {
        let (at, tail, _) = self.cell(index);
        &self.cells[at..at + usize::from(tail)]
    }

    /// Makes `room` one for entries of this block.
    pub(crate) fn hold(&self, room: &mut EntryRoom) {
        room.begin(&Common {
            prefix: &self.prefix,
            stamp: self.stamp,
            cell_bytes_max: self.cell_bytes_max,
        });
    }

    /// Puts entry `index` together in a room that holds this block.
    #[inline]
    pub(crate) fn show<'r>(&self, index: usize, is_dead: bool, room: &'r mut EntryRoom) -> EntryView<'r> {
        let (at, tail, unpack) = self.cell(index);
        room.show(Own {
            row: self.rows.get(index),
            cell: &self.cells[at..],
            tail,
            unpack,
            is_dead,
        })
    }

    /// Copies entries, or what is wanted of them, into a strip.
    pub(crate) fn copy_to(&self, entries: Range<usize>, copied: Copied, strip: &mut Strip) {
        strip.begin(self.stamp, entries.len());
        match copied {
            Copied::Entries => self.copy_whole(entries, strip),
            Copied::Rows => {
                let last = entries.end.saturating_sub(1).max(entries.start);
                strip.push_rows((entries.start..last).map(|index| RowId::new(self.rows.get(index))));
                self.copy_whole(last..entries.end, strip);
            }
        }
    }

    #[inline]
    fn copy_whole(&self, entries: Range<usize>, strip: &mut Strip) {
        strip.reserve_bytes(entries.len() * (self.prefix.len() + self.cell_bytes_max));
        for index in entries {
            let (at, tail, unpack) = self.cell(index);
            let cell = &self.cells[at..at + usize::from(tail) + usize::from(unpack)];
            strip.push(&self.prefix, cell, unpack, RowId::new(self.rows.get(index)));
        }
    }

    /// True if entry `index` has exactly this key.
    pub(crate) fn has_key(&self, index: usize, key: &[u8]) -> bool {
        key.strip_prefix(&*self.prefix)
            .is_some_and(|rest| rest == self.tail(index))
    }

    /// True if entry `index` lies left of the cut.
    pub(crate) fn lies_left(&self, index: usize, pos: &SeekPos<'_>) -> bool {
        match pos.key.strip_prefix(&*self.prefix) {
            Some(rest) => self.is_left_of(index, &pos.with_key(rest)),
            None => self.all_lie_left(pos),
        }
    }

    /// The same for a cut through the rests of keys.
    fn is_left_of(&self, index: usize, rest: &SeekPos<'_>) -> bool {
        let event = || (RowId::new(self.rows.get(index)), self.stamp.1, Sign::Entry);
        rest.is_right_of_event(self.tail(index), event)
    }

    /// Where all keys begin with other bytes than the cut's: all entries lie on one side.
    fn all_lie_left(&self, pos: &SeekPos<'_>) -> bool {
        if self.prefix.starts_with(pos.key) {
            matches!(pos.side, Side::AfterPrefix)
        } else {
            *self.prefix < *pos.key
        }
    }

    /// Number of entries left of the cut.
    pub(crate) fn partition_point(&self, pos: &SeekPos<'_>) -> usize {
        let Some(rest) = pos.key.strip_prefix(&*self.prefix) else {
            return if self.all_lie_left(pos) { self.len } else { 0 };
        };
        self.rests_left_of(&pos.with_key(rest))
    }

    /// The same, if there are entries on both sides.
    pub(crate) fn cut_inside(&self, pos: &SeekPos<'_>) -> Option<usize> {
        let rest = pos.with_key(pos.key.strip_prefix(&*self.prefix)?);
        let (least, greatest) = rest.open_words();
        let first_word = self.samples.first()?;
        if *first_word > greatest || self.last_word < least {
            return None;
        }
        let at = self.rests_left_of(&rest);
        (at > 0 && at < self.len).then_some(at)
    }

    /// Number of entries left of a cut through the rests of keys.
    fn rests_left_of(&self, rest: &SeekPos<'_>) -> usize {
        let (least, greatest) = rest.open_words();
        let from = match &self.places {
            &Places::Even {
                tail,
                unpack,
                word_mask,
            } => {
                let bytes = usize::from(tail) + usize::from(unpack);
                let word = |index: usize| word_of(&self.cells[index * bytes..]) & word_mask;
                // A prefix that lies in the words of all entries needs nothing else.
                let is_in_words = rest.key.len() <= usize::from(tail).min(size_of::<u64>());
                match rest.side {
                    Side::BeforePrefix if is_in_words => {
                        return self.first_from(least, |index| word(index) < least);
                    }
                    Side::AfterPrefix if is_in_words => {
                        let Some(behind) = greatest.checked_add(1) else {
                            return self.len;
                        };
                        return self.first_from(behind, |index| word(index) < behind);
                    }
                    _ => self.first_from(least, |index| word(index) < least),
                }
            }
            Places::Uneven(places) => {
                let head = (least >> 32) as u32;
                self.first_from(least, |index| places[index].head < head)
            }
        };
        gallop(from..self.len, |index| self.is_left_of(index, rest))
    }

    /// First entry that is not below `least` as far as `is_below` can tell, which goes by the begin of words.
    #[inline]
    fn first_from(&self, least: u64, is_below: impl Fn(usize) -> bool) -> usize {
        for line in self.samples.chunks(LINE_WORDS).take(LINES_AHEAD) {
            prefetch(line.as_ptr().cast());
        }
        let sample = self.samples.partition_point(|&word| word < least);
        let begin = sample.saturating_sub(1) * SAMPLED;
        let end = (sample * SAMPLED).min(self.len);
        self.rows.prefetch(begin);
        // Counted, not halved: so no load waits for the one before, and a block that was not read lately costs one wait.
        begin + (begin..end).filter(|&index| is_below(index)).count()
    }

    /// Sets DEAD; false if it stood already.
    pub(crate) fn set_dead(&self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        self.dead[index / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn is_dead(&self, index: usize) -> bool {
        self.dead[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// The first of these entries that is DEAD, or their end.
    pub(crate) fn first_dead(&self, entries: Range<usize>) -> usize {
        let mut from = entries.start;
        while from < entries.end {
            let dead = self.dead[from / 64].load(Ordering::Relaxed) >> (from % 64);
            if dead != 0 {
                return entries.end.min(from + dead.trailing_zeros() as usize);
            }
            from = (from / 64 + 1) * 64;
        }
        entries.end
    }

    /// Bytes of memory it takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let places = match &self.places {
            Places::Even { .. } => 0,
            Places::Uneven(places) => size_of_val(&**places),
        };
        let beside = size_of_val(&*self.samples) + size_of_val(&*self.dead);
        self.prefix.len() + self.cells.len() + places + self.rows.bytes() + beside
    }
}

/// Entries of one stamp, taken in order.
pub(crate) struct PackedBuilder {
    /// Whole keys and unpack information, entry after entry.
    bytes: Vec<u8>,
    lens: Vec<(u16, u16)>,
    rows: Vec<u64>,
    stamp: (TxnId, Lsn),
}

impl PackedBuilder {
    /// For so many entries at most, of at most so many bytes in the layout of a tree's.
    pub(crate) fn new(bytes: usize, entries: usize) -> PackedBuilder {
        PackedBuilder {
            bytes: Vec::with_capacity(bytes),
            lens: Vec::with_capacity(entries),
            rows: Vec::with_capacity(entries),
            stamp: (TxnId::new(0), Lsn::new(0)),
        }
    }

    pub(crate) fn push(&mut self, entry: &NewEntry<'_>) {
        self.stamp = (entry.txn, entry.lsn);
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.unpack);
        // Lengths were checked when the columns were read.
        self.lens
            .push((entry.key.len() as u16, entry.unpack.len() as u16));
        self.rows.push(entry.row.raw());
    }

    /// Bytes that all keys begin with: those of the first and the last one.
    fn prefix(&self) -> &[u8] {
        let (Some(&(first, _)), Some(&(last, unpack))) = (self.lens.first(), self.lens.last()) else {
            return &[];
        };
        let last_at = self.bytes.len() - usize::from(last) - usize::from(unpack);
        let first = &self.bytes[..usize::from(first)];
        let last = &self.bytes[last_at..last_at + usize::from(last)];
        let same = first.iter().zip(last).take_while(|(first, last)| first == last);
        &first[..same.count()]
    }

    /// The block; none without an entry, or if keys are not in order.
    pub(crate) fn finish(self) -> Option<PackedBlock> {
        let prefix: Box<[u8]> = self.prefix().into();
        let skip = prefix.len();
        let len = self.lens.len();
        let mut cells = Vec::with_capacity(self.bytes.len().saturating_sub(len * skip) + SPARE);
        let mut at = 0;
        let mut cell_bytes_max = 0;
        for &(key, unpack) in &self.lens {
            let end = at + usize::from(key) + usize::from(unpack);
            if !self.bytes[at..at + usize::from(key)].starts_with(&prefix) {
                return None;
            }
            cells.extend_from_slice(&self.bytes[at + skip..end]);
            cell_bytes_max = cell_bytes_max.max(end - at - skip);
            at = end;
        }
        cells.extend_from_slice(&[0; SPARE]);
        let places = self.places(skip, &cells)?;
        let stamp = self.stamp;
        Some(PackedBlock::of(
            prefix,
            cells,
            places,
            cell_bytes_max,
            self.rows,
            stamp,
        ))
    }

    fn places(&self, skip: usize, cells: &[u8]) -> Option<Places> {
        let &(key, unpack) = self.lens.first()?;
        if self.lens.iter().all(|&lens| lens == (key, unpack)) {
            return Some(Places::even(key - skip as u16, unpack));
        }
        let mut at = 0;
        let place = |&(key, unpack): &(u16, u16)| {
            let tail = key - skip as u16;
            let place = Place {
                at: at as u32,
                tail,
                unpack,
                head: head_of(&cells[at..at + usize::from(tail)]),
            };
            at += usize::from(tail) + usize::from(unpack);
            place
        };
        Some(Places::Uneven(self.lens.iter().map(place).collect()))
    }
}
