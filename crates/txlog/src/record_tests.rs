//! Records: golden bytes, round trips, and bytes that are no records.

use crate::batch::BatchHeader;
use crate::record::{RecordKind, put_filler};
use crate::tail::BATCH_HEADER_BYTES;
use crate::*;
use pbxt_base::{Addr, CommitTs, IndexId, Lsn, RowId, SegmentId, TableId, TxnId};
use proptest::prelude::*;

fn encoded(bytes: usize, encode: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut out = vec![0xee; bytes];
    encode(&mut out);
    out
}

fn sample_row<'a>(key_images: &'a [u8], payload: &'a [u8]) -> RowRecord<'a> {
    RowRecord {
        kind: RowKind::Update,
        first: true,
        temporary: false,
        table: TableId::new(0x0102_0304),
        txn: TxnId::new(0x1112_1314_1516_1718),
        row: RowId::new(0x2122_2324_2526),
        schema_version: 0x3132,
        prev: Addr::BASE,
        foreign_prev: Some(Addr::hot(Lsn::new(0x40))),
        key_images,
        payload,
    }
}

#[test]
fn golden_row_record() {
    let mut images = KeyImageBuf::new();
    images.push(KeyImage {
        index: IndexId::new(70),
        sign: Sign::AntiEntry,
        key: b"ab",
        unpack: b"X",
    });
    let record = sample_row(images.as_bytes(), b"payload");
    let bytes = encoded(record.encoded_len(), |out| record.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        3, 0x01 | 0x04 | 0x08 | 0x10 | 6 << 5, 8, 0, 4, 3, 2, 1,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x32, 0x31,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03,
        8, 0, 0, 0, 0, 0, 0, 0,
        7, 0, 0, 0, b'p', b'a', b'y', b'l', b'o', b'a', b'd',
        0x8d, 0x01, 2, 1, b'a', b'b', b'X',
        0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
}

#[test]
fn golden_plain_insert() {
    let record = RowRecord {
        kind: RowKind::Insert,
        first: false,
        prev: Addr::NONE,
        foreign_prev: None,
        ..sample_row(&[], b"12345678")
    };
    let bytes = encoded(record.encoded_len(), |out| record.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        2, 0, 4, 0, 4, 3, 2, 1,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x32, 0x31,
        b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8',
    ];
    assert_eq!(bytes, golden, "24 bytes of header and the payload");
}

fn sample_ingest(pieces: &[IngestPiece]) -> IngestRecord<'_> {
    IngestRecord {
        first: true,
        txn: TxnId::new(0x1112_1314_1516_1718),
        table: TableId::new(0x0102_0304),
        index: IndexId::new(0x0a),
        pieces,
        first_row: 0x2122_2324_2526,
        last_row: 0x3132_3334_3536,
        rows: 0x4142_4344,
    }
}

fn sample_piece(segment: u32) -> IngestPiece {
    IngestPiece {
        class: 3,
        segment: SegmentId::new(segment),
        section: 0x0506,
    }
}

