//! The bytes of row blocks as docs/format-rows.md gives them, worked out by hand: a change here is a change of the format.
//!
//! Rules: F30 - F34 of docs/format-rows.md.

use pbxt_base::RowId;
use pbxt_rows::*;

fn column(kind: ColumnKind, nullable: bool) -> Column {
    Column { kind, nullable }
}

fn schema(version: u16, columns: &[Column]) -> Schema {
    Schema::new(version, columns.to_vec()).expect("few columns")
}

fn payload(schema: &Schema, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut builder = RowBuilder::new(schema);
    for (column, value) in values.iter().enumerate() {
        builder.set(column, *value).expect("fits its column");
    }
    let mut payload = Vec::new();
    builder.finish(&mut payload).expect("every column is set");
    payload
}

fn assert_block(schema: &Schema, bytes: &[u8], rows: &[(u64, Option<Vec<u8>>)]) {
    let block = RowBlock::decode(schema, bytes).expect("the document's own bytes");
    assert_eq!(block.len(), rows.len());
    for (index, (row, payload)) in rows.iter().enumerate() {
        assert_eq!(block.row_id(index), RowId::new(*row));
        assert_eq!(block.payload(index), payload.as_deref(), "row {row}");
    }
}

/// The example of the document: four rows, one of them deleted.
#[test]
fn a_row_block_has_these_bytes() {
    let schema = schema(
        7,
        &[
            column(ColumnKind::Fixed(4), false),
            column(ColumnKind::Fixed(2), true),
            column(ColumnKind::Var, true),
        ],
    );
    let row = |number: u32, small: Option<[u8; 2]>, text: &[u8]| {
        let small = small.as_ref().map(|bytes| &bytes[..]);
        Some(payload(
            &schema,
            &[Some(&number.to_le_bytes()), small, Some(text)],
        ))
    };
    let rows = [
        (10, row(1, Some([0xF4, 1]), b"ab")),
        (11, row(2, None, b"ab")),
        (12, None),
        (13, row(3, Some([0xF7, 1]), b"cde")),
    ];
    let expected = [
        &[1, 2, 7, 0, 4, 10, 37, 0][..],
        &[4],
        &[0, 0, 0],
        &[0, 0, 1, 0b010],
        &[0, 1, 2, 0b10_01_00],
        &[0x10, 0xF4, 3, 2, 0b11_00_00],
        &[3, 0, 2, 1, 0b100, 0],
        b"ababcde",
    ]
    .concat();
    let mut builder = RowBlockBuilder::new(&schema);
    for (row, payload) in &rows {
        builder
            .push(RowId::new(*row), payload.as_deref())
            .expect("a payload of the schema");
    }
    let mut bytes = Vec::new();
    assert_eq!(builder.finish(&mut bytes), 0);
    assert_eq!(bytes, expected);
    assert_block(&schema, &expected, &rows);
}

#[test]
fn a_row_block_with_an_external_value_has_these_bytes() {
    let schema = schema(1, &[column(ColumnKind::Var, false)]);
    let reference: Vec<u8> = (1..=24).collect();
    let payload = [&[2, 1, 24, 0][..], &reference].concat();
    let expected = [
        &[1, 0, 1, 0, 1, 5, 28, 0][..],
        &[0, 2, 0],
        &[0, 1, 0],
        &[0, 0],
        &reference,
    ]
    .concat();
    let mut builder = RowBlockBuilder::new(&schema);
    builder
        .push(RowId::new(5), Some(&payload))
        .expect("a payload of the schema");
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    assert_eq!(bytes, expected);
    assert_block(&schema, &expected, &[(5, Some(payload))]);
}

/// Every form once, and gaps between row ids.
#[test]
fn every_form_of_a_column_is_read_from_these_bytes() {
    let (fixed, text) = (
        column(ColumnKind::Fixed(2), false),
        column(ColumnKind::Var, false),
    );
    let schema = schema(1, &[fixed, fixed, fixed, fixed, text, text, text, text]);
    let row = |numbers: [u16; 4], texts: [&[u8]; 4]| {
        let numbers = numbers.map(u16::to_le_bytes);
        let fixed = numbers.iter().map(|number| Some(&number[..]));
        let values: Vec<_> = fixed.chain(texts.into_iter().map(Some)).collect();
        Some(payload(&schema, &values))
    };
    let rows = [
        (5, row([100, 300, 0x0001, 0x0001], [b"yz", b"p", b"ab", b"hi"])),
        (6, row([97, 5, 0x0101, 0x0101], [b"x", b"p", b"", b"hi"])),
        (9, row([94, 300, 0x0201, 0x0001], [b"x", b"q", b"c", b"hi"])),
        (10, row([93, 5, 0x0301, 0x0101], [b"yz", b"q", b"cab", b"hi"])),
    ];
    let steps = [1, 100, 0xFD, 0xFF, 3, 2, 0b10_00_00];
    let dictionary = [10, 1, 2, 1, 73];
    let planes = [3, 0, 1, 0, 0, 0, 2, 0b11_10_01_00];
    let swapped = [4, 0x80, 2, 1, 0b1010];
    let codes = [&[1, 2, 0, 1, 1, 0b10, 0][..], b"xyz", &[0, 0, 1, 0b1001]].concat();
    let new_or_code = [2, 2, 0, 1, 0, 0, b'p', b'q', 0, 0, 1, 0b0101, 0, 0, 1, 0b10];
    let letters = [3, 0, 0, 2, 0b11_01_00_10, 3, 3, b'a', b'b', b'c'];
    let constant = [0, 2, b'h', b'i'];
    let bytes = [
        &[1, 1, 1, 0, 4, 5, 92, 4][..],
        &[0, 0, 2, 0b00_10_00],
        &[0, 0, 0],
        &steps,
        &dictionary,
        &planes,
        &swapped,
        &codes,
        &new_or_code,
        &letters,
        &constant,
        &[0b00_001_100, 0b0011, 0b10_10_01_00, 0b01_00],
    ]
    .concat();
    assert_block(&schema, &bytes, &rows);
}

#[test]
fn letters_in_groups_are_read_from_these_bytes() {
    let schema = schema(1, &[column(ColumnKind::Var, false)]);
    let texts: [&[u8]; 3] = [b"ab", b"ca", b"b"];
    let rows = [5, 6, 7].into_iter().zip(texts);
    let rows: Vec<_> = rows
        .map(|(id, text)| (id, Some(payload(&schema, &[Some(text)]))))
        .collect();
    // Places 0, 1, 2 and 0, 1 to the base of 3, five bits each.
    let groups = [0b011_10101, 0];
    let letters = [&[3, 0, 1, 1, 0b011, 5, 3][..], b"abc", &groups].concat();
    let head = &[1, 0, 1, 0, 3, 5, 14, 0, 0, 0, 0][..];
    assert_block(&schema, &[head, &letters].concat(), &rows);
    // Two letters take a bit each, in groups or not.
    let two = [&[3, 0, 1, 1, 0b011, 5, 2][..], b"ab", &[0b01101]].concat();
    let refused = RowBlock::decode(&schema, &[head, &two].concat()).expect_err("no groups");
    assert!(refused.to_string().contains("groups only where"), "{refused}");
}
