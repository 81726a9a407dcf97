//! Estimates: about how many entries of a run lie between two cuts.
//!
//! Why it exists:    a host's optimizer chooses indexes by such numbers, for every statement. Fences are in memory and tell
//!                   how many entries the blocks between two cuts have; where a cut lies within its block only the block
//!                   knows, and for a range within one or two blocks that is the whole answer.
//! Rules:            X37 a range of few blocks is counted in them, a longer one by its fences.
//! Latches and I/O:  none but reads of the two blocks at the ends, through the cache, and only with `range_count`.

use std::ops::Range;

use pbxt_base::Result;
use pbxt_segment::BlockCache;

use crate::run::{Run, RunPiece};
use crate::seek::{SeekPos, Side};

/// A range that may reach over more blocks than this is estimated by fences alone: what these do not know of the two blocks at
/// its ends is then little of it.
const BLOCKS_COUNTED: u64 = 16;

impl Run {
    /// About how many entries lie right of `low` and left of `high`. No I/O.
    pub fn range_count_estimate(&self, low: &SeekPos<'_>, high: &SeekPos<'_>) -> u64 {
        let rank = |pos: &SeekPos<'_>| self.pieces.iter().map(|piece| piece.rank(pos)).sum::<f64>();
        (rank(high) - rank(low)).max(0.0).round() as u64
    }

    /// As `range_count_estimate`, but entries of a range of few blocks are counted; reads two blocks at most (rule X37).
    ///
    /// # Errors
    /// Those of reading a block.
    pub fn range_count(&self, low: &SeekPos<'_>, high: &SeekPos<'_>, cache: &BlockCache) -> Result<u64> {
        let blocks: u64 = self
            .pieces
            .iter()
            .map(|piece| piece.blocks_between(low, high))
            .sum();
        if blocks > BLOCKS_COUNTED {
            return Ok(self.range_count_estimate(low, high));
        }
        let mut count = 0;
        for piece in self.pieces.iter().filter(|piece| piece.is_entered(low, high)) {
            let to = piece.exact_rank(high, cache)?;
            count += to.saturating_sub(piece.exact_rank(low, cache)?);
        }
        Ok(count)
    }
}

impl RunPiece {
    /// About how many entries lie left of the cut, from fences alone.
    fn rank(&self, pos: &SeekPos<'_>) -> f64 {
        let section = self.section();
        let Range { start, end } = self.blocks_at(pos);
        let (from, to) = (section.entries_before(start), section.entries_before(end));
        let last = if end == section.block_count() {
            self.last_key()
        } else {
            section.first_key(end)
        };
        (to - from) as f64 * share_of(pos, section.first_key(start), last) + from as f64
    }

    /// False only if no entry lies between the cuts.
    fn is_entered(&self, low: &SeekPos<'_>, high: &SeekPos<'_>) -> bool {
        !is_behind(low, self.last_key()) && is_behind(high, self.first_key())
    }

    /// Blocks that may have entries between the cuts.
    fn blocks_between(&self, low: &SeekPos<'_>, high: &SeekPos<'_>) -> u64 {
        if !self.is_entered(low, high) {
            return 0;
        }
        let (from, to) = (self.blocks_at(low).start, self.blocks_at(high).end);
        to.saturating_sub(from) as u64
    }

    /// How many entries lie left of the cut; of a cut at an event among many under one key, about.
    fn exact_rank(&self, pos: &SeekPos<'_>, cache: &BlockCache) -> Result<u64> {
        if is_behind(pos, self.last_key()) {
            return Ok(self.entries());
        }
        if !is_behind(pos, self.first_key()) {
            return Ok(0);
        }
        let Range { start, end } = self.blocks_at(pos);
        if end - start > 1 {
            return Ok(self.rank(pos).round() as u64);
        }
        let within = self.load(cache, start)?.partition_point(pos);
        Ok(self.section().entries_before(start) + within as u64)
    }
}

/// True if entries with this key lie left of the cut; of those with the key of the event a cut is at, some may lie right of it.
fn is_behind(pos: &SeekPos<'_>, key: &[u8]) -> bool {
    match pos.side {
        Side::AfterPrefix => key < pos.key || key.starts_with(pos.key),
        Side::BeforePrefix | Side::BeforeEvent(..) | Side::AfterEvent(..) => key < pos.key,
    }
}

/// How far along between two keys a cut lies, 0 to 1; keys are taken as numbers behind what they have in common.
fn share_of(pos: &SeekPos<'_>, low: &[u8], high: &[u8]) -> f64 {
    let is_after = matches!(pos.side, Side::AfterPrefix | Side::AfterEvent(..));
    let is_prefix_of = |key: &[u8]| matches!(pos.side, Side::AfterPrefix) && key.starts_with(pos.key);
    if pos.key > high || is_prefix_of(high) {
        return 1.0;
    }
    if (pos.key < low && !is_prefix_of(low)) || (pos.key == low && !is_after) {
        return 0.0;
    }
    let same = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let number = |key: &[u8], fill: u8| {
        (same..same + 7).fold(0_u64, |number, at| {
            number << 8 | u64::from(*key.get(at).unwrap_or(&fill))
        }) as f64
    };
    let (from, to) = (number(low, 0), number(high, 0));
    let at = number(pos.key, if is_after { 255 } else { 0 });
    if to > from {
        ((at - from) / (to - from)).clamp(0.0, 1.0)
    } else {
        0.5
    }
}
