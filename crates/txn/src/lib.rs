//! Transactions as pure state: ids and states, snapshots, visibility, waiting, locks. No I/O, clock, threads.
//!
//! Why it exists: whatever readers and writers must agree on is decided here, in code that can be tried in
//! every small state and every interleaving; the engine adds the log, the rows and the blocking.
//! State: docs/transactions.md, with the rules T1 to T18 that assertions and tests cite.
//! Rules: all of T1 to T18.
//! Latches and I/O: the latches named in each module, never across a lock wait; no I/O.
//! After a crash: `TxnTable::restore`, and table locks taken again for prepared transactions.
//!
//! | module | answers |
//! |---|---|
//! | `txn_table`, `low_water`, `settled`, `image` | what became of transaction n? |
//! | `snapshots` | who reads as of when, and what may be forgotten? |
//! | `visibility` | does this viewer see this version? |
//! | `row_locks`, `table_locks`, `lock_mode` | who holds what? |
//! | `wait_graph`, `deadlock`, `waiter_counts` | who waits, whose turn is it, has a circle formed? |
//! | `lock_survey`, `wait_survey` | all of it, for people |
//!
//! # Blocking on a token
//!
//! The graph never blocks. Whoever embeds it keeps it under one latch, judges under that latch, and sleeps on
//! the token:
//!
//! ```
//! use std::sync::{Condvar, Mutex};
//! use std::time::{Duration, Instant};
//!
//! use pbxt_base::ids::{RowId, TableId, TxnId};
//! use pbxt_txn::{Enqueued, LockMode, Resource, TxnTable, WaitGraph, WaitRequest, WaitState, Wakes};
//!
//! struct Waits {
//!     graph: Mutex<WaitGraph>,
//!     woken: Condvar,
//! }
//!
//! #[derive(Debug, PartialEq)]
//! enum Waited {
//!     /// Judge again and try; then `take` or `leave` with the token.
//!     Turn(Option<pbxt_txn::WaitToken>),
//!     Deadlock,
//!     Timeout,
//! }
//!
//! impl Waits {
//!     fn wake(&self, wakes: Wakes) {
//!         if !wakes.0.is_empty() {
//!             self.woken.notify_all();
//!         }
//!     }
//!
//!     fn wait(&self, table: &TxnTable, own: TxnId, row: Resource, owner: TxnId, most: Duration) -> Waited {
//!         let deadline = Instant::now() + most;
//!         let mut graph = self.graph.lock().unwrap();
//!         // T13: judged under the latch. The owner stores its state before it takes the latch to wake.
//!         if !table.status(owner, &crossbeam_epoch::pin()).is_unfinished() {
//!             return Waited::Turn(None);
//!         }
//!         let (mode, blockers) = (LockMode::Exclusive, &[owner]);
//!         let request = WaitRequest { txn: own, resource: row, mode, blockers };
//!         let token = match graph.enqueue(request) {
//!             Enqueued::Free => return Waited::Turn(None),
//!             Enqueued::Deadlock(_, wakes) => {
//!                 self.wake(wakes);
//!                 return Waited::Deadlock;
//!             }
//!             Enqueued::Waiting(token, wakes) => {
//!                 self.wake(wakes);
//!                 token
//!             }
//!         };
//!         loop {
//!             match graph.state(token) {
//!                 WaitState::Turn => return Waited::Turn(Some(token)),
//!                 WaitState::Victim => {
//!                     self.wake(graph.leave(token));
//!                     return Waited::Deadlock;
//!                 }
//!                 WaitState::Waiting => {}
//!             }
//!             let Some(left) = deadline.checked_duration_since(Instant::now()) else {
//!                 self.wake(graph.leave(token)); // passes the turn on if it came too late
//!                 return Waited::Timeout;
//!             };
//!             graph = self.woken.wait_timeout(graph, left).unwrap().0;
//!         }
//!     }
//!
//!     fn ended(&self, txn: TxnId) {
//!         let wakes = self.graph.lock().unwrap().released(txn);
//!         self.wake(wakes);
//!     }
//! }
//!
//! let table = TxnTable::new();
//! let waits = Waits { graph: Mutex::new(WaitGraph::new()), woken: Condvar::new() };
//! let (owner, waiter) = (table.begin(), table.begin());
//! let row = Resource::Row(TableId::new(1), RowId::new(5));
//! let none = Duration::ZERO;
//! assert_eq!(waits.wait(&table, waiter, row, owner, none), Waited::Timeout);
//! std::thread::scope(|scope| {
//!     let answer = scope.spawn(|| waits.wait(&table, waiter, row, owner, Duration::from_secs(50)));
//!     table.abort(owner); // first the state,
//!     waits.ended(owner); // then the wake-up
//!     let Waited::Turn(token) = answer.join().unwrap() else { panic!("the owner has ended") };
//!     if let Some(token) = token {
//!         waits.wake(waits.graph.lock().unwrap().take(token));
//!     }
//! });
//! ```

mod deadlock;
mod directory;
#[cfg_attr(loom, path = "epoch_cell_model.rs")]
mod epoch_cell;
mod exceptions;
mod footprint_own;
mod footprints;
mod image;
mod image_codec;
mod inspect;
mod key_ranges;
mod lock_mode;
mod lock_survey;
mod low_water;
mod resource;
mod row_locks;
mod row_set;
mod serial_graph;
mod serializer;
mod settled;
mod snapshots;
mod status;
mod sync;
mod table_locks;
mod txn_table;
mod visibility;
mod void_ranges;
mod wait_graph;
mod wait_survey;
mod wait_walk;
mod waiter_counts;
mod waiting;

pub use deadlock::{CIRCLE_SHOWN_MAX, CircleMember, DeadlockReport, VictimBecause};
pub use footprint_own::{RowChange, WholeTable};
pub use image::{EndedAs, RestoredTxn, TxnTableImage};
pub use key_ranges::{KeyRange, behind_prefix};
pub use lock_mode::{LockMode, ModeSet};
pub use lock_survey::{HeldRows, LockSurvey, SurveyLimits};
pub use low_water::LowWaterStep;
pub use resource::Resource;
pub use row_locks::{RowAccess, RowLockList, RowLockUsage, RowLocks, StillLocked};
pub use row_set::LEAF_ROWS;
pub use serial_graph::Unserializable;
pub use serializer::{OpenScan, SerialReader, SerialTxn, SerialUsage, Serializer};
pub use settled::SettledAs;
pub use snapshots::{LiveSnapshots, Snapshot};
pub use status::{Standing, TxnStatus};
pub use table_locks::{TableAccess, TableLocks};
pub use txn_table::TxnTable;
pub use visibility::{
    EventDecision, IndexEvent, ReadMode, Sign, Stamp, Verdict, Viewer, decide_events, judge,
};
pub use wait_graph::{Preference, WaitGraph};
pub use wait_survey::{HOLDERS_SHOWN_MAX, WaitSeen};
pub use waiter_counts::WaiterCounts;
pub use waiting::{Enqueued, WaitRequest, WaitState, WaitToken, Wakes};
