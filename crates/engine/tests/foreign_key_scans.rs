//! One statement that goes over rows which its own actions change (rule FK53).

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, find, record, row};
use pbxt::Action::{Cascade, SetNull};
use pbxt::host::HostCursor;
use pbxt::{Bind, Error, Isolation, Result, Seek, Session};
use pbxt_base::RowId;

/// A table of families: roots, and children of the root before.
fn tree(on_update: pbxt::Action) -> (Opened, User) {
    let (db, _disk) = database();
    let tree = Plan::new("d/t", 2).key("up", &[1], "d/t", &[0], Cascade, on_update);
    let tree = Opened::create(&db, tree);
    let mut user = User::new(&db, 1);
    let rows = [
        vec![Some(1), None],
        row(&[2, 1]),
        row(&[3, 2]),
        vec![Some(4), None],
    ];
    user.insert_all(&tree, &rows).expect("in order");
    user.commit();
    (tree, user)
}

fn before() -> [Row; 4] {
    [
        vec![Some(1), None],
        row(&[2, 1]),
        row(&[3, 2]),
        vec![Some(4), None],
    ]
}

#[test]
fn one_statement_deletes_parents_and_their_children() {
    let (tree, mut user) = tree(Cascade);
    let deleted = user.statement(&tree, |session, cursor| {
        let mut old = encode(&[Some(0), Some(0)]);
        cursor.scan_start(session)?;
        while cursor.scan_next(session, &mut old)? {
            let id = cursor.row();
            cursor.delete(session, id)?;
        }
        Ok(())
    });
    deleted.expect("deleted");
    assert_eq!(user.rows(&tree), Vec::<Row>::new());
    user.commit();
    user.check(&tree);
}

#[test]
fn one_statement_does_not_change_children_that_its_action_has_changed() {
    for on_update in [Cascade, SetNull] {
        let (tree, mut user) = tree(on_update);
        let renumbered = user.statement(&tree, |session, cursor| {
            let mut old = encode(&[Some(0), Some(0)]);
            cursor.scan_start(session)?;
            while cursor.scan_next(session, &mut old)? {
                let mut new = decode(&old, 2);
                new[0] = new[0].map(|id| id + 10);
                let id = cursor.row();
                cursor.update(session, id, record(&old), record(&encode(&new)))?;
            }
            Ok(())
        });
        let is_refused = matches!(renumbered, Err(Error::RowIsReferenced { .. }));
        assert!(is_refused, "{on_update:?}: {renumbered:?}");
        assert_eq!(user.rows(&tree), before(), "nothing is left of it");
        user.commit();
        user.check(&tree);
    }
}

type Move = fn(&mut HostCursor, &mut Session, &mut [u8]) -> Result<bool>;

/// A way over all rows: its first step, and every other one.
struct Way {
    name: &'static str,
    begin: Move,
    go_on: Move,
}

const INDEX: usize = 0;

fn forward(cursor: &mut HostCursor, session: &mut Session, record: &mut [u8]) -> Result<bool> {
    cursor.index_move(session, true, false, record)
}

const WAYS: [Way; 4] = [
    Way {
        name: "table",
        begin: |cursor, session, record| {
            cursor.scan_start(session)?;
            cursor.scan_next(session, record)
        },
        go_on: HostCursor::scan_next,
    },
    Way {
        name: "index",
        begin: |cursor, session, record| {
            cursor.index_start(session, INDEX)?;
            cursor.index_edge(session, false, record)
        },
        go_on: forward,
    },
    Way {
        name: "index, seeking each",
        begin: |cursor, session, record| {
            cursor.index_start(session, INDEX)?;
            cursor.seek(session, INDEX, &1_u32.to_le_bytes(), 1, Seek::OrNext, record)
        },
        go_on: |cursor, session, record| {
            let last = decode(record, 2)[0].unwrap_or_default();
            cursor.seek(session, INDEX, &last.to_le_bytes(), 1, Seek::After, record)
        },
    },
    Way {
        name: "index, seeking exactly",
        begin: |cursor, session, record| {
            cursor.index_start(session, INDEX)?;
            cursor.seek(session, INDEX, &1_u32.to_le_bytes(), 1, Seek::Exact, record)
        },
        go_on: forward,
    },
];

