//! Extended indexes: what is stored decides which parts an index has (rules X40, X42, X47).

mod common {
    pub(crate) mod family;
}

use common::family::{Opened, Plan, User, database, decode, encode, record};
use pbxt::Database;
use pbxt::Seek;
use pbxt::host::{HostIndex, HostTable};
use pbxt_rows::NoWeigher;
use std::sync::Arc;

const BY_GROUP: usize = 1;

fn plan() -> Plan {
    Plan::new("./d/t", 3).index(&[1]).unique(&[2])
}

/// The table as a host would open it that knows of no extensions.
fn opened_bare(db: &Arc<Database>) -> Opened {
    let bare = |index: pbxt::IndexDef| HostIndex {
        contexts: vec![0; index.spec.declared().len()],
        spec: index.spec.bare(),
    };
    let indexes: Vec<HostIndex> = plan().definition().indexes.into_iter().map(bare).collect();
    let host = HostTable::open(db, "./d/t", plan().layout(), &indexes, Arc::new(NoWeigher));
    Opened {
        plan: plan(),
        host: Arc::new(host.expect("the declared parts are the same")),
    }
}

/// A search tuple of the group, and of the primary key if there is one.
fn tuple(group: u32, id: Option<u32>) -> Vec<u8> {
    let mut tuple = vec![0];
    tuple.extend(group.to_le_bytes());
    tuple.extend(id.into_iter().flat_map(u32::to_le_bytes));
    tuple
}

/// Primary keys of the rows that a search finds, in the order of the index.
fn ids(user: &mut User, table: &Opened, group: u32, id: Option<u32>) -> Vec<u32> {
    let found = user.statement(table, |session, cursor| {
        let (mut record, mut ids) = (encode(&[Some(0); 3]), Vec::new());
        cursor.index_start(session, BY_GROUP)?;
        let parts = 1 + usize::from(id.is_some());
        let mut found = cursor.seek(
            session,
            BY_GROUP,
            &tuple(group, id),
            parts,
            Seek::Exact,
            &mut record,
        )?;
        while found {
            ids.push(decode(&record, 3)[0].expect("a primary key"));
            found = cursor.index_move(session, true, true, &mut record)?;
        }
        Ok(ids)
    });
    found.expect("an index that can be read")
}

fn fill(user: &mut User, table: &Opened) {
    for id in [5, 3, 9, 1] {
        let row = [Some(id), Some(7), Some(100 + id)];
        user.insert(table, &row).expect("a row");
    }
}

#[test]
fn rows_under_a_key_come_by_primary_key_and_are_found_by_it() {
    let (db, _disk) = database();
    let table = Opened::create(&db, plan());
    let mut user = User::new(&db, 1);
    fill(&mut user, &table);
    assert_eq!(ids(&mut user, &table, 7, None), [1, 3, 5, 9]);
    assert_eq!(ids(&mut user, &table, 7, Some(5)), [5]);
    assert_eq!(ids(&mut user, &table, 7, Some(4)), [0; 0]);
    let changed = user.statement(&table, |session, cursor| {
        let (mut old, new) = (encode(&[Some(0); 3]), encode(&[Some(2), Some(7), Some(109)]));
        cursor.index_start(session, BY_GROUP)?;
        let found = cursor.seek(session, BY_GROUP, &tuple(7, Some(9)), 2, Seek::Exact, &mut old)?;
        assert!(found, "the row is there");
        let row = cursor.row();
        cursor.update(session, row, record(&old), record(&new))
    });
    changed.expect("a free primary key");
    assert_eq!(ids(&mut user, &table, 7, None), [1, 2, 3, 5]);
    assert_eq!(table.host.part_count(BY_GROUP).expect("an index"), 2);
    assert_eq!(
        table.host.part_count(2).expect("an index"),
        1,
        "a unique index is as declared"
    );
}

#[test]
fn a_stored_index_keeps_its_parts_whatever_the_host_would_make() {
    let (db, _disk) = database();
    let mut old = plan().definition();
    for index in &mut old.indexes {
        index.spec = index.spec.bare();
    }
    db.create_table(old, 1).expect("a table without extensions");
    let table = Opened::open(&db, plan());
    assert_eq!(table.host.part_count(BY_GROUP).expect("an index"), 1);
    let mut user = User::new(&db, 1);
    fill(&mut user, &table);
    assert_eq!(
        ids(&mut user, &table, 7, None),
        [5, 3, 9, 1],
        "in the order of row ids, as ever"
    );
    user.session.commit().expect("nothing stands against it");
    db.drop_table(None, "./d/t").expect("nobody else");

    let table = Opened::create(&db, plan());
    fill(&mut user, &table);
    let bare = opened_bare(&db);
    assert_eq!(bare.host.part_count(BY_GROUP).expect("an index"), 2);
    assert_eq!(ids(&mut user, &bare, 7, None), [1, 3, 5, 9]);
    user.insert(&bare, &[Some(4), Some(7), None]).expect("a row");
    assert_eq!(ids(&mut user, &table, 7, Some(4)), [4]);
}
