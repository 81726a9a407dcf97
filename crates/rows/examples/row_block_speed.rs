//! Prints bytes per row of row blocks under each compressor, and the speed of each step on one core, best of several runs.
//!
//! Why it exists:    the targets (13 bytes per row, 3 million rows a second in, 5 million out) and the choice of the compressor are
//!                   checked by hand: `cargo run --release -p pbxt-rows --example row_block_speed [bytes of a block]`.
//!                   The table: a rising id, one of 30000 names by Zipf's law, an empty text, 11 random letters, a date of five years.

use pbxt_base::RowId;
use pbxt_rows::*;
use std::time::Instant;

const ROWS: usize = 400_000;
const NAMES: usize = 30_000;
/// Speeds are those of the first rows, in runs so short that a busy machine leaves some of them alone.
const SPEED_ROWS: usize = 24_000;
const RUNS: usize = 60;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 32
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Two words of syllables, or as many random letters: names as people have them, and the worst case.
fn name(random: &mut Random, syllables: bool) -> Vec<u8> {
    let parts: Vec<_> = "ka ri mo ben da lo sen ti ra mar ko vin el na sto ber li an ger ho wil pe ju ha mic sa tor el du fre"
        .split(' ')
        .collect();
    let mut word = |count: usize| {
        (0..count)
            .map(|_| parts[random.below(parts.len())])
            .collect::<String>()
    };
    let name = format!("{} {}", word(2), word(3));
    if syllables {
        return name.into_bytes();
    }
    (0..name.len()).map(|_| b'a' + random.below(26) as u8).collect()
}

fn table() -> Schema {
    let column = |kind| Column {
        kind,
        nullable: false,
    };
    let text = || column(ColumnKind::Var);
    let columns = vec![
        column(ColumnKind::Fixed(4)),
        text(),
        text(),
        text(),
        column(ColumnKind::Fixed(3)),
    ];
    Schema::new(1, columns).expect("five columns")
}

fn rows(schema: &Schema, syllables: bool) -> Vec<Vec<u8>> {
    let mut random = Random(3);
    let names: Vec<_> = (0..NAMES).map(|_| name(&mut random, syllables)).collect();
    let mut total = 0.0;
    let shares = (1..=NAMES).map(|rank| {
        total += 1.0 / rank as f64;
        total
    });
    let shares: Vec<f64> = shares.collect();
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    let mut builder = RowBuilder::new(schema);
    let mut row = |id: usize| {
        let share = random.below(1 << 40) as f64 / (1_u64 << 40) as f64 * total;
        let name = &names[shares.partition_point(|&sum| sum < share).min(NAMES - 1)];
        let video: Vec<u8> = (0..11).map(|_| letters[random.below(64)]).collect();
        let (year, month, day) = (2006 + random.below(5), 1 + random.below(12), 1 + random.below(28));
        let date = (year << 9 | month << 5 | day) as u32;
        let values = [
            &(id as u32).to_le_bytes()[..],
            name,
            b"",
            &video,
            &date.to_le_bytes()[..3],
        ];
        for (column, value) in values.into_iter().enumerate() {
            builder.set(column, Some(value)).expect("fits its column");
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("every column is set");
        payload
    };
    (1..=ROWS).map(&mut row).collect()
}

/// Seconds of the fastest run.
fn best(mut work: impl FnMut()) -> f64 {
    let runs = (0..RUNS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    runs.fold(f64::INFINITY, f64::min)
}

fn million_rows(seconds: f64) -> f64 {
    SPEED_ROWS as f64 / seconds / 1e6
}

/// All blocks, each with the length of its packed tail.
fn blocks(schema: &Schema, rows: &[Vec<u8>], block_bytes: usize) -> Vec<(Vec<u8>, usize)> {
    let mut builder = RowBlockBuilder::new(schema);
    let mut blocks = Vec::new();
    let mut cut = |builder: &mut RowBlockBuilder| {
        let mut bytes = Vec::new();
        let tail = builder.finish(&mut bytes);
        blocks.push((bytes, tail));
    };
    for (number, payload) in rows.iter().enumerate() {
        builder
            .push(RowId::new(number as u64 + 1), Some(payload))
            .expect("a payload of the schema");
        if builder.raw_bytes() >= block_bytes {
            cut(&mut builder);
        }
    }
    cut(&mut builder);
    blocks
}

type Pack<'a> = Box<dyn FnMut(&[u8]) -> Vec<u8> + 'a>;
type Unpack<'a> = Box<dyn FnMut(&[u8], usize) -> Vec<u8> + 'a>;

/// Zstandard at a level; `dictionary` are bytes of other blocks that it may refer to.
fn zstd<'a>(level: i32, dictionary: &[u8]) -> (Pack<'a>, Unpack<'a>) {
    let mut packer = zstd::bulk::Compressor::with_dictionary(level, dictionary).expect("memory");
    let mut unpacker = zstd::bulk::Decompressor::with_dictionary(dictionary).expect("memory");
    let pack = move |bytes: &[u8]| packer.compress(bytes).expect("memory");
    let unpack = move |bytes: &[u8], len| unpacker.decompress(bytes, len).expect("just compressed");
    (Box::new(pack), Box::new(unpack))
}

fn codecs<'a>(dictionary: &[u8]) -> [(&'static str, (Pack<'a>, Unpack<'a>)); 6] {
    let plain: (Pack<'_>, Unpack<'_>) = (Box::new(<[u8]>::to_vec), Box::new(|bytes, _| bytes.to_vec()));
    let lz4_unpack = |bytes: &[u8], len| lz4_flex::block::decompress(bytes, len).expect("just compressed");
    [
        ("plain", plain),
        ("lz4", (Box::new(lz4_flex::block::compress), Box::new(lz4_unpack))),
        ("zstd-1", zstd(1, &[])),
        ("zstd-3", zstd(3, &[])),
        ("zstd-1 with a dictionary", zstd(1, dictionary)),
        ("zstd-3 with a dictionary", zstd(3, dictionary)),
    ]
}

