//! The start of the log rises: what lies below is gone without being damaged, segments are dropped, and recovery begins at
//! a checkpoint.

mod common;

use common::{Fixture, by_hand, number_of, write_commit, write_row};
use pbxt_base::{Error, Lsn, Result, SegmentId};
use pbxt_io::Disk;
use pbxt_segment::{Geometry, SegmentClass};
use pbxt_testkit::{SimDisk, Sweep};
use pbxt_txlog::{LogOptions, LogScan, SegmentScan, Space};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SEGMENT: u64 = 128 << 10;

fn open_from(disk: &SimDisk, from: Lsn) -> Result<Fixture> {
    Fixture::open_from(Arc::new(disk.clone()), Geometry::small(), by_hand(), from, from)
}

/// Writes rows until the log has reached segment `segment`, all durable. Returns where they are.
fn fill_to(fixture: &Fixture, segment: u64, places: &mut Vec<Lsn>) {
    while fixture.log.tail().raw() < segment * SEGMENT + 20_000 {
        let (lsn, end) = write_row(&fixture.log, places.len() as u64, 900).expect("space");
        places.push(lsn);
        if places.len().is_multiple_of(16) {
            fixture.log.wait_durable(end).expect("durable");
        }
    }
    fixture.log.wait_durable(fixture.log.tail()).expect("durable");
}

/// What a checkpoint does to the log: everything below its place is needed no more.
fn drop_below(fixture: &Fixture, place: Lsn) -> Result<()> {
    fixture.log.set_start(place);
    for segment in fixture.log.droppable_segments(place)? {
        fixture.store.drop_segment(SegmentClass::Hot, segment)?;
    }
    Ok(())
}

#[test]
fn what_lies_below_the_start_is_not_there_and_not_damaged() {
    let fixture = Fixture::open_sim(&SimDisk::new()).expect("opens");
    let mut places = Vec::new();
    fill_to(&fixture, 3, &mut places);
    assert_eq!(fixture.log.start(), Lsn::new(0));
    let cached = fixture.log.stats().cache_bytes;
    let middle = places.len() / 2;
    fixture.log.set_start(places[middle]);
    fixture.log.set_start(places[3]);
    assert_eq!(fixture.log.start(), places[middle], "D16: it only rises");
    assert!(
        fixture.log.stats().cache_bytes < cached * 3 / 4,
        "chunks below leave memory"
    );
    let guard = crossbeam_epoch::pin();
    for (number, lsn) in places.iter().enumerate() {
        let found = fixture.log.try_read(*lsn, &guard).expect("no damage");
        let number_found = found.map(|record| number_of(record.as_row().expect("a row").payload()));
        assert_eq!(number_found, (number >= middle).then_some(number as u64));
        let plain = fixture.log.read(*lsn, &guard);
        assert_eq!(plain.is_ok(), number >= middle);
        assert!(plain.is_ok() || matches!(plain, Err(Error::Corrupt { .. })));
    }
}

#[test]
fn only_whole_finished_segments_below_the_start_are_droppable() {
    let fixture = Fixture::open_sim(&SimDisk::new()).expect("opens");
    let mut places = Vec::new();
    fill_to(&fixture, 4, &mut places);
    let tail = fixture.log.tail();
    let droppable = |below: Lsn| fixture.log.droppable_segments(below).expect("lists");
    assert_eq!(droppable(tail), [], "D16: nothing above the start");
    fixture.log.set_start(Lsn::new(3 * SEGMENT + 5000));
    assert_eq!(droppable(tail), [SegmentId::new(1), SegmentId::new(2)]);
    assert_eq!(droppable(Lsn::new(3 * SEGMENT - 8)), [SegmentId::new(1)]);
    assert_eq!(droppable(Lsn::new(0)), []);
    fixture.log.set_start(tail);
    let all = [SegmentId::new(1), SegmentId::new(2), SegmentId::new(3)];
    assert_eq!(droppable(tail), all, "the segment being written stays");
}

