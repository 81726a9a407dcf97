//! Zones and filters: numbers order as values do, zones cover their blocks, filters turn away only what does not meet them.
//!
//! Rules: F20, F35 - F37 of docs/format-rows.md.

use pbxt_base::RowId;
use pbxt_rows::*;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::ops::Bound;

/// A value with all it takes to compare it without the code under test.
#[derive(Clone, Debug)]
enum Sample {
    Uint(u64, u16),
    Int(i64, u16),
    F32(f32),
    F64(f64),
    /// Fixed length, variable length.
    Fixed(Vec<u8>),
    Var(Vec<u8>),
}

impl Sample {
    fn kind(&self) -> ColumnKind {
        match self {
            Self::Uint(_, width) | Self::Int(_, width) => ColumnKind::Fixed(*width),
            Self::F32(_) => ColumnKind::Fixed(4),
            Self::F64(_) => ColumnKind::Fixed(8),
            Self::Fixed(bytes) => ColumnKind::Fixed(bytes.len() as u16),
            Self::Var(_) => ColumnKind::Var,
        }
    }

    fn order(&self) -> Order {
        match self {
            Self::Uint(..) => Order::Uint,
            Self::Int(..) => Order::Int,
            Self::F32(_) => Order::F32,
            Self::F64(_) => Order::F64,
            Self::Fixed(_) | Self::Var(_) => Order::Bytes,
        }
    }

    fn stored(&self) -> Vec<u8> {
        match self {
            Self::Uint(number, width) => number.to_le_bytes()[..*width as usize].to_vec(),
            Self::Int(number, width) => number.to_le_bytes()[..*width as usize].to_vec(),
            Self::F32(number) => number.to_le_bytes().to_vec(),
            Self::F64(number) => number.to_le_bytes().to_vec(),
            Self::Fixed(bytes) | Self::Var(bytes) => bytes.clone(),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Uint(a, _), Self::Uint(b, _)) => a.cmp(b),
            (Self::Int(a, _), Self::Int(b, _)) => a.cmp(b),
            (Self::F32(a), Self::F32(b)) => a.partial_cmp(b).expect("no NaN"),
            (Self::F64(a), Self::F64(b)) => a.partial_cmp(b).expect("no NaN"),
            (Self::Fixed(a), Self::Fixed(b)) | (Self::Var(a), Self::Var(b)) => a.cmp(b),
            _ => panic!("samples of one column have one type"),
        }
    }
}

fn schema_of(sample: &Sample, nullable: bool) -> Schema {
    let kind = sample.kind();
    let schema = Schema::new(3, vec![Column { kind, nullable }]).expect("one column");
    schema.with_orders(&[sample.order()]).expect("its own order")
}

fn payload(schema: &Schema, value: Option<&[u8]>) -> Vec<u8> {
    let mut builder = RowBuilder::new(schema);
    builder.set(0, value).expect("fits its column");
    let mut payload = Vec::new();
    builder.finish(&mut payload).expect("every column is set");
    payload
}

/// Some values of one type, close to each other and far apart.
fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let uint = (1..=8_u16, prop::collection::vec(any::<u64>(), 1..12), 0..64_u32);
    let uint = uint.prop_map(|(width, numbers, shift)| {
        let mask = u64::MAX >> (64 - 8 * width);
        let numbers = numbers.into_iter().map(|number| number >> shift & mask);
        numbers.map(|number| Sample::Uint(number, width)).collect()
    });
    let int = (1..=8_u16, prop::collection::vec(any::<i64>(), 1..12), 0..64_u32);
    let int = int.prop_map(|(width, numbers, shift)| {
        let unused = 64 - 8 * width;
        let numbers = numbers
            .into_iter()
            .map(|number| number >> shift << unused >> unused);
        numbers.map(|number| Sample::Int(number, width)).collect()
    });
    let single = prop_oneof![
        any::<f32>().prop_filter("no NaN", |number| !number.is_nan()),
        Just(0.0_f32),
        Just(-0.0_f32),
        Just(f32::INFINITY),
        Just(f32::NEG_INFINITY)
    ];
    let double = prop_oneof![
        any::<f64>().prop_filter("no NaN", |number| !number.is_nan()),
        Just(0.0_f64),
        Just(-0.0_f64),
        -3.0..3.0_f64
    ];
    let bytes = || prop::collection::vec(0..3_u8, 0..12);
    let fixed = (
        1..12_usize,
        prop::collection::vec(prop::collection::vec(0..3_u8, 12), 1..12),
    );
    prop_oneof![
        uint,
        int,
        prop::collection::vec(single.prop_map(Sample::F32), 1..12),
        prop::collection::vec(double.prop_map(Sample::F64), 1..12),
        fixed.prop_map(|(len, rows)| rows
            .into_iter()
            .map(|row| Sample::Fixed(row[..len].to_vec()))
            .collect()),
        prop::collection::vec(bytes().prop_map(Sample::Var), 1..12),
    ]
}

