//! Records that are read with their batch instead of with their chunk (rule D33).

mod common;

use common::{Fixture, by_hand, number_of, row, write_row};
use pbxt_base::{Error, Lsn, checksum, codec};
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use pbxt_txlog::{LogOptions, LogStats, Space};
use std::sync::Arc;

const SEGMENT: u64 = 512 << 10;
const CHUNK: u64 = 64 << 10;

fn open(disk: &SimDisk) -> Fixture {
    let geometry = Geometry {
        hot_segment_bytes: SEGMENT,
        chunk_bytes: CHUNK,
        ..Geometry::small()
    };
    let options = LogOptions {
        cache_bytes: 4 * CHUNK,
        ..by_hand()
    };
    Fixture::open_with(Arc::new(disk.clone()), geometry, options).expect("opens")
}

/// Rows of which each eight are a batch, in far more log than the cache holds.
fn fill(fixture: &Fixture, rows: u64) -> Vec<Lsn> {
    let write = |number: u64| {
        let (lsn, _) = write_row(&fixture.log, number, 200 + number as usize % 300).expect("space");
        if number % 8 == 7 {
            fixture.log.flush_step().expect("flushes");
        }
        lsn
    };
    (0..rows).map(write).collect()
}

fn read(fixture: &Fixture, lsn: Lsn) -> Result<u64, Error> {
    let guard = crossbeam_epoch::pin();
    let record = fixture.log.read(lsn, &guard)?;
    Ok(number_of(record.as_row().expect("a row").payload()))
}

fn loads(stats: LogStats) -> u64 {
    stats.cache_misses - stats.read_alone
}

/// Numbers in an order in which no two that follow each other share a chunk.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| n * 2_654_435_761 % count)
}

#[test]
fn records_missed_at_random_are_read_alone() {
    let fixture = open(&SimDisk::new());
    let places = fill(&fixture, 8000);
    for number in scattered(8000).take(1500) {
        assert_eq!(read(&fixture, places[number as usize]).expect("reads"), number);
    }
    let stats = fixture.log.stats();
    assert!(
        stats.read_alone > 1000 && loads(stats) * 20 < stats.read_alone,
        "D33: {stats:?}"
    );
}

#[test]
fn a_chunk_that_is_missed_often_is_loaded() {
    let fixture = open(&SimDisk::new());
    let places = fill(&fixture, 8000);
    // Two chunks far from each other and from the end, by turns: none is missed twice in a row.
    for number in 0..100 {
        let number = number / 2 + if number % 2 == 0 { 0 } else { 3000 };
        assert_eq!(read(&fixture, places[number as usize]).expect("reads"), number);
    }
    let stats = fixture.log.stats();
    assert!(loads(stats) == 2 && stats.read_alone == 62, "D33: {stats:?}");
}

#[test]
fn records_read_in_order_load_their_chunks() {
    let fixture = open(&SimDisk::new());
    let places = fill(&fixture, 8000);
    let before = fixture.log.stats();
    for (number, lsn) in places.iter().enumerate().take(4000) {
        assert_eq!(read(&fixture, *lsn).expect("reads"), number as u64);
    }
    let stats = fixture.log.stats();
    let chunks = places[3999].raw() / CHUNK;
    assert!(
        stats.read_alone - before.read_alone <= chunks + 1 && stats.cache_hits - before.cache_hits > 3500,
        "D33: {stats:?} for {chunks} chunks"
    );
}

#[test]
fn a_damaged_record_is_reported_and_those_of_other_batches_are_read() {
    let disk = SimDisk::new();
    let fixture = open(&disk);
    let places = fill(&fixture, 8000);
    let name = format!("hot-{:08x}.seg", places[20].raw() / SEGMENT);
    disk.flip_bit(&name, places[20].raw() % SEGMENT + 90, 5)
        .expect("there");
    let far = places[4000];
    assert_eq!(read(&fixture, far).expect("reads"), 4000);
    let error = read(&fixture, places[20]).expect_err("D33: its batch does not verify");
    assert!(
        matches!(error, Error::Corrupt { .. }) && error.to_string().contains(&name),
        "{error}"
    );
    assert_eq!(read(&fixture, far).expect("reads"), 4000);
    let whole = read(&fixture, places[5]).expect("D33: another batch of the chunk");
    assert_eq!(whole, 5);
}

/// A batch header as docs/format-log.md has it, that says it stands at `lsn`.
fn forged_header(lsn: u64, length: u32, records: &[u8]) -> [u8; 64] {
    let mut header = [0; 64];
    header[..4].copy_from_slice(b"PbxB");
    codec::put_u32(&mut header, 4, length);
    codec::put_u64(&mut header, 8, 99);
    codec::put_u32(&mut header, 16, 1);
    codec::put_u32(&mut header, 20, length.next_multiple_of(512));
    codec::put_u64(&mut header, 40, lsn);
    codec::put_u32(&mut header, 52, checksum::crc32c(0, records));
    let crc = checksum::crc32c(lsn / SEGMENT, &header[..60]);
    codec::put_u32(&mut header, 60, crc);
    header
}

#[test]
fn bytes_of_a_row_that_look_like_a_header_deceive_nobody() {
    let disk = SimDisk::new();
    let fixture = open(&disk);
    fill(&fixture, 40);
    // A row of 3000 bytes in whose middle a sector begins with a header; then a row that lies behind it in the same batch.
    let payload_at = fixture.log.tail().raw() + 24;
    let forged_at = (payload_at + 512).next_multiple_of(512);
    let mut payload = vec![7; 3000];
    let forged = forged_header(forged_at, 4096, b"other records");
    payload[(forged_at - payload_at) as usize..][..64].copy_from_slice(&forged);
    let record = row(&payload);
    let mut reservation = fixture
        .log
        .reserve(record.encoded_len(), Space::Row)
        .expect("space");
    record.encode_into(reservation.bytes_mut());
    let first = reservation.lsn();
    assert_eq!(first.raw() + 24, payload_at, "the row is where it was expected");
    reservation.publish();
    let (second, _) = write_row(&fixture.log, 41, 300).expect("space");
    fixture.log.flush_step().expect("flushes");
    let places = fill(&fixture, 8000);

    let guard = crossbeam_epoch::pin();
    let before = fixture.log.stats();
    let found = fixture.log.read(first, &guard).expect("reads");
    assert_eq!(found.as_row().expect("a row").payload(), payload);
    assert_eq!(fixture.log.stats().read_alone, before.read_alone + 1);
    // Something far away, so that the next read does not go through the chunk.
    read(&fixture, places[3000]).expect("reads");
    let stats = fixture.log.stats();
    assert_eq!(loads(stats), loads(before), "{stats:?}");
    assert_eq!(
        read(&fixture, second).expect("D33: the load of the chunk decides"),
        41
    );
    assert_eq!(loads(fixture.log.stats()), loads(stats) + 1);
}
