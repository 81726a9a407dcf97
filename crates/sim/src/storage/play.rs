//! Play: a whole life from one number: stretches with a trouble each, an end to each stretch, a restart, and a last look.
//!
//! Why it exists: what one part of the engine leaves behind, another one finds; so DDL, loads, constraints, votes, snapshots and
//! background work happen together, and the power fails in the midst of them.
//! Rules: SM1 to SM9 of docs/testing.md.

use crate::storage::life::{Done, Life, Step, Stop, Trouble};
use pbxt_testkit::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps of a stretch, at least; up to twice as many.
const STEPS: u64 = 30;
/// Beginnings of the names of files that faults are planted in.
const FILES: [&str; 6] = ["hot-", "blob-", "cold-", "meta-", "pbxt.manifest", ""];

/// What is wrong, and how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Steps that led to it, and the difference.
    pub text: String,
}

/// Plays the life of a seed.
///
/// # Errors
/// What differs.
pub fn play_life(seed: u64) -> Result<Done, Wrong> {
    let mut life = Life::new(seed);
    let played = catch_unwind(AssertUnwindSafe(|| life.whole()));
    let stop = match played {
        Ok(Ok(())) => None,
        Ok(Err(stop)) => Some(stop),
        Err(_) => Some(life.wrong("the engine panicked")),
    };
    let why = match stop {
        None => {
            life.done.footprint = life.disk.footprint();
            return Ok(life.done);
        }
        Some(Stop::Wrong(text)) => text,
        Some(Stop::Broken(why)) => format!("the engine says that the disk failed: {why}"),
        Some(Stop::PowerOff) => "the power is off where it should not be".into(),
    };
    let text = format!("seed {seed}: {why}\nagain: pbxt-sim --storage 1 --seed {seed}");
    Err(Wrong { text })
}

/// As `play_life`, with a fault planted in the engine.
///
/// # Errors
/// What differs: the fault was noticed.
#[cfg(feature = "planted-faults")]
pub fn play_life_planted(seed: u64, fault: &'static str) -> Result<Done, Wrong> {
    let _planted = pbxt_base::planted::plant(fault);
    play_life(seed)
}

impl Life {
    fn whole(&mut self) -> Step {
        self.open()?;
        self.create_first()?;
        for _ in 0..2 + self.rng.below(3) {
            self.stretch()?;
        }
        self.close()?;
        self.damage_copies()?;
        self.open()?;
        if self.rng.chance(50) {
            return self.nothing_is_left();
        }
        self.damaged_end()
    }

    /// Some steps in some trouble, an end, a restart.
    fn stretch(&mut self) -> Step {
        self.meet_trouble();
        let steps = STEPS + self.rng.below(STEPS);
        let played = self
            .play(steps)
            .and_then(|()| self.room_again())
            .and_then(|()| self.look_at_all());
        match played {
            Ok(()) => self.end()?,
            Err(Stop::PowerOff) => self.crash(),
            Err(Stop::Broken(_)) => self.break_off(),
            Err(wrong) => return Err(wrong),
        }
        self.come_back()?;
        if self.rng.chance(40) {
            return self.tidy();
        }
        Ok(())
    }

    /// What the medium does wrong in this stretch.
    fn meet_trouble(&mut self) {
        let prefix = FILES[self.rng.below(FILES.len() as u64) as usize].to_owned();
        let nth = 1 + self.rng.below(60);
        match self.rng.below(10) {
            0..4 => {
                let operation = self.disk.operations() + self.rng.below(300);
                self.note(format!("the power fails before operation {operation}"));
                self.disk.cut_power_at(operation);
            }
            4 => {
                let bytes = self.rng.below(400 << 10);
                self.note(format!("{bytes} bytes are free"));
                self.disk.set_free_bytes(Some(bytes));
                self.trouble.full = true;
            }
            5 => self.plant(Fault::FailWrite { prefix, nth }),
            6 => self.plant(Fault::FailSync { prefix, nth }),
            7 => self.plant(Fault::FailRead { prefix, nth }),
            8 => {
                self.note("the disk is slow".into());
                let millis = 1 + self.rng.below(3000);
                self.disk.slow_down(&self.clock, millis);
            }
            _ => {}
        }
    }

    fn plant(&mut self, fault: Fault) {
        self.note(format!("{fault:?}"));
        self.trouble.breaks = true;
        self.disk.plant(fault);
    }

    /// There is room again, and everybody goes on (rule TR7).
    fn room_again(&mut self) -> Step {
        if !self.trouble.full {
            return Ok(());
        }
        self.note("there is room again".into());
        self.disk.set_free_bytes(None);
        self.trouble.full = false;
        self.play(STEPS / 3)
    }

    fn end(&mut self) -> Step {
        match self.rng.below(4) {
            0 => match self.close() {
                Err(Stop::PowerOff) => self.crash(),
                Err(Stop::Broken(_)) => self.break_off(),
                closed => return closed,
            },
            1 => self.kill(),
            _ => self.crash(),
        }
        Ok(())
    }

    /// The disk has failed: the process ends, and the machine with it or not. If not, what a failed sync left in doubt shows (D34).
    fn break_off(&mut self) {
        if self.rng.chance(50) {
            self.kill();
        } else {
            self.crash();
        }
    }

    /// Opens; now and then the power fails during that too.
    fn come_back(&mut self) -> Step {
        loop {
            // A closed database keeps the faults of its disk.
            self.disk = self.disk.kill();
            self.trouble = Trouble::default();
            if self.rng.chance(20) {
                let operation = self.disk.operations() + self.rng.below(15);
                self.disk.cut_power_at(operation);
            }
            match self.open() {
                Err(Stop::PowerOff) => self.crash(),
                opened => {
                    self.disk.cut_power_at(u64::MAX);
                    return opened;
                }
            }
        }
    }

    /// The life ends with damage under the running engine.
    fn damaged_end(&mut self) -> Step {
        self.play(STEPS / 2)?;
        let lived = self.live_with_damage(STEPS);
        if let Err(Stop::Wrong(text)) = lived {
            return Err(Stop::Wrong(text));
        }
        self.crash();
        self.trouble.damaged = true;
        match self.open() {
            Err(Stop::Broken(_)) => Ok(()),
            opened => opened,
        }
    }
}
