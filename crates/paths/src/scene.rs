//! Scene: a database with one table of rows, and a connection that uses it through record buffers, as a host does.
//!
//! Why it exists: what is counted must be the same each time: no background threads, the same rows, and either all of them in the
//! log or all of them in blocks.
//! State: the table is sysbench's: a number as primary key, a number with an index, two padded strings.
//! After a crash: the directory is a temporary one.

use pbxt::host::{HostCursor, HostIndex, HostTable};
use pbxt::{
    Bind, Compression, ConflictMode, Database, Error, IndexDef, Options, Progress, Result, Seek, Session,
    SessionConfig, TableDef,
};
use pbxt_base::{Error as StorageError, IndexId, RowId, TableId};
use pbxt_io::OsDisk;
use pbxt_rows::{
    ColumnSet, HostColumn, HostKind, HostLayout, HostRecord, KeyEncoding, KeyPart, KeySpec, NoWeigher,
};
use pbxt_segment::Geometry;
use pbxt_testkit::Rng;
use pbxt_txn::LockMode;
use std::sync::Arc;
use tempfile::TempDir;

/// Rows of the table before anything is counted.
pub(crate) const ROWS: u32 = 10_000;

pub(crate) const ID: usize = 0;
pub(crate) const K: usize = 1;
const C_AT: usize = 9;
const C_BYTES: usize = 120;
const PAD_BYTES: usize = 60;
/// Bytes of text that make one row's other than another's: what it costs to make them up is counted too.
const CHANGED_BYTES: usize = 8;
/// Runs of an index that has several.
const RUNS: u32 = 8;
/// Newer runs of rows, and rows of each that were changed, and that were removed and came again.
const LAYERS: u32 = 3;
const CHANGED: u32 = ROWS / 100;
const RENEWED: u32 = ROWS / 200;
/// Rows that fill more than a segment of the log.
const LOG_END_ROWS: u32 = 16_000;
const RECORD_BYTES: usize = C_AT + C_BYTES + PAD_BYTES;

/// Indexes of the table.
pub(crate) const PRIMARY: usize = 0;
pub(crate) const BY_K: usize = 1;

/// Where the rows stand when counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// There are none.
    None,
    /// In the log, with their keys in trees.
    Hot,
    /// In blocks and runs that stay in memory once they were read.
    Cold,
    /// In blocks and runs of which next to none stay in memory.
    Stored,
    /// In the log, with their keys in runs that have neighbours of each other.
    Runs,
    /// In blocks, but one in fifty was changed or came anew since and is in one of a few newer runs, as updates leave them.
    Layers,
}

/// See the module. Fields are dropped in this order.
pub(crate) struct Scene {
    pub(crate) cursor: HostCursor,
    pub(crate) session: Session,
    pub(crate) host: Arc<HostTable>,
    pub(crate) rng: Rng,
    /// The id that no row has had yet.
    pub(crate) next_id: u32,
    /// The record last read.
    pub(crate) record: Vec<u8>,
    /// The record to be written.
    pub(crate) new: Vec<u8>,
    _directory: TempDir,
}

fn layout() -> Result<HostLayout> {
    let column = |offset: usize, kind| HostColumn {
        offset: offset as u32,
        kind,
        null_offset: 0,
        null_bit: 0,
        stored: true,
    };
    let padded = |bytes: usize| HostKind::Padded {
        len: bytes as u16,
        pad: b' ',
    };
    let columns = vec![
        column(1, HostKind::Fixed(4)),
        column(5, HostKind::Fixed(4)),
        column(C_AT, padded(C_BYTES)),
        column(C_AT + C_BYTES, padded(PAD_BYTES)),
    ];
    Ok(HostLayout::new(RECORD_BYTES, columns)?)
}

fn spec(columns: &[usize], extension: usize) -> Result<KeySpec> {
    let part = |&column: &usize| KeyPart {
        column: column as u16,
        length: 4,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::Int,
    };
    let spec = KeySpec::new(columns.iter().map(part).collect(), false)?;
    Ok(spec.with_extension(extension)?)
}

