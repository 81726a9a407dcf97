//! Encoding of a run block: sorted entries in, few bytes out.
//!
//! Why it exists:    an index of ten million rows is worth as much memory and disk as its entries take. A compressor over
//!                   plain entries mixes key text with row ids; text has few symbols, row ids have all, and one code for
//!                   both wastes a byte per entry. Here numbers go to columns and only text goes to the compressor.
//! Format / state:   `docs/indexes.md`, run blocks.
//! Rules:            X1 entries come in order, X30 one encoder and one decoder, X31 stamps are there only if some entry
//!                   has one, and never in a tagged run, X43 suffixes of keys stand apart.
//! Latches and I/O:  none.

use std::cmp::Ordering as Order;

use pbxt_base::codec::{get_u64, push_bytes, put_varint};
use pbxt_base::{Lsn, RowId, TxnId, invariant};
use pbxt_segment::Tries;
use zstd::bulk::Compressor;

use crate::columns::{self, zigzag};
use crate::entry::{KEY_AT, Sign};
use crate::run_suffix;

/// Bytes of decoded entries at which a block is full. Larger ones take a little less on disk, and much longer to probe.
pub(crate) const BLOCK_BYTES: usize = 32 << 10;

pub(crate) const HAS_LSN: u8 = 1;
pub(crate) const HAS_TXN: u8 = 2;
pub(crate) const HAS_SIGN: u8 = 4;
pub(crate) const HAS_UNPACK: u8 = 8;
pub(crate) const HAS_REPEATS: u8 = 16;
pub(crate) const KEYS_ARE_NUMBERS: u8 = 32;
/// The last bytes of all keys are kept apart; what is called key in the other columns is what stands before them.
pub(crate) const HAS_SUFFIXES: u8 = 64;
pub(crate) const COLUMNS_KNOWN: u8 = 127;

/// Row ids of the first entries of all keys: as they are, ...
pub(crate) const ROWS_PLAIN: u8 = 0;
/// as steps from one to the next, ...
pub(crate) const ROWS_STEPS: u8 = 1;
/// as what they are off the number that the last four bytes of the key make, ...
pub(crate) const ROWS_OFF_KEY_4: u8 = 2;
/// or the last eight.
pub(crate) const ROWS_OFF_KEY_8: u8 = 3;

pub(crate) const UNPACK_TEXT: u8 = 0;
pub(crate) const UNPACK_NUMBERS: u8 = 1;
/// What the bytes are off the key's.
pub(crate) const UNPACK_OFF_KEY: u8 = 2;
/// Where in the key the bytes of unpack information have their like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alignment {
    /// Of the first byte: one before the key (behind a length byte), at it, or behind a byte that says "not NULL".
    pub(crate) offset: i8,
    /// Bytes of the key after which one more stands that is none of the value's (a verdict of the pad-space form); 0: none.
    pub(crate) chunk: u8,
}

/// What is tried.
const ALIGNMENTS: [Alignment; 6] = [
    Alignment { offset: -1, chunk: 0 },
    Alignment { offset: -1, chunk: 8 },
    Alignment { offset: 0, chunk: 0 },
    Alignment { offset: 0, chunk: 8 },
    Alignment { offset: 1, chunk: 0 },
    Alignment { offset: 1, chunk: 8 },
];
/// Entries that decide which one is taken.
const ALIGNED_BY: usize = 64;

pub(crate) const STREAM_PLAIN: u8 = 0;
pub(crate) const STREAM_ZSTD: u8 = 1;
/// Streams shorter than this are not worth a compressor's header.
const STREAM_BYTES_MIN: usize = 48;
/// Numbers as keys must save this share against shared beginnings, which the compressor makes smaller still.
const NUMBERS_SHARE: (usize, usize) = (3, 4);

/// One entry on its way into a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) row: RowId,
    pub(crate) lsn: Lsn,
    pub(crate) sign: Sign,
    pub(crate) txn: TxnId,
    pub(crate) unpack: &'a [u8],
}

