//! Keys that no index can have: a program that makes its keys itself may make any. What is refused leaves nothing, before and after a
//! crash.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

use pbxt::{
    Bind, Cursor, Database, Error, IndexDef, KeyChanges, NewVersion, Options, RowVersion, Session, Table,
    TableDef, check_table,
};
use pbxt_base::RowId;
use pbxt_rows::*;
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// A value whose key takes more than an entry can say, and one whose key is over the limit of the engine; each byte takes two.
const LONGEST: usize = 40_000;
const TOO_LONG: usize = 9_000;

struct Notes {
    disk: SimDisk,
    db: Arc<Database>,
    table: Arc<Table>,
    session: Session,
}

fn schema() -> Schema {
    let columns = vec![Column {
        kind: ColumnKind::Var,
        nullable: false,
    }];
    Schema::new(1, columns).unwrap()
}

fn spec() -> KeySpec {
    let part = KeyPart {
        column: 0,
        length: 1 << 16,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::VarBinary,
    };
    KeySpec::new(vec![part], false).unwrap()
}

fn open(disk: &SimDisk) -> Arc<Database> {
    let options = Options {
        geometry: Geometry::default(),
        cache_bytes: 8 << 20,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(disk.clone()), &options).unwrap()
}

fn value(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

fn payload(value: &[u8]) -> Vec<u8> {
    let (schema, mut payload) = (schema(), Vec::new());
    let mut row = RowBuilder::new(&schema);
    row.set(0, Some(value)).unwrap();
    row.finish(&mut payload).unwrap();
    payload
}

fn keys(old: Option<&[u8]>, new: &[u8]) -> KeyChanges {
    let maker = PayloadKeyMaker::new(&spec(), &schema()).unwrap();
    let mut of_old = |out: &mut Vec<u8>| maker.key_from_values(&[old], out);
    let mut of_new = |out: &mut Vec<u8>| maker.key_from_values(&[Some(new)], out);
    let mut keys = KeyChanges::new();
    let is_unique = false;
    let old = old.is_some().then_some(&mut of_old as _);
    keys.push::<pbxt_rows::Error>(0, is_unique, old, Some(&mut of_new), &mut |_| Ok(()))
        .unwrap();
    keys
}

impl Notes {
    fn new() -> Self {
        let disk = SimDisk::new();
        let db = open(&disk);
        let index = IndexDef {
            name: "note".into(),
            unique: false,
            primary: false,
            ..IndexDef::primary(spec())
        };
        let table = db
            .create_table(TableDef::new("note", schema(), vec![index]), 1)
            .unwrap();
        let session = Session::open(&db, 0, 0);
        Self {
            disk,
            db,
            table,
            session,
        }
    }

    fn insert(&mut self, bytes: usize) -> pbxt::Result<Option<RowId>> {
        let (value, table) = (value(bytes), Arc::clone(&self.table));
        let version = NewVersion {
            payload: &payload(&value),
            schema_version: 1,
            keys: &keys(None, &value),
        };
        self.session.insert_or_load(&table, version)
    }

    fn update(&mut self, row: RowId, old: usize, new: usize) -> pbxt::Result<bool> {
        let (old, new, table) = (value(old), value(new), Arc::clone(&self.table));
        let version = NewVersion {
            payload: &payload(&new),
            schema_version: 1,
            keys: &keys(Some(&old), &new),
        };
        self.session.update(&table, row, version)
    }

    /// Rows of a table scan, and what a check of the table finds.
    fn look(&mut self) -> (Vec<usize>, u64) {
        let (schema, mut sizes) = (schema(), Vec::new());
        self.session.begin_statement().unwrap();
        let mut cursor = Cursor::new(&self.table);
        cursor.bind(&mut self.session, Bind::default()).unwrap();
        cursor.scan_start(&mut self.session).unwrap();
        let mut show = |version: &RowVersion<'_>| -> pbxt::Result<()> {
            if let Value::Bytes(value) = RowView::new(&schema, version.payload())?.get(0)? {
                sizes.push(value.len());
            }
            Ok(())
        };
        while cursor.scan_next(&mut self.session, &mut show).unwrap() {}
        self.session.end_statement();
        let found = check_table(&mut self.session, &self.table, &mut |_| {}, &mut |_, _| {}).unwrap();
        self.session.commit().unwrap();
        (sizes, found)
    }

    /// The process dies; what is there is asked before and afterwards.
    fn holds(mut self, wanted: &[usize]) {
        assert_eq!(self.look(), (wanted.to_vec(), 0));
        let disk = self.disk.kill();
        drop((self.session, self.table, self.db));
        let db = open(&disk);
        let mut again = Self {
            table: db.catalog.find("note").unwrap(),
            session: Session::open(&db, 0, 0),
            db,
            disk,
        };
        assert_eq!(again.look(), (wanted.to_vec(), 0), "after a crash");
    }
}

fn is_refused<T: std::fmt::Debug>(result: &pbxt::Result<T>) {
    assert!(matches!(result, Err(Error::KeyTooLarge { .. })), "{result:?}");
}

#[test]
fn a_row_whose_key_no_index_can_have_leaves_nothing() {
    for bytes in [LONGEST, TOO_LONG] {
        let mut notes = Notes::new();
        notes.session.begin_statement().unwrap();
        notes.insert(3).unwrap();
        let refused = notes.insert(bytes);
        notes.session.end_statement();
        notes.session.commit().unwrap();
        notes.holds(&[3]);
        is_refused(&refused);
    }
}

#[test]
fn a_change_to_a_key_that_no_index_can_have_leaves_the_row_as_it_was() {
    for bytes in [LONGEST, TOO_LONG] {
        let mut notes = Notes::new();
        notes.session.begin_statement().unwrap();
        let row = notes.insert(3).unwrap().unwrap();
        let refused = notes.update(row, 3, bytes);
        notes.session.end_statement();
        notes.session.commit().unwrap();
        notes.holds(&[3]);
        is_refused(&refused);
    }
}

#[test]
fn a_load_goes_on_without_a_row_whose_key_no_index_can_have() {
    let mut notes = Notes::new();
    notes.session.begin_statement().unwrap();
    let table = Arc::clone(&notes.table);
    notes.session.bulk_begin(&table, u64::MAX, false);
    notes.insert(3).unwrap();
    is_refused(&notes.insert(LONGEST));
    notes.insert(4).unwrap();
    notes.session.bulk_end(&table, false).unwrap();
    notes.session.end_statement();
    notes.session.commit().unwrap();
    notes.holds(&[3, 4]);
}
