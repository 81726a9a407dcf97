//! Tail: the last bytes of a piece file, which say where its directory is.
//!
//! Why it exists: a piece file is written in one go and read from its end; a file without a tail was never finished.
//! Format: docs/format.md#piece-files, tail.
//! Rules: F4 the checksum is seeded with class, segment and offset. F14 the hash covers all bytes before the tail.

use crate::piece_block::BlockPlace;
use pbxt_base::codec::{get_u32, get_u64, put_u32, put_u64};
use pbxt_base::{Result, checksum};

/// Bytes of a tail.
pub(crate) const TAIL_BYTES: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"PBXTPCE1");
const CRC_AT: usize = TAIL_BYTES - 4;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceTail {
    pub(crate) directory_at: u64,
    /// Bytes of the directory's block, head included.
    pub(crate) directory_bytes: u32,
    /// XXH3 of all before the tail.
    pub(crate) hash: u64,
}

impl PieceTail {
    pub(crate) fn encode(&self, place: &BlockPlace<'_>, out: &mut Vec<u8>) {
        let mut bytes = [0; TAIL_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u64(&mut bytes, 8, self.directory_at);
        put_u64(&mut bytes, 16, self.hash);
        put_u32(&mut bytes, 24, self.directory_bytes);
        let crc = checksum::crc32c(place.seed(), &bytes[..CRC_AT]);
        put_u32(&mut bytes, CRC_AT, crc);
        out.extend_from_slice(&bytes);
    }

    pub(crate) fn decode(bytes: &[u8; TAIL_BYTES], place: &BlockPlace<'_>) -> Result<Self> {
        if get_u64(bytes, 0) != MAGIC {
            let found = format!(
                "{:016x}: the file was never finished, or its end is missing",
                get_u64(bytes, 0)
            );
            return Err(place.damaged("the tail of a piece file".into(), found));
        }
        let (crc, stored) = (
            checksum::crc32c(place.seed(), &bytes[..CRC_AT]),
            get_u32(bytes, CRC_AT),
        );
        if crc != stored {
            return Err(place.damaged(format!("tail checksum {crc:08x}"), format!("{stored:08x}")));
        }
        Ok(Self {
            directory_at: get_u64(bytes, 8),
            directory_bytes: get_u32(bytes, 24),
            hash: get_u64(bytes, 16),
        })
    }
}
