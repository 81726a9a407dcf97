//! What the tests of the program share: a small database with a file of each kind, made by the storage floors alone, and
//! the program itself.
#![allow(dead_code, reason = "every test file uses its own part")]

use pbxt::{Database, Options};
use pbxt_base::{Addr, CommitTs, Error, IndexId, Lsn, RowId, SegmentId, TableId, TxnId};
use pbxt_index::{RunBuilder, Sign};
use pbxt_io::{Disk, OsDisk, Poison};
use pbxt_rows::{Column, ColumnKind, RowBlockBuilder, RowBuilder, Schema, SectionExtra, ZoneBuilder};
use pbxt_segment::{
    BlobRef, BlobStore, Checkpoint, Codec, Geometry, OpenMode, PieceFile, PieceWriter, SegmentClass,
    SegmentStore,
};
use pbxt_txlog::{EndRecord, Log, LogOptions, LogScan, Outcome, RowKind, RowRecord, Space};
use roaring::RoaringTreemap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

pub(crate) const TABLE: TableId = TableId::new(5);
pub(crate) const INDEX: IndexId = IndexId::new(7);
const SECTION_ROWS: u8 = 1;
const SECTION_IMAGE: u8 = 3;

/// A database that is open.
pub(crate) struct Fixture {
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) blobs: Arc<BlobStore>,
    pub(crate) log: Arc<Log>,
}

impl Fixture {
    pub(crate) fn open(directory: &Path) -> Fixture {
        Fixture::open_with(directory, Geometry::small())
    }

    pub(crate) fn open_with(directory: &Path, geometry: Geometry) -> Fixture {
        let disk = Arc::new(OsDisk::open(directory, true).expect("a directory"));
        let mode = OpenMode {
            create: Some(geometry),
            read_only: false,
            new_uuid: 0xabcd,
            now: 1_800_000_000,
        };
        let store = loop {
            match SegmentStore::open(Arc::clone(&disk) as Arc<dyn Disk>, mode) {
                Err(Error::Locked { .. }) => wait_until_free(directory),
                store => break Arc::new(store.expect("a database")),
            }
        };
        let blobs = Arc::new(BlobStore::open(Arc::clone(&store)).expect("blobs"));
        let end = LogScan::new(Arc::clone(&store), Lsn::new(0))
            .and_then(LogScan::finish)
            .expect("a log");
        let options = LogOptions {
            worker: false,
            ..LogOptions::default()
        };
        let parts = (Arc::clone(&store), Arc::clone(&blobs), Arc::new(Poison::new()));
        let log = Log::open(parts.0, parts.1, parts.2, end, options).expect("a log to write to");
        Fixture { store, blobs, log }
    }

    /// Writes an insert of a row; where it is.
    pub(crate) fn insert(&self, row: u64, bytes: usize) -> Lsn {
        let payload = vec![row as u8; bytes];
        let record = RowRecord {
            kind: RowKind::Insert,
            first: false,
            temporary: false,
            table: TABLE,
            txn: TxnId::new(11),
            row: RowId::new(row),
            schema_version: 1,
            prev: Addr::NONE,
            foreign_prev: None,
            key_images: &[],
            payload: &payload,
        };
        let mut reservation = self.log.reserve(record.encoded_len(), Space::Row).expect("space");
        record.encode_into(reservation.bytes_mut());
        let lsn = reservation.lsn();
        reservation.publish();
        lsn
    }

    pub(crate) fn commit(&self, ts: u64) {
        let record = EndRecord {
            txn: TxnId::new(11),
            outcome: Outcome::Commit(CommitTs::new(ts)),
            deltas: &[],
            voids: &[],
        };
        let mut reservation = self
            .log
            .reserve(record.encoded_len(), Space::Spare)
            .expect("space");
        record.encode_into(reservation.bytes_mut());
        self.log.wait_durable(reservation.publish()).expect("durable");
    }

    /// An index run with keys `key 0000`, `key 0001`, ... of rows 1, 2, ...
    pub(crate) fn index_run(&self, entries: u64) -> SegmentId {
        let mut builder = RunBuilder::new(&self.store, INDEX, None, Codec::Zstd(1));
        for number in 0..entries {
            let key = format!("key {number:04}");
            let (lsn, txn) = (Lsn::new(number * 8), TxnId::new(9));
            builder
                .push(key.as_bytes(), RowId::new(number + 1), lsn, Sign::Entry, txn, &[])
                .expect("an entry");
        }
        builder.finish().expect("a run").pieces[0].reference().0
    }

    /// A piece of rows with the ids 10, 20, ... of one column.
    pub(crate) fn row_piece(&self, rows: u64) -> SegmentId {
        let schema = schema();
        let mut piece = PieceWriter::create(&self.store, SegmentClass::Cold).expect("a file");
        piece.begin_section(u64::from(TABLE.raw()), SECTION_ROWS);
        let (mut set, mut zones) = (RoaringTreemap::new(), ZoneBuilder::new(&schema));
        for first in (1..=rows).step_by(8) {
            let mut block = RowBlockBuilder::new(&schema);
            for number in first..(first + 8).min(rows + 1) {
                set.insert(number * 10);
                block
                    .push(RowId::new(number * 10), Some(&payload(&schema, number)))
                    .expect("a row");
            }
            let mut raw = Vec::new();
            let count = block.rows() as u32;
            zones.push(&block);
            block.finish(&mut raw);
            piece
                .push_block(&fence(first * 10), count, &raw, Codec::Lz4)
                .expect("a block");
        }
        let mut ids = Vec::new();
        set.serialize_into(&mut ids).expect("memory");
        piece.end_section(&fence(rows * 10), &SectionExtra::encode(&ids, &mut zones));
        piece.finish().expect("a piece")
    }