#[derive(Clone, Copy, Debug)]
enum End {
    Open,
    With,
    Without,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Open), Just(End::With), Just(End::Without)]
}

fn bound(end: End, value: &[u8]) -> Bound<&[u8]> {
    match end {
        End::Open => Bound::Unbounded,
        End::With => Bound::Included(value),
        End::Without => Bound::Excluded(value),
    }
}

/// What SQL says of `low <(=) value <(=) high`.
fn is_between(value: &Sample, low: (End, &Sample), high: (End, &Sample)) -> bool {
    let above = matches!(
        (low.0, value.compare(low.1)),
        (End::Open, _) | (_, Ordering::Greater) | (End::With, Ordering::Equal)
    );
    let below = matches!(
        (high.0, value.compare(high.1)),
        (End::Open, _) | (_, Ordering::Less) | (End::With, Ordering::Equal)
    );
    above && below
}

/// True if what is turned away can be told exactly: the value has at most the bytes that count.
fn is_exact(sample: &Sample) -> bool {
    !matches!(sample, Sample::Var(_)) && sample.stored().len() <= 8
}

fn section(schema: &Schema, blocks: &[Vec<Option<Vec<u8>>>]) -> Vec<u8> {
    let mut zones = ZoneBuilder::new(schema);
    let mut row = 0;
    for rows in blocks {
        let mut block = RowBlockBuilder::new(schema);
        for payload in rows {
            row += 1;
            block
                .push(RowId::new(row), payload.as_deref())
                .expect("rising rows");
        }
        zones.push(&block);
    }
    let mut bytes = b"before".to_vec();
    zones.finish(&mut bytes);
    bytes.split_off(6)
}

