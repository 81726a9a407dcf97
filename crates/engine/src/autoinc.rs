//! Auto-increment: values of a table that are never given twice, also not after a crash.
//!
//! Why it exists: the next value must not depend on the rows (a rolled back or deleted row's value must stay
//! used), and a log record per value would be waste.
//! Rules: A1 a value is handed out only after a log record with a high mark above it was appended; marks run
//! ahead by `RUN_AHEAD` values, less near the end of a type, so a crash leaves a gap of at most that many. A2 a clean close logs
//! the exact value.
//! Latches and I/O: one short latch per table; appending the mark never waits for the disk.
//! After a crash: the newest mark in the log is the next value; a checkpoint image keeps the newest one below it.

use crate::commit::append;
use crate::error::Result;
use parking_lot::Mutex;
use pbxt_base::TableId;
use pbxt_txlog::{AutoIncRecord, Log};

/// Values by which a logged mark runs ahead of the values handed out, at most.
const RUN_AHEAD: u64 = 1024;
/// Of the values that are left to the type a mark takes this part at most: a crash must not use up those of a small one.
const PART_OF_REST: u64 = 64;
/// The greatest values of all types that count.
const GREATEST: [u64; 9] = [
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7f_ffff,
    0xff_ffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
];

/// The counter of one table.
#[derive(Debug)]
pub struct AutoIncrement {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    logged: u64,
}

/// Values `first, first + increment, ...`, `count` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// First value.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl AutoIncrement {
    /// A counter whose next value is `next`, with nothing logged above it.
    pub fn starting_at(next: u64) -> Self {
        let next = next.max(1);
        Self {
            state: Mutex::new(State { next, logged: next }),
        }
    }

    /// The next value that would be handed out with offset and increment 1.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// The mark that the log has: no value at or above it was handed out.
    pub(crate) fn mark(&self) -> u64 {
        self.state.lock().logged
    }

    /// Hands out up to `count` values of the series offset + k * increment (rule A1). A count of 0 in the answer
    /// means that the series has ended.
    pub fn reserve(
        &self,
        log: &Log,
        table: TableId,
        offset: u64,
        increment: u64,
        count: u64,
    ) -> Result<Reserved> {
        let increment = increment.max(1);
        let mut state = self.state.lock();
        // The greatest number stands for "no value left", so it is never handed out itself.
        let Some(first) =
            first_in_series(state.next, offset.max(1), increment).filter(|&first| first < u64::MAX)
        else {
            return Ok(Reserved {
                first: u64::MAX,
                count: 0,
            });
        };
        let steps = (u64::MAX - 1 - first) / increment;
        let count = count.clamp(1, steps.saturating_add(1));
        // Just above the last one: the next statement may ask for another increment.
        let next = first + (count - 1) * increment + 1;
        log_mark(&mut state, log, table, next)?;
        state.next = next;
        Ok(Reserved { first, count })
    }

    /// Makes the next value at least `next`.
    pub fn raise(&self, log: &Log, table: TableId, next: u64) -> Result<()> {
        let mut state = self.state.lock();
        if next > state.next {
            log_mark(&mut state, log, table, next)?;
            state.next = next;
        }
        Ok(())
    }

    /// Makes the next value exactly `next` (ALTER TABLE ... AUTO_INCREMENT).
    pub fn set(&self, log: &Log, table: TableId, next: u64) -> Result<()> {
        let mut state = self.state.lock();
        append_mark(log, table, next)?;
        *state = State {
            next: next.max(1),
            logged: next.max(1),
        };
        Ok(())
    }

    /// Logs the exact value before a clean close (rule A2).
    pub fn log_exact(&self, log: &Log, table: TableId) -> Result<()> {
        let mut state = self.state.lock();
        if state.logged != state.next {
            append_mark(log, table, state.next)?;
            state.logged = state.next;
        }
        Ok(())
    }
}

fn log_mark(state: &mut State, log: &Log, table: TableId, next: u64) -> Result<()> {
    if next > state.logged {
        let mark = next + run_ahead(next);
        append_mark(log, table, mark)?;
        state.logged = mark;
    }
    Ok(())
}

/// How far the mark for this next value runs ahead. Nobody here knows the column's type: of those that have the value it is the least.
fn run_ahead(next: u64) -> u64 {
    let fitting = GREATEST.into_iter().find(|greatest| *greatest >= next);
    let greatest = fitting.unwrap_or(u64::MAX);
    ((greatest - next) / PART_OF_REST).min(RUN_AHEAD)
}

fn append_mark(log: &Log, table: TableId, high_mark: u64) -> Result<()> {
    let record = AutoIncRecord { table, high_mark };
    append(log, record.encoded_len(), |out| record.encode_into(out))?;
    Ok(())
}

/// Smallest value >= `at_least` of the series offset + k * increment.
fn first_in_series(at_least: u64, offset: u64, increment: u64) -> Option<u64> {
    // The host's rule: an offset above the increment is ignored.
    let offset = if offset > increment { 1 } else { offset };
    if at_least <= offset {
        return Some(offset);
    }
    let steps = (at_least - offset).div_ceil(increment);
    steps.checked_mul(increment)?.checked_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_values_follow_offset_and_increment() {
        let cases = [
            ((1, 1, 1), 1),
            ((7, 1, 1), 7),
            ((1, 3, 10), 3),
            ((4, 3, 10), 13),
            ((13, 3, 10), 13),
            ((14, 3, 10), 23),
            ((5, 20, 10), 11),
        ];
        for ((at_least, offset, increment), expected) in cases {
            assert_eq!(
                first_in_series(at_least, offset, increment),
                Some(expected),
                "{at_least} {offset} {increment}"
            );
        }
        assert_eq!(first_in_series(u64::MAX, 3, 10), None);
    }

    #[test]
    fn marks_leave_each_type_nearly_all_of_its_values() {
        for greatest in GREATEST.into_iter().chain([u64::MAX]) {
            let rest = [0, 1, 63, 64, 100, greatest / 2, greatest - 1];
            for next in rest.map(|rest| greatest.saturating_sub(rest)) {
                let mark = next + run_ahead(next);
                assert!(mark <= greatest, "A1: {next} has the mark {mark}");
                assert!(mark - next <= RUN_AHEAD, "A1: {next} has the mark {mark}");
                assert!(
                    mark - next <= (greatest - next) / PART_OF_REST,
                    "A1: {next} has the mark {mark}"
                );
            }
        }
        assert_eq!(
            run_ahead(1_000_000),
            RUN_AHEAD,
            "a record for each value would be waste"
        );
    }
}
