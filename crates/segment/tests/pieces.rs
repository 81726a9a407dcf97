//! Piece files: what is written comes back, damage is found and named, files come and go without a word in the manifest.

mod common;

use common::{mode, names, open};
use pbxt_base::{Result, SegmentId};
use pbxt_segment::{Codec, OpenMode, PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_testkit::{Fault, SimDisk};
use proptest::prelude::*;
use std::sync::Arc;

const META: SegmentClass = SegmentClass::Meta;
const COLD: SegmentClass = SegmentClass::Cold;
const CODECS: [Codec; 3] = [Codec::Plain, Codec::Lz4, Codec::Zstd(1)];

fn store(disk: &SimDisk) -> Arc<SegmentStore> {
    Arc::new(open(disk).expect("opened"))
}

fn key(block: usize) -> Vec<u8> {
    format!("key of block {:06}", block * 10).into_bytes()
}

fn raw(block: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + block) as u8).collect()
}

/// A file with sections of 0, 1, 2, ... blocks.
fn write(store: &Arc<SegmentStore>, class: SegmentClass, sections: u64, bytes: usize) -> Result<SegmentId> {
    let mut writer = PieceWriter::create(store, class)?;
    for owner in 0..sections {
        writer.begin_section(owner + 100, owner as u8);
        for block in 0..owner as usize {
            writer.push_block(
                &key(block),
                block as u32 + 1,
                &raw(block, bytes),
                CODECS[block % 3],
            )?;
        }
        let number = writer.end_section(&key(owner as usize), &[owner as u8; 3]);
        assert_eq!(u64::from(number), owner);
    }
    writer.finish()
}

fn check(piece: &Arc<PieceFile>, bytes: usize) {
    piece.verify().expect("intact");
    let mut out = Vec::new();
    for (number, section) in piece.sections().iter().enumerate() {
        assert_eq!(
            (section.owner, section.kind, section.block_count()),
            (number as u64 + 100, number as u8, number)
        );
        assert_eq!(
            (&*section.extra, &*section.last_key),
            (&[number as u8; 3][..], &key(number)[..])
        );
        assert_eq!(section.raw_bytes, (number * bytes) as u64);
        assert_eq!(section.entries, (number * (number + 1) / 2) as u64);
        assert_eq!(section.entries_before(number), section.entries);
        for block in 0..number {
            assert_eq!(section.first_key(block), key(block));
            assert_eq!(section.block_entries(block), block as u32 + 1);
            assert_eq!(section.entries_before(block), (block * (block + 1) / 2) as u64);
            piece
                .read_block(number as u32, block, &mut out)
                .expect("readable");
            assert_eq!(out, raw(block, bytes), "section {number} block {block}");
        }
    }
}

#[test]
fn what_was_written_comes_back_also_after_reopening() {
    for (sections, bytes) in [(0, 0), (1, 10), (5, 0), (12, 3000), (4, 400_000)] {
        let disk = SimDisk::new();
        let writing = store(&disk);
        let id = write(&writing, META, sections, bytes).expect("written");
        check(&PieceFile::open(&writing, META, id).expect("open"), bytes);
        drop(writing);
        let piece = PieceFile::open(&store(&disk.crash(1)), META, id).expect("durable when finish returned");
        assert_eq!(piece.sections().len() as u64, sections);
        assert_eq!(
            piece.file_bytes(),
            disk.content(&format!("meta-{:08x}.seg", id.raw()))
                .expect("a file")
                .len() as u64
        );
        check(&piece, bytes);
    }
}

