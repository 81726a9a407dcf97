//! Keys order as their values do: random indexes against the definition of each encoding.
//!
//! Rules: X20 - X26, F28 of docs/format-rows.md.

mod support;

use pbxt_rows::*;
use proptest::prelude::*;
use support::keys::*;
use support::*;

/// Keys and unpack information of both rows.
fn entries(sample: &KeySample) -> [(Vec<u8>, Vec<u8>); 2] {
    let (maker, collations) = sample.maker();
    let layout = sample.layout();
    [0, 1].map(|row| {
        let record = record_of(&layout, &sample.rows[row], 0x5A);
        let (mut key, mut unpack) = (Vec::new(), Vec::new());
        maker
            .key_from_record(host_record(&record), &collations, &mut key)
            .expect("a whole record");
        maker
            .unpack_from_record(host_record(&record), &mut unpack)
            .expect("a whole record");
        (key, unpack)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 10_000 }))]

    #[test]
    fn images_order_as_values_do(sample in key_samples()) {
        let [(first, _), (second, _)] = entries(&sample);
        prop_assert_eq!(first.cmp(&second), sample.order(), "{:02x?} {:02x?}", first, second);
    }

    #[test]
    fn a_search_tuple_gives_a_prefix_of_the_key(sample in key_samples()) {
        let (maker, collations) = sample.maker();
        let [(key, _), _] = entries(&sample);
        let mut scratch = Vec::new();
        for count in 0..=sample.parts.len() {
            let tuple = sample.tuple(0, count);
            prop_assert_eq!(tuple.len(), maker.tuple_length(count));
            let mut prefix = Vec::new();
            maker.key_from_search_tuple(&tuple, count, &collations, &mut prefix).expect("a whole tuple");
            prop_assert!(key.starts_with(&prefix), "{} parts: {:02x?} of {:02x?}", count, prefix, key);
            prop_assert_eq!(maker.prefix_length(&key, count, &mut scratch).expect("just made"), prefix.len());
            if let Some(short) = tuple.len().checked_sub(1) {
                let cut = maker.key_from_search_tuple(&tuple[..short], count, &collations, &mut prefix);
                prop_assert!(cut.is_err());
            }
        }
        let too_many = sample.parts.len() + 1;
        prop_assert!(maker.key_from_search_tuple(&[0; 512], too_many, &collations, &mut Vec::new()).is_err());
    }

    #[test]
    fn an_entry_gives_back_its_restorable_columns(sample in key_samples(), read in any::<u8>()) {
        let (maker, _) = sample.maker();
        let layout = sample.layout();
        let codec = RowCodec::new(layout.schema(0).expect("few columns"), layout.clone()).expect("its own schema");
        let projection = codec.projection(ColumnSet::from_bitmap(&[read], sample.parts.len()));
        let mut store = Store::default();
        for ((key, unpack), cells) in entries(&sample).iter().zip(&sample.rows) {
            let mut record = record_of(&layout, cells, 0);
            record.fill(0xA5);
            let mut scratch = Vec::new();
            maker.record_from_key((key, unpack), maker.parts_for(projection.columns()), &projection, &mut record, &mut store, &mut scratch).expect("just made");
            for (column, cell) in cells.iter().enumerate() {
                if projection.columns().contains(column) && maker.restorable_columns().contains(column) {
                    prop_assert_eq!(&cell_of(&layout, &record, column), cell, "column {}", column);
                } else {
                    let host = layout.columns()[column];
                    let at = host.offset as usize;
                    prop_assert!(record[at..at + host.kind.width()].iter().all(|&byte| byte == 0xA5));
                    prop_assert_eq!(record[host.null_offset as usize] & host.null_bit, 0xA5 & host.null_bit);
                }
            }
        }
    }

    #[test]
    fn changed_means_another_key_or_other_unpack_information(sample in key_samples()) {
        let (maker, collations) = sample.maker();
        let layout = sample.layout();
        let [first, second] = entries(&sample);
        let records = [0, 1].map(|row| record_of(&layout, &sample.rows[row], 0));
        let [old, new] = [0, 1].map(|row: usize| host_record(&records[row]));
        let changed = maker.changed(old, new, &collations, &mut Vec::new()).expect("whole records");
        prop_assert_eq!(changed, first != second);
        prop_assert_eq!(maker.has_null(old).expect("a whole record"), sample.rows[0].contains(&None));
    }

    #[test]
    fn a_stored_row_gives_the_key_of_its_record(sample in key_samples(), blob_min in prop_oneof![Just(25_usize), Just(9999)]) {
        let layout = sample.layout();
        let schema = layout.schema(0).expect("few columns");
        let spec = sample.spec();
        let host = sample.parts.iter().any(|part| matches!(part.encoding, KeyEncoding::Host { .. }));
        prop_assert_eq!(spec.derivable(&schema), !host);
        if host {
            prop_assert!(PayloadKeyMaker::new(&spec, &schema).is_err());
            return Ok(());
        }
        let maker = PayloadKeyMaker::new(&spec, &schema).expect("derivable");
        let codec = RowCodec::new(schema, layout.clone()).expect("its own schema");
        let record = record_of(&layout, &sample.rows[0], 0);
        let mut store = Store::default();
        let plan = codec.plan(host_record(&record), Limits { blob_min, inline_max: 0 }).expect("a whole record");
        let externals = store.put(&plan);
        let (mut payload, mut key, mut unpack, mut searched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        codec.encode(host_record(&record), &externals, &mut payload).expect("a whole record");
        maker.key_from_payload(&payload, &mut store, &mut key).expect("just encoded");
        maker.unpack_from_payload(&payload, &mut store, &mut unpack).expect("just encoded");
        let [expected, other] = entries(&sample);
        prop_assert_eq!(&(key, unpack), &expected);
        for (key, _) in [&expected, &other] {
            // A key in values that are kept outside the row is not looked for.
            if let Ok(is_it) = maker.is_key_of(&payload, key, &mut Vec::new()) {
                prop_assert_eq!(is_it, *key == expected.0, "X58");
            } else {
                prop_assert!(!externals.is_empty());
            }
            let longer: Vec<u8> = key.iter().copied().chain([0]).collect();
            for near in [&longer, &key[..key.len() / 2]] {
                prop_assert!(!maker.is_key_of(&payload, near, &mut Vec::new()).unwrap_or_default() || near == expected.0);
            }
        }
        let values: Vec<_> = sample.rows[0].iter().map(Option::as_deref).collect();
        maker.key_from_values(&values, &mut searched).expect("values of the row");
        prop_assert_eq!(searched, expected.0);
        prop_assert_eq!(maker.has_null(&payload).expect("just encoded"), sample.rows[0].contains(&None));
    }

    #[test]
    fn a_specification_comes_back_from_its_catalog_image(sample in key_samples()) {
        let mut image = Vec::new();
        sample.spec().encode(&mut image);
        prop_assert_eq!(KeySpec::decode(&image).expect("just encoded"), sample.spec());
        image.push(0);
        prop_assert!(KeySpec::decode(&image).is_err());
    }
}

