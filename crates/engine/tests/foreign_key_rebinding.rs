//! Changes of rows that wait, or act, while tables are bound otherwise (rule FK23): a row is begun anew by the new bindings,
//! and nobody is told of it. What is held between two steps needs feature `stop-points`.

mod common {
    pub(crate) mod family;
    #[cfg(feature = "stop-points")]
    pub(crate) mod hold;
}

use common::family::{Opened, Plan, User, database, encode, is_referenced, record, row};
use pbxt::{Action, ConflictMode, Creation, Database, Error, Renaming, Result};
use pbxt_base::RowId;
use std::sync::Arc;

use Action::{Cascade, Restrict, SetNull};

/// Nothing in these tests waits this long.
const LONG_MILLIS: u64 = 20_000;

/// Runs `change` in a thread of its own until it waits for somebody, then `meanwhile`, which lets it go on.
fn while_it_waits<T: Send + 'static>(
    db: &Arc<Database>,
    change: impl FnOnce(&mut User) -> Result<T> + Send + 'static,
    meanwhile: impl FnOnce(),
) -> Result<T> {
    // The holder's commit is no conflict.
    let mut waiter = User::waiting(db, 7, LONG_MILLIS).with_mode(ConflictMode::Wait);
    let thread = std::thread::spawn(move || {
        let done = change(&mut waiter);
        waiter.commit();
        done
    });
    while !db.waits.has_waiters() {
        assert!(!thread.is_finished(), "it has to wait");
        std::thread::yield_now();
    }
    meanwhile();
    thread.join().expect("it ends")
}

/// Deletes parent 1, whose id is that of its row: nothing is waited for before the row is to be written.
fn delete_first(user: &mut User, parent: &Opened) -> Result<bool> {
    user.statement(parent, |session, cursor| {
        cursor.delete(session, RowId::new(1)).map(|()| true)
    })
}

/// The same for a change.
fn update_first(user: &mut User, parent: &Opened, new: [u32; 2]) -> Result<bool> {
    user.statement(parent, |session, cursor| {
        let (old, new) = (encode(&row(&[1, 0])), encode(&row(&new)));
        cursor.update(session, RowId::new(1), record(&old), record(&new))
    })
}

fn parents(db: &Arc<Database>) -> Arc<Opened> {
    let parent = Opened::create(db, Plan::new("d/p", 2));
    let mut user = User::new(db, 1);
    for id in 1..=3 {
        user.insert(&parent, &row(&[id, 0])).expect("a parent");
    }
    user.commit();
    Arc::new(parent)
}

fn child(action: Action) -> Plan {
    Plan::new("d/c", 2).key("fk", &[1], "d/p", &[0], action, action)
}

/// Has others refer to each other that have nothing to do with the parents.
fn bind_others(db: &Arc<Database>) {
    let _up = Opened::create(db, Plan::new("d/up", 1));
    let _down = Opened::create(
        db,
        Plan::new("d/down", 2).key("other", &[1], "d/up", &[0], Cascade, Cascade),
    );
}

/// A copy of the child with the same rows; it takes the child's place in `exchange`.
fn copy(db: &Arc<Database>, action: Action, rows: &[[u32; 2]]) -> Arc<Opened> {
    let mut plan = child(action);
    plan.name = "d/#new".into();
    let creation = Creation {
        checks: true,
        replaces: Some("d/c"),
    };
    db.create_table_with(plan.definition(), 1, creation)
        .expect("a copy");
    let copied = Opened::open(db, plan);
    let mut user = User::new(db, 3);
    for one in rows {
        user.insert(&copied, &row(one)).expect("a child");
    }
    user.commit();
    Arc::new(copied)
}

fn exchange(db: &Arc<Database>) {
    let aside = Renaming {
        keep_references: true,
        sets_aside: true,
        ..Renaming::default()
    };
    db.rename_table_with(None, "d/c", "d/#old", aside)
        .expect("set aside");
    let place = Renaming {
        keep_references: true,
        takes_place: true,
        checks: true,
        ..Renaming::default()
    };
    db.rename_table_with(None, "d/#new", "d/c", place)
        .expect("exchanged");
    db.drop_table(None, "d/#old").expect("dropped");
}

