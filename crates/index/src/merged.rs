//! `MergedCursor`: a position in all parts of an index at once.
//!
//! Why it exists:    entries of one (key, row id) may lie in several trees and runs, and a reader decides them together; so
//!                   it wants them one behind the other.
//! Format / state:   one source for each part that has something beyond the position, kept in the order of their next
//!                   entries. After a step only the first source moves, and it mostly stays first: one comparison, none if
//!                   it is alone.
//! Rules:            X1 (order), X8 (a seek is a cut, and so is a step that has to seek again), X33 (runs without a key), X34, X56 (strips).
//! Latches and I/O:  none held between calls; it owns references to what it reads, so parts may be replaced meanwhile.

use std::sync::Arc;

use pbxt_base::{Lsn, Result};
use pbxt_segment::BlockCache;

use crate::batch::Batch;
use crate::entry::{EntryRef, EntryView, Sign};
use crate::entry_room::EntryRoom;
use crate::filter::key_hash;
use crate::parts::IndexParts;
use crate::run::Run;
use crate::run_cursor::RunCursor;
use crate::seek::SeekPos;
use crate::strip::{Copied, Strip};
use crate::tree::Tree;

/// Entries of the first read of a tree: where a range begins, and of a whole key, which mostly has one, and one behind it.
const FIRST_BATCH: usize = 8;
const FIRST_BATCH_OF_KEY: usize = 2;
const BATCH_MAX: usize = 256;

/// A part and the position in it.
enum Source {
    Tree {
        tree: Arc<Tree>,
        batch: Batch,
        at: usize,
        limit: usize,
    },
    Run(RunCursor),
}

/// Names an entry that a cursor has shown, for a dead mark. Good until the cursor's next seek.
#[derive(Clone, Copy, Debug)]
pub struct EntryMark {
    seek: u64,
    source: usize,
    place: MarkPlace,
}

