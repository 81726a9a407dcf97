//! Image items: databases whose checkpoint's image has any items, in whole blocks.
//!
//! Why it exists: a block of an image is compressed, so a changed byte of the file nearly never changes what an item says.
//! Format of an input: a byte with bit 0 for the exhibit. With bit 1 the rest is the block, byte for byte. Without it the rest are edits of the
//! items that are there: what to do, item, place (two bytes), count, and so many bytes where some are written; then the items are counted
//! again, unless bit 2 is set.
//! Rules: FZ1, FZ3; and D36: a refusal names a file.

use crate::files::{exhibit, go_on};
use pbxt::Error;
use pbxt_base::Error as StorageError;
use pbxt_sim::exhibit::open;
use pbxt_sim::image_edit::{Item, block_of, image_of, with_blocks};
use std::sync::OnceLock;

const WHOLE_BLOCK: u8 = 2;
const NOT_COUNTED: u8 = 4;
/// More items make nothing new and take long.
const ITEMS_MAX: usize = 200;

/// What an edit does.
mod edit {
    pub(super) const WRITE: u8 = 0;
    pub(super) const INSERT: u8 = 1;
    pub(super) const CUT: u8 = 2;
    pub(super) const COPY: u8 = 3;
    pub(super) const REMOVE: u8 = 4;
    pub(super) const KIND: u8 = 5;
    pub(super) const COUNT: u8 = 6;
}

fn items(which: u8) -> Vec<Item> {
    static ITEMS: OnceLock<[Vec<Item>; 2]> = OnceLock::new();
    ITEMS.get_or_init(|| [0, 1].map(|end| image_of(&exhibit(end).disk)))[usize::from(which & 1)].clone()
}

/// Does one edit; places wrap at the end of what they are places in.
fn change(items: &mut Vec<Item>, head: [u8; 5], bytes: &[u8]) {
    let [what, which, low, high, count] = head;
    let (which, place) = (
        usize::from(which) % items.len(),
        usize::from(u16::from_le_bytes([low, high])),
    );
    let fields = &mut items[which].fields;
    let at = place % (fields.len() + 1);
    match what % edit::COUNT {
        edit::WRITE => {
            let len = bytes.len().min(fields.len() - at);
            fields[at..at + len].copy_from_slice(&bytes[..len]);
        }
        edit::INSERT => drop(fields.splice(at..at, bytes.iter().copied())),
        edit::CUT => drop(fields.drain(at..(at + usize::from(count)).min(fields.len()))),
        edit::COPY if items.len() < ITEMS_MAX => {
            let copy = items[which].clone();
            items.insert(place % (items.len() + 1), copy);
        }
        edit::REMOVE if items.len() > 1 => drop(items.remove(which)),
        edit::KIND => items[which].kind = count,
        _ => {}
    }
}

/// The block that an input asks for.
fn block(which: u8, mut edits: &[u8]) -> Vec<u8> {
    if which & WHOLE_BLOCK != 0 {
        return edits.to_vec();
    }
    let mut items = items(which);
    while let Some((head, rest)) = edits.split_first_chunk::<5>() {
        let is_written = matches!(head[0] % edit::COUNT, edit::WRITE | edit::INSERT);
        let count = if is_written { usize::from(head[4] % 32) } else { 0 };
        let (bytes, rest) = rest.split_at(count.min(rest.len()));
        edits = rest;
        change(&mut items, *head, bytes);
    }
    let before = items.len() as u64 - 1;
    if let Some(end) = items.last_mut().filter(|_| which & NOT_COUNTED == 0) {
        end.fields = before.to_le_bytes().to_vec();
    }
    block_of(&items)
}

pub(crate) fn run(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else {
        return;
    };
    let exhibit = exhibit(*which);
    let disk = with_blocks(&exhibit.disk, &[block(*which, rest)]);
    match open(&disk) {
        Ok(db) => go_on(db, exhibit, &disk),
        // A table may say of itself that it is encrypted.
        Err(Error::Storage(StorageError::NoKey { .. })) => {}
        Err(error) => assert!(error.to_string().contains(".seg'"), "D36: {error}"),
    }
}

/// Images as they are, whole and in edits: of each item the first byte and the last.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for end in [0, 1] {
        let items = items(end);
        seeds.push([&[end | WHOLE_BLOCK][..], &block_of(&items)].concat());
        seeds.push(vec![end]);
        for (number, item) in items.iter().enumerate() {
            let last = (item.fields.len().saturating_sub(1) as u16).to_le_bytes();
            let number = number as u8;
            seeds.push(vec![
                end,
                edit::WRITE,
                number,
                0,
                0,
                1,
                item.fields.first().copied().unwrap_or(0),
            ]);
            seeds.push(vec![end, edit::WRITE, number, last[0], last[1], 1, 1]);
        }
    }
    seeds
}
