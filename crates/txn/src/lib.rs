//! Transactions as pure state: ids and states, snapshots, visibility, waiting, locks. No I/O, no clock, no threads.
//!
//! Why it exists: whatever readers and writers must agree on is decided here, in code that can be tried in every
//! small state and every interleaving; the engine adds the log, the rows and the blocking.
//! State: docs/transactions.md, with the rules T1 to T18 that assertions and tests cite.
//! Rules: all of T1 to T18.
//! Latches and I/O: the latches named in each module, never across a lock wait; no I/O.
//! After a crash: `TxnTable::restore`, and table locks taken again for prepared transactions.
//!
//! | module | answers |
//! |---|---|
//! | `txn_table`, `low_water`, `image` | what became of transaction n? |
//! | `snapshots` | who reads as of when, and what may be forgotten? |
//! | `visibility` | does this viewer see this version? |
//! | `row_locks`, `table_locks`, `lock_mode` | who holds what? |
//! | `wait_graph`, `deadlock`, `waiter_counts` | who waits, whose turn is it, has a circle formed? |

mod deadlock;
mod directory;
#[cfg_attr(loom, path = "epoch_cell_model.rs")]
mod epoch_cell;
mod exceptions;
mod image;
mod inspect;
mod lock_mode;
mod low_water;
mod resource;
mod row_locks;
mod row_set;
mod snapshots;
mod status;
mod sync;
mod table_locks;
mod txn_table;
mod visibility;
mod void_ranges;
mod wait_graph;
mod wait_walk;
mod waiter_counts;
mod waiting;

pub use deadlock::{CircleMember, DeadlockReport};
pub use image::{EndedAs, RestoredTxn, TxnTableImage};
pub use lock_mode::{LockMode, ModeSet};
pub use low_water::LowWaterStep;
pub use resource::Resource;
pub use row_locks::{RowAccess, RowLockList, RowLockUsage, RowLocks, StillLocked};
pub use snapshots::{LiveSnapshots, Snapshot};
pub use status::{Standing, TxnStatus};
pub use table_locks::{TableAccess, TableLocks};
pub use txn_table::TxnTable;
pub use visibility::{
    EventDecision, IndexEvent, ReadMode, Sign, Stamp, Verdict, Viewer, decide_events, judge,
};
pub use wait_graph::{Preference, WaitGraph};
pub use waiter_counts::WaiterCounts;
pub use waiting::{Enqueued, WaitRequest, WaitState, WaitToken, Wakes};
