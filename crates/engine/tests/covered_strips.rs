//! Long covering scans take lone entries many at once (rule X56 of indexes.md): they show what a scan that reads every row shows.

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, is_busy, row};
use pbxt::host::{HostBound, HostCursor, HostRange};
use pbxt::{Bind, Database, Isolation, Progress, Result, Seek, Session};
use pbxt_rows::ColumnSet;
use pbxt_testkit::Rng;
use pbxt_txn::LockMode;
use std::sync::Arc;

const ROWS: u32 = 4000;
const COLUMNS: usize = 3;
/// Values of column 1: many rows have each.
const VALUES: u32 = 50;
/// The index on column 1, with the primary key behind it.
const INDEX: usize = 1;
/// Moves of one scan at most.
const MOVES: u64 = 700;

fn to_the_end(mut step: impl FnMut() -> Result<Progress>) {
    while step().expect("done") == Progress::Worked {}
}

/// Everything so far goes to runs, whose stamps are settled where nobody needs them.
fn settle(db: &Database) {
    for _ in 0..3 {
        db.checkpoint_step().expect("a checkpoint");
        to_the_end(|| db.settle_tags_step());
        to_the_end(|| db.index_merge_step());
    }
}

fn filled() -> (Arc<Database>, Opened) {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1]));
    let rows: Vec<Row> = (0..ROWS).map(|id| row(&[id, id * 7 % VALUES, id])).collect();
    let mut user = User::new(&db, 1);
    for some in rows.chunks(1000) {
        user.insert_all(&table, some).expect("inserted");
        user.commit();
    }
    settle(&db);
    (db, table)
}

/// A scan that is open, and whether it needs the entries alone.
struct Scan {
    cursor: HostCursor,
    buffer: Vec<u8>,
}

impl Scan {
    fn open(session: &mut Session, table: &Opened, is_covering: bool, bind: Bind) -> Result<Self> {
        let mut cursor = HostCursor::new(&table.host);
        cursor.bind(session, bind)?;
        if is_covering {
            cursor.project([0, 1].into_iter().collect::<ColumnSet>());
        }
        cursor.index_start(session, INDEX)?;
        assert_eq!(cursor.covers(), is_covering);
        Ok(Self {
            cursor,
            buffer: encode(&[Some(0); COLUMNS]),
        })
    }

