//! What goes into a checkpoint image comes out of it, byte by byte as documented; damage is named.

use super::*;
use crate::definition::{Compression, ConflictMode};
use crate::image_words::decode_words;
use crate::key_sample::SampledBy;
use pbxt_base::{Addr, CommitTs, RowId};
use pbxt_rowmap::MapWord;
use pbxt_rows::{Column, ColumnKind, Schema};
use pbxt_segment::{Geometry, OpenMode};
use pbxt_testkit::SimDisk;
use pbxt_txn::{EndedAs, RestoredTxn};

fn store(disk: &SimDisk) -> Arc<SegmentStore> {
    let mode = OpenMode {
        create: Some(Geometry::small()),
        read_only: false,
        new_uuid: 7,
        now: 1,
    };
    Arc::new(SegmentStore::open(Arc::new(disk.clone()), mode).expect("a new store"))
}

fn head() -> ImageHead {
    ImageHead {
        start: Lsn::new(0x1000),
        log_start: Lsn::new(0x200),
        last_table: 3,
        last_index: 9,
        blobs: vec![1, 2],
    }
}

fn def() -> TableDef {
    let column = Column {
        kind: ColumnKind::Fixed(4),
        nullable: false,
    };
    TableDef {
        id: TableId::new(3),
        name: "t".into(),
        schema: Schema::new(1, vec![column]).expect("one column"),
        older: Vec::new(),
        indexes: Vec::new(),
        host_image: vec![0xfe; 2],
        host_version: Vec::new(),
        conflict_mode: ConflictMode::Default,
        encrypted: false,
        temporary: false,
        provisional: false,
        host_record: None,
        foreign_keys: Vec::new(),
        created: 5,
        compression: Compression::default(),
    }
}

fn table() -> TableHead {
    TableHead {
        def: def(),
        next_auto_increment: 8,
        rows: -2,
        high_mark: 4,
        data_bytes: 16,
        updated: 6,
    }
}

fn txns(count: u64) -> TxnTableImage {
    let aborted = |number: u64| RestoredTxn {
        id: TxnId::new(number * 77),
        ended: EndedAs::Aborted,
        voids: Vec::new(),
    };
    TxnTableImage {
        next: TxnId::new(count * 77 + 1),
        last_ts: CommitTs::new(55),
        exceptions: (1..=count).map(aborted).collect(),
    }
}

fn prepared() -> PreparedImage {
    PreparedImage {
        txn: TxnId::new(71),
        xid: b"xa".to_vec(),
        rows_written: 5,
        deltas: vec![CountDelta {
            table: TableId::new(3),
            rows: -1,
        }],
        voids: vec![VoidRange {
            from: Lsn::new(0x600),
            to: Lsn::new(0x608),
        }],
    }
}

fn run() -> RunImage {
    RunImage {
        stamp: Stamp {
            txn: TxnId::new(70),
            lsn: Lsn::new(0x700),
        },
        pieces: vec![(SegmentId::new(2), 0), (SegmentId::new(4), 1)],
    }
}

fn words() -> [u64; 3] {
    let at = |lsn| Addr::hot(Lsn::new(lsn));
    [
        MapWord::version(at(0x400)).with_lock().raw(),
        MapWord::ABSENT.raw(),
        MapWord::tombstone(at(0x3f8)).raw(),
    ]
}

fn sample() -> KeySample {
    KeySample {
        entries: 0x0300,
        taken: 0x6500_0000,
        by: SampledBy::Analyze,
        pairs: 0x0200,
        changes: vec![5, 0x0100],
    }
}

/// One item of each kind.
fn write(store: &Arc<SegmentStore>) -> Result<SegmentId> {
    let mut out = ImageWriter::create(store, &head())?;
    out.txns(&txns(1))?;
    out.prepared(&prepared())?;
    out.table(&table())?;
    out.words(2, &words(), head().log_start)?;
    out.words(4096, &[0; 9], head().log_start)?;
    out.gone(&[0xaa, 0xbb])?;
    out.row_run(&run())?;
    out.index(IndexId::new(9))?;
    out.sample(&sample())?;
    out.index_run(&run())?;
    out.finish()
}

const GOLDEN: &str = "
    01 1f000000  02000000 0010000000000000 0002000000000000 03000000 09000000 02 0102
    02 TXNS
    03 23000000  47 02 7861 05 01 03000000 ffffffffffffffff 01 0006000000000000 0806000000000000
    04 LENGTH000000  DEFINITION
                 0800000000000000 feffffffffffffff 0400000000000000 1000000000000000 0600000000000000
    05 08000000  02 02 00 00 02 8004 03
    06 02000000  aabb
    07 14000000  46 800e 02 02000000 00000000 04000000 01000000
    08 04000000  09000000
    0b 2b000000  0003000000000000 0000006500000000 01 0002000000000000 0200 0500000000000000 0001000000000000
    09 14000000  46 800e 02 02000000 00000000 04000000 01000000
    0a 08000000  0a00000000000000";

