//! Damage is told from a torn tail: it refuses to open and names file and offset.

mod common;

use common::{Fixture, by_hand, number_of, write_row};
use pbxt_base::{Error, Lsn};
use pbxt_io::Disk;
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::LogOptions;
use std::sync::Arc;

const SEGMENT: u64 = 128 << 10;

fn file_of(lsn: Lsn) -> String {
    format!("hot-{:08x}.seg", lsn.raw() / SEGMENT)
}

/// A database that was killed after `count` rows, each durable by itself, and where they are.
fn killed_after(count: u64, bytes: usize) -> (SimDisk, Vec<Lsn>) {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let mut places = Vec::new();
    for number in 0..count {
        let (lsn, end) = write_row(&fixture.log, number, bytes).expect("space");
        fixture.log.wait_durable(end).expect("durable");
        places.push(lsn);
    }
    (disk.kill(), places)
}

fn refusal(disk: &SimDisk) -> String {
    match Fixture::open_sim(disk) {
        Ok(fixture) => panic!("opened with {} records", fixture.seen.len()),
        Err(error @ Error::Corrupt { .. }) => error.to_string(),
        Err(error) => panic!("refused for another reason: {error}"),
    }
}

#[test]
fn a_flipped_bit_below_the_durable_mark_is_damage() {
    for victim in [0, 5, 18] {
        let (disk, places) = killed_after(20, 300);
        disk.flip_bit(&file_of(places[victim]), places[victim].raw() % SEGMENT + 120, 3)
            .expect("there");
        let message = refusal(&disk);
        assert!(message.contains("hot-00000001.seg"), "{message}");
        let batch = (places[victim].raw() - 64) % SEGMENT;
        assert!(
            message.contains(&format!("offset {batch}")),
            "{message} names the batch at {batch}"
        );
    }
}

#[test]
fn a_torn_tail_is_cut_without_a_word() {
    let (disk, places) = killed_after(20, 300);
    disk.flip_bit(&file_of(places[19]), places[19].raw() % SEGMENT + 120, 3)
        .expect("there");
    let fixture = Fixture::open_sim(&disk).expect("no later header names the last batch durable");
    assert_eq!(fixture.seen.len(), 19);
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_damage() {
    let (disk, places) = killed_after(200, 1500);
    let sealed = places
        .iter()
        .rfind(|lsn| lsn.raw() < 2 * SEGMENT)
        .expect("the first segment is full");
    disk.flip_bit(&file_of(*sealed), sealed.raw() % SEGMENT + 20, 0)
        .expect("there");
    assert!(refusal(&disk).contains("hot-00000001.seg"));
}

#[test]
fn a_flipped_bit_before_an_orderly_close_is_damage() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let (lsn, _) = write_row(&fixture.log, 1, 300).expect("space");
    fixture.log.close().expect("closes");
    drop(fixture);
    disk.flip_bit(&file_of(lsn), lsn.raw() % SEGMENT + 50, 1)
        .expect("there");
    for _ in 0..2 {
        assert!(
            refusal(&disk).contains("closed"),
            "D5: whoever tries again is told the same"
        );
    }
}

/// Rule D5. The opening between is refused before the log has its new segment.
#[test]
fn an_opening_that_finds_no_room_leaves_the_word_of_an_orderly_close() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let (lsn, _) = write_row(&fixture.log, 1, 300).expect("space");
    fixture.log.close().expect("closes");
    drop(fixture);
    disk.set_free_bytes(Some(0));
    let refused = Fixture::open_sim(&disk).map(|fixture| fixture.seen.len());
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    disk.set_free_bytes(None);
    disk.flip_bit(&file_of(lsn), lsn.raw() % SEGMENT + 50, 1)
        .expect("there");
    assert!(refusal(&disk).contains("closed"));
}

#[test]
fn a_flipped_bit_before_a_recorded_cut_is_damage() {
    let (disk, places) = killed_after(3, 300);
    drop(Fixture::open_sim(&disk).expect("opens, and continues in a new segment"));
    let disk = disk.kill();
    disk.flip_bit(&file_of(places[2]), places[2].raw() % SEGMENT + 120, 3)
        .expect("there");
    assert!(
        refusal(&disk).contains("hot-00000001.seg"),
        "the new segment says where the old one ended"
    );
}

