//! A table whose columns change, and a model of it: rows as maps from column to value, changed by the same ALTERs.

#![allow(dead_code, reason = "each test file uses a part of this")]

use pbxt::{
    Alteration, Bind, Compression, ConflictMode, Cursor, Database, Error, HostRecordDef, IndexBuild,
    IndexDef, KeyChanges, NewVersion, Options, RecordColumn, Result, Session, Table, TableDef, check_table,
};
use pbxt_base::{IndexId, RowId, TableId};
use pbxt_rows::{
    BlobRef, Column, ColumnKind, Condition, HostColumn, HostKind, KeyEncoding, KeyPart, KeySpec, NoBlobs,
    Order, PayloadKeyMaker, RowBuilder, RowFilter, RowView, Schema, Value,
};
use pbxt_sim::world::geometry;
use pbxt_testkit::SimDisk;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a value that leaves its row.
pub(crate) const LARGE: usize = 9000;
/// Bytes of a record for one column: two of length, and the value.
const SLOT: usize = 40;
/// Bytes of null bits.
const NULLS: usize = 16;

/// What a row has in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Bytes(Vec<u8>),
    Large(BlobRef),
}

/// A column as people know it: its label stays when number, name and type change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Col {
    pub(crate) label: u32,
    pub(crate) kind: ColumnKind,
    pub(crate) order: Order,
    pub(crate) nullable: bool,
    /// Constant for rows that are there when it is added.
    pub(crate) default: Cell,
}

/// An index over one column, by label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Idx {
    pub(crate) name: String,
    pub(crate) label: u32,
    pub(crate) unique: bool,
}

/// Cells by label.
pub(crate) type Row = BTreeMap<u32, Cell>;
pub(crate) type Rows = BTreeMap<u64, Row>;

/// Columns and indexes at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) columns: Vec<Col>,
    pub(crate) indexes: Vec<Idx>,
}

pub(crate) const ID: u32 = 0;
pub(crate) const BY: u32 = 1;

pub(crate) fn number(label: u32, width: u16, order: Order, nullable: bool) -> Col {
    let default = if nullable {
        Cell::Null
    } else {
        Cell::Bytes(vec![7; width as usize])
    };
    Col {
        label,
        kind: ColumnKind::Fixed(width),
        order,
        nullable,
        default,
    }
}

pub(crate) fn text(label: u32, nullable: bool) -> Col {
    let default = if nullable {
        Cell::Null
    } else {
        Cell::Bytes(b"added".to_vec())
    };
    Col {
        label,
        kind: ColumnKind::Var,
        order: Order::Unknown,
        nullable,
        default,
    }
}

impl Shape {
    /// An id with a unique index, a number with an index, a text.
    pub(crate) fn new() -> Self {
        let index = |name: &str, label, unique| Idx {
            name: name.into(),
            label,
            unique,
        };
        Self {
            columns: vec![
                number(ID, 4, Order::Uint, false),
                number(BY, 4, Order::Uint, true),
                text(2, true),
            ],
            indexes: vec![index("primary", ID, true), index("by", BY, false)],
        }
    }

    pub(crate) fn position(&self, label: u32) -> Option<usize> {
        self.columns.iter().position(|column| column.label == label)
    }

    pub(crate) fn schema(&self) -> Schema {
        let columns = self.columns.iter().map(|column| Column {
            kind: column.kind,
            nullable: column.nullable,
        });
        let orders: Vec<Order> = self.columns.iter().map(|column| column.order).collect();
        let schema = Schema::new(1, columns.collect()).expect("few columns");
        schema.with_orders(&orders).expect("orders that fit")
    }

    fn place(number: usize, column: &Col) -> HostColumn {
        HostColumn {
            offset: (NULLS + number * SLOT) as u32,
            kind: match column.kind {
                ColumnKind::Fixed(len) => HostKind::Fixed(len),
                ColumnKind::Padded { len, pad } => HostKind::Padded { len, pad },
                ColumnKind::Var | ColumnKind::Virtual => HostKind::Var2(SLOT as u16 - 2),
            },
            null_offset: (number / 8) as u32,
            null_bit: if column.nullable { 1 << (number % 8) } else { 0 },
            stored: true,
        }
    }

