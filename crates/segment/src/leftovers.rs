//! Files that bear names of segments, and which of them are ours: what a crash has left, and what somebody has put there.
//!
//! Why it exists: what a crash has left of a segment has to go at the next opening; but a name says little, and a file that somebody has put
//! there may be the only copy of what is in it. So at an opening only what begins as a segment does, or was never begun, is removed, and all
//! of it is told; and of what appears afterwards only what this life has made is ours.
//! Rules: F18 who did not make a file does not remove it, and it is in nobody's way but that of a log segment of its number.
//! Latches and I/O: a short latch over the lists, none of it held over I/O; an opening reads the first bytes of each leftover.

use crate::header::{SEGMENT_HEADER_BYTES, bears_mark};
use crate::names::{SegmentClass, parse_segment_name, segment_name};
use crate::piece::is_missing;
use crate::store::SegmentStore;
use parking_lot::Mutex;
use pbxt_base::{Error, Result, SegmentId};
use pbxt_io::{DiskFile, bears_mark_of_encryption, is_passing_want};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// Bytes of a mark.
const MARK_BYTES: usize = 8;

/// Files that an opening has met and that nothing names.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Those that were removed, and why nothing names them.
    pub removed: Vec<(String, &'static str)>,
    /// Those that are not this engine's, or cannot be looked at, and in which way.
    pub left_alone: Vec<(String, String)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Found {
    leftovers: Mutex<Leftovers>,
    /// Files that were here at the opening, without those that turned out to be somebody's, and those that this life has made.
    ours: Mutex<HashSet<(SegmentClass, SegmentId)>>,
}

impl Found {
    /// For an opening that finds files of these names.
    pub(crate) fn at_opening(names: &[String]) -> Self {
        Self {
            leftovers: Mutex::default(),
            ours: Mutex::new(names.iter().filter_map(|name| parse_segment_name(name)).collect()),
        }
    }

    /// False if a file of this name is somebody else's.
    pub(crate) fn is_ours(&self, class: SegmentClass, id: SegmentId) -> bool {
        self.ours.lock().contains(&(class, id))
    }

    /// A file was removed: one that gets its name later is somebody's, unless we make it.
    pub(crate) fn forget(&self, class: SegmentClass, id: SegmentId) {
        self.ours.lock().remove(&(class, id));
    }
}

/// What the first bytes of a file make of it.
enum Kind {
    /// It was begun as a segment, or its first bytes never reached the medium.
    Ours,
    /// A hot segment that was prepared and never begun: made anew under its name, and not worth a word.
    Prepared,
    Foreign(String),
}

impl SegmentStore {
    /// What was removed and left alone so far.
    pub fn leftovers(&self) -> Leftovers {
        self.found.leftovers.lock().clone()
    }

    /// True if this file, which nothing names for this reason, is to be removed, which is noted. One that is not ours is noted too and not
    /// listed any more.
    ///
    /// # Errors
    /// Want of a descriptor or of memory.
    pub fn is_leftover(&self, class: SegmentClass, id: SegmentId, why: &'static str) -> Result<bool> {
        let kind = match self.kind_of(class, id) {
            Ok(kind) => kind,
            Err(error) if is_missing(&error) => return Ok(false),
            Err(error) if is_passing_want(&error) => return Err(error),
            Err(error) => Kind::Foreign(error.to_string()),
        };
        match kind {
            Kind::Prepared => return Ok(true),
            Kind::Ours => {
                let told = (self.name(class, id), why);
                self.found.leftovers.lock().removed.push(told);
                return Ok(true);
            }
            Kind::Foreign(how) => {
                let told = (self.name(class, id), how);
                self.found.leftovers.lock().left_alone.push(told);
                self.found.forget(class, id);
            }
        }
        Ok(false)
    }

    fn kind_of(&self, class: SegmentClass, id: SegmentId) -> Result<Kind> {
        let first = self
            .disk
            .first_bytes(&segment_name(class, id), SEGMENT_HEADER_BYTES)?;
        let mark = first.get(..MARK_BYTES).unwrap_or(&first);
        // Of what a power cut has left any sector may be zeros.
        let is_unwritten = mark.iter().all(|byte| *byte == 0);
        Ok(if bears_mark(&first) || bears_mark_of_encryption(&first) {
            Kind::Ours
        } else if !is_unwritten {
            Kind::Foreign("it does not begin as a file of PBXT does".into())
        } else if class == SegmentClass::Hot && first.iter().all(|byte| *byte == 0) {
            Kind::Prepared
        } else {
            Kind::Ours
        })
    }

    /// Makes a file in this way, which is ours from then on.
    pub(crate) fn make(
        &self,
        class: SegmentClass,
        id: SegmentId,
        create: impl FnOnce(&str) -> Result<Arc<dyn DiskFile>>,
    ) -> Result<Arc<dyn DiskFile>> {
        let name = segment_name(class, id);
        let made = create(&name);
        let is_left = |error: &Error| !is_taken(error) && self.disk.exists(&name).unwrap_or(false);
        // What was half made and could not be taken away again is ours, too.
        if made.as_ref().err().is_none_or(is_left) {
            self.found.ours.lock().insert((class, id));
        }
        made
    }

    /// Makes an empty file under the first of these numbers whose name is not somebody else's (rule F18).
    pub(crate) fn make_next(
        &self,
        class: SegmentClass,
        mut next: impl FnMut() -> SegmentId,
    ) -> Result<(SegmentId, Arc<dyn DiskFile>)> {
        loop {
            let id = next();
            match self.make(class, id, |name| self.disk.create(name, 0)) {
                Err(error) if is_taken(&error) && !self.found.is_ours(class, id) => {}
                made => return Ok((id, made?)),
            }
        }
    }

    /// Refuses to make a segment in the place of somebody else's file.
    pub(crate) fn check_not_foreign(&self, class: SegmentClass, id: SegmentId) -> Result<()> {
        if self.found.is_ours(class, id) || !self.disk.exists(&segment_name(class, id))? {
            return Ok(());
        }
        Err(Error::Io {
            file: self.name(class, id),
            op: "make",
            source: io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not PBXT's has this name: move it away",
            ),
        })
    }
}

fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}
