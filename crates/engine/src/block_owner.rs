//! Block owner: whose a block of a piece file is, in words.
//!
//! Why it exists: a file and an offset are for whoever mends the medium; whoever has to mend the database wants to know which rows of which
//! table are gone. The section says so, although its block cannot be read.
//! Rules: TR13 names of tables and indexes and row ids, no values.

use crate::row_writer::{SECTION_IMAGE, SECTION_ROWS};
use pbxt_index::SECTION_INDEX_RUN;
use pbxt_segment::Section;
use std::collections::BTreeSet;

/// Tables and indexes that are named for a file.
const OWNERS_TOLD: usize = 3;

/// What is in a block. `table` and `index` say what the table or index of an id is called.
pub(crate) fn block_in_words(
    section: &Section,
    block: usize,
    table: impl FnOnce(u64) -> String,
    index: impl FnOnce(u64) -> String,
) -> String {
    match section.kind {
        SECTION_ROWS => format!("{} of {}", rows_in_words(section, block), table(section.owner)),
        SECTION_INDEX_RUN => format!("entries of {}", index(section.owner)),
        SECTION_IMAGE => "the image of a checkpoint".into(),
        _ => "a piece file".into(),
    }
}

/// The rows that a block of rows can have, by its fences.
pub(crate) fn rows_in_words(section: &Section, block: usize) -> String {
    let (first, last) = rows_of_block(section, block);
    format!("rows {first} to {last}")
}

/// What is in a file with parts of these owners.
pub(crate) fn owners_in_words(owners: BTreeSet<String>) -> String {
    let more = owners.len().saturating_sub(OWNERS_TOLD);
    let mut words: Vec<String> = owners.into_iter().take(OWNERS_TOLD).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    if words.is_empty() {
        "a file of rows, index entries or a checkpoint".into()
    } else {
        format!("a file with {}", words.join(", "))
    }
}

/// First row of a block, and the last one it can have.
#[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
fn rows_of_block(section: &Section, block: usize) -> (u64, u64) {
    let number = |fence: &[u8]| u64::from_be_bytes(fence.try_into().unwrap_or_default());
    let last = if block + 1 < section.block_count() {
        number(section.first_key(block + 1)).saturating_sub(1)
    } else {
        number(&section.last_key)
    };
    (number(section.first_key(block)), last)
}
