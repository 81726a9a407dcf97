//! Measures the segment floor on a real directory: preparing, sealing, opening, large values.
//!
//! usage: `cargo run --release -p pbxt-segment --example store_speed -- DIRECTORY` (an empty one, left empty)

use pbxt_base::{Lsn, Result, SegmentId};
use pbxt_io::OsDisk;
use pbxt_segment::{BlobStore, Geometry, OpenMode, SEGMENT_HEADER_BYTES, SegmentClass, SegmentStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const SEGMENTS: u32 = 8;
const CHUNK: usize = 256 << 10;

fn open(directory: &Path, geometry: Geometry) -> Result<SegmentStore> {
    let mode = OpenMode {
        create: Some(geometry),
        read_only: false,
        new_uuid: 1,
        now: 0,
    };
    SegmentStore::open(Arc::new(OsDisk::open(directory, true)?), mode)
}

fn timed<R>(what: &str, count: u32, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let start = Instant::now();
    let result = work()?;
    println!(
        "{what}: {:.3} ms each of {count}",
        start.elapsed().as_secs_f64() * 1000.0 / f64::from(count)
    );
    Ok(result)
}

fn hot(store: &SegmentStore) -> Result<()> {
    let bytes = store.geometry().hot_segment_bytes;
    timed("prepare a hot segment of 64 MiB", SEGMENTS, || {
        (1..=SEGMENTS).try_for_each(|id| store.prepare(SegmentId::new(id)))
    })?;
    let chunk = vec![0xa5; CHUNK];
    timed("begin, fill, sync and seal it", SEGMENTS, || {
        (1..=SEGMENTS).try_for_each(|id| {
            let start = Lsn::new(u64::from(id) * bytes);
            let file = store.begin(SegmentId::new(id), SegmentId::new(id - 1), start, 0, start)?;
            let mut at = SEGMENT_HEADER_BYTES as u64;
            while at + (CHUNK as u64) < bytes {
                file.write_at(&chunk, at)?;
                at += CHUNK as u64;
            }
            file.sync_data()?;
            store.seal(SegmentId::new(id), Lsn::new(start.raw() + at))
        })
    })?;
    timed("verify a sealed segment", SEGMENTS, || {
        (1..=SEGMENTS).try_for_each(|id| store.verify_sealed(SegmentClass::Hot, SegmentId::new(id)))
    })
}

fn values(store: SegmentStore) -> Result<()> {
    let blobs = BlobStore::open(Arc::new(store))?;
    for (len, count) in [(16 << 10, 2000), (1 << 20, 200)] {
        let value: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
        let places = timed(&format!("append {} KiB", len >> 10), count, || {
            (0..count)
                .map(|_| blobs.append(&value))
                .collect::<Result<Vec<_>>>()
        })?;
        timed("sync them", 1, || blobs.sync())?;
        let mut out = Vec::new();
        timed(&format!("read {} KiB", len >> 10), count, || {
            places.iter().try_for_each(|place| blobs.read(place, &mut out))
        })?;
    }
    Ok(())
}

fn many(directory: &Path) -> Result<()> {
    let geometry = Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        blob_segment_bytes: 64 << 10,
    };
    let count = 2000;
    let store = open(directory, geometry)?;
    timed(
        "prepare, begin and seal an empty segment of 32 KiB",
        count,
        || {
            (1..=count).try_for_each(|id| {
                let start = Lsn::new(u64::from(id) << 15);
                store.prepare(SegmentId::new(id))?;
                store.begin(SegmentId::new(id), SegmentId::new(id - 1), start, 0, start)?;
                store.seal(SegmentId::new(id), start)
            })
        },
    )?;
    drop(store);
    timed("open a database of 2000 sealed segments", 1, || {
        open(directory, geometry)
    })
    .map(drop)
}

fn run(directory: &Path) -> Result<()> {
    let (large, small) = (directory.join("large"), directory.join("small"));
    let store = open(&large, Geometry::default())?;
    hot(&store)?;
    values(store)?;
    many(&small)
}

fn main() {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: store_speed DIRECTORY");
        std::process::exit(2);
    };
    let directory = Path::new(&directory);
    let result = run(directory);
    for part in ["large", "small"] {
        // Whatever was made goes away again; a part that was never made is no failure.
        let _ = std::fs::remove_dir_all(directory.join(part));
    }
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