    /// What a step came to: the row's id and columns, as far as they are in the index.
    fn come(&mut self, session: &mut Session, step: Step) -> Result<Option<(u64, Row)>> {
        let (cursor, buffer) = (&mut self.cursor, &mut self.buffer);
        let found = match step {
            Step::Edge(last) => cursor.index_edge(session, last, buffer)?,
            Step::Seek(value, seek) => {
                let mut tuple = vec![0];
                tuple.extend_from_slice(&value.to_le_bytes());
                cursor.seek(session, INDEX, &tuple, 1, seek, buffer)?
            }
            Step::Move(forward, same) => cursor.index_move(session, forward, same, buffer)?,
            Step::End(value, inclusive) => {
                let mut tuple = vec![0];
                tuple.extend_from_slice(&value.to_le_bytes());
                cursor.set_end(INDEX, Some((&tuple, 1, inclusive)))?;
                return Ok(None);
            }
        };
        Ok(found.then(|| (cursor.row().raw(), decode(buffer, COLUMNS)[..2].to_vec())))
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Edge(bool),
    Seek(u32, Seek),
    Move(bool, bool),
    End(u32, bool),
}

fn first_step(rng: &mut Rng) -> Step {
    let seeks = [
        Seek::Exact,
        Seek::OrNext,
        Seek::After,
        Seek::OrPrev,
        Seek::Before,
        Seek::Last,
    ];
    match rng.below(8) {
        6 => Step::Edge(false),
        7 => Step::Edge(true),
        which => Step::Seek(rng.below(u64::from(VALUES) + 2) as u32, seeks[which as usize]),
    }
}

/// Mostly on; seldom back, with the prefix, or with another border.
fn next_step(rng: &mut Rng, same: bool) -> Step {
    match rng.below(400) {
        0..4 => Step::Move(false, same),
        4 => Step::End(rng.below(u64::from(VALUES)) as u32, rng.chance(50)),
        5..8 => Step::Move(true, !same),
        _ => Step::Move(true, same),
    }
}

/// Changes one row or another; locks of others are in the way sometimes.
fn change(rng: &mut Rng, user: &mut User, table: &Opened, next_id: &mut u32) {
    let id = rng.below(u64::from(*next_id)) as u32;
    let value = rng.below(u64::from(VALUES)) as u32;
    let changed = match rng.below(4) {
        0 => {
            *next_id += 1;
            user.insert(table, &row(&[*next_id - 1, value, 0])).map(|()| true)
        }
        1 => user.delete(table, id),
        _ => user.update(table, id, &row(&[id, value, rng.below(9) as u32])),
    };
    if let Err(error) = &changed {
        let is_late = matches!(error, pbxt::Error::WriteConflict { .. });
        assert!(is_late || is_busy(&changed), "{changed:?}");
    }
}

/// Walks a scan that goes by entries and one that reads rows side by side; both have to come to the same rows. Meanwhile the reader and
/// somebody else change rows. Returns the number of rows they came to.
fn walk_side_by_side(
    rng: &mut Rng,
    table: &Opened,
    reader: &mut User,
    writer: &mut User,
    next_id: &mut u32,
) -> usize {
    reader.session.begin_statement().expect("a statement");
    let session = &mut reader.session;
    let mut entries = Scan::open(session, table, true, Bind::default()).expect("open");
    let mut rows = Scan::open(session, table, false, Bind::default()).expect("open");
    let mut step = first_step(rng);
    let same = matches!(step, Step::Seek(_, Seek::Exact)) && rng.chance(60);
    let mut met = 0;
    let mut trace = Vec::new();
    if rng.chance(50) {
        let from = if let Step::Seek(value, _) = step { value } else { 0 };
        trace.push(Step::End(from + rng.below(5) as u32, rng.chance(50)));
        assert_eq!(entries.come(&mut reader.session, trace[0]).expect("set"), None);
        assert_eq!(rows.come(&mut reader.session, trace[0]).expect("set"), None);
    }
    for _ in 0..rng.below(MOVES) {
        trace.push(step);
        let by_entries = entries.come(&mut reader.session, step).expect("readable");
        let by_rows = rows.come(&mut reader.session, step).expect("readable");
        assert_eq!(
            by_entries,
            by_rows,
            "X56: {:?}",
            &trace[trace.len().saturating_sub(30)..]
        );
        met += usize::from(by_entries.is_some());
        if by_entries.is_none() && matches!(step, Step::Move(..)) && rng.chance(70) {
            break;
        }
        if rng.below(200) == 0 {
            change(rng, writer, table, next_id);
            writer.commit();
        }
        step = next_step(rng, same);
    }
    drop((entries, rows));
    reader.session.end_statement();
    met
}

#[test]
fn a_long_covering_scan_shows_what_one_of_rows_shows() {
    let (db, table) = filled();
    let mut rng = Rng::new(56);
    let mut next_id = ROWS;
    let (mut writer, mut old) = (User::new(&db, 2), User::new(&db, 3));
    let mut met = 0;
    for round in 0..120 {
        let level = if round % 3 == 0 {
            Isolation::ReadCommitted
        } else {
            Isolation::RepeatableRead
        };
        let mut reader = User::new(&db, 1).with_level(level);
        // Own changes that are not committed.
        for _ in 0..rng.below(12) {
            change(&mut rng, &mut reader, &table, &mut next_id);
        }
        met += walk_side_by_side(&mut rng, &table, &mut reader, &mut writer, &mut next_id);
        met += walk_side_by_side(&mut rng, &table, &mut old, &mut writer, &mut next_id);
        if rng.chance(70) {
            reader.commit();
        } else {
            reader.rollback();
        }
        if rng.chance(10) {
            old.commit();
        }
        if rng.chance(20) {
            settle(&db);
        }
    }
    assert!(met > 20_000, "only {met} rows were met");
}

#[test]
fn a_row_that_is_deleted_behind_a_strip_is_shown_to_its_snapshot_alone() {
    let (db, table) = filled();
    let (mut reader, mut writer) = (User::new(&db, 1), User::new(&db, 2));
    reader.session.begin_statement().expect("a statement");
    let mut scan = Scan::open(&mut reader.session, &table, true, Bind::default()).expect("open");
    let step =
        |scan: &mut Scan, reader: &mut User, step| scan.come(&mut reader.session, step).expect("readable");
    assert!(step(&mut scan, &mut reader, Step::Edge(false)).is_some());
    for _ in 0..40 {
        assert!(step(&mut scan, &mut reader, Step::Move(true, false)).is_some());
    }
    for id in 0..ROWS / 2 {
        assert!(writer.delete(&table, id).expect("deleted"));
    }
    writer.commit();
    let mut rest = 0;
    while step(&mut scan, &mut reader, Step::Move(true, false)).is_some() {
        rest += 1;
    }
    assert_eq!(rest, ROWS - 41, "the snapshot has all rows");
    drop(scan);
    reader.session.end_statement();
    reader.commit();
    reader.session.begin_statement().expect("a statement");
    let mut scan = Scan::open(&mut reader.session, &table, true, Bind::default()).expect("open");
    let mut found = step(&mut scan, &mut reader, Step::Edge(false));
    let mut met = 0;
    while let Some((_, columns)) = found {
        assert!(columns[0] >= Some(ROWS / 2), "B7: {columns:?} was deleted");
        met += 1;
        found = step(&mut scan, &mut reader, Step::Move(true, false));
    }
    assert_eq!(met, ROWS - ROWS / 2);
    drop(scan);
    reader.session.end_statement();
}

#[test]
fn rows_are_deleted_by_a_covering_scan_while_it_goes_on() {
    let (db, table) = filled();
    let mut user = User::new(&db, 1);
    let deleted = user.statement(&table, |session, _| {
        let bind = Bind {
            for_write: true,
            ..Bind::default()
        };
        let mut scan = Scan::open(session, &table, true, bind)?;
        let mut found = scan.come(session, Step::Edge(false))?;
        let mut deleted = 0;
        while let Some((row, columns)) = found {
            if columns[1] < Some(VALUES / 2) {
                scan.cursor.delete(session, pbxt_base::RowId::new(row))?;
                deleted += 1;
            }
            found = scan.come(session, Step::Move(true, false))?;
        }
        Ok(deleted)
    });
    assert_eq!(deleted.expect("deleted"), ROWS / 2);
    user.commit();
    let left = user.rows(&table);
    assert!(left.iter().all(|row| row[1] >= Some(VALUES / 2)));
    assert_eq!(left.len() as u32, ROWS / 2);
    user.commit();
    user.check(&table);
}

/// A bound of a range: the value of column 1, perhaps with an id behind it.
fn bound(rng: &mut Rng) -> Vec<u32> {
    let mut bound = vec![rng.below(u64::from(VALUES) + 2) as u32];
    if rng.chance(40) {
        bound.push(rng.below(u64::from(ROWS)) as u32);
    }
    bound
}

fn tuple_of(bound: &[u32]) -> Vec<u8> {
    bound
        .iter()
        .enumerate()
        .flat_map(|(part, value)| {
            // The primary key is never NULL, and has no byte for that.
            let marker = (part == 0).then_some(0);
            marker.into_iter().chain(value.to_le_bytes())
        })
        .collect()
}

/// An end of a range, and whether what begins with it is in the range.
type End<'e> = Option<(&'e [u32], bool)>;

