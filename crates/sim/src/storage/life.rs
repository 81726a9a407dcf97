//! Life: an engine on a simulated disk with a clock of its own, some sessions, and the model beside them.
//!
//! Why it exists: everything that one seed plays needs the same: do something, compare, and know at every moment which states a
//! restart may find.
//! State: `history` has the state after every request that changes it, in log order; a request is entered before it is made. `durable`
//! and `written` are the positions acknowledged: a power cut may give any state from `durable` on, the death of the process any from
//! `written` on (rules D6, SM2).
//! Rules: SM1 all choices come from one source of random numbers, time and identity are given and nothing is done by other threads.

use crate::storage::deeds::Deed;
use crate::storage::model::{Changes, Fault, Faults, Rows, State, View, Xid};
use crate::storage::scrub::Told;
use crate::storage::shape::Shape;
use crate::storage::user::{Opened, User};
use pbxt::{Database, Error, FlushAtCommit, IndexBuild, Isolation, Options, Simulation, WaitObserver};
use pbxt_base::{Error as StorageError, Lsn, TableId};
use pbxt_segment::Geometry;
use pbxt_testkit::{Rng, SimClock, SimDisk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a life ended before its time.
#[derive(Debug)]
pub(super) enum Stop {
    /// The power is off.
    PowerOff,
    /// The disk failed as it was told to, and the engine said so.
    Broken(String),
    /// Engine and model differ.
    Wrong(String),
}

/// What a step of a life answers.
pub(super) type Step<T = ()> = Result<T, Stop>;

/// What the medium does wrong at present, and which refusals follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// There may be no room.
    pub full: bool,
    /// Reads, writes and syncs may fail.
    pub breaks: bool,
    /// Files are damaged: an error that names one is right, another answer is not.
    pub damaged: bool,
}

/// What lives did in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Lives played.
    pub lives: u64,
    /// Statements and transactions' ends.
    pub deeds: u64,
    /// Statements that were refused.
    pub refused: u64,
    /// Databases opened after a power cut or the death of the process.
    pub restarts: u64,
    /// Bulk loads.
    pub loads: u64,
    /// Changes of definitions.
    pub schema_changes: u64,
    /// Transactions that voted.
    pub votes: u64,
    /// Rows that constraints changed or deleted.
    pub acted: u64,
    /// Reads by snapshots that were held over background work.
    pub old_reads: u64,
    /// Damages that were looked at, and those that were noticed.
    pub damages: u64,
    /// See above.
    pub noticed: u64,
    /// Rows that left the log, and bytes of pieces that merges wrote.
    pub homed: u64,
    /// See above.
    pub merged: u64,
    /// Passes of the scrubber over all files.
    pub scrubs: u64,
    /// Disk failures that ended an opening of the database.
    pub broken: u64,
    /// Hash of everything that was written.
    pub footprint: u64,
}

impl Done {
    /// Adds what another life did.
    pub fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.deeds += other.deeds;
        self.refused += other.refused;
        self.restarts += other.restarts;
        self.loads += other.loads;
        self.schema_changes += other.schema_changes;
        self.votes += other.votes;
        self.acted += other.acted;
        self.old_reads += other.old_reads;
        self.damages += other.damages;
        self.noticed += other.noticed;
        self.homed += other.homed;
        self.merged += other.merged;
        self.scrubs += other.scrubs;
        self.broken += other.broken;
        self.footprint ^= other.footprint;
    }
}

/// A session that changes rows, under READ COMMITTED.
pub(super) struct Writer {
    pub user: User,
    pub changes: Changes,
    pub savepoints: Vec<(Lsn, Changes)>,
    /// Set once it has voted.
    pub xid: Option<Xid>,
}

/// A session that keeps its snapshot: what it has to see, by table.
pub(super) struct Reader {
    pub user: User,
    pub tables: BTreeMap<TableId, (Shape, Rows)>,
}

/// An index that is being built while rows of its table are changed.
pub(super) struct Building {
    /// The table.
    pub name: String,
    /// What it is going to be.
    pub next: Shape,
    pub build: IndexBuild,
}

/// Sessions that change rows.
pub(super) const WRITERS: usize = 3;
/// Steps told when something is wrong.
const TOLD: usize = 50;

/// See the module.
pub(super) struct Life {
    pub disk: SimDisk,
    pub clock: Arc<SimClock>,
    pub rng: Rng,
    pub db: Option<Arc<Database>>,
    pub writers: Vec<Writer>,
    pub readers: Vec<Reader>,
    pub building: Option<Building>,
    pub state: State,
    history: Vec<State>,
    durable: usize,
    written: usize,
    /// The oldest state that the next opening may find.
    oldest: usize,
    pub trouble: Trouble,
    /// By the database that is open, of damage.
    pub told: Arc<Told>,
    pub done: Done,
    pub next_xid: u64,
    pub next_label: u32,
    trace: Vec<String>,
}

