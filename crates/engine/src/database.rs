//! Database: everything that is open, found from one pointer.
//!
//! Why it exists: sessions, cursors and background work share the same log, transaction table and catalog.
//! State: files below (`store`, `blobs`, `log`), memory above (transaction table, locks, catalog); the memory is derived
//! from the log at open (recovery.rs).
//! Latches and I/O: `ddl` is held across the log flush of one DDL statement; nothing else here is held across I/O.
//! After a crash: `open` runs recovery before it returns.

use crate::bulk::LoadBudget;
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::encrypted_tables::ready_files_of;
use crate::error::Result;
use crate::fetch_ahead::FetchBudget;
use crate::guards::OperationGuards;
use crate::held_rows::adopt_held;
use crate::host::SharedHost;
use crate::key_hints::HintRoom;
use crate::maintenance::Maintenance;
use crate::opening_progress::OpeningProgress;
use crate::pacing::Upkeep;
use crate::pieces::PiecesInFlight;
use crate::prepared::PreparedSet;
use crate::recovery;
use crate::recovery_image::Pieces;
use crate::scrub::Scrub;
use crate::session::TableWork;
use crate::snapshot_age::SnapshotAges;
use crate::stamp::LoggedId;
use crate::waits::{WaitObserver, Waits};
use parking_lot::Mutex;
use pbxt_base::{CommitTs, Error as StorageError, Lsn};
use pbxt_index::StripeLatches;
use pbxt_io::{Clock, Disk, Poison, SystemClock, Worker, parallelism};
use pbxt_rows::NoWeigher;
use pbxt_segment::{BlobStore, BlockCache, Geometry, OpenMode, SegmentStore};
use pbxt_txlog::{Log, LogOptions};
use pbxt_txn::{RowLocks, Serializer, TableLocks, TxnTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How to open a database. The defaults are right; tests narrow them.
#[derive(Debug, Clone)]
pub struct Options {
    /// Make a new database where there is none.
    pub create: bool,
    /// Sizes of a new database.
    pub geometry: Geometry,
    /// Bytes of log kept in memory for readers.
    pub cache_bytes: u64,
    /// Run background threads; without them the caller steps.
    pub background: bool,
    /// Told about waits.
    pub observer: Option<Arc<dyn WaitObserver>>,
    /// Asked about tables that the engine opens by itself; without one only tables without collations can be opened so.
    pub host: Option<SharedHost>,
    /// Everything that could differ between two runs comes from the caller.
    pub simulation: Option<Simulation>,
}

/// What makes two runs with the same calls write the same bytes in the same order: time and identity are given, and all work is
/// done by the thread that asks for it.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Identity of a new database.
    pub uuid: u128,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            geometry: Geometry::default(),
            cache_bytes: 256 << 20,
            background: true,
            observer: None,
            host: None,
            simulation: None,
        }
    }
}

impl Options {
    /// Clock and identity of an opening.
    fn clock_and_uuid(&self) -> Simulation {
        self.simulation.clone().unwrap_or_else(|| Simulation {
            clock: Arc::new(SystemClock::new()),
            uuid: pbxt_io::random_u128(),
        })
    }

    /// Threads for work that can be divided.
    fn threads(&self) -> usize {
        match self.simulation {
            Some(_) => 1,
            None => parallelism(),
        }
    }

    /// The defaults for a cache of so many bytes: what a new database sets aside follows from it.
    pub fn for_cache(cache_bytes: u64) -> Self {
        Self {
            geometry: Geometry::for_cache(cache_bytes),
            cache_bytes,
            ..Self::default()
        }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) blobs: Arc<BlobStore>,
    pub(crate) log: Arc<Log>,
    pub(crate) poison: Arc<Poison>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) txns: TxnTable,
    /// Of ids that were told to the host.
    pub(crate) logged_id: LoggedId,
    pub(crate) row_locks: RowLocks,
    pub(crate) table_locks: TableLocks,
    /// SERIALIZABLE transactions.
    pub(crate) serial: Serializer,
    pub(crate) claims: StripeLatches,
    /// Blocks of runs.
    pub(crate) cache: Arc<BlockCache>,
    /// Row operations under way.
    pub(crate) guards: OperationGuards,
    /// Piece files nobody names yet.
    pub(crate) flight: PiecesInFlight,
    /// What background work knows.
    pub(crate) upkeep: Upkeep,
    /// Checkpoints.
    pub(crate) maintenance: Maintenance,
    /// Reads all files now and then.
    pub(crate) scrub: Scrub,
    /// Memory of bulk loads.
    pub(crate) loads: LoadBudget,
    /// Memory of rows fetched ahead.
    pub(crate) fetches: Arc<FetchBudget>,
    /// Which rows keys led to, as far as it is about all indexes.
    pub(crate) hints: HintRoom,
    /// How old snapshots are.
    pub(crate) ages: SnapshotAges,
    /// Waits and deadlocks.
    pub waits: Waits,
    /// Tables.
    pub catalog: Catalog,
    /// Prepared transactions without a session.
    pub prepared: PreparedSet,
    /// Totals since open.
    pub counters: Counters,
    /// Budget of the record cache.
    pub(crate) cache_bytes: u64,
    /// Threads for work that can be divided.
    pub(crate) threads: usize,
    /// Asked about tables that the engine opens by itself.
    pub(crate) host: SharedHost,
    pub(crate) ddl: Mutex<()>,
    /// No row and no name goes to a plain file any more (rule EN18).
    pub(crate) all_encrypted: AtomicBool,
    /// Changes of bindings (rule FK23).
    pub(crate) bindings: AtomicU64,
    next_shard: AtomicUsize,
    horizon: AtomicU64,
    housekeeper: Mutex<Option<Worker>>,
}

