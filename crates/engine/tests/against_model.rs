//! Random lives of several sessions against a model: every answer, every error, every way of reading.
//!
//! A failure names its seed; `PBXT_SEED=<seed> cargo test -p pbxt --test against_model one_life` plays it again. `PBXT_LIVES` gives the number of lives.

use pbxt_sim::world::{Stop, World};
use pbxt_testkit::SimDisk;

const OPERATIONS: u64 = 400;

fn live(seed: u64) {
    let mut world = World::new(SimDisk::new(), seed);
    let played = world.open().and_then(|()| world.play(OPERATIONS)).and_then(|()| {
        world.close()?;
        world.open()
    });
    match played {
        Ok(()) => {}
        Err(Stop::Wrong(difference)) => panic!(
            "seed {seed}: {difference}\nagain: PBXT_SEED={seed} cargo test -p pbxt --test against_model one_life"
        ),
        Err(stop) => panic!("seed {seed}: {stop:?}"),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_lives_agree_with_the_model() {
    for seed in 0..number("PBXT_LIVES").unwrap_or(300) {
        live(seed);
    }
}

#[test]
fn one_life() {
    live(number("PBXT_SEED").unwrap_or(1_000_000));
}
