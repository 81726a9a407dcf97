//! Room of the log (D38): how much is set aside ahead, when more is, and what is given back. The simulated disk refuses a write where no room
//! is.

mod common;

use common::{Fixture, by_hand, write_commit, write_row};
use pbxt_base::Error;
use pbxt_io::{Disk, OsDisk};
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::LogOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room of all segments of the log.
fn room(disk: &dyn Disk) -> u64 {
    let names = disk.list().expect("a list");
    let hot = names.iter().filter(|name| name.starts_with("hot-"));
    hot.map(|name| disk.room(name).expect("its room")).sum()
}

fn segments(disk: &dyn Disk) -> u64 {
    let names = disk.list().expect("a list");
    names.iter().filter(|name| name.starts_with("hot-")).count() as u64
}

/// Writes rows until the log has come to this place.
fn fill_to(fixture: &Fixture, lsn: u64, number: &mut u64) {
    while fixture.log.tail().raw() < lsn {
        write_row(&fixture.log, *number, 500).expect("space");
        *number += 1;
    }
}

#[test]
fn room_comes_before_the_log_and_goes_when_nobody_needs_it() {
    let disk = SimDisk::new();
    let Geometry {
        hot_segment_bytes: bytes,
        chunk_bytes: chunk,
        ..
    } = Geometry::small();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    let least = room(&disk);
    assert_eq!(
        least,
        2 * chunk + bytes / 2,
        "D38: the open chunk, the next one, and the reserve of D10"
    );
    let (mut number, start) = (0, fixture.log.tail().raw());
    fill_to(&fixture, start / bytes * bytes + chunk * 3 / 2, &mut number);
    fixture.log.background_step();
    assert_eq!(
        room(&disk),
        2 * bytes,
        "under way all of it, and the next segment"
    );
    fixture.log.give_back_ahead().expect("given back");
    assert_eq!(room(&disk), least + chunk, "D38: behind the open chunk");
    assert_eq!(segments(&disk), 1, "D38: a spare segment goes");
    fixture.log.background_step();
    assert_eq!(room(&disk), least + chunk, "and comes back when it is needed");
    fill_to(&fixture, start + 3 * bytes, &mut number);
    fixture.log.close().expect("closes");
    let live = fixture.log.tail().raw() % bytes;
    let behind = room(&disk) - (segments(&disk) - 1) * bytes;
    assert!(behind < live + 4096 + 512, "D38: {behind} of {live}");
    drop(fixture);
    let again = Fixture::open_sim(&disk).expect("opens");
    assert_eq!(again.numbers(), (0..number).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_refuses_rows_where_room_lacks_and_still_takes_ends() {
    let disk = SimDisk::new();
    let fixture = Fixture::open_sim(&disk).expect("opens");
    disk.set_free_bytes(Some(0));
    let mut written = Vec::new();
    let error = loop {
        match write_row(&fixture.log, written.len() as u64, 500) {
            Ok(_) => written.push(written.len() as u64),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "D10: {error}");
    assert!(!fixture.poison.is_set(), "a full disk is an ordinary error");
    for ts in 0..60 {
        let end = write_commit(&fixture.log, ts).expect("D10: transactions can end");
        fixture.log.wait_durable(end).expect("and are durable");
        written.push(u64::MAX - ts);
    }
    // Room for what this segment lacks, and for no other one.
    disk.set_free_bytes(Some(Geometry::small().hot_segment_bytes / 2));
    write_row(&fixture.log, 7777, 500).expect("rows go on when space returns");
    written.push(7777);
    fixture.log.close().expect("closes");
    drop(fixture);
    disk.set_free_bytes(None);
    assert_eq!(Fixture::open_sim(&disk).expect("opens").numbers(), written);
}

#[test]
fn a_full_disk_is_opened_with_the_room_of_the_log_before() {
    for is_closed in [false, true] {
        let disk = SimDisk::new();
        let mut fixture = Fixture::open_sim(&disk).expect("opens");
        let mut written = Vec::new();
        disk.set_free_bytes(Some(0));
        for life in 0..5_u64 {
            let error = loop {
                let number = life << 32 | written.len() as u64;
                match write_row(&fixture.log, number, 500) {
                    Ok(_) => written.push(number),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::NoSpace { .. }), "D10: {error}");
            if is_closed {
                fixture.log.close().expect("closes");
            } else {
                fixture.log.flush_step().expect("written");
            }
            drop(fixture);
            fixture = Fixture::open_sim(&disk).unwrap_or_else(|error| panic!("D38: {life}: {error}"));
            assert_eq!(fixture.numbers(), written, "D38: {life}");
            let end = write_commit(&fixture.log, life).expect("D10: transactions can end");
            fixture.log.wait_durable(end).expect("and are durable");
            written.push(u64::MAX - life);
        }
        disk.set_free_bytes(None);
        write_row(&fixture.log, 7777, 500).expect("rows go on when space returns");
    }
}

#[test]
fn room_is_given_back_beside_writers() {
    const WRITERS: u64 = 3;
    const ROWS: u64 = 2_000;
    const GIVEN_BACK: u64 = 10;
    let disk = SimDisk::new();
    let options = LogOptions {
        worker: true,
        ..by_hand()
    };
    let fixture = Fixture::open_with(Arc::new(disk.clone()), Geometry::small(), options).expect("opens");
    let (left, given_back) = (AtomicU64::new(WRITERS), AtomicU64::new(0));
    let write = |writer: u64| {
        let mut number = 0;
        // On a busy machine they write until there was something beside them.
        while number < ROWS || given_back.load(Ordering::Relaxed) <= GIVEN_BACK {
            let (_, end) = write_row(&fixture.log, writer << 32 | number, 300).expect("space");
            if number.is_multiple_of(64) {
                fixture.log.wait_durable(end).expect("durable");
            }
            number += 1;
        }
        left.fetch_sub(1, Ordering::Relaxed);
        number
    };
    let write = &write;
    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        while left.load(Ordering::Relaxed) > 0 {
            fixture.log.give_back_ahead().expect("given back");
            given_back.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
        }
        writers
            .into_iter()
            .map(|writer| writer.join().expect("it wrote"))
            .collect()
    });
    assert!(given_back.into_inner() > GIVEN_BACK);
    fixture
        .log
        .close()
        .expect("D38: nothing was written where no room was");
    drop(fixture);
    let mut numbers = Fixture::open_sim(&disk).expect("opens").numbers();
    numbers.sort_unstable();
    let all = (0..WRITERS)
        .zip(written)
        .flat_map(|(writer, rows)| (0..rows).map(move |number| writer << 32 | number));
    assert_eq!(numbers, all.collect::<Vec<_>>());
}

#[test]
fn room_of_real_files_is_given_back_and_taken_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Arc::new(OsDisk::open(directory.path(), false).expect("a directory"));
    let disk = open();
    let geometry = Geometry {
        hot_segment_bytes: 8 << 20,
        ..Geometry::default()
    };
    let fixture = Fixture::open_with(disk.clone(), geometry, by_hand()).expect("opens");
    let least = room(&*disk);
    let mut number = 0;
    let is_given_back = least < geometry.hot_segment_bytes;
    fill_to(
        &fixture,
        fixture.log.tail().raw() + geometry.hot_segment_bytes / 2,
        &mut number,
    );
    fixture.log.background_step();
    assert_eq!(
        room(&*disk),
        2 * geometry.hot_segment_bytes,
        "D10: set aside as a whole"
    );
    fixture.log.close().expect("closes");
    let closed = room(&*disk);
    assert_eq!(segments(&*disk), 1, "D38: a spare segment goes");
    assert!(
        !is_given_back || closed < geometry.hot_segment_bytes * 3 / 4,
        "D38: {closed}"
    );
    drop((fixture, disk));
    let again = Fixture::open_with(open(), geometry, by_hand()).expect("opens");
    assert_eq!(again.numbers().len() as u64, number);
}
