//! Tests of encrypted files against plain bytes in memory, on real directories: rules EN2 to EN13 of docs/encryption.md.

use super::*;
use crate::block_file::DirectIo;
use crate::disk::ReadRequest;
use crate::os_disk::OsDisk;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const SECRET: &[u8] = b"Kq7zWv4NeverOnDisk";

/// Keys in memory, which a test adds and takes away.
#[derive(Debug, Default)]
struct TestKeys(Mutex<BTreeMap<(u32, u32), Vec<u8>>>);

impl TestKeys {
    fn with(keys: &[(u32, u32, u8)]) -> Arc<Self> {
        let made = Self::default();
        for (id, version, byte) in keys {
            made.set(*id, *version, *byte);
        }
        Arc::new(made)
    }

    fn set(&self, id: u32, version: u32, byte: u8) {
        self.0.lock().insert((id, version), vec![byte; 32]);
    }

    fn clear(&self) {
        self.0.lock().clear();
    }
}

impl KeySource for TestKeys {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        let keys = self.0.lock();
        keys.keys()
            .filter(|(id, _)| *id == key_id)
            .map(|(_, version)| *version)
            .max()
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        self.0.lock().get(&(key_id, version)).cloned().map(SecretKey::new)
    }

    fn remedy(&self) -> String {
        "ask the test for it".into()
    }
}

fn plain(directory: &Path) -> Arc<dyn Disk> {
    Arc::new(OsDisk::open(directory, false).expect("the directory"))
}

fn encrypted(directory: &Path, keys: &Arc<TestKeys>) -> EncryptedDisk {
    let keys: Arc<TestKeys> = Arc::clone(keys);
    EncryptedDisk::new(plain(directory), keys, Some(1)).expect("a key")
}

/// A directory on disk and one in memory, where there is no direct I/O.
fn places() -> [tempfile::TempDir; 2] {
    [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")].map(|place| place.expect("a temporary directory"))
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count).map(|_| self.below(256) as u8).collect();
        for place in (0..bytes.len().saturating_sub(SECRET.len())).step_by(700) {
            bytes[place..place + SECRET.len()].copy_from_slice(SECRET);
        }
        bytes
    }
}

fn raw(directory: &Path, name: &str) -> Vec<u8> {
    std::fs::read(directory.join(name)).expect("the file")
}

fn assert_secret_is_not_in(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("a listing") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let content = raw(directory, &name);
        let is_there = content
            .windows(SECRET.len())
            .any(|window| window[0] == SECRET[0] && window == SECRET);
        assert!(!is_there, "'{name}' has the value in plain");
    }
}

/// Compares some ranges, single and in one batch, with what has to be there.
fn compare(file: &dyn DiskFile, model: &[u8], numbers: &mut Numbers, way: &str) {
    let len = model.len() as u64;
    assert_eq!(file.len().expect("a length"), len, "{way}");
    let mut ranges = Vec::new();
    ranges.push(0..len);
    for _ in 0..12 {
        let begin = numbers.below(len + 1);
        let mut end = begin + numbers.below(len - begin + 1);
        if numbers.below(2) == 0 {
            end = end.min(begin + 600);
        }
        ranges.push(begin..end);
        // Whole sectors have a way of their own.
        let sectors = begin / 512 * 512..(end / 512 * 512).max(begin / 512 * 512);
        ranges.push(sectors);
    }
    for range in &ranges {
        let mut back = vec![1; (range.end - range.start) as usize];
        file.read_at(&mut back, range.start).expect("within the file");
        assert!(
            back == model[range.start as usize..range.end as usize],
            "{way}: {range:?}"
        );
    }
    let mut buffers: Vec<Vec<u8>> = ranges
        .iter()
        .map(|range| vec![1; (range.end - range.start) as usize])
        .collect();
    let mut requests: Vec<ReadRequest<'_>> = buffers
        .iter_mut()
        .zip(&ranges)
        .map(|(buf, range)| ReadRequest {
            offset: range.start,
            buf,
        })
        .collect();
    file.read_many(&mut requests).expect("a batch");
    for (range, back) in ranges.iter().zip(&buffers) {
        assert!(
            *back == model[range.start as usize..range.end as usize],
            "{way}: {range:?} of a batch"
        );
    }
    let beyond = numbers.below(600);
    let refused = file
        .read_at(
            &mut vec![0; beyond as usize + 1],
            len - beyond.min(len) + u64::from(beyond > len),
        )
        .expect_err("beyond the end");
    assert!(refused.to_string().contains("the end of the file"), "{refused}");
}

