//! Limits: every bound of the engine in one place, with the relations between them checked at compile time.

/// Format version of every file.
pub const FORMAT_VERSION: u32 = 1;
/// Unit of log positions.
pub const LOG_ALIGN: usize = 8;
/// Bytes a disk writes as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Default bytes of a hot segment.
pub const HOT_SEGMENT_BYTES: u64 = 32 << 20;
/// The same where the cache is small.
pub const HOT_SEGMENT_BYTES_MIN: u64 = 4 << 20;
/// Default bytes of a chunk: the unit of log buffering; no record and no batch crosses one.
pub const CHUNK_BYTES: u64 = 256 << 10;
/// Values of this size and more leave the row for a blob segment.
pub const BLOB_BYTES_MIN: usize = 8 << 10;
/// Payload bytes a row record holds at most; larger values leave, largest first.
pub const PAYLOAD_BYTES_MAX: usize = 32 << 10;
/// Bytes of a host's record at most.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Bytes of a blob segment.
pub const BLOB_SEGMENT_BYTES: u64 = 1 << 30;
/// Bytes of an index key at most: 3072 bytes of columns, escaped, weighted and padded.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Indexes of a table at most.
pub const INDEXES_MAX: usize = 128;
/// Bytes of a global transaction id at most.
pub const XID_BYTES_MAX: usize = 255;

const _: () = assert!(HOT_SEGMENT_BYTES.is_multiple_of(CHUNK_BYTES));
const _: () = assert!(
    PAYLOAD_BYTES_MAX * 4 < CHUNK_BYTES as usize,
    "a chunk holds several of the longest rows"
);
const _: () = assert!(BLOB_BYTES_MIN < PAYLOAD_BYTES_MAX);
const _: () = assert!(SECTOR_BYTES.is_multiple_of(LOG_ALIGN));
