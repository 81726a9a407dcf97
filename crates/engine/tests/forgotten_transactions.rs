//! Transactions that were rolled back and are forgotten while somebody reads what was superseded before (rule S23).

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, row};
use pbxt::host::{Admission, EntryJudge, HostCursor};
use pbxt::{Bind, Database, Progress, Result};
use pbxt_base::RowId;
use std::sync::{Arc, Mutex};

const ROWS: u32 = 40;
const COLUMNS: usize = 4;
/// The index on columns 1 and 2.
const INDEX: usize = 1;
/// Transactions that share a page of the table of transactions.
const A_PAGE: u32 = 4096;

/// Admits no entry, so that one call walks over all of them; at the first one the background work of minutes is done.
#[derive(Debug)]
struct WorkAtTheFirst {
    db: Arc<Database>,
    /// Column 1 of the entries that were shown.
    keys: Mutex<Vec<Option<u32>>>,
}

impl WorkAtTheFirst {
    fn work(&self) -> Result<()> {
        self.db.housekeeping_step();
        while self.db.compact_step()? == Progress::Worked {}
        self.db.checkpoint_step()?;
        self.db.forget_step()?;
        Ok(())
    }
}

impl EntryJudge for WorkAtTheFirst {
    fn judge(&self, record: &mut [u8], _: RowId) -> Result<Admission> {
        let mut keys = self.keys.lock().expect("no panic");
        if keys.is_empty() {
            self.work()?;
        }
        keys.push(decode(record, COLUMNS)[1]);
        Ok(Admission::Unwanted)
    }
}

/// So many transactions of one row each.
fn work_on(user: &mut User, table: &Opened, ids: std::ops::Range<u32>) {
    for id in ids {
        user.insert(table, &row(&[id, id, id, id])).expect("inserted");
        user.commit();
    }
}

/// Walks over the whole index with this judge.
fn walk(user: &mut User, table: &Opened, judge: Arc<WorkAtTheFirst>) -> Result<()> {
    user.session.begin_statement()?;
    let mut cursor = HostCursor::new(&table.host);
    cursor.bind(&mut user.session, Bind::default())?;
    cursor.set_judge(judge);
    cursor.index_start(&mut user.session, INDEX)?;
    cursor.judge_entries(INDEX)?;
    let mut buffer = encode(&[Some(0); COLUMNS]);
    let found = cursor.index_edge(&mut user.session, false, &mut buffer)?;
    assert!(!found, "X16: no entry is wanted");
    drop(cursor);
    user.session.end_statement();
    Ok(())
}

#[test]
fn a_walk_over_superseded_trees_takes_no_rolled_back_entry_for_a_committed_one() {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1, 2]));
    let other = Opened::create(&db, Plan::new("other", COLUMNS));
    let rows: Vec<Row> = (0..ROWS).map(|id| row(&[id, 10 + id, id, 0])).collect();
    let (mut user, mut worker) = (User::new(&db, 1), User::new(&db, 2));
    user.insert_all(&table, &rows).expect("inserted");
    user.commit();
    // Two rows get keys behind all others, and one a key before them: none of this happens.
    for (id, key) in [(1, 98), (2, 99), (ROWS - 1, 1)] {
        let changed = user.update(&table, id, &row(&[id, key, id, 0]));
        assert!(changed.expect("changed"));
    }
    user.rollback();
    // Its place among the transactions is needed for others, it is noted, and then the log goes on.
    work_on(&mut worker, &other, 0..A_PAGE + 100);
    db.housekeeping_step();
    assert_eq!(db.forget_step().expect("a look"), Progress::Idle);
    work_on(&mut worker, &other, A_PAGE + 100..2 * A_PAGE);
    let judge = Arc::new(WorkAtTheFirst {
        db: Arc::clone(&db),
        keys: Mutex::default(),
    });
    walk(&mut user, &table, Arc::clone(&judge)).expect("readable");
    let shown = judge.keys.lock().expect("no panic").clone();
    let expected: Vec<Option<u32>> = rows.iter().map(|row| row[1]).collect();
    assert_eq!(shown, expected, "S23: nothing of what was rolled back is seen");
    user.commit();
    assert_eq!(
        db.forget_step().expect("forgotten"),
        Progress::Worked,
        "S23: nobody reads those trees any more"
    );
    user.check(&table);
}

/// Transactions in a table of their own, a checkpoint behind them, and a look at those that have ended; several times. True if some were
/// forgotten.
fn forgets(db: &Arc<Database>, worker: &mut User, other: &Opened, next: &mut u32) -> bool {
    let mut forgot = false;
    for transactions in [A_PAGE + 100, 600, 600, 600] {
        work_on(worker, other, *next..*next + transactions);
        *next += transactions;
        db.housekeeping_step();
        while db.compact_step().expect("compacted") == Progress::Worked {}
        db.checkpoint_step().expect("a checkpoint");
        forgot |= db.forget_step().expect("a look") == Progress::Worked;
        forgot |= db.forget_step().expect("a look") == Progress::Worked;
    }
    forgot
}

/// Rows of two transactions that have not ended when a checkpoint is made, so that their entries have stamps; `between` begins after the
/// first and before the second.
fn stamped(db: &Arc<Database>, table: &Opened, ids: [u32; 2], between: impl FnOnce(&mut User)) {
    let (mut early, mut late) = (User::new(db, 3), User::new(db, 4));
    early.insert(table, &row(&[ids[0]; COLUMNS])).expect("inserted");
    between(&mut User::new(db, 5));
    late.insert(table, &row(&[ids[1]; COLUMNS])).expect("inserted");
    db.checkpoint_step().expect("a checkpoint");
    early.commit();
    late.commit();
}

#[test]
fn one_of_which_something_may_be_left_keeps_no_others() {
    let (db, _) = database();
    let table = Opened::create(&db, Plan::new("t", COLUMNS).index(&[1, 2]));
    let other = Opened::create(&db, Plan::new("other", COLUMNS));
    let (mut worker, mut next) = (User::new(&db, 1), 0);
    stamped(&db, &table, [1, 2], |user| {
        user.insert(&table, &row(&[3; COLUMNS])).expect("inserted");
        user.rollback();
    });
    let forgot = forgets(&db, &mut worker, &other, &mut next);
    assert!(
        !forgot,
        "S23: it lies among the stamps of a run that nothing changes any more"
    );
    let mut user = User::new(&db, 2);
    for id in 0..5 {
        user.insert(&table, &row(&[100 + id; COLUMNS])).expect("inserted");
        user.rollback();
    }
    // Behind all others, so they become pieces of the oldest runs as they are.
    stamped(&db, &table, [200, 201], |_| {});
    while db.index_merge_step().expect("merged") == Progress::Worked {}
    let forgot = forgets(&db, &mut worker, &other, &mut next);
    assert!(forgot, "S23: nothing of the later ones is left");
    user.check(&table);
}
