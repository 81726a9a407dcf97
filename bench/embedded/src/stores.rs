//! Stores: one module each, and the list by name.

mod fjall;
mod lmdb;
#[cfg(test)]
pub(crate) mod model;
mod pbxt;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_c;
mod sqlite;

use crate::store::{Budget, Result, Store};
use std::path::Path;

/// Opens the store in a directory that is there, or makes a new one in it.
type Open = fn(&Path, Budget) -> Result<Box<dyn Store>>;

/// All stores, in the order in which they take turns.
pub(crate) const ALL: &[(&str, Open)] = &[
    ("PBXT", pbxt::open),
    #[cfg(feature = "rocksdb")]
    ("RocksDB", rocksdb::open),
    ("LMDB", lmdb::open),
    ("SQLite", sqlite::open),
    ("redb", redb::open),
    ("fjall", fjall::open),
];

/// The store of a name, in any case.
pub(crate) fn find(name: &str) -> Result<(&'static str, Open)> {
    let found = ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let names: Vec<&str> = ALL.iter().map(|(known, _)| *known).collect();
    found
        .copied()
        .ok_or_else(|| format!("there is no store '{name}': choose of {}", names.join(", ")).into())
}
