//! Check differences: names the rows of which a table scan and an index say different things.
//!
//! Why it exists: sums say in which stretches of row ids something differs (check_digest.rs), not what. The rows of some such
//! stretches are collected at a time, by one scan and one walk of the index, until enough has been told; so the memory is
//! bounded however many rows are wrong.
//! Latches and I/O: as a reader.

use crate::check::{Check, is_damage};
use crate::check_digest::{Digests, RowHasher, for_each_entry};
use crate::cursor::{Bind, Cursor};
use crate::error::Result;
use crate::session::Session;
use crate::table::Table;
use pbxt_base::RowId;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Row ids that are looked at at once, at most, unless a single stretch has more.
const ROWS_AT_ONCE: u64 = 1 << 20;

/// A visible row.
struct Seen {
    /// None: its payload gives no key.
    hash: Option<u64>,
    times: u32,
}

/// Tells what differs in these stretches.
pub(crate) fn name_differences(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    rows: &Digests,
    stretches: &[usize],
    check: &mut Check<'_>,
) -> Result<()> {
    let name = &table.indexes[number].def.name;
    let at_once = (ROWS_AT_ONCE / rows.width()).max(1) as usize;
    let mut left = stretches.len();
    for group in stretches.chunks(at_once) {
        if check.has_told_all() {
            check.find(&format!(
                "index '{name}' differs in {left} more stretches of rows"
            ));
            return Ok(());
        }
        left -= group.len();
        let group: HashSet<usize> = group.iter().copied().collect();
        let is_in = |row: RowId| group.contains(&rows.stretch_of(row));
        let mut seen = collect_rows(session, table, number, is_in)?;
        compare_entries(session, table, number, is_in, &mut seen, check)?;
        for (row, seen) in seen.iter().filter(|(_, seen)| seen.times != 1) {
            check.find(&match seen.times {
                0 => format!("index '{name}' does not show row {row}"),
                times => format!("index '{name}' shows row {row} {times} times"),
            });
        }
    }
    Ok(())
}

fn collect_rows(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    is_in: impl Fn(RowId) -> bool,
) -> Result<BTreeMap<RowId, Seen>> {
    let blobs = Arc::clone(session.database().blobs());
    let mut hasher = RowHasher::new(table, number, &blobs)?;
    let mut rows = BTreeMap::new();
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.scan_start(session)?;
    while cursor.scan_next(session, |version| {
        let row = version.row();
        if is_in(row) {
            let hash = match hasher.of_row(row, version.payload()) {
                Err(error) if !is_damage(&error) => return Err(error),
                hash => hash.ok(),
            };
            rows.insert(row, Seen { hash, times: 0 });
        }
        Ok(())
    })? {}
    Ok(rows)
}

fn compare_entries(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    is_in: impl Fn(RowId) -> bool,
    rows: &mut BTreeMap<RowId, Seen>,
    check: &mut Check<'_>,
) -> Result<()> {
    let name = &table.indexes[number].def.name;
    let blobs = Arc::clone(session.database().blobs());
    let mut hasher = RowHasher::new(table, number, &blobs)?;
    for_each_entry(session, table, number, |_, row, key| {
        if !is_in(row) {
            return Ok(());
        }
        let Some(seen) = rows.get_mut(&row) else {
            check.find(&format!(
                "index '{name}' shows row {row}, which a table scan does not"
            ));
            return Ok(());
        };
        seen.times += 1;
        if seen.hash.is_some_and(|hash| hash != hasher.of_entry(row, key)) {
            check.find(&format!(
                "index '{name}' has row {row} under a key that its columns do not give"
            ));
        }
        Ok(())
    })
}
