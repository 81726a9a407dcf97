//! Versions: rows of every older version are read as a model says, two steps are one, and what cannot follow is refused.
//!
//! Rules: AL1 to AL6, AL9 of docs/alter.md; F20, F27. A random table is made from one number, which a failure prints.

use pbxt_base::{Addr, AddrClass, RowId, SegmentId};
use pbxt_rows::*;
use proptest::prelude::*;
use std::ops::Bound;

/// A source of choices.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What a row has in a column, as the model knows it.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    /// As stored, without padding.
    Bytes(Vec<u8>),
    External(BlobRef),
    /// The column is not stored.
    Nowhere,
}

#[derive(Clone, Debug)]
struct Model {
    columns: Vec<(Column, Order)>,
    /// Version a row was written with, its payload then, its cells now.
    rows: Vec<(u16, Vec<u8>, Vec<Cell>)>,
}

const PAD: u8 = b' ';

fn random_column(dice: &mut Dice) -> (Column, Order) {
    let (kind, order) = match dice.below(8) {
        0 | 1 => (ColumnKind::Fixed(1 + dice.below(8) as u16), Order::Int),
        2 => (ColumnKind::Fixed(1 + dice.below(8) as u16), Order::Uint),
        3 => (ColumnKind::Fixed(9 + dice.below(8) as u16), Order::Bytes),
        4 | 5 => (ColumnKind::Var, Order::Unknown),
        6 => (
            ColumnKind::Padded {
                len: 1 + dice.below(9) as u16,
                pad: PAD,
            },
            Order::Unknown,
        ),
        _ => (ColumnKind::Virtual, Order::Unknown),
    };
    let nullable = dice.chance(50);
    (Column { kind, nullable }, order)
}

fn schema_of(version: u16, columns: &[(Column, Order)]) -> Schema {
    let orders: Vec<Order> = columns.iter().map(|(_, order)| *order).collect();
    let columns = columns.iter().map(|(column, _)| *column).collect();
    let schema = Schema::new(version, columns).expect("few columns");
    schema.with_orders(&orders).expect("orders that fit")
}

fn random_bytes(dice: &mut Dice, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| [0, 1, b'a', 0x80, 0xff][dice.below(5)])
        .collect()
}

fn random_value(dice: &mut Dice, kind: ColumnKind) -> Vec<u8> {
    match kind {
        ColumnKind::Fixed(len) => random_bytes(dice, len as usize),
        // Sometimes so long that end offsets are wide.
        ColumnKind::Var if dice.chance(3) => vec![b'w'; 70_000],
        ColumnKind::Var => {
            let len = dice.below(40);
            random_bytes(dice, len)
        }
        ColumnKind::Padded { len, .. } => {
            let len = dice.below(len as usize + 1);
            random_bytes(dice, len)
        }
        ColumnKind::Virtual => Vec::new(),
    }
}

fn random_cell(dice: &mut Dice, column: Column) -> Cell {
    match column.kind {
        ColumnKind::Virtual => Cell::Nowhere,
        _ if column.nullable && dice.chance(30) => Cell::Null,
        ColumnKind::Var if dice.chance(10) => Cell::External(BlobRef {
            addr: Addr::in_segment(
                AddrClass::Blob,
                SegmentId::new(1 + dice.below(9) as u32),
                64 * dice.below(99) as u64,
            ),
            len: 9000 + dice.below(9) as u64,
            hash: dice.next(),
        }),
        kind => Cell::Bytes(random_value(dice, kind)),
    }
}

fn encode(schema: &Schema, cells: &[Cell]) -> Vec<u8> {
    let mut builder = RowBuilder::new(schema);
    for (column, cell) in cells.iter().enumerate() {
        match cell {
            Cell::Null => builder.set(column, None).expect("it may be NULL"),
            Cell::Bytes(bytes) => builder.set(column, Some(bytes)).expect("it fits"),
            Cell::External(blob) => builder.set_external(column, *blob).expect("it is variable"),
            Cell::Nowhere => {}
        }
    }
    let mut payload = Vec::new();
    builder.finish(&mut payload).expect("all columns are set");
    payload
}

/// What an integer of these bytes is with more of them, by arithmetic.
fn widened(bytes: &[u8], order: Order, len: usize) -> Vec<u8> {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let shift = 128 - 8 * bytes.len();
    let number = i128::from_le_bytes(wide);
    let number = match order {
        Order::Int => number << shift >> shift,
        _ => number,
    };
    number.to_le_bytes()[..len].to_vec()
}

