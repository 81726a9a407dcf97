//! Constraints are kept: children, parents, actions, and what stands between them (rules FK11 to FK29).

mod common {
    pub(crate) mod family;
}

use common::family::{
    Opened, Plan, Row, User, database, find, is_busy, is_missing, is_referenced, large_database, record, row,
};
use pbxt::{Action, ConflictMode, Database, Error, Isolation};
use std::sync::Arc;

use Action::{Cascade, NoAction, Restrict, SetDefault, SetNull};

/// A parent with ids and a pair of columns, and a child that refers to its id by column 1.
struct Pair {
    db: Arc<Database>,
    parent: Opened,
    child: Opened,
    user: User,
    other: User,
}

impl Pair {
    fn new(on_delete: Action, on_update: Action) -> Self {
        let (db, _disk) = database();
        let parent = Opened::create(&db, Plan::new("d/p", 3).index(&[1, 2]));
        let child = Plan::new("d/c", 3).key("fk", &[1], "d/p", &[0], on_delete, on_update);
        let child = Opened::create(&db, child);
        let user = User::new(&db, 1);
        let other = User::new(&db, 2);
        let mut pair = Self {
            db,
            parent,
            child,
            user,
            other,
        };
        for id in 1..=5 {
            pair.user
                .insert(&pair.parent, &row(&[id, id * 10, id * 100]))
                .expect("a parent");
        }
        pair.user.commit();
        pair
    }

    fn children(&mut self) -> Vec<Row> {
        let rows = self.other.rows(&self.child);
        self.other.rollback();
        rows
    }

    fn parents(&mut self) -> Vec<u32> {
        let rows = self.other.rows(&self.parent);
        self.other.rollback();
        rows.iter().filter_map(|row| row[0]).collect()
    }

    fn settle(&mut self) {
        self.other.check(&self.parent);
        self.other.check(&self.child);
    }
}

#[test]
fn a_child_without_parent_is_refused_and_says_so() {
    let mut pair = Pair::new(Restrict, Restrict);
    let refused = pair.user.insert(&pair.child, &row(&[1, 9, 0]));
    match refused {
        Err(Error::NoReferencedRow {
            constraint,
            child,
            parent,
            ..
        }) => assert_eq!((&*constraint, &*child, &*parent), ("fk", "d/c", "d/p")),
        other => panic!("FK22: {other:?}"),
    }
    pair.user
        .insert(&pair.child, &row(&[1, 5, 0]))
        .expect("there is one");
    pair.user
        .insert(&pair.child, &[Some(2), None, Some(0)])
        .expect("FK12: NULL refers to nothing");
    assert!(is_missing(&pair.user.update(&pair.child, 1, &row(&[1, 7, 0]))));
    assert!(
        pair.user
            .update(&pair.child, 1, &row(&[1, 4, 0]))
            .expect("there is one")
    );
    assert!(is_missing(&pair.user.update(&pair.child, 2, &row(&[2, 7, 0]))));
    pair.user.commit();
    assert_eq!(pair.children(), [row(&[1, 4, 0]), vec![Some(2), None, Some(0)]]);
    pair.settle();
}

#[test]
fn a_parent_with_children_stays() {
    for action in [Restrict, NoAction] {
        let mut pair = Pair::new(action, action);
        pair.user.insert(&pair.child, &row(&[1, 5, 0])).expect("a child");
        pair.user.commit();
        match pair.user.delete(&pair.parent, 5) {
            Err(Error::RowIsReferenced {
                constraint,
                child,
                parent,
            }) => assert_eq!((&*constraint, &*child, &*parent), ("fk", "d/c", "d/p")),
            other => panic!("FK14: {other:?}"),
        }
        assert!(is_referenced(&pair.user.update(
            &pair.parent,
            5,
            &row(&[6, 50, 500])
        )));
        assert!(
            pair.user
                .update(&pair.parent, 5, &row(&[5, 51, 500]))
                .expect("not what is referred to")
        );
        assert!(pair.user.delete(&pair.parent, 4).expect("it has no children"));
        pair.user.commit();
        assert_eq!(pair.parents(), [1, 2, 3, 5]);
        assert!(pair.user.delete(&pair.child, 1).expect("deleted"));
        assert!(pair.user.delete(&pair.parent, 5).expect("its child is gone"));
        pair.user.commit();
        pair.settle();
    }
}