#[test]
fn blocks_are_found_by_key_and_by_any_order_of_the_caller() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let id = write(&store, COLD, 10, 100).expect("written");
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    let section = piece.section(9).expect("there");
    assert_eq!(section.find_block(b""), 0, "below all keys");
    assert_eq!(section.find_block(b"z"), 8, "above all keys");
    for block in 0..9 {
        assert_eq!(section.find_block(&key(block)), block);
        let mut behind = key(block);
        behind.push(0);
        assert_eq!(section.find_block(&behind), block);
        assert_eq!(section.partition_point(|first| *first < key(block)[..]), block);
    }
    assert_eq!(
        piece.section(0).expect("there").find_block(b"a"),
        0,
        "no block at all"
    );
    let refused = piece.section(10).expect_err("refused").to_string();
    assert!(
        refused.contains("a section of number 10, found 10 sections"),
        "{refused}"
    );
    assert!(piece.read_block(9, 9, &mut Vec::new()).is_err());
    assert!(section.memory_bytes() < 2000 && piece.memory_bytes() >= section.memory_bytes());
}

/// Bytes without order.
fn noise(block: usize, bytes: usize) -> Vec<u8> {
    let mut state = block as u64 + 1;
    let byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u8
    };
    std::iter::repeat_with(byte).take(bytes).collect()
}

#[test]
fn blocks_that_do_not_shrink_are_written_as_they_are_and_those_behind_them_come_back() {
    const NOISE: usize = 100;
    const BYTES: usize = 8000;
    let content = |block: usize| {
        if block < NOISE {
            noise(block, BYTES)
        } else {
            raw(block, BYTES)
        }
    };
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = PieceWriter::create(&store, COLD).expect("created");
    for section in 0..2 {
        writer.begin_section(section, 1);
        for block in 0..NOISE + 40 {
            writer
                .push_block(&key(block), 1, &content(block), Codec::Zstd(1))
                .expect("written");
        }
        writer.end_section(b"z", b"");
    }
    writer.begin_section(2, 1);
    writer
        .push_block(&key(0), 1, &raw(0, BYTES), Codec::Zstd(1))
        .expect("written");
    writer.end_section(b"z", b"");
    let id = writer.finish().expect("finished");
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    piece.verify().expect("intact");
    let mut out = Vec::new();
    for number in 0..2 {
        let section = piece.section(number).expect("there");
        for block in 0..NOISE + 40 {
            piece.read_block(number, block, &mut out).expect("readable");
            assert_eq!(out, content(block), "block {block}");
        }
        let shrunk = (0..NOISE + 40).filter(|&block| section.block_stored_bytes(block) < BYTES / 2);
        let shrunk: Vec<usize> = shrunk.collect();
        assert!(
            shrunk.len() >= 40 - 16 && shrunk[0] >= NOISE,
            "S56: at most fifteen of the others stand as they are: {shrunk:?}"
        );
    }
    let last = piece.section(2).expect("there");
    assert!(
        last.stored_bytes < BYTES as u64 / 2,
        "S56: another section begins anew"
    );
}

#[test]
fn blocks_are_read_ahead_with_one_read_and_decode_as_read_alone() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let id = write(&store, COLD, 30, 5000).expect("written");
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    let section = piece.section(29).expect("there");
    let mut out = Vec::new();
    for (from, count) in [(0, 29), (0, 1), (7, 5), (20, 100), (29, 1), (3, 0)] {
        let ahead = piece.read_blocks_ahead(29, from, count).expect("read");
        assert_eq!(ahead.blocks(), from..(from + count).min(29));
        for block in ahead.blocks() {
            assert_eq!(
                ahead.stored(block).expect("there").len(),
                section.block_stored_bytes(block)
            );
            ahead.decode(block, &mut out).expect("intact");
            assert_eq!(out, raw(block, 5000));
        }
        assert!(ahead.decode(ahead.blocks().end, &mut out).is_err());
    }
    let first_two = section.block_stored_bytes(0) + section.block_stored_bytes(1);
    assert_eq!(section.blocks_within(0, first_two), 2);
    assert_eq!(section.blocks_within(0, first_two - 1), 1);
    assert_eq!(
        (section.blocks_within(5, 0), section.blocks_within(29, 9999)),
        (1, 0)
    );
    assert_eq!(section.blocks_within(0, usize::MAX >> 1), 29);
}

