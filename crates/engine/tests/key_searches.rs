//! Searches for a whole key pass by the runs that cannot have it; what they find, and what is found from there, is the same.
//!
//! Rules X49 and X58 of indexes.md.

mod common;

use common::{Bench, row};
use pbxt::{Bind, Cursor, Progress, Result, Seek, Session};
use pbxt_sim::client::Client;
use pbxt_sim::table::PlayTable;
use pbxt_testkit::Rng;
use pbxt_txn::LockMode;

const ROWS: u32 = 60;
/// Of every so many ids that follow each other, each goes to a run of its own.
const RUNS: u32 = 4;

/// Rows in several runs and a tree, of which some are gone and some have come back; an old snapshot in the second client.
fn world() -> Result<(Bench, Client)> {
    let mut bench = Bench::new();
    let mut rows = Vec::new();
    for run in 0..RUNS {
        // Every fifth id is left free.
        for id in (run..ROWS).step_by(RUNS as usize).filter(|id| id % 5 != 0) {
            rows.push((id, bench.client.insert(&bench.table, &row(id))?));
        }
        bench.client.session.commit()?;
        bench.db.checkpoint_step()?;
    }
    let mut old = Client::new(&bench.db, 2);
    assert!(old.agreed(&bench.table)?.is_ok());
    for (id, at) in &rows {
        if id % 7 == 1 {
            bench.client.delete(&bench.table, *at)?;
        }
    }
    bench.client.session.commit()?;
    bench.db.checkpoint_step()?;
    for id in (1..ROWS).filter(|id| id % 7 == 1 && id % 5 != 0 && id % 2 == 0) {
        bench.client.insert(&bench.table, &row(id))?;
    }
    bench.client.session.commit()?;
    Ok((bench, old))
}

/// Ids of the rows that a search for an id comes to, and then these moves: forward or back, under the same key or not.
fn walk(
    session: &mut Session,
    table: &PlayTable,
    bind: Bind,
    id: u32,
    seek: Seek,
    moves: &[(bool, bool)],
) -> Result<Vec<Option<u32>>> {
    session.begin_statement()?;
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, bind)?;
    cursor.index_start(session, 0)?;
    let (mut met, mut shown) = (Vec::new(), None);
    let found = cursor.seek(session, &table.prefix(0, &[Some(id)]), seek, |version| {
        shown = Some(table.decode(version.payload())?.id);
        Ok(())
    })?;
    met.push(shown.filter(|_| found));
    for &(forward, same) in moves {
        let found = cursor.index_move(session, forward, same, |version| {
            shown = Some(table.decode(version.payload())?.id);
            Ok(())
        })?;
        met.push(shown.filter(|_| found));
    }
    drop(cursor);
    session.end_statement();
    Ok(met)
}

#[test]
fn behind_a_row_found_by_its_key_come_its_neighbours() {
    let (mut bench, mut old) = world().unwrap();
    let mut rng = Rng::new(1);
    let locking = Bind {
        lock: Some(LockMode::Shared),
        ..Bind::default()
    };
    for round in 0..3 {
        // Rule X58: from the second round on searches by key leave hints, and follow those of searches before.
        if round > 0 {
            bench.db.give_hints();
        }
        for id in 0..ROWS + 2 {
            for bind in [Bind::default(), locking] {
                let moves: Vec<_> = (0..24).map(|_| (rng.chance(70), rng.chance(40))).collect();
                // The old snapshot sees what was there before, and locks nothing.
                let readers = [&mut bench.client, &mut old];
                let count = if bind.lock.is_none() { 2 } else { 1 };
                for session in readers.map(|client| &mut client.session).into_iter().take(count) {
                    let [exact, by_key, again] = [Seek::Exact, Seek::Key, Seek::Key]
                        .map(|seek| walk(session, &bench.table, bind, id, seek, &moves).expect("no failure"));
                    assert_eq!(exact, by_key, "round {round}, id {id}, {bind:?}, {moves:?}");
                    assert_eq!(exact, again, "X58: round {round}, id {id}, {bind:?}, {moves:?}");
                }
            }
            bench.client.session.commit().expect("no failure");
        }
        if round == 0 {
            bench.settle();
        } else {
            while bench.db.index_merge_step().expect("no failure") == Progress::Worked {}
        }
    }
    let free = bench
        .client
        .seek(&bench.table, 0, &bench.table.prefix(0, &[Some(5)]), Seek::Key);
    assert_eq!(free.expect("no failure"), None);
}
