//! World: an engine on a simulated disk, a few sessions, and the model beside them.
//!
//! Why it exists: property test, crash simulator and full-disk test need the same thing: do something, compare, and know at
//! every moment which states a restart may find.
//! State: `history` has the state after every request that changes it, in log order; a request is entered before it is made.
//! `durable` and `written` are the positions acknowledged so far: a power cut may give any state from `durable` on, the
//! death of the process any from `written` on (D6: nothing acknowledged lost, nothing partial, nothing not requested).

use crate::client::Client;
use crate::model::{Fault, Faults, Mode, Model, State};
use crate::table::PlayTable;
use pbxt::{ConflictMode, Database, Error, FlushAtCommit, Isolation, Options, SessionConfig};
use pbxt_base::{Error as StorageError, TableId};
use pbxt_segment::Geometry;
use pbxt_testkit::{Fault as PlantedFault, Rng, SimDisk};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Why a life ended before its time.
#[derive(Debug)]
pub enum Stop {
    /// The power is off.
    PowerOff,
    /// The disk failed as it was told to, and the engine said so.
    Broken(String),
    /// Engine and model differ.
    Wrong(String),
}

/// What an operation of a life answers.
pub type Step<T = ()> = Result<T, Stop>;

/// Sessions of a world.
pub const SESSIONS: usize = 3;
/// Operations told when something is wrong.
const TOLD: usize = 60;

/// See the module.
pub struct World {
    /// The disk.
    pub disk: SimDisk,
    /// Source of all choices.
    pub rng: Rng,
    /// What should be.
    pub model: Model,
    pub(crate) db: Option<Arc<Database>>,
    pub(crate) clients: Vec<Client>,
    history: Vec<State>,
    durable: usize,
    written: usize,
    /// The oldest state that the next opening may find.
    oldest: usize,
    /// Greatest automatic value handed out, and the one that must not come again after a crash.
    pub(crate) values: BTreeMap<TableId, u64>,
    durable_values: BTreeMap<TableId, u64>,
    /// The disk is told to fail: storage errors are expected.
    pub may_break: bool,
    /// The disk is told to be full: refusals are expected.
    pub may_be_full: bool,
    /// Operations refused because the disk was full or failed, without harm.
    pub refused: u64,
    /// Operation of the disk before which the power goes off.
    cut_at: Option<u64>,
    /// Faults that every disk of this world has.
    pub faults: Vec<PlantedFault>,
    trace: Vec<String>,
    pub(crate) next_xid: u64,
}

/// Small files, so that every border is crossed often.
pub fn geometry() -> Geometry {
    Geometry {
        hot_segment_bytes: 32 << 10,
        chunk_bytes: 8 << 10,
        blob_segment_bytes: 64 << 10,
    }
}