#[test]
fn weights_of_a_forbidden_length_are_refused() {
    struct Three;
    impl Weigher for Three {
        fn weights(&self, _part_ctx: usize, _src: &[u8], out: &mut Vec<u8>) {
            out.extend([1, 2, 3]);
        }
    }
    let layout = place(&[Wish {
        kind: HostKind::Var1(9),
        nullable: false,
        stored: true,
        gap: 0,
    }]);
    let record = record_of(&layout, &[Some(b"abc".to_vec())], 0);
    for (scheme, fits) in [
        (WeightScheme::FixedLen(3), true),
        (WeightScheme::FixedLen(4), false),
        (
            WeightScheme::PadSpace {
                weight: [0, 32, 0, 0, 0, 0, 0, 0],
                len: 2,
            },
            false,
        ),
        (
            WeightScheme::PadSpace {
                weight: [32, 0, 0, 0, 0, 0, 0, 0],
                len: 1,
            },
            true,
        ),
    ] {
        let encoding = KeyEncoding::Host { collation: 1, scheme };
        let part = KeyPart {
            column: 0,
            length: 9,
            prefix: false,
            nullable: false,
            descending: false,
            encoding,
        };
        let spec = KeySpec::new(vec![part], true).expect("a part that fits");
        let maker = KeyMaker::new(&spec, &layout, &[0]).expect("a part that fits");
        let mut out = b"kept".to_vec();
        let made = maker.key_from_record(host_record(&record), &Three, &mut out);
        assert_eq!(made.is_ok(), fits, "{scheme:?}");
        assert!(fits || out == b"kept");
    }
}

