//! PieceWalk: compares a piece file with every checksum in it, some of it at a time.
//!
//! Why it exists: whoever verifies a file of many megabytes beside others has to be able to stop, to pause and to say which block is
//! damaged; and one reading has to be enough for the checksums of blocks and the hash of the file.
//! Rules: F5 damage names file, offset, expected and found. F14 every block is looked at by itself, and the whole by its hash, which says
//! something new only where all blocks are good.
//! Latches and I/O: none; reads in order, block by block where several at once cannot be read.

use crate::header::SEGMENT_HEADER_BYTES;
use crate::piece::PieceFile;
use crate::piece_block::decode;
use pbxt_base::checksum::RunningHash;
use pbxt_base::{Error, Result};
use std::sync::Arc;

/// Something in a piece file that is not what was written, or cannot be read.
#[derive(Debug)]
pub struct PieceDamage {
    /// What is wrong, with file and offset.
    pub error: Error,
    /// Section and block, if it is one block.
    pub block: Option<(u32, usize)>,
}

/// See the module.
#[derive(Debug)]
pub struct PieceWalk {
    piece: Arc<PieceFile>,
    /// Of everything that was read.
    hash: RunningHash,
    has_begun: bool,
    section: usize,
    block: usize,
    /// Of the section at hand, before compression.
    raw_bytes: u64,
    /// Nothing was found.
    is_sound: bool,
    is_over: bool,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

impl PieceWalk {
    /// Begins with the first byte of an open file.
    pub fn new(piece: Arc<PieceFile>) -> Self {
        Self {
            piece,
            hash: RunningHash::new(),
            has_begun: false,
            section: 0,
            block: 0,
            raw_bytes: 0,
            is_sound: true,
            is_over: false,
            stored: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// The file.
    pub fn piece(&self) -> &Arc<PieceFile> {
        &self.piece
    }

    /// Reads about so many bytes, at least a block, and tells `found` what is wrong with them. How many bytes that were; `None` behind the
    /// last one.
    pub fn step(&mut self, bytes: usize, found: &mut dyn FnMut(PieceDamage)) -> Option<u64> {
        if self.is_over {
            return None;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.hash_range(0, SEGMENT_HEADER_BYTES, found);
        }
        let piece = Arc::clone(&self.piece);
        while let Some(section) = piece.sections().get(self.section) {
            if self.block < section.block_count() {
                return Some(self.blocks(&piece, bytes, found));
            }
            self.end_section(&piece, found);
        }
        self.is_over = true;
        Some(self.end(&piece, found))
    }

    fn find(&mut self, error: Error, block: Option<(u32, usize)>, found: &mut dyn FnMut(PieceDamage)) {
        self.is_sound = false;
        found(PieceDamage { error, block });
    }

    /// Blocks of the section at hand.
    fn blocks(&mut self, piece: &PieceFile, bytes: usize, found: &mut dyn FnMut(PieceDamage)) -> u64 {
        let (number, section) = (self.section as u32, &piece.sections()[self.section]);
        let from = self.block;
        let end = from + section.blocks_within(from, bytes);
        let begin = section.block_offset(from);
        let length = section.block_offset(end) - begin;
        self.block = end;
        self.stored.resize(length as usize, 0);
        let read = piece.file.read_at(&mut self.stored, begin);
        match &read {
            Ok(()) => self.hash.update(&self.stored),
            Err(_) => self.is_sound = false,
        }
        for block in from..end {
            let offset = section.block_offset(block);
            let checked = match &read {
                Ok(()) => {
                    let at = (offset - begin) as usize;
                    let stored = &self.stored[at..at + section.block_stored_bytes(block)];
                    decode(stored, &piece.place(offset), &mut self.raw)
                }
                // One by one, so that those are told that cannot be read and no others.
                Err(_) => piece.read_block(number, block, &mut self.raw),
            };
            match checked {
                Ok(()) => self.raw_bytes += self.raw.len() as u64,
                Err(error) => self.find(error, Some((number, block)), found),
            }
        }
        length
    }

    fn end_section(&mut self, piece: &PieceFile, found: &mut dyn FnMut(PieceDamage)) {
        let section = &piece.sections()[self.section];
        if self.is_sound && self.raw_bytes != section.raw_bytes {
            let error = piece.place(section.begin).damaged(
                format!("a section of {} bytes", section.raw_bytes),
                format!("{} bytes", self.raw_bytes),
            );
            self.find(error, None, found);
        }
        self.section += 1;
        self.block = 0;
        self.raw_bytes = 0;
    }

    /// The directory, which its opening has checked, and the hash.
    fn end(&mut self, piece: &PieceFile, found: &mut dyn FnMut(PieceDamage)) -> u64 {
        let tail = piece.tail;
        self.hash_range(tail.directory_at, tail.directory_bytes as usize, found);
        let hash = self.hash.finish();
        if self.is_sound && hash != tail.hash {
            let expected = format!("content hash {:016x}", tail.hash);
            let error = piece.place(0).damaged(expected, format!("{hash:016x}"));
            self.find(error, None, found);
        }
        u64::from(tail.directory_bytes)
    }

    /// Reads bytes that are no block of a section.
    fn hash_range(&mut self, offset: u64, bytes: usize, found: &mut dyn FnMut(PieceDamage)) {
        self.stored.resize(bytes, 0);
        let read: Result<()> = self.piece.file.read_at(&mut self.stored, offset);
        match read {
            Ok(()) => self.hash.update(&self.stored),
            Err(error) => self.find(error, None, found),
        }
    }
}
