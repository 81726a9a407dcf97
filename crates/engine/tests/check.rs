//! The check finds damage in each part of a table, names it, and finds nothing else.

#[path = "common/store.rs"]
mod store;

use pbxt::{KeyChanges, NewVersion};
use pbxt_base::RowId;
use pbxt_index::SECTION_INDEX_RUN;
use pbxt_io::Disk;
use pbxt_rowmap::MapWord;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::table::{NAME_INDEX, PlayRow};
use std::sync::Arc;
use store::Store;

const GROUP_INDEX: usize = 1;

/// A row in every run, everything on disk, and nothing due.
fn settled_store(rows: u32) -> Store {
    let mut store = Store::new();
    store.insert(0..rows);
    settle(&mut store);
    store
}

fn settle(store: &mut Store) {
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
    store.merge();
}

fn findings(store: &mut Store) -> Vec<String> {
    let found = store.client.check(&store.table).expect("checkable");
    store.client.session.commit().expect("nothing to commit");
    found
}

fn key_event(keys: &mut KeyChanges, index: usize, old: Option<&[u8]>, new: &[u8]) {
    let mut put_old = |out: &mut Vec<u8>| -> pbxt::Result<()> {
        out.extend_from_slice(old.unwrap_or_default());
        Ok(())
    };
    let mut put_new = |out: &mut Vec<u8>| -> pbxt::Result<()> {
        out.extend_from_slice(new);
        Ok(())
    };
    let pushed = keys.push(
        index,
        false,
        old.is_some().then_some(&mut put_old),
        Some(&mut put_new),
        &mut |_| Ok(()),
    );
    pushed.expect("nothing can fail");
}

/// Inserts a row under its keys in all indexes but one, and under these keys in that one.
fn insert_with_keys(store: &mut Store, row: &PlayRow, index: usize, keys_there: &[Vec<u8>]) -> RowId {
    let mut keys = KeyChanges::new();
    for other in (0..pbxt_sim::table::INDEXES).filter(|other| *other != index) {
        key_event(&mut keys, other, None, &store.table.key(other, row));
    }
    for key in keys_there {
        key_event(&mut keys, index, None, key);
    }
    let payload = store.table.encode(row).expect("encoded");
    let table = Arc::clone(&store.table.table);
    let version = NewVersion {
        payload: &payload,
        schema_version: store.table.schema_version(),
        keys: &keys,
    };
    let inserted = store
        .client
        .statement(|session| session.insert(&table, version))
        .expect("inserted");
    store.client.session.commit().expect("committed");
    inserted
}

/// What is expected to be found while the rows are in the log, and when they have gone to runs.
fn finds_hot_and_settled(store: &mut Store, expected: &[String]) {
    assert_eq!(findings(store), expected, "in the log");
    settle(store);
    assert_eq!(findings(store), expected, "in runs");
}

#[test]
fn a_sound_table_has_no_findings_and_progress_comes_to_its_end() {
    let mut store = settled_store(200);
    store.insert(200..300);
    assert_eq!(findings(&mut store), Vec::<String>::new());
    let mut last = (0, 0);
    let table = Arc::clone(&store.table.table);
    let count = store.client.statement(|session| {
        pbxt::check_table(session, &table, &mut |_| {}, &mut |done, total| {
            assert!(
                done >= last.0 && done <= total,
                "{done} of {total} after {last:?}"
            );
            last = (done, total);
        })
    });
    assert_eq!(count.expect("checkable"), 0);
    assert!(last.0 == last.1 && last.1 > 300, "{last:?}");
}

#[test]
fn a_missing_entry_is_found() {
    let mut store = settled_store(100);
    for index in [GROUP_INDEX, NAME_INDEX] {
        let row = insert_with_keys(&mut store, &Store::row(500 + index as u32), index, &[]);
        let name = store.table.table.indexes[index].def.name.clone();
        let found = findings(&mut store);
        let expected = format!("index '{name}' does not show row {row}");
        assert!(found.contains(&expected), "{found:?}");
    }
    let both = findings(&mut store);
    assert_eq!(both.len(), 2, "{both:?}");
    finds_hot_and_settled(&mut store, &both);
}

