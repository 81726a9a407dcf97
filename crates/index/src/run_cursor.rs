//! `RunCursor`: a position in a run, moving either way.
//!
//! Why it exists:    a scan of a run reads its blocks in order; reading them one by one as they are needed would wait for
//!                   the disk at each. A cursor that has crossed a few blocks reads the next ones at once.
//! Format / state:   the present block, held by a reference of its own, the index of the entry in it, and a view of that entry, which
//!                   lies in the block or in the cursor's room. No block: before the first seek, or beyond the end.
//! Rules:            X8 a seek is a cut; what lies on the wanted side of it is met once, in order. X38 the view is given up before
//!                   another entry is shown. X56.
//! Latches and I/O:  none held between calls. Scans of runs that would fill a quarter of the cache leave it as it is.

use std::sync::Arc;

use pbxt_base::Result;
use pbxt_segment::{BlockCache, StoredBlocks};

use crate::entry::EntryView;
use crate::entry_room::EntryRoom;
use crate::run::{Run, RunPiece};
use crate::run_block::RunBlock;
use crate::seek::{SeekPos, Side};
use crate::strip::{Copied, Strip};

/// Bytes of the first read of a scan in order, and of its later ones, each of which is twice the one before, at most; nobody
/// else reads ahead, as blocks are read past the system's page cache.
const AHEAD_BYTES: usize = 128 << 10;
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Blocks that it takes in at least.
const AHEAD_BLOCKS_MIN: usize = 8;
/// Blocks crossed one after the other before a cursor reads ahead.
const BLOCKS_BEFORE_AHEAD: u32 = 2;

/// See the module.
pub struct RunCursor {
    /// None: every block is read from the file; for merges.
    cache: Option<Arc<BlockCache>>,
    run: Arc<Run>,
    piece: usize,
    block: usize,
    held: Option<Arc<RunBlock>>,
    at: usize,
    /// The entry at the position, without the borrow of block or room.
    shown: Option<EntryView<'static>>,
    room: EntryRoom,
    forward: bool,
    /// Blocks crossed since the last seek.
    crossed: u32,
    /// Blocks read ahead, and the number of their piece.
    ahead: Option<(usize, StoredBlocks)>,
    /// Bytes of the next read.
    ahead_bytes: usize,
    scratch: Vec<u8>,
}

impl RunCursor {
    /// A cursor without position.
    pub fn new(run: Arc<Run>, cache: Arc<BlockCache>) -> RunCursor {
        RunCursor::with_cache(run, Some(cache))
    }

    /// The same with room that another cursor had.
    pub(crate) fn with_room(mut self, room: EntryRoom) -> RunCursor {
        self.room = room;
        self
    }

    /// The cursor's room, for the next one.
    pub(crate) fn into_room(self) -> EntryRoom {
        self.room
    }

    /// A cursor that reads from the file only, ahead from the first block on; for merges.
    pub fn uncached(run: Arc<Run>) -> RunCursor {
        RunCursor::with_cache(run, None)
    }

    fn with_cache(run: Arc<Run>, cache: Option<Arc<BlockCache>>) -> RunCursor {
        RunCursor {
            cache,
            run,
            piece: 0,
            block: 0,
            held: None,
            at: 0,
            shown: None,
            room: EntryRoom::default(),
            forward: true,
            crossed: 0,
            ahead: None,
            ahead_bytes: AHEAD_BYTES,
            scratch: Vec::new(),
        }
    }

    /// True if it reads this run.
    pub(crate) fn reads(&self, run: &Arc<Run>) -> bool {
        Arc::ptr_eq(&self.run, run)
    }

    /// Goes to the first entry right of the cut, or to the last one left of it.
    pub fn seek(&mut self, pos: &SeekPos<'_>, forward: bool) -> Result<()> {
        self.forward = forward;
        self.crossed = 0;
        self.ahead_bytes = if self.cache.is_some() {
            AHEAD_BYTES
        } else {
            AHEAD_BYTES_MAX
        };
        self.shown = None;
        // With entries on both sides of the cut no other block need be asked; with many equal keys, whose fences say nothing, asking
        // takes a search over blocks.
        if let Some(at) = self.held.as_ref().and_then(|block| block.cut_inside(pos)) {
            self.at = if forward { at } else { at - 1 };
        } else {
            self.seek_block(pos)?;
        }
        self.skip_dead()?;
        self.show();
        Ok(())
    }

    /// Goes to the block that the cut runs through, and to the first entry on the wanted side of it.
    fn seek_block(&mut self, pos: &SeekPos<'_>) -> Result<()> {
        self.held = None;
        let Some((piece, number, block)) = self.find_block(pos)? else {
            return Ok(());
        };
        (self.piece, self.block) = (piece, number);
        let at = block.partition_point(pos);
        let len = block.len();
        self.hold(block);
        if self.forward {
            self.at = at;
            if at == len {
                self.cross()?;
            }
        } else if let Some(at) = at.checked_sub(1) {
            self.at = at;
        } else {
            self.cross()?;
        }
        Ok(())
    }

