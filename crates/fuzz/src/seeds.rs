//! Seeds: inputs that decode, made by the encoders, or taken from the files of the small database.
//!
//! Why it exists: from bytes that decode a fuzzer gets behind the first check at once.

use crate::files::closed;
use crate::rig::{self, Capitals};
use pbxt::{KeySample, SampledBy, TableDef};
use pbxt_base::{CommitTs, Lsn, TxnId};
use pbxt_index::SECTION_INDEX_RUN;
use pbxt_rows::{OlderSchema, Origin, RowBlock, RowBuilder, Schema};
use pbxt_segment::{OpenMode, PieceFile, SegmentClass, SegmentStore};
use pbxt_sim::table::definition;
use pbxt_txlog::LogScan;
use pbxt_txn::{EndedAs, RestoredTxn, TxnTableImage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind of a section with row blocks; docs/format-rows.md.
const SECTION_ROWS: u8 = 1;
/// Seeds of one target at most; more of the same teach a fuzzer nothing.
const SEEDS_MAX: usize = 40;

fn store() -> Arc<SegmentStore> {
    let mode = OpenMode {
        create: None,
        read_only: true,
        new_uuid: 0,
        now: 0,
    };
    let disk = Arc::new(closed().disk.kill());
    Arc::new(SegmentStore::open(disk, mode).expect("the exhibit opens"))
}

/// Some records of each kind.
pub(crate) fn log_records() -> Vec<Vec<u8>> {
    let store = store();
    let start = store
        .checkpoint()
        .map_or(Lsn::new(0), |checkpoint| checkpoint.log_start);
    let mut scan = LogScan::new(store, start).expect("the log of the exhibit");
    let mut found: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    while let Some((_, record)) = scan.next_record().expect("the log of the exhibit") {
        let mut bytes = record.bytes().to_vec();
        bytes.resize(record.stride(), 0);
        found.entry(bytes[0]).or_default().push(bytes);
    }
    let mut seeds: Vec<Vec<u8>> = found
        .values()
        .flat_map(|records| records.iter().take(6).cloned())
        .collect();
    seeds.push(seeds.concat());
    seeds
}

pub(crate) fn transactions() -> Vec<Vec<u8>> {
    let txn = |id, ended, voids| RestoredTxn {
        id: TxnId::new(id),
        ended,
        voids,
    };
    let range = Lsn::new(4096)..Lsn::new(5000);
    let many = TxnTableImage {
        next: TxnId::new(900),
        last_ts: CommitTs::new(700),
        exceptions: vec![
            txn(7, EndedAs::Prepared, vec![]),
            txn(8, EndedAs::Aborted, vec![range.clone()]),
            txn(
                90,
                EndedAs::Committed(CommitTs::new(600)),
                vec![range.clone(), range],
            ),
        ],
    };
    vec![TxnTableImage::default().encode(), many.encode()]
}

fn table() -> TableDef {
    definition("old").expect("the exhibit's definition")
}

pub(crate) fn definitions() -> Vec<Vec<u8>> {
    let mut other = table();
    let schema = other.schema.clone();
    other.older = older(&schema);
    other.host_image = b"an image of the host".to_vec();
    other.host_version = b"version".to_vec();
    let image = |table: &TableDef| {
        let mut out = Vec::new();
        table.encode(&mut out);
        out
    };
    let encrypted = TableDef {
        encrypted: true,
        ..table()
    };
    vec![image(&table()), image(&other), image(&encrypted)]
}

pub(crate) fn key_samples() -> Vec<Vec<u8>> {
    let image = |by, changes| {
        let mut out = Vec::new();
        let sample = KeySample {
            entries: 1000,
            taken: 1_700_000_000,
            by,
            pairs: 640,
            changes,
        };
        sample.encode(&mut out);
        out
    };
    vec![
        image(SampledBy::Use, Vec::new()),
        image(SampledBy::Use, vec![0]),
        image(SampledBy::Analyze, vec![5, 600, 640]),
    ]
}

fn older(schema: &Schema) -> Vec<OlderSchema> {
    vec![OlderSchema {
        schema: schema.clone().with_version(0),
        origins: (0..schema.columns().len() as u16).map(Origin::Column).collect(),
    }]
}

pub(crate) fn columns() -> Vec<Vec<u8>> {
    let table = table();
    let mut seeds = vec![vec![0]];
    table.schema.encode(&mut seeds[0]);
    let mut of_rig = vec![0];
    rig::schema().expect("a layout of the rig").encode(&mut of_rig);
    seeds.push(of_rig);
    seeds.extend(table.indexes.iter().map(|index| {
        let mut out = vec![1];
        index.spec.encode(&mut out);
        out
    }));
    let mut list = vec![2 + 3 * table.schema.columns().len() as u8];
    OlderSchema::encode_list(&older(&table.schema), &mut list);
    seeds.push(list);
    seeds
}

/// Blocks of sections of a kind, with the extra bytes of their section and how many blocks that has.
fn blocks(class: SegmentClass, kind: u8) -> Vec<(Vec<u8>, Vec<u8>, usize)> {
    let store = store();
    let mut found = Vec::new();
    for id in store.list(class).expect("a listing") {
        let file = PieceFile::open(&store, class, id).expect("a piece of the exhibit");
        for (number, section) in file.sections().iter().enumerate() {
            for block in (0..section.block_count()).filter(|_| section.kind == kind) {
                let mut raw = Vec::new();
                file.read_block(number as u32, block, &mut raw)
                    .expect("a block of the exhibit");
                found.push((raw, section.extra.to_vec(), section.block_count()));
            }
        }
    }
    found.truncate(SEEDS_MAX);
    found
}

/// The bytes with their length before them.
fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("seeds are short");
    [&length.to_le_bytes(), bytes].concat()
}

