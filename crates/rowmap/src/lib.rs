//! Row map: from a row id of one table to the address of the row's newest version.
//!
//! Why it exists:    index entries and foreign predecessors name a row by a number that never changes, so an update
//!                   that changes no key touches no index. Something has to turn that number into an address; here
//!                   it is one 64-bit atomic per row, and the compare-and-swap on it is the exclusive row lock
//!                   (Kim et al., ERMIA, SIGMOD 2016, section 3.2; Larson et al., VLDB 2011, section 2).
//! Format / state:   in memory only, rebuilt from the log at open. The bits of a word are fixed by a golden test,
//!                   because checkpoint deltas will carry them (`docs/format.md`, row map word).
//! Rules:            M1  a row id is handed out once and never again.
//!                   M2  a word changes by compare-and-swap only, except in recovery before anyone else looks.
//!                   M3  a leaf goes only when all its words are 0 and sealed; its memory only after every guard that
//!                       may see it. A reader takes a sealed word for 0, a writer that meets one tries again.
//!                   M4  a row's bit "may be deleted" is set before its word can name a tombstone and goes with the leaf.
//!                   M5  LOCKED in a word without an address, which nobody's lock may need any more (rule T17), is taken
//!                       out only under the latch under which it is set (rule T16), and only to give its leaf back.
//! Latches and I/O:  one latch per map, held while a leaf is sealed; only writers that meet a sealed word wait for it.
//!                   The first touch of 4096 rows allocates their leaf, without a latch.
//! After a crash:    nothing survives; recovery stores the words again and raises the mark with `bump_to`.

mod radix;
mod row_map;
mod slot;
mod sync;
mod word;

pub use radix::{LEAF_WORDS, LEAF_WORDS_LOG2};
pub use row_map::{ROW_MAX, RowMap, Rows};
pub use word::MapWord;
