//! Room of dead values in segments of which a part lives: which blocks are given back to the medium, and when.
//!
//! Why it exists: one value that stays would keep a whole file of dead ones. Moving it means a new version of its row, or an address that is
//! looked up by way of another; a hole in the file needs neither, and P1 holds: nothing is written twice.
//! State: per segment what was given back since open, and what will be when the next checkpoint counts. After an opening nothing counts as
//! given back, and all that the image has is offered again: making a hole twice does no harm.
//! Rules: S50 only ranges that the newest image has, and that were known when its checkpoint began. S51 at least a sixteenth of the segment
//! at once. S52 whole blocks within dead ranges.
//! Latches and I/O: ranges are chosen under the latch of the accounts; holes are made without it, one call of the medium each.
//! After a crash: a block that was to be given back is a hole or as it was; nobody reads it.

use super::{BlobAccounts, within};
use crate::database::Database;
use crate::error::Result;
use crate::image::{ImageItem, ImageReader, damage};
use crate::pacing::Progress;
use pbxt_base::{Lsn, SegmentId};
use pbxt_io::GIVE_BACK_BYTES;
use pbxt_segment::SegmentStore;
use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges are looked at when so large a part of the segment came to them (rule S51).
const PART_OF_SEGMENT: u64 = 16;

/// Begin to end; disjoint, not touching.
type Ranges = BTreeMap<u64, u64>;

/// What is given back of one segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes that were noted as dead since the ranges were looked at.
    news: u64,
    /// What will be given back, and where the first checkpoint may begin that knows it.
    offered: Option<(Lsn, Ranges)>,
    given: Ranges,
}

/// The whole blocks within a range, as bytes.
fn blocks_of(begin: u64, end: u64) -> Option<Range<u64>> {
    let blocks = begin.next_multiple_of(GIVE_BACK_BYTES)..end / GIVE_BACK_BYTES * GIVE_BACK_BYTES;
    (blocks.start < blocks.end).then_some(blocks)
}

/// Bytes of the whole blocks within the ranges, in a segment of so many.
fn bytes_of(ranges: &Ranges, segment_bytes: u64) -> u64 {
    let blocks = within(ranges, segment_bytes).filter_map(|(begin, end)| blocks_of(begin, end));
    blocks.map(|blocks| blocks.end - blocks.start).sum()
}

impl Room {
    pub(super) fn note(&mut self, bytes: u64) {
        self.news += bytes;
    }

    /// Offers the dead ranges of a segment of so many bytes, if that is worth it; returns the bytes it gives back.
    fn offer(&mut self, dead: &Ranges, segment_bytes: u64, next: Lsn) -> Option<u64> {
        let least = (segment_bytes / PART_OF_SEGMENT).max(GIVE_BACK_BYTES);
        if self.offered.is_some() || self.news < least {
            return None;
        }
        self.news = 0;
        let gain = bytes_of(dead, segment_bytes).saturating_sub(bytes_of(&self.given, segment_bytes));
        if gain < least {
            return None;
        }
        self.offered = Some((next, dead.clone()));
        Some(gain)
    }

    /// Takes what the newest checkpoint knows: blocks that were not given back yet. After a crash the segment may
    /// end before a value that was never synced and is known to be dead.
    fn take(&mut self, segment_bytes: u64, checkpoint: Lsn) -> Vec<Range<u64>> {
        let Some((_, ranges)) = self.offered.take_if(|(since, _)| *since <= checkpoint) else {
            return Vec::new();
        };
        let is_new = |(begin, end): &(&u64, &u64)| self.given.get(*begin) != Some(*end);
        let new = ranges.iter().filter(is_new);
        let blocks = new.filter_map(|(begin, end)| blocks_of(*begin, *end.min(&segment_bytes)));
        let blocks = blocks.collect();
        self.given = ranges;
        blocks
    }
}

impl Database {
    /// Gives back the room of dead values beside living ones. Blocks of which nothing came because the database closes, or because the
    /// medium failed, are offered again after the next opening.
    pub(super) fn give_room_back(&self, room: Vec<(SegmentId, Vec<Range<u64>>)>) -> Result<Progress> {
        let mut progress = Progress::Idle;
        for (segment, blocks) in room {
            for range in blocks {
                if self.upkeep.is_stopping() || !self.blobs.give_back(segment, range)? {
                    return Ok(progress);
                }
                progress = Progress::Worked;
            }
        }
        Ok(progress)
    }