impl Model {
    fn new(dice: &mut Dice) -> Self {
        let count = 1 + dice.below(6);
        Self {
            columns: (0..count).map(|_| random_column(dice)).collect(),
            rows: Vec::new(),
        }
    }

    fn insert(&mut self, dice: &mut Dice, version: u16) {
        let cells: Vec<Cell> = self
            .columns
            .iter()
            .map(|(column, _)| random_cell(dice, *column))
            .collect();
        let payload = encode(&schema_of(version, &self.columns), &cells);
        self.rows.push((version, payload, cells));
    }

    /// A random step that rule AL4 allows.
    fn alter(&mut self, dice: &mut Dice) -> Vec<Origin> {
        let mut next: Vec<(Column, Order, Origin)> = self
            .columns
            .iter()
            .enumerate()
            .map(|(number, (column, order))| (*column, *order, Origin::Column(number as u16)))
            .collect();
        for _ in 0..=dice.below(3) {
            match dice.below(5) {
                0 if next.len() > 1 => {
                    let at = dice.below(next.len());
                    next.remove(at);
                }
                1 => {
                    let from = dice.below(next.len());
                    let moved = next.remove(from);
                    let to = dice.below(next.len() + 1);
                    next.insert(to, moved);
                }
                2 => {
                    let at = dice.below(next.len());
                    widen(dice, &mut next[at]);
                }
                _ => {
                    let at = dice.below(next.len() + 1);
                    next.insert(at, added(dice));
                }
            }
        }
        for (_, _, cells) in &mut self.rows {
            let now = next.iter().map(|(column, _, origin)| match origin {
                Origin::Column(number) => {
                    follow(&cells[*number as usize], self.columns[*number as usize], *column)
                }
                _ if column.kind == ColumnKind::Virtual => Cell::Nowhere,
                Origin::Constant(None) => Cell::Null,
                Origin::Constant(Some(value)) => Cell::Bytes(value.clone()),
            });
            *cells = now.collect();
        }
        self.columns = next.iter().map(|(column, order, _)| (*column, *order)).collect();
        next.into_iter().map(|(_, _, origin)| origin).collect()
    }
}

fn follow(cell: &Cell, before: (Column, Order), now: Column) -> Cell {
    match (cell, now.kind) {
        (Cell::Bytes(bytes), ColumnKind::Fixed(len)) if bytes.len() < len as usize => {
            Cell::Bytes(widened(bytes, before.1, len as usize))
        }
        _ => cell.clone(),
    }
}

fn widen(dice: &mut Dice, (column, order, origin): &mut (Column, Order, Origin)) {
    if matches!(origin, Origin::Constant(_)) {
        return;
    }
    column.nullable |= dice.chance(50);
    match (&mut column.kind, *order) {
        (ColumnKind::Fixed(len), Order::Int) if *len < 8 => *len += 1 + dice.below(8 - *len as usize) as u16,
        (ColumnKind::Fixed(len), Order::Uint) if *len < 8 => {
            *len += 1 + dice.below(8 - *len as usize) as u16;
            if dice.chance(50) {
                *order = Order::Int;
            }
        }
        (ColumnKind::Padded { len, .. }, _) => *len += dice.below(5) as u16,
        _ => {}
    }
}

fn added(dice: &mut Dice) -> (Column, Order, Origin) {
    let (column, order) = random_column(dice);
    let value = match column.kind {
        ColumnKind::Virtual => None,
        _ if column.nullable && dice.chance(50) => None,
        ColumnKind::Var => {
            let len = dice.below(20);
            Some(random_bytes(dice, len))
        }
        kind => {
            let mut value = random_value(dice, kind);
            if matches!(kind, ColumnKind::Padded { .. }) {
                while value.last() == Some(&PAD) {
                    value.pop();
                }
            }
            Some(value)
        }
    };
    (column, order, Origin::Constant(value))
}

