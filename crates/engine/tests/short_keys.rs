//! Keys without room for the primary key that extends their index: a program that makes its keys itself may forget it. What is
//! refused leaves nothing, before and after a crash, and no checkpoint stumbles over it.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

use pbxt::{
    Bind, Cursor, Database, Error, IndexDef, KeyChanges, NewVersion, Options, RowVersion, Session, Table,
    TableDef, check_table,
};
use pbxt_base::RowId;
use pbxt_rows::*;
use pbxt_segment::Geometry;
use pbxt_testkit::SimDisk;
use std::convert::Infallible;
use std::sync::Arc;

const WHOLE: [u8; 8] = [0, 0, 0, 7, 0, 0, 0, 1];

struct Pairs {
    disk: SimDisk,
    db: Arc<Database>,
    table: Arc<Table>,
    session: Session,
}

fn schema() -> Schema {
    let column = Column {
        kind: ColumnKind::Fixed(4),
        nullable: false,
    };
    Schema::new(1, vec![column, column]).unwrap()
}

fn index(name: &str, columns: &[u16], extension: usize) -> IndexDef {
    let part = |column: &u16| KeyPart {
        column: *column,
        length: 4,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::Uint,
    };
    let spec = KeySpec::new(columns.iter().map(part).collect(), false).unwrap();
    IndexDef {
        name: name.into(),
        unique: extension == 0,
        primary: extension == 0,
        ..IndexDef::primary(spec.with_extension(extension).unwrap())
    }
}

fn open(disk: &SimDisk) -> Arc<Database> {
    let options = Options {
        geometry: Geometry::small(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(disk.clone()), &options).unwrap()
}

fn payload() -> Vec<u8> {
    let (schema, mut payload) = (schema(), Vec::new());
    let mut row = RowBuilder::new(&schema);
    row.set(0, Some(&1_u32.to_le_bytes())).unwrap();
    row.set(1, Some(&7_u32.to_le_bytes())).unwrap();
    row.finish(&mut payload).unwrap();
    payload
}

/// Appends these bytes.
fn bytes(key: &[u8]) -> impl FnMut(&mut Vec<u8>) -> std::result::Result<(), Infallible> {
    move |out| {
        out.extend_from_slice(key);
        Ok(())
    }
}

/// The primary key of the row, if it has none yet, and this key in the extended index.
fn keys(old: Option<&[u8]>, new: &[u8]) -> KeyChanges {
    let mut keys = KeyChanges::new();
    if old.is_none() {
        let Ok(()) = keys.push(0, true, None, Some(&mut bytes(&WHOLE[4..])), &mut bytes(&[]));
    }
    let mut before = old.map(bytes);
    let before = before.as_mut().map(|before| before as _);
    let Ok(()) = keys.push(1, false, before, Some(&mut bytes(new)), &mut bytes(&[]));
    keys
}

impl Pairs {
    fn new() -> Self {
        let disk = SimDisk::new();
        let db = open(&disk);
        let indexes = vec![index("PRIMARY", &[0], 0), index("second", &[1, 0], 1)];
        let table = db
            .create_table(TableDef::new("pairs", schema(), indexes), 1)
            .unwrap();
        let mut session = Session::open(&db, 0, 0);
        session.begin_statement().unwrap();
        Self {
            disk,
            db,
            table,
            session,
        }
    }

    fn insert(&mut self, key: &[u8]) -> pbxt::Result<Option<RowId>> {
        let table = Arc::clone(&self.table);
        let version = NewVersion {
            payload: &payload(),
            schema_version: 1,
            keys: &keys(None, key),
        };
        self.session.insert_or_load(&table, version)
    }

    fn update(&mut self, row: RowId, old: &[u8], new: &[u8]) -> pbxt::Result<bool> {
        let table = Arc::clone(&self.table);
        let version = NewVersion {
            payload: &payload(),
            schema_version: 1,
            keys: &keys(Some(old), new),
        };
        self.session.update(&table, row, version)
    }

    fn commit(&mut self) {
        self.session.end_statement();
        self.session.commit().unwrap();
    }

    /// So many rows are there and agree with the indexes; the process dies; they are again, and a checkpoint writes them.
    fn holds(mut self, rows: u64) {
        self.sound(rows);
        let disk = self.disk.kill();
        drop((self.session, self.table, self.db));
        let db = open(&disk);
        let mut again = Self {
            table: db.catalog.find("pairs").unwrap(),
            session: Session::open(&db, 0, 0),
            db,
            disk,
        };
        again.sound(rows);
        again.db.checkpoint_step().unwrap();
        again.sound(rows);
    }

    fn sound(&mut self, rows: u64) {
        self.session.begin_statement().unwrap();
        let mut cursor = Cursor::new(&self.table);
        cursor.bind(&mut self.session, Bind::default()).unwrap();
        cursor.scan_start(&mut self.session).unwrap();
        let mut show = |_: &RowVersion<'_>| -> pbxt::Result<()> { Ok(()) };
        let mut seen = 0;
        while cursor.scan_next(&mut self.session, &mut show).unwrap() {
            seen += 1;
        }
        self.session.end_statement();
        assert_eq!(seen, rows);
        let found = check_table(&mut self.session, &self.table, &mut |_| {}, &mut |_, _| {}).unwrap();
        assert_eq!(found, 0, "mistakes in the table");
        self.session.commit().unwrap();
    }
}

fn is_refused<T: std::fmt::Debug>(result: &pbxt::Result<T>, bytes: usize) {
    let Err(error @ Error::KeyTooSmall { .. }) = result else {
        panic!("{bytes} bytes: {result:?}")
    };
    let text = error.to_string();
    let wanted = format!("a key of index 'second' of table 'pairs' takes {bytes} bytes");
    assert!(
        text.starts_with(&wanted) && text.ends_with("4 bytes of the primary key"),
        "{text}"
    );
}

#[test]
fn a_row_whose_key_lacks_its_suffix_leaves_nothing() {
    for bytes in 0..4 {
        let mut pairs = Pairs::new();
        let refused = pairs.insert(&WHOLE[..bytes]);
        pairs.commit();
        is_refused(&refused, bytes);
        pairs.holds(0);
    }
}

#[test]
fn a_change_to_or_from_a_key_that_lacks_its_suffix_leaves_the_row_as_it_was() {
    for bytes in 0..4 {
        let (short, other) = (&WHOLE[..bytes], &[0, 0, 0, 9, 0, 0, 0, 1]);
        for (old, new) in [(&WHOLE[..], short), (short, &other[..])] {
            let mut pairs = Pairs::new();
            let row = pairs.insert(&WHOLE).unwrap().unwrap();
            let refused = pairs.update(row, old, new);
            pairs.commit();
            is_refused(&refused, bytes);
            pairs.holds(1);
        }
    }
}

#[test]
fn a_load_goes_on_without_a_row_whose_key_lacks_its_suffix() {
    let mut pairs = Pairs::new();
    let table = Arc::clone(&pairs.table);
    pairs.session.bulk_begin(&table, u64::MAX, false);
    is_refused(&pairs.insert(&WHOLE[..3]), 3);
    pairs.insert(&WHOLE).unwrap();
    pairs.session.bulk_end(&table, false).unwrap();
    pairs.commit();
    pairs.holds(1);
}
