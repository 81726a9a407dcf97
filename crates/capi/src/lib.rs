//! The C interface of PBXT: converts arguments, calls one engine function, converts the error, stops panics.
//!
//! Why it exists: hosts in other languages; the contract is `include/pbxt.h` and the headers beside it.
//! Rules: no decision is taken here. Every entry point goes through `guard::call`, which turns a panic into
//! `PBXT_INTERNAL` and keeps the sentence of the last error for `pbxt_error_text`.

#![expect(
    clippy::missing_safety_doc,
    reason = "the safety contract of every function is the header's"
)]

mod alter;
mod bulk;
mod cursor;
mod database;
mod definition;
mod foreign_keys;
mod guard;
mod inserts;
mod instruments;
mod inventory;
mod judge;
mod keys;
mod observer;
mod optimize;
mod progress;
mod ranges;
mod reports;
mod salvage;
mod session;
mod sight;
mod stamps;
mod statistics;
mod status;
mod table;

/// All memory of the engine. Many threads free what others took, and glibc's arenas keep that: a server under updates was a
/// quarter larger with them. Without initial-exec thread storage, because hosts load this library while they run. Fuzzers and
/// sanitizers bring one that minds what is given back.
#[cfg(not(any(fuzzing, sanitizing)))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub use alter::*;
pub use bulk::*;
pub use cursor::*;
pub use database::*;
pub use definition::{PbxtColumn, PbxtIndex, PbxtKeyPart, PbxtTableDef};
pub use foreign_keys::*;
pub use guard::{pbxt_error_subject, pbxt_error_text, pbxt_version_text};
pub use inserts::*;
pub use instruments::PbxtInstruments;
pub use inventory::*;
pub use judge::*;
pub use keys::PbxtKeys;
pub use observer::PbxtHost;
pub use optimize::*;
pub use ranges::*;
pub use reports::*;
pub use salvage::*;
pub use session::*;
pub use sight::*;
pub use stamps::*;
pub use statistics::*;
pub use status::Status;
pub use table::*;
