//! Updates that leave a large value as it is share it, and only with the version they go over.

#![allow(clippy::unwrap_used, reason = "a panic in a helper is how the test fails")]

mod common;

use pbxt::host::{HostCursor, HostTable};
use pbxt::{Bind, Compression, ConflictMode, Database, Error, Progress, Session, SessionConfig, TableDef};
use pbxt_base::TableId;
use pbxt_rows::{ColumnSet, HostColumn, HostKind, HostLayout, HostRecord, NoWeigher};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// A null byte, a number of four bytes, length and pointer of a value.
const RECORD: usize = 17;

fn layout() -> HostLayout {
    let column = |offset, kind| HostColumn {
        offset,
        kind,
        null_offset: 0,
        null_bit: 0,
        stored: true,
    };
    let columns = vec![column(1, HostKind::Fixed(4)), column(5, HostKind::Blob(4))];
    HostLayout::new(RECORD, columns).expect("columns beside each other")
}

fn table(db: &Arc<Database>) -> Arc<HostTable> {
    let def = TableDef {
        id: TableId::new(0),
        name: "t".to_owned(),
        schema: layout().schema(1).expect("two columns"),
        older: Vec::new(),
        indexes: Vec::new(),
        host_image: Vec::new(),
        host_version: Vec::new(),
        conflict_mode: ConflictMode::Wait,
        compression: Compression::Default,
        encrypted: false,
        temporary: false,
        provisional: false,
        host_record: None,
        foreign_keys: Vec::new(),
        created: 0,
    };
    db.create_table(def, 1).expect("a new table");
    Arc::new(HostTable::open(db, "t", layout(), &[], Arc::new(NoWeigher)).expect("its own layout"))
}

fn record(number: u32, value: &[u8]) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[1..5].copy_from_slice(&number.to_le_bytes());
    record[5..9].copy_from_slice(&(value.len() as u32).to_le_bytes());
    record[9..].copy_from_slice(&(value.as_ptr().expose_provenance() as u64).to_le_bytes());
    record
}

fn host_record(bytes: &[u8; RECORD]) -> HostRecord<'_> {
    // SAFETY: values outlive the records that tests make of them, and the cursor keeps those it read until its next read.
    unsafe { HostRecord::new(bytes) }
}

/// Number and value of the only row.
fn read(cursor: &mut HostCursor, session: &mut Session, for_write: bool) -> [u8; RECORD] {
    let mut found = [0; RECORD];
    let bind = Bind {
        for_write,
        ..Bind::default()
    };
    cursor.bind(session, bind).expect("bound");
    cursor.project(ColumnSet::all(2));
    cursor.scan_start(session).expect("begun");
    assert!(
        cursor.scan_next(session, &mut found).expect("readable"),
        "there is a row"
    );
    found
}

fn value_of(record: &[u8; RECORD]) -> Vec<u8> {
    let len = u32::from_le_bytes(record[5..9].try_into().unwrap()) as usize;
    let address = u64::from_le_bytes(record[9..].try_into().unwrap()) as usize;
    // SAFETY: the cursor that filled the record has not read on.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }.to_vec()
}

fn session(db: &Arc<Database>, number: usize) -> Session {
    let mut session = Session::open(db, number, number as u64);
    session.configure(SessionConfig {
        conflict_mode: ConflictMode::Wait,
        ..SessionConfig::default()
    });
    session
}

/// Inserts one row.
fn filled(db: &Arc<Database>, value: &[u8]) -> (Arc<HostTable>, HostCursor, Session) {
    let table = table(db);
    let (mut cursor, mut session) = (HostCursor::new(&table), session(db, 1));
    cursor
        .insert(&mut session, host_record(&record(1, value)))
        .expect("inserted");
    session.commit().expect("committed");
    (table, cursor, session)
}

fn settle(db: &Arc<Database>) {
    for _ in 0..2 {
        while db.upkeep_step(true).expect("worked") == Progress::Worked {}
        db.checkpoint_step().expect("made");
    }
    while db.upkeep_step(true).expect("worked") == Progress::Worked {}
}

#[test]
fn an_update_of_another_column_writes_no_value_again() {
    let db = common::open(&SimDisk::new());
    let value = vec![7; 300_000];
    let (_table, mut cursor, mut session) = filled(&db, &value);
    let written = db.blobs().bytes_written();
    for number in 2..10_u32 {
        let old = read(&mut cursor, &mut session, true);
        let mut new = old;
        new[1..5].copy_from_slice(&number.to_le_bytes());
        let row = cursor.row();
        assert!(
            cursor
                .update(&mut session, row, host_record(&old), host_record(&new))
                .expect("updated")
        );
        session.commit().expect("committed");
        settle(&db);
    }
    assert_eq!(db.blobs().bytes_written(), written, "nothing of the value");
    let found = read(&mut cursor, &mut session, false);
    assert_eq!((found[1], value_of(&found)), (9, value));
    session.commit().expect("ended");
    let other = vec![8; 300_000];
    let old = read(&mut cursor, &mut session, true);
    let row = cursor.row();
    cursor
        .update(
            &mut session,
            row,
            host_record(&old),
            host_record(&record(9, &other)),
        )
        .expect("updated");
    session.commit().expect("committed");
    assert!(db.blobs().bytes_written() > written + 300_000, "another value");
    settle(&db);
    let found = read(&mut cursor, &mut session, false);
    assert_eq!(value_of(&found), other);
}