/// Collects the entries of one block.
pub(crate) struct BlockWriter {
    /// Decoded bytes at which the block is full.
    pub(crate) full_at: usize,
    /// Bytes at the end of every key that are kept apart, 0 to 8.
    pub(crate) suffix_bytes: usize,
    /// Distinct keys without their suffixes back to back, their ends, and the number of entries of each.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    repeats: Vec<u64>,
    /// The suffix of each entry's key.
    suffixes: Vec<u64>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    rows: Vec<u64>,
    lsns: Vec<u64>,
    txns: Vec<u64>,
    signs: Vec<u64>,
    unpack: Vec<u8>,
    unpack_lens: Vec<u64>,
    decoded_bytes: usize,
    key_packer: Packer,
    unpack_packer: Packer,
}

/// The compressor, made at first use and kept from block to block.
#[derive(Default)]
struct Packer {
    made: Option<(i32, Compressor<'static>)>,
    packed: Vec<u8>,
    tries: Tries,
}

impl Packer {
    /// The bytes compressed; none if that fails, or is not expected to pay (rule S56): then they stay as they are.
    fn pack(&mut self, bytes: &[u8], level: i32) -> Option<&[u8]> {
        if !self.tries.is_next(bytes.len()) {
            return None;
        }
        if self.made.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            self.made = Some((level, Compressor::new(level).ok()?));
        }
        let (_, compressor) = self.made.as_mut()?;
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        compressor.compress_to_buffer(bytes, &mut self.packed).ok()?;
        self.tries.note(bytes.len(), self.packed.len());
        Some(&self.packed)
    }
}

impl Default for BlockWriter {
    fn default() -> BlockWriter {
        BlockWriter {
            full_at: BLOCK_BYTES,
            suffix_bytes: 0,
            keys: Vec::new(),
            key_ends: Vec::new(),
            repeats: Vec::new(),
            suffixes: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            rows: Vec::new(),
            lsns: Vec::new(),
            txns: Vec::new(),
            signs: Vec::new(),
            unpack: Vec::new(),
            unpack_lens: Vec::new(),
            decoded_bytes: 0,
            key_packer: Packer::default(),
            unpack_packer: Packer::default(),
        }
    }
}

