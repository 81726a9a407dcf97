//! Suffixes: the last bytes of keys, apart from what stands before them, in a run block.
//!
//! Why it exists:    behind the declared columns of an index stand those of the primary key. As part of the keys they would make every
//!                   key another one and have to be written out, while a counted primary key says nothing that the row id does not.
//! Format / state:   `docs/indexes.md`, run blocks.
//! Rules:            X30 one encoder and one decoder, here. X43 a suffix is 1 to 8 bytes, read as a number; row ids under what stands
//!                   before it need not rise.
//! Latches and I/O:  none.

use pbxt_base::Result;
use pbxt_base::codec::{Reader, put_varint};

use crate::columns::{self, damaged, unzigzag, zigzag};

const BYTES_MAX: u8 = 8;
/// Beside the number of bytes: row ids under one key do not always rise, and their steps are zigzag.
const ROWS_FALL: u8 = 16;

/// Suffixes that do not begin a key: what they are off the row id, against the first of the block, ...
const OFF_ROW: u8 = 0;
/// how far they are behind the one before, ...
const STEPS: u8 = 1;
/// or what they are off the row id, against the one before.
const OFF_ROW_STEPS: u8 = 2;

/// Calls `each` with the place of every entry that does not begin a key.
pub(crate) fn each_next(repeats: &[u64], mut each: impl FnMut(usize)) {
    let mut at = 0;
    for &more in repeats {
        let end = at + 1 + more as usize;
        (at + 1..end).for_each(&mut each);
        at = end;
    }
}

/// True if row ids under one key never fall.
pub(crate) fn rows_rise(rows: &[u64], repeats: &[u64]) -> bool {
    let mut rise = true;
    each_next(repeats, |at| rise &= rows[at - 1] <= rows[at]);
    rise
}

/// Appends the suffixes of all entries.
pub(crate) fn put(out: &mut Vec<u8>, bytes: usize, suffixes: &[u64], rows: &[u64], repeats: &[u64]) {
    let off = |at: usize| suffixes[at].wrapping_sub(rows[at]);
    let base = off(0);
    out.push(bytes as u8 | if rows_rise(rows, repeats) { 0 } else { ROWS_FALL });
    put_varint(out, zigzag(base));
    let mut firsts = Vec::with_capacity(repeats.len());
    let mut at = 0;
    for &more in repeats {
        firsts.push(zigzag(off(at).wrapping_sub(base)));
        at += 1 + more as usize;
    }
    columns::put(out, &firsts[1..]);
    let form = |each: &dyn Fn(usize) -> u64| {
        let mut column = Vec::with_capacity(suffixes.len() - repeats.len());
        each_next(repeats, |at| column.push(each(at)));
        column
    };
    let (form, others) = [
        (OFF_ROW, form(&|at| zigzag(off(at).wrapping_sub(base)))),
        (STEPS, form(&|at| suffixes[at].wrapping_sub(suffixes[at - 1]))),
        (
            OFF_ROW_STEPS,
            form(&|at| zigzag(off(at).wrapping_sub(off(at - 1)))),
        ),
    ]
    .into_iter()
    .min_by_key(|(_, column)| columns::size_of(column))
    .expect("X43: there are three forms");
    out.push(form);
    columns::put(out, &others);
}

/// The suffixes of a block as read.
pub(crate) struct Suffixes {
    pub(crate) bytes: usize,
    rows_fall: bool,
    base: u64,
    firsts: Vec<u64>,
    form: u8,
    others: Vec<u64>,
}

/// Where a walk through the suffixes stands.
#[derive(Default)]
pub(crate) struct SuffixWalk {
    others_used: usize,
    suffix: u64,
    off: u64,
}

impl Suffixes {
    pub(crate) fn read(reader: &mut Reader<'_>, entries: usize, key_count: usize) -> Result<Suffixes> {
        let kind = reader.u8()?;
        let bytes = kind & !ROWS_FALL;
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(damaged(
                reader,
                "suffixes of 1 to 8 bytes",
                &format!("{kind:#04x}"),
            ));
        }
        let base = unzigzag(reader.varint()?);
        let firsts = columns::get(reader, key_count - 1)?;
        let form = reader.u8()?;
        if form > OFF_ROW_STEPS {
            return Err(damaged(
                reader,
                "suffixes of form 0, 1 or 2",
                &format!("form {form}"),
            ));
        }
        Ok(Suffixes {
            bytes: usize::from(bytes),
            rows_fall: kind & ROWS_FALL != 0,
            base,
            firsts,
            form,
            others: columns::get(reader, entries - key_count)?,
        })
    }

    /// The row id `step` behind `row` under one key.
    pub(crate) fn next_row(&self, row: u64, step: u64) -> u64 {
        row.wrapping_add(if self.rows_fall { unzigzag(step) } else { step })
    }

    /// The suffix of the next entry, of row `row`; `key` is the number of the key that it begins, none if it begins none. None for a
    /// number that does not fit.
    pub(crate) fn next(&self, walk: &mut SuffixWalk, key: Option<usize>, row: u64) -> Option<u64> {
        let off = match key {
            Some(0) => self.base,
            Some(number) => self.base.wrapping_add(unzigzag(self.firsts[number - 1])),
            None => {
                let other = self.others[walk.others_used];
                walk.others_used += 1;
                match self.form {
                    OFF_ROW => self.base.wrapping_add(unzigzag(other)),
                    STEPS => walk.suffix.wrapping_add(other).wrapping_sub(row),
                    _ => walk.off.wrapping_add(unzigzag(other)),
                }
            }
        };
        walk.off = off;
        walk.suffix = off.wrapping_add(row);
        let unused_bits = 64 - 8 * self.bytes as u32;
        (walk.suffix.leading_zeros() >= unused_bits).then_some(walk.suffix)
    }
}
