//! Lock bits of rows that left the log: the memory of the row map goes when the locks are gone, and no lock goes with it.

#[path = "common/store.rs"]
mod store;

use pbxt::{Bind, Busy, Cursor, Error, Result};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_txn::LockMode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use store::Store;

/// Three leaves of a row map, the last of them begun.
const ROWS: u32 = 9_000;

fn lock(client: &mut Client, table: &PlayTable, row: u64, busy: Busy) -> Result<()> {
    client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        let bind = Bind {
            lock: Some(LockMode::Exclusive),
            busy,
            ..Bind::default()
        };
        cursor.bind(session, bind)?;
        cursor.fetch(session, RowId::new(row), |_| Ok(())).map(|_| ())
    })
}

fn memory(store: &Store) -> u64 {
    store.db.memory_use().row_map
}

/// A table whose rows are all homed.
fn homed() -> Store {
    let mut store = Store::new();
    let rows: Vec<_> = (0..ROWS).map(PlayRow::new).collect();
    for rows in rows.chunks(1000) {
        store.client.insert_all(&store.table, rows).expect("inserted");
        store.client.session.commit().expect("committed");
    }
    store.fill();
    store.compact();
    store
}

/// Locks every row for an update that does not come.
fn lock_all(store: &mut Store) {
    let all = Bind {
        lock: Some(LockMode::Exclusive),
        ..Bind::default()
    };
    let read = store.client.scan_locking(&store.table, all).expect("locked");
    assert_eq!(read.len(), ROWS as usize);
}

#[test]
fn the_map_of_rows_that_were_locked_goes_with_a_checkpoint() {
    let mut store = homed();
    let before = memory(&store);
    lock_all(&mut store);
    let locked = memory(&store);
    assert!(locked > before, "a bit needs a word: {before} {locked}");
    store.db.checkpoint_step().expect("a checkpoint");
    assert_eq!(memory(&store), locked, "M5: the locks are held");
    let mut other = Client::new(&store.db, 2);
    let refused = lock(&mut other, &store.table, 7, Busy::Fail);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    other.session.rollback().expect("rolled back");
    store.client.session.commit().expect("committed");
    store.db.checkpoint_step().expect("a checkpoint");
    assert_eq!(memory(&store), before, "T17: nobody holds a lock");
    lock(&mut other, &store.table, 7, Busy::Fail).expect("free");
    other.session.commit().expect("committed");
    store.shows(0..ROWS);
}

#[test]
fn the_map_of_rows_that_were_locked_and_changed_goes_when_they_are_homed() {
    let mut store = homed();
    let before = memory(&store);
    lock_all(&mut store);
    for row in [3, 5000] {
        let changed = store.client.update(&store.table, RowId::new(row), |old| {
            let mut row = old.clone();
            row.group = Some(9);
            row
        });
        changed.expect("updated").expect("there");
    }
    store.client.session.commit().expect("committed");
    assert!(memory(&store) > before);
    store.fill();
    store.compact();
    assert_eq!(
        memory(&store),
        before,
        "T17: the versions are homed, and nobody holds a lock"
    );
    store.shows(0..ROWS);
}

/// Lockers of the same rows are never in at the same time while the leaf of their bits comes and goes.
#[test]
fn no_lock_is_lost_while_leaves_are_given_back() {
    const ROUNDS: u64 = 1_500;
    // On a busy machine whoever gives back may come late: they go on until it has.
    const ROUNDS_MAX: u64 = 1_000 * ROUNDS;
    let store = homed();
    let inside: [AtomicBool; 3] = std::array::from_fn(|_| AtomicBool::new(false));
    let (taken, running) = (AtomicU64::new(0), AtomicU64::new(3));
    let is_given_back = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let mut client = Client::new(&store.db, number + 2);
            let (table, inside, taken, running) = (&store.table, &inside, &taken, &running);
            let is_given_back = &is_given_back;
            let is_enough = move |round: u64| {
                let both = taken.load(Ordering::Relaxed) > 0 && is_given_back.load(Ordering::Relaxed);
                round >= if both { ROUNDS } else { ROUNDS_MAX }
            };
            scope.spawn(move || {
                for round in (0..).take_while(|round| !is_enough(*round)) {
                    let row = (round * 7 + number as u64) % 3;
                    match lock(&mut client, table, row + 1, Busy::Fail) {
                        Ok(()) => {
                            let was = inside[row as usize].swap(true, Ordering::SeqCst);
                            assert!(!was, "T16: row {row} has two owners");
                            taken.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                            inside[row as usize].store(false, Ordering::SeqCst);
                        }
                        Err(Error::LockTimeout { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    client.session.rollback().expect("rolled back");
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while running.load(Ordering::SeqCst) > 0 {
            if store.db.release_leaves() > 0 {
                is_given_back.store(true, Ordering::Relaxed);
            }
        }
    });
    assert!(taken.load(Ordering::Relaxed) > 0 && is_given_back.load(Ordering::Relaxed));
    store.db.release_leaves();
    assert!(store.db.row_locks().usage().locks == 0);
}