#[test]
fn files_read_as_they_were_written_whatever_the_places_and_lengths() {
    for (round, place) in places().iter().cycle().take(12).enumerate() {
        let mut numbers = Numbers(round as u64 + 0x5eed);
        let keys = TestKeys::with(&[(1, 1, 9)]);
        let disk = encrypted(place.path(), &keys);
        let (name, prepared) = (format!("f{round}"), [0, 0, 40_960][round % 3]);
        let mut file = disk.create(&name, prepared).expect("a new file");
        let mut model = vec![0; prepared as usize];
        for step in 0..60 {
            let len = model.len() as u64;
            // Mostly at the end, sometimes over what is there, sometimes beyond the end.
            let offset = match numbers.below(6) {
                0 => numbers.below(len + 1),
                1 => len + numbers.below(1500),
                _ => len,
            };
            let longest = [16, 700, 9000][numbers.below(3) as usize];
            let count = if numbers.below(50) == 0 {
                (1 << 20) + 77
            } else {
                numbers.below(longest) + 1
            };
            let bytes = numbers.bytes(count);
            let end = (offset + bytes.len() as u64) as usize;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
            file.write_at(&bytes, offset).expect("a write");
            if step % 10 == 9 {
                compare(&*file, &model, &mut numbers, "the handle that wrote");
                file = match numbers.below(3) {
                    0 => disk.open_log(&name),
                    1 => encrypted(place.path(), &keys).open(&name, true),
                    _ => disk.open(&name, true),
                }
                .expect("the file");
            }
        }
        file.sync_data().expect("a sync");
        compare(
            &*disk.open_past_cache(&name).expect("the file"),
            &model,
            &mut numbers,
            "past the cache",
        );
        let fresh = encrypted(place.path(), &keys);
        compare(
            &*fresh.open_blocks(&name).expect("the file"),
            &model,
            &mut numbers,
            "block by block",
        );
        compare(
            &*fresh.open(&name, false).expect("the file"),
            &model,
            &mut numbers,
            "opened anew",
        );
        assert_eq!(fresh.size(&name).expect("a size"), model.len() as u64);
        assert!(fresh.room(&name).expect("a room") <= model.len() as u64 + 4096);
        assert_eq!(
            raw(place.path(), &name).len() as u64,
            model.len() as u64 + EXTRA_BYTES,
            "EN9"
        );
        assert_secret_is_not_in(place.path());
    }
}

#[test]
fn a_log_is_written_in_sectors_past_the_page_cache_and_the_rest_of_it_is_zeros() {
    for place in places() {
        for wanted in [DirectIo::Auto, DirectIo::Off] {
            let inner = OsDisk::open(place.path(), false)
                .expect("the directory")
                .with_direct_io(wanted);
            let disk =
                EncryptedDisk::new(Arc::new(inner), TestKeys::with(&[(1, 1, 9)]), Some(1)).expect("a key");
            let name = format!("log {wanted:?}");
            disk.create(&name, 1 << 20).expect("a new file");
            let (log, mut numbers) = (disk.open_log(&name).expect("the log"), Numbers(7));
            let mut model = vec![0; 1 << 20];
            let mut at = 0;
            while at < 300_000 {
                let sectors = 1 + numbers.below(20);
                let bytes = numbers.bytes(512 * sectors);
                model[at..at + bytes.len()].copy_from_slice(&bytes);
                log.write_sectors_at(&bytes, at as u64)
                    .expect("a write of sectors");
                at += bytes.len();
            }
            log.sync_data().expect("a sync");
            compare(&*log, &model, &mut numbers, &name);
            let zeros = &raw(place.path(), &name)[4096 + at..];
            assert!(
                zeros.iter().all(|byte| *byte == 0),
                "EN7: nothing was written there"
            );
        }
        assert_secret_is_not_in(place.path());
    }
}

