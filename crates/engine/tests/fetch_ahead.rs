//! Rows behind index entries are read in batches of blocks, and each block of a stretch is unpacked once.

#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Cursor};
use pbxt_sim::table::PlayRow;
use store::Store;

const ROWS: u32 = 12_000;

/// Rows whose order by group has nothing to do with that of their ids, all out of the log.
fn scattered() -> Store {
    let mut store = Store::new();
    for id in 0..ROWS {
        let group = Some(id.wrapping_mul(2_654_435_761) >> 8);
        let row = PlayRow {
            group,
            ..Store::row(id)
        };
        store.client.insert(&store.table, &row).expect("inserted");
        if id % 1000 == 999 {
            store.client.session.commit().expect("committed");
        }
    }
    store.fill();
    store.compact();
    store.merge();
    store
}

fn loads_of(store: &Store) -> u64 {
    store.db.status().expect("known").block_cache.misses
}

#[test]
fn a_stretch_unpacks_each_of_its_blocks_once() {
    let mut store = scattered();
    let before = loads_of(&store);
    let table = store.table.clone();
    let mut ids = Vec::new();
    let counted = store.client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 1)?;
        let mut found = cursor.index_edge(session, false, |row| {
            ids.push(row.row());
            Ok(())
        })?;
        while found {
            found = cursor.index_move(session, true, false, |row| {
                ids.push(row.row());
                Ok(())
            })?;
        }
        Ok(())
    });
    counted.expect("readable");
    assert_eq!(ids.len(), ROWS as usize);
    let loads = loads_of(&store) - before;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ROWS as usize, "each row once");
    // 1 MiB of cache makes stretches of more than 300 rows, each of which needs nearly all blocks; a scan reads each block once.
    let before = loads_of(&store);
    store.client.scan(&store.table).expect("readable");
    let blocks = loads_of(&store) - before;
    assert!(blocks > 20, "{blocks} blocks");
    let most = blocks * (u64::from(ROWS) / 300 + 4);
    assert!(
        loads > blocks && loads < most,
        "{loads} loads of {blocks} blocks, at most {most}"
    );
}
