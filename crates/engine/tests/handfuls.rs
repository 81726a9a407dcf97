//! A scan that takes its entries by the handful shows what one does that goes from row to row. Rule X60.

#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Cursor, Result, Seek, Session};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::Rng;
use store::Store;

const ROWS: u32 = 300;

/// Rows in the log, in upper runs and in the base, some changed, some gone; an old snapshot.
fn world() -> Result<(Store, Client)> {
    let mut store = Store::new();
    store.insert(0..ROWS);
    store.fill();
    store.compact();
    store.db.checkpoint_step()?;
    store.merge();
    let mut old = Client::new(&store.db, 2);
    assert!(old.agreed(&store.table)?.is_ok());
    let table = store.table.clone();
    let rows = store.client.scan(&table)?;
    for (number, (at, row)) in rows.iter().enumerate() {
        match number % 11 {
            3 => drop(store.client.delete(&table, *at)?),
            5 => {
                let change = |old: &PlayRow| PlayRow {
                    id: old.id + 1000,
                    ..old.clone()
                };
                store.client.update(&table, *at, change)?;
            }
            7 => {
                let change = |old: &PlayRow| PlayRow {
                    group: Some(row.id % 5),
                    ..old.clone()
                };
                store.client.update(&table, *at, change)?;
            }
            _ => {}
        }
    }
    store.client.session.commit()?;
    Ok((store, old))
}

/// What a scan comes to: from an id on, of so many rows that are expected, by these moves (forward or back).
fn walk(
    session: &mut Session,
    table: &PlayTable,
    (from, seek): (u32, Seek),
    expected: Option<u64>,
    moves: &[bool],
) -> Result<Vec<Option<u32>>> {
    session.begin_statement()?;
    let (mut met, mut shown) = (Vec::new(), None);
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, 0)?;
    cursor.expect(expected.unwrap_or(0));
    let key = table.prefix(0, &[Some(from)]);
    let mut found = cursor.seek(session, &key, seek, |version| {
        shown = Some(table.decode(version.payload())?.id);
        Ok(())
    })?;
    met.push(shown.take().filter(|_| found));
    for (at, &forward) in moves.iter().enumerate() {
        if expected.is_none() && found {
            // A scan that begins anew at each row takes no handful.
            let seek = if forward { Seek::After } else { Seek::Before };
            let here = table.prefix(0, &[met.last().copied().flatten()]);
            found = cursor.seek(session, &here, seek, |version| {
                shown = Some(table.decode(version.payload())?.id);
                Ok(())
            })?;
        } else {
            found = cursor.index_move(session, forward, false, |version| {
                shown = Some(table.decode(version.payload())?.id);
                Ok(())
            })?;
        }
        met.push(shown.take().filter(|_| found));
        if !found {
            assert!(at < moves.len());
            break;
        }
    }
    drop(cursor);
    session.end_statement();
    Ok(met)
}

#[test]
fn a_scan_by_the_handful_shows_what_one_row_by_row_does() {
    let (mut store, mut old) = world().expect("no failure");
    let table = store.table.clone();
    let mut rng = Rng::new(4);
    for round in 0..400 {
        if round == 200 {
            store.fill();
            store.compact();
            store.merge();
        }
        let from = rng.below(u64::from(ROWS) + 20) as u32;
        let seek = [Seek::OrNext, Seek::OrPrev][rng.below(2) as usize];
        let turns = [0, 4, 30][rng.below(3) as usize];
        let mut forward = seek == Seek::OrNext;
        let mut step = || {
            forward ^= rng.chance(turns);
            forward
        };
        let moves: Vec<bool> = (0..60).map(|_| step()).collect();
        for session in [&mut store.client.session, &mut old.session] {
            let by_row = walk(session, &table, (from, seek), None, &moves).expect("no failure");
            for expected in [0, 1, 2, 10, 100] {
                let by_handful = walk(session, &table, (from, seek), Some(expected), &moves);
                let by_handful = by_handful.expect("no failure");
                assert_eq!(
                    by_row, by_handful,
                    "round {round}, {from} {seek:?}, {expected} expected"
                );
            }
        }
        store.client.session.commit().expect("nothing to commit");
    }
}

#[test]
fn rows_that_a_scan_by_the_handful_deletes_and_moves_are_met_once() {
    let (mut store, _old) = world().expect("no failure");
    let table = store.table.clone();
    let expected: Vec<u32> = store
        .client
        .scan(&table)
        .expect("readable")
        .iter()
        .map(|(_, row)| row.id)
        .collect();
    let session = &mut store.client.session;
    session.begin_statement().expect("idle");
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default()).expect("current");
    cursor.index_start(session, 0).expect("an index");
    cursor.expect(1000);
    let (mut met, mut shown) = (Vec::new(), None);
    let mut found = cursor.index_edge(session, false, |version| {
        shown = Some(table.decode(version.payload())?.id);
        Ok(())
    });
    while found.expect("readable") {
        let id = shown.take().expect("shown");
        met.push(id);
        // The row at hand and two behind it, which may be in the handful: the statement began before.
        if id % 4 == 0 {
            session.delete(&table.table, cursor.row()).expect("it is there");
        }
        found = cursor.index_move(session, true, false, |version| {
            shown = Some(table.decode(version.payload())?.id);
            Ok(())
        });
    }
    cursor.let_go();
    session.end_statement();
    session.commit().expect("a commit");
    let mut sorted = expected;
    sorted.sort_unstable();
    assert_eq!(met, sorted, "T9: each once, whatever the statement itself does");
    store.shows(met.into_iter().filter(|id| id % 4 != 0));
}