fn count(session: &mut Session, table: &Opened, bind: Bind, low: End<'_>, high: End<'_>) -> u64 {
    let tuples = [low, high].map(|end| end.map(|(bound, _)| tuple_of(bound)));
    let end_of = |end: End<'_>, tuple| {
        end.map(|(bound, inclusive)| HostBound {
            tuple,
            parts: bound.len(),
            inclusive,
        })
    };
    let [from, to] = tuples
        .each_ref()
        .map(|tuple| tuple.as_deref().unwrap_or_default());
    let range = HostRange {
        low: end_of(low, from),
        high: end_of(high, to),
        tag: 0,
    };
    let mut cursor = HostCursor::new(&table.host);
    cursor.bind(session, bind).expect("bound");
    cursor.index_start(session, INDEX).expect("started");
    cursor.count_range(session, INDEX, &range).expect("counted")
}

/// The same by a look at each row.
fn walk(session: &mut Session, table: &Opened, bind: Bind, low: End<'_>, high: End<'_>) -> u64 {
    let mut rows = Scan::open(session, table, false, bind).expect("open");
    if let Some((bound, inclusive)) = high {
        let end = tuple_of(bound);
        rows.cursor
            .set_end(INDEX, Some((&end, bound.len(), inclusive)))
            .expect("set");
    }
    let buffer = &mut rows.buffer;
    let mut found = match low {
        Some((bound, inclusive)) => {
            let seek = if inclusive { Seek::OrNext } else { Seek::After };
            rows.cursor
                .seek(session, INDEX, &tuple_of(bound), bound.len(), seek, buffer)
        }
        None => rows.cursor.index_edge(session, false, buffer),
    };
    let mut met = 0;
    while found.expect("readable") {
        met += 1;
        found = rows.cursor.index_move(session, true, false, buffer);
    }
    met
}

