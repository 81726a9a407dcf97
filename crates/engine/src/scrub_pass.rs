//! A pass of the scrubber: which files it reads, and reading them one stretch after the other.
//!
//! Why it exists: files come and go while a pass goes on for days, so it begins with a list of names and asks about each one only when its
//! turn comes; with thousands of files no step looks at all of them.
//! Which files: the manifest file that counts, sealed segments of the log, blob segments as far as their values are complete, all piece
//! files but those that a job is still writing.
//! Rules: SC1 everything that has a checksum, past the caches. SC4 what goes meanwhile is no damage: what cannot be read, or is not what was
//! written, counts only if something still names the file. SC5 bytes of a blob segment that are no value wait for the search of
//! scrub_doubts.rs.
//! Latches and I/O: those of the catalog and of jobs for a look-up; the manifest's while its file is read.

use crate::database::Database;
use crate::error::Result;
use crate::image_names::ImageNames;
use crate::scrub_doubts::{Doubts, Nobodys, Search};
use crate::scrub_pace::Course;
use crate::scrub_tell::{Damage, Tally};
use pbxt_base::{Error as StorageError, Result as StorageResult, SegmentId};
use pbxt_io::is_passing_want;
use pbxt_segment::{BlobStep, BlobWalk, Found, PieceDamage, PieceFile, PieceWalk, SealedWalk, SegmentClass};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a stretch.
const STRETCH_BYTES: usize = 1 << 20;
/// A checkpoint may replace the image that is being asked; not so often while one file is looked at.
const IMAGES_ASKED: usize = 3;

/// What can be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Manifest,
    Segment(SegmentClass, SegmentId),
}

/// How a file is read.
#[derive(Debug)]
enum Walk {
    Piece(PieceWalk),
    Log(SealedWalk),
    Values(BlobWalk),
}

/// What became of a stretch.
#[derive(Clone, Copy, Debug)]
enum Stretch {
    /// So many bytes were read.
    Read(u64),
    /// There was nothing left.
    End,
    /// Something is lacking that will be there before long.
    PutOff,
}

impl Stretch {
    fn of(read: Option<u64>) -> Self {
        read.map_or(Self::End, Self::Read)
    }
}

/// The file at hand.
#[derive(Debug)]
struct Opened {
    class: SegmentClass,
    id: SegmentId,
    walk: Walk,
    /// Bytes of it that the course does not have yet.
    left: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pass {
    pub number: u64,
    /// Somebody asked for it, and it goes on without a pause where nobody is in the way.
    pub is_asked: bool,
    pub course: Course,
    /// Files to be read with their bytes, the next one last.
    rest: Vec<(Place, u64)>,
    open: Option<Opened>,
    doubts: Doubts,
    /// What earlier passes have asked for in vain.
    pub nobodys: Nobodys,
    search: Option<Search>,
    /// Something was lacking that will be there before long.
    pub is_put_off: bool,
    pub tally: Tally,
}

impl Pass {
    /// All files were read; rows are asked for values in doubt.
    pub(crate) fn is_searching(&self) -> bool {
        self.search.is_some()
    }
}

impl Database {
    /// Makes the list of a pass. It begins with another file each time: a server that is restarted more often than a pass takes would else
    /// never come to the last ones.
    pub(crate) fn begin_pass(&self, number: u64, is_asked: bool, period: u64, now: u64) -> Result<Pass> {
        let sizes = self.store.sizes()?.into_iter();
        let sizes: BTreeMap<_, _> = sizes.map(|(class, id, bytes)| ((class, id), bytes)).collect();
        let is_piece = |class| matches!(class, SegmentClass::Cold | SegmentClass::Meta);
        let pieces = sizes.keys().copied().filter(|(class, _)| is_piece(*class));
        let image = self
            .store
            .checkpoint()
            .map(|checkpoint| (SegmentClass::Meta, checkpoint.image));
        let mut files: BTreeSet<_> = pieces.chain(self.store.vouched_for()).chain(image).collect();
        self.for_each_named_file(|class, id| {
            files.insert((class, id));
        });
        let bytes_of = |file: &(SegmentClass, SegmentId)| sizes.get(file).copied().unwrap_or(0);
        let mut rest = vec![(Place::Manifest, self.store.manifest_bytes()?)];
        rest.extend(
            files
                .iter()
                .map(|file| (Place::Segment(file.0, file.1), bytes_of(file))),
        );
        let total = rest.iter().map(|(_, bytes)| bytes).sum();
        let first = self.clock.unix_seconds() % rest.len() as u64;
        rest.rotate_left(first as usize);
        rest.reverse();
        Ok(Pass {
            number,
            is_asked,
            course: Course {
                began: now,
                period,
                total,
                done: 0,
            },
            rest,
            open: None,
            doubts: Doubts::default(),
            nobodys: Nobodys::default(),
            search: None,
            is_put_off: false,
            tally: Tally::default(),
        })
    }

