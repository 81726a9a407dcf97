//! ALTER without a copy, rule by rule (docs/alter.md).

#[path = "common/altered.rs"]
mod altered;
#[path = "common/shifting.rs"]
mod shifting;

use altered::Bench;
use pbxt::{Bind, Cursor, Database, Error, Progress, TableDef};
use pbxt_rows::{BlobRef, ColumnKind, Condition, Order, RowFilter};
use pbxt_testkit::{SimDisk, Sweep};
use shifting::*;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn add(label: u32) -> impl FnOnce(&mut Shape) {
    move |shape| shape.columns.insert(1, number(label, 8, Order::Int, false))
}

fn lose(label: u32) -> impl FnOnce(&mut Shape) {
    move |shape| shape.columns.retain(|column| column.label != label)
}

#[test]
fn columns_come_and_go_without_a_row_being_written() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..1200);
    bench.settle();
    bench.fill(1200..1300);
    let tail = bench.db.log().tail();
    bench.alter(add(10));
    bench.alter(|shape| shape.columns.reverse());
    bench.alter(lose(2));
    bench.alter(|shape| shape.columns.push(text(2, true)));
    let logged = bench.db.log().tail().raw() - tail.raw();
    assert!(
        logged < 16 << 10,
        "AL1: four records of the catalog, {logged} bytes, not 1300 rows"
    );
    assert_eq!(bench.table.versions().older().count(), 4);
    bench.look();
    bench.fill(1300..1400);
    bench.settle();
    bench.look();
}

#[test]
fn names_and_defaults_make_no_version() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..10);
    let before = Arc::clone(&bench.table);
    bench.alter(|shape| shape.columns[2].default = Cell::Bytes(b"later".to_vec()));
    assert!(
        Arc::ptr_eq(&before, &bench.table),
        "AL1: nothing that rows or keys depend on"
    );
    bench.alter(|shape| shape.indexes[1].name = "renamed".into());
    assert!(!Arc::ptr_eq(&before, &bench.table));
    assert_eq!(bench.table.schema().version(), 1, "AL1");
    bench.look();
}

#[test]
fn rows_keep_the_default_of_their_alter() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..10);
    bench.alter(add(10));
    // Another default, and a column of another label in place of the first.
    bench.alter(|shape| shape.columns[1].default = Cell::Bytes(vec![9; 8]));
    bench.look();
    let is_seven = |row: &Row| row[&10] == Cell::Bytes(vec![7; 8]);
    assert!(bench.rows.values().all(is_seven), "AL5");
    bench.alter(lose(10));
    bench.alter(add(11));
    bench.look();
}

#[test]
fn who_has_the_old_definition_begins_nothing() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..10);
    let (stale, shape) = (Arc::clone(&bench.table), bench.shape.clone());
    let mut cursor = Cursor::new(&stale);
    bench.alter(add(10));
    let refused = |result: Result<(), Error>| match result {
        Err(Error::DefinitionChanged { why, .. }) => assert!(why.contains("altered"), "{why}"),
        other => panic!("AL7: {other:?}"),
    };
    refused(cursor.bind(&mut bench.session, Bind::default()));
    let row = row_of(&shape, 100, None);
    refused(insert(&mut bench.session, &stale, &shape, &row).map(|_| ()));
    bench.session.rollback().expect("rolled back");
    let mut writes = Cursor::new(&bench.table);
    writes
        .bind(&mut bench.session, Bind::default())
        .expect("AL7: the new one is there");
    bench.look();
}

