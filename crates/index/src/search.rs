//! Search in one node: how many of its slots lie left of a cut.
//!
//! Why it exists:    this is where a seek spends its time: the common prefix is compared once per node, then heads, and an
//!                   entry is read only where heads are equal.
//! Rules:            X4 what is found counts only if the node's version is the same afterwards; until then slots may be
//!                   in any order, so nothing here relies on one. X5 prefix and heads.
//! Latches and I/O:  none.

use crate::arena::Arena;
use crate::latch::Restart;
use crate::node::{Counts, INLINE_PREFIX, NodeRef, entry_at};
use crate::seek::{SeekPos, Side, head_of};
use crate::sync::Ordering;

impl<'t> NodeRef<'t> {
    /// How many slots lie left of the cut. Means something only if the node's version is the same afterwards.
    #[inline]
    pub(crate) fn position(self, arena: &'t Arena, pos: &SeekPos<'_>) -> Result<usize, Restart> {
        let Counts {
            count, prefix_len, ..
        } = self.counts();
        if let Some(all_left) = self.side_by_prefix(arena, pos, prefix_len)? {
            return Ok(if all_left { count } else { 0 });
        }
        let (low, high) = pos.open_heads(prefix_len);
        let (mut left, mut right) = (0, count);
        while left < right {
            let middle = usize::midpoint(left, right);
            let slot = self.slot(middle)?;
            let entry_is_left = if slot.head < low {
                true
            } else if slot.head > high {
                false
            } else {
                pos.is_right_of(entry_at(arena, slot.place))
            };
            if entry_is_left {
                left = middle + 1;
            } else {
                right = middle;
            }
        }
        Ok(left)
    }

    /// Whether the common prefix alone puts all entries on one side of the cut, and on which: `Some(true)` left of it.
    #[inline]
    fn side_by_prefix(
        self,
        arena: &'t Arena,
        pos: &SeekPos<'_>,
        len: usize,
    ) -> Result<Option<bool>, Restart> {
        for (index, word) in self.header().prefix.iter().enumerate().take(len.div_ceil(8)) {
            let ours = word.load(Ordering::Acquire);
            let theirs = prefix_word(pos.key, index, len);
            if ours != theirs {
                // Zero stands for a missing byte of `pos.key` as well; which of the two it is, is settled below.
                let missing = pos.key.len() < len && pos.key.len() < 8 * (index + 1);
                if missing
                    && prefix_word(pos.key, index, pos.key.len()) == ours & word_mask(index, pos.key.len())
                {
                    break;
                }
                return Ok(Some(ours < theirs));
            }
        }
        let checked = pos.key.len().min(len);
        if checked > INLINE_PREFIX {
            let first = self.entry(arena, 0)?;
            let rest = first.key().get(INLINE_PREFIX..checked).ok_or(Restart)?;
            if rest != &pos.key[INLINE_PREFIX..checked] {
                return Ok(Some(rest < &pos.key[INLINE_PREFIX..checked]));
            }
        }
        if checked == len {
            return Ok(None);
        }
        // The cut's key is a proper prefix of all our keys: they are greater, and they start with it.
        Ok(Some(matches!(pos.side, Side::AfterPrefix)))
    }
}

/// Bytes `8 * index ..` of the first `len` bytes of `key` as a number; zero where there are none.
#[inline]
pub(crate) fn prefix_word(key: &[u8], index: usize, len: usize) -> u64 {
    let rest = key.get(8 * index..).unwrap_or(&[]);
    let word = u64::from(head_of(rest)) << 32 | u64::from(head_of(rest.get(4..).unwrap_or(&[])));
    word & word_mask(index, len)
}

/// Keeps those bytes of prefix word `index` that belong to the first `len` bytes.
#[inline]
fn word_mask(index: usize, len: usize) -> u64 {
    match len.saturating_sub(8 * index) {
        0 => 0,
        bytes @ 1..8 => u64::MAX << (64 - 8 * bytes),
        _ => u64::MAX,
    }
}
