//! Hot files: what the log asks of the segment store, in the log's own words.
//!
//! Why it exists:    the store serves all classes of segments; the log speaks of hot ones, by LSN, and must tell a header
//!                   that was being written when the power failed from one that is damaged.
//! Format / state:   docs/format.md#segment-header.
//! Rules:            D5, D7, D10, D34.
//! Latches and I/O:  as the store; nothing here is called under a latch but the flush and preparing latches.
//! After a crash:    a segment that never became part of the log is dropped and made anew, so no byte of it is written
//!                   twice; of the last one that did, what may not be durable is written again as it was.

use crate::doubt::write_again;
use crate::layout::Layout;
use crate::scan::LogEnd;
use pbxt_base::{Error, Lsn, Result, SegmentId};
use pbxt_io::DiskFile;
use pbxt_segment::{
    FOOTER_BYTES, SEGMENT_HEADER_BYTES, SegmentClass, SegmentHeader, SegmentStore, StartState,
};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct HotFiles {
    store: Arc<SegmentStore>,
}

impl HotFiles {
    pub(crate) fn new(store: Arc<SegmentStore>) -> HotFiles {
        HotFiles { store }
    }

    pub(crate) fn layout(&self) -> Layout {
        let geometry = self.store.geometry();
        let (header, footer) = (SEGMENT_HEADER_BYTES as u64, FOOTER_BYTES as u64);
        Layout::new(geometry.hot_segment_bytes, geometry.chunk_bytes, header, footer)
    }

    /// Number of this opening of the database.
    pub(crate) fn incarnation(&self) -> u32 {
        self.store.incarnation()
    }

    /// Full name of a hot segment, for messages.
    pub(crate) fn name(&self, segment: SegmentId) -> String {
        self.store.name(SegmentClass::Hot, segment)
    }

    pub(crate) fn open(&self, segment: SegmentId) -> Result<Arc<dyn DiskFile>> {
        self.store.file(SegmentClass::Hot, segment)
    }

    /// All hot segment files, rising, part of the log or not.
    pub(crate) fn hot_ids(&self) -> Result<Vec<SegmentId>> {
        self.store.list(SegmentClass::Hot)
    }

    /// The header of a hot segment; `None` if it was never begun.
    pub(crate) fn header(&self, segment: SegmentId) -> Result<Option<SegmentHeader>> {
        self.store.header(SegmentClass::Hot, segment)
    }