#[test]
fn deletes_read_no_value_in_the_engine() {
    let db = common::open(&SimDisk::new());
    let (_table, mut cursor, mut session) = filled(&db, &vec![7; 300_000]);
    let mut found = [0; RECORD];
    cursor.bind(&mut session, Bind::default()).expect("bound");
    cursor.project([0].into_iter().collect());
    cursor.scan_start(&mut session).expect("begun");
    assert!(cursor.scan_next(&mut session, &mut found).expect("readable"));
    let row = cursor.row();
    cursor.delete(&mut session, row).expect("deleted");
    session.commit().expect("committed");
    settle(&db);
    assert_eq!(
        db.blobs().bytes_read(),
        0,
        "neither the read of the other column nor the delete"
    );
    assert!(
        db.blobs().segments().expect("a listing").is_empty(),
        "its space came back"
    );
}

/// Its index entries are taken away under the keys of the row as it was read.
#[test]
fn a_row_of_which_columns_were_left_out_is_not_changed() {
    let db = common::open(&SimDisk::new());
    let (_table, mut cursor, mut session) = filled(&db, b"a value");
    let old = read(&mut cursor, &mut session, true);
    let row = cursor.row();
    let new = record(6, b"a value");
    cursor.project([0].into_iter().collect());
    let refused = cursor.update(&mut session, row, host_record(&old), host_record(&new));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    cursor.project(ColumnSet::all(2));
    let changed = cursor.update(&mut session, row, host_record(&old), host_record(&new));
    assert!(changed.expect("updated"));
    session.commit().expect("committed");
}

#[test]
fn a_value_that_somebody_replaced_meanwhile_is_stored_again() {
    let db = common::open(&SimDisk::new());
    let (first, second) = (vec![7; 100_000], vec![8; 100_000]);
    let (table, mut cursor, mut session) = filled(&db, &first);
    let mut other = self::session(&db, 2);
    let mut other_cursor = HostCursor::new(&table);
    // Read without a lock; another transaction puts another value in its place, and commits.
    let old = read(&mut cursor, &mut session, false);
    let row = cursor.row();
    let theirs = read(&mut other_cursor, &mut other, true);
    let changed = other_cursor.update(
        &mut other,
        row,
        host_record(&theirs),
        host_record(&record(5, &second)),
    );
    assert!(changed.expect("updated"));
    other.commit().expect("committed");
    let written = db.blobs().bytes_written();
    let mut new = old;
    new[1] = 6;
    assert!(
        cursor
            .update(&mut session, row, host_record(&old), host_record(&new))
            .expect("updated")
    );
    assert!(
        db.blobs().bytes_written() > written,
        "S28: the version beneath does not name it"
    );
    session.commit().expect("committed");
    settle(&db);
    let found = read(&mut cursor, &mut session, false);
    assert_eq!((found[1], value_of(&found)), (6, first));
}

#[test]
fn a_value_changed_where_it_stands_is_stored_again() {
    let db = common::open(&SimDisk::new());
    let value = vec![7; 300_000];
    let (_table, mut cursor, mut session) = filled(&db, &value);
    let old = read(&mut cursor, &mut session, true);
    let address = u64::from_le_bytes(old[9..].try_into().unwrap()) as usize;
    // SAFETY: the value stands in the cursor's own memory until its next read, and nobody else looks at it meanwhile.
    unsafe { *std::ptr::with_exposed_provenance_mut::<u8>(address + 1000) = 8 };
    let row = cursor.row();
    let updated = cursor.update(&mut session, row, host_record(&old), host_record(&old));
    assert!(
        updated.expect("updated"),
        "S28: the bytes differ from those on disk"
    );
    session.commit().expect("committed");
    let mut expected = value;
    expected[1000] = 8;
    assert!(value_of(&read(&mut cursor, &mut session, false)) == expected);
}

#[test]
fn a_value_that_is_brought_along_once_more_is_not_stored_again() {
    let db = common::open(&SimDisk::new());
    let value = vec![7; 300_000];
    let (_table, mut cursor, mut session) = filled(&db, &value);
    let written = db.blobs().bytes_written();
    let mut update = |cursor: &mut HostCursor, number, value: &[u8]| {
        let old = read(cursor, &mut session, true);
        let new = record(number, value);
        let row = cursor.row();
        let updated = cursor.update(&mut session, row, host_record(&old), host_record(&new));
        session.commit().expect("committed");
        updated.expect("updated")
    };
    assert!(
        !update(&mut cursor, 1, &value.clone()),
        "S28: the row is as it was"
    );
    assert!(update(&mut cursor, 2, &value.clone()), "another number");
    assert_eq!(db.blobs().bytes_written(), written, "S28: nothing of the value");
    let mut other = value;
    other[299_999] = 8;
    assert!(update(&mut cursor, 2, &other), "S28: as long, and another value");
    assert!(db.blobs().bytes_written() > written + 300_000, "it is stored");
    assert!(value_of(&read(&mut cursor, &mut session, false)) == other);
}
