//! One statement that goes over rows which its own actions change (rule FK53).

#[path = "common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, database, decode, encode, record, row};
use pbxt::Action::{Cascade, SetNull};
use pbxt::Error;

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
