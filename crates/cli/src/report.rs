//! Report: what `pbxt verify` says while it works: progress, notes, findings.
//!
//! Rules: a finding is one line that names file, offset, expected, found and what to do. Whoever writes scripts counts on
//! lines that begin with `finding`, and on `--quiet` leaving nothing else but those that begin with `unread`: a file that could not be
//! looked at, for want of a key, a right or a descriptor, each once. The exit code holds where nobody reads the lines: what is
//! verified goes on without them until something is found.

use crate::directory::Place;
use crate::failure::{Failure, Outcome, Verdict, is_of_a_file, is_unread};
use crate::text::count;
use pbxt_base::{Error, Result};
use pbxt_io::{Clock, SystemClock};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};

/// What to do about most damage.
const RESTORE: &str = "restore it from a backup";

/// What a server that was killed, or a full disk, may have left behind, and damage may look like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// A file of rows or index entries without an end.
    Piece(Place),
    /// Bytes that belong to no value.
    Value,
}

/// Damage, unless it is left behind.
struct Doubt {
    leftover: Leftover,
    error: Error,
    what_to_do: &'static str,
}

/// See the module.
pub(crate) struct Report<'o> {
    out: &'o mut dyn Write,
    quiet: bool,
    /// Milliseconds after which somebody who waits is told how far it is.
    patience: u64,
    clock: SystemClock,
    /// When something was said last.
    said: u64,
    findings: u64,
    /// What is not said before the database was opened; none if it is not to be.
    doubts: Option<Vec<Doubt>>,
    /// What was said of files that could not be looked at.
    unread: BTreeSet<String>,
    /// Nobody reads what is written.
    is_unheard: bool,
}

impl<'o> Report<'o> {
    /// With `patience` in seconds.
    pub(crate) fn new(out: &'o mut dyn Write, quiet: bool, patience: u32) -> Self {
        Self {
            out,
            quiet,
            patience: u64::from(patience) * 1000,
            clock: SystemClock::new(),
            said: 0,
            findings: 0,
            doubts: None,
            unread: BTreeSet::new(),
            is_unheard: false,
        }
    }

    /// Keeps back, until `settle`, what the opened database may show to be no damage.
    pub(crate) fn keep_doubts(&mut self) {
        self.doubts = Some(Vec::new());
    }

    /// Findings so far, with those that are kept back.
    pub(crate) fn findings(&self) -> u64 {
        self.findings + self.doubts.as_ref().map_or(0, |doubts| doubts.len() as u64)
    }

    /// What it comes to so far.
    pub(crate) fn verdict(&self) -> Verdict {
        match (self.findings, self.unread.len()) {
            (0, 0) => Verdict::Good,
            (0, _) => Verdict::Unread,
            _ => Verdict::Damaged,
        }
    }

    /// The last line.
    pub(crate) fn end(&mut self) -> Outcome<()> {
        let unread = count(self.unread.len() as u64, "file");
        let findings = count(self.findings, "finding");
        match self.verdict() {
            Verdict::Good => self.progress("clean"),
            Verdict::Damaged if self.unread.is_empty() => self.progress(&findings),
            Verdict::Damaged => self.progress(&format!("{findings}; {unread} could not be looked at")),
            Verdict::Unread => self.progress(&format!("no finding; {unread} could not be looked at")),
        }
    }

    /// Something that was looked at, or that one should know.
    pub(crate) fn progress(&mut self, line: &str) -> Outcome<()> {
        if self.quiet { Ok(()) } else { self.line(line) }
    }

    /// How far something is that takes long; said if nothing else was for some time.
    pub(crate) fn waiting(&mut self, line: impl FnOnce() -> String) -> Outcome<()> {
        if self.quiet || self.clock.now_millis() - self.said < self.patience {
            return Ok(());
        }
        self.line(&format!("... {}", line()))
    }

    /// A finding in words of our own.
    pub(crate) fn sentence(&mut self, sentence: &str) -> Outcome<()> {
        self.sentence_of(sentence, 1)
    }

    /// A sentence that stands for so many findings.
    pub(crate) fn sentence_of(&mut self, sentence: &str, findings: u64) -> Outcome<()> {
        self.findings += findings;
        self.line(&format!("finding: {sentence}"))
    }

    fn line(&mut self, line: &str) -> Outcome<()> {
        if !self.is_unheard {
            self.said = self.clock.now_millis();
            // Files take seconds; a line is worth most while one waits for the next.
            match writeln!(self.out, "{line}").and_then(|()| self.out.flush()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_unheard = true,
                written => written?,
            }
        }
        if self.is_unheard && self.findings > 0 {
            // Nothing worse can come.
            return Err(Failure::Unheard);
        }
        Ok(())
    }

