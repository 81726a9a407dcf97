//! Entries that a host judges before the rows behind them are read (rule X16): what it is shown, and what is not touched.

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, is_busy, row};
use pbxt::host::{Admission, EntryJudge, HostCursor};
use pbxt::{Bind, Error, Result};
use pbxt_base::RowId;
use pbxt_txn::LockMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ROWS: u32 = 600;
const COLUMNS: usize = 4;
/// The index on columns 1 and 2.
const INDEX: usize = 1;

/// Admits rows whose column 2 is even, and nothing from a value of column 1 on.
#[derive(Debug, Default)]
struct EvenOnly {
    asked: AtomicUsize,
    beyond: Option<u32>,
    fails_at: Option<usize>,
}

impl EntryJudge for EvenOnly {
    fn judge(&self, record: &mut [u8], _: RowId) -> Result<Admission> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.fails_at == Some(asked) {
            return Err(Error::Killed);
        }
        let shown = decode(record, COLUMNS);
        if self.beyond.is_some_and(|beyond| shown[1] >= Some(beyond)) {
            return Ok(Admission::Beyond);
        }
        let is_even = shown[2].is_some_and(|value| value % 2 == 0);
        Ok(if is_even {
            Admission::Wanted
        } else {
            Admission::Unwanted
        })
    }
}

fn filled() -> (Arc<pbxt::Database>, Opened, Vec<Row>) {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1, 2]));
    let mut rows: Vec<Row> = (0..ROWS).map(|id| row(&[id, id % 20, id / 20, id * 3])).collect();
    rows[5][2] = None;
    let mut user = User::new(&db, 1);
    user.insert_all(&table, &rows).expect("inserted");
    user.commit();
    (db, table, rows)
}

/// Rows of a scan of the whole index with this judge.
fn scan(user: &mut User, table: &Opened, judge: &Arc<EvenOnly>, lock: Option<LockMode>) -> Result<Vec<Row>> {
    user.session.begin_statement()?;
    let mut cursor = HostCursor::new(&table.host);
    cursor.bind(
        &mut user.session,
        Bind {
            lock,
            ..Bind::default()
        },
    )?;
    cursor.set_judge(Arc::<EvenOnly>::clone(judge));
    cursor.index_start(&mut user.session, INDEX)?;
    cursor.judge_entries(INDEX)?;
    let mut buffer = encode(&[Some(0); COLUMNS]);
    let mut rows = Vec::new();
    let mut found = cursor.index_edge(&mut user.session, false, &mut buffer)?;
    while found {
        rows.push(decode(&buffer, COLUMNS));
        found = cursor.index_move(&mut user.session, true, false, &mut buffer)?;
    }
    drop(cursor);
    user.session.end_statement();
    Ok(rows)
}

fn even(rows: &[Row]) -> Vec<Row> {
    let is_even = |row: &&Row| row[2].is_some_and(|value| value % 2 == 0);
    let mut kept: Vec<Row> = rows.iter().filter(is_even).cloned().collect();
    kept.sort_by_key(|row| (row[1], row[2]));
    kept
}

#[test]
fn rows_behind_unwanted_entries_are_left_out() {
    let (db, table, rows) = filled();
    let judge = Arc::new(EvenOnly::default());
    for lock in [None, Some(LockMode::Shared)] {
        judge.asked.store(0, Ordering::Relaxed);
        let mut user = User::new(&db, 2);
        assert_eq!(
            scan(&mut user, &table, &judge, lock).expect("readable"),
            even(&rows)
        );
        assert_eq!(
            judge.asked.load(Ordering::Relaxed),
            ROWS as usize,
            "each entry once"
        );
        user.rollback();
    }
}

#[test]
fn a_locking_scan_locks_wanted_rows_only() {
    let (db, table, rows) = filled();
    let (mut one, mut two) = (User::new(&db, 2), User::new(&db, 3));
    scan(
        &mut one,
        &table,
        &Arc::new(EvenOnly::default()),
        Some(LockMode::Exclusive),
    )
    .expect("readable");
    let wanted = even(&rows);
    for row in rows.iter().step_by(7) {
        let changed = two.delete(&table, row[0].expect("a key"));
        assert_eq!(
            is_busy(&changed),
            wanted.contains(row),
            "X16: {row:?}: {changed:?}"
        );
    }
}

#[test]
fn the_judge_ends_a_scan_or_its_statement() {
    let (db, table, rows) = filled();
    let mut user = User::new(&db, 2);
    let beyond = Arc::new(EvenOnly {
        beyond: Some(12),
        ..EvenOnly::default()
    });
    let mut wanted = even(&rows);
    wanted.retain(|row| row[1] < Some(12));
    assert_eq!(scan(&mut user, &table, &beyond, None).expect("readable"), wanted);
    let failing = Arc::new(EvenOnly {
        fails_at: Some(200),
        ..EvenOnly::default()
    });
    assert!(matches!(
        scan(&mut user, &table, &failing, None),
        Err(Error::Killed)
    ));
}

#[test]
fn a_snapshot_is_judged_by_the_keys_it_sees() {
    let (db, table, rows) = filled();
    let (mut reader, mut writer) = (User::new(&db, 2), User::new(&db, 3));
    let judge = Arc::new(EvenOnly::default());
    assert_eq!(
        scan(&mut reader, &table, &judge, None).expect("readable"),
        even(&rows)
    );
    for id in 0..ROWS {
        let old = &rows[id as usize];
        let new = row(&[
            id,
            old[1].expect("a value"),
            old[2].map_or(0, |value| value + 1),
            0,
        ]);
        writer.update(&table, id, &new).expect("changed");
    }
    writer.commit();
    assert_eq!(
        scan(&mut reader, &table, &judge, None).expect("readable"),
        even(&rows)
    );
    reader.rollback();
    let now = writer.rows(&table);
    let mut seen = scan(&mut reader, &table, &judge, None).expect("readable");
    let mut wanted = even(&now);
    seen.sort();
    wanted.sort();
    assert_eq!(seen, wanted);
}
