//! Piece blocks: the unit in which a piece file is compressed, checked and read.
//!
//! Why it exists: a reader wants one block of some kilobytes, not the file; so each block carries its own checksum and is
//! compressed by itself.
//! Format: docs/format.md#piece-files: checksum, stored length, raw length, codec, stored bytes.
//! Rules: F4 the checksum is seeded with class, segment and offset, so an intact block of another place does not pass.
//! F14 a block is decoded only after its checksum has passed, and must give exactly the bytes it was made of.
//! Latches and I/O: none; bytes in, bytes out. Decoders of zstd are kept one a thread, as each takes 100 KiB to make.

use crate::names::SegmentClass;
use pbxt_base::codec::{get_u32, put_u32};
use pbxt_base::{Error, Result, SegmentId, checksum};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Bytes before the stored bytes of a block.
pub(crate) const BLOCK_HEAD_BYTES: usize = 13;
/// Raw bytes of a block at most.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 30;
const CODEC_AT: usize = 12;

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    Plain,
    /// LZ4: decodes at memory speed; for blocks that are read at random.
    Lz4,
    /// Zstandard of this level: smaller; for blocks that are read seldom or in order.
    Zstd(i8),
}

/// Which block it is: what its checksum is seeded with, and what an error about it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace<'a> {
    pub(crate) file: &'a str,
    pub(crate) class: SegmentClass,
    pub(crate) id: SegmentId,
    pub(crate) offset: u64,
}

impl BlockPlace<'_> {
    /// Class, segment and offset as one number; different for any two places below 1 GiB.
    pub(crate) fn seed(&self) -> u64 {
        (self.class as u64) << 62 ^ u64::from(self.id.raw()) << 30 ^ self.offset
    }

    pub(crate) fn damaged(&self, expected: String, found: String) -> Error {
        Error::Corrupt {
            file: self.file.to_owned(),
            offset: self.offset,
            expected,
            found,
        }
    }
}

/// Makes blocks; keeps what the compressors need between blocks.
#[derive(Default)]
pub(crate) struct BlockEncoder {
    zstd: Option<(i8, Compressor<'static>)>,
    scratch: Vec<u8>,
}

impl BlockEncoder {
    /// Appends the block that holds `raw` to `out`; its bytes, head included. A block that does not shrink is stored plain.
    pub(crate) fn encode(
        &mut self,
        raw: &[u8],
        codec: Codec,
        place: &BlockPlace<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let number = self.compress(raw, codec, place.file)?;
        let stored = if number == 0 { raw } else { &self.scratch[..] };
        Ok(append(stored, raw.len(), number, place, out))
    }

    /// Compresses `raw`, for `exchange`. The codec's number: 0 if a block does not shrink, and is stored as it is.
    pub(crate) fn compress(&mut self, raw: &[u8], codec: Codec, file: &str) -> Result<u8> {
        if raw.len() > BLOCK_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "a block of a piece file",
                bytes: raw.len() as u64,
                limit: BLOCK_BYTES_MAX as u64,
            });
        }
        self.scratch.clear();
        let number = match codec {
            Codec::Plain => 0,
            Codec::Lz4 => self.lz4(raw),
            Codec::Zstd(level) => self.zstd(raw, level, file)?,
        };
        let shrinks = self.scratch.len() < raw.len();
        Ok(if shrinks { number } else { 0 })
    }

    /// Gives what was compressed last, and takes memory for the next.
    pub(crate) fn exchange(&mut self, stored: &mut Vec<u8>) {
        std::mem::swap(&mut self.scratch, stored);
    }

    fn lz4(&mut self, raw: &[u8]) -> u8 {
        self.scratch
            .resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let bytes = lz4_flex::block::compress_into(raw, &mut self.scratch);
        // Room for the worst case was made; should it fail all the same, the block is stored plain.
        self.scratch.truncate(bytes.unwrap_or(raw.len()));
        1
    }

    fn zstd(&mut self, raw: &[u8], level: i8, file: &str) -> Result<u8> {
        let failed = |source| Error::Io {
            file: file.to_owned(),
            op: "compress a block of",
            source,
        };
        if self.zstd.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            let made = Compressor::new(i32::from(level)).map_err(failed)?;
            self.zstd = Some((level, made));
        }
        if let Some((_, compressor)) = &mut self.zstd {
            self.scratch.reserve(zstd::zstd_safe::compress_bound(raw.len()));
            compressor
                .compress_to_buffer(raw, &mut self.scratch)
                .map_err(failed)?;
        }
        Ok(2)
    }
}

