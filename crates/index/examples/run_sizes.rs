//! How many bytes an entry of a run takes, and how fast runs are: the four indexes of a table of ten million videos.
//!
//! Usage: `cargo run --release -p pbxt-index --example run_sizes [million rows] [pk|artist|video|date|read]`

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pbxt_base::{IndexId, Lsn, RowId, TxnId};
use pbxt_index::{Batch, Fate, IndexParts, MergedCursor, Run, RunBuilder, SeekPos, Sign, Tree};
use pbxt_segment::{BlockCache, Codec, Geometry, OpenMode, SegmentStore};
use pbxt_testkit::SimDisk;

/// Key, row id, unpack information.
type Entry = (Vec<u8>, u64, Vec<u8>);

/// One for all runs: the names of its files are the names of blocks in the cache.
fn store() -> &'static Arc<SegmentStore> {
    static STORE: OnceLock<Arc<SegmentStore>> = OnceLock::new();
    STORE.get_or_init(new_store)
}

fn new_store() -> Arc<SegmentStore> {
    let geometry = Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        blob_segment_bytes: 64 << 10,
    };
    let mode = OpenMode {
        create: Some(geometry),
        read_only: false,
        new_uuid: 1,
        now: 0,
    };
    Arc::new(SegmentStore::open(Arc::new(SimDisk::new()), mode).expect("a new database"))
}

/// A number that looks random (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The key of an integer of four bytes.
fn int_key(number: u64) -> Vec<u8> {
    let image = number ^ 0x8000_0000;
    [24, 16, 8, 0].map(|shift| (image >> shift) as u8).to_vec()
}

fn primary(rows: u64) -> Vec<Entry> {
    (1..=rows).map(|row| (int_key(row), row, Vec::new())).collect()
}

/// 30 000 names of 5 to 24 letters; the second is half as frequent as the first, and so on.
fn artists(rows: u64) -> Vec<Entry> {
    let shares: Vec<f64> = (1..=30_000)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        })
        .collect();
    let name = |rank: u64| -> Vec<u8> {
        let letters = 0..5 + mix(rank) % 20;
        letters
            .map(|at| b'A' + (mix(rank << 6 | at) % 26) as u8)
            .collect()
    };
    let row = |row: u64| {
        let share = (mix(row) >> 11) as f64 / (1_u64 << 53) as f64 * shares[29_999];
        (
            name(shares.partition_point(|sum| *sum < share) as u64),
            row,
            Vec::new(),
        )
    };
    (1..=rows).map(row).collect()
}

/// Ids of 11 characters; keys are folded to one case, unpack information has one bit per letter.
fn videos(rows: u64) -> Vec<Entry> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let row = |row: u64| {
        let bits = u128::from(mix(row)) << 64 | u128::from(mix(!row));
        let id: Vec<u8> = (0..11)
            .map(|at| LETTERS[(bits >> (6 * at)) as usize % 64])
            .collect();
        let letters = id
            .iter()
            .filter(|letter| letter.is_ascii_alphabetic())
            .enumerate();
        let cases = letters.fold(0_u16, |cases, (at, letter)| {
            cases | u16::from(letter.is_ascii_lowercase()) << at
        });
        (
            id.to_ascii_uppercase(),
            row,
            vec![cases as u8, (cases >> 8) as u8],
        )
    };
    (1..=rows).map(row).collect()
}

/// One of 1500 days, then the id.
fn dates(rows: u64) -> Vec<Entry> {
    let row = |row: u64| {
        let day = 0x8f_9000 + mix(row * 7) % 1500;
        let mut key = vec![(day >> 16) as u8, (day >> 8) as u8, day as u8];
        key.extend(int_key(row));
        (key, row, Vec::new())
    };
    (1..=rows).map(row).collect()
}

fn per_entry(time: Duration, entries: u64) -> f64 {
    time.as_secs_f64() * 1e9 / entries as f64
}

fn build(entries: &[Entry], codec: Codec) -> (Run, Duration) {
    let start = Instant::now();
    let mut out = RunBuilder::new(store(), IndexId::new(1), None, codec);
    for (key, row, unpack) in entries {
        out.push(
            key,
            RowId::new(*row),
            Lsn::new(0),
            Sign::Entry,
            TxnId::new(0),
            unpack,
        )
        .expect("room for an entry");
    }
    (out.finish().expect("a run"), start.elapsed())
}

