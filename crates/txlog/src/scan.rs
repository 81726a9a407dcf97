//! Log scan: reads the log in order after an opening, and settles where it ends.
//!
//! Why it exists:    the end of the log is not written anywhere when the power fails; it is where the chain of batches
//!                   stops. Whether that is a torn tail or damage decides between opening and refusing.
//! Format / state:   docs/format-log.md#batch-header, docs/durability.md (start-up cases). in a segment -> next segment by
//!                   its header's cut -> ... -> end.
//! Rules:            D5 (end of the log, damage), D7 (nothing behind a cut is parsed), D17 (beginning at a checkpoint).
//! Latches and I/O:  none; one read per chunk by the calling thread.
//! After a crash:    this is what runs; it writes nothing.

use crate::batch::{BATCH_ALIGN, BatchHeader};
use crate::doubt::Doubt;
use crate::files::HotFiles;
use crate::layout::Layout;
use crate::record::RecordRef;
use crate::row_record::row_txn;
use crate::segment_scan::{BatchCursor, ChunkReader};
use crate::tail::BATCH_HEADER_BYTES;
use pbxt_base::{Error, Lsn, Result, SegmentId, TxnId};
use pbxt_segment::{SegmentHeader, SegmentStore};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a log ended, and all that is needed to continue it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The last segment of the log; 0 if there is none yet.
    pub(crate) segment: SegmentId,
    /// Position of the batch that would have been next.
    pub(crate) cut: Lsn,
    /// Checksum of the last valid batch, 0 if there is none.
    pub(crate) checksum: u32,
    /// Sequence of the last valid batch, 0 if there is none.
    pub(crate) sequence: u64,
    /// From here on the last segment may not be durable (D34).
    pub(crate) doubtful: Lsn,
    /// Newest mark of the durable end of the blob stream.
    pub(crate) blob_durable: u64,
    /// Where the log is readable from; set by `with_log_start`.
    pub(crate) log_start: Lsn,
    /// Where the scan began; records below it are not for recovery.
    pub(crate) from: Lsn,
    /// Where each segment of the log ends.
    ends: BTreeMap<SegmentId, u64>,
    /// The segment the scan began with.
    first: SegmentId,
}

impl LogEnd {
    /// The position behind the last valid batch: every record of the log lies below it.
    pub fn lsn(&self) -> Lsn {
        self.cut
    }

    /// Beyond this the log has had no tail: with no record in the batch at hand, `Log::tail` lies behind the header that batch
    /// would have had.
    pub fn tail_max(&self) -> Lsn {
        Lsn::new(self.cut.raw() + BATCH_HEADER_BYTES)
    }

    /// Everything of the blob stream below this was durable when the last valid batch was written; what is referred to
    /// beyond it has to be verified.
    pub fn blob_durable(&self) -> u64 {
        self.blob_durable
    }

    /// The segments of the log from the one where the scan began, in order; each can be read by a `SegmentScan`.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.ends.range(self.first..).map(|(segment, _)| *segment)
    }

    pub(crate) fn end_of(&self, segment: SegmentId) -> Option<u64> {
        self.ends.get(&segment).copied()
    }
}

/// See the module. Read it to its end with `next_record`, then take the end with `finish`.
#[derive(Debug)]
pub struct LogScan {
    files: HotFiles,
    layout: Layout,
    /// Segments with a valid header, the last one first.
    ahead: Vec<SegmentHeader>,
    reader: Option<ChunkReader>,
    incarnation: u32,
    cursor: BatchCursor,
    /// Position of the next batch.
    position: u64,
    /// Sequence of the last batch, `None` before the first if the scan began in the middle of the log.
    sequence: Option<u64>,
    end: LogEnd,
    from: u64,
    /// Of the segment at hand.
    doubt: Doubt,
    last_row_txn: u64,
    rows_passed: u64,
    is_done: bool,
}

