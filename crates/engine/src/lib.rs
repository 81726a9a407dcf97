//! PBXT: a write-once, log-structured, multi-version transactional storage engine.
//!
//! A [`Database`] is one directory. A [`Session`] is one connection with at most one transaction. Rows are read through
//! a [`Cursor`] and written through the session.
//!
//! The map of this crate: `session` and `commit` (life of a transaction), `write`, `unique`, `locking`, `waits` (changing
//! a row), `cursor`, `index_cursor`, `view` (reading one), `catalog`, `definition`, `ddl` (tables), `recovery` (open).
//!
//! A program without a server keeps rows like this. It describes its tables, encodes its rows and makes their keys with the crate
//! `pbxt_rows`; what it does stands between the begin and the end of a statement, and statements in a transaction:
//!
//! ```
//! use pbxt::{Bind, Cursor, Database, IndexDef, KeyChanges, NewVersion, Options, RowVersion, Seek, Session, TableDef};
//! use pbxt_rows::*;
//! use std::sync::Arc;
//!
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path();
//! let db = Database::open(Arc::new(pbxt_io::OsDisk::open(path, true)?), &Options::default())?;
//!
//! // A table of two columns with a primary key.
//! let column = |kind| Column { kind, nullable: false };
//! let schema = Schema::new(1, vec![column(ColumnKind::Fixed(4)), column(ColumnKind::Var)])?;
//! let encoding = KeyEncoding::Uint;
//! let part = KeyPart { column: 0, length: 4, prefix: false, nullable: false, descending: false, encoding };
//! let primary = IndexDef::primary(KeySpec::new(vec![part], false)?);
//! let keys_of = PayloadKeyMaker::new(&primary.spec, &schema)?;
//! let table = db.create_table(TableDef::new("shop/item", schema.clone(), vec![primary]), 1)?;
//!
//! // A transaction that inserts rows.
//! let mut session = Session::open(&db, 0, 0);
//! let (mut row, mut payload, mut keys) = (RowBuilder::new(&schema), Vec::new(), KeyChanges::new());
//! session.begin_statement()?;
//! for (id, name) in [(1_u32, "apple"), (2, "pear"), (3, "plum")] {
//!     row.set(0, Some(&id.to_le_bytes()))?;
//!     row.set(1, Some(name.as_bytes()))?;
//!     payload.clear();
//!     row.finish(&mut payload)?;
//!     keys.clear();
//!     let mut key = |out: &mut Vec<u8>| keys_of.key_from_payload(&payload, &mut NoBlobs, out);
//!     keys.push::<pbxt_rows::Error>(0, true, None, Some(&mut key), &mut |_| Ok(()))?;
//!     session.insert(&table, NewVersion { payload: &payload, schema_version: 1, keys: &keys })?;
//! }
//! session.end_statement();
//! session.commit()?;
//!
//! // One that reads them from a key on.
//! let mut from = Vec::new();
//! keys_of.key_from_values(&[Some(&2_u32.to_le_bytes())], &mut from)?;
//! let mut names = Vec::new();
//! let mut show = |version: &RowVersion<'_>| -> pbxt::Result<()> {
//!     if let Value::Bytes(name) = RowView::new(&schema, version.payload())?.get(1)? {
//!         names.push(name.to_vec());
//!     }
//!     Ok(())
//! };
//! session.begin_statement()?;
//! let mut cursor = Cursor::new(&table);
//! cursor.bind(&mut session, Bind::default())?;
//! cursor.index_start(&mut session, 0)?;
//! let mut found = cursor.seek(&mut session, &from, Seek::OrNext, &mut show)?;
//! while found {
//!     found = cursor.index_move(&mut session, true, false, &mut show)?;
//! }
//! session.end_statement();
//! session.commit()?;
//! assert_eq!(names, [b"pear".to_vec(), b"plum".to_vec()]);
//!
//! drop((cursor, session));
//! db.close()?;
//! # Ok::<(), pbxt::Error>(())
//! ```
//!
//! `bench/embedded` does the same with removals, bulk loads and threads.

