//! Orders: the committed versions of each row, in the order in which they were written (rule H1).
//!
//! Why it exists: who comes before whom is asked of this order; a version that was rolled back, or that its writer replaced, has no
//! place in it.

use crate::history::record::{Moment, Record, RowKey, VersionNo};
use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Versions by row.
    rows: Vec<Vec<VersionNo>>,
    numbers: HashMap<RowKey, usize>,
    /// Row number and place of each version; none if it is not committed, or only a step on the way.
    places: Vec<Option<(usize, usize)>>,
    /// Row numbers by table.
    tables: Vec<Vec<usize>>,
}

impl Orders {
    /// Of a record.
    pub(super) fn of(record: &Record) -> Self {
        let mut orders = Self {
            places: vec![None; record.versions.len()],
            ..Self::default()
        };
        let mut is_last = vec![false; record.versions.len()];
        let mut last = HashMap::new();
        for (txn, made) in record.txns.iter().enumerate() {
            if record.committed(txn).is_none() {
                continue;
            }
            last.clear();
            for number in &made.versions {
                let version = &record.versions[*number];
                if version.void.is_none() {
                    last.insert(version.row, *number);
                }
            }
            for number in last.values() {
                is_last[*number] = true;
            }
        }
        for (number, version) in record.versions.iter().enumerate() {
            if is_last[number] {
                orders.add(version.row, number);
            }
        }
        orders
    }

    fn add(&mut self, row: RowKey, version: VersionNo) {
        let next = self.rows.len();
        let number = *self.numbers.entry(row).or_insert(next);
        if number == next {
            self.rows.push(Vec::new());
            if self.tables.len() <= row.0 {
                self.tables.resize_with(row.0 + 1, Vec::new);
            }
            self.tables[row.0].push(number);
        }
        self.places[version] = Some((number, self.rows[number].len()));
        self.rows[number].push(version);
    }

    /// Rows in no order, each with its committed versions.
    pub(super) fn rows(&self) -> &[Vec<VersionNo>] {
        &self.rows
    }

    /// The same of one table.
    pub(super) fn of_table(&self, table: usize) -> impl Iterator<Item = &[VersionNo]> {
        let numbers = self.tables.get(table).map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|number| self.rows[*number].as_slice())
    }

    /// The versions of one row.
    pub(super) fn of_row(&self, row: RowKey) -> &[VersionNo] {
        self.numbers
            .get(&row)
            .map_or(&[][..], |number| self.rows[*number].as_slice())
    }

    /// True if the version is the last of a committed transaction.
    pub(super) fn is_committed(&self, version: VersionNo) -> bool {
        self.places[version].is_some()
    }

    /// The committed version that replaced this one.
    pub(super) fn next(&self, version: VersionNo) -> Option<VersionNo> {
        let (row, place) = self.places[version]?;
        self.rows[row].get(place + 1).copied()
    }

    /// The committed version that this one replaced.
    pub(super) fn before(&self, version: VersionNo) -> Option<VersionNo> {
        let (row, place) = self.places[version]?;
        place.checked_sub(1).map(|place| self.rows[row][place])
    }
}

/// The newest version of a row that was committed by a moment.
pub(super) fn as_of(record: &Record, order: &[VersionNo], moment: Moment) -> Option<VersionNo> {
    let is_there = |number: &VersionNo| {
        let committed = record.committed(record.versions[*number].writer);
        committed.is_some_and(|at| at <= moment)
    };
    let place = order.partition_point(is_there);
    place.checked_sub(1).map(|place| order[place])
}
