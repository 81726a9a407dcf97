//! Verification of the hot log: the chain of batches, from the log's start to its end.
//!
//! Why it exists: the checksums of batches cover every record; the chain says that none is missing.
//! Rules: D5 where the chain stops is the end of the log or damage, and the scan that recovery uses says which. Behind
//! damage the next segment is read, so that one flipped bit does not hide another one.

use crate::directory::{Place, place_of};
use crate::failure::Outcome;
use crate::manifest_file::Facts;
use crate::report::Report;
use crate::text::count;
use crate::verify::Subject;
use pbxt_base::{Error, Lsn, Result, SegmentId};
use pbxt_segment::{SegmentClass, SegmentStore};
use pbxt_txlog::LogScan;
use std::path::Path;
use std::sync::Arc;

/// Records between two looks at the clock.
const RECORDS_AT_ONCE: u64 = 1024;

/// What one scan has met.
struct Scanned {
    records: u64,
    /// Where the log ends; or why the scan could not go on.
    end: Result<Lsn>,
}

/// Reads the log.
pub(crate) fn log(subject: &Subject<'_>, store: &Arc<SegmentStore>, report: &mut Report<'_>) -> Outcome<()> {
    let Some(facts) = subject.facts else {
        return report.progress("log: left out, as without a manifest nobody knows where it starts");
    };
    if subject.live {
        return report.progress(
            "log: left out, as it is being written; sealed segments were compared with their hashes",
        );
    }
    let is_of_log = |place: &Place| facts.sealed.contains_key(place) || facts.begun.contains(place);
    if subject
        .hidden
        .iter()
        .any(|place| place.0 == SegmentClass::Hot && is_of_log(place))
    {
        return report.progress("log: left out, as one of its segments could not be read");
    }
    let mut records = 0;
    let mut from = Some(first_lsn(facts));
    while let Some(start) = from.take() {
        let scanned = scan(store, start, report)?;
        records += scanned.records;
        match scanned.end {
            Ok(end) => {
                let line = format!("log: {} from LSN {start} to {end}", count(records, "record"));
                report.progress(&line)?;
                behind_checkpoint(store, facts, end, report)?;
            }
            Err(error) => {
                from = next_start(subject, facts, &error);
                report.finding(error)?;
            }
        }
    }
    Ok(())
}

/// LSN at which the first segment of the log begins: rows may still lie below the place where recovery reads.
fn first_lsn(facts: &Facts) -> Lsn {
    let segment_bytes = facts.geometry.hot_segment_bytes;
    let log_start = facts
        .checkpoint
        .map_or(0, |checkpoint| checkpoint.log_start.raw());
    Lsn::new(log_start - log_start % segment_bytes)
}

fn scan(store: &Arc<SegmentStore>, from: Lsn, report: &mut Report<'_>) -> Outcome<Scanned> {
    let mut records = 0;
    let mut scan = match LogScan::new(Arc::clone(store), from) {
        Ok(scan) => scan,
        Err(error) => {
            let end = Err(error);
            return Ok(Scanned { records, end });
        }
    };
    let read = loop {
        match scan.next_record() {
            Ok(Some((lsn, _))) => {
                if records % RECORDS_AT_ONCE == 0 {
                    report.waiting(|| format!("log: at LSN {lsn}"))?;
                }
                records += 1;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let end = read.and_then(|()| scan.finish()).map(|end| end.lsn());
    Ok(Scanned { records, end })
}

/// A checkpoint knows that the log was durable up to its start: recovery's own scan says so if it is not there.
fn behind_checkpoint(
    store: &Arc<SegmentStore>,
    facts: &Facts,
    end: Lsn,
    report: &mut Report<'_>,
) -> Outcome<()> {
    match facts.checkpoint {
        Some(checkpoint) if end < checkpoint.start => {
            let scanned = scan(store, checkpoint.start, report)?;
            report.take(scanned.end)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Where to go on behind damage: the next segment with a good header.
fn next_start(subject: &Subject<'_>, facts: &Facts, error: &Error) -> Option<Lsn> {
    let Error::Corrupt { file, .. } = error else {
        return None;
    };
    let (_, damaged) = place_of(Path::new(file).file_name()?.to_str()?)?;
    let behind = (SegmentClass::Hot, SegmentId::new(damaged.raw() + 1))..;
    let ((class, next), _) = subject.sound.range(behind).next()?;
    (*class == SegmentClass::Hot).then(|| Lsn::new(u64::from(next.raw()) * facts.geometry.hot_segment_bytes))
}
