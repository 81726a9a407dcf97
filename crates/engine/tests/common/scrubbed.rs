//! A database whose files of every kind can be damaged one by one, and what the scrubber says of that.

#![allow(dead_code, reason = "each test file uses a part of this")]

#[path = "told.rs"]
mod told;

use pbxt::{Database, Options, Progress, Simulation, WaitObserver};
use pbxt_io::Disk;
use pbxt_sim::client::Client;
use pbxt_sim::table::{LARGE, PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::{SimClock, SimDisk};
use std::sync::Arc;
pub(crate) use told::Told;

/// Rows of `t` that stand in runs when a database is filled.
pub(crate) const ROWS: u32 = 600;

/// See the module. Its clock is moved by the test.
pub(crate) struct Scrubbed {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) told: Arc<Told>,
    pub(crate) db: Arc<Database>,
}

pub(crate) fn options(told: &Arc<Told>, clock: Option<&Arc<SimClock>>) -> Options {
    let simulation = clock.map(|clock| Simulation {
        clock: Arc::clone(clock) as _,
        uuid: 0x5eed,
    });
    Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        observer: Some(Arc::clone(told) as Arc<dyn WaitObserver>),
        simulation,
        ..Options::default()
    }
}

/// A row with some hundred bytes that differ from row to row; every twentieth has a value outside.
pub(crate) fn row(id: u32) -> PlayRow {
    let bytes = if id.is_multiple_of(20) {
        LARGE as u32 + 2000
    } else {
        300
    };
    let memo: Vec<u8> = (0..bytes)
        .map(|at| (at.wrapping_mul(id + 7) >> 3) as u8)
        .collect();
    PlayRow {
        group: Some(id % 7),
        memo: Some(Arc::from(memo)),
        ..PlayRow::new(id)
    }
}

pub(crate) fn insert(db: &Arc<Database>, table: &PlayTable, ids: std::ops::Range<u32>) {
    let mut client = Client::new(db, 1);
    for id in ids {
        client.insert(table, &row(id)).expect("inserted");
    }
    client.session.commit().expect("committed");
    db.flush().expect("flushed");
}

/// Table `t` with rows and entries in runs, a checkpoint, and sealed segments of the log behind it.
pub(crate) fn fill(db: &Arc<Database>) -> PlayTable {
    let table = PlayTable::create(db, "t").expect("a new table");
    insert(db, &table, 0..ROWS);
    for _ in 0..2 {
        db.housekeeping_step();
        while db.compact_step().expect("compacted") == Progress::Worked {}
        db.checkpoint_step().expect("a checkpoint");
        while db.row_merge_step().expect("merged") == Progress::Worked {}
        while db.index_merge_step().expect("merged") == Progress::Worked {}
        db.checkpoint_step().expect("a checkpoint");
    }
    insert(db, &table, ROWS..ROWS + 300);
    table
}

impl Scrubbed {
    pub(crate) fn new() -> Self {
        let disk = SimDisk::new();
        Self::on(disk.clone(), Arc::new(disk))
    }

    /// With something between the database and the medium.
    pub(crate) fn on(medium: SimDisk, disk: Arc<dyn Disk>) -> Self {
        let (told, clock) = (Arc::<Told>::default(), Arc::new(SimClock::new()));
        let db = Database::open(disk, &options(&told, Some(&clock))).expect("the database opens");
        Self {
            disk: medium,
            clock,
            told,
            db,
        }
    }

    /// Reads everything at once; the lines that were told.
    pub(crate) fn pass(&self) -> Vec<String> {
        let before = self.db.scrub_status().passes;
        self.db.scrub_now(true);
        while self.db.scrub_status().passes == before {
            assert_eq!(
                self.db.scrub_step(),
                Progress::Worked,
                "SC7: at once, without a pause"
            );
        }
        self.told.take_damage()
    }

    /// Names of the files that begin so.
    pub(crate) fn files(&self, beginning: &str) -> Vec<String> {
        let mut names = self.disk.list().expect("a list");
        names.retain(|name| name.starts_with(beginning));
        names
    }

    /// Flips a bit, which has to be the one new place that a pass finds, and flips it back. The line.
    #[track_caller]
    pub(crate) fn finds_flip(&self, file: &str, offset: u64) -> String {
        let before = self.db.scrub_status().damage_found;
        self.disk.flip_bit(file, offset, 3).expect("the file is there");
        let told = self.pass();
        let found = self.db.scrub_status().damage_found - before;
        assert_eq!(found, 1, "SC1: {file} at {offset}: {told:?}");
        assert_eq!(told.len(), 2, "SC6: a line for it, and one at the end: {told:?}");
        assert!(
            told[0].starts_with("scrub: damage in ") && told[0].contains(file),
            "SC6: {told:?}"
        );
        self.disk.flip_bit(file, offset, 3).expect("the file is there");
        assert_eq!(
            self.pass(),
            Vec::<String>::new(),
            "{file} at {offset} is sound again"
        );
        told[0].clone()
    }
}