impl LogScan {
    /// A scan of the records at `from` and beyond: 0, or a place up to which a checkpoint knows the log durable. The
    /// segments before the one that holds `from` may be gone (D17).
    ///
    /// # Errors
    /// I/O errors; `Corrupt` if a segment is missing.
    pub fn new(store: Arc<SegmentStore>, from: Lsn) -> Result<LogScan> {
        let files = HotFiles::new(store);
        let layout = files.layout();
        let (ahead, ends) = split_headers(files.headers()?, layout.segment_of(from.raw()));
        let mut scan = LogScan {
            files,
            layout,
            ahead,
            reader: None,
            incarnation: 0,
            cursor: BatchCursor::default(),
            position: 0,
            sequence: None,
            end: LogEnd {
                from,
                ends,
                ..LogEnd::default()
            },
            from: from.raw(),
            doubt: Doubt::default(),
            last_row_txn: 0,
            rows_passed: 0,
            is_done: false,
        };
        scan.enter_first_segment()?;
        Ok(scan)
    }

    /// The next record, fillers left out; `None` at the end of the log.
    ///
    /// # Errors
    /// I/O errors; `Corrupt` with file and offset where rule D5 calls a break damage.
    pub fn next_record(&mut self) -> Result<Option<(Lsn, RecordRef<'_>)>> {
        while !self.seek_record() {
            if !self.next_batch()? {
                return Ok(None);
            }
        }
        match &self.reader {
            Some(reader) => self.cursor.take_record(reader).map(Some),
            None => Ok(None),
        }
    }

    /// The next record that is not a version of a row; those are passed over by their headers alone, and `last_row_txn`
    /// tells what the first pass of recovery wants to know of them. As `next_record` otherwise.
    ///
    /// # Errors
    /// As `next_record`.
    pub fn next_other(&mut self) -> Result<Option<(Lsn, RecordRef<'_>)>> {
        while !self.seek_other() {
            if !self.next_batch()? {
                return Ok(None);
            }
        }
        match &self.reader {
            Some(reader) => self.cursor.take_record(reader).map(Some),
            None => Ok(None),
        }
    }

    /// The greatest transaction id of the row versions that `next_other` has passed over; 0 if there were none.
    pub fn last_row_txn(&self) -> TxnId {
        TxnId::new(self.last_row_txn)
    }

    /// Number of row versions that `next_other` has passed over.
    pub fn rows_passed(&self) -> u64 {
        self.rows_passed
    }

    fn seek_other(&mut self) -> bool {
        let Some(reader) = &self.reader else { return false };
        let (last_txn, rows) = (&mut self.last_row_txn, &mut self.rows_passed);
        self.cursor.seek_kind(
            reader,
            self.from,
            |kind| !kind.is_row(),
            |row| {
                *last_txn = (*last_txn).max(row_txn(row));
                *rows += 1;
            },
        )
    }

    /// Moves to the next record of the batch at hand that is wanted. False if there is none.
    fn seek_record(&mut self) -> bool {
        match &self.reader {
            Some(reader) => self.cursor.seek_wanted(reader, self.from),
            None => false,
        }
    }

    /// The end of the log. Reads what is left of it first.
    ///
    /// # Errors
    /// As `next_record`.
    pub fn finish(mut self) -> Result<LogEnd> {
        while self.next_batch()? {}
        Ok(self.end)
    }

    fn enter_first_segment(&mut self) -> Result<()> {
        let Some(header) = self.ahead.pop() else {
            if self.from > 0 {
                return Err(self.missing_segment(self.layout.segment_of(self.from), "no segment of the log"));
            }
            self.sequence = Some(0);
            self.is_done = true;
            return match self.later_claim()? {
                Some(claim) => {
                    Err(self.missing_segment(self.layout.segment_of(claim.raw()), "no segment header"))
                }
                None => Ok(()),
            };
        };
        let none = SegmentId::new(0);
        let wanted = self.layout.segment_of(self.from);
        if wanted == none && header.previous != none {
            return Err(self.missing_segment(header.previous, "no such segment of this log"));
        }
        // The segment of `from` may not have been begun: nothing was written beyond the end of the one before.
        if wanted != none && header.id != wanted && header.id.raw() + 1 != wanted.raw() {
            return Err(self.missing_segment(wanted, "no such segment of this log"));
        }
        self.end.first = header.id;
        self.sequence = (header.previous == none).then_some(0);
        self.end.checksum = header.cut_checksum;
        self.enter(&header)
    }

    #[cold]
    fn missing_segment(&self, segment: SegmentId, found: &str) -> Error {
        let expected = "the beginning of a segment of the log".to_owned();
        Error::Corrupt {
            file: self.files.name(segment),
            offset: 0,
            expected,
            found: found.to_owned(),
        }
    }

