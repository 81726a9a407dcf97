//! Many ranges of an index read as one scan (rule X53): the rows of each range, in their order, whatever lies where.

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, options, row};
use pbxt::host::{Admission, EntryJudge, HostBound, HostCursor, HostRange, HostTable};
use pbxt::{Bind, Database, Isolation, Options, Result};
use pbxt_base::RowId;
use pbxt_testkit::{Rng, SimDisk};
use pbxt_txn::LockMode;
use std::collections::BTreeMap;
use std::sync::Arc;

const COLUMNS: usize = 3;
/// The index on column 1, with the primary key behind it.
const BY_GROUP: usize = 1;
const GROUPS: u64 = 60;

/// A group and whether it is in the range; none: no border.
type Border = Option<(u32, bool)>;
type Range = (Border, Border);

fn tuple(index: usize, value: u32) -> Vec<u8> {
    let nulls: &[u8] = if index == BY_GROUP { &[0] } else { &[] };
    [nulls, &value.to_le_bytes()].concat()
}

/// Rows of the ranges with the number of their range; none if the cursor reads ranges one by one.
fn read(
    user: &mut User,
    table: &Opened,
    index: usize,
    ranges: &[Range],
    (lock, judge): (Option<LockMode>, Option<Arc<dyn EntryJudge>>),
) -> Result<Option<Vec<(u64, Row)>>> {
    user.session.begin_statement()?;
    let mut cursor = HostCursor::new(&table.host);
    let bind = Bind {
        lock,
        ..Bind::default()
    };
    cursor.bind(&mut user.session, bind)?;
    if let Some(judge) = judge.clone() {
        cursor.set_judge(judge);
    }
    cursor.index_start(&mut user.session, index)?;
    if judge.is_some() {
        cursor.judge_entries(index)?;
    }
    let rows = if cursor.ranges_begin() {
        Some(rows_of(user, &mut cursor, index, ranges)?)
    } else {
        None
    };
    drop(cursor);
    user.session.end_statement();
    Ok(rows)
}

/// Search tuples of the borders, and whether they are in the range.
type Tuples = (Option<(Vec<u8>, bool)>, Option<(Vec<u8>, bool)>);

fn tuples_of(index: usize, ranges: &[Range]) -> Vec<Tuples> {
    let of_border = |border: Border| border.map(|(value, inclusive)| (tuple(index, value), inclusive));
    let of_range = |(low, high): &Range| (of_border(*low), of_border(*high));
    ranges.iter().map(of_range).collect()
}

fn bound((tuple, inclusive): &(Vec<u8>, bool)) -> HostBound<'_> {
    HostBound {
        tuple,
        parts: 1,
        inclusive: *inclusive,
    }
}

/// Gives the ranges one after the other, each with its number.
fn giver_of<'t>(tuples: &'t [Tuples]) -> impl FnMut(&HostTable) -> Result<Option<HostRange<'t>>> {
    let mut given = tuples.iter().zip(0_u64..);
    move |_| {
        Ok(given.next().map(|((low, high), tag)| HostRange {
            low: low.as_ref().map(bound),
            high: high.as_ref().map(bound),
            tag,
        }))
    }
}

fn rows_of(
    user: &mut User,
    cursor: &mut HostCursor,
    index: usize,
    ranges: &[Range],
) -> Result<Vec<(u64, Row)>> {
    let tuples = tuples_of(index, ranges);
    let mut next = giver_of(&tuples);
    let mut buffer = encode(&[Some(0); COLUMNS]);
    let mut rows = Vec::new();
    while let Some(tag) = cursor.ranges_next(&mut user.session, index, &mut next, &mut buffer)? {
        rows.push((tag, decode(&buffer, COLUMNS)));
    }
    Ok(rows)
}

fn is_in(value: u32, (low, high): &Range) -> bool {
    low.is_none_or(|(low, inclusive)| value > low || inclusive && value == low)
        && high.is_none_or(|(high, inclusive)| value < high || inclusive && value == high)
}

/// What the ranges have, by a model.
fn expected(rows: &BTreeMap<u32, Row>, column: usize, ranges: &[Range]) -> Vec<(u64, Row)> {
    let mut found = Vec::new();
    for (range, tag) in ranges.iter().zip(0_u64..) {
        let mut of_range: Vec<Row> = rows
            .values()
            .filter(|row| row[column].is_some_and(|value| is_in(value, range)))
            .cloned()
            .collect();
        of_range.sort_by_key(|row| (row[column], row[0]));
        found.extend(of_range.into_iter().map(|row| (tag, row)));
    }
    found
}