    /// Headers of all begun hot segments, rising. An unsealed segment whose header does not verify was being begun when
    /// the power failed; if it was more than that, its batches say so (`LogScan`).
    pub(crate) fn headers(&self) -> Result<Vec<SegmentHeader>> {
        let mut headers = Vec::new();
        for segment in self.hot_ids()? {
            match self.store.header(SegmentClass::Hot, segment) {
                Ok(header) => headers.extend(header),
                Err(Error::Corrupt { .. }) if self.sealed_end(segment).is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(headers)
    }

    /// Where the log of a sealed segment ends.
    pub(crate) fn sealed_end(&self, segment: SegmentId) -> Option<u64> {
        self.store
            .sealed(SegmentClass::Hot, segment)
            .map(|sealed| sealed.end.raw())
    }

    /// Where the log ends, if the database was closed in order.
    pub(crate) fn closed_end(&self) -> Option<u64> {
        match self.store.start_state() {
            StartState::Clean(end) => Some(end.raw()),
            StartState::New | StartState::Crashed => None,
        }
    }

    /// Makes a segment ready, so that `begin` needs no space (D10).
    pub(crate) fn prepare(&self, segment: SegmentId) -> Result<()> {
        self.store.prepare(segment)
    }

    /// Sets room aside from this LSN to the end of its segment, which was prepared.
    pub(crate) fn take_room_behind(&self, lsn: u64) -> Result<()> {
        let layout = self.layout();
        self.store
            .take_room_behind(layout.segment_of(lsn), layout.file_offset(lsn))
    }

    /// Where room may end that is to reach to this LSN at least.
    pub(crate) fn room_border(&self, lsn: u64) -> u64 {
        let offset = self.layout().file_offset(lsn);
        lsn - offset + self.store.room_border(offset)
    }

    /// Gives back the room from `begin`, a `room_border`, to `end`, the end of the last prepared segment (rule D38).
    pub(crate) fn give_back(&self, begin: u64, end: u64) -> Result<()> {
        let layout = self.layout();
        let mut segment_end = end.next_multiple_of(layout.segment_bytes());
        while segment_end > begin {
            let start = segment_end - layout.segment_bytes();
            let segment = layout.segment_of(start);
            if start >= begin {
                self.store.unprepare(segment)?;
            } else {
                self.store.give_back_behind(segment, layout.file_offset(begin))?;
            }
            segment_end = start;
        }
        Ok(())
    }

    /// Makes the segment ready in which the log continues behind `end`, once what was read of the last segment is durable; answers up to where it
    /// has room. Files behind it were prepared, or begun in vain: they are made anew. From the return on the database counts as open.
    pub(crate) fn make_room_behind(&self, end: &LogEnd) -> Result<(SegmentId, u64)> {
        if end.segment != SegmentId::new(0) {
            self.settle(end)?;
        }
        for segment in self
            .hot_ids()?
            .into_iter()
            .filter(|segment| *segment > end.segment)
        {
            let why = "it lies behind the end of the log";
            if self.store.is_leftover(SegmentClass::Hot, segment, why)? {
                self.store.drop_segment(SegmentClass::Hot, segment)?;
            }
        }
        let segment = SegmentId::new(end.segment.raw() + 1);
        let room = self.prepare_first(segment, end)?;
        // Last, for want of space too is a refusal: the next opening still knows up to where nothing may be missing (D5).
        self.store.note_opened()?;
        Ok((segment, self.layout().segment_start(segment) + room))
    }

    /// Prepares the first segment of an opening; bytes of it that have room. On a full disk these are as few as the log can begin with (D38),
    /// and the room behind the end of the last segment, which nobody will ever need, goes before them: whoever wants to free space by
    /// deleting needs an open database.
    fn prepare_first(&self, segment: SegmentId, end: &LogEnd) -> Result<u64> {
        let layout = self.layout();
        let all = layout.segment_bytes();
        let full = match self.store.prepare(segment) {
            Ok(()) => return Ok(all),
            Err(error @ Error::NoSpace { .. }) => error,
            Err(error) => return Err(error),
        };
        let has_last = end.segment != SegmentId::new(0) && layout.segment_of(end.lsn().raw()) == end.segment;
        if has_last && self.sealed_end(end.segment).is_none() {
            let border = self.room_border(end.lsn().raw());
            self.store
                .give_back_behind(end.segment, border - layout.segment_start(end.segment))?;
        }
        let chunks = 2 * layout.chunk_bytes();
        for least in [chunks + layout.reserve_bytes(), chunks, chunks / 2] {
            let room = self.store.room_border(least.min(all));
            match self.store.prepare_with_room(segment, room) {
                Ok(()) => return Ok(room),
                Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(full)
    }

    /// Makes durable what was read of the last segment.
    fn settle(&self, end: &LogEnd) -> Result<()> {
        if self.closed_end().is_none() {
            write_again(self, end)?;
        }
        // Durable now: all that recovery has read (D7). Without it the log would go on behind a part that a power cut can still take
        // back, because a process died before its sync, or after one that failed.
        self.open(end.segment)?.sync_data()
    }

    /// Writes the header of a segment again, as it stands there (D34).
    pub(crate) fn write_header_again(&self, segment: SegmentId) -> Result<()> {
        self.store.write_header_again(segment)
    }

    /// Takes a prepared segment into use as the continuation of `previous` from `cut`.
    pub(crate) fn begin(
        &self,
        segment: SegmentId,
        previous: SegmentId,
        cut: u64,
        checksum: u32,
    ) -> Result<Arc<dyn DiskFile>> {
        let first_lsn = Lsn::new(self.layout().segment_start(segment));
        self.store
            .begin(segment, previous, Lsn::new(cut), checksum, first_lsn)
    }

    /// Seals a segment whose log, up to `end`, is durable.
    pub(crate) fn seal(&self, segment: SegmentId, end: u64) -> Result<()> {
        self.store.seal(segment, Lsn::new(end))
    }

    /// Notes that the log ends at `end` and nothing is missing.
    pub(crate) fn note_closed(&self, end: u64) -> Result<()> {
        self.store.note_closed(Lsn::new(end))
    }
}