#[test]
fn a_superfluous_entry_and_a_wrong_key_are_found() {
    let mut store = settled_store(100);
    let (row, other) = (Store::row(600), Store::row(601));
    let keys = [
        store.table.key(GROUP_INDEX, &row),
        store.table.key(GROUP_INDEX, &other),
    ];
    let twice = insert_with_keys(&mut store, &row, GROUP_INDEX, &keys);
    let wrong = insert_with_keys(&mut store, &Store::row(602), GROUP_INDEX, &keys[1..]);
    let under_wrong_key =
        |row| format!("index 'by_group' has row {row} under a key that its columns do not give");
    let expected = [
        under_wrong_key(twice),
        under_wrong_key(wrong),
        format!("index 'by_group' shows row {twice} 2 times"),
    ];
    finds_hot_and_settled(&mut store, &expected);
}

#[test]
fn an_entry_of_a_row_that_is_not_there_is_found() {
    let mut store = settled_store(100);
    let row = store
        .client
        .insert(&store.table, &Store::row(700))
        .expect("inserted");
    store.client.session.commit().expect("committed");
    let map = &store.table.table.map;
    map.compare_exchange(row, map.load(row), MapWord::ABSENT)
        .expect("nobody else changes it");
    let found = findings(&mut store);
    for index in &store.table.table.indexes {
        let expected = format!(
            "index '{}' shows row {row}, which a table scan does not",
            index.def.name
        );
        assert!(found.contains(&expected), "{expected} is not in {found:?}");
    }
    let count = "the row count says 101, the table has 100 visible rows".to_owned();
    assert!(found.contains(&count), "{found:?}");
    assert_eq!(found.len(), 5, "{found:?}");
}

#[test]
fn a_wrong_row_count_is_found() {
    let mut store = settled_store(30);
    store.fill();
    let ts = store.db.txns().published();
    store.table.table.count.push(ts, 3);
    assert_eq!(
        findings(&mut store),
        ["the row count says 33, the table has 30 visible rows"]
    );
}

#[test]
fn few_wrong_rows_among_many_are_named_and_of_many_twenty() {
    let mut store = Store::new();
    let mut missing = Vec::new();
    for chunk in 0..10 {
        store.insert(chunk * 900..chunk * 900 + 899);
        let row = Store::row(chunk * 900 + 899);
        missing.push(insert_with_keys(&mut store, &row, GROUP_INDEX, &[]));
    }
    let expected: Vec<_> = missing
        .iter()
        .map(|row| format!("index 'by_group' does not show row {row}"))
        .collect();
    assert_eq!(findings(&mut store), expected);
    for id in 10_000..10_040 {
        insert_with_keys(&mut store, &Store::row(id), GROUP_INDEX, &[]);
    }
    let mut told = Vec::new();
    let table = Arc::clone(&store.table.table);
    let count = store.client.statement(|session| {
        pbxt::check_table(
            session,
            &table,
            &mut |text| told.push(text.to_owned()),
            &mut |_, _| {},
        )
    });
    assert_eq!((count.expect("checkable"), told.len()), (50, 21));
    assert_eq!(told[20], "and 30 more");
}

/// Name of the file, and offset of each block, of sections that `is_wanted`, section by section.
fn sections_of(
    store: &Store,
    class: SegmentClass,
    is_wanted: impl Fn(u8, u64) -> bool,
) -> Vec<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for id in store.db.store().list(class).expect("listed") {
        let file = PieceFile::open(store.db.store(), class, id).expect("a piece file");
        for section in file.sections() {
            if is_wanted(section.kind, section.owner) {
                let blocks = 0..section.block_count();
                let place = |block| (file.name().to_owned(), section.block_offset(block));
                found.push(blocks.map(place).collect());
            }
        }
    }
    found
}

/// The same in one list.
fn blocks_of(store: &Store, class: SegmentClass, is_wanted: impl Fn(u8, u64) -> bool) -> Vec<(String, u64)> {
    sections_of(store, class, is_wanted).concat()
}