fn options() -> Options {
    Options {
        geometry: geometry(),
        cache_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

impl World {
    /// A new database on `disk`.
    pub fn new(disk: SimDisk, seed: u64) -> Self {
        Self {
            disk,
            rng: Rng::new(seed),
            model: Model::new(SESSIONS),
            db: None,
            clients: Vec::new(),
            history: vec![State::default()],
            durable: 0,
            written: 0,
            oldest: 0,
            values: BTreeMap::new(),
            durable_values: BTreeMap::new(),
            may_break: false,
            may_be_full: false,
            refused: 0,
            cut_at: None,
            faults: Vec::new(),
            trace: Vec::new(),
            next_xid: 1,
        }
    }

    /// Opens the database; it must be in one of the states that the history allows from `from` on.
    pub fn open(&mut self) -> Step {
        let opened = Database::open(Arc::new(self.disk.clone()), &options());
        let db = match opened {
            Ok(db) => db,
            Err(_) if self.disk.is_off() => return Err(Stop::PowerOff),
            Err(Error::Storage(StorageError::NoSpace { .. })) if self.may_be_full => {
                return Err(Stop::Broken("no space to open".into()));
            }
            Err(error) if self.may_break => return Err(Stop::Broken(error.to_string())),
            Err(error) => return Err(self.wrong(&format!("the database does not open: {error}"))),
        };
        self.db = Some(Arc::clone(&db));
        self.clients = (0..SESSIONS).map(|number| Client::new(&db, number)).collect();
        let found = self.read_state()?;
        self.adopt(found)?;
        for me in 0..SESSIONS {
            let mode = self.next_mode(me);
            self.model.txns[me].mode = mode;
        }
        Ok(())
    }

    /// The database; only while open.
    pub fn db(&self) -> &Arc<Database> {
        self.db.as_ref().expect("the world is open")
    }

    /// Closes in an orderly way: after it only the newest state is right.
    pub fn close(&mut self) -> Step {
        self.note("close".into());
        self.clients.clear();
        let closed = self.db().close();
        self.must("close", closed)?;
        self.db = None;
        self.acknowledge(FlushAtCommit::Durable);
        self.oldest = self.durable;
        Ok(())
    }

    /// The process dies; what was handed to the operating system is there.
    pub fn kill(&mut self) {
        self.note("kill".into());
        let disk = self.disk.kill();
        let cut_at = self.cut_at;
        self.leave(disk);
        if let Some(operation) = cut_at {
            self.cut_power_at(operation);
        }
        self.oldest = self.written;
    }

    /// The power fails, or failed.
    pub fn crash(&mut self, seed: u64) {
        self.note(format!("power cut, seed {seed}"));
        let disk = self.disk.crash(seed);
        self.leave(disk);
        self.oldest = self.durable;
    }

    fn leave(&mut self, disk: SimDisk) {
        // Of the marks of automatic values only those that something acknowledged later brought along are safe.
        self.values = self.durable_values.clone();
        // Nobody writes any more: the old disk is off, its handles fail.
        self.disk.cut_power_at(0);
        self.clients.clear();
        self.db = None;
        self.disk = disk;
        self.cut_at = None;
        for fault in &self.faults {
            self.disk.plant(fault.clone());
        }
    }

    /// Cuts the power before this operation of the disk; see `SimDisk::cut_power_at`.
    pub fn cut_power_at(&mut self, operation: u64) {
        self.cut_at = Some(operation);
        self.disk.cut_power_at(operation);
    }

    /// Plants a fault, on this disk and on what it is after a crash.
    pub fn plant(&mut self, fault: PlantedFault) {
        self.disk.plant(fault.clone());
        self.faults.push(fault);
    }

    /// Isolation, conflict mode and durability of the session's next transaction.
    pub(crate) fn next_mode(&mut self, me: usize) -> Mode {
        let mode = [Mode::RepeatableError, Mode::RepeatableWait, Mode::Committed][self.rng.below(3) as usize];
        let flush = match self.rng.below(5) {
            0 => FlushAtCommit::Background,
            1 => FlushAtCommit::Written,
            _ => FlushAtCommit::Durable,
        };
        let config = SessionConfig {
            isolation: if mode == Mode::Committed {
                Isolation::ReadCommitted
            } else {
                Isolation::RepeatableRead
            },
            conflict_mode: if mode == Mode::RepeatableWait {
                ConflictMode::Wait
            } else {
                ConflictMode::Error
            },
            lock_wait_timeout_ms: 0,
            flush,
            ..SessionConfig::default()
        };
        self.clients[me].session.configure(config);
        mode
    }

    /// Reads everything there is.
    fn read_state(&mut self) -> Step<State> {
        let db = Arc::clone(self.db());
        let mut state = State::default();
        for name in db.catalog.names("") {
            let opened = PlayTable::open(&db, &name);
            let Some(table) = self.judge("open a table", opened, &Faults::new())? else {
                continue;
            };
            state.names.insert(name, table.id());
            for (row, content) in self.agreed(0, &table, &Faults::new())?.unwrap_or_default() {
                state.rows.insert((table.id(), row), content);
            }
            let findings = self.clients[0].check(&table);
            let findings = self.judge("check", findings, &Faults::new())?.unwrap_or_default();
            if !findings.is_empty() {
                return Err(self.wrong(&format!("check finds: {findings:?}")));
            }
        }
        let ended = self.clients[0].session.rollback();
        self.must("rollback", ended)?;
        for xid in db.prepared.xids() {
            state.prepared.insert(xid, crate::model::Pending::default());
        }
        Ok(state)
    }

    /// All rows of a table, by every way of reading.
    pub(crate) fn agreed(
        &mut self,
        me: usize,
        table: &PlayTable,
        faults: &Faults,
    ) -> Step<Option<crate::client::Read>> {
        let read = self.clients[me].agreed(table);
        match self.judge("read", read, faults)? {
            Some(Err(differs)) => Err(self.wrong(&differs)),
            Some(Ok(rows)) => Ok(Some(rows)),
            None => Ok(None),
        }
    }

    /// The found state must be one of the history; from now on it is the only one.
    fn adopt(&mut self, found: State) -> Step {
        let position = self.history.iter().rposition(|state| is_same(state, &found));
        let position = position.filter(|position| *position >= self.oldest);
        let Some(position) = position else {
            let expected: Vec<String> = self.history[self.oldest..].iter().map(brief).collect();
            return Err(self.wrong(&format!(
                "found\n{}\nwhich is none of\n{}",
                brief(&found),
                expected.join("\n")
            )));
        };
        let mut state = self.history.swap_remove(position);
        state.names = found.names;
        let lives: Vec<TableId> = state.names.values().copied().collect();
        self.values.retain(|table, _| lives.contains(table));
        self.durable_values = self.values.clone();
        self.history = vec![state.clone()];
        (self.durable, self.written, self.oldest) = (0, 0, 0);
        self.model = Model::restarted(state, SESSIONS);
        Ok(())
    }

    /// Enters what the model's state is going to be when the request that follows has been logged.
    pub(crate) fn request(&mut self) {
        self.history.push(self.model.state.clone());
    }

    /// The newest state entered turned out to have other table ids, or nothing came of it.
    pub(crate) fn correct_request(&mut self) {
        if let Some(last) = self.history.last_mut() {
            last.clone_from(&self.model.state);
        }
    }

    /// Everything entered so far is as durable as this.
    pub(crate) fn acknowledge(&mut self, flush: FlushAtCommit) {
        let newest = self.history.len() - 1;
        match flush {
            FlushAtCommit::Durable => {
                (self.durable, self.written) = (newest, newest);
                self.durable_values.clone_from(&self.values);
            }
            FlushAtCommit::Written => self.written = newest,
            FlushAtCommit::Background => {}
        }
    }

    /// Compares the outcome of an operation with the prediction. `None`: it failed as predicted.
    pub(crate) fn judge<T>(
        &mut self,
        what: &str,
        result: pbxt::Result<T>,
        faults: &Faults,
    ) -> Step<Option<T>> {
        let error = match result {
            Ok(done) if faults.is_empty() || faults.contains(&Fault::Maybe) => return Ok(Some(done)),
            Ok(_) => return Err(self.wrong(&format!("{what} succeeded, expected one of {faults:?}"))),
            Err(error) => error,
        };
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        match &error {
            error if Fault::of(error).is_some_and(|fault| faults.contains(&fault)) => Ok(None),
            Error::Storage(StorageError::NoSpace { .. }) if self.may_be_full => {
                self.refused += 1;
                Ok(None)
            }
            Error::Storage(error) if self.may_break => self.broken(error),
            error => Err(self.wrong(&format!("{what}: {error}; expected {faults:?}"))),
        }
    }

    /// As `judge` for what has to work also on a full disk.
    pub(crate) fn must<T>(&mut self, what: &str, result: pbxt::Result<T>) -> Step<T> {
        let refusal = result.as_ref().err().map(ToString::to_string);
        match self.judge(what, result, &Faults::new())? {
            Some(done) => Ok(done),
            None => Err(self.wrong(&format!("{what}: {}", refusal.unwrap_or_default()))),
        }
    }

    /// A failed write or sync poisons, or did no harm (D9).
    fn broken<T>(&mut self, error: &StorageError) -> Step<Option<T>> {
        let reason = self.db.as_ref().and_then(|db| db.poisoned());
        if reason.is_some() {
            return Err(Stop::Broken(error.to_string()));
        }
        self.refused += 1;
        Ok(None)
    }

    /// A poisoned database takes no change and says why (D9); one that failed to open has nothing to refuse.
    pub fn refuses_changes(&mut self) -> Step {
        let Some(db) = self.db.clone() else { return Ok(()) };
        for name in db.catalog.names("") {
            let table = PlayTable::open(&db, &name).map_err(|error| self.wrong(&error.to_string()))?;
            let mut client = Client::new(&db, SESSIONS);
            let refused = client.insert(&table, &crate::table::PlayRow::new(1000));
            if !matches!(refused, Err(Error::Storage(StorageError::Poisoned { .. }))) {
                return Err(self.wrong(&format!(
                    "D9: an insert after the failure of the disk gives {refused:?}"
                )));
            }
        }
        Ok(())
    }

    /// Notes what is about to happen.
    pub(crate) fn note(&mut self, what: String) {
        self.trace.push(what);
    }

    /// A difference, with what led to it.
    pub(crate) fn wrong(&self, what: &str) -> Stop {
        let from = self.trace.len().saturating_sub(TOLD);
        Stop::Wrong(format!("{}\n==> {what}", self.trace[from..].join("\n")))
    }
}

/// A state in one line per table.
fn brief(state: &State) -> String {
    let mut text = format!(
        "  state: prepared {:?}",
        state
            .prepared
            .keys()
            .map(|xid| String::from_utf8_lossy(xid))
            .collect::<Vec<_>>()
    );
    for (name, table) in &state.names {
        let rows = state.rows.iter().filter(|(spot, _)| spot.0 == *table);
        let rows: Vec<String> = rows
            .map(|(spot, row)| format!("{}={}", spot.1, row.brief()))
            .collect();
        let _ = write!(text, "\n    {name} ({table}): {}", rows.join(", "));
    }
    text
}

/// Table id 0 stands for one that is not known yet.
fn is_same(expected: &State, found: &State) -> bool {
    let names = expected.names.len() == found.names.len()
        && expected
            .names
            .iter()
            .zip(&found.names)
            .all(|((name, id), (found_name, found_id))| {
                name == found_name && (id == found_id || id.raw() == 0)
            });
    names && expected.rows == found.rows && expected.prepared.keys().eq(found.prepared.keys())
}