/// The ids of the rows of a group, each found by a search of its own.
fn group_by_row(session: &mut Session, table: &PlayTable, group: u32) -> Result<Vec<u32>> {
    session.begin_statement()?;
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, 1)?;
    let (mut ids, mut key, mut seek) = (Vec::new(), table.prefix(1, &[Some(group)]), Seek::OrNext);
    let mut shown = None;
    while cursor.seek(session, &key, seek, |version| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    })? {
        let row = shown.take().expect("shown");
        if row.group != Some(group) {
            break;
        }
        ids.push(row.id);
        (key, seek) = (table.prefix(1, &[row.group, Some(row.id)]), Seek::After);
    }
    drop(cursor);
    session.end_statement();
    Ok(ids)
}

#[test]
fn a_handful_ends_where_the_prefix_and_a_late_border_do() {
    let (mut store, _old) = world().expect("no failure");
    let table = store.table.clone();
    let (mut cut, is_third) = (0, |row: &PlayRow| row.id.is_multiple_of(3));
    for few in [false, true] {
        for (at, row) in store.client.scan(&table).expect("readable") {
            let change = |old: &PlayRow| PlayRow {
                group: Some(if few { old.id % 4 } else { old.id % 5 }),
                ..old.clone()
            };
            if !few || is_third(&row) {
                store.client.update(&table, at, change).expect("it is there");
            }
        }
        store.client.session.commit().expect("a commit");
        if !few {
            store.fill();
            store.compact();
            store.db.checkpoint_step().expect("a checkpoint");
            store.merge();
        }
    }
    let session = &mut store.client.session;
    for group in 0..5 {
        let ids = group_by_row(session, &table, group).expect("no failure");
        session.begin_statement().expect("idle");
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default()).expect("current");
        for border in 0..ids.len().min(20) {
            cursor.index_start(session, 1).expect("an index");
            cursor.expect(100);
            let (mut met, mut shown) = (Vec::new(), None);
            let prefix = table.prefix(1, &[Some(group)]);
            let mut found = cursor.seek(session, &prefix, Seek::Exact, |version| {
                shown = Some(table.decode(version.payload())?.id);
                Ok(())
            });
            while found.expect("readable") {
                met.push(shown.take().expect("shown"));
                if met.len() == 3 && border >= 3 {
                    let end = table.prefix(1, &[Some(group), Some(ids[border])]);
                    cursor.set_end(Some((&end, border % 2 == 0)));
                }
                // With the border nothing else ends the scan within the group, without it the prefix does.
                found = cursor.index_move(session, true, border < 3, |version| {
                    shown = Some(table.decode(version.payload())?.id);
                    Ok(())
                });
            }
            let last = if border < 3 {
                ids.len()
            } else {
                border + usize::from(border % 2 == 0)
            };
            assert_eq!(met, ids[..last], "group {group}, border {border}");
            cut += usize::from(border >= 3);
        }
        cursor.let_go();
        session.end_statement();
    }
    assert!(cut > 20, "there are groups of many rows: {cut}");
}

#[test]
fn marks_of_a_handful_hide_no_row_that_is_there() {
    let (mut store, old) = world().expect("no failure");
    // Now nobody can see what was deleted, so entries are marked: by the first of these scans, for a table scan meets none.
    drop(old);
    store.db.housekeeping_step();
    let table = store.table.clone();
    let rows = store.client.scan(&table).expect("readable");
    let mut ids: Vec<Option<u32>> = rows.iter().map(|(_, row)| Some(row.id)).collect();
    ids.sort_unstable();
    ids.push(None);
    store.client.session.commit().expect("nothing to commit");
    let session = &mut store.client.session;
    let moves = [true; 2 * ROWS as usize];
    for expected in [1000, 100, 0, 3] {
        let met = walk(session, &table, (0, Seek::OrNext), Some(expected), &moves);
        assert_eq!(met.expect("no failure"), ids, "X12: {expected} expected");
    }
}

#[test]
fn a_scan_that_begins_shows_nothing_of_the_one_before_it() {
    let (mut store, _old) = world().expect("no failure");
    let table = store.table.clone();
    let session = &mut store.client.session;
    session.begin_statement().expect("idle");
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default()).expect("current");
    cursor.index_start(session, 0).expect("an index");
    cursor.expect(16);
    let first = cursor.index_edge(session, false, |_| Ok(()));
    assert!(first.expect("readable"), "X60: others wait behind it");
    cursor.index_start(session, 1).expect("an index");
    for forward in [true, false] {
        let found = cursor.index_move(session, forward, false, |_| Ok(()));
        assert!(!found.expect("readable"), "nothing was sought");
    }
    cursor.let_go();
    session.end_statement();
}
