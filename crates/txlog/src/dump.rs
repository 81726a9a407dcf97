//! Log records for people: one line per record, as the command line tool and test failures print them.
//!
//! Why it exists:    a log that can only be read by the program that wrote it cannot be argued about.
//! Format / state:   none of its own; reads through the typed views only.
//! Rules:            never fails: a key image section that does not decode is printed as such.
//! Latches and I/O:  none.

use crate::end_record::Outcome;
use crate::ingest_record::IngestRef;
use crate::key_image::{KeyImages, Sign};
use crate::record::{Record, RecordRef};
use crate::row_record::{RowKind, RowRef};
use std::fmt::{self, Debug, Display, Formatter};

impl Display for RecordRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(ingest) = self.as_ingest() {
            return write!(f, "{ingest}");
        }
        match self.view() {
            Record::Filler => write!(f, "filler {} bytes", self.stride()),
            Record::Row(row) => write!(f, "{row}"),
            Record::End(end) => {
                match end.outcome() {
                    Outcome::Commit(ts) => write!(f, "end txn {} commit ts {}", end.txn().raw(), ts.raw())?,
                    Outcome::Abort => write!(f, "end txn {} abort", end.txn().raw())?,
                }
                write_lists(f, end.deltas(), end.voids())
            }
            Record::Prepare(prepare) => {
                write!(
                    f,
                    "prepare txn {} xid {:02x?}",
                    prepare.txn().raw(),
                    prepare.xid()
                )?;
                write_lists(f, prepare.deltas(), prepare.voids())
            }
            Record::RollbackTo(rollback) => {
                let range = rollback.range();
                let (from, to) = (range.from.raw(), range.to.raw());
                write!(f, "rollback-to txn {} void [{from}, {to})", rollback.txn().raw())
            }
            Record::Catalog(catalog) => {
                let (txn, op, bytes) = (catalog.txn().raw(), catalog.op(), catalog.bytes().len());
                write!(f, "catalog txn {txn} op {op}, {bytes} bytes")
            }
            Record::AutoInc(mark) => {
                write!(
                    f,
                    "auto-increment table {} high mark {}",
                    mark.table().raw(),
                    mark.high_mark()
                )
            }
        }
    }
}

fn write_lists(
    f: &mut Formatter<'_>,
    deltas: impl Iterator<Item = crate::CountDelta>,
    voids: impl Iterator<Item = crate::VoidRange>,
) -> fmt::Result {
    for delta in deltas {
        write!(f, ", table {} rows {:+}", delta.table.raw(), delta.rows)?;
    }
    for range in voids {
        write!(f, ", void [{}, {})", range.from.raw(), range.to.raw())?;
    }
    Ok(())
}

impl Display for IngestRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (table, index, txn) = (self.table().raw(), self.index().raw(), self.txn().raw());
        let (first, last) = (self.first_row(), self.last_row());
        write!(
            f,
            "ingest table {table} index {index} txn {txn} rows {first}..={last}, {} in",
            self.rows()
        )?;
        for piece in self.pieces() {
            write!(f, " {}:{}:{}", piece.class, piece.segment, piece.section)?;
        }
        f.write_str(flag(self.record().is_first(), " first"))
    }
}

impl Display for RowRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = match self.kind() {
            RowKind::Insert => "insert",
            RowKind::Update => "update",
            RowKind::Delete => "delete",
        };
        let (table, row, txn) = (self.table().raw(), self.row().raw(), self.txn().raw());
        write!(
            f,
            "{verb} table {table} row {row} txn {txn} schema {}",
            self.schema_version()
        )?;
        write!(f, " prev {:#x}", self.prev().raw())?;
        if let Some(foreign) = self.foreign_prev() {
            write!(f, " foreign {:#x}", foreign.raw())?;
        }
        write!(
            f,
            "{}{}",
            flag(self.is_first(), " first"),
            flag(self.is_temporary(), " temporary")
        )?;
        write!(f, ", payload {} bytes", self.payload().len())?;
        write_images(f, self.key_images())
    }
}

fn flag(on: bool, word: &'static str) -> &'static str {
    if on { word } else { "" }
}

fn write_images(f: &mut Formatter<'_>, images: KeyImages<'_>) -> fmt::Result {
    for image in images {
        match image {
            Ok(image) => {
                let sign = if image.sign == Sign::Entry { '+' } else { '-' };
                write!(f, ", {sign}index {} key {:02x?}", image.index.raw(), image.key)?;
            }
            Err(fault) => write!(f, ", key images unreadable: {fault}")?,
        }
    }
    Ok(())
}

impl Debug for RecordRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Debug for Record<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Record::Filler => write!(f, "filler"),
            Record::Row(row) => write!(f, "{row}"),
            Record::End(end) => write!(f, "{:?} txn {}", end.outcome(), end.txn().raw()),
            Record::Prepare(prepare) => write!(f, "prepare txn {}", prepare.txn().raw()),
            Record::RollbackTo(rollback) => write!(f, "rollback-to {:?}", rollback.range()),
            Record::Catalog(catalog) => write!(f, "catalog op {}", catalog.op()),
            Record::AutoInc(mark) => write!(f, "auto-increment table {}", mark.table().raw()),
        }
    }
}
