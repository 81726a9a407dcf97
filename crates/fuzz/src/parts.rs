//! Parts: decoders of bytes, each by itself.
//!
//! Why it exists: below compression and checksums the fuzzer reaches every branch of a decoder quickly.
//! Rules: FZ1 any bytes give a value or an error. FZ2 a value that was decoded can be asked everything, and encodes to
//! bytes that give the same value.

use crate::rig::{self, Capitals};
use pbxt::{KeySample, TableDef};
use pbxt_base::{Lsn, TxnId};
use pbxt_index::{EntryRoom, RunBlock, SeekPos};
use pbxt_rows::{
    BlobSink, KeySpec, OlderSchema, RowBlock, RowBuilder, RowCodec, RowView, Schema, SectionExtra, Value,
};
use pbxt_txlog::{Record, RecordRef};
use pbxt_txn::TxnTableImage;
use std::hint::black_box;

/// Records until one is none.
pub(crate) fn log_records(input: &[u8]) {
    let mut rest = input;
    while let Ok(record) = RecordRef::parse(rest) {
        look_at(&record);
        rest = rest.get(record.stride()..).unwrap_or_default();
    }
}

fn look_at(record: &RecordRef<'_>) {
    assert!(
        record.bytes().len() <= record.stride(),
        "FZ2: padding stands behind a record"
    );
    match record.view() {
        Record::Filler => {}
        Record::Row(row) => {
            black_box((
                row.kind(),
                row.table(),
                row.txn(),
                row.row(),
                row.schema_version(),
            ));
            black_box((row.prev(), row.foreign_prev(), row.payload().len()));
            black_box(row.key_images().flatten().count());
        }
        Record::End(end) => {
            black_box((end.txn(), end.outcome()));
            black_box((end.deltas().count(), end.voids().count()));
        }
        Record::Prepare(vote) => {
            black_box((
                vote.txn(),
                vote.xid().len(),
                vote.deltas().count(),
                vote.voids().count(),
            ));
        }
        Record::RollbackTo(back) => drop(black_box((back.txn(), back.range()))),
        Record::Catalog(change) => drop(black_box((change.txn(), change.op(), change.bytes().len()))),
        Record::AutoInc(mark) => drop(black_box((mark.table(), mark.high_mark()))),
    }
    if let Some(load) = record.as_ingest() {
        black_box((
            load.txn(),
            load.table(),
            load.index(),
            load.first_row(),
            load.last_row(),
        ));
        black_box((load.rows(), load.pieces().count()));
    }
}

pub(crate) fn transactions(input: &[u8]) {
    if let Ok(image) = TxnTableImage::decode(input, "input", 0) {
        let again = TxnTableImage::decode(&image.encode(), "again", 0);
        assert_eq!(again.ok(), Some(image), "FZ2: transactions");
    }
}

pub(crate) fn definition(input: &[u8]) {
    let Ok(table) = TableDef::decode(input) else {
        return;
    };
    let mut again = Vec::new();
    table.encode(&mut again);
    let decoded = TableDef::decode(&again).expect("FZ2: what was encoded decodes");
    let mut twice = Vec::new();
    decoded.encode(&mut twice);
    assert_eq!(again, twice, "FZ2: a definition");
}

pub(crate) fn key_sample(input: &[u8]) {
    let Ok(sample) = KeySample::decode(input) else {
        return;
    };
    let mut again = Vec::new();
    sample.encode(&mut again);
    assert_eq!(again, input, "FZ2: the one encoding of a sample");
}

pub(crate) fn columns(input: &[u8]) {
    let Some((which, input)) = input.split_first() else {
        return;
    };
    let mut again = Vec::new();
    match which % 3 {
        0 => match Schema::decode(input) {
            Ok(schema) => schema.encode(&mut again),
            Err(_) => return,
        },
        1 => match KeySpec::decode(input) {
            Ok(spec) => spec.encode(&mut again),
            Err(_) => return,
        },
        _ => match OlderSchema::decode_list(input, usize::from(which / 3)) {
            Ok(list) => OlderSchema::encode_list(&list, &mut again),
            Err(_) => return,
        },
    }
    assert_eq!(again, input, "FZ2: the one encoding of columns and keys");
}

/// Splits off a part with two bytes of length before it; a length too long takes all.
fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return (&[], &[]);
    };
    rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()))
}

pub(crate) fn row_block(input: &[u8]) {
    let (schema, block) = split(input);
    let Ok(schema) = Schema::decode(schema) else {
        return;
    };
    let Ok(block) = RowBlock::decode(&schema, block) else {
        return;
    };
    assert!(
        block.memory_bytes() < 64 << 20,
        "FZ1: memory of a block is bounded"
    );
    for index in 0..block.len() {
        let row = block.row_id(index);
        assert_eq!(block.find(row), Some(index), "F31: rows rise");
        assert_eq!(block.lower_bound(row), index, "F31: rows rise");
        if let Some(payload) = block.payload(index) {
            let view = RowView::new(&schema, payload).expect("F30: a payload of a block has all its columns");
            black_box(view.check().is_ok());
        }
    }
}

