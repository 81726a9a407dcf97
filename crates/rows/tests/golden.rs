//! The bytes of docs/format-rows.md, example by example: a change here is a change of the format.
//!
//! Rules: F21 - F27, X20 - X26 of docs/format-rows.md.

mod support;

use pbxt_base::Addr;
use pbxt_rows::*;
use support::*;

/// The table of the document: an INT, a SMALLINT, two texts, a padded text and a virtual column.
fn example() -> HostLayout {
    let wish = |kind, nullable, stored| Wish {
        kind,
        nullable,
        stored,
        gap: 0,
    };
    place(&[
        wish(HostKind::Fixed(4), false, true),
        wish(HostKind::Fixed(2), true, true),
        wish(HostKind::Blob(2), true, true),
        wish(HostKind::Padded { len: 6, pad: b' ' }, false, true),
        wish(HostKind::Fixed(8), true, false),
        wish(HostKind::Var1(9), true, true),
    ])
}

fn encode(cells: &[Cell], externals: &[External]) -> Vec<u8> {
    let layout = example();
    let codec =
        RowCodec::new(layout.schema(7).expect("six columns"), layout.clone()).expect("its own schema");
    let record = record_of(&layout, cells, 0);
    let mut payload = Vec::new();
    codec
        .encode(host_record(&record), externals, &mut payload)
        .expect("a whole record");
    codec.check(&payload).expect("just encoded");
    payload
}

fn row(text: Cell, number: Cell) -> [Cell; 6] {
    [
        Some(vec![1, 2, 3, 4]),
        number,
        text,
        Some(b"xy".to_vec()),
        Some(vec![9; 8]),
        None,
    ]
}

#[test]
fn a_narrow_row_has_these_bytes() {
    let payload = encode(&row(Some(b"ab".to_vec()), None), &[]);
    let expected: &[&[u8]] = &[
        &[0],
        &[0b101],
        &[1, 2, 3, 4],
        &[0, 0],
        &[2, 0],
        &[4, 0],
        &[4, 0],
        b"ab",
        b"xy",
    ];
    assert_eq!(payload, expected.concat());
    let payload = encode(&row(None, Some(vec![0x34, 0x12])), &[]);
    let expected: &[&[u8]] = &[
        &[0],
        &[0b110],
        &[1, 2, 3, 4],
        &[0x34, 0x12],
        &[0, 0],
        &[2, 0],
        &[2, 0],
        b"xy",
    ];
    assert_eq!(payload, expected.concat());
}

#[test]
fn a_row_with_an_external_value_has_these_bytes() {
    let blob = BlobRef {
        addr: Addr::new(0x0302_0000_0000_0001),
        len: 5000,
        hash: 0x1122_3344_5566_7788,
    };
    let payload = encode(&row(Some(vec![0; 5000]), None), &[External { column: 2, blob }]);
    let reference = [
        1, 0, 0, 0, 0, 0, 2, 3, 0x88, 0x13, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
    ];
    let ends = [24, 0, 26, 0, 26, 0];
    let expected: &[&[u8]] = &[
        &[2],
        &[0b101],
        &[1, 2, 3, 4],
        &[0, 0],
        &[1],
        &ends,
        &reference,
        b"xy",
    ];
    assert_eq!(payload, expected.concat());
    assert_eq!(BlobRef::from_bytes(&reference), blob);
}

#[test]
#[cfg_attr(miri, ignore = "64 KiB byte by byte")]
fn a_wide_row_has_these_bytes() {
    let payload = encode(&row(Some(vec![0xAB; 65_535]), None), &[]);
    let ends = [0xFF, 0xFF, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0];
    let head: &[&[u8]] = &[
        &[1],
        &[0b101],
        &[1, 2, 3, 4],
        &[0, 0],
        &ends,
        &vec![0xAB; 65_535],
        b"xy",
    ];
    assert_eq!(payload, head.concat());
}