    fn record(&self) -> HostRecordDef {
        let mut defaults = vec![0; NULLS + self.columns.len() * SLOT];
        let mut columns = Vec::new();
        for (number, column) in self.columns.iter().enumerate() {
            let place = Self::place(number, column);
            let start = place.offset as usize;
            match &column.default {
                Cell::Null => defaults[place.null_offset as usize] |= place.null_bit,
                Cell::Bytes(bytes) if column.kind == ColumnKind::Var => {
                    defaults[start] = bytes.len() as u8;
                    defaults[start + 2..start + 2 + bytes.len()].copy_from_slice(bytes);
                }
                Cell::Bytes(bytes) => defaults[start..start + bytes.len()].copy_from_slice(bytes),
                Cell::Large(_) => panic!("a default stands in the record"),
            }
            columns.push(RecordColumn {
                name: format!("c{}", column.label),
                type_text: "some".into(),
                place,
                has_default: true,
            });
        }
        HostRecordDef { columns, defaults }
    }

    pub(crate) fn definition(&self, name: &str) -> TableDef {
        let index = |index: &Idx| {
            let column = self.position(index.label).expect("an indexed column");
            let ColumnKind::Fixed(length) = self.columns[column].kind else {
                panic!("an index over a number");
            };
            let part = KeyPart {
                column: column as u16,
                length: u32::from(length),
                prefix: false,
                nullable: self.columns[column].nullable,
                descending: false,
                encoding: KeyEncoding::Uint,
            };
            IndexDef {
                id: IndexId::new(0),
                name: index.name.clone(),
                unique: index.unique,
                primary: index.name == "primary",
                spec: KeySpec::new(vec![part], false).expect("one part"),
            }
        };
        TableDef {
            id: TableId::new(0),
            name: name.into(),
            schema: self.schema(),
            older: Vec::new(),
            indexes: self.indexes.iter().map(index).collect(),
            host_image: Vec::new(),
            host_version: Vec::new(),
            conflict_mode: ConflictMode::Default,
            compression: Compression::Default,
            encrypted: false,
            temporary: false,
            provisional: false,
            host_record: Some(self.record()),
            foreign_keys: Vec::new(),
            created: 0,
        }
    }

    /// What columns and indexes of `self` were in `before`: those of the same label and name.
    pub(crate) fn since(&self, before: &Self) -> Alteration {
        let index = |index: &Idx| {
            let same = |other: &Idx| (other.label, other.unique) == (index.label, index.unique);
            before.indexes.iter().position(same).map(|at| at as u16)
        };
        Alteration {
            columns: self
                .columns
                .iter()
                .map(|column| before.position(column.label).map(|at| at as u16))
                .collect(),
            indexes: self.indexes.iter().map(index).collect(),
        }
    }

    /// What an ALTER from `before` makes of a row.
    pub(crate) fn altered(&self, before: &Self, row: &Row) -> Row {
        let cell = |column: &Col| {
            let cell = match before.position(column.label) {
                None => column.default.clone(),
                Some(at) => widened(&row[&column.label], &before.columns[at], column),
            };
            (column.label, cell)
        };
        self.columns.iter().map(cell).collect()
    }