/// Flips a bit in each block, one after the other, and expects the check to name its place.
fn every_flip_is_found(store: &mut Store, blocks: &[(String, u64)]) {
    assert!(!blocks.is_empty());
    for (file, offset) in blocks {
        for at in [offset + 5, offset + 20] {
            store.disk.flip_bit(file, at, 3).expect("the file is there");
            let found = findings(store);
            let names_it = |text: &String| text.contains(file) && text.contains(&offset.to_string());
            assert!(found.iter().any(names_it), "{file} at {at}: {found:?}");
            store.disk.flip_bit(file, at, 3).expect("the file is there");
        }
    }
    assert_eq!(findings(store), Vec::<String>::new());
}

#[test]
fn a_damaged_block_of_rows_is_found_though_the_cache_has_it() {
    let mut store = settled_store(300);
    store.shows(0..300);
    let id = u64::from(store.table.id().raw());
    let blocks = blocks_of(&store, SegmentClass::Cold, |_, owner| owner == id);
    every_flip_is_found(&mut store, &blocks);
}

#[test]
fn a_damaged_block_of_an_index_is_found_though_the_cache_has_it() {
    let mut store = settled_store(300);
    store.shows(0..300);
    for index in 0..pbxt_sim::table::INDEXES {
        let id = u64::from(store.table.table.indexes[index].def.id.raw());
        let blocks = blocks_of(&store, SegmentClass::Meta, |kind, owner| {
            kind == SECTION_INDEX_RUN && owner == id
        });
        every_flip_is_found(&mut store, &blocks);
    }
}

#[test]
fn a_damaged_block_that_readers_need_ends_no_check() {
    let mut store = settled_store(300);
    let id = u64::from(store.table.id().raw());
    let blocks = blocks_of(&store, SegmentClass::Cold, |_, owner| owner == id);
    let (file, offset) = blocks[0].clone();
    // Nothing has been read yet, so that the scan meets it too.
    store
        .disk
        .flip_bit(&file, offset + 40, 0)
        .expect("the file is there");
    let found = findings(&mut store);
    assert!(
        found[0].starts_with("rows 1 to "),
        "the rows that are gone: {found:?}"
    );
    let ends = |text: &String| text.starts_with("the table scan ends early: ");
    assert!(found.iter().any(ends), "{found:?}");
    assert_eq!(found.len(), 2, "indexes are sound and not compared: {found:?}");
}

/// So many rows, all in one piece, as are their entries.
fn store_of_whole_pieces(rows: u32) -> Store {
    let store = settled_store(rows);
    store
        .db
        .compact(|_| true)
        .expect("nothing is left of older pieces");
    store
}

/// A medium that refuses to read is as one that reads wrongly: it ends no check, and hides nothing else.
#[test]
fn a_sector_that_cannot_be_read_is_a_finding_and_hides_no_other() {
    let mut store = store_of_whole_pieces(3000);
    let table = u64::from(store.table.id().raw());
    let rows = blocks_of(&store, SegmentClass::Cold, |_, owner| owner == table);
    let index = u64::from(store.table.table.indexes[GROUP_INDEX].def.id.raw());
    let entries = blocks_of(&store, SegmentClass::Meta, |kind, owner| {
        kind == SECTION_INDEX_RUN && owner == index
    });
    assert!(rows.len() > 4, "blocks before and behind: {}", rows.len());
    let ((refused, at), (flipped, damaged)) = (rows[1].clone(), rows[3].clone());
    // A sector of no other block.
    store
        .disk
        .make_unreadable(&refused, at + 1024)
        .expect("the file is there");
    store
        .disk
        .flip_bit(&flipped, damaged + 20, 3)
        .expect("the file is there");
    let (meta, place) = entries[0].clone();
    store
        .disk
        .make_unreadable(&meta, place + 20)
        .expect("the file is there");
    let found = findings(&mut store);
    let told = |words: &[&str]| {
        let fits = |text: &&String| words.iter().all(|word| text.contains(word));
        found.iter().filter(fits).count()
    };
    assert_eq!(
        told(&["rows ", " to ", ": cannot read", &refused]),
        1,
        "{found:?}"
    );
    assert_eq!(
        told(&["rows ", " to ", "damaged", &damaged.to_string()]),
        1,
        "{found:?}"
    );
    assert!(told(&["index '", "cannot read", &meta]) > 0, "{found:?}");
}

