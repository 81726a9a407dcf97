//! Rows come back: random tables and rows through every way in and out of a payload.
//!
//! Rules: F21, F22, F24, F27, F28 of docs/format-rows.md.

mod support;

use pbxt_rows::*;
use proptest::prelude::*;
use support::*;

fn codec_of(layout: &HostLayout) -> RowCodec {
    RowCodec::new(layout.schema(1).expect("few columns"), layout.clone())
        .expect("the schema is the layout's own")
}

/// Bits of the record that belong to the fields and null bits of `columns`.
fn owned_bits(layout: &HostLayout, columns: &ColumnSet) -> Vec<u8> {
    let mut owned = vec![0; layout.record_length()];
    for column in columns
        .iter()
        .filter_map(|column| layout.columns().get(column))
        .filter(|column| column.stored)
    {
        owned[column.offset as usize..column.offset as usize + column.kind.width()].fill(0xFF);
        if column.null_bit != 0 {
            owned[column.null_offset as usize] |= column.null_bit;
        }
    }
    owned
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 600 }))]

    #[test]
    fn a_record_comes_back_through_its_payload(
        sample in samples(20),
        read in prop::collection::vec(any::<u8>(), 3),
        blob_min in prop_oneof![Just(30_usize), Just(4096), Just(1_000_000)],
        inline_max in prop_oneof![Just(20_usize), Just(200), Just(32_768), Just(10_000_000)],
    ) {
        let Sample { layout, cells } = &sample;
        let codec = codec_of(layout);
        let record = record_of(layout, cells, 0x5A);
        let plan = codec.plan(host_record(&record), Limits { blob_min, inline_max }).expect("a whole record");
        let mut store = Store::default();
        let externals = store.put(&plan);
        let mut payload = b"before".to_vec();
        codec.encode(host_record(&record), &externals, &mut payload).expect("a whole record");
        prop_assert_eq!(&payload[..6], b"before");
        let payload = &payload[6..];
        codec.check(payload).expect("just encoded");

        for columns in [ColumnSet::all(cells.len()), ColumnSet::from_bitmap(&read, cells.len()), ColumnSet::new()] {
            let before = vec![0xA5_u8; layout.record_length()];
            let mut after = before.clone();
            codec.decode(payload, &codec.projection(columns.clone()), &mut after, &mut store).expect("just encoded");
            for column in columns.iter().filter(|&column| layout.columns()[column].stored) {
                prop_assert_eq!(&cell_of(layout, &after, column), &cells[column], "column {}", column);
            }
            let owned = owned_bits(layout, &columns);
            for ((before, after), owned) in before.iter().zip(&after).zip(&owned) {
                prop_assert_eq!(before & !owned, after & !owned);
            }
        }
    }

    #[test]
    fn a_plan_takes_the_largest_values_until_the_row_is_small(
        sample in samples(12), blob_min in 25_usize..3000, inline_max in 0_usize..3000,
    ) {
        let Sample { layout, cells } = &sample;
        let codec = codec_of(layout);
        let record = record_of(layout, cells, 0);
        let limits = Limits { blob_min, inline_max };
        let plan = codec.plan(host_record(&record), limits).expect("a whole record");
        let externals = Store::default().put(&plan);
        let mut payload = Vec::new();
        codec.encode(host_record(&record), &externals, &mut payload).expect("a whole record");
        let taken = |column| plan.iter().any(|large| large.column == column);
        let candidates = cells.iter().enumerate().filter(|&(column, _)| {
            layout.columns()[column].stored && !matches!(layout.columns()[column].kind, HostKind::Fixed(_))
        });
        let left: Vec<usize> = candidates.filter(|&(column, _)| !taken(column))
            .map(|(_, cell)| cell.as_ref().map_or(0, Vec::len)).collect();
        prop_assert!(left.iter().all(|&len| len < blob_min));
        prop_assert!(payload.len() <= inline_max || left.iter().all(|&len| len <= BlobRef::BYTES));
        prop_assert!(plan.iter().all(|large| Some(large.value) == cells[large.column].as_deref()));
        prop_assert!(plan.is_sorted_by(|a, b| a.column < b.column));
        let shortest = plan.iter().map(|large| large.value.len()).min();
        prop_assert!(left.iter().all(|&len| shortest.is_none_or(|shortest| len <= shortest)));
    }

    #[test]
    fn views_and_builders_agree_with_records(sample in samples(20), limit in prop_oneof![Just(40_usize), Just(100_000)]) {
        let Sample { layout, cells } = &sample;
        let codec = codec_of(layout);
        let record = record_of(layout, cells, 0);
        let plan = codec.plan(host_record(&record), Limits { blob_min: limit, inline_max: 1 << 30 }).expect("whole");
        let externals = Store::default().put(&plan);
        let mut payload = Vec::new();
        codec.encode(host_record(&record), &externals, &mut payload).expect("a whole record");

        let schema = codec.schema();
        let view = RowView::new(schema, &payload).expect("just encoded");
        let mut builder = RowBuilder::new(schema);
        for (column, cell) in cells.iter().enumerate() {
            let external = externals.iter().find(|external| external.column == column);
            let expected = match (external, cell) {
                _ if !layout.columns()[column].stored => Value::Null,
                (Some(external), _) => Value::External(external.blob),
                (None, Some(value)) => Value::Bytes(value),
                (None, None) => Value::Null,
            };
            prop_assert_eq!(view.get(column).expect("in the schema"), expected);
            match expected {
                Value::External(blob) => builder.set_external(column, blob).expect("of variable length"),
                _ if !layout.columns()[column].stored => {}
                _ => builder.set(column, cell.as_deref()).expect("fits"),
            }
        }
        let mut built = Vec::new();
        builder.finish(&mut built).expect("all set");
        prop_assert_eq!(&built, &payload);
        prop_assert!(view.get(cells.len()).is_err());
    }

    #[test]
    fn catalog_images_come_back(sample in samples(20), version in any::<u16>()) {
        let schema = sample.layout.schema(version).expect("few columns");
        let mut image = Vec::new();
        schema.encode(&mut image);
        prop_assert_eq!(Schema::decode(&image).expect("just encoded"), schema);
        image.push(0);
        prop_assert!(Schema::decode(&image).is_err());
    }
}

