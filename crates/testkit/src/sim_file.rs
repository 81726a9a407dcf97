//! SimFile: one file of the simulated disk: what is visible, what is durable, what lies between.
//!
//! Why it exists: the difference between "written" and "durable" is the whole subject of crash tests; here it is data.
//! State: `visible` is what reads return; `durable` is what a power cut leaves for certain; `unsynced` are the writes
//! that a power cut may keep sector by sector. Writes that were pending when a sync failed are `doomed`: they stay
//! uncertain for ever, as no later sync says anything about them.

use crate::sparse::Sparse;
use pbxt_base::limits::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) const SECTOR: u64 = SECTOR_BYTES as u64;

/// A write that is not durable.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
    /// Zeros because the room was given back.
    pub(crate) is_hole: bool,
}

/// One file; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFile {
    pub(crate) visible: Sparse,
    pub(crate) durable: Sparse,
    pub(crate) unsynced: Vec<Unsynced>,
    pub(crate) doomed: Vec<Unsynced>,
    /// Ranges written so far: begin -> end.
    pub(crate) written: BTreeMap<u64, u64>,
    /// Bytes set aside when the file was made; writes within them need no space.
    pub(crate) preallocated: u64,
    /// Bytes whose room was given back.
    pub(crate) given_back: u64,
    /// Sectors that cannot be read.
    pub(crate) unreadable: Vec<u64>,
}

impl SimFile {
    pub(crate) fn preallocated(bytes: u64) -> Self {
        let mut visible = Sparse::default();
        visible.set_len(bytes);
        Self {
            visible,
            preallocated: bytes,
            ..Self::default()
        }
    }

    /// The part of `range` that was written before, if any.
    pub(crate) fn written_before(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (begin, end) = self.written.range(..range.end).next_back()?;
        (*end > range.start).then(|| (*begin).max(range.start)..(*end).min(range.end))
    }

    /// Notes a range as written, joining it with what it touches.
    pub(crate) fn note_written(&mut self, mut range: Range<u64>) {
        while let Some((begin, end)) = self
            .written
            .range(..=range.end)
            .next_back()
            .map(|(b, e)| (*b, *e))
        {
            if end < range.start {
                break;
            }
            self.written.remove(&begin);
            range = range.start.min(begin)..range.end.max(end);
        }
        self.written.insert(range.start, range.end);
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        self.note_written(offset..offset + bytes.len() as u64);
        self.visible.write(bytes, offset);
        self.unsynced.push(Unsynced {
            offset,
            bytes: bytes.into(),
            is_hole: false,
        });
    }

    /// Makes a hole: zeros, which a power cut may leave out sector by sector until the next sync (contract M8). It counts as written
    /// all the same: who writes there again breaks P1. Returns the bytes that took room until now.
    pub(crate) fn give_back(&mut self, range: Range<u64>) -> u64 {
        let before = self.visible.room(&range);
        let bytes: Arc<[u8]> = vec![0; (range.end - range.start) as usize].into();
        self.visible.clear(&range);
        self.unsynced.push(Unsynced {
            offset: range.start,
            bytes,
            is_hole: true,
        });
        self.given_back += before;
        before
    }

    pub(crate) fn sync(&mut self) {
        self.durable.set_len(self.visible.len());
        for write in self.unsynced.drain(..) {
            self.durable.write(&write.bytes, write.offset);
        }
    }

    /// A sync that failed: what was pending will never be known to be durable.
    pub(crate) fn fail_sync(&mut self) {
        self.doomed.append(&mut self.unsynced);
    }

    /// Unreadable sector that a read of `range` meets, if any.
    pub(crate) fn unreadable_in(&self, range: &Range<u64>) -> Option<u64> {
        self.unreadable.iter().copied().find(|sector| {
            let begin = sector * SECTOR;
            begin < range.end && begin + SECTOR > range.start
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_ranges_join_and_overlaps_are_found() {
        let mut file = SimFile::default();
        file.write(&[1; 10], 100);
        file.write(&[1; 10], 120);
        assert_eq!(file.written_before(&(90..100)), None);
        assert_eq!(file.written_before(&(110..120)), None);
        assert_eq!(file.written_before(&(105..125)), Some(120..125));
        assert_eq!(file.written_before(&(0..101)), Some(100..101));
        file.write(&[1; 10], 110);
        assert_eq!(file.written, BTreeMap::from([(100, 130)]));
        assert_eq!(file.written_before(&(129..500)), Some(129..130));
    }

    #[test]
    fn only_a_sync_makes_bytes_durable() {
        let mut file = SimFile::preallocated(1024);
        file.write(b"abc", 10);
        assert_eq!(file.durable.len(), 0);
        file.sync();
        let mut back = [0; 3];
        assert!(file.durable.read(&mut back, 10));
        assert_eq!((&back, file.durable.len()), (b"abc", 1024));
    }

    #[test]
    fn a_sync_after_a_failed_one_does_not_bring_the_earlier_writes_back() {
        let mut file = SimFile::preallocated(1024);
        file.write(b"abc", 0);
        file.fail_sync();
        file.write(b"def", 512);
        file.sync();
        let mut back = [9; 3];
        assert!(file.durable.read(&mut back, 0));
        assert_eq!(back, [0; 3]);
        assert!(file.durable.read(&mut back, 512));
        assert_eq!(&back, b"def");
    }
}