/// A new table.
fn table(db: &Arc<Database>, name: &str) -> Result<Arc<HostTable>> {
    let layout = layout()?;
    let def = definition(name, &layout)?;
    let index = |index: &IndexDef| HostIndex {
        contexts: vec![0; index.spec.parts().len()],
        spec: index.spec.clone(),
    };
    let indexes: Vec<HostIndex> = def.indexes.iter().map(index).collect();
    db.create_table(def, 1)?;
    let table = HostTable::open(db, name, layout, &indexes, Arc::new(NoWeigher))?;
    Ok(Arc::new(table))
}

fn definition(name: &str, layout: &HostLayout) -> Result<TableDef> {
    let index = |name: &str, primary: bool, spec: KeySpec| IndexDef {
        id: IndexId::new(0),
        name: name.into(),
        unique: primary,
        primary,
        spec,
    };
    Ok(TableDef {
        id: TableId::new(0),
        name: name.into(),
        schema: layout.schema(1)?,
        older: Vec::new(),
        indexes: vec![
            index("PRIMARY", true, spec(&[ID], 0)?),
            index("k", false, spec(&[K, ID], 1)?),
        ],
        host_image: Vec::new(),
        host_version: Vec::new(),
        conflict_mode: ConflictMode::Default,
        compression: Compression::Default,
        encrypted: false,
        temporary: false,
        provisional: false,
        host_record: None,
        foreign_keys: Vec::new(),
        created: 0,
    })
}

/// A record without pointers.
pub(crate) fn record(bytes: &[u8]) -> HostRecord<'_> {
    // SAFETY: the table has no blob columns, so there is no pointer in the record.
    unsafe { HostRecord::new(bytes) }
}

/// Text of digits, as sysbench has it.
fn put_digits(out: &mut [u8], rng: &mut Rng) {
    for (place, byte) in out.iter_mut().enumerate() {
        *byte = if place % 12 == 11 {
            b'-'
        } else {
            b'0' + rng.below(10) as u8
        };
    }
}

