//! A database with one table that is altered, one session, and what the table must show.

#![allow(dead_code, reason = "each test file uses a part of this")]

use crate::shifting::*;
use pbxt::{Database, Progress, Session, Table};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// See the module.
pub(crate) struct Bench {
    pub(crate) disk: SimDisk,
    pub(crate) db: Arc<Database>,
    pub(crate) session: Session,
    pub(crate) table: Arc<Table>,
    pub(crate) shape: Shape,
    pub(crate) rows: Rows,
}

impl Bench {
    pub(crate) fn new(shape: Shape) -> Self {
        let disk = SimDisk::new();
        let db = open(&disk);
        let table = db.create_table(shape.definition("t"), 1).expect("a new table");
        Self {
            session: session(&db, 1),
            disk,
            db,
            table,
            shape,
            rows: Rows::new(),
        }
    }

    pub(crate) fn fill(&mut self, ids: std::ops::Range<u32>) {
        for id in ids {
            let row = row_of(&self.shape, id, Some(id % 7));
            let at = insert(&mut self.session, &self.table, &self.shape, &row).expect("inserted");
            self.rows.insert(at, row);
        }
        self.session.commit().expect("committed");
    }

    pub(crate) fn alter(&mut self, change: impl FnOnce(&mut Shape)) {
        let mut next = self.shape.clone();
        change(&mut next);
        alter(&self.db, None, &self.shape, &next).expect("altered");
        for row in self.rows.values_mut() {
            *row = next.altered(&self.shape, row);
        }
        self.shape = next;
        self.table = find(&self.db);
    }

    /// Rows of finished segments leave the log and stand in base pieces.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2 {
            self.db.housekeeping_step();
            while self.db.upkeep_step(true).expect("worked") == Progress::Worked {}
            self.db.checkpoint_step().expect("made");
            self.db.log().set_start(self.db.log_floor());
        }
    }

    pub(crate) fn look(&mut self) {
        shows(&mut self.session, &self.table, &self.shape, &self.rows);
        check(&mut self.session, &self.table);
        self.session.commit().expect("nothing to commit");
    }
}
