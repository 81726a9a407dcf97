//! Blobs: values of every size come back, damage is found, segments roll over.

use super::*;
use crate::geometry::Geometry;
use crate::store::OpenMode;
use pbxt_io::Disk;
use pbxt_testkit::{Fault, SimDisk};

fn open(disk: &SimDisk) -> BlobStore {
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 5,
        now: 0,
    };
    let store = SegmentStore::open(Arc::new(disk.clone()), mode).expect("a store");
    BlobStore::open(Arc::new(store)).expect("blobs")
}

const FIRST: &str = "blob-00000001.seg";

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 3) as u8).collect()
}

#[test]
fn values_of_every_size_come_back_also_after_reopening() {
    let disk = SimDisk::new();
    let sizes = [
        1,
        8,
        4096,
        FRAME_BYTES_MAX - 1,
        FRAME_BYTES_MAX,
        FRAME_BYTES_MAX + 1,
        3 * FRAME_BYTES_MAX + 17,
    ];
    let blobs = open(&disk);
    let refs: Vec<BlobRef> = sizes
        .iter()
        .map(|&len| blobs.append(&value(len)).expect("written"))
        .collect();
    blobs.sync().expect("synced");
    assert!(blobs.durable_end() > refs.last().expect("one").addr.raw());
    drop(blobs);
    let blobs = open(&disk);
    let mut back = Vec::new();
    for (blob, len) in refs.iter().zip(sizes) {
        blobs.read(blob, &mut back).expect("readable");
        assert_eq!(back, value(len), "{len}");
    }
    let next = blobs.append(&value(10)).expect("written");
    assert!(
        next.addr.segment() > refs.last().expect("one").addr.segment(),
        "P1: a new life, a new segment"
    );
}

#[test]
fn bytes_of_a_value_as_the_format_says() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    let blob = blobs.append(b"abc").expect("written");
    assert_eq!((blob.addr.offset(), blob.len), (4096, 3));
    let bytes = disk.content(FIRST).expect("the file");
    let crc = checksum::crc32c((1 << 32) ^ 4096, b"abc").to_le_bytes();
    assert_eq!(
        &bytes[4096..],
        [&[3, 0, 0, 0][..], &crc, b"abc", &[0; 5]].concat()
    );
}

#[test]
fn every_kind_of_damage_names_file_and_place() {
    let refusal = |change: &dyn Fn(&SimDisk, &mut BlobRef)| {
        let disk = SimDisk::new();
        let blobs = open(&disk);
        let mut blob = blobs.append(&value(300_000)).expect("written");
        change(&disk, &mut blob);
        let message = blobs
            .read(&blob, &mut Vec::new())
            .expect_err("damaged")
            .to_string();
        assert!(message.contains("blob-00000001.seg"), "{message}");
        message
    };
    let second_frame = 4096 + 8 + FRAME_BYTES_MAX as u64;
    for offset in [
        4096,
        4101,
        4104,
        5000,
        second_frame,
        second_frame + 5,
        second_frame + 8,
    ] {
        let message = refusal(&|disk, _| disk.flip_bit(FIRST, offset, 2).expect("a flip"));
        assert!(
            message.contains("offset 4096: expected a frame of a value"),
            "{offset}: {message}"
        );
    }
    assert!(
        refusal(&|disk, _| disk.truncate(FIRST, 10_000).expect("cut")).contains("found the end of the file")
    );
    assert!(refusal(&|_, blob| blob.len -= 1).contains("expected a frame of a value"));
    assert!(refusal(&|_, blob| blob.hash ^= 1).contains("found another value"));
    let moved = |_: &SimDisk, blob: &mut BlobRef| {
        blob.addr = Addr::in_segment(AddrClass::Blob, SegmentId::new(1), 4104);
    };
    assert!(refusal(&moved).contains("blob-00000001.seg"));
}

#[test]
fn a_reference_that_cannot_be_one_is_refused() {
    let blobs = open(&SimDisk::new());
    let blob = blobs.append(&value(100)).expect("written");
    let hot = BlobRef {
        addr: Addr::hot(pbxt_base::Lsn::new(8)),
        ..blob
    };
    assert!(
        blobs
            .read(&hot, &mut Vec::new())
            .expect_err("refused")
            .to_string()
            .contains("the address of a value")
    );
    let endless = BlobRef {
        len: u64::MAX,
        ..blob
    };
    assert!(matches!(
        blobs.read(&endless, &mut Vec::new()),
        Err(Error::TooLarge { .. })
    ));
    let missing = BlobRef {
        addr: Addr::in_segment(AddrClass::Blob, SegmentId::new(9), 4096),
        ..blob
    };
    assert!(
        blobs
            .read(&missing, &mut Vec::new())
            .expect_err("refused")
            .to_string()
            .contains("blob-00000009.seg")
    );
}

