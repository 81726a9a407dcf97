//! Rows that a short index scan finds ahead (rule B2 of docs/storage.md).

#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Cursor, Database, Progress, RowVersion};
use pbxt_base::RowId;
use std::sync::Arc;
use store::Store;

const ROWS: u32 = 5;

/// Rows in blocks that were asked for again and again.
fn settled() -> Store {
    let mut store = Store::new();
    store.insert(0..ROWS);
    store.fill();
    store.compact();
    store.merge();
    for _ in 0..3 {
        store.shows(0..ROWS);
    }
    store
}

/// Gives all rows this group.
fn change(store: &mut Store, group: u32) {
    for id in 1..=u64::from(ROWS) {
        let changed = store.client.update(&store.table, RowId::new(id), |row| {
            let mut row = row.clone();
            row.group = Some(group);
            row
        });
        changed.expect("updated").expect("there");
    }
    store.client.session.commit().expect("committed");
    store.fill();
}

fn home(db: &Database) {
    db.housekeeping_step();
    while db.compact_step().expect("compacted") == Progress::Worked {}
}

/// Groups of all rows in the order of the first index; something happens when the first row was shown.
fn groups(store: &mut Store, meanwhile: impl FnOnce(&Arc<Database>)) -> Vec<Option<u32>> {
    let (table, db) = (store.table.clone(), Arc::clone(&store.db));
    let groups = store.client.statement(|session| {
        let mut groups = Vec::new();
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 0)?;
        let mut show = |version: &RowVersion<'_>| -> pbxt::Result<()> {
            groups.push(table.decode(version.payload())?.group);
            Ok(())
        };
        let mut found = cursor.index_edge(session, false, &mut show)?;
        meanwhile(&db);
        while found {
            found = cursor.index_move(session, true, false, &mut show)?;
        }
        Ok(groups)
    });
    store.client.session.commit().expect("nothing to commit");
    groups.expect("readable")
}

#[test]
fn a_row_found_ahead_is_looked_for_again_if_it_was_homed_meanwhile() {
    let mut store = settled();
    change(&mut store, 7);
    let found = groups(&mut store, |db| home(db));
    assert_eq!(found, vec![Some(7); ROWS as usize], "B2");
}

#[test]
fn a_row_found_ahead_is_not_shown_instead_of_one_in_the_log() {
    let mut store = settled();
    change(&mut store, 8);
    let found = groups(&mut store, |_| {});
    assert_eq!(found, vec![Some(8); ROWS as usize], "B2");
}

#[test]
fn a_row_removed_in_the_log_is_not_shown_though_its_slot_was_found_ahead() {
    let mut store = settled();
    let removed = store.client.delete(&store.table, RowId::new(2));
    removed.expect("deletable").expect("there");
    store.client.session.commit().expect("committed");
    assert_eq!(groups(&mut store, |_| {}).len(), ROWS as usize - 1);
    store.fill();
    assert_eq!(groups(&mut store, |db| home(db)).len(), ROWS as usize - 1);
}

#[test]
fn rows_of_the_log_and_of_blocks_are_shown_side_by_side() {
    let mut store = settled();
    for id in [2, 3] {
        let changed = store.client.update(&store.table, RowId::new(id), |row| {
            let mut row = row.clone();
            row.group = Some(9);
            row
        });
        changed.expect("updated").expect("there");
    }
    store.client.session.commit().expect("committed");
    let expected: Vec<Option<u32>> = (0..ROWS)
        .map(|id| {
            if matches!(id, 1 | 2) {
                Some(9)
            } else {
                Store::row(id).group
            }
        })
        .collect();
    assert_eq!(groups(&mut store, |_| {}), expected);
    // Looked for in the log behind a row of the log, and gone from there when its turn comes.
    store.fill();
    assert_eq!(groups(&mut store, |db| home(db)), expected);
    assert_eq!(groups(&mut store, |_| {}), expected);
}
