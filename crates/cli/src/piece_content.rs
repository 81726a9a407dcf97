//! Piece content: what is in the blocks of a section, entry by entry, as lines.
//!
//! Why it exists: a section holds index entries, rows or an image, and each floor decodes its own; here is the one place
//! that knows which one to ask.
//! Format: docs/indexes.md (runs), docs/format-rows.md (row blocks).
//! Rules: nothing is guessed: rows whose columns are not known from the directory are listed by id alone.

use crate::text::hex;
use pbxt_base::{Result, RowId, TableId};
use pbxt_index::{EntryRoom, RunBlock, RunPiece, SECTION_INDEX_RUN, Sign};
use pbxt_rows::{RowBlock, RowView, Schema, SectionExtra, Value, Zone};
use pbxt_segment::{PieceFile, Section};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds of sections with rows and with an image, as the engine numbers them.
const SECTION_ROWS: u8 = 1;
const SECTION_IMAGE: u8 = 3;
/// Bytes of a value that are printed.
const VALUE_BYTES_SHOWN: usize = 40;

/// What a section holds, and of which table or index.
pub(crate) fn name_of(kind: u8, owner: u64) -> String {
    match kind {
        SECTION_INDEX_RUN => format!("entries of index {owner}"),
        SECTION_ROWS => format!("rows of table {owner}"),
        SECTION_IMAGE => "image of a checkpoint".into(),
        other => format!("content of kind {other}, owner {owner}"),
    }
}

/// Names and columns of the tables that are known.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) names: BTreeMap<TableId, String>,
    pub(crate) schemas: BTreeMap<TableId, Vec<Schema>>,
}

impl Content {
    /// Name of the table whose rows a section holds, if it is known.
    pub(crate) fn name_of_table(&self, section: &Section) -> Option<&str> {
        let table = TableId::new(u32::try_from(section.owner).ok()?);
        let name = self.names.get(&table).filter(|_| section.kind == SECTION_ROWS);
        name.map(String::as_str)
    }

    /// Entries of a decoded block, one a line.
    pub(crate) fn lines(
        &self,
        file: &Arc<PieceFile>,
        number: u32,
        block: usize,
        raw: &[u8],
    ) -> Result<Vec<String>> {
        let section = file.section(number)?;
        match section.kind {
            SECTION_INDEX_RUN => index_lines(file, number, raw),
            SECTION_ROWS => self.row_lines(section, block, raw, file.name()),
            _ => Ok(vec![format!(
                "{} items, not decoded here",
                section.block_entries(block)
            )]),
        }
    }

    fn row_lines(&self, section: &Section, block: usize, raw: &[u8], file: &str) -> Result<Vec<String>> {
        let version =
            RowBlock::schema_version_of(raw).map_err(|error| damaged(section, block, file, &error))?;
        let table = TableId::new(section.owner as u32);
        let known = self.schemas.get(&table).into_iter().flatten();
        let Some(schema) = known.into_iter().find(|schema| schema.version() == version) else {
            return Ok(row_ids(section, block, version));
        };
        let rows = RowBlock::decode(schema, raw).map_err(|error| damaged(section, block, file, &error))?;
        let lines = (0..rows.len()).map(|index| row_line(schema, rows.row_id(index), rows.payload(index)));
        Ok(lines.collect())
    }
}

fn index_lines(file: &Arc<PieceFile>, number: u32, raw: &[u8]) -> Result<Vec<String>> {
    let piece = RunPiece::open(Arc::clone(file), number)?;
    let block = RunBlock::decode(raw, piece.tag()).map_err(|error| error.in_file(file.name()))?;
    let mut room = EntryRoom::default();
    let line = |index| {
        let entry = block.entry(index, &mut room);
        let sign = match entry.sign() {
            Sign::Entry => '+',
            Sign::Anti => '-',
        };
        let stamp = match (entry.txn().raw(), entry.lsn().raw()) {
            (0, 0) => "settled".into(),
            (0, lsn) => format!("settled, lsn {lsn}"),
            (txn, lsn) => format!("txn {txn} lsn {lsn}"),
        };
        let unpack = match entry.unpack() {
            [] => String::new(),
            bytes => format!(", unpack {}", hex(bytes)),
        };
        format!(
            "{sign}key {} row {}, {stamp}{unpack}",
            hex(entry.key()),
            entry.row()
        )
    };
    Ok((0..block.len()).map(line).collect())
}

/// Ids of the rows of a block, from the set that the section carries; a deleted row has one too.
fn row_ids(section: &Section, block: usize, version: u16) -> Vec<String> {
    let mut lines = vec![format!(
        "rows of schema version {version}, whose columns are not known here: ids alone"
    )];
    let extra = SectionExtra::decode(&section.extra, section.block_count());
    if let Some(rows) = extra
        .ok()
        .and_then(|extra| RoaringTreemap::deserialize_from(extra.rows).ok())
    {
        let (skip, take) = (section.entries_before(block), section.block_entries(block));
        let rows = rows.iter().skip(skip as usize).take(take as usize);
        lines.extend(rows.map(|row| format!("row {row}")));
    }
    lines
}

/// What the directory says of the columns of a block of rows, as one line; none if it says nothing.
pub(crate) fn zone_line(section: &Section, block: usize) -> Option<String> {
    let extra = SectionExtra::decode(&section.extra, section.block_count());
    let zones = extra.ok().filter(|_| section.kind == SECTION_ROWS)?.zones;
    let zone = |column| {
        let zone: Zone = zones.zone(&section.extra, block, column)?;
        let values = match zone.values {
            Some((least, greatest)) => format!("{least:016x} to {greatest:016x}"),
            None => "no value".into(),
        };
        let null = if zone.has_null { " or NULL" } else { "" };
        Some(format!("column {column} {values}{null}"))
    };
    let columns: Vec<_> = zones.columns().filter_map(zone).collect();
    (!columns.is_empty()).then(|| columns.join(", "))
}

fn row_line(schema: &Schema, row: RowId, payload: Option<&[u8]>) -> String {
    let Some(payload) = payload else {
        return format!("row {row} deleted");
    };
    let values = match RowView::new(schema, payload) {
        Ok(view) => (0..view.column_count())
            .map(|column| view.get(column).map_or_else(|error| error.to_string(), value))
            .collect::<Vec<_>>()
            .join(", "),
        Err(error) => error.to_string(),
    };
    format!("row {row} ({values}), {} bytes", payload.len())
}

fn value(value: Value<'_>) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bytes(bytes) if !bytes.is_empty() && bytes.iter().all(|byte| (0x20..0x7f).contains(byte)) => {
            let shown = &bytes[..bytes.len().min(VALUE_BYTES_SHOWN)];
            let more = if shown.len() < bytes.len() { "..." } else { "" };
            format!("'{}{more}'", String::from_utf8_lossy(shown))
        }
        Value::Bytes(bytes) => format!("x{}", hex(bytes)),
        Value::External(blob) => format!("{} bytes at {:?}, hash {:016x}", blob.len, blob.addr, blob.hash),
    }
}

fn damaged(section: &Section, block: usize, file: &str, error: &pbxt_rows::Error) -> pbxt_base::Error {
    pbxt_base::Error::Corrupt {
        file: file.to_owned(),
        offset: section.block_offset(block),
        expected: "a block of rows".into(),
        found: error.to_string(),
    }
}