/// Appends the block whose `raw_bytes` became `stored` by the codec of this number; its bytes, head included.
pub(crate) fn append(
    stored: &[u8],
    raw_bytes: usize,
    number: u8,
    place: &BlockPlace<'_>,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    out.resize(start + BLOCK_HEAD_BYTES, 0);
    put_u32(out, start + 4, stored.len() as u32);
    put_u32(out, start + 8, raw_bytes as u32);
    out[start + CODEC_AT] = number;
    out.extend_from_slice(stored);
    let crc = checksum::crc32c(place.seed(), &out[start + 4..]);
    put_u32(out, start, crc);
    out.len() - start
}

thread_local! {
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Checks the block `stored`, head included, and puts what it was made of into `out` (replacing what that held).
pub(crate) fn decode(stored: &[u8], place: &BlockPlace<'_>, out: &mut Vec<u8>) -> Result<()> {
    let Some((head, body)) = stored.split_at_checked(BLOCK_HEAD_BYTES) else {
        return Err(place.damaged("a block".into(), format!("{} bytes", stored.len())));
    };
    let (crc, found) = (get_u32(head, 0), checksum::crc32c(place.seed(), &stored[4..]));
    if crc != found {
        return Err(place.damaged(
            format!("a block with checksum {crc:08x}"),
            format!("one with {found:08x}"),
        ));
    }
    let (stored_bytes, raw_bytes) = (get_u32(head, 4) as usize, get_u32(head, 8) as usize);
    if stored_bytes != body.len() || raw_bytes > BLOCK_BYTES_MAX {
        return Err(place.damaged(
            format!("a block of {} stored bytes", body.len()),
            format!("one of {stored_bytes}, from {raw_bytes}"),
        ));
    }
    // Before memory is taken: no codec gives more than this of so few bytes.
    let raw_max = raw_bytes_max(head[CODEC_AT], body.len());
    if raw_bytes > raw_max {
        return Err(place.damaged(
            format!("a block of at most {raw_max} bytes"),
            format!("one of {raw_bytes}"),
        ));
    }
    out.clear();
    match head[CODEC_AT] {
        0 => out.extend_from_slice(body),
        1 => {
            out.resize(raw_bytes, 0);
            let bytes = lz4_flex::block::decompress_into(body, out)
                .map_err(|error| place.damaged("a block that LZ4 decodes".into(), error.to_string()))?;
            out.truncate(bytes);
        }
        2 => decode_zstd(body, raw_bytes, out)
            .map_err(|error| place.damaged("a block that Zstandard decodes".into(), error.to_string()))?,
        other => {
            return Err(place.damaged(
                "a codec this version knows".into(),
                format!("codec {other}: written by a later version"),
            ));
        }
    }
    if out.len() != raw_bytes {
        return Err(place.damaged(
            format!("a block of {raw_bytes} bytes"),
            format!("{} bytes", out.len()),
        ));
    }
    Ok(())
}

/// What `stored` bytes can decode to: LZ4 repeats at most 255 bytes for one, Zstandard a block of 128 KiB for four.
fn raw_bytes_max(codec: u8, stored: usize) -> usize {
    match codec {
        0 => stored,
        1 => stored.saturating_mul(255),
        _ => stored.saturating_mul(32 << 10),
    }
}

fn decode_zstd(body: &[u8], raw_bytes: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
    out.reserve(raw_bytes);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(body, out).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u32, offset: u64) -> BlockPlace<'static> {
        BlockPlace {
            file: "cold-1",
            class: SegmentClass::Cold,
            id: SegmentId::new(id),
            offset,
        }
    }

    fn encoded(raw: &[u8], codec: Codec) -> Vec<u8> {
        let mut out = Vec::new();
        let bytes = BlockEncoder::default().encode(raw, codec, &place(1, 4096), &mut out);
        assert_eq!(bytes.expect("encoded"), out.len());
        out
    }

    #[test]
    fn blocks_of_every_codec_come_back_and_at_their_own_place_only() {
        let raw: Vec<u8> = (0..20_000_u32).map(|at| (at / 50) as u8).collect();
        let mut out = vec![9; 3];
        for (codec, number) in [
            (Codec::Plain, 0),
            (Codec::Lz4, 1),
            (Codec::Zstd(1), 2),
            (Codec::Zstd(9), 2),
        ] {
            let stored = encoded(&raw, codec);
            assert_eq!(stored[CODEC_AT], number);
            assert!(
                number == 0 || stored.len() < raw.len() / 4,
                "{codec:?}: {}",
                stored.len()
            );
            decode(&stored, &place(1, 4096), &mut out).expect("intact");
            assert_eq!(out, raw);
            for elsewhere in [place(2, 4096), place(1, 4109)] {
                assert!(
                    decode(&stored, &elsewhere, &mut out).is_err(),
                    "F4: {elsewhere:?}"
                );
            }
        }
    }

    #[test]
    fn a_block_that_does_not_shrink_is_stored_plain() {
        let mut state = 7_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .take(4096)
        .collect();
        for raw in [&noise[..], b"", b"a"] {
            for codec in [Codec::Lz4, Codec::Zstd(3)] {
                let stored = encoded(raw, codec);
                assert_eq!(
                    (stored[CODEC_AT], stored.len()),
                    (0, BLOCK_HEAD_BYTES + raw.len())
                );
                let mut out = Vec::new();
                decode(&stored, &place(1, 4096), &mut out).expect("intact");
                assert_eq!(out, raw);
            }
        }
    }

    #[test]
    fn a_block_that_promises_more_than_its_codec_can_give_takes_no_memory() {
        let raw = vec![7; 1 << 20];
        for codec in [Codec::Plain, Codec::Lz4, Codec::Zstd(9)] {
            let mut stored = encoded(&raw, codec);
            let mut out = Vec::new();
            decode(&stored, &place(1, 4096), &mut out).expect("as much as there is");
            put_u32(&mut stored, 8, BLOCK_BYTES_MAX as u32);
            let crc = checksum::crc32c(place(1, 4096).seed(), &stored[4..]);
            put_u32(&mut stored, 0, crc);
            let mut out = Vec::new();
            let refused = decode(&stored, &place(1, 4096), &mut out).expect_err("too many bytes");
            assert!(refused.to_string().contains("1073741824"), "{codec:?}: {refused}");
            assert!(out.capacity() < BLOCK_BYTES_MAX, "{codec:?}: {}", out.capacity());
        }
    }

    #[test]
    fn a_codec_of_a_later_version_is_refused_by_number() {
        let mut stored = encoded(b"abc", Codec::Plain);
        stored[CODEC_AT] = 7;
        let crc = checksum::crc32c(place(1, 4096).seed(), &stored[4..]);
        put_u32(&mut stored, 0, crc);
        let refused = decode(&stored, &place(1, 4096), &mut Vec::new()).expect_err("F12");
        assert!(
            refused.to_string().contains("'cold-1' is damaged at offset 4096"),
            "{refused}"
        );
        assert!(refused.to_string().contains("codec 7"), "{refused}");
    }
}
