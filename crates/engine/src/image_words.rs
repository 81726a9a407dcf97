//! Image words: the words of a row map as a checkpoint image keeps them.
//!
//! Why it exists: ten million hot rows are eighty megabytes of words, in which neighbours are alike: rows were mostly
//! written one behind the other. Differences take a byte or two, and Zstandard makes most of those vanish.
//! Format: docs/format-checkpoint.md#words. A part stands for itself: one leaf of a map at most.
//! Rules: F5 a part is believed only if rows rise within one leaf and words name records of the log. B4 a word below the start of the log says the same as no word, and is left out. The LOCKED bit is never saved:
//! explicit locks die with the process.

use pbxt_base::codec::{Reader, push_u8, put_varint};
use pbxt_base::{Addr, AddrClass, Error, Lsn, Result, RowId};
use pbxt_rowmap::{LEAF_WORDS, MapWord, ROW_MAX};
use std::ops::Range;

/// Records of the log stand at multiples of this.
const ALIGN: u64 = pbxt_txlog::RECORD_ALIGN as u64;
/// Flag: the rows follow each other without gaps.
const DENSE: u8 = 1;

/// Appends the words of the rows `first..` that name a version at or above `log_start`; false if there is none.
pub(crate) fn encode_words(first: u64, words: &[u64], log_start: Lsn, out: &mut Vec<u8>) -> bool {
    let kept = |raw: &u64| {
        let word = MapWord::from_raw(*raw);
        let addr = word.addr();
        !addr.is_none() && addr.class() == AddrClass::Hot && addr.lsn() >= log_start
    };
    let Some(begin) = words.iter().position(kept) else {
        return false;
    };
    let end = words.iter().rposition(kept).map_or(begin, |last| last + 1);
    let count = words[begin..end].iter().filter(|raw| kept(raw)).count();
    let is_dense = count == end - begin;
    put_varint(out, first + begin as u64);
    put_varint(out, count as u64);
    push_u8(out, if is_dense { DENSE } else { 0 });
    if !is_dense {
        let mut last = begin;
        for (at, _) in words[begin..end].iter().enumerate().filter(|(_, raw)| kept(raw)) {
            put_varint(out, (begin + at - last) as u64);
            last = begin + at;
        }
    }
    let mut last = 0;
    for raw in words[begin..end].iter().filter(|raw| kept(raw)) {
        let word = MapWord::from_raw(*raw);
        let place = word.addr().lsn().raw() / ALIGN;
        let step = zigzag(place.wrapping_sub(last).cast_signed());
        put_varint(out, step << 1 | u64::from(word.is_tombstone()));
        last = place;
    }
    true
}

/// Calls `found` for every row of a part, in order. `log`: where the records are that a word may name.
///
/// # Errors
/// `Corrupt`, without a file's name, if it is not a part that `encode_words` writes.
pub(crate) fn decode_words(
    part: &[u8],
    log: &Range<Lsn>,
    mut found: impl FnMut(RowId, MapWord),
) -> Result<()> {
    let mut rows = Reader::new(part);
    let mut row = rows.varint()?;
    let count = rows.varint()?;
    let is_dense = match rows.u8()? {
        DENSE => true,
        0 => false,
        other => return Err(damaged(&rows, "a flag for gaps, 0 or 1", &other.to_string())),
    };
    let leaf_end = (row | (LEAF_WORDS as u64 - 1)).min(ROW_MAX);
    let mut places = rows.clone();
    if !is_dense {
        for _ in 0..count {
            places.varint()?;
        }
    }
    let mut last = 0_u64;
    for number in 0..count {
        let step = if is_dense { 1 } else { rows.varint()? };
        // The first row is named already.
        let step = if number == 0 && is_dense { 0 } else { step };
        let next = row.checked_add(step).filter(|next| *next <= leaf_end);
        row = next
            .filter(|next| *next > 0 && (number == 0) == (step == 0))
            .ok_or_else(|| {
                let expected = format!("the next row of a leaf that ends with row {leaf_end}");
                damaged(&rows, &expected, &format!("row {row} and {step}"))
            })?;
        let code = places.varint()?;
        last = last.wrapping_add(unzigzag(code >> 1).cast_unsigned());
        let lsn = last.checked_mul(ALIGN).map(Lsn::new);
        let lsn = lsn
            .filter(|lsn| log.contains(lsn) && lsn.raw() != 0)
            .ok_or_else(|| {
                let expected = format!("a record of the log from {} to {}", log.start, log.end);
                damaged(&places, &expected, &format!("{last} times {ALIGN} for row {row}"))
            })?;
        let addr = Addr::hot(lsn);
        let word = if code & 1 == 0 {
            MapWord::version(addr)
        } else {
            MapWord::tombstone(addr)
        };
        found(RowId::new(row), word);
    }
    places.end()
}

