//! L0: the part of an index that takes inserts, a B+tree in memory with optimistic latches.
//!
//! Why it exists:    every index needs one mutable part that many threads write and read at once. A tree whose readers
//!                   take latches stops at a few cores; a tree whose readers look without latches usually races with
//!                   the writer's plain stores, which Rust forbids. Here every word that may change is an atomic and
//!                   everything else never changes after it is published, so readers need neither latch nor luck.
//! Format / state:   in memory only, rebuilt from the log at open; `docs/indexes.md` describes nodes and entries.
//! Rules:            X1 to X10 of `docs/indexes.md`; assertions and tests cite them.
//! Latches and I/O:  node latches (spinning, never held across a call out of this crate), stripe latches for unique
//!                   claims; no I/O.
//! After a crash:    nothing survives; the log carries every index event.

mod arena;
mod batch;
mod body;
mod change;
mod check;
mod columns;
mod entry;
mod entry_room;
mod estimate;
mod filter;
mod hints;
mod insert;
mod latch;
mod merge;
mod merged;
mod node;
mod packed_block;
mod parts;
mod read;
mod run;
mod run_block;
mod run_builder;
mod run_cursor;
mod run_decode;
mod run_encode;
mod run_estimate;
mod run_numbers;
mod run_suffix;
mod sample;
mod search;
mod seek;
mod strip;
mod stripe;
mod swept;
mod sync;
mod tree;
mod wide_block;

pub use batch::Batch;
pub use entry::{EntryRef, EntryView, KEY_BYTES_MAX, Sign};
pub use entry_room::EntryRoom;
pub use hints::{HintKey, KeyHints};
pub use merge::{EventStanding, MergeJudge, MergeRange, MergeSources, MergeStop, merge_events};
pub use merged::{EntryMark, MergedCursor};
pub use parts::{Fate, IndexParts};
pub use run::{Run, RunPiece, SECTION_INDEX_RUN};
pub use run_block::RunBlock;
pub use run_builder::{PIECE_BYTES_MAX, RunBuilder};
pub use run_cursor::RunCursor;
pub use seek::SeekPos;
pub use strip::{Copied, Strip};
pub use stripe::{StripeGuard, StripeLatches};
pub use swept::Swept;
pub use tree::{KeyGroup, Tree};