impl BlockWriter {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.decoded_bytes >= self.full_at
    }

    /// Whole, as `last_key` is.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// A distinct key without its suffix.
    fn key(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[from..self.key_ends[index]]
    }

    /// Key, row id, LSN and sign of the last entry.
    pub(crate) fn last(&self) -> (Vec<u8>, (RowId, Lsn, Sign)) {
        let last = self.len() - 1;
        let is_anti = self.signs[last] == Sign::Anti as u64;
        let sign = if is_anti { Sign::Anti } else { Sign::Entry };
        let event = (RowId::new(self.rows[last]), Lsn::new(self.lsns[last]), sign);
        (self.last_key().to_vec(), event)
    }

    /// Order of the last entry against this one (X1).
    pub(crate) fn last_against(&self, item: &Item<'_>) -> Order {
        let Some(last) = self.len().checked_sub(1) else {
            return Order::Less;
        };
        let event = (self.rows[last], self.lsns[last], self.signs[last]);
        let new = (item.row.raw(), item.lsn.raw(), item.sign as u64);
        self.last_key().cmp(item.key).then_with(|| event.cmp(&new))
    }

    pub(crate) fn push(&mut self, item: &Item<'_>) {
        invariant!(
            item.key.len() >= self.suffix_bytes,
            "X43: a key has more bytes than its suffix"
        );
        let (key, suffix) = item.key.split_at(item.key.len() - self.suffix_bytes);
        if self.len() == 0 {
            self.first_key.extend_from_slice(item.key);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(item.key);
        match self.key_ends.len().checked_sub(1) {
            Some(last) if self.key(last) == key => self.repeats[last] += 1,
            _ => {
                self.keys.extend_from_slice(key);
                self.key_ends.push(self.keys.len());
                self.repeats.push(0);
            }
        }
        self.suffixes.push(tail_number(suffix, 8));
        self.rows.push(item.row.raw());
        self.lsns.push(item.lsn.raw());
        self.txns.push(item.txn.raw());
        self.signs.push(item.sign as u64);
        self.unpack.extend_from_slice(item.unpack);
        self.unpack_lens.push(item.unpack.len() as u64);
        self.decoded_bytes += (KEY_AT + item.key.len() + item.unpack.len()).next_multiple_of(8);
    }

    /// Appends the block to `out` and begins the next one. `level` is that of zstd; none leaves text as it is.
    pub(crate) fn encode(&mut self, level: Option<i32>, out: &mut Vec<u8>) {
        invariant!(self.len() > 0, "X30: a run block has an entry");
        let steps = self.number_steps();
        let has = self.columns_needed(steps.is_some());
        let firsts = self.first_rows();
        let (form, first, others) = self.predict_rows(&firsts);
        out.extend([has, form]);
        put_varint(out, self.len() as u64);
        if has & HAS_REPEATS != 0 {
            put_varint(out, self.key_ends.len() as u64);
            columns::put(out, &self.repeats);
        }
        match steps {
            Some(steps) => {
                push_bytes(out, self.key(0));
                columns::put(out, &steps);
            }
            None => self.put_keys(level, out),
        }
        put_varint(out, first);
        columns::put(out, &others);
        if has & HAS_REPEATS != 0 {
            columns::put(out, &self.next_rows());
        }
        if has & HAS_SUFFIXES != 0 {
            run_suffix::put(out, self.suffix_bytes, &self.suffixes, &self.rows, &self.repeats);
        }
        self.put_stamps(has, out);
        if has & HAS_UNPACK != 0 {
            self.put_unpack(level, out);
        }
        self.clear();
    }

    /// Unpack information: lengths, then all bytes as text, or each entry's bytes as a number of few bits.
    fn put_unpack(&mut self, level: Option<i32>, out: &mut Vec<u8>) {
        columns::put(out, &self.unpack_lens);
        let (part, whole) = NUMBERS_SHARE;
        let numbers = self
            .unpack_numbers()
            .filter(|numbers| columns::size_of(numbers) * whole <= self.unpack.len() * part);
        if let Some(numbers) = numbers {
            out.push(UNPACK_NUMBERS);
            columns::put(out, &numbers);
        } else if let Some((alignment, text)) = self.unpack_off_key() {
            out.push(UNPACK_OFF_KEY);
            out.push(alignment.offset.cast_unsigned());
            out.push(alignment.chunk);
            put_stream(out, &text, level, &mut self.unpack_packer);
        } else {
            out.push(UNPACK_TEXT);
            put_stream(out, &self.unpack, level, &mut self.unpack_packer);
        }
    }

    /// Weights are mostly one byte a character and lose only its case: then what a value is off its weights is 0 or 32,
    /// one bit for the compressor where the value would be six. None if no alignment makes three of four bytes so.
    fn unpack_off_key(&self) -> Option<(Alignment, Vec<u8>)> {
        let looked_at: u64 = self.unpack_lens.iter().take(ALIGNED_BY).sum();
        let likes = |alignment: Alignment| {
            let mut likes = 0;
            self.each_unpack(ALIGNED_BY, |key, unpack| {
                likes += (0..unpack.len())
                    .filter(|&at| matches!(unpack[at].wrapping_sub(alignment.like_of(key, at)), 0 | 32))
                    .count() as u64;
            });
            likes
        };
        let (likes, alignment) = ALIGNMENTS
            .map(|alignment| (likes(alignment), alignment))
            .into_iter()
            .max()?;
        if likes * 4 < looked_at * 3 {
            return None;
        }
        let mut text = Vec::with_capacity(self.unpack.len());
        self.each_unpack(usize::MAX, |key, unpack| {
            let off = |(at, byte): (usize, &u8)| byte.wrapping_sub(alignment.like_of(key, at));
            text.extend(unpack.iter().enumerate().map(off));
        });
        Some((alignment, text))
    }

    /// Key and unpack information of the first `limit` entries.
    fn each_unpack(&self, limit: usize, mut each: impl FnMut(&[u8], &[u8])) {
        let (mut rest, mut entry) = (self.unpack.as_slice(), 0);
        for (number, &repeats) in self.repeats.iter().enumerate() {
            let key = self.key(number);
            for _ in 0..=repeats {
                if entry == limit {
                    return;
                }
                let (own, left) = rest.split_at(self.unpack_lens[entry] as usize);
                each(key, own);
                (rest, entry) = (left, entry + 1);
            }
        }
    }

    fn unpack_numbers(&self) -> Option<Vec<u64>> {
        let mut rest = self.unpack.as_slice();
        let mut number = |&len: &u64| {
            let (own, left) = rest.split_at(len as usize);
            rest = left;
            (own.len() <= 8).then(|| number_of(own))
        };
        self.unpack_lens.iter().map(&mut number).collect()
    }

    fn columns_needed(&self, keys_are_numbers: bool) -> u8 {
        let mut has = 0;
        let mut need = |bit: u8, needed: bool| has |= if needed { bit } else { 0 };
        need(HAS_LSN, self.lsns.iter().any(|&lsn| lsn != 0));
        need(HAS_TXN, self.txns.iter().any(|&txn| txn != 0));
        need(
            HAS_SIGN,
            self.signs.iter().any(|&sign| sign != Sign::Entry as u64),
        );
        need(HAS_UNPACK, !self.unpack.is_empty());
        need(HAS_REPEATS, self.key_ends.len() < self.len());
        need(KEYS_ARE_NUMBERS, keys_are_numbers);
        need(HAS_SUFFIXES, self.suffix_bytes > 0);
        has
    }

    fn put_stamps(&self, has: u8, out: &mut Vec<u8>) {
        let columns = [
            (HAS_LSN, &self.lsns),
            (HAS_TXN, &self.txns),
            (HAS_SIGN, &self.signs),
        ];
        for (_, column) in columns.into_iter().filter(|(bit, _)| has & bit != 0) {
            columns::put(out, column);
        }
    }

    /// Steps between keys read as numbers, less one each: if all keys have one length and differ in the last eight bytes
    /// only, and that is smaller than shared beginnings.
    fn number_steps(&self) -> Option<Vec<u64>> {
        let (first, last) = (self.key(0), self.key(self.key_ends.len() - 1));
        let is_one_length = (0..self.key_ends.len()).all(|index| self.key(index).len() == first.len());
        let head = first.len().saturating_sub(8);
        if !is_one_length || first.is_empty() || first[..head] != last[..head] {
            return None;
        }
        let mut before = tail_number(first, 8);
        let mut step = |index| {
            let number = tail_number(self.key(index), 8);
            let step = number - before - 1;
            before = number;
            step
        };
        let steps: Vec<u64> = (1..self.key_ends.len()).map(&mut step).collect();
        let suffixes: usize = (1..self.key_ends.len())
            .map(|index| first.len() - shared_bytes(self.key(index - 1), self.key(index)))
            .sum();
        let (part, whole) = NUMBERS_SHARE;
        (columns::size_of(&steps) * whole <= (suffixes + 8) * part).then_some(steps)
    }

    /// Length of each key, bytes it shares with the one before, and the bytes that follow those.
    fn put_keys(&mut self, level: Option<i32>, out: &mut Vec<u8>) {
        let mut lens = Vec::with_capacity(self.key_ends.len());
        let mut shared = Vec::with_capacity(self.key_ends.len());
        let mut text = Vec::with_capacity(self.keys.len());
        let mut before: &[u8] = &[];
        for index in 0..self.key_ends.len() {
            let key = self.key(index);
            let same = shared_bytes(before, key);
            lens.push(key.len() as u64);
            shared.push(same as u64);
            text.extend_from_slice(&key[same..]);
            before = key;
        }
        columns::put(out, &lens);
        columns::put(out, &shared[1..]);
        put_stream(out, &text, level, &mut self.key_packer);
    }

    fn first_rows(&self) -> Vec<u64> {
        let mut at = 0;
        let mut first = |&repeats: &u64| {
            let row = self.rows[at];
            at += 1 + repeats as usize;
            row
        };
        self.repeats.iter().map(&mut first).collect()
    }

    /// Row ids of all entries but the first of each key, as steps from the entry before. Behind suffixes they need not rise.
    fn next_rows(&self) -> Vec<u64> {
        let mut steps = Vec::with_capacity(self.rows.len());
        let rise = run_suffix::rows_rise(&self.rows, &self.repeats);
        run_suffix::each_next(&self.repeats, |at| {
            let step = self.rows[at].wrapping_sub(self.rows[at - 1]);
            steps.push(if rise { step } else { zigzag(step) });
        });
        steps
    }

    /// The form of the first row ids that is smallest: its number, the first value and the others.
    fn predict_rows(&self, firsts: &[u64]) -> (u8, u64, Vec<u64>) {
        let plain = (ROWS_PLAIN, firsts[0], firsts[1..].to_vec());
        let steps = firsts
            .windows(2)
            .map(|pair| zigzag(pair[1].wrapping_sub(pair[0])));
        let steps = (ROWS_STEPS, firsts[0], steps.collect());
        let off_key = |form, bytes| {
            let off = |index: usize| firsts[index].wrapping_sub(tail_number(self.key(index), bytes));
            let first = off(0);
            let others = (1..firsts.len()).map(|index| zigzag(off(index).wrapping_sub(first)));
            (form, first, others.collect())
        };
        let off_4 = off_key(ROWS_OFF_KEY_4, 4);
        let off_8 = off_key(ROWS_OFF_KEY_8, 8);
        [plain, steps, off_4, off_8]
            .into_iter()
            .min_by_key(|(_, _, others): &(u8, u64, Vec<u64>)| columns::size_of(others))
            .expect("X30: there are four forms")
    }

    pub(crate) fn clear(&mut self) {
        let BlockWriter {
            keys,
            key_ends,
            repeats,
            suffixes,
            first_key,
            last_key,
            rows,
            lsns,
            txns,
            signs,
            unpack,
            unpack_lens,
            decoded_bytes,
            key_packer: _,
            unpack_packer: _,
            full_at: _,
            suffix_bytes: _,
        } = self;
        key_ends.clear();
        for bytes in [keys, first_key, last_key, unpack] {
            bytes.clear();
        }
        for column in [repeats, suffixes, rows, lsns, txns, signs, unpack_lens] {
            column.clear();
        }
        *decoded_bytes = 0;
    }
}

