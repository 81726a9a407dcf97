//! Any bytes give a value or an error: damaged payloads, keys and catalog images never panic and never lead outside.
//!
//! Rules: F20, F27 of docs/format-rows.md. Under Miri the same tests prove that no read leaves its bytes.

mod support;

use pbxt_rows::*;
use proptest::prelude::*;
use support::keys::*;
use support::*;

/// A change to valid bytes: cut, or some bytes replaced.
#[derive(Clone, Debug)]
struct Damage {
    keep: Option<prop::sample::Index>,
    bytes: Vec<(prop::sample::Index, u8)>,
}

fn damages() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![Just(0_u8), Just(0xFF), Just(1), any::<u8>()];
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), byte), 0..4);
    let keep = prop::option::weighted(0.3, any::<prop::sample::Index>());
    (keep, bytes).prop_map(|(keep, bytes)| Damage { keep, bytes })
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        for (index, byte) in &self.bytes {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        if let Some(keep) = &self.keep {
            bytes.truncate(keep.index(bytes.len() + 1));
        }
    }
}

/// Reads a payload in every way; where it passes `check`, it must be the one encoding of its row.
fn read_payload(codec: &RowCodec, payload: &[u8]) -> std::result::Result<(), TestCaseError> {
    let layout = codec.layout();
    let mut record = vec![0; layout.record_length()];
    let mut store = Store::default();
    if codec
        .decode(payload, codec.all_columns(), &mut record, &mut store)
        .is_ok()
    {
        for (column, host) in layout.columns().iter().enumerate() {
            if host.stored {
                cell_of(layout, &record, column);
            }
        }
    }
    let Ok(view) = RowView::new(codec.schema(), payload) else {
        prop_assert!(codec.check(payload).is_err());
        return Ok(());
    };
    let values: Vec<_> = (0..view.column_count()).map(|column| view.get(column)).collect();
    if view.check().is_ok() {
        let mut builder = RowBuilder::new(codec.schema());
        for (column, value) in values.into_iter().enumerate() {
            match value.expect("a checked payload can be read") {
                Value::Null => {}
                Value::Bytes(bytes) => builder.set(column, Some(bytes)).expect("fits its column"),
                Value::External(blob) => builder.set_external(column, blob).expect("of variable length"),
            }
        }
        let mut built = Vec::new();
        builder.finish(&mut built).expect("no value is missing");
        prop_assert_eq!(built, payload);
    }
    Ok(())
}

fn read_key(sample: &KeySample, key: &[u8], unpack: &[u8]) {
    let (maker, _) = sample.maker();
    let layout = sample.layout();
    let codec =
        RowCodec::new(layout.schema(0).expect("few columns"), layout.clone()).expect("its own schema");
    let mut scratch = Vec::new();
    let mut record = vec![0; layout.record_length()];
    let all = codec.all_columns();
    let restored = maker.record_from_key(
        (key, unpack),
        sample.parts.len(),
        all,
        &mut record,
        &mut Store::default(),
        &mut scratch,
    );
    let length = maker.prefix_length(key, sample.parts.len(), &mut scratch);
    assert!(restored.is_err() || length.is_ok_and(|length| length == key.len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1500 }))]

    #[test]
    fn damaged_payloads_are_read_or_refused(sample in samples(8), damage in damages()) {
        let Sample { layout, cells } = &sample;
        let codec = RowCodec::new(layout.schema(1).expect("few columns"), layout.clone()).expect("its own schema");
        let record = record_of(layout, cells, 0);
        let plan = codec.plan(host_record(&record), Limits { blob_min: 64, inline_max: 1000 }).expect("a whole record");
        let externals = Store::default().put(&plan);
        let mut payload = Vec::new();
        codec.encode(host_record(&record), &externals, &mut payload).expect("a whole record");
        damage.apply(&mut payload);
        read_payload(&codec, &payload)?;
    }

    #[test]
    fn random_payloads_are_read_or_refused(
        sample in samples(8), flags in 0_u8..5, payload in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..80),
    ) {
        let layout = &sample.layout;
        let codec = RowCodec::new(layout.schema(1).expect("few columns"), layout.clone()).expect("its own schema");
        read_payload(&codec, &payload)?;
        read_payload(&codec, &[&[flags], payload.as_slice()].concat())?;
    }

    #[test]
    fn damaged_keys_are_read_or_refused(sample in key_samples(), on_key in damages(), on_unpack in damages()) {
        let (maker, collations) = sample.maker();
        let layout = sample.layout();
        let record = record_of(&layout, &sample.rows[0], 0);
        let (mut key, mut unpack) = (Vec::new(), Vec::new());
        maker.key_from_record(host_record(&record), &collations, &mut key).expect("a whole record");
        maker.unpack_from_record(host_record(&record), &mut unpack).expect("a whole record");
        on_key.apply(&mut key);
        on_unpack.apply(&mut unpack);
        read_key(&sample, &key, &unpack);
    }

    #[test]
    fn random_search_tuples_and_keys_are_taken_or_refused(
        sample in key_samples(), bytes in prop::collection::vec(any::<u8>(), 0..200), parts in 0_usize..6,
    ) {
        let (maker, collations) = sample.maker();
        let mut out = b"kept".to_vec();
        let made = maker.key_from_search_tuple(&bytes, parts, &collations, &mut out);
        prop_assert!(made.is_ok() || out == b"kept");
        read_key(&sample, &bytes, &bytes);
    }

    #[test]
    fn random_catalog_images_are_read_or_refused(format in 0_u8..3, rest in prop::collection::vec(0_u8..12, 0..60)) {
        let image = [&[format], rest.as_slice()].concat();
        if let Ok(schema) = Schema::decode(&image) {
            let mut again = Vec::new();
            schema.encode(&mut again);
            prop_assert_eq!(&again, &image);
        }
        if let Ok(spec) = KeySpec::decode(&image) {
            let mut again = Vec::new();
            spec.encode(&mut again);
            prop_assert_eq!(&again, &image);
        }
    }
}
