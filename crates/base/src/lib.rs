//! Base: what every floor shares and nothing more: ids, byte codecs, checksums, limits, errors, assertions.
//!
//! Why it exists: one definition of each word. No I/O, no threads, no files.
//!
//! The words: a **row** has a stable **row id**; its **versions** form a chain, newest first; the **row map** names the
//! newest. Versions are **log records** at an **LSN** of the **hot log**, which is cut into **segments**. A
//! **transaction** has a **transaction id** and, once committed, a **commit timestamp**. A **table id** names one
//! generation of a table.

pub mod checksum;
pub mod codec;
mod error;
pub mod ids;
mod invariant;
pub mod limits;
pub mod planted;
mod prefetch;
pub mod stop_point;

/// True if expensive checks are on.
pub const VERIFY: bool = cfg!(feature = "verify");

pub use error::{Error, PoisonCause, Result};
pub use ids::{Addr, AddrClass, CommitTs, IndexId, Lsn, RowId, SegmentId, TableId, TxnId};
pub use prefetch::{prefetch, prefetch_at};
