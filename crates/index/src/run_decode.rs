//! Decoding of a run block: stored bytes in, entries one after the other out.
//!
//! Why it exists:    the counterpart of `run_encode`; it trusts no length before it was checked.
//! Format / state:   `docs/indexes.md`, run blocks.
//! Rules:            X30 damage is an error that says where, never a panic; a block that claims to be larger than any
//!                   block can be is refused before memory is taken. X31 a tag gives all entries its stamp.
//! Latches and I/O:  none.

use std::cell::RefCell;
use std::io;

use pbxt_base::codec::Reader;
use pbxt_base::{Lsn, Result, RowId, TxnId};

use zstd::bulk::Decompressor;

use crate::columns::{self, damaged, unzigzag};
use crate::entry::{KEY_AT, KEY_BYTES_MAX, NewEntry, ROW_BITS, Sign};
use crate::run_encode::{
    Alignment, BLOCK_BYTES, COLUMNS_KNOWN, HAS_LSN, HAS_REPEATS, HAS_SIGN, HAS_SUFFIXES, HAS_TXN, HAS_UNPACK,
    KEYS_ARE_NUMBERS, ROWS_OFF_KEY_4, ROWS_OFF_KEY_8, ROWS_STEPS, STREAM_PLAIN, STREAM_ZSTD, UNPACK_NUMBERS,
    UNPACK_OFF_KEY, UNPACK_TEXT, tail_number,
};
use crate::run_suffix::{SuffixWalk, Suffixes};

/// A full block and one entry of the largest size.
pub(crate) const DECODED_BYTES_MAX: usize = BLOCK_BYTES + 2 * KEY_BYTES_MAX + 64;
/// The smallest entry takes 32 bytes.
const ENTRIES_MAX: u64 = (DECODED_BYTES_MAX / 32) as u64;

/// A block's columns as read, before they are made entries.
pub(crate) struct Columns<'a> {
    pub(crate) entries: usize,
    /// Entries of each key but the first.
    repeats: Option<Vec<u64>>,
    pub(crate) keys: Keys<'a>,
    pub(crate) key_count: usize,
    row_form: u8,
    first_row: u64,
    /// First row ids of the second and all further keys, in their form.
    other_rows: Vec<u64>,
    pub(crate) next_rows: Vec<u64>,
    suffixes: Option<Suffixes>,
    lsns: Option<Vec<u64>>,
    txns: Option<Vec<u64>>,
    signs: Option<Vec<u64>>,
    unpack_lens: Option<Vec<u64>>,
    unpack: Vec<u8>,
    /// The unpack information is off the key's bytes, so aligned.
    off_key: Option<Alignment>,
}

pub(crate) enum Keys<'a> {
    Texts {
        lens: Vec<u64>,
        /// Bytes that a key shares with the one before.
        shared: Vec<u64>,
        text: Vec<u8>,
    },
    Numbers {
        first: &'a [u8],
        steps: Vec<u64>,
    },
}

