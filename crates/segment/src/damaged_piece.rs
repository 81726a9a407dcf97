//! DamagedPiece: what is left of a piece file that is there and is not what was written.
//!
//! Why it exists: a file of index entries can be made anew from rows, so its damage need not keep a database from opening. Whoever
//! names a section of it gets a *stand-in*: a piece of one block, whose every read answers what was found at the opening.
//! Rules: F14 nothing of the file counts. D39 it stays named, and nobody takes it for an empty one.
//! Latches and I/O: none; the file is not open.

use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::names::{SegmentClass, segment_name};
use crate::piece::PieceFile;
use crate::piece_section::Section;
use crate::piece_tail::{PieceTail, TAIL_BYTES};
use crate::store::SegmentStore;
use pbxt_base::{Error, Result, SegmentId};
use pbxt_io::{DiskFile, is_passing_want};
use std::io;
use std::sync::Arc;

/// What opening a piece file that need not be sound gives.
#[derive(Debug)]
pub enum MaybePiece {
    /// It can be read.
    Sound(Arc<PieceFile>),
    /// It is there, and damaged.
    Damaged(DamagedPiece),
}

/// See the module.
#[derive(Debug)]
pub struct DamagedPiece {
    class: SegmentClass,
    id: SegmentId,
    file: Arc<DamagedFile>,
}

/// A file that cannot be read, and why.
#[derive(Debug)]
struct DamagedFile {
    name: String,
    bytes: u64,
    damage: Error,
}

impl DamagedFile {
    /// The damage, for one more who meets it.
    fn again(&self) -> Error {
        match &self.damage {
            Error::Corrupt {
                file,
                offset,
                expected,
                found,
            } => Error::Corrupt {
                file: file.clone(),
                offset: *offset,
                expected: expected.clone(),
                found: found.clone(),
            },
            other => Error::Io {
                file: self.name.clone(),
                op: "read",
                source: io::Error::other(other.to_string()),
            },
        }
    }
}

impl DiskFile for DamagedFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<()> {
        Err(self.again())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(self.again())
    }

    fn sync_data(&self) -> Result<()> {
        Err(self.again())
    }
}

impl DamagedPiece {
    /// What is wrong, with file and offset.
    pub fn damage(&self) -> Error {
        self.file.again()
    }

    /// Number of the file.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Bytes of the file; 0 if it cannot be said.
    pub fn file_bytes(&self) -> u64 {
        self.file.bytes
    }

    /// Stands in for a section of the file, which becomes its only one. It has one block of no bytes, so that no sum over pieces counts
    /// what nobody knows, from `first_key` to `last_key`: in between lie all keys that it can have.
    pub fn stand_in(
        &self,
        owner: u64,
        kind: u8,
        keys: (&[u8], &[u8]),
        entries: u32,
    ) -> Result<Arc<PieceFile>> {
        let mut section = Section::new(owner, kind, SEGMENT_HEADER_BYTES as u64);
        section.push_block(keys.0, entries, 0, 0)?;
        section.last_key = keys.1.into();
        let tail = PieceTail {
            directory_at: self.file.bytes.saturating_sub(TAIL_BYTES as u64),
            directory_bytes: 0,
            hash: 0,
        };
        let file = Arc::clone(&self.file);
        Ok(PieceFile::of_parts(
            file,
            (self.class, self.id),
            tail,
            Box::new([section]),
        ))
    }
}

impl PieceFile {
    /// As `open`, and says what is damaged in a file that is there.
    ///
    /// # Errors
    /// Those of `open` of a file that is missing, of another database or place, or of another version; want of a descriptor, of memory or of a key.
    pub fn open_if_sound(store: &SegmentStore, class: SegmentClass, id: SegmentId) -> Result<MaybePiece> {
        let opened = store.disk.open_blocks(&segment_name(class, id));
        Self::judge(store, class, id, opened)
    }

    /// The same for whoever compares it with what was written.
    pub fn open_past_cache_if_sound(
        store: &SegmentStore,
        class: SegmentClass,
        id: SegmentId,
    ) -> Result<MaybePiece> {
        Self::judge(store, class, id, store.open_past_cache(class, id))
    }

    fn judge(
        store: &SegmentStore,
        class: SegmentClass,
        id: SegmentId,
        opened: Result<Arc<dyn DiskFile>>,
    ) -> Result<MaybePiece> {
        let damaged = |damage, bytes| {
            let name = store.name(class, id);
            let file = Arc::new(DamagedFile { name, bytes, damage });
            Ok(MaybePiece::Damaged(DamagedPiece { class, id, file }))
        };
        let file = match opened {
            Ok(file) => file,
            // What stands around the content of an encrypted file is damaged.
            Err(damage @ Error::Corrupt { .. }) => return damaged(damage, 0),
            Err(error) => return Err(store.missing_piece(class, id, error)),
        };
        match Self::open_file(store, class, id, Arc::clone(&file)) {
            Ok(piece) => Ok(MaybePiece::Sound(piece)),
            Err(damage) if is_damage(&damage) && !is_another(store, class, id, &*file) => {
                damaged(damage, file.len().unwrap_or(0))
            }
            Err(error) => Err(error),
        }
    }
}

fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io { .. } => !is_passing_want(error),
        _ => false,
    }
}

/// True if the header is whole and says that it is the file of another database or place: files were mixed up.
fn is_another(store: &SegmentStore, class: SegmentClass, id: SegmentId, file: &dyn DiskFile) -> bool {
    let mut header = vec![0; SEGMENT_HEADER_BYTES];
    let read = file.read_at(&mut header, 0);
    let header = read.and_then(|()| SegmentHeader::decode(&header, file.name()));
    header.is_ok_and(|header| store.check_header(class, id, &header).is_err())
}
