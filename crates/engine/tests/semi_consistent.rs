//! T40 and T41: scans for rows to change look at rows that others have locked before they wait for them.

mod common;

use common::{Bench, row};
use pbxt::{Bind, Busy, Cursor, Error, Isolation, NewVersion, Result, Seek, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, TAG_INDEX};
use pbxt_txn::LockMode;

const BY_ID: usize = 0;
const BY_GROUP: usize = 1;

/// How a statement comes to its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Path {
    Table,
    /// The rows of group 1.
    Group,
    /// All rows, by id, up or down.
    Ids(bool),
}

const PATHS: [Path; 4] = [Path::Table, Path::Group, Path::Ids(true), Path::Ids(false)];

fn client(bench: &Bench, isolation: Isolation, timeout: u64) -> Client {
    let mut client = bench.other(5);
    client.session.configure(SessionConfig {
        isolation,
        lock_wait_timeout_ms: timeout,
        ..SessionConfig::default()
    });
    client
}

fn committed(bench: &Bench) -> Client {
    client(bench, Isolation::ReadCommitted, 0)
}

/// Rows 1 to 4 of group 1, with their ids as tags.
fn four() -> (Bench, Vec<RowId>) {
    let mut bench = Bench::new();
    let new = |id| PlayRow {
        group: Some(1),
        tag: Some(id),
        ..row(id)
    };
    let new: Vec<PlayRow> = (1..=4).map(new).collect();
    let rows = bench.client.insert_all(&bench.table, &new).expect("new rows");
    bench.client.session.commit().expect("a commit");
    (bench, rows)
}

/// What an UPDATE of a host does: gives the rows whose tag fits another name. Rows that it comes to, in order, and whether with a lock.
fn rename(
    client: &mut Client,
    table: &PlayTable,
    path: Path,
    fits: impl Fn(u32) -> bool,
) -> Result<Vec<(u32, bool)>> {
    client.statement(|session| {
        let mut met = Vec::new();
        let mut cursor = Cursor::new(&table.table);
        let bind = Bind {
            for_write: true,
            ..Bind::default()
        };
        cursor.bind(session, bind)?;
        cursor.try_semi_consistent(true);
        let mut is_first = true;
        loop {
            let mut shown = None;
            let show = |version: &pbxt::RowVersion<'_>| {
                shown = Some(table.decode(version.payload())?);
                Ok(())
            };
            match (path, std::mem::take(&mut is_first)) {
                (Path::Table, true) => {
                    cursor.scan_start(session)?;
                    cursor.scan_next(session, show)?
                }
                (Path::Table, false) => cursor.scan_next(session, show)?,
                (Path::Group, true) => {
                    cursor.index_start(session, BY_GROUP)?;
                    let key = table.prefix(BY_GROUP, &[Some(1)]);
                    cursor.seek(session, &key, Seek::Exact, show)?
                }
                (Path::Group, false) => cursor.index_move(session, true, true, show)?,
                (Path::Ids(forward), true) => {
                    cursor.index_start(session, BY_ID)?;
                    cursor.index_edge(session, !forward, show)?
                }
                (Path::Ids(forward), false) => cursor.index_move(session, forward, false, show)?,
            };
            let Some(old) = shown else { break };
            if !fits(old.tag.unwrap_or_default()) {
                met.push((old.id, false));
                cursor.unlock_row(session);
                continue;
            }
            if cursor.was_semi_consistent() {
                met.push((old.id, false));
                continue;
            }
            met.push((old.id, true));
            let new = PlayRow {
                name: b"renamed".to_vec(),
                ..old.clone()
            };
            let keys = table.key_changes(Some(&old), &new)?;
            let payload = table.encode_for(session, &new)?;
            let version = NewVersion {
                payload: &payload,
                schema_version: table.schema_version(),
                keys: &keys,
            };
            session.update(&table.table, cursor.row(), version)?;
        }
        Ok(met)
    })
}

fn retag(client: &mut Client, table: &PlayTable, row: RowId, tag: u32) {
    let change = |old: &PlayRow| PlayRow {
        tag: Some(tag),
        name: b"changed".to_vec(),
        ..old.clone()
    };
    client
        .update(table, row, change)
        .expect("a change")
        .expect("a row");
}

fn lock_all(mode: LockMode) -> Bind {
    Bind {
        lock: Some(mode),
        busy: Busy::Fail,
        ..Bind::default()
    }
}