#[test]
fn a_schema_has_these_bytes() {
    let mut image = Vec::new();
    example().schema(0x0107).expect("six columns").encode(&mut image);
    let columns = [
        [0, 0, 4, 0, 0],
        [0, 1, 2, 0, 0],
        [1, 1, 0, 0, 0],
        [2, 0, 6, 0, b' '],
        [3, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
    ];
    assert_eq!(
        image,
        [[1, 7, 1, 6, 0].as_slice(), columns.concat().as_slice()].concat()
    );
}

#[test]
fn orders_stand_beside_the_kinds_of_columns() {
    let column = |kind| Column {
        kind,
        nullable: false,
    };
    let columns = vec![
        column(ColumnKind::Fixed(8)),
        column(ColumnKind::Fixed(4)),
        column(ColumnKind::Var),
    ];
    let orders = [Order::F64, Order::Int, Order::Bytes];
    let schema = Schema::new(2, columns.clone()).expect("three columns");
    let ordered = schema.clone().with_orders(&orders).expect("orders that fit");
    let mut image = Vec::new();
    ordered.encode(&mut image);
    let columns = [[0x40, 0, 8, 0, 0], [0x20, 0, 4, 0, 0], [0x51, 0, 0, 0, 0]];
    assert_eq!(image, [&[1, 2, 0, 3, 0], columns.concat().as_slice()].concat());
    assert_eq!(Schema::decode(&image).expect("its own bytes"), ordered);
    assert_ne!(schema, ordered);
    image[5] = 0x60;
    assert!(Schema::decode(&image).is_err(), "there is no order 6");
    image[5] = 0x30;
    assert!(Schema::decode(&image).is_err(), "a single has 4 bytes, not 8");
}

/// Encoding, value, key image, unpack information.
type Number<'a> = (KeyEncoding, &'a [u8], &'a [u8], &'a [u8]);
/// Column, part, value, key image, unpack information.
type Text<'a> = (HostKind, KeyPart, &'a [u8], &'a [u8], &'a [u8]);
/// Column, part, value or NULL, key image.
type Marked<'a> = (HostKind, KeyPart, Option<&'a [u8]>, &'a [u8]);

fn part(column: u16, length: u32, encoding: KeyEncoding) -> KeyPart {
    KeyPart {
        column,
        length,
        prefix: false,
        nullable: false,
        descending: false,
        encoding,
    }
}

fn pad_space(len: u8) -> KeyEncoding {
    let mut weight = [0; 8];
    weight[len as usize - 1] = b' ';
    KeyEncoding::Host {
        collation: 0x2D,
        scheme: WeightScheme::PadSpace { weight, len },
    }
}

#[test]
fn a_key_specification_has_these_bytes() {
    let host = |scheme| KeyEncoding::Host { collation: 8, scheme };
    let parts = vec![
        part(0, 4, KeyEncoding::Int),
        KeyPart {
            nullable: true,
            descending: true,
            ..part(1, 2, KeyEncoding::Uint)
        },
        KeyPart {
            prefix: true,
            nullable: true,
            ..part(2, 40, KeyEncoding::VarBinary)
        },
        part(3, 6, pad_space(2)),
        part(3, 6, host(WeightScheme::NoPad)),
        part(3, 6, host(WeightScheme::FixedLen(300))),
        part(6, 8, KeyEncoding::F64),
        part(7, 4, KeyEncoding::F32),
        part(0x0108, 5, KeyEncoding::Raw),
    ];
    let mut image = Vec::new();
    KeySpec::new(parts, true)
        .expect("parts that fit")
        .encode(&mut image);
    let expected: &[&[u8]] = &[
        &[1, 1, 9],
        &[0, 0, 4, 0, 0, 0, 0, 1],
        &[1, 0, 2, 0, 0, 0, 6, 0],
        &[2, 0, 40, 0, 0, 0, 3, 5],
        &[3, 0, 6, 0, 0, 0, 0, 8, 0x2D, 0, 0, 0, 2, 0, b' '],
        &[3, 0, 6, 0, 0, 0, 0, 7, 8, 0, 0, 0],
        &[3, 0, 6, 0, 0, 0, 0, 6, 8, 0, 0, 0, 0x2C, 1, 0, 0],
        &[6, 0, 8, 0, 0, 0, 0, 3],
        &[7, 0, 4, 0, 0, 0, 0, 2],
        &[8, 1, 5, 0, 0, 0, 0, 4],
    ];
    assert_eq!(image, expected.concat());
}

