//! Flusher: writes whole batches in order, syncs, and publishes how far the log is written and durable.
//!
//! Why it exists:    the only code that writes the log; what it wrote it never touches again.
//! Format / state:   docs/format-log.md#batch-header. State: the chain (next sequence, last checksum, durable sequence)
//!                   and the file being written.
//! Rules:            D2 (blobs first), D3 (sectors), D4 (chain), D8 (whole batches), D9 (first failure poisons, no sync is
//!                   retried), D11 (at most so much unsynced).
//! Latches and I/O:  runs under the flush latch, see `group_commit`; takes the opening latch for a moment.
//! After a crash:    whatever subset of its writes persisted, `scan` finds the end of the log.

use crate::batch::{BATCH_ALIGN, BatchHeader};
use crate::core::Core;
use crate::log::Goal;
use crate::stats::count;
use crate::tail::{BATCH_HEADER_BYTES, BatchSpan};
use pbxt_base::{Lsn, PoisonCause, Result, SegmentId, checksum, stop_point};
use pbxt_io::{Clock, DiskFile};
use std::sync::Arc;

/// What the flush latch protects.
#[derive(Debug)]
pub(crate) struct Flusher {
    /// Sequence of the first unwritten batch.
    pub(crate) next_sequence: u64,
    /// Checksum of the last written batch.
    pub(crate) previous: u32,
    /// Highest sequence known durable.
    pub(crate) durable_sequence: u64,
    /// This opening's number.
    pub(crate) incarnation: u32,
    /// The segment being written, and its file.
    pub(crate) segment: SegmentId,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes written since the last sync.
    pub(crate) unsynced_bytes: u64,
    /// When the last sync ended, by the log's clock.
    pub(crate) synced_at_millis: u64,
    /// Batches of the running flush; kept for its memory.
    pub(crate) spans: Vec<BatchSpan>,
}

impl Core {
    /// One flush: everything reserved before this call is written, and durable if that is the goal.
    pub(crate) fn flush(&self, flusher: &mut Flusher, goal: Goal) -> Result<()> {
        self.check_writable()?;
        stop_point!("flush.before_seal");
        let open = self.seal_open_batch();
        self.marks.set_covers(goal, self.tail.lsn());
        stop_point!("flush.after_seal");
        flusher.spans.clear();
        for sequence in flusher.next_sequence..open {
            flusher.spans.push(self.wait_until_whole(sequence));
        }
        let result = self.write_and_sync(flusher, goal);
        if let Err(error) = &result {
            self.fail(PoisonCause::Disk, &error.to_string());
        }
        result
    }

    fn write_and_sync(&self, flusher: &mut Flusher, goal: Goal) -> Result<()> {
        let spans = std::mem::take(&mut flusher.spans);
        if !spans.is_empty() {
            self.blobs.sync()?;
        }
        // Batches that lie next to each other in one chunk go out in one write.
        let adjacent =
            |a: &BatchSpan, b: &BatchSpan| self.layout.chunk_of(a.start) == self.layout.chunk_of(b.start);
        for run in spans.chunk_by(adjacent) {
            self.write_run(flusher, run, goal)?;
        }
        flusher.spans = spans;
        if goal == Goal::Durable {
            self.sync(flusher)?;
        }
        Ok(())
    }

