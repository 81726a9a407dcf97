//! Crash: what a power cut leaves of files and directory.
//!
//! Why it exists: the loss must be independent per file and per sector, or tests would only see the polite crashes in
//! which everything before some moment is there and everything after it is not.
//! State: none; a function of the disk's state and a seed.

use crate::ranges::Ranges;
use crate::rng::Rng;
use crate::sim_file::{SECTOR, SimFile, Unsynced};
use crate::sparse::Sparse;
use std::collections::BTreeMap;

/// A change of the directory that is not durable.
#[derive(Clone, Debug)]
pub(crate) enum DirectoryChange {
    /// A name for a file.
    Create(String, u64),
    /// A name less.
    Remove(String),
    /// A file under another name.
    Rename(String, String),
}

impl DirectoryChange {
    fn names(&self) -> Vec<&String> {
        match self {
            Self::Create(name, _) | Self::Remove(name) => vec![name],
            Self::Rename(from, to) => vec![from, to],
        }
    }

    /// Makes the change.
    pub(crate) fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

/// How much of what was not durable a crash keeps.
#[derive(Clone, Copy, Debug)]
enum Mood {
    /// Nothing: the cache was never written.
    Nothing,
    /// Everything: the cut came a moment too late to hurt.
    Everything,
    /// Each piece by itself, kept with this chance in percent.
    Some(u64),
}

impl Mood {
    /// Drawn anew for each file and for the directory, so that one file may be whole while another one is empty.
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0 | 1 => Self::Nothing,
            2 => Self::Everything,
            _ => Self::Some(rng.below(99) + 1),
        }
    }

    fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Some(percent) => rng.chance(percent),
        }
    }
}

/// The names after the cut. Changes of one name are kept up to some moment; different names are independent.
pub(crate) fn directory_after(
    durable: &BTreeMap<String, u64>,
    changes: &[DirectoryChange],
    rng: &mut Rng,
) -> BTreeMap<String, u64> {
    let mood = Mood::draw(rng);
    let mut names = durable.clone();
    let mut stopped: Vec<&String> = Vec::new();
    for change in changes {
        let is_stopped = change.names().iter().any(|name| stopped.contains(name));
        if is_stopped || !mood.keeps(rng) {
            stopped.extend(change.names());
        } else {
            change.apply(&mut names);
        }
    }
    names
}

/// The file after the cut.
///
/// Each sector that was written since the last sync holds what it held after some number of those writes, from none to
/// all, whatever its neighbours hold. The length is the durable one, the last one, or any sector border between.
pub(crate) fn file_after(file: &SimFile, rng: &mut Rng) -> SimFile {
    let mood = Mood::draw(rng);
    let mut bytes = file.durable.clone();
    let mut kept_sectors: Vec<u64> = Vec::new();
    let writes: Vec<&Unsynced> = file.doomed.iter().chain(&file.unsynced).collect();
    for (sector, touching) in by_sector(&writes) {
        let mut is_kept = false;
        for write in touching {
            if !mood.keeps(rng) {
                break;
            }
            keep_part(&mut bytes, write, sector);
            is_kept = true;
        }
        if is_kept {
            kept_sectors.push(sector);
        }
    }
    let len = length_after(file, mood, rng);
    bytes.set_len(len);
    let mut after = SimFile {
        visible: bytes.clone(),
        durable: bytes,
        preallocated: file.preallocated.min(len),
        lacking: file.lacking.clone(),
        given_back: file.lacks(&(0..u64::MAX)),
        unreadable: file.unreadable.clone(),
        ..SimFile::default()
    };
    note_what_remains(file, &writes, &kept_sectors, &mut after);
    after
}

/// The unsynced writes that touch each sector, in order.
fn by_sector<'a>(writes: &[&'a Unsynced]) -> BTreeMap<u64, Vec<&'a Unsynced>> {
    let mut sectors: BTreeMap<u64, Vec<&Unsynced>> = BTreeMap::new();
    for write in writes {
        for sector in write.offset / SECTOR..write.range().end.div_ceil(SECTOR) {
            sectors.entry(sector).or_default().push(write);
        }
    }
    sectors
}

