//! `Opened`: the database as the engine finds it, opened over a scratch disk, so that the directory stays as it is.
//!
//! Why it exists: names and columns of tables, and which piece files count, stand in the checkpoint's image and in the log's
//! tail; recovery puts them together, and no second reader of either is written here.
//! Rules: F13 recovery removes the piece files that neither names: what it removes here are the orphans.
//! Latches and I/O: reads image and tail once; takes the memory that the engine takes for them.

use crate::directory::{Directory, Lock, Place, place_of};
use crate::failure::{Failure, Outcome, Verdict, is_unread};
use crate::piece_content::Content;
use crate::report::{Leftover, Report};
use crate::scratch_disk::ScratchDisk;
use crate::text::{count, size};
use pbxt::{
    Action, Database, Error, ForeignKeyInfo, Options, RecordColumn, Session, Table, WaitObserver, check_table,
};
use pbxt_io::Disk;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory for blocks and records that are read again.
const CACHE_BYTES: u64 = 64 << 20;

/// See the module.
pub(crate) struct Opened {
    db: Arc<Database>,
    disk: Arc<ScratchDisk>,
    told: Arc<Told>,
}

/// What the opening went on without (rules D39 and C4).
#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl WaitObserver for Told {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
    fn damage(&self, text: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.to_owned());
    }
}

impl Opened {
    /// Recovers the database in memory. Nobody else may have it open.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let disk = Arc::new(ScratchDisk::over(directory)?);
        let told = Arc::new(Told::default());
        let options = Options {
            observer: Some(Arc::clone(&told) as Arc<dyn WaitObserver>),
            create: false,
            cache_bytes: CACHE_BYTES,
            background: false,
            ..Options::default()
        };
        let db = Database::open(Arc::clone(&disk) as Arc<dyn Disk>, &options)?;
        Ok(Self { db, disk, told })
    }

    /// Piece files that recovery removes, as nothing names them.
    pub(crate) fn orphans(&self) -> BTreeSet<Place> {
        self.disk
            .removed()
            .iter()
            .filter_map(|name| place_of(name))
            .collect()
    }

    /// Columns of all tables, in all versions that rows may have been written with.
    pub(crate) fn content(&self) -> Content {
        let mut content = Content::default();
        for table in self.db.catalog.tables() {
            content.names.insert(table.id, table.name().to_string());
            let older = table.versions().older().map(|older| older.schema.clone());
            let schemas = older.chain([table.schema().clone()]);
            content.schemas.insert(table.id, schemas.collect());
        }
        content
    }

    /// Prints the tables: one a line, columns and foreign keys below it.
    pub(crate) fn print_tables(&self, out: &mut dyn Write) -> Outcome<()> {
        for table in self.db.catalog.tables() {
            let info = table.info();
            writeln!(
                out,
                "table {} '{}': {}, {} of rows; {}{}",
                table.id,
                table.name(),
                count(info.rows, "row"),
                size(info.data_bytes),
                indexes_of(&table),
                if table.def().encrypted { "; encrypted" } else { "" }
            )?;
            if let Some(record) = &table.def().host_record {
                let columns: Vec<String> = record.columns.iter().map(column_line).collect();
                writeln!(out, "    columns {}", columns.join(", "))?;
            }
            for key in self.db.foreign_keys_of(&table.name())? {
                writeln!(out, "    {}", foreign_key_line(&key))?;
            }
        }
        Ok(())
    }

    /// What was told while the database was opened: with sound files numbers of rows that cannot be.
    fn tell(&self, report: &mut Report<'_>) -> Outcome<()> {
        let told = std::mem::take(&mut *self.told.0.lock().unwrap_or_else(PoisonError::into_inner));
        told.iter().try_for_each(|text| report.sentence(text))
    }

    /// Checks every table as CHECK TABLE does: rows, indexes and large values against each other.
    pub(crate) fn check(&self, report: &mut Report<'_>) -> Outcome<()> {
        for table in self.db.catalog.tables() {
            let mut session = Session::open(&self.db, 0, 0);
            let (mut told, before) = (Vec::new(), report.findings());
            let mut said = Ok(());
            let mut progress = |done: u64, total: u64| {
                let percent = (done * 100).checked_div(total).unwrap_or(100);
                let line = || format!("table '{}': {percent} % checked", table.name());
                if said.is_ok() {
                    said = report.waiting(line);
                }
            };
            let tell = &mut |text: &str| told.push(text.to_owned());
            let checked = check_table(&mut session, &table, tell, &mut progress);
            said?;
            let in_all = checked.as_ref().map_or(0, |findings| *findings);
            for (at, text) in told.iter().enumerate() {
                // The last line stands for all that were not told.
                let is_last = at + 1 == told.len();
                let findings = if is_last {
                    in_all.saturating_sub(at as u64).max(1)
                } else {
                    1
                };
                report.sentence_of(&format!("table '{}': {text}", table.name()), findings)?;
            }
            if let Err(error) = checked {
                if let Error::Storage(cause) | Error::Row(pbxt_rows::Error::Base(cause)) = &error
                    && is_unread(cause)
                {
                    report.unread(cause)?;
                    continue;
                }
                report.sentence(&format!("table '{}' cannot be checked: {error}", table.name()))?;
            }
            if report.findings() == before {
                let rows = count(table.info().rows, "row");
                report.progress(&format!("table '{}': {rows}, good", table.name()))?;
            }
        }
        Ok(())
    }

    /// Tells damage from what a write that was cut off left behind, after `check`, which has read all that rows name.
    fn settle(&self, report: &mut Report<'_>) -> Outcome<()> {
        let (is_good, orphans) = (report.verdict() == Verdict::Good, self.orphans());
        // Nobody sees the rows of a prepared transaction yet, nor checks their values.
        let has_prepared = !self.db.prepared.xids().is_empty();
        report.settle(|leftover| match leftover {
            _ if !is_good => false,
            Leftover::Piece(place) => orphans.contains(&place),
            Leftover::Value => !has_prepared,
        })
    }
}

