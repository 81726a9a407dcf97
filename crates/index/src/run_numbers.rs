//! Run blocks whose keys are numbers, decoded straight into packed blocks.
//!
//! Why it exists:    keys of most indexes are integers. Such a block has a thousand entries, and with more data than memory it is
//!                   decoded for one of them: made by adding numbers instead of putting keys together byte by byte, it takes a
//!                   fifteenth of the time.
//! Format / state:   `docs/indexes.md`, run blocks. In: first key and steps. Out: what `PackedBuilder` would make of the same entries, with
//!                   a prefix that ends before the suffix.
//! Rules:            X30 damage is an error that says where; X38, X43.
//! Latches and I/O:  none.

use pbxt_base::codec::Reader;
use pbxt_base::{Lsn, Result, TxnId};

use crate::columns::damaged;
use crate::entry::ROW_BITS;
use crate::entry_room::SPARE;
use crate::packed_block::PackedBlock;
use crate::run_decode::{Columns, Keys};
use crate::run_encode::tail_number;
use crate::run_suffix::SuffixWalk;

/// Bytes of a key that are its number.
const NUMBER_BYTES: usize = 8;

/// Entries on their way into a packed block.
struct Cells {
    /// Of the number: how many there are in each cell, and the rest of 8.
    tail_bytes: usize,
    suffix_bytes: usize,
    bytes: Vec<u8>,
    rows: Vec<u64>,
}

impl Cells {
    fn new(entries: usize, tail_bytes: usize, suffix_bytes: usize) -> Cells {
        Cells {
            tail_bytes,
            suffix_bytes,
            bytes: vec![0; entries * (tail_bytes + suffix_bytes) + SPARE],
            rows: Vec::with_capacity(entries),
        }
    }

    /// Appends an entry. Words are written whole: the next ones, and the spare bytes, lie behind.
    #[inline]
    fn push(&mut self, number: u64, suffix: u64, row: u64) {
        let at = self.rows.len() * (self.tail_bytes + self.suffix_bytes);
        put_low(&mut self.bytes[at..], number, self.tail_bytes);
        if self.suffix_bytes > 0 {
            put_low(&mut self.bytes[at + self.tail_bytes..], suffix, self.suffix_bytes);
        }
        self.rows.push(row);
    }
}

/// Writes the lowest `count` bytes of a number, the highest of them first, and overwrites what lies up to 8 bytes on.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "keys order as big-endian numbers do")]
fn put_low(bytes: &mut [u8], number: u64, count: usize) {
    let shifted = number.checked_shl(8 * (NUMBER_BYTES - count) as u32).unwrap_or(0);
    bytes[..NUMBER_BYTES].copy_from_slice(&shifted.to_be_bytes());
}

impl Columns<'_> {
    /// The block, if keys are numbers and entries have nothing but a key and a row. All have the stamp.
    pub(crate) fn packed_numbers(
        &self,
        reader: &Reader<'_>,
        stamp: (TxnId, Lsn),
    ) -> Result<Option<PackedBlock>> {
        let Keys::Numbers { first, steps } = &self.keys else {
            return Ok(None);
        };
        if self.has_unpack() {
            return Ok(None);
        }
        let number_bytes = first.len().min(NUMBER_BYTES);
        let least = tail_number(first, NUMBER_BYTES);
        let greatest = greatest(least, steps, number_bytes).ok_or_else(|| {
            let expected = format!("numbers of {number_bytes} bytes as keys");
            damaged(reader, &expected, "greater ones")
        })?;
        let same = (least ^ greatest).leading_zeros() as usize / 8 + number_bytes - NUMBER_BYTES;
        let suffix_bytes = self.suffix_bytes();
        let mut cells = Cells::new(self.entries, number_bytes - same, suffix_bytes);
        self.push_numbers(reader, least, steps, &mut cells)?;
        let prefix = &first[..first.len() - number_bytes + same];
        let tail_bytes = (cells.tail_bytes + suffix_bytes) as u16;
        Ok(Some(PackedBlock::of_even(
            prefix,
            cells.bytes,
            tail_bytes,
            cells.rows,
            stamp,
        )))
    }

    fn push_numbers(&self, reader: &Reader<'_>, least: u64, steps: &[u64], cells: &mut Cells) -> Result<()> {
        let (mut number, mut first_row, mut bits) = (least, 0, 0);
        let mut next_rows = self.next_rows.iter();
        let mut walk = SuffixWalk::default();
        for key in 0..self.key_count {
            if let Some(before) = key.checked_sub(1) {
                number += steps[before] + 1;
            }
            first_row = self.first_row_of(key, number, first_row);
            let mut row = first_row;
            for repeat in 0..=self.repeats_of(key) {
                if repeat > 0 {
                    row = self.next_row(row, next_rows.next().copied().unwrap_or_default());
                }
                bits |= row;
                let begins = (repeat == 0).then_some(key);
                let suffix = self.suffix_of(reader, &mut walk, begins, row)?;
                cells.push(number, suffix, row);
            }
        }
        if bits >> ROW_BITS != 0 {
            return Err(damaged(reader, "row ids of 48 bits", "greater ones"));
        }
        Ok(())
    }
}

/// The last number, if all have so many bytes.
fn greatest(least: u64, steps: &[u64], bytes: usize) -> Option<u64> {
    let mut all = steps.iter();
    let last = all.try_fold(least, |number, &step| number.checked_add(step)?.checked_add(1))?;
    let room = u64::MAX
        .checked_shr(8 * (NUMBER_BYTES - bytes) as u32)
        .unwrap_or(0);
    (last <= room).then_some(last)
}
