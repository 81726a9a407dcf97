//! Check: verifies a table's rows, chains and indexes against each other.
//!
//! Why it exists: structural damage hides behind right answers until the day it does not; CHECK TABLE, the tools and
//! every test ask here.
//! What is checked, for one snapshot: every head and every version under it reads, belongs to its row and table, and
//! goes down in LSN; every payload decodes whole, large values included; the number of visible rows equals the row
//! count; each index tree is in order, every visible row has exactly the key its payload gives, and no index shows a row
//! that is not there or shows it twice.
//! Latches and I/O: as a reader; can be stopped by a kill.

use crate::cursor::{Bind, Cursor};
use crate::error::{Error, Result};
use crate::host::HostTable;
use crate::session::Session;
use crate::stored_values::StoredValues;
use crate::table::Table;
use crate::view::read_version;
use pbxt_base::RowId;
use pbxt_rows::{PayloadKeyMaker, RowView, Value};
use std::collections::HashMap;

/// Findings told in full; the rest is only counted.
const TOLD_MAX: u64 = 20;

struct Findings<'a> {
    tell: &'a mut dyn FnMut(&str),
    count: u64,
}

impl Findings<'_> {
    fn add(&mut self, text: &str) {
        self.count += 1;
        if self.count <= TOLD_MAX {
            (self.tell)(text);
        }
    }
}

impl HostTable {
    /// Checks the table for the session's snapshot. Calls `tell` for findings and returns their number.
    pub fn check(
        &self,
        session: &mut Session,
        tell: &mut dyn FnMut(&str),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64> {
        check_table(session, self.table(), tell, progress)
    }
}

/// See the module.
pub fn check_table(
    session: &mut Session,
    table: &std::sync::Arc<Table>,
    tell: &mut dyn FnMut(&str),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let mut findings = Findings { tell, count: 0 };
    let total = table.map.high_mark() * (1 + table.indexes.len() as u64);
    check_chains(session, table, &mut findings, &mut |done| progress(done, total))?;
    let rows = check_rows(session, table, &mut findings)?;
    let counted = session.count(table)?;
    if counted != rows.len() as u64 {
        findings.add(&format!(
            "the row count says {counted}, the table has {} visible rows",
            rows.len()
        ));
    }
    for number in 0..table.indexes.len() {
        check_index(session, table, number, &rows, &mut findings)?;
        progress(table.map.high_mark() * (2 + number as u64), total);
    }
    Ok(findings.count)
}

fn check_chains(
    session: &Session,
    table: &Table,
    findings: &mut Findings<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let db = session.database();
    for (row, word) in table.map.rows_from(RowId::new(1)) {
        if row.raw().is_multiple_of(4096) {
            progress(row.raw());
            if session.gate().is_killed() {
                return Err(Error::Killed);
            }
        }
        let guard = crossbeam_epoch::pin();
        let mut addr = word.addr();
        let mut above = None;
        while !addr.is_none() {
            let version = match read_version(db, addr, &guard) {
                Ok(Some(version)) => version,
                Ok(None) => break,
                Err(error) => {
                    findings.add(&format!("row {row}: {error}"));
                    break;
                }
            };
            if version.row() != row || version.table() != table.id {
                findings.add(&format!(
                    "row {row}: the version at {addr:?} belongs to row {} of table {}",
                    version.row(),
                    version.table()
                ));
                break;
            }
            if above.is_some_and(|above| addr.lsn() >= above) {
                findings.add(&format!("row {row}: the chain does not go down at {addr:?}"));
                break;
            }
            above = Some(addr.lsn());
            addr = version.prev();
        }
    }
    Ok(())
}

/// Visible rows with the hash of their payload, which the index checks compare with.
type Rows = HashMap<RowId, Vec<u8>>;

fn check_rows(
    session: &mut Session,
    table: &std::sync::Arc<Table>,
    findings: &mut Findings<'_>,
) -> Result<Rows> {
    let def = table.def();
    let blobs = std::sync::Arc::clone(session.database().blobs());
    let makers: Vec<Option<PayloadKeyMaker>> = table
        .indexes
        .iter()
        .map(|index| {
            if index.derivable {
                PayloadKeyMaker::new(&index.def.spec, &def.schema).map(Some)
            } else {
                Ok(None)
            }
        })
        .collect::<std::result::Result<_, _>>()?;
    let keep_keys = makers.iter().any(Option::is_some);
    let mut rows = Rows::new();
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.scan_start(session)?;
    let mut value = Vec::new();
    loop {
        let mut payload = Vec::new();
        let mut row = RowId::new(0);
        let mut problems = Vec::new();
        let found = cursor.scan_next(session, |version| {
            row = version.row();
            problems.extend(check_payload(&def.schema, version.payload(), &blobs, &mut value).err());
            if keep_keys {
                payload = version.payload().to_vec();
            }
            Ok(())
        })?;
        if !found {
            return Ok(rows);
        }
        for problem in problems {
            findings.add(&format!("row {row}: {problem}"));
        }
        rows.insert(row, payload);
    }
}

fn check_payload(
    schema: &pbxt_rows::Schema,
    payload: &[u8],
    blobs: &pbxt_segment::BlobStore,
    value: &mut Vec<u8>,
) -> std::result::Result<(), String> {
    let view = RowView::new(schema, payload).map_err(|error| error.to_string())?;
    for column in 0..view.column_count() {
        if let Value::External(blob) = view.get(column).map_err(|error| error.to_string())? {
            let stored = pbxt_segment::BlobRef {
                addr: blob.addr,
                len: blob.len,
                hash: blob.hash,
            };
            blobs.read(&stored, value).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn check_index(
    session: &mut Session,
    table: &std::sync::Arc<Table>,
    number: usize,
    rows: &Rows,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let index = &table.indexes[number];
    let name = index.def.name.clone();
    let parts = index.parts();
    for tree in std::iter::once(&parts.active).chain(&parts.frozen) {
        if let Err(problem) = tree.check() {
            findings.add(&format!("index '{name}': {problem}"));
        }
    }
    let schema = table.def().schema.clone();
    let maker = if index.derivable {
        Some(PayloadKeyMaker::new(&index.def.spec, &schema)?)
    } else {
        None
    };
    let mut seen: HashMap<RowId, u32> = HashMap::with_capacity(rows.len());
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, number)?;
    let mut forward = false;
    let mut key = Vec::new();
    loop {
        let found = if forward {
            cursor.index_move(session, true, false, |_| Ok(()))?
        } else {
            cursor.index_edge(session, false, |_| Ok(()))?
        };
        forward = true;
        if !found {
            break;
        }
        let row = cursor.row();
        *seen.entry(row).or_default() += 1;
        let Some(payload) = rows.get(&row) else {
            findings.add(&format!(
                "index '{name}' shows row {row}, which a table scan does not"
            ));
            continue;
        };
        if let Some(maker) = &maker {
            key.clear();
            maker.key_from_payload(
                payload,
                &mut StoredValues::new(session.database().blobs()),
                &mut key,
            )?;
            if key != cursor.current_key() {
                findings.add(&format!(
                    "index '{name}' has row {row} under a key that its columns do not give"
                ));
            }
        }
    }
    for row in rows.keys() {
        match seen.get(row) {
            Some(1) => {}
            Some(times) => findings.add(&format!("index '{name}' shows row {row} {times} times")),
            None => findings.add(&format!("index '{name}' does not show row {row}")),
        }
    }
    Ok(())
}