impl EntryMark {
    /// The entry so many behind this one, of those that were taken together with it as lone ones.
    pub fn behind(self, entries: usize) -> EntryMark {
        let place = match self.place {
            MarkPlace::Tree(entry) => MarkPlace::Tree(entry),
            MarkPlace::Run((piece, block, at)) => MarkPlace::Run((piece, block, at + entries)),
        };
        EntryMark { place, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
enum MarkPlace {
    Tree(EntryRef),
    Run((usize, usize, usize)),
}

/// See the module.
#[derive(Default)]
pub struct MergedCursor {
    sources: Vec<Source>,
    /// Numbers of the sources that have an entry, and that entry, nearest first.
    order: Vec<(usize, EntryView<'static>)>,
    forward: bool,
    seeks: u64,
    /// Batches of earlier seeks and room of earlier cursors, for their memory.
    spare: Vec<Batch>,
    spare_rooms: Vec<EntryRoom>,
    /// Cursors of the seek before, during a seek: they may stand near.
    resting: Vec<RunCursor>,
}

impl MergedCursor {
    /// A cursor without position.
    pub fn new() -> MergedCursor {
        MergedCursor::default()
    }

    /// Goes to the first entry right of the cut, or to the last one left of it.
    ///
    /// # Errors
    /// Those of reading; the cursor has no position then.
    pub fn seek(
        &mut self,
        parts: &Arc<IndexParts>,
        cache: &Arc<BlockCache>,
        pos: &SeekPos<'_>,
        forward: bool,
    ) -> Result<()> {
        self.forward = forward;
        self.seek_parts(parts, cache, pos, FIRST_BATCH, |_| true)
    }

    /// Goes forward from a cut to entries with exactly the cut's key, and to all of those right of it. Behind them, and where there
    /// are none, entries may be left out: runs that cannot have the key are not asked, so who wants others has to seek again.
    ///
    /// # Errors
    /// Those of reading; the cursor has no position then.
    pub fn seek_key(
        &mut self,
        parts: &Arc<IndexParts>,
        cache: &Arc<BlockCache>,
        pos: &SeekPos<'_>,
    ) -> Result<()> {
        self.forward = true;
        if parts.runs.len() < 2 {
            // The only one has most keys that are sought: asking would cost more than it saves.
            return self.seek_parts(parts, cache, pos, FIRST_BATCH_OF_KEY, |_| true);
        }
        let hash = key_hash(pos.key);
        let may_have = |run: &Run| run.may_contain_hashed(pos.key, hash);
        self.seek_parts(parts, cache, pos, FIRST_BATCH_OF_KEY, may_have)
    }

    fn seek_parts(
        &mut self,
        parts: &IndexParts,
        cache: &Arc<BlockCache>,
        pos: &SeekPos<'_>,
        first: usize,
        is_wanted: impl Fn(&Run) -> bool,
    ) -> Result<()> {
        self.seeks += 1;
        self.order.clear();
        let sought = self.seek_sources(parts, cache, pos, first, is_wanted);
        if sought.is_err() {
            self.clear();
        }
        self.end_rest();
        sought
    }

    /// Sources of the seek before that are wanted again at the same place stay there: most seeks find the parts as they were.
    fn seek_sources(
        &mut self,
        parts: &IndexParts,
        cache: &Arc<BlockCache>,
        pos: &SeekPos<'_>,
        first: usize,
        is_wanted: impl Fn(&Run) -> bool,
    ) -> Result<()> {
        let mut number = 0;
        for tree in parts.trees().filter(|tree| !tree.is_empty()) {
            self.place_tree(number, tree);
            self.seek_tree(number, pos, first);
            self.put_in_order(number);
            number += 1;
        }
        for run in parts.runs.iter().filter(|run| !run.is_empty() && is_wanted(run)) {
            self.place_run(number, run, cache);
            if let Source::Run(cursor) = &mut self.sources[number] {
                cursor.seek(pos, self.forward)?;
            }
            self.put_in_order(number);
            number += 1;
        }
        self.rest_from(number);
        Ok(())
    }

    /// Makes the source of this number one of the tree.
    fn place_tree(&mut self, number: usize, wanted: &Arc<Tree>) {
        if let Some(Source::Tree { tree, .. }) = self.sources.get(number)
            && Arc::ptr_eq(tree, wanted)
        {
            return;
        }
        self.rest_from(number);
        self.sources.push(Source::Tree {
            tree: Arc::clone(wanted),
            batch: self.spare.pop().unwrap_or_default(),
            at: 0,
            limit: FIRST_BATCH,
        });
    }

    fn seek_tree(&mut self, number: usize, pos: &SeekPos<'_>, first: usize) {
        let Source::Tree {
            tree,
            batch,
            at,
            limit,
        } = &mut self.sources[number]
        else {
            return;
        };
        (*at, *limit) = (0, first);
        if self.forward {
            tree.read_batch_forward(pos, batch, first);
        } else {
            tree.read_batch_backward(pos, batch, first);
        }
    }

    /// Makes the source of this number one of the run, by the cursor that the seek before had there or elsewhere if there is one.
    fn place_run(&mut self, number: usize, run: &Arc<Run>, cache: &Arc<BlockCache>) {
        if let Some(Source::Run(cursor)) = self.sources.get(number)
            && cursor.reads(run)
        {
            return;
        }
        self.rest_from(number);
        let rested = self.resting.iter().position(|cursor| cursor.reads(run));
        let cursor = if let Some(rested) = rested {
            self.resting.swap_remove(rested)
        } else {
            let room = self.spare_rooms.pop().unwrap_or_default();
            RunCursor::new(Arc::clone(run), Arc::clone(cache)).with_room(room)
        };
        self.sources.push(Source::Run(cursor));
    }

    /// Takes the sources from this number on away; their cursors of runs may be wanted again by the same seek.
    fn rest_from(&mut self, number: usize) {
        while self.sources.len() > number {
            match self.sources.pop() {
                Some(Source::Tree { batch, .. }) => self.spare.push(batch),
                Some(Source::Run(cursor)) => self.resting.push(cursor),
                None => {}
            }
        }
    }

    /// Drops position and references; keeps memory for the next seek.
    pub fn clear(&mut self) {
        self.seeks += 1;
        self.order.clear();
        self.rest_from(0);
        self.end_rest();
    }

    /// What the seek did not want again gives up its run.
    fn end_rest(&mut self) {
        if !self.resting.is_empty() {
            let rested = self.resting.drain(..);
            self.spare_rooms.extend(rested.map(RunCursor::into_room));
        }
    }

    fn put_in_order(&mut self, number: usize) {
        if let Some(entry) = self.head_of(number) {
            let at = self
                .order
                .partition_point(|(_, other)| self.is_nearer(*other, entry));
            self.order.insert(at, (number, entry));
        }
    }

    /// Next entry of a source, without the borrow: `order` holds it until the source moves, and `peek` lends it out under
    /// a borrow of the cursor.
    #[inline]
    fn head_of(&mut self, number: usize) -> Option<EntryView<'static>> {
        let entry = match &mut self.sources[number] {
            Source::Tree {
                tree,
                batch,
                at,
                limit,
            } => loop {
                if let Some(entry) = batch.entry(tree, *at) {
                    break entry;
                }
                if batch.reached_end() {
                    return None;
                }
                *limit = (*limit * 4).min(BATCH_MAX);
                *at = 0;
                tree.read_batch_on(batch, *limit);
                if batch.is_empty() {
                    return None;
                }
            },
            Source::Run(cursor) => cursor.peek()?,
        };
        // SAFETY: the source holds a reference to the tree, or to the block until its next step; `order` gives the entry up
        // before the source steps or goes, and entries leave this struct only under a borrow of it.
        Some(unsafe { entry.detached() })
    }

    fn is_nearer(&self, entry: EntryView<'_>, other: EntryView<'_>) -> bool {
        let order = entry.order(other);
        if self.forward {
            order.is_lt()
        } else {
            order.is_gt()
        }
    }

    /// The entry at the position; none beyond the end, before the first seek and after an error.
    #[inline]
    pub fn peek(&self) -> Option<EntryView<'_>> {
        self.order.first().map(|&(_, entry)| entry)
    }

    /// True if the entry at the position lies in a tree.
    pub fn is_in_tree(&self) -> bool {
        let first = self.order.first();
        first.is_some_and(|&(number, _)| matches!(self.sources[number], Source::Tree { .. }))
    }

    /// Goes to the next entry in the direction of the last seek. For the other direction, seek again beside the entry.
    ///
    /// # Errors
    /// Those of reading; the cursor has no position then.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let Some(&(number, _)) = self.order.first() else {
            return Ok(());
        };
        match &mut self.sources[number] {
            Source::Tree { at, .. } => *at += 1,
            Source::Run(cursor) => {
                if let Err(error) = cursor.advance() {
                    self.clear();
                    return Err(error);
                }
            }
        }
        self.settle_first(number);
        Ok(())
    }

