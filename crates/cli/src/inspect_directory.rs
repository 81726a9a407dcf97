//! Table of a directory: every file with what it is for, and what the manifest says of it.
//!
//! Format: docs/format.md#files.

use crate::directory::{Directory, Head, Place};
use crate::failure::Outcome;
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

/// Prints the table. True if nothing that was looked at is damaged; `pbxt verify` looks at more.
pub(crate) fn inspect(directory: &Directory, open: bool, out: &mut dyn Write) -> Outcome<bool> {
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
    let mut is_good = print_manifests(directory, out)?;
    for place in &directory.places {
        let (line, good) = describe(directory, *place, facts, orphans.as_ref())?;
        is_good &= good;
        writeln!(out, "{line}")?;
    }
    is_good &= print_missing(directory, out)?;
    if let Some(opened) = opened {
        opened.print_tables(out)?;
    }
    Ok(is_good)
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

fn print_manifests(directory: &Directory, out: &mut dyn Write) -> Outcome<bool> {
    let counts = directory.manifests.verdict().counts;
    let mut is_good = counts.is_some();
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
                is_good = false;
                ("unreadable", error.to_string())
            }
        };
        let bytes = directory.disk.open(name, false)?.len()?;
        writeln!(
            out,
            "{name:18} {:>10} {:>11}  {state:12} {content}",
            size(bytes),
            "-"
        )?;
    }
    Ok(is_good)
}

/// Lines of files that have to be there and are not. True if there are none.
fn print_missing(directory: &Directory, out: &mut dyn Write) -> Outcome<bool> {
    let missing = Missing::find(directory)?;
    let mut is_good = true;
    for (places, why) in [
        (&missing.of_manifest, "the manifest lists it"),
        (&missing.of_image, "the checkpoint names it"),
    ] {
        for (class, id) in places {
            is_good = false;
            let name = segment_name(*class, *id);
            writeln!(out, "{name:18} {:>10} {:>11}  missing      {why}", "-", "-")?;
        }
    }
    Ok(is_good)
}

/// The line of a segment file, and whether what was looked at is good.
fn describe(
    directory: &Directory,
    place: Place,
    facts: Option<&Facts>,
    orphans: Option<&BTreeSet<Place>>,
) -> Result<(String, bool)> {
    let name = segment_name(place.0, place.1);
    let without_size =
        |state: &str, content: &str| format!("{name:18} {:>10} {:>11}  {state:12} {content}", "-", "-");
    let bytes = match directory.bytes(place) {
        Ok(Some(bytes)) => size(bytes),
        Ok(None) => return Ok((without_size("gone", "removed meanwhile"), true)),
        Err(error @ (Error::Corrupt { .. } | Error::Io { .. })) => {
            return Ok((without_size("damaged", &error.to_string()), false));
        }
        Err(error) => return Err(error),
    };
    Ok(match directory.head(place, facts)? {
        Head::Damaged(error) => (
            format!("{name:18} {bytes:>10} {:>11}  damaged      {error}", "-"),
            false,
        ),
        Head::Unbegun => (
            format!("{name:18} {bytes:>10} {:>11}  prepared     nothing yet", "-"),
            true,
        ),
        Head::Begun(header) => {
            let state = state_of(place, &header, facts, orphans);
            let (content, good) = content_of(directory, &header, facts)?;
            let incarnation = header.incarnation;
            (
                format!("{name:18} {bytes:>10} {incarnation:>11}  {state:12} {content}"),
                good,
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
) -> Result<(String, bool)> {
    Ok(match header.class {
        SegmentClass::Hot => {
            let sealed = facts.and_then(|facts| facts.sealed.get(&(header.class, header.id)));
            let first = header.first_lsn;
            let lsns = match sealed {
                Some(sealed) => format!("LSN {first} to {}", sealed.end),
                None => format!("LSN from {first}"),
            };
            (lsns, true)
        }
        SegmentClass::Blob => ("large values".into(), true),
        SegmentClass::Cold | SegmentClass::Meta => {
            let facts = facts.map_or_else(|| facts_of(header), bare);
            let store = directory.store_of((header.class, header.id), &facts)?;
            match sections_of(&store, header) {
                Ok(sections) => (sections, true),
                Err(error @ Error::Corrupt { .. }) => (error.to_string(), false),
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
