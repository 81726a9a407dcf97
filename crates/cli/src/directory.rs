//! Directory: what lies in a database's directory, and the storage floor's view of it.
//!
//! Why it exists: every command begins with the same questions: whose directory is it, who uses it, which files are there.
//! Rules: F7 each header is checked before its file is read. Nothing is written: the lock is looked at with a shared lock
//! of the system on the lock file, which a running database refuses, and its content is left alone.
//! Latches and I/O: whoever wants to may hold the lock until the directory is dropped, so that no database begins to write
//! meanwhile; a database that is opened in that time is refused.

use crate::failure::{Failure, Outcome};
use crate::inspect_directory::bare;
use crate::keyed_disk;
use crate::manifest_file::Facts;
use crate::manifests::{Manifests, NAMES, made_of};
use crate::view_disk::ViewDisk;
use pbxt_base::{Error, Result, SegmentId};
use pbxt_io::{Disk, open_to_read};
use pbxt_segment::{
    Geometry, OpenMode, SEGMENT_HEADER_BYTES, SegmentClass, SegmentHeader, SegmentStore, segment_name,
};
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK_NAME: &str = "pbxt.lock";

/// Class and id of a segment: what names its file.
pub(crate) type Place = (SegmentClass, SegmentId);

/// What the first bytes of a file say.
#[derive(Debug)]
pub(crate) enum Head {
    /// A header that belongs to this file.
    Begun(SegmentHeader),
    /// Zeros: set aside and never begun.
    Unbegun,
    /// Not what has to be there.
    Damaged(Error),
}

/// Whether databases are held off while a directory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// None begins to write before the directory is dropped.
    Held,
    /// Looked at, and let go.
    Free,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) manifests: Manifests,
    /// Segment files, by class and id.
    pub(crate) places: Vec<Place>,
    /// Who uses the directory now, if anybody does.
    pub(crate) user: Option<Error>,
    _lock: Option<File>,
}

impl Directory {
    /// Looks at a directory; refuses one that is no database.
    pub(crate) fn open(path: &Path, wanted: Lock) -> Outcome<Self> {
        let disk = keyed_disk::open(path)?;
        let manifests = Manifests::read(&*disk)?;
        let places = places_of(&disk.list()?);
        if !manifests.are_there() && places.is_empty() {
            let why = "it has no manifest and no segment".into();
            let path = path.display().to_string();
            return Err(Error::NotADatabase { path, why }.into());
        }
        let (lock, user) = look_at_lock(path)?;
        Ok(Self {
            path: path.to_owned(),
            disk,
            manifests,
            places,
            user,
            _lock: lock.filter(|_| wanted == Lock::Held),
        })
    }

    /// Full name of a segment file.
    pub(crate) fn name(&self, (class, id): Place) -> String {
        format!("{}/{}", self.disk.location(), segment_name(class, id))
    }

    /// Bytes of a segment file; none if it has gone meanwhile. A name that stays and leads to no file is damage.
    pub(crate) fn bytes(&self, place: Place) -> Result<Option<u64>> {
        let name = segment_name(place.0, place.1);
        if self.disk.exists(&name)? {
            return self.disk.open(&name, false)?.len().map(Some);
        }
        if self.names_now()?.contains(&place) {
            return Err(Error::Corrupt {
                file: self.name(place),
                offset: 0,
                expected: "a file".into(),
                found: "a link that leads to none".into(),
            });
        }
        Ok(None)
    }

    /// Segments that the directory names by now.
    pub(crate) fn names_now(&self) -> Result<Vec<Place>> {
        Ok(places_of(&self.disk.list()?))
    }

    /// Reads the header of a segment file and checks that it belongs there.
    pub(crate) fn head(&self, place: Place, facts: Option<&Facts>) -> Result<Head> {
        let file = self.disk.open(&segment_name(place.0, place.1), false)?;
        let mut bytes = vec![0; file.len()?.min(SEGMENT_HEADER_BYTES as u64) as usize];
        file.read_at(&mut bytes, 0)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Head::Unbegun);
        }
        Ok(match SegmentHeader::decode(&bytes, file.name()) {
            Err(error) => Head::Damaged(error),
            Ok(header) => match misplaced(&header, place, facts, file.name()) {
                Some(error) => Head::Damaged(error),
                None => Head::Begun(header),
            },
        })
    }

    /// The storage floor's view: the files of the directory but those that are `hidden`, and a manifest that says what `facts` say.
    pub(crate) fn store(&self, facts: &Facts, hidden: &BTreeSet<Place>) -> Result<Arc<SegmentStore>> {
        let (name, bytes) = made_of(facts);
        let other = if name == NAMES[0] { NAMES[1] } else { NAMES[0] };
        let disk = ViewDisk::all(&self.path, vec![(name, bytes)])?;
        let hidden = hidden.iter().map(|(class, id)| segment_name(*class, *id));
        open_view(disk.without(hidden.chain([other.to_owned()])))
    }

    /// The storage floor's view of one file of the directory: what is wrong with others is not met.
    pub(crate) fn store_of(&self, (class, id): Place, facts: &Facts) -> Result<Arc<SegmentStore>> {
        let name = segment_name(class, id);
        let disk = ViewDisk::one(&self.path, name.clone(), name, vec![made_of(&bare(facts))])?;
        open_view(disk)
    }

    /// The storage floor's own word on the directory as it is.
    pub(crate) fn store_as_it_is(&self) -> Result<Arc<SegmentStore>> {
        open_view(ViewDisk::all(&self.path, Vec::new())?)
    }
}