    /// Puts the first source, which has moved, where it belongs.
    #[inline]
    fn settle_first(&mut self, number: usize) {
        let Some(entry) = self.head_of(number) else {
            self.order.remove(0);
            return;
        };
        self.order[0].1 = entry;
        let mut at = 0;
        while at + 1 < self.order.len() && self.is_nearer(self.order[at + 1].1, entry) {
            self.order.swap(at, at + 1);
            at += 1;
        }
    }

    /// Copies up to `most` entries from the position on into `strip`, those that are lone: in front of all cuts, and the only events of
    /// their key and row in all parts; and goes to the entry behind them (rule X56). Of a read forward. The strip is empty if the next
    /// entry is no lone one, or if that would have to be looked for. The one at the position has to be the first of its pair.
    pub fn take_lone(
        &mut self,
        cuts: [Option<SeekPos<'_>>; 2],
        most: usize,
        copied: Copied,
        strip: &mut Strip,
    ) {
        strip.clear();
        let Some(&(number, _)) = self.order.first() else {
            return;
        };
        let Source::Run(cursor) = &self.sources[number] else {
            return;
        };
        // In front of every event of the pair that another part has next.
        let pair_before = |(_, entry): &(usize, EntryView<'static>)| {
            SeekPos::before(entry.key(), entry.row(), Lsn::new(0), Sign::Anti)
        };
        let [end, prefix] = cuts;
        let cuts = [end, prefix, self.order.get(1).map(pair_before)];
        let count = cursor.count_lone(&cuts, most);
        if count == 0 {
            return;
        }
        if let Source::Run(cursor) = &mut self.sources[number] {
            cursor.take_lone(count, copied, strip);
        }
        self.settle_first(number);
    }

    /// Names the entry at the position for `mark_dead`.
    pub fn mark(&self) -> Option<EntryMark> {
        let &(source, _) = self.order.first()?;
        let place = match &self.sources[source] {
            Source::Tree { tree, batch, at, .. } => MarkPlace::Tree(tree.entry_ref(batch, *at)?),
            Source::Run(cursor) => MarkPlace::Run(cursor.place()),
        };
        Some(EntryMark {
            seek: self.seeks,
            source,
            place,
        })
    }

    /// Marks an entry dead: nobody can see it any more. In a run that is a hint to those who read the same cached block.
    /// Nothing, if the cursor has sought since.
    pub fn mark_dead(&self, mark: EntryMark) {
        if mark.seek != self.seeks {
            return;
        }
        match (self.sources.get(mark.source), mark.place) {
            (Some(Source::Tree { tree, .. }), MarkPlace::Tree(entry)) => {
                tree.mark_dead(entry);
            }
            (Some(Source::Run(cursor)), MarkPlace::Run(place)) => cursor.mark_dead(place),
            _ => {}
        }
    }
}

impl std::fmt::Debug for MergedCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergedCursor")
            .field("sources", &self.sources.len())
            .field("at", &self.peek())
            .finish_non_exhaustive()
    }
}
