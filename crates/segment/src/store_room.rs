//! Room of hot segments: what of a segment that was prepared is set aside, and what is given back.
//!
//! Why it exists: a segment has its full length from the first, but a log in which nothing happens needs little of it, and a part that the log
//! has left behind at a close needs nothing at all.
//! Format: none; bytes without room read as the zeros that they are (contract M8).
//! Rules: D38 (docs/durability.md) nothing is given back that the log may reach, and nothing is written where no room is. D10 room is set
//! aside before the log may reach it.
//! Latches and I/O: the map of prepared files for a moment; changes the room of files. The log keeps those calls one after the other.
//! After a crash: any part of what was given back may have room; nobody asks for that.

use crate::footer::FOOTER_BYTES;
use crate::names::SegmentClass;
use crate::store::SegmentStore;
use pbxt_base::{Result, SegmentId};
use pbxt_io::GIVE_BACK_BYTES;

impl SegmentStore {
    /// The least offset at or behind `offset` of a hot segment where room that is given back may begin; its length if that would be
    /// nothing but its end.
    pub fn room_border(&self, offset: u64) -> u64 {
        let (bytes, border) = (
            self.geometry().hot_segment_bytes,
            offset.next_multiple_of(GIVE_BACK_BYTES),
        );
        if border + GIVE_BACK_BYTES.max(FOOTER_BYTES as u64) > bytes {
            bytes
        } else {
            border
        }
    }

    /// Gives the room of a hot segment from `offset`, a `room_border`, to its end back. Nothing was written there. A medium that cannot do
    /// it keeps the room.
    pub fn give_back_behind(&self, id: SegmentId, offset: u64) -> Result<()> {
        let bytes = self.geometry().hot_segment_bytes;
        if offset < bytes {
            self.file(SegmentClass::Hot, id)?.give_back(offset..bytes)?;
        }
        Ok(())
    }

    /// Sets room aside for a hot segment from `offset` to its end. `NoSpace` changes nothing.
    pub fn take_room_behind(&self, id: SegmentId, offset: u64) -> Result<()> {
        let file = self.file(SegmentClass::Hot, id)?;
        file.take_room(offset..self.geometry().hot_segment_bytes)
    }

    /// Removes a segment that this life has prepared and not begun. It can be prepared again.
    pub fn unprepare(&self, id: SegmentId) -> Result<()> {
        let prepared = self.forget_prepared(id);
        if prepared {
            self.remove_file(SegmentClass::Hot, id)?;
        }
        Ok(())
    }
}