/// Rows of each version in blocks of their own, beside the version they are of.
fn blocks_of(model: &Model, schemas: &[Schema]) -> Vec<(u16, Vec<u8>, Vec<usize>)> {
    let of_version = |schema: &Schema| {
        let mut builder = RowBlockBuilder::new(schema);
        let mut rows = Vec::new();
        for (number, (version, payload, _)) in model.rows.iter().enumerate() {
            if *version == schema.version() {
                let id = RowId::new(1 + 2 * number as u64);
                builder.push(id, Some(payload)).expect("of this schema");
                builder.push(RowId::new(id.raw() + 1), None).expect("a tombstone");
                rows.push(number);
            }
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        (schema.version(), bytes, rows)
    };
    schemas.iter().map(of_version).collect()
}

fn check(model: &Model, versions: &Versions, schemas: &[Schema]) {
    let current = versions.current();
    let expected: Vec<Vec<u8>> = model
        .rows
        .iter()
        .map(|(_, _, cells)| encode(current, cells))
        .collect();
    for (number, (version, payload, _)) in model.rows.iter().enumerate() {
        let mut found = b"before".to_vec();
        versions
            .convert(*version, payload, &mut found)
            .expect("a row of the table");
        assert_eq!(
            found.split_off(6),
            expected[number],
            "row {number} of version {version}"
        );
        let view = RowView::new(current, &expected[number]).expect("just encoded");
        view.check().expect("F27: the one encoding");
    }
    for (version, bytes, rows) in blocks_of(model, schemas) {
        let block = versions.decode_block(&bytes).expect("a block of the table");
        assert_eq!(block.schema_version(), current.version());
        assert_eq!(block.len(), 2 * rows.len(), "version {version}");
        for (at, number) in rows.into_iter().enumerate() {
            assert_eq!(block.row_id(2 * at), RowId::new(1 + 2 * number as u64));
            assert_eq!(block.payload(2 * at), Some(&expected[number][..]));
            assert_eq!(block.payload(2 * at + 1), None);
        }
        let old = RowBlock::decode(versions.schema(version).expect("known"), &bytes).expect("as it was");
        let renewed = versions.convert_block(old).expect("a block of the table");
        assert_eq!(renewed.len(), block.len());
        assert!((0..block.len()).all(|at| renewed.payload(at) == block.payload(at)));
    }
}

fn one_table(seed: u64) {
    let mut dice = Dice(seed);
    let mut model = Model::new(&mut dice);
    let mut schemas = vec![schema_of(1, &model.columns)];
    let mut versions = Versions::new(schemas[0].clone(), Vec::new()).expect("one version");
    let mut stale = versions.clone();
    for version in 1..=2 + dice.below(6) as u16 {
        for _ in 0..dice.below(5) {
            model.insert(&mut dice, version);
        }
        let step = model.alter(&mut dice);
        let next = schema_of(version + 1, &model.columns);
        versions = versions.altered(next.clone(), &step).expect("steps of rule AL4");
        schemas.push(next);
        check(&model, &versions, &schemas);
        through_disk(&versions);
        two_ways(&mut stale, &versions, &model);
    }
}

/// The catalog gives back what it was given.
fn through_disk(versions: &Versions) {
    let list: Vec<OlderSchema> = versions.older().cloned().collect();
    let mut bytes = Vec::new();
    OlderSchema::encode_list(&list, &mut bytes);
    let columns = versions.current().columns().len();
    let decoded = OlderSchema::decode_list(&bytes, columns).expect("just encoded");
    let again = Versions::new(versions.current().clone(), decoded).expect("the same list");
    assert_eq!(&again, versions);
}

/// Rule AL3: what was read before the step, and is read again after it, is what is read at once.
fn two_ways(stale: &mut Versions, versions: &Versions, model: &Model) {
    for (version, payload, _) in &model.rows {
        if stale.schema(*version).is_none() {
            continue;
        }
        let (mut half, mut whole, mut once) = (Vec::new(), Vec::new(), Vec::new());
        stale.convert(*version, payload, &mut half).expect("known before");
        let between = stale.current().version();
        versions.convert(between, &half, &mut whole).expect("known now");
        versions.convert(*version, payload, &mut once).expect("known now");
        assert_eq!(whole, once, "by way of version {between}");
    }
    if versions.current().version().is_multiple_of(2) {
        *stale = versions.clone();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn rows_of_any_version_are_read_as_the_model_has_them(seed in any::<u64>()) {
        one_table(seed);
    }
}

fn column(kind: ColumnKind, nullable: bool) -> Column {
    Column { kind, nullable }
}

fn single(version: u16, kind: ColumnKind, nullable: bool, order: Order) -> Schema {
    schema_of(version, &[(column(kind, nullable), order)])
}

#[test]
fn two_steps_are_one() {
    let int = |version, len| single(version, ColumnKind::Fixed(len), false, Order::Int);
    let versions = Versions::new(int(1, 1), Vec::new()).expect("one version");
    let versions = versions.altered(int(2, 2), &[Origin::Column(0)]).expect("wider");
    // Dropped, and another one added: rows of all versions have the constant.
    let versions = versions
        .altered(int(3, 2), &[Origin::Constant(Some(vec![0xfe, 0xff]))])
        .expect("a constant");
    let versions = versions.altered(int(4, 4), &[Origin::Column(0)]).expect("wider");
    for (version, bytes) in [(1, &[5][..]), (2, &[5, 0]), (3, &[0xfe, 0xff])] {
        let payload = encode(&int(version, bytes.len() as u16), &[Cell::Bytes(bytes.to_vec())]);
        let mut found = Vec::new();
        versions.convert(version, &payload, &mut found).expect("known");
        assert_eq!(found, [0, 0xfe, 0xff, 0xff, 0xff], "-2 in version {version}");
    }
}

#[test]
fn what_cannot_follow_is_refused() {
    let fixed = ColumnKind::Fixed;
    let padded = |len, pad| ColumnKind::Padded { len, pad };
    let cases = [
        (
            (fixed(4), true, Order::Int),
            (fixed(4), false, Order::Int),
            "may be NULL in older rows",
        ),
        (
            (fixed(4), false, Order::Int),
            (fixed(8), false, Order::Uint),
            "another form",
        ),
        (
            (fixed(8), false, Order::Int),
            (fixed(4), false, Order::Int),
            "another form",
        ),
        (
            (fixed(4), false, Order::F32),
            (fixed(8), false, Order::F64),
            "another form",
        ),
        (
            (fixed(4), false, Order::Uint),
            (fixed(4), false, Order::Int),
            "another form",
        ),
        (
            (fixed(4), false, Order::Int),
            (ColumnKind::Var, false, Order::Unknown),
            "another form",
        ),
        (
            (ColumnKind::Virtual, false, Order::Unknown),
            (fixed(4), false, Order::Int),
            "another form",
        ),
        (
            (padded(4, b' '), false, Order::Unknown),
            (padded(3, b' '), false, Order::Unknown),
            "another form",
        ),
        (
            (padded(4, b' '), false, Order::Unknown),
            (padded(4, 0), false, Order::Unknown),
            "another form",
        ),
    ];
    for (before, now, why) in cases {
        let versions =
            Versions::new(single(1, before.0, before.1, before.2), Vec::new()).expect("one version");
        let told = versions
            .altered(single(2, now.0, now.1, now.2), &[Origin::Column(0)])
            .expect_err("no simple step");
        assert!(told.to_string().contains(why), "{before:?} to {now:?}: {told}");
    }
}

#[test]
fn origins_that_give_no_row_are_refused() {
    let versions =
        Versions::new(single(1, ColumnKind::Var, false, Order::Unknown), Vec::new()).expect("one version");
    let next = |nullable| single(2, ColumnKind::Var, nullable, Order::Unknown);
    assert!(
        versions.altered(next(true), &[]).is_err(),
        "AL2: an origin for each column"
    );
    assert!(
        versions.altered(next(true), &[Origin::Column(1)]).is_err(),
        "no such column"
    );
    assert!(
        versions.altered(next(false), &[Origin::Constant(None)]).is_err(),
        "NULL where none may be"
    );
    assert!(
        versions
            .altered(next(true), &[Origin::Constant(Some(vec![0; 8192]))])
            .is_err(),
        "AL5"
    );
    assert!(
        versions
            .altered(next(true), &[Origin::Constant(Some(vec![0; 8191]))])
            .is_ok(),
        "AL5"
    );
    assert!(
        versions
            .altered(
                single(1, ColumnKind::Var, true, Order::Unknown),
                &[Origin::Column(0)]
            )
            .is_err(),
        "AL1"
    );
}

#[test]
#[cfg_attr(
    miri,
    ignore = "makes 255 versions, each with all before it: too many steps to interpret"
)]
fn a_table_has_255_older_versions_and_no_more() {
    let schema = |version| single(version, ColumnKind::Var, true, Order::Unknown);
    let mut versions = Versions::new(schema(1), Vec::new()).expect("one version");
    for version in 2..=256 {
        versions = versions
            .altered(schema(version), &[Origin::Column(0)])
            .expect("AL6: room for one more");
    }
    assert_eq!(versions.older().count(), OLDER_MAX);
    assert!(
        versions.altered(schema(257), &[Origin::Column(0)]).is_err(),
        "AL6"
    );
    let payload = encode(&schema(1), &[Cell::Bytes(b"first".to_vec())]);
    let mut found = Vec::new();
    versions.convert(1, &payload, &mut found).expect("known");
    assert_eq!(found, payload);
    assert!(
        versions.convert(257, &payload, &mut found).is_err(),
        "a version it never had"
    );
}

