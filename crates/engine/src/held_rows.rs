//! Held rows: what recovery does with rows whose newest version is of a prepared transaction.
//!
//! Why it exists: a record says BASE for its predecessor when that had been homed by then; but a crash goes back to the shapes of
//! the checkpoint, and the version that BASE meant may be a record of the log's tail again. Under a committed head nobody
//! asks. Under a prepared one the predecessor is what everybody sees until the transaction ends.
//! Rules: S24 the newest committed version beneath a prepared one of the tail is homed again before the prepared one is
//! linked.
//! Latches and I/O: no other thread uses the database yet; writes cold files.
//! After a crash: done again.

use crate::database::Database;
use crate::error::Result;
use crate::homing::{Standing, standing_of};
use crate::row_output::RowOutput;
use crate::row_pieces::{Level, codec_of};
use crate::row_shape::{RowRun, RowShape, SETTLED};
use crate::row_writer::RowWriter;
use crate::table::Table;
use crate::view::{head_addr, read_version};
use pbxt_base::{Addr, CommitTs, Lsn, RowId, TableId};
use pbxt_rowmap::MapWord;
use std::sync::Arc;

/// A version of a prepared transaction in the log's tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRow {
    pub table: TableId,
    pub row: RowId,
    pub lsn: Lsn,
    pub is_tombstone: bool,
}

/// Homes what lies beneath the held rows, then links them (rule S24).
pub(crate) fn adopt_held(db: &Database, mut held: Vec<HeldRow>) -> Result<()> {
    held.sort_unstable_by_key(|found| (found.table, found.row, found.lsn));
    let mut out = RowOutput::new(db);
    let mut tables: Vec<Arc<Table>> = Vec::new();
    let mut scratch = Vec::new();
    for group in held.chunk_by(|a, b| a.table == b.table) {
        let Some(table) = db.catalog.by_id(group[0].table) else {
            continue;
        };
        let mut writer = RowWriter::new(table.schema(), codec_of(&table, Level::Upper));
        for rows in group.chunk_by(|a, b| a.row == b.row) {
            home_beneath(db, &table, rows[0].row, &mut writer, &mut out, &mut scratch)?;
        }
        out.end_section(tables.len(), &mut writer)?;
        tables.push(table);
    }
    let mut written = out.finish()?;
    written.keep();
    for (number, table) in tables.iter().enumerate() {
        let pieces = written.of(number);
        if !pieces.is_empty() {
            let _latch = table.shaping.lock();
            let mut runs = vec![Arc::new(RowRun::new(SETTLED, pieces))];
            runs.extend(table.base.shape().runs.iter().cloned());
            table.base.install(RowShape { runs });
        }
    }
    for newest in held.chunk_by(|a, b| (a.table, a.row) == (b.table, b.row)) {
        let newest = newest[newest.len() - 1];
        let Some(table) = db.catalog.by_id(newest.table) else {
            continue;
        };
        let addr = Addr::hot(newest.lsn);
        let word = if newest.is_tombstone {
            MapWord::tombstone(addr)
        } else {
            MapWord::version(addr)
        };
        if table.map.load(newest.row).addr().lsn() < newest.lsn {
            table.map.store_recovered(newest.row, word);
        }
    }
    Ok(())
}

/// Writes the newest committed version of the row, if it is in the log; `scratch` is for one with columns of before.
fn home_beneath(
    db: &Database,
    table: &Table,
    row: RowId,
    writer: &mut RowWriter,
    out: &mut RowOutput<'_>,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let guard = crossbeam_epoch::pin();
    let mut addr = head_addr(table.map.load_in(row, &guard));
    while !addr.is_none() {
        let Some(version) = read_version(db, addr, &guard)? else {
            return Ok(());
        };
        let everything = CommitTs::new(u64::MAX);
        if standing_of(db, version.txn(), addr.lsn(), everything, &guard) == Standing::Settled {
            if !version.is_tombstone() {
                let payload = table.payload_of(&version, scratch)?;
                out.push(writer, table.id, row, Some(payload))?;
            }
            return Ok(());
        }
        addr = version.prev();
    }
    Ok(())
}
