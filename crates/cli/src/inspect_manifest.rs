//! Dump of manifest files: every record with its place, and which of the two files counts.
//!
//! Format: docs/format.md#manifest-records.

use crate::directory::split;
use crate::failure::Outcome;
use crate::keyed_disk;
use crate::manifest_record::{ManifestRecord, unframe};
use crate::manifests::{ManifestFile, Manifests, NAMES, bytes_of};
use crate::text::size;
use pbxt_base::codec::{get_u32, get_u64};
use pbxt_base::{Error, Result};
use pbxt_segment::segment_name;
use std::io::Write;
use std::path::Path;

const HEADER_BYTES: usize = 64;

/// Prints one of the two files, and what the other one means for it. True if it is whole.
pub(crate) fn inspect(path: &Path, out: &mut dyn Write) -> Outcome<bool> {
    let (directory, name) = split(path)?;
    let disk = keyed_disk::open(&directory)?;
    let manifests = Manifests::read(&*disk)?;
    let bytes = bytes_of(&*disk, &name)?;
    print_header(&bytes, &name, out)?;
    print_records(&bytes, out)?;
    let index = NAMES.iter().position(|known| *known == name).unwrap_or(0);
    let is_whole = match &manifests.files[index] {
        ManifestFile::Whole(decoded) => {
            let end = decoded.end;
            if decoded.is_torn {
                writeln!(
                    out,
                    "  {end}: a torn append, taken as never made; the next one begins a new generation"
                )?;
            } else {
                writeln!(out, "  {end}: end; {} left", size((bytes.len() - end) as u64))?;
            }
            true
        }
        ManifestFile::Unreadable(error) | ManifestFile::Unread(error) => {
            writeln!(out, "  {error}")?;
            false
        }
        ManifestFile::Missing => false,
    };
    writeln!(out, "{}", manifests.verdict().why)?;
    Ok(is_whole)
}

fn print_header(bytes: &[u8], name: &str, out: &mut dyn Write) -> Outcome<()> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        writeln!(
            out,
            "{name}: manifest, {} bytes: too short for a header",
            bytes.len()
        )?;
        return Ok(());
    };
    let uuid = u128::from(get_u64(header, 16)) | (u128::from(get_u64(header, 24)) << 64);
    writeln!(
        out,
        "{name}: manifest of database {uuid:032x}, {}",
        size(bytes.len() as u64)
    )?;
    writeln!(
        out,
        "  generation {}, format {}, image up to offset {}",
        get_u64(header, 32),
        get_u32(header, 8),
        get_u32(header, 12)
    )?;
    Ok(())
}

/// Every record that verifies, from the first one on.
fn print_records(bytes: &[u8], out: &mut dyn Write) -> Outcome<()> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Ok(());
    };
    let (generation, image_bytes) = (get_u64(header, 32), get_u32(header, 12) as usize);
    let mut at = HEADER_BYTES;
    while let Some((body, next)) = unframe(bytes, at, generation) {
        let part = if at < image_bytes { "image" } else { "appended" };
        writeln!(
            out,
            "  {at}: {part}: {}",
            sentence(ManifestRecord::decode(body), body)
        )?;
        at = next;
    }
    Ok(())
}

fn sentence(record: Result<Option<ManifestRecord>>, body: &[u8]) -> String {
    let Ok(Some(record)) = record.map_err(|_: Error| ()) else {
        let kind = body.first().copied().unwrap_or_default();
        return format!("a record of kind {kind}, which this version does not know");
    };
    match record {
        ManifestRecord::Create {
            uuid,
            geometry,
            created,
        } => format!(
            "create: database {uuid:032x}, hot segments of {}, chunks of {}, blob segments of {}, made at {created} \
             (Unix seconds)",
            size(geometry.hot_segment_bytes),
            size(geometry.chunk_bytes),
            size(geometry.blob_segment_bytes)
        ),
        ManifestRecord::Opened { incarnation } => format!("opened: incarnation {incarnation}"),
        ManifestRecord::Sealed(sealed) => format!(
            "sealed: {}, hash {:016x}, ends at {}",
            segment_name(sealed.class, sealed.id),
            sealed.hash,
            sealed.end
        ),
        ManifestRecord::Dropped { class, id } => format!("dropped: {}", segment_name(class, id)),
        ManifestRecord::Closed { end } => format!("closed: the log ends at LSN {end}"),
        ManifestRecord::Begun { class, id } => format!("begun: {}", segment_name(class, id)),
        ManifestRecord::Superseded { generation } => format!("superseded by generation {generation}"),
        ManifestRecord::Checkpoint(checkpoint) => format!(
            "checkpoint: image {}, recovery reads from LSN {}, the log starts at {}",
            segment_name(pbxt_segment::SegmentClass::Meta, checkpoint.image),
            checkpoint.start,
            checkpoint.log_start
        ),
    }
}
