//! Manifest: what a reader finds after appends, switches, torn appends, damage and power cuts.

use super::*;
use crate::manifest_file::{decode, encode_image};
use pbxt_base::codec::{get_u32, get_u64};
use pbxt_base::{Lsn, checksum};
use pbxt_io::DiskLock;
use pbxt_testkit::{Fault, SimDisk, Sweep};
use std::io;

fn sealed(id: u32) -> ManifestRecord {
    let (hash, end) = (u64::from(id) * 77, Lsn::new(u64::from(id) * 4096));
    ManifestRecord::Sealed(SealedSegment {
        class: SegmentClass::Hot,
        id: SegmentId::new(id),
        hash,
        end,
    })
}

fn on(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn create(disk: &SimDisk) -> Manifest {
    Manifest::create(on(disk), 42, Geometry::small(), 1000).expect("created")
}

fn open(disk: &SimDisk) -> Result<Manifest> {
    Manifest::open(on(disk), true)
}

fn sealed_ids(manifest: &Manifest) -> Vec<u32> {
    manifest.facts().sealed.keys().map(|(_, id)| id.raw()).collect()
}

/// A manifest with three appended records, and the place of the last one.
fn with_three_records() -> (SimDisk, u64) {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    for id in 1..=3 {
        manifest.append(sealed(id)).expect("appended");
    }
    let end = manifest.writer.lock().end;
    (disk, end - 30)
}

#[test]
fn facts_come_back_after_reopening() {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    manifest
        .append(ManifestRecord::Opened { incarnation: 1 })
        .expect("appended");
    manifest.append(sealed(1)).expect("appended");
    manifest
        .append(ManifestRecord::Closed { end: Lsn::new(512) })
        .expect("appended");
    let facts = open(&disk).expect("opened").facts();
    assert_eq!(
        (facts.uuid, facts.incarnation, facts.closed),
        (42, 1, Some(Lsn::new(512)))
    );
    assert_eq!(facts, manifest.facts());
}

#[test]
fn generations_alternate_and_lose_nothing() {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    let blob = ManifestRecord::Begun {
        class: SegmentClass::Blob,
        id: SegmentId::new(9),
    };
    manifest.append(blob).expect("appended");
    manifest
        .append(ManifestRecord::Dropped {
            class: SegmentClass::Blob,
            id: SegmentId::new(9),
        })
        .expect("appended");
    for id in 1..=5000 {
        manifest.append(sealed(id % 50 + 1)).expect("appended");
    }
    assert!(manifest.generation() >= 4, "{}", manifest.generation());
    let reopened = open(&disk).expect("opened");
    assert_eq!(reopened.facts(), manifest.facts());
    assert_eq!(sealed_ids(&reopened), (1..=50).collect::<Vec<_>>());
    assert_eq!(
        reopened.next_id(SegmentClass::Blob),
        SegmentId::new(10),
        "F2: also of a dropped segment"
    );
}

#[test]
fn a_torn_last_record_is_not_there_and_the_file_takes_no_further_one() {
    let (disk, last) = with_three_records();
    disk.flip_bit(NAMES[1], last + 20, 3).expect("a flip");
    let manifest = open(&disk).expect("opened");
    assert_eq!(sealed_ids(&manifest), [1, 2]);
    manifest.append(sealed(7)).expect("appended");
    assert_eq!(manifest.generation(), 2);
    assert_eq!(sealed_ids(&open(&disk).expect("opened")), [1, 2, 7]);
}

#[test]
fn damage_before_the_last_record_is_refused_with_file_and_offset() {
    let (disk, last) = with_three_records();
    disk.flip_bit(NAMES[1], last - 10, 0).expect("a flip");
    let message = open(&disk).expect_err("refused").to_string();
    assert!(message.contains("'pbxt.manifest.b' is damaged"), "{message}");
    assert!(message.contains(&format!("offset {}", last - 30)), "{message}");
    assert!(message.contains("restore it from a backup"), "{message}");
}

#[test]
fn a_flipped_bit_anywhere_in_header_or_image_is_refused() {
    let (disk, _) = with_three_records();
    let image = encode_image(
        &Facts {
            uuid: 42,
            geometry: Geometry::small(),
            ..Facts::default()
        },
        1,
    )
    .len() as u64;
    for offset in 0..image {
        let damaged = disk.kill();
        damaged
            .flip_bit(NAMES[1], offset, (offset % 8) as u32)
            .expect("a flip");
        let message = open(&damaged).expect_err("refused").to_string();
        assert!(message.contains("pbxt.manifest.b"), "offset {offset}: {message}");
    }
}

#[test]
fn no_flipped_bit_ever_changes_a_fact() {
    let (disk, _) = with_three_records();
    let content = disk.content(NAMES[1]).expect("the file");
    let whole = decode(&content, "m").expect("whole").facts;
    let end = decode(&content, "m").expect("whole").end;
    let mut without_last = whole.clone();
    without_last.sealed.pop_last();
    without_last.highest.insert(SegmentClass::Hot, SegmentId::new(2));
    let (mut refused, mut torn) = (0, 0);
    for bit in 0..(end + 40) * 8 {
        let mut damaged = content.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match decode(&damaged, "m") {
            Err(_) => refused += 1,
            Ok(decoded) if bit / 8 < end => {
                assert_eq!(
                    (decoded.facts, decoded.is_torn),
                    (without_last.clone(), true),
                    "bit {bit}"
                );
                torn += 1;
            }
            Ok(decoded) => assert_eq!(
                (decoded.facts, decoded.is_torn),
                (whole.clone(), true),
                "bit {bit}"
            ),
        }
    }
    assert_eq!(
        (torn, refused),
        (30 * 8, (end - 30) * 8),
        "F11: only the last record can be taken for torn"
    );
}

#[test]
fn a_file_cut_short_in_its_image_is_refused() {
    let (disk, _) = with_three_records();
    for length in [0, 10, 63, 64, 100] {
        let cut = disk.kill();
        cut.truncate(NAMES[1], length).expect("a cut");
        assert!(
            matches!(open(&cut), Err(Error::Corrupt { .. })),
            "length {length}"
        );
    }
}

#[test]
fn a_file_of_another_format_version_is_refused_by_name() {
    let (disk, _) = with_three_records();
    let message = || open(&disk).expect_err("refused").to_string();
    disk.flip_bit(NAMES[1], 8, 3).expect("a flip");
    assert!(
        message().contains("is damaged at offset 60"),
        "F12: {}",
        message()
    );
    let header = disk.content(NAMES[1]).expect("the file is there");
    let crc = checksum::crc32c(get_u64(&header, 0), &header[..60]);
    for bit in 0..32 {
        let stored = get_u32(&header, 60);
        if (crc ^ stored) >> bit & 1 == 1 {
            disk.flip_bit(NAMES[1], 60 + bit / 8, (bit % 8) as u32)
                .expect("a flip");
        }
    }
    assert!(
        message().contains("'pbxt.manifest.b' has format version 9"),
        "F12: {}",
        message()
    );
}

#[test]
fn a_record_of_a_later_version_is_refused() {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    let (end, file) = (
        manifest.writer.lock().end,
        disk.open(NAMES[1], true).expect("the file"),
    );
    let mut body = vec![99, 1, 2];
    let crc = checksum::crc32c((1 << 32) ^ end, &body);
    let mut bytes = [3_u32.to_le_bytes(), crc.to_le_bytes()].concat();
    bytes.append(&mut body);
    file.write_at(&bytes, end).expect("written");
    let message = open(&disk).expect_err("refused").to_string();
    assert!(
        message.contains("expected a manifest record this version knows, found one of kind 99"),
        "{message}"
    );
}

/// Appends until the manifest has switched files once; returns both generations' disk.
fn after_a_switch() -> SimDisk {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    while manifest.generation() == 1 {
        manifest.append(sealed(1)).expect("appended");
    }
    manifest.append(sealed(2)).expect("appended");
    disk
}

#[test]
fn a_damaged_newest_file_is_not_replaced_by_the_one_it_superseded() {
    let disk = after_a_switch();
    disk.flip_bit(NAMES[0], 70, 1).expect("a flip");
    let message = open(&disk).expect_err("refused").to_string();
    assert!(message.contains("'pbxt.manifest.a' is damaged"), "{message}");
    let disk = after_a_switch();
    disk.remove(NAMES[0]).expect("a removal");
    let message = open(&disk).expect_err("refused").to_string();
    assert!(
        message.contains("pbxt.manifest.a") && message.contains("generation 2"),
        "{message}"
    );
}

#[test]
fn damage_in_a_superseded_file_does_not_matter() {
    let disk = after_a_switch();
    disk.flip_bit(NAMES[1], 70, 1).expect("a flip");
    assert_eq!(sealed_ids(&open(&disk).expect("opened")), [1, 2]);
}

#[test]
fn files_of_two_databases_are_refused() {
    let (disk, foreign) = (after_a_switch(), SimDisk::new());
    Manifest::create(on(&foreign), 43, Geometry::small(), 0).expect("created");
    disk.replace(NAMES[1], &foreign.content(NAMES[1]).expect("the file"));
    let message = open(&disk).expect_err("refused").to_string();
    assert!(message.contains("belong to two databases"), "{message}");
}

#[test]
fn a_full_disk_postpones_the_switch_and_appending_goes_on() {
    let disk = SimDisk::new();
    let manifest = create(&disk);
    disk.set_free_bytes(Some(0));
    let room = FILE_BYTES_MIN / 30;
    let appended = (0..room)
        .take_while(|_| manifest.append(sealed(1)).is_ok())
        .count() as u64;
    assert!(
        appended > room * 9 / 10,
        "the second half of the file is used: {appended} of {room}"
    );
    assert!(matches!(manifest.append(sealed(2)), Err(Error::NoSpace { .. })));
    disk.set_free_bytes(None);
    manifest.append(sealed(3)).expect("space is back");
    assert_eq!(
        (manifest.generation(), sealed_ids(&open(&disk).expect("opened"))),
        (2, vec![1, 3])
    );
}

/// What a medium lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Nothing,
    /// Descriptors, for new files.
    Descriptors,
    /// Room, which it says when names are made durable.
    RoomForNames,
}