    /// A meta file as the image of a checkpoint without tables.
    pub(crate) fn image(&self) -> SegmentId {
        let mut piece = PieceWriter::create(&self.store, SegmentClass::Meta).expect("a file");
        piece.begin_section(0, SECTION_IMAGE);
        let items = items_of_no_table();
        piece.push_block(&[], 2, &items, Codec::Zstd(1)).expect("a block");
        piece.end_section(&[], &[]);
        piece.finish().expect("an image")
    }
}

/// The items of an image of a database without tables, which only the engine can write.
fn items_of_no_table() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(OsDisk::open(directory.path(), true).expect("a directory"));
    let options = Options {
        geometry: Geometry::small(),
        background: false,
        ..Options::default()
    };
    let db = Database::open(disk, &options).expect("a database");
    db.checkpoint_step().expect("a checkpoint");
    let image = db.store().checkpoint().expect("a checkpoint").image;
    let image = PieceFile::open(db.store(), SegmentClass::Meta, image).expect("its image");
    let mut items = Vec::new();
    image.read_block(0, 0, &mut items).expect("a block");
    items
}

/// What `fill` has written where.
pub(crate) struct Written {
    pub(crate) blob: BlobRef,
    pub(crate) run: SegmentId,
    pub(crate) rows: SegmentId,
    pub(crate) image: SegmentId,
    pub(crate) first_row: Lsn,
}

/// Makes a database with a file of each kind, closed in order: two sealed hot segments at least, two manifests.
pub(crate) fn fill(directory: &Path) -> Written {
    let fixture = Fixture::open(directory);
    let first_row = fixture.insert(1, 100);
    for row in 2..300 {
        fixture.insert(row, 1000);
        if row % 50 == 0 {
            fixture.commit(row);
        }
    }
    let blob = fixture.blobs.append(&vec![3; 600_000]).expect("a value");
    fixture.blobs.append(&[4; 10_000]).expect("a value");
    fixture.blobs.sync().expect("durable");
    let (run, rows, image) = (fixture.index_run(3000), fixture.row_piece(50), fixture.image());
    fixture.commit(300);
    let checkpoint = Checkpoint {
        image,
        start: fixture.log.durable(),
        log_start: Lsn::new(first_row.raw() / 8 * 8),
    };
    fixture.store.note_checkpoint(checkpoint).expect("a checkpoint");
    fixture.log.close().expect("closed");
    drop(fixture);
    // What follows the end of the manifest makes the next opening begin the other file.
    let manifest = directory.join("pbxt.manifest.b");
    let end = std::fs::read(&manifest).expect("the manifest");
    let end = end.iter().rposition(|byte| *byte != 0).expect("records") + 1;
    overwrite(&manifest, end as u64 + 3, &[9; 5]);
    Fixture::open(directory).log.close().expect("closed");
    wait_until_free(directory);
    Written {
        blob,
        run,
        rows,
        image,
        first_row,
    }
}

pub(crate) fn schema() -> Schema {
    let column = Column {
        kind: ColumnKind::Var,
        nullable: true,
    };
    Schema::new(1, vec![column]).expect("a schema")
}

fn payload(schema: &Schema, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(schema);
    builder
        .set(0, Some(format!("value {number}").as_bytes()))
        .expect("fits");
    builder.finish(&mut out).expect("fits");
    out
}

#[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
fn fence(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A file of keys.
pub(crate) fn key_file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// The program with these arguments.
pub(crate) fn pbxt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pbxt"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Waits until nobody has the directory locked. A program that another test starts shares the locks of this process until
/// it has begun, so a database that was closed may look open for a moment.
pub(crate) fn wait_until_free(directory: &Path) {
    let Ok(lock) = std::fs::File::open(directory.join("pbxt.lock")) else {
        return;
    };
    while lock.try_lock_shared().is_err() {
        std::thread::yield_now();
    }
}

/// What it prints, and its exit code.
pub(crate) fn answer(arguments: &[&str]) -> (String, i32) {
    let output = pbxt(arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("text");
    (text, output.status.code().expect("an exit code"))
}

pub(crate) fn text_of(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

pub(crate) fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the file");
    file.write_all_at(bytes, offset).expect("a write");
}

/// Flips a bit of a file; what was there.
pub(crate) fn flip(path: &Path, offset: u64) -> u8 {
    let byte = std::fs::read(path).expect("the file")[offset as usize];
    overwrite(path, offset, &[byte ^ 4]);
    byte
}

/// All files of a directory with their content and time of change.
pub(crate) fn state(directory: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut state: Vec<_> = std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let changed = std::fs::metadata(&path)
                .and_then(|found| found.modified())
                .expect("a time");
            let bytes = std::fs::read(&path).expect("content");
            (path, bytes, changed)
        })
        .collect();
    state.sort();
    state
}