/// Columns of tables as the directory of a file tells them; or why it does not.
pub(crate) fn content_beside(directory: &Path, uuid: u128) -> Result<Content, String> {
    let found = Directory::open(directory, Lock::Held).map_err(|failure| failure.to_string())?;
    if let Some(user) = &found.user {
        return Err(user.to_string());
    }
    if found.manifests.facts().is_none_or(|facts| facts.uuid != uuid) {
        return Err(format!(
            "'{}' is not the directory of its database",
            directory.display()
        ));
    }
    let opened = Opened::open(directory).map_err(|error| error.to_string())?;
    Ok(opened.content())
}

/// Opens and checks; whatever keeps the database from being opened is a finding.
pub(crate) fn verify(directory: &Path, report: &mut Report<'_>) -> Outcome<()> {
    report.waiting(|| "the database is being opened in memory".into())?;
    match Opened::open(directory) {
        Ok(opened) => {
            opened.tell(report)?;
            opened.check(report)?;
            return opened.settle(report);
        }
        Err(Error::Storage(error)) => report.finding(error)?,
        Err(error) => report.sentence(&format!("'{}' cannot be opened: {error}", directory.display()))?,
    }
    report.settle(|_| false)
}

/// Opens for a table of the directory.
pub(crate) fn for_table(directory: &Directory) -> Outcome<Opened> {
    if let Some(user) = &directory.user {
        return Err(Failure::Usage(format!(
            "--open is for a database that nobody has open: {user}"
        )));
    }
    Ok(Opened::open(&directory.path)?)
}

fn column_line(column: &RecordColumn) -> String {
    format!("'{}' {}", column.name, column.type_text)
}

fn foreign_key_line(key: &ForeignKeyInfo) -> String {
    let ours: Vec<&str> = key.columns.iter().map(|column| column.child.as_str()).collect();
    let theirs: Vec<&str> = key.columns.iter().map(|column| column.parent.as_str()).collect();
    let bound = match &key.parent_index {
        Some(index) => format!("found by index '{index}'"),
        None => "not bound: no such table, or it does not fit".into(),
    };
    format!(
        "foreign key '{}': ({}) refers to '{}' ({}), on delete {}, on update {}; {bound}",
        key.name,
        ours.join(", "),
        key.parent,
        theirs.join(", "),
        action_text(key.on_delete),
        action_text(key.on_update),
    )
}

fn action_text(action: Action) -> &'static str {
    match action {
        Action::Restrict => "restrict",
        Action::Cascade => "cascade",
        Action::SetNull => "set null",
        Action::NoAction => "no action",
        Action::SetDefault => "set default",
    }
}

fn indexes_of(table: &Table) -> String {
    let def = table.def();
    let names: Vec<String> = def
        .indexes
        .iter()
        .map(|index| format!("index {} '{}'", index.id, index.name))
        .collect();
    if names.is_empty() {
        "no index".into()
    } else {
        names.join(", ")
    }
}
