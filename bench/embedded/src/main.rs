//! pbxt-compare: one embedded store, the whole workload, once.
//!
//! Why it exists: a store in a process of its own has its own memory and processor time. `bench/compare` starts this program for each
//! store in turn, round by round, and makes one report of all.

mod meters;
mod pairs;
mod report;
mod store;
mod stores;
mod workload;

use clap::Parser;
use pairs::Pairs;
use report::Totals;
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Budget, Result};
use workload::{Measure, Sizes, Workload};

/// Plays one workload with one embedded store: PBXT's library, RocksDB, LMDB, SQLite, redb or fjall.
///
/// Pairs of a key of 24 random bytes and a value of random bytes are loaded, written one by one, in batches, and without syncing;
/// read at random, in ranges and by threads; every second one is removed; then the store is compacted, closed and opened. Every
/// value that is read is compared with what was written, and rows are counted: a wrong answer ends the program with status 1.
///
/// `bench/compare` runs all stores in turn and reports medians and ratios. By itself the program is good for a profile:
///
///   perf record -g target/release/pbxt-compare PBXT --rows 200000
#[derive(Debug, Parser)]
#[command(name = "pbxt-compare", version, verbatim_doc_comment)]
struct Arguments {
    /// The store: PBXT, RocksDB, LMDB, SQLite, redb or fjall; without it, those there are are listed
    store: Option<String>,
    /// Pairs of the bulk load
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Transactions of one pair, each synced
    #[arg(long, default_value_t = 1_000)]
    singles: u64,
    /// Transactions of 1000 pairs, each synced
    #[arg(long, default_value_t = 100)]
    batches: u64,
    /// Transactions of one pair that need not be on disk when they return
    #[arg(long, default_value_t = 50_000)]
    relaxed: u64,
    /// Reads of one pair by one thread, and by 4 and by 8 threads together
    #[arg(long, default_value_t = 1_000_000)]
    reads: u64,
    /// Reads of ten pairs in order
    #[arg(long, default_value_t = 200_000)]
    ranges: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 150)]
    value_bytes: usize,
    /// MiB of all caches and write buffers together, where the store lets itself be told
    #[arg(long, default_value_t = 256)]
    cache_mib: u64,
    /// Seed of the pairs
    #[arg(long, default_value_t = 3)]
    seed: u64,
    /// Directory of the store: it must not be there yet, and is removed at the end
    #[arg(long, default_value = "build/bench/compare-one")]
    directory: PathBuf,
    /// Leave the files in place
    #[arg(long)]
    keep: bool,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// Pairs of a batch, and of a range.
const BATCH_ROWS: u64 = 1_000;
const RANGE_ROWS: u64 = 10;
const THREADS: [u32; 2] = [4, 8];

impl Arguments {
    fn sizes(&self) -> Sizes {
        Sizes {
            rows: self.rows,
            singles: self.singles,
            batches: self.batches,
            batch_rows: BATCH_ROWS,
            relaxed: self.relaxed,
            reads: self.reads,
            ranges: self.ranges,
            range_rows: RANGE_ROWS,
            threads: THREADS.to_vec(),
        }
    }

    fn budget(&self) -> Budget {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        Budget {
            bytes: self.cache_mib << 20,
            threads,
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.store else {
        for (name, _) in stores::ALL {
            println!("{name}");
        }
        return Ok(());
    };
    let (name, open) = stores::find(name)?;
    if arguments.rows == 0 || arguments.value_bytes == 0 {
        return Err("--rows and --value-bytes must be at least 1".into());
    }
    let directory = &arguments.directory;
    if directory.exists() {
        let path = directory.display();
        return Err(format!("{path} is there already: remove it, or name another --directory").into());
    }
    std::fs::create_dir_all(directory)?;
    let played = play(arguments, name, &|| open(directory, arguments.budget()));
    if !arguments.keep {
        std::fs::remove_dir_all(directory)?;
    }
    played
}

fn play(arguments: &Arguments, name: &str, open: workload::Opening<'_, '_>) -> Result<()> {
    let store = open()?;
    let about = store.about();
    store.close()?;
    if arguments.json {
        println!("{}", report::about_json(name, &about));
    } else {
        println!("{name} {}: {}", about.version, about.memory);
    }
    let mut tell = |measure: &Measure| {
        if arguments.json {
            println!("{}", report::measure_json(measure));
        } else {
            println!("{}", report::measure_text(measure));
        }
    };
    Workload {
        pairs: Pairs::new(arguments.seed, arguments.value_bytes),
        sizes: &arguments.sizes(),
        directory: &arguments.directory,
        tell: &mut tell,
    }
    .play(open)?;
    let totals = Totals {
        cpu_seconds: meters::cpu_seconds()?,
        peak_bytes: meters::peak_bytes()?,
        written_bytes: meters::written_bytes()?,
    };
    if arguments.json {
        println!("{}", report::totals_json(&totals));
    } else {
        println!("{}", report::totals_text(&totals));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pbxt-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