#[test]
fn that_others_are_bound_is_nothing_to_who_waits_for_a_row() {
    type Change = fn(&Opened, &mut User) -> Result<bool>;
    let changes: [(&str, Change); 3] = [
        ("delete", |parent, user| delete_first(user, parent)),
        ("other values", |parent, user| update_first(user, parent, [1, 7])),
        ("other key", |parent, user| update_first(user, parent, [9, 0])),
    ];
    for has_children in [false, true] {
        for (name, change) in changes {
            let (db, _disk) = database();
            let parent = parents(&db);
            if has_children {
                Opened::create(&db, child(Restrict));
            }
            let mut holder = User::new(&db, 2);
            holder.update(&parent, 1, &row(&[1, 5])).expect("held");
            let table = Arc::clone(&parent);
            let done = while_it_waits(
                &db,
                move |user| change(&table, user),
                || {
                    bind_others(&db);
                    holder.rollback();
                },
            );
            assert!(
                matches!(done, Ok(true)),
                "FK23: {name}, children {has_children}: {done:?}"
            );
        }
    }
}

#[test]
fn a_child_that_came_while_its_parent_was_waited_for_is_minded() {
    for action in [Restrict, Cascade, SetNull] {
        for is_update in [false, true] {
            let (db, _disk) = database();
            let parent = parents(&db);
            let mut holder = User::new(&db, 2);
            holder.update(&parent, 1, &row(&[1, 5])).expect("held");
            let table = Arc::clone(&parent);
            let change = move |user: &mut User| {
                if is_update {
                    update_first(user, &table, [9, 5])
                } else {
                    delete_first(user, &table)
                }
            };
            let mut children = None;
            let done = while_it_waits(&db, change, || {
                let came = Opened::create(&db, child(action));
                holder.insert(&came, &row(&[10, 1])).expect("a child");
                holder.commit();
                children = Some(came);
            });
            let children = children.expect("created");
            let mut user = User::new(&db, 9);
            let expected = match (action, is_update) {
                (Restrict, _) => {
                    assert!(is_referenced(&done), "FK23: {done:?}");
                    vec![row(&[10, 1])]
                }
                (Cascade, false) => vec![],
                (Cascade, true) => vec![row(&[10, 9])],
                _ => vec![vec![Some(10), None]],
            };
            assert_eq!(
                user.rows(&children),
                expected,
                "FK23: {action:?}, update {is_update}: {done:?}"
            );
            let count = if action == Restrict || is_update { 3 } else { 2 };
            assert_eq!(user.rows(&parent).len(), count);
            user.check(&children);
            user.check(&parent);
        }
    }
}

#[test]
fn children_that_were_exchanged_while_their_parent_was_waited_for_are_minded() {
    for action in [Restrict, Cascade, SetNull] {
        let (db, _disk) = database();
        let parent = parents(&db);
        let before = Opened::create(&db, child(action));
        let mut user = User::new(&db, 1);
        user.insert(&before, &row(&[10, 1])).expect("a child");
        user.commit();
        let copied = copy(&db, action, &[[10, 1]]);
        let mut holder = User::new(&db, 2);
        holder.update(&parent, 1, &row(&[1, 5])).expect("held");
        let table = Arc::clone(&parent);
        let done = while_it_waits(
            &db,
            move |user| delete_first(user, &table),
            || {
                exchange(&db);
                holder.rollback();
            },
        );
        let expected = match action {
            Restrict => {
                assert!(is_referenced(&done), "FK23: {done:?}");
                vec![row(&[10, 1])]
            }
            Cascade => vec![],
            _ => vec![vec![Some(10), None]],
        };
        let mut user = User::new(&db, 9);
        assert_eq!(user.rows(&copied), expected, "FK23: {action:?}: {done:?}");
        user.check(&copied);
        user.check(&parent);
    }
}