fn ids(met: &[(u32, bool)]) -> Vec<u32> {
    let mut ids: Vec<u32> = met
        .iter()
        .filter(|(_, locked)| *locked)
        .map(|(id, _)| *id)
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_row_that_does_not_fit_is_not_waited_for() {
    for path in PATHS {
        let (mut bench, rows) = four();
        retag(&mut bench.client, &bench.table, rows[1], 20);
        let mut other = committed(&bench);
        let met = rename(&mut other, &bench.table, path, |tag| tag == 3).expect("nobody is waited for");
        assert_eq!(ids(&met), [3], "{path:?}");
        assert_eq!(met.len(), 4, "{path:?}: {met:?}");
        other.session.commit().unwrap();
        bench.client.session.commit().unwrap();
        bench.settle();
    }
}

#[test]
fn a_row_that_fits_is_waited_for_also_if_it_was_only_locked() {
    for path in PATHS {
        for changes in [true, false] {
            let (mut bench, rows) = four();
            if changes {
                retag(&mut bench.client, &bench.table, rows[1], 20);
            } else {
                bench
                    .client
                    .scan_locking(&bench.table, lock_all(LockMode::Shared))
                    .unwrap();
            }
            let mut other = committed(&bench);
            let refused = rename(&mut other, &bench.table, path, |tag| tag == 2);
            assert!(
                matches!(refused, Err(Error::LockTimeout { .. })),
                "{path:?}: {refused:?}"
            );
            // What the unfinished version says counts for nobody else.
            let met = rename(&mut other, &bench.table, path, |tag| tag == 20).expect("no such row");
            assert_eq!(ids(&met), [] as [u32; 0], "{path:?}");
        }
    }
}

#[test]
fn after_the_wait_the_newest_version_is_judged_anew() {
    for path in PATHS {
        for (tag, wanted) in [(20, vec![3]), (2, vec![2, 3])] {
            let (mut bench, rows) = four();
            let table = PlayTable::open(&bench.db, "t").unwrap();
            retag(&mut bench.client, &bench.table, rows[1], tag);
            let mut other = client(&bench, Isolation::ReadCommitted, 60_000);
            let met = std::thread::scope(|scope| {
                let statement = scope.spawn(|| rename(&mut other, &table, path, |tag| tag == 2 || tag == 3));
                while !bench.db.waits.has_waiters() {
                    std::thread::yield_now();
                }
                bench.client.session.commit().unwrap();
                statement.join().unwrap().unwrap()
            });
            assert_eq!(ids(&met), wanted, "{path:?}: {met:?}");
            let looked: Vec<_> = met.iter().filter(|met| **met == (2, false)).collect();
            assert_eq!(looked.len(), if tag == 2 { 1 } else { 2 }, "{path:?}: {met:?}");
            other.session.commit().unwrap();
            bench.settle();
        }
    }
}

#[test]
fn a_row_that_is_gone_after_the_wait_is_passed_over_and_one_that_comes_back_is_not() {
    for path in PATHS {
        for commits in [true, false] {
            let (mut bench, rows) = four();
            let table = PlayTable::open(&bench.db, "t").unwrap();
            bench.client.delete(&bench.table, rows[1]).unwrap();
            let mut other = client(&bench, Isolation::ReadCommitted, 60_000);
            let met = std::thread::scope(|scope| {
                let statement = scope.spawn(|| rename(&mut other, &table, path, |tag| tag != 4));
                while !bench.db.waits.has_waiters() {
                    std::thread::yield_now();
                }
                if commits {
                    bench.client.session.commit().unwrap();
                } else {
                    bench.client.session.rollback().unwrap();
                }
                statement.join().unwrap().unwrap()
            });
            let wanted: &[u32] = if commits { &[1, 3] } else { &[1, 2, 3] };
            assert_eq!(ids(&met), wanted, "{path:?}: {met:?}");
        }
    }
}

#[test]
fn a_row_that_nobody_committed_is_passed_over() {
    for path in PATHS {
        let (mut bench, _) = four();
        let new = PlayRow {
            group: Some(1),
            tag: Some(9),
            ..row(9)
        };
        bench.client.insert(&bench.table, &new).unwrap();
        let mut other = committed(&bench);
        let met = rename(&mut other, &bench.table, path, |tag| tag >= 4).expect("nobody is waited for");
        assert_eq!(ids(&met), [4], "{path:?}");
    }
}

#[test]
fn rows_that_do_not_fit_are_free_afterwards() {
    for path in PATHS {
        let (mut bench, _) = four();
        let mut other = committed(&bench);
        rename(&mut other, &bench.table, path, |tag| tag == 3).unwrap();
        let met = rename(&mut committed(&bench), &bench.table, path, |tag| tag != 3).expect("three are free");
        assert_eq!(ids(&met), [1, 2, 4], "{path:?}");
        bench.client.session.rollback().unwrap();
    }
}

#[test]
fn a_lock_that_was_there_before_stays_when_the_row_does_not_fit() {
    // T17: a shared lock, and the exclusive one that a scan asks for beside it.
    let (bench, _) = four();
    let mut holder = committed(&bench);
    holder
        .scan_locking(&bench.table, lock_all(LockMode::Shared))
        .unwrap();
    let met = rename(&mut holder, &bench.table, Path::Table, |tag| tag == 3).unwrap();
    assert_eq!(ids(&met), [3]);
    let mut other = committed(&bench);
    let refused = rename(&mut other, &bench.table, Path::Table, |tag| tag == 1);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    other.session.rollback().unwrap();
    let shared = other.scan_locking(&bench.table, lock_all(LockMode::Shared));
    assert!(
        matches!(shared, Err(Error::LockTimeout { .. })),
        "row 3 is changed: {shared:?}"
    );
    holder.session.rollback().unwrap();
    other
        .scan_locking(&bench.table, lock_all(LockMode::Shared))
        .unwrap();
}

#[test]
fn a_row_on_its_way_to_another_key_is_waited_for() {
    // T41: the scan has passed its new key when the move is committed.
    for commits in [true, false] {
        let (mut bench, rows) = four();
        let table = PlayTable::open(&bench.db, "t").unwrap();
        let renumbered = |old: &PlayRow| PlayRow { id: 0, ..old.clone() };
        bench.client.update(&bench.table, rows[3], renumbered).unwrap();
        let mut other = client(&bench, Isolation::ReadCommitted, 60_000);
        let met = std::thread::scope(|scope| {
            let statement = scope.spawn(|| rename(&mut other, &table, Path::Ids(true), |tag| tag == 4));
            while !bench.db.waits.has_waiters() {
                std::thread::yield_now();
            }
            if commits {
                bench.client.session.commit().unwrap();
            } else {
                bench.client.session.rollback().unwrap();
            }
            statement.join().unwrap().unwrap()
        });
        assert_eq!(ids(&met), [if commits { 0 } else { 4 }], "{met:?}");
        other.session.commit().unwrap();
        bench.settle();
    }
}

#[test]
fn a_search_for_one_row_and_a_fetch_wait() {
    let (mut bench, rows) = four();
    retag(&mut bench.client, &bench.table, rows[1], 20);
    let mut other = committed(&bench);
    for (index, key) in [(BY_ID, Some(2)), (TAG_INDEX, Some(2))] {
        let found = other.statement(|session| {
            let mut cursor = Cursor::new(&bench.table.table);
            let bind = Bind {
                for_write: true,
                ..Bind::default()
            };
            cursor.bind(session, bind)?;
            cursor.try_semi_consistent(true);
            cursor.index_start(session, index)?;
            cursor.seek(session, &bench.table.prefix(index, &[key]), Seek::Exact, |_| {
                Ok(())
            })
        });
        assert!(matches!(found, Err(Error::LockTimeout { .. })), "{found:?}");
    }
    let fetched = other.statement(|session| {
        let mut cursor = Cursor::new(&bench.table.table);
        let bind = Bind {
            for_write: true,
            ..Bind::default()
        };
        cursor.bind(session, bind)?;
        cursor.try_semi_consistent(true);
        cursor.fetch(session, rows[1], |_| Ok(()))
    });
    assert!(matches!(fetched, Err(Error::LockTimeout { .. })), "{fetched:?}");
}

#[test]
fn above_read_committed_rows_are_waited_for() {
    let (mut bench, rows) = four();
    retag(&mut bench.client, &bench.table, rows[1], 20);
    let mut other = client(&bench, Isolation::RepeatableRead, 0);
    for conflict_mode in [pbxt::ConflictMode::Wait, pbxt::ConflictMode::Error] {
        let mut config = other.session.config();
        config.conflict_mode = conflict_mode;
        other.session.configure(config);
        let update = rename(&mut other, &bench.table, Path::Table, |tag| tag == 3);
        let waits = conflict_mode == pbxt::ConflictMode::Wait;
        assert_eq!(
            matches!(update, Err(Error::LockTimeout { .. })),
            waits,
            "{update:?}"
        );
        other.session.rollback().unwrap();
    }
}