/// The storage floor's view of one file, whatever its name and wherever it lies.
pub(crate) fn store_of_one(path: &Path, header: &SegmentHeader) -> Outcome<Arc<SegmentStore>> {
    let (directory, there) = split(path)?;
    let mut geometry = Geometry::default();
    match header.class {
        SegmentClass::Hot => {
            geometry.hot_segment_bytes = header.segment_bytes;
            geometry.chunk_bytes = header.chunk_bytes;
        }
        SegmentClass::Blob => geometry.blob_segment_bytes = header.segment_bytes,
        SegmentClass::Cold | SegmentClass::Meta => {}
    }
    let facts = Facts {
        uuid: header.uuid,
        geometry,
        ..Facts::default()
    };
    let here = segment_name(header.class, header.id);
    let disk = ViewDisk::one(&directory, here, there, vec![made_of(&facts)])?;
    Ok(open_view(disk)?)
}

/// Directory and file name of a path.
pub(crate) fn split(path: &Path) -> Outcome<(PathBuf, String)> {
    let shown = path.display();
    let name = path.file_name();
    let name = name.ok_or_else(|| Failure::Usage(format!("'{shown}' names no file")))?;
    let refusal =
        || format!("the name of '{shown}' is not UTF-8: give it another name, or make a link to it");
    let name = name.to_str().ok_or_else(|| Failure::Usage(refusal()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name.to_owned()))
}

fn open_view(disk: ViewDisk) -> Result<Arc<SegmentStore>> {
    let mode = OpenMode {
        create: None,
        read_only: true,
        new_uuid: 0,
        now: 0,
    };
    SegmentStore::open(Arc::new(disk), mode).map(Arc::new)
}

/// Segments among these file names, sorted.
fn places_of(names: &[String]) -> Vec<Place> {
    let mut places: Vec<Place> = names.iter().filter_map(|name| place_of(name)).collect();
    places.sort_unstable();
    places
}

/// Class and id of a segment file's name.
pub(crate) fn place_of(name: &str) -> Option<Place> {
    let number = name.strip_suffix(".seg")?.rsplit('-').next()?;
    let id = SegmentId::new(u32::from_str_radix(number, 16).ok()?);
    (0..=u8::MAX)
        .map_while(SegmentClass::from_disk)
        .find(|class| segment_name(*class, id) == name)
        .map(|class| (class, id))
}

/// What speaks against a header in this file of this database.
fn misplaced(header: &SegmentHeader, (class, id): Place, facts: Option<&Facts>, file: &str) -> Option<Error> {
    let damaged = |offset, expected: String, found: String| {
        let file = file.to_owned();
        Some(Error::Corrupt {
            file,
            offset,
            expected,
            found,
        })
    };
    if (header.class, header.id) != (class, id) {
        let found = format!("'{}'", segment_name(header.class, header.id));
        return damaged(12, "the segment its name says".into(), found);
    }
    let facts = facts?;
    if header.uuid != facts.uuid {
        let expected = format!("a segment of database {:032x}", facts.uuid);
        return damaged(16, expected, format!("one of {:032x}", header.uuid));
    }
    let geometry = facts.geometry;
    let sizes = (geometry.hot_segment_bytes, geometry.chunk_bytes);
    if class == SegmentClass::Hot && (header.segment_bytes, header.chunk_bytes) != sizes {
        return damaged(40, "the sizes of this database".into(), "other sizes".into());
    }
    None
}

/// Holds off databases that would begin to write; or says who has begun.
fn look_at_lock(directory: &Path) -> Outcome<(Option<File>, Option<Error>)> {
    let path = directory.join(LOCK_NAME);
    let name = path.display().to_string();
    let failed = |op| {
        let file = name.clone();
        move |source| Failure::Storage(Error::Io { file, op, source })
    };
    if !path.try_exists().map_err(failed("look for"))? {
        // Whoever opens a database makes the file first: nobody has opened this copy.
        return Ok((None, None));
    }
    let mut file = open_to_read(&path)?;
    match file.try_lock_shared() {
        Ok(()) => Ok((Some(file), None)),
        Err(TryLockError::Error(source)) => Err(failed("lock")(source)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Without the number the message says less; it is not worth another error.
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                number => format!("process {number}"),
            };
            Ok((None, Some(Error::Locked { path: name, holder })))
        }
    }
}