impl Scene {
    pub(crate) fn new(rows: Rows) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(|source| StorageError::Io {
            file: std::env::temp_dir().display().to_string(),
            op: "make a temporary directory in",
            source,
        })?;
        let options = Options {
            geometry: Geometry {
                hot_segment_bytes: 4 << 20,
                ..Geometry::default()
            },
            background: false,
            cache_bytes: if rows == Rows::Stored { 1 << 20 } else { 64 << 20 },
            ..Options::default()
        };
        let db = Database::open(Arc::new(OsDisk::open(directory.path(), true)?), &options)?;
        let host = table(&db, "d/t")?;
        let mut session = Session::open(&db, 1, 1);
        session.configure(SessionConfig::default());
        let mut scene = Self {
            cursor: HostCursor::new(&host),
            session,
            host,
            rng: Rng::new(7),
            next_id: 1,
            record: vec![0; RECORD_BYTES],
            new: vec![0; RECORD_BYTES],
            _directory: directory,
        };
        put_digits(&mut scene.new[C_AT..], &mut Rng::new(11));
        match rows {
            Rows::None => {}
            Rows::Runs => scene.fill_runs()?,
            Rows::Hot | Rows::Cold | Rows::Stored | Rows::Layers => scene.fill(ROWS)?,
        }
        if matches!(rows, Rows::Cold | Rows::Stored | Rows::Layers) {
            scene.settle()?;
        }
        if rows == Rows::Layers {
            scene.add_layers()?;
        }
        Ok(scene)
    }

    fn fill(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            self.make_new();
            self.statement(true, Self::insert)?;
        }
        self.session.commit()
    }

    /// Of every few ids that follow each other, each goes to a run of its own.
    fn fill_runs(&mut self) -> Result<()> {
        for run in 1..=RUNS {
            for id in (run..=ROWS).step_by(RUNS as usize) {
                self.next_id = id;
                self.make_new();
                self.statement(true, Self::insert)?;
            }
            self.session.commit()?;
            self.host.database().checkpoint_step()?;
        }
        self.next_id = ROWS + 1;
        Ok(())
    }

    /// All background work there is.
    fn settle(&mut self) -> Result<()> {
        self.fill_end_of_log("d/other")?;
        let db = self.host.database();
        while db.upkeep_step(true)? == Progress::Worked {}
        db.checkpoint_step()
    }

    /// The end of the log is not homed, so what stands there is of another table.
    fn fill_end_of_log(&mut self, name: &str) -> Result<()> {
        let db = Arc::clone(self.host.database());
        let other = HostCursor::new(&table(&db, name)?);
        let own = std::mem::replace(&mut self.cursor, other);
        let next_id = self.next_id;
        self.fill(LOG_END_ROWS)?;
        (self.cursor, self.next_id) = (own, next_id);
        db.housekeeping_step();
        Ok(())
    }

    /// Changes some of the rows, and homes them without a merge; again and again.
    fn add_layers(&mut self) -> Result<()> {
        let db = Arc::clone(self.host.database());
        for layer in 0..LAYERS {
            for _ in 0..CHANGED {
                self.change_any(|scene, row| {
                    let (old, new) = (record(&scene.record), record(&scene.new));
                    scene.cursor.update(&mut scene.session, row, old, new).map(|_| ())
                })?;
            }
            for _ in 0..RENEWED {
                self.change_any(|scene, row| {
                    scene.cursor.delete(&mut scene.session, row)?;
                    scene.insert()
                })?;
            }
            self.fill_end_of_log(&format!("d/other{layer}"))?;
            while db.compact_step()? == Progress::Worked {}
            db.checkpoint_step()?;
        }
        Ok(())
    }

    /// Does this to a row, with another text in `new`, and commits.
    fn change_any(&mut self, work: impl FnOnce(&mut Self, RowId) -> Result<()>) -> Result<()> {
        let id = self.any_id();
        self.statement(true, |scene| {
            let row = scene.find_row(id)?;
            scene.change(false);
            work(scene, row)
        })?;
        self.session.commit()
    }

    /// The next row that is not there yet goes to `new`.
    pub(crate) fn make_new(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let k = self.rng.below(u64::from(ROWS)) as u32;
        self.new[1..5].copy_from_slice(&id.to_le_bytes());
        self.new[5..9].copy_from_slice(&k.to_le_bytes());
        put_digits(&mut self.new[C_AT..C_AT + CHANGED_BYTES], &mut self.rng);
    }

    /// A row that is there, by its id.
    pub(crate) fn any_id(&mut self) -> u32 {
        1 + self.rng.below(u64::from(ROWS)) as u32
    }

    /// One statement.
    pub(crate) fn statement<T>(
        &mut self,
        for_write: bool,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let bind = Bind {
            for_write,
            ..Bind::default()
        };
        self.bound(bind, work)
    }

    /// One statement that locks what it reads.
    pub(crate) fn locking<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let bind = Bind {
            lock: Some(LockMode::Exclusive),
            ..Bind::default()
        };
        self.bound(bind, work)
    }

    fn bound<T>(&mut self, bind: Bind, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.session.begin_statement()?;
        self.cursor.bind(&mut self.session, bind)?;
        let done = work(self)?;
        self.cursor.reset();
        self.session.end_statement();
        Ok(done)
    }

    /// Inserts `new`.
    pub(crate) fn insert(&mut self) -> Result<()> {
        self.cursor.insert(&mut self.session, record(&self.new))
    }

    /// Reads the first row of a key; false if there is none.
    pub(crate) fn find(&mut self, index: usize, key: u32) -> Result<bool> {
        self.cursor.index_start(&mut self.session, index)?;
        let key = key.to_le_bytes();
        self.cursor
            .seek(&mut self.session, index, &key, 1, Seek::Exact, &mut self.record)
    }

    /// Reads the row of an id, which must be there; where it is.
    pub(crate) fn find_row(&mut self, id: u32) -> Result<RowId> {
        if self.find(PRIMARY, id)? {
            Ok(self.cursor.row())
        } else {
            Err(Error::Invalid(format!("there is no row with id {id}")))
        }
    }

    /// Only these columns are read from now on.
    pub(crate) fn project(&mut self, columns: &[usize]) {
        let mut set = ColumnSet::new();
        for &column in columns {
            set.insert(column);
        }
        self.cursor.project(set);
    }

    /// Makes `new` the row last read with another text, and another indexed number if `moves`.
    pub(crate) fn change(&mut self, moves: bool) {
        self.new.copy_from_slice(&self.record);
        put_digits(&mut self.new[C_AT..C_AT + CHANGED_BYTES], &mut self.rng);
        if moves {
            let k = ROWS + self.rng.below(u64::from(ROWS)) as u32;
            self.new[5..9].copy_from_slice(&k.to_le_bytes());
        }
    }
}
