//! What the tests of the segment floor share: a small database on a simulated disk.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use pbxt_base::{Lsn, Result, SegmentId};
use pbxt_io::{Disk, DiskFile};
use pbxt_segment::{Geometry, OpenMode, SegmentStore};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

pub(crate) const SEGMENT_BYTES: u64 = 32 << 10;

pub(crate) fn mode() -> OpenMode {
    let geometry = Geometry {
        hot_segment_bytes: SEGMENT_BYTES,
        chunk_bytes: 8 << 10,
        blob_segment_bytes: 64 << 10,
    };
    OpenMode {
        create: Some(geometry),
        read_only: false,
        new_uuid: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        now: 1_800_000_000,
    }
}

/// Opens as the log does, which begins to write.
pub(crate) fn open(disk: &SimDisk) -> Result<SegmentStore> {
    let store = SegmentStore::open(Arc::new(disk.clone()), mode())?;
    store.note_opened()?;
    Ok(store)
}

/// First LSN of a hot segment.
pub(crate) fn first_lsn(id: u32) -> Lsn {
    Lsn::new(u64::from(id) * SEGMENT_BYTES)
}

/// Prepares and begins a hot segment that continues the one before it.
pub(crate) fn begin(store: &SegmentStore, id: u32) -> Result<Arc<dyn DiskFile>> {
    let segment = SegmentId::new(id);
    store.prepare(segment)?;
    let (previous, cut) = (
        SegmentId::new(id - 1),
        Lsn::new(first_lsn(id).raw().saturating_sub(1024)),
    );
    store.begin(segment, previous, cut, 0xfeed_0000 + id, first_lsn(id))
}

/// A hot segment with two pieces of content and a gap between them, sealed.
pub(crate) fn write_sealed(store: &SegmentStore, id: u32) -> Result<()> {
    let file = begin(store, id)?;
    file.write_at(&[id as u8; 700], 4096)?;
    file.write_at(b"after a gap", 9000)?;
    file.sync_data()?;
    store.seal(SegmentId::new(id), Lsn::new(first_lsn(id).raw() + 9011))
}

/// Overwrites `bytes` of a file, as a misdirected write would.
pub(crate) fn overwrite(disk: &SimDisk, name: &str, offset: usize, bytes: &[u8]) {
    let mut content = disk.content(name).expect("the file");
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
    disk.replace(name, &content);
}

pub(crate) fn names(disk: &SimDisk) -> Vec<String> {
    disk.list().expect("a listing")
}