#[test]
fn who_reads_on_meets_no_row_it_cannot_read() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..10);
    let (stale, shape) = (Arc::clone(&bench.table), bench.shape.clone());
    let expected = bench.rows.clone();
    let mut reader = session(&bench.db, 2);
    let mut cursor = Cursor::new(&stale);
    cursor.bind(&mut reader, Bind::default()).expect("bound");
    cursor.scan_start(&mut reader).expect("begun");
    bench.alter(add(10));
    let (id, old) = bench
        .rows
        .iter()
        .next_back()
        .map(|(id, row)| (*id, row.clone()))
        .expect("a row");
    let mut new = old.clone();
    new.insert(10, Cell::Bytes(vec![1; 8]));
    update(&mut bench.session, &bench.table, &bench.shape, id, (&old, &new)).expect("updated");
    bench.session.commit().expect("committed");
    bench.rows.insert(id, new);
    let mut seen = Rows::new();
    let mut shown = None;
    let ended = loop {
        let next = cursor.scan_next(&mut reader, |version| {
            shown = Some(shape.decode(version.payload())?);
            Ok(())
        });
        match next {
            Ok(true) => seen.extend(shown.take().map(|row| (cursor.row().raw(), row))),
            other => break other,
        }
    };
    // Its snapshot sees the version beneath.
    assert!(matches!(ended, Ok(false)), "AL11: {ended:?}");
    assert_eq!(seen, expected);
    drop(cursor);
    let mut cursor = Cursor::new(&stale);
    assert!(cursor.bind(&mut reader, Bind::default()).is_err(), "AL7");
    bench.look();
}

#[test]
fn an_older_snapshot_reads_its_rows_with_the_columns_of_now() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..300);
    let mut reader = session(&bench.db, 2);
    shows(&mut reader, &bench.table, &bench.shape, &bench.rows);
    let mut then = bench.rows.clone();
    let ids: Vec<u64> = bench.rows.keys().copied().collect();
    for id in &ids[..150] {
        delete(&mut bench.session, &bench.table, *id).expect("deleted");
        bench.rows.remove(id);
    }
    bench.session.commit().expect("committed");
    let before = bench.shape.clone();
    bench.alter(add(10));
    bench.settle();
    for row in then.values_mut() {
        *row = bench.shape.altered(&before, row);
    }
    shows(&mut reader, &bench.table, &bench.shape, &then);
    bench.look();
}

#[test]
fn an_index_that_stays_keeps_its_entries() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..600);
    bench.settle();
    let ids: Vec<_> = bench.table.indexes.iter().map(|index| index.def.id).collect();
    bench.alter(|shape| {
        shape.columns.reverse();
        shape.indexes[1].name = "renamed".into();
    });
    let now: Vec<_> = bench.table.indexes.iter().map(|index| index.def.id).collect();
    assert_eq!(now, ids, "AL10");
    bench.look();
    bench.alter(|shape| {
        shape.indexes.remove(1);
    });
    bench.look();
    bench.settle();
    bench.look();
    bench.alter(|shape| shape.columns.retain(|column| column.label != BY));
    bench.look();
}

#[test]
fn a_dropped_index_is_gone_after_a_crash_at_any_moment() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..600);
    bench.settle();
    bench.fill(600..700);
    bench.alter(|shape| {
        shape.indexes.remove(1);
    });
    bench.fill(700..720);
    let mut crashed = bench.disk.kill();
    for checkpointed in [false, true] {
        let db = open(&crashed);
        let mut session = session(&db, 1);
        let table = find(&db);
        assert_eq!(table.indexes.len(), 1, "checkpointed: {checkpointed}");
        shows(&mut session, &table, &bench.shape, &bench.rows);
        check(&mut session, &table);
        session.commit().expect("nothing to commit");
        db.checkpoint_step().expect("made");
        drop((session, table));
        crashed = crashed.kill();
    }
}

#[test]
fn a_table_that_loses_rows_and_changes_before_it_is_dropped_is_gone_after_a_crash() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..10);
    bench.settle();
    let id = *bench.rows.keys().next().expect("a row");
    delete(&mut bench.session, &bench.table, id).expect("deleted");
    bench.session.commit().expect("committed");
    bench.alter(add(10));
    bench.alter(lose(2));
    let (old, id) = (Arc::clone(&bench.table), bench.table.id);
    bench.db.drop_table(None, "t").expect("dropped");
    drop(old);
    let crashed = bench.disk.kill();
    let db = open(&crashed);
    assert!(db.catalog.by_id(id).is_none());
    let made = db
        .create_table(bench.shape.definition("t"), 1)
        .expect("a new table");
    assert!(made.id > id, "K3: {} is handed out once", made.id);
    drop(db);
    let db = open(&crashed.kill());
    let found = find(&db);
    assert_eq!((found.id, found.info().rows), (made.id, 0));
}