proptest! {
    /// F35, F37: a filter agrees with the comparison of the values; it lets more through only where values are long.
    #[test]
    fn filters_agree_with_the_values((values, low_end, high_end, low, high) in (samples(), end(), end(), any::<prop::sample::Index>(), any::<prop::sample::Index>())) {
        let (low, high) = (low.get(&values), high.get(&values));
        for nullable in [false, true] {
            let schema = schema_of(&values[0], nullable);
            let mut filter = RowFilter::new(&schema);
            let (low_bytes, high_bytes) = (low.stored(), high.stored());
            let condition = Condition::Between(bound(low_end, &low_bytes), bound(high_end, &high_bytes));
            prop_assert!(filter.add(&schema, 0, condition));
            for value in &values {
                let wanted = is_between(value, (low_end, low), (high_end, high));
                let admitted = filter.admits(&payload(&schema, Some(&value.stored())), 3);
                prop_assert!(admitted || !wanted, "{value:?} was turned away");
                prop_assert!(!admitted || wanted || !is_exact(value), "{value:?} was let through");
                prop_assert!(filter.admits(&payload(&schema, Some(&value.stored())), 4), "another schema version");
            }
            if nullable {
                prop_assert!(!filter.admits(&payload(&schema, None), 3));
            }
        }
    }

    /// F36, F37: a block that is turned away has no row that is not.
    #[test]
    fn zones_cover_their_blocks((values, low, high, holes) in (samples(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(0..8_u8, 12))) {
        let (low, high) = (low.get(&values).stored(), high.get(&values).stored());
        let schema = schema_of(&values[0], true);
        let rows = values.iter().zip(&holes).map(|(value, hole)| match hole {
            0 => None,
            1 | 2 => Some(payload(&schema, None)),
            _ => Some(payload(&schema, Some(&value.stored()))),
        });
        let rows: Vec<_> = rows.collect();
        let blocks: Vec<_> = rows.chunks(3).map(<[_]>::to_vec).collect();
        let bytes = section(&schema, &blocks);
        let zones = Zones::decode(&bytes, blocks.len()).expect("its own bytes");
        let conditions = [
            Condition::IsNull,
            Condition::IsNotNull,
            Condition::Between(Bound::Included(&low), Bound::Included(&high)),
            Condition::Between(Bound::Excluded(&low), Bound::Unbounded),
            Condition::Between(Bound::Unbounded, Bound::Excluded(&high)),
        ];
        let versions = Versions::new(schema.clone(), Vec::new()).expect("one version");
        for condition in conditions {
            let mut filter = RowFilter::new(&schema);
            prop_assert!(filter.add(&schema, 0, condition));
            for (number, rows) in blocks.iter().enumerate() {
                let some_row = rows.iter().flatten().any(|row| filter.admits(row, 3));
                let admitted = filter.admits_block(&versions, &zones, &bytes, number);
                prop_assert!(admitted || !some_row, "{condition:?} turns away block {number}: {rows:?}");
                if rows.len() == 1 && !matches!(values[0], Sample::Var(_)) {
                    prop_assert_eq!(admitted, some_row, "a zone of one row tells all");
                }
            }
        }
    }

    /// F20.
    #[test]
    fn any_bytes_give_zones_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64), blocks in 0..5_usize) {
        if let Ok(zones) = Zones::decode(&bytes, blocks) {
            for column in zones.columns().collect::<Vec<_>>() {
                for block in 0..blocks + 2 {
                    prop_assert_eq!(zones.zone(&bytes, block, column).is_some(), block < blocks);
                }
            }
        }
    }
}

/// The example of docs/format-rows.md.
#[test]
fn zones_have_these_bytes() {
    let fixed = |nullable| Column {
        kind: ColumnKind::Fixed(2),
        nullable,
    };
    let text = |nullable| Column {
        kind: ColumnKind::Var,
        nullable,
    };
    let schema = Schema::new(7, vec![fixed(true), text(false), text(true)]).expect("three columns");
    let schema = schema.with_orders(&[Order::Int]).expect("a number of two bytes");
    let row = |number: Option<i16>, note: Option<&[u8]>| {
        let mut builder = RowBuilder::new(&schema);
        let number = number.map(i16::to_le_bytes);
        builder
            .set(0, number.as_ref().map(|bytes| &bytes[..]))
            .expect("fits");
        builder.set(1, Some(b"text")).expect("fits");
        builder.set(2, note).expect("fits");
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("every column is set");
        Some(payload)
    };
    let blocks = [
        vec![row(Some(-2), Some(b"a")), row(Some(300), None), None],
        vec![row(None, None), row(None, None)],
    ];
    let bytes = section(&schema, &blocks);
    let expected = [
        &[7, 0, 2, 0, 2, 2, 0][..],
        &[2, 0x7F, 0xFE, 0x81, 0x2C, 3],
        &[1, 0, 0, 0, 0, 1],
    ];
    assert_eq!(bytes, expected.concat());
    let zones = Zones::decode(&bytes, 2).expect("its own bytes");
    assert_eq!(
        (zones.schema_version(), zones.columns().collect::<Vec<_>>()),
        (7, vec![0, 2])
    );
    let number = |number: u64| number << 48;
    let zone = |has_null, values| Some(Zone { has_null, values });
    assert_eq!(
        zones.zone(&bytes, 0, 0),
        zone(false, Some((number(0x7FFE), number(0x812C))))
    );
    assert_eq!(zones.zone(&bytes, 0, 1), None);
    assert_eq!(zones.zone(&bytes, 0, 2), zone(true, Some((0, u64::MAX))));
    assert_eq!(zones.zone(&bytes, 1, 0), zone(true, None));
    assert_eq!(zones.zone(&bytes, 2, 0), None);
    assert!(Zones::decode(&bytes, 1).is_err() && Zones::decode(&bytes[..18], 2).is_err());
}

