//! Dump of a blob segment: its values, by place.
//!
//! Format: docs/format.md#blob-values.

use crate::failure::Outcome;
use crate::text::{count, size};
use pbxt_base::SegmentId;
use pbxt_segment::{BlobWalk, Found, SegmentClass, SegmentHeader, SegmentStore};
use std::io::Write;
use std::ops::Range;

/// Dead ranges of a segment, as the newest checkpoint has them; none if its image cannot be read, which is for others to tell.
pub(crate) fn dead_of(store: &SegmentStore, id: SegmentId) -> Vec<Range<u64>> {
    pbxt::dead_values(store)
        .unwrap_or_default()
        .remove(&id)
        .unwrap_or_default()
}

/// Prints the segment. True if nothing in it is damaged.
pub(crate) fn inspect(
    store: &SegmentStore,
    header: &SegmentHeader,
    dead: Vec<Range<u64>>,
    limit: u64,
    out: &mut dyn Write,
) -> Outcome<bool> {
    let file = store.file(SegmentClass::Blob, header.id)?;
    let mut walk = BlobWalk::new(file, header.id, dead)?;
    let (mut values, mut value_bytes, mut damages) = (0_u64, 0_u64, 0_u64);
    while let Some(found) = walk.next_found()? {
        let (line, is_value) = match found {
            Found::Value {
                offset,
                bytes,
                frames,
                hash,
                is_one,
            } => {
                values += 1;
                value_bytes += bytes;
                let frames = count(frames, "frame");
                let doubt = if is_one {
                    ""
                } else {
                    ", if it is one value and not several"
                };
                let line = format!(
                    "{offset}: value of {bytes} bytes, {frames}, checksums good, hash {hash:016x}{doubt}"
                );
                (line, true)
            }
            Found::Dead { offset, bytes } => (
                format!(
                    "{offset}: {bytes} bytes of values that no row names any more; their room may have been given back"
                ),
                false,
            ),
            Found::Hole { offset, bytes } => (format!("{offset}: {bytes} bytes never written"), false),
            Found::Damaged { offset, bytes, value } => {
                damages += 1;
                let owner = value.map_or_else(|| "a value".into(), |at| format!("the value at {at}"));
                let line = format!("{offset}: {bytes} bytes that do not verify, where {owner} should be");
                (line, false)
            }
        };
        if !is_value || limit == 0 || values <= limit {
            writeln!(out, "  {line}")?;
        } else if values == limit + 1 {
            writeln!(
                out,
                "  more values from offset {}: --limit 0 for all",
                line.split(':').next().unwrap_or("")
            )?;
        }
    }
    let (values, bytes) = (count(values, "value"), size(value_bytes));
    writeln!(
        out,
        "  {values}, {bytes}; {} that do not verify",
        count(damages, "place")
    )?;
    Ok(damages == 0)
}
