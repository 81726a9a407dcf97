//! Simulator: plays random transactions against the engine, compares every answer with a simple model, and cuts the
//! power, fills the disk and breaks files on the way.
//!
//! Why it exists: the promises of docs/durability.md and docs/transactions.md speak of all schedules; here thousands of
//! them are tried, each from a number that plays it again.

pub mod client;
pub mod crash;
pub mod exhibit;
pub mod filtered;
pub mod history;
pub mod image_edit;
pub mod model;
pub mod play;
pub mod storage;
pub mod storage_runs;
pub mod table;
pub mod world;
