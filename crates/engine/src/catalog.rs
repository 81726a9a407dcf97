//! Catalog: which tables exist, by name and by id, and the records that say so.
//!
//! Format: docs/format-catalog.md#operations.
//! Rules: K3 ids are never reused. K4 one DDL statement is one transaction.
//! Latches and I/O: one latch for the maps, held for a look-up; never across I/O.
//! After a crash: rebuilt from the checkpoint image and the catalog records of committed transactions behind it, in END order.

use crate::definition::TableDef;
use crate::error::{Error, Result};
use crate::key_sample::KeySample;
use crate::table::Table;
use parking_lot::RwLock;
use pbxt_base::codec::{Reader, push_bytes, push_u32, push_u64};
use pbxt_base::{IndexId, TableId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One change of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CatalogOp {
    Put(Box<TableDef>, u64),
    Drop(TableId),
    Rename(TableId, String),
    /// What an ANALYZE found of these indexes.
    Statistics(TableId, Vec<(IndexId, KeySample)>),
}

impl CatalogOp {
    /// Operation number and operand.
    pub(crate) fn encode(&self) -> (u32, Vec<u8>) {
        let mut bytes = Vec::new();
        match self {
            Self::Put(def, next_auto_increment) => {
                let mut image = Vec::new();
                def.encode(&mut image);
                push_bytes(&mut bytes, &image);
                push_u64(&mut bytes, *next_auto_increment);
                (1, bytes)
            }
            Self::Drop(id) => {
                push_u32(&mut bytes, id.raw());
                (2, bytes)
            }
            Self::Rename(id, name) => {
                push_u32(&mut bytes, id.raw());
                push_bytes(&mut bytes, name.as_bytes());
                (3, bytes)
            }
            Self::Statistics(id, samples) => {
                push_u32(&mut bytes, id.raw());
                let mut image = Vec::new();
                for (index, sample) in samples {
                    push_u32(&mut bytes, index.raw());
                    image.clear();
                    sample.encode(&mut image);
                    push_bytes(&mut bytes, &image);
                }
                (4, bytes)
            }
        }
    }

    pub(crate) fn decode(op: u32, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        match op {
            1 => {
                let def = TableDef::decode(reader.length_prefixed()?)?;
                Ok(Self::Put(Box::new(def), reader.u64()?))
            }
            2 => Ok(Self::Drop(TableId::new(reader.u32()?))),
            3 => {
                let id = TableId::new(reader.u32()?);
                Ok(Self::Rename(
                    id,
                    String::from_utf8_lossy(reader.length_prefixed()?).into_owned(),
                ))
            }
            4 => {
                let (id, mut samples) = (TableId::new(reader.u32()?), Vec::new());
                while !reader.rest().is_empty() {
                    let index = IndexId::new(reader.u32()?);
                    samples.push((index, KeySample::decode(reader.length_prefixed()?)?));
                }
                Ok(Self::Statistics(id, samples))
            }
            other => Err(Error::Invalid(format!(
                "catalog operation {other} in the log is unknown: use a newer PBXT"
            ))),
        }
    }
}

#[derive(Debug, Default)]
struct Maps {
    by_name: BTreeMap<String, Arc<Table>>,
    by_id: HashMap<TableId, Arc<Table>>,
    /// Those that have constraints (rule K6).
    children: HashMap<TableId, Arc<Table>>,
}

impl Maps {
    /// The table is there with this definition.
    fn insert(&mut self, table: Arc<Table>, def: &TableDef) {
        self.by_name.insert(def.name.clone(), Arc::clone(&table));
        if def.foreign_keys.is_empty() {
            self.children.remove(&table.id);
        } else {
            self.children.insert(table.id, Arc::clone(&table));
        }
        self.by_id.insert(table.id, table);
    }
}

/// All tables.
#[derive(Debug, Default)]
pub struct Catalog {
    maps: RwLock<Maps>,
    last_table: AtomicU32,
    last_index: AtomicU32,
    /// How often a name or a definition has changed.
    changes: AtomicU64,
}

impl Catalog {
    /// A number that has grown when a change of a name or definition is over.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The table of this name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Table>> {
        self.maps.read().by_name.get(name).cloned()
    }

    /// The table generation of this id, if it exists.
    pub fn by_id(&self, id: TableId) -> Option<Arc<Table>> {
        self.maps.read().by_id.get(&id).cloned()
    }

    /// The table of this name, or the error for users.
    pub fn find(&self, name: &str) -> Result<Arc<Table>> {
        self.by_name(name).ok_or_else(|| Error::NoSuchTable {
            name: name.to_owned(),
        })
    }

    /// Names that begin with `prefix`, sorted.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let maps = self.maps.read();
        let from = maps.by_name.range(prefix.to_owned()..);
        from.map(|(name, _)| name)
            .take_while(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }

    /// Tables whose names begin with `prefix`.
    pub(crate) fn tables_under(&self, prefix: &str) -> Vec<Arc<Table>> {
        let maps = self.maps.read();
        let from = maps.by_name.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, table)| Arc::clone(table))
            .collect()
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.maps.read().by_name.values().cloned().collect()
    }

    /// All tables that have constraints, in the order of their names.
    pub(crate) fn children(&self) -> Vec<Arc<Table>> {
        let mut children: Vec<Arc<Table>> = self.maps.read().children.values().cloned().collect();
        children.sort_by_cached_key(|table| table.name());
        children
    }

    pub(crate) fn put(&self, table: Arc<Table>) {
        let def = table.def();
        self.note_ids(&def);
        self.maps.write().insert(table, &def);
        self.note_change();
    }

    pub(crate) fn remove(&self, id: TableId) {
        let mut maps = self.maps.write();
        if let Some(table) = maps.by_id.remove(&id) {
            maps.children.remove(&id);
            table.mark_dropped();
            let name = table.name();
            if maps.by_name.get(&*name).is_some_and(|found| found.id == id) {
                maps.by_name.remove(&*name);
            }
        }
        self.note_change();
    }

    pub(crate) fn rename(&self, id: TableId, name: &str) {
        let mut maps = self.maps.write();
        let Some(table) = maps.by_id.get(&id).cloned() else {
            return;
        };
        maps.by_name.remove(&*table.name());
        let mut def = TableDef::clone(&table.def());
        name.clone_into(&mut def.name);
        table.redefine(def);
        maps.by_name.insert(name.to_owned(), table);
        self.note_change();
    }

    /// Takes over a changed definition of a generation that is known already (rule AL7).
    pub(crate) fn alter(&self, table: &Arc<Table>, def: &TableDef) {
        if !table.takes(def) {
            return self.replace(table, Arc::new(table.altered(def.clone(), None)));
        }
        self.note_ids(def);
        let mut maps = self.maps.write();
        maps.by_name.remove(&*table.name());
        table.redefine(def.clone());
        maps.insert(Arc::clone(table), def);
        self.note_change();
    }

    /// Puts what an ALTER has made of a table in its place (rule AL7).
    pub(crate) fn replace(&self, table: &Arc<Table>, altered: Arc<Table>) {
        let def = altered.def();
        self.note_ids(&def);
        let mut maps = self.maps.write();
        table.supersede();
        maps.by_name.remove(&*table.name());
        maps.insert(altered, &def);
        self.note_change();
    }

    pub(crate) fn next_table_id(&self) -> Result<TableId> {
        next_id(&self.last_table, "tables").map(TableId::new)
    }

    pub(crate) fn next_index_id(&self) -> Result<IndexId> {
        next_id(&self.last_index, "indexes").map(IndexId::new)
    }

    /// The greatest ids of tables and indexes handed out so far, temporary tables included.
    pub(crate) fn last_ids(&self) -> (u32, u32) {
        let last = |id: &AtomicU32| id.load(Ordering::Relaxed);
        (last(&self.last_table), last(&self.last_index))
    }

    /// Keeps these ids and all below from being handed out again (rule K3).
    pub(crate) fn note_last_ids(&self, table: u32, index: u32) {
        self.last_table.fetch_max(table, Ordering::Relaxed);
        self.last_index.fetch_max(index, Ordering::Relaxed);
    }

    /// Keeps ids found in the log from being handed out again (rule K3).
    pub(crate) fn note_ids(&self, def: &TableDef) {
        self.last_table.fetch_max(def.id.raw(), Ordering::Relaxed);
        for index in &def.indexes {
            self.last_index.fetch_max(index.id.raw(), Ordering::Relaxed);
        }
    }
}