#[test]
fn a_key_specification_with_an_extension_has_these_bytes() {
    let parts = vec![
        part(2, 2, KeyEncoding::Uint),
        part(0, 4, KeyEncoding::Int),
        part(1, 1, KeyEncoding::Uint),
    ];
    let spec = KeySpec::new(parts.clone(), false).expect("parts that fit");
    let extended = spec
        .clone()
        .with_extension(2)
        .expect("two parts of a primary key");
    let mut image = Vec::new();
    extended.encode(&mut image);
    let expected: &[&[u8]] = &[
        &[2, 0, 3, 1], // format, no unpack information, parts, declared
        &[2, 0, 2, 0, 0, 0, 0, 0],
        &[0, 0, 4, 0, 0, 0, 0, 1],
        &[1, 0, 1, 0, 0, 0, 0, 0],
    ];
    assert_eq!(image, expected.concat());
    assert_eq!(KeySpec::decode(&image).expect("golden bytes"), extended);
    assert_eq!((extended.declared(), extended.suffix_bytes()), (&parts[..1], 5));
    assert_ne!(extended, spec, "an index without an extension is another one");
    assert_eq!(
        extended.bare(),
        KeySpec::new(parts[..1].to_vec(), false).expect("a part")
    );
    assert_eq!(spec.bare(), spec);
    for declared in [0, 4] {
        image[3] = declared;
        assert!(KeySpec::decode(&image).is_err(), "{declared} of 3 parts declared");
    }
}

#[test]
fn only_whole_columns_that_are_never_null_extend_an_index() {
    let text = part(1, 9, KeyEncoding::VarBinary);
    let lends = |last: KeyPart| {
        KeySpec::new(vec![part(0, 4, KeyEncoding::Int), last], true)
            .expect("parts")
            .with_extension(1)
    };
    assert!(lends(KeyPart { prefix: true, ..text }).is_err());
    assert!(
        lends(KeyPart {
            nullable: true,
            ..text
        })
        .is_err()
    );
    assert_eq!(
        lends(text).expect("a whole column").suffix_bytes(),
        0,
        "texts have no suffix of one length"
    );
    let spec = KeySpec::new(vec![text], false).expect("a part");
    assert!(spec.with_extension(1).is_err(), "nothing declared is left");
}

/// Every byte is a character whose weight is its upper case, in units of as many bytes as the context says.
struct UpperCase;

impl Weigher for UpperCase {
    fn weights(&self, part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        for character in src.to_ascii_uppercase() {
            out.extend(std::iter::repeat_n(0, part_ctx - 1));
            out.push(character);
        }
    }
}

/// Key and unpack information of one value in a table of one column.
fn entry(kind: HostKind, part: KeyPart, value: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let layout = place(&[Wish {
        kind,
        nullable: part.nullable,
        stored: true,
        gap: 0,
    }]);
    let unit = match part.encoding {
        KeyEncoding::Host {
            scheme: WeightScheme::PadSpace { len, .. },
            ..
        } => len as usize,
        _ => 1,
    };
    let maker =
        KeyMaker::new(&KeySpec::new(vec![part], true).expect("fits"), &layout, &[unit]).expect("fits");
    let cells = [value.map(<[u8]>::to_vec)];
    let record = record_of(&layout, &cells, 0);
    let (mut key, mut unpack) = (Vec::new(), Vec::new());
    maker
        .key_from_record(host_record(&record), &UpperCase, &mut key)
        .expect("a whole record");
    maker
        .unpack_from_record(host_record(&record), &mut unpack)
        .expect("a whole record");
    (key, unpack)
}

#[test]
fn numbers_have_these_images() {
    use KeyEncoding::{F32, F64, Int, Uint};
    let cases: &[Number<'_>] = &[
        (Uint, &[0x34, 0x12], &[0x12, 0x34], &[]),
        (Uint, &[1, 2, 3], &[3, 2, 1], &[]),
        (Int, &[1, 0, 0, 0], &[0x80, 0, 0, 1], &[]),
        (Int, &[0xFF, 0xFF, 0xFF, 0xFF], &[0x7F, 0xFF, 0xFF, 0xFF], &[]),
        (F64, &1.0_f64.to_le_bytes(), &[0xBF, 0xF0, 0, 0, 0, 0, 0, 0], &[0]),
        (
            F64,
            &(-1.0_f64).to_le_bytes(),
            &[0x40, 0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0],
        ),
        (F64, &0.0_f64.to_le_bytes(), &[0x80, 0, 0, 0, 0, 0, 0, 0], &[0]),
        (F64, &(-0.0_f64).to_le_bytes(), &[0x80, 0, 0, 0, 0, 0, 0, 0], &[1]),
        (F32, &1.0_f32.to_le_bytes(), &[0xBF, 0x80, 0, 0], &[0]),
        (F32, &(-2.0_f32).to_le_bytes(), &[0x3F, 0xFF, 0xFF, 0xFF], &[0]),
        (F32, &(-0.0_f32).to_le_bytes(), &[0x80, 0, 0, 0], &[1]),
    ];
    for &(encoding, value, image, unpack) in cases {
        let width = value.len();
        let made = entry(
            HostKind::Fixed(width as u16),
            part(0, width as u32, encoding),
            Some(value),
        );
        assert_eq!(
            made,
            (image.to_vec(), unpack.to_vec()),
            "{encoding:?} {value:02x?}"
        );
    }
}

