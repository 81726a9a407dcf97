//! PieceWriter: writes one new piece file, from its first byte to its last.
//!
//! Why it exists: runs and images are made in one go by one thread; what they need is large appends, and one moment at
//! which the whole file is durable.
//! Format: docs/format.md#piece-files.
//! Rules: P1 bytes are appended once, in order. F13 nothing may name the file before `finish` returned; until then, and
//! after a crash, it is an orphan that `SegmentStore::remove_orphans` takes away, so it needs no word in the manifest.
//! Latches and I/O: none held; writes of at least 256 KiB but the last, which the medium is asked to begin at once; two syncs in `finish`.
//! After a crash: an unfinished file has no tail and no name in any checkpoint or log record.

use crate::block_press::{BlockPress, ON_THEIR_WAY_MAX};
use crate::header::SEGMENT_HEADER_BYTES;
use crate::names::SegmentClass;
use crate::piece_block::{BlockEncoder, BlockPlace, Codec, append};
use crate::piece_section::{Section, encode_directory};
use crate::piece_tail::PieceTail;
use crate::store::SegmentStore;
use crate::tries::Tries;
use pbxt_base::checksum::RunningHash;
use pbxt_base::{Error, Result, SegmentId, invariant, planted, stop_point};
use pbxt_io::DiskFile;
use std::sync::Arc;

/// Bytes that are gathered before they are written.
const APPEND_BYTES_MIN: usize = 256 << 10;
/// The directory is read once an opening.
const DIRECTORY_CODEC: Codec = if cfg!(any(miri, fuzzing)) {
    // Miri cannot call C, and a fuzzer cannot see through compression.
    Codec::Plain
} else {
    Codec::Zstd(3)
};

/// See the module. Dropped unfinished, it removes its file.
pub struct PieceWriter {
    store: Arc<SegmentStore>,
    class: SegmentClass,
    id: SegmentId,
    file: Arc<dyn DiskFile>,
    /// Appended and not yet written.
    buffer: Vec<u8>,
    /// Bytes written.
    written: u64,
    hash: RunningHash,
    encoder: BlockEncoder,
    press: Option<BlockPress>,
    /// Of the open section.
    tries: Tries,
    sections: Vec<Section>,
    open: Option<Section>,
    is_finished: bool,
    /// After a failed write nobody knows what stands behind `written` (P1).
    is_broken: bool,
}

impl std::fmt::Debug for PieceWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PieceWriter({}, {} bytes)",
            self.file.name(),
            self.file_bytes()
        )
    }
}

impl PieceWriter {
    /// Creates the next file of class Cold or Meta. `NoSpace` leaves nothing behind, here and later.
    pub fn create(store: &Arc<SegmentStore>, class: SegmentClass) -> Result<Self> {
        let (id, file) = store.create_piece(class)?;
        Ok(Self {
            store: Arc::clone(store),
            class,
            id,
            file,
            buffer: store.piece_header(class, id).encode(),
            written: 0,
            hash: RunningHash::new(),
            encoder: BlockEncoder::default(),
            press: None,
            tries: Tries::default(),
            sections: Vec::new(),
            open: None,
            is_finished: false,
            is_broken: false,
        })
    }

    /// Number of the file.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Class of the file.
    pub fn class(&self) -> SegmentClass {
        self.class
    }

    /// Lets a thread of its own compress the blocks from now on, while the next ones are made (rule L14).
    pub fn press_aside(&mut self) -> Result<()> {
        self.press = Some(BlockPress::spawn(self.file.name())?);
        Ok(())
    }

    /// Begins a section of an index or table; `kind` is the caller's.
    pub fn begin_section(&mut self, owner: u64, kind: u8) {
        invariant!(self.open.is_none(), "F14: sections do not overlap");
        self.open = Some(Section::new(owner, kind, self.file_bytes()));
        self.tries = Tries::default();
    }

    /// Appends a block with the entries from `first_key` on, compressed if that is expected to pay (rule S56). Durable after `finish`. After an error the writer is of no
    /// further use.
    pub fn push_block(&mut self, first_key: &[u8], entries: u32, raw: &[u8], codec: Codec) -> Result<()> {
        self.append_pressed(ON_THEIR_WAY_MAX - 1)?;
        let is_tried = codec != Codec::Plain && self.tries.is_next(raw.len());
        let codec = if is_tried { codec } else { Codec::Plain };
        if self.press.is_none() {
            let stored = self.append_block(raw, codec)?;
            return self.note_block(first_key, entries, (raw.len(), stored), is_tried);
        }
        match &mut self.press {
            Some(press) => press.give(first_key, entries, raw, codec),
            None => Ok(()),
        }
    }

    /// Appends all blocks that were pushed: before the section ends, and before anybody asks for lengths.
    pub fn settle(&mut self) -> Result<()> {
        self.append_pressed(0)
    }

