//! The hot paths: what hosts ask for most, each in a loop of its own.

use crate::scene::{BY_K, ID, K, PRIMARY, ROWS, Rows, Scene, record};
use pbxt::host::{HostBound, HostRange};
use pbxt::{Result, Seek};

/// The first of the two texts of a row.
const C: usize = 2;
/// Rows of a short range.
const SHORT: u32 = 100;

/// One thing that is done many times.
pub(crate) struct HotPath {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) rows: Rows,
    /// How often it is done when it is counted; of scans, rows.
    pub(crate) operations: u32,
    run: fn(&mut Scene, u32) -> Result<()>,
}

const fn path(
    name: &'static str,
    rows: Rows,
    operations: u32,
    run: fn(&mut Scene, u32) -> Result<()>,
    what: &'static str,
) -> HotPath {
    HotPath {
        name,
        what,
        rows,
        operations,
        run,
    }
}

/// All of them.
pub(crate) const ALL: &[HotPath] = &[
    path(
        "insert",
        Rows::Hot,
        2_000,
        insert,
        "a row inserted by a statement of its own, in one transaction",
    ),
    path(
        "insert-commit",
        Rows::Hot,
        1_000,
        insert_commit,
        "a row inserted and committed, with the log written and flushed",
    ),
    path(
        "load",
        Rows::None,
        10_000,
        load,
        "a row of a bulk load into an empty table",
    ),
    path(
        "find-hot",
        Rows::Hot,
        2_000,
        find,
        "a row found by its primary key, in the log",
    ),
    path("find-cold", Rows::Cold, 2_000, find, "the same in a block"),
    path(
        "find-in-runs",
        Rows::Runs,
        2_000,
        find,
        "the same in the log, with its key in one of eight runs",
    ),
    path(
        "lock-in-runs",
        Rows::Runs,
        2_000,
        lock,
        "the same locked for a change",
    ),
    path(
        "find-by-index",
        Rows::Cold,
        2_000,
        find_by_index,
        "a row found by an index that is not unique, in a block",
    ),
    path(
        "fetch",
        Rows::Cold,
        2_000,
        fetch,
        "a row fetched by its row id, in a block",
    ),
    path(
        "range-covered",
        Rows::Cold,
        20_000,
        range_covered,
        "the next entry of a range that is answered from the index",
    ),
    path(
        "range-counted",
        Rows::Cold,
        1_000_000,
        range_counted,
        "an entry of a range whose rows are counted",
    ),
    path(
        "range-decoded",
        Rows::Stored,
        20_000,
        range_covered,
        "the same, with every block read and decoded",
    ),
    path(
        "range-rows",
        Rows::Cold,
        10_000,
        range_rows,
        "the next row of a range of an index, in blocks",
    ),
    path(
        "range-short",
        Rows::Cold,
        10_000,
        range_short,
        "the next row of a hundred that follow each other by primary key, in blocks",
    ),
    path(
        "range-short-hot",
        Rows::Hot,
        10_000,
        range_short,
        "the same in the log",
    ),
    path(
        "range-short-layers",
        Rows::Layers,
        10_000,
        range_short,
        "the same in blocks of several runs",
    ),
    path(
        "scan-hot",
        Rows::Hot,
        20_000,
        scan,
        "the next row of a table scan, in the log",
    ),
    path("scan-cold", Rows::Cold, 20_000, scan, "the same in blocks"),
    path(
        "scan-decoded",
        Rows::Stored,
        20_000,
        scan,
        "the same, with every block read and decoded",
    ),
    path(
        "update",
        Rows::Cold,
        2_000,
        update,
        "a row found by its primary key and changed where no index is",
    ),
    path(
        "update-key",
        Rows::Cold,
        2_000,
        update_key,
        "the same with a change of an indexed column",
    ),
    path(
        "delete",
        Rows::Cold,
        2_000,
        delete,
        "a row found by its primary key and deleted",
    ),
    path("count", Rows::Cold, 2_000, count, "the exact number of rows"),
];

/// What is counted: nothing else is called by this name.
#[inline(never)]
pub(crate) fn measured(path: &HotPath, scene: &mut Scene, operations: u32) -> Result<()> {
    (path.run)(scene, operations)
}

impl HotPath {
    /// Does it a few times, and reads everything once: memory and cached blocks are there when counting begins.
    pub(crate) fn warm_up(&self, scene: &mut Scene) -> Result<()> {
        if self.rows == Rows::None {
            return Ok(());
        }
        scan(scene, ROWS)?;
        range_rows(scene, ROWS)?;
        scene.project(&[ID, K, 2, 3]);
        (self.run)(scene, self.operations.min(100))
    }
}

fn insert(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        scene.make_new();
        scene.statement(true, Scene::insert)?;
    }
    scene.session.commit()
}

fn insert_commit(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        scene.make_new();
        scene.statement(true, Scene::insert)?;
        scene.session.commit()?;
    }
    Ok(())
}

fn load(scene: &mut Scene, operations: u32) -> Result<()> {
    scene.statement(true, |scene| {
        scene
            .cursor
            .bulk_begin(&mut scene.session, u64::from(operations), false);
        for _ in 0..operations {
            scene.make_new();
            scene.insert()?;
        }
        scene.cursor.bulk_end(&mut scene.session, false)
    })?;
    scene.session.commit()
}

fn find(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let id = scene.any_id();
        scene.statement(false, |scene| scene.find_row(id))?;
        scene.session.commit()?;
    }
    Ok(())
}