/// The ids that a statement is shown, all of which it deletes.
fn deleted_on(way: &Way, tree: &Opened, user: &mut User) -> Vec<u32> {
    let shown = user.statement(tree, |session, cursor| {
        let mut shown = Vec::new();
        let mut buffer = encode(&[Some(0), Some(0)]);
        let mut found = (way.begin)(cursor, session, &mut buffer)?;
        while found {
            shown.extend(decode(&buffer, 2)[0]);
            let id = cursor.row();
            cursor.delete(session, id)?;
            found = (way.go_on)(cursor, session, &mut buffer)?;
        }
        Ok(shown)
    });
    shown.expect("deleted")
}

/// What is shown is counted, limited, returned, and has triggers, which rows that an action has deleted have not.
#[test]
fn rows_that_an_action_has_deleted_are_not_shown_to_its_statement() {
    for level in [
        Isolation::RepeatableRead,
        Isolation::ReadCommitted,
        Isolation::Serializable,
    ] {
        for way in &WAYS {
            let (tree, user) = tree(Cascade);
            let mut user = user.with_level(level);
            assert_eq!(
                deleted_on(way, &tree, &mut user),
                [1, 4],
                "{} {level:?}",
                way.name
            );
            assert_eq!(user.rows(&tree), Vec::<Row>::new());
            user.rollback();
            assert_eq!(user.rows(&tree), before());
            user.commit();
            user.check(&tree);
        }
    }
}

#[test]
fn rows_that_an_action_has_deleted_are_not_shown_backwards() {
    let (db, _disk) = database();
    let tree = Plan::new("d/t", 2).key("up", &[1], "d/t", &[0], Cascade, Cascade);
    let tree = Opened::create(&db, tree);
    let mut user = User::new(&db, 1);
    let rows = [
        vec![Some(4), None],
        row(&[3, 4]),
        row(&[2, 3]),
        vec![Some(1), None],
    ];
    user.insert_all(&tree, &rows).expect("in order");
    user.commit();
    let backwards = Way {
        name: "backwards",
        begin: |cursor, session, record| {
            cursor.index_start(session, INDEX)?;
            cursor.index_edge(session, true, record)
        },
        go_on: |cursor, session, record| cursor.index_move(session, false, false, record),
    };
    let before = Way {
        name: "seeking backwards",
        begin: |cursor, session, record| {
            cursor.index_start(session, INDEX)?;
            cursor.seek(session, INDEX, &9_u32.to_le_bytes(), 1, Seek::OrPrev, record)
        },
        go_on: |cursor, session, record| {
            let last = decode(record, 2)[0].unwrap_or_default();
            cursor.seek(session, INDEX, &last.to_le_bytes(), 1, Seek::Before, record)
        },
    };
    for way in [backwards, before] {
        assert_eq!(deleted_on(&way, &tree, &mut user), [4, 1], "{}", way.name);
        user.rollback();
    }
}

#[test]
fn a_deletion_of_all_rows_counts_those_that_it_has_deleted_itself() {
    for level in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let (tree, user) = tree(Cascade);
        let mut user = user.with_level(level);
        let counted = user.statement(&tree, |session, cursor| {
            cursor.scan_start(session)?;
            // A stretch that is not full is the last one.
            Ok((
                cursor.delete_scanned(session, 1)?,
                cursor.delete_scanned(session, 9)?,
            ))
        });
        assert_eq!(counted.expect("deleted"), (1, 1), "{level:?}");
        assert_eq!(user.rows(&tree), Vec::<Row>::new());
        user.commit();
        user.check(&tree);
    }
}

/// Parents 1 and 2 with two children each, and somebody who may change them. The others of a child's columns are its parent and a number.
fn kin() -> (Opened, Opened, User) {
    let (db, _disk) = database();
    let parents = Opened::create(&db, Plan::new("d/p", 1));
    let children = Plan::new("d/c", 3).key("of", &[1], "d/p", &[0], Cascade, Cascade);
    let children = Opened::create(&db, children);
    let mut user = User::new(&db, 1);
    user.insert_all(&parents, &[row(&[1]), row(&[2])]).expect("new");
    user.insert_all(&children, &children_before()).expect("new");
    user.commit();
    (parents, children, user)
}

fn children_before() -> Vec<Row> {
    vec![row(&[1, 1, 0]), row(&[2, 1, 0]), row(&[3, 2, 0]), row(&[4, 2, 0])]
}