    fn enter(&mut self, header: &SegmentHeader) -> Result<()> {
        let file = self.files.open(header.id)?;
        self.reader = Some(ChunkReader::new(header.id, file, self.layout));
        self.incarnation = header.incarnation;
        self.position = self.layout.segment_body(header.id);
        self.end.segment = header.id;
        self.doubt = Doubt::default();
        self.note_end();
        Ok(())
    }

    fn note_end(&mut self) {
        self.end.cut = Lsn::new(self.position);
        self.end.doubtful = Lsn::new(self.doubt.first().unwrap_or(self.position));
        self.end.ends.insert(self.end.segment, self.position);
    }

    /// Steps to the next batch. False at the end of the log.
    fn next_batch(&mut self) -> Result<bool> {
        self.cursor = BatchCursor::default();
        while !self.is_done {
            if self
                .ahead
                .last()
                .is_some_and(|next| next.cut.raw() == self.position)
            {
                self.cross_over()?;
                continue;
            }
            if let Some(header) = self.continuing_batch()? {
                self.cursor = BatchCursor::of(&header);
                return Ok(true);
            }
            self.end_here()?;
        }
        Ok(false)
    }

    /// The log goes on in the segment whose header names this place.
    fn cross_over(&mut self) -> Result<()> {
        let Some(next) = self.ahead.pop() else {
            return Ok(());
        };
        if next.previous != self.end.segment || next.cut_checksum != self.end.checksum {
            return Err(Error::Corrupt {
                file: self.files.name(next.id),
                offset: 0,
                expected: format!(
                    "a continuation of segment {} with checksum {:08x}",
                    self.end.segment, self.end.checksum
                ),
                found: format!(
                    "one of segment {} with checksum {:08x}",
                    next.previous, next.cut_checksum
                ),
            });
        }
        self.enter(&next)
    }

    /// The batch at the present position, if it continues the chain (D4).
    fn continuing_batch(&mut self) -> Result<Option<BatchHeader>> {
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        if self.layout.segment_of(self.position) != reader.segment {
            return Ok(None);
        }
        reader.load(self.position)?;
        let Some((header, checksum)) = reader.batch(self.position) else {
            return Ok(None);
        };
        let continues = self.sequence.is_none_or(|last| header.sequence == last + 1)
            && header.previous == self.end.checksum
            && header.incarnation == self.incarnation;
        if !continues {
            return Ok(None);
        }
        self.sequence = Some(header.sequence);
        self.end.sequence = header.sequence;
        self.end.checksum = checksum;
        self.end.blob_durable = header.blob_durable;
        self.doubt
            .note(header.sequence, self.position, header.durable_sequence);
        self.position = header.next();
        self.note_end();
        Ok(Some(header))
    }

    /// The chain stops here: torn tail or damage (D5).
    fn end_here(&mut self) -> Result<()> {
        self.learn_sequence()?;
        let Some(reader) = &self.reader else { return Ok(()) };
        let expected = format!("batch {} of the log", self.end.sequence + 1);
        if let Some(next) = self.ahead.last() {
            let found = format!(
                "none, although '{}' says that the log goes on",
                self.files.name(next.id)
            );
            return Err(reader.damage(self.position, &expected, &found));
        }
        if self
            .files
            .sealed_end(reader.segment)
            .is_some_and(|end| end != self.position)
        {
            return Err(reader.damage(self.position, &expected, "none, although the segment is sealed"));
        }
        if self.files.closed_end().is_some_and(|end| end > self.position) {
            return Err(reader.damage(
                self.position,
                &expected,
                "none, although the database was closed behind it",
            ));
        }
        if self.position + BATCH_HEADER_BYTES < self.from {
            let found = format!(
                "none, although a checkpoint knows the log up to LSN {} durable",
                self.from
            );
            return Err(reader.damage(self.position, &expected, &found));
        }
        let was_closed_here = self.files.closed_end() == Some(self.position);
        if !was_closed_here && let Some(claim) = self.later_claim()? {
            let found = format!("none, although the batch at LSN {} names it durable", claim.raw());
            return Err(reader.damage(self.position, &expected, &found));
        }
        self.is_done = true;
        Ok(())
    }

