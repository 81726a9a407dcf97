//! pbxt-paths: one hot path of the engine at a time, so often that its cost can be counted.
//!
//! Why it exists: whether a change makes a statement dearer is not seen in times of a machine that does other things too. Counted
//! instructions say it, if a program does one thing, without background work, the same each time. `scripts/hot_paths.py` counts them
//! under valgrind and compares them with what is recorded.

mod paths;
mod scene;

use clap::Parser;
use paths::{ALL, HotPath, measured};
use pbxt::{Error, Result};
use scene::Scene;
use std::process::ExitCode;
use std::time::Instant;

/// As in the plugin: what memory costs is part of a path.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Does one thing with a table of rows many times, as a host does it, and says how long one took. Under
/// `valgrind --tool=callgrind --toggle-collect='*paths::measured*'` exactly these operations are counted.
#[derive(Debug, Parser)]
#[command(name = "pbxt-paths", version)]
struct Arguments {
    /// What to do; without it, what can be done is listed
    path: Option<String>,
    /// How often; without it, as often as the path is usually counted
    #[arg(long)]
    operations: Option<u32>,
}

fn play(path: &HotPath, operations: u32) -> Result<()> {
    let mut scene = Scene::new(path.rows)?;
    path.warm_up(&mut scene)?;
    let began = Instant::now();
    measured(path, &mut scene, operations)?;
    let nanoseconds = began.elapsed().as_nanos() / u128::from(operations.max(1));
    println!("{} {operations} operations, {nanoseconds} ns each", path.name);
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.path else {
        for path in ALL {
            println!("{} {} {}", path.name, path.operations, path.what);
        }
        return Ok(());
    };
    let known = ALL.iter().find(|path| path.name == name.as_str());
    let path = known.ok_or_else(|| {
        Error::Invalid(format!(
            "there is no path '{name}': without arguments the program lists those there are"
        ))
    })?;
    play(path, arguments.operations.unwrap_or(path.operations))
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pbxt-paths: {error}");
            ExitCode::FAILURE
        }
    }
}
