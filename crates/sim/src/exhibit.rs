//! Exhibit: a small database with a file of every kind, and every way of asking it what it holds.
//!
//! Why it exists: who damages files, bit by bit or at random, needs few of them and must know what is right.
//! Rows follow from arithmetic, and so does what must be there at the end; nothing is taken from a run of the engine.

use crate::client::{Client, Read};
use crate::filtered::{self, Question};
use crate::table::{INDEXES, PlayRow, PlayTable, TAG_INDEX};
use crate::world::geometry;
use pbxt::{Database, Options, Progress, Seek, file_kind};
use pbxt_base::{Error as StorageError, Lsn, RowId};
use pbxt_io::{Disk, EncryptedDisk, FileKind, KeySource, SecretKey};
use pbxt_testkit::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The row of the last commit of a database that was killed.
pub const LAST: u32 = 999;
/// The transaction that is left prepared.
const XID: &[u8] = b"promised";

const FIRST_MANIFEST: &str = "pbxt.manifest.b";
/// Somewhere in the room of a manifest, whose records take a few hundred bytes.
const BEHIND_ALL_RECORDS: u64 = 3000;

/// Tables by name, rows by their primary key.
pub type Tables = BTreeMap<&'static str, BTreeMap<u32, PlayRow>>;

/// How the database ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In an orderly way.
    Closed,
    /// The process dies behind the commit of row `LAST`.
    Killed,
}

/// Whether its files are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// They are not.
    Plain,
    /// All of them are.
    Encrypted,
}

impl Cover {
    /// Bytes of a file before its content.
    pub const fn header_bytes(self) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Encrypted => 4096,
        }
    }

    /// The disk as the engine sees it: keys first, as hosts open.
    fn over(self, disk: &SimDisk) -> pbxt::Result<Arc<dyn Disk>> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        if self == Self::Plain {
            return Ok(disk);
        }
        let covered = EncryptedDisk::new(disk, Arc::new(OneKey), Some(1))?;
        covered.check_keys(|name| file_kind(name) != FileKind::Other)?;
        Ok(Arc::new(covered))
    }
}

/// Key 1, of which there is one version.
#[derive(Debug)]
struct OneKey;

impl KeySource for OneKey {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        (key_id == 1).then_some(1)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        (key_id == 1 && version == 1).then(|| SecretKey::new(vec![77; 32]))
    }

    fn remedy(&self) -> String {
        "ask for key 1".into()
    }
}

/// See the module.
pub struct Exhibit {
    /// How it ended.
    pub end: End,
    /// Whether its files are encrypted.
    pub cover: Cover,
    /// All its files.
    pub disk: SimDisk,
    /// What must be there.
    pub tables: Tables,
    /// Behind this the log has the last commit of a database that was killed, and nothing else.
    pub last_commit: Lsn,
}

/// What one way of asking gave.
#[derive(Debug)]
pub enum Answer {
    /// What must be there.
    Right,
    /// An error that names a file.
    Detected(String),
    /// The same, found by the check of a table.
    Checked(String),
    /// Anything else, in words.
    Wrong(String),
}

fn options() -> Options {
    Options {
        create: false,
        geometry: geometry(),
        cache_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

/// Opens it as any user would.
pub fn open(disk: &SimDisk) -> pbxt::Result<Arc<Database>> {
    open_under(Cover::Plain, disk)
}

/// The same for files that may be encrypted.
pub fn open_under(cover: Cover, disk: &SimDisk) -> pbxt::Result<Arc<Database>> {
    Database::open(cover.over(disk)?, &options())
}

fn value(id: u32, bytes: u32) -> Arc<[u8]> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(id + 7) >> 3) as u8)
        .collect()
}

/// Every column has values and NULLs; every ninth row has a value that stands in a blob file.
fn row(id: u32, round: u32) -> PlayRow {
    PlayRow {
        group: (!id.is_multiple_of(5)).then_some(id % 7 + round),
        tag: (!id.is_multiple_of(4)).then_some(id * 10 + round),
        memo: match id % 9 {
            0 => Some(value(id, 1500 + 100 * round)),
            1..5 => Some(value(id, 30 * (id % 9) + round)),
            _ => None,
        },
        name: format!("name {id} of round {round}").into_bytes(),
        ..PlayRow::new(id)
    }
}