/// Small files, so that every border is crossed often. A record of the log holds the definition of a table with its defaults.
pub(super) fn geometry() -> Geometry {
    Geometry {
        hot_segment_bytes: 64 << 10,
        chunk_bytes: 16 << 10,
        blob_segment_bytes: 64 << 10,
    }
}

impl Life {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            disk: SimDisk::new(),
            clock: Arc::new(SimClock::new()),
            rng: Rng::new(seed),
            db: None,
            writers: Vec::new(),
            readers: Vec::new(),
            building: None,
            state: State::default(),
            history: vec![State::default()],
            durable: 0,
            written: 0,
            oldest: 0,
            trouble: Trouble::default(),
            told: Arc::default(),
            done: Done {
                lives: 1,
                ..Done::default()
            },
            next_xid: 1,
            next_label: 10,
            trace: Vec::new(),
        }
    }

    /// How the database is opened.
    pub(super) fn options(&self) -> Options {
        let clock = Arc::clone(&self.clock);
        Options {
            geometry: geometry(),
            // Nothing leaves the cache: which block does would depend on a hash that differs from run to run.
            cache_bytes: 2 << 20,
            background: false,
            simulation: Some(Simulation { clock, uuid: 0x5eed }),
            observer: Some(Arc::clone(&self.told) as Arc<dyn WaitObserver>),
            ..Options::default()
        }
    }

    /// The database; only while open.
    pub(super) fn db(&self) -> &Arc<Database> {
        self.db.as_ref().expect("the database of a life is open")
    }

    /// Opens the database; it must be in one of the states that the history allows.
    pub(super) fn open(&mut self) -> Step {
        self.told.take();
        let opened = Database::open(Arc::new(self.disk.clone()), &self.options());
        let db = match opened {
            Ok(db) => db,
            Err(_) if self.disk.is_off() => return Err(Stop::PowerOff),
            Err(error) if self.trouble.damaged && names_a_file(&error) => {
                self.done.noticed += 1;
                return Err(Stop::Broken(error.to_string()));
            }
            Err(error) => return Err(self.wrong(&format!("the database does not open: {error}"))),
        };
        self.db = Some(Arc::clone(&db));
        self.opened_without_doubt()?;
        let found = self.read_state()?;
        self.adopt(&found)?;
        self.writers = (0..WRITERS)
            .map(|number| Writer {
                user: User::new(&db, number, Isolation::ReadCommitted),
                changes: Changes::new(),
                savepoints: Vec::new(),
                xid: None,
            })
            .collect();
        Ok(())
    }

    /// The found state must be one of the history; from now on it is the only one.
    fn adopt(&mut self, found: &State) -> Step {
        let allowed = &self.history[self.oldest..];
        let Some(state) = allowed.iter().rev().find(|state| state.is_like(found)) else {
            let newest = allowed.last().map(|state| state.differs_from(found));
            let oldest = allowed.first().map(|state| state.differs_from(found));
            let count = allowed.len();
            return Err(self.wrong(&format!(
                "SM2: a restart found none of {count} states; from the newest it differs in {}; from the oldest in {}",
                newest.unwrap_or_default(),
                oldest.unwrap_or_default()
            )));
        };
        self.state = state.clone();
        self.history = vec![self.state.clone()];
        (self.durable, self.written, self.oldest) = (0, 0, 0);
        Ok(())
    }

    /// Closes in an orderly way: after it only the newest state is right.
    pub(super) fn close(&mut self) -> Step {
        self.note("close".into());
        self.leave_sessions();
        let closed = self.db().close();
        self.must("close", closed)?;
        self.count_upkeep();
        self.db = None;
        self.acknowledge(FlushAtCommit::Durable);
        self.oldest = self.durable;
        Ok(())
    }

    /// The process dies; what was handed to the operating system is there.
    pub(super) fn kill(&mut self) {
        self.note("kill".into());
        let disk = self.disk.kill();
        self.leave(disk);
        self.oldest = self.written;
    }

    /// The power fails, or failed.
    pub(super) fn crash(&mut self) {
        let seed = self.rng.next_u64();
        self.note("power cut".into());
        let disk = self.disk.crash(seed);
        self.leave(disk);
        self.oldest = self.durable;
    }

    fn leave(&mut self, disk: SimDisk) {
        self.count_upkeep();
        self.done.restarts += 1;
        // Nobody writes any more: the old disk is off, its handles fail.
        self.disk.cut_power_at(0);
        self.leave_sessions();
        self.db = None;
        self.disk = disk;
        self.disk.set_free_bytes(None);
        self.disk.cut_power_at(u64::MAX);
        self.trouble = Trouble::default();
    }

    fn count_upkeep(&mut self) {
        if let Some(db) = &self.db {
            let counters = db.upkeep_counters();
            self.done.homed += counters.rows_homed.get();
            self.done.merged += counters.merge_bytes_written.get();
            self.done.acted += db.counters.rows_acted_on.get();
        }
    }

    /// Sessions end: what is prepared stays, all else is rolled back.
    pub(super) fn leave_sessions(&mut self) {
        self.building = None;
        self.writers.clear();
        self.readers.clear();
    }

    /// Enters what the state is going to be when the request that follows has been logged.
    pub(super) fn request(&mut self) {
        self.history.push(self.state.clone());
    }

    /// Nothing came of the newest request.
    pub(super) fn withdraw_request(&mut self) {
        if let Some(last) = self.history.last_mut() {
            last.clone_from(&self.state);
        }
    }

    /// Everything entered so far is as durable as this.
    pub(super) fn acknowledge(&mut self, flush: FlushAtCommit) {
        let newest = self.history.len() - 1;
        match flush {
            FlushAtCommit::Durable => (self.durable, self.written) = (newest, newest),
            FlushAtCommit::Written => self.written = newest,
            FlushAtCommit::Background => {}
        }
    }

    /// What a writer sees.
    pub(super) fn view(&self, me: usize) -> View<'_> {
        View {
            state: &self.state,
            own: &self.writers[me].changes,
        }
    }

    /// True if anybody but `me` may hold a lock.
    pub(super) fn has_others(&self, me: usize) -> bool {
        let writers = self.writers.iter().enumerate();
        let mut others = writers.filter(|(number, _)| *number != me);
        others.any(|(_, writer)| writer.user.session.holds_locks()) || !self.state.prepared.is_empty()
    }

    /// The table of this name as it is now.
    pub(super) fn table(&mut self, name: &str) -> Step<Option<Opened>> {
        let opened = Opened::find(self.db(), name);
        self.judge("open a table", opened, Deed::Read)
    }

    /// Compares the outcome of a statement with what had to come. `None`: it failed as it had to, or as it may.
    pub(super) fn judge<T>(
        &mut self,
        what: &str,
        result: pbxt::Result<T>,
        deed: Deed<'_>,
    ) -> Step<Option<T>> {
        self.done.deeds += 1;
        let none = Faults::new();
        let (faults, may_wait) = match deed {
            Deed::Read => (&none, false),
            Deed::Change { faults, may_wait } => (faults, may_wait),
        };
        let error = match result {
            Ok(done) if faults.is_empty() => return Ok(Some(done)),
            Ok(_) => return Err(self.wrong(&format!("SM3: {what} succeeded, expected one of {faults:?}"))),
            Err(error) => error,
        };
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        self.done.refused += 1;
        match &error {
            error if Fault::of(error).is_some_and(|fault| faults.contains(&fault)) => Ok(None),
            Error::LockTimeout { .. } if may_wait => Ok(None),
            Error::Storage(StorageError::NoSpace { .. }) if self.trouble.full => Ok(None),
            // A large value that cannot be read comes as an error of its row.
            Error::Storage(_) | Error::Row(_) if self.trouble.breaks => self.broken(&error),
            error if self.trouble.damaged && names_a_file(error) => {
                self.done.noticed += 1;
                Ok(None)
            }
            error => Err(self.wrong(&format!("SM3: {what}: {error}; expected {faults:?}"))),
        }
    }

    /// As `judge` for what has to work also on a full disk.
    pub(super) fn must<T>(&mut self, what: &str, result: pbxt::Result<T>) -> Step<T> {
        let refusal = result.as_ref().err().map(ToString::to_string);
        match self.judge(what, result, Deed::Read)? {
            Some(done) => Ok(done),
            None if self.trouble.damaged || self.trouble.breaks => {
                Err(Stop::Broken(refusal.unwrap_or_default()))
            }
            None => Err(self.wrong(&format!("SM3: {what}: {}", refusal.unwrap_or_default()))),
        }
    }

    /// A failed write or sync poisons, or did no harm (D9).
    fn broken<T>(&mut self, error: &Error) -> Step<Option<T>> {
        let reason = self.db.as_ref().and_then(|db| db.poisoned());
        if reason.is_some() {
            self.done.broken += 1;
            return Err(Stop::Broken(error.to_string()));
        }
        Ok(None)
    }

    /// Notes what is about to happen.
    pub(super) fn note(&mut self, what: String) {
        self.trace.push(what);
    }

    /// A difference, with what led to it.
    pub(super) fn wrong(&self, what: &str) -> Stop {
        let from = self.trace.len().saturating_sub(TOLD);
        Stop::Wrong(format!("{}\n==> {what}", self.trace[from..].join("\n")))
    }
}

/// True for an error that says where the damage is (rule TR2).
pub(super) fn names_a_file(error: &Error) -> bool {
    let is_damage = matches!(
        error,
        Error::Storage(
            StorageError::Corrupt { .. }
                | StorageError::WrongVersion { .. }
                | StorageError::NotADatabase { .. }
                | StorageError::Io { .. }
        ) | Error::Row(_)
    );
    let text = error.to_string();
    is_damage && (text.contains(".seg'") || text.contains("pbxt.manifest"))
}
