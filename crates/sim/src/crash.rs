//! Crash: whole lives with power cuts, full disks and failing disks, each checked against the history.
//!
//! Why it exists: D6 and D9 speak of every moment. A life is played once to count the operations of its disk, then again for
//! each of them with the power cut right before it; unsynced sectors and names survive in subsets drawn for each file by
//! itself. What a restart finds must be a state of the history that is not older than the last acknowledged one. Then the
//! life goes on, and the power fails a second time.
//! Rules held: every life is played from two numbers, which a report of a failure names.

use crate::world::{Stop, World};
use pbxt_testkit::{Fault, Rng, SimDisk};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Operations of a life before the first cut.
const FIRST: u64 = 100;
/// Operations between the first and the second cut.
const SECOND: u64 = 50;

/// What a run looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked {
    /// Databases opened after a power cut.
    pub states: u64,
    /// Lives they are from.
    pub lives: u64,
    /// Power cuts that came while a database was being opened.
    pub cut_again: u64,
}

/// Cuts the power at every operation of one life after the other until so many states have been looked at.
///
/// # Errors
/// The first difference, with the numbers that play it again.
pub fn power_cuts(seed: u64, states: u64, planted: &[Fault]) -> Result<Looked, String> {
    let mut looked = Looked::default();
    while looked.states < states {
        let life = seed + looked.lives;
        let operations = count_operations(life)?;
        for cut in 0..=operations {
            if looked.states >= states {
                break;
            }
            let found = catch_unwind(AssertUnwindSafe(|| one_cut(life, cut, planted, &mut looked)));
            let answer = found.unwrap_or_else(|_| Err("the engine panicked".into()));
            answer.map_err(|difference| {
                format!("life {life}, power cut before operation {cut} of {operations}: {difference}\nagain: pbxt-sim --seed {life} --cut {cut}")
            })?;
        }
        looked.lives += 1;
    }
    Ok(looked)
}

/// Plays one life with one cut.
///
/// # Errors
/// What differs.
pub fn one_cut(life: u64, cut: u64, planted: &[Fault], looked: &mut Looked) -> Result<(), String> {
    let mut rng = Rng::new(life ^ (cut << 32));
    let mut world = World::new(SimDisk::new(), life);
    for fault in planted {
        world.plant(fault.clone());
    }
    world.cut_power_at(cut);
    until_the_end(world.open().and_then(|()| world.play(FIRST)))?;
    come_back(&mut world, &mut rng, looked)?;
    world.cut_power_at(world.disk.operations() + rng.below(60));
    until_the_end(world.play(SECOND))?;
    come_back(&mut world, &mut rng, looked)?;
    until_the_end(world.play(SECOND))?;
    world.close().and_then(|()| world.open()).map_err(difference)
}

fn count_operations(life: u64) -> Result<u64, String> {
    let mut world = World::new(SimDisk::new(), life);
    world
        .open()
        .and_then(|()| world.play(FIRST))
        .map_err(difference)?;
    Ok(world.disk.operations())
}

/// Crashes and opens; now and then the power fails during that too.
fn come_back(world: &mut World, rng: &mut Rng, looked: &mut Looked) -> Result<(), String> {
    loop {
        world.crash(rng.next_u64());
        if rng.chance(20) {
            world.cut_power_at(rng.below(12));
        }
        match world.open() {
            Ok(()) => {
                looked.states += 1;
                world.cut_power_at(u64::MAX);
                return Ok(());
            }
            Err(Stop::PowerOff) => looked.cut_again += 1,
            Err(stop) => return Err(difference(stop)),
        }
    }
}

fn until_the_end(played: Result<(), Stop>) -> Result<(), String> {
    match played {
        Ok(()) | Err(Stop::PowerOff) => Ok(()),
        Err(stop) => Err(difference(stop)),
    }
}

fn difference(stop: Stop) -> String {
    match stop {
        Stop::Wrong(difference) => difference,
        Stop::Broken(why) => format!("the engine says that the disk failed: {why}"),
        Stop::PowerOff => "the power is off where it should not be".into(),
    }
}

/// Plays a life on a disk with so many bytes left: refusals are ordinary, commits and deletes work, and with more space the
/// life goes on. Answers how many operations were refused.
///
/// # Errors
/// What differs.
pub fn full_disk(life: u64, free_bytes: u64) -> Result<u64, String> {
    let mut world = World::new(SimDisk::new(), life);
    world
        .open()
        .and_then(|()| world.play(FIRST))
        .map_err(difference)?;
    world.may_be_full = true;
    world.disk.set_free_bytes(Some(free_bytes));
    match world.play(2 * FIRST) {
        Ok(()) => {}
        // A restart needs a segment of its own.
        Err(Stop::Broken(_)) => {
            world.kill();
            world.disk.set_free_bytes(None);
            world.open().map_err(difference)?;
        }
        Err(stop) => return Err(difference(stop)),
    }
    world.disk.set_free_bytes(None);
    world.may_be_full = false;
    world.play(FIRST).map_err(difference)?;
    world.close().and_then(|()| world.open()).map_err(difference)?;
    Ok(world.refused)
}

/// Plays a life on a disk of which one write or sync fails. The engine must say so and accept nothing more, and a restart
/// must find everything acknowledged. Answers whether the fault was met.
///
/// # Errors
/// What differs.
pub fn failing_disk(life: u64, fault: Fault, power_fails_too: bool) -> Result<bool, String> {
    let mut world = World::new(SimDisk::new(), life);
    world
        .open()
        .and_then(|()| world.play(FIRST / 2))
        .map_err(difference)?;
    world.may_break = true;
    world.disk.plant(fault);
    let broken = match world.play(4 * FIRST) {
        Ok(()) => false,
        Err(Stop::Broken(_)) => true,
        Err(stop) => return Err(difference(stop)),
    };
    if broken && let Err(stop) = world.refuses_changes() {
        return Err(difference(stop));
    }
    world.may_break = false;
    if power_fails_too {
        world.crash(life);
    } else {
        world.kill();
    }
    world
        .open()
        .and_then(|()| world.play(FIRST))
        .map_err(difference)?;
    world.close().and_then(|()| world.open()).map_err(difference)?;
    Ok(broken)
}
