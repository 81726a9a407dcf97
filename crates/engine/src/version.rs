//! Version: one version of a row as readers get it, wherever it is kept.
//!
//! Why it exists: the newest versions of a row are records of the hot log, settled ones slots of row blocks; who reads a
//! row must not care.
//! State: a found version keeps what it borrows alive: the log's chunk by the epoch guard, the block by its count.
//! Latches and I/O: none.

use crate::error::Result;
use crate::row_shape::CachedRows;
use pbxt_base::{Addr, Lsn, RowId, TxnId};
use pbxt_txlog::RowRef;
use pbxt_txn::Stamp;
use std::sync::Arc;

/// What a reader is shown of a row.
#[derive(Debug, Clone, Copy)]
pub struct RowVersion<'a> {
    row: RowId,
    payload: &'a [u8],
    schema_version: u16,
}

impl<'a> RowVersion<'a> {
    #[inline]
    pub(crate) fn new(row: RowId, payload: &'a [u8], schema_version: u16) -> Self {
        Self {
            row,
            payload,
            schema_version,
        }
    }

    /// Row id.
    #[inline]
    pub fn row(&self) -> RowId {
        self.row
    }

    /// Encoded columns.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Schema they were encoded with.
    #[inline]
    pub fn schema_version(&self) -> u16 {
        self.schema_version
    }
}

/// A version that a chain led to.
#[derive(Clone)]
pub(crate) enum Found<'g> {
    /// A record of the hot log.
    Hot(RowRef<'g>, Lsn),
    /// The same, written when the table had other columns: with the columns of now.
    Older {
        record: RowRef<'g>,
        lsn: Lsn,
        payload: Arc<[u8]>,
        version: u16,
    },
    /// A slot of a row block.
    Base(BaseRow),
    /// The same, not read: for who needs to know no more than that the row is there.
    Slot(Stamp),
}

/// A row in a row block; never a tombstone.
#[derive(Clone, Debug)]
pub(crate) struct BaseRow {
    pub block: Arc<CachedRows>,
    pub at: usize,
    /// Transaction 0 if settled, else that of the tagged run.
    pub stamp: Stamp,
}

impl Found<'_> {
    #[inline]
    pub(crate) fn payload(&self) -> &[u8] {
        match self {
            Self::Hot(record, _) => record.payload(),
            Self::Older { payload, .. } => payload,
            Self::Base(base) => base.block.payload(base.at).unwrap_or(&[]),
            Self::Slot(_) => &[],
        }
    }

    #[inline]
    pub(crate) fn schema_version(&self) -> u16 {
        match self {
            Self::Hot(record, _) => record.schema_version(),
            Self::Older { version, .. } => *version,
            Self::Base(base) => base.block.schema_version(),
            Self::Slot(_) => 0,
        }
    }

    /// Transaction that wrote it; 0 if nobody needs to know any more.
    #[inline]
    pub(crate) fn txn(&self) -> TxnId {
        match self {
            Self::Hot(record, _) | Self::Older { record, .. } => record.txn(),
            Self::Base(base) => base.stamp.txn,
            Self::Slot(stamp) => stamp.txn,
        }
    }

    /// What a version above it names as its predecessor.
    pub(crate) fn addr(&self) -> Addr {
        match self {
            Self::Hot(_, lsn) | Self::Older { lsn, .. } => Addr::hot(*lsn),
            Self::Base(_) | Self::Slot(_) => Addr::BASE,
        }
    }

    #[inline]
    pub(crate) fn version(&self, row: RowId) -> RowVersion<'_> {
        RowVersion::new(row, self.payload(), self.schema_version())
    }
}

/// What a host says to an index entry before the row behind it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The row is wanted, if the statement may see it.
    Wanted,
    /// It is not: the scan goes on without a look at it.
    Unwanted,
    /// The scan is over: no entry behind this one is wanted.
    Beyond,
}

/// Who is shown rows: the row itself, or what an index entry tells of it.
pub(crate) trait Show {
    /// A row that the statement may see.
    fn row(&mut self, version: &RowVersion<'_>) -> Result<()>;

    /// True if entries are to be held against `admit` before rows are read.
    #[inline]
    fn is_choosy(&self) -> bool {
        false
    }

    /// Whether the row of an entry is wanted (rule X16); only after `is_choosy`.
    fn admit(&mut self, key: &[u8], unpack: &[u8], row: RowId) -> Result<Admission> {
        let _ = (key, unpack, row);
        Ok(Admission::Wanted)
    }

    /// True if key and unpack information of the index being read tell all that is wanted.
    fn wants_key(&self) -> bool {
        false
    }

    /// A row that the statement may see, by its index entry; only after `wants_key`.
    fn key(&mut self, key: &[u8], unpack: &[u8]) -> Result<()> {
        let _ = (key, unpack);
        Ok(())
    }
}

impl<F: FnMut(&RowVersion<'_>) -> Result<()>> Show for F {
    fn row(&mut self, version: &RowVersion<'_>) -> Result<()> {
        self(version)
    }
}
