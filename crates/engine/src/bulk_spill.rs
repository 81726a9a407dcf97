//! Bulk spill: sorted entries of a load in files of its own, and reading them back in order.
//!
//! Why it exists: the keys of a load may be many times the memory; each chunk's keys leave it sorted, and come back as streams
//! that are merged into one run (Knuth, The Art of Computer Programming 3, 5.4: external sorting).
//! Format: blocks of entries in sections of a meta piece file, one behind the other: row id (8), key bytes (2), unpack bytes (4), claim (1),
//! key, unpack. Nobody but the load that wrote it reads it, in the same life of the database. Gathered rows (bulk_gather) go the same
//! way: their primary key is the key, the order in which they came the row id, and all else is what is unpacked.
//! Latches and I/O: writes and reads piece files; one file for all indexes of a chunk.
//! After a crash: nothing names the files; they are removed at open.

use crate::bulk_chunk::{KeyArena, KeyEntry, head_of};
use crate::error::Result;
use pbxt_base::RowId;
use pbxt_base::codec::{get_u16, get_u32, get_u64, push_u16, push_u32, push_u64};
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore, StoredBlocks};
use std::ops::Range;
use std::sync::Arc;

/// Kind of a section with sorted entries of a load.
const SECTION_SORTED: u8 = b'S';
/// Raw bytes of a block.
const BLOCK_BYTES: usize = 48 << 10;
/// Stored bytes after which a part goes on in another section: a section counts no more than 4 GiB of them.
const SECTION_BYTES: u64 = if cfg!(test) { 128 << 10 } else { 1 << 30 };
/// Stored bytes read at once.
const READ_BYTES: usize = 128 << 10;
/// Memory of one that reads a part.
pub(crate) const READER_BYTES: usize = READ_BYTES + BLOCK_BYTES;
const ENTRY_HEAD: usize = 15;

/// A file of sorted entries; removed when its last reader is gone.
#[derive(Debug)]
pub(crate) struct SpillFile {
    store: Arc<SegmentStore>,
    file: Arc<PieceFile>,
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // If it cannot go now, the next opening removes it as an orphan.
        let _ = self.store.remove_piece(SegmentClass::Meta, self.file.id());
    }
}

/// Sorted entries of one index in a spill file.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    file: Arc<SpillFile>,
    /// Sections that follow each other.
    sections: Range<u32>,
    pub entries: u64,
    /// How many merges its entries went through.
    pub level: u32,
}

/// Writes parts, one behind the other.
pub(crate) struct SpillWriter {
    store: Arc<SegmentStore>,
    out: PieceWriter,
    block: Vec<u8>,
    in_block: u32,
    /// Whose the entries at hand are, how many, and the first of their sections.
    owner: u64,
    entries: u64,
    first_section: u32,
    /// Sections ended so far.
    ended: u32,
    /// Of each index, sections and entries.
    parts: Vec<(Range<u32>, u64)>,
}

impl SpillWriter {
    pub(crate) fn new(store: &Arc<SegmentStore>, out: PieceWriter) -> Self {
        Self {
            store: Arc::clone(store),
            out,
            block: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4),
            in_block: 0,
            owner: 0,
            entries: 0,
            first_section: 0,
            ended: 0,
            parts: Vec::new(),
        }
    }

    /// Begins the entries of an index.
    pub(crate) fn begin(&mut self, index: usize) {
        self.owner = index as u64;
        self.entries = 0;
        self.first_section = self.ended;
        self.out.begin_section(self.owner, SECTION_SORTED);
    }

    pub(crate) fn push(&mut self, entry: &KeyEntry<'_>) -> Result<()> {
        push_u64(&mut self.block, entry.row.raw());
        push_u16(&mut self.block, entry.key.len() as u16);
        push_u32(&mut self.block, entry.unpack.len() as u32);
        self.block.push(u8::from(entry.claim));
        self.block.extend_from_slice(entry.key);
        self.block.extend_from_slice(entry.unpack);
        self.in_block += 1;
        self.entries += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.in_block > 0 {
            if self.out.section_bytes() >= SECTION_BYTES {
                self.end_section();
                self.out.begin_section(self.owner, SECTION_SORTED);
            }
            // Without a fence: nobody looks for a key, and all of them would be memory for as long as the part waits (rule L9).
            self.out.push_block(&[], self.in_block, &self.block, Codec::Lz4)?;
            self.block.clear();
            self.in_block = 0;
        }
        Ok(())
    }

    fn end_section(&mut self) {
        self.ended = self.out.end_section(&[], &[]) + 1;
    }

    /// Ends the entries of the index.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.end_section();
        self.parts.push((self.first_section..self.ended, self.entries));
        Ok(())
    }

    /// Ends the file; a part for each index, in the order in which they were written.
    pub(crate) fn finish(self, level: u32) -> Result<Vec<Part>> {
        let Self {
            store, out, parts, ..
        } = self;
        let id = out.finish_unsynced()?;
        let file = match PieceFile::open_unsynced(&store, SegmentClass::Meta, id) {
            Ok(file) => file,
            Err(error) => {
                let _ = store.remove_piece(SegmentClass::Meta, id);
                return Err(error.into());
            }
        };
        let file = Arc::new(SpillFile { store, file });
        let part = |(sections, entries)| Part {
            file: Arc::clone(&file),
            sections,
            entries,
            level,
        };
        Ok(parts.into_iter().map(part).collect())
    }
}