    /// Goes one stretch on. How many bytes were read; none if the pass is over.
    pub(crate) fn read_on(&self, pass: &mut Pass, damages: &mut Vec<Damage>) -> Option<u64> {
        if let Some(mut open) = pass.open.take() {
            if !self.store.exists(open.class, open.id).unwrap_or(true) {
                // Whoever has it open keeps its room.
                pass.course.done += open.left;
                return Some(0);
            }
            return Some(match self.walk_on(&mut open, &mut pass.doubts, damages) {
                Stretch::Read(bytes) => {
                    let passed = bytes.min(open.left);
                    open.left -= passed;
                    pass.course.done += passed;
                    pass.open = Some(open);
                    bytes
                }
                Stretch::End => {
                    pass.course.done += open.left;
                    0
                }
                // From its beginning: what was found in it before is met again.
                Stretch::PutOff => {
                    if open.class == SegmentClass::Blob {
                        pass.doubts.forget(open.id);
                    }
                    pass.rest.push((Place::Segment(open.class, open.id), open.left));
                    pass.is_put_off = true;
                    0
                }
            });
        }
        if let Some((place, bytes)) = pass.rest.pop() {
            return Some(self.open_next(pass, place, bytes, damages));
        }
        let doubts = std::mem::take(&mut pass.doubts).without(&pass.nobodys);
        if !doubts.is_empty() {
            pass.search = Some(self.begin_search(doubts));
        }
        let search = pass.search.as_mut()?;
        let read = self.search_on(search, &mut pass.nobodys, damages);
        pass.is_put_off = std::mem::take(&mut search.is_put_off);
        read
    }

    /// Opens the next file, or passes it over if it has gone. How many bytes were read: all of a manifest, nothing of others.
    fn open_next(&self, pass: &mut Pass, place: Place, bytes: u64, damages: &mut Vec<Damage>) -> u64 {
        let opened = match place {
            Place::Manifest => self.store.verify_manifest().map(|read| (read, None)),
            Place::Segment(class, id) => self
                .open_walk(class, id)
                .map(|walk| (0, walk.map(|walk| (class, id, walk)))),
        };
        match opened {
            Ok((_, Some((class, id, walk)))) => {
                pass.open = Some(Opened {
                    class,
                    id,
                    walk,
                    left: bytes,
                });
                0
            }
            Ok((read, None)) => {
                pass.course.done += bytes;
                read
            }
            Err(error) if is_passing_want(&error) => {
                pass.rest.push((place, bytes));
                pass.is_put_off = true;
                0
            }
            Err(error) => {
                pass.course.done += bytes;
                if self.counts(place) {
                    damages.push(self.damage_of_file(place, error));
                }
                0
            }
        }
    }

    /// How a file is to be read; none if it is not to be read now.
    fn open_walk(&self, class: SegmentClass, id: SegmentId) -> StorageResult<Option<Walk>> {
        Ok(match class {
            SegmentClass::Hot => {
                let file = self.store.open_past_cache(class, id)?;
                self.store.sealed_walk(class, id, file)?.map(Walk::Log)
            }
            SegmentClass::Blob => {
                let dead = self.upkeep.blobs.dead_ranges(id);
                let (file, end) = self.blobs.open_written(id)?;
                Some(Walk::Values(BlobWalk::up_to(file, id, dead, end)))
            }
            // A job may still be writing it.
            SegmentClass::Cold | SegmentClass::Meta
                if self.flight.holds(class, id) && !self.is_named(class, id) =>
            {
                None
            }
            SegmentClass::Cold | SegmentClass::Meta => {
                let piece = PieceFile::open_past_cache(&self.store, class, id)?;
                Some(Walk::Piece(PieceWalk::new(piece)))
            }
        })
    }