pub(crate) fn row_blocks() -> Vec<Vec<u8>> {
    let mut schema = Vec::new();
    table().schema.encode(&mut schema);
    let blocks = blocks(SegmentClass::Cold, SECTION_ROWS).into_iter();
    blocks.map(|(raw, ..)| [counted(&schema), raw].concat()).collect()
}

pub(crate) fn section_extras() -> Vec<Vec<u8>> {
    let blocks = blocks(SegmentClass::Cold, SECTION_ROWS).into_iter();
    blocks
        .map(|(_, extra, count)| [&[count as u8], extra.as_slice()].concat())
        .collect()
}

pub(crate) fn run_blocks() -> Vec<Vec<u8>> {
    let blocks = blocks(SegmentClass::Meta, SECTION_INDEX_RUN).into_iter();
    blocks
        .flat_map(|(raw, ..)| [0, 1].map(|tag| [&[tag], raw.as_slice()].concat()))
        .collect()
}

/// Rows of the rig: all NULL that may be, and all with a value.
pub(crate) fn rows() -> Vec<Vec<u8>> {
    let schema = rig::schema().expect("a layout of the rig");
    let row = |full: bool| {
        let mut builder = RowBuilder::new(&schema);
        for (number, column) in schema.columns().iter().enumerate() {
            let width = match column.kind {
                pbxt_rows::ColumnKind::Fixed(bytes) => usize::from(bytes),
                _ => 5,
            };
            let value = vec![b'a' + number as u8; width];
            let value = (full || !column.nullable).then_some(value);
            builder.set(number, value.as_deref()).expect("fits its column");
        }
        let mut out = Vec::new();
        builder.finish(&mut out).expect("no value is missing");
        out
    };
    let block = |(raw, ..): &(Vec<u8>, Vec<u8>, usize)| {
        let block = RowBlock::decode(&table().schema, raw).expect("a block of the exhibit");
        (0..block.len().min(3))
            .filter_map(|index| block.payload(index).map(<[u8]>::to_vec))
            .collect::<Vec<_>>()
    };
    let stored = blocks(SegmentClass::Cold, SECTION_ROWS);
    let mut seeds: Vec<_> = stored.iter().take(2).flat_map(block).collect();
    seeds.extend([row(false), row(true)]);
    seeds
}

/// Keys that search tuples make, each in the two places of an input: the tuple is read behind the head, and so is a key.
pub(crate) fn keys() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for number in 0..11_u16 {
        for descending in [0, u16::MAX] {
            let wanted = 1 << number;
            let maker = rig::key_maker(wanted, descending, false).expect("an index of the rig");
            let head = [wanted.to_le_bytes(), descending.to_le_bytes()].concat();
            let tuple: Vec<u8> = (0..40).map(|at| u8::from(at == 1) * 3).collect();
            let tuple = &tuple[..maker.tuple_length(1).min(tuple.len())];
            seeds.push([&head, &[1][..], tuple].concat());
            let mut key = Vec::new();
            if maker.key_from_search_tuple(tuple, 1, &Capitals, &mut key).is_ok() {
                seeds.push([&head, &[1][..], &counted(&key)].concat());
                seeds.push([&head, &[0x81][..], &counted(&key), tuple].concat());
            }
        }
    }
    seeds
}