#[test]
fn blocks_that_are_compressed_aside_make_the_same_file() {
    let files = [false, true].map(|aside| {
        let disk = SimDisk::new();
        let store = store(&disk);
        let mut writer = PieceWriter::create(&store, COLD).expect("a new file");
        if aside {
            writer.press_aside().expect("a thread");
        }
        for owner in 0..3 {
            writer.begin_section(owner, 1);
            for block in 0..40 {
                let pushed = writer.push_block(&key(block), 7, &raw(block, 500 * block), CODECS[block % 3]);
                pushed.expect("pushed");
            }
            writer.settle().expect("appended");
            assert!(writer.section_bytes() > 0, "L14: all of it is there");
            writer.end_section(&key(40), &[]);
        }
        writer.finish().expect("written");
        disk.content("cold-00000001.seg").expect("a file")
    });
    assert!(files[0] == files[1], "L14");
}

#[test]
fn an_error_of_the_medium_reaches_who_has_blocks_compressed_aside() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = PieceWriter::create(&store, COLD).expect("a new file");
    writer.press_aside().expect("a thread");
    writer.begin_section(1, 1);
    disk.set_free_bytes(Some(0));
    let mut blocks = 0..20;
    let failed = blocks.find_map(|block| {
        writer
            .push_block(&key(block), 1, &raw(block, 100_000), Codec::Plain)
            .err()
    });
    let failed = failed.expect("no room for two megabytes");
    assert!(matches!(failed, pbxt_base::Error::NoSpace { .. }), "{failed}");
    assert!(writer.settle().is_err(), "the writer is of no further use");
    drop(writer);
    disk.set_free_bytes(None);
    assert!(
        !names(&disk).iter().any(|name| name.starts_with("cold")),
        "{:?}",
        names(&disk)
    );
}

#[test]
fn an_open_piece_is_read_after_its_file_was_removed() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let id = write(&store, COLD, 6, 2000).expect("written");
    let piece = PieceFile::open(&store, COLD, id).expect("open");
    store.remove_piece(COLD, id).expect("removed");
    store.remove_piece(COLD, id).expect("whoever made it was faster");
    store.sync_dir().expect("synced");
    assert!(!names(&disk).contains(&"cold-00000001.seg".to_owned()));
    check(&piece, 2000);
    let refused = PieceFile::open(&store, COLD, id).expect_err("gone").to_string();
    assert!(
        refused.contains("cold-00000001.seg' is damaged at offset 0") && refused.contains("no such file"),
        "{refused}"
    );
}

#[test]
fn every_flipped_bit_is_found() {
    let disk = SimDisk::new();
    let id = write(&store(&disk), META, 4, 150).expect("written");
    let name = "meta-00000001.seg";
    let bytes = disk.content(name).expect("the file").len() as u64;
    // Every bit behind the header; of the header, whose checksum is tested by itself, one bit in many.
    let header = (0..4096).step_by(97).map(|at| (at, (at % 8) as u32));
    let rest = (4096..bytes).flat_map(|at| (0..8).map(move |bit| (at, bit)));
    for (offset, bit) in header.chain(rest) {
        let damaged = disk.kill();
        damaged.flip_bit(name, offset, bit).expect("a flip");
        let store = store(&damaged);
        let found = PieceFile::open(&store, META, id).and_then(|piece| piece.verify());
        let message = found.expect_err("damage").to_string();
        assert!(message.contains(name), "{offset}.{bit}: {message}");
    }
}

