//! History: concurrent transactions from a seed, what each of them saw, and whether their isolation level allows that.
//!
//! Why it exists: the lives of `world` are judged by a model that knows what each answer should be, one level at a time. Here
//! nothing is predicted: what transactions read and wrote is recorded, and the record is searched for what a level forbids,
//! under many more schedules. The two nets share no opinion.
//! How: `theatre` plays sessions step by step on a simulated disk, `record` keeps the history, `judge` looks at each read and
//! write, `graph` at dependencies, `tell` prints what is wrong with the transactions that have to do with it.
//! What each level forbids is rules H1 to H9 of docs/testing.md. After Adya, Weak consistency (1999), and Elle (Kingsbury and
//! Alvaro, 2020): every version has a number of its own, so a read says which version it saw.

mod graph;
mod judge;
#[cfg(test)]
mod judge_tests;
mod mix;
mod orders;
mod played;
mod player;
mod reach;
mod record;
mod stage;
mod statement;
mod tell;
mod theatre;

pub use graph::{Edge, Why};
pub use judge::{Anomaly, Kind, judge};
pub use mix::Mix;
#[cfg(feature = "planted-faults")]
pub use played::play_planted;
pub use played::{Played, Wrong, play, play_one};
pub use record::{
    COLUMNS, Content, End, How, Level, Levels, Moment, Op, Predicate, Read, Record, RowKey, Txn, TxnNo,
    Version, VersionNo,
};
