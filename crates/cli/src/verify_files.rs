//! Verification of files that are written once: sealed hot segments, piece files, blob segments.
//!
//! Rules: F8 a sealed segment has the hash its footer and the manifest say. F14 a piece file counts only as a whole; each
//! of its blocks is looked at, so that the finding names the block and not the file alone. S50 a running database may give back the room
//! of dead values while their file is read here: what the newest checkpoint by then knows to be dead is no finding.

use crate::directory::{Directory, Place};
use crate::failure::Outcome;
use crate::inspect_blob::dead_of;
use crate::missing::image_of;
use crate::report::{Leftover, Report};
use crate::text::{count, size};
use crate::verify::{Subject, short_name};
use pbxt::ImageNames;
use pbxt_base::{Error, Result, SegmentId};
use pbxt_segment::{
    BlobWalk, Found, PieceDamage, PieceFile, PieceWalk, Section, SegmentClass, SegmentHeader, SegmentStore,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece file that are read at once.
const READ_BYTES: usize = 1 << 20;
/// A checkpoint may replace the image that is being read; not so often.
const IMAGES_ASKED: usize = 3;
/// What to do about a piece file without an end, written by a life that was not closed in order.
pub(crate) const UNFINISHED: &str = "either the server stopped while it wrote the file, or the file is damaged: 'pbxt verify \
     --open' tells which; restore it from a backup if it is damage";
/// What to do about bytes in a blob segment that belong to no value.
const NO_VALUE: &str = "harmless if the server stopped while it wrote here, as no row names it then ('pbxt verify --open' and CHECK \
     TABLE read every value that a row names); otherwise restore the file from a backup";

/// Compares every sealed segment with its hash.
pub(crate) fn sealed(subject: &Subject<'_>, store: &SegmentStore, report: &mut Report<'_>) -> Outcome<()> {
    let (mut good, mut bytes) = (0_u64, 0_u64);
    let is_sealed = |place: &Place| place.0 == SegmentClass::Hot && store.sealed(place.0, place.1).is_some();
    let sealed: Vec<_> = subject
        .sound
        .iter()
        .filter(|(place, _)| is_sealed(place))
        .collect();
    for (done, (place, header)) in sealed.iter().enumerate() {
        report.waiting(|| format!("sealed hot segments: {done} of {}", sealed.len()))?;
        let verified = store.verify_sealed(place.0, place.1);
        if !has_gone(subject, header)? && report.take(verified)?.is_some() {
            good += 1;
            bytes += header.segment_bytes;
        }
    }
    report.progress(&format!(
        "{}, {}: hashes good",
        count(good, "sealed hot segment"),
        size(bytes)
    ))
}

/// Reads every block of every piece file. Those of which something was told.
pub(crate) fn pieces(
    subject: &Subject<'_>,
    store: &SegmentStore,
    names: &ImageNames,
    report: &mut Report<'_>,
) -> Outcome<BTreeSet<Place>> {
    let mut unsound = BTreeSet::new();
    let is_piece = |header: &&SegmentHeader| matches!(header.class, SegmentClass::Cold | SegmentClass::Meta);
    for header in subject.sound.values().filter(is_piece) {
        let name = short_name((header.class, header.id));
        let opened = PieceFile::open(store, header.class, header.id);
        if has_gone(subject, header)? {
            continue;
        }
        let before = report.findings();
        match opened {
            Ok(file) => {
                blocks(&file, names, report)?;
                if report.findings() == before {
                    let blocks: usize = file.sections().iter().map(Section::block_count).sum();
                    let (blocks, bytes) = (count(blocks as u64, "block"), size(file.file_bytes()));
                    report.progress(&format!("{name}: {blocks}, {bytes}: good"))?;
                }
            }
            Err(_) if subject.live && is_of_this_life(subject, header) => {
                report.progress(&format!("{name}: being written, left out"))?;
            }
            Err(error) if may_be_unfinished(subject, header) => {
                report.doubt(Leftover::Piece((header.class, header.id)), error, UNFINISHED)?;
            }
            Err(error) => match names.file_in_words((header.class, header.id)) {
                Some(words) => report.finding_of(error, &words)?,
                None => report.finding(error)?,
            },
        }
        if report.findings() > before {
            unsound.insert((header.class, header.id));
        }
    }
    Ok(unsound)
}

/// Every block, and the file as a whole if these are good.
fn blocks(file: &Arc<PieceFile>, names: &ImageNames, report: &mut Report<'_>) -> Outcome<()> {
    let (mut walk, mut found) = (PieceWalk::new(Arc::clone(file)), Vec::new());
    let (name, whole) = (short_name((file.class(), file.id())), file.file_bytes());
    let mut done = 0;
    loop {
        report.waiting(|| format!("{name}: {} of {}", size(done), size(whole)))?;
        let Some(bytes) = walk.step(READ_BYTES, &mut |damage| found.push(damage)) else {
            return Ok(());
        };
        done += bytes;
        for PieceDamage { error, block } in found.drain(..) {
            let place =
                block.and_then(|(number, block)| Some((file.sections().get(number as usize)?, block)));
            let words = match place {
                Some((section, block)) => Some(names.block_in_words(section, block)),
                None => names.file_in_words((file.class(), file.id())),
            };
            match words {
                Some(words) => report.finding_of(error, &words)?,
                None => report.finding(error)?,
            }
        }
    }
}

/// Reads every frame of every large value.
pub(crate) fn blobs(subject: &Subject<'_>, store: &SegmentStore, report: &mut Report<'_>) -> Outcome<()> {
    let image = subject.facts.and_then(image_of);
    if image.is_some_and(|image| subject.hidden.contains(&image)) {
        return report.progress(
            "large values: left out, as the image could not be read that says which of them no row names any more",
        );
    }
    for header in subject
        .sound
        .values()
        .filter(|header| header.class == SegmentClass::Blob)
    {
        let name = short_name((header.class, header.id));
        if subject.live && is_of_this_life(subject, header) {
            report.progress(&format!("{name}: being written, left out"))?;
            continue;
        }
        let walked = values(subject, store, header.id, report)?;
        if has_gone(subject, header)? {
            continue;
        }
        if let Some((values, bytes)) = report.take(walked)? {
            report.progress(&format!(
                "{name}: {}, {} read",
                count(values, "value"),
                size(bytes)
            ))?;
        }
    }
    Ok(())
}

/// Number and bytes of the values that are good. Damage is reported, failures of the medium are handed back.
fn values(
    subject: &Subject<'_>,
    store: &SegmentStore,
    id: SegmentId,
    report: &mut Report<'_>,
) -> Outcome<Result<(u64, u64)>> {
    let file = match store.file(SegmentClass::Blob, id) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let dead = dead_of(store, id);
    let mut walk = match BlobWalk::new(Arc::clone(&file), id, dead) {
        Ok(walk) => walk,
        Err(error) => return Ok(Err(error)),
    };
    let (mut values, mut total, mut damages) = (0, 0, Vec::new());
    let walked = loop {
        match walk.next_found() {
            Ok(None) => break Ok((values, total)),
            Ok(Some(Found::Value { bytes, .. })) => {
                values += 1;
                total += bytes;
                let line = || {
                    let name = short_name((SegmentClass::Blob, id));
                    format!("{name}: {}, {} read", count(values, "value"), size(total))
                };
                report.waiting(line)?;
            }
            Ok(Some(Found::Hole { .. } | Found::Dead { .. })) => {}
            Ok(Some(Found::Damaged { offset, bytes, value })) => {
                let expected = match value {
                    Some(value) => format!("a frame of the value at {value} with its checksum"),
                    None => "a value with its checksum".into(),
                };
                let damage = Error::Corrupt {
                    file: file.name().to_owned(),
                    offset,
                    expected,
                    found: format!("{bytes} other bytes"),
                };
                damages.push((offset..offset + bytes, damage));
            }
            Err(error) => break Err(error),
        }
    };
    if subject.live && !damages.is_empty() {
        let dead = dead_by_now(subject.directory, id);
        damages.retain(|(place, _)| {
            let has_all = |range: &Range<u64>| range.start <= place.start && place.end <= range.end;
            !dead.iter().any(has_all)
        });
    }
    for (_, damage) in damages {
        report.doubt(Leftover::Value, damage, NO_VALUE)?;
    }
    Ok(walked)
}

/// Dead ranges of a segment as the newest checkpoint has them now; none if nobody can tell, because a running database makes one after the
/// other.
fn dead_by_now(directory: &Directory, id: SegmentId) -> Vec<Range<u64>> {
    let newest = || -> Option<Vec<Range<u64>>> {
        let store = directory.store_as_it_is().ok()?;
        let mut dead = pbxt::dead_values(&store).ok()?;
        Some(dead.remove(&id).unwrap_or_default())
    };
    (0..IMAGES_ASKED).find_map(|_| newest()).unwrap_or_default()
}

/// True if the life that wrote the file may have ended while it wrote.
fn may_be_unfinished(subject: &Subject<'_>, header: &SegmentHeader) -> bool {
    is_of_this_life(subject, header) && subject.facts.is_some_and(|facts| facts.closed.is_none())
}

/// True if the last opening of the database wrote the file.
fn is_of_this_life(subject: &Subject<'_>, header: &SegmentHeader) -> bool {
    subject
        .facts
        .is_none_or(|facts| header.incarnation >= facts.incarnation)
}

/// A running database removes files while they are being read here.
fn has_gone(subject: &Subject<'_>, header: &SegmentHeader) -> Outcome<bool> {
    let name = short_name((header.class, header.id));
    Ok(subject.live && !subject.directory.disk.exists(&name)?)
}