/// The example of docs/format-rows.md.
fn example() -> Versions {
    let first = single(1, ColumnKind::Fixed(2), false, Order::Unknown);
    let columns = [
        (column(ColumnKind::Var, true), Order::Unknown),
        (column(ColumnKind::Fixed(2), false), Order::Unknown),
        (column(ColumnKind::Fixed(1), false), Order::Unknown),
    ];
    let step = [
        Origin::Constant(None),
        Origin::Column(0),
        Origin::Constant(Some(vec![7])),
    ];
    let versions = Versions::new(first, Vec::new()).expect("one version");
    versions.altered(schema_of(2, &columns), &step).expect("a step")
}

const EXAMPLE: [u8; 20] = [1, 0, 10, 1, 1, 0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2, 1, 7];

#[test]
fn the_list_of_older_schemas_has_these_bytes() {
    let list: Vec<OlderSchema> = example().older().cloned().collect();
    let mut bytes = Vec::new();
    OlderSchema::encode_list(&list, &mut bytes);
    assert_eq!(bytes, EXAMPLE);
    assert_eq!(OlderSchema::decode_list(&bytes, 3).expect("its own bytes"), list);
}

#[test]
fn every_cut_of_the_list_is_told() {
    for len in 0..EXAMPLE.len() {
        assert!(
            OlderSchema::decode_list(&EXAMPLE[..len], 3).is_err(),
            "cut at {len}"
        );
    }
    assert!(
        OlderSchema::decode_list(&[&EXAMPLE[..], &[0]].concat(), 3).is_err(),
        "a byte too many"
    );
    let mut bytes = EXAMPLE;
    bytes[13] = 3;
    assert!(OlderSchema::decode_list(&bytes, 3).is_err(), "no such origin");
    bytes = EXAMPLE;
    bytes[1] = 1;
    assert!(OlderSchema::decode_list(&bytes, 3).is_err(), "257 older schemas");
}

