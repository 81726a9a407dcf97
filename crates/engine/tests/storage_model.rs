//! Random lives of several sessions against a model while rows move: homed by the compactor, merged, read from runs.
//!
//! After a step the log is made to begin at the floor, so whatever still needed a version below it would miss it. A failure
//! names its seed; `PBXT_SEED=<seed> cargo test -p pbxt --test storage_model one_moving_life` plays it again.

use pbxt::{Database, Progress, Result};
use pbxt_sim::world::{Stop, World};
use pbxt_testkit::{Rng, SimDisk};

const OPERATIONS: u64 = 400;

/// What the lives of a test did in all.
#[derive(Debug, Default)]
struct Totals {
    homed: u64,
    merged: u64,
    floor: u64,
}

/// One random step of background work.
fn background(db: &Database, dice: &mut Rng) -> Result<Progress> {
    match dice.below(12) {
        0..4 => {
            let done = db.compact_step()?;
            if dice.chance(50) {
                db.flush()?;
                db.log().set_start(db.log_floor());
            }
            Ok(done)
        }
        4..6 => db.row_merge_step(),
        6..8 => db.index_merge_step(),
        8 if dice.chance(50) => db.gone_step(),
        8 => db.settle_tags_step(),
        9 => db.checkpoint_step().map(|()| Progress::Worked),
        10 => {
            let steps = dice.below(8);
            let done = db.compact(|compaction| compaction.steps < steps)?;
            Ok(if done { Progress::Idle } else { Progress::Worked })
        }
        _ => db.upkeep_step(true),
    }
}

fn live(seed: u64, operations: u64, totals: &mut Totals) {
    let again = format!("again: PBXT_SEED={seed} cargo test -p pbxt --test storage_model one_moving_life");
    let mut world = World::new(SimDisk::new(), seed);
    let mut dice = Rng::new(!seed);
    let told = |stop: Stop| match stop {
        Stop::Wrong(difference) => panic!("seed {seed}: {difference}\n{again}"),
        stop => panic!("seed {seed}: {stop:?}\n{again}"),
    };
    world.open().unwrap_or_else(told);
    for _ in 0..operations {
        world.step().unwrap_or_else(told);
        if dice.below(150) == 0 {
            // What was acknowledged is there, whatever had been moved.
            world.crash(dice.next_u64());
            world.open().unwrap_or_else(told);
        }
        let db = std::sync::Arc::clone(world.db());
        if dice.chance(20) {
            if let Err(error) = background(&db, &mut dice) {
                panic!("seed {seed}: {error}\n{again}");
            }
            let counters = db.upkeep_counters();
            totals.homed = totals.homed.max(counters.rows_homed.get());
            totals.merged = totals.merged.max(counters.merge_bytes_written.get());
            totals.floor = totals.floor.max(db.log_floor().raw());
        }
    }
    world.close().unwrap_or_else(told);
    world.open().unwrap_or_else(told);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_lives_agree_with_the_model_while_rows_move() {
    let mut totals = Totals::default();
    for seed in 0..number("PBXT_LIVES").unwrap_or(200) {
        live(seed, OPERATIONS, &mut totals);
    }
    assert!(
        totals.homed > 20 && totals.merged > 0 && totals.floor > 3 * 32 * 1024,
        "the lives moved few rows: {totals:?}"
    );
}

#[test]
fn one_moving_life() {
    live(
        number("PBXT_SEED").unwrap_or(1_000_000),
        1500,
        &mut Totals::default(),
    );
}