/// The engine and the model beside it.
struct Author {
    cover: Cover,
    db: Arc<Database>,
    client: Client,
    tables: Tables,
}

impl Author {
    fn table(&self, name: &str) -> PlayTable {
        PlayTable::open(&self.db, name).expect("a table of the exhibit")
    }

    /// Rows one by one, each durable with its commit, so that the log has many batches.
    fn write(&mut self, name: &'static str, ids: impl IntoIterator<Item = u32>, round: u32) {
        let table = self.table(name);
        for id in ids {
            let new = row(id, round);
            let known = self.tables.entry(name).or_default().insert(id, new.clone());
            if known.is_none() {
                self.client.insert(&table, &new).expect("inserted");
            } else {
                let place = self.place(&table, id);
                let changed = self.client.update(&table, place, |_| new.clone());
                changed.expect("updated").expect("there");
            }
            self.client.session.commit().expect("committed");
        }
    }

    fn delete(&mut self, name: &'static str, ids: impl IntoIterator<Item = u32>) {
        let table = self.table(name);
        for id in ids {
            let place = self.place(&table, id);
            self.client
                .delete(&table, place)
                .expect("deleted")
                .expect("there");
            self.tables.get_mut(name).expect("a table").remove(&id);
        }
        self.client.session.commit().expect("committed");
    }

    fn place(&mut self, table: &PlayTable, id: u32) -> RowId {
        let key = table.prefix(0, &[Some(id)]);
        let found = self.client.seek(table, 0, &key, Seek::Exact);
        found.expect("readable").expect("a row that was written").0
    }

    /// Rolled back work: a transaction, and a part of one that commits.
    fn roll_back(&mut self, name: &'static str, kept: u32) {
        let table = self.table(name);
        self.client.insert(&table, &row(800, 1)).expect("inserted");
        self.client.session.rollback().expect("rolled back");
        self.client.insert(&table, &row(kept, 1)).expect("inserted");
        let savepoint = self.client.session.savepoint().expect("a savepoint");
        self.client.insert(&table, &row(801, 1)).expect("inserted");
        self.client.session.rollback_to(savepoint).expect("rolled back");
        self.client.session.commit().expect("committed");
        self.tables.entry(name).or_default().insert(kept, row(kept, 1));
    }

    /// Rows leave the log as far as they may, index entries go to runs, and what nobody needs is removed.
    fn tidy(&self) {
        self.db.flush().expect("flushed");
        self.db.housekeeping_step();
        while self.db.compact_step().expect("compacted") == Progress::Worked {}
        self.db.checkpoint_step().expect("a checkpoint");
    }
}

impl Exhibit {
    /// Two checkpoints with rows in runs, changes and deletions above them, and a tail of log behind them.
    pub fn new(end: End, cover: Cover) -> Self {
        let disk = SimDisk::new();
        let making = Options {
            create: true,
            ..options()
        };
        let covered = cover.over(&disk).expect("an empty disk");
        let db = Database::open(covered, &making).expect("a new database");
        PlayTable::create(&db, "old").expect("a table");
        let client = Client::new(&db, 1);
        let tables = Tables::from([("old", BTreeMap::new())]);
        let mut author = Author {
            cover,
            db,
            client,
            tables,
        };
        author.write("old", 1..=48, 1);
        author.roll_back("old", 49);
        author.tidy();
        author.write("old", (3..=48).step_by(6), 2);
        author.delete("old", [5, 17, 18, 40]);
        author.write("old", 50..=80, 1);
        author.tidy();
        let mut author = author.begin_again(&disk);
        PlayTable::create(&author.db, "young").expect("a table");
        author.write("young", 1..=9, 1);
        author.write("old", (4..=48).step_by(11), 3);
        author.delete("old", [22, 30]);
        author.roll_back("young", 10);
        Self::promise(&author);
        author.end(end, &disk)
    }