#[test]
fn extra_bytes_of_a_section_have_these_bytes() {
    let kind = ColumnKind::Fixed(1);
    let schema = Schema::new(
        1,
        vec![Column {
            kind,
            nullable: false,
        }],
    )
    .expect("one column");
    let schema = schema.with_orders(&[Order::Uint]).expect("a number");
    let mut zones = ZoneBuilder::new(&schema);
    let mut block = RowBlockBuilder::new(&schema);
    for value in [4, 9] {
        let row = Some(payload(&schema, Some(&[value])));
        block
            .push(RowId::new(value as u64), row.as_deref())
            .expect("rising rows");
    }
    zones.push(&block);
    let bytes = SectionExtra::encode(b"set", &mut zones);
    assert_eq!(bytes, *b"\x01\x03set\x01\x00\x01\x00\x01\x02\x04\x09");
    let extra = SectionExtra::decode(&bytes, 1).expect("its own bytes");
    let zone = extra.zones.zone(&bytes, 0, 0).expect("a column with zones");
    assert_eq!((extra.rows, zone.values), (&b"set"[..], Some((4 << 56, 9 << 56))));
    for cut in 0..bytes.len() {
        assert!(SectionExtra::decode(&bytes[..cut], 1).is_err(), "{cut} bytes");
    }
    assert!(SectionExtra::decode(&bytes, 2).is_err());
}

#[test]
fn what_the_core_cannot_compare_is_not_taken() {
    let column = |kind| Column { kind, nullable: true };
    let schema = Schema::new(
        1,
        vec![
            column(ColumnKind::Var),
            column(ColumnKind::Virtual),
            column(ColumnKind::Fixed(4)),
        ],
    );
    let schema = schema
        .expect("three columns")
        .with_orders(&[Order::Unknown, Order::Unknown, Order::Uint]);
    let schema = schema.expect("orders that fit");
    let mut filter = RowFilter::new(&schema);
    let (text, number) = (Bound::Included(&b"a"[..]), Bound::Included(&[1, 0, 0, 0][..]));
    assert!(
        !filter.add(&schema, 0, Condition::Between(text, Bound::Unbounded)),
        "order not known"
    );
    assert!(!filter.add(&schema, 1, Condition::IsNull), "not stored");
    assert!(
        !filter.add(&schema, 2, Condition::Between(text, Bound::Unbounded)),
        "no value of the column"
    );
    assert!(!filter.add(&schema, 3, Condition::IsNull), "no such column");
    assert!(filter.is_empty());
    assert!(filter.add(&schema, 2, Condition::Between(number, Bound::Unbounded)));
    assert!(filter.add(&schema, 0, Condition::IsNotNull) && !filter.is_empty());
}

/// A value that is stored elsewhere is not known here.
#[test]
fn values_outside_the_row_are_let_through() {
    let kind = ColumnKind::Var;
    let schema = Schema::new(
        1,
        vec![Column {
            kind,
            nullable: false,
        }],
    )
    .expect("one column");
    let schema = schema.with_orders(&[Order::Bytes]).expect("bytes");
    let mut builder = RowBuilder::new(&schema);
    let blob = BlobRef {
        addr: pbxt_base::Addr::BASE,
        len: 100,
        hash: 1,
    };
    builder
        .set_external(0, blob)
        .expect("a column of variable length");
    let mut payload = Vec::new();
    builder.finish(&mut payload).expect("every column is set");
    let mut filter = RowFilter::new(&schema);
    let low = Bound::Included(&b"m"[..]);
    assert!(filter.add(&schema, 0, Condition::Between(low, low)));
    assert!(filter.admits(&payload, 1));
    let bytes = section(&schema, &[vec![Some(payload)]]);
    let zones = Zones::decode(&bytes, 1).expect("its own bytes");
    let versions = Versions::new(schema, Vec::new()).expect("one version");
    assert!(filter.admits_block(&versions, &zones, &bytes, 0));
}