/// Zones of one block of version 1 with a row of each number, as a section has them.
fn zones_of(schema: &Schema, numbers: &[u8]) -> Vec<u8> {
    let mut builder = RowBlockBuilder::new(schema);
    for (at, number) in numbers.iter().enumerate() {
        let payload = encode(schema, &[Cell::Bytes(vec![*number, 0])]);
        builder
            .push(RowId::new(1 + at as u64), Some(&payload))
            .expect("of this schema");
    }
    let mut zones = ZoneBuilder::new(schema);
    zones.push(&builder);
    let mut bytes = Vec::new();
    zones.finish(&mut bytes);
    bytes
}

#[test]
fn zones_of_older_blocks_count_for_columns_that_stay_as_they_were() {
    let first = single(1, ColumnKind::Fixed(2), false, Order::Uint);
    let bytes = zones_of(&first, &[10, 20]);
    let zones = Zones::decode(&bytes, 1).expect("its own bytes");
    let uint = |len| (column(ColumnKind::Fixed(len), false), Order::Uint);
    let versions = Versions::new(first, Vec::new()).expect("one version");
    let step = [Origin::Constant(Some(vec![1, 0])), Origin::Column(0)];
    let moved = versions
        .altered(schema_of(2, &[uint(2), uint(2)]), &step)
        .expect("a column in front");
    let wider = versions
        .altered(schema_of(2, &[uint(4)]), &[Origin::Column(0)])
        .expect("wider");
    let asks = |versions: &Versions, column: usize, value: &[u8]| {
        let mut filter = RowFilter::new(versions.current());
        let is = Condition::Between(Bound::Included(value), Bound::Included(value));
        assert!(filter.add(versions.current(), column, is));
        filter.admits_block(versions, &zones, &bytes, 0)
    };
    assert!(asks(&moved, 1, &[15, 0]), "a row may have it");
    assert!(!asks(&moved, 1, &[9, 0]), "AL9: no row has it");
    assert!(
        asks(&moved, 0, &[9, 0]),
        "nothing is known of the column that was added"
    );
    assert!(
        asks(&wider, 0, &[9, 0, 0, 0]),
        "numbers of wider values are others"
    );
}