    /// The block that the cut runs through, behind the numbers of its piece and of itself; none in an empty run.
    fn find_block(&self, pos: &SeekPos<'_>) -> Result<Option<(usize, usize, Arc<RunBlock>)>> {
        // The last piece that begins left of the cut; a pair never lies in two, but a key may.
        let number = self.find_piece(pos)?;
        let Some(piece) = self.run.pieces.get(number) else {
            return Ok(None);
        };
        let mut blocks = piece.blocks_at(pos);
        // Blocks that begin with the key of an event cut: look which of them begin left of it.
        while blocks.len() > 1 {
            let middle = usize::midpoint(blocks.start, blocks.end);
            if self.block_of(piece, middle)?.lies_left(0, pos) {
                blocks.start = middle;
            } else {
                blocks.end = middle;
            }
        }
        let block = self.block_of(piece, blocks.start)?;
        Ok(Some((number, blocks.start, block)))
    }

    fn hold(&mut self, block: Arc<RunBlock>) {
        block.hold(&mut self.room);
        self.held = Some(block);
    }

    /// Shows the entry at the position, which was found not dead.
    #[inline]
    fn show(&mut self) {
        let room = &mut self.room;
        // SAFETY: the view lies in the held block or in the room; it is given up before either changes or goes, and leaves this struct
        // only under a borrow of it.
        let show = |block: &Arc<RunBlock>| unsafe { block.show_live(self.at, room).detached() };
        self.shown = self.held.as_ref().map(show);
    }

    /// Number of the piece the cut runs through: the last one that begins left of it.
    fn find_piece(&self, pos: &SeekPos<'_>) -> Result<usize> {
        let pieces = &self.run.pieces;
        let begins_left = |piece: &Arc<RunPiece>| {
            let first = piece.first_key();
            first < pos.key
                || match pos.side {
                    Side::BeforePrefix => false,
                    Side::AfterPrefix => first.starts_with(pos.key),
                    Side::BeforeEvent(..) | Side::AfterEvent(..) => first == pos.key,
                }
        };
        let mut found = pieces.partition_point(begins_left).saturating_sub(1);
        // A key may lie in two pieces, and fences do not know rows.
        while found > 0 && pieces[found].first_key() == pos.key {
            let first = self.block_of(&pieces[found], 0)?;
            if first.lies_left(0, pos) {
                break;
            }
            found -= 1;
        }
        Ok(found)
    }

