//! A database with small segments and one table, whose rows can be made to leave the log.

#![allow(dead_code, reason = "each test file uses a part of this")]

use parking_lot::Mutex;
use pbxt::{Database, Options, Progress, Simulation, WaitObserver};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::{SimClock, SimDisk};
use std::sync::Arc;

/// A database with small segments and one table, and what a test needs to look into it.
pub(crate) struct Store {
    pub(crate) db: Arc<Database>,
    pub(crate) table: PlayTable,
    pub(crate) client: Client,
    pub(crate) disk: SimDisk,
}

/// Why background work failed, as far as it was told.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<Vec<String>>);

impl Reasons {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl WaitObserver for Reasons {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
    fn failure(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}

fn options() -> Options {
    Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::with(&options())
    }

    /// One whose time a test moves.
    pub(crate) fn with_clock(clock: &Arc<SimClock>) -> Self {
        let simulation = Simulation {
            clock: Arc::clone(clock) as _,
            uuid: 1,
        };
        Self::with(&Options {
            simulation: Some(simulation),
            ..options()
        })
    }

    /// One whose failures of background work are kept.
    pub(crate) fn telling(reasons: &Arc<Reasons>) -> Self {
        Self::with(&Options {
            observer: Some(Arc::clone(reasons) as _),
            ..options()
        })
    }

    /// That of a disk, which was closed in order.
    pub(crate) fn of(disk: &SimDisk) -> Self {
        let mut store = Self::new();
        store.disk = disk.clone();
        store.open_there();
        store
    }

    fn with(options: &Options) -> Self {
        let disk = SimDisk::new();
        let db = Database::open(Arc::new(disk.clone()), options).expect("the database opens");
        let table = PlayTable::create(&db, "t").expect("a new table");
        let client = Client::new(&db, 1);
        Self {
            db,
            table,
            client,
            disk,
        }
    }

    /// A row with some hundred bytes that differ from row to row.
    pub(crate) fn row(id: u32) -> PlayRow {
        let mut row = PlayRow::new(id);
        let bytes: Vec<u8> = (0..400_u32)
            .map(|at| (at.wrapping_mul(id + 7) >> 3) as u8)
            .collect();
        row.memo = Some(Arc::from(bytes));
        row
    }

    pub(crate) fn insert(&mut self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.client.insert(&self.table, &Self::row(id)).expect("inserted");
        }
        self.client.session.commit().expect("committed");
    }

    /// Fills segments with rows of a table of its own, until those written before are finished.
    pub(crate) fn fill(&mut self) {
        let other = PlayTable::open(&self.db, "other").or_else(|_| PlayTable::create(&self.db, "other"));
        let other = other.expect("a second table");
        let from = self.client.count(&other).expect("counted") as u32;
        for id in from..from + 150 {
            self.client.insert(&other, &Self::row(id)).expect("inserted");
        }
        self.client.session.commit().expect("committed");
        self.db.flush().expect("flushed");
    }

    /// The process dies and the database is opened again; prepared transactions are still there, others are not.
    pub(crate) fn kill(&mut self) {
        let db = self.leave();
        drop(db);
        self.open_again();
    }

    /// An orderly close, and the next opening.
    pub(crate) fn reopen(&mut self) {
        let db = self.leave();
        db.close().expect("closed");
        drop(db);
        self.open_again();
    }

    /// Lets go of everything; what stands in its place is a database in passing.
    fn leave(&mut self) -> Arc<Database> {
        let idle = Database::open(Arc::new(SimDisk::new()), &options()).expect("a database in passing");
        self.client = Client::new(&idle, 0);
        self.table = PlayTable::create(&idle, "t").expect("a table in passing");
        std::mem::replace(&mut self.db, idle)
    }

    fn open_again(&mut self) {
        self.disk = self.disk.kill();
        self.open_there();
    }

    fn open_there(&mut self) {
        self.db = Database::open(Arc::new(self.disk.clone()), &options()).expect("the database opens");
        self.table = PlayTable::open(&self.db, "t").expect("the table is there");
        self.client = Client::new(&self.db, 1);
    }

    /// What a power cut at this moment leaves behind, opened beside.
    pub(crate) fn after_power_cut(&self, seed: u64) -> Arc<Database> {
        Database::open(Arc::new(self.disk.crash(seed)), &options()).expect("the database opens")
    }

    /// Homes all that can be, and lets the log begin where that allows it.
    pub(crate) fn compact(&self) {
        self.db.housekeeping_step();
        while self.db.compact_step().expect("compacted") == Progress::Worked {}
        self.db.log().set_start(self.db.log_floor());
    }

    pub(crate) fn merge(&self) {
        while self.db.row_merge_step().expect("merged") == Progress::Worked {}
        while self.db.index_merge_step().expect("merged") == Progress::Worked {}
        while self.db.gone_step().expect("swept") == Progress::Worked {}
    }

    /// Every way of reading shows these ids, and the check finds nothing.
    pub(crate) fn shows(&mut self, expected: impl IntoIterator<Item = u32>) {
        let rows = self.client.agreed(&self.table).expect("readable");
        let rows = rows.unwrap_or_else(|differs| panic!("{differs}"));
        let mut found: Vec<u32> = rows.iter().map(|(_, row)| row.id).collect();
        found.sort_unstable();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        let findings = self.client.check(&self.table).expect("checkable");
        assert!(findings.is_empty(), "{findings:?}");
        self.client.session.commit().expect("nothing to commit");
    }
}
