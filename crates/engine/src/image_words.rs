//! Image words: the words of a row map as a checkpoint image keeps them.
//!
//! Why it exists: ten million hot rows are eighty megabytes of words, in which neighbours are alike: rows were mostly
//! written one behind the other. Differences take a byte or two, and Zstandard makes most of those vanish.
//! Format: docs/format-checkpoint.md#words. A part stands for itself: one leaf of a map at most.
//! Rules: B4 a word below the start of the log says the same as no word, and is left out. The LOCKED bit is never saved:
//! explicit locks die with the process.

use pbxt_base::codec::{Reader, push_u8, put_varint};
use pbxt_base::{Addr, AddrClass, Error, Lsn, Result, RowId};
use pbxt_rowmap::MapWord;

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

/// Calls `found` for every row of a part, in order.
pub(crate) fn decode_words(part: &[u8], mut found: impl FnMut(RowId, MapWord)) -> Result<()> {
    let mut rows = Reader::new(part);
    let mut row = rows.varint()?;
    let count = rows.varint()?;
    let is_dense = rows.u8()? & DENSE != 0;
    let mut places = rows.clone();
    if !is_dense {
        for _ in 0..count {
            places.varint()?;
        }
    }
    let mut last = 0_u64;
    for number in 0..count {
        if !is_dense {
            row += rows.varint()?;
        } else if number > 0 {
            row += 1;
        }
        let code = places.varint()?;
        last = last.wrapping_add(unzigzag(code >> 1).cast_unsigned());
        let addr = Addr::hot(Lsn::new(last.wrapping_mul(ALIGN)));
        if addr.is_none() || row == 0 {
            return Err(Error::Corrupt {
                file: String::new(),
                offset: places.position() as u64,
                expected: "the address of a row in the log".into(),
                found: format!("{addr:?} of row {row}"),
            });
        }
        let word = if code & 1 == 0 {
            MapWord::version(addr)
        } else {
            MapWord::tombstone(addr)
        };
        found(RowId::new(row), word);
    }
    Ok(())
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

    fn decoded(part: &[u8]) -> Vec<(u64, MapWord)> {
        let mut words = Vec::new();
        decode_words(part, |row, word| words.push((row.raw(), word))).expect("a whole part");
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
                decode_words(&part[..length], |_, _| {}).is_err(),
                "{length} bytes"
            );
        }
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
