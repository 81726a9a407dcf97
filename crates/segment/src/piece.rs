//! PieceFile: reads one finished piece file.
//!
//! Why it exists: runs and images are files that never change; a reader keeps its file open and its fences in memory, and
//! a lookup costs one read of one block.
//! Format: docs/format.md#piece-files.
//! Rules: F5 damage names file, offset, expected and found. F14 header, tail and directory are checked at opening, each
//! block when it is read. An open piece goes on working after its file was removed: a merge never waits for readers.
//! Latches and I/O: no latch; one read a block, or one for many blocks that follow each other.

use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::names::SegmentClass;
use crate::piece_block::{BlockPlace, decode};
use crate::piece_section::{Section, decode_directory};
use crate::piece_tail::{PieceTail, TAIL_BYTES};
use crate::piece_walk::PieceWalk;
use crate::store::SegmentStore;
use pbxt_base::{Error, Result, SegmentId};
use pbxt_io::{DiskFile, ReadRequest};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Buffers of this size at most are kept by a thread between two reads.
const SCRATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes that blocks which follow each other are read by at once; larger reads are not faster.
const READ_BYTES: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
#[derive(Debug)]
pub struct PieceFile {
    pub(crate) file: Arc<dyn DiskFile>,
    class: SegmentClass,
    id: SegmentId,
    pub(crate) tail: PieceTail,
    sections: Box<[Section]>,
}

impl PieceFile {
    /// Opens a finished file; checks header, tail and directory.
    pub fn open(store: &SegmentStore, class: SegmentClass, id: SegmentId) -> Result<Arc<Self>> {
        Self::open_file(store, class, id, store.open_piece(class, id)?)
    }

    /// Opens a file that `PieceWriter::finish_unsynced` made.
    pub fn open_unsynced(store: &SegmentStore, class: SegmentClass, id: SegmentId) -> Result<Arc<Self>> {
        Self::open_file(store, class, id, store.open_unsynced_piece(class, id)?)
    }

    /// Opens a finished file for whoever compares it with what was written.
    pub fn open_past_cache(store: &SegmentStore, class: SegmentClass, id: SegmentId) -> Result<Arc<Self>> {
        Self::open_file(store, class, id, store.open_past_cache(class, id)?)
    }

    pub(crate) fn open_file(
        store: &SegmentStore,
        class: SegmentClass,
        id: SegmentId,
        file: Arc<dyn DiskFile>,
    ) -> Result<Arc<Self>> {
        let bytes = file.len()?;
        let tail_at = bytes.saturating_sub(TAIL_BYTES as u64);
        let place = |offset| BlockPlace {
            file: file.name(),
            class,
            id,
            offset,
        };
        if tail_at < SEGMENT_HEADER_BYTES as u64 {
            let found = format!("{bytes} bytes: the file was never finished, or its end is missing");
            return Err(place(tail_at).damaged("the tail of a piece file".into(), found));
        }
        let mut header = vec![0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0)?;
        store.check_header(class, id, &SegmentHeader::decode(&header, file.name())?)?;
        let mut tail = [0; TAIL_BYTES];
        file.read_at(&mut tail, tail_at)?;
        let tail = PieceTail::decode(&tail, &place(tail_at))?;
        let sections = read_directory(&*file, &tail, tail_at, &place(tail.directory_at))?;
        Ok(Self::of_parts(file, (class, id), tail, sections))
    }

    pub(crate) fn of_parts(
        file: Arc<dyn DiskFile>,
        (class, id): (SegmentClass, SegmentId),
        tail: PieceTail,
        sections: Box<[Section]>,
    ) -> Arc<Self> {
        Arc::new(Self {
            file,
            class,
            id,
            tail,
            sections,
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

    /// Name, for messages.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.tail.directory_at + u64::from(self.tail.directory_bytes) + TAIL_BYTES as u64
    }

    /// All sections, in the order in which they were written.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// A section; refuses a number the file does not have.
    pub fn section(&self, section: u32) -> Result<&Section> {
        self.sections.get(section as usize).ok_or_else(|| {
            self.place(self.tail.directory_at).damaged(
                format!("a section of number {section}"),
                format!("{} sections", self.sections.len()),
            )
        })
    }

    /// Bytes of memory the fences take.
    pub fn memory_bytes(&self) -> usize {
        self.sections.iter().map(Section::memory_bytes).sum()
    }

    /// Reads, checks and decodes a block into `out`, replacing what that held.
    pub fn read_block(&self, section: u32, block: usize, out: &mut Vec<u8>) -> Result<()> {
        let range = self.range(section, block, 1)?;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize((range.end - range.start) as usize, 0);
            self.file.read_at(scratch, range.start)?;
            decode(scratch, &self.place(range.start), out)?;
            if scratch.len() > SCRATCH_BYTES_MAX {
                *scratch = Vec::new();
            }
            Ok(())
        })
    }