#[test]
fn a_quick_check_finds_sectors_that_cannot_be_read_at_ends_of_pieces() {
    let mut store = store_of_whole_pieces(3000);
    let table = u64::from(store.table.id().raw());
    let rows = blocks_of(&store, SegmentClass::Cold, |_, owner| owner == table);
    let index = u64::from(store.table.table.indexes[GROUP_INDEX].def.id.raw());
    let entries = blocks_of(&store, SegmentClass::Meta, |kind, owner| {
        kind == SECTION_INDEX_RUN && owner == index
    });
    for (file, offset) in [&rows[0], &entries[0]] {
        store
            .disk
            .make_unreadable(file, offset + 20)
            .expect("the file is there");
    }
    let found = quick_findings(&mut store);
    for (file, _) in [&rows[0], &entries[0]] {
        let names_it = |text: &String| text.contains("cannot read") && text.contains(file);
        assert!(found.iter().any(names_it), "{file}: {found:?}");
    }
}

fn quick_findings(store: &mut Store) -> Vec<String> {
    let table = Arc::clone(&store.table.table);
    let mut told = Vec::new();
    let count = store.client.statement(|session| {
        pbxt::check_table_quickly(
            session,
            &table,
            &mut |text| told.push(text.to_owned()),
            &mut |_, _| {},
        )
    });
    store.client.session.commit().expect("nothing to commit");
    assert_eq!(count.expect("checkable"), told.len() as u64);
    told
}

/// Flips a bit in each block by itself: the quick check names the first and the last one of a section, and is silent of the others.
/// How many there are of either.
fn quick_flips(store: &mut Store, sections: &[Vec<(String, u64)>]) -> (usize, usize) {
    let (mut at_ends, mut between) = (0, 0);
    for blocks in sections {
        for (number, (file, offset)) in blocks.iter().enumerate() {
            let is_end = number == 0 || number + 1 == blocks.len();
            store
                .disk
                .flip_bit(file, offset + 20, 3)
                .expect("the file is there");
            let found = quick_findings(store);
            let names_it = |text: &String| text.contains(file) && text.contains(&offset.to_string());
            assert_eq!(
                found.iter().any(names_it),
                is_end,
                "{file} at {offset}: {found:?}"
            );
            assert_eq!(found.is_empty(), !is_end, "{file} at {offset}: {found:?}");
            store
                .disk
                .flip_bit(file, offset + 20, 3)
                .expect("the file is there");
            *(if is_end { &mut at_ends } else { &mut between }) += 1;
        }
    }
    (at_ends, between)
}

#[test]
fn a_quick_check_looks_at_the_ends_of_pieces_and_no_further() {
    let mut store = store_of_whole_pieces(3000);
    assert_eq!(quick_findings(&mut store), Vec::<String>::new());
    let id = u64::from(store.table.id().raw());
    let rows = sections_of(&store, SegmentClass::Cold, |_, owner| owner == id);
    let (ends, between) = quick_flips(&mut store, &rows);
    assert!(ends >= 2 && between > 0, "{ends} and {between} blocks of rows");
    let id = u64::from(store.table.table.indexes[GROUP_INDEX].def.id.raw());
    let entries = sections_of(&store, SegmentClass::Meta, |kind, owner| {
        kind == SECTION_INDEX_RUN && owner == id
    });
    for blocks in entries {
        for end in [blocks.first(), blocks.last()] {
            let (file, offset) = end.expect("a block");
            store
                .disk
                .flip_bit(file, offset + 20, 3)
                .expect("the file is there");
            let found = quick_findings(&mut store);
            assert!(found.iter().any(|text| text.contains(file)), "{found:?}");
            store
                .disk
                .flip_bit(file, offset + 20, 3)
                .expect("the file is there");
        }
    }
    assert_eq!(quick_findings(&mut store), Vec::<String>::new());
}