/// Brings the part of `write` that lies in `sector` to the medium.
fn keep_part(bytes: &mut Sparse, write: &Unsynced, sector: u64) {
    let begin = write.offset.max(sector * SECTOR);
    let end = (write.offset + write.bytes.len() as u64).min((sector + 1) * SECTOR);
    bytes.write(
        &write.bytes[(begin - write.offset) as usize..(end - write.offset) as usize],
        begin,
    );
}

fn length_after(file: &SimFile, mood: Mood, rng: &mut Rng) -> u64 {
    let (durable, last) = (file.durable.len(), file.visible.len());
    match mood {
        Mood::Nothing => durable,
        Mood::Everything => last,
        Mood::Some(_) if last <= durable => last,
        Mood::Some(_) => match rng.below(3) {
            0 => durable,
            1 => last,
            _ => (durable + rng.below(last - durable + 1))
                .next_multiple_of(SECTOR)
                .min(last),
        },
    }
}

/// Carries over which ranges were written, less those of which no sector reached the medium: now, or by an earlier sync.
fn note_what_remains(file: &SimFile, writes: &[&Unsynced], kept: &[u64], after: &mut SimFile) {
    let mut uncertain = Ranges::default();
    for write in writes.iter().filter(|write| !write.is_hole) {
        uncertain.add(write.range());
    }
    let len = after.visible.len();
    for range in file.written.iter() {
        let mut at = range.start;
        while at < range.end.min(len) {
            let stop = ((at / SECTOR + 1) * SECTOR).min(range.end).min(len);
            let part = at..stop;
            let is_lost = uncertain.cover(&part) && file.synced.first_in(&part).is_none();
            if !is_lost || kept.binary_search(&(at / SECTOR)).is_ok() {
                after.written.add(part);
            }
            at = stop;
        }
    }
    after.synced = after.written.clone();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sectors_of(file: &SimFile) -> Vec<u8> {
        let mut bytes = vec![0; file.visible.len() as usize];
        assert!(file.visible.read(&mut bytes, 0));
        bytes.chunks(SECTOR as usize).map(|sector| sector[0]).collect()
    }

    #[test]
    fn sectors_are_lost_one_by_one_and_never_mixed() {
        let mut file = SimFile::preallocated(4 * SECTOR);
        file.write(&[1; 4 * SECTOR as usize], 0);
        file.sync();
        file.write(&[2; 4 * SECTOR as usize], 0);
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let after = file_after(&file, &mut Rng::new(seed));
            let mut bytes = vec![0; 4 * SECTOR as usize];
            assert!(after.visible.read(&mut bytes, 0));
            for sector in bytes.chunks(SECTOR as usize) {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "a sector is old or new"
                );
            }
            seen.insert(sectors_of(&after));
        }
        assert_eq!(seen.len(), 16, "every subset of four sectors is met: {seen:?}");
    }

    #[test]
    fn a_sector_holds_the_writes_up_to_some_moment() {
        let mut file = SimFile::preallocated(SECTOR);
        file.sync();
        file.write(&[1; 8], 0);
        file.write(&[2; 8], 8);
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let mut bytes = [0; 16];
            assert!(file_after(&file, &mut Rng::new(seed)).visible.read(&mut bytes, 0));
            seen.insert((bytes[0], bytes[8]));
        }
        assert_eq!(seen, BTreeSet::from([(0, 0), (1, 0), (1, 2)]));
    }

    #[test]
    fn names_are_lost_independently_but_each_in_order() {
        let changes = [
            DirectoryChange::Create("a".into(), 1),
            DirectoryChange::Create("b".into(), 2),
            DirectoryChange::Rename("a".into(), "c".into()),
            DirectoryChange::Remove("b".into()),
        ];
        let mut seen = BTreeSet::new();
        for seed in 0..2000 {
            let names = directory_after(&BTreeMap::new(), &changes, &mut Rng::new(seed));
            seen.insert(names.into_keys().collect::<String>());
        }
        assert_eq!(
            seen,
            ["", "a", "ab", "b", "bc", "c"]
                .into_iter()
                .map(String::from)
                .collect()
        );
    }
}