/// Keeps values that a record points to as long as the record.
#[derive(Default)]
struct Kept(Vec<Box<[u8]>>);

impl BlobSink for Kept {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        self.0.push(value.into());
        self.0.last().map_or(std::ptr::null(), |kept| kept.as_ptr())
    }

    fn load(&mut self, _column: usize, blob: &pbxt_rows::BlobRef) -> pbxt_rows::Result<&[u8]> {
        self.0.push(vec![7; blob.len.min(100) as usize].into());
        Ok(self.0.last().map_or(&[], |kept| kept))
    }
}

pub(crate) fn row(input: &[u8]) {
    let codec = rig::codec().expect("a layout of the rig");
    let mut record = vec![0; codec.layout().record_length()];
    let decoded = codec.decode(input, codec.all_columns(), &mut record, &mut Kept::default());
    black_box(decoded.is_ok());
    let Ok(view) = RowView::new(codec.schema(), input) else {
        assert!(codec.check(input).is_err(), "FZ2: two readers of a payload agree");
        return;
    };
    if view.check().is_ok() {
        assert_eq!(rebuilt(&codec, &view), input, "FZ2: the one encoding of a row");
    }
}

fn rebuilt(codec: &RowCodec, view: &RowView<'_>) -> Vec<u8> {
    let mut builder = RowBuilder::new(codec.schema());
    for column in 0..view.column_count() {
        match view.get(column).expect("FZ2: a checked payload can be read") {
            Value::Null => {}
            Value::Bytes(bytes) => builder.set(column, Some(bytes)).expect("FZ2: fits its column"),
            Value::External(blob) => builder
                .set_external(column, blob)
                .expect("FZ2: of variable length"),
        }
    }
    let mut built = Vec::new();
    builder.finish(&mut built).expect("FZ2: no value is missing");
    built
}

/// Which columns the index has, which of them descend, how many parts count; then the key, then its unpack information.
pub(crate) fn key(input: &[u8]) {
    let Some((head, rest)) = input.split_first_chunk::<5>() else {
        return;
    };
    let [wanted_low, wanted_high, low, high, parts] = *head;
    let wanted = u16::from_le_bytes([wanted_low, wanted_high]);
    let descending = u16::from_le_bytes([low, high]);
    let Ok(maker) = rig::key_maker(wanted, descending, parts & 0x80 != 0) else {
        return;
    };
    let parts = usize::from(parts & 0x7f).min(maker.part_count());
    let (key, unpack) = split(rest);
    let codec = rig::codec().expect("a layout of the rig");
    let mut record = vec![0; codec.layout().record_length()];
    let (mut scratch, mut sink) = (Vec::new(), Kept::default());
    let all = codec.all_columns();
    let restored = maker.record_from_key((key, unpack), parts, all, &mut record, &mut sink, &mut scratch);
    let length = maker.prefix_length(key, parts, &mut scratch);
    if let Ok(length) = &length {
        assert!(*length <= key.len(), "FZ2: a prefix is not longer than its key");
    }
    assert!(
        restored.is_err() || length.is_ok(),
        "FZ2: two readers of a key agree"
    );
    let mut made = b"kept".to_vec();
    if maker
        .key_from_search_tuple(rest, parts, &Capitals, &mut made)
        .is_err()
    {
        assert_eq!(made, b"kept", "FZ2: a tuple that is refused leaves nothing");
    }
}

pub(crate) fn run_block(input: &[u8]) {
    let Some((tagged, bytes)) = input.split_first() else {
        return;
    };
    let tag = (tagged & 1 == 1).then(|| (TxnId::new(7), Lsn::new(70)));
    let Ok(block) = RunBlock::decode(bytes, tag) else {
        return;
    };
    let (mut room, mut other) = (EntryRoom::default(), EntryRoom::default());
    for index in 0..block.len() {
        let entry = block.entry(index, &mut room);
        black_box((
            entry.row(),
            entry.txn(),
            entry.lsn(),
            entry.sign(),
            entry.unpack().len(),
        ));
        black_box(block.partition_point(&SeekPos::before_entry(entry)));
        if let Some(next) = index.checked_add(1).filter(|next| *next < block.len()) {
            black_box(entry.order(block.entry(next, &mut other)));
        }
    }
}

pub(crate) fn section_extra(input: &[u8]) {
    let Some((blocks, bytes)) = input.split_first() else {
        return;
    };
    let blocks = usize::from(*blocks);
    let Ok(extra) = SectionExtra::decode(bytes, blocks) else {
        return;
    };
    black_box(extra.rows.len());
    for column in extra.zones.columns() {
        for block in 0..=blocks {
            black_box(extra.zones.zone(bytes, block, column));
        }
    }
}
