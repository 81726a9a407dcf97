//! What tests of encrypted files share: keys, rows with a secret, and how a host opens.

#![allow(dead_code, reason = "each test file uses a part of this")]

use crate::common::options;
use parking_lot::Mutex;
use pbxt::{Database, Progress, Result, file_kind};
use pbxt_io::{Disk, EncryptedDisk, FileKind, KeySource, SecretKey};
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What stands in rows, keys and large values.
pub(crate) const SECRET: &str = "Kq7zWv4NeverOnDisk";
/// Name of the table; its columns are named by `PlayTable`.
pub(crate) const TABLE: &str = "payroll_of_nobody";

#[derive(Debug, Default)]
pub(crate) struct Keys(pub(crate) Mutex<BTreeMap<u32, u8>>);

impl Keys {
    /// Versions of key 1, each with the byte that it consists of.
    pub(crate) fn of(versions: &[(u32, u8)]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(versions.iter().copied().collect())))
    }
}

impl KeySource for Keys {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        let versions = self.0.lock();
        versions.keys().next_back().copied().filter(|_| key_id == 1)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        let versions = self.0.lock();
        let byte = versions.get(&version).filter(|_| key_id == 1)?;
        Some(SecretKey::new(vec![*byte; 32]))
    }

    fn remedy(&self) -> String {
        "ask the test for it".into()
    }
}

pub(crate) fn is_ours(name: &str) -> bool {
    file_kind(name) != FileKind::Other
}

/// Which new files are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum New {
    Plain,
    Encrypted,
    AsTablesAsk,
}

/// As a host opens: keys first, then the database.
pub(crate) fn open_on(disk: Arc<dyn Disk>, keys: &Arc<Keys>, new: New) -> Result<Arc<Database>> {
    open_with_key(disk, keys, new, 1)
}

/// The same, with another key for new files.
pub(crate) fn open_with_key(
    disk: Arc<dyn Disk>,
    keys: &Arc<Keys>,
    new: New,
    key_id: u32,
) -> Result<Arc<Database>> {
    let keys: Arc<Keys> = Arc::clone(keys);
    let all = (new == New::Encrypted).then_some(key_id);
    let mut disk = EncryptedDisk::new(disk, keys, all)?;
    let files = disk.check_keys(is_ours)?;
    if new == New::AsTablesAsk {
        disk = disk.with_key(key_id);
    }
    if files == 0 {
        disk = disk.standing_by();
    }
    Database::open(Arc::new(disk), &options())
}

pub(crate) fn row(id: u32) -> PlayRow {
    let bytes = if id.is_multiple_of(3) {
        LARGE + 40 * id as usize
    } else {
        50
    };
    let memo: Vec<u8> = SECRET.bytes().cycle().take(bytes + id as usize).collect();
    PlayRow {
        tag: Some(id),
        group: Some(id % 7),
        name: format!("{SECRET} {id}").into_bytes(),
        memo: Some(Arc::from(memo)),
        ..PlayRow::new(id)
    }
}

/// Homes and merges what can be, between two checkpoints.
pub(crate) fn settle(db: &Database) -> Result<()> {
    db.checkpoint_step()?;
    for _ in 0..100 {
        let worked = [db.compact_step()?, db.row_merge_step()?, db.index_merge_step()?];
        if worked.iter().all(|progress| *progress == Progress::Idle) {
            break;
        }
    }
    db.checkpoint_step()
}

/// Rows of a table, which every way of reading agrees on.
pub(crate) fn rows_in(db: &Arc<Database>, name: &str, case: &str) -> Vec<PlayRow> {
    let Ok(table) = PlayTable::open(db, name) else {
        return Vec::new();
    };
    let mut client = Client::new(db, 1);
    assert_eq!(
        client.check(&table).expect("checkable"),
        Vec::<String>::new(),
        "{case}"
    );
    let agreed = client.agreed(&table).expect("readable");
    let rows = agreed.unwrap_or_else(|differs| panic!("{case}: {differs}"));
    let mut rows: Vec<PlayRow> = rows.into_iter().map(|(_, row)| row).collect();
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

/// Rows of the table with the secret.
pub(crate) fn rows_of(db: &Arc<Database>, case: &str) -> Vec<PlayRow> {
    rows_in(db, TABLE, case)
}

pub(crate) fn expected(last: u32) -> Vec<PlayRow> {
    (1..=last).map(row).collect()
}

pub(crate) fn has(content: &[u8], plain: &str) -> bool {
    let plain = plain.as_bytes();
    content
        .windows(plain.len())
        .any(|window| window[0] == plain[0] && window == plain)
}
