//! Dump of a hot segment: header, footer, and its log records, one a line.
//!
//! Format: docs/format-log.md; the lines are those of crate txlog.
//! Rules: D5 records are read from batches that verify; where they stop is either the end of the log or damage, and the
//! scan that recovery uses says which.

use crate::failure::Outcome;
use pbxt_base::Lsn;
use pbxt_io::DiskFile;
use pbxt_segment::{FOOTER_BYTES, SegmentClass, SegmentFooter, SegmentHeader, SegmentStore};
use pbxt_txlog::LogScan;
use std::io::Write;
use std::sync::Arc;

/// Bytes in which the first batch begins, if there is one.
const SECTOR_BYTES: usize = 512;

/// Which records to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Not those below.
    pub(crate) from: u64,
    /// At most so many; 0 for all.
    pub(crate) limit: u64,
}

/// Prints the segment. True if nothing in it is damaged.
pub(crate) fn inspect(
    store: &Arc<SegmentStore>,
    header: &SegmentHeader,
    wanted: Wanted,
    out: &mut dyn Write,
) -> Outcome<bool> {
    let file = store.file(SegmentClass::Hot, header.id)?;
    writeln!(
        out,
        "  LSN {} to {}, chunks of {} bytes",
        header.first_lsn,
        header.first_lsn.raw() + header.segment_bytes,
        header.chunk_bytes
    )?;
    match header.previous.raw() {
        0 => writeln!(out, "  the log begins here")?,
        previous => writeln!(
            out,
            "  continues hot segment {previous}, whose log ends at LSN {}, behind the batch with checksum {:08x}",
            header.cut, header.cut_checksum
        )?,
    }
    let is_good = print_footer(&*file, out)?;
    let mut first = [0; SECTOR_BYTES];
    file.read_at(&mut first, pbxt_segment::SEGMENT_HEADER_BYTES as u64)?;
    if first.iter().all(|byte| *byte == 0) {
        writeln!(out, "  no batch yet")?;
        return Ok(is_good);
    }
    Ok(print_records(store, header, wanted, out)? && is_good)
}

/// True if the footer is good, or there is none.
fn print_footer(file: &dyn DiskFile, out: &mut dyn Write) -> Outcome<bool> {
    let at = file.len()?.saturating_sub(FOOTER_BYTES as u64);
    let mut bytes = [0; FOOTER_BYTES];
    file.read_at(&mut bytes, at)?;
    if bytes.iter().all(|byte| *byte == 0) {
        writeln!(out, "  not sealed")?;
        return Ok(true);
    }
    match SegmentFooter::decode(&bytes, file.name(), at) {
        Ok(footer) => writeln!(
            out,
            "  sealed: the log ends at LSN {}, content hash {:016x}",
            footer.end, footer.hash
        )?,
        Err(error) => {
            writeln!(out, "  {error}")?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn print_records(
    store: &Arc<SegmentStore>,
    header: &SegmentHeader,
    wanted: Wanted,
    out: &mut dyn Write,
) -> Outcome<bool> {
    // The scan starts where the segment does: the chain of batches is verified from there on.
    let start = if header.previous.raw() == 0 {
        Lsn::new(0)
    } else {
        header.first_lsn
    };
    let mut scan = LogScan::new(Arc::clone(store), start)?;
    let (mut printed, mut passed) = (0_u64, 0_u64);
    loop {
        match scan.next_record() {
            Ok(Some((lsn, record))) if lsn.raw() >= wanted.from => {
                if wanted.limit != 0 && printed == wanted.limit {
                    writeln!(
                        out,
                        "  more from LSN {lsn} on: --from {lsn}, or --limit 0 for all"
                    )?;
                    return Ok(true);
                }
                writeln!(out, "  {lsn} {record} [{} bytes]", record.stride())?;
                printed += 1;
            }
            Ok(Some(_)) => passed += 1,
            Ok(None) => break,
            Err(error) => {
                writeln!(out, "  {error}")?;
                return Ok(false);
            }
        }
    }
    let end = scan.finish()?;
    writeln!(
        out,
        "  the log of this segment ends at LSN {}; {printed} records printed, {passed} before them",
        end.lsn()
    )?;
    Ok(true)
}
