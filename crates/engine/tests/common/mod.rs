//! What the tests of the engine share: a database on a simulated disk with one table and one client.

#![allow(dead_code, reason = "each test file uses a part of this")]

use pbxt::{Database, NewVersion, Options, Result, Session};
use pbxt_segment::Geometry;
use pbxt_sim::client::{Client, Read};
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// A database with one table `t`.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) table: PlayTable,
    pub(crate) db: Arc<Database>,
    pub(crate) disk: SimDisk,
}

/// Small files, no background threads.
pub(crate) fn options() -> Options {
    Options {
        geometry: Geometry::small(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

pub(crate) fn open(disk: &SimDisk) -> Arc<Database> {
    Database::open(Arc::new(disk.clone()), &options()).expect("the database opens")
}

/// A row without optional values.
pub(crate) fn row(id: u32) -> PlayRow {
    PlayRow::new(id)
}

/// The items in no order, always the same one.
pub(crate) fn shuffled<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    let rng = &mut pbxt_testkit::Rng::new(7);
    for at in (1..items.len()).rev() {
        items.swap(at, rng.below(at as u64 + 1) as usize);
    }
    items
}

/// Inserts a row, by way of the load if the statement brings many.
pub(crate) fn put(session: &mut Session, table: &PlayTable, row: &PlayRow) -> Result<()> {
    let keys = table.key_changes(None, row)?;
    let payload = table.encode(row)?;
    let version = NewVersion {
        payload: &payload,
        schema_version: table.schema_version(),
        keys: &keys,
    };
    session.insert_or_load(&table.table, version).map(|_| ())
}

impl Bench {
    pub(crate) fn new() -> Self {
        let disk = SimDisk::new();
        let db = open(&disk);
        let table = PlayTable::create(&db, "t").expect("a new table");
        let client = Client::new(&db, 1);
        Self {
            client,
            table,
            db,
            disk,
        }
    }

    /// Another connection.
    pub(crate) fn other(&self, number: usize) -> Client {
        Client::new(&self.db, number)
    }

    /// Rows of the client's snapshot, if all ways of reading agree on them.
    pub(crate) fn rows(&mut self) -> Read {
        self.client
            .agreed(&self.table)
            .expect("readable")
            .unwrap_or_else(|differs| panic!("{differs}"))
    }

    /// Asks the whole oracle.
    pub(crate) fn settle(&mut self) {
        self.rows();
        let findings = self.client.check(&self.table).expect("checkable");
        assert!(findings.is_empty(), "{findings:?}");
    }

    /// Orderly restart.
    pub(crate) fn reopen(&mut self) {
        self.replace(|db, disk| {
            db.close().expect("an orderly close");
            disk.clone()
        });
    }

    /// The process dies, the machine goes on.
    pub(crate) fn crash_reopen(&mut self) {
        self.replace(|_, disk| disk.kill());
    }

    fn replace(&mut self, end: impl FnOnce(&Database, &SimDisk) -> SimDisk) {
        // Sessions end before the database does.
        let idle = open(&SimDisk::new());
        self.client = Client::new(&idle, 0);
        self.disk = end(&self.db, &self.disk);
        self.table = PlayTable::create(&idle, "t").expect("a table in passing");
        self.db = idle;
        self.db = open(&self.disk);
        self.table = PlayTable::open(&self.db, "t").expect("the table is still there");
        self.client = Client::new(&self.db, 1);
        self.settle();
    }
}
