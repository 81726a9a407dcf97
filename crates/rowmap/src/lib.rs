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
//!                   M3  a leaf, once there, stays until the whole map is dropped; so a reference to it needs no pin.
//! Latches and I/O:  none. The first touch of 4096 rows allocates their leaf; only those who need that very leaf wait.
//! After a crash:    nothing survives; recovery stores the words again and raises the mark with `bump_to`.

mod radix;
mod row_map;
mod word;

pub use radix::{LEAF_WORDS, LEAF_WORDS_LOG2};
pub use row_map::{RowMap, Rows};
pub use word::MapWord;