#[test]
fn a_quick_check_reports_each_piece_and_ends_with_a_kill() {
    let mut store = settled_store(300);
    let table = Arc::clone(&store.table.table);
    let mut reports = Vec::new();
    let count = store.client.statement(|session| {
        let mut report = |done: u64, total: u64| reports.push((done, total));
        pbxt::check_table_quickly(session, &table, &mut |_| {}, &mut report)
    });
    assert_eq!(count.expect("checkable"), 0);
    let total = reports[0].1;
    assert!(
        total > pbxt_sim::table::INDEXES as u64,
        "a piece of rows and of each index: {total}"
    );
    let expected: Vec<_> = (1..=total).chain([total]).map(|done| (done, total)).collect();
    assert_eq!(reports, expected);
    let gate = Arc::clone(store.client.session.gate());
    let checked = store.client.statement(|session| {
        let mut kill = |_: u64, _: u64| gate.kill();
        pbxt::check_table_quickly(session, &table, &mut |_| {}, &mut kill)
    });
    assert!(matches!(checked, Err(pbxt::Error::Killed)), "{checked:?}");
}

#[test]
fn a_kill_ends_a_check() {
    let mut store = Store::new();
    store.insert(0..5000);
    let table = Arc::clone(&store.table.table);
    let gate = Arc::clone(store.client.session.gate());
    let checked = store.client.statement(|session| {
        let mut kill = |_: u64, _: u64| gate.kill();
        pbxt::check_table(session, &table, &mut |_| {}, &mut kill)
    });
    assert!(matches!(checked, Err(pbxt::Error::Killed)), "{checked:?}");
}

/// Names of the files that have pieces of the table.
fn files_of_table(store: &Store) -> Vec<String> {
    let table = u64::from(store.table.id().raw());
    let rows = blocks_of(store, SegmentClass::Cold, |_, owner| owner == table);
    let index = u64::from(store.table.table.indexes[GROUP_INDEX].def.id.raw());
    let entries = blocks_of(store, SegmentClass::Meta, |kind, owner| {
        kind == SECTION_INDEX_RUN && owner == index
    });
    vec![rows[0].0.clone(), entries[0].0.clone()]
}

#[test]
fn what_the_next_opening_would_be_refused_for_or_do_without_is_a_finding() {
    let mut store = store_of_whole_pieces(3000);
    assert_eq!(findings(&mut store), [""; 0]);
    let files = files_of_table(&store);
    let disk = store.disk.clone();
    let expect = |store: &mut Store, what: &str, file: &str| {
        let is_lost = ["missing", "exchanged"].contains(&what);
        let what_then = if file.starts_with("meta") && !is_lost {
            "set aside all indexes"
        } else {
            "be refused"
        };
        for (kind, found) in [("whole", findings(store)), ("quick", quick_findings(store))] {
            let is_named = |text: &String| {
                text.contains(&format!("the next start would {what_then}")) && text.contains(file)
            };
            assert_eq!(
                found.iter().filter(|text| is_named(text)).count(),
                1,
                "B15: {kind}, {what}: {found:?}"
            );
        }
    };
    for file in &files {
        let content = disk.content(file).expect("the file is there");
        let bytes = content.len() as u64;
        for (what, offset) in [("header", 20), ("directory", bytes - 100), ("tail", bytes - 10)] {
            disk.flip_bit(file, offset, 3).expect("the file is there");
            expect(&mut store, what, file);
            disk.flip_bit(file, offset, 3).expect("the file is there");
        }
        assert_eq!(findings(&mut store), [""; 0], "mended");
        // As if it had been written again by somebody else: whoever has it open reads on.
        Disk::remove(&disk, file).expect("removed");
        expect(&mut store, "missing", file);
        let again = disk.create(file, 0).expect("made");
        again
            .write_at(&content[..content.len() - 10], 0)
            .expect("written");
        expect(&mut store, "cut short", file);
        again
            .write_at(&content[content.len() - 10..], bytes - 10)
            .expect("written");
        assert_eq!(findings(&mut store), [""; 0], "mended");
    }
    let others = disk.content(&files[0]).expect("the file is there");
    Disk::remove(&disk, &files[1]).expect("removed");
    let wrong = disk.create(&files[1], 0).expect("made");
    wrong.write_at(&others, 0).expect("written");
    expect(&mut store, "exchanged", &files[1]);
}