    /// Reads `count` blocks that follow each other, at most to the end of the section, with one read; for readers in order.
    /// See `Section::blocks_within`.
    pub fn read_blocks_ahead(
        self: &Arc<Self>,
        section: u32,
        from: usize,
        count: usize,
    ) -> Result<StoredBlocks> {
        let blocks = self.section(section)?.block_count();
        let end = from.saturating_add(count).min(blocks).max(from);
        let range = self.range(section, from, end - from)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_at(&mut bytes, range.start)?;
        Ok(StoredBlocks {
            piece: Arc::clone(self),
            section,
            blocks: from..end,
            begin: range.start,
            bytes,
        })
    }

    /// Reads these blocks, which rise, with one batch of reads: those that follow each other come with one read of at most
    /// `READ_BYTES`. The answer has every block once, in order.
    pub fn read_batch(self: &Arc<Self>, section: u32, blocks: &[usize]) -> Result<Vec<StoredBlocks>> {
        let mut found: Vec<StoredBlocks> = Vec::new();
        for &block in blocks {
            let range = self.range(section, block, 1)?;
            match found.last_mut() {
                Some(last) if last.blocks.end == block && range.end - last.begin <= READ_BYTES as u64 => {
                    last.blocks.end = block + 1;
                    last.bytes.resize((range.end - last.begin) as usize, 0);
                }
                _ => found.push(StoredBlocks {
                    piece: Arc::clone(self),
                    section,
                    blocks: block..block + 1,
                    begin: range.start,
                    bytes: vec![0; (range.end - range.start) as usize],
                }),
            }
        }
        let mut requests: Vec<_> = found.iter_mut().map(StoredBlocks::request).collect();
        self.file.read_many(&mut requests)?;
        Ok(found)
    }

    /// Reads everything and compares it with every checksum and the hash of the file; the error is the first thing that is wrong.
    pub fn verify(self: &Arc<Self>) -> Result<()> {
        let mut walk = PieceWalk::new(Arc::clone(self));
        let mut first = Ok(());
        while first.is_ok() {
            let read = walk.step(READ_BYTES, &mut |damage| {
                if first.is_ok() {
                    first = Err(damage.error);
                }
            });
            if read.is_none() {
                break;
            }
        }
        first
    }

    /// Bytes of the file that hold `count` blocks.
    fn range(&self, section: u32, from: usize, count: usize) -> Result<Range<u64>> {
        let found = self.section(section)?;
        if from + count > found.block_count() {
            return Err(self.place(found.begin).damaged(
                format!("block {} of section {section}", from + count),
                format!("{} blocks", found.block_count()),
            ));
        }
        Ok(found.block_offset(from)..found.block_offset(from + count))
    }

    pub(crate) fn place(&self, offset: u64) -> BlockPlace<'_> {
        BlockPlace {
            file: self.file.name(),
            class: self.class,
            id: self.id,
            offset,
        }
    }
}

fn read_directory(
    file: &dyn DiskFile,
    tail: &PieceTail,
    tail_at: u64,
    place: &BlockPlace<'_>,
) -> Result<Box<[Section]>> {
    let begin = SEGMENT_HEADER_BYTES as u64;
    let end = tail.directory_at.checked_add(u64::from(tail.directory_bytes));
    if tail.directory_at < begin || end != Some(tail_at) {
        let found = format!("one of {} bytes", tail.directory_bytes);
        return Err(place.damaged(format!("a directory that ends at {tail_at}"), found));
    }
    let mut stored = vec![0; tail.directory_bytes as usize];
    file.read_at(&mut stored, tail.directory_at)?;
    let mut raw = Vec::new();
    decode(&stored, place, &mut raw)?;
    let sections = decode_directory(&raw, begin, tail.directory_at);
    Ok(sections.map_err(|error| error.in_file(file.name()))?.into())
}

/// Blocks as they stand in the file, read at once and decoded one by one.
#[derive(Debug)]
pub struct StoredBlocks {
    piece: Arc<PieceFile>,
    section: u32,
    blocks: Range<usize>,
    begin: u64,
    bytes: Vec<u8>,
}

impl StoredBlocks {
    /// True if they are of this section.
    pub fn is_of(&self, piece: &Arc<PieceFile>, section: u32) -> bool {
        Arc::ptr_eq(&self.piece, piece) && self.section == section
    }

    /// Numbers of the blocks in their section.
    pub fn blocks(&self) -> Range<usize> {
        self.blocks.clone()
    }

    fn request(&mut self) -> ReadRequest<'_> {
        ReadRequest {
            offset: self.begin,
            buf: &mut self.bytes,
        }
    }

    /// A block's stored bytes; refuses a number that is not in `blocks()`.
    pub fn stored(&self, block: usize) -> Result<&[u8]> {
        let section = self.piece.section(self.section)?;
        if !self.blocks.contains(&block) {
            let expected = format!("a block of {:?}", self.blocks);
            return Err(self.piece.place(self.begin).damaged(expected, block.to_string()));
        }
        let at = |block| (section.block_offset(block) - self.begin) as usize;
        Ok(&self.bytes[at(block)..at(block + 1)])
    }

    /// Checks and decodes a block into `out`, replacing what that held.
    pub fn decode(&self, block: usize, out: &mut Vec<u8>) -> Result<()> {
        let stored = self.stored(block)?;
        let offset = self.piece.section(self.section)?.block_offset(block);
        decode(stored, &self.piece.place(offset), out)
    }
}

/// A file that has to be there and is not.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