mod alter;
mod autoinc;
mod blob_reclaim;
mod block_owner;
mod breath;
mod budget;
mod bulk;
mod bulk_chunk;
mod bulk_files;
mod bulk_gather;
mod bulk_ingest;
mod bulk_keys;
mod bulk_sort;
mod bulk_spill;
mod bulk_unique;
mod bulk_writer;
mod cache_room;
mod catalog;
mod check;
mod check_diff;
mod check_digest;
mod check_files;
mod check_quick;
mod check_references;
mod check_runs;
mod checkpoint;
mod checkpoint_runs;
mod commit;
mod compact;
mod compact_batch;
mod compactor;
mod counters;
mod counts;
mod cursor;
mod database;
mod ddl;
mod deadlocks;
mod definition;
mod delete_all;
mod encrypted_tables;
mod errand;
mod error;
mod failures;
mod fates;
mod fetch_ahead;
mod foreign_action;
mod foreign_key;
mod foreign_key_check;
mod foreign_list;
mod foreign_plan;
mod foreign_probe;
mod forget;
mod gates;
mod gone;
mod gone_sweep;
mod grace;
mod guards;
mod held_rows;
mod home_range;
mod homing;
pub mod host;
mod host_record;
mod host_statistics;
mod idle;
mod image;
mod image_names;
mod image_words;
mod index_build;
mod index_cursor;
mod index_keys;
mod index_merge;
mod index_merge_plan;
mod inventory;
mod key_hints;
mod key_sample;
mod keys;
mod latch;
mod locking;
mod maintenance;
mod memory_use;
mod noting;
mod opening;
mod opening_progress;
mod optimize;
mod overtake;
mod pacing;
mod pieces;
mod prepared;
mod pressure;
mod quiet;
mod ready_row;
mod recount;
mod recovery;
mod recovery_image;
mod recovery_index;
mod references;
mod reinsert;
mod renewal;
mod row_ahead;
mod row_merge;
mod row_merge_plan;
mod row_output;
mod row_pieces;
mod row_shape;
mod row_writer;
mod salvage;
mod scrub;
mod scrub_doubts;
mod scrub_pace;
mod scrub_pass;
mod scrub_tell;
mod semi_consistent;
mod session;
mod set_aside;
mod settle_tags;
mod shown;
mod sight;
mod sight_locks;
mod snapshot_age;
mod space;
mod stamp;
mod statistics;
mod status;
mod stored_values;
mod superseded;
mod table;
mod table_scan;
mod touched;
mod unique;
mod version;
mod view;
mod waits;
mod who;
mod write;

pub use alter::Alteration;
pub use autoinc::Reserved;
pub use blob_reclaim::dead_values;
pub use check::check_table;
pub use check_quick::check_table_quickly;
pub use check_references::Unkept;
pub use compact::Compaction;
pub use counters::{Counter, Counters};
pub use cursor::{Bind, Cursor};
pub use database::{Database, Options, Simulation};
pub use ddl::{Creation, Renaming};
pub use definition::{Compression, ConflictMode, IndexDef, TableDef};
pub use error::{Blocker, Error, Result};
pub use foreign_key::{Action, ForeignKey, KeyColumn};
pub use foreign_list::{ForeignKeyColumn, ForeignKeyInfo};
pub use host_record::{HostRecordDef, RecordColumn};
pub use image_names::ImageNames;
pub use index_build::IndexBuild;
pub use index_cursor::Seek;
pub use inventory::{
    CacheLine, IndexLine, IndexStatisticsLine, RunLevel, RunLine, SegmentLine, SegmentState, SegmentUse,
    TableLine,
};
pub use key_sample::{KeySample, SampledBy};
pub use keys::KeyChanges;
pub use locking::Busy;
pub use maintenance::MaintenanceStatus;
pub use memory_use::MemoryUse;
pub use optimize::{Optimized, optimize_table};
pub use pacing::{Progress, UpkeepCounters};
pub use pbxt_segment::file_kind;
pub use references::{Link, Missing, Outgoing, References};
pub use salvage::LeftOut;
pub use scrub::ScrubStatus;
pub use session::{FlushAtCommit, Isolation, Session, SessionConfig};
pub use shown::TxnState;
pub use sight::{LockKind, Locked, TxnInfo, TxnWait};
pub use sight_locks::{Listing, LockInfo, LockState, LockWaitInfo};
pub use snapshot_age::OldestSnapshot;
pub use space::Space;
pub use statistics::StatisticsOptions;
pub use status::{RunTotals, Status, TableInfo};
pub use table::{Generation, Table};
pub use version::RowVersion;
pub use waits::{SessionGate, WaitObserver};
pub use write::{NewVersion, Updated};
