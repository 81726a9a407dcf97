//! Constraints of a table that is made to take another one's place (rule FK8).

mod common {
    pub(crate) mod family;
}

use common::family::{Opened, Plan, User, database, is_missing, is_referenced, options, row};
use pbxt::{Action, Creation, Database, ForeignKeyInfo, Renaming};
use std::sync::Arc;

use Action::{Cascade, Restrict};

const ASIDE: Renaming = Renaming {
    keep_references: true,
    sets_aside: true,
    takes_place: false,
    checks: false,
};
const PLACE: Renaming = Renaming {
    keep_references: true,
    sets_aside: false,
    takes_place: true,
    checks: true,
};

/// Parents 1, 2 and 3.
fn parents(db: &Arc<Database>) -> Opened {
    let parent = Opened::create(db, Plan::new("d/p", 2));
    let mut user = User::new(db, 1);
    for id in 1..=3 {
        user.insert(&parent, &row(&[id, 0])).expect("a parent");
    }
    user.commit();
    parent
}

/// What is to take the place of `d/c`.
fn copy(db: &Arc<Database>, mut plan: Plan) -> Opened {
    plan.name = "d/#new".into();
    let creation = Creation {
        checks: true,
        replaces: Some("d/c"),
    };
    db.create_table_with(plan.definition(), 1, creation)
        .expect("a copy");
    Opened::open(db, plan)
}

fn keyed(column: usize) -> Plan {
    Plan::new("d/c", 3).key("fk", &[column], "d/p", &[0], Cascade, Cascade)
}

fn seen(db: &Arc<Database>) -> Vec<(String, Action, Action)> {
    let list = db.foreign_keys_to("d/p").expect("a list");
    let line = |key: ForeignKeyInfo| (key.child, key.on_delete, key.on_update);
    list.into_iter().map(line).collect()
}

#[test]
fn a_constraint_that_comes_with_a_copy_keeps_parents_before_it_takes_place() {
    let (db, _disk) = database();
    let parent = parents(&db);
    let before = Opened::create(&db, Plan::new("d/c", 3).index(&[1]));
    let copied = copy(&db, keyed(1));
    let (mut user, mut other) = (User::new(&db, 2), User::new(&db, 3));
    for child in [&before, &copied] {
        user.insert(child, &row(&[10, 1, 0])).expect("a child");
    }
    user.commit();
    let refuses = |other: &mut User| {
        let deleted = other.delete(&parent, 1);
        assert!(is_referenced(&deleted), "FK8: {deleted:?}");
        let changed = other.update(&parent, 1, &row(&[9, 0]));
        assert!(is_referenced(&changed), "FK8: {changed:?}");
    };
    refuses(&mut other);
    assert_eq!(seen(&db), [("d/c".into(), Restrict, Restrict)]);
    other.delete(&parent, 2).expect("nobody refers to it");
    other.commit();
    db.rename_table_with(None, "d/c", "d/#old", ASIDE)
        .expect("set aside");
    refuses(&mut other);
    other.commit();
    db.rename_table_with(None, "d/#new", "d/c", PLACE)
        .expect("exchanged");
    db.drop_table(None, "d/#old").expect("dropped");
    assert_eq!(seen(&db), [("d/c".into(), Cascade, Cascade)]);
    other.delete(&parent, 1).expect("its child goes with it");
    other.commit();
    assert!(other.rows(&copied).is_empty());
}

#[test]
fn what_the_replaced_table_keeps_its_copy_does_not_refuse() {
    let (db, _disk) = database();
    let parent = parents(&db);
    let before = Opened::create(&db, keyed(1));
    let copied = copy(&db, keyed(1).index(&[2]));
    let mut user = User::new(&db, 2);
    user.insert(&before, &row(&[10, 1, 2])).expect("a child");
    user.insert(&before, &row(&[11, 3, 2])).expect("a child");
    user.insert(&copied, &row(&[11, 3, 2])).expect("its copy");
    user.commit();
    assert_eq!(seen(&db), [("d/c".into(), Cascade, Cascade)]);
    user.delete(&parent, 1).expect("its child goes with it");
    user.commit();
    assert_eq!(user.rows(&before), [row(&[11, 3, 2])]);
    user.commit();
    // Between the two changes of names nobody else keeps it.
    db.rename_table_with(None, "d/c", "d/#old", ASIDE)
        .expect("set aside");
    let deleted = user.delete(&parent, 3);
    assert!(is_referenced(&deleted), "FK8: {deleted:?}");
}

#[test]
fn a_constraint_of_the_same_name_over_other_columns_is_another() {
    let (db, _disk) = database();
    let parent = parents(&db);
    let _before = Opened::create(&db, keyed(1));
    let copied = copy(&db, keyed(2));
    let mut user = User::new(&db, 2);
    user.insert(&copied, &row(&[10, 1, 2])).expect("a child");
    user.commit();
    user.delete(&parent, 1).expect("nobody refers to it");
    let deleted = user.delete(&parent, 2);
    assert!(is_referenced(&deleted), "FK8: {deleted:?}");
}

