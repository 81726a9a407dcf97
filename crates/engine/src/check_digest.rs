//! Check digests: sums over the rows a scan shows and over the entries an index shows, which are equal if both show the same
//! rows under the same keys.
//!
//! Why it exists: rows come in row id order and entries in key order; to compare them row by row one would have to sort or
//! keep all of them. A sum of hashes does not ask for an order. There is one for each of some thousand stretches of row ids,
//! so that where two differ only few rows have to be looked at.
//! What is hashed: row id and key; for an index whose keys only the host can make, the row id alone.
//! Limits: two errors in one stretch can hide each other once in 2^64.
//! Latches and I/O: as a reader; entries are read without their rows (rule B7).

use crate::check::{Check, is_damage};
use crate::cursor::{Bind, Cursor};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::stored_values::{StoredValues, stored};
use crate::table::Table;
use crate::version::{RowVersion, Show};
use pbxt_base::RowId;
use pbxt_base::checksum::xxh3;
use pbxt_rows::{PayloadKeyMaker, RowView, Schema, Value};
use pbxt_segment::BlobStore;
use std::sync::Arc;

/// Stretches of row ids that have a sum of their own.
const STRETCHES: u64 = 4096;

/// Sum over some rows of one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    count: u64,
    sum: u64,
}

/// Sums over all rows of one index, by stretch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Row ids of a stretch; the last one has all beyond, too.
    width: u64,
    stretches: Vec<Digest>,
}

/// What a table scan gives.
pub(crate) struct RowDigests {
    /// Visible rows.
    pub count: u64,
    pub by_index: Vec<Digests>,
}

impl Digests {
    /// For row ids up to about this one.
    pub(crate) fn new(high_mark: u64) -> Self {
        let width = (high_mark + 1).div_ceil(STRETCHES).max(1);
        let stretches = (high_mark + 1).div_ceil(width).max(1);
        Self {
            width,
            stretches: vec![Digest::default(); stretches as usize],
        }
    }

