//! Rows that take over a key while somebody searches for it: at every moment a row had it, so one is found (rule T55). Needs feature
//! `stop-points`.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]
#![cfg(feature = "stop-points")]

mod common;
#[path = "common/hold.rs"]
mod hold;

use common::{Bench, row};
use hold::{hold_at, turn};
use pbxt::{Bind, ConflictMode, Cursor, Isolation, Seek, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, TAG_INDEX};
use pbxt_txn::LockMode;

const TAG: u32 = 9;

fn tagged(id: u32, tag: Option<u32>) -> PlayRow {
    PlayRow { tag, ..row(id) }
}

/// A client for whom the newest versions count, and who waits.
fn patient(bench: &Bench, number: usize) -> Client {
    let mut client = bench.other(number);
    client.session.configure(SessionConfig {
        conflict_mode: ConflictMode::Wait,
        isolation: Isolation::ReadCommitted,
        lock_wait_timeout_ms: 10_000,
        ..SessionConfig::default()
    });
    client
}

/// The ids of the rows that a locking search for the tag shows; of a whole key, or of a range with this one key.
fn search(client: &mut Client, table: &PlayTable, seek: Seek) -> Vec<u32> {
    let key = table.prefix(TAG_INDEX, &[Some(TAG)]);
    let mut ids = Vec::new();
    let found = client.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        let bind = Bind {
            lock: Some(LockMode::Exclusive),
            ..Bind::default()
        };
        cursor.bind(session, bind)?;
        cursor.index_start(session, TAG_INDEX)?;
        cursor.set_end(Some((&key, true)));
        cursor.seek(session, &key, seek, |version| {
            ids.push(table.decode(version.payload())?.id);
            Ok(())
        })
    });
    assert_eq!(found.unwrap(), !ids.is_empty());
    client.session.commit().unwrap();
    ids
}

fn retag(client: &mut Client, table: &PlayTable, row: RowId, tag: Option<u32>) {
    let change = |old: &PlayRow| PlayRow { tag, ..old.clone() };
    client.update(table, row, change).unwrap().unwrap();
}

/// What somebody finds who stands at `point` while one transaction does this to three rows, of which the second has the tag; and the same if
/// the first half was done before the search began.
fn found_beside(
    point: &'static str,
    seek: Seek,
    before: impl Fn(&mut Client, &PlayTable, &[RowId]),
    between: impl Fn(&mut Client, &PlayTable, &[RowId]),
) -> Vec<u32> {
    let turn = turn();
    let mut bench = Bench::new();
    let tags = [(1, None), (2, Some(TAG)), (3, None)];
    let rows = tags.map(|(id, tag)| bench.client.insert(&bench.table, &tagged(id, tag)).unwrap());
    bench.client.session.commit().unwrap();
    let mut other = patient(&bench, 8);
    before(&mut other, &bench.table, &rows);
    let (mut searcher, table) = (patient(&bench, 7), bench.table.clone());
    let held = hold_at(&turn, point, move || search(&mut searcher, &table, seek));
    between(&mut other, &bench.table, &rows);
    other.session.commit().unwrap();
    let found = held.release();
    bench.settle();
    found
}

const SEEKS: [Seek; 4] = [Seek::Exact, Seek::Key, Seek::OrNext, Seek::Last];

#[test]
fn a_row_that_took_the_key_before_the_lock_is_found() {
    for seek in SEEKS {
        for taker in [0, 2] {
            let found = found_beside(
                "read.after_word",
                seek,
                |_, _, _| {},
                |other, table, rows| {
                    retag(other, table, rows[1], None);
                    retag(other, table, rows[taker], Some(TAG));
                },
            );
            assert_eq!(found, [taker as u32 + 1], "T55: {seek:?}");
        }
        let found = found_beside(
            "read.after_word",
            seek,
            |_, _, _| {},
            |other, table, rows| {
                other.delete(table, rows[1]).unwrap().unwrap();
                other.insert(table, &tagged(4, Some(TAG))).unwrap();
            },
        );
        assert_eq!(found, [4], "T55: {seek:?}");
    }
}

#[test]
fn a_row_that_took_the_key_behind_the_entries_read_is_found() {
    for seek in SEEKS {
        for taker in [0, 2] {
            let found = found_beside(
                "seek.after_entries",
                seek,
                |other, table, rows| retag(other, table, rows[1], None),
                |other, table, rows| retag(other, table, rows[taker], Some(TAG)),
            );
            assert_eq!(found, [taker as u32 + 1], "T55: {seek:?}");
        }
    }
}

#[test]
fn a_key_that_nobody_has_any_more_is_not_searched_for_ever() {
    for seek in SEEKS {
        let found = found_beside(
            "read.after_word",
            seek,
            |_, _, _| {},
            |other, table, rows| {
                other.delete(table, rows[1]).unwrap().unwrap();
            },
        );
        assert_eq!(found, [0; 0], "T55: {seek:?}");
        let found = found_beside(
            "seek.after_entries",
            seek,
            |_, _, _| {},
            |other, table, rows| {
                retag(other, table, rows[1], None);
                other.session.commit().unwrap();
                retag(other, table, rows[0], None);
            },
        );
        assert_eq!(found, [0; 0], "T55: {seek:?}");
    }
}
