//! SimFile: one file of the simulated disk: what is visible, what is durable, what lies between.
//!
//! Why it exists: the difference between "written" and "durable" is the whole subject of crash tests; here it is data.
//! State: `visible` is what reads return; `durable` is what a power cut leaves for certain; `unsynced` are the writes
//! that a power cut may keep sector by sector. Writes that were pending when a sync failed are `doomed`: they stay
//! uncertain until the same bytes are written again, as no later sync says anything about them.
//! Rules: P1 with its two exceptions, which this file judges by itself: an opening writes again, with the same bytes, what an
//! earlier life wrote (D34); an encrypted file that grows completes the sector in which its content ends (EN8).

use crate::ranges::Ranges;
use crate::sparse::Sparse;
use pbxt_base::limits::SECTOR_BYTES;
use std::ops::Range;
use std::sync::Arc;

pub(crate) const SECTOR: u64 = SECTOR_BYTES as u64;
/// What an encrypted file begins with, the bytes before its content and behind it, and a block of its cipher (docs/encryption.md).
const ENCRYPTION_MARK: &[u8; 8] = b"PBXTENC1";
const ENCRYPTION_HEADER: u64 = 4096;
const CIPHER_BLOCK: u64 = 16;

/// A write that is not durable.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
    /// Zeros because the room was given back.
    pub(crate) is_hole: bool,
}

impl Unsynced {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }

    /// What is left of the write beside `range`.
    fn without(&self, range: &Range<u64>) -> Vec<Self> {
        let own = self.range();
        let parts = [
            own.start..own.end.min(range.start),
            own.start.max(range.end)..own.end,
        ];
        let left = parts.into_iter().filter(|part| part.start < part.end);
        left.map(|part| Self {
            offset: part.start,
            bytes: self.bytes[(part.start - own.start) as usize..(part.end - own.start) as usize].into(),
            is_hole: self.is_hole,
        })
        .collect()
    }
}

/// One file; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFile {
    pub(crate) visible: Sparse,
    pub(crate) durable: Sparse,
    pub(crate) unsynced: Vec<Unsynced>,
    pub(crate) doomed: Vec<Unsynced>,
    /// Ranges written so far.
    pub(crate) written: Ranges,
    /// Those written since the database was opened.
    pub(crate) lately: Ranges,
    /// Those that a sync has made durable.
    pub(crate) synced: Ranges,
    /// Bytes set aside when the file was made; writes within them need no space.
    pub(crate) preallocated: u64,
    /// Of those, bytes that lack room again, on which nothing was written (rule D38).
    pub(crate) lacking: Range<u64>,
    /// Bytes whose room was given back.
    pub(crate) given_back: u64,
    /// Sectors that cannot be read.
    pub(crate) unreadable: Vec<u64>,
}

impl SimFile {
    #[cfg(test)]
    pub(crate) fn preallocated(bytes: u64) -> Self {
        Self::lacking(bytes, bytes..bytes)
    }

    /// With room for all bytes but these.
    pub(crate) fn lacking(bytes: u64, lacking: Range<u64>) -> Self {
        let mut visible = Sparse::default();
        visible.set_len(bytes);
        Self {
            visible,
            preallocated: bytes,
            given_back: lacking.end - lacking.start,
            lacking,
            ..Self::default()
        }
    }

    /// The range that a write of these bytes would write twice against the rule, if any.
    pub(crate) fn broken_by(&self, bytes: &[u8], offset: u64) -> Option<Range<u64>> {
        let range = offset..offset + bytes.len() as u64;
        let twice = self.written.first_in(&range)?;
        if self.lately.first_in(&range).is_none() && self.has(bytes, offset) {
            return None;
        }
        let Some((open, settled)) = self.open_sector() else {
            return Some(twice);
        };
        let below = range.start..range.end.min(open);
        if let Some(twice) = self.written.first_in(&below) {
            return Some(twice);
        }
        let kept = range.start.max(open)..range.end.min(settled);
        let part = |place: u64| (place - offset) as usize;
        let is_kept = kept.is_empty() || self.has(&bytes[part(kept.start)..part(kept.end)], kept.start);
        (!is_kept).then_some(kept)
    }

