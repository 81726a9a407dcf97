//! Footprints: what all SERIALIZABLE transactions have read, found by who changes it.
//!
//! Why it exists: the antidependency from a reader to a later writer is seen by the writer alone. Versions do not name their
//! readers, and locks would make writers wait.
//! State: three tables of latched shards: tables read as a whole, groups of 64 rows (and groups of 64 groups) with a bit for
//! each, ranges of keys per index. Each entry names its reader.
//! Rules: T30. A reader notes first and reads afterwards, a writer changes first and looks here afterwards. Both take the latch
//! of the same shard: who takes it second sees what the other did before.
//! Latches and I/O: one shard at a time, for a search; no I/O. After a crash: nothing survives.

use std::collections::HashMap;
use std::hash::Hash;

use pbxt_base::ids::{IndexId, RowId, TableId};

use crate::footprint_own::{GROUPS_MAX, Group, LEVELS, OwnFootprint, RowChange, WholeTable};
use crate::key_ranges::{KeyRange, KeyRanges};
use crate::serial_graph::SerialId;
use crate::sync::{Latch, mix};

#[cfg(not(loom))]
const SHARDS: usize = 64;
#[cfg(loom)]
const SHARDS: usize = 1;

/// What one transaction has read of one index.
#[derive(Debug, Default)]
struct IndexFootprint {
    ranges: KeyRanges,
    /// Ranges of scans that go on.
    open: Vec<(u64, KeyRange)>,
}

impl IndexFootprint {
    fn has(&self, key: &[u8]) -> bool {
        self.ranges.has(key) || self.open.iter().any(|(_, range)| range.has(key))
    }
}

#[derive(Debug)]
struct Shards<K, V> {
    shards: Box<[Latch<Shard<K, V>>]>,
}

type Readers<V> = Vec<(SerialId, V)>;
type Shard<K, V> = HashMap<K, Readers<V>>;

impl<K: Eq + Hash, V: Default> Shards<K, V> {
    fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Latch::new(HashMap::new())).collect(),
        }
    }

    fn shard(&self, hash: u64) -> &Latch<Shard<K, V>> {
        &self.shards[mix(hash) as usize % SHARDS]
    }

    fn change<R>(&self, hash: u64, key: K, reader: SerialId, change: impl FnOnce(&mut V) -> R) -> R {
        let mut shard = self.shard(hash).lock();
        let readers = shard.entry(key).or_default();
        let at = readers
            .iter()
            .position(|(id, _)| *id == reader)
            .unwrap_or_else(|| {
                readers.push((reader, V::default()));
                readers.len() - 1
            });
        change(&mut readers[at].1)
    }

    fn change_known(&self, hash: u64, key: &K, reader: SerialId, change: impl FnOnce(&mut V)) {
        let mut shard = self.shard(hash).lock();
        let readers = shard.get_mut(key).map_or(&mut [][..], Vec::as_mut_slice);
        if let Some((_, value)) = readers.iter_mut().find(|(id, _)| *id == reader) {
            change(value);
        }
    }

    fn look(&self, hash: u64, key: &K, reader: SerialId, look: impl FnOnce(&V)) {
        let shard = self.shard(hash).lock();
        let readers = shard.get(key).map_or(&[][..], Vec::as_slice);
        if let Some((_, value)) = readers.iter().find(|(id, _)| *id == reader) {
            look(value);
        }
    }

    fn find(&self, hash: u64, key: &K, found: &mut Vec<SerialId>, is_met: impl Fn(&V) -> bool) {
        if let Some(readers) = self.shard(hash).lock().get(key) {
            let met = readers.iter().filter(|(_, value)| is_met(value));
            found.extend(met.map(|(id, _)| *id));
        }
    }

    fn remove(&self, hash: u64, key: &K, reader: SerialId) -> Option<V> {
        let mut shard = self.shard(hash).lock();
        let readers = shard.get_mut(key)?;
        let at = readers.iter().position(|(id, _)| *id == reader)?;
        let (_, value) = readers.swap_remove(at);
        if readers.is_empty() {
            shard.remove(key);
        }
        Some(value)
    }

    fn len(&self) -> usize {
        let readers = |shard: &Latch<Shard<K, V>>| shard.lock().values().map(Vec::len).sum::<usize>();
        self.shards.iter().map(readers).sum()
    }
}