#[test]
fn what_needs_other_keys_is_refused() {
    let bench = Bench::new(Shape::new());
    let refuse = |change: &dyn Fn(&mut Shape), why: &str| {
        let mut next = bench.shape.clone();
        change(&mut next);
        match alter(&bench.db, None, &bench.shape, &next) {
            Err(Error::NeedsCopy { why: told, .. }) => assert!(told.contains(why), "{told}"),
            other => panic!("AL10: {why}: {other:?}"),
        }
    };
    refuse(
        &|shape| shape.columns[0].nullable = true,
        "keys of index 'primary'",
    );
    refuse(
        &|shape| shape.columns[0].kind = ColumnKind::Fixed(8),
        "keys of index 'primary'",
    );
    refuse(
        &|shape| {
            shape.columns.push(number(10, 8, Order::Int, false));
            shape.indexes.push(Idx {
                name: "more".into(),
                label: 10,
                unique: false,
            });
        },
        "index 'more' is to be built, and columns change",
    );
    refuse(
        &|shape| {
            shape.indexes[0].unique = false;
        },
        "index 'primary' is to be built, and rows stand in the order",
    );
    refuse(
        &|shape| {
            let twin = Idx {
                name: "twin".into(),
                ..shape.indexes[1].clone()
            };
            shape.indexes.push(twin);
        },
        "the same one",
    );
    refuse(
        &|shape| shape.columns[2].nullable = false,
        "column 'c2': it may be NULL",
    );
    refuse(
        &|shape| shape.columns[2] = number(2, 4, Order::Int, true),
        "column 'c2'",
    );
    let mut long = bench.shape.definition("t");
    long.compression = pbxt::Compression::Lz4;
    let change = bench.shape.since(&bench.shape);
    assert!(matches!(
        bench.db.check_alter(long, &change, true),
        Err(Error::NeedsCopy { .. })
    ));
}

#[test]
fn who_has_changed_the_table_cannot_alter_it() {
    let mut bench = Bench::new(Shape::new());
    let row = row_of(&bench.shape, 1, None);
    let id = insert(&mut bench.session, &bench.table, &bench.shape, &row).expect("inserted");
    let mut next = bench.shape.clone();
    add(10)(&mut next);
    let refused = alter(&bench.db, Some(&bench.session), &bench.shape, &next);
    assert!(
        matches!(refused, Err(Error::NeedsCopy { .. })),
        "AL13: {refused:?}"
    );
    bench.session.commit().expect("committed");
    bench.rows.insert(id, row);
    bench.alter(add(10));
    bench.look();
}

#[test]
fn a_prepared_transaction_keeps_the_table_as_it_is() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..3);
    let mut other = session(&bench.db, 2);
    let row = row_of(&bench.shape, 50, None);
    insert(&mut other, &bench.table, &bench.shape, &row).expect("inserted");
    other.prepare(b"x").expect("prepared");
    let mut impatient = session(&bench.db, 3);
    impatient.configure(pbxt::SessionConfig {
        lock_wait_timeout_ms: 0,
        ..pbxt::SessionConfig::default()
    });
    let mut next = bench.shape.clone();
    add(10)(&mut next);
    let refused = alter(&bench.db, Some(&impatient), &bench.shape, &next);
    assert!(
        matches!(refused, Err(Error::LockTimeout { .. })),
        "T19: {refused:?}"
    );
    other.rollback().expect("decided");
    bench.alter(add(10));
    bench.look();
}

#[test]
fn a_cached_block_is_read_with_the_columns_of_now() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..600);
    bench.settle();
    bench.look();
    let misses = |bench: &Bench| bench.db.status().block_cache.misses;
    let before = misses(&bench);
    bench.alter(add(10));
    let found = scan(&mut bench.session, &bench.table, &bench.shape, None).expect("readable");
    assert_eq!(found, bench.rows, "AL8");
    assert_eq!(misses(&bench), before, "blocks that are there are not read again");
    bench.look();
}

