//! `pbxt verify`: compares a directory with every checksum in it, file by file, and goes on behind what is damaged.
//!
//! Why it exists: an opening stops at the first thing that is wrong, and reads only what it needs; a backup is worth what
//! has been read of it.
//! Rules: nothing is written. F5 each finding names file and offset. What is damaged is left out of the view that the storage
//! floor gets, so that the rest can still be read by its own code.
//! Latches and I/O: holds off databases that would begin to write, see `directory`.

use crate::args::VerifyArgs;
use crate::directory::{Directory, Head, Lock, Place};
use crate::failure::{Failure, Outcome, Verdict};
use crate::inspect_directory::bare;
use crate::manifest_file::Facts;
use crate::manifests::{ManifestFile, NAMES};
use crate::missing::{Missing, image_of};
use crate::report::{Leftover, Report};
use crate::text::count;
use crate::{opened, verify_files, verify_log};
use pbxt_base::Error;
use pbxt_segment::{SegmentClass, SegmentHeader, SegmentStore, segment_name};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

/// What is verified, and how much of it.
pub(crate) struct Subject<'d> {
    pub(crate) directory: &'d Directory,
    /// What the manifest says; none if no manifest counts.
    pub(crate) facts: Option<&'d Facts>,
    /// Headers that are good.
    pub(crate) sound: BTreeMap<Place, SegmentHeader>,
    /// Files that cannot be opened or read, which is told: nothing else is to meet them.
    pub(crate) hidden: BTreeSet<Place>,
    /// Only what never changes any more.
    pub(crate) live: bool,
}

/// Verifies a directory.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Outcome<Verdict> {
    let lock = if args.live { Lock::Free } else { Lock::Held };
    let directory = Directory::open(&args.directory, lock)?;
    if let Some(user) = directory.user.as_ref().filter(|_| !args.live) {
        let sentence = format!("{user}; or verify with --live what never changes any more");
        return Err(Failure::Usage(sentence));
    }
    let mut report = Report::new(out, args.quiet, args.progress);
    if args.open {
        report.keep_doubts();
    }
    let done = look(args, &directory, &mut report);
    report.conclude(done)?;
    Ok(report.verdict())
}

fn look(args: &VerifyArgs, directory: &Directory, report: &mut Report<'_>) -> Outcome<()> {
    manifests(directory, report)?;
    let mut subject = Subject {
        directory,
        facts: directory.manifests.facts(),
        sound: BTreeMap::new(),
        hidden: BTreeSet::new(),
        live: args.live,
    };
    headers(&mut subject, report)?;
    let missing = Missing::find(directory)?;
    gone(directory, &missing, report)?;
    if let Some(store) = view(&subject)? {
        verify_files::sealed(&subject, &store, report)?;
        verify_log::log(&subject, &store, report)?;
        let unsound = verify_files::pieces(&subject, &store, &missing.names, report)?;
        image(&subject, missing, &unsound, report)?;
        verify_files::blobs(&subject, &store, report)?;
    }
    if report.verdict() == Verdict::Good && !args.live {
        // Whatever else an opening asks of the directory.
        report.take(directory.store_as_it_is().map(drop))?;
    }
    if args.open {
        if report.verdict() == Verdict::Good {
            opened::verify(&args.directory, report)?;
        } else {
            report.settle(|_| false)?;
            report.progress("tables: left out, because of what was said above")?;
        }
    }
    report.end()
}

fn manifests(directory: &Directory, report: &mut Report<'_>) -> Outcome<()> {
    let verdict = directory.manifests.verdict();
    let mut explained = verdict.counts.is_some();
    for (index, name) in NAMES.into_iter().enumerate() {
        match &directory.manifests.files[index] {
            ManifestFile::Missing => {}
            ManifestFile::Whole(decoded) => {
                report.progress(&format!("{name}: generation {}, good", decoded.generation))?;
                if decoded.is_torn && verdict.counts == Some(index) {
                    let at = decoded.end;
                    report.progress(&format!(
                        "{name}: note: a torn append at offset {at}, taken as never made"
                    ))?;
                }
            }
            ManifestFile::Unread(error) => {
                explained = true;
                report.unread(error)?;
            }
            ManifestFile::Unreadable(error) => {
                explained = true;
                match verdict.counts {
                    Some(counts) => report.finding_with(
                        error,
                        &format!(
                            "'{}' counts and is whole, so nothing is lost: the database replaces this file in time",
                            NAMES[counts]
                        ),
                    )?,
                    None => report.sentence(&error.to_string())?,
                }
            }
        }
    }
    if explained {
        report.progress(&verdict.why)
    } else {
        report.sentence(&format!("'{}': {}", directory.path.display(), verdict.why))
    }
}

