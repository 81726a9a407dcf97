//! Log record: the one header every record shares, and the checked view from which typed views are taken.
//!
//! Why it exists:    scans, recovery and point reads all start from an LSN and a slice of bytes; the length, the kind and
//!                   the bounds of every section are checked here once, so the typed views need no further checks.
//! Format / state:   docs/format-log.md#record-header. Eight bytes: kind, flags, length in units of 8, one `u32` whose
//!                   meaning belongs to the kind (the table for rows), so a scan can filter on a single load.
//! Rules:            a kind of 0 is never written, so zeroed space is never a record; reserved kinds are refused.
//! Latches and I/O:  none.
//! After a crash:    records are read only from batches whose checksum verified (D5); a record that still does not
//!                   parse is damage, never the end of the log.

use crate::end_record::{EndRef, PrepareRef, RollbackToRef};
use crate::ingest_record::IngestRef;
use crate::other_record::{AutoIncRef, CatalogRef};
use crate::row_record::RowRef;
use pbxt_base::codec;

/// Bytes of the header that every record begins with.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Records start and end on multiples of this.
pub const RECORD_ALIGN: usize = 8;
/// The longest record the length field can say: 65 535 units of 8 bytes. A log allows less, see `Log::record_bytes_max`.
pub const RECORD_BYTES_MAX: usize = u16::MAX as usize * RECORD_ALIGN;

/// First record of its transaction.
pub(crate) const FLAG_FIRST: u8 = 0x01;
/// Row of a temporary table; on END and PREPARE the same bit position is not used.
pub(crate) const FLAG_TEMPORARY: u8 = 0x02;
/// END: the transaction was aborted. Shares its bit with `FLAG_TEMPORARY`, which only rows use.
pub(crate) const FLAG_ABORT: u8 = 0x02;
/// Row: the address of the previous version follows the header.
pub(crate) const FLAG_PREV: u8 = 0x04;
/// Row: the address of the newest version of another transaction follows.
pub(crate) const FLAG_FOREIGN: u8 = 0x08;
/// Row: the length of the key image section follows; the section itself stands after the payload.
pub(crate) const FLAG_KEYS: u8 = 0x10;
/// The upper three bits count the unused bytes at the end of the last unit.
const PAD_SHIFT: u32 = 5;

/// What a log record says. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// A reservation that was given up; skipped by every reader.
    Filler = 1,
    /// First version of a row.
    Insert = 2,
    /// Later version of a row.
    Update = 3,
    /// Tombstone.
    Delete = 4,
    /// The transaction committed or aborted.
    End = 5,
    /// The transaction voted yes in two-phase commit.
    Prepare = 6,
    /// A savepoint or statement rollback: a void range.
    RollbackTo = 7,
    /// A change of the catalog.
    Catalog = 8,
    /// The high mark of a table's auto-increment counter.
    AutoInc = 9,
    /// Pieces of runs that a bulk load wrote.
    Ingest = 13,
}

impl RecordKind {
    /// The kind with this number on disk; `None` for 0, for reserved kinds and for unknown ones.
    pub fn from_disk(byte: u8) -> Option<RecordKind> {
        Some(match byte {
            1 => RecordKind::Filler,
            2 => RecordKind::Insert,
            3 => RecordKind::Update,
            4 => RecordKind::Delete,
            5 => RecordKind::End,
            6 => RecordKind::Prepare,
            7 => RecordKind::RollbackTo,
            8 => RecordKind::Catalog,
            9 => RecordKind::AutoInc,
            13 => RecordKind::Ingest,
            _ => return None,
        })
    }

    /// True for the three kinds that carry a version of a row.
    pub fn is_row(self) -> bool {
        matches!(self, RecordKind::Insert | RecordKind::Update | RecordKind::Delete)
    }
}

/// Why bytes are not a log record. The caller knows file and offset and makes an error of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({found})")]
pub struct RecordFault {
    /// What was expected, as a phrase.
    pub what: &'static str,
    /// The number found instead.
    pub found: u64,
}

impl RecordFault {
    pub(crate) fn new(what: &'static str, found: u64) -> RecordFault {
        RecordFault { what, found }
    }
}

/// One log record whose header and section bounds have been checked. As cheap to copy as a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The record without its end padding.
    ///
    /// Nothing else is kept beside it: a slice alone travels in registers, and scans make one of these per row.
    bytes: &'a [u8],
}

