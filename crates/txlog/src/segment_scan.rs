//! Segment scan: the records of one hot segment whose end is known, for readers that work side by side.
//!
//! Why it exists:    recovery's second pass and the check command read all segments, each on its own; what the first pass
//!                   settled (where each segment ends) is all they need.
//! Format / state:   docs/format-log.md#batch-header. Reads a few chunks at a time, past the cache.
//! Rules:            D5 (inside the known end every batch must verify: anything else is damage), D7 (nothing behind it), D17 (nothing below a checkpoint).
//! Latches and I/O:  none; one read per chunk by the calling thread.

use crate::batch::BatchHeader;
use crate::files::HotFiles;
use crate::layout::Layout;
use crate::record::{RECORD_HEADER_BYTES, RecordKind, RecordRef, stride_of};
use crate::row_record::RowRef;
use crate::scan::LogEnd;
use crate::tail::BATCH_HEADER_BYTES;
use pbxt_base::{Error, Lsn, Result, SegmentId};
use pbxt_io::DiskFile;
use pbxt_segment::SegmentStore;
use std::sync::Arc;

/// Bytes read at once: a slow medium answers few long reads sooner than many short ones.
const WINDOW_BYTES: u64 = 1 << 20;

/// The chunks of a segment that are being looked at.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    pub(crate) segment: SegmentId,
    file: Arc<dyn DiskFile>,
    layout: Layout,
    image: Vec<u8>,
    /// LSN of the image's first byte.
    start: u64,
}

impl ChunkReader {
    pub(crate) fn new(segment: SegmentId, file: Arc<dyn DiskFile>, layout: Layout) -> ChunkReader {
        ChunkReader {
            segment,
            file,
            layout,
            image: Vec::new(),
            start: 0,
        }
    }

    /// Reads the chunk that holds `lsn`, unless it is at hand, and some that follow it in its segment.
    pub(crate) fn load(&mut self, lsn: u64) -> Result<()> {
        if lsn >= self.start && lsn - self.start < self.image.len() as u64 {
            return Ok(());
        }
        let start = self.layout.chunk_body(self.layout.chunk_of(lsn));
        let window = WINDOW_BYTES.max(self.layout.chunk_bytes());
        let window_end = self.layout.chunk_start(self.layout.chunk_of(start + window));
        let end = window_end.min(self.layout.segment_body_end(self.segment));
        self.image.resize((end - start) as usize, 0);
        self.start = start;
        let result = self.file.read_at(&mut self.image, self.layout.file_offset(start));
        if result.is_err() {
            self.image.clear();
        }
        result
    }