#[test]
fn damage_of_one_block_is_told_by_place_and_leaves_the_others_readable() {
    let disk = SimDisk::new();
    let id = write(&store(&disk), META, 4, 1500).expect("written");
    let offset = {
        let store = store(&disk);
        let piece = PieceFile::open(&store, META, id).expect("open");
        piece.section(3).expect("there").block_offset(1)
    };
    disk.flip_bit("meta-00000001.seg", offset + 20, 3)
        .expect("a flip");
    let store = store(&disk);
    let piece = PieceFile::open(&store, META, id).expect("the directory is intact");
    let mut out = Vec::new();
    let message = piece.read_block(3, 1, &mut out).expect_err("damaged").to_string();
    assert!(
        message.contains(&format!(
            "meta-00000001.seg' is damaged at offset {offset}: expected a block with checksum"
        )),
        "{message}"
    );
    let ahead = piece.read_blocks_ahead(3, 0, 3).expect("read");
    assert_eq!(
        ahead.decode(1, &mut out).expect_err("damaged").to_string(),
        message
    );
    for block in [0, 2] {
        ahead.decode(block, &mut out).expect("intact");
        piece.read_block(3, block, &mut out).expect("intact");
        assert_eq!(out, raw(block, 1500));
    }
}

#[test]
fn a_file_cut_short_or_of_another_place_is_refused() {
    let disk = SimDisk::new();
    let id = write(&store(&disk), META, 5, 900).expect("written");
    let whole = disk.content("meta-00000001.seg").expect("the file");
    let refusal = |name: &str, class, id, content: &[u8]| {
        let disk = disk.kill();
        disk.replace(name, content);
        PieceFile::open(&store(&disk), class, id)
            .expect_err("refused")
            .to_string()
    };
    for bytes in [0, 100, 4096, 4143, 4144, whole.len() - 48, whole.len() - 1] {
        let message = refusal("meta-00000001.seg", META, id, &whole[..bytes]);
        assert!(message.contains("the tail of a piece file"), "{bytes}: {message}");
        assert!(
            message.contains("was never finished, or its end is missing"),
            "{bytes}: {message}"
        );
    }
    let message = refusal("meta-00000002.seg", META, SegmentId::new(2), &whole);
    assert!(message.contains("the segment its name says"), "{message}");
    let message = refusal("cold-00000001.seg", COLD, id, &whole);
    assert!(message.contains("the segment its name says"), "{message}");
}

#[test]
fn an_unfinished_file_goes_with_its_writer_and_orphans_go_at_opening() {
    let disk = SimDisk::new();
    let life = store(&disk);
    let mut writer = PieceWriter::create(&life, COLD).expect("created");
    writer.begin_section(1, 1);
    writer
        .push_block(b"a", 1, &vec![1; 300_000], Codec::Plain)
        .expect("written");
    assert!(names(&disk).contains(&"cold-00000001.seg".to_owned()));
    drop(writer);
    assert!(!names(&disk).contains(&"cold-00000001.seg".to_owned()));
    let ids: Vec<_> = (0..3)
        .map(|_| write(&life, COLD, 2, 10).expect("written"))
        .collect();
    assert_eq!(
        ids,
        [2, 3, 4].map(SegmentId::new),
        "F2: the number of the removed file is not used again"
    );
    write(&life, META, 2, 10).expect("written");
    drop(life);
    let reader = SegmentStore::open(
        Arc::new(disk.kill()),
        OpenMode {
            read_only: true,
            ..mode()
        },
    )
    .expect("opened");
    assert_eq!(
        reader.remove_orphans(COLD, &|_| false).expect("nothing to do"),
        []
    );
    assert!(PieceWriter::create(&Arc::new(reader), COLD).is_err());
    let life = store(&disk);
    let gone = life
        .remove_orphans(COLD, &|id| id == SegmentId::new(3))
        .expect("removed");
    assert_eq!(gone, [2, 4].map(SegmentId::new));
    assert_eq!(life.list(COLD).expect("a listing"), [SegmentId::new(3)]);
    assert_eq!(life.list(META).expect("a listing"), [SegmentId::new(1)]);
    assert_eq!(write(&life, COLD, 1, 0).expect("written"), SegmentId::new(5));
    life.bump_next_piece_id(COLD, SegmentId::new(40));
    life.bump_next_piece_id(COLD, SegmentId::new(7));
    assert_eq!(write(&life, COLD, 1, 0).expect("written"), SegmentId::new(41));
}