#[test]
fn a_refused_row_is_taken_back_alone() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 2, 0])).expect("a child");
    pair.user.insert(&pair.child, &row(&[2, 4, 0])).expect("a child");
    pair.user.commit();
    let refused = pair
        .user
        .delete_ignoring(&pair.parent, &[1, 2, 3, 4, 5])
        .expect("ignoring");
    assert_eq!(refused, 2);
    pair.user.commit();
    assert_eq!(pair.parents(), [2, 4]);
    pair.settle();
    assert!(is_referenced(&pair.user.delete(&pair.parent, 2)));
    pair.user.rollback();
}

#[test]
fn what_the_statement_had_written_before_comes_back_when_its_next_change_is_refused() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 2, 0])).expect("a child");
    pair.user.commit();
    // One statement changes the row, then its key, which is refused; it goes on all the same.
    let parent = &pair.parent;
    let done = pair.user.statement(parent, |session, cursor| {
        let (id, old) = find(session, cursor, parent, 2)?.expect("there");
        let between = common::family::encode(&row(&[2, 21, 200]));
        cursor.update(session, id, record(&old), record(&between))?;
        let after = common::family::encode(&row(&[7, 21, 200]));
        let refused = cursor.update(session, id, record(&between), record(&after));
        assert!(is_referenced(&refused));
        Ok(())
    });
    done.expect("the statement goes on");
    pair.user.commit();
    let rows = pair.other.rows(&pair.parent);
    pair.other.rollback();
    assert_eq!(
        rows[1],
        row(&[2, 21, 200]),
        "T23: the change before the refused one is there"
    );
    pair.settle();
}

#[test]
fn children_go_with_their_parent() {
    let mut pair = Pair::new(Cascade, Cascade);
    for id in 0..50 {
        pair.user
            .insert(&pair.child, &row(&[id, id % 5 + 1, 0]))
            .expect("a child");
    }
    pair.user.commit();
    assert!(pair.user.delete(&pair.parent, 3).expect("deleted"));
    pair.user.rollback();
    assert_eq!(
        pair.children().len(),
        50,
        "FK15: undone with the statement that did it"
    );
    assert!(pair.user.delete(&pair.parent, 3).expect("deleted"));
    pair.user.commit();
    let left = pair.children();
    assert_eq!(left.len(), 40);
    assert!(left.iter().all(|row| row[1] != Some(3)));
    assert!(
        pair.user
            .update(&pair.parent, 4, &row(&[40, 1, 1]))
            .expect("changed")
    );
    pair.user.commit();
    let moved = pair.children().iter().filter(|row| row[1] == Some(40)).count();
    assert_eq!(moved, 10);
    pair.settle();
}

#[test]
fn children_lose_their_parent() {
    let mut pair = Pair::new(SetNull, SetNull);
    for id in 0..4 {
        pair.user
            .insert(&pair.child, &row(&[id, id % 2 + 1, id]))
            .expect("a child");
    }
    pair.user.commit();
    assert!(pair.user.delete(&pair.parent, 1).expect("deleted"));
    assert!(
        pair.user
            .update(&pair.parent, 2, &row(&[20, 1, 1]))
            .expect("changed")
    );
    pair.user.commit();
    let expected: Vec<Row> = (0..4).map(|id| vec![Some(id), None, Some(id)]).collect();
    assert_eq!(pair.children(), expected);
    pair.settle();
}

#[test]
fn children_take_the_default_if_it_has_a_parent() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let child = Plan::new("d/c", 2).default(1, Some(2));
    let child = child.key("fk", &[1], "d/p", &[0], SetDefault, SetDefault);
    let child = Opened::create(&db, child);
    let mut user = User::new(&db, 1);
    for id in 1..=3 {
        user.insert(&parent, &row(&[id])).expect("a parent");
        user.insert(&child, &row(&[id, id])).expect("a child");
    }
    user.commit();
    assert!(user.delete(&parent, 1).expect("the default has a parent"));
    assert_eq!(user.rows(&child), [row(&[1, 2]), row(&[2, 2]), row(&[3, 3])]);
    // FK17: the default itself goes.
    assert!(is_missing(&user.delete(&parent, 2)));
    assert_eq!(user.rows(&parent), [row(&[2]), row(&[3])]);
    user.commit();
    user.check(&child);
}