/// Log bytes written and not yet synced at most: what the commit of a large transaction may have to wait for.
const UNSYNCED_BYTES_MAX: u64 = 2 << 20;
/// Pause between two runs of the housekeeper.
const HOUSEKEEPING_PAUSE: Duration = Duration::from_millis(100);

fn log_options(options: &Options) -> LogOptions {
    LogOptions {
        cache_bytes: options.cache_bytes / 4,
        unsynced_bytes_max: UNSYNCED_BYTES_MAX,
        worker: options.background,
    }
}

/// What background work knew when the checkpoint was made.
fn upkeep_of(found: &mut recovery::Found, blobs: &BlobStore) -> Result<Upkeep> {
    let upkeep = Upkeep::restore(std::mem::take(&mut found.blobs));
    if let (Some(start), 0) = (found.start, found.records) {
        upkeep.blobs.known_before(start, blobs)?;
    }
    Ok(upkeep)
}

impl Database {
    /// Opens the database on `disk`, recovering it first if needed.
    pub fn open(disk: Arc<dyn Disk>, options: &Options) -> Result<Arc<Self>> {
        let Simulation { clock, uuid } = options.clock_and_uuid();
        let mode = OpenMode {
            create: options.create.then_some(options.geometry),
            read_only: false,
            new_uuid: uuid,
            now: clock.unix_seconds(),
        };
        let store = Arc::new(SegmentStore::open(disk, mode)?);
        let blobs = Arc::new(BlobStore::open(Arc::clone(&store))?);
        let progress = OpeningProgress::new(&clock, options.observer.as_ref());
        let mut found = recovery::read_log(&store, &blobs, options.threads(), &progress)?;
        let upkeep = upkeep_of(&mut found, &blobs)?;
        // The log goes on in a new file, and so do large values: what is encrypted from here on is all that will be written.
        let all_encrypted = ready_files_of(&store, &found.catalog)?;
        let log = Log::open(
            Arc::clone(&store),
            Arc::clone(&blobs),
            Arc::clone(store.poison()),
            found.end,
            log_options(options),
        )?;
        found.pieces.remove_orphans()?;
        let db = Arc::new(Self {
            poison: Arc::clone(store.poison()),
            store,
            blobs,
            log,
            clock,
            txns: TxnTable::restore(&found.txns),
            logged_id: LoggedId::default(),
            row_locks: RowLocks::new(),
            table_locks: TableLocks::new(),
            serial: Serializer::default(),
            claims: StripeLatches::new(),
            cache: Arc::new(BlockCache::new(options.cache_bytes / 2)),
            guards: OperationGuards::default(),
            flight: PiecesInFlight::default(),
            upkeep,
            maintenance: Maintenance::new(options.cache_bytes),
            scrub: Scrub::default(),
            loads: LoadBudget::default(),
            fetches: Arc::new(FetchBudget::new(options.cache_bytes)),
            hints: HintRoom::default(),
            ages: SnapshotAges::default(),
            waits: Waits::new(options.observer.clone()),
            catalog: found.catalog,
            prepared: PreparedSet::default(),
            counters: Counters::default(),
            cache_bytes: options.cache_bytes,
            threads: options.threads(),
            host: options.host.clone().unwrap_or_else(|| Arc::new(NoWeigher)),
            ddl: Mutex::new(()),
            all_encrypted: AtomicBool::new(all_encrypted),
            bindings: AtomicU64::new(0),
            next_shard: AtomicUsize::new(0),
            horizon: AtomicU64::new(found.txns.last_ts.raw()),
            housekeeper: Mutex::new(None),
        });
        db.waits.watch(&db.poison);
        db.bind_references();
        adopt_held(&db, found.held)?;
        recovery::adopt_prepared(&db, found.prepared);
        let quiet_at = (found.records == 0).then(|| db.log.tail());
        db.maintenance.note_opened(found.start, quiet_at);
        let loads = found.loads.into_iter();
        loads.for_each(|record| db.maintenance.note_load(Lsn::new(0), record));
        db.end_recovery((found.records, found.bytes), &found.pieces, &progress)?;
        if options.background {
            db.start_background()?;
        }
        Ok(db)
    }

