//! A check finds rows without parents, and nothing else (rules FK47 to FK49).

mod common {
    pub(crate) mod family;
}

use common::family::{Opened, Plan, Row, User, database, is_busy, large_database, row};
use pbxt::{Action, Error, Missing, Result, Unkept};
use proptest::prelude::*;

use Action::{Cascade, Restrict};

/// Of a constraint the number of orphans and the row named, or why there is nothing to be judged.
type Line = (String, std::result::Result<u64, Missing>);

fn ask(user: &mut User, table: &Opened, tell: &mut dyn FnMut(Unkept<'_>)) -> Result<u64> {
    user.session.begin_statement()?;
    let found = table
        .host
        .check_references(&mut user.session, tell, &mut |_, _| {});
    user.session.end_statement();
    found
}

/// All lines and the number of orphans; the rows that are named have no parent.
fn check(user: &mut User, table: &Opened) -> (Vec<Line>, u64) {
    let mut lines = Vec::new();
    let found = ask(user, table, &mut |unkept| {
        lines.push(match unkept {
            Unkept::Orphans { constraint, rows, .. } => (constraint.to_owned(), Ok(rows)),
            Unkept::Unbound { constraint, why, .. } => (constraint.to_owned(), Err(why)),
        });
    });
    (lines, found.expect("checkable"))
}

fn orphans(constraint: &str, rows: u64) -> Line {
    (constraint.to_owned(), Ok(rows))
}

fn unchecked(mut user: User) -> User {
    user.checks = false;
    user
}

#[test]
fn orphans_are_counted_by_constraint_and_one_is_named() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 3).index(&[2, 1]));
    let child = Plan::new("d/c", 4)
        .key("one", &[1], "d/p", &[0], Restrict, Restrict)
        .key("pair", &[3, 2], "d/p", &[2, 1], Restrict, Cascade)
        .key("own", &[2], "d/c", &[0], Restrict, Restrict);
    let child = Opened::create(&db, child);
    let mut user = unchecked(User::new(&db, 1));
    for id in 1..=3 {
        user.insert(&parent, &row(&[id, id * 10, id * 100]))
            .expect("a parent");
    }
    user.commit();
    assert_eq!(check(&mut user, &child), (vec![], 0), "an empty table");
    let rows: [Row; 6] = [
        vec![Some(10), Some(1), Some(10), Some(100)], // has both, and itself
        vec![Some(20), Some(9), Some(20), Some(200)], // no parent of that id
        vec![Some(11), Some(9), Some(20), Some(100)], // nor of that pair
        vec![Some(12), None, None, Some(900)],        // NULL refers to nothing
        vec![Some(13), Some(2), Some(30), None],      // no row 30
        vec![Some(14), Some(0), Some(14), None],      // itself
    ];
    user.insert_all(&child, &rows).expect("with checks off");
    let expected = vec![orphans("one", 3), orphans("pair", 1), orphans("own", 1)];
    assert_eq!(check(&mut user, &child), (expected.clone(), 5), "own rows count");
    user.commit();
    assert_eq!(check(&mut user, &child), (expected, 5));
    let mut named = Vec::new();
    let mut scan = Vec::new();
    ask(&mut user, &child, &mut |unkept| {
        if let Unkept::Orphans { example, parent, .. } = unkept {
            named.push((example, parent.to_owned()));
        }
    })
    .expect("checkable");
    user.statement(&child, |session, cursor| {
        for (example, parent) in &named {
            let mut record = common::family::encode(&rows[0]);
            assert!(cursor.fetch(session, *example, &mut record)?, "FK48: {example}");
            scan.push((common::family::decode(&record, 4), parent.clone()));
        }
        Ok(())
    })
    .expect("readable");
    let row_and_parent = |row: &Row, parent: &str| (row.clone(), parent.to_owned());
    // The least key: 0 of row 14 before the two 9.
    assert_eq!(
        scan,
        [
            row_and_parent(&rows[5], "d/p"),
            row_and_parent(&rows[2], "d/p"),
            row_and_parent(&rows[4], "d/c")
        ]
    );
    user.commit();
    user.check(&child);
}

#[test]
fn a_constraint_that_is_bound_to_nothing_says_why() {
    let (db, _disk) = database();
    let child = Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Restrict, Restrict);
    child.create_unchecked(&db).expect("a child that waits");
    let child = Opened::open(&db, child);
    let mut user = unchecked(User::new(&db, 1));
    user.insert(&child, &row(&[1, 7])).expect("unchecked");
    user.commit();
    let unbound = |why| (vec![("fk".to_owned(), Err(why))], 0);
    assert_eq!(check(&mut user, &child), unbound(Missing::Table));
    let mut other = Plan::new("d/p", 1);
    other.type_text = "text".into();
    other.create_unchecked(&db).expect("another table");
    assert_eq!(check(&mut user, &child), unbound(Missing::Fit));
    user.commit();
    db.drop_table(None, "d/p").expect("any order");
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    user.commit();
    assert_eq!(check(&mut user, &child), (vec![orphans("fk", 1)], 1));
    user.insert(&parent, &row(&[7])).expect("the parent");
    user.commit();
    assert_eq!(check(&mut user, &child), (vec![], 0));
}