/// A disk whose writes can be seen half done, and in halves of a block of the cipher.
#[derive(Debug)]
struct SlowDisk(Arc<dyn Disk>);

#[derive(Debug)]
struct SlowFile(Arc<dyn DiskFile>);

impl Disk for SlowDisk {
    fn location(&self) -> String {
        self.0.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SlowFile(self.0.create(name, preallocate)?)))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SlowFile(self.0.open(name, writable)?)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.0.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.0.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.0.free_bytes()
    }
}

impl DiskFile for SlowFile {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        for (part, at) in buf.chunks(8).zip((offset..).step_by(8)) {
            self.0.write_at(part, at)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.0.sync_data()
    }
}

#[test]
fn writers_of_neighbouring_places_and_readers_do_not_disturb_each_other() {
    const VALUES: u64 = 900;
    const BYTES: u64 = 88; // no multiple of a sector or a block of the cipher
    let place = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let slow = Arc::new(SlowDisk(plain(place.path())));
    let disk = EncryptedDisk::new(slow, TestKeys::with(&[(1, 1, 9)]), Some(1)).expect("a key");
    disk.create("values", 0).expect("a new file");
    let value = |number: u64| vec![(number % 251) as u8 + 1; BYTES as usize];
    let written: Vec<_> = (0..VALUES).map(|_| AtomicBool::new(false)).collect();
    let is_over = AtomicBool::new(false);
    let read = |numbers: &mut Numbers, file: &dyn DiskFile| {
        // Mostly the newest one, whose last block is the first of the next one.
        let newest = written
            .iter()
            .rposition(|is_there| is_there.load(Ordering::Acquire));
        let Some(newest) = newest else { return };
        let number = (newest as u64).saturating_sub(numbers.below(4));
        if written[number as usize].load(Ordering::Acquire) {
            let mut back = vec![0; BYTES as usize];
            file.read_at(&mut back, number * BYTES).expect("a read");
            assert!(back == value(number), "EN8: value {number}");
        }
    };
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for writer in 0..3 {
            let (disk, written, value) = (&disk, &written, &value);
            writers.push(scope.spawn(move || {
                let file = disk.open("values", true).expect("the file");
                for number in (writer..VALUES).step_by(3) {
                    file.write_at(&value(number), number * BYTES).expect("a write");
                    written[number as usize].store(true, Ordering::Release);
                }
            }));
        }
        for reader in 0..2 {
            let (disk, read, is_over) = (&disk, &read, &is_over);
            scope.spawn(move || {
                let (file, mut numbers) = (disk.open("values", false).expect("the file"), Numbers(reader));
                while !is_over.load(Ordering::Acquire) {
                    read(&mut numbers, &*file);
                }
            });
        }
        let mut are_good = true;
        for writer in writers {
            are_good &= writer.join().is_ok();
        }
        is_over.store(true, Ordering::Release);
        assert!(are_good, "no writer panicked");
    });
    let mut all = vec![0; (VALUES * BYTES) as usize];
    let file = disk.open("values", false).expect("the file");
    file.read_at(&mut all, 0).expect("a read");
    for (number, back) in (0..).zip(all.chunks_exact(BYTES as usize)) {
        assert!(back == value(number), "EN8: value {number}");
    }
}

#[test]
fn what_was_given_back_reads_as_zeros() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let disk = encrypted(place.path(), &TestKeys::with(&[(1, 1, 9)]));
    let file = disk.create("f", 0).expect("a new file");
    file.write_at(&vec![7; 40_000], 0).expect("a write");
    file.sync_data().expect("a sync");
    if !file.give_back(8192..24_576).expect("an answer") {
        return; // A medium without holes keeps the bytes.
    }
    let mut back = vec![1; 40_000];
    file.read_at(&mut back, 0).expect("a read");
    assert!(back[8192..24_576].iter().all(|byte| *byte == 0), "M8");
    assert!(back[..8192].iter().chain(&back[24_576..]).all(|byte| *byte == 7));
}

