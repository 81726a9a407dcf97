//! Golden files: the bytes on disk are the ones docs/format.md describes, and files with these bytes open.
//!
//! A change of format shows here first. `PBXT_BLESS=1` writes the files anew; then look at what changed.

mod common;

use common::{begin, first_lsn, mode, open};
use pbxt_base::{Addr, AddrClass, Lsn, SegmentId};
use pbxt_segment::{
    BlobRef, BlobStore, Checkpoint, Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore, StartState,
};
use pbxt_testkit::SimDisk;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

const FILES: [&str; 5] = [
    "pbxt.manifest.b",
    "hot-00000001.seg",
    "hot-00000002.seg",
    "blob-00000001.seg",
    "meta-00000001.seg",
];

/// Content that LZ4 and Zstandard both shrink.
const REPEATED: [u8; 64] = [0x55; 64];

/// A piece file with a block of each codec. A new release of a compressor may write other bytes; then bless them.
fn golden_piece(store: &Arc<SegmentStore>) -> SegmentId {
    let mut writer = PieceWriter::create(store, SegmentClass::Meta).expect("created");
    writer.begin_section(0x0102, 3);
    writer
        .push_block(b"key 1", 2, b"plain", Codec::Plain)
        .expect("written");
    writer
        .push_block(b"key 2", 3, &REPEATED, Codec::Lz4)
        .expect("written");
    writer
        .push_block(b"kez", 4, &REPEATED, Codec::Zstd(3))
        .expect("written");
    writer.end_section(b"last", b"extra");
    writer.begin_section(0x0304, 5);
    writer.end_section(b"", b"");
    writer.finish().expect("finished")
}

fn golden_checkpoint(image: SegmentId) -> Checkpoint {
    Checkpoint {
        image,
        start: Lsn::new(first_lsn(2).raw() + 4096),
        log_start: Lsn::new(first_lsn(1).raw() + 4096),
    }
}

/// A life with one fact of each kind.
fn golden_database() -> SimDisk {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    let file = begin(&store, 1).expect("begun");
    file.write_at(b"a batch would stand here", 4096).expect("written");
    file.sync_data().expect("synced");
    store
        .seal(SegmentId::new(1), Lsn::new(first_lsn(1).raw() + 4120))
        .expect("sealed");
    begin(&store, 2).expect("begun").sync_data().expect("synced");
    store.prepare(SegmentId::new(3)).expect("prepared");
    store
        .drop_segment(SegmentClass::Hot, SegmentId::new(3))
        .expect("dropped");
    let blobs = BlobStore::open(Arc::clone(&store)).expect("blobs");
    blobs.append(b"a large value").expect("written");
    blobs.append(b"another").expect("written");
    blobs.sync().expect("synced");
    store
        .note_checkpoint(golden_checkpoint(golden_piece(&store)))
        .expect("noted");
    store
        .note_closed(Lsn::new(first_lsn(2).raw() + 4096))
        .expect("closed");
    disk
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.hex"))
}

/// Length, then lines of 16 bytes with their offset; lines of zeros are left out.
fn to_hex(bytes: &[u8]) -> String {
    let mut text = format!("length {:x}\n", bytes.len());
    for (line, bytes) in bytes.chunks(16).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            write!(text, "{:06x}:", line * 16).expect("a string takes all");
            for byte in bytes {
                write!(text, " {byte:02x}").expect("a string takes all");
            }
            text.push('\n');
        }
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let number = |digits: &str| usize::from_str_radix(digits, 16).expect("hexadecimal digits");
    let mut lines = text.lines();
    let length = lines
        .next()
        .and_then(|line| line.strip_prefix("length "))
        .expect("a length");
    let mut bytes = vec![0; number(length)];
    for line in lines {
        let (offset, values) = line.split_once(':').expect("an offset");
        for (at, value) in values.split_whitespace().enumerate() {
            bytes[number(offset) + at] = number(value) as u8;
        }
    }
    bytes
}

#[test]
fn files_are_written_as_the_golden_ones() {
    let disk = golden_database();
    for name in FILES {
        let text = to_hex(&disk.content(name).expect("the file"));
        if std::env::var_os("PBXT_BLESS").is_some() {
            std::fs::write(path(name), &text).expect("writable");
        }
        let golden = std::fs::read_to_string(path(name)).expect("a golden file");
        assert_eq!(text, golden, "{name}");
    }
}

#[test]
fn golden_files_open_and_say_what_was_written() {
    let disk = SimDisk::new();
    for name in FILES {
        disk.replace(
            name,
            &from_hex(&std::fs::read_to_string(path(name)).expect("a golden file")),
        );
    }
    let store = Arc::new(SegmentStore::open(Arc::new(disk), mode()).expect("opened"));
    assert_eq!(
        store.start_state(),
        StartState::Clean(Lsn::new(first_lsn(2).raw() + 4096))
    );
    assert_eq!(
        (store.uuid(), store.geometry(), store.incarnation()),
        (mode().new_uuid, mode().create.expect("sizes"), 2)
    );
    let sealed = store
        .sealed(SegmentClass::Hot, SegmentId::new(1))
        .expect("sealed");
    assert_eq!(sealed.end, Lsn::new(first_lsn(1).raw() + 4120));
    store
        .verify_sealed(SegmentClass::Hot, SegmentId::new(1))
        .expect("intact");
    let header = store
        .header(SegmentClass::Hot, SegmentId::new(2))
        .expect("intact")
        .expect("begun");
    assert_eq!(
        (header.previous, header.cut_checksum, header.incarnation),
        (SegmentId::new(1), 0xfeed_0002, 1)
    );
    assert_eq!(header.cut, Lsn::new(first_lsn(2).raw() - 1024));
    assert_eq!(store.checkpoint(), Some(golden_checkpoint(SegmentId::new(1))));
    check_golden_piece(&store);
    let value = BlobRef {
        addr: Addr::in_segment(AddrClass::Blob, SegmentId::new(1), 4096 + 24),
        len: 7,
        hash: pbxt_base::checksum::xxh3(b"another"),
    };
    let mut out = Vec::new();
    BlobStore::open(store)
        .expect("blobs")
        .read(&value, &mut out)
        .expect("readable");
    assert_eq!(out, b"another");
}

fn check_golden_piece(store: &SegmentStore) {
    let piece = PieceFile::open(store, SegmentClass::Meta, SegmentId::new(1)).expect("open");
    piece.verify().expect("intact");
    let [first, second] = piece.sections() else {
        panic!("two sections, found {:?}", piece.sections());
    };
    assert_eq!(
        (first.owner, first.kind, first.entries, first.raw_bytes),
        (0x0102, 3, 9, 133)
    );
    assert_eq!((&*first.extra, &*first.last_key), (&b"extra"[..], &b"last"[..]));
    assert_eq!((second.owner, second.kind, second.block_count()), (0x0304, 5, 0));
    let mut out = Vec::new();
    for (block, (key, raw)) in [
        (&b"key 1"[..], &b"plain"[..]),
        (b"key 2", &REPEATED),
        (b"kez", &REPEATED),
    ]
    .into_iter()
    .enumerate()
    {
        piece.read_block(0, block, &mut out).expect("readable");
        assert_eq!((first.first_key(block), &out[..]), (key, raw));
    }
}

#[test]
fn hexadecimal_text_gives_the_bytes_back() {
    let bytes: Vec<u8> = (0..1000_u32)
        .map(|at| if at % 300 < 200 { 0 } else { at as u8 })
        .collect();
    assert_eq!(from_hex(&to_hex(&bytes)), bytes);
}