/// Another cursor of the running statement, as a trigger has one.
fn beside(session: &mut Session, table: &Opened) -> HostCursor {
    let mut cursor = HostCursor::new(&table.host);
    let bind = Bind {
        for_write: true,
        check_foreign_keys: true,
        ..Bind::default()
    };
    cursor.bind(session, bind).expect("bound");
    cursor
}

fn row_of(session: &mut Session, cursor: &mut HostCursor, table: &Opened, id: u32) -> (RowId, Vec<u8>) {
    let found = find(session, cursor, table, id).expect("readable");
    found.expect("the row is there")
}

/// What was read is not the row any more: to write it would bring back the parent that the row had, in the row and in no index.
#[test]
fn a_row_that_an_action_changes_between_its_reading_and_its_change_is_refused() {
    for goes in [false, true] {
        let (parents, children, mut user) = kin();
        let changed = user.statement(&children, |session, cursor| {
            let (child, old) = row_of(session, cursor, &children, 1);
            let mut trigger = beside(session, &parents);
            let (parent, was) = row_of(session, &mut trigger, &parents, 1);
            if goes {
                trigger.delete(session, parent)?;
            } else {
                trigger.update(session, parent, record(&was), record(&encode(&row(&[11]))))?;
            }
            cursor.update(session, child, record(&old), record(&encode(&row(&[1, 1, 7]))))
        });
        assert!(
            matches!(changed, Err(Error::RowIsReferenced { .. })),
            "{changed:?}"
        );
        assert_eq!(user.rows(&children), children_before(), "nothing is left of it");
        user.commit();
        user.check(&children);
    }
}

#[test]
fn a_row_that_an_action_deletes_between_its_reading_and_its_deletion_is_passed_over() {
    let (parents, children, mut user) = kin();
    let deleted = user.statement(&children, |session, cursor| {
        let (child, _) = row_of(session, cursor, &children, 1);
        let mut trigger = beside(session, &parents);
        let (parent, _) = row_of(session, &mut trigger, &parents, 1);
        trigger.delete(session, parent)?;
        cursor.delete(session, child)
    });
    deleted.expect("it is gone");
    assert_eq!(user.rows(&children), children_before()[2..]);
    user.commit();
    user.check(&children);
}

#[test]
fn rows_that_actions_of_triggers_have_deleted_are_not_shown() {
    let (parents, children, mut user) = kin();
    let shown = user.statement(&children, |session, cursor| {
        let mut shown = Vec::new();
        let mut old = encode(&row(&[0, 0, 0]));
        cursor.scan_start(session)?;
        while cursor.scan_next(session, &mut old)? {
            let child = cursor.row();
            let values = decode(&old, 3);
            shown.extend(values[0]);
            let mut trigger = beside(session, &parents);
            let (parent, _) = row_of(session, &mut trigger, &parents, values[1].unwrap_or_default());
            trigger.delete(session, parent)?;
            cursor.delete(session, child)?;
        }
        Ok(shown)
    });
    assert_eq!(shown.expect("deleted"), [1, 3]);
    assert_eq!(user.rows(&children), Vec::<Row>::new());
    assert_eq!(user.rows(&parents), Vec::<Row>::new());
    user.commit();
    user.check(&children);
}

/// A row that a statement comes to again is as it is, also behind a change of it that was refused.
#[test]
fn a_row_that_was_taken_back_is_changed_and_deleted_as_any() {
    let (_parents, children, mut user) = kin();
    let done = user.statement(&children, |session, cursor| {
        let (child, old) = row_of(session, cursor, &children, 1);
        let first = encode(&row(&[1, 2, 5]));
        assert!(cursor.update(session, child, record(&old), record(&first))?);
        session.hold_row()?;
        cursor.delete(session, child)?;
        session.release_row(false)?;
        let (again, found) = row_of(session, cursor, &children, 1);
        assert_eq!((again, decode(&found, 3)), (child, row(&[1, 2, 5])));
        let second = encode(&row(&[1, 1, 6]));
        assert!(cursor.update(session, child, record(&found), record(&second))?);
        session.hold_row()?;
        cursor.delete(session, child)?;
        session.release_row(false)?;
        cursor.delete(session, child)
    });
    done.expect("changed and deleted");
    assert_eq!(user.rows(&children), children_before()[1..]);
    user.commit();
    user.check(&children);
}