    /// Where the sector begins in which the content of an encrypted file ends, and where the cipher's blocks end that are full. `None`
    /// if the file is not encrypted.
    fn open_sector(&self) -> Option<(u64, u64)> {
        let mut mark = [0; ENCRYPTION_MARK.len()];
        if !self.visible.read(&mut mark, 0) || &mark != ENCRYPTION_MARK {
            return None;
        }
        let content = self.visible.len().saturating_sub(ENCRYPTION_HEADER + SECTOR);
        let below = |unit: u64| ENCRYPTION_HEADER + content / unit * unit;
        Some((below(SECTOR), below(CIPHER_BLOCK)))
    }

    /// True if these bytes stand there.
    fn has(&self, bytes: &[u8], offset: u64) -> bool {
        let mut there = vec![0; bytes.len()];
        self.visible.read(&mut there, offset) && there == bytes
    }

    /// The database is opened anew: what was written until now is of an earlier life.
    pub(crate) fn begin_life(&mut self) {
        self.lately = Ranges::default();
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let range = offset..offset + bytes.len() as u64;
        self.written.add(range.clone());
        self.lately.add(range);
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
        if range.end <= self.preallocated && self.written.first_in(&range).is_none() {
            return self.let_go(range);
        }
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

    /// Gives room back that was set aside and never used; there is nothing that a power cut could leave.
    fn let_go(&mut self, range: Range<u64>) -> u64 {
        let known = self.lacking.start.max(range.start)..self.lacking.end.min(range.end);
        let freed = (range.end - range.start) - known.end.saturating_sub(known.start);
        self.lacking = if self.lacking.is_empty() {
            range
        } else {
            self.lacking.start.min(range.start)..self.lacking.end.max(range.end)
        };
        self.given_back += freed;
        freed
    }

    /// Bytes of the range that lack room.
    pub(crate) fn lacks(&self, range: &Range<u64>) -> u64 {
        let end = self.lacking.end.min(range.end);
        end.saturating_sub(self.lacking.start.max(range.start))
    }

    /// Sets room aside again, from where it lacks on.
    pub(crate) fn take_room(&mut self, range: &Range<u64>) {
        let taken = self.lacks(range);
        assert!(
            taken == 0 || range.start <= self.lacking.start,
            "D38: room is taken in order"
        );
        self.lacking.start += taken;
        self.given_back -= taken;
    }

    pub(crate) fn sync(&mut self) {
        self.durable.set_len(self.visible.len());
        for write in self.unsynced.drain(..) {
            self.durable.write(&write.bytes, write.offset);
            let range = write.range();
            // What is durable now does not give way to what stood there before.
            self.doomed = self
                .doomed
                .iter()
                .flat_map(|doomed| doomed.without(&range))
                .collect();
            if !write.is_hole {
                self.synced.add(range);
            }
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

    #[test]
    fn bytes_that_are_written_again_and_synced_are_no_longer_in_doubt() {
        let mut file = SimFile::preallocated(1024);
        file.write(&[7; 600], 100);
        file.fail_sync();
        file.write(&[7; 200], 200);
        file.sync();
        let left: Vec<Range<u64>> = file.doomed.iter().map(Unsynced::range).collect();
        assert_eq!(left, [100..200, 400..700]);
        let mut back = [0; 200];
        assert!(file.durable.read(&mut back, 200));
        assert_eq!(back, [7; 200]);
    }

    #[test]
    fn only_a_later_life_may_write_again_and_only_the_same_bytes() {
        let mut file = SimFile::preallocated(1024);
        file.write(&[7; 100], 100);
        assert_eq!(file.broken_by(&[7; 50], 120), Some(120..170));
        file.begin_life();
        assert_eq!(file.broken_by(&[7; 50], 120), None);
        assert_eq!(file.broken_by(&[8; 50], 120), Some(120..170));
        assert_eq!(file.broken_by(&[7; 50], 170), Some(170..200));
        file.write(&[7; 50], 120);
        assert_eq!(file.broken_by(&[7; 50], 120), Some(120..170), "once is enough");
    }
}