#[derive(Debug)]
struct Wanting {
    medium: SimDisk,
    want: Arc<Mutex<Want>>,
}

impl Disk for Wanting {
    fn location(&self) -> String {
        self.medium.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        if *self.want.lock() == Want::Descriptors {
            return Err(Error::Io {
                file: name.to_owned(),
                op: "create",
                // EMFILE.
                source: io::Error::from_raw_os_error(24),
            });
        }
        self.medium.create(name, preallocate)
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        self.medium.open(name, writable)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.medium.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.medium.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.medium.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.medium.list()
    }

    fn sync_dir(&self) -> Result<()> {
        if *self.want.lock() == Want::RoomForNames {
            return Err(Error::NoSpace {
                what: "the directory".into(),
            });
        }
        self.medium.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.medium.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.medium.free_bytes()
    }
}

/// A manifest on a medium that lacks something from now on.
fn in_want_of(medium: &SimDisk, lacking: Want) -> (Manifest, Arc<Mutex<Want>>) {
    let want = Arc::new(Mutex::new(Want::Nothing));
    let disk = Wanting {
        medium: medium.clone(),
        want: Arc::clone(&want),
    };
    let manifest = Manifest::create(Arc::new(disk), 42, Geometry::small(), 1000).expect("created");
    *want.lock() = lacking;
    (manifest, want)
}