#[test]
fn plain_and_encrypted_files_stand_side_by_side() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let old = plain(place.path());
    old.create("old", 0)
        .expect("a new file")
        .write_at(&[5; 1000], 0)
        .expect("a write");
    let keys = TestKeys::with(&[(1, 1, 9)]);
    let disk = encrypted(place.path(), &keys);
    disk.create("new", 0)
        .expect("a new file")
        .write_at(&[6; 1000], 0)
        .expect("a write");
    let mut back = [0; 1000];
    disk.open("old", true)
        .expect("the file")
        .write_at(&[5; 1000], 1000)
        .expect("a write");
    assert_eq!(raw(place.path(), "old"), [5; 2000], "EN2");
    assert_eq!(disk.check_keys(|_| true).expect("good keys"), 1);
    // Switched off again: what is encrypted is read, and new files are plain.
    let off: Arc<TestKeys> = Arc::clone(&keys);
    let off = EncryptedDisk::new(plain(place.path()), off, None).expect("no key is needed");
    off.open("new", false)
        .expect("the file")
        .read_at(&mut back, 0)
        .expect("a read");
    assert_eq!(back, [6; 1000]);
    off.create("newest", 0)
        .expect("a new file")
        .write_at(&[7; 10], 0)
        .expect("a write");
    assert_eq!(raw(place.path(), "newest"), [7; 10], "EN3");
    assert_eq!(off.size("new").expect("a size"), 1000);
    off.rename("new", "renamed").expect("a rename");
    assert_eq!(
        off.open("renamed", false)
            .expect("the file")
            .len()
            .expect("a length"),
        1000
    );
    off.remove("renamed").expect("a removal");
    off.create("renamed", 0)
        .expect("a new file")
        .write_at(&[8; 10], 0)
        .expect("a write");
    assert_eq!(
        raw(place.path(), "renamed"),
        [8; 10],
        "the old file's key is not the new one's"
    );
}

#[test]
fn damage_of_a_header_that_is_remembered_is_seen_past_the_cache() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let disk = encrypted(place.path(), &TestKeys::with(&[(1, 1, 9)]));
    let file = disk.create("f", 0).expect("a new file");
    file.write_at(SECRET, 0).expect("a write");
    disk.open_past_cache("f").expect("a sound file");
    let path = place.path().join("f");
    let sound = std::fs::read(&path).expect("the file");
    // Of the mark, and of what is behind it.
    for at in [0, 20] {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).expect("a write");
        let refused = disk.open_past_cache("f").expect_err("SC1: a damaged header");
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
        assert!(refused.to_string().contains("/f'"), "{refused}");
        disk.open("f", false)
            .expect("what is remembered is enough to read it");
    }
}

