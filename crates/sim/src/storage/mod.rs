//! Storage: whole lives of a database, everything in them from one number: statements, definitions, loads, constraints, votes, old
//! snapshots, background work step by step, power cuts, a medium that fails, is full, slow or damaged.
//!
//! Why it exists: the other nets take one part each, so that a failure is near its cause; what goes wrong only where parts meet, on disk,
//! is met here. Nothing but the seed decides what happens: time, identity and the order of all work are given.
//! How: `play` has the stretches of a life, `deeds` and `schema` what sessions do, `looks` what is compared, `damage` what happens to
//! files, `scrub` what is told of that, `model` what should be. Rules: SM1 to SM9 of docs/testing.md.

mod damage;
mod deeds;
mod life;
mod looks;
mod model;
mod play;
mod rows;
mod schema;
mod scrub;
mod shape;
mod user;

pub use life::Done;
#[cfg(feature = "planted-faults")]
pub use play::play_life_planted;
pub use play::{Wrong, play_life};