    /// A file that could not be looked at.
    pub(crate) fn unread(&mut self, error: &Error) -> Outcome<()> {
        let sentence = error.to_string();
        if self.unread.contains(&sentence) {
            return Ok(());
        }
        self.line(&format!("unread: {sentence}"))?;
        self.unread.insert(sentence);
        Ok(())
    }

    /// A finding as the storage floor words it, or a file that could not be looked at. What is neither, but keeps the command from its work,
    /// is handed back.
    pub(crate) fn finding(&mut self, error: Error) -> Outcome<()> {
        if is_unread(&error) {
            self.unread(&error)
        } else if is_of_a_file(&error) {
            self.sentence(&error.to_string())
        } else {
            Err(Failure::Storage(error))
        }
    }

    /// A finding in something of which it is known what it is.
    pub(crate) fn finding_of(&mut self, error: Error, what: &str) -> Outcome<()> {
        match error {
            Error::Corrupt { .. } => self.finding_with(&error, &format!("this is {what}: {RESTORE}")),
            other => self.finding(other),
        }
    }

    /// A finding for which there is better to do than to restore a backup.
    pub(crate) fn finding_with(&mut self, error: &Error, what_to_do: &str) -> Outcome<()> {
        match error {
            Error::Corrupt {
                file,
                offset,
                expected,
                found,
            } => self.sentence(&format!(
                "'{file}' is damaged at offset {offset}: expected {expected}, found {found}; {what_to_do}"
            )),
            other if is_unread(other) => self.unread(other),
            other => self.sentence(&other.to_string()),
        }
    }

    /// A finding, if it is not what a write that was cut off left behind.
    pub(crate) fn doubt(
        &mut self,
        leftover: Leftover,
        error: Error,
        what_to_do: &'static str,
    ) -> Outcome<()> {
        match &mut self.doubts {
            Some(doubts) if matches!(error, Error::Corrupt { .. }) => {
                doubts.push(Doubt {
                    leftover,
                    error,
                    what_to_do,
                });
                Ok(())
            }
            _ => self.finding_with(&error, what_to_do),
        }
    }

    /// Tells what was kept back: as findings, or as notes where it was left behind.
    pub(crate) fn settle(&mut self, is_left_behind: impl Fn(Leftover) -> bool) -> Outcome<()> {
        for doubt in self.doubts.take().unwrap_or_default() {
            let Doubt {
                leftover,
                error,
                what_to_do,
            } = doubt;
            match &error {
                Error::Corrupt {
                    file,
                    offset,
                    expected,
                    found,
                } if is_left_behind(leftover) => {
                    let of_whom = match leftover {
                        Leftover::Piece(_) => "nothing names the file, the next opening removes it",
                        Leftover::Value => "no row names a value there",
                    };
                    self.progress(&format!(
                        "note: '{file}' at offset {offset}: expected {expected}, found {found}: left by a write that was cut off: {of_whom}"
                    ))?;
                }
                _ => self.finding_with(&error, what_to_do)?,
            }
        }
        Ok(())
    }

    /// The end of the work. Where it could not be done, nobody learns any more what `settle` would tell apart: it is all said as findings.
    pub(crate) fn conclude(&mut self, done: Outcome<()>) -> Outcome<()> {
        if done.is_err() {
            self.settle(|_| false)?;
        }
        done
    }

    /// The value, or a finding and nothing.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Outcome<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.finding(error).map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of a command with a doubt that ended so.
    fn written(done: Outcome<()>) -> (Outcome<()>, String) {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, false, 5);
        report.keep_doubts();
        let error = Error::Corrupt {
            file: "blob-00000001.pbx".into(),
            offset: 4096,
            expected: "a value".into(),
            found: "zeros".into(),
        };
        report
            .doubt(Leftover::Value, error, RESTORE)
            .expect("a doubt is kept");
        let done = report.conclude(done);
        drop(report);
        (done, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn what_was_kept_back_is_said_where_the_work_could_not_be_done() {
        let (done, text) = written(Err(Failure::Usage("no room".into())));
        assert!(matches!(done, Err(Failure::Usage(_))), "{done:?}");
        let wanted = "finding: 'blob-00000001.pbx' is damaged at offset 4096: expected a value, found zeros; restore it from a backup\n";
        assert_eq!(text, wanted);
        let (done, text) = written(Ok(()));
        assert!(
            done.is_ok() && text.is_empty(),
            "it is still to be settled: {text}"
        );
    }
}