fn headers(subject: &mut Subject<'_>, report: &mut Report<'_>) -> Outcome<()> {
    let (directory, facts) = (subject.directory, subject.facts);
    for place in &directory.places {
        if facts.is_some_and(|facts| is_below_log(*place, facts)) {
            continue;
        }
        match report.take(directory.bytes(*place))? {
            Some(Some(_)) => {}
            // Gone meanwhile.
            Some(None) => continue,
            None => {
                subject.hidden.insert(*place);
                continue;
            }
        }
        let is_told = facts.is_none_or(|facts| {
            facts.sealed.contains_key(place) || facts.begun.contains(place) || place.0 != SegmentClass::Hot
        });
        match report.take(directory.head(*place, facts))? {
            Some(Head::Begun(header)) => {
                subject.sound.insert(*place, header);
            }
            Some(Head::Damaged(error)) if is_told => report.finding(error)?,
            Some(Head::Damaged(error)) => report.progress(&format!(
                "note: {error}; but the manifest has no word of it: it was being begun when the power failed"
            ))?,
            Some(Head::Unbegun) => unbegun(subject, *place, report)?,
            None => drop(subject.hidden.insert(*place)),
        }
    }
    report.progress(&format!(
        "{}: good",
        count(subject.sound.len() as u64, "segment header")
    ))
}

/// A file of zeros, or of nothing.
fn unbegun(subject: &Subject<'_>, place: Place, report: &mut Report<'_>) -> Outcome<()> {
    let is_told = subject
        .facts
        .is_some_and(|facts| facts.sealed.contains_key(&place) || facts.begun.contains(&place));
    let zeros = || Error::Corrupt {
        file: subject.directory.name(place),
        offset: 0,
        expected: "a segment header".into(),
        found: "zeros, or an empty file".into(),
    };
    match place.0 {
        _ if is_told => report.finding(zeros()),
        SegmentClass::Cold | SegmentClass::Meta if !subject.live => {
            report.doubt(Leftover::Piece(place), zeros(), verify_files::UNFINISHED)
        }
        _ => Ok(()),
    }
}

/// Files that have to be there and are not.
fn gone(directory: &Directory, missing: &Missing, report: &mut Report<'_>) -> Outcome<()> {
    for (places, expected) in [
        (&missing.of_manifest, "a file the manifest lists"),
        (&missing.of_image, "a file the checkpoint names"),
    ] {
        for place in places {
            let error = Error::Corrupt {
                file: directory.name(*place),
                offset: 0,
                expected: expected.into(),
                found: "no such file".into(),
            };
            match missing.names.file_in_words(*place) {
                Some(words) => report.finding_of(error, &words)?,
                None => report.finding(error)?,
            }
        }
    }
    Ok(())
}

/// An image whose checksums are good and whose items are not; damage of its header or blocks has been told.
fn image(
    subject: &Subject<'_>,
    missing: Missing,
    unsound: &BTreeSet<Place>,
    report: &mut Report<'_>,
) -> Outcome<()> {
    let place = subject.facts.and_then(image_of);
    let is_told = place.is_none_or(|place| !subject.sound.contains_key(&place) || unsound.contains(&place));
    match missing.unknown {
        Some(pbxt::Error::Storage(error)) if !is_told => report.finding(error),
        Some(error) if !is_told => report.sentence(&error.to_string()),
        _ => Ok(()),
    }
}

/// The storage floor's view of what is not damaged; none if there is nothing to look at.
fn view(subject: &Subject<'_>) -> Outcome<Option<Arc<SegmentStore>>> {
    let Some(facts) = subject.facts else {
        return view_without_manifest(subject);
    };
    // A running database has removed files since they were listed.
    let is_there =
        |place: &Place| !subject.live || subject.directory.disk.exists(&short_name(*place)).unwrap_or(true);
    let mut shown = facts.clone();
    shown.superseded = None;
    shown
        .sealed
        .retain(|place, _| subject.sound.contains_key(place) && is_there(place));
    shown
        .begun
        .retain(|place| subject.sound.contains_key(place) && is_there(place));
    shown.checkpoint = facts.checkpoint.filter(|_| {
        image_of(facts).is_some_and(|image| subject.sound.contains_key(&image) && is_there(&image))
    });
    Ok(Some(subject.directory.store(&shown, &subject.hidden)?))
}

fn view_without_manifest(subject: &Subject<'_>) -> Outcome<Option<Arc<SegmentStore>>> {
    let Some(any) = subject.sound.values().next() else {
        return Ok(None);
    };
    let facts = Facts {
        uuid: any.uuid,
        ..Facts::default()
    };
    Ok(Some(subject.directory.store(&bare(&facts), &subject.hidden)?))
}

/// True for a hot segment that the newest checkpoint has no use for.
fn is_below_log((class, id): Place, facts: &Facts) -> bool {
    class == SegmentClass::Hot && facts.first_hot().is_some_and(|first| id < first)
}

/// Name of a segment's file, for lines of progress.
pub(crate) fn short_name((class, id): Place) -> String {
    segment_name(class, id)
}