fn sizes(name: &str, mut entries: Vec<Entry>) {
    entries.sort_unstable();
    for codec in [Codec::Plain, Codec::Zstd(1), Codec::Zstd(3)] {
        let (run, built) = build(&entries, codec);
        println!(
            "{name:<8} {codec:<9?} {:>6.2} bytes an entry, {:>5.0} ns to build, fences {:.2} bytes an entry",
            run.stored_bytes() as f64 / run.entries() as f64,
            per_entry(built, run.entries()),
            run.memory_bytes() as f64 / run.entries() as f64,
        );
    }
}

fn scan(parts: &Arc<IndexParts>, cache: &Arc<BlockCache>, what: &str, forward: bool) {
    let mut cursor = MergedCursor::new();
    let start = Instant::now();
    let from = if forward { SeekPos::START } else { SeekPos::END };
    cursor.seek(parts, cache, &from, forward).expect("readable");
    let (mut found, mut sum) = (0, 0_u64);
    while let Some(entry) = cursor.peek() {
        found += 1;
        sum = sum.wrapping_add(entry.row().raw());
        cursor.advance().expect("readable");
    }
    assert!(found == parts.entries() && sum > 0);
    println!("{what:<44} {:>8.1} ns", per_entry(start.elapsed(), found));
}

/// Random probes of one figure.
const PROBES: u64 = 100_000;

fn probe(parts: &Arc<IndexParts>, cache: &Arc<BlockCache>, what: &str, rows: u64, step: u64) {
    let (mut batch, mut hits) = (Batch::new(), 0);
    let start = Instant::now();
    for number in 0..PROBES {
        let key = int_key(mix(number) % rows * step + 1);
        let found = |_: pbxt_index::EntryView<'_>| {
            hits += 1;
            Fate::Keep
        };
        parts
            .for_each_under_key(&key, cache, &mut batch, found)
            .expect("readable");
    }
    println!(
        "{what:<44} {:>8.1} ns, {hits} hits",
        per_entry(start.elapsed(), PROBES)
    );
}

/// Scans and probes: a tree, a run that lies in the cache, a run read from the file, three parts of one third each.
fn reads(rows: u64) {
    let entries = primary(rows);
    let tree = |keep: &dyn Fn(u64) -> bool| {
        let tree = Tree::new();
        for (key, row, _) in entries.iter().filter(|(_, row, _)| keep(*row)) {
            tree.insert(
                key,
                RowId::new(*row),
                TxnId::new(1),
                Lsn::new(8),
                Sign::Entry,
                &[],
            )
            .expect("room for an entry");
        }
        Arc::new(tree)
    };
    let run = |keep: &dyn Fn(u64) -> bool| {
        let kept: Vec<Entry> = entries.iter().filter(|(_, row, _)| keep(*row)).cloned().collect();
        vec![Arc::new(build(&kept, Codec::Zstd(1)).0)]
    };
    let of = |active, runs| {
        Arc::new(IndexParts {
            active,
            frozen: Vec::new(),
            runs,
        })
    };
    let cache = Arc::new(BlockCache::new(4 << 30));
    let in_tree = IndexParts::of_tree(tree(&|_| true));
    let in_tree = Arc::new(in_tree);
    scan(&in_tree, &cache, "next entry, one tree", true);
    probe(&in_tree, &cache, "probe, one tree", rows, 1);
    drop(in_tree);
    let in_run = of(Arc::new(Tree::new()), run(&|_| true));
    scan(&in_run, &cache, "next entry, one run, first time", true);
    scan(&in_run, &cache, "next entry, one run, cached", true);
    scan(&in_run, &cache, "next entry, one run, cached, backward", false);
    probe(&in_run, &cache, "probe, one run, cached", rows, 1);
    let small = Arc::new(BlockCache::new(2 << 20));
    scan(&in_run, &small, "next entry, one run, not cached", true);
    probe(&in_run, &small, "probe, one run, not cached", rows, 1);
    let mut three = run(&|row| row % 3 == 0);
    three.extend(run(&|row| row % 3 == 1));
    let three = of(tree(&|row| row % 3 == 2), three);
    scan(&three, &cache, "next entry, tree and two runs, first time", true);
    scan(&three, &cache, "next entry, tree and two runs, cached", true);
    probe(&three, &cache, "probe, tree and two runs, cached", rows, 1);
}

fn main() {
    let millions: f64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(10.9);
    let part = std::env::args().nth(2).unwrap_or_default();
    let rows = (millions * 1e6) as u64;
    let wanted = |name: &str| part.is_empty() || part == name;
    if wanted("pk") {
        sizes("pk", primary(rows));
    }
    if wanted("artist") {
        sizes("artist", artists(rows));
    }
    if wanted("video") {
        sizes("video", videos(rows));
    }
    if wanted("date") {
        sizes("date", dates(rows));
    }
    if wanted("read") {
        reads(rows);
    }
}