#[test]
fn a_damaged_segment_header_is_noticed() {
    let (disk, _) = killed_after(5, 300);
    disk.flip_bit("hot-00000001.seg", 20, 0).expect("there");
    assert!(refusal(&disk).contains("hot-00000001.seg"));
}

#[test]
fn a_segment_missing_in_the_middle_is_noticed() {
    let (disk, _) = killed_after(2, 300);
    for _ in 0..2 {
        let fixture = Fixture::open_sim(&disk).expect("opens");
        let (_, end) = write_row(&fixture.log, 9, 100).expect("space");
        fixture.log.wait_durable(end).expect("durable");
    }
    let disk = disk.kill();
    // The second opening's segment is replaced by what a prepared one looks like.
    disk.replace("hot-00000002.seg", &vec![0; SEGMENT as usize]);
    let message = refusal(&disk);
    assert!(message.contains("hot-00000002.seg"), "{message}");
}

#[test]
fn the_last_segment_emptied_or_removed_is_noticed() {
    let emptied = |disk: &SimDisk| disk.replace("hot-00000001.seg", &[]);
    let zeroed = |disk: &SimDisk| disk.replace("hot-00000001.seg", &vec![0; SEGMENT as usize]);
    let removed = |disk: &SimDisk| disk.remove("hot-00000001.seg").expect("there");
    let damages: [&dyn Fn(&SimDisk); 3] = [&emptied, &zeroed, &removed];
    for damage in damages {
        let (disk, _) = killed_after(2, 300);
        damage(&disk);
        let message = refusal(&disk);
        assert!(message.contains("hot-00000001.seg"), "{message}");
    }
}

#[test]
fn a_flipped_bit_is_reported_when_its_chunk_is_loaded() {
    let disk = SimDisk::new();
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(disk.clone()), Geometry::small(), options).expect("opens");
    let mut places = Vec::new();
    for number in 0..600 {
        places.push(write_row(&fixture.log, number, 400).expect("space").0);
    }
    fixture.log.flush_step().expect("flushes");
    disk.flip_bit(&file_of(places[3]), places[3].raw() % SEGMENT + 90, 5)
        .expect("there");
    let guard = crossbeam_epoch::pin();
    let error = fixture
        .log
        .read(places[3], &guard)
        .expect_err("the chunk does not verify");
    assert!(
        matches!(error, Error::Corrupt { .. }) && error.to_string().contains("hot-00000001.seg"),
        "{error}"
    );
    let other = fixture
        .log
        .read(places[300], &guard)
        .expect("other chunks are well");
    assert_eq!(number_of(other.as_row().expect("a row").payload()), 300);
}

#[test]
fn a_chunk_that_cannot_be_loaded_keeps_no_memory() {
    let disk = SimDisk::new();
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(disk.clone()), Geometry::small(), options).expect("opens");
    let mut places = Vec::new();
    for number in 0..600 {
        places.push(write_row(&fixture.log, number, 400).expect("space").0);
    }
    fixture.log.flush_step().expect("flushes");
    disk.flip_bit(&file_of(places[3]), places[3].raw() % SEGMENT + 90, 5)
        .expect("there");
    let fail = || {
        let guard = crossbeam_epoch::pin();
        let read = fixture.log.read(places[3], &guard);
        assert!(
            matches!(read, Err(Error::Corrupt { .. })),
            "the chunk does not verify"
        );
    };
    fail();
    let before = fixture.log.stats().buffer_bytes;
    for _ in 0..50 {
        fail();
    }
    assert!(
        fixture.log.stats().buffer_bytes <= before,
        "D12: {before} bytes of buffers before: {:?}",
        fixture.log.stats()
    );
}

#[test]
fn evicted_chunks_are_read_back_and_verified() {
    let (disk, places) = killed_after(150, 900);
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(disk), Geometry::small(), options).expect("opens");
    for _ in 0..2 {
        for (number, lsn) in places.iter().enumerate() {
            let guard = crossbeam_epoch::pin();
            let record = fixture.log.read(*lsn, &guard).expect("reads");
            assert_eq!(
                number_of(record.as_row().expect("a row").payload()),
                number as u64
            );
        }
    }
    assert!(
        fixture.log.stats().cache_misses >= 16,
        "{:?}",
        fixture.log.stats()
    );
}
