//! Measures how the blocks of a large file are best read: in order and at random, through the page cache and past it.
//!
//! usage: `cargo run --release -p pbxt-io --example block_reads -- DIRECTORY [MIB]` (a directory to make a file in)

use pbxt_base::Result;
use pbxt_io::{DirectIo, Disk, DiskFile, OsDisk, ReadRequest};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a block of rows, compressed, about.
const BLOCK: usize = 30 << 10;
const RANDOM_READS: usize = 4096;
const NAME: &str = "block-reads.tmp";

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn write(disk: &OsDisk, bytes: u64) -> Result<()> {
    let file = disk.create(NAME, 0)?;
    let mut part = vec![0_u8; 1 << 20];
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for at in 0..bytes >> 20 {
        part.iter_mut()
            .step_by(8)
            .for_each(|byte| *byte = next(&mut seed) as u8);
        file.write_at(&part, at << 20)?;
    }
    // Durable now: the file. Without it the system could not drop its pages.
    file.sync_data()
}

/// Empties the page cache of the file.
fn cool(directory: &Path) -> Result<()> {
    let direct = OsDisk::open(directory, false)?.with_direct_io(DirectIo::Auto);
    direct.open_blocks(NAME).map(|_| ())
}

fn report(what: &str, bytes: u64, reads: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "  {what}: {:.0} MiB/s, {:.1} us a read",
        bytes as f64 / 1_048_576.0 / seconds,
        seconds * 1e6 / reads as f64
    );
}

fn in_order(what: &str, file: &dyn DiskFile, bytes: u64, depth: usize, each: usize) -> Result<()> {
    let mut buf = vec![0; each * depth];
    let reads = bytes as usize / each / depth;
    let start = Instant::now();
    for read in 0..reads {
        let place = |(number, buf)| ReadRequest {
            offset: ((read * depth + number) * each) as u64,
            buf,
        };
        let mut requests: Vec<_> = buf.chunks_mut(each).enumerate().map(place).collect();
        file.read_many(&mut requests)?;
    }
    let what = format!("{what}, in order, {depth} times {} KiB", each >> 10);
    report(&what, bytes, reads * depth, start);
    Ok(())
}

fn at_random(what: &str, file: &dyn DiskFile, bytes: u64, depth: usize) -> Result<()> {
    let mut buf = vec![0; BLOCK * depth];
    let mut seed = 0x1234_5678_9abc_def1;
    let blocks = bytes / BLOCK as u64;
    let start = Instant::now();
    for _ in 0..RANDOM_READS / depth {
        let place = |buf| ReadRequest {
            offset: next(&mut seed) % blocks * BLOCK as u64,
            buf,
        };
        let mut requests: Vec<_> = buf.chunks_mut(BLOCK).map(place).collect();
        file.read_many(&mut requests)?;
    }
    let read = (RANDOM_READS * BLOCK) as u64;
    report(
        &format!("{what}, at random, {depth} at once"),
        read,
        RANDOM_READS,
        start,
    );
    Ok(())
}

fn measure(directory: &Path, disk: &OsDisk, temperature: &str, bytes: u64) -> Result<()> {
    let file = disk.open_blocks(NAME)?;
    println!(" {}, {temperature}", disk.block_reads());
    let heat = || {
        if temperature == "cold" {
            // Disks behind a limiter give back what they were spared.
            std::thread::sleep(Duration::from_secs(2));
            cool(directory)
        } else {
            Ok(())
        }
    };
    if temperature == "warm" {
        in_order("warming", &*file, bytes, 1, 1 << 20)?;
    }
    for (depth, each) in [
        (1, BLOCK),
        (1, 256 << 10),
        (1, 1 << 20),
        (4, 256 << 10),
        (8, 128 << 10),
    ] {
        heat()?;
        in_order("one file", &*file, bytes, depth, each)?;
    }
    for depth in [1, 8, 32] {
        heat()?;
        at_random("blocks of 30 KiB", &*file, bytes, depth)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory");
    let directory = Path::new(&directory);
    let bytes = arguments
        .next()
        .map_or(1024, |mib| mib.parse().expect("a number of MiB"))
        << 20;
    let plain = OsDisk::open(directory, true)?.with_direct_io(DirectIo::Off);
    let direct = OsDisk::open(directory, true)?;
    if !plain.exists(NAME)? {
        write(&plain, bytes)?;
    }
    for round in 1..=3 {
        println!("round {round}");
        for (disk, temperature) in [(&direct, "cold"), (&plain, "cold"), (&plain, "warm")] {
            measure(directory, disk, temperature, bytes)?;
        }
    }
    plain.remove(NAME)
}