#[test]
fn segments_roll_over_when_they_are_full_and_a_huge_value_gets_its_own() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    let sizes = [200_000, 100_000, 600_000, 10];
    let places: Vec<BlobRef> = sizes
        .iter()
        .map(|&len| blobs.append(&value(len)).expect("written"))
        .collect();
    let segments: Vec<u32> = places.iter().map(|place| place.addr.segment().raw()).collect();
    assert_eq!(segments, [1, 2, 3, 4]);
    blobs.sync().expect("synced");
    assert!(blobs.durable_end() > places[3].addr.raw());
    let mut out = Vec::new();
    for (place, len) in places.iter().zip(sizes) {
        blobs.read(place, &mut out).expect("readable");
        assert_eq!(out, value(len));
    }
}

#[test]
fn the_durable_end_stays_below_a_value_still_being_written() {
    let blobs = open(&SimDisk::new());
    blobs.append(&value(100)).expect("written");
    let (_, id, offset) = blobs.reserve(512, None).expect("reserved");
    blobs.append(&value(100)).expect("written");
    blobs.sync().expect("synced");
    assert_eq!(
        blobs.durable_end(),
        Addr::in_segment(AddrClass::Blob, id, offset).raw()
    );
}

#[test]
fn a_failed_write_or_a_full_disk_is_the_error_of_one_value_only() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    blobs.append(&value(100)).expect("written");
    disk.plant(Fault::FailWrite {
        prefix: "blob-".into(),
        nth: 1,
    });
    assert!(
        blobs
            .append(&value(100))
            .expect_err("the planted fault")
            .to_string()
            .contains(FIRST)
    );
    disk.set_free_bytes(Some(0));
    assert!(matches!(blobs.append(&value(100)), Err(Error::NoSpace { .. })));
    disk.set_free_bytes(None);
    let blob = blobs.append(&value(50)).expect("written");
    blobs.sync().expect("synced");
    assert!(blobs.durable_end() > blob.addr.raw());
    let mut out = Vec::new();
    blobs.read(&blob, &mut out).expect("readable");
    assert_eq!(out, value(50));
}

#[test]
fn attempts_on_a_full_disk_leave_nothing_behind() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    let before = disk.list().expect("a listing");
    for free in [0, 100, 4096] {
        disk.set_free_bytes(Some(free));
        for _ in 0..3 {
            assert!(
                matches!(blobs.append(&value(10_000)), Err(Error::NoSpace { .. })),
                "{free} bytes free"
            );
        }
    }
    let after = disk.list().expect("a listing");
    assert!(
        after.len() <= before.len() + 1,
        "at most the one segment that was begun: {after:?}"
    );
    disk.set_free_bytes(None);
    blobs.append(&value(10_000)).expect("space is back");
}

#[test]
fn a_failed_sync_is_final_and_moves_no_durable_end() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    blobs.append(&value(100)).expect("written");
    disk.plant(Fault::FailSync {
        prefix: "blob-".into(),
        nth: 1,
    });
    blobs.sync().expect_err("the planted fault");
    assert_eq!(blobs.durable_end(), 0);
    let syncs = disk.syncs();
    for refused in [
        blobs.sync().expect_err("final"),
        blobs.append(&value(1)).expect_err("final"),
    ] {
        assert!(
            refused.to_string().contains("read-only since a disk failure"),
            "{refused}"
        );
    }
    assert_eq!(disk.syncs(), syncs, "D9: a failed sync is not tried again");
}

#[test]
fn threads_write_values_side_by_side_while_another_one_syncs() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    let places = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (blobs, places) = (&blobs, &places);
            scope.spawn(move || {
                for round in 0..50 {
                    let len = 500 + thread * 1000 + round * 37;
                    let place = blobs.append(&value(len)).expect("written");
                    blobs.sync().expect("synced");
                    assert!(blobs.durable_end() > 0, "the first value is durable by now");
                    places.lock().push((place, len));
                }
            });
        }
    });
    let image = disk.crash(1);
    let after = open(&image);
    let mut out = Vec::new();
    for (place, len) in places.into_inner() {
        after
            .read(&place, &mut out)
            .expect("D2: every value was synced after its append");
        assert_eq!(out, value(len));
    }
}

#[test]
fn segments_that_somebody_holds_are_not_examined_nor_those_of_values_without_a_hold() {
    let disk = SimDisk::new();
    let blobs = Arc::new(open(&disk));
    let examined = |blobs: &BlobStore| -> Vec<u32> {
        let found = blobs.examine().expect("a listing");
        found.into_keys().map(SegmentId::raw).collect()
    };
    let (early, late) = (blobs.hold(), blobs.hold());
    let first = blobs.append_held(&value(9000), &early).expect("written");
    assert_eq!(examined(&blobs), [], "its transaction has not ended");
    drop(early);
    assert_eq!(examined(&blobs), [], "the other may have a value there");
    drop(late);
    assert_eq!(examined(&blobs), [1]);
    let hold = blobs.hold();
    let second = blobs.append_held(&value(9000), &hold).expect("written");
    assert!(
        second.addr.segment() > first.addr.segment(),
        "an examined segment takes no more values"
    );
    assert_eq!(examined(&blobs), [1], "what was written before the hold is free");
    drop(hold);
    assert_eq!(examined(&blobs), [1, 2]);
    blobs.append(&value(9000)).expect("written");
    assert_eq!(examined(&blobs), [1, 2], "nobody says when the third is named");
    blobs.sync().expect("synced");
    assert_eq!(
        examined(&open(&disk.crash(3))),
        [1, 2, 3],
        "after a restart it is, or never"
    );
}