    /// Appends what comes from the press until at most so many blocks are on their way.
    fn append_pressed(&mut self, left: usize) -> Result<()> {
        while let Some(press) = self.press.as_mut().filter(|press| press.len() > left) {
            let Some(pressed) = press.take()? else {
                break;
            };
            let place = BlockPlace {
                file: self.file.name(),
                class: self.class,
                id: self.id,
                offset: self.written + self.buffer.len() as u64,
            };
            let (stored, number) = pressed.stored();
            let bytes = append(stored, pressed.raw().len(), number, &place, &mut self.buffer);
            let (first_key, entries) = pressed.entries();
            let lengths = (pressed.raw().len(), bytes);
            self.note_block(first_key, entries, lengths, pressed.is_tried())?;
            if let Some(press) = &mut self.press {
                press.give_back(pressed);
            }
        }
        Ok(())
    }

    fn note_block(
        &mut self,
        first_key: &[u8],
        entries: u32,
        (raw, stored): (usize, usize),
        is_tried: bool,
    ) -> Result<()> {
        if is_tried {
            self.tries.note(raw, stored);
        }
        let section = self.open.as_mut();
        section
            .expect("rule F14: every block stands in a section")
            .push_block(first_key, entries, raw, stored)?;
        self.write_out(APPEND_BYTES_MIN)
    }

    /// Bytes that a block would take in the file; nothing is appended.
    pub fn trial_bytes(&mut self, raw: &[u8], codec: Codec) -> Result<usize> {
        let end = self.buffer.len();
        let bytes = self.append_block(raw, codec);
        self.buffer.truncate(end);
        bytes
    }

    /// Ends the section, once it is settled; its number in the file. `extra` is kept with it for the caller.
    pub fn end_section(&mut self, last_key: &[u8], extra: &[u8]) -> u32 {
        let on_their_way = self.press.as_ref().map_or(0, BlockPress::len);
        invariant!(on_their_way == 0, "F14: every block of a section is in the file");
        let mut section = self.open.take().expect("rule F14: a section is ended once");
        section.last_key = last_key.into();
        section.extra = extra.into();
        self.sections.push(section);
        self.sections.len() as u32 - 1
    }

    /// Bytes of the open section in the file; of the last one if none is open.
    pub fn section_bytes(&self) -> u64 {
        let section = self.open.as_ref().or(self.sections.last());
        section.map_or(0, |section| section.stored_bytes)
    }

    /// Bytes of the file so far, without directory and tail.
    pub fn file_bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes directory and tail. Durable on return: content, size and name.
    pub fn finish(mut self) -> Result<SegmentId> {
        self.write_end()?;
        stop_point!("piece.before_sync");
        // Durable now: the whole file. Without it a checkpoint or log record could name bytes that are not there.
        if !planted!("piece.no_sync") {
            self.file.sync_data()?;
        }
        // Durable now: its name. Without it the file could be gone that a checkpoint or log record names.
        self.store.sync_dir()?;
        stop_point!("piece.after_sync");
        self.is_finished = true;
        Ok(self.id)
    }

    /// Writes directory and tail of a file that is only read in this life and never named: spilled parts of a sort. The caller
    /// removes it.
    pub fn finish_unsynced(mut self) -> Result<SegmentId> {
        self.write_end()?;
        self.is_finished = true;
        Ok(self.id)
    }

    fn write_end(&mut self) -> Result<()> {
        invariant!(self.open.is_none(), "F14: every section is ended");
        let directory_at = self.file_bytes();
        let directory_bytes = self.append_block(&encode_directory(&self.sections), DIRECTORY_CODEC)? as u32;
        let place = self.place();
        let mut hash = self.hash.clone();
        hash.update(&self.buffer);
        let tail = PieceTail {
            directory_at,
            directory_bytes,
            hash: hash.finish(),
        };
        let mut bytes = Vec::new();
        tail.encode(&place, &mut bytes);
        self.buffer.extend_from_slice(&bytes);
        self.write_out(1)
    }

    /// Place of the next byte.
    fn place(&self) -> BlockPlace<'_> {
        BlockPlace {
            file: self.file.name(),
            class: self.class,
            id: self.id,
            offset: self.file_bytes(),
        }
    }

    fn append_block(&mut self, raw: &[u8], codec: Codec) -> Result<usize> {
        let place = BlockPlace {
            file: self.file.name(),
            class: self.class,
            id: self.id,
            offset: self.written + self.buffer.len() as u64,
        };
        self.encoder.encode(raw, codec, &place, &mut self.buffer)
    }

    fn write_out(&mut self, bytes_min: usize) -> Result<()> {
        if self.is_broken {
            return Err(Error::Io {
                file: self.file.name().to_owned(),
                op: "go on writing",
                source: std::io::Error::other("an earlier write failed; make the file anew"),
            });
        }
        if self.buffer.len() >= bytes_min {
            self.hash.update(&self.buffer);
            self.is_broken = true;
            self.file.write_at(&self.buffer, self.written)?;
            self.is_broken = false;
            let begin = self.written;
            self.written += self.buffer.len() as u64;
            // A sync that finds megabytes to write keeps readers of the medium waiting for as long.
            self.file.begin_write_back(begin..self.written);
            self.buffer.clear();
        }
        Ok(())
    }
}

impl Drop for PieceWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // Nothing names it. If it cannot go now, the next opening finds it and removes it as an orphan.
            let _ = self.store.remove_piece(self.class, self.id);
        }
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES < APPEND_BYTES_MIN);
