//! The hot log of PBXT: where every row version, every commit and every change of the catalog is written, once.
//!
//! Why it exists:    the log is the only thing written synchronously, and until the compactor moves a version it is also
//!                   that version's home. So it is a group-commit log and a row store in one: its chunks are the unit of
//!                   buffering, of writing and of caching.
//! Format / state:   docs/format-log.md; records in `record`, `row_record`, `key_image`, `end_record`, `other_record`,
//!                   `ingest_record`.
//! Rules:            D1.. in docs/durability.md.
//! After a crash:    `scan` finds the end of the log by docs/durability.md; the log continues in a new segment.

mod alone;
mod batch;
mod bell;
mod cache;
mod chunk;
mod core;
mod directory;
mod doubt;
mod dump;
mod end_record;
mod files;
mod flush;
mod group_commit;
mod ingest_record;
mod key_image;
mod layout;
mod log;
mod log_start;
mod marks;
#[cfg(all(test, loom))]
mod marks_loom;
#[cfg(all(test, not(loom)))]
mod marks_tests;
mod opener;
mod other_record;
mod record;
#[cfg(test)]
mod record_tests;
mod reservation;
mod row_record;
mod scan;
mod segment_scan;
mod stats;
mod sync;
mod tail;
#[cfg(all(test, loom))]
mod tail_loom;
#[cfg(all(test, not(loom)))]
mod worker_tests;

pub use end_record::{
    CountDelta, EndRecord, EndRef, Outcome, PrepareRecord, PrepareRef, RollbackToRecord, RollbackToRef,
    VoidRange,
};
pub use ingest_record::{INGEST_PIECES_MAX, IngestPiece, IngestRecord, IngestRef};
pub use key_image::{KeyImage, KeyImageBuf, KeyImages, Sign};
pub use log::{Log, LogOptions};
pub use other_record::{AutoIncRecord, AutoIncRef, CatalogRecord, CatalogRef};
pub use record::{
    RECORD_ALIGN, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordFault, RecordKind, RecordRef,
};
pub use reservation::Reservation;
pub use row_record::{RowKind, RowRecord, RowRef};
pub use scan::{LogEnd, LogScan};
pub use segment_scan::SegmentScan;
pub use stats::LogStats;
pub use tail::Space;