#[test]
fn blocks_of_before_are_passed_over_by_their_zones() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..1500);
    bench.settle();
    bench.alter(add(10));
    let ask = |bench: &mut Bench, column: usize, value: &[u8]| {
        let mut filter = RowFilter::new(bench.table.schema());
        let bound = Bound::Included(value);
        assert!(filter.add(bench.table.schema(), column, Condition::Between(bound, bound)));
        let before = bench.db.status().blocks_skipped;
        let found = scan(&mut bench.session, &bench.table, &bench.shape, Some(filter)).expect("readable");
        (found.len(), bench.db.status().blocks_skipped - before)
    };
    let (found, skipped) = ask(&mut bench, 0, &700_u32.to_le_bytes());
    assert_eq!(found, 1);
    assert!(skipped > 0, "AL9: ids of other blocks are others");
    let (found, skipped) = ask(&mut bench, 1, &[7; 8]);
    assert_eq!(
        (found, skipped),
        (1500, 0),
        "AL9: nothing is known of the column that came"
    );
}

fn enlarge(bench: &mut Bench, ids: std::ops::Range<u32>) {
    for id in ids {
        let kept = bench
            .session
            .keep_value(&vec![id as u8; 4 * LARGE])
            .expect("stored");
        let mut row = row_of(&bench.shape, id, None);
        let blob = BlobRef {
            addr: kept.addr,
            len: kept.len,
            hash: kept.hash,
        };
        row.insert(2, Cell::Large(blob));
        let at = insert(&mut bench.session, &bench.table, &bench.shape, &row).expect("inserted");
        bench.rows.insert(at, row);
    }
    bench.session.commit().expect("committed");
}

#[test]
fn values_of_a_dropped_column_go() {
    for homed in [false, true] {
        let mut bench = Bench::new(Shape::new());
        enlarge(&mut bench, 0..20);
        if homed {
            bench.fill(100..1300);
            bench.settle();
        }
        bench.look();
        let bytes = |bench: &Bench| -> u64 {
            let segments = bench.db.blobs().segments().expect("a listing");
            segments.iter().map(|(_, bytes)| bytes).sum()
        };
        assert!(bytes(&bench) > 0);
        // Another column that can have such values: they are not those of the one that goes.
        bench.alter(|shape| {
            shape.columns.retain(|column| column.label != 2);
            shape.columns.push(text(3, true));
        });
        bench.settle();
        bench.settle();
        assert_eq!(bytes(&bench), 0, "AL14, homed: {homed}");
        bench.look();
        enlarge_other(&mut bench);
    }
}

#[test]
fn values_of_a_dropped_padded_column_go() {
    let mut shape = Shape::new();
    shape.columns[2].kind = ColumnKind::Padded { len: 40, pad: b' ' };
    let mut bench = Bench::new(shape);
    enlarge(&mut bench, 0..20);
    bench.fill(100..3300);
    bench.settle();
    bench.look();
    let bytes = |bench: &Bench| -> u64 {
        let segments = bench.db.blobs().segments().expect("a listing");
        segments.iter().map(|(_, bytes)| bytes).sum()
    };
    assert!(bytes(&bench) > 0);
    // A census has been taken by now, and no row changes.
    bench.alter(|shape| {
        shape.columns.retain(|column| column.label != 2);
        shape.columns.push(text(3, true));
    });
    bench.settle();
    bench.settle();
    assert_eq!(bytes(&bench), 0, "AL14");
    bench.look();
}