/// The last `bytes` bytes of a key (all, if it has fewer) as a number that orders as they do.
pub(crate) fn tail_number(key: &[u8], bytes: usize) -> u64 {
    let tail = &key[key.len().saturating_sub(bytes)..];
    if tail.len() == 8 {
        return get_u64(tail, 0).swap_bytes();
    }
    tail.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl Alignment {
    /// The key's byte that byte `at` of the unpack information is compared with; 0 where the key has none.
    #[inline]
    pub(crate) fn like_of(self, key: &[u8], at: usize) -> u8 {
        let Some(place) = at.checked_add_signed(isize::from(self.offset)) else {
            return 0;
        };
        let verdicts = place.checked_div(usize::from(self.chunk)).unwrap_or(0);
        key.get(place + verdicts).copied().unwrap_or(0)
    }
}

fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

/// Up to eight bytes as a number, the first one lowest.
fn number_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Appends bytes: compressed, if that is asked for and pays.
fn put_stream(out: &mut Vec<u8>, bytes: &[u8], level: Option<i32>, packer: &mut Packer) {
    put_varint(out, bytes.len() as u64);
    let packed = level
        .filter(|_| bytes.len() >= STREAM_BYTES_MIN)
        .and_then(|level| packer.pack(bytes, level))
        .filter(|packed| packed.len() < bytes.len());
    if let Some(packed) = packed {
        out.push(STREAM_ZSTD);
        push_bytes(out, packed);
    } else {
        out.push(STREAM_PLAIN);
        out.extend_from_slice(bytes);
    }
}