    /// The entry at the position.
    #[inline]
    pub fn peek(&self) -> Option<EntryView<'_>> {
        self.shown
    }

    /// Goes to the next entry in the direction of the last seek; stays beyond the end.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        self.shown = None;
        self.step()?;
        if self.held.as_ref().is_some_and(|block| block.has_dead()) {
            self.skip_dead()?;
        }
        self.show();
        Ok(())
    }

    /// So many entries from the position on, `most` at most, in front of all cuts, are lone ones: only parts beyond the cuts may have other
    /// events of their key and row (rule X56). 0 where that would have to be looked for.
    pub(crate) fn count_lone(&self, cuts: &[Option<SeekPos<'_>>], most: usize) -> usize {
        let Some(block) = self.held.as_ref().filter(|_| self.forward) else {
            return 0;
        };
        let Some(packed) = block.packed() else {
            return 0;
        };
        // The pair of the block's last one may go on in the next block.
        let last = (block.len() - 1).min(self.at.saturating_add(most));
        let left_of = |cut: &SeekPos<'_>| packed.partition_point(cut);
        let mut end = cuts.iter().flatten().map(left_of).fold(last, usize::min);
        if block.has_dead() && end > self.at {
            let dead = packed.first_dead(self.at..end + 1);
            // Whoever goes behind a strip comes to an entry that is not dead.
            end = end.min(dead.saturating_sub(1));
        }
        end.saturating_sub(self.at)
    }

    /// Copies so many of the lone entries from the position on, and goes to the entry behind them, which is in the same block.
    pub(crate) fn take_lone(&mut self, count: usize, copied: Copied, strip: &mut Strip) {
        let Some(packed) = self.held.as_ref().and_then(|block| block.packed()) else {
            return;
        };
        packed.copy_to(self.at..self.at + count, copied, strip);
        self.shown = None;
        self.at += count;
        self.show();
    }

    #[inline]
    fn step(&mut self) -> Result<()> {
        let Some(block) = &self.held else { return Ok(()) };
        if self.forward {
            self.at += 1;
            if self.at < block.len() {
                return Ok(());
            }
        } else if let Some(at) = self.at.checked_sub(1) {
            self.at = at;
            return Ok(());
        }
        self.cross()
    }

    /// Block and index of the position, for a dead mark.
    pub(crate) fn place(&self) -> (usize, usize, usize) {
        (self.piece, self.block, self.at)
    }

    /// Marks the entry at a place dead, if its block is still at hand.
    pub(crate) fn mark_dead(&self, (piece, block, at): (usize, usize, usize)) {
        if (self.piece, self.block) == (piece, block) {
            if let Some(held) = &self.held {
                held.mark_dead(at);
            }
            return;
        }
        let kept = self.cache.as_ref().and_then(|cache| {
            let key = self.run.pieces.get(piece)?.block_key(block);
            cache.peek::<RunBlock>(key)
        });
        if let Some(kept) = kept.filter(|kept| at < kept.len()) {
            kept.mark_dead(at);
        }
    }

    /// Leaves entries that are marked dead behind, whole blocks of them in one step.
    fn skip_dead(&mut self) -> Result<()> {
        while let Some(block) = self.held.as_ref().filter(|block| block.has_dead()) {
            if block.is_all_dead() {
                self.cross()?;
            } else if block.is_dead(self.at) {
                self.step()?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Goes to the near end of the next block in the direction.
    #[cold]
    fn cross(&mut self) -> Result<()> {
        self.held = None;
        let run = Arc::clone(&self.run);
        if self.forward {
            self.block += 1;
            if self.block == run.pieces[self.piece].section().block_count() {
                (self.piece, self.block) = (self.piece + 1, 0);
            }
        } else if let Some(before) = self.block.checked_sub(1) {
            self.block = before;
        } else {
            let Some(piece) = self.piece.checked_sub(1) else {
                return Ok(());
            };
            (self.piece, self.block) = (piece, run.pieces[piece].section().block_count() - 1);
        }
        let Some(piece) = run.pieces.get(self.piece) else {
            return Ok(());
        };
        self.crossed += 1;
        let block = self.next_block(piece)?;
        self.at = if self.forward { 0 } else { block.len() - 1 };
        self.hold(block);
        Ok(())
    }

    /// The present block of a scan.
    fn next_block(&mut self, piece: &Arc<RunPiece>) -> Result<Arc<RunBlock>> {
        let block = self.block;
        let reads_ahead = self.cache.is_none() || self.crossed > BLOCKS_BEFORE_AHEAD;
        if !reads_ahead {
            return self.block_of(piece, block);
        }
        let cached = self
            .cache
            .as_ref()
            .and_then(|cache| cache.peek(piece.block_key(block)));
        if let Some(cached) = cached {
            return Ok(cached);
        }
        self.read_ahead(piece, block)?;
        let (_, stored) = self.ahead.as_ref().expect("X8: blocks were read ahead");
        stored.decode(block, &mut self.scratch)?;
        let decoded = piece.decode(block, &self.scratch)?;
        match &self.cache {
            Some(cache) if fits(&self.run, &decoded, cache) => {
                cache.get_or_load(piece.block_key(block), || Ok(decoded))
            }
            _ => Ok(Arc::new(decoded)),
        }
    }

    /// Makes sure that the block is among those read ahead.
    fn read_ahead(&mut self, piece: &Arc<RunPiece>, block: usize) -> Result<()> {
        let has =
            |(of, stored): &(usize, StoredBlocks)| *of == self.piece && stored.blocks().contains(&block);
        if self.ahead.as_ref().is_some_and(has) {
            return Ok(());
        }
        let section = piece.section();
        let (from, count) = if self.forward {
            let count = section
                .blocks_within(block, self.ahead_bytes)
                .max(AHEAD_BLOCKS_MIN);
            (block, count)
        } else {
            let from = (block + 1).saturating_sub(AHEAD_BLOCKS_MIN);
            (from, block + 1 - from)
        };
        let stored = piece.file().read_blocks_ahead(piece.section_no(), from, count)?;
        self.ahead = Some((self.piece, stored));
        self.ahead_bytes = (self.ahead_bytes * 2).min(AHEAD_BYTES_MAX);
        Ok(())
    }

    fn block_of(&self, piece: &RunPiece, block: usize) -> Result<Arc<RunBlock>> {
        if let Some(cache) = &self.cache {
            return piece.load(cache, block);
        }
        let mut bytes = Vec::new();
        piece.file().read_block(piece.section_no(), block, &mut bytes)?;
        piece.decode(block, &bytes).map(Arc::new)
    }
}

/// True if all of the run, with blocks like this one, takes a quarter of the cache at most.
fn fits(run: &Run, block: &RunBlock, cache: &BlockCache) -> bool {
    let bytes = u128::from(run.entries()) * block.memory_bytes() as u128 / block.len() as u128;
    bytes <= u128::from(cache.budget() / 4)
}

impl std::fmt::Debug for RunCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunCursor")
            .field("index", &self.run.index)
            .field("piece", &self.piece)
            .field("block", &self.block)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