    pub(crate) fn encode(&self, row: &Row) -> Vec<u8> {
        let schema = self.schema();
        let mut builder = RowBuilder::new(&schema);
        for (number, column) in self.columns.iter().enumerate() {
            match &row[&column.label] {
                Cell::Null => builder.set(number, None).expect("it may be NULL"),
                Cell::Bytes(bytes) => builder.set(number, Some(bytes)).expect("it fits"),
                Cell::Large(blob) => builder.set_external(number, *blob).expect("it is variable"),
            }
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("all columns are set");
        payload
    }

    pub(crate) fn decode(&self, payload: &[u8]) -> Result<Row> {
        let schema = self.schema();
        let view = RowView::new(&schema, payload)?;
        let mut row = Row::new();
        for (number, column) in self.columns.iter().enumerate() {
            let cell = match view.get(number)? {
                Value::Null => Cell::Null,
                Value::Bytes(bytes) => Cell::Bytes(bytes.to_vec()),
                Value::External(blob) => Cell::Large(blob),
            };
            row.insert(column.label, cell);
        }
        Ok(row)
    }
}

/// By arithmetic on 128 bits.
fn widened(cell: &Cell, before: &Col, now: &Col) -> Cell {
    let (Cell::Bytes(bytes), ColumnKind::Fixed(len)) = (cell, now.kind) else {
        return cell.clone();
    };
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let shift = 128 - 8 * bytes.len() as u32;
    let mut value = i128::from_le_bytes(wide);
    if before.order == Order::Int {
        value = value << shift >> shift;
    }
    Cell::Bytes(value.to_le_bytes()[..len as usize].to_vec())
}

pub(crate) fn options() -> Options {
    Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

pub(crate) fn open(disk: &SimDisk) -> Arc<Database> {
    Database::open(Arc::new(disk.clone()), &options()).expect("the database opens")
}

pub(crate) fn session(db: &Arc<Database>, number: usize) -> Session {
    Session::open(db, number, number as u64)
}

/// The table as it is now.
pub(crate) fn find(db: &Arc<Database>) -> Arc<Table> {
    db.catalog.find("t").expect("the table is there")
}

/// A row with these values of id and indexed number; of other columns something that depends on the id.
pub(crate) fn row_of(shape: &Shape, id: u32, by: Option<u32>) -> Row {
    let cell = |column: &Col| {
        let cell = match (column.label, column.kind) {
            (ID, _) => Cell::Bytes(id.to_le_bytes().to_vec()),
            (BY, _) => by.map_or(Cell::Null, |by| Cell::Bytes(by.to_le_bytes().to_vec())),
            _ if column.nullable && id % 5 == column.label % 5 => Cell::Null,
            (_, ColumnKind::Fixed(len)) => {
                let wide = u64::from(id).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
                Cell::Bytes(wide[..len as usize].to_vec())
            }
            // Odd, and so no padding.
            (_, ColumnKind::Padded { len, .. }) => Cell::Bytes(vec![id as u8 | 1; usize::from(len)]),
            _ => {
                // Bytes that no compressor makes fewer.
                let byte = |at: u32| ((at + 1).wrapping_mul(id.wrapping_mul(0x9E37_79B1) | 1) >> 13) as u8;
                Cell::Bytes((0..150 + id % 20).map(byte).collect())
            }
        };
        (column.label, cell)
    };
    shape.columns.iter().map(cell).collect()
}

fn keys(table: &Table, shape: &Shape, old: Option<&Row>, new: &Row) -> Result<KeyChanges> {
    let mut keys = KeyChanges::new();
    let (old, new) = (old.map(|row| shape.encode(row)), shape.encode(new));
    for (number, index) in table.indexes.iter().enumerate() {
        let maker = PayloadKeyMaker::new(&index.def.spec, table.schema())?;
        let key_of = |payload: &[u8]| -> Result<Vec<u8>> {
            let mut key = Vec::new();
            maker.key_from_payload(payload, &mut NoBlobs, &mut key)?;
            Ok(key)
        };
        let before = old.as_deref().map(key_of).transpose()?;
        let after = key_of(&new)?;
        if before.as_ref() == Some(&after) {
            continue;
        }
        let mut put_before = |out: &mut Vec<u8>| -> Result<()> {
            out.extend_from_slice(before.as_deref().unwrap_or_default());
            Ok(())
        };
        keys.push(
            number,
            index.def.unique && !maker.has_null(&new)?,
            before.is_some().then_some(&mut put_before),
            Some(&mut |out: &mut Vec<u8>| -> Result<()> {
                out.extend_from_slice(&after);
                Ok(())
            }),
            &mut |_| Ok(()),
        )?;
    }
    Ok(keys)
}

fn version<'a>(table: &Table, payload: &'a [u8], keys: &'a KeyChanges) -> NewVersion<'a> {
    NewVersion {
        payload,
        schema_version: table.schema().version(),
        keys,
    }
}

pub(crate) fn insert(session: &mut Session, table: &Arc<Table>, shape: &Shape, row: &Row) -> Result<u64> {
    let (keys, payload) = (keys(table, shape, None, row)?, shape.encode(row));
    session.begin_statement()?;
    let inserted = session.insert(table, version(table, &payload, &keys));
    match inserted {
        Ok(_) => session.end_statement(),
        Err(_) => session.rollback_statement()?,
    }
    inserted.map(RowId::raw)
}

pub(crate) fn update(
    session: &mut Session,
    table: &Arc<Table>,
    shape: &Shape,
    id: u64,
    (old, new): (&Row, &Row),
) -> Result<()> {
    let (keys, payload) = (keys(table, shape, Some(old), new)?, shape.encode(new));
    session.begin_statement()?;
    session.update(table, RowId::new(id), version(table, &payload, &keys))?;
    session.end_statement();
    Ok(())
}

pub(crate) fn delete(session: &mut Session, table: &Arc<Table>, id: u64) -> Result<()> {
    session.begin_statement()?;
    session.delete(table, RowId::new(id))?;
    session.end_statement();
    Ok(())
}

/// Rows that a table scan shows, with a filter or without.
pub(crate) fn scan(
    session: &mut Session,
    table: &Arc<Table>,
    shape: &Shape,
    filter: Option<RowFilter>,
) -> Result<Rows> {
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.set_filter(filter);
    cursor.scan_start(session)?;
    let mut rows = Rows::new();
    let mut shown = None;
    while cursor.scan_next(session, |version| {
        assert_eq!(version.schema_version(), table.schema().version(), "AL8");
        shown = Some(shape.decode(version.payload())?);
        Ok(())
    })? {
        rows.extend(shown.take().map(|row| (cursor.row().raw(), row)));
    }
    Ok(rows)
}

/// Rows in the order of an index.
pub(crate) fn index_scan(
    session: &mut Session,
    table: &Arc<Table>,
    shape: &Shape,
    index: usize,
) -> Result<Vec<(u64, Row)>> {
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, index)?;
    let mut rows = Vec::new();
    let mut shown = None;
    let mut is_there = cursor.index_edge(session, false, |version| {
        shown = Some(shape.decode(version.payload())?);
        Ok(())
    })?;
    while is_there {
        rows.extend(shown.take().map(|row| (cursor.row().raw(), row)));
        is_there = cursor.index_move(session, true, false, |version| {
            shown = Some(shape.decode(version.payload())?);
            Ok(())
        })?;
    }
    Ok(rows)
}

/// Every way of reading shows these rows.
pub(crate) fn shows(session: &mut Session, table: &Arc<Table>, shape: &Shape, expected: &Rows) {
    let refused = shows_what_it_may(session, table, shape, expected, &|_| false);
    assert_eq!(refused, 0, "an index was refused");
}

/// Every way of reading shows these rows, but for indexes that `may_be_refused` to an older snapshot (rule AL20): how many were.
pub(crate) fn shows_what_it_may(
    session: &mut Session,
    table: &Arc<Table>,
    shape: &Shape,
    expected: &Rows,
    may_be_refused: &dyn Fn(&str) -> bool,
) -> usize {
    let mut refused = 0;
    let found = scan(session, table, shape, None).expect("readable");
    assert_same(&found, expected);
    let counted = session.count(table).expect("counted");
    assert_eq!(counted, expected.len() as u64, "the count");
    for (number, index) in shape.indexes.iter().enumerate() {
        let found = match index_scan(session, table, shape, number) {
            Err(Error::DefinitionChanged { why, .. }) if may_be_refused(&index.name) => {
                assert!(why.contains("was built after"), "AL20: {why}");
                refused += 1;
                continue;
            }
            found => found.expect("readable"),
        };
        let mut wanted: Vec<(Option<u64>, u64)> = expected
            .iter()
            .map(|(id, row)| (key_of(&row[&index.label]), *id))
            .collect();
        wanted.sort_unstable();
        let order: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            order,
            wanted.iter().map(|(_, id)| *id).collect::<Vec<_>>(),
            "index {}",
            index.name
        );
        assert!(
            found.iter().all(|(id, row)| expected[id] == *row),
            "index {}",
            index.name
        );
    }
    for (number, column) in shape.columns.iter().enumerate() {
        filtered(session, table, shape, (number, column), expected);
    }
    refused
}