#[test]
fn who_closes_a_circle_at_the_lock_of_a_parent_is_rolled_back_whole() {
    // T14, T15: the child stands behind the DDL, that behind the first transaction, and that behind the child's.
    let (db, _disk) = database();
    let _parent = parents(&db);
    let children = Arc::new(Opened::create(&db, child(Restrict)));
    let others = Arc::new(Opened::create(&db, Plan::new("d/o", 2)));
    let mut user = User::new(&db, 1);
    user.insert(&others, &row(&[1, 0])).expect("a row");
    user.commit();
    let waits = |count: usize| {
        while db.list_lock_waits().lines.len() < count {
            std::thread::yield_now();
        }
    };
    let mut first = User::waiting(&db, 2, LONG_MILLIS).with_mode(ConflictMode::Wait);
    first.insert(&children, &row(&[10, 1])).expect("a child");
    let mut second = User::waiting(&db, 3, LONG_MILLIS);
    second.update(&others, 1, &row(&[1, 5])).expect("changed");
    let table = Arc::clone(&others);
    let waiting = std::thread::spawn(move || {
        let done = first.update(&table, 1, &row(&[1, 6]));
        first.commit();
        done
    });
    waits(1);
    let altering = Arc::clone(&db);
    let ddl = std::thread::spawn(move || altering.rename_table(None, "d/p", "d/q"));
    waits(2);
    let refused = second.insert(&children, &row(&[11, 2]));
    assert!(matches!(refused, Err(Error::Deadlock { .. })), "{refused:?}");
    let done = waiting.join().expect("it ends");
    assert!(matches!(done, Ok(true)), "T14: {done:?}");
    ddl.join().expect("it ends").expect("renamed");
    second.rollback();
    assert_eq!(user.rows(&others), [row(&[1, 6])]);
}

#[cfg(feature = "stop-points")]
mod held {
    use super::{
        Arc, Cascade, ConflictMode, Creation, LONG_MILLIS, Opened, Plan, Renaming, Restrict, SetNull, User,
        child, copy, exchange, parents,
    };
    use crate::common::family::{database, is_referenced, row};
    use crate::common::hold::{hold_at, turn};

    /// The parent's row is written and its children are about to be looked for.
    #[test]
    fn children_that_are_exchanged_before_they_are_looked_for_are_minded() {
        for action in [Restrict, Cascade, SetNull] {
            let turn = turn();
            let (db, _disk) = database();
            let parent = parents(&db);
            let before = Opened::create(&db, child(action));
            let mut user = User::new(&db, 1);
            for one in [[10, 1], [11, 2]] {
                user.insert(&before, &row(&one)).expect("a child");
            }
            user.commit();
            let copied = copy(&db, action, &[[10, 1], [11, 2]]);
            let mut deleting = User::new(&db, 7);
            let table = Arc::clone(&parent);
            let held = hold_at(&turn, "foreign.before_children", move || {
                let done = deleting.delete(&table, 1);
                deleting.commit();
                done
            });
            exchange(&db);
            let done = held.release();
            assert_eq!(
                is_referenced(&done),
                action == Restrict,
                "FK23: {action:?}: {done:?}"
            );
            let mut user = User::new(&db, 9);
            let expected = match action {
                Restrict => vec![row(&[10, 1]), row(&[11, 2])],
                Cascade => vec![row(&[11, 2])],
                _ => vec![vec![Some(10), None], row(&[11, 2])],
            };
            assert_eq!(user.rows(&copied), expected, "FK23: {action:?}: {done:?}");
            assert_eq!(user.rows(&parent).len(), if action == Restrict { 3 } else { 2 });
            user.check(&copied);
            user.check(&parent);
        }
    }

