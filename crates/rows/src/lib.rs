//! Rows and keys as bytes: turns a host's record buffer into row payloads and index key images, and back.
//!
//! Why it exists:    the core knows no SQL. A host (database server, embedding program) describes once where its columns sit and
//!                   how each index part orders; everything else in the engine then moves opaque payloads and compares
//!                   keys with memcmp, also where the host is absent (recovery, merges, replicas).
//! Format / state:   docs/format-rows.md; a `Schema` and a `KeySpec` are kept in the catalog, a `HostLayout` is not.
//! Rules:            F20 - F28, F30 - F37, X20 - X26 (docs/format-rows.md), AL1 - AL6, AL9 (docs/alter.md). Decoding is total: any bytes give a value or `Error::Corrupt`.
//! Latches and I/O:  none; no threads, no clock. Callbacks to the host (`Weigher`) and for large values (`BlobSink`) run on
//!                   the calling thread.
//! After a crash:    nothing; keys whose weights only the host can compute are logged, never recomputed.
//!
//! Column numbers are the host's own, everywhere: a schema has one entry per host column, virtual ones included.
//!
//! A program without a record buffer uses rows and keys like this:
//!
//! ```
//! use pbxt_rows::*;
//!
//! let id = Column { kind: ColumnKind::Fixed(4), nullable: false };
//! let name = Column { kind: ColumnKind::Var, nullable: true };
//! let schema = Schema::new(1, vec![id, name])?;
//!
//! let mut payload = Vec::new();
//! let mut builder = RowBuilder::new(&schema);
//! builder.set(0, Some(&7_u32.to_le_bytes()))?;
//! builder.set(1, Some(b"seven"))?;
//! builder.finish(&mut payload)?;
//! assert_eq!(RowView::new(&schema, &payload)?.get(1)?, Value::Bytes(b"seven"));
//!
//! let encoding = KeyEncoding::Uint;
//! let part = KeyPart { column: 0, length: 4, prefix: false, nullable: false, descending: false, encoding };
//! let keys = PayloadKeyMaker::new(&KeySpec::new(vec![part], false)?, &schema)?;
//! let mut key = Vec::new();
//! keys.key_from_payload(&payload, &mut NoBlobs, &mut key)?;
//! assert_eq!(key, [0, 0, 0, 7]);
//! # Ok::<(), Error>(())
//! ```

mod blob;
mod block;
mod codec;
mod column_order;
mod columns;
mod error;
mod fields;
mod host;
mod host_field;
mod image;
mod image_read;
mod key_bridge;
mod key_maker;
mod key_spec;
mod payload;
mod payload_key;
mod program;
mod remap;
mod restore;
mod row_filter;
mod row_view;
mod schema;
mod section_extra;
mod versions;
mod weights;
mod zones;

pub use blob::{BlobRef, BlobSink, External, InlineArena, LargeValue, Limits, NoBlobs};
pub use block::{BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, RowBlock, RowBlockBuilder};
pub use codec::{Projection, RowCodec};
pub use columns::ColumnSet;
pub use error::{Error, Result};
pub use host::{HostColumn, HostKind, HostLayout};
pub use host_field::HostRecord;
pub use key_bridge::{BridgeEnd, Bridged, KeyBridge};
pub use key_maker::KeyMaker;
pub use key_spec::{KeyEncoding, KeyPart, KeySpec, WeightScheme};
pub use payload_key::PayloadKeyMaker;
pub use row_filter::{Condition, RowFilter};
pub use row_view::{RowBuilder, RowView, Value, names_external};
pub use schema::{Column, ColumnKind, Order, Schema};
pub use section_extra::SectionExtra;
pub use versions::{OLDER_MAX, OlderSchema, Origin, Versions};
pub use weights::{NoWeigher, Weigher};
pub use zones::{Zone, ZoneBuilder, Zones};