fn lock(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let id = scene.any_id();
        scene.locking(|scene| scene.find_row(id))?;
        scene.session.commit()?;
    }
    Ok(())
}

fn find_by_index(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let k = scene.any_id();
        scene.statement(false, |scene| scene.find(BY_K, k))?;
        scene.session.commit()?;
    }
    Ok(())
}

fn fetch(scene: &mut Scene, operations: u32) -> Result<()> {
    let first = scene.statement(false, |scene| scene.find_row(1))?;
    for _ in 0..operations {
        let row = pbxt_base::RowId::new(first.raw() + u64::from(scene.any_id()) - 1);
        scene.statement(false, |scene| {
            scene.cursor.fetch(&mut scene.session, row, &mut scene.record)
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

/// Walks the index by number from its beginning, as often as it takes.
fn walk(scene: &mut Scene, operations: u32) -> Result<()> {
    let mut left = operations;
    while left > 0 {
        scene.statement(false, |scene| {
            scene.cursor.index_start(&mut scene.session, BY_K)?;
            let key = 0_u32.to_le_bytes();
            let mut found =
                scene
                    .cursor
                    .seek(&mut scene.session, BY_K, &key, 1, Seek::OrNext, &mut scene.record)?;
            while found && left > 0 {
                left -= 1;
                found = scene
                    .cursor
                    .index_move(&mut scene.session, true, false, &mut scene.record)?;
            }
            scene.cursor.scan_end();
            Ok(())
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn range_covered(scene: &mut Scene, operations: u32) -> Result<()> {
    scene.project(&[K]);
    walk(scene, operations)
}

/// Half of the index at a time.
fn range_counted(scene: &mut Scene, operations: u32) -> Result<()> {
    let (low, high) = (ROWS / 4, ROWS / 4 + ROWS / 2 - 1);
    let mut left = operations;
    while left > 0 {
        scene.statement(false, |scene| {
            scene.cursor.index_start(&mut scene.session, BY_K)?;
            let (low, high) = (low.to_le_bytes(), high.to_le_bytes());
            let bound = |tuple| HostBound {
                tuple,
                parts: 1,
                inclusive: true,
            };
            let range = HostRange {
                low: Some(bound(&low[..])),
                high: Some(bound(&high[..])),
                tag: 0,
            };
            let counted = scene.cursor.count_range(&mut scene.session, BY_K, &range)?;
            left = left.saturating_sub(counted as u32);
            scene.cursor.scan_end();
            Ok(())
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn range_rows(scene: &mut Scene, operations: u32) -> Result<()> {
    scene.project(&[ID, K, 2, 3]);
    walk(scene, operations)
}

/// Ranges of sysbench, each a statement of its own.
fn range_short(scene: &mut Scene, operations: u32) -> Result<()> {
    scene.project(&[C]);
    for _ in 0..operations / SHORT {
        let first = 1 + scene.any_id() % (ROWS - SHORT);
        scene.statement(false, |scene| {
            scene.cursor.index_start(&mut scene.session, PRIMARY)?;
            let (low, high) = (first.to_le_bytes(), (first + SHORT - 1).to_le_bytes());
            scene.cursor.set_end(PRIMARY, Some((&high[..], 1, true)))?;
            let mut found = scene.cursor.seek(
                &mut scene.session,
                PRIMARY,
                &low,
                1,
                Seek::OrNext,
                &mut scene.record,
            )?;
            while found {
                found = scene
                    .cursor
                    .index_move(&mut scene.session, true, false, &mut scene.record)?;
            }
            scene.cursor.scan_end();
            Ok(())
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn scan(scene: &mut Scene, operations: u32) -> Result<()> {
    let mut left = operations;
    while left > 0 {
        scene.statement(false, |scene| {
            scene.cursor.scan_start(&mut scene.session)?;
            while left > 0 && scene.cursor.scan_next(&mut scene.session, &mut scene.record)? {
                left -= 1;
            }
            scene.cursor.scan_end();
            Ok(())
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn change(scene: &mut Scene, operations: u32, moves: bool) -> Result<()> {
    for _ in 0..operations {
        let id = scene.any_id();
        scene.statement(true, |scene| {
            let row = scene.find_row(id)?;
            scene.change(moves);
            let (old, new) = (record(&scene.record), record(&scene.new));
            scene.cursor.update(&mut scene.session, row, old, new)
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn update(scene: &mut Scene, operations: u32) -> Result<()> {
    change(scene, operations, false)
}

fn update_key(scene: &mut Scene, operations: u32) -> Result<()> {
    change(scene, operations, true)
}

fn delete(scene: &mut Scene, operations: u32) -> Result<()> {
    // Every id once, those first that the run before has left: ids from the end downwards.
    let last = scene.next_id - 1;
    scene.next_id -= operations;
    for id in (last + 1 - operations..=last).rev() {
        scene.statement(true, |scene| {
            let row = scene.find_row(id)?;
            scene.cursor.delete(&mut scene.session, row)
        })?;
        scene.session.commit()?;
    }
    Ok(())
}

fn count(scene: &mut Scene, operations: u32) -> Result<()> {
    for _ in 0..operations {
        scene.session.begin_statement()?;
        let table = std::sync::Arc::clone(scene.host.table());
        std::hint::black_box(scene.session.count(&table)?);
        scene.session.end_statement();
        scene.session.commit()?;
    }
    Ok(())
}
