//! pbxt-sim: plays random lives of a database with power cuts at every write and sync, and checks what is left.

use clap::Parser;
use pbxt_sim::crash::{Looked, one_cut, power_cuts};
use std::process::ExitCode;
use std::time::Instant;

/// Plays random transactions on a simulated disk, cuts the power before every write, sync, creation and removal, twice in
/// each life, and compares what a restart finds with what was acknowledged.
#[derive(Debug, Parser)]
#[command(name = "pbxt-sim", version)]
struct Arguments {
    /// First life; the same number plays the same lives again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Databases to open after a power cut
    #[arg(long, default_value_t = 500)]
    states: u64,
    /// Play only the life of this seed, with the power cut before this operation of the disk
    #[arg(long)]
    cut: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Instant::now();
    let mut looked = Looked::default();
    let result = match arguments.cut {
        Some(cut) => one_cut(arguments.seed, cut, &[], &mut looked).map(|()| looked),
        None => power_cuts(arguments.seed, arguments.states, &[]),
    };
    match result {
        Ok(looked) => {
            println!(
                "{} states after power cuts agree with what was acknowledged ({} lives, {} cuts during recovery, {:.1} s)",
                looked.states,
                looked.lives,
                looked.cut_again,
                started.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(difference) => {
            eprintln!("{difference}");
            ExitCode::FAILURE
        }
    }
}
