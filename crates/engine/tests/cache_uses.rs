//! What counts as a use of a cached block (rule S42 of docs/storage.md).

#[path = "common/store.rs"]
mod store;

use pbxt_sim::table::PlayRow;
use std::sync::Arc;
use store::Store;

const ROWS: u32 = 200;

fn uses(store: &Store) -> u64 {
    let cache = store.db.status().block_cache;
    cache.hits + cache.misses
}

#[test]
fn a_change_makes_one_use_of_the_rows_block() {
    let mut store = Store::new();
    store.insert(0..ROWS);
    let table = store.table.clone();
    let (read, _) = store
        .client
        .scan(&table)
        .expect("readable")
        .into_iter()
        .unzip::<_, _, Vec<_>, Vec<_>>();
    store.client.session.commit().expect("nothing to commit");
    store.fill();
    store.compact();
    store.merge();
    let before = uses(&store);
    for &row in &read {
        let changed = store.client.update(&table, row, |old| PlayRow {
            memo: Some(Arc::from([7; 20])),
            ..old.clone()
        });
        assert!(changed.expect("changeable").is_some());
        store.client.session.commit().expect("committed");
    }
    assert_eq!(read.len(), ROWS as usize);
    assert_eq!(
        uses(&store) - before,
        u64::from(ROWS),
        "S42: one for the look, none for the change"
    );
}