#[test]
fn the_log_opens_at_a_checkpoint_when_its_beginning_is_gone() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let mut places = Vec::new();
    fill_to(&fixture, 4, &mut places);
    let kept = places.len() - 5;
    drop_below(&fixture, places[kept]).expect("drops");
    fill_to(&fixture, 6, &mut places);
    let image = disk.kill();
    assert!(
        matches!(open_from(&image, Lsn::new(0)), Err(Error::Corrupt { .. })),
        "without a checkpoint a missing beginning is damage"
    );
    let second = open_from(&image, places[kept]).expect("opens");
    assert_eq!(
        second.numbers(),
        (kept as u64..places.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(second.log.start(), places[kept]);
    let mut seen = Vec::new();
    for segment in second.end.segments() {
        assert!(segment >= SegmentId::new(4));
        let mut scan = SegmentScan::new(Arc::clone(&second.store), segment, &second.end).expect("a segment");
        while let Some((lsn, _)) = scan.next_record().expect("reads") {
            seen.push(lsn);
        }
    }
    assert_eq!(seen, places[kept..], "a segment's scan has the same lower bound");
    let mut rest = LogScan::new(Arc::clone(&second.store), places[kept]).expect("opens");
    assert!(rest.next_other().expect("reads").is_none(), "there are only rows");
    assert_eq!(rest.rows_passed(), (places.len() - kept) as u64);
    let guard = crossbeam_epoch::pin();
    assert!(
        second
            .log
            .try_read(places[kept - 1], &guard)
            .expect("no damage")
            .is_none()
    );
    assert!(
        second
            .log
            .try_read(places[kept], &guard)
            .expect("reads")
            .is_some()
    );
}

#[test]
fn a_checkpoint_beyond_the_log_start_leaves_older_segments_readable() {
    let disk = SimDisk::new();
    let mut places = Vec::new();
    // Each life ends in a crash, so that the segments end at cuts and not at their ends.
    let mut image = disk;
    for life in 1..=3 {
        let fixture = Fixture::open_sim(&image).expect("opens");
        fill_to(&fixture, 2 * life, &mut places);
        image = image.kill();
    }
    let checkpoint = places[places.len() - 2];
    let log_start = places[20];
    let disk: Arc<dyn Disk> = Arc::new(image);
    let fixture =
        Fixture::open_from(disk, Geometry::small(), by_hand(), checkpoint, log_start).expect("opens");
    assert_eq!((fixture.seen.len(), fixture.log.start()), (2, log_start));
    let guard = crossbeam_epoch::pin();
    for (number, lsn) in places.iter().enumerate().skip(20) {
        let record = fixture
            .log
            .read(*lsn, &guard)
            .expect("D16: readable though below the checkpoint");
        assert_eq!(
            number_of(record.as_row().expect("a row").payload()),
            number as u64
        );
    }
}

#[test]
fn a_break_below_a_checkpoint_is_damage() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let (mut place, mut end) = (Lsn::new(0), Lsn::new(0));
    for number in 0..20 {
        (place, end) = write_row(&fixture.log, number, 300).expect("space");
        fixture.log.wait_durable(end).expect("durable");
    }
    let checkpoint = fixture.log.tail();
    assert!(checkpoint > end);
    let image = disk.kill();
    let at = place.raw() % SEGMENT + 120;
    image.flip_bit("hot-00000001.seg", at, 3).expect("there");
    assert_eq!(
        open_from(&image.kill(), Lsn::new(0))
            .expect("a torn tail")
            .seen
            .len(),
        19
    );
    let Err(error @ Error::Corrupt { .. }) = open_from(&image, checkpoint) else {
        panic!("D17: the checkpoint proves that the batch was durable")
    };
    assert!(error.to_string().contains("checkpoint"), "{error}");
}

