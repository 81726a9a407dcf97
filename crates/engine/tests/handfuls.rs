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