fn table_hash(table: TableId) -> u64 {
    u64::from(table.raw())
}

fn group_hash(group: Group) -> u64 {
    mix(group.number << 8 | u64::from(group.level)) ^ u64::from(group.table.raw())
}

fn index_hash(index: IndexId) -> u64 {
    u64::from(index.raw())
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Footprints {
    tables: Shards<TableId, WholeTable>,
    groups: Shards<Group, u64>,
    indexes: Shards<IndexId, IndexFootprint>,
}

impl Footprints {
    pub(crate) fn new() -> Self {
        Self {
            tables: Shards::new(),
            groups: Shards::new(),
            indexes: Shards::new(),
        }
    }

    pub(crate) fn note_table(
        &self,
        reader: SerialId,
        own: &mut OwnFootprint,
        table: TableId,
        what: WholeTable,
    ) {
        let known = own.tables.entry(table).or_default();
        if known.whole.has(what) {
            return;
        }
        known.whole = known.whole.with(what);
        let whole = known.whole;
        self.tables
            .change(table_hash(table), table, reader, |old| *old = old.with(whole));
        if whole.has(WholeTable::ROWS) {
            let (level, groups) = (known.level, std::mem::take(&mut known.groups));
            self.remove_groups(reader, table, level, &groups);
        }
    }

    pub(crate) fn note_row(&self, reader: SerialId, own: &mut OwnFootprint, table: TableId, row: RowId) {
        let known = own.tables.entry(table).or_default();
        if known.whole.has(WholeTable::ROWS) {
            return;
        }
        let (group, bit) = Group::of(table, row, known.level);
        let bits = known.groups.entry(group.number).or_default();
        if *bits & bit != 0 {
            return;
        }
        *bits |= bit;
        self.groups
            .change(group_hash(group), group, reader, |bits| *bits |= bit);
        if known.groups.len() > GROUPS_MAX {
            self.coarsen(reader, own, table);
        }
    }

    /// Rule T30: too many groups become groups of the level above, or the whole table.
    fn coarsen(&self, reader: SerialId, own: &mut OwnFootprint, table: TableId) {
        let Some(known) = own.tables.get_mut(&table) else {
            return;
        };
        let (level, groups) = (known.level, std::mem::take(&mut known.groups));
        if level + 1 < LEVELS {
            known.level += 1;
            for &number in groups.keys() {
                let (group, bit) = Group { table, level, number }.above();
                *known.groups.entry(group.number).or_default() |= bit;
                self.groups
                    .change(group_hash(group), group, reader, |bits| *bits |= bit);
            }
        }
        if level + 1 >= LEVELS || known.groups.len() > GROUPS_MAX {
            self.note_table(reader, own, table, WholeTable::ROWS);
        }
        // What takes their place is there.
        self.remove_groups(reader, table, level, &groups);
    }

    fn remove_groups(&self, reader: SerialId, table: TableId, level: u8, groups: &HashMap<u64, u64>) {
        for &number in groups.keys() {
            let group = Group { table, level, number };
            self.groups.remove(group_hash(group), &group, reader);
        }
    }

    pub(crate) fn note_range(
        &self,
        reader: SerialId,
        own: &mut OwnFootprint,
        index: IndexId,
        range: KeyRange,
    ) {
        own.note_index(index);
        self.indexes
            .change(index_hash(index), index, reader, |known| known.ranges.add(range));
    }

    /// Notes all that a scan may come to read; the number under which `close_scan` names it.
    pub(crate) fn open_scan(
        &self,
        reader: SerialId,
        own: &mut OwnFootprint,
        index: IndexId,
        range: KeyRange,
    ) -> u64 {
        own.note_index(index);
        own.scans += 1;
        let number = own.scans;
        self.indexes.change(index_hash(index), index, reader, |known| {
            known.open.push((number, range));
        });
        number
    }

    /// The scan has read this and will read no more.
    pub(crate) fn close_scan(&self, reader: SerialId, index: IndexId, number: u64, read: KeyRange) {
        self.indexes
            .change_known(index_hash(index), &index, reader, |known| {
                let before = known.open.len();
                known.open.retain(|(open, _)| *open != number);
                if known.open.len() < before {
                    known.ranges.add(read);
                }
            });
    }

    /// Who has read a row that was changed now, or that it was not there.
    pub(crate) fn readers_of_row(
        &self,
        table: TableId,
        row: RowId,
        change: RowChange,
        found: &mut Vec<SerialId>,
    ) {
        self.tables
            .find(table_hash(table), &table, found, |whole| whole.meets(change));
        if change == RowChange::Insert {
            return;
        }
        for level in 0..LEVELS {
            let (group, bit) = Group::of(table, row, level);
            self.groups
                .find(group_hash(group), &group, found, |bits| bits & bit != 0);
        }
    }

    /// Who has read a stretch of the index that this key lies in.
    pub(crate) fn readers_of_key(&self, index: IndexId, key: &[u8], found: &mut Vec<SerialId>) {
        self.indexes
            .find(index_hash(index), &index, found, |known| known.has(key));
    }

    /// Who has read anything of the index.
    pub(crate) fn readers_of_index(&self, index: IndexId, found: &mut Vec<SerialId>) {
        self.indexes.find(index_hash(index), &index, found, |_| true);
    }

    /// Forgets all that `reader` has read.
    pub(crate) fn remove(&self, reader: SerialId, own: &OwnFootprint) {
        for (table, known) in &own.tables {
            self.remove_groups(reader, *table, known.level, &known.groups);
            self.tables.remove(table_hash(*table), table, reader);
        }
        for index in &own.indexes {
            self.indexes.remove(index_hash(*index), index, reader);
        }
    }

    /// Notes what `reader` has read for `heir` too.
    pub(crate) fn inherit(
        &self,
        reader: SerialId,
        own: &OwnFootprint,
        heir: SerialId,
        heirs: &mut OwnFootprint,
    ) {
        for (&table, known) in &own.tables {
            if known.whole != WholeTable::default() {
                self.note_table(heir, heirs, table, known.whole);
            }
            for (&number, &bits) in &known.groups {
                self.inherit_group(
                    Group {
                        table,
                        level: known.level,
                        number,
                    },
                    bits,
                    heir,
                    heirs,
                );
            }
        }
        for &index in &own.indexes {
            let mut ranges = KeyRanges::default();
            self.indexes.look(index_hash(index), &index, reader, |known| {
                ranges.add_all(&known.ranges);
                known.open.iter().for_each(|(_, range)| ranges.add(range.clone()));
            });
            heirs.note_index(index);
            self.indexes.change(index_hash(index), index, heir, |known| {
                known.ranges.add_all(&ranges);
            });
        }
    }

    /// Bits of a group, at the heir's level.
    fn inherit_group(&self, mut group: Group, mut bits: u64, heir: SerialId, heirs: &mut OwnFootprint) {
        while heirs.tables.entry(group.table).or_default().level < group.level {
            self.coarsen(heir, heirs, group.table);
        }
        let known = heirs.tables.entry(group.table).or_default();
        if known.whole.has(WholeTable::ROWS) {
            return;
        }
        while group.level < known.level {
            (group, bits) = group.above();
        }
        *known.groups.entry(group.number).or_default() |= bits;
        self.groups
            .change(group_hash(group), group, heir, |old| *old |= bits);
        if known.groups.len() > GROUPS_MAX {
            self.coarsen(heir, heirs, group.table);
        }
    }

    /// Entries there are, of all transactions.
    pub(crate) fn len(&self) -> usize {
        self.tables.len() + self.groups.len() + self.indexes.len()
    }
}

#[cfg(test)]
#[path = "footprints_tests.rs"]
mod footprints_tests;
