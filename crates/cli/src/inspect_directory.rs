//! Table of a directory: every file with what it is for, and what the manifest says of it.
//!
//! Format: docs/format.md#files.

use crate::directory::{Directory, Head, Place};
use crate::failure::{Outcome, Verdict, is_of_a_file};
use crate::manifest_file::Facts;
use crate::manifests::{ManifestFile, NAMES};
use crate::missing::Missing;
use crate::opened::{self, Opened};
use crate::piece_content::name_of;
use crate::text::size;
use pbxt_base::{Error, Result};
use pbxt_segment::{PieceFile, SegmentClass, SegmentHeader, SegmentStore, segment_name};
use std::collections::BTreeSet;
use std::io::Write;

/// Sections of a piece file that a line names.
const SECTIONS_SHOWN: usize = 4;

/// Prints the table, and says what it comes to; `pbxt verify` looks at more.
pub(crate) fn inspect(directory: &Directory, open: bool, out: &mut dyn Write) -> Outcome<Verdict> {
    if let Some(user) = &directory.user {
        writeln!(out, "note: {user}; what is being written may look unfinished")?;
    }
    let facts = directory.manifests.facts();
    let opened = if open {
        Some(opened::for_table(directory)?)
    } else {
        None
    };
    let orphans = opened.as_ref().map(Opened::orphans);
    print_database(directory, facts, out)?;
    writeln!(
        out,
        "{:18} {:>10} {:>11}  {:12} content",
        "file", "size", "incarnation", "state"
    )?;
    let mut verdict = print_manifests(directory, out)?;
    for place in &directory.places {
        let (line, found) = match describe(directory, *place, facts, orphans.as_ref()) {
            Err(error) if is_of_a_file(&error) => of_error(directory, *place, &error),
            described => described?,
        };
        verdict = verdict.max(found);
        writeln!(out, "{line}")?;
    }
    verdict = verdict.max(print_missing(directory, out)?);
    if let Some(opened) = opened {
        opened.print_tables(out)?;
    }
    Ok(verdict)
}

fn print_database(directory: &Directory, facts: Option<&Facts>, out: &mut dyn Write) -> Outcome<()> {
    let Some(facts) = facts else {
        writeln!(
            out,
            "{}: {}",
            directory.path.display(),
            directory.manifests.verdict().why
        )?;
        return Ok(());
    };
    let closed = match facts.closed {
        Some(end) => format!("closed in order, the log ends at LSN {end}"),
        None => "not closed: in use, or recovery finds the end of the log".into(),
    };
    writeln!(
        out,
        "database {:032x}, made at {} (Unix seconds), incarnation {}, {closed}",
        facts.uuid, facts.created, facts.incarnation
    )?;
    writeln!(
        out,
        "hot segments of {}, chunks of {}, blob segments of {}",
        size(facts.geometry.hot_segment_bytes),
        size(facts.geometry.chunk_bytes),
        size(facts.geometry.blob_segment_bytes)
    )?;
    match facts.checkpoint {
        Some(checkpoint) => writeln!(
            out,
            "checkpoint: image {}, recovery reads from LSN {}, the log starts at {}",
            segment_name(SegmentClass::Meta, checkpoint.image),
            checkpoint.start,
            checkpoint.log_start
        )?,
        None => writeln!(out, "no checkpoint: recovery reads the whole log")?,
    }
    Ok(())
}

fn print_manifests(directory: &Directory, out: &mut dyn Write) -> Outcome<Verdict> {
    let counts = directory.manifests.verdict().counts;
    let mut verdict = Verdict::Good;
    for (index, name) in NAMES.into_iter().enumerate() {
        let (state, content) = match &directory.manifests.files[index] {
            ManifestFile::Missing => continue,
            ManifestFile::Whole(decoded) => {
                let state = if counts == Some(index) { "counts" } else { "older" };
                (
                    state,
                    format!("generation {}, ends at {}", decoded.generation, decoded.end),
                )
            }
            ManifestFile::Unreadable(error) => {
                verdict = Verdict::Damaged;
                ("unreadable", error.to_string())
            }
            ManifestFile::Unread(error) => {
                verdict = verdict.max(Verdict::Unread);
                ("unread", error.to_string())
            }
        };
        let bytes = directory.disk.open(name, false).and_then(|file| file.len());
        let bytes = bytes.map_or_else(|_| "-".into(), size);
        writeln!(out, "{name:18} {bytes:>10} {:>11}  {state:12} {content}", "-")?;
    }
    // Where none counts one of them says why, unless both are missing.
    if counts.is_none() && verdict == Verdict::Good {
        verdict = Verdict::Damaged;
    }
    Ok(verdict)
}

/// Lines of files that have to be there and are not.
fn print_missing(directory: &Directory, out: &mut dyn Write) -> Outcome<Verdict> {
    let missing = Missing::find(directory)?;
    let mut verdict = Verdict::Good;
    for (places, why) in [
        (&missing.of_manifest, "the manifest lists it"),
        (&missing.of_image, "the checkpoint names it"),
    ] {
        for (class, id) in places {
            verdict = Verdict::Damaged;
            let name = segment_name(*class, *id);
            writeln!(out, "{name:18} {:>10} {:>11}  missing      {why}", "-", "-")?;
        }
    }
    Ok(verdict)
}

