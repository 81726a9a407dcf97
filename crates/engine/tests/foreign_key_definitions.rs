//! Which constraints are taken, and what they are bound to (rules FK1 to FK10).

mod common {
    pub(crate) mod family;
}

use common::family::{Plan, database, options};
use pbxt::{Action, Alteration, Creation, Database, Error, Missing, Outgoing, Renaming};
use std::sync::Arc;

use Action::{Cascade, Restrict, SetDefault, SetNull};

fn parent() -> Plan {
    Plan::new("db/parent", 3).unique(&[1, 2])
}

fn child() -> Plan {
    Plan::new("db/child", 3).key("fk", &[1], "db/parent", &[0], Cascade, Restrict)
}

fn why(result: pbxt::Result<()>) -> String {
    match result {
        Err(Error::BadForeignKey { why, .. }) => why,
        other => panic!("refused as a constraint that cannot be kept: {other:?}"),
    }
}

/// The names of the parents that the table's constraints are bound to.
fn bound(db: &Arc<Database>, table: &str) -> Vec<Result<String, Missing>> {
    let references = db.catalog.find(table).expect("a table").references();
    let parent = |outgoing: &Outgoing| match outgoing {
        Outgoing::Bound(link) => Ok(link.parent.upgrade().expect("a parent").name().to_string()),
        Outgoing::Unbound(_, missing) => Err(*missing),
    };
    references.outgoing.iter().map(parent).collect()
}

fn children(db: &Arc<Database>, table: &str) -> Vec<String> {
    let references = db.catalog.find(table).expect("a table").references();
    let incoming = references.incoming.iter();
    incoming
        .map(|link| link.child.upgrade().expect("a child").name().to_string())
        .collect()
}

#[test]
fn a_constraint_is_bound_to_whichever_table_has_the_name() {
    let (db, _disk) = database();
    child().create_unchecked(&db).expect("kept without a parent");
    assert_eq!(bound(&db, "db/child"), [Err(Missing::Table)]);
    parent().create(&db).expect("a fitting parent");
    assert_eq!(bound(&db, "db/child"), [Ok("db/parent".into())]);
    assert_eq!(children(&db, "db/parent"), ["db/child"]);
    db.drop_table(None, "db/parent").expect("any order");
    assert_eq!(bound(&db, "db/child"), [Err(Missing::Table)]);
    parent().create(&db).expect("again");
    db.truncate_table(None, "db/parent").expect("truncated");
    let references = db.catalog.find("db/child").expect("a table").references();
    let Outgoing::Bound(link) = &references.outgoing[0] else {
        panic!("bound to the new generation")
    };
    assert_eq!(
        link.parent.upgrade().map(|table| table.id),
        db.table_id("db/parent")
    );
    db.truncate_table(None, "db/child").expect("truncated");
    assert_eq!(children(&db, "db/parent"), ["db/child"]);
}