#[test]
#[cfg_attr(miri, ignore = "64 KiB byte by byte")]
fn values_beyond_64_kib_make_a_wide_row() {
    let wish = |kind| Wish {
        kind,
        nullable: false,
        stored: true,
        gap: 0,
    };
    let layout = place(&[
        wish(HostKind::Blob(3)),
        wish(HostKind::Var1(10)),
        wish(HostKind::Blob(4)),
    ]);
    let cells = [Some(vec![7; 65_530]), Some(b"123456".to_vec()), Some(vec![9; 3])];
    let codec = codec_of(&layout);
    for (cut, flags) in [(0, 1), (4, 0)] {
        let mut cells = cells.clone();
        cells[0].as_mut().expect("set above").truncate(65_530 - cut);
        let record = record_of(&layout, &cells, 0);
        let mut payload = Vec::new();
        codec
            .encode(host_record(&record), &[], &mut payload)
            .expect("a whole record");
        assert_eq!(payload[0], flags);
        codec.check(&payload).expect("just encoded");
        let mut back = vec![0; layout.record_length()];
        codec
            .decode(&payload, codec.all_columns(), &mut back, &mut NoBlobs)
            .expect("just encoded");
        assert_eq!(
            (0..3)
                .map(|column| cell_of(&layout, &back, column))
                .collect::<Vec<_>>(),
            cells
        );
    }
}