    /// Before the end of the log is judged its last sequence must be known. If the scan met no batch, it is that of the
    /// batch its first segment continues; if that is gone, a batch behind it was durable (D17), and is missing now.
    fn learn_sequence(&mut self) -> Result<()> {
        if self.sequence.is_some() {
            return Ok(());
        }
        let Some((sequence, blob_durable)) = self.continued_batch(self.end.first)? else {
            let Some(reader) = &self.reader else { return Ok(()) };
            let found = "none, although what lies before it has been dropped";
            return Err(reader.damage(self.position, "the first batch of the log", found));
        };
        self.sequence = Some(sequence);
        self.end.sequence = sequence;
        self.end.blob_durable = blob_durable;
        Ok(())
    }

    /// Sequence and durable end of blobs of the last batch before `segment`; zeros if the log begins there. `None` if
    /// that batch is gone.
    fn continued_batch(&self, mut segment: SegmentId) -> Result<Option<(u64, u64)>> {
        let there = self.files.hot_ids()?;
        loop {
            let Some(header) = self.files.header(segment)? else {
                return Ok(None);
            };
            if header.previous == SegmentId::new(0) {
                return Ok(Some((0, 0)));
            }
            if !there.contains(&header.previous) {
                return Ok(None);
            }
            if header.cut.raw() > self.layout.segment_body(header.previous) {
                let file = self.files.open(header.previous)?;
                let reader = ChunkReader::new(header.previous, file, self.layout);
                let last = last_batch(reader, self.layout, &header)?;
                return Ok(last.map(|last| (last.sequence, last.blob_durable)));
            }
            segment = header.previous;
        }
    }

    /// A later batch header, of this incarnation or of a later one whose segment header is gone, that names the broken
    /// sequence durable. Only headers are looked at, and each proves itself; records behind a break are never parsed (D7).
    fn later_claim(&self) -> Result<Option<Lsn>> {
        let broken = self.end.sequence + 1;
        let mut from = self.position + BATCH_ALIGN;
        for segment in self.files.hot_ids()? {
            if segment < self.layout.segment_of(self.position) {
                continue;
            }
            from = from.max(self.layout.segment_body(segment));
            let file = self.files.open(segment)?;
            // A file that was being prepared when the power failed may be shorter than a segment.
            let is_whole = file.len()? >= self.layout.segment_bytes();
            let mut reader = ChunkReader::new(segment, file, self.layout);
            while is_whole && from < self.layout.segment_body_end(segment) {
                reader.load(from)?;
                let bytes = reader.bytes(from);
                if let Some((header, _)) = BatchHeader::decode(segment, Lsn::new(from), bytes)
                    && header.incarnation >= self.incarnation
                    && header.sequence > broken
                    && header.durable_sequence >= broken
                {
                    return Ok(Some(header.lsn));
                }
                from += BATCH_ALIGN;
            }
        }
        Ok(None)
    }
}

/// Divides headers of segments, in rising order: those of the scan, last one first, and where the segments below them
/// end. The scan begins with the segment `wanted`, or with the one before if that was not begun.
fn split_headers(
    mut headers: Vec<SegmentHeader>,
    wanted: SegmentId,
) -> (Vec<SegmentHeader>, BTreeMap<SegmentId, u64>) {
    let after = headers.partition_point(|header| header.id <= wanted);
    let first = after.saturating_sub(1);
    let continued = headers.get(..=first).unwrap_or_default();
    let ends = continued
        .iter()
        .filter(|header| header.previous != SegmentId::new(0))
        .map(|header| (header.previous, header.cut.raw()))
        .collect();
    let mut ahead = headers.split_off(first.min(headers.len()));
    ahead.reverse();
    (ahead, ends)
}

/// The last batch of the segment that `next` continues: looked for in the chunk it must be in.
fn last_batch(mut reader: ChunkReader, layout: Layout, next: &SegmentHeader) -> Result<Option<BatchHeader>> {
    let cut = next.cut.raw();
    let chunk = layout
        .chunk_of(cut - BATCH_ALIGN)
        .min(layout.last_chunk(reader.segment));
    let mut at = cut.min(layout.chunk_end(chunk));
    reader.load(layout.chunk_body(chunk))?;
    while at > layout.chunk_body(chunk) {
        at -= BATCH_ALIGN;
        match BatchHeader::decode(reader.segment, Lsn::new(at), reader.bytes(at)) {
            Some((header, checksum)) if checksum == next.cut_checksum && header.next() == cut => {
                return Ok(Some(header));
            }
            _ => {}
        }
    }
    Ok(None)
}