#[test]
fn several_columns_refer_together() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 3).index(&[2, 1]));
    let child = Plan::new("d/c", 4).key("fk", &[3, 1], "d/p", &[2, 1], Cascade, Cascade);
    let child = Opened::create(&db, child);
    let mut user = User::new(&db, 1);
    user.insert(&parent, &row(&[1, 7, 8])).expect("a parent");
    user.insert(&child, &row(&[1, 7, 0, 8])).expect("a child");
    assert!(is_missing(&user.insert(&child, &row(&[2, 8, 0, 7]))));
    user.insert(&child, &[Some(2), Some(9), None, None])
        .expect("FK12: NULL in any column");
    assert!(user.update(&parent, 1, &row(&[1, 70, 8])).expect("changed"));
    assert_eq!(user.rows(&child)[0], row(&[1, 70, 0, 8]));
    assert!(user.delete(&parent, 1).expect("deleted"));
    assert_eq!(user.rows(&child), [vec![Some(2), Some(9), None, None]]);
    user.commit();
    user.check(&child);
}

#[test]
fn a_parent_takes_its_children_although_another_has_its_value() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 2).index(&[1]));
    let child = Plan::new("d/c", 2).key("fk", &[1], "d/p", &[1], Cascade, Cascade);
    let child = Opened::create(&db, child);
    let mut user = User::new(&db, 1);
    user.insert_all(&parent, &[row(&[1, 7]), row(&[2, 7])])
        .expect("two of one value");
    user.insert(&child, &row(&[1, 7]))
        .expect("FK12: any of them will do");
    assert!(user.delete(&parent, 2).expect("deleted"));
    assert!(user.rows(&child).is_empty(), "FK28");
    user.commit();
}

#[test]
fn a_table_may_refer_to_itself() {
    let (db, _disk) = database();
    let tree = Plan::new("d/t", 2).key("up", &[1], "d/t", &[0], Cascade, Cascade);
    let tree = Opened::create(&db, tree);
    let mut user = User::new(&db, 1);
    user.insert(&tree, &row(&[1, 1])).expect("FK12: its own parent");
    assert!(is_missing(&user.insert(&tree, &row(&[2, 3]))));
    user.insert_all(&tree, &[row(&[2, 1]), row(&[3, 2]), row(&[4, 3])])
        .expect("in order");
    user.commit();
    assert!(user.update(&tree, 1, &row(&[10, 1])).expect("renumbered"));
    assert_eq!(user.rows(&tree)[0], row(&[2, 10]));
    assert_eq!(user.rows(&tree)[3], row(&[10, 10]), "it follows itself");
    assert!(user.delete(&tree, 10).expect("deleted"));
    assert_eq!(user.rows(&tree), Vec::<Row>::new());
    user.commit();
    user.check(&tree);
}

#[test]
fn a_ring_of_tables_ends() {
    let (db, _disk) = database();
    let plan = |name: &str, parent: &str| {
        Plan::new(&format!("d/{name}"), 2).key(&format!("fk_{name}"), &[1], parent, &[0], Cascade, SetNull)
    };
    let (a, b, c) = (plan("a", "d/c"), plan("b", "d/a"), plan("c", "d/b"));
    for plan in [&a, &b, &c] {
        plan.create_unchecked(&db).expect("kept");
    }
    let (a, b, c) = (Opened::open(&db, a), Opened::open(&db, b), Opened::open(&db, c));
    let mut user = User::new(&db, 1);
    for id in 0..10 {
        user.insert(&a, &[Some(id), None]).expect("a row");
        user.insert(&b, &row(&[id, id])).expect("a row");
        user.insert(&c, &row(&[id, id])).expect("a row");
    }
    for id in 0..10 {
        assert!(
            user.update(&a, id, &row(&[id, (id + 1) % 10]))
                .expect("the ring closes")
        );
    }
    user.commit();
    assert!(user.delete(&a, 4).expect("deleted"));
    for table in [&a, &b, &c] {
        assert_eq!(user.rows(table), Vec::<Row>::new(), "FK16: all of the ring");
    }
    user.rollback();
    for table in [&a, &b, &c] {
        assert_eq!(user.rows(table).len(), 10);
        user.check(table);
    }
}

