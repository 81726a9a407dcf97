//! Recount: numbers of rows that cannot be are counted anew before anybody uses the database.
//!
//! Why it exists: a number of rows is made of a checkpoint's and of what each commit behind it adds. Where one of them is wrong, all after it
//! are, and no file looks damaged. But rows are what they are, and how many can be seen from them: no such number is worth a database.
//! Rules: C4. D40 who waits is told how many were counted so far. What is only wrong, and not impossible, CHECK TABLE finds.
//! Latches and I/O: no other thread uses the database yet; reads the table once.
//! After a crash: done again; the next checkpoint has the right number.

use crate::check::is_damage;
use crate::cursor::{Bind, Cursor};
use crate::database::Database;
use crate::error::Result;
use crate::opening_progress::OpeningProgress;
use crate::session::Session;
use crate::table::Table;
use std::sync::Arc;

/// Rows between two looks at whether to tell how many were counted.
const ROWS_TOLD: i64 = 256;

impl Database {
    /// Counts the rows of each table whose number of them is below none, or greater than the ids that rows of it have been given.
    ///
    /// # Errors
    /// As a table scan, but for damage, which is told: the rows before it are counted then.
    pub(crate) fn recount_impossible(self: &Arc<Self>, progress: &OpeningProgress) -> Result<()> {
        let is_impossible = |table: &Arc<Table>| {
            let rows = u64::try_from(table.count.latest());
            rows.is_err() || rows.is_ok_and(|rows| rows > table.map.high_mark())
        };
        let tables = self.catalog.tables();
        tables
            .iter()
            .filter(|table| is_impossible(table))
            .try_for_each(|table| self.recount(table, progress))
    }

    fn recount(self: &Arc<Self>, table: &Arc<Table>, progress: &OpeningProgress) -> Result<()> {
        let name = table.name();
        let said = format!(
            "table '{name}' has {} rows by checkpoint and log, and row ids up to {}",
            table.count.latest(),
            table.map.high_mark()
        );
        self.tell_damage_at_opening(&format!("{said}: its rows are counted anew"));
        let mut counted = 0;
        let ended = self.each_visible_row(table, || {
            counted += 1;
            if counted % ROWS_TOLD == 0 {
                progress.tell(|| format!("rows of table '{name}' are counted anew, {counted} so far"));
            }
        });
        table.count.restart(counted);
        match ended {
            Ok(()) => self.tell_damage_at_opening(&format!("table '{name}' has {counted} rows, as counted anew")),
            Err(error) if is_damage(&error) => self.tell_damage_at_opening(&format!(
                "{counted} rows of table '{name}' were counted anew, up to the first that cannot be read, and COUNT(*) is wrong until the table is made anew from the rows that can be: {error}"
            )),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn each_visible_row(self: &Arc<Self>, table: &Arc<Table>, mut each: impl FnMut()) -> Result<()> {
        let mut session = Session::open(self, 0, 0);
        let mut cursor = Cursor::new(table);
        cursor.bind(&mut session, Bind::default())?;
        cursor.scan_start(&mut session)?;
        while cursor.scan_next(&mut session, |_| Ok(()))? {
            each();
        }
        Ok(())
    }
}
