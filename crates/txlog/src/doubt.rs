//! Doubt: what recovery read of the log, and nobody knows durable, is written again before the log goes on.
//!
//! Why it exists:    a sync fails, the process dies, and the system still shows what never reached the medium. A sync of the
//!                   next opening says nothing about it (contract M3); only a write of the same bytes makes them subject to
//!                   a sync again (docs/decisions/0012).
//! Format / state:   docs/format-log.md; nothing of it changes, the bytes are those that stand there.
//! Rules:            D34, the one exception of D3.
//! Latches and I/O:  none; reads and writes by the thread that opens the database.
//! After a crash:    the bytes are the same before, in between and after; the next opening begins anew.

use crate::batch::BATCH_ALIGN;
use crate::files::HotFiles;
use crate::layout::Layout;
use crate::scan::LogEnd;
use crate::segment_scan::ChunkReader;
use pbxt_base::{Error, Result};
use pbxt_io::DiskFile;
use std::collections::VecDeque;

/// Which batches of a segment may not be durable, as far as it has been read.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Sequence and position of each.
    batches: VecDeque<(u64, u64)>,
}

impl Doubt {
    /// A batch of the log, which knows some of those before it durable (D4).
    pub(crate) fn note(&mut self, sequence: u64, position: u64, durable_sequence: u64) {
        self.batches.push_back((sequence, position));
        while self
            .batches
            .front()
            .is_some_and(|(sequence, _)| *sequence <= durable_sequence)
        {
            self.batches.pop_front();
        }
    }

    /// Where the first one stands.
    pub(crate) fn first(&self) -> Option<u64> {
        self.batches.front().map(|(_, position)| *position)
    }
}

/// Writes again, as it stands there, what may not be durable of the last segment. A sync has to follow.
///
/// # Errors
/// I/O errors; `Corrupt` if a batch is not there any more: the system has let go of what it showed a moment ago, and the next
/// opening finds the end of the log before it.
pub(crate) fn write_again(files: &HotFiles, end: &LogEnd) -> Result<()> {
    let layout = files.layout();
    let (file, mut at) = (files.open(end.segment)?, end.doubtful.raw());
    if at == layout.segment_body(end.segment) {
        // A later batch would know one of this segment durable, and with it the header.
        files.write_header_again(end.segment)?;
    }
    let mut reader = ChunkReader::new(end.segment, files.open(end.segment)?, layout);
    while at < end.cut.raw() {
        at = write_chunk_again(&mut reader, &*file, layout, at..end.cut.raw())?;
    }
    Ok(())
}

/// Writes the batches from the beginning of `range` on again, up to its end or that of the chunk. Returns where the next one stands.
fn write_chunk_again(
    reader: &mut ChunkReader,
    file: &dyn DiskFile,
    layout: Layout,
    range: std::ops::Range<u64>,
) -> Result<u64> {
    let (chunk, mut at, mut end) = (layout.chunk_of(range.start), range.start, range.start);
    reader.load(at)?;
    while at < range.end && layout.chunk_of(at) == chunk {
        let Some((header, _)) = reader.batch(at) else {
            return Err(gone(reader, at));
        };
        end = at + u64::from(header.length).next_multiple_of(BATCH_ALIGN);
        at = header.next();
    }
    let bytes = &reader.bytes(range.start)[..(end - range.start) as usize];
    file.write_at(bytes, layout.file_offset(range.start))?;
    Ok(at)
}

#[cold]
fn gone(reader: &ChunkReader, at: u64) -> Error {
    reader.damage(at, "the batch that stood there a moment ago", "other bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_in_doubt_until_a_later_one_knows_it_durable() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.first(), None);
        doubt.note(7, 4096, 6);
        doubt.note(8, 4608, 6);
        assert_eq!(doubt.first(), Some(4096));
        doubt.note(9, 5632, 7);
        assert_eq!(doubt.first(), Some(4608));
        doubt.note(10, 6144, 9);
        assert_eq!(doubt.first(), Some(6144));
    }
}