    /// Writes batches of one chunk that follow each other without a gap.
    fn write_run(&self, flusher: &mut Flusher, run: &[BatchSpan], goal: Goal) -> Result<()> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(());
        };
        let end = last.end.next_multiple_of(BATCH_ALIGN);
        let bytes = end - first.start;
        if flusher.unsynced_bytes + bytes > self.options.unsynced_bytes_max {
            self.sync(flusher)?;
        }
        if self.layout.segment_of(first.start) != flusher.segment {
            self.roll_over(flusher, first.start)?;
        }
        let guard = crossbeam_epoch::pin();
        let chunk = self.directory.get(self.layout.chunk_of(first.start), &guard);
        let chunk = chunk.expect("D12: a chunk stays in memory until all of it is written");
        for span in run {
            let offset = (span.start - chunk.start()) as usize;
            let padded = (span.end.next_multiple_of(BATCH_ALIGN) - span.end) as usize;
            // SAFETY: the batch is whole, so its records are released to this thread; nobody touches the padding
            // behind a sealed batch, nor ever a header but the flusher.
            let (records, padding, header) = unsafe {
                let records_bytes = (span.end - span.start - BATCH_HEADER_BYTES) as usize;
                (
                    chunk
                        .buffer()
                        .read(offset + BATCH_HEADER_BYTES as usize, records_bytes),
                    chunk.buffer().write((span.end - chunk.start()) as usize, padded),
                    chunk.buffer().write(offset, BATCH_HEADER_BYTES as usize),
                )
            };
            padding.fill(0);
            self.put_batch_header(flusher, span, records, header);
        }
        // SAFETY: all of the range is whole batches, headers and padding, written above or released to this thread;
        // readers only read, and nobody writes to it any more.
        let image = unsafe {
            chunk
                .buffer()
                .read((first.start - chunk.start()) as usize, bytes as usize)
        };
        stop_point!("flush.before_write");
        let offset = self.layout.file_offset(first.start);
        match goal {
            // The page cache would only make whole pages of it, again with each sync (D30).
            Goal::Durable => flusher.file.write_sectors_at(image, offset)?,
            // Nobody waits for the medium.
            Goal::Written => flusher.file.write_at(image, offset)?,
        }
        stop_point!("flush.after_write");
        flusher.unsynced_bytes += bytes;
        count(&self.counters.bytes_written, bytes);
        self.publish_written(flusher, last);
        if self.layout.chunk_of(last.next) != self.layout.chunk_of(last.start) {
            chunk.complete(last.end);
            drop(guard);
            self.cache.note_complete(self, self.layout.chunk_of(last.start));
        }
        Ok(())
    }

    fn put_batch_header(&self, flusher: &mut Flusher, span: &BatchSpan, records: &[u8], out: &mut [u8]) {
        let header = BatchHeader {
            lsn: Lsn::new(span.start),
            length: (span.end - span.start) as u32,
            advance: (span.next - span.start) as u32,
            sequence: flusher.next_sequence,
            incarnation: flusher.incarnation,
            durable_sequence: flusher.durable_sequence,
            blob_durable: self.blobs.durable_end(),
            previous: flusher.previous,
            body: checksum::crc32c(0, records),
        };
        flusher.previous = header.encode(flusher.segment, out);
        flusher.next_sequence += 1;
        count(&self.counters.batches, 1);
        count(&self.counters.record_bytes, records.len() as u64);
    }

    fn publish_written(&self, flusher: &Flusher, last: &BatchSpan) {
        self.backlog
            .advance(self.layout.chunk_of(last.next), flusher.next_sequence);
        self.marks.set_written(last.next + BATCH_HEADER_BYTES);
    }

    /// Makes everything written durable. A failure is final (D9): the caller poisons.
    fn sync(&self, flusher: &mut Flusher) -> Result<()> {
        if flusher.unsynced_bytes > 0 {
            stop_point!("flush.before_sync");
            flusher.file.sync_data()?;
            stop_point!("flush.after_sync");
            count(&self.counters.syncs, 1);
            flusher.unsynced_bytes = 0;
            flusher.synced_at_millis = self.clock.now_millis();
            flusher.durable_sequence = flusher.next_sequence - 1;
        }
        self.marks.set_durable(self.marks.get(Goal::Written));
        Ok(())
    }

    /// The batch at `start` is the first of the next segment: the old one is synced and sealed before anything is
    /// written to the new one, so the chain never has a gap that is not at its end.
    fn roll_over(&self, flusher: &mut Flusher, start: u64) -> Result<()> {
        self.sync(flusher)?;
        self.files.seal(flusher.segment, start)?;
        let segment = self.layout.segment_of(start);
        flusher.file = self
            .files
            .begin(segment, flusher.segment, start, flusher.previous)?;
        flusher.unsynced_bytes = self.layout.header_bytes();
        flusher.segment = segment;
        Ok(())
    }
}