    /// Sums with the same stretches, and nothing in them.
    fn emptied(&self) -> Self {
        Self {
            width: self.width,
            stretches: vec![Digest::default(); self.stretches.len()],
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, row: RowId, hash: u64) {
        let at = self.stretch_of(row);
        let digest = &mut self.stretches[at];
        digest.count += 1;
        digest.sum = digest.sum.wrapping_add(hash);
    }

    /// The stretch a row lies in.
    #[inline]
    pub(crate) fn stretch_of(&self, row: RowId) -> usize {
        ((row.raw() / self.width) as usize).min(self.stretches.len() - 1)
    }

    /// Row ids of a stretch.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// Stretches whose sums differ, rising.
    pub(crate) fn differing(&self, other: &Self) -> Vec<usize> {
        let pairs = self.stretches.iter().zip(&other.stretches).enumerate();
        pairs
            .filter(|(_, (own, other))| own != other)
            .map(|(at, _)| at)
            .collect()
    }
}

/// Hash of a row id and a key.
#[inline]
pub(crate) fn hash_of(row: RowId, key: &[u8], scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    scratch.extend_from_slice(&row.raw().to_le_bytes());
    scratch.extend_from_slice(key);
    xxh3(scratch)
}

/// Makes the hashes of rows for one index.
pub(crate) struct RowHasher<'b> {
    /// None: only the host can make its keys.
    maker: Option<PayloadKeyMaker>,
    blobs: &'b BlobStore,
    key: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'b> RowHasher<'b> {
    pub(crate) fn new(table: &Table, number: usize, blobs: &'b BlobStore) -> Result<Self> {
        let index = &table.indexes[number];
        let maker = index
            .derivable
            .then(|| PayloadKeyMaker::new(&index.def.spec, table.schema()));
        Ok(Self {
            maker: maker.transpose()?,
            blobs,
            key: Vec::new(),
            scratch: Vec::new(),
        })
    }

    pub(crate) fn of_row(&mut self, row: RowId, payload: &[u8]) -> Result<u64> {
        self.key.clear();
        if let Some(maker) = &self.maker {
            maker.key_from_payload(payload, &mut StoredValues::new(self.blobs), &mut self.key)?;
        }
        Ok(hash_of(row, &self.key, &mut self.scratch))
    }

    pub(crate) fn of_entry(&mut self, row: RowId, key: &[u8]) -> u64 {
        let key = if self.maker.is_some() { key } else { &[] };
        hash_of(row, key, &mut self.scratch)
    }
}

/// Sums of all visible rows for every index; `None` if damage ended the scan. Rows that do not decode are told.
pub(crate) fn digests_of_rows(
    session: &mut Session,
    table: &Arc<Table>,
    check: &mut Check<'_>,
) -> Result<Option<RowDigests>> {
    let blobs = Arc::clone(session.database().blobs());
    let mut hashers = (0..table.indexes.len())
        .map(|number| RowHasher::new(table, number, &blobs))
        .collect::<Result<Vec<_>>>()?;
    let high_mark = table.map.high_mark();
    let mut found = RowDigests {
        count: 0,
        by_index: table.indexes.iter().map(|_| Digests::new(high_mark)).collect(),
    };
    let mut value = Vec::new();
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.scan_start(session)?;
    loop {
        let mut problem = None;
        let mut wrong = |error: Error| -> Result<()> {
            let what = is_damage(&error).then(|| error.to_string()).ok_or(error)?;
            problem.get_or_insert(what);
            Ok(())
        };
        let next = cursor.scan_next(session, |version| {
            let (row, payload) = (version.row(), version.payload());
            check_payload(table.schema(), payload, &blobs, &mut value).or_else(&mut wrong)?;
            for (hasher, digests) in hashers.iter_mut().zip(&mut found.by_index) {
                let hash = hasher.of_row(row, payload);
                digests.add(row, hash.or_else(|error| wrong(error).map(|()| 0))?);
            }
            Ok(())
        });
        match check.absorb("the table scan ends early", next)? {
            Some(true) => {}
            Some(false) => return Ok(Some(found)),
            None => return Ok(None),
        }
        found.count += 1;
        if let Some(problem) = problem {
            check.find(&format!("row {}: {problem}", cursor.row()));
        }
        check.step(session)?;
    }
}

fn check_payload(schema: &Schema, payload: &[u8], blobs: &BlobStore, value: &mut Vec<u8>) -> Result<()> {
    let view = RowView::new(schema, payload)?;
    for column in 0..view.column_count() {
        if let Value::External(blob) = view.get(column)? {
            blobs.read(&stored(&blob), value)?;
        }
    }
    Ok(())
}

/// Sums of all rows that an index shows.
pub(crate) fn digests_of_index(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    rows: &Digests,
    check: &mut Check<'_>,
) -> Result<Digests> {
    let blobs = Arc::clone(session.database().blobs());
    let mut hasher = RowHasher::new(table, number, &blobs)?;
    let mut found = rows.emptied();
    for_each_entry(session, table, number, |session, row, key| {
        found.add(row, hasher.of_entry(row, key));
        check.step(session)
    })?;
    Ok(found)
}

/// Shows rows by their entries alone.
pub(crate) struct KeysOnly;

impl Show for KeysOnly {
    fn row(&mut self, _version: &RowVersion<'_>) -> Result<()> {
        Ok(())
    }

    fn wants_key(&self) -> bool {
        true
    }
}

/// Calls `visit` with row id and key of everything that an index shows, in key order.
pub(crate) fn for_each_entry(
    session: &mut Session,
    table: &Arc<Table>,
    number: usize,
    mut visit: impl FnMut(&mut Session, RowId, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut cursor = Cursor::new(table);
    cursor.bind(session, Bind::default())?;
    cursor.index_start(session, number)?;
    let mut is_there = cursor.index_edge_showing(session, false, KeysOnly)?;
    while is_there {
        visit(session, cursor.row(), cursor.current_key())?;
        is_there = cursor.index_move_showing(session, true, false, KeysOnly)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_tell_which_stretch_differs_whatever_the_order() {
        let mut scratch = Vec::new();
        let rows = 100_000;
        let (mut up, mut down) = (Digests::new(rows), Digests::new(rows));
        for row in 1..=rows {
            let row = RowId::new(row);
            up.add(row, hash_of(row, b"key", &mut scratch));
        }
        for row in (1..=rows).rev() {
            let row = RowId::new(row);
            let key: &[u8] = if row.raw() == 70_000 { b"other" } else { b"key" };
            down.add(row, hash_of(row, key, &mut scratch));
        }
        assert_eq!(up.differing(&down), vec![up.stretch_of(RowId::new(70_000))]);
        assert_eq!(up.differing(&up), Vec::<usize>::new());
    }

    #[test]
    fn rows_beyond_the_last_id_belong_to_the_last_stretch() {
        for high_mark in [0, 1, 4095, 4096, 4097, 10_000_000] {
            let digests = Digests::new(high_mark);
            assert_eq!(
                digests.stretch_of(RowId::new(u64::MAX)),
                digests.stretches.len() - 1
            );
            assert!(digests.stretch_of(RowId::new(high_mark)) < digests.stretches.len());
            assert!(digests.stretches.len() as u64 <= STRETCHES);
        }
    }
}