#[test]
fn a_chain_of_a_thousand_tables_and_a_row_of_ten_thousand_ancestors() {
    let db = large_database();
    let mut tables = vec![Opened::create(&db, Plan::new("d/0", 2))];
    for number in 1..1000 {
        let plan = Plan::new(&format!("d/{number}"), 2);
        let parent = format!("d/{}", number - 1);
        let plan = plan.key(&format!("f{number}"), &[1], &parent, &[0], Cascade, Restrict);
        tables.push(Opened::create(&db, plan));
    }
    let mut user = User::new(&db, 1);
    for table in &tables {
        user.insert(table, &row(&[1, 1])).expect("a row");
    }
    user.commit();
    assert!(user.delete(&tables[0], 1).expect("deleted"));
    user.commit();
    assert!(tables.iter().all(|table| user.rows(table).is_empty()));
    let tree = Plan::new("d/t", 2).key("up", &[1], "d/t", &[0], Cascade, Restrict);
    let tree = Opened::create(&db, tree);
    user.insert(&tree, &[Some(0), None]).expect("the first");
    for id in 1..10_000 {
        user.insert(&tree, &row(&[id, id - 1])).expect("a row");
    }
    user.commit();
    assert!(user.delete(&tree, 0).expect("deleted"));
    user.commit();
    assert!(user.rows(&tree).is_empty(), "FK16: no depth is too deep");
    user.check(&tree);
}

#[test]
fn a_parent_of_a_hundred_constraints() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 2));
    let actions = [Cascade, SetNull];
    let children: Vec<Opened> = (0..100)
        .map(|number| {
            let plan = Plan::new(&format!("d/c{number}"), 2);
            let (name, action) = (format!("f{number}"), actions[number % 2]);
            Opened::create(&db, plan.key(&name, &[1], "d/p", &[0], action, Cascade))
        })
        .collect();
    let mut user = User::new(&db, 1);
    user.insert(&parent, &row(&[1, 0])).expect("a parent");
    for child in &children {
        user.insert(child, &row(&[1, 1])).expect("a child");
    }
    user.commit();
    assert!(user.update(&parent, 1, &row(&[2, 0])).expect("changed"));
    assert!(children.iter().all(|child| user.rows(child) == [row(&[1, 2])]));
    assert!(user.delete(&parent, 2).expect("deleted"));
    for (number, child) in children.iter().enumerate() {
        let expected: &[Row] = if number % 2 == 0 {
            &[]
        } else {
            &[vec![Some(1), None]]
        };
        assert_eq!(user.rows(child), expected);
    }
    user.commit();
}

#[test]
fn who_refuses_is_asked_before_anybody_acts() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let acts = Opened::create(
        &db,
        Plan::new("d/a", 2).key("a", &[1], "d/p", &[0], Cascade, Cascade),
    );
    let refuses = Opened::create(
        &db,
        Plan::new("d/z", 2).key("z", &[1], "d/p", &[0], Restrict, Restrict),
    );
    let mut user = User::new(&db, 1);
    user.insert(&parent, &row(&[1])).expect("a parent");
    user.insert(&acts, &row(&[1, 1])).expect("a child");
    user.insert(&refuses, &row(&[1, 1])).expect("a child");
    user.commit();
    let before = db.counters.rows_deleted.get();
    assert!(is_referenced(&user.delete(&parent, 1)));
    assert_eq!(
        db.counters.rows_deleted.get(),
        before + 1,
        "FK26: only the parent itself was touched"
    );
    assert_eq!(user.rows(&acts).len(), 1);
    user.rollback();
}

#[test]
fn a_grandchild_that_refuses_brings_all_back() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let child = Opened::create(
        &db,
        Plan::new("d/c", 2).key("c", &[1], "d/p", &[0], Cascade, Cascade),
    );
    let grandchild = Plan::new("d/g", 2).key("g", &[1], "d/c", &[0], Restrict, Restrict);
    let grandchild = Opened::create(&db, grandchild);
    let mut user = User::new(&db, 1);
    user.insert(&parent, &row(&[1])).expect("a parent");
    for id in 0..10 {
        user.insert(&child, &row(&[id, 1])).expect("a child");
    }
    user.insert(&grandchild, &row(&[1, 9])).expect("a grandchild");
    user.commit();
    match user.delete(&parent, 1) {
        Err(Error::RowIsReferenced {
            constraint, parent, ..
        }) => {
            assert_eq!((&*constraint, &*parent), ("g", "d/c"));
        }
        other => panic!("FK14: {other:?}"),
    }
    user.commit();
    assert_eq!((user.rows(&parent).len(), user.rows(&child).len()), (1, 10));
    user.check(&child);
    user.check(&parent);
}

