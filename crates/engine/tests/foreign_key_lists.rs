//! Lists of constraints: what a host is told of them, bound or not.

mod common {
    pub(crate) mod family;
}

use common::family::{Plan, database};
use pbxt::{Action, Creation};

#[test]
fn a_list_names_columns_actions_and_the_parents_index_while_there_is_a_parent() {
    let (db, _disk) = database();
    let child = Plan::new("./d/c", 3).key("fk", &[2, 1], "./d/p", &[1, 2], Action::Cascade, Action::SetNull);
    let parent = Plan::new("./d/p", 3).unique(&[1, 2]);
    let unchecked = Creation {
        checks: false,
        replaces: None,
    };
    db.create_table_with(child.definition(), 1, unchecked)
        .expect("a child");
    let seen = db.foreign_keys_of("./d/c").expect("a list");
    assert_eq!((seen.len(), seen[0].parent_index.as_deref()), (1, None));
    assert_eq!(
        (seen[0].child.as_str(), seen[0].parent.as_str()),
        ("./d/c", "./d/p")
    );
    assert!(db.foreign_keys_to("./d/p").is_err());

    db.create_table(parent.definition(), 1).expect("a parent");
    for seen in [
        db.foreign_keys_of("./d/c").expect("a list"),
        db.foreign_keys_to("./d/p").expect("a list"),
    ] {
        assert_eq!(seen.len(), 1);
        let columns: Vec<_> = seen[0]
            .columns
            .iter()
            .map(|c| (c.child.as_str(), c.parent.as_str()))
            .collect();
        assert_eq!(columns, [("c2", "c1"), ("c1", "c2")]);
        assert!(
            seen[0]
                .columns
                .iter()
                .all(|c| c.child_nullable && c.parent_nullable)
        );
        assert_eq!(
            (seen[0].on_delete, seen[0].on_update),
            (Action::Cascade, Action::SetNull)
        );
        assert_eq!(seen[0].parent_index.as_deref(), Some("i[1, 2]"));
    }
    assert!(db.foreign_keys_to("./d/c").expect("a list").is_empty());
}

#[test]
fn a_table_made_to_replace_another_is_no_child_in_lists() {
    let (db, _disk) = database();
    db.create_table(Plan::new("./d/p", 1).definition(), 1)
        .expect("a parent");
    let child = |name| Plan::new(name, 2).key("fk", &[1], "./d/p", &[0], Action::Restrict, Action::Restrict);
    db.create_table(child("./d/c").definition(), 1).expect("a child");
    let replacing = Creation {
        checks: true,
        replaces: Some("./d/c"),
    };
    db.create_table_with(child("./d/#new").definition(), 1, replacing)
        .expect("its copy");
    let names: Vec<_> = db
        .foreign_keys_to("./d/p")
        .expect("a list")
        .into_iter()
        .map(|key| key.child)
        .collect();
    assert_eq!(names, ["./d/c"]);
    assert_eq!(db.foreign_keys_of("./d/#new").expect("a list")[0].name, "fk");
}

#[test]
fn a_list_is_in_the_order_of_names_whatever_the_order_of_definition() {
    let (db, _disk) = database();
    db.create_table(Plan::new("./d/p", 1).definition(), 1)
        .expect("a parent");
    let names = ["c_ibfk_2", "z", "c_ibfk_10", "a", "M"];
    let child = names.iter().fold(Plan::new("./d/c", 2), |child, name| {
        child.key(name, &[1], "./d/p", &[0], Action::Restrict, Action::Restrict)
    });
    db.create_table(child.definition(), 1).expect("a child");
    let list = db.foreign_keys_of("./d/c").expect("a list");
    let seen: Vec<_> = list.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(seen, ["M", "a", "c_ibfk_10", "c_ibfk_2", "z"], "FK52");
}