fn damaged(reader: &Reader<'_>, expected: &str, found: &str) -> Error {
    Error::Corrupt {
        file: String::new(),
        offset: reader.position() as u64,
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// Small numbers of either sign become small numbers.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -(code & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: Range<Lsn> = Lsn::new(0)..Lsn::new(1 << 59);

    fn decoded(part: &[u8]) -> Vec<(u64, MapWord)> {
        let mut words = Vec::new();
        decode_words(part, &EVERYWHERE, |row, word| words.push((row.raw(), word))).expect("a whole part");
        words
    }

    #[test]
    fn words_come_back_without_locks_and_without_what_lies_below_the_log() {
        type Case<'c> = (&'c [MapWord], &'c [(u64, MapWord)]);
        let at = |lsn| MapWord::version(Addr::hot(Lsn::new(lsn)));
        let gone = MapWord::tombstone(Addr::hot(Lsn::new(4096)));
        let cases: [Case<'_>; 5] = [
            (&[], &[]),
            (&[MapWord::ABSENT.with_lock(), at(504)], &[]),
            (&[at(512).with_lock(), gone], &[(70, at(512)), (71, gone)]),
            (
                &[MapWord::ABSENT, at(1 << 40), at(8), MapWord::ABSENT, at(512)],
                &[(71, at(1 << 40)), (74, at(512))],
            ),
            (
                &[at((1 << 57) - 8), at(512)],
                &[(70, at((1 << 57) - 8)), (71, at(512))],
            ),
        ];
        for (words, expected) in cases {
            let raw: Vec<u64> = words.iter().map(|word| word.raw()).collect();
            let mut part = Vec::new();
            let any = encode_words(70, &raw, Lsn::new(512), &mut part);
            assert_eq!(any, !expected.is_empty());
            assert_eq!(part.is_empty(), !any);
            if any {
                assert_eq!(decoded(&part), expected);
            }
        }
    }

    #[test]
    fn a_part_that_is_cut_off_is_an_error_and_no_panic() {
        let raw: Vec<u64> = [1_u64 << 20, 0, 8 << 20, 16]
            .map(|lsn| {
                if lsn == 0 {
                    0
                } else {
                    MapWord::version(Addr::hot(Lsn::new(lsn))).raw()
                }
            })
            .to_vec();
        let mut part = Vec::new();
        assert!(encode_words(1, &raw, Lsn::new(0), &mut part));
        for length in 0..part.len() {
            assert!(
                decode_words(&part[..length], &EVERYWHERE, |_, _| {}).is_err(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn a_part_with_rows_or_addresses_that_cannot_be_is_refused() {
        let refused = |fields: &[u64], expected: &str| {
            let mut part = Vec::new();
            for field in fields {
                put_varint(&mut part, *field);
            }
            let log = Lsn::new(64)..Lsn::new(1 << 20);
            let mut rows = 0;
            let error = decode_words(&part, &log, |_, _| rows += 1).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
            rows
        };
        let step = |lsn: u64| zigzag((lsn / ALIGN).cast_signed()) << 1;
        refused(&[0, 1, 1, step(64)], "the next row of a leaf");
        refused(&[u64::MAX, 2, 1, step(64), 0], "the next row of a leaf");
        refused(&[ROW_MAX + 1, 1, 1, step(64)], "the next row of a leaf");
        assert_eq!(
            refused(&[ROW_MAX, 2, 1, step(64), 0], "the next row of a leaf"),
            1
        );
        assert_eq!(refused(&[4095, 2, 1, step(64), 0], "the next row of a leaf"), 1);
        refused(&[4097, 2, 0, 0, u64::MAX, step(64), 0], "the next row of a leaf");
        refused(&[4097, 2, 0, 0, 0, step(64), 0], "the next row of a leaf");
        refused(&[4097, 1, 0, 3, step(64)], "the next row of a leaf");
        refused(&[4096, u64::MAX, 1, step(64)], "more bytes");
        refused(&[4096, u64::MAX, 0, 0, 1], "more bytes");
        refused(&[4096, 1, 2, step(64)], "a flag for gaps");
        refused(&[4096, 1, 1, step(64), 0], "expected the end, found 1 more");
        refused(&[4096, 1, 1, step(56)], "a record of the log from 64 to 1048576");
        refused(&[4096, 1, 1, step(1 << 20)], "a record of the log");
        refused(&[4096, 1, 1, u64::MAX], "a record of the log");
        refused(&[4096, 1, 1, 0], "a record of the log");
    }

    #[test]
    fn rows_written_in_order_take_two_bytes_each_before_compression() {
        let raw: Vec<u64> = (1..=4096_u64)
            .map(|row| MapWord::version(Addr::hot(Lsn::new(row * 160))).raw())
            .collect();
        let mut part = Vec::new();
        assert!(encode_words(4096, &raw, Lsn::new(0), &mut part));
        assert!(part.len() <= 4096 * 2, "{} bytes", part.len());
    }
}
