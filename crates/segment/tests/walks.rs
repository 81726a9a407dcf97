//! Walks: files compared with their checksums some of it at a time; each piece of damage is told, and nothing else.

mod common;

use common::{mode, open, write_sealed};
use pbxt_base::{Lsn, SegmentId};
use pbxt_segment::{
    BlobStep, BlobStore, BlobWalk, Codec, Found, Geometry, OpenMode, PieceFile, PieceWalk, PieceWriter,
    SegmentClass, SegmentStore, segment_name,
};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

const COLD: SegmentClass = SegmentClass::Cold;
const HOT: SegmentClass = SegmentClass::Hot;
const PIECE: &str = "cold-00000001.seg";
const BLOCKS: usize = 40;
/// Bytes of a step.
const STEP: usize = 4096;

fn store(disk: &SimDisk) -> Arc<SegmentStore> {
    Arc::new(open(disk).expect("opened"))
}

/// Two sections of blocks that no codec makes shorter than a sector.
fn write_piece(store: &Arc<SegmentStore>) -> Arc<PieceFile> {
    let mut writer = PieceWriter::create(store, COLD).expect("created");
    let mut noise = 7_u64;
    for owner in 0..2 {
        writer.begin_section(owner, 1);
        for block in 0..BLOCKS {
            let raw: Vec<u8> = std::iter::repeat_with(|| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (noise >> 33) as u8
            })
            .take(700)
            .collect();
            writer
                .push_block(&[block as u8], 1, &raw, Codec::Zstd(1))
                .expect("written");
        }
        writer.end_section(&[BLOCKS as u8], b"");
    }
    let id = writer.finish().expect("finished");
    PieceFile::open_past_cache(store, COLD, id).expect("a piece file")
}

/// Blocks that a walk finds damaged, whether anything else is, and the bytes it read.
fn walked(piece: &Arc<PieceFile>) -> (Vec<(u32, usize)>, u64, u64) {
    let (mut blocks, mut others, mut bytes) = (Vec::new(), 0, 0);
    let mut walk = PieceWalk::new(Arc::clone(piece));
    assert!(Arc::ptr_eq(walk.piece(), piece));
    while let Some(read) = walk.step(STEP, &mut |damage| {
        assert!(damage.error.to_string().contains(PIECE), "{}", damage.error);
        match damage.block {
            Some(block) => blocks.push(block),
            None => others += 1,
        }
    }) {
        assert!(read <= STEP as u64, "a step of {read} bytes");
        bytes += read;
    }
    let again = walk.step(STEP, &mut |damage| panic!("{damage:?} behind the end"));
    assert_eq!(again, None);
    (blocks, others, bytes)
}

#[test]
fn a_walk_tells_every_damaged_block_and_no_other() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let piece = write_piece(&store);
    let (blocks, others, bytes) = walked(&piece);
    assert_eq!((blocks, others), (Vec::new(), 0));
    let stored: u64 = piece.sections().iter().map(|section| section.stored_bytes).sum();
    assert!(
        bytes > stored && bytes < piece.file_bytes(),
        "{bytes} of {stored}"
    );
    let damaged = [(0_u32, 0_usize), (0, 7), (0, 8), (1, BLOCKS - 1)];
    for (section, block) in damaged {
        let offset = piece.section(section).expect("there").block_offset(block);
        disk.flip_bit(PIECE, offset + 100, 5).expect("a flip");
    }
    assert_eq!(
        walked(&piece),
        (damaged.to_vec(), 0, bytes),
        "the hash says nothing new"
    );
    piece.verify().expect_err("the first of them");
}

#[test]
fn blocks_beside_a_sector_that_cannot_be_read_are_read_one_by_one() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let piece = write_piece(&store);
    let offset = piece.section(1).expect("there").block_offset(20);
    disk.make_unreadable(PIECE, offset).expect("the file is there");
    let (blocks, others, _) = walked(&piece);
    assert!(blocks.contains(&(1, 20)) && blocks.len() <= 2, "{blocks:?}");
    assert!(
        blocks
            .iter()
            .all(|(section, block)| *section == 1 && (19..=21).contains(block)),
        "{blocks:?}"
    );
    assert_eq!(others, 0);
}

#[test]
fn a_hash_that_differs_is_told_where_all_blocks_are_good() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let piece = write_piece(&store);
    // An open file has its header behind it.
    disk.flip_bit(PIECE, 200, 1).expect("a flip");
    let (blocks, others, _) = walked(&piece);
    assert_eq!((blocks, others), (Vec::new(), 1), "F14");
}