/// As an unsigned number, which is what indexes take values for.
fn key_of(cell: &Cell) -> Option<u64> {
    match cell {
        Cell::Bytes(bytes) => Some(
            bytes
                .iter()
                .rev()
                .fold(0, |key, byte| key << 8 | u64::from(*byte)),
        ),
        _ => None,
    }
}

fn assert_same(found: &Rows, expected: &Rows) {
    for (id, row) in expected {
        assert_eq!(found.get(id), Some(row), "row {id}");
    }
    assert_eq!(found.len(), expected.len(), "rows: {:?}", found.keys());
}

/// Asks a scan for the rows with the value of some row in this column: none of them is left out (rules F37, AL9).
fn filtered(
    session: &mut Session,
    table: &Arc<Table>,
    shape: &Shape,
    (number, column): (usize, &Col),
    expected: &Rows,
) {
    let wanted = expected
        .values()
        .nth(expected.len() / 2)
        .map(|row| row[&column.label].clone());
    let mut filter = RowFilter::new(table.schema());
    let added = match &wanted {
        Some(Cell::Bytes(value)) => {
            let bound = Bound::Included(value.as_slice());
            filter.add(table.schema(), number, Condition::Between(bound, bound))
        }
        Some(Cell::Null) => filter.add(table.schema(), number, Condition::IsNull),
        _ => false,
    };
    if !added {
        return;
    }
    let found = scan(session, table, shape, Some(filter)).expect("readable");
    for (id, row) in expected
        .iter()
        .filter(|(_, row)| Some(&row[&column.label]) == wanted.as_ref())
    {
        assert_eq!(found.get(id), Some(row), "row {id} by column {}", column.label);
    }
    assert!(found.iter().all(|(id, row)| expected[id] == *row));
}

/// The engine's own check.
pub(crate) fn check(session: &mut Session, table: &Arc<Table>) {
    let mut findings = Vec::new();
    let mut tell = |finding: &str| findings.push(finding.to_owned());
    check_table(session, table, &mut tell, &mut |_, _| {}).expect("checkable");
    assert!(findings.is_empty(), "{findings:?}");
}

/// Builds the indexes that `next` has and `before` has not.
pub(crate) fn build(
    db: &Arc<Database>,
    session: Option<&Session>,
    before: &Shape,
    next: &Shape,
) -> Result<Vec<IndexBuild>> {
    let change = next.since(before);
    if !change.adds_indexes() {
        return Ok(Vec::new());
    }
    let mut build = db.open_index_build(session, next.definition("t"), &change)?;
    build.run(&mut |_, _| {})?;
    Ok(vec![build])
}

/// Columns and indexes of `next` for the table.
pub(crate) fn alter(
    db: &Arc<Database>,
    session: Option<&Session>,
    before: &Shape,
    next: &Shape,
) -> Result<()> {
    let change = next.since(before);
    db.check_alter(next.definition("t"), &change, true)?;
    let builds = build(db, session, before, next)?;
    db.alter_tables_with(session, vec![next.definition("t")], &change, true, builds)
}