    /// Every file with what it is.
    pub fn kinds(&self) -> Vec<(&'static str, String)> {
        let db = open_under(self.cover, &self.disk.kill()).expect("the exhibit opens");
        let covered = self.cover.over(&self.disk).expect("the same files");
        let checkpoint = db.store().checkpoint().expect("a checkpoint");
        let image = format!("meta-{:08x}.seg", checkpoint.image.raw());
        let generation = |name: &str| {
            let mut bytes = [0; 8];
            let file = covered.open(name, false).expect("a manifest");
            file.read_at(&mut bytes, 32).expect("its header");
            u64::from_le_bytes(bytes)
        };
        let kind = |name: &str| match name.split(['-', '.']).next() {
            _ if name == image => "image, with the catalog",
            // Odd generations are in b, even ones in a.
            Some("pbxt") if generation(name) == 1 => "manifest, superseded",
            Some("pbxt") => "manifest",
            Some("hot") => "log",
            Some("blob") => "large values",
            Some("cold") => "row pieces",
            _ => "index runs",
        };
        let names = self.disk.list().expect("a listing").into_iter();
        names.map(|name| (kind(&name), name)).collect()
    }

    /// A prepared transaction without a connection.
    fn promise(author: &Author) {
        let mut other = Client::new(&author.db, 2);
        let table = author.table("young");
        other.insert(&table, &row(700, 1)).expect("inserted");
        other.session.prepare(XID).expect("prepared");
        other.session.detach_prepared();
    }
}

impl Author {
    /// Closed and opened, with the manifest's last append torn: the next one begins the other file.
    fn begin_again(self, disk: &SimDisk) -> Self {
        let Self {
            cover,
            db,
            client,
            tables,
        } = self;
        // The session ends before the database does.
        drop(client);
        db.close().expect("an orderly close");
        drop(db);
        let place = cover.header_bytes() + BEHIND_ALL_RECORDS;
        disk.flip_bit(FIRST_MANIFEST, place, 1)
            .expect("room of the manifest");
        let db = open_under(cover, disk).expect("the exhibit opens");
        let client = Client::new(&db, 1);
        Self {
            cover,
            db,
            client,
            tables,
        }
    }

    fn end(mut self, end: End, disk: &SimDisk) -> Exhibit {
        self.db.flush().expect("flushed");
        let last_commit = self.db.log().durable();
        let disk = match end {
            End::Closed => {
                // The session ends before the database does.
                drop(self.client);
                self.db.close().expect("an orderly close");
                disk.kill()
            }
            End::Killed => {
                self.write("young", [LAST], 1);
                disk.kill()
            }
        };
        Exhibit {
            end,
            cover: self.cover,
            disk,
            tables: self.tables,
            last_commit,
        }
    }
}

/// All ways of asking an open database; each answers for itself.
pub fn ask(db: &Arc<Database>, expected: &Tables) -> Vec<Answer> {
    let names = db.catalog.names("");
    let wanted: Vec<&str> = expected.keys().copied().collect();
    let mut answers = vec![
        same("names of the tables", &names, &wanted),
        same("prepared transactions", &db.prepared.xids(), &[XID]),
    ];
    let mut client = Client::new(db, 1);
    for (name, rows) in expected {
        match PlayTable::open(db, name) {
            Ok(table) => ask_table(&mut client, &table, rows, &mut answers),
            Err(error) => answers.push(judge::<()>("open a table", Err(error), |()| Answer::Right)),
        }
    }
    answers
}