#[test]
fn golden_image() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let id = write(&store).expect("written");
    let file = PieceFile::open(&store, SegmentClass::Meta, id).expect("a whole file");
    let mut block = Vec::new();
    file.read_block(0, 0, &mut block).expect("a whole block");
    // Transaction table and definition have golden tests of their own.
    let table = txns(1).encode();
    let hex = |bytes: &[u8]| {
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits
            .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
            .collect::<String>()
    };
    let part = format!("{:02x}000000{}", table.len(), hex(&table));
    let (mut image, mut prefixed) = (Vec::new(), Vec::new());
    def().encode(&mut image);
    push_bytes(&mut prefixed, &image);
    let expected: String = GOLDEN.split_whitespace().collect();
    let expected = expected
        .replace("LENGTH", &format!("{:02x}", prefixed.len() + 40))
        .replace("DEFINITION", &hex(&prefixed))
        .replace("TXNS", &part);
    assert_eq!(hex(&block), expected);
}

#[test]
fn an_image_comes_back_item_by_item() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let id = write(&store).expect("written");
    let mut reader = ImageReader::open(&store, id).expect("a whole file");
    let mut next = |expected: ImageItem<'_>| {
        assert_eq!(reader.next_item().expect("a whole image"), Some(expected));
    };
    next(ImageItem::Head(head()));
    next(ImageItem::Txns(&txns(1).encode()));
    next(ImageItem::Prepared(prepared()));
    next(ImageItem::Table(Box::new(table())));
    match reader.next_item().expect("a whole image") {
        Some(ImageItem::Words(part)) => {
            let mut found = Vec::new();
            decode_words(part, &(Lsn::new(0x200)..Lsn::new(0x1000)), |row, word| {
                found.push((row, word.raw()));
            })
            .expect("a whole part");
            let unlocked = MapWord::from_raw(words()[0]).without_lock().raw();
            assert_eq!(found, [(RowId::new(2), unlocked), (RowId::new(4), words()[2])]);
        }
        other => panic!("{other:?}"),
    }
    let mut next = |expected: Option<ImageItem<'_>>| {
        assert_eq!(reader.next_item().expect("a whole image"), expected);
    };
    next(Some(ImageItem::Gone(&[0xaa, 0xbb])));
    next(Some(ImageItem::RowRun(run())));
    next(Some(ImageItem::Index(IndexId::new(9))));
    next(Some(ImageItem::Sample(sample())));
    next(Some(ImageItem::IndexRun(run())));
    next(None);
    next(None);
}

#[test]
fn an_image_without_samples_of_the_format_before_is_read() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let of_format = |format: u32| {
        let mut out = ImageWriter::create(&store, &head()).expect("created");
        put_u32(&mut out.block, ITEM_HEAD_BYTES, format);
        out.index(IndexId::new(9)).expect("written");
        let id = out.finish().expect("written");
        ImageReader::open(&store, id).expect("a whole file")
    };
    for format in [FORMAT_WITHOUT_SAMPLES, FORMAT] {
        let mut reader = of_format(format);
        assert_eq!(reader.next_item().expect("known"), Some(ImageItem::Head(head())));
        let index = reader.next_item().expect("known");
        assert_eq!(index, Some(ImageItem::Index(IndexId::new(9))));
        assert_eq!(reader.next_item().expect("known"), None);
    }
}

#[test]
fn an_image_of_many_blocks_comes_back_whole() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut out = ImageWriter::create(&store, &head()).expect("created");
    let many = txns(60_000);
    out.txns(&many).expect("written");
    out.table(&table()).expect("written");
    let gone: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    out.gone(&gone).expect("written");
    let id = out.finish().expect("written");
    let mut reader = ImageReader::open(&store, id).expect("a whole file");
    assert!(reader.file.sections()[0].block_count() > 5);
    let (mut found, mut found_gone) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().expect("a whole image") {
        match item {
            ImageItem::Txns(part) => found.extend_from_slice(part),
            ImageItem::Gone(part) => found_gone.extend_from_slice(part),
            _ => {}
        }
    }
    assert!(found == many.encode() && found_gone == gone);
}

#[test]
fn an_image_of_another_format_or_without_its_end_is_refused() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let refused = |block: &[u8], expected: &str| {
        let mut piece = PieceWriter::create(&store, SegmentClass::Meta).expect("created");
        piece.begin_section(0, SECTION_IMAGE);
        piece.push_block(&fence_of(0), 1, block, CODEC).expect("written");
        piece.end_section(&[], &[]);
        let id = piece.finish().expect("written");
        let mut reader = ImageReader::open(&store, id).expect("a piece file");
        let error = loop {
            match reader.next_item() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("accepted: {expected}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(expected) && error.contains("meta"), "{error}");
    };
    let index = [8, 4, 0, 0, 0, 9, 0, 0, 0];
    refused(&[1, 4, 0, 0, 0, 3, 0, 0, 0], "format version 3");
    refused(&[1, 4, 0, 0, 0, 0, 0, 0, 0], "format version 0");
    refused(&index, "found none behind item 1");
    refused(
        &[&index[..], &[10, 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]].concat(),
        "expected 1 items",
    );
    refused(&[8, 5, 0, 0, 0, 9, 0, 0, 0], "over the end of its block");
    refused(&[12, 0, 0, 0, 0], "number 12");
    refused(&[11, 1, 0, 0, 0, 0], "more bytes");
    refused(&[7, 1, 0, 0, 0, 3], "more bytes");
}