#[test]
fn a_census_begins_a_table_again_that_is_altered_meanwhile() {
    // S27, AL7: rows of the newer definition are not read by the older one.
    for steps_before in 0..12 {
        let mut bench = Bench::new(Shape::new());
        enlarge(&mut bench, 0..20);
        bench.fill(100..1700);
        bench.settle();
        enlarge(&mut bench, 20..40);
        for _ in 0..steps_before {
            bench.db.census_step().expect("counted");
        }
        bench.alter(|shape| shape.columns.push(text(3, true)));
        enlarge(&mut bench, 40..60);
        bench.fill(2000..3600);
        let mut steps = 0;
        while bench.db.census_step().expect("the newer definition is taken") == Progress::Worked {
            if steps < 3 {
                bench.db.compact_step().expect("compacted");
                bench.db.row_merge_step().expect("merged");
            }
            steps += 1;
            assert!(steps < 10_000, "it ends");
        }
        bench.settle();
        bench.look();
    }
}

/// Values of another column are written where those of the dropped one were named.
fn enlarge_other(bench: &mut Bench) {
    let id = *bench.rows.keys().next().expect("a row");
    let old = bench.rows[&id].clone();
    let mut new = old.clone();
    let kept = bench.session.keep_value(&vec![5; LARGE]).expect("stored");
    let blob = BlobRef {
        addr: kept.addr,
        len: kept.len,
        hash: kept.hash,
    };
    new.insert(3, Cell::Large(blob));
    update(&mut bench.session, &bench.table, &bench.shape, id, (&old, &new)).expect("updated");
    bench.session.commit().expect("committed");
    bench.rows.insert(id, new);
    bench.settle();
    bench.look();
}

#[test]
fn past_the_greatest_number_of_versions_the_table_is_copied() {
    let mut bench = Bench::new(Shape::new());
    bench.fill(0..5);
    let mut altered = 0;
    let why = loop {
        let mut next = bench.shape.clone();
        next.columns.reverse();
        match alter(&bench.db, None, &bench.shape, &next) {
            Ok(()) => bench.shape = next,
            Err(Error::NeedsCopy { why, .. }) => break why,
            Err(error) => panic!("{error}"),
        }
        altered += 1;
        assert!(altered <= 255, "AL6");
    };
    assert!(why.contains("one record") || why.contains("255"), "AL6: {why}");
    bench.table = find(&bench.db);
    bench.look();
    // TRUNCATE begins anew.
    bench.db.truncate_table(None, "t").expect("emptied");
    bench.table = find(&bench.db);
    bench.rows.clear();
    assert_eq!(bench.table.versions().older().count(), 0, "AL1");
    bench.fill(0..5);
    bench.alter(add(10));
    bench.look();
}

/// Creates two tables, fills them, alters both in one statement, fills again: how many of the steps were acknowledged.
fn alter_two(disk: &SimDisk) -> u32 {
    let mut done = 0;
    let result = (|| -> Result<(), Error> {
        let db = Database::open(Arc::new(disk.clone()), &options())?;
        let shape = Shape::new();
        for name in ["t", "u"] {
            let table = db.create_table(shape.definition(name), 1)?;
            let mut session = session(&db, 1);
            for id in 0..20 {
                insert(&mut session, &table, &shape, &row_of(&shape, id, Some(id)))?;
            }
            session.commit()?;
        }
        done = 1;
        db.checkpoint_step()?;
        let mut next = shape.clone();
        add(10)(&mut next);
        next.indexes.remove(1);
        let defs = vec![next.definition("t"), next.definition("u")];
        db.alter_tables(None, defs, &next.since(&shape), true)?;
        done = 2;
        let mut session = session(&db, 1);
        let table = find(&db);
        insert(&mut session, &table, &next, &row_of(&next, 100, None))?;
        session.commit()?;
        done = 3;
        db.checkpoint_step()?;
        Ok(())
    })();
    if let Err(error) = result {
        assert!(matches!(error, Error::Storage(_)), "only the disk fails: {error}");
    }
    done
}