#[test]
fn a_range_has_as_many_rows_as_a_scan_shows() {
    let (db, table) = filled();
    let mut rng = Rng::new(61);
    let mut next_id = ROWS;
    let (mut writer, mut old) = (User::new(&db, 2), User::new(&db, 3));
    let mut met = 0;
    let levels = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    for round in 0..400 {
        let mut reader = User::new(&db, 1).with_level(levels[round % 3]);
        for _ in 0..rng.below(6) {
            change(&mut rng, &mut reader, &table, &mut next_id);
        }
        for _ in 0..rng.below(40) {
            change(&mut rng, &mut writer, &table, &mut next_id);
        }
        writer.commit();
        for user in [&mut reader, &mut old] {
            user.session.begin_statement().expect("a statement");
            let (low, high) = (bound(&mut rng), bound(&mut rng));
            let low = rng.chance(80).then_some((low.as_slice(), rng.chance(50)));
            let high = rng.chance(80).then_some((high.as_slice(), rng.chance(50)));
            let counted = count(&mut user.session, &table, Bind::default(), low, high);
            let shown = walk(&mut user.session, &table, Bind::default(), low, high);
            assert_eq!(counted, shown, "X61: round {round}, from {low:?} to {high:?}");
            user.session.end_statement();
            met += shown;
        }
        reader.rollback();
        if rng.chance(10) {
            old.commit();
        }
        if rng.chance(20) {
            settle(&db);
        }
    }
    assert!(met > 400_000, "only {met} rows were met");
}

#[test]
fn a_count_that_locks_counts_and_locks_what_a_scan_would() {
    let (db, table) = filled();
    let mut user = User::new(&db, 1);
    user.session.begin_statement().expect("a statement");
    let bind = Bind {
        lock: Some(LockMode::Exclusive),
        ..Bind::default()
    };
    let counted = count(
        &mut user.session,
        &table,
        bind,
        Some((&[3], true)),
        Some((&[4], true)),
    );
    assert_eq!(counted, u64::from(2 * ROWS / VALUES));
    let mut other = User::new(&db, 2);
    let id = (0..ROWS).find(|id| id * 7 % VALUES == 4).expect("a row");
    assert!(is_busy(&other.delete(&table, id)), "the row is locked");
    other.rollback();
    user.session.end_statement();
    user.rollback();
}

#[test]
fn what_is_counted_is_noted_as_read() {
    let (db, table) = filled();
    // Each counts what the other one adds to: no order has both.
    let mut users = [1, 2].map(|id| User::new(&db, id).with_level(Isolation::Serializable));
    for user in &mut users {
        user.session.begin_statement().expect("a statement");
        let end = Some((&[7][..], true));
        let counted = count(&mut user.session, &table, Bind::default(), end, end);
        assert_eq!(counted, u64::from(ROWS / VALUES));
        user.session.end_statement();
    }
    let [one, other] = &mut users;
    one.insert(&table, &row(&[ROWS, 7, 0])).expect("inserted");
    let second = other.insert(&table, &row(&[ROWS + 1, 7, 0]));
    let ends = [
        one.session.commit().is_ok(),
        second.is_ok() && other.session.commit().is_ok(),
    ];
    assert_eq!(
        ends.iter().filter(|is_done| **is_done).count(),
        1,
        "T30: {ends:?}"
    );
}
