//! The pointers of blob columns: followed when a record is encoded, given out when one is decoded. Small and without chance, so
//! that Miri runs it in seconds: `cargo +nightly miri test -p pbxt-rows --test pointers`
//! (with `MIRIFLAGS=-Zmiri-permissive-provenance`: a pointer in a record buffer is an address by nature).
//!
//! Rules: F20, F24, F28 of docs/format-rows.md.

mod support;

use pbxt_rows::*;
use support::*;

fn table() -> (RowCodec, KeyMaker) {
    let wish = |kind, nullable| Wish {
        kind,
        nullable,
        stored: true,
        gap: 1,
    };
    let wishes = [
        HostKind::Blob(1),
        HostKind::Blob(2),
        HostKind::Blob(3),
        HostKind::Blob(4),
    ]
    .map(|kind| wish(kind, true));
    let layout = place(&wishes);
    let encoding = KeyEncoding::VarBinary;
    let part = KeyPart {
        column: 1,
        length: 90,
        prefix: false,
        nullable: true,
        descending: true,
        encoding,
    };
    let spec = KeySpec::new(vec![part], false).expect("a part that fits");
    let maker = KeyMaker::new(&spec, &layout, &[0]).expect("a part that fits");
    (
        RowCodec::new(layout.schema(1).expect("four columns"), layout).expect("its own schema"),
        maker,
    )
}

fn rows() -> [[Cell; 4]; 3] {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    [
        [
            text("a"),
            text("longer than a reference, which has 24 bytes"),
            text(""),
            None,
        ],
        [None, None, None, None],
        [text(""), text("b"), text("c"), Some(vec![0x5A; 200])],
    ]
}

#[test]
fn blobs_lead_to_their_values_in_and_out() {
    let (codec, _) = table();
    for cells in rows() {
        for blob_min in [25, 1000] {
            let record = record_of(codec.layout(), &cells, 0x11);
            let limits = Limits {
                blob_min,
                inline_max: 32_768,
            };
            let mut store = Store::default();
            let externals = store.put(&codec.plan(host_record(&record), limits).expect("a whole record"));
            let large = cells
                .iter()
                .flatten()
                .filter(|value| value.len() >= blob_min)
                .count();
            assert_eq!(externals.len(), large);
            let mut payload = Vec::new();
            codec
                .encode(host_record(&record), &externals, &mut payload)
                .expect("a whole record");
            let mut back = vec![0x22; codec.layout().record_length()];
            codec
                .decode(&payload, codec.all_columns(), &mut back, &mut store)
                .expect("just encoded");
            payload.fill(0); // inline values were copied to the arena
            for (column, cell) in cells.iter().enumerate() {
                assert_eq!(&cell_of(codec.layout(), &back, column), cell);
            }
            let mut again = Vec::new();
            codec
                .encode(host_record(&back), &externals, &mut again)
                .expect("a decoded record is a record");
            codec.check(&again).expect("just encoded");
        }
    }
}

#[test]
fn keys_of_blobs_come_from_where_the_record_points() {
    let (codec, maker) = table();
    for cells in rows() {
        let record = record_of(codec.layout(), &cells, 0);
        let (mut key, mut scratch) = (Vec::new(), Vec::new());
        maker
            .key_from_record(host_record(&record), &NoWeigher, &mut key)
            .expect("a whole record");
        let mut back = vec![0; codec.layout().record_length()];
        let mut store = Store::default();
        let all = codec.all_columns();
        maker
            .record_from_key(
                (&key, &[]),
                maker.part_count(),
                all,
                &mut back,
                &mut store,
                &mut scratch,
            )
            .expect("just made");
        scratch.clear();
        assert_eq!(cell_of(codec.layout(), &back, 1), cells[1]);
        let changed = maker.changed(
            host_record(&record),
            host_record(&record),
            &NoWeigher,
            &mut scratch,
        );
        assert!(!changed.expect("whole records"));
    }
}

#[test]
fn an_arena_keeps_addresses_until_it_is_cleared() {
    let mut arena = InlineArena::default();
    let values: Vec<Vec<u8>> = [0, 1, 9000, 9000, 20_000, 3]
        .map(|len| vec![len as u8; len])
        .to_vec();
    let kept: Vec<*const u8> = values.iter().map(|value| arena.copy(value)).collect();
    let adopted = arena.adopt(vec![7; 50]).as_ptr();
    for (value, address) in values.iter().zip(kept) {
        // SAFETY: the arena was not cleared since it gave this address for a value of this length.
        assert_eq!(unsafe { std::slice::from_raw_parts(address, value.len()) }, value);
    }
    // SAFETY: the arena was not cleared since it took these 50 bytes over.
    assert_eq!(unsafe { std::slice::from_raw_parts(adopted, 50) }, [7; 50]);
    arena.clear();
    assert_eq!(arena.adopt(Vec::new()), []);
}
