//! pbxt-sim: plays random lives of a database with power cuts at every write and sync, and checks what is left; or histories of
//! concurrent transactions, and checks what they saw of each other; or storage lives, in which everything happens together.

use clap::{Parser, ValueEnum};
use pbxt::{ConflictMode, Isolation};
use pbxt_sim::crash::{Looked, one_cut, power_cuts};
use pbxt_sim::history::{Levels, Played, play};
use pbxt_sim::storage_runs::{Run, play_lives};
use std::ffi::c_int;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Plays random transactions on a simulated disk, cuts the power before every write, sync, creation and removal, twice in
/// each life, and compares what a restart finds with what was acknowledged. With --histories: plays concurrent transactions
/// and searches what they saw for what their isolation level forbids. With --storage or --forever: plays lives in which statements,
/// definitions, loads, constraints, votes, old snapshots, background work, power cuts and damage come together.
#[derive(Debug, Parser)]
#[command(name = "pbxt-sim", version)]
struct Arguments {
    /// First life or history; the same number plays the same ones again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Databases to open after a power cut
    #[arg(long, default_value_t = 500)]
    states: u64,
    /// Play only the life of this seed, with the power cut before this operation of the disk
    #[arg(long)]
    cut: Option<u64>,
    /// Histories of 500 transactions to play on each level, instead of lives
    #[arg(long, overrides_with = "histories")]
    histories: Option<u64>,
    /// Storage lives to play, one for each seed, instead of lives
    #[arg(long)]
    storage: Option<u64>,
    /// Plays storage lives until it is interrupted or one fails, and tells every minute how many
    #[arg(long)]
    forever: bool,
    /// Storage lives at a time; the number of processors if none is given
    #[arg(long)]
    jobs: Option<usize>,
    /// Only this isolation level
    #[arg(long, value_enum)]
    level: Option<LevelName>,
    /// Only this conflict mode
    #[arg(long, value_enum, ignore_case = true)]
    conflict: Option<ConflictName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LevelName {
    ReadCommitted,
    RepeatableRead,
    Serializable,
    /// Each transaction draws its own
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConflictName {
    Error,
    Wait,
}

impl Arguments {
    /// The levels asked for. READ COMMITTED knows no conflict mode.
    fn levels(&self) -> Vec<Levels> {
        let is_asked = |levels: &Levels| {
            let (name, conflict) = named(*levels);
            self.level.is_none_or(|asked| asked == name)
                && self
                    .conflict
                    .is_none_or(|asked| conflict.is_none_or(|conflict| conflict == asked))
        };
        Levels::all().filter(is_asked).collect()
    }
}

fn named(levels: Levels) -> (LevelName, Option<ConflictName>) {
    let Levels::One(level) = levels else {
        return (LevelName::Mixed, None);
    };
    let conflict = if level.conflict == ConflictMode::Wait {
        ConflictName::Wait
    } else {
        ConflictName::Error
    };
    match level.isolation {
        Isolation::ReadCommitted => (LevelName::ReadCommitted, None),
        Isolation::RepeatableRead => (LevelName::RepeatableRead, Some(conflict)),
        Isolation::Serializable => (LevelName::Serializable, Some(conflict)),
    }
}

/// Histories of one kind in which everything happens that must (rule H11).
const HISTORIES_WITH_ALL: u64 = 20;

/// Plays histories on every level asked for; true if nothing is wrong.
fn histories(arguments: &Arguments, count: u64) -> bool {
    let shows = std::io::stderr().is_terminal();
    for levels in arguments.levels() {
        let started = Instant::now();
        let progress = |played: &Played| {
            if shows {
                eprint!("\r{} transactions", played.txns);
                let _ = std::io::stderr().flush();
            }
        };
        let played = match play(arguments.seed, count, levels, progress) {
            Ok(played) => played,
            Err(wrong) => {
                eprintln!("{}", wrong.text);
                return false;
            }
        };
        tell(levels, &played, started.elapsed().as_secs_f64());
        if let Some(missing) = played.missing(levels).filter(|_| count >= HISTORIES_WITH_ALL) {
            eprintln!(
                "{}: too calm to find anything: there were no {missing} in {count} histories from seed {} on. Change the mix \
                 of pbxt-sim, or play more of them.",
                levels.options(),
                arguments.seed
            );
            return false;
        }
    }
    true
}

fn tell(levels: Levels, played: &Played, seconds: f64) {
    println!(
        "{} transactions show nothing that their level forbids, {} ({} committed; {} waits inside the engine, of which {} \
         reached their limit, {} outside; {} deadlocks found, {} circles broken; {} statements failed, {} transactions refused; {} rows moved; {seconds:.1} s)",
        played.txns,
        levels.options(),
        played.committed,
        played.waits_in_place,
        played.timeouts,
        played.waits,
        played.deadlocks,
        played.circles,
        played.failed,
        played.refused,
        played.homed,
    );
}

/// Set by an interrupt.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Between two reports of a run without end.
const REPORT: Duration = Duration::from_mins(1);

extern "C" fn interrupted(_: c_int) {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
}

/// The next interrupt ends the run in order; the one after it ends the process.
fn await_interrupt() {
    let handler = interrupted as extern "C" fn(c_int);
    // SAFETY: a zeroed `sigaction` is one without flags and with an empty mask, and the handler only stores to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
    }
}

/// Plays storage lives; true if nothing is wrong.
fn storage(arguments: &Arguments) -> bool {
    let workers = arguments
        .jobs
        .unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    let count = if arguments.forever {
        u64::MAX
    } else {
        arguments.storage.unwrap_or_default()
    };
    if arguments.forever {
        await_interrupt();
    }
    let mut reported = Duration::ZERO;
    let mut tell = |run: &Run| {
        if arguments.forever && run.took >= reported + REPORT {
            reported = run.took;
            println!(
                "{} seeds in {:.0} min, {:.0} seeds a minute",
                run.done.lives,
                run.took.as_secs_f64() / 60.0,
                run.per_minute()
            );
        }
    };
    let is_interrupted = || IS_INTERRUPTED.load(Ordering::Relaxed);
    let run = play_lives(arguments.seed, count, workers, &is_interrupted, &mut tell);
    if let Some(wrong) = &run.wrong {
        eprintln!("{}\n{} lives before it were right", wrong.text, run.done.lives);
        return false;
    }
    tell_storage(&run);
    true
}

fn tell_storage(run: &Run) {
    let done = &run.done;
    println!(
        "{} storage lives agree with the model ({} statements and ends, {} refused; {} loads, {} changes of definitions, {} votes, \
         {} rows acted on; {} restarts, {} failures of the disk; {} reads by old snapshots, {} rows left the log, {} KiB merged; \
         {} damages, {} refusals that named a file; {:.0} s, {:.0} seeds a minute)",
        done.lives,
        done.deeds,
        done.refused,
        done.loads,
        done.schema_changes,
        done.votes,
        done.acted,
        done.restarts,
        done.broken,
        done.old_reads,
        done.homed,
        done.merged >> 10,
        done.damages,
        done.noticed,
        run.took.as_secs_f64(),
        run.per_minute(),
    );
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.forever || arguments.storage.is_some() {
        return if storage(&arguments) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if let Some(count) = arguments.histories {
        return if histories(&arguments, count) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
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