fn ask_table(
    client: &mut Client,
    table: &PlayTable,
    rows: &BTreeMap<u32, PlayRow>,
    answers: &mut Vec<Answer>,
) {
    answers.push(judge("scan", client.scan(table), |read| same_rows(read, rows)));
    for index in 0..INDEXES {
        for forward in [true, false] {
            let what = format!("index {index}, forward {forward}");
            answers.push(judge(&what, client.index_scan(table, index, forward), |read| {
                in_order(table, index, forward, &read).unwrap_or_else(|| same_rows(read, rows))
            }));
        }
    }
    for (id, row) in rows {
        let key = table.prefix(0, &[Some(*id)]);
        answers.push(seek(client, table, 0, &key, row));
        if row.tag.is_some() {
            let key = table.prefix(TAG_INDEX, &[row.tag]);
            answers.push(seek(client, table, TAG_INDEX, &key, row));
        }
    }
    let wanted: BTreeMap<u32, PlayRow> = rows
        .iter()
        .filter(|(id, _)| (20..=60).contains(*id))
        .map(|(id, row)| (*id, row.clone()))
        .collect();
    let found = client.statement(|session| filtered::scan(session, table, &[Question::between(0, 20, 60)]));
    answers.push(judge("scan with a condition", found, |read| {
        let read = read.into_iter().filter(|(_, row)| (20..=60).contains(&row.id));
        same_rows(read.collect(), &wanted)
    }));
    answers.push(judge("count", client.count(table), |count| {
        same("rows counted", &[count], &[rows.len() as u64])
    }));
    let checked = judge("check", client.check(table), |findings| match findings.first() {
        None => Answer::Right,
        Some(finding) => named("check", finding),
    });
    answers.push(match checked {
        Answer::Detected(text) => Answer::Checked(text),
        other => other,
    });
}

fn seek(client: &mut Client, table: &PlayTable, index: usize, key: &[u8], row: &PlayRow) -> Answer {
    let found = client.seek(table, index, key, Seek::Exact);
    judge(&format!("row {} by index {index}", row.id), found, |found| {
        let found = found.map(|(_, row)| row);
        same(
            &format!("row {} by index {index}", row.id),
            &[found],
            &[Some(row.clone())],
        )
    })
}

/// What is wrong with the order in which an index gave rows, if anything is.
fn in_order(table: &PlayTable, index: usize, forward: bool, read: &Read) -> Option<Answer> {
    let mut keys: Vec<_> = read.iter().map(|(_, row)| table.key(index, row)).collect();
    if !forward {
        keys.reverse();
    }
    let sorted = keys.is_sorted();
    (!sorted).then(|| Answer::Wrong(format!("index {index}, forward {forward}: rows out of order")))
}

fn same_rows(read: Read, rows: &BTreeMap<u32, PlayRow>) -> Answer {
    let mut found: Vec<PlayRow> = read.into_iter().map(|(_, row)| row).collect();
    found.sort_by_key(|row| row.id);
    let wanted: Vec<PlayRow> = rows.values().cloned().collect();
    if found == wanted {
        return Answer::Right;
    }
    let brief = |rows: &[PlayRow]| rows.iter().map(PlayRow::brief).collect::<Vec<_>>().join(" ");
    Answer::Wrong(format!("rows {}\nexpected {}", brief(&found), brief(&wanted)))
}

fn same<A: std::fmt::Debug + PartialEq<B>, B: std::fmt::Debug>(
    what: &str,
    found: &[A],
    wanted: &[B],
) -> Answer {
    if found == wanted {
        Answer::Right
    } else {
        Answer::Wrong(format!("{what}: {found:?}, expected {wanted:?}"))
    }
}

fn judge<T>(what: &str, result: pbxt::Result<T>, look: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(found) => look(found),
        Err(error) => refusal(what, &error),
    }
}

/// An error says where the damage is, or it is as bad as a wrong answer.
pub fn refusal(what: &str, error: &pbxt::Error) -> Answer {
    let text = error.to_string();
    let says_damage = matches!(
        error,
        pbxt::Error::Storage(
            StorageError::Corrupt { .. }
                | StorageError::WrongVersion { .. }
                | StorageError::NotADatabase { .. }
        ) | pbxt::Error::Row(_)
    );
    if says_damage {
        named(what, &text)
    } else {
        Answer::Wrong(format!("{what}: {text}"))
    }
}

fn named(what: &str, text: &str) -> Answer {
    if text.contains(".seg'") || text.contains("pbxt.manifest") {
        Answer::Detected(text.to_owned())
    } else {
        Answer::Wrong(format!("{what}: an error that names no file: {text}"))
    }
}