#[test]
fn new_files_are_encrypted_from_the_moment_it_is_asked_for() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let keys = TestKeys::with(&[]);
    let source: Arc<TestKeys> = Arc::clone(&keys);
    let disk = EncryptedDisk::new(plain(place.path()), source, None).expect("no key is needed");
    let disk = disk.with_key(1).standing_by();
    let old = disk.create("old", 0).expect("a new file");
    old.write_at(SECRET, 0).expect("a write");
    // Without its key nothing begins.
    assert!(!disk.encrypts_new_files());
    let refused = disk.encrypt_new_files().expect_err("no key").to_string();
    let words =
        "are to be encrypted with key 1: there is no such key, or it has less than 16 bytes: ask the test";
    assert!(refused.contains(words), "{refused}");
    disk.create("between", 0)
        .expect("a new file")
        .write_at(SECRET, 0)
        .expect("a write");
    assert!(
        !disk.encrypts_new_files() && raw(place.path(), "between") == SECRET,
        "EN18"
    );
    keys.set(1, 1, 9);
    for _ in 0..2 {
        disk.encrypt_new_files().expect("a key");
        assert!(disk.encrypts_new_files());
    }
    disk.create("new", 0)
        .expect("a new file")
        .write_at(SECRET, 0)
        .expect("a write");
    assert!(raw(place.path(), "new").starts_with(b"PBXTENC1"), "EN18");
    old.write_at(SECRET, SECRET.len() as u64).expect("a write");
    assert_eq!(raw(place.path(), "old"), [SECRET, SECRET].concat(), "EN2");
    let mut back = vec![0; SECRET.len()];
    for name in ["old", "between", "new"] {
        let file = disk.open(name, false).expect("the file");
        file.read_at(&mut back, 0).expect("a read");
        assert_eq!(back, SECRET, "{name}");
        assert_eq!(
            disk.size(name).expect("a size"),
            file.len().expect("a length"),
            "{name}"
        );
    }
    assert_eq!(disk.check_keys(|_| true).expect("good keys"), 1);
}

#[test]
fn a_disk_that_stands_by_looks_at_no_file() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut foreign = vec![0; 600];
    foreign[..8].copy_from_slice(b"PBXTENC1");
    std::fs::write(place.path().join("f"), &foreign).expect("written");
    let keys = TestKeys::with(&[(1, 1, 9)]);
    let disk = EncryptedDisk::new(plain(place.path()), keys, None).expect("no key is needed");
    let disk = disk.with_key(1).standing_by();
    let mut back = vec![1; 600];
    let file = disk.open("f", false).expect("EN12");
    file.read_at(&mut back, 0).expect("a read");
    assert_eq!(back, foreign, "EN12");
    assert_eq!(disk.size("f").expect("EN12"), 600);
    disk.encrypt_new_files().expect("a key");
    let damaged = disk.open("f", false).expect_err("EN2: it is looked at now");
    assert!(
        damaged.to_string().contains("of the encryption header"),
        "{damaged}"
    );
}

#[test]
fn a_disk_without_keys_encrypts_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let bare = plain(place.path());
    let refused = bare.encrypt_new_files().expect_err("no keys").to_string();
    assert!(
        refused.contains("no keys were given: open the directory through"),
        "{refused}"
    );
    let keys = TestKeys::with(&[(1, 1, 9)]);
    let disk = EncryptedDisk::new(bare, keys, None).expect("no key is needed");
    let refused = disk.encrypt_new_files().expect_err("no number").to_string();
    assert!(refused.contains("no key was named for new files"), "{refused}");
    assert!(!disk.encrypts_new_files());
}

#[test]
fn a_missing_or_wrong_key_is_told_by_file_number_and_version() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let keys = TestKeys::with(&[(1, 1, 9), (1, 2, 10)]);
    let disk = encrypted(place.path(), &keys);
    disk.create("f", 0)
        .expect("a new file")
        .write_at(SECRET, 0)
        .expect("a write");
    let before = raw(place.path(), "f");
    let refusals = |keys: Arc<TestKeys>, why: &str| {
        let disk = EncryptedDisk::new(plain(place.path()), keys, None).expect("no key to write with");
        for refused in [
            disk.check_keys(|_| true).expect_err("no key"),
            disk.open("f", false).expect_err("no key"),
            disk.open_blocks("f").expect_err("no key"),
            disk.size("f").expect_err("no key"),
        ] {
            let text = refused.to_string();
            assert!(matches!(refused, Error::Encrypted { .. }), "EN11: {text}");
            let begin = format!(
                "'{}/f' is encrypted with version 2 of key 1: {why}",
                disk.location()
            );
            assert!(
                text.starts_with(&begin) && text.ends_with("ask the test for it"),
                "{text}"
            );
        }
        assert_eq!(
            disk.check_keys(|name| name != "f").expect("not looked at"),
            0,
            "EN12"
        );
    };
    refusals(TestKeys::with(&[(1, 1, 9)]), "there is no such key");
    refusals(
        TestKeys::with(&[(1, 1, 9), (1, 2, 11)]),
        "the key of that number and version is another one now",
    );
    let refused = EncryptedDisk::new(plain(place.path()), TestKeys::with(&[(2, 1, 9)]), Some(1));
    let refused = refused.expect_err("no key to write with").to_string();
    assert!(
        refused.contains("are to be encrypted with key 1: there is no such key"),
        "{refused}"
    );
    assert_eq!(raw(place.path(), "f"), before, "EN11: nothing was changed");
}