/// The line of a file that is damaged as a whole, or could not be looked at.
fn of_error(directory: &Directory, place: Place, error: &Error) -> (String, Verdict) {
    let (name, verdict) = (segment_name(place.0, place.1), Verdict::of_error(error));
    let state = if verdict == Verdict::Unread {
        "unread"
    } else {
        "damaged"
    };
    let bytes = match directory.bytes(place) {
        Ok(Some(bytes)) => size(bytes),
        _ => "-".into(),
    };
    let line = format!("{name:18} {bytes:>10} {:>11}  {state:12} {error}", "-");
    (line, verdict)
}

/// The line of a segment file, and what it comes to.
fn describe(
    directory: &Directory,
    place: Place,
    facts: Option<&Facts>,
    orphans: Option<&BTreeSet<Place>>,
) -> Result<(String, Verdict)> {
    let name = segment_name(place.0, place.1);
    let Some(bytes) = directory.bytes(place)? else {
        let line = format!(
            "{name:18} {:>10} {:>11}  gone         removed meanwhile",
            "-", "-"
        );
        return Ok((line, Verdict::Good));
    };
    let bytes = size(bytes);
    Ok(match directory.head(place, facts)? {
        Head::Damaged(error) => of_error(directory, place, &error),
        Head::Unbegun => (
            format!("{name:18} {bytes:>10} {:>11}  prepared     nothing yet", "-"),
            Verdict::Good,
        ),
        Head::Begun(header) => {
            let state = state_of(place, &header, facts, orphans);
            let (content, verdict) = content_of(directory, &header, facts)?;
            let incarnation = header.incarnation;
            (
                format!("{name:18} {bytes:>10} {incarnation:>11}  {state:12} {content}"),
                verdict,
            )
        }
    })
}

/// What the manifest makes of a file.
fn state_of(
    place: Place,
    header: &SegmentHeader,
    facts: Option<&Facts>,
    orphans: Option<&BTreeSet<Place>>,
) -> &'static str {
    let Some(facts) = facts else { return "unknown" };
    let is_image = facts
        .checkpoint
        .is_some_and(|checkpoint| checkpoint.image == place.1);
    match place.0 {
        SegmentClass::Hot if facts.first_hot().is_some_and(|first| place.1 < first) => "not needed",
        SegmentClass::Meta if is_image => "image",
        SegmentClass::Cold | SegmentClass::Meta
            if orphans.is_some_and(|orphans| orphans.contains(&place)) =>
        {
            "orphan"
        }
        SegmentClass::Cold | SegmentClass::Meta if orphans.is_some() => "named",
        // Openings remove what neither the checkpoint nor the log's tail names.
        SegmentClass::Cold | SegmentClass::Meta if header.incarnation < facts.incarnation => "kept",
        SegmentClass::Cold | SegmentClass::Meta => "new",
        _ if facts.sealed.contains_key(&place) => "sealed",
        _ if facts.begun.contains(&place) => "begun",
        _ => "orphan",
    }
}

fn content_of(
    directory: &Directory,
    header: &SegmentHeader,
    facts: Option<&Facts>,
) -> Result<(String, Verdict)> {
    Ok(match header.class {
        SegmentClass::Hot => {
            let sealed = facts.and_then(|facts| facts.sealed.get(&(header.class, header.id)));
            let first = header.first_lsn;
            let lsns = match sealed {
                Some(sealed) => format!("LSN {first} to {}", sealed.end),
                None => format!("LSN from {first}"),
            };
            (lsns, Verdict::Good)
        }
        SegmentClass::Blob => ("large values".into(), Verdict::Good),
        SegmentClass::Cold | SegmentClass::Meta => {
            let facts = facts.map_or_else(|| facts_of(header), bare);
            let store = directory.store_of((header.class, header.id), &facts)?;
            match sections_of(&store, header) {
                Ok(sections) => (sections, Verdict::Good),
                Err(error @ Error::Corrupt { .. }) => (error.to_string(), Verdict::Damaged),
                Err(error) => return Err(error),
            }
        }
    })
}

/// Sections of a piece file: each by itself, or counted if there are many.
fn sections_of(store: &SegmentStore, header: &SegmentHeader) -> Result<String> {
    let file = PieceFile::open(store, header.class, header.id)?;
    let names = file
        .sections()
        .iter()
        .map(|section| name_of(section.kind, section.owner));
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(SECTIONS_SHOWN);
    if more > 0 {
        names.truncate(SECTIONS_SHOWN);
        names.push(format!("{more} more"));
    }
    Ok(names.join("; "))
}

/// Facts that ask for no file to be there.
pub(crate) fn bare(facts: &Facts) -> Facts {
    Facts {
        uuid: facts.uuid,
        geometry: facts.geometry,
        incarnation: facts.incarnation,
        ..Facts::default()
    }
}

fn facts_of(header: &SegmentHeader) -> Facts {
    Facts {
        uuid: header.uuid,
        ..Facts::default()
    }
}