    /// Reads a stretch of the file at hand.
    fn walk_on(&self, open: &mut Opened, doubts: &mut Doubts, damages: &mut Vec<Damage>) -> Stretch {
        let (class, id) = (open.class, open.id);
        let place = Place::Segment(class, id);
        match &mut open.walk {
            Walk::Piece(walk) => {
                let mut found: Vec<PieceDamage> = Vec::new();
                let read = walk.step(STRETCH_BYTES, &mut |damage| found.push(damage));
                if found.iter().any(|damage| is_passing_want(&damage.error)) {
                    return Stretch::PutOff;
                }
                if !found.is_empty() && self.counts(place) {
                    let piece = walk.piece();
                    damages.extend(
                        found
                            .into_iter()
                            .map(|damage| self.damage_of_piece(piece, damage)),
                    );
                }
                Stretch::of(read)
            }
            Walk::Log(walk) => match walk.step(STRETCH_BYTES) {
                Ok(read) => Stretch::of(read),
                Err(error) if is_passing_want(&error) => Stretch::PutOff,
                Err(error) => {
                    if self.counts(place) {
                        damages.push(self.damage_of_file(place, self.place_in_log(id, error)));
                    }
                    Stretch::End
                }
            },
            Walk::Values(walk) => read_values(walk, id, doubts),
        }
    }

    /// The batch of a sealed segment that is damaged, instead of the hash that says that one is.
    fn place_in_log(&self, id: SegmentId, whole: StorageError) -> StorageError {
        let Ok(Some(mut scan)) = self.log.scan_finished(id) else {
            return whole;
        };
        loop {
            match scan.next_record() {
                Ok(Some(_)) => {}
                Err(batch @ StorageError::Corrupt { .. }) => return batch,
                _ => return whole,
            }
        }
    }

    /// True if something still names the file (rule SC4).
    pub(crate) fn counts(&self, place: Place) -> bool {
        match place {
            Place::Manifest => true,
            Place::Segment(class @ (SegmentClass::Cold | SegmentClass::Meta), id) => {
                self.is_named(class, id) || self.is_in_image(class, id)
            }
            Place::Segment(class, id) => self.store.vouched_for().contains(&(class, id)),
        }
    }

    /// True if a table or index names the file now, or the newest checkpoint is in it.
    fn is_named(&self, class: SegmentClass, id: SegmentId) -> bool {
        let image = self.store.checkpoint().map(|checkpoint| checkpoint.image);
        let mut is_named = class == SegmentClass::Meta && image == Some(id);
        self.for_each_named_file(|found, other| is_named |= (found, other) == (class, id));
        is_named
    }

    /// True if the image of the newest checkpoint names the file: recovery would go back to it.
    fn is_in_image(&self, class: SegmentClass, id: SegmentId) -> bool {
        for _ in 0..IMAGES_ASKED {
            let Some(checkpoint) = self.store.checkpoint() else {
                return false;
            };
            match ImageNames::read(&self.store, checkpoint.image) {
                Ok(names) => return names.files.contains_key(&(class, id)),
                // Replaced meanwhile, or damaged as well.
                Err(_) if self.store.checkpoint() != Some(checkpoint) => {}
                Err(_) => return true,
            }
        }
        false
    }
}

/// Reads values of about a stretch. What is no value, or cannot be read, is a doubt (rule SC5).
fn read_values(walk: &mut BlobWalk, id: SegmentId, doubts: &mut Doubts) -> Stretch {
    let (from, mut unread) = (walk.position(), 0);
    while walk.position() - from < STRETCH_BYTES as u64 {
        match walk.step() {
            Ok(BlobStep::End) if walk.position() == from => return Stretch::End,
            Ok(BlobStep::End) => break,
            Ok(BlobStep::Found(Found::Hole { offset, bytes } | Found::Damaged { offset, bytes, .. })) => {
                doubts.note(id, offset..offset + bytes);
            }
            Ok(BlobStep::Found(Found::Dead { bytes, .. })) => unread += bytes,
            Ok(BlobStep::Frame | BlobStep::Found(Found::Value { .. })) => {}
            Err(error) if is_passing_want(&error) => return Stretch::PutOff,
            Err(_) => doubts.note(id, walk.pass_over(STRETCH_BYTES as u64)),
        }
    }
    Stretch::Read(walk.position() - from - unread)
}