#[test]
fn an_action_that_would_give_a_key_twice_refuses_the_change() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 2).index(&[1]));
    let child = Plan::new("d/c", 2).unique(&[1]);
    let child = Opened::create(&db, child.key("fk", &[1], "d/p", &[1], Cascade, Cascade));
    let mut user = User::new(&db, 1);
    user.insert_all(&parent, &[row(&[1, 5]), row(&[2, 6])])
        .expect("parents");
    user.insert_all(&child, &[row(&[1, 5]), row(&[2, 6])])
        .expect("children");
    user.commit();
    assert!(is_referenced(&user.update(&parent, 1, &row(&[1, 6]))), "FK27");
    user.commit();
    assert_eq!(user.rows(&child), [row(&[1, 5]), row(&[2, 6])]);
    user.check(&child);
}

#[test]
fn with_checks_off_nothing_is_looked_up_and_nothing_acts() {
    let mut pair = Pair::new(Cascade, Cascade);
    pair.user.insert(&pair.child, &row(&[1, 1, 0])).expect("a child");
    pair.user.checks = false;
    pair.user
        .insert(&pair.child, &row(&[2, 99, 0]))
        .expect("FK18: no parent, no matter");
    assert!(pair.user.delete(&pair.parent, 1).expect("deleted"));
    pair.user.commit();
    assert_eq!(pair.children().len(), 2);
    pair.user.checks = true;
    assert!(
        pair.user
            .update(&pair.child, 2, &row(&[2, 99, 7]))
            .expect("never judged afterwards")
    );
    assert!(is_missing(&pair.user.update(&pair.child, 2, &row(&[2, 98, 7]))));
    pair.user.commit();
}

#[test]
fn without_a_parent_table_no_new_value_is_taken() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 1, 0])).expect("a child");
    pair.user.commit();
    pair.db.drop_table(None, "d/p").expect("any order");
    let refused = pair.user.insert(&pair.child, &row(&[2, 1, 0]));
    assert!(matches!(refused, Err(Error::NoReferencedRow { why, .. }) if why.contains("no such table")));
    pair.user
        .insert(&pair.child, &[Some(3), None, None])
        .expect("NULL refers to nothing");
    assert!(
        pair.user
            .update(&pair.child, 1, &row(&[1, 1, 5]))
            .expect("FK2: rows stay")
    );
    pair.user.commit();
    pair.parent = Opened::create(&pair.db, Plan::new("d/p", 1));
    pair.user.insert(&pair.parent, &row(&[1])).expect("a parent");
    pair.user
        .insert(&pair.child, &row(&[2, 1, 0]))
        .expect("it is there again");
    pair.user.commit();
}

#[test]
fn a_child_inserted_beside_keeps_its_parent() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 5, 0])).expect("a child");
    assert!(
        is_busy(&pair.other.delete(&pair.parent, 5)),
        "FK12: the parent is locked"
    );
    assert!(is_busy(&pair.other.update(&pair.parent, 5, &row(&[6, 0, 0]))));
    pair.other.rollback();
    pair.user.rollback();
    assert!(pair.other.delete(&pair.parent, 5).expect("nobody refers to it"));
    assert!(
        is_busy(&pair.user.insert(&pair.child, &row(&[1, 5, 0]))),
        "FK13: its deletion is its lock"
    );
    pair.other.rollback();
    pair.user
        .insert(&pair.child, &row(&[1, 5, 0]))
        .expect("it is still there");
    pair.user.commit();
    pair.settle();
}

#[test]
fn two_children_of_one_parent_do_not_wait_for_each_other() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 5, 0])).expect("a child");
    pair.other
        .insert(&pair.child, &row(&[2, 5, 0]))
        .expect("FK12: shared");
    assert!(
        pair.user
            .update(&pair.parent, 4, &row(&[4, 0, 0]))
            .expect("another parent")
    );
    pair.user.commit();
    pair.other.commit();
}

