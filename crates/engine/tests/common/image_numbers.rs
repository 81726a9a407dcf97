//! Numbers of rows in a checkpoint's image that are not what was written.

#![allow(dead_code, reason = "each test file uses a part of this")]

use pbxt_sim::image_edit::{image_of, with_items};
use pbxt_testkit::SimDisk;

/// Kind of the item of a table.
const TABLE: u8 = 4;
/// Where its number of rows stands, from the end of it.
pub(crate) const ROWS_FROM_END: usize = 32;
/// The same of its greatest row id.
pub(crate) const ID_FROM_END: usize = 24;

/// What the checkpoint's image says of the last table; all other items stay.
pub(crate) fn with_numbers(disk: &SimDisk, from_end: usize, number: i64) -> SimDisk {
    let mut items = image_of(disk);
    let last = items.iter_mut().rfind(|item| item.kind == TABLE).expect("tables");
    let at = last.fields.len() - from_end;
    last.fields[at..at + 8].copy_from_slice(&number.to_le_bytes());
    with_items(disk, &items)
}