/// A sorted stream of entries.
#[derive(Debug)]
pub(crate) enum Source<'c> {
    /// Of a chunk in memory.
    Memory {
        arena: &'c KeyArena,
        items: &'c [u128],
        base: RowId,
        at: usize,
    },
    /// Of a spill file.
    File(PartReader),
}

impl<'c> Source<'c> {
    pub(crate) fn memory(arena: &'c KeyArena, items: &'c [u128], base: RowId) -> Self {
        Self::Memory {
            arena,
            items,
            base,
            at: 0,
        }
    }

    pub(crate) fn file(part: &Part) -> Result<Self> {
        let mut reader = PartReader {
            part: part.clone(),
            section: part.sections.start,
            ahead: None,
            next_block: 0,
            block: Vec::new(),
            at: 0,
            left: part.entries,
        };
        reader.load()?;
        Ok(Self::File(reader))
    }

    /// The entry at hand; none behind the last one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<KeyEntry<'_>> {
        match self {
            Self::Memory {
                arena,
                items,
                base,
                at,
            } => items.get(*at).map(|&item| arena.entry(item, *base)),
            Self::File(reader) => (reader.left > 0).then(|| reader.entry()),
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memory { at, .. } => *at += 1,
            Self::File(reader) => reader.advance()?,
        }
        Ok(())
    }

    /// First eight bytes of the key at hand.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.entry().map_or(u64::MAX, |entry| head_of(entry.key))
    }
}

/// Reads a part in order.
#[derive(Debug)]
pub(crate) struct PartReader {
    part: Part,
    section: u32,
    ahead: Option<StoredBlocks>,
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    left: u64,
}

impl PartReader {
    #[inline]
    fn entry(&self) -> KeyEntry<'_> {
        let head = &self.block[self.at..];
        let key_end = ENTRY_HEAD + usize::from(get_u16(head, 8));
        KeyEntry {
            key: &head[ENTRY_HEAD..key_end],
            row: RowId::new(get_u64(head, 0)),
            claim: head[14] != 0,
            unpack: &head[key_end..key_end + get_u32(head, 10) as usize],
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        let head = &self.block[self.at..];
        self.at += ENTRY_HEAD + usize::from(get_u16(head, 8)) + get_u32(head, 10) as usize;
        self.left -= 1;
        if self.at >= self.block.len() {
            self.load()?;
        }
        Ok(())
    }

    /// Loads the next block, if there is one.
    fn load(&mut self) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let file = &self.part.file.file;
        if self.next_block == file.section(self.section)?.block_count() {
            self.section += 1;
            self.next_block = 0;
            self.ahead = None;
        }
        let is_read = |blocks: &StoredBlocks| blocks.blocks().contains(&self.next_block);
        if !self.ahead.as_ref().is_some_and(is_read) {
            let count = file
                .section(self.section)?
                .blocks_within(self.next_block, READ_BYTES);
            self.ahead = Some(file.read_blocks_ahead(self.section, self.next_block, count)?);
        }
        if let Some(ahead) = &self.ahead {
            ahead.decode(self.next_block, &mut self.block)?;
        }
        self.next_block += 1;
        self.at = 0;
        Ok(())
    }
}

#[cfg(test)]
#[path = "bulk_spill_tests.rs"]
mod tests;
