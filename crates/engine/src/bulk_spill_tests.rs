//! Parts of any length, and what they take of memory.

use super::*;
use crate::bulk_keys::KeySorter;
use crate::bulk_sort::{FAN_IN, MergedSource};
use crate::database::{Database, Options};
use pbxt_segment::Geometry;
use pbxt_testkit::{Rng, SimDisk};

const ROWS: u64 = 100;
const KEY_BYTES: usize = 100;

fn database() -> Arc<Database> {
    let options = Options {
        geometry: Geometry::small(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(SimDisk::new()), &options).expect("a new database")
}

/// Keys that do not shrink, of rows from `base` on.
fn arena_of(rng: &mut Rng, base: RowId, expected: &mut Vec<(Vec<u8>, RowId)>) -> KeyArena {
    let mut arena = KeyArena::default();
    for row in 0..ROWS {
        let mut key = vec![0; KEY_BYTES];
        rng.fill(&mut key);
        arena.push(row as u32, &key, false, b"unpack");
        expected.push((key, RowId::new(base.raw() + row)));
    }
    arena
}

/// Rule L2, whatever the bytes of a part.
#[test]
fn a_part_of_any_length_is_read_back_in_order() {
    let (db, mut rng, mut expected) = (database(), Rng::new(3), Vec::new());
    let mut sorter = KeySorter::new(&db, 1);
    for chunk in 0..=FAN_IN as u64 {
        let base = RowId::new(1 + chunk * ROWS);
        let arena = arena_of(&mut rng, base, &mut expected);
        let spilled = sorter.spill(&[arena], None, base, &mut |_| Ok(()));
        spilled.expect("spilled");
    }
    let parts = sorter.parts_of(0);
    let levels: Vec<u32> = parts.iter().map(|part| part.level).collect();
    assert_eq!(levels, [1, 0], "so many parts of one level are merged");
    let sections = parts[0].file.file.sections();
    assert!(sections.len() > 3, "{} sections", sections.len());
    for section in sections {
        let (bytes, most) = (section.stored_bytes, SECTION_BYTES + 2 * BLOCK_BYTES as u64);
        assert!(bytes < most, "a section of {bytes} bytes");
        assert!(bytes > 0, "a section without a block");
    }
    let sources = parts.iter().map(Source::file).collect::<Result<_>>();
    let mut merged = MergedSource::new(sources.expect("readable"));
    expected.sort();
    for (key, row) in expected {
        let entry = merged.entry().expect("an entry for each that came");
        assert_eq!(
            (entry.key, entry.row, entry.unpack),
            (&key[..], row, &b"unpack"[..])
        );
        merged.advance().expect("readable");
    }
    assert!(merged.entry().is_none());
}

/// Rule L9.
#[test]
fn keys_of_a_part_take_no_memory_while_it_waits() {
    const KEYS: u64 = 2000;
    let db = database();
    let mut spill = KeySorter::new(&db, 1).new_spill().expect("a new file");
    spill.begin(0);
    let mut key = vec![0; 3000];
    for row in 0..KEYS {
        key[..8].copy_from_slice(&row.to_le_bytes());
        let entry = KeyEntry {
            key: &key,
            row: RowId::new(row),
            claim: false,
            unpack: &[],
        };
        spill.push(&entry).expect("spilled");
    }
    spill.end().expect("spilled");
    let parts = spill.finish(0).expect("a whole file");
    let (bytes, blocks) = (
        parts[0].file.file.memory_bytes(),
        KEYS as usize * key.len() / BLOCK_BYTES,
    );
    assert!(bytes < 100 * blocks, "{bytes} bytes for {blocks} blocks");
}