#[test]
fn a_failed_write_or_a_full_disk_ends_one_file_and_leaves_nothing() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let before = names(&disk);
    disk.set_free_bytes(Some(1 << 20));
    let refused = write(&store, COLD, 8, 400_000)
        .expect_err("a full disk")
        .to_string();
    assert!(refused.contains("no space left"), "{refused}");
    assert_eq!(names(&disk), before);
    disk.set_free_bytes(None);
    for fault in [
        Fault::FailWrite {
            prefix: "cold-".into(),
            nth: 2,
        },
        Fault::FailSync {
            prefix: "cold-".into(),
            nth: 1,
        },
    ] {
        disk.plant(fault.clone());
        write(&store, COLD, 8, 400_000).expect_err("a fault");
        assert_eq!(names(&disk), before, "{fault:?}");
    }
    disk.plant(Fault::FailWrite {
        prefix: "cold-".into(),
        nth: 1,
    });
    let mut writer = PieceWriter::create(&store, COLD).expect("created");
    writer.begin_section(1, 1);
    writer
        .push_block(b"a", 1, &vec![1; 300_000], Codec::Plain)
        .expect_err("a fault");
    let refused = writer
        .push_block(b"b", 1, b"more", Codec::Plain)
        .expect_err("P1")
        .to_string();
    assert!(
        refused.contains("an earlier write failed; make the file anew"),
        "{refused}"
    );
    drop(writer);
    let id = write(&store, COLD, 8, 400_000).expect("written");
    check(&PieceFile::open(&store, COLD, id).expect("open"), 400_000);
}

#[test]
fn blocks_are_written_in_large_appends() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let before = disk.operations();
    let mut writer = PieceWriter::create(&store, COLD).expect("created");
    writer.begin_section(1, 1);
    for block in 0..1000 {
        writer
            .push_block(&key(block), 1, &raw(block, 2000), Codec::Plain)
            .expect("written");
        assert_eq!(writer.section_bytes(), (block as u64 + 1) * 2013);
        assert_eq!(writer.file_bytes(), 4096 + writer.section_bytes());
    }
    writer.end_section(b"z", b"");
    writer.finish().expect("finished");
    // Creation, two megabytes in appends of 256 KiB, the rest, two syncs.
    assert!(
        disk.operations() - before <= 1 + 8 + 1 + 2,
        "{}",
        disk.operations() - before
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_sections_come_back(
        sections in proptest::collection::vec(
            proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..20), any::<u32>(),
                 proptest::collection::vec(0_u8..4, 0..3000), 0_usize..3),
                0..20),
            0..6),
    ) {
        let disk = SimDisk::new();
        let store = store(&disk);
        let mut writer = PieceWriter::create(&store, COLD).expect("created");
        for (number, blocks) in sections.iter().enumerate() {
            writer.begin_section((number as u64) * (u64::MAX / 7), 9);
            for (key, entries, raw, codec) in blocks {
                writer.push_block(key, *entries, raw, CODECS[*codec]).expect("written");
            }
            writer.end_section(b"last", b"");
        }
        let id = writer.finish().expect("finished");
        let piece = PieceFile::open(&store, COLD, id).expect("open");
        piece.verify().expect("intact");
        prop_assert_eq!(piece.sections().len(), sections.len());
        let mut out = Vec::new();
        for (number, blocks) in sections.iter().enumerate() {
            let section = piece.section(number as u32).expect("there");
            prop_assert_eq!(section.owner, (number as u64) * (u64::MAX / 7));
            for (block, (key, entries, raw, _)) in blocks.iter().enumerate() {
                prop_assert_eq!(section.first_key(block), &key[..]);
                prop_assert_eq!(section.block_entries(block), *entries);
                piece.read_block(number as u32, block, &mut out).expect("readable");
                prop_assert_eq!(&out, raw);
            }
        }
    }
}
