//! What can be read of a damaged table: rule B13 of docs/storage.md.

#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Cursor, Error, LeftOut};
use pbxt_base::RowId;
use pbxt_segment::{PieceFile, SegmentClass};
use pbxt_sim::table::PlayRow;
use pbxt_txn::LockMode;
use std::collections::BTreeMap;
use store::Store;

const ROWS: u32 = 1000;

/// Rows of a scan, and what it left out.
struct Saved {
    rows: BTreeMap<RowId, PlayRow>,
    left_out: Vec<LeftOut>,
}

fn leaves_out() -> Bind {
    Bind {
        leave_out_damaged: true,
        ..Bind::default()
    }
}

fn scan(store: &mut Store, bind: Bind) -> pbxt::Result<Saved> {
    let table = &store.table;
    let saved = store.client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, bind)?;
        cursor.scan_start(session)?;
        let (mut rows, mut shown) = (BTreeMap::new(), None);
        while cursor.scan_next(session, |version| {
            shown = Some(table.decode(version.payload())?);
            Ok(())
        })? {
            rows.extend(shown.take().map(|row| (cursor.row(), row)));
        }
        let (left_out, more) = cursor.take_left_out();
        assert_eq!(more, 0, "few blocks are damaged");
        assert_eq!(cursor.take_left_out(), (Vec::new(), 0), "told once");
        Ok(Saved { rows, left_out })
    });
    store.client.session.rollback().expect("nothing was changed");
    saved
}

/// Files of rows of the table, with the offsets of their blocks.
fn blocks_of(store: &Store) -> Vec<(String, u64)> {
    let owner = u64::from(store.table.id().raw());
    let mut found = Vec::new();
    for id in store.db.store().list(SegmentClass::Cold).expect("listed") {
        let file = PieceFile::open(store.db.store(), SegmentClass::Cold, id).expect("a piece file");
        for section in file.sections().iter().filter(|section| section.owner == owner) {
            let blocks = 0..section.block_count();
            found.extend(blocks.map(|block| (file.name().to_owned(), section.block_offset(block))));
        }
    }
    found
}

fn settle(store: &mut Store) {
    store.fill();
    store.compact();
    store.db.checkpoint_step().expect("a checkpoint");
}

fn settled_store(rows: u32) -> Store {
    let mut store = Store::new();
    store.insert(0..rows);
    settle(&mut store);
    store.merge();
    store
}

/// Flips a bit of a block; blocks are not in the cache afterwards.
fn flip(store: &mut Store, (file, offset): &(String, u64)) {
    store
        .disk
        .flip_bit(file, offset + 20, 3)
        .expect("the file is there");
    store.reopen();
}

/// Each of `all` is shown as it is, or in a range that was told.
fn accounts_for(saved: &Saved, all: &BTreeMap<RowId, PlayRow>, file: &str) {
    for (row, version) in all {
        let is_told = saved
            .left_out
            .iter()
            .any(|range| (range.first..=range.last).contains(row));
        let shown = saved.rows.get(row);
        assert!(
            is_told || shown.is_some(),
            "B13: row {row} is neither shown nor told"
        );
        assert!(
            shown.is_none_or(|shown| shown == version),
            "B13: row {row} is not what it was"
        );
    }
    assert!(
        saved.rows.keys().all(|row| all.contains_key(row)),
        "B13: nothing comes back to life"
    );
    assert!(!saved.left_out.is_empty(), "B13: what is left out is told");
    for range in &saved.left_out {
        assert!(range.why.contains(file), "{}", range.why);
    }
}

#[test]
fn every_damaged_block_costs_its_own_rows_and_no_others() {
    let mut store = settled_store(ROWS);
    let all = scan(&mut store, Bind::default()).expect("sound").rows;
    assert_eq!(all.len(), ROWS as usize);
    let blocks = blocks_of(&store);
    assert!(blocks.len() > 3, "several blocks: {blocks:?}");
    for block in &blocks {
        flip(&mut store, block);
        let refused = scan(&mut store, Bind::default()).err().expect("damaged");
        assert!(refused.to_string().contains(&block.0), "{refused}");
        let saved = scan(&mut store, leaves_out()).expect("the rest is readable");
        accounts_for(&saved, &all, &block.0);
        let lost = all.len() - saved.rows.len();
        assert!(lost > 0 && lost < ROWS as usize / 3, "{lost} rows of one block");
        flip(&mut store, block);
    }
    let sound = scan(&mut store, leaves_out()).expect("sound");
    assert_eq!((sound.rows, sound.left_out), (all, Vec::new()));
}

#[test]
fn an_older_version_does_not_stand_in_for_one_that_cannot_be_read() {
    let mut store = settled_store(ROWS);
    let old = blocks_of(&store);
    let rows: Vec<RowId> = scan(&mut store, Bind::default())
        .expect("sound")
        .rows
        .into_keys()
        .collect();
    let table = &store.table;
    for (number, row) in rows.iter().enumerate() {
        if number % 10 == 0 {
            store.client.delete(table, *row).expect("deleted");
        } else {
            let changed = store.client.update(table, *row, |old| PlayRow {
                group: Some(77),
                ..old.clone()
            });
            changed.expect("changed");
        }
    }
    store.client.session.commit().expect("committed");
    settle(&mut store);
    let all = scan(&mut store, Bind::default()).expect("sound").rows;
    assert_eq!(all.len(), ROWS as usize / 10 * 9);
    let new: Vec<_> = blocks_of(&store)
        .into_iter()
        .filter(|block| !old.contains(block))
        .collect();
    assert!(
        new.len() > 3 && blocks_of(&store).len() > new.len(),
        "a newer run over an older one"
    );
    for block in &new {
        flip(&mut store, block);
        let saved = scan(&mut store, leaves_out()).expect("the rest is readable");
        accounts_for(&saved, &all, &block.0);
        flip(&mut store, block);
    }
}

#[test]
fn who_locks_or_changes_rows_is_refused() {
    let mut store = settled_store(100);
    let block = blocks_of(&store)[0].clone();
    flip(&mut store, &block);
    let locks = Bind {
        lock: Some(LockMode::Shared),
        ..leaves_out()
    };
    let changes = Bind {
        for_write: true,
        ..leaves_out()
    };
    for bind in [locks, changes] {
        let refused = scan(&mut store, bind).err();
        assert!(
            matches!(refused, Some(Error::Storage(_) | Error::Row(_))),
            "{refused:?}"
        );
    }
    assert!(
        !scan(&mut store, leaves_out())
            .expect("readable")
            .left_out
            .is_empty()
    );
}
