//! Places between entries: where a seek goes and where a scan goes on.
//!
//! Why it exists:    "first entry not below this prefix", "behind everything with this prefix" and "just behind the entry
//!                   I had last" are all one thing: a cut through the ordered entries. A forward read takes what lies
//!                   right of the cut, a backward read what lies left of it.
//! Rules:            X1 (the order), X8 (a scan that was interrupted goes on at the cut behind its last entry).

use std::ops::Range;

use pbxt_base::codec::word_of;
use pbxt_base::{Lsn, RowId};

use crate::entry::{EntryView, Sign};

/// A cut through the entries of a tree.
#[derive(Clone, Copy, Debug)]
pub struct SeekPos<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) side: Side,
}

/// On which side of which entries of `key` the cut runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// Left of every entry whose key is not less than `key`.
    BeforePrefix,
    /// Right of every entry whose key starts with `key`.
    AfterPrefix,
    /// Left of the entry with exactly `key` and this event.
    BeforeEvent(RowId, Lsn, Sign),
    /// Right of it.
    AfterEvent(RowId, Lsn, Sign),
}

impl<'k> SeekPos<'k> {
    /// Left of all entries.
    pub const START: SeekPos<'static> = SeekPos {
        key: &[],
        side: Side::BeforePrefix,
    };
    /// Right of all entries.
    pub const END: SeekPos<'static> = SeekPos {
        key: &[],
        side: Side::AfterPrefix,
    };

    /// Left of the first entry whose first `prefix.len()` key bytes are not less than `prefix`.
    pub fn lower_bound(prefix: &'k [u8]) -> SeekPos<'k> {
        SeekPos {
            key: prefix,
            side: Side::BeforePrefix,
        }
    }

    /// Left of the first entry whose first `prefix.len()` key bytes are greater than `prefix`.
    pub fn upper_bound(prefix: &'k [u8]) -> SeekPos<'k> {
        SeekPos {
            key: prefix,
            side: Side::AfterPrefix,
        }
    }

    /// Left of the named entry, whether it exists or not: a backward scan goes on here.
    pub fn before(key: &'k [u8], row: RowId, lsn: Lsn, sign: Sign) -> SeekPos<'k> {
        SeekPos {
            key,
            side: Side::BeforeEvent(row, lsn, sign),
        }
    }

    /// Right of the named entry, whether it exists or not: a forward scan goes on here.
    pub fn after(key: &'k [u8], row: RowId, lsn: Lsn, sign: Sign) -> SeekPos<'k> {
        SeekPos {
            key,
            side: Side::AfterEvent(row, lsn, sign),
        }
    }

    /// Left of this entry.
    pub fn before_entry(entry: EntryView<'k>) -> SeekPos<'k> {
        SeekPos::before(entry.key(), entry.row(), entry.lsn(), entry.sign())
    }

    /// Right of this entry.
    pub fn after_entry(entry: EntryView<'k>) -> SeekPos<'k> {
        SeekPos::after(entry.key(), entry.row(), entry.lsn(), entry.sign())
    }

    /// The same side of another key.
    pub(crate) fn with_key<'n>(&self, key: &'n [u8]) -> SeekPos<'n> {
        SeekPos { key, side: self.side }
    }

    /// True if `entry` lies left of the cut.
    #[inline]
    pub(crate) fn is_right_of(&self, entry: EntryView<'_>) -> bool {
        self.is_right_of_event(entry.key(), || entry.event())
    }

    /// True if an entry with this key, and this event if that is asked for, lies left of the cut.
    #[inline]
    pub(crate) fn is_right_of_event(&self, key: &[u8], event: impl FnOnce() -> (RowId, Lsn, Sign)) -> bool {
        match self.side {
            Side::BeforePrefix => key < self.key,
            Side::AfterPrefix => key < self.key || key.starts_with(self.key),
            Side::BeforeEvent(row, lsn, sign) => {
                let order = key.cmp(self.key);
                order.then_with(|| event().cmp(&(row, lsn, sign))).is_lt()
            }
            Side::AfterEvent(row, lsn, sign) => {
                let order = key.cmp(self.key);
                order.then_with(|| event().cmp(&(row, lsn, sign))).is_le()
            }
        }
    }

    /// Least and greatest head, after a node's common prefix of `skip` bytes (which `key` has), that do not yet tell
    /// on which side of the cut an entry lies.
    #[inline]
    pub(crate) fn open_heads(&self, skip: usize) -> (u32, u32) {
        let rest = self.key.get(skip..).unwrap_or(&[]);
        let low = head_of(rest);
        match self.side {
            Side::AfterPrefix if rest.len() < 4 => (low, low | u32::MAX >> (8 * rest.len())),
            _ => (low, low),
        }
    }

    /// The same of the first eight bytes.
    #[inline]
    pub(crate) fn open_words(&self) -> (u64, u64) {
        let low = word_of(self.key);
        match self.side {
            Side::AfterPrefix if self.key.len() < 8 => (low, low | u64::MAX >> (8 * self.key.len())),
            _ => (low, low),
        }
    }
}

/// First four bytes as a number that compares like the bytes do; missing ones count as zero.
#[inline]
pub(crate) fn head_of(bytes: &[u8]) -> u32 {
    match bytes.first_chunk::<4>() {
        Some(&[a, b, c, d]) => u32::from(a) << 24 | u32::from(b) << 16 | u32::from(c) << 8 | u32::from(d),
        None => bytes
            .iter()
            .zip([24, 16, 8])
            .fold(0, |head, (&byte, shift)| head | u32::from(byte) << shift),
    }
}

/// Equal heads are looked for among this many first.
const HEADS_NEAR: usize = 8;

/// Of `len` entries in order those that their heads alone do not place on a side of the cut: those before lie left of it, those
/// behind right. `bounds` are the cut's open heads.
#[inline]
pub(crate) fn open_range(
    len: usize,
    (least, greatest): (u32, u32),
    head: impl Fn(usize) -> u32,
) -> Range<usize> {
    let from = partition(0..len, |index| head(index) < least);
    let near = from + HEADS_NEAR;
    let is_short = near >= len || head(near) > greatest;
    let to = if is_short { near.min(len) } else { len };
    from..partition(from..to, |index| head(index) <= greatest)
}

/// As `partition`, for who expects it near the begin.
#[inline]
pub(crate) fn gallop(range: Range<usize>, is_left: impl Fn(usize) -> bool) -> usize {
    let Range { start: mut low, end } = range;
    let mut step = 1;
    while low < end {
        let probe = (low + step - 1).min(end - 1);
        if !is_left(probe) {
            return partition(low..probe, is_left);
        }
        low = probe + 1;
        step *= 2;
    }
    end
}

/// First index of the range that is not left; all that are left come first.
#[inline]
pub(crate) fn partition(range: Range<usize>, is_left: impl Fn(usize) -> bool) -> usize {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_left(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