#[test]
fn a_sealed_segment_is_compared_in_steps() {
    let disk = SimDisk::new();
    let store = store(&disk);
    write_sealed(&store, 1).expect("sealed");
    let (one, name) = (SegmentId::new(1), "hot-00000001.seg");
    let walk = || {
        let file = store.open_past_cache(HOT, one).expect("the file");
        let mut walk = store
            .sealed_walk(HOT, one, file)
            .expect("a footer")
            .expect("it is sealed");
        let mut bytes = 0;
        loop {
            match walk.step(STEP) {
                Ok(Some(read)) => bytes += read,
                Ok(None) => return Ok(bytes),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    let footer_at = store.geometry().hot_segment_bytes - 512;
    assert_eq!(walk(), Ok(footer_at));
    for offset in [5, 4096, footer_at - 1] {
        disk.flip_bit(name, offset, 1).expect("a flip");
        let refused = walk().expect_err("F8");
        assert!(refused.contains("content hash"), "{refused}");
        disk.flip_bit(name, offset, 1).expect("a flip");
    }
    let unsealed = store.sealed_walk(
        HOT,
        SegmentId::new(2),
        store.open_past_cache(HOT, one).expect("the file"),
    );
    assert!(unsealed.expect("an answer").is_none());
}

#[test]
fn the_manifest_that_counts_is_compared_with_what_was_written() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut checked = 0;
    // Over several switches from one file to the other.
    for end in 0..3000 {
        store.note_closed(Lsn::new(end)).expect("noted");
        if end % 50 == 0 {
            checked += store.verify_manifest().expect("sound");
        }
    }
    assert!(checked > 0);
    let end_of = |name: &str| {
        let content = disk.content(name).expect("the file");
        content.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64
    };
    // In the image, in a record that was appended, and in the last one, which an opening would take for torn.
    let refused = |offset_of: &dyn Fn(&str) -> u64| {
        let damaged = |name: &&str| {
            let offset = offset_of(name);
            disk.flip_bit(name, offset, 2).expect("a flip");
            let found = store.verify_manifest().is_err();
            disk.flip_bit(name, offset, 2).expect("a flip");
            found
        };
        ["pbxt.manifest.a", "pbxt.manifest.b"]
            .iter()
            .filter(|name| damaged(name))
            .count()
    };
    assert_eq!(refused(&|_| 30), 1, "the header of the one that counts");
    assert_eq!(refused(&|_| 75), 1, "its image");
    assert_eq!(refused(&|name| end_of(name) - 3), 1, "its last record");
    store.verify_manifest().expect("sound");
}

#[test]
fn a_walk_over_values_goes_frame_by_frame_and_over_what_cannot_be_read() {
    let disk = SimDisk::new();
    let geometry = Geometry {
        blob_segment_bytes: 4 << 20,
        ..mode().create.expect("sizes")
    };
    let mode = OpenMode {
        create: Some(geometry),
        ..mode()
    };
    let store = Arc::new(SegmentStore::open(Arc::new(disk.clone()), mode).expect("opened"));
    let blobs = BlobStore::open(Arc::clone(&store)).expect("values");
    let values: Vec<_> = [600_000, 300, 5000]
        .into_iter()
        .map(|bytes: usize| blobs.append(&vec![3; bytes]).expect("written"))
        .collect();
    let id = values[0].addr.segment();
    let (file, end) = blobs.open_written(id).expect("a sound header");
    let last = values[2];
    assert_eq!(end, last.addr.offset() + last.stored_bytes());
    let mut walk = BlobWalk::up_to(Arc::clone(&file), id, Vec::new(), end);
    assert_eq!(walk.step().expect("read"), BlobStep::Frame);
    assert!(walk.position() < 300 << 10, "one frame of 256 KiB");
    let found = walk.next_found().expect("read");
    assert!(
        matches!(
            found,
            Some(Found::Value {
                bytes: 600_000,
                frames: 3,
                ..
            })
        ),
        "{found:?}"
    );
    let found = walk.next_found().expect("read");
    assert!(
        matches!(
            found,
            Some(Found::Value {
                bytes: 300,
                frames: 1,
                ..
            })
        ),
        "{found:?}"
    );
    // Up to the value before, as if this one was being written.
    let mut walk = BlobWalk::up_to(Arc::clone(&file), id, Vec::new(), last.addr.offset());
    let mut count = 0;
    while walk.next_found().expect("read").is_some() {
        count += 1;
    }
    assert_eq!((count, walk.position()), (2, last.addr.offset()));
    disk.make_unreadable(&segment_name(SegmentClass::Blob, id), 4096)
        .expect("the file is there");
    let mut walk = BlobWalk::new(file, id, Vec::new()).expect("a walk");
    walk.step().expect_err("it cannot be read");
    let passed = walk.pass_over(values[1].addr.offset() - 4096);
    assert_eq!(passed, 4096..values[1].addr.offset());
    let found = walk.next_found().expect("read");
    assert!(
        matches!(found, Some(Found::Value { bytes: 300, .. })),
        "{found:?}"
    );
}
