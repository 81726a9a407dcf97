//! PBXT: a write-once, log-structured, multi-version transactional storage engine.
//!
//! A [`Database`] is one directory. A [`Session`] is one connection with at most one transaction. Rows are read through
//! a [`Cursor`] and written through the session.
//!
//! The map of this crate: `session` and `commit` (life of a transaction), `write`, `unique`, `locking`, `waits` (changing
//! a row), `cursor`, `index_cursor`, `view` (reading one), `catalog`, `definition`, `ddl` (tables), `recovery` (open).

mod autoinc;
mod catalog;
mod check;
mod commit;
mod counters;
mod counts;
mod cursor;
mod database;
mod ddl;
mod definition;
mod error;
pub mod host;
mod index_cursor;
mod keys;
mod locking;
mod overtake;
mod prepared;
mod recovery;
mod recovery_index;
mod session;
mod statistics;
mod status;
mod stored_values;
mod table;
mod unique;
mod view;
mod waits;
mod write;

pub use autoinc::Reserved;
pub use check::check_table;
pub use counters::{Counter, Counters};
pub use cursor::{Bind, Cursor};
pub use database::{Database, Options};
pub use definition::{ConflictMode, IndexDef, TableDef};
pub use error::{Error, Result};
pub use index_cursor::Seek;
pub use keys::KeyChanges;
pub use locking::Busy;
pub use session::{FlushAtCommit, Isolation, Session, SessionConfig};
pub use status::{Status, TableInfo, TxnInfo};
pub use table::Table;
pub use waits::{SessionGate, WaitObserver};
pub use write::NewVersion;