#[test]
fn an_indexed_virtual_column_is_read_from_the_record_only() {
    let wish = |kind, stored| Wish {
        kind,
        nullable: false,
        stored,
        gap: 0,
    };
    let layout = place(&[wish(HostKind::Fixed(4), true), wish(HostKind::Fixed(8), false)]);
    let encoding = KeyEncoding::Uint;
    let part = KeyPart {
        column: 1,
        length: 8,
        prefix: false,
        nullable: false,
        descending: false,
        encoding,
    };
    let spec = KeySpec::new(vec![part], false).expect("a part that fits");
    let schema = layout.schema(0).expect("two columns");
    spec.check(&schema).expect("a virtual column may be indexed");
    assert!(!spec.derivable(&schema));
    assert!(PayloadKeyMaker::new(&spec, &schema).is_err());
    let record = record_of(
        &layout,
        &[Some(vec![1; 4]), Some(vec![2, 0, 0, 0, 0, 0, 0, 0])],
        0,
    );
    let mut key = Vec::new();
    let maker = KeyMaker::new(&spec, &layout, &[0]).expect("a part that fits");
    maker
        .key_from_record(host_record(&record), &NoWeigher, &mut key)
        .expect("a whole record");
    assert_eq!(key, [0, 0, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let part = |encoding, length, prefix| KeyPart {
        column: 0,
        length,
        prefix,
        nullable: false,
        descending: false,
        encoding,
    };
    let pad = |len| KeyEncoding::Host {
        collation: 0,
        scheme: WeightScheme::PadSpace { weight: [0; 8], len },
    };
    for bad in [
        part(KeyEncoding::Uint, 9, false),
        part(KeyEncoding::Int, 0, false),
        part(KeyEncoding::Int, 4, true),
        part(KeyEncoding::F32, 8, false),
        part(KeyEncoding::F64, 4, false),
        part(KeyEncoding::VarBinary, 0, true),
        part(pad(0), 10, false),
        part(pad(9), 10, false),
    ] {
        assert!(KeySpec::new(vec![bad], false).is_err(), "{bad:?}");
    }
    assert!(KeySpec::new(Vec::new(), false).is_err());
    let layout = place(&[Wish {
        kind: HostKind::Fixed(4),
        nullable: false,
        stored: true,
        gap: 0,
    }]);
    let nullable = KeyPart {
        nullable: true,
        ..part(KeyEncoding::Uint, 4, false)
    };
    let elsewhere = KeyPart {
        column: 1,
        ..part(KeyEncoding::Uint, 4, false)
    };
    for bad in [
        part(KeyEncoding::Uint, 8, false),
        part(KeyEncoding::VarBinary, 4, false),
        nullable,
        elsewhere,
    ] {
        let spec = KeySpec::new(vec![bad], false).expect("only its column speaks against it");
        assert!(KeyMaker::new(&spec, &layout, &[0]).is_err(), "{bad:?}");
        assert!(
            spec.check(&layout.schema(0).expect("one column")).is_err(),
            "{bad:?}"
        );
    }
}