#[test]
fn a_layout_that_cannot_be_is_refused() {
    let column = |offset, kind, null_offset, null_bit| HostColumn {
        offset,
        kind,
        null_offset,
        null_bit,
        stored: true,
    };
    let fixed = HostKind::Fixed(4);
    let refused = |columns: &[HostColumn]| HostLayout::new(10, columns.to_vec()).is_err();
    assert!(!refused(&[column(1, fixed, 0, 2), column(5, fixed, 0, 4)]));
    assert!(refused(&[column(7, fixed, 0, 2)]), "ends behind the record");
    assert!(
        refused(&[column(1, fixed, 0, 2), column(4, fixed, 0, 4)]),
        "overlaps"
    );
    assert!(
        refused(&[column(1, fixed, 0, 2), column(5, fixed, 0, 2)]),
        "one null bit for two"
    );
    assert!(refused(&[column(1, fixed, 2, 2)]), "null bit in a field");
    assert!(refused(&[column(1, fixed, 10, 2)]), "null bit behind the record");
    assert!(refused(&[column(1, fixed, 0, 6)]), "two null bits for one");
    assert!(refused(&[column(1, HostKind::Blob(0), 0, 2)]), "no length bytes");
    assert!(refused(&[column(u32::MAX, fixed, 0, 2)]), "far behind the record");
    assert!(
        HostLayout::new(0, vec![column(0, HostKind::Fixed(0), 0, 0)]).is_err(),
        "no record"
    );
    assert!(HostLayout::new(1 << 20, Vec::new()).is_ok());
    assert!(HostLayout::new((1 << 20) + 1, Vec::new()).is_err(), "too long");
}

#[test]
fn a_codec_refuses_a_layout_of_another_table() {
    let wish = |kind, nullable| Wish {
        kind,
        nullable,
        stored: true,
        gap: 0,
    };
    let stored = place(&[wish(HostKind::Fixed(4), true), wish(HostKind::Var1(9), false)])
        .schema(1)
        .expect("two columns");
    for wishes in [
        &[wish(HostKind::Fixed(4), true)][..],
        &[wish(HostKind::Fixed(8), true), wish(HostKind::Var1(9), false)],
        &[wish(HostKind::Fixed(4), false), wish(HostKind::Var1(9), false)],
        &[wish(HostKind::Fixed(4), true), wish(HostKind::Fixed(9), false)],
    ] {
        assert!(RowCodec::new(stored.clone(), place(wishes)).is_err());
    }
    RowCodec::new(
        stored,
        place(&[wish(HostKind::Fixed(4), true), wish(HostKind::Blob(2), false)]),
    )
    .expect("a longer field for the same stored column");
}

#[test]
fn a_record_with_a_length_over_its_maximum_is_refused() {
    let layout = place(&[Wish {
        kind: HostKind::Var1(3),
        nullable: false,
        stored: true,
        gap: 0,
    }]);
    let mut record = record_of(&layout, &[Some(b"abc".to_vec())], 0);
    record[1] = 4;
    let mut out = vec![1];
    let error = codec_of(&layout)
        .encode(host_record(&record), &[], &mut out)
        .expect_err("4 bytes in a field of 3");
    assert!(matches!(
        error,
        Error::BadValue {
            column: 0,
            found: 4,
            ..
        }
    ));
    assert_eq!(out, [1]);
}

#[test]
fn an_external_value_of_another_length_is_damage() {
    let layout = place(&[Wish {
        kind: HostKind::Blob(4),
        nullable: false,
        stored: true,
        gap: 0,
    }]);
    let cells = [Some(vec![1; 5000])];
    let codec = codec_of(&layout);
    let record = record_of(&layout, &cells, 0);
    let mut store = Store::default();
    let plan = codec
        .plan(
            host_record(&record),
            Limits {
                blob_min: 4096,
                inline_max: 32_768,
            },
        )
        .expect("a whole record");
    let externals = store.put(&plan);
    let mut payload = Vec::new();
    codec
        .encode(host_record(&record), &externals, &mut payload)
        .expect("a whole record");
    store.blobs.values_mut().for_each(Vec::clear);
    let mut back = vec![0; layout.record_length()];
    let error = codec
        .decode(&payload, codec.all_columns(), &mut back, &mut store)
        .expect_err("the blob was emptied");
    assert!(matches!(error, Error::Corrupt { .. }));
}