/// Points, stretches, open ones, empty ones, some that overlap.
fn some_ranges(rng: &mut Rng, values: u64) -> Vec<Range> {
    let count = 1 + rng.below(40);
    let mut ranges: Vec<Range> = (0..count)
        .map(|_| {
            let low = rng.below(values + 5) as u32;
            if rng.chance(60) {
                return (Some((low, true)), Some((low, true)));
            }
            let high = low + rng.below(values / 8 + 2) as u32;
            (Some((low, rng.chance(50))), Some((high, rng.chance(50))))
        })
        .collect();
    if rng.chance(10) {
        ranges.insert(0, (None, Some((rng.below(4) as u32, true))));
    }
    if rng.chance(10) {
        ranges.push((Some((values as u32 - 4, false)), None));
    }
    ranges
}

/// Changes some rows in the table and in the model.
fn change(rng: &mut Rng, user: &mut User, table: &Opened, rows: &mut BTreeMap<u32, Row>) {
    for _ in 0..rng.below(40) {
        let id = rng.below(800) as u32;
        let new = row(&[id, rng.below(GROUPS) as u32, rng.below(1000) as u32]);
        if rows.remove(&id).is_none() {
            user.insert(table, &new).expect("inserted");
            rows.insert(id, new);
        } else if rng.chance(70) {
            assert!(user.update(table, id, &new).expect("updated"));
            rows.insert(id, new);
        } else {
            assert!(user.delete(table, id).expect("deleted"));
        }
    }
}

#[test]
fn many_ranges_give_the_rows_of_each_in_their_order() {
    for seed in 0..12 {
        let rng = &mut Rng::new(seed);
        let (db, _) = database();
        let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1]));
        let (mut writer, mut reader) = (User::new(&db, 1), User::new(&db, 2));
        let mut old = User::new(&db, 3);
        let mut rows = BTreeMap::new();
        let mut seen_by_old = None;
        for round in 0..25 {
            change(rng, &mut writer, &table, &mut rows);
            let mut readers = vec![(&mut writer, rows.clone())];
            if rng.chance(60) {
                readers[0].0.commit();
                readers.push((&mut reader, rows.clone()));
            }
            let kept = seen_by_old.get_or_insert_with(|| rows.clone());
            if round > 0 {
                readers.push((&mut old, kept.clone()));
            } else {
                readers[0].0.commit();
                old.rows(&table);
            }
            for (user, rows) in readers {
                for (index, column, values) in [(BY_GROUP, 1, GROUPS), (0, 0, 800)] {
                    let ranges = some_ranges(rng, values);
                    let found = read(user, &table, index, &ranges, (None, None)).expect("readable");
                    let wanted = expected(&rows, column, &ranges);
                    assert_eq!(found, Some(wanted), "X53: seed {seed}, round {round}, {ranges:?}");
                }
            }
            reader.commit();
            if rng.chance(30) {
                db.compact(|_| true).expect("compacted");
            }
        }
    }
}

#[test]
fn who_locks_notes_or_covers_reads_ranges_one_by_one() {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1]));
    let mut user = User::new(&db, 1);
    user.insert_all(&table, &[row(&[1, 2, 3]), row(&[2, 3, 4])])
        .expect("inserted");
    user.commit();
    let ranges = [
        (Some((2, true)), Some((2, true))),
        (Some((3, true)), Some((3, true))),
    ];
    let locked = read(
        &mut user,
        &table,
        BY_GROUP,
        &ranges,
        (Some(LockMode::Shared), None),
    );
    assert_eq!(locked.expect("readable"), None, "X53: rows are locked in order");
    user.rollback();
    let mut noting = User::new(&db, 2).with_level(Isolation::Serializable);
    let mut other = User::new(&db, 3).with_level(Isolation::Serializable);
    other.insert(&table, &row(&[9, 9, 9])).expect("inserted");
    let noted = read(&mut noting, &table, BY_GROUP, &ranges, (None, None));
    assert_eq!(noted.expect("readable"), None, "X53: ranges are noted in order");
}

/// Admits even values of column 1, and nothing from one value on.
#[derive(Debug)]
struct Even {
    beyond: u32,
}

impl EntryJudge for Even {
    fn judge(&self, record: &mut [u8], _: RowId) -> Result<Admission> {
        let group = decode(record, COLUMNS)[1].unwrap_or_default();
        Ok(match group {
            group if group >= self.beyond => Admission::Beyond,
            group if group % 2 == 0 => Admission::Wanted,
            _ => Admission::Unwanted,
        })
    }
}

/// A table of so many rows in so many groups, and the rows.
fn filled(count: u32, groups: u32) -> (Arc<Database>, Opened, BTreeMap<u32, Row>) {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1]));
    let rows: BTreeMap<u32, Row> = (0..count).map(|id| (id, row(&[id, id % groups, id]))).collect();
    let mut user = User::new(&db, 0);
    let all: Vec<Row> = rows.values().cloned().collect();
    user.insert_all(&table, &all).expect("inserted");
    user.commit();
    (db, table, rows)
}

