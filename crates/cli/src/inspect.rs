//! `pbxt inspect`: finds out what a path is, and has it printed.
//!
//! Rules: a file is told by its first bytes and not by its name, so a copy under another name is read too.

use crate::args::InspectArgs;
use crate::directory::{self, Directory, Lock, split, store_of_one};
use crate::failure::{Failure, Outcome, Verdict};
use crate::inspect_hot::Wanted;
use crate::inspect_piece::Depth;
use crate::manifests::NAMES;
use crate::piece_content::Content;
use crate::text::size;
use crate::{
    inspect_blob, inspect_directory, inspect_hot, inspect_manifest, inspect_piece, keyed_disk, opened,
};
use pbxt_base::Error;
use pbxt_segment::{SEGMENT_HEADER_BYTES, SegmentClass, SegmentHeader};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// How segments and manifests begin (docs/format.md).
const SEGMENT_MARK: &[u8] = b"PBXTSEG1";
const MANIFEST_MARK: &[u8] = b"PBXTMAN1";

/// Prints what is at the path.
pub(crate) fn run(args: &InspectArgs, out: &mut dyn Write) -> Outcome<Verdict> {
    let path = &args.path;
    if path.is_dir() {
        refuse_options(args, "a directory", &["--open"])?;
        let lock = if args.open { Lock::Held } else { Lock::Free };
        return inspect_directory::inspect(&Directory::open(path, lock)?, args.open, out);
    }
    file(path, args, out).map(Verdict::of)
}

/// True if nothing that was looked at is damaged.
fn file(path: &Path, args: &InspectArgs, out: &mut dyn Write) -> Outcome<bool> {
    let (parent, name) = split(path)?;
    if NAMES.contains(&name.as_str()) {
        refuse_options(args, "a manifest", &[])?;
        return inspect_manifest::inspect(path, out);
    }
    let disk = keyed_disk::open(&parent)?;
    let file = disk.open(&name, false)?;
    let bytes = file.len()?;
    let mut first = vec![0; bytes.min(SEGMENT_HEADER_BYTES as u64) as usize];
    file.read_at(&mut first, 0)?;
    if directory::place_of(&name).is_some() && first.iter().all(|byte| *byte == 0) {
        writeln!(out, "{name}: {}, set aside and never begun", size(bytes))?;
        return Ok(true);
    }
    if directory::place_of(&name).is_none() {
        refuse_others(&first, file.name())?;
    }
    let header = SegmentHeader::decode(&first, file.name())?;
    print_header(&name, bytes, &header, out)?;
    segment(path, &header, args, out)
}

fn segment(path: &Path, header: &SegmentHeader, args: &InspectArgs, out: &mut dyn Write) -> Outcome<bool> {
    let (kind, takes): (_, &[&str]) = match header.class {
        SegmentClass::Hot => ("a hot segment", &["--from"]),
        SegmentClass::Blob => ("a blob segment", &[]),
        SegmentClass::Cold | SegmentClass::Meta => ("a piece file", &["--blocks", "--entries", "--section"]),
    };
    refuse_options(args, kind, takes)?;
    let store = store_of_one(path, header)?;
    match header.class {
        SegmentClass::Hot => {
            let wanted = Wanted {
                from: args.from.unwrap_or(0),
                limit: args.limit,
            };
            let end = header.first_lsn.raw() + header.segment_bytes;
            if wanted.from >= end {
                let sentence = format!(
                    "'--from {}' lies behind this segment, which ends at LSN {end}",
                    wanted.from
                );
                return Err(Failure::Usage(sentence));
            }
            inspect_hot::inspect(&store, header, wanted, out)
        }
        SegmentClass::Blob => {
            let dead = dead_beside(path, header).unwrap_or_default();
            inspect_blob::inspect(&store, header, dead, args.limit, out)
        }
        SegmentClass::Cold | SegmentClass::Meta => {
            let depth = Depth {
                blocks: args.blocks,
                entries: args.entries,
                section: args.section,
                limit: args.limit,
            };
            let content = content_for(path, header, args, out)?;
            inspect_piece::inspect(&store, header, depth, &content, out)
        }
    }
}

/// What the entries of a file are read with: names and columns of tables, for rows.
fn content_for(
    path: &Path,
    header: &SegmentHeader,
    args: &InspectArgs,
    out: &mut dyn Write,
) -> Outcome<Content> {
    if !args.entries || header.class != SegmentClass::Cold {
        return Ok(Content::default());
    }
    match opened::content_beside(&split(path)?.0, header.uuid) {
        Ok(content) => Ok(content),
        Err(why) => {
            writeln!(out, "  the columns of its tables are not known: {why}")?;
            Ok(Content::default())
        }
    }
}

/// Dead ranges of a blob segment, as the newest checkpoint of the database around it has them; none for a file that stands alone.
fn dead_beside(path: &Path, header: &SegmentHeader) -> Option<Vec<Range<u64>>> {
    let directory = Directory::open(&split(path).ok()?.0, Lock::Free).ok()?;
    let facts = directory.manifests.facts()?;
    if facts.uuid != header.uuid {
        return None;
    }
    let store = directory.store(facts, &BTreeSet::new()).ok()?;
    Some(inspect_blob::dead_of(&store, header.id))
}

fn print_header(name: &str, bytes: u64, header: &SegmentHeader, out: &mut dyn Write) -> Outcome<()> {
    let what = match header.class {
        SegmentClass::Hot => "hot segment",
        SegmentClass::Cold => "cold piece file",
        SegmentClass::Meta => "meta piece file",
        SegmentClass::Blob => "blob segment",
    };
    writeln!(
        out,
        "{name}: {what} {} of database {:032x}, {}, begun by incarnation {}",
        header.id,
        header.uuid,
        size(bytes),
        header.incarnation
    )?;
    Ok(())
}

/// A file without the name of a segment and without its mark is something else, and no segment that is damaged.
fn refuse_others(first: &[u8], file: &str) -> Outcome<()> {
    if first.starts_with(MANIFEST_MARK) {
        let [a, b] = NAMES;
        let sentence = format!("'{file}' is a manifest, and is read under the name it had: '{a}' or '{b}'");
        return Err(Failure::Usage(sentence));
    }
    if first.starts_with(SEGMENT_MARK) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "'{file}' is no file of a PBXT database: it does not begin as one"
    )))
}

/// An option that the file does not take asked for something that would not be in the answer.
fn refuse_options(args: &InspectArgs, kind: &str, takes: &[&str]) -> Outcome<()> {
    let given = [
        ("--open", args.open, "a directory"),
        ("--from", args.from.is_some(), "a hot segment"),
        ("--section", args.section.is_some(), "a piece file"),
        ("--blocks", args.blocks, "a piece file"),
        ("--entries", args.entries, "a piece file"),
    ];
    for (option, is_given, what) in given {
        if is_given && !takes.contains(&option) {
            return Err(Failure::Usage(format!(
                "{option} is for {what}; '{}' is {kind}: leave the option out, or name {what}",
                args.path.display()
            )));
        }
    }
    Ok(())
}

/// Errors that say that what was looked at is damaged, and not that it could not be looked at.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. })
}