#[test]
fn a_copy_that_takes_no_place_refuses_nothing_any_more() {
    let (db, disk) = database();
    let parent = parents(&db);
    let _before = Opened::create(&db, Plan::new("d/c", 3));
    let mut user = User::new(&db, 2);
    for given_up in [true, false] {
        let copied = copy(&db, keyed(1));
        user.insert(&copied, &row(&[10, 1, 2])).expect("a child");
        user.commit();
        let deleted = user.delete(&parent, 1);
        assert!(is_referenced(&deleted), "FK8: {deleted:?}");
        user.rollback();
        if given_up {
            db.drop_table(None, "d/#new").expect("given up");
            user.delete(&parent, 1).expect("nobody refers to it");
            user.rollback();
        }
    }
    db.flush().expect("flushed");
    drop((user, parent, db));
    let db = Database::open(Arc::new(disk.kill()), &options()).expect("it opens");
    let parent = Opened::open(&db, Plan::new("d/p", 2));
    let mut user = User::new(&db, 1);
    assert!(seen(&db).is_empty());
    user.delete(&parent, 1)
        .expect("nobody is about to exchange tables");
}

/// A copy of the parents, with their rows.
fn copy_of_parents(db: &Arc<Database>) -> Opened {
    let mut plan = Plan::new("d/p", 2);
    plan.name = "d/#new".into();
    let creation = Creation {
        checks: true,
        replaces: Some("d/p"),
    };
    db.create_table_with(plan.definition(), 1, creation)
        .expect("a copy");
    let copied = Opened::open(db, plan);
    let mut user = User::new(db, 4);
    for id in 1..=3 {
        user.insert(&copied, &row(&[id, 0])).expect("a parent");
    }
    user.commit();
    copied
}

#[test]
fn who_needs_a_parent_that_is_being_exchanged_waits_for_it() {
    for is_given_up in [false, true] {
        let (db, _disk) = database();
        let parent = parents(&db);
        let child = Arc::new(Opened::create(&db, keyed(1)));
        let copied = copy_of_parents(&db);
        db.rename_table_with(None, "d/p", "d/#old", ASIDE)
            .expect("set aside");
        let mut hurried = User::new(&db, 5);
        let refused = hurried.insert(&child, &row(&[9, 1, 0]));
        assert!(is_missing(&refused), "FK54: it waits for nobody: {refused:?}");
        hurried.rollback();
        let mut waiting = User::waiting(&db, 6, 20_000);
        let table = Arc::clone(&child);
        let thread = std::thread::spawn(move || {
            let inserted = waiting.insert(&table, &row(&[10, 1, 0]));
            waiting.commit();
            inserted
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!thread.is_finished(), "FK54: it has to wait");
        if is_given_up {
            db.rename_table_with(None, "d/#old", "d/p", PLACE)
                .expect("back again");
            db.drop_table(None, "d/#new").expect("dropped");
        } else {
            db.rename_table_with(None, "d/#new", "d/p", PLACE)
                .expect("exchanged");
            db.drop_table(None, "d/#old").expect("dropped");
        }
        let inserted = thread.join().expect("it ends");
        assert!(inserted.is_ok(), "FK54: {inserted:?}");
        let now = if is_given_up { &parent } else { &copied };
        let deleted = hurried.delete(now, 1);
        assert!(deleted.is_ok(), "its child goes with it: {deleted:?}");
        hurried.commit();
        assert!(hurried.rows(&child).is_empty(), "FK54");
    }
}

#[test]
fn an_action_that_needs_a_parent_that_is_being_exchanged_waits_for_it() {
    for (is_given_up, deletes) in [(false, false), (true, false), (false, true)] {
        let (db, _disk) = database();
        let parent = parents(&db);
        let grand = Opened::create(&db, Plan::new("d/g", 2));
        let mut plan = keyed(1).key("up", &[1], "d/g", &[0], Action::SetDefault, Cascade);
        // One index serves both.
        plan.indexes.pop();
        let plan = plan.default(1, Some(2));
        let child = Opened::create(&db, plan);
        let mut user = User::new(&db, 2);
        for id in 1..=2 {
            user.insert(&grand, &row(&[id, 0])).expect("a grandparent");
        }
        user.insert(&child, &row(&[10, 1, 0])).expect("a child");
        if !deletes {
            user.delete(&grand, 2).expect("nobody refers to it");
        }
        user.commit();
        let copied = copy_of_parents(&db);
        db.rename_table_with(None, "d/p", "d/#old", ASIDE)
            .expect("set aside");
        let act = move |user: &mut User, grand: &Opened| {
            if deletes {
                user.delete(grand, 1)
            } else {
                user.update(grand, 1, &row(&[2, 0]))
            }
        };
        let mut hurried = User::new(&db, 5);
        let refused = act(&mut hurried, &grand);
        assert!(is_missing(&refused), "FK54: it waits for nobody: {refused:?}");
        hurried.rollback();
        let mut waiting = User::waiting(&db, 6, 20_000);
        let logged = db.log().tail();
        let thread = std::thread::spawn(move || {
            let acted = act(&mut waiting, &grand);
            waiting.commit();
            acted
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!thread.is_finished(), "FK54: it has to wait");
        let written = db.log().tail().raw() - logged.raw();
        assert!(written < 4096, "FK54: {written} bytes logged while it waits");
        if is_given_up {
            db.rename_table_with(None, "d/#old", "d/p", PLACE)
                .expect("back again");
            db.drop_table(None, "d/#new").expect("dropped");
        } else {
            db.rename_table_with(None, "d/#new", "d/p", PLACE)
                .expect("exchanged");
            db.drop_table(None, "d/#old").expect("dropped");
        }
        let acted = thread.join().expect("it ends");
        assert!(acted.is_ok(), "FK54: {acted:?}");
        assert_eq!(hurried.rows(&child), [row(&[10, 2, 0])], "FK54");
        hurried.commit();
        let deleted = hurried.delete(if is_given_up { &parent } else { &copied }, 2);
        assert!(deleted.is_ok(), "its child goes with it: {deleted:?}");
        hurried.commit();
        assert!(hurried.rows(&child).is_empty(), "FK54");
    }
}