#[test]
fn entries_that_are_not_wanted_are_left_out_and_beyond_ends_a_range_only() {
    let (db, table, model) = filled(500, 50);
    let mut user = User::new(&db, 1);
    let ranges = [
        (Some((10, true)), Some((13, true))),
        (Some((38, true)), Some((45, true))),
        (Some((20, true)), Some((20, true))),
    ];
    let judge: Arc<dyn EntryJudge> = Arc::new(Even { beyond: 41 });
    let found = read(&mut user, &table, BY_GROUP, &ranges, (None, Some(judge))).expect("readable");
    let mut wanted = expected(&model, 1, &ranges);
    wanted.retain(|(_, row)| row[1].is_some_and(|group| group % 2 == 0 && group < 41));
    assert_eq!(found, Some(wanted));
}

/// The entries of an index get other parts while a range is being read: its reader goes on behind the entry it read last.
#[test]
fn a_range_goes_on_behind_a_merge() {
    let (db, table, model) = filled(3000, 7);
    let (mut user, mut other) = (User::new(&db, 1), User::new(&db, 2));
    let ranges = [
        (Some((1, true)), Some((4, true))),
        (Some((6, true)), Some((6, true))),
    ];
    let tuples = tuples_of(BY_GROUP, &ranges);
    let mut next = giver_of(&tuples);
    user.session.begin_statement().expect("a statement");
    let mut cursor = HostCursor::new(&table.host);
    cursor.bind(&mut user.session, Bind::default()).expect("bound");
    cursor.index_start(&mut user.session, BY_GROUP).expect("started");
    assert!(cursor.ranges_begin());
    let mut buffer = encode(&[Some(0); COLUMNS]);
    let mut found = Vec::new();
    let mut moves = 0;
    while let Some(tag) = cursor
        .ranges_next(&mut user.session, BY_GROUP, &mut next, &mut buffer)
        .expect("readable")
    {
        found.push((tag, decode(&buffer, COLUMNS)));
        // In the first stretch, at its end, and in the second one.
        if [5, 31, 32, 700].contains(&found.len()) {
            other
                .update(&table, 2000 + moves, &row(&[2000 + moves, 1, 9]))
                .expect("updated");
            other.commit();
            db.compact(|_| true).expect("compacted");
            moves += 1;
        }
    }
    assert_eq!(found, expected(&model, 1, &ranges), "X53: as the snapshot has it");
}

/// A table of many blocks, on disk, opened with a cache that has room for few of them.
fn scattered(disk: &SimDisk) -> (Arc<Database>, Opened) {
    let options = Options {
        cache_bytes: 1 << 20,
        ..options()
    };
    let db = Database::open(Arc::new(disk.clone()), &options).expect("the database opens");
    let plan = Plan::new("t", COLUMNS).index(&[1]);
    let table = if db.catalog.find("t").is_ok() {
        Opened::open(&db, plan)
    } else {
        Opened::create(&db, plan)
    };
    (db, table)
}

#[test]
fn many_ranges_share_the_blocks_they_need() {
    const ROWS: u32 = 200_000;
    let group_of = |id: u32| id.wrapping_mul(2_654_435_761) >> 12;
    let disk = SimDisk::new();
    let (db, table) = scattered(&disk);
    let mut user = User::new(&db, 1);
    let rows: Vec<Row> = (0..ROWS)
        .map(|id| row(&[id, group_of(id), id.wrapping_mul(0x9E37_79B1)]))
        .collect();
    for part in rows.chunks(10_000) {
        user.insert_all(&table, part).expect("inserted");
        user.commit();
    }
    db.compact(|_| true).expect("compacted");
    drop((user, table));
    db.close().expect("closed");
    drop(db);
    let mut ranges: Vec<Range> = (0..ROWS)
        .step_by(100)
        .map(|id| (Some((group_of(id), true)), Some((group_of(id), true))))
        .collect();
    ranges.sort_by_key(|(low, _)| low.map(|(group, _)| group));
    ranges.dedup();
    let misses = |db: &Database| db.status().block_cache.misses;
    let (mut all, mut reads) = (Vec::new(), Vec::new());
    for at_once in [ranges.len(), 1] {
        let (db, table) = scattered(&disk);
        let mut user = User::new(&db, 1);
        let before = misses(&db);
        let mut found = Vec::new();
        for part in ranges.chunks(at_once) {
            let rows = read(&mut user, &table, BY_GROUP, part, (None, None)).expect("readable");
            found.extend(rows.expect("at once").into_iter().map(|(_, row)| row));
        }
        reads.push(misses(&db) - before);
        all.push(found);
        drop((user, table));
        db.close().expect("closed");
    }
    assert_eq!(all[0].len(), all[1].len());
    assert_eq!(all[0], all[1]);
    assert!(all[0].len() >= ranges.len());
    assert!(
        reads[0] * 2 < reads[1],
        "X53: {} blocks at once, {} one by one",
        reads[0],
        reads[1]
    );
}