#[test]
fn a_segment_is_dropped_whole_unless_it_still_takes_values() {
    let disk = SimDisk::new();
    let blobs = open(&disk);
    let refs: Vec<BlobRef> = (0..3)
        .map(|_| blobs.append(&value(200 << 10)).expect("written"))
        .collect();
    let ids: Vec<u32> = refs.iter().map(|blob| blob.addr.segment().raw()).collect();
    assert_eq!(ids, [1, 2, 3], "two do not go into a segment");
    blobs.sync().expect("synced");
    let segments = blobs.segments().expect("a listing");
    assert_eq!(segments.len(), 3);
    assert!(
        segments.iter().all(|(_, bytes)| *bytes > 200 << 10),
        "{segments:?}"
    );
    let end = segments[2].1;
    assert!(
        !blobs.drop_segment(SegmentId::new(3), end - 8).expect("an answer"),
        "it has others behind that"
    );
    assert!(
        blobs
            .drop_segment(SegmentId::new(1), segments[0].1)
            .expect("dropped")
    );
    let mut out = Vec::new();
    let message = blobs.read(&refs[0], &mut out).expect_err("dropped").to_string();
    assert!(
        message.contains("blob-00000001.seg' is damaged") && message.contains("it was dropped, or lost"),
        "{message}"
    );
    for blobs in [blobs, open(&disk.crash(5))] {
        assert_eq!(blobs.segments().expect("a listing").len(), 2);
        for blob in &refs[1..] {
            blobs.read(blob, &mut out).expect("readable");
            assert_eq!(out, value(200 << 10));
        }
        blobs.append(b"more").expect("written");
    }
}

#[test]
fn a_segment_that_grew_since_it_was_looked_at_is_not_dropped() {
    let blobs = open(&SimDisk::new());
    blobs.append(&value(1000)).expect("written");
    let (id, end) = blobs.segments().expect("a listing")[0];
    // This one was reserved at that moment, and is written when the next one has begun a segment.
    let late = blobs.append(&value(2000)).expect("written");
    let next = blobs.append(&value(250 << 10)).expect("written");
    assert!(next.addr.segment() > late.addr.segment());
    assert!(
        !blobs.drop_segment(id, end).expect("an answer"),
        "S16: a value behind that end"
    );
    let mut out = Vec::new();
    blobs.read(&late, &mut out).expect("readable");
    assert_eq!(out, value(2000));
    let (_, end) = blobs.segments().expect("a listing")[0];
    assert!(blobs.drop_segment(id, end).expect("dropped"));
}

#[test]
fn a_failed_write_keeps_a_segment_neither_from_being_examined_nor_from_being_dropped() {
    let disk = SimDisk::new();
    let blobs = Arc::new(open(&disk));
    let failed = |hold: &ValueHold| {
        disk.plant(Fault::FailWrite {
            prefix: "blob-".into(),
            nth: 1,
        });
        blobs.append_held(&value(9000), hold).expect_err("planted");
        blobs.segments().expect("a listing")[0]
    };
    let hold = blobs.hold();
    blobs.append_held(&value(9000), &hold).expect("written");
    let (id, end) = failed(&hold);
    drop(hold);
    let examined = blobs.examine().expect("a listing");
    assert_eq!(examined, BTreeMap::from([(id, end)]));
    assert!(blobs.drop_segment(id, end).expect("dropped"));
    let hold = blobs.hold();
    blobs.append_held(&value(9000), &hold).expect("written");
    let (id, end) = failed(&hold);
    assert!(
        blobs.drop_segment(id, end).expect("an answer"),
        "also while new values go there"
    );
    let next = blobs.append_held(&value(9000), &hold).expect("written");
    assert!(next.addr.segment() > id);
}

#[test]
fn a_value_that_finds_no_room_takes_none() {
    // D10: what is left of it would be the very room that all others lack.
    let disk = SimDisk::new();
    let blobs = Arc::new(open(&disk));
    let hold = blobs.hold();
    let before = value(9000);
    let kept = blobs.append_held(&before, &hold).expect("written");
    disk.set_free_bytes(Some(900 << 10));
    let free = || disk.free_bytes().expect("an answer");
    let borders = SEGMENT_HEADER_BYTES as u64 + 2 * GIVE_BACK_BYTES;
    for _ in 0..3 {
        let had = free();
        blobs
            .append_held(&value(1 << 20), &hold)
            .expect_err("three frames of four have room");
        assert!(free() + borders >= had, "{} of {had} are left", free());
    }
    let after = value(9001);
    let next = blobs.append_held(&after, &hold).expect("a small one has room");
    blobs.sync().expect("synced");
    for blobs in [&*blobs, &open(&disk.crash(5))] {
        let mut back = Vec::new();
        for (blob, expected) in [(&kept, &before), (&next, &after)] {
            blobs.read(blob, &mut back).expect("readable");
            assert!(back == *expected);
        }
    }
}
