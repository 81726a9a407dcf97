//! Image edit: a database whose checkpoint's image says something else, under checksums that are right.
//!
//! Why it exists: a checksum keeps chance away from what an image says, not a defect of its encoder nor malice. Who changes bytes of the file
//! gets no further than the checksum and the compression; here the items are changed, and written again as an image is.
//! Format: docs/format-checkpoint.md#items; only kind and length of an item are known here, its fields are bytes.

use pbxt_base::Lsn;
use pbxt_segment::{Checkpoint, Codec, OpenMode, PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// Kind of a section with an image; docs/format.md.
const SECTION_IMAGE: u8 = 3;
/// Kind and length before the fields of an item.
const HEAD_BYTES: usize = 5;

/// An item as it stands in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number in the format.
    pub kind: u8,
    /// What it says.
    pub fields: Vec<u8>,
}

/// Items one behind the other, as a block has them.
pub fn block_of(items: &[Item]) -> Vec<u8> {
    let mut block = Vec::new();
    for item in items {
        block.push(item.kind);
        block.extend_from_slice(&(item.fields.len() as u32).to_le_bytes());
        block.extend_from_slice(&item.fields);
    }
    block
}

/// The items of a block; a length too long takes all that is left.
pub fn items_of(mut block: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some((head, rest)) = block.split_first_chunk::<HEAD_BYTES>() {
        let [kind, length @ ..] = *head;
        let (fields, rest) = rest.split_at((u32::from_le_bytes(length) as usize).min(rest.len()));
        items.push(Item {
            kind,
            fields: fields.to_vec(),
        });
        block = rest;
    }
    items
}

fn open(disk: &SimDisk) -> (Arc<SegmentStore>, Checkpoint) {
    let mode = OpenMode {
        create: None,
        read_only: false,
        new_uuid: 0,
        now: 0,
    };
    let store = SegmentStore::open(Arc::new(disk.clone()), mode).expect("a database");
    let checkpoint = store.checkpoint().expect("a checkpoint");
    (Arc::new(store), checkpoint)
}

/// Where recovery begins to read the log, and where the log begins, as the manifest has them.
pub fn starts(disk: &SimDisk) -> (Lsn, Lsn) {
    let (_, checkpoint) = open(&disk.kill());
    (checkpoint.start, checkpoint.log_start)
}

/// The items of the image that counts; all stand in one block if the database is small.
pub fn image_of(disk: &SimDisk) -> Vec<Item> {
    let (store, checkpoint) = open(&disk.kill());
    let file = PieceFile::open(&store, SegmentClass::Meta, checkpoint.image).expect("the image");
    let blocks = file.sections()[0].block_count();
    let (mut items, mut block) = (Vec::new(), Vec::new());
    for number in 0..blocks {
        file.read_block(0, number, &mut block).expect("a whole block");
        items.extend(items_of(&block));
    }
    items
}

/// The same files with another image, which the manifest names, of these blocks.
///
/// # Panics
/// If `disk` has no database with a checkpoint.
#[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
pub fn with_blocks(disk: &SimDisk, blocks: &[Vec<u8>]) -> SimDisk {
    let disk = disk.kill();
    let (store, checkpoint) = open(&disk);
    let mut piece = PieceWriter::create(&store, SegmentClass::Meta).expect("a file");
    piece.begin_section(0, SECTION_IMAGE);
    for (number, block) in blocks.iter().enumerate() {
        let fence = (number as u64).to_be_bytes();
        piece.push_block(&fence, 1, block, Codec::Plain).expect("room");
    }
    piece.end_section(&[], &[]);
    let image = piece.finish().expect("durable");
    let named = store.note_checkpoint(Checkpoint { image, ..checkpoint });
    named.expect("room in the manifest");
    drop(store);
    disk.kill()
}

/// The same of one block with these items.
pub fn with_items(disk: &SimDisk, items: &[Item]) -> SimDisk {
    with_blocks(disk, &[block_of(items)])
}