/// Rule K3: behind the greatest number there is no other one.
fn next_id(last: &AtomicU32, what: &str) -> Result<u32> {
    let order = Ordering::Relaxed;
    match last.fetch_update(order, order, |last| last.checked_add(1)) {
        Ok(before) => Ok(before + 1),
        Err(greatest) => Err(Error::Invalid(format!(
            "all {greatest} numbers of {what} have been given in this database: copy its tables into a new one"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_sample::SampledBy;

    #[test]
    fn golden_statistics_operation() {
        let sample = |by, changes| KeySample {
            entries: 0x0300,
            taken: 0x6500_0000,
            by,
            pairs: 0x0200,
            changes,
        };
        let samples = vec![
            (IndexId::new(9), sample(SampledBy::Analyze, vec![5, 0x0100])),
            (IndexId::new(10), sample(SampledBy::Use, vec![])),
        ];
        let op = CatalogOp::Statistics(TableId::new(3), samples);
        let numbers = |by: u8| {
            [
                &[0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x65, 0, 0, 0, 0, by, 0, 2][..],
                &[0; 6],
            ]
            .concat()
        };
        let expected = [
            &[3, 0, 0, 0][..],
            &[9, 0, 0, 0, 43],
            &numbers(1),
            &[2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            &[10, 0, 0, 0, 27],
            &numbers(0),
            &[0, 0],
        ];
        let expected = expected.concat();
        assert_eq!(op.encode(), (4, expected.clone()));
        assert_eq!(CatalogOp::decode(4, &expected).expect("its own bytes"), op);
        for cut in (1..expected.len()).filter(|cut| ![4, 52].contains(cut)) {
            let refused = CatalogOp::decode(4, &expected[..cut]);
            assert!(refused.is_err(), "cut after {cut} bytes");
        }
        let unknown = CatalogOp::decode(5, &expected).expect_err("K2").to_string();
        assert!(unknown.contains("operation 5"), "{unknown}");
    }

    #[test]
    fn when_all_numbers_have_been_given_none_is_given_again() {
        let catalog = Catalog::default();
        catalog.note_last_ids(u32::MAX - 1, u32::MAX - 1);
        assert_eq!(catalog.next_table_id().ok(), Some(TableId::new(u32::MAX)));
        assert_eq!(catalog.next_index_id().ok(), Some(IndexId::new(u32::MAX)));
        for _ in 0..2 {
            assert!(catalog.next_table_id().is_err(), "K3");
            assert!(catalog.next_index_id().is_err(), "K3");
        }
        assert_eq!(catalog.last_ids(), (u32::MAX, u32::MAX));
    }
}