#[test]
fn want_of_descriptors_postpones_the_switch_and_appending_goes_on() {
    let medium = SimDisk::new();
    let (manifest, want) = in_want_of(&medium, Want::Descriptors);
    let room = FILE_BYTES_MIN / 30;
    let appended = (0..room)
        .take_while(|_| manifest.append(sealed(1)).is_ok())
        .count() as u64;
    assert!(
        appended > room * 9 / 10,
        "the second half of the file is used: {appended} of {room}"
    );
    let error = manifest.append(sealed(2)).expect_err("no room and no descriptor");
    assert!(is_passing_want(&error), "{error}");
    *want.lock() = Want::Nothing;
    manifest.append(sealed(3)).expect("descriptors are back");
    assert_eq!(
        (manifest.generation(), sealed_ids(&open(&medium).expect("opened"))),
        (2, vec![1, 3])
    );
}

#[test]
fn want_of_room_when_the_next_generation_is_synced_is_final() {
    let medium = SimDisk::new();
    let (manifest, _) = in_want_of(&medium, Want::RoomForNames);
    let records = (FILE_BYTES_MIN / 30) as usize;
    let failed: Vec<Error> = std::iter::repeat_with(|| manifest.append(sealed(1)))
        .take(records)
        .filter_map(Result::err)
        .collect();
    assert!(failed.len() > records / 3, "nothing goes to the second half");
    let is_poison = |error: &Error| matches!(error, Error::Poisoned { .. });
    assert!(failed.iter().all(is_poison), "D9: a failed sync is never passing");
}