impl<'a> Columns<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Columns<'a>> {
        let (has, row_form) = (reader.u8()?, reader.u8()?);
        if has & !COLUMNS_KNOWN != 0 || row_form > ROWS_OFF_KEY_8 {
            let found = format!("{has:#04x} and {row_form}");
            return Err(damaged(reader, "known columns and form of row ids", &found));
        }
        let entries = count(reader, ENTRIES_MAX)?;
        let repeats = (has & HAS_REPEATS != 0)
            .then(|| read_repeats(reader, entries))
            .transpose()?;
        let key_count = repeats.as_ref().map_or(entries, Vec::len);
        let keys = Keys::read(reader, key_count, has & KEYS_ARE_NUMBERS != 0)?;
        let first_row = reader.varint()?;
        let other_rows = columns::get(reader, key_count - 1)?;
        let next_rows = if has & HAS_REPEATS != 0 {
            columns::get(reader, entries - key_count)?
        } else {
            Vec::new()
        };
        let suffixes = (has & HAS_SUFFIXES != 0)
            .then(|| Suffixes::read(reader, entries, key_count))
            .transpose()?;
        let mut column = |bit: u8| {
            (has & bit != 0)
                .then(|| columns::get(reader, entries))
                .transpose()
        };
        Columns {
            entries,
            repeats,
            keys,
            key_count,
            row_form,
            first_row,
            other_rows,
            next_rows,
            suffixes,
            lsns: column(HAS_LSN)?,
            txns: column(HAS_TXN)?,
            signs: column(HAS_SIGN)?,
            unpack_lens: None,
            unpack: Vec::new(),
            off_key: None,
        }
        .with_unpack(reader, has & HAS_UNPACK != 0)
    }

    fn with_unpack(mut self, reader: &mut Reader<'a>, has: bool) -> Result<Columns<'a>> {
        if !has {
            return Ok(self);
        }
        let lens = columns::get(reader, self.entries)?;
        match reader.u8()? {
            UNPACK_TEXT => self.unpack = stream(reader)?,
            UNPACK_OFF_KEY => {
                self.off_key = Some(Alignment {
                    offset: reader.u8()?.cast_signed(),
                    chunk: reader.u8()?,
                });
                self.unpack = stream(reader)?;
            }
            UNPACK_NUMBERS => {
                let numbers = columns::get(reader, self.entries)?;
                for (&len, mut number) in lens.iter().zip(numbers) {
                    if len > 8 {
                        return Err(damaged(reader, "a number of at most 8 bytes", &len.to_string()));
                    }
                    for _ in 0..len {
                        self.unpack.push(number as u8);
                        number >>= 8;
                    }
                }
            }
            form => {
                let found = format!("form {form}");
                return Err(damaged(reader, "unpack information of form 0, 1 or 2", &found));
            }
        }
        self.unpack_lens = Some(lens);
        Ok(self)
    }

    /// Bytes that the decoded entries take; so all lengths are checked before memory is taken.
    pub(crate) fn memory_bytes(&self, reader: &Reader<'_>) -> Result<usize> {
        let mut sum = 0_u64;
        let mut unpack_sum = 0_u64;
        let mut entry = 0;
        let suffix_bytes = self.suffix_bytes() as u64;
        for key in 0..self.key_count {
            let key_len = self.keys.len_of(key).saturating_add(suffix_bytes);
            for _ in 0..=self.repeats_of(key) {
                let unpack_len = self.unpack_lens.as_ref().map_or(0, |lens| lens[entry]);
                if key_len > KEY_BYTES_MAX as u64 || unpack_len > KEY_BYTES_MAX as u64 {
                    let found = format!("{key_len} and {unpack_len}");
                    return Err(damaged(
                        reader,
                        "a key and unpack information of 16-bit length",
                        &found,
                    ));
                }
                unpack_sum += unpack_len;
                sum += (KEY_AT as u64 + key_len + unpack_len).next_multiple_of(8);
                entry += 1;
            }
        }
        if unpack_sum != self.unpack.len() as u64 {
            let expected = format!("{unpack_sum} bytes of unpack information");
            return Err(damaged(reader, &expected, &self.unpack.len().to_string()));
        }
        if sum > DECODED_BYTES_MAX as u64 {
            let expected = format!("at most {DECODED_BYTES_MAX} bytes of entries");
            return Err(damaged(reader, &expected, &sum.to_string()));
        }
        Ok(sum as usize)
    }

    /// True if all entries have one stamp and put rows under their keys. A tag stands for the stamps of all.
    pub(crate) fn have_one_stamp(&self, is_tagged: bool) -> bool {
        self.signs.is_none() && (is_tagged || (self.lsns.is_none() && self.txns.is_none()))
    }

    /// True if entries have unpack information.
    pub(crate) fn has_unpack(&self) -> bool {
        self.unpack_lens.is_some()
    }

    pub(crate) fn suffix_bytes(&self) -> usize {
        self.suffixes.as_ref().map_or(0, |suffixes| suffixes.bytes)
    }

    pub(crate) fn repeats_of(&self, key: usize) -> u64 {
        self.repeats.as_ref().map_or(0, |repeats| repeats[key])
    }

    /// Gives all entries in order; `memory_bytes` has checked their lengths.
    pub(crate) fn each(
        &self,
        reader: &Reader<'_>,
        tag: Option<(TxnId, Lsn)>,
        mut give: impl FnMut(&NewEntry<'_>),
    ) -> Result<()> {
        let at = |column: &Option<Vec<u64>>, entry: usize| column.as_ref().map(|column| column[entry]);
        let mut unpack = self.unpack.as_slice();
        let mut next_rows = self.next_rows.iter();
        let (mut key, mut text_at) = (Vec::new(), 0);
        let (mut first_row, mut entry) = (0, 0);
        let (mut restored, mut walk) = (Vec::new(), SuffixWalk::default());
        for number in 0..self.key_count {
            if !self.keys.step(number, &mut key, &mut text_at) {
                let found = format!("key {number} that does not fit");
                return Err(damaged(reader, "keys made of the ones before", &found));
            }
            let bare = key.len();
            first_row = self.first_row_of(number, tail_number(&key, 8), first_row);
            let mut row = first_row;
            for repeat in 0..=self.repeats_of(number) {
                if repeat > 0 {
                    row = self.next_row(row, next_rows.next().copied().unwrap_or_default());
                }
                if row >> ROW_BITS != 0 {
                    return Err(damaged(reader, "row ids of 48 bits", &row.to_string()));
                }
                let (own, rest) = unpack.split_at(at(&self.unpack_lens, entry).unwrap_or(0) as usize);
                unpack = rest;
                let own = match self.off_key {
                    None => own,
                    Some(alignment) => {
                        let back =
                            |(at, byte): (usize, &u8)| byte.wrapping_add(alignment.like_of(&key[..bare], at));
                        restored.clear();
                        restored.extend(own.iter().enumerate().map(back));
                        &restored
                    }
                };
                let begins = (repeat == 0).then_some(number);
                self.set_suffix(reader, &mut key, bare, &mut walk, (begins, row))?;
                let (txn, lsn) = tag.unwrap_or_else(|| {
                    let (txn, lsn) = (at(&self.txns, entry), at(&self.lsns, entry));
                    (TxnId::new(txn.unwrap_or(0)), Lsn::new(lsn.unwrap_or(0)))
                });
                let is_anti = at(&self.signs, entry) == Some(Sign::Anti as u64);
                give(&NewEntry {
                    key: &key,
                    row: RowId::new(row),
                    txn,
                    lsn,
                    sign: if is_anti { Sign::Anti } else { Sign::Entry },
                    unpack: own,
                });
                entry += 1;
            }
            key.truncate(bare);
        }
        Ok(())
    }

    /// Puts the suffix of the next entry behind the first `bare` bytes of its key.
    fn set_suffix(
        &self,
        reader: &Reader<'_>,
        key: &mut Vec<u8>,
        bare: usize,
        walk: &mut SuffixWalk,
        (begins, row): (Option<usize>, u64),
    ) -> Result<()> {
        let bytes = self.suffix_bytes();
        if bytes == 0 {
            return Ok(());
        }
        let suffix = self.suffix_of(reader, walk, begins, row)?;
        key.truncate(bare);
        // The lowest bytes of the number, the highest of them first.
        key.extend_from_slice(&suffix.swap_bytes().to_le_bytes()[8 - bytes..]);
        Ok(())
    }

    /// The suffix of the next entry, of row `row`; `begins` is the number of the key that it begins, none if it begins none. 0 in a block
    /// without suffixes.
    #[inline]
    pub(crate) fn suffix_of(
        &self,
        reader: &Reader<'_>,
        walk: &mut SuffixWalk,
        begins: Option<usize>,
        row: u64,
    ) -> Result<u64> {
        let Some(suffixes) = &self.suffixes else {
            return Ok(0);
        };
        suffixes.next(walk, begins, row).ok_or_else(|| {
            let expected = format!("a suffix of {} bytes", suffixes.bytes);
            damaged(reader, &expected, "a greater number")
        })
    }

    /// The row id `step` behind `row` under one key.
    #[inline]
    pub(crate) fn next_row(&self, row: u64, step: u64) -> u64 {
        match &self.suffixes {
            Some(suffixes) => suffixes.next_row(row, step),
            None => row.wrapping_add(step),
        }
    }

    /// The first row id under key number `number`, whose last eight bytes are `tail`, behind the first one under the key before.
    #[inline]
    pub(crate) fn first_row_of(&self, number: usize, tail: u64, before: u64) -> u64 {
        let other = number.checked_sub(1).map(|index| self.other_rows[index]);
        let off_key = |tail| {
            let off = other.map_or(0, unzigzag);
            self.first_row.wrapping_add(off).wrapping_add(tail)
        };
        match (self.row_form, other) {
            (ROWS_OFF_KEY_4, _) => off_key(tail & u64::from(u32::MAX)),
            (ROWS_OFF_KEY_8, _) => off_key(tail),
            (_, None) => self.first_row,
            (ROWS_STEPS, Some(step)) => before.wrapping_add(unzigzag(step)),
            (_, Some(other)) => other,
        }
    }
}

impl<'a> Keys<'a> {
    fn read(reader: &mut Reader<'a>, count: usize, are_numbers: bool) -> Result<Keys<'a>> {
        if are_numbers {
            let first = reader.length_prefixed()?;
            let steps = columns::get(reader, count - 1)?;
            return Ok(Keys::Numbers { first, steps });
        }
        Ok(Keys::Texts {
            lens: columns::get(reader, count)?,
            shared: columns::get(reader, count - 1)?,
            text: stream(reader)?,
        })
    }

    fn len_of(&self, key: usize) -> u64 {
        match self {
            Keys::Texts { lens, .. } => lens[key],
            Keys::Numbers { first, .. } => first.len() as u64,
        }
    }

    /// Turns the key before into key `number`; false if that cannot be.
    fn step(&self, number: usize, key: &mut Vec<u8>, text_at: &mut usize) -> bool {
        match self {
            Keys::Numbers { first, steps } => {
                let Some(before) = number.checked_sub(1) else {
                    key.extend_from_slice(first);
                    return true;
                };
                add_to_tail(key, steps[before])
            }
            Keys::Texts { lens, shared, text } => {
                let same = number.checked_sub(1).map_or(0, |before| shared[before]);
                let Some(more) = lens[number].checked_sub(same) else {
                    return false;
                };
                if same > key.len() as u64 || more > (text.len() - *text_at) as u64 {
                    return false;
                }
                key.truncate(same as usize);
                key.extend_from_slice(&text[*text_at..*text_at + more as usize]);
                *text_at += more as usize;
                true
            }
        }
    }
}

/// Adds `step + 1` to the number that the last eight bytes of the key make; false if they cannot hold it.
fn add_to_tail(key: &mut [u8], step: u64) -> bool {
    let from = key.len().saturating_sub(8);
    let sum = tail_number(key, 8)
        .checked_add(step)
        .and_then(|sum| sum.checked_add(1));
    let Some(mut rest) = sum else { return false };
    for byte in key[from..].iter_mut().rev() {
        *byte = rest as u8;
        rest >>= 8;
    }
    rest == 0
}

/// A number of things, 1 to `max`.
fn count(reader: &mut Reader<'_>, max: u64) -> Result<usize> {
    let count = reader.varint()?;
    if count == 0 || count > max {
        let expected = format!("a count of 1 to {max}");
        return Err(damaged(reader, &expected, &count.to_string()));
    }
    Ok(count as usize)
}

fn read_repeats(reader: &mut Reader<'_>, entries: usize) -> Result<Vec<u64>> {
    let keys = count(reader, entries as u64)?;
    let repeats = columns::get(reader, keys)?;
    let sum = repeats.iter().fold(0_u64, |sum, &more| sum.saturating_add(more));
    if sum != (entries - keys) as u64 {
        let expected = format!("{} entries that repeat a key", entries - keys);
        return Err(damaged(reader, &expected, &sum.to_string()));
    }
    Ok(repeats)
}

/// Bytes that may be compressed.
fn stream(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    let len = reader.varint()?;
    if len > DECODED_BYTES_MAX as u64 {
        let expected = format!("at most {DECODED_BYTES_MAX} bytes of text");
        return Err(damaged(reader, &expected, &len.to_string()));
    }
    match reader.u8()? {
        STREAM_PLAIN => Ok(reader.bytes(len as usize)?.to_vec()),
        STREAM_ZSTD => {
            let packed = reader.length_prefixed()?;
            let expected = format!("{len} bytes compressed with zstd");
            match unpack(packed, len as usize) {
                Ok(bytes) if bytes.len() as u64 == len => Ok(bytes),
                Ok(bytes) => Err(damaged(reader, &expected, &format!("{} bytes", bytes.len()))),
                Err(error) => Err(damaged(reader, &expected, &format!("'{error}'"))),
            }
        }
        form => Err(damaged(
            reader,
            "a stream of form 0 or 1",
            &format!("form {form}"),
        )),
    }
}

thread_local! {
    /// A decompressor takes 100 KiB to make.
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn unpack(packed: &[u8], len: usize) -> io::Result<Vec<u8>> {
    UNPACKER.with_borrow_mut(|kept| {
        let unpacker = match kept {
            Some(unpacker) => unpacker,
            None => kept.insert(Decompressor::new()?),
        };
        unpacker.decompress(packed, len)
    })
}
