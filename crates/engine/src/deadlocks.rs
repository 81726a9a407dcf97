//! Deadlocks: what people are told about a circle of waiting transactions.
//!
//! Why it exists: the error names the victim's table; to change a program one must know who else took part, with which
//! statements, in which order.
//! State: the newest deadlock's text, in `Waits`.
//! Rules: T36: the facts come from the graph, bounded, and are described here with no latch of the graph held, by the
//! thread that closed the circle and before it rolls back: if it is the victim itself, what the members hold still stands.
//! Latches and I/O: as the list of transactions, one at a time.

use crate::database::Database;
use crate::sight::{Names, Now};
use pbxt_base::TxnId;
use pbxt_txn::{CircleMember, DeadlockReport, VictimBecause};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a member's statement in the text.
const STATEMENT_BYTES_MAX: usize = 512;

impl Database {
    /// Counts deadlocks, keeps the newest one's text, and prints it if that is wanted (rule T36).
    pub(crate) fn note_deadlocks(&self, found: &[Arc<DeadlockReport>]) {
        for report in found {
            let number = self.waits.deadlocks.fetch_add(1, Ordering::Relaxed) + 1;
            let text: Arc<str> = Arc::from(self.describe_deadlock(number, report));
            let mut latest = self.waits.latest.lock();
            if latest.0 < number {
                *latest = (number, Some(Arc::clone(&text)));
            }
            drop(latest);
            self.waits.print_deadlock(&text);
        }
    }

    fn describe_deadlock(&self, number: u64, report: &DeadlockReport) -> String {
        let now = self.now();
        let mut names = Names::new(self);
        let mut text = format!(
            "Deadlock {number} at {}: {} transactions in a circle\n",
            utc(now.unix_at(now.millis)),
            report.members
        );
        let circle = &report.circle;
        for (place, member) in circle.iter().enumerate() {
            // Each holds what the one before it waits for; the first one has the last one before it, unless the list is cut.
            let before = match place.checked_sub(1) {
                Some(before) => circle.get(before),
                None => circle.last(),
            };
            let before = before.filter(|before| before.waits_for == member.txn);
            self.describe_member(&mut text, (place + 1, member), before, &mut names, now);
        }
        let left_out = report.members.saturating_sub(circle.len());
        if left_out > 0 {
            let _ = writeln!(text, "and {left_out} more");
        }
        let because = match report.because {
            VictimBecause::ClosedTheCircle => "its request closed the circle",
            VictimBecause::HostPreferred => "the server prefers it to the others",
        };
        let victim = self.waits.blocker(report.victim);
        let _ = writeln!(text, "Victim: {victim}, because {because}. It is rolled back.");
        text
    }

    fn describe_member(
        &self,
        text: &mut String,
        (place, member): (usize, &CircleMember),
        before: Option<&CircleMember>,
        names: &mut Names<'_>,
        now: Now,
    ) {
        let view = self.waits.session_of(member.txn);
        let figures = view.as_ref().and_then(|view| view.shown.figures());
        let _ = write!(text, "({place}) {}", self.waits.blocker(member.txn));
        if let Some(figures) = figures {
            let _ = write!(
                text,
                ", {} s old, {} rows changed, {} rows locked",
                now.millis.saturating_sub(figures.started_millis) / 1000,
                figures.rows_changed,
                figures.rows_locked
            );
        }
        text.push('\n');
        let gate = view.as_ref().map(|view| &view.gate);
        if let Some(statement) = gate.and_then(|gate| self.waits.statement_of(gate, STATEMENT_BYTES_MAX)) {
            let _ = writeln!(text, "    statement: {}", one_line(&statement));
        }
        if let Some(before) = before {
            let key_of = |txn: TxnId| {
                let view = self.waits.session_of(txn);
                view.map(|view| view.shown.key()).unwrap_or_default()
            };
            let what = names.of(before.resource, || key_of(before.txn));
            let _ = match self.held(member.txn, before.resource) {
                Some((mode, _)) if !before.in_line => writeln!(text, "    holds: {what}, {mode}"),
                _ => writeln!(
                    text,
                    "    stands in line for: {what}, before transaction {}",
                    before.txn
                ),
            };
        }
        let what = names.of(member.resource, || {
            view.as_ref().map(|view| view.shown.key()).unwrap_or_default()
        });
        let _ = writeln!(
            text,
            "    waits for: {what}, {}, because of transaction {}",
            member.mode, member.waits_for
        );
    }
}

/// Line ends and other control characters become spaces, so that a statement cannot look like a line of ours.
fn one_line(statement: &str) -> String {
    statement
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Date and time of seconds since 1970, in UTC.
fn utc(unix_seconds: u64) -> String {
    let (mut days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
        days + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Seconds by arithmetic: 1972 was the first leap year, 2000 is one, 2100 is none.
        let day = 86_400;
        let cases = [
            (0, "1970-01-01 00:00:00 UTC"),
            (365 * day - 1, "1970-12-31 23:59:59 UTC"),
            ((2 * 365 + 59) * day, "1972-02-29 00:00:00 UTC"),
            ((30 * 365 + 7 + 31 + 28) * day, "2000-02-29 00:00:00 UTC"),
            ((130 * 365 + 32 + 31 + 28) * day, "2100-03-01 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
        ];
        for (seconds, date) in cases {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn a_statement_stays_on_its_line() {
        assert_eq!(one_line("SELECT\n  1;\r\t-- ü"), "SELECT   1;  -- ü");
    }
}