    fn start_background(self: &Arc<Self>) -> Result<()> {
        self.start_housekeeper()?;
        self.start_checkpoints()?;
        self.start_upkeep()?;
        self.start_scrub()
    }

    /// Makes right what cannot be, tells what the opening goes on without, and counts what it has read.
    fn end_recovery(
        self: &Arc<Self>,
        (records, bytes): (u64, u64),
        pieces: &Pieces,
        progress: &OpeningProgress,
    ) -> Result<()> {
        self.tell_of_aside(pieces);
        self.tell_of_leftovers();
        self.recount_impossible(progress)?;
        let took = self.clock.now_millis() - progress.began();
        self.counters.recovery_micros.add(took * 1000);
        self.counters.recovery_records.add(records);
        self.counters.recovery_bytes.add(bytes);
        Ok(())
    }

    /// Logs exact counters, flushes, and notes the orderly close. No session may be open.
    pub fn close(&self) -> Result<()> {
        if let Some(mut worker) = self.housekeeper.lock().take() {
            worker.stop();
        }
        self.stop_scrub();
        self.stop_upkeep();
        self.stop_checkpoints();
        self.poison.check()?;
        for table in self.catalog.tables().iter().filter(|table| !table.temporary) {
            table.autoinc.log_exact(&self.log, table.id)?;
        }
        self.checkpoint_for_close()?;
        self.log.close()?;
        Ok(())
    }

    /// Everything ended before this call is durable when it returns.
    pub fn flush(&self) -> Result<()> {
        self.log.wait_durable(self.log.tail())?;
        Ok(())
    }

    /// True if this opening has made it.
    pub fn is_new(&self) -> bool {
        self.store.incarnation() == 1
    }

    /// The reason why the database takes no more writes, if it does not.
    pub fn poisoned(&self) -> Option<String> {
        self.poison.reason()
    }

    /// The hot log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Large values.
    pub fn blobs(&self) -> &Arc<BlobStore> {
        &self.blobs
    }

    /// Files.
    pub fn store(&self) -> &Arc<SegmentStore> {
        &self.store
    }

    /// Transaction states.
    pub fn txns(&self) -> &TxnTable {
        &self.txns
    }

    /// Explicit row locks.
    pub fn row_locks(&self) -> &RowLocks {
        &self.row_locks
    }

    /// Everybody sees what committed at or before this; may lag behind.
    pub fn horizon(&self) -> CommitTs {
        CommitTs::new(self.horizon.load(Ordering::Acquire))
    }

    /// Which operation guard the next session enters.
    pub(crate) fn next_shard(&self) -> usize {
        self.next_shard.fetch_add(1, Ordering::Relaxed)
    }

    /// True if background threads run.
    pub(crate) fn has_background(&self) -> bool {
        self.housekeeper.lock().is_some()
    }

    /// One round of background work: moves the horizon and the low-water mark.
    pub fn housekeeping_step(&self) {
        let live = self.txns.live_snapshots();
        self.horizon.fetch_max(live.horizon().raw(), Ordering::AcqRel);
        self.txns.advance_low_water(&live);
        self.end_old_snapshots(self.clock.now_millis());
        self.watch_trees();
        self.see_to_hints();
        self.fit_block_cache();
    }

    /// Called when a transaction ended: keeps the count lists of its tables short.
    pub(crate) fn note_end(&self, tables: &[TableWork]) {
        for work in tables
            .iter()
            .filter(|work| work.rows != 0 && work.table.count.wants_prune())
        {
            let live = self.txns.live_snapshots();
            work.table.count.prune(live.timestamps(), live.frontier());
        }
    }

    fn start_housekeeper(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let step = move || {
            if let Some(db) = weak.upgrade() {
                db.housekeeping_step();
            }
        };
        let worker = Worker::spawn(
            "pbxt-housekeeper",
            Arc::clone(&self.poison),
            HOUSEKEEPING_PAUSE,
            step,
        );
        let failed = |source| StorageError::Io {
            file: self.store.location(),
            op: "start a thread for",
            source,
        };
        *self.housekeeper.lock() = Some(worker.map_err(failed)?);
        Ok(())
    }
}