#[test]
fn strings_have_these_images() {
    let text = HostKind::Var1(20);
    let padded = HostKind::Padded { len: 4, pad: b' ' };
    let whole = |encoding| part(0, 20, encoding);
    let host = |scheme| whole(KeyEncoding::Host { collation: 8, scheme });
    let cases: &[Text<'_>] = &[
        (text, whole(KeyEncoding::VarBinary), b"", &[0, 0], &[]),
        (
            text,
            whole(KeyEncoding::VarBinary),
            b"a\0b",
            &[b'a', 0, 0xFF, b'b', 0, 0],
            &[],
        ),
        (padded, part(0, 4, KeyEncoding::Raw), b"ab", b"ab  ", &[]),
        (text, host(WeightScheme::FixedLen(2)), b"ab", b"AB", b"\x02ab"),
        (text, host(WeightScheme::NoPad), b"ab", b"AB\0\0", b"\x02ab"),
        (text, whole(pad_space(1)), b"", b"        \x02", b"\x00"),
        (text, whole(pad_space(1)), b"ab ", b"AB      \x02", b"\x03ab "),
        (
            text,
            whole(pad_space(1)),
            b"abcdefgh",
            b"ABCDEFGH\x02",
            b"\x08abcdefgh",
        ),
        (
            text,
            whole(pad_space(1)),
            b"abcdefghi",
            b"ABCDEFGH\x03I       \x02",
            b"\x09abcdefghi",
        ),
        (
            text,
            whole(pad_space(1)),
            b"abcdefgh\x01",
            b"ABCDEFGH\x01\x01       \x02",
            b"\x09abcdefgh\x01",
        ),
        (text, whole(pad_space(2)), b"ab", b"\0A\0B\0 \0 \x02", b"\x02ab"),
        (
            text,
            whole(pad_space(3)),
            b"abc",
            b"\0\0A\0\0B\x03\0\0C\0\0 \x02",
            b"\x03abc",
        ),
    ];
    for &(kind, part, value, image, unpack) in cases {
        let made = entry(kind, part, Some(value));
        assert_eq!(made, (image.to_vec(), unpack.to_vec()), "{part:?} {value:02x?}");
    }
}

#[test]
fn null_prefix_and_descending_parts_have_these_images() {
    let text = HostKind::Var1(20);
    let nullable = KeyPart {
        nullable: true,
        ..part(0, 2, KeyEncoding::Uint)
    };
    let downwards = KeyPart {
        descending: true,
        ..nullable
    };
    let prefix = KeyPart {
        prefix: true,
        ..part(0, 2, KeyEncoding::VarBinary)
    };
    let host_prefix = KeyPart {
        prefix: true,
        ..part(0, 2, pad_space(1))
    };
    let number: &[u8] = &[0x34, 0x12];
    let cases: &[Marked<'_>] = &[
        (HostKind::Fixed(2), nullable, None, &[0]),
        (HostKind::Fixed(2), nullable, Some(number), &[1, 0x12, 0x34]),
        (HostKind::Fixed(2), downwards, None, &[0xFF]),
        (HostKind::Fixed(2), downwards, Some(number), &[0xFE, 0xED, 0xCB]),
        (text, prefix, Some(b"abc"), b"ab\0\0"),
        (text, host_prefix, Some(b"ab"), b"AB      \x02"),
    ];
    for &(kind, part, value, image) in cases {
        assert_eq!(
            entry(kind, part, value),
            (image.to_vec(), Vec::new()),
            "{part:?} {value:02x?}"
        );
    }
}
