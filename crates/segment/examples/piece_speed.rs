//! Measures piece files and the block cache on a real directory: writing, opening, reading, hits.
//!
//! usage: `cargo run --release -p pbxt-segment --example piece_speed -- DIRECTORY` (an empty one, left empty)

use pbxt_base::Result;
use pbxt_io::OsDisk;
use pbxt_segment::{
    BlockCache, BlockKey, CachedBlock, Codec, Geometry, OpenMode, PieceFile, PieceWriter, SegmentClass,
    SegmentStore,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const BLOCKS: u32 = 4096;
const BLOCK: usize = 16 << 10;
const CLASS: SegmentClass = SegmentClass::Cold;

struct Bytes(Vec<u8>);

impl CachedBlock for Bytes {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn timed<R>(what: &str, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let start = Instant::now();
    let result = work()?;
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(BLOCKS);
    println!(
        "{what}: {each:.2} us a block, {:.0} MiB/s",
        BLOCK as f64 / 1.048_576 / each
    );
    Ok(result)
}

/// Rows of rising numbers and few different words: what a table compresses like.
fn content(block: u32) -> Vec<u8> {
    let row = |at: u32| {
        let number = block * 256 + at;
        format!(
            "{number:010}{:018}customer name {:012}",
            number % 17,
            number % 101
        )
    };
    let mut raw: String = (0..300).map(row).collect();
    raw.truncate(BLOCK);
    raw.into_bytes()
}

fn codec(store: &Arc<SegmentStore>, cache: &BlockCache, codec: Codec, blocks: &[Vec<u8>]) -> Result<()> {
    println!("{codec:?}");
    let id = timed("  write and make durable", || {
        let mut writer = PieceWriter::create(store, CLASS)?;
        writer.begin_section(1, 1);
        for (number, raw) in blocks.iter().enumerate() {
            writer.push_block(format!("{number:016}").as_bytes(), 300, raw, codec)?;
        }
        writer.end_section(b"", b"");
        println!(
            "  stored: {} of {} bytes",
            writer.section_bytes(),
            blocks.len() * BLOCK
        );
        writer.finish()
    })?;
    let piece = timed("  open", || PieceFile::open(store, CLASS, id))?;
    println!("  memory for fences: {} bytes", piece.memory_bytes());
    let mut out = Vec::new();
    // Every block once, far from the one before.
    let order: Vec<usize> = (0..blocks.len()).map(|at| at * 1597 % blocks.len()).collect();
    timed("  read one by one", || {
        order
            .iter()
            .try_for_each(|block| piece.read_block(0, *block, &mut out))
    })?;
    timed("  read ahead", || {
        let (mut from, section) = (0, piece.section(0)?);
        while from < section.block_count() {
            let ahead = piece.read_blocks_ahead(0, from, section.blocks_within(from, 512 << 10))?;
            ahead
                .blocks()
                .try_for_each(|block| ahead.decode(block, &mut out))?;
            from = ahead.blocks().end;
        }
        Ok(())
    })?;
    timed("  verify", || piece.verify())?;
    for what in ["  first through the cache", "  hit in the cache"] {
        timed(what, || {
            order.iter().try_for_each(|block| {
                let key = BlockKey {
                    class: CLASS,
                    segment: id,
                    offset: piece.section(0)?.block_offset(*block),
                };
                let load = || {
                    let mut raw = Vec::new();
                    piece.read_block(0, *block, &mut raw).map(|()| Bytes(raw))
                };
                cache.get_or_load(key, load).map(drop)
            })
        })?;
    }
    cache.forget_segment(CLASS, id);
    Ok(())
}

fn run(directory: &Path) -> Result<()> {
    let mode = OpenMode {
        create: Some(Geometry::default()),
        read_only: false,
        new_uuid: 1,
        now: 0,
    };
    let store = Arc::new(SegmentStore::open(
        Arc::new(OsDisk::open(directory, true)?),
        mode,
    )?);
    let cache = BlockCache::new(256 << 20);
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(content).collect();
    for each in [Codec::Plain, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(3)] {
        codec(&store, &cache, each, &blocks)?;
    }
    Ok(())
}

fn main() {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: piece_speed DIRECTORY");
        std::process::exit(2);
    };
    let directory = Path::new(&directory).join("pieces");
    let result = run(&directory);
    // Whatever was made goes away again; a part that was never made is no failure.
    let _ = std::fs::remove_dir_all(&directory);
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
