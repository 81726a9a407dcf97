//! Estimates: how many entries lie between two cuts, from two descents.
//!
//! Why it exists:    the optimiser of a host asks before every range access; counting would cost as much as the access.
//! Format / state:   none. A descent gives a fraction: child position plus the fraction inside the child, divided by the
//!                   number of children, level by level. Cuts in the same leaf or a few leaves apart are counted instead.
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
        let (from, fraction_from) = self.find_fraction(low)?;
        let (to, fraction_to) = self.find_fraction(high)?;
        if let Some(exact) = self.count_near(from, to)? {
            return Ok(exact);
        }
        let part = (fraction_to - fraction_from).max(0.0);
        Ok((part * self.arena.entries() as f64).round() as u64)
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

    /// The cut's position and the part of the tree left of it, between 0 and 1.
    fn find_fraction(&self, pos: &SeekPos<'_>) -> Result<(LeafPos<'_>, f64), Restart> {
        let (mut node, mut version) = self.enter()?;
        let (mut fraction, mut width) = (0.0, 1.0);
        while node.level() > 0 {
            let index = node.position(&self.arena, pos)?;
            width /= (node.counts().count + 1) as f64;
            fraction += width * index as f64;
            (node, version) = self.step_down(node, version, index)?;
        }
        let index = node.position(&self.arena, pos)?;
        fraction += width * index as f64 / node.counts().count.max(1) as f64;
        node.latch().validate(version)?;
        Ok((
            LeafPos {
                leaf: node,
                version,
                index,
            },
            fraction,
        ))
    }
}
