//! Segment: the files of a database: append-only segments, the manifest that lists them, large values.
//!
//! Why it exists: one place knows file names, headers and footers, and offers no way to write a byte range twice (P1).
//! Format: docs/format.md.

mod blob;
mod blob_walk;
mod block_cache;
mod block_press;
mod block_shelf;
mod damaged_piece;
mod footer;
mod geometry;
mod hashing_file;
mod header;
mod leftovers;
mod manifest;
mod manifest_file;
mod manifest_record;
mod names;
mod piece;
mod piece_block;
mod piece_section;
mod piece_tail;
mod piece_walk;
mod piece_writer;
mod sealed_walk;
mod store;
mod store_checkpoint;
mod store_pieces;
mod store_room;
mod tries;

pub use blob::{BlobRef, BlobStore, ValueHold};
pub use blob_walk::{BlobStep, BlobWalk, Found};
pub use block_cache::{BlockCache, BlockCacheStats, BlockKey, CachedBlock};
pub use block_shelf::{BlockShelf, ShelfPlace};
pub use damaged_piece::{DamagedPiece, MaybePiece};
pub use footer::{FOOTER_BYTES, SegmentFooter};
pub use geometry::{Geometry, SEGMENT_BYTES_MAX};
pub use header::{SEGMENT_HEADER_BYTES, SegmentHeader};
pub use leftovers::Leftovers;
pub use manifest::Manifest;
pub use manifest_record::{Checkpoint, ManifestRecord, SealedSegment};
pub use names::{SegmentClass, file_kind, segment_name};
pub use piece::{PieceFile, StoredBlocks};
pub use piece_block::Codec;
pub use piece_section::Section;
pub use piece_walk::{PieceDamage, PieceWalk};
pub use piece_writer::PieceWriter;
pub use sealed_walk::SealedWalk;
pub use store::{OpenMode, SegmentStore, StartState};
pub use tries::Tries;