/// Some 48 KiB of fronts from all over the table.
fn dictionary(all: &[(Vec<u8>, usize)]) -> Vec<u8> {
    let first = all[0].0.len() - all[0].1;
    let count = (48 << 10) / first + 1;
    let some = all.iter().step_by(all.len() / count);
    some.flat_map(|(block, tail)| block[..block.len() - tail].to_vec())
        .collect()
}

fn measure(schema: &Schema, rows: &[Vec<u8>], block_bytes: usize) {
    let all = blocks(schema, rows, block_bytes);
    let raw: usize = rows.iter().map(Vec::len).sum();
    println!(
        "  {} payload bytes a row, {} rows a block",
        raw / ROWS,
        ROWS / all.len()
    );
    let first_rows = &rows[..SPEED_ROWS];
    let encode = million_rows(best(|| drop(blocks(schema, first_rows, block_bytes))));
    let first = blocks(schema, first_rows, block_bytes);
    let decode = best(|| {
        for (block, _) in &first {
            RowBlock::decode(schema, block).expect("just written");
        }
    });
    println!(
        "  encode {encode:.1} M rows/s, decode {:.1} M rows/s",
        million_rows(decode)
    );
    for (name, (mut pack, mut unpack)) in codecs(&dictionary(&all)) {
        let split = |(block, tail): &(Vec<u8>, usize)| block.len() - tail;
        let whole: usize = all.iter().map(|block| pack(&block.0).len()).sum();
        let fronts: Vec<_> = all.iter().map(|block| pack(&block.0[..split(block)])).collect();
        let packed: Vec<_> = first.iter().map(|block| pack(&block.0[..split(block)])).collect();
        let tails: usize = all.iter().map(|block| block.1).sum();
        let front: usize = fronts.iter().map(Vec::len).sum();
        let compress = best(|| {
            for block in &first {
                pack(&block.0[..split(block)]);
            }
        });
        let read = best(|| {
            for (block, front) in first.iter().zip(&packed) {
                let mut bytes = unpack(front, split(block));
                bytes.extend_from_slice(&block.0[split(block)..]);
                RowBlock::decode(schema, &bytes).expect("just written");
            }
        });
        let a_row = |bytes: usize| bytes as f64 / ROWS as f64;
        let (apart, whole) = (a_row(front + tails), a_row(whole));
        let (compress, read) = (million_rows(compress), million_rows(read));
        println!(
            "  {name:24} {apart:6.2} bytes a row ({whole:.2} with the tail); compress {compress:6.1}, read {read:5.1} M rows/s"
        );
    }
}

fn main() {
    let block_bytes = std::env::args().nth(1).and_then(|bytes| bytes.parse().ok());
    let sizes = block_bytes.map_or_else(|| vec![64 << 10, 128 << 10], |bytes| vec![bytes]);
    let schema = table();
    for (what, syllables) in [("names of syllables", true), ("names of random letters", false)] {
        let rows = rows(&schema, syllables);
        for &block_bytes in &sizes {
            println!("{what}, blocks of {} KiB:", block_bytes >> 10);
            measure(&schema, &rows, block_bytes);
        }
    }
}