    /// The bytes from `lsn` to the end of what is at hand; empty if `lsn` is not in it.
    pub(crate) fn bytes(&self, lsn: u64) -> &[u8] {
        let offset = lsn.checked_sub(self.start).unwrap_or(u64::MAX);
        self.image
            .get(usize::try_from(offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default()
    }

    /// The batch at `lsn` with its checksum, if header and records verify and it leads to a place where a batch may be.
    pub(crate) fn batch(&self, lsn: u64) -> Option<(BatchHeader, u32)> {
        let bytes = self.bytes(lsn);
        let (header, checksum) = BatchHeader::decode(self.segment, Lsn::new(lsn), bytes)?;
        header.verified_records(bytes)?;
        let next = header.next();
        let chunk = self.layout.chunk_of(lsn);
        let in_chunk = next < self.layout.chunk_end(chunk);
        (in_chunk || next == self.layout.chunk_body(chunk + 1)).then_some((header, checksum))
    }

    /// Damage at `lsn`.
    #[cold]
    pub(crate) fn damage(&self, lsn: u64, expected: &str, found: &str) -> Error {
        Error::Corrupt {
            file: self.file.name().to_owned(),
            offset: self.layout.file_offset(lsn),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }
}

/// Where the next record of a verified batch stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchCursor {
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl BatchCursor {
    pub(crate) fn of(header: &BatchHeader) -> BatchCursor {
        let start = header.lsn.raw();
        BatchCursor {
            at: start + BATCH_HEADER_BYTES,
            end: start + u64::from(header.length),
        }
    }

    /// Steps over fillers. False at the end of the batch.
    pub(crate) fn seek_record(&mut self, reader: &ChunkReader) -> bool {
        while self.at < self.end {
            let bytes = reader.bytes(self.at);
            let filler_bytes = match bytes.first_chunk::<RECORD_HEADER_BYTES>() {
                Some(header) if header[0] == RecordKind::Filler as u8 => stride_of(header),
                _ => 0,
            };
            if filler_bytes == 0 {
                return true;
            }
            self.at += filler_bytes as u64;
        }
        false
    }

    /// Steps to the next record at or beyond `from`, over fillers. False at the end of the batch.
    pub(crate) fn seek_wanted(&mut self, reader: &ChunkReader, from: u64) -> bool {
        while self.seek_record(reader) {
            if self.at >= from || !self.skip_record(reader) {
                return true; // What cannot be skipped is reported when the caller takes it.
            }
        }
        false
    }

    /// Steps to the next record at or beyond `from` that is of the wanted kinds; `passed` gets those beyond `from` that
    /// are not. False at the end of the batch.
    #[inline]
    pub(crate) fn seek_kind(
        &mut self,
        reader: &ChunkReader,
        from: u64,
        wanted: impl Fn(RecordKind) -> bool,
        mut passed: impl FnMut(&[u8]),
    ) -> bool {
        while self.seek_wanted(reader, from) {
            let bytes = reader.bytes(self.at);
            let is_wanted = bytes
                .first()
                .and_then(|kind| RecordKind::from_disk(*kind))
                .is_none_or(&wanted);
            if is_wanted || !self.skip_record(reader) {
                return true; // As in `seek_wanted`.
            }
            passed(bytes);
        }
        false
    }

    /// Steps over the record at the cursor without looking into it. False if its length cannot be right.
    pub(crate) fn skip_record(&mut self, reader: &ChunkReader) -> bool {
        let stride = reader
            .bytes(self.at)
            .first_chunk::<RECORD_HEADER_BYTES>()
            .map_or(0, |header| stride_of(header) as u64);
        let fits = stride >= RECORD_HEADER_BYTES as u64 && stride <= self.end - self.at;
        if fits {
            self.at += stride;
        }
        fits
    }

    /// The record at the cursor, which steps behind it.
    pub(crate) fn take_record<'r>(&mut self, reader: &'r ChunkReader) -> Result<(Lsn, RecordRef<'r>)> {
        let lsn = self.at;
        let room = self.end.saturating_sub(lsn) as usize;
        let bytes = reader.bytes(lsn).get(..room).unwrap_or_default();
        let record = RecordRef::parse(bytes)
            .map_err(|fault| reader.damage(lsn, "a log record in a verified batch", &fault.to_string()))?;
        self.at += record.stride() as u64;
        Ok((Lsn::new(lsn), record))
    }
}

/// See the module.
#[derive(Debug)]
pub struct SegmentScan {
    reader: ChunkReader,
    cursor: BatchCursor,
    next_batch: u64,
    end: u64,
    /// Records below this are not wanted.
    from: u64,
}

impl SegmentScan {
    /// A scan of one of `end.segments()`: of the records at and beyond the place where the scan that found `end` began.
    ///
    /// # Errors
    /// I/O errors; `Corrupt` if the segment is not part of the log that ended at `end`.
    pub fn new(store: Arc<SegmentStore>, segment: SegmentId, end: &LogEnd) -> Result<SegmentScan> {
        let files = HotFiles::new(store);
        let layout = files.layout();
        let reader = ChunkReader::new(segment, files.open(segment)?, layout);
        let next_batch = layout.segment_body(segment);
        let Some(valid_end) = end.end_of(segment) else {
            return Err(reader.damage(
                next_batch,
                "a segment of the log",
                "one that recovery did not list",
            ));
        };
        // The first batch of a chunk stands at its beginning, so the chunks below `from` need not be read.
        let first_chunk = layout.chunk_of(end.from.raw()).max(layout.chunk_of(next_batch));
        let (from, next_batch) = (end.from.raw(), layout.chunk_body(first_chunk));
        let end = valid_end.min(layout.segment_body_end(segment));
        Ok(SegmentScan {
            reader,
            cursor: BatchCursor::default(),
            next_batch,
            end,
            from,
        })
    }

    /// A scan of all records of a segment that ends at `end` and is not written any more.
    pub(crate) fn of_finished(files: &HotFiles, segment: SegmentId, end: u64) -> Result<SegmentScan> {
        let layout = files.layout();
        Ok(SegmentScan {
            reader: ChunkReader::new(segment, files.open(segment)?, layout),
            cursor: BatchCursor::default(),
            next_batch: layout.segment_body(segment),
            end: end.min(layout.segment_body_end(segment)),
            from: 0,
        })
    }

    /// The next record, fillers left out; `None` at the end of the segment's log.
    ///
    /// # Errors
    /// I/O errors; `Corrupt` with file and offset.
    pub fn next_record(&mut self) -> Result<Option<(Lsn, RecordRef<'_>)>> {
        while !self.cursor.seek_wanted(&self.reader, self.from) {
            if !self.next_batch()? {
                return Ok(None);
            }
        }
        self.cursor.take_record(&self.reader).map(Some)
    }

    /// The next version of a row; other records are passed over by their headers alone. As `next_record` otherwise.
    ///
    /// # Errors
    /// As `next_record`.
    pub fn next_row(&mut self) -> Result<Option<(Lsn, RowRef<'_>)>> {
        loop {
            let found = self
                .cursor
                .seek_kind(&self.reader, self.from, RecordKind::is_row, |_| {});
            if found {
                let (lsn, record) = self.cursor.take_record(&self.reader)?;
                return Ok(record.as_row().map(|row| (lsn, row)));
            }
            if !self.next_batch()? {
                return Ok(None);
            }
        }
    }

    /// Steps to the next batch. False at the end of the segment's log.
    fn next_batch(&mut self) -> Result<bool> {
        if self.next_batch >= self.end {
            return Ok(false);
        }
        self.reader.load(self.next_batch)?;
        let Some((header, _)) = self.reader.batch(self.next_batch) else {
            return Err(self
                .reader
                .damage(self.next_batch, "a batch that verifies", "one that does not"));
        };
        self.cursor = BatchCursor::of(&header);
        self.next_batch = header.next();
        Ok(true)
    }
}
