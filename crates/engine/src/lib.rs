//! PBXT: a write-once, log-structured, multi-version transactional storage engine.
//!
//! A [`Database`] is one directory. A [`Session`] is one connection with at most one transaction. Rows are read through
//! a [`Cursor`] and written through the session.
//!
//! The map of this crate: `session` and `commit` (life of a transaction), `write`, `unique`, `locking`, `waits` (changing
//! a row), `cursor`, `index_cursor`, `view` (reading one), `catalog`, `definition`, `ddl` (tables), `recovery` (open).

mod autoinc;
mod blob_reclaim;
mod bulk;
mod bulk_chunk;
mod bulk_ingest;
mod bulk_sort;
mod bulk_spill;
mod bulk_unique;
mod bulk_writer;
mod catalog;
mod check;
mod check_diff;
mod check_digest;
mod check_runs;
mod checkpoint;
mod checkpoint_runs;
mod commit;
mod compact_batch;
mod compactor;
mod counters;
mod counts;
mod cursor;
mod database;
mod ddl;
mod definition;
mod error;
mod fates;
mod fetch_ahead;
mod forget;
mod gone;
mod gone_sweep;
mod guards;
mod held_rows;
mod homing;
pub mod host;
mod image;
mod image_words;
mod index_cursor;
mod index_merge;
mod index_merge_plan;
mod keys;
mod locking;
mod maintenance;
mod overtake;
mod pacing;
mod pieces;
mod prepared;
mod pressure;
mod recovery;
mod recovery_image;
mod recovery_index;
mod row_ahead;
mod row_merge;
mod row_merge_plan;
mod row_output;
mod row_pieces;
mod row_shape;
mod row_writer;
mod session;
mod settle_tags;
mod snapshot_age;
mod statistics;
mod status;
mod stored_values;
mod table;
mod table_scan;
mod unique;
mod version;
mod view;
mod waits;
mod write;

pub use autoinc::Reserved;
pub use check::check_table;
pub use counters::{Counter, Counters};
pub use cursor::{Bind, Cursor};
pub use database::{Database, Options};
pub use definition::{Compression, ConflictMode, IndexDef, TableDef};
pub use error::{Error, Result};
pub use index_cursor::Seek;
pub use keys::KeyChanges;
pub use locking::Busy;
pub use maintenance::MaintenanceStatus;
pub use pacing::{Progress, UpkeepCounters};
pub use session::{FlushAtCommit, Isolation, Session, SessionConfig};
pub use snapshot_age::OldestSnapshot;
pub use status::{RunTotals, Status, TableInfo, TxnInfo};
pub use table::Table;
pub use version::RowVersion;
pub use waits::{SessionGate, WaitObserver};
pub use write::{NewVersion, Updated};
