//! Estimates: how many entries lie between two cuts, from two descents.
//!
//! Why it exists:    the optimiser of a host asks before every range access; counting would cost as much as the access.
//! Format / state:   none of its own. A descent gives a rank: at each level the child's position times the mean number of
//!                   entries below a node of that level, which follows from the number of nodes per level. Cuts in the
//!                   same leaf or a few leaves apart are counted instead.
//! Rules:            X8 (versions are validated, so positions of one leaf fit together).
//! Latches and I/O:  none.

use crate::body::{Body, LeafPos};
use crate::latch::Restart;
use crate::seek::SeekPos;

/// Ranges over up to this many leaves are counted, not estimated.
const LEAVES_COUNTED: usize = 4;

impl Body {
    /// Entries right of `low` and left of `high`, dead ones included.
    pub(crate) fn try_estimate(&self, low: &SeekPos<'_>, high: &SeekPos<'_>) -> Result<u64, Restart> {
        let (from, rank_from) = self.find_rank(low)?;
        let (to, rank_to) = self.find_rank(high)?;
        if let Some(exact) = self.count_near(from, to)? {
            return Ok(exact);
        }
        Ok((rank_to - rank_from).max(0.0).round() as u64)
    }

    /// Exact number of entries between two positions, if they are at most a few leaves apart.
    fn count_near(&self, from: LeafPos<'_>, to: LeafPos<'_>) -> Result<Option<u64>, Restart> {
        let LeafPos {
            mut leaf,
            mut version,
            index,
        } = from;
        let mut found = 0;
        let mut skip = index;
        for _ in 0..LEAVES_COUNTED {
            if leaf.place == to.leaf.place {
                to.leaf.latch().validate(to.version)?;
                return Ok(Some((found + to.index).saturating_sub(skip) as u64));
            }
            found += leaf.counts().count;
            found -= skip.min(found);
            skip = 0;
            let next = leaf.next();
            if next == 0 {
                break;
            }
            let right = self.node(next);
            let right_version = right.latch().read()?;
            leaf.latch().validate(version)?;
            (leaf, version) = (right, right_version);
        }
        Ok(None)
    }

    /// The cut's position and about how many entries lie left of it.
    fn find_rank(&self, pos: &SeekPos<'_>) -> Result<(LeafPos<'_>, f64), Restart> {
        let entries = self.arena.entries() as f64;
        let (mut node, mut version) = self.enter()?;
        let mut rank = 0.0;
        while node.level() > 0 {
            let index = node.position(&self.arena, pos)?;
            rank += index as f64 * entries / f64::from(self.nodes_on(node.level() - 1));
            (node, version) = self.step_down(node, version, index)?;
        }
        let index = node.position(&self.arena, pos)?;
        rank += index as f64;
        node.latch().validate(version)?;
        Ok((
            LeafPos {
                leaf: node,
                version,
                index,
            },
            rank,
        ))
    }
}
