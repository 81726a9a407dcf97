//! Played: histories one after the other, each from a number that plays it again, and what came of them.

use crate::history::judge::{Kind, judge};
use crate::history::record::Levels;
use crate::history::tell::tell;
use crate::history::theatre::Theatre;
use pbxt::Isolation;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// What was played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    /// Histories.
    pub histories: u64,
    /// Transactions, all told.
    pub txns: u64,
    /// Those that committed.
    pub committed: u64,
    /// Statements that were told to wait.
    pub waits: u64,
    /// Waits inside the engine.
    pub waits_in_place: u64,
    /// Those of them that reached their limit.
    pub timeouts: u64,
    /// Deadlocks that the engine found.
    pub deadlocks: u64,
    /// Statements that failed.
    pub failed: u64,
    /// Transactions that the engine refused to go on with or to commit.
    pub refused: u64,
    /// Circles of waits that were broken here.
    pub circles: u64,
    /// Rows that background work moved out of the log.
    pub homed: u64,
}

impl Played {
    /// What has to happen in a run of some histories and did not, if anything: a net in which nothing moves catches nothing (rule H11).
    pub fn missing(&self, levels: Levels) -> Option<&'static str> {
        let may_be_refused = levels.have(Isolation::Serializable);
        let wanted = [
            (self.committed * 3 > self.txns, "commits"),
            (self.waits > 0, "statements that were told to wait"),
            (self.waits_in_place > 0, "waits inside the engine"),
            (self.timeouts > 0, "waits that reached their limit"),
            (self.deadlocks > 0, "deadlocks"),
            (self.failed > 0, "statements that failed"),
            (
                !may_be_refused || self.refused > self.deadlocks,
                "transactions that fit into no order",
            ),
            (self.homed > 0, "rows that moved"),
        ];
        wanted
            .iter()
            .find(|(is_there, _)| !is_there)
            .map(|(_, what)| *what)
    }

    fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.txns += other.txns;
        self.committed += other.committed;
        self.waits += other.waits;
        self.waits_in_place += other.waits_in_place;
        self.timeouts += other.timeouts;
        self.deadlocks += other.deadlocks;
        self.failed += other.failed;
        self.refused += other.refused;
        self.circles += other.circles;
        self.homed += other.homed;
    }
}

/// Something is wrong with a history.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// What, with the command that plays it again.
    pub text: String,
    /// Everything forbidden that the history shows, in the order in which it was found; nothing if the engine failed or panicked.
    pub kinds: Vec<Kind>,
    /// Transactions that had begun when it could be seen.
    pub txns: u64,
}

/// Plays so many histories and judges each.
///
/// # Errors
/// The first thing that is wrong.
pub fn play(
    seed: u64,
    histories: u64,
    levels: Levels,
    mut progress: impl FnMut(&Played),
) -> Result<Played, Wrong> {
    let mut played = Played::default();
    for number in 0..histories {
        played.add(&play_one(seed + number, levels)?);
        progress(&played);
    }
    Ok(played)
}

/// Plays the history of one seed and judges it.
///
/// # Errors
/// The first thing that is wrong.
pub fn play_one(seed: u64, levels: Levels) -> Result<Played, Wrong> {
    play_behind(seed, levels, || ())
}

/// As `play_one`, with a fault planted in the engine.
///
/// # Errors
/// What the net caught.
#[cfg(feature = "planted-faults")]
pub fn play_planted(seed: u64, levels: Levels, fault: &'static str) -> Result<Played, Wrong> {
    play_behind(seed, levels, || pbxt_base::planted::plant(fault))
}

/// Plays a history behind what `opened` answers when the database is open.
fn play_behind<T>(seed: u64, levels: Levels, opened: impl FnOnce() -> T) -> Result<Played, Wrong> {
    let wrong = |what: &str, kinds, txns| {
        let options = levels.options();
        let text = format!(
            "history {seed}, {options}: {what}\nagain: pbxt-sim --histories 1 {options} --seed {seed}"
        );
        Wrong { text, kinds, txns }
    };
    let theatre = Theatre::open(seed, levels).map_err(|error| wrong(&error.to_string(), Vec::new(), 0))?;
    let theatre = Rc::new(theatre);
    let planted = opened();
    let ended = catch_unwind(AssertUnwindSafe(|| theatre.play()));
    drop(planted);
    let record = theatre.stage.record.borrow();
    let begun = record.txns.len() as u64;
    // What went wrong among transactions that have ended is told before what it led to.
    let found = judge(&record);
    if let Some(anomaly) = found.first() {
        let latest = anomaly.txns.iter().max().map_or(0, |txn| *txn as u64 + 1);
        return Err(wrong(
            &tell(&record, anomaly),
            found.iter().map(|anomaly| anomaly.kind).collect(),
            latest,
        ));
    }
    match ended {
        Ok(Ok(())) => Ok(theatre.played()),
        Ok(Err(error)) => Err(wrong(&error.to_string(), Vec::new(), begun)),
        Err(_) => Err(wrong("the engine panicked", Vec::new(), begun)),
    }
}