#[test]
fn all_tables_of_a_statement_change_or_none() {
    let before = Shape::new();
    let mut after = before.clone();
    add(10)(&mut after);
    after.indexes.remove(1);
    let images = Sweep { seeds: 2, step: 1 }.run(alter_two, |disk, &done, case| {
        let db = Database::open(Arc::new(disk.clone()), &options())
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let tables: Vec<_> = ["t", "u"]
            .iter()
            .filter_map(|name| db.catalog.by_name(name))
            .collect();
        if tables.len() < 2 {
            assert_eq!(done, 0, "{case}: tables are missing");
            return;
        }
        let columns: Vec<usize> = tables
            .iter()
            .map(|table| table.schema().columns().len())
            .collect();
        assert_eq!(columns[0], columns[1], "AL15: {case}");
        let is_altered = columns[0] == after.columns.len();
        assert!(
            if is_altered { done >= 1 } else { done <= 1 },
            "K4: {case}, {done} steps were acknowledged"
        );
        let shape = if is_altered { &after } else { &before };
        let mut session = session(&db, 1);
        for table in &tables {
            check(&mut session, table);
            let found = scan(&mut session, table, shape, None).expect("readable");
            let inserted = found
                .values()
                .filter(|row| row[&ID] != Cell::Bytes(100_u32.to_le_bytes().to_vec()));
            let mut expected = (0..20).map(|id| row_of(&before, id, Some(id)));
            let all = inserted.cloned().collect::<Vec<_>>();
            if done >= 1 || all.len() == 20 {
                let is_row = |row: &Row| {
                    let expected = expected.next().expect("20 rows");
                    *row == if is_altered {
                        after.altered(&before, &expected)
                    } else {
                        expected
                    }
                };
                assert_eq!(all.len(), 20, "{case}");
                assert!(all.iter().all(is_row), "{case}");
            }
        }
    });
    assert!(images > 50, "{images} images");
}

/// How long so many tables take that get a column in one step, as the parts of a partitioned one do.
fn time_of_parts(parts: usize) -> Duration {
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut shape = Shape::new();
    shape
        .columns
        .extend((20..32).map(|label| number(label, 4, Order::Int, true)));
    let named = |shape: &Shape| -> Vec<TableDef> {
        (0..parts)
            .map(|part| shape.definition(&format!("t#P#p{part}")))
            .collect()
    };
    for def in named(&shape) {
        db.create_table(def, 1).expect("a new table");
    }
    let mut next = shape.clone();
    add(10)(&mut next);
    let (change, defs) = (next.since(&shape), named(&next));
    let began = Instant::now();
    for def in &defs {
        db.check_alter(def.clone(), &change, true)
            .expect("nothing stands against it");
    }
    db.alter_tables(None, defs, &change, true).expect("altered");
    began.elapsed()
}

#[test]
fn an_alter_of_many_parts_takes_as_long_as_there_are_parts() {
    // Eight times as many: 64 times as long if each part looked at the definitions of all others. Others may use the processor.
    let mut worst = Vec::new();
    for _ in 0..3 {
        let (few, many) = (time_of_parts(100), time_of_parts(800));
        if many < few * 24 {
            return;
        }
        worst.push((few, many));
    }
    panic!("K6: {worst:?}");
}

#[test]
fn an_alter_of_several_tables_is_found_in_a_circle() {
    let db = open(&SimDisk::new());
    let shape = Shape::new();
    let tables = ["t", "u"].map(|name| db.create_table(shape.definition(name), 1).expect("a new table"));
    let mut writer = session(&db, 1);
    insert(&mut writer, &tables[1], &shape, &row_of(&shape, 1, None)).expect("inserted");
    let altering = Arc::clone(&db);
    let before = shape.clone();
    let alter = std::thread::spawn(move || {
        let mut next = before.clone();
        add(10)(&mut next);
        let defs = vec![next.definition("t"), next.definition("u")];
        altering.alter_tables(None, defs, &next.since(&before), true)
    });
    while !db.waits.has_waiters() {
        std::thread::yield_now();
    }
    // It has one table and waits for the other one, which this transaction has written.
    let written = insert(&mut writer, &tables[0], &shape, &row_of(&shape, 1, None));
    writer.rollback().expect("ended");
    let altered = alter.join().expect("it ends");
    let is_victim = |error: &Error| matches!(error, Error::Deadlock { .. });
    assert!(
        written.as_ref().is_err_and(is_victim) || altered.as_ref().is_err_and(is_victim),
        "T14: {written:?}, {altered:?}"
    );
}