/// A log record by kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// Nothing for this view: a filler, or an ingest record, which is asked for with `RecordRef::as_ingest`.
    Filler,
    /// A version of a row: insert, update or tombstone.
    Row(RowRef<'a>),
    /// Commit or abort.
    End(EndRef<'a>),
    /// Vote of two-phase commit.
    Prepare(PrepareRef<'a>),
    /// Void range of a savepoint or statement rollback.
    RollbackTo(RollbackToRef<'a>),
    /// Change of the catalog.
    Catalog(CatalogRef<'a>),
    /// Auto-increment high mark.
    AutoInc(AutoIncRef<'a>),
}

impl<'a> RecordRef<'a> {
    /// Checks the record that starts at the first byte of `bytes`; what follows it in `bytes` is ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<RecordRef<'a>, RecordFault> {
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(RecordFault::new(
                "expected a record header of 8 bytes, found fewer",
                bytes.len() as u64,
            ));
        };
        let [kind, flags, ..] = *header;
        if RecordKind::from_disk(kind).is_none() {
            return Err(RecordFault::new(
                "expected a known kind of log record",
                u64::from(kind),
            ));
        }
        let stride = stride_of(header);
        let pad = usize::from(flags >> PAD_SHIFT);
        let exact = stride
            .checked_sub(pad)
            .filter(|exact| *exact >= RECORD_HEADER_BYTES);
        let (Some(exact), true) = (exact, stride <= bytes.len()) else {
            return Err(RecordFault::new(
                "expected a record length inside its batch, found bytes",
                stride as u64,
            ));
        };
        let record = RecordRef {
            bytes: &bytes[..exact],
        };
        record.check_sections()?;
        Ok(record)
    }

    fn check_sections(&self) -> Result<(), RecordFault> {
        match self.kind() {
            RecordKind::Filler => Ok(()),
            RecordKind::Insert | RecordKind::Update | RecordKind::Delete => RowRef::check(self),
            RecordKind::End => EndRef::check(self),
            RecordKind::Prepare => PrepareRef::check(self),
            RecordKind::RollbackTo => RollbackToRef::check(self),
            RecordKind::Catalog => CatalogRef::check(self),
            RecordKind::AutoInc => AutoIncRef::check(self),
            RecordKind::Ingest => IngestRef::check(self),
        }
    }

    /// The kind.
    #[inline]
    pub fn kind(&self) -> RecordKind {
        RecordKind::from_disk(self.bytes[0])
            .expect("rule D5: the kind was checked when the record was parsed")
    }

    /// Bytes from the start of this record to the start of the next one.
    #[inline]
    pub fn stride(&self) -> usize {
        align_up(self.bytes.len())
    }

    /// The record's bytes without end padding.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True for the first record of a transaction.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.has_flag(FLAG_FIRST)
    }

    /// The typed view.
    #[inline]
    pub fn view(&self) -> Record<'a> {
        match self.kind() {
            RecordKind::Filler | RecordKind::Ingest => Record::Filler,
            RecordKind::Insert | RecordKind::Update | RecordKind::Delete => Record::Row(RowRef::new(*self)),
            RecordKind::End => Record::End(EndRef::new(*self)),
            RecordKind::Prepare => Record::Prepare(PrepareRef::new(*self)),
            RecordKind::RollbackTo => Record::RollbackTo(RollbackToRef::new(*self)),
            RecordKind::Catalog => Record::Catalog(CatalogRef::new(*self)),
            RecordKind::AutoInc => Record::AutoInc(AutoIncRef::new(*self)),
        }
    }

    /// The row view, or `None` for a record of another kind.
    #[inline]
    pub fn as_row(&self) -> Option<RowRef<'a>> {
        self.kind().is_row().then(|| RowRef::new(*self))
    }

    /// The ingest view, or `None` for a record of another kind.
    #[inline]
    pub fn as_ingest(&self) -> Option<IngestRef<'a>> {
        (self.kind() == RecordKind::Ingest).then(|| IngestRef::new(*self))
    }

    #[inline]
    pub(crate) fn has_flag(&self, flag: u8) -> bool {
        self.bytes[1] & flag != 0
    }

    /// The `u32` of the header.
    #[inline]
    pub(crate) fn aux(&self) -> u32 {
        codec::get_u32(self.bytes, 4)
    }

    #[inline]
    pub(crate) fn u64_at(&self, offset: usize) -> u64 {
        codec::get_u64(self.bytes, offset)
    }

    #[inline]
    pub(crate) fn u32_at(&self, offset: usize) -> u32 {
        codec::get_u32(self.bytes, offset)
    }

    /// Refuses a record shorter than its kind's fixed part.
    pub(crate) fn check_length(&self, bytes_min: usize, what: &'static str) -> Result<(), RecordFault> {
        if self.bytes.len() >= bytes_min {
            Ok(())
        } else {
            Err(RecordFault::new(what, self.bytes.len() as u64))
        }
    }
}

/// Bytes from a record to the next one, by its header (at least 8 bytes); not checked against anything.
#[inline]
pub(crate) fn stride_of(header: &[u8]) -> usize {
    usize::from(codec::get_u16(header, 2)) * RECORD_ALIGN
}

/// Rounds a record length up to where the next record starts.
#[inline]
pub(crate) const fn align_up(bytes: usize) -> usize {
    bytes.next_multiple_of(RECORD_ALIGN)
}

/// Writes the header of a record of `exact` bytes into `out` and zeroes its end padding, so that the bytes on disk are
/// a function of the record alone. `out` must be exactly `align_up(exact)` long.
#[inline]
pub(crate) fn put_header(out: &mut [u8], kind: RecordKind, flags: u8, exact: usize, aux: u32) {
    let stride = align_up(exact);
    assert!(
        out.len() == stride && stride <= RECORD_BYTES_MAX,
        "a record is encoded into exactly the bytes it asked for"
    );
    out[exact..].fill(0);
    out[0] = kind as u8;
    out[1] = flags | ((stride - exact) as u8) << PAD_SHIFT;
    codec::put_u16(out, 2, (stride / RECORD_ALIGN) as u16);
    codec::put_u32(out, 4, aux);
}

/// Makes a filler of all of `out`: what a reservation becomes that was given up (D8).
pub(crate) fn put_filler(out: &mut [u8]) {
    let exact = out.len();
    out.fill(0);
    put_header(out, RecordKind::Filler, 0, exact, 0);
}
