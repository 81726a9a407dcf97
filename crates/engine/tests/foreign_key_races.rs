//! Parents that go while children come, in both orders: with real threads, and with one thread held between two steps (rules FK11
//! to FK13, FK24). The held ones need feature `stop-points`.

mod common {
    pub(crate) mod family;
    #[cfg(feature = "stop-points")]
    pub(crate) mod hold;
}

use common::family::{Opened, Plan, Row, User, database, is_missing, is_referenced, row};
use pbxt::{Action, Database, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use Action::{Cascade, Restrict, SetNull};

/// Nothing in these tests waits this long.
const LONG_MILLIS: u64 = 20_000;

struct Pair {
    db: Arc<Database>,
    parent: Arc<Opened>,
    child: Arc<Opened>,
}

fn pair(action: Action) -> Pair {
    let (db, _disk) = database();
    let parent = Opened::create(&db, Plan::new("d/p", 2).index(&[1]));
    let child = Plan::new("d/c", 2).key("fk", &[1], "d/p", &[1], action, action);
    let child = Opened::create(&db, child);
    let mut user = User::new(&db, 1);
    for id in 1..=4 {
        user.insert(&parent, &row(&[id, id])).expect("a parent");
    }
    user.commit();
    Pair {
        parent: Arc::new(parent),
        child: Arc::new(child),
        db,
    }
}

impl Pair {
    fn orphans(&self) -> Vec<Row> {
        let mut user = User::new(&self.db, 99);
        let (parents, children) = (user.rows(&self.parent), user.rows(&self.child));
        user.rollback();
        user.check(&self.parent);
        user.check(&self.child);
        let has_parent =
            |child: &Row| child[1].is_none() || parents.iter().any(|parent| parent[1] == child[1]);
        children.into_iter().filter(|child| !has_parent(child)).collect()
    }
}

/// True if the answer is one that threads side by side may get.
fn is_told<T>(result: &Result<T>) -> bool {
    matches!(
        result,
        Ok(_)
            | Err(Error::NoReferencedRow { .. }
                | Error::RowIsReferenced { .. }
                | Error::DuplicateKey { .. }
                | Error::WriteConflict { .. }
                | Error::RowNotFound { .. }
                | Error::LockTimeout { .. }
                | Error::Deadlock { .. })
    )
}

#[test]
fn threads_that_take_and_need_the_same_parents_leave_no_orphan() {
    for action in [Restrict, Cascade, SetNull] {
        let pair = pair(action);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..4_u32 {
                let (pair, stop, done) = (&pair, &stop, &done);
                scope.spawn(move || {
                    let mut user = User::waiting(&pair.db, number as usize + 1, 500);
                    let mut turn = number;
                    while !stop.load(Ordering::Relaxed) {
                        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let (id, value) = (turn >> 8 & 31, 1 + (turn >> 16 & 3));
                        let result = match turn >> 24 & 7 {
                            0..3 => user.insert(&pair.child, &row(&[id, value])),
                            3 => user.delete(&pair.parent, value).map(|_| ()),
                            4 => user.insert(&pair.parent, &row(&[value, value])),
                            5 => user.delete(&pair.child, id).map(|_| ()),
                            6 => user.update(&pair.child, id, &row(&[id, value])).map(|_| ()),
                            _ => user
                                .update(&pair.parent, value, &row(&[value, 1 + (turn >> 19 & 3)]))
                                .map(|_| ()),
                        };
                        assert!(is_told(&result), "{result:?}");
                        let ends = matches!(result, Err(Error::Deadlock { .. })) || turn.is_multiple_of(2);
                        if matches!(result, Err(Error::Deadlock { .. })) || turn >> 29 < 2 {
                            user.rollback();
                        } else if ends {
                            user.commit();
                        }
                        done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
                    }
                    user.rollback();
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(pair.orphans(), Vec::<Row>::new(), "with {action:?}");
        let done = done.load(Ordering::Relaxed);
        assert!(done > 200, "{done} statements were done");
    }
}

#[test]
fn a_child_that_waits_for_its_parent_learns_what_became_of_it() {
    for commits in [true, false] {
        let pair = pair(Restrict);
        let mut user = User::new(&pair.db, 1);
        assert!(user.delete(&pair.parent, 2).expect("nobody refers to it"));
        let mut waiter = User::waiting(&pair.db, 2, LONG_MILLIS);
        let child = Arc::clone(&pair.child);
        let thread = std::thread::spawn(move || {
            let done = waiter.insert(&child, &row(&[1, 2]));
            waiter.commit();
            done
        });
        while !pair.db.waits.has_waiters() {
            std::thread::yield_now();
        }
        if commits {
            user.commit();
        } else {
            user.rollback();
        }
        let done = thread.join().expect("it ends");
        assert_eq!(is_missing(&done), commits, "FK12: {done:?}");
        assert_eq!(pair.orphans(), Vec::<Row>::new());
    }
}

#[test]
fn a_parent_that_waits_for_its_child_learns_what_became_of_it() {
    for commits in [true, false] {
        let pair = pair(Restrict);
        let mut user = User::new(&pair.db, 1);
        user.insert(&pair.child, &row(&[1, 2])).expect("a child");
        let mut waiter = User::waiting(&pair.db, 2, LONG_MILLIS);
        let parent = Arc::clone(&pair.parent);
        let thread = std::thread::spawn(move || {
            let done = waiter.delete(&parent, 2);
            waiter.commit();
            done
        });
        while !pair.db.waits.has_waiters() {
            std::thread::yield_now();
        }
        if commits {
            user.commit();
        } else {
            user.rollback();
        }
        let done = thread.join().expect("it ends");
        assert_eq!(is_referenced(&done), commits, "FK13: {done:?}");
        assert_eq!(pair.orphans(), Vec::<Row>::new());
    }
}

#[test]
fn a_deletion_of_children_that_is_taken_back_keeps_the_parent() {
    for commits in [true, false] {
        let pair = pair(Restrict);
        let mut user = User::new(&pair.db, 1);
        user.insert(&pair.child, &row(&[1, 2])).expect("a child");
        user.commit();
        assert!(
            user.update(&pair.child, 1, &row(&[1, 3]))
                .expect("it leaves its parent")
        );
        let mut waiter = User::waiting(&pair.db, 2, LONG_MILLIS);
        let parent = Arc::clone(&pair.parent);
        let thread = std::thread::spawn(move || {
            let done = waiter.delete(&parent, 2);
            waiter.commit();
            done
        });
        while !pair.db.waits.has_waiters() {
            std::thread::yield_now();
        }
        if commits {
            user.commit();
        } else {
            user.rollback();
        }
        let done = thread.join().expect("it ends");
        assert_eq!(is_referenced(&done), !commits, "FK11: {done:?}");
        assert_eq!(pair.orphans(), Vec::<Row>::new());
    }
}

#[test]
fn a_circle_through_parents_has_a_victim_at_once() {
    let pair = pair(Restrict);
    let mut user = User::new(&pair.db, 1);
    user.insert(&pair.child, &row(&[1, 1])).expect("a child");
    let mut waiter = User::waiting(&pair.db, 2, LONG_MILLIS);
    waiter.insert(&pair.child, &row(&[2, 2])).expect("a child");
    let parent = Arc::clone(&pair.parent);
    let thread = std::thread::spawn(move || {
        let done = waiter.delete(&parent, 1);
        waiter.rollback();
        done
    });
    while !pair.db.waits.has_waiters() {
        std::thread::yield_now();
    }
    let mut config = user.session.config();
    config.lock_wait_timeout_ms = LONG_MILLIS;
    user.session.configure(config);
    let done = user.delete(&pair.parent, 2);
    let deadlocked = matches!(done, Err(Error::Deadlock { .. }));
    user.rollback();
    let other = thread.join().expect("it ends");
    assert!(
        deadlocked || matches!(other, Err(Error::Deadlock { .. })),
        "{done:?} {other:?}"
    );
}

#[cfg(feature = "stop-points")]
mod held {
    use super::*;
    use common::hold::{hold_at, turn};

    /// A thread that inserts a child of parent 2 stands at `point`.
    fn insert_held_at(point: &'static str, between: impl FnOnce(&Pair, &mut User)) -> (Pair, Result<()>) {
        let turn = turn();
        let pair = pair(Restrict);
        let (db, child) = (Arc::clone(&pair.db), Arc::clone(&pair.child));
        let held = hold_at(&turn, point, move || {
            let mut user = User::waiting(&db, 1, LONG_MILLIS);
            let done = user.insert(&child, &row(&[1, 2]));
            user.commit();
            done
        });
        let mut other = User::new(&pair.db, 2);
        between(&pair, &mut other);
        let done = held.release();
        assert_eq!(pair.orphans(), Vec::<Row>::new());
        (pair, done)
    }

    #[test]
    fn a_parent_deleted_between_its_entry_and_its_lock_is_gone() {
        let (_, done) = insert_held_at("foreign.before_parent_lock", |pair, other| {
            assert!(other.delete(&pair.parent, 2).expect("deleted"));
            other.commit();
        });
        assert!(is_missing(&done), "FK12: {done:?}");
    }

    #[test]
    fn a_parent_that_changed_its_key_between_its_entry_and_its_lock_is_another() {
        let (_, done) = insert_held_at("foreign.before_parent_lock", |pair, other| {
            assert!(other.update(&pair.parent, 2, &row(&[2, 9])).expect("changed"));
            other.commit();
        });
        assert!(is_missing(&done), "FK24: {done:?}");
    }

    #[test]
    fn a_parent_that_another_takes_the_place_of_is_found() {
        // One transaction takes the value from a parent and gives it to another one, in front of it, behind it, or new.
        for taker in [1, 3, 7] {
            let (_, done) = insert_held_at("foreign.before_parent_lock", |pair, other| {
                assert!(other.update(&pair.parent, 2, &row(&[2, 9])).expect("changed"));
                if taker == 7 {
                    other.insert(&pair.parent, &row(&[7, 2])).expect("a parent");
                } else {
                    assert!(
                        other
                            .update(&pair.parent, taker, &row(&[taker, 2]))
                            .expect("changed")
                    );
                }
                other.commit();
            });
            assert!(done.is_ok(), "T55: {taker}: {done:?}");
        }
        let (_, done) = insert_held_at("foreign.before_parent_lock", |pair, other| {
            assert!(other.delete(&pair.parent, 2).expect("deleted"));
            other.insert(&pair.parent, &row(&[7, 2])).expect("a parent");
            other.commit();
        });
        assert!(done.is_ok(), "T55: {done:?}");
    }

    #[test]
    fn a_parent_that_another_takes_the_place_of_during_a_wait_is_found() {
        for taker in [1, 3] {
            let pair = pair(Restrict);
            let mut user = User::new(&pair.db, 1);
            assert!(user.update(&pair.parent, 2, &row(&[2, 9])).expect("changed"));
            let mut waiter = User::waiting(&pair.db, 2, LONG_MILLIS);
            let child = Arc::clone(&pair.child);
            let thread = std::thread::spawn(move || {
                let done = waiter.insert(&child, &row(&[1, 2]));
                waiter.commit();
                done
            });
            while !pair.db.waits.has_waiters() {
                std::thread::yield_now();
            }
            assert!(
                user.update(&pair.parent, taker, &row(&[taker, 2]))
                    .expect("changed")
            );
            user.commit();
            let done = thread.join().expect("it ends");
            assert!(done.is_ok(), "T55: {taker}: {done:?}");
            assert_eq!(pair.orphans(), Vec::<Row>::new());
        }
    }

    #[test]
    fn a_parent_locked_stays_until_its_child_is_written() {
        let (pair, done) = insert_held_at("foreign.after_parent_lock", |pair, other| {
            let refused = other.delete(&pair.parent, 2);
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
            other.rollback();
        });
        done.expect("the parent was locked");
        let mut user = User::new(&pair.db, 3);
        assert!(is_referenced(&user.delete(&pair.parent, 2)));
    }

    #[test]
    fn a_parent_written_keeps_children_away_until_it_is_decided() {
        let turn = turn();
        let pair = pair(Restrict);
        let (db, parent) = (Arc::clone(&pair.db), Arc::clone(&pair.parent));
        let held = hold_at(&turn, "foreign.before_children", move || {
            let mut user = User::waiting(&db, 1, LONG_MILLIS);
            let done = user.delete(&parent, 2);
            user.commit();
            done
        });
        let mut other = User::new(&pair.db, 2);
        let busy = other.insert(&pair.child, &row(&[1, 2]));
        assert!(matches!(busy, Err(Error::LockTimeout { .. })), "FK13: {busy:?}");
        other.rollback();
        assert!(held.release().expect("deleted"));
        assert!(is_missing(&other.insert(&pair.child, &row(&[1, 2]))));
        other.rollback();
        assert_eq!(pair.orphans(), Vec::<Row>::new());
    }

    #[test]
    fn a_child_that_leaves_while_children_are_looked_up_is_no_reason_to_refuse() {
        let turn = turn();
        let pair = pair(Cascade);
        let mut other = User::new(&pair.db, 2);
        for id in 1..=3 {
            other.insert(&pair.child, &row(&[id, 2])).expect("a child");
        }
        other.commit();
        let (db, parent) = (Arc::clone(&pair.db), Arc::clone(&pair.parent));
        let held = hold_at(&turn, "foreign.after_action", move || {
            let mut user = User::waiting(&db, 1, LONG_MILLIS);
            let done = user.delete(&parent, 2);
            user.commit();
            done
        });
        assert!(
            other
                .update(&pair.child, 3, &row(&[3, 4]))
                .expect("it moves to another parent")
        );
        other.commit();
        assert!(held.release().expect("deleted"));
        let children = other.rows(&pair.child);
        other.rollback();
        assert_eq!(children, [row(&[3, 4])], "FK24: what moved away stays");
        assert_eq!(pair.orphans(), Vec::<Row>::new());
    }
}