#[test]
fn the_first_batch_behind_dropped_segments_is_missed() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let mut places = Vec::new();
    fill_to(&fixture, 3, &mut places);
    let first = places
        .iter()
        .position(|lsn| lsn.raw() > 3 * SEGMENT)
        .expect("in segment 3");
    drop_below(&fixture, places[first]).expect("drops");
    let image = disk.kill();
    image
        .flip_bit("hot-00000003.seg", places[first].raw() % SEGMENT + 120, 3)
        .expect("there");
    assert!(matches!(
        open_from(&image, places[first]),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn a_reader_that_meets_a_segment_being_dropped_is_told_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = LogOptions {
        cache_bytes: 64 << 10,
        ..by_hand()
    };
    let disk: Arc<dyn Disk> = Arc::new(pbxt_io::OsDisk::open(dir.path(), true).expect("a directory"));
    let fixture = Fixture::open_with(disk, Geometry::small(), options).expect("opens");
    let mut places = Vec::new();
    fill_to(&fixture, 12, &mut places);
    let (log, done) = (&fixture.log, AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 0..3_usize {
            let (places, done) = (&places, &done);
            scope.spawn(move || {
                let mut at = seed;
                while !done.load(Ordering::Relaxed) {
                    at = at
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let number = (at >> 33) % places.len();
                    let guard = crossbeam_epoch::pin();
                    match log.try_read(places[number], &guard).expect("D16: never an error") {
                        Some(record) => {
                            let found = number_of(record.as_row().expect("a row").payload());
                            assert_eq!(found, number as u64);
                        }
                        None => assert!(places[number] < log.start()),
                    }
                }
            });
        }
        for step in places.chunks(16) {
            drop_below(&fixture, step[0]).expect("drops");
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    let left = fixture.store.list(SegmentClass::Hot).expect("lists");
    assert_eq!(left, [SegmentId::new(12)]);
}

/// What a life with checkpoints leaves in the test's memory.
#[derive(Clone, Default)]
struct Story {
    /// Every record, in order.
    written: Vec<u64>,
    /// How many of them were acknowledged.
    acknowledged: usize,
    /// Place of the last durable checkpoint, and how many records lie below it.
    checkpoint: (u64, usize),
}

/// Commits, and now and then a checkpoint that drops what lies below it.
fn live(fixture: &Fixture, txns: std::ops::Range<u64>, story: &mut Story) -> Result<()> {
    for txn in txns {
        for row in 0..txn % 4 {
            let number = txn * 100 + row;
            story.written.push(number);
            write_row(&fixture.log, number, 500 + (number as usize * 13) % 4000)?;
        }
        story.written.push(u64::MAX - txn);
        let end = write_commit(&fixture.log, txn)?;
        if txn % 3 == 0 {
            fixture.log.wait_durable(end)?;
            story.acknowledged = story.written.len();
        }
        if txn % 7 == 0 {
            checkpoint(fixture, story)?;
        }
        if txn % 5 == 0 {
            fixture.log.background_step();
        }
    }
    Ok(())
}

fn check_story(found: &[u64], story: &Story, case: &str) {
    let (_, below) = story.checkpoint;
    let rest = &story.written[below..];
    assert!(
        rest.starts_with(found),
        "{case}: recovery found something that was not written"
    );
    assert!(
        found.len() + below >= story.acknowledged,
        "{case}: {} of {} acknowledged records are left",
        found.len() + below,
        story.acknowledged
    );
}

/// A place in the log that is durable, with everything below it needless.
fn checkpoint(fixture: &Fixture, story: &mut Story) -> Result<()> {
    let (place, below) = (fixture.log.tail(), story.written.len());
    fixture.log.wait_durable(place)?;
    story.acknowledged = below;
    story.checkpoint = (place.raw(), below);
    drop_below(fixture, place)
}

/// Cuts the power everywhere in `first_life`, goes on from the last checkpoint, and crashes again.
fn survives_every_crash(first_life: fn(&SimDisk) -> Story) {
    let sweep = Sweep { seeds: 2, step: 1 };
    let images = sweep.run(first_life, |image, story, case| {
        let place = Lsn::new(story.checkpoint.0);
        let second = match open_from(image, place) {
            Ok(second) => second,
            Err(error) => {
                assert_eq!(story.acknowledged, 0, "{case}: does not open: {error}");
                return;
            }
        };
        check_story(&second.numbers(), story, case);
        let below = story.checkpoint.1;
        let mut story = Story {
            written: [&story.written[..below], &second.numbers()[..]].concat(),
            ..story.clone()
        };
        story.acknowledged = story.written.len();
        live(&second, 200..230, &mut story).expect("the second life has no faults");
        for seed in 0..2 {
            let case = format!("{case}, then seed {seed}");
            let place = Lsn::new(story.checkpoint.0);
            let third =
                open_from(&image.crash(seed), place).unwrap_or_else(|error| panic!("{case}: {error}"));
            check_story(&third.numbers(), &story, &case);
        }
    });
    assert!(images > 300, "{images} images");
}

#[test]
fn a_log_with_checkpoints_survives_every_crash() {
    survives_every_crash(|disk| {
        let mut story = Story::default();
        if let Ok(fixture) = Fixture::open_sim(disk) {
            drop(live(&fixture, 1..150, &mut story));
        }
        story
    });
}

/// The checkpoint then names the first place of a segment in which nothing is durable yet.
#[test]
fn a_checkpoint_right_after_an_opening_survives_every_crash() {
    survives_every_crash(|disk| {
        let mut story = Story::default();
        if let Ok(first) = Fixture::open_sim(disk) {
            drop(live(&first, 1..90, &mut story));
        }
        if let Ok(second) = open_from(disk, Lsn::new(story.checkpoint.0)) {
            let below = story.checkpoint.1;
            story.written.truncate(below);
            story.written.extend(second.numbers());
            if checkpoint(&second, &mut story).is_ok() {
                drop(live(&second, 202..206, &mut story));
            }
        }
        story
    });
}

#[test]
fn the_fast_passes_find_what_the_plain_scan_finds() {
    let fixture = Fixture::open_sim(&SimDisk::new()).expect("opens");
    for number in 0..1200 {
        write_row(&fixture.log, number, 40 + (number as usize * 17) % 700).expect("space");
        if number % 5 == 0 {
            write_commit(&fixture.log, number).expect("space");
        }
        if number % 7 == 0 {
            drop(fixture.log.reserve(64, Space::Row).expect("space"));
        }
        if number == 600 {
            fixture.log.flush_step().expect("flushes");
        }
    }
    let middle = fixture.log.tail();
    write_commit(&fixture.log, 5000).expect("space");
    write_row(&fixture.log, 6000, 50).expect("space");
    fixture.log.flush_step().expect("flushes");
    for from in [Lsn::new(0), middle] {
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        let mut scan = LogScan::new(Arc::clone(&fixture.store), from).expect("opens");
        while let Some((lsn, record)) = scan.next_record().expect("reads") {
            let list = if record.kind().is_row() {
                &mut rows
            } else {
                &mut others
            };
            list.push(lsn);
        }
        let end = scan.finish().expect("reads");
        let mut scan = LogScan::new(Arc::clone(&fixture.store), from).expect("opens");
        let mut found = Vec::new();
        while let Some((lsn, _)) = scan.next_other().expect("reads") {
            found.push(lsn);
        }
        assert_eq!(found, others);
        assert_eq!(
            (scan.rows_passed(), scan.last_row_txn().raw()),
            (rows.len() as u64, 2)
        );
        assert_eq!(scan.finish().expect("reads"), end);
        let mut found = Vec::new();
        for segment in end.segments() {
            let mut scan = SegmentScan::new(Arc::clone(&fixture.store), segment, &end).expect("a segment");
            while let Some((lsn, _)) = scan.next_row().expect("reads") {
                found.push(lsn);
            }
        }
        assert_eq!(found, rows);
    }
}
