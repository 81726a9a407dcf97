//! Image codec: the bytes of a transaction table image.
//!
//! Why it exists: a checkpoint embeds them in its own image; the one encoder and the one decoder are here.
//! Format: docs/transactions.md#10-transaction-table-image. The checkpoint brings the checksum.
//! Rules: T12, T25.
//! Latches and I/O: none.

use std::ops::Range;

use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_base::{Error, Result, codec};

use crate::image::{EndedAs, RestoredTxn, TxnTableImage};

const FORMAT: u32 = 1;
const FIXED_BYTES: usize = 32;
const ENTRY_BYTES: usize = 24;
const VOID_BYTES: usize = 16;

const PREPARED: u32 = 1;
const COMMITTED: u32 = 2;
const ABORTED: u32 = 3;

impl TxnTableImage {
    /// Numbers of transactions and commits are below this: the word of a transaction has 61 bits for a timestamp, and those of
    /// the next ones come on top.
    pub const NUMBERS_END: u64 = 1 << 60;

    /// The image as bytes, its transactions in rising order.
    pub fn encode(&self) -> Vec<u8> {
        let mut entries: Vec<&RestoredTxn> = self.exceptions.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        let voids: usize = entries.iter().map(|entry| entry.voids.len()).sum();
        let mut out = vec![0; FIXED_BYTES + entries.len() * ENTRY_BYTES + voids * VOID_BYTES];
        codec::put_u32(&mut out, 0, FORMAT);
        codec::put_u64(&mut out, 8, self.next.raw());
        codec::put_u64(&mut out, 16, self.last_ts.raw());
        codec::put_u64(&mut out, 24, entries.len() as u64);
        let mut at = FIXED_BYTES;
        for entry in entries {
            at = put_entry(&mut out, at, entry);
        }
        out
    }

    /// The image that `bytes` hold; `file` and `offset` say where they come from.
    ///
    /// # Errors
    /// `Corrupt` if they are not exactly the image of a transaction table.
    pub fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<TxnTableImage> {
        let mut reader = Reader {
            bytes,
            at: 0,
            file,
            offset,
        };
        let fixed = reader.take(FIXED_BYTES)?;
        let format = codec::get_u32(fixed, 0);
        if format != FORMAT {
            return Err(reader.damage("transaction table image of format 1", &format.to_string()));
        }
        let mut image = TxnTableImage {
            next: TxnId::new(codec::get_u64(fixed, 8)),
            last_ts: CommitTs::new(codec::get_u64(fixed, 16)),
            exceptions: Vec::new(),
        };
        let greatest = image.next.raw().max(image.last_ts.raw());
        if greatest >= Self::NUMBERS_END {
            let expected = format!("numbers of transactions and commits below {}", Self::NUMBERS_END);
            return Err(reader.damage(&expected, &greatest.to_string()));
        }
        let mut last = TxnId::new(0);
        for _ in 0..codec::get_u64(fixed, 24) {
            let entry = reader.take_entry()?;
            if entry.id <= last || entry.id >= image.next {
                let expected = format!("a transaction id above {last} and below {}", image.next);
                return Err(reader.damage(&expected, &entry.id.to_string()));
            }
            if let EndedAs::Committed(ts) = entry.ended
                && ts > image.last_ts
            {
                let expected = format!("a commit up to the last one, {}", image.last_ts);
                return Err(reader.damage(&expected, &ts.to_string()));
            }
            last = entry.id;
            image.exceptions.push(entry);
        }
        if reader.at == bytes.len() {
            return Ok(image);
        }
        let found = format!("{} more bytes", bytes.len() - reader.at);
        Err(reader.damage("the end of the transaction table image", &found))
    }
}

fn put_entry(out: &mut [u8], at: usize, entry: &RestoredTxn) -> usize {
    let (state, ts) = match entry.ended {
        EndedAs::Prepared => (PREPARED, 0),
        EndedAs::Committed(ts) => (COMMITTED, ts.raw()),
        EndedAs::Aborted => (ABORTED, 0),
    };
    codec::put_u64(out, at, entry.id.raw());
    codec::put_u32(out, at + 8, state);
    codec::put_u32(out, at + 12, entry.voids.len() as u32);
    codec::put_u64(out, at + 16, ts);
    let mut at = at + ENTRY_BYTES;
    for range in &entry.voids {
        codec::put_u64(out, at, range.start.raw());
        codec::put_u64(out, at + 8, range.end.raw());
        at += VOID_BYTES;
    }
    at
}

/// The bytes not yet read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    file: &'a str,
    offset: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            let expected = format!("{len} more bytes of the transaction table image");
            return Err(self.damage(&expected, &rest.len().to_string()));
        };
        self.at += len;
        Ok(taken)
    }

    fn take_entry(&mut self) -> Result<RestoredTxn> {
        let fixed = self.take(ENTRY_BYTES)?;
        let ended = match codec::get_u32(fixed, 8) {
            PREPARED => EndedAs::Prepared,
            COMMITTED => EndedAs::Committed(CommitTs::new(codec::get_u64(fixed, 16))),
            ABORTED => EndedAs::Aborted,
            other => return Err(self.damage("a transaction state from 1 to 3", &other.to_string())),
        };
        let count = codec::get_u32(fixed, 12) as usize;
        let voids = self.take(count.saturating_mul(VOID_BYTES))?;
        let voids: Vec<Range<Lsn>> = voids
            .chunks_exact(VOID_BYTES)
            .map(|range| Lsn::new(codec::get_u64(range, 0))..Lsn::new(codec::get_u64(range, 8)))
            .collect();
        if let Some(range) = voids.iter().find(|range| range.start >= range.end) {
            return Err(self.damage("a void range of at least one byte", &format!("{range:?}")));
        }
        Ok(RestoredTxn {
            id: TxnId::new(codec::get_u64(fixed, 0)),
            ended,
            voids,
        })
    }

    #[cold]
    fn damage(&self, expected: &str, found: &str) -> Error {
        Error::Corrupt {
            file: self.file.to_owned(),
            offset: self.offset + self.at as u64,
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }
}