#[test]
fn a_look_up_minds_no_snapshot() {
    for level in [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        for mode in [ConflictMode::Error, ConflictMode::Wait] {
            let mut pair = Pair::new(Cascade, Cascade);
            let mut old = User::new(&pair.db, 3).with_level(level).with_mode(mode);
            old.rows(&pair.child);
            pair.user
                .insert(&pair.parent, &row(&[9, 0, 0]))
                .expect("a parent");
            pair.user.insert(&pair.child, &row(&[1, 3, 0])).expect("a child");
            assert!(pair.user.delete(&pair.parent, 2).expect("deleted"));
            pair.user.commit();
            assert!(
                is_missing(&old.insert(&pair.child, &row(&[2, 2, 0]))),
                "FK11: gone by now"
            );
            old.insert(&pair.child, &row(&[2, 9, 0]))
                .expect("FK11: there by now");
            if level != Isolation::Serializable {
                // Its child is newer than the snapshot.
                assert!(old.delete(&pair.parent, 3).expect("FK15: never a write conflict"));
                old.commit();
                assert_eq!(pair.children(), [row(&[2, 9, 0])]);
            }
            pair.settle();
        }
    }
}

#[test]
fn what_serializable_transactions_look_up_counts_as_read() {
    let mut pair = Pair::new(Cascade, Cascade);
    let serial = |number| User::new(&pair.db, number).with_level(Isolation::Serializable);
    let (mut reader, mut writer) = (serial(3), serial(4));
    assert!(reader.rows(&pair.child).is_empty());
    writer.insert(&pair.child, &row(&[1, 3, 0])).expect("a child");
    writer.commit();
    // It has seen no child, and would delete one.
    let done = reader
        .delete(&pair.parent, 3)
        .and_then(|_| reader.session.commit());
    assert!(matches!(done, Err(Error::Unserializable)), "FK25: {done:?}");
    reader.rollback();
    assert_eq!(pair.children().len(), 1);
    // It has seen that a parent is not there, and would refer to it.
    let (mut reader, mut writer) = (
        User::new(&pair.db, 5).with_level(Isolation::Serializable),
        User::new(&pair.db, 6).with_level(Isolation::Serializable),
    );
    assert_eq!(reader.rows(&pair.parent).len(), 5);
    writer.insert(&pair.parent, &row(&[9, 0, 0])).expect("a parent");
    writer.commit();
    let done = reader
        .insert(&pair.child, &row(&[2, 9, 0]))
        .and_then(|()| reader.session.commit());
    assert!(matches!(done, Err(Error::Unserializable)), "FK25: {done:?}");
    reader.rollback();
    pair.settle();
}

#[test]
fn a_parent_found_is_remembered_no_longer_than_it_is_sure() {
    let mut pair = Pair::new(Cascade, Cascade);
    let (parent, child) = (&pair.parent, &pair.child);
    // One statement refers to a row, deletes it by another cursor, as a trigger would, and refers to it again.
    let done = pair.user.statement(child, |session, cursor| {
        cursor.insert(session, record(&common::family::encode(&row(&[1, 3, 0]))))?;
        let mut trigger = pbxt::host::HostCursor::new(&parent.host);
        let bind = pbxt::Bind {
            for_write: true,
            check_foreign_keys: true,
            ..pbxt::Bind::default()
        };
        trigger.bind(session, bind)?;
        let (id, _) = find(session, &mut trigger, parent, 3)?.expect("there");
        trigger.delete(session, id)?;
        cursor.insert(session, record(&common::family::encode(&row(&[2, 3, 0]))))
    });
    assert!(is_missing(&done), "FK20: {done:?}");
    pair.user.rollback();
    pair.settle();
}

#[test]
fn a_parent_that_an_action_has_changed_is_found_no_more() {
    let (db, _disk) = database();
    let plan = Plan::new("d/t", 4).index(&[2, 3]);
    let plan = plan.key("k", &[1, 2], "d/t", &[2, 3], Restrict, Cascade);
    let table = Opened::create(&db, plan);
    let mut user = User::new(&db, 1);
    user.insert(&table, &[Some(1), None, Some(3), Some(3)])
        .expect("a row");
    user.insert(&table, &row(&[2, 3, 3, 3])).expect("its child");
    user.commit();
    // (3, 3) becomes (3, 5): the first row, which refers to it by now, follows and is (5, 5) itself; so the second one finds no (3, 5).
    assert!(is_missing(&user.update(&table, 1, &row(&[1, 3, 3, 5]))), "FK20");
    user.commit();
    assert_eq!(user.rows(&table)[1], row(&[2, 3, 3, 3]));
    user.check(&table);
}

