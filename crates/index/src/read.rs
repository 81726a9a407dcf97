//! Reads: copy what leaves hold into a batch, forward or backward, and go on from there.
//!
//! Why it exists:    the tree may change under a reader at any moment; a batch is copied leaf by leaf, and a leaf that
//!                   changed meanwhile is taken back and sought again behind the last entry kept.
//! Rules:            X4 believe a leaf only after its version was validated; X7 dead entries are left out and a leaf of
//!                   dead entries is passed without looking at one; X8 a read goes on behind its last entry.
//! Latches and I/O:  none. The version of the next leaf is taken before the present one is validated, so that a leaf
//!                   cannot split between the two unseen.

use crate::batch::{Batch, Direction, Stop};
use crate::body::{Body, LeafPos, retry};
use crate::entry::EntryView;
use crate::latch::Restart;
use crate::node::NodeRef;
use crate::seek::SeekPos;

impl Body {
    /// Fills `out`, which holds no entry, with up to `max` entries on the `direction` side of the cut.
    pub(crate) fn read(&self, from: &SeekPos<'_>, direction: Direction, out: &mut Batch, max: usize) {
        out.tree = Some(self.id);
        out.stop = Stop {
            direction,
            ..Stop::default()
        };
        retry(|| {
            let again = (out.stop.last != 0).then(|| self.entry(out.stop.last));
            let start = match again {
                None => self.find(from)?,
                Some(last) => self.find(&beyond(last, direction))?,
            };
            self.fill(start, out, max)
        });
    }

    /// Replaces what `out` holds by the up to `max` entries beyond it.
    pub(crate) fn read_on(&self, out: &mut Batch, max: usize) {
        out.places.clear();
        if out.stop.at_end || out.stop.last == 0 {
            return;
        }
        let Stop {
            direction,
            last,
            leaf,
            ..
        } = out.stop;
        if let Some((place, version, index)) = leaf {
            let start = LeafPos {
                leaf: self.node(place),
                version,
                index,
            };
            if self.fill(start, out, max).is_ok() {
                return;
            }
        }
        retry(|| {
            let last = if out.stop.last == 0 { last } else { out.stop.last };
            let start = self.find(&beyond(self.entry(last), direction))?;
            self.fill(start, out, max)
        });
    }

    fn fill(&self, start: LeafPos<'_>, out: &mut Batch, max: usize) -> Result<(), Restart> {
        match out.stop.direction {
            Direction::Forward => self.fill_forward(start, out, max),
            Direction::Backward => self.fill_backward(start, out, max),
        }
    }

    pub(crate) fn fill_forward<'t>(
        &'t self,
        start: LeafPos<'t>,
        out: &mut Batch,
        max: usize,
    ) -> Result<(), Restart> {
        let LeafPos {
            mut leaf,
            mut version,
            mut index,
        } = start;
        loop {
            let counts = leaf.counts();
            let kept = out.places.len();
            if counts.dead < counts.count {
                let slots = index..counts.count;
                index += self
                    .take(leaf, slots, counts.dead > 0, out, max)
                    .inspect_err(|_| out.places.truncate(kept))?;
            } else {
                index = counts.count;
            }
            let next = leaf.next();
            let all_taken = index >= counts.count;
            let beyond = (all_taken && next != 0).then(|| self.node(next));
            if let Some(beyond) = beyond {
                beyond.prefetch(2);
            }
            let beyond = beyond
                .map(|right| right.latch().read().map(|version| (right, version)))
                .transpose();
            let (Ok(beyond), Ok(())) = (beyond, leaf.latch().validate(version)) else {
                out.places.truncate(kept);
                return Err(Restart);
            };
            out.note(leaf.place, version, index, all_taken && next == 0);
            match beyond {
                Some((right, right_version)) if out.places.len() < max => {
                    (leaf, version, index) = (right, right_version, 0);
                }
                _ => return Ok(()),
            }
        }
    }

    fn fill_backward<'t>(&'t self, start: LeafPos<'t>, out: &mut Batch, max: usize) -> Result<(), Restart> {
        let LeafPos {
            mut leaf,
            mut version,
            mut index,
        } = start;
        loop {
            let counts = leaf.counts();
            let kept = out.places.len();
            index = index.min(counts.count);
            if counts.dead < counts.count {
                let slots = (0..index).rev();
                index -= self
                    .take(leaf, slots, counts.dead > 0, out, max)
                    .inspect_err(|_| out.places.truncate(kept))?;
            } else {
                index = 0;
            }
            let prev = leaf.prev();
            let beyond = (index == 0 && prev != 0).then(|| self.node(prev));
            let beyond = beyond
                .map(|left| left.latch().read().map(|version| (left, version)))
                .transpose();
            let (Ok(beyond), Ok(())) = (beyond, leaf.latch().validate(version)) else {
                out.places.truncate(kept);
                return Err(Restart);
            };
            out.note(leaf.place, version, index, index == 0 && prev == 0);
            match beyond {
                Some((left, left_version)) if out.places.len() < max => {
                    (leaf, version, index) = (left, left_version, usize::MAX);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Takes slots into the batch until that holds `max` entries, without those that are dead; how many slots that were. Which ones are dead
    /// is asked when all have been asked for: one by one each would be a wait for memory.
    fn take(
        &self,
        leaf: NodeRef<'_>,
        mut slots: impl Iterator<Item = usize>,
        some_are_dead: bool,
        out: &mut Batch,
        max: usize,
    ) -> Result<usize, Restart> {
        let mut taken = 0;
        loop {
            let kept = out.places.len();
            for index in slots.by_ref().take(max.saturating_sub(kept)) {
                let place = leaf.slot(index)?.place;
                self.arena.prefetch(place);
                out.places.push(place);
            }
            let more = out.places.len() - kept;
            taken += more;
            if !some_are_dead || more == 0 {
                return Ok(taken);
            }
            self.drop_dead(&mut out.places, kept);
        }
    }

    /// Leaves dead entries out of the places from `begin` on.
    fn drop_dead(&self, places: &mut Vec<u32>, begin: usize) {
        let mut end = begin;
        for at in begin..places.len() {
            if !self.entry(places[at]).is_dead() {
                places[end] = places[at];
                end += 1;
            }
        }
        places.truncate(end);
    }

    /// Number of entries with exactly this key (dead ones included), and the leaf position they were counted from.
    pub(crate) fn try_count_key(&self, key: &[u8]) -> Result<(u64, LeafPos<'_>, bool), Restart> {
        let start = self.find(&SeekPos::lower_bound(key))?;
        let LeafPos {
            mut leaf,
            mut version,
            mut index,
        } = start;
        let mut found = 0;
        loop {
            let count = leaf.counts().count;
            while index < count {
                if leaf.entry(&self.arena, index)?.key() != key {
                    leaf.latch().validate(version)?;
                    return Ok((found, start, leaf.place == start.leaf.place));
                }
                found += 1;
                index += 1;
            }
            let next = leaf.next();
            if next == 0 {
                leaf.latch().validate(version)?;
                return Ok((found, start, leaf.place == start.leaf.place));
            }
            let right = self.node(next);
            let right_version = right.latch().read()?;
            leaf.latch().validate(version)?;
            (leaf, version, index) = (right, right_version, 0);
        }
    }
}

/// The cut where a read goes on behind `last`.
fn beyond(last: EntryView<'_>, direction: Direction) -> SeekPos<'_> {
    match direction {
        Direction::Forward => SeekPos::after_entry(last),
        Direction::Backward => SeekPos::before_entry(last),
    }
}
