//! Rows behind index entries are read in batches of blocks, each block of a stretch is unpacked once, and rows that nobody may want are
//! not read at all.

mod common;
#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Cursor, Progress, RowVersion, Seek};
use pbxt_sim::table::PlayRow;
use store::Store;

const ROWS: u32 = 12_000;

/// Rows whose order by group has nothing to do with that of their ids, all out of the log.
fn scattered() -> Store {
    with_groups(|id| id.wrapping_mul(2_654_435_761) >> 8)
}

fn with_groups(group_of: impl Fn(u32) -> u32) -> Store {
    let mut store = Store::new();
    for id in 0..ROWS {
        let group = Some(group_of(id));
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
    store.db.status().block_cache.misses
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

/// A scan through the index of groups.
struct Walk {
    /// From the first or last row of this group on; none: from an end of the index.
    group: Option<u32>,
    forward: bool,
    /// What the cursor is told (rule X51).
    expected: u64,
    /// Rows that are asked for, and no more once the group is another.
    most: usize,
}

impl Walk {
    /// Blocks read, and the rows met.
    fn go(&self, store: &mut Store) -> (u64, Vec<PlayRow>) {
        let before = loads_of(store);
        let table = store.table.clone();
        let mut met: Vec<PlayRow> = Vec::new();
        let done = store.client.statement(|session| {
            let mut cursor = Cursor::new(&table.table);
            cursor.bind(session, Bind::default())?;
            cursor.index_start(session, 1)?;
            cursor.expect(self.expected);
            let mut show = |version: &RowVersion<'_>| {
                met.push(table.decode(version.payload())?);
                Ok(())
            };
            let seek = if self.forward { Seek::Exact } else { Seek::Last };
            let mut found = match self.group {
                Some(group) => cursor.seek(session, &table.prefix(1, &[Some(group)]), seek, &mut show)?,
                None => cursor.index_edge(session, !self.forward, &mut show)?,
            };
            let mut asked = 1;
            while found && asked < self.most {
                found = cursor.index_move(session, self.forward, false, &mut show)?;
                asked += 1;
            }
            Ok(())
        });
        done.expect("readable");
        (loads_of(store) - before, met)
    }
}

/// Rule X50.
#[test]
fn who_goes_back_from_the_last_row_of_a_prefix_reads_no_others() {
    const IN_GROUP: u32 = 60;
    let mut store = with_groups(|id| id % (ROWS / IN_GROUP));
    let back = Walk {
        group: Some(100),
        forward: false,
        expected: 0,
        most: IN_GROUP as usize + 1,
    };
    let (loads, rows) = back.go(&mut store);
    let groups: Vec<_> = rows.iter().map(|row| row.group).collect();
    assert_eq!(groups[..IN_GROUP as usize], [Some(100); IN_GROUP as usize]);
    assert_eq!(
        groups[IN_GROUP as usize..],
        [Some(101)],
        "the neighbour is there for who asks"
    );
    // A row of its own block each, the one beyond, and blocks of the index.
    assert!(
        loads <= u64::from(IN_GROUP) + 4,
        "X50: {loads} blocks for {IN_GROUP} rows"
    );
    // Whoever goes on meets every row of the groups before, too; they stand in descending order.
    let on = Walk { most: 500, ..back };
    let (_, further) = on.go(&mut store);
    let groups: Vec<_> = further.iter().map(|row| row.group).collect();
    let expected: Vec<_> = (0..500).map(|at| Some(100 + at / IN_GROUP)).collect();
    assert_eq!(groups, expected);
}

/// Rule X51.
#[test]
fn a_scan_with_a_limit_reads_about_as_many_rows() {
    const LIMIT: usize = 60;
    let mut store = scattered();
    let limited = Walk {
        group: None,
        forward: true,
        expected: LIMIT as u64,
        most: LIMIT,
    };
    let (loads, rows) = limited.go(&mut store);
    assert_eq!(rows.len(), LIMIT);
    // One row at a time, two first stretches, and blocks of the index.
    assert!(loads <= 16 + 2 * 32 + 4, "X51: {loads} blocks for {LIMIT} rows");
    let all = |expected| Walk {
        group: None,
        forward: true,
        expected,
        most: ROWS as usize + 1,
    };
    let (_, wanted) = all(0).go(&mut store);
    assert_eq!(wanted.len(), ROWS as usize);
    let (_, told) = all(LIMIT as u64).go(&mut store);
    assert!(told == wanted, "who was told wrongly still meets every row");
}

/// Rule X55.
#[test]
fn a_short_scan_of_rows_at_hand_reads_them_one_by_one() {
    const ALL: u32 = 300;
    let mut store = Store::new();
    store.insert(0..ALL);
    store.fill();
    store.compact();
    store.merge();
    reads_one_by_one(&mut store, ALL, ALL);
}

/// Rule B14.
#[test]
fn rows_of_a_load_that_all_see_are_at_hand() {
    const ALL: u32 = 1500;
    let mut store = Store::new();
    let table = store.table.clone();
    let loaded = store.client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        let mut rows = (0..ALL).map(PlayRow::new);
        let done = rows.try_for_each(|row| common::put(session, &table, &row));
        let ended = session.bulk_end(&table.table, false);
        done?;
        ended
    });
    loaded.expect("a load");
    store.client.session.commit().expect("a commit");
    store.db.housekeeping_step();
    reads_one_by_one(&mut store, ALL, 300);
    assert!(
        store.db.settle_tags_step().expect("a step") == Progress::Idle,
        "B14: the tag stays as long as no checkpoint has begun"
    );
}

/// Reads so many of all rows, which are at hand, by an index: they are fetched ahead only beyond the 256th (rule X55).
fn reads_one_by_one(store: &mut Store, all: u32, read: u32) {
    // Blocks are at hand from their second use on.
    for _ in 0..3 {
        store.shows(0..all);
    }
    let (db, table) = (store.db.clone(), store.table.clone());
    let taken = || {
        let caches = db.list_caches();
        let ahead = caches.iter().find(|line| line.name == "rows fetched ahead");
        ahead.map(|line| line.bytes).expect("a line of it")
    };
    let done = store.client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 0)?;
        let mut found = cursor.index_edge(session, false, |_| Ok(()))?;
        for shown in 1..read {
            assert!(found, "{shown} rows");
            // A handful under way ends first (rule X60).
            let (is_early, is_late) = (shown <= 256, shown > 256 + 16);
            assert!(!is_early || taken() == 0, "X55: a stretch at row {shown}");
            assert!(!is_late || taken() > 0, "X55: no stretch at row {shown}");
            found = cursor.index_move(session, true, false, |_| Ok(()))?;
        }
        Ok(())
    });
    done.expect("readable");
}