    /// Blocks to be given back now. Offers what is worth it: the checkpoint it waits for is due sooner.
    pub(super) fn room_to_give(&self, bytes: &BTreeMap<SegmentId, u64>) -> Vec<(SegmentId, Vec<Range<u64>>)> {
        let next = self.next_checkpoint();
        let checkpoint = self.store.checkpoint().map_or(Lsn::new(0), |found| found.start);
        let mut ready = Vec::new();
        let mut segments = self.upkeep.blobs.segments.lock();
        for (id, dead) in segments.iter_mut() {
            let Some(end) = bytes.get(id).filter(|end| !dead.covers(**end)) else {
                continue; // It goes as a whole (S16).
            };
            let blocks = dead.room.take(*end, checkpoint);
            if !blocks.is_empty() {
                ready.push((*id, blocks));
            }
            if let Some(gain) = dead.room.offer(&dead.ranges, *end, next) {
                self.maintenance.note_dropped(gain);
            }
        }
        ready
    }
}

/// The dead ranges of all blob segments as the newest checkpoint's image has them: begin to end, rising. In these bytes room may have been
/// given back (rule S50), so whoever verifies the files passes over them.
pub fn dead_values(store: &SegmentStore) -> Result<BTreeMap<SegmentId, Vec<Range<u64>>>> {
    let Some(checkpoint) = store.checkpoint() else {
        return Ok(BTreeMap::new());
    };
    let mut reader = ImageReader::open(store, checkpoint.image)?;
    let accounts = match reader.next_item()? {
        Some(ImageItem::Head(head)) => BlobAccounts::decode(&head.blobs),
        _ => Err(damage("the head of an image", "another item")),
    };
    let accounts = accounts.map_err(|error| reader.in_item(error))?;
    let segments = accounts.segments.into_inner().into_iter();
    let ranges = |ranges: Ranges| ranges.into_iter().map(|(begin, end)| begin..end).collect();
    Ok(segments.map(|(id, dead)| (id, ranges(dead.ranges))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn taken(room: &mut Room, checkpoint: u64) -> Vec<(u64, u64)> {
        let blocks = room.take(MIB, Lsn::new(checkpoint));
        blocks.into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn only_blocks_that_are_dead_as_a_whole_are_given_back() {
        assert_eq!(blocks_of(4096, 8192), Some(4096..8192));
        assert_eq!(blocks_of(4097, 8192), None);
        assert_eq!(blocks_of(4090, 12_287), Some(4096..8192));
        let ranges = Ranges::from([(4096, 8192), (9000, 20_480), (32_768, 65_536)]);
        assert_eq!(bytes_of(&ranges, MIB), 11 * 4096);
        assert_eq!(bytes_of(&ranges, 20_000), 2 * 4096, "nothing behind the end");
    }

    #[test]
    fn room_waits_for_a_checkpoint_and_is_given_back_once() {
        let mut room = Room::default();
        let mut dead = Ranges::from([(4096, 4096 + MIB / 16)]);
        assert_eq!(room.offer(&dead, MIB, Lsn::new(50)), None, "nothing was noted");
        room.note(MIB / 16);
        assert_eq!(room.offer(&dead, MIB, Lsn::new(50)), Some(MIB / 16));
        dead.insert(MIB / 2, MIB);
        room.note(MIB / 2);
        assert_eq!(taken(&mut room, 49), [], "the checkpoint began before");
        assert_eq!(room.offer(&dead, MIB, Lsn::new(60)), None, "one after the other");
        assert_eq!(taken(&mut room, 50), [(4096, 4096 + MIB / 16)]);
        assert_eq!(room.offer(&dead, MIB, Lsn::new(70)), Some(MIB / 2));
        assert_eq!(taken(&mut room, 70), [(MIB / 2, MIB)], "only what is new");
        assert_eq!(taken(&mut room, 80), []);
    }

    #[test]
    fn little_is_not_worth_it() {
        let mut room = Room::default();
        room.note(MIB / 16 - 1);
        let dead = Ranges::from([(4096, 4096 + MIB)]);
        assert_eq!(room.offer(&dead, MIB, Lsn::new(1)), None);
        room.note(1);
        let scattered = (0..100).map(|at| (at * 8192 + 1, at * 8192 + 4096)).collect();
        assert_eq!(
            room.offer(&scattered, MIB, Lsn::new(1)),
            None,
            "no block is dead as a whole"
        );
    }
}