    /// Who waited for the parent's table while it was set aside comes in when it has no name any more.
    #[test]
    fn a_lock_of_a_parent_that_was_set_aside_is_given_back() {
        let turn = turn();
        let (db, _disk) = database();
        let _before = parents(&db);
        let children = Arc::new(Opened::create(&db, child(Restrict)));
        let mut plan = Plan::new("d/p", 2);
        plan.name = "d/#new".into();
        let creation = Creation {
            checks: true,
            replaces: Some("d/p"),
        };
        db.create_table_with(plan.definition(), 1, creation)
            .expect("a copy");
        let copied = Opened::open(&db, plan);
        let mut user = User::new(&db, 1);
        user.insert(&copied, &row(&[1, 0])).expect("a parent");
        user.commit();
        let altering = Arc::clone(&db);
        let held = hold_at(&turn, "ddl.after_append", move || {
            let aside = Renaming {
                keep_references: true,
                sets_aside: true,
                ..Renaming::default()
            };
            altering.rename_table_with(None, "d/p", "d/#old", aside)
        });
        let mut waiting = User::waiting(&db, 7, LONG_MILLIS);
        let table = Arc::clone(&children);
        let inserting = std::thread::spawn(move || {
            let inserted = waiting.insert(&table, &row(&[10, 1]));
            (inserted, waiting)
        });
        while !db.waits.has_waiters() {
            assert!(!inserting.is_finished(), "it has to wait");
            std::thread::yield_now();
        }
        held.release().expect("set aside");
        let place = Renaming {
            keep_references: true,
            takes_place: true,
            checks: true,
            ..Renaming::default()
        };
        db.rename_table_with(None, "d/#new", "d/p", place)
            .expect("exchanged");
        let (inserted, mut waiting) = inserting.join().expect("it ends");
        assert!(inserted.is_ok(), "FK54: {inserted:?}");
        // The transaction goes on.
        let hurried = User::new(&db, 8);
        let dropped = db.drop_table(Some(&hurried.session), "d/#old");
        assert!(dropped.is_ok(), "FK54: {dropped:?}");
        waiting.commit();
        user.check(&children);
    }

    /// An action has waited for a child while the other parent of that child was set aside.
    #[test]
    fn a_lock_that_an_action_took_of_a_parent_set_aside_is_given_back() {
        let (db, _disk) = database();
        let parent = parents(&db);
        let _other = Opened::create(&db, Plan::new("d/q", 2));
        let plan = Plan::new("d/c", 4)
            .key("fk", &[1], "d/p", &[0], SetNull, SetNull)
            .key("other", &[2], "d/q", &[0], Restrict, Restrict);
        let children = Arc::new(Opened::create(&db, plan));
        let mut user = User::new(&db, 1);
        user.insert(&children, &[Some(10), Some(1), None, None])
            .expect("a child");
        user.commit();
        let mut copied = Plan::new("d/q", 2);
        copied.name = "d/#new".into();
        let creation = Creation {
            checks: true,
            replaces: Some("d/q"),
        };
        db.create_table_with(copied.definition(), 1, creation)
            .expect("a copy");
        // It looks up no parent, and so keeps none.
        let mut holder = User::new(&db, 2);
        holder.checks = false;
        holder
            .update(&children, 10, &[Some(10), Some(1), None, Some(5)])
            .expect("held");
        let mut waiting = User::waiting(&db, 7, LONG_MILLIS).with_mode(ConflictMode::Wait);
        let table = Arc::clone(&parent);
        let deleting = std::thread::spawn(move || {
            let deleted = waiting.delete(&table, 1);
            (deleted, waiting)
        });
        while !db.waits.has_waiters() {
            assert!(!deleting.is_finished(), "it has to wait");
            std::thread::yield_now();
        }
        let aside = Renaming {
            keep_references: true,
            sets_aside: true,
            ..Renaming::default()
        };
        db.rename_table_with(None, "d/q", "d/#old", aside)
            .expect("set aside");
        holder.rollback();
        let (deleted, mut waiting) = deleting.join().expect("it ends");
        assert!(matches!(deleted, Ok(true)), "FK54: {deleted:?}");
        let place = Renaming {
            keep_references: true,
            takes_place: true,
            checks: true,
            ..Renaming::default()
        };
        db.rename_table_with(None, "d/#new", "d/q", place)
            .expect("exchanged");
        // The transaction goes on.
        let hurried = User::new(&db, 8);
        let dropped = db.drop_table(Some(&hurried.session), "d/#old");
        assert!(dropped.is_ok(), "FK54: {dropped:?}");
        waiting.commit();
        assert_eq!(user.rows(&children), [vec![Some(10), None, None, None]]);
        user.check(&children);
    }
}
