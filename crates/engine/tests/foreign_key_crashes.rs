//! The power fails at every disk operation of lives full of actions: each is there whole or not at all, and nobody is an orphan (rules
//! FK15, FK30).

mod common {
    pub(crate) mod family;
}

use common::family::{Opened, Plan, Row, User, is_busy, options, row};
use pbxt::{Action, Database, Error, Result};
use pbxt_testkit::{SimDisk, Sweep};
use std::sync::Arc;

use Action::{Cascade, Restrict, SetNull};

/// A parent, its children, their children, and a table beside that loses what it refers to.
fn plans() -> [Plan; 4] {
    [
        Plan::new("d/a", 2),
        Plan::new("d/b", 2).key("b", &[1], "d/a", &[0], Cascade, Cascade),
        Plan::new("d/c", 2).key("c", &[1], "d/b", &[0], Cascade, Cascade),
        Plan::new("d/n", 2).key("n", &[1], "d/a", &[0], SetNull, Cascade),
    ]
}

const PARENTS: u32 = 4;
const CHILDREN: u32 = 3;

/// Parents, each with children and grandchildren.
fn populate(user: &mut User, tables: &[Opened]) -> Result<()> {
    for id in 0..PARENTS {
        user.insert(&tables[0], &row(&[id, 0]))?;
        user.insert(&tables[3], &row(&[id, id]))?;
        for child in 0..CHILDREN {
            let child = id * CHILDREN + child;
            user.insert(&tables[1], &row(&[child, id]))?;
            user.insert(&tables[2], &row(&[child, child]))?;
        }
    }
    user.session.commit()
}

/// Deletes 0, renumbers 1, deletes 2 and takes it back, deletes 3: how many of the four steps were acknowledged.
fn live(disk: &SimDisk) -> u32 {
    let mut done = 0;
    let result = (|| -> Result<()> {
        let db = Database::open(Arc::new(disk.clone()), &options())?;
        let mut tables = Vec::new();
        for plan in plans() {
            plan.create(&db)?;
            tables.push(Opened::open(&db, plan));
        }
        let mut user = User::new(&db, 1);
        populate(&mut user, &tables)?;
        done = 1;
        db.checkpoint_step()?;
        user.delete(&tables[0], 0)?;
        user.session.commit()?;
        done = 2;
        user.update(&tables[0], 1, &row(&[10, 0]))?;
        user.session.commit()?;
        done = 3;
        user.delete(&tables[0], 2)?;
        user.session.rollback()?;
        db.housekeeping_step();
        db.compact_step()?;
        db.checkpoint_step()?;
        user.delete(&tables[0], 3)?;
        user.session.commit()?;
        done = 4;
        Ok(())
    })();
    if let Err(error) = result {
        assert!(matches!(error, Error::Storage(_)), "only the disk fails: {error}");
    }
    done
}

/// What the tables hold after so many steps.
fn expected(steps: u32) -> Vec<Vec<Row>> {
    let parents: &[u32] = match steps {
        0 => &[],
        1 => &[0, 1, 2, 3],
        2 => &[1, 2, 3],
        3 => &[10, 2, 3],
        _ => &[10, 2],
    };
    let origin = |id: u32| if id == 10 { 1 } else { id };
    let rows = |make: &dyn Fn(u32) -> Vec<Row>| {
        let mut rows: Vec<Row> = parents.iter().flat_map(|&id| make(id)).collect();
        rows.sort();
        rows
    };
    let children = |id: u32| (0..CHILDREN).map(move |child| origin(id) * CHILDREN + child);
    let mut beside: Vec<Row> = Vec::new();
    for id in 0..if steps == 0 { 0 } else { PARENTS } {
        let now = if id == 1 && steps >= 3 { 10 } else { id };
        beside.push(vec![Some(id), parents.contains(&now).then_some(now)]);
    }
    vec![
        rows(&|id| vec![row(&[id, 0])]),
        rows(&|id| children(id).map(|child| row(&[child, id])).collect()),
        rows(&|id| children(id).map(|child| row(&[child, child])).collect()),
        beside,
    ]
}

/// The tables of an image, if all of them had been created.
fn contents(db: &Arc<Database>) -> Option<Vec<Vec<Row>>> {
    let is_there = |plan: &Plan| db.table_id(&plan.name).is_some();
    if !plans().iter().all(is_there) {
        return None;
    }
    let mut user = User::new(db, 2);
    let mut tables = Vec::new();
    for plan in plans() {
        let table = Opened::open(db, plan);
        tables.push(user.rows(&table));
        user.rollback();
        user.check(&table);
    }
    Some(tables)
}

#[test]
fn an_action_is_there_whole_or_not_at_all() {
    let images = Sweep { seeds: 2, step: 1 }.run(live, |disk, &done, case| {
        let db = Database::open(Arc::new(disk.clone()), &options())
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let Some(found) = contents(&db) else {
            assert_eq!(done, 0, "{case}: tables are missing");
            return;
        };
        // The step under way may have become durable without being acknowledged.
        let is_one = found == expected(done) || found == expected(done + 1);
        assert!(is_one, "{case}: after {done} steps: {found:?}");
    });
    assert!(images > 100, "{images} images");
}

#[test]
fn a_prepared_child_keeps_its_parent_over_a_crash() {
    let disk = SimDisk::new();
    let db = Database::open(Arc::new(disk.clone()), &options()).expect("it opens");
    let parent = Opened::create(&db, Plan::new("d/a", 2));
    let plan = Plan::new("d/b", 2).key("b", &[1], "d/a", &[0], Restrict, Restrict);
    let child = Opened::create(&db, plan.clone());
    let mut user = User::new(&db, 1);
    user.insert_all(&parent, &[row(&[1, 0]), row(&[2, 0])])
        .expect("parents");
    user.commit();
    user.insert(&child, &row(&[1, 1])).expect("a child");
    user.session.prepare(b"x").expect("prepared");
    drop((parent, child));
    let disk = disk.kill();
    let db = Database::open(Arc::new(disk), &options()).expect("it opens");
    let parent = Opened::open(&db, Plan::new("d/a", 2));
    let child = Opened::open(&db, plan);
    let mut other = User::new(&db, 2);
    assert!(
        is_busy(&other.delete(&parent, 1)),
        "FK30: the child is not decided"
    );
    assert!(other.delete(&parent, 2).expect("nobody refers to it"));
    other.commit();
    db.commit_prepared(b"x").expect("decided");
    assert!(matches!(
        other.delete(&parent, 1),
        Err(Error::RowIsReferenced { .. })
    ));
    other.rollback();
    assert_eq!(other.rows(&child), [row(&[1, 1])]);
}