#[test]
fn a_failed_write_or_sync_is_final() {
    let name = || NAMES[1].to_owned();
    for fault in [
        Fault::FailWrite {
            prefix: name(),
            nth: 1,
        },
        Fault::FailSync {
            prefix: name(),
            nth: 1,
        },
    ] {
        let disk = SimDisk::new();
        let manifest = create(&disk);
        disk.plant(fault);
        manifest.append(sealed(1)).expect_err("the planted fault");
        let syncs = disk.syncs();
        let message = manifest.append(sealed(2)).expect_err("poisoned").to_string();
        assert!(
            message.contains("read-only since a disk failure") && message.contains("manifest.b"),
            "{message}"
        );
        assert_eq!(disk.syncs(), syncs, "D9: a failed sync is not tried again");
    }
}

/// A manifest whose next few records fit into the first half of the file.
fn nearly_half_full(disk: &SimDisk) {
    let manifest = create(disk);
    while manifest.writer.lock().end + 200 < FILE_BYTES_MIN / 2 {
        manifest.append(sealed(0)).expect("appended");
    }
}

/// Opens and appends across a switch; says how many appends were acknowledged.
fn append_some(disk: &SimDisk) -> u32 {
    let Ok(manifest) = open(disk) else { return 0 };
    (1..=12)
        .take_while(|id| manifest.append(sealed(*id)).is_ok())
        .count() as u32
}

#[test]
fn a_process_that_dies_at_any_moment_leaves_no_gap_for_a_later_power_cut() {
    let disk = SimDisk::new();
    nearly_half_full(&disk);
    for operation in 0.. {
        let lives = disk.kill();
        lives.cut_power_at(lives.operations() + operation);
        let acknowledged = append_some(&lives);
        let was_cut = lives.is_off();
        let lives = lives.kill();
        let manifest = open(&lives).expect("opened");
        let mut known = sealed_ids(&manifest);
        assert!(
            known.len() as u32 > acknowledged,
            "operation {operation}: {known:?}"
        );
        manifest.append(sealed(99)).expect("appended");
        known.push(99);
        for seed in 0..30 {
            let case = format!("dead before operation {operation}, seed {seed}");
            let after = open(&lives.crash(seed)).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(sealed_ids(&after), known, "{case}");
        }
        if !was_cut {
            assert!(operation > 20, "a switch has more operations than {operation}");
            break;
        }
    }
}

/// True if a crash image lost something acknowledged, or cannot be opened, or cannot go on.
fn is_bad(image: &SimDisk, acknowledged: u32) -> bool {
    let Ok(manifest) = open(image) else { return true };
    let ids = sealed_ids(&manifest);
    let kept = ids.len() as u32 - 1;
    let is_prefix = ids.iter().copied().eq(0..=kept) && (acknowledged..=acknowledged + 1).contains(&kept);
    let goes_on = || {
        manifest.append(sealed(99)).is_ok()
            && open(image).is_ok_and(|again| sealed_ids(&again).ends_with(&[99]))
    };
    !is_prefix || !goes_on()
}

#[test]
fn no_power_cut_loses_an_acknowledged_fact() {
    let check = |image: &SimDisk, acknowledged: &u32, case: &str| {
        assert!(
            !is_bad(image, *acknowledged),
            "{case}, {acknowledged} acknowledged"
        );
    };
    let images = Sweep { seeds: 20, step: 1 }.run_prepared(nearly_half_full, append_some, check);
    assert!(images > 500, "{images}");
}

#[test]
fn a_forgotten_sync_of_file_or_directory_would_be_noticed() {
    for fault in [
        Fault::SkipSync {
            prefix: "pbxt.manifest".into(),
        },
        Fault::SkipDirectorySync,
    ] {
        let bad = std::cell::Cell::new(0);
        let prepare = |disk: &SimDisk| {
            nearly_half_full(disk);
            disk.plant(fault.clone());
        };
        Sweep { seeds: 20, step: 1 }.run_prepared(prepare, append_some, |image, acknowledged, _| {
            bad.set(bad.get() + u32::from(is_bad(image, *acknowledged)));
        });
        assert!(bad.get() > 0, "{fault:?}");
    }
}