#[test]
fn a_check_judges_what_its_snapshot_shows() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let child = Opened::create(
        &db,
        Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Restrict, Restrict),
    );
    let mut user = unchecked(User::new(&db, 1));
    let mut other = unchecked(User::new(&db, 2));
    user.insert_all(&parent, &[row(&[1]), row(&[2])])
        .expect("parents");
    user.insert_all(&child, &[row(&[1, 1]), row(&[2, 2])])
        .expect("children");
    user.commit();
    assert_eq!(check(&mut user, &child), (vec![], 0));
    // Changes of others that are not over are neither waited for nor seen.
    other.delete(&parent, 1).expect("unchecked");
    other.insert(&child, &row(&[3, 9])).expect("unchecked");
    assert_eq!(check(&mut user, &child), (vec![], 0));
    other.commit();
    assert_eq!(check(&mut user, &child), (vec![], 0), "the snapshot is older");
    user.commit();
    assert_eq!(check(&mut user, &child), (vec![orphans("fk", 2)], 2));
    user.commit();
}

#[test]
fn a_check_of_parents_can_be_stopped_and_comes_to_its_end() {
    let db = large_database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let child = Opened::create(
        &db,
        Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Restrict, Restrict),
    );
    let mut user = unchecked(User::new(&db, 1));
    user.insert(&parent, &row(&[1])).expect("a parent");
    let rows: Vec<Row> = (0..9000).map(|id| row(&[id, id % 3])).collect();
    user.insert_all(&child, &rows).expect("children");
    user.commit();
    let mut steps = Vec::new();
    user.session.begin_statement().expect("a statement");
    let found = child
        .host
        .check_references(&mut user.session, &mut |_| {}, &mut |done, total| {
            steps.push((done, total));
        });
    assert_eq!(found.expect("checkable"), 6000);
    assert_eq!(steps, [(4096, 9000), (8192, 9000), (9000, 9000)], "FK49");
    let gate = user.session.gate().clone();
    let killed = child
        .host
        .check_references(&mut user.session, &mut |_| {}, &mut |_, _| gate.kill());
    assert!(matches!(killed, Err(Error::Killed)), "FK49: {killed:?}");
    user.session.end_statement();
    user.rollback();
}

#[test]
fn a_parent_under_check_is_not_dropped() {
    let (db, _disk) = database();
    Plan::new("d/p", 1).create(&db).expect("a parent");
    let child = Opened::create(
        &db,
        Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Restrict, Restrict),
    );
    let (mut user, other) = (User::new(&db, 1), User::new(&db, 2));
    assert_eq!(check(&mut user, &child), (vec![], 0));
    let refused = db.drop_table(Some(&other.session), "d/p");
    assert!(is_busy(&refused), "FK29: {refused:?}");
    user.commit();
    db.drop_table(Some(&other.session), "d/p").expect("it is over");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Few values, so that parents have several children and some none; changed, deleted and rolled back before the check.
    #[test]
    fn random_orphans_are_those_a_join_finds(
        parents in prop::collection::vec((0_u32..8, prop::option::of(0_u32..6), prop::option::of(0_u32..6)), 0..12),
        children in prop::collection::vec((0_u32..40, prop::option::of(0_u32..6), prop::option::of(0_u32..6)), 0..60),
        gone in prop::collection::vec(0_u32..40, 0..10),
    ) {
        let (db, _disk) = database();
        let parent = Opened::create(&db, Plan::new("d/p", 3).index(&[1, 2]));
        let child = Plan::new("d/c", 3)
            .key("pair", &[2, 1], "d/p", &[1, 2], Restrict, Restrict)
            .key("half", &[1], "d/p", &[1], Restrict, Restrict);
        let child = Opened::create(&db, child);
        let mut user = unchecked(User::new(&db, 1));
        for (table, rows) in [(&parent, &parents), (&child, &children)] {
            for (id, first, second) in rows {
                let new = vec![Some(*id), *first, *second];
                if !user.update(table, *id, &new).expect("unchecked") {
                    user.insert(table, &new).expect("unchecked");
                }
            }
        }
        user.commit();
        for id in &gone {
            user.delete(&child, *id).expect("unchecked");
            user.delete(&parent, id % 8).expect("unchecked");
            if id % 3 == 0 { user.rollback() } else { user.commit() }
        }
        let there = user.rows(&parent);
        let (mut pairs, mut halves) = (0, 0);
        for row in user.rows(&child) {
            let (first, second) = (row[1], row[2]);
            if first.is_some() && !there.iter().any(|parent| parent[1] == first) {
                halves += 1;
            }
            if first.is_some() && second.is_some()
                && !there.iter().any(|parent| parent[1] == second && parent[2] == first) {
                pairs += 1;
            }
        }
        let expected: Vec<Line> = [orphans("pair", pairs), orphans("half", halves)]
            .into_iter()
            .filter(|(_, rows)| *rows != Ok(0))
            .collect();
        prop_assert_eq!(check(&mut user, &child), (expected, pairs + halves));
    }
}