#[test]
fn no_two_files_are_encrypted_alike_not_even_of_one_name() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let disk = encrypted(place.path(), &TestKeys::with(&[(1, 1, 9)]));
    let mut seen = std::collections::HashSet::new();
    for name in ["a", "b", "a", "a"] {
        if disk.exists(name).expect("an answer") {
            disk.remove(name).expect("a removal");
        }
        let file = disk.create(name, 0).expect("a new file");
        file.write_at(&[7; 512], 0).expect("a write");
        let sector = raw(place.path(), name)[4096..4608].to_vec();
        assert!(seen.insert(sector), "EN5");
    }
}

#[test]
fn new_files_take_the_newest_version_and_old_ones_keep_theirs() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let keys = TestKeys::with(&[(1, 1, 9)]);
    let disk = encrypted(place.path(), &keys);
    let version_of = |name: &str| {
        let header = EncryptionHeader::decode(&raw(place.path(), name), name).expect("whole");
        header.expect("encrypted").key_version
    };
    let make = |name: &str| {
        let file = disk.create(name, 0).expect("a new file");
        file.write_at(name.as_bytes(), 0).expect("a write");
    };
    make("a");
    keys.set(1, 2, 10);
    make("b");
    keys.clear();
    make("c");
    assert_eq!(["a", "b", "c"].map(version_of), [1, 2, 2], "EN3");
    keys.set(1, 1, 9);
    keys.set(1, 2, 10);
    let fresh = encrypted(place.path(), &keys);
    for name in ["a", "b", "c"] {
        let mut back = [0];
        fresh
            .open(name, false)
            .expect("the file")
            .read_at(&mut back, 0)
            .expect("a read");
        assert_eq!(&back, name.as_bytes());
    }
}

#[test]
fn a_damaged_header_is_damage_of_that_file_and_no_question_of_keys() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let keys = TestKeys::with(&[(1, 1, 9)]);
    let disk = encrypted(place.path(), &keys);
    disk.create("f", 0)
        .expect("a new file")
        .write_at(SECRET, 0)
        .expect("a write");
    let mut bytes = raw(place.path(), "f");
    bytes[30] ^= 1;
    std::fs::write(place.path().join("f"), &bytes).expect("written");
    let fresh = encrypted(place.path(), &keys);
    assert_eq!(fresh.check_keys(|_| true).expect("no key is wrong"), 0);
    let refused = fresh.open("f", false).expect_err("damaged").to_string();
    assert!(
        refused.contains("/f' is damaged at offset 508: expected checksum"),
        "{refused}"
    );
}

#[test]
fn nothing_that_is_printed_has_a_key() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let keys: Arc<TestKeys> = TestKeys::with(&[(1, 1, 171)]);
    let source: Arc<dyn KeySource> = Arc::new(NoDebug(keys));
    let disk = EncryptedDisk::new(plain(place.path()), source, Some(1)).expect("a key");
    let file = disk.create("f", 0).expect("a new file");
    let shown = format!("{disk:?} {file:?}");
    assert!(
        !shown.contains("171, 171") && !shown.contains("ab, ab"),
        "EN13: {shown}"
    );
}

/// A source that, as it should, shows nothing.
struct NoDebug(Arc<TestKeys>);

impl std::fmt::Debug for NoDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoDebug")
    }
}

impl KeySource for NoDebug {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        self.0.latest_version(key_id)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        self.0.key(key_id, version)
    }

    fn remedy(&self) -> String {
        self.0.remedy()
    }
}