#[test]
fn golden_ingest_record() {
    let pieces = [sample_piece(0x5152_5354)];
    let record = sample_ingest(&pieces);
    let bytes = encoded(record.encoded_len(), |out| record.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        13, 0x01 | 4 << 5, 8, 0, 4, 3, 2, 1,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        0x0a, 0, 0, 0, 1, 0, 0, 0,
        0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0, 0,
        0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0, 0,
        0x44, 0x43, 0x42, 0x41, 0, 0, 0, 0,
        3, 0, 0, 0, 0x54, 0x53, 0x52, 0x51, 6, 5, 0, 0,
        0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
    let record = RecordRef::parse(&bytes).expect("parses");
    assert_eq!(
        record.to_string(),
        "ingest table 16909060 index 10 txn 1230066625199609624 rows 36430502176038..=54091677185334, \
         1094861636 in 3:1364349780:1286 first"
    );
}

#[test]
fn ingest_records_come_back() {
    for count in [0, 1, 2, 7, INGEST_PIECES_MAX] {
        let pieces: Vec<IngestPiece> = (0..count as u32).map(sample_piece).collect();
        let record = sample_ingest(&pieces);
        let mut bytes = encoded(record.encoded_len(), |out| record.encode_into(out));
        let read = RecordRef::parse(&bytes).expect("parses");
        assert!(read.is_first() && read.as_row().is_none());
        let read = read.as_ingest().expect("an ingest record");
        assert_eq!(
            (read.txn(), read.table(), read.index()),
            (record.txn, record.table, record.index)
        );
        let facts = (read.first_row(), read.last_row(), read.rows());
        assert_eq!(facts, (record.first_row, record.last_row, record.rows));
        assert_eq!(read.pieces().collect::<Vec<_>>(), pieces);
        bytes[20] ^= 1;
        assert!(
            RecordRef::parse(&bytes).is_err(),
            "pieces fill the record exactly"
        );
    }
}

#[test]
fn golden_end_records() {
    let deltas = [CountDelta {
        table: TableId::new(9),
        rows: -2,
    }];
    let voids = [VoidRange {
        from: Lsn::new(0x1000),
        to: Lsn::new(0x2000),
    }];
    let outcome = Outcome::Commit(CommitTs::new(0x0a0b));
    let commit = EndRecord {
        txn: TxnId::new(7),
        outcome,
        deltas: &deltas,
        voids: &voids,
    };
    #[rustfmt::skip]
    let golden = [
        5, 0, 8, 0, 1, 0, 0, 0,
        7, 0, 0, 0, 0, 0, 0, 0,
        0x0b, 0x0a, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0,
        9, 0, 0, 0, 0, 0, 0, 0,
        0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0, 0x10, 0, 0, 0, 0, 0, 0,
        0, 0x20, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(
        encoded(commit.encoded_len(), |out| commit.encode_into(out)),
        golden
    );
    let abort = EndRecord {
        txn: TxnId::new(7),
        outcome: Outcome::Abort,
        deltas: &[],
        voids: &[],
    };
    let bytes = encoded(abort.encoded_len(), |out| abort.encode_into(out));
    assert_eq!((bytes.len(), &bytes[..9]), (32, &[5, 2, 4, 0, 0, 0, 0, 0, 7][..]));
}

#[test]
fn golden_prepare_record() {
    let deltas = [CountDelta {
        table: TableId::new(9),
        rows: 0,
    }];
    let prepare = PrepareRecord {
        txn: TxnId::new(7),
        xid: b"xid",
        deltas: &deltas,
        voids: &[],
    };
    let bytes = encoded(prepare.encoded_len(), |out| prepare.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        6, 5 << 5, 6, 0, 1, 0, 0, 0,
        7, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 3, 0, 0, 0,
        9, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        b'x', b'i', b'd', 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
}

#[test]
fn golden_rollback_to_record() {
    let range = VoidRange {
        from: Lsn::new(8),
        to: Lsn::new(16),
    };
    let rollback = RollbackToRecord {
        txn: TxnId::new(7),
        range,
    };
    let bytes = encoded(rollback.encoded_len(), |out| rollback.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        7, 0, 4, 0, 0, 0, 0, 0,
        7, 0, 0, 0, 0, 0, 0, 0,
        8, 0, 0, 0, 0, 0, 0, 0,
        16, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
}

#[test]
fn golden_catalog_auto_increment_and_filler_records() {
    let catalog = CatalogRecord {
        first: true,
        txn: TxnId::new(7),
        op: 3,
        bytes: b"t",
    };
    let bytes = encoded(catalog.encoded_len(), |out| catalog.encode_into(out));
    #[rustfmt::skip]
    let golden = [
        8, 1 | 7 << 5, 3, 0, 3, 0, 0, 0,
        7, 0, 0, 0, 0, 0, 0, 0,
        b't', 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
    let mark = AutoIncRecord {
        table: TableId::new(5),
        high_mark: 258,
    };
    let bytes = encoded(mark.encoded_len(), |out| mark.encode_into(out));
    assert_eq!(bytes, [9, 0, 2, 0, 5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        encoded(16, put_filler),
        [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

fn sample_batch() -> BatchHeader {
    BatchHeader {
        lsn: Lsn::new(0x0400_1000),
        length: 96,
        advance: 512,
        sequence: 6,
        incarnation: 2,
        durable_sequence: 4,
        blob_durable: 0x99,
        previous: 0x1122_3344,
        body: 0x5566_7788,
    }
}

#[test]
fn golden_batch_header() {
    let mut bytes = [0; BATCH_HEADER_BYTES as usize];
    let crc = sample_batch().encode(SegmentId::new(1), &mut bytes);
    #[rustfmt::skip]
    let golden = [
        b'P', b'b', b'x', b'B', 96, 0, 0, 0,
        6, 0, 0, 0, 0, 0, 0, 0,
        2, 0, 0, 0, 0, 2, 0, 0,
        4, 0, 0, 0, 0, 0, 0, 0,
        0x99, 0, 0, 0, 0, 0, 0, 0,
        0, 0x10, 0, 4, 0, 0, 0, 0,
        0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55,
        0, 0, 0, 0,
    ];
    assert_eq!(bytes[..60], golden);
    assert_eq!(bytes[60..], crc.to_le_bytes());
    assert_eq!(
        BatchHeader::decode(SegmentId::new(1), Lsn::new(0x0400_1000), &bytes),
        Some((sample_batch(), crc))
    );
}

#[test]
fn a_batch_of_another_segment_does_not_verify() {
    let mut bytes = [0; BATCH_HEADER_BYTES as usize];
    sample_batch().encode(SegmentId::new(1), &mut bytes);
    assert_eq!(
        BatchHeader::decode(SegmentId::new(2), Lsn::new(0x0400_1000), &bytes),
        None
    );
    assert_eq!(
        BatchHeader::decode(SegmentId::new(1), Lsn::new(0x0400_1200), &bytes),
        None,
        "nor one in another place"
    );
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            BatchHeader::decode(SegmentId::new(1), Lsn::new(0x0400_1000), &bad),
            None,
            "bit {bit}"
        );
    }
}

#[test]
fn records_are_readable_for_people() {
    let mut images = KeyImageBuf::new();
    images.push(KeyImage {
        index: IndexId::new(4),
        sign: Sign::Entry,
        key: &[1, 2],
        unpack: &[],
    });
    let record = sample_row(images.as_bytes(), b"payload");
    let bytes = encoded(record.encoded_len(), |out| record.encode_into(out));
    let text = RecordRef::parse(&bytes).expect("parses").to_string();
    for part in [
        "update table 16909060",
        "row 36430502176038",
        "schema 12594",
        "first",
        "7 bytes",
        "+index 4 key [01, 02]",
    ] {
        assert!(text.contains(part), "{part} in: {text}");
    }
}

prop_compose! {
    fn any_row()(
        kind in prop_oneof![Just(RowKind::Insert), Just(RowKind::Update), Just(RowKind::Delete)],
        flags in any::<(bool, bool)>(),
        ids in (any::<u32>(), any::<u64>(), 0_u64..1 << 48, any::<u16>()),
        prev in prop_oneof![Just(0), Just(Addr::BASE.raw()), 1_u64..1 << 58],
        foreign in proptest::option::of(0_u64..1 << 58),
        images in proptest::collection::vec((any::<u32>(), any::<bool>(), ".{0,20}", ".{0,5}"), 0..4),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) -> (Vec<u8>, RowFacts) {
        let facts = RowFacts { kind, flags, ids, prev, foreign, images, payload };
        (facts.encode(), facts)
    }
}

#[derive(Debug)]
struct RowFacts {
    kind: RowKind,
    flags: (bool, bool),
    ids: (u32, u64, u64, u16),
    prev: u64,
    foreign: Option<u64>,
    images: Vec<(u32, bool, String, String)>,
    payload: Vec<u8>,
}

impl RowFacts {
    fn images(&self) -> impl Iterator<Item = KeyImage<'_>> {
        self.images.iter().map(|(index, anti, key, unpack)| KeyImage {
            index: IndexId::new(*index),
            sign: if *anti { Sign::AntiEntry } else { Sign::Entry },
            key: key.as_bytes(),
            unpack: unpack.as_bytes(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut images = KeyImageBuf::new();
        self.images().for_each(|image| images.push(image));
        let record = RowRecord {
            kind: self.kind,
            first: self.flags.0,
            temporary: self.flags.1,
            table: TableId::new(self.ids.0),
            txn: TxnId::new(self.ids.1),
            row: RowId::new(self.ids.2),
            schema_version: self.ids.3,
            prev: Addr::from_raw(self.prev),
            foreign_prev: self.foreign.map(Addr::from_raw),
            key_images: images.as_bytes(),
            payload: &self.payload,
        };
        encoded(record.encoded_len(), |out| record.encode_into(out))
    }
}

/// Looks at everything a record says; for bytes of any origin this must neither panic nor loop.
fn look_at_everything(bytes: &[u8]) {
    let Ok(record) = RecordRef::parse(bytes) else {
        return;
    };
    assert!(record.stride() <= bytes.len() && record.stride() >= RECORD_HEADER_BYTES);
    assert!(!record.to_string().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back((bytes, facts) in any_row()) {
        let record = RecordRef::parse(&bytes).expect("parses");
        prop_assert_eq!(record.stride(), bytes.len());
        let row = record.as_row().expect("a row");
        prop_assert_eq!(row.kind(), facts.kind);
        prop_assert_eq!((row.is_first(), row.is_temporary()), facts.flags);
        let ids = (row.table().raw(), row.txn().raw(), row.row().raw(), row.schema_version());
        prop_assert_eq!(ids, facts.ids);
        prop_assert_eq!(row.prev().raw(), facts.prev);
        prop_assert_eq!(row.foreign_prev().map(Addr::raw), facts.foreign);
        prop_assert_eq!(row.payload(), &facts.payload[..]);
        let images: Vec<KeyImage<'_>> = row.key_images().map(|image| image.expect("decodes")).collect();
        prop_assert_eq!(images, facts.images().collect::<Vec<_>>());
    }

    #[test]
    fn a_record_cut_short_does_not_parse((bytes, _) in any_row(), cut in 0_usize..400) {
        prop_assume!(cut < bytes.len());
        prop_assert!(RecordRef::parse(&bytes[..cut]).is_err());
    }

    #[test]
    fn random_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..14, units in 0_u8..28) {
        look_at_everything(&bytes);
        if bytes.len() >= 4 {
            (bytes[0], bytes[2], bytes[3]) = (kind, units, 0);
            look_at_everything(&bytes);
        }
    }

    #[test]
    fn changed_records_do_no_harm((mut bytes, _) in any_row(), at in 0_usize..60, byte: u8) {
        if let Some(target) = bytes.get_mut(at) {
            *target = byte;
        }
        look_at_everything(&bytes);
    }

    #[test]
    fn ends_come_back(txn: u64, ts in proptest::option::of(any::<u64>()), deltas: Vec<(u32, i64)>, voids: Vec<(u64, u64)>) {
        let deltas: Vec<CountDelta> = deltas.iter().map(|(table, rows)| CountDelta { table: TableId::new(*table), rows: *rows }).collect();
        let voids: Vec<VoidRange> = voids.iter().map(|(from, to)| VoidRange { from: Lsn::new(*from), to: Lsn::new(*to) }).collect();
        let outcome = ts.map_or(Outcome::Abort, |ts| Outcome::Commit(CommitTs::new(ts)));
        let end = EndRecord { txn: TxnId::new(txn), outcome, deltas: &deltas, voids: &voids };
        let bytes = encoded(end.encoded_len(), |out| end.encode_into(out));
        let Record::End(read) = RecordRef::parse(&bytes).expect("parses").view() else { panic!("an END") };
        prop_assert_eq!((read.txn(), read.outcome()), (TxnId::new(txn), outcome));
        prop_assert_eq!(read.deltas().collect::<Vec<_>>(), deltas.clone());
        prop_assert_eq!(read.voids().collect::<Vec<_>>(), voids.clone());
        let prepare = PrepareRecord { txn: TxnId::new(txn), xid: &bytes[..bytes.len().min(200)], deltas: &deltas, voids: &voids };
        let copy = encoded(prepare.encoded_len(), |out| prepare.encode_into(out));
        let Record::Prepare(read) = RecordRef::parse(&copy).expect("parses").view() else { panic!("a PREPARE") };
        prop_assert_eq!(read.xid(), prepare.xid);
        prop_assert_eq!(read.deltas().collect::<Vec<_>>(), deltas);
        prop_assert_eq!(read.voids().collect::<Vec<_>>(), voids);
    }
}

#[test]
fn zeros_and_reserved_kinds_are_no_records() {
    assert!(RecordRef::parse(&[0; 64]).is_err());
    for kind in (10..=255_u8).filter(|kind| *kind != RecordKind::Ingest as u8) {
        assert_eq!(RecordKind::from_disk(kind), None);
        assert!(RecordRef::parse(&[kind, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