#[test]
fn a_load_looks_up_each_parent_once() {
    let mut pair = Pair::new(Restrict, Restrict);
    let rows: Vec<Row> = (0..20_000).map(|id| row(&[id, id % 5 + 1, 0])).collect();
    let child = &pair.child;
    pair.user
        .statement(child, |session, cursor| {
            cursor.bulk_begin(session, rows.len() as u64, false);
            for row in &rows {
                cursor.insert(session, record(&common::family::encode(row)))?;
            }
            cursor.bulk_end(session, false)
        })
        .expect("loaded");
    pair.user.commit();
    let looked_up = pair.db.counters.parents_looked_up.get();
    assert_eq!(looked_up, 5, "FK20: once for each of the five");
    assert_eq!(pair.children().len(), 20_000);
    assert!(is_referenced(&pair.user.delete(&pair.parent, 3)));
    pair.user.rollback();
    let orphan = pair.user.statement(&pair.child, |session, cursor| {
        cursor.bulk_begin(session, 100_000, false);
        for id in 30_000..40_000 {
            let parent = if id == 39_000 { 8 } else { 1 };
            cursor.insert(session, record(&common::family::encode(&row(&[id, parent, 0]))))?;
        }
        cursor.bulk_end(session, false)
    });
    assert!(is_missing(&orphan), "FK20: checked as they come");
    pair.user.commit();
    assert_eq!(pair.children().len(), 20_000);
    pair.settle();
}

#[test]
fn rows_of_a_table_that_refers_to_itself_come_one_by_one() {
    let (db, _disk) = database();
    let tree = Plan::new("d/t", 2).key("up", &[1], "d/t", &[0], Restrict, Restrict);
    let tree = Opened::create(&db, tree);
    let mut user = User::new(&db, 1);
    let done = user.statement(&tree, |session, cursor| {
        cursor.bulk_begin(session, 100_000, false);
        for id in 0..10_000_u32 {
            cursor.insert(session, record(&common::family::encode(&row(&[id, id / 2]))))?;
        }
        cursor.bulk_end(session, false)
    });
    done.expect("FK20: each finds the one before it");
    user.commit();
    assert_eq!(user.rows(&tree).len(), 10_000);
    user.check(&tree);
}

#[test]
fn dropping_a_parent_waits_for_who_has_referred_to_it() {
    let mut pair = Pair::new(Restrict, Restrict);
    pair.user.insert(&pair.child, &row(&[1, 5, 0])).expect("a child");
    let refused = pair.db.drop_table(Some(&pair.other.session), "d/p");
    assert!(is_busy(&refused), "FK29: {refused:?}");
    pair.user.commit();
    pair.db
        .drop_table(Some(&pair.other.session), "d/p")
        .expect("any order");
}

#[test]
fn a_constraint_that_comes_is_kept_by_who_runs_already() {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let mut user = User::new(&db, 1);
    user.insert_all(&parent, &[row(&[1]), row(&[2])])
        .expect("parents");
    user.commit();
    let mut other = User::new(&db, 2);
    let done = user.statement(&parent, |session, cursor| {
        let (one, _) = find(session, cursor, &parent, 1)?.expect("there");
        cursor.delete(session, one)?;
        let child = Opened::create(
            &db,
            Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Restrict, Restrict),
        );
        other.insert(&child, &row(&[1, 2])).expect("a child");
        other.commit();
        let (two, _) = find(session, cursor, &parent, 2)?.expect("there");
        cursor.delete(session, two)
    });
    assert!(is_referenced(&done), "FK23: {done:?}");
}

#[test]
fn a_long_action_ends_when_it_is_killed() {
    let db = large_database();
    let parent = Opened::create(&db, Plan::new("d/p", 1));
    let child = Opened::create(
        &db,
        Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], Cascade, Cascade),
    );
    let mut user = User::new(&db, 1);
    user.insert(&parent, &row(&[1])).expect("a parent");
    let rows: Vec<Row> = (0..9000).map(|id| row(&[id, 1])).collect();
    user.insert_all(&child, &rows).expect("children");
    user.commit();
    let gate = Arc::clone(user.session.gate());
    let killed = user.statement(&parent, |session, cursor| {
        let (id, _) = find(session, cursor, &parent, 1)?.expect("there");
        gate.kill();
        cursor.delete(session, id)
    });
    assert!(matches!(killed, Err(Error::Killed)), "FK21: {killed:?}");
    user.commit();
    assert_eq!((user.rows(&child).len(), user.rows(&parent).len()), (9000, 1));
    let done = db.counters.rows_acted_on.get();
    assert!(
        done > 0 && done < 9000,
        "{done} rows were changed before it was seen"
    );
}