#[test]
fn opening_binds_what_the_log_and_the_image_have() {
    let (db, disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    db.rename_table(None, "db/parent", "db/father").expect("renamed");
    db.flush().expect("flushed");
    drop(db);
    let db = Database::open(Arc::new(disk.kill()), &options()).expect("it opens");
    assert_eq!(bound(&db, "db/child"), [Ok("db/father".into())]);
    db.close().expect("closed");
    drop(db);
    let db = Database::open(Arc::new(disk.kill()), &options()).expect("it opens");
    assert_eq!(bound(&db, "db/child"), [Ok("db/father".into())]);
}

#[test]
fn a_refusal_says_which_column_and_what_would_do() {
    let (db, _disk) = database();
    let keyed = |columns: &[usize], theirs: &[usize]| {
        Plan::new("db/child", 4).key("fk", columns, "db/parent", theirs, Restrict, Restrict)
    };
    assert!(why(keyed(&[1], &[0]).create(&db)).contains("no table 'db/parent': create it first"));
    parent().create(&db).expect("a parent");
    assert!(why(keyed(&[1], &[7]).create(&db)).contains("has no column 'c7'"));
    assert!(why(keyed(&[1], &[2]).create(&db)).contains("'db/parent' has no index that begins with (c2)"));
    assert!(why(keyed(&[1, 2], &[2, 1]).create(&db)).contains("begins with (c2, c1)"));
    let mut plan = keyed(&[1], &[0]);
    plan.indexes = vec![(vec![2, 1], false)];
    assert!(why(plan.create(&db)).contains("'db/child' has no index that begins with (c1)"));
    let mut plan = keyed(&[1], &[0]);
    plan.type_text = "bigint".into();
    let text = why(plan.create(&db));
    assert!(
        text.contains("'c1' is of type bigint") && text.contains("'c0' of table 'db/parent' is of type int"),
        "{text}"
    );
    assert!(db.table_id("db/child").is_none(), "FK5: nothing was kept");
    keyed(&[1, 2], &[1, 2]).create(&db).expect("fits");
}

#[test]
fn a_constraint_of_more_columns_than_an_index_can_have_is_refused_with_checks_off_too() {
    let (db, _disk) = database();
    let columns: Vec<usize> = (1..=300).collect();
    let mut plan = Plan::new("db/wide", 301).key("fk", &columns, "db/parent", &columns, Restrict, Restrict);
    plan.indexes.clear();
    let refused = why(plan.create_unchecked(&db));
    assert!(
        refused.contains("300 columns") && refused.contains("64"),
        "FK3: {refused}"
    );
}

#[test]
fn more_constraints_than_the_catalog_can_count_are_refused_with_checks_off_too() {
    let (db, _disk) = database();
    let mut plan = Plan::new("db/child", 2);
    for number in 0..=u16::MAX {
        plan = plan.key(
            &format!("fk{number}"),
            &[1],
            "db/parent",
            &[0],
            Restrict,
            Restrict,
        );
    }
    let refused = why(plan.create_unchecked(&db));
    assert!(refused.contains("65535 constraints"), "{refused}");
    assert!(db.table_id("db/child").is_none(), "nothing was kept");
}

#[test]
fn actions_that_cannot_be_done_are_refused_with_checks_off_too() {
    let (db, _disk) = database();
    let plan = Plan::new("db/child", 2).key("fk", &[0], "db/parent", &[0], SetNull, Restrict);
    assert!(why(plan.create_unchecked(&db)).contains("ON DELETE SET NULL wants column 'c0' to allow NULL"));
    let plan = Plan::new("db/child", 2).key("fk", &[1], "db/parent", &[0], Restrict, SetDefault);
    let mut def = plan.definition();
    def.host_record.as_mut().expect("told").columns[1].has_default = false;
    let creation = Creation {
        checks: false,
        ..Creation::default()
    };
    let refused = db.create_table_with(def, 1, creation).map(|_| ());
    assert!(why(refused).contains("ON UPDATE SET DEFAULT wants a constant default of column 'c1'"));
    let mut def = plan.definition();
    def.temporary = true;
    let refused = db.create_table_with(def, 1, creation).map(|_| ());
    assert!(why(refused).contains("temporary"));
}

#[test]
fn a_name_is_had_once_in_its_scope() {
    let (db, _disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    let mut other = child();
    other.name = "db/other".into();
    let owner = |result: pbxt::Result<()>| match result {
        Err(Error::ForeignKeyNameTaken { owner, .. }) => owner,
        other => panic!("FK1: the name is taken: {other:?}"),
    };
    assert_eq!(owner(other.create(&db)), "db/child");
    assert_eq!(
        owner(other.create_unchecked(&db)),
        "db/child",
        "with checks off too"
    );
    other.name = "else/other".into();
    other.create(&db).expect("another scope");
    assert_eq!(
        owner(db.rename_table(None, "else/other", "db/other")),
        "db/child",
        "it would come with its name"
    );
    db.rename_table(None, "else/other", "else/another")
        .expect("its own scope");
    let twice = Plan::new("db/twice", 3)
        .key("x", &[1], "db/parent", &[0], Restrict, Restrict)
        .key("x", &[2], "db/parent", &[0], Restrict, Restrict);
    assert!(why(twice.create(&db)).contains("has another constraint of this name"));
    let mut next = child();
    next.name = "db/#sql-1".into();
    let creation = Creation {
        checks: true,
        replaces: Some("db/child"),
    };
    let again = Plan::new("db/#sql-1", 3)
        .key("fk", &[1], "db/parent", &[0], Restrict, Restrict)
        .key("fk", &[2], "db/parent", &[0], Restrict, Restrict);
    let refused = db.create_table_with(again.definition(), 1, creation);
    assert_eq!(
        owner(refused.map(|_| ())),
        "db/child",
        "kept from the one that it replaces, and new"
    );
    db.create_table_with(next.definition(), 1, creation)
        .expect("the name of the one that it replaces");
}

#[test]
fn who_becomes_a_parent_has_to_fit_those_who_wait() {
    let (db, _disk) = database();
    child().create_unchecked(&db).expect("kept");
    let mut wrong = parent();
    wrong.type_text = "bigint".into();
    assert!(why(wrong.create(&db)).contains("is of type bigint"));
    wrong.name = "db/wrong".into();
    wrong.create(&db).expect("nobody waits for this name");
    assert!(why(db.rename_table(None, "db/wrong", "db/parent")).contains("is of type bigint"));
    let unchecked = Renaming::default();
    db.rename_table_with(None, "db/wrong", "db/parent", unchecked)
        .expect("checks are off");
    assert_eq!(bound(&db, "db/child"), [Err(Missing::Fit)]);
}

#[test]
fn a_rename_reaches_the_constraints_unless_the_name_is_what_is_meant() {
    let (db, _disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    db.rename_table(None, "db/parent", "db/father").expect("renamed");
    assert_eq!(
        db.catalog.find("db/child").expect("it").def().foreign_keys[0].parent,
        "db/father"
    );
    assert_eq!(bound(&db, "db/child"), [Ok("db/father".into())]);
    // An exchange for a copy.
    let mut copy = parent();
    copy.name = "db/#sql-2".into();
    let creation = Creation {
        checks: true,
        replaces: Some("db/father"),
    };
    db.create_table_with(copy.definition(), 1, creation)
        .expect("a copy");
    let aside = Renaming {
        keep_references: true,
        sets_aside: true,
        ..Renaming::default()
    };
    db.rename_table_with(None, "db/father", "db/#sql-backup", aside)
        .expect("set aside");
    assert_eq!(bound(&db, "db/child"), [Err(Missing::Table)]);
    let place = Renaming {
        keep_references: true,
        takes_place: true,
        checks: true,
        ..Renaming::default()
    };
    db.rename_table_with(None, "db/#sql-2", "db/father", place)
        .expect("exchanged");
    assert_eq!(bound(&db, "db/child"), [Ok("db/father".into())]);
    assert!(!db.catalog.find("db/father").expect("it").def().provisional);
    db.drop_table_unless(None, "db/#sql-backup", true)
        .expect("nobody refers to it");
}

#[test]
fn a_provisional_child_is_no_child_of_its_parent() {
    let (db, _disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    let mut copy = child();
    copy.name = "db/#sql-3".into();
    let creation = Creation {
        checks: true,
        replaces: Some("db/child"),
    };
    db.create_table_with(copy.definition(), 1, creation)
        .expect("a copy");
    assert_eq!(bound(&db, "db/#sql-3"), [Ok("db/parent".into())]);
    assert_eq!(children(&db, "db/parent"), ["db/child"]);
    // The parent's own copy has to fit those who refer to the name.
    let mut wrong = parent();
    wrong.name = "db/#sql-4".into();
    wrong.type_text = "bigint".into();
    let creation = Creation {
        checks: true,
        replaces: Some("db/parent"),
    };
    let refused = db.create_table_with(wrong.definition(), 1, creation);
    assert!(why(refused.map(|_| ())).contains("is of type bigint"));
}

#[test]
fn a_drop_may_mind_who_refers_to_the_table() {
    let (db, _disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    let refused = db.drop_table_unless(None, "db/parent", true);
    assert!(matches!(refused, Err(Error::RowIsReferenced { constraint, .. }) if constraint == "fk"));
    Plan::new("db/self", 2)
        .key("own", &[1], "db/self", &[0], Restrict, Restrict)
        .create(&db)
        .expect("its own parent");
    db.drop_table_unless(None, "db/self", true).expect("only itself");
    db.drop_table(None, "db/parent").expect("any order");
}

#[test]
fn a_renamed_column_is_renamed_in_constraints() {
    let (db, disk) = database();
    parent().create(&db).expect("a parent");
    child().create(&db).expect("a child");
    let mut def = parent().definition();
    def.host_record.as_mut().expect("told").columns[0].name = "number".into();
    db.redefine_table(None, def.clone(), true).expect("redefined");
    assert_eq!(bound(&db, "db/child"), [Ok("db/parent".into())]);
    db.flush().expect("flushed");
    drop(db);
    let db = Database::open(Arc::new(disk.kill()), &options()).expect("it opens");
    let key = db.catalog.find("db/child").expect("it").def().foreign_keys[0].clone();
    assert_eq!(key.columns[0].parent, "number");
    assert_eq!(bound(&db, "db/child"), [Ok("db/parent".into())]);
    def.host_record.as_mut().expect("told").columns[0].type_text = "date".into();
    assert!(why(db.redefine_table(None, def, true)).contains("of type date"));
}

#[test]
fn a_copy_keeps_a_constraint_that_waits_for_its_parent() {
    let (db, _disk) = database();
    let child = |name| Plan::new(name, 2).key("fk", &[1], "./d/p", &[0], Restrict, Restrict);
    Plan::new("./d/p", 1).create(&db).expect("a parent");
    child("./d/c").create(&db).expect("a child");
    db.drop_table(None, "./d/p").expect("rule FK2");
    let creation = Creation {
        checks: true,
        replaces: Some("./d/c"),
    };
    let copied = db.create_table_with(child("./d/#copy").definition(), 1, creation);
    copied.expect("rule FK46: it waited before");
    db.redefine_table(None, child("./d/c").definition(), true)
        .expect("rule FK46: it waits after");
    let other = Plan::new("./d/other", 2).key("fk2", &[1], "./d/p", &[0], Restrict, Restrict);
    let refused = why(other.create(&db));
    assert!(
        refused.contains("there is no table './d/p'"),
        "a new one does not wait: {refused}"
    );
}

#[test]
fn a_constraint_that_an_alter_keeps_means_what_it_means_by_then() {
    let (db, _disk) = database();
    Plan::new("db/parent", 2).create(&db).expect("a parent");
    child().create(&db).expect("a child");
    // What a host has read of the child before it is told to alter it, and what became of the parent before it says so.
    let read_before = child().definition();
    let change = Alteration::nothing(&db.catalog.find("db/child").expect("a child").def());
    db.rename_table(None, "db/parent", "db/p").expect("renamed");
    let mut renamed = Plan::new("db/p", 2).definition();
    let record = renamed.host_record.as_mut().expect("a record");
    record.columns[0].name = "id".into();
    let nothing = Alteration::nothing(&renamed);
    db.alter_tables(None, vec![renamed], &nothing, true)
        .expect("a column renamed");
    let mut def = read_before;
    def.conflict_mode = pbxt::ConflictMode::Wait;
    db.check_alter(def.clone(), &change, true).expect("AL32");
    db.alter_tables(None, vec![def], &change, true).expect("AL32");
    assert_eq!(bound(&db, "db/child"), [Ok("db/p".to_owned())], "AL32");
    let def = db.catalog.find("db/child").expect("a child").def();
    assert_eq!(def.foreign_keys[0].columns[0].parent, "id", "AL32");
}
