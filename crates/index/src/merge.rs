//! Merging: parts of an index in, one run out, with all events dropped that decide nothing any more.
//!
//! Why it exists:    every part more is work for every reader, and events of settled, aborted and deleted things are dead
//!                   weight. A merge rewrites a stretch of keys at a time, so that it can pause between stretches.
//! Format / state:   none of its own; where a stretch ended is a (key, row id) pair, and the next one begins there.
//! Rules:            X35 an aborted event is dropped; of the settled events of a pair only the one with the greatest LSN
//!                   stays, without its transaction id; LSN and anti-entries go only where nothing older can lie outside
//!                   the sources (X48), events of rows that are gone for all only if the base is covered; unsettled
//!                   events stay as they are.
//! Latches and I/O:  none held; reads runs ahead and past the cache.

use std::sync::Arc;

use pbxt_base::{Lsn, Result, RowId, TxnId};

use crate::batch::Batch;
use crate::entry::{EntryView, Sign};
use crate::run::Run;
use crate::run_builder::RunBuilder;
use crate::run_cursor::RunCursor;
use crate::seek::SeekPos;
use crate::tree::Tree;

/// Entries taken from a tree at once.
const TREE_BATCH: usize = 256;

/// What has become of the writer of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EventStanding {
    /// Every live and later snapshot sees it.
    Settled,
    /// Nobody ever sees it: rolled back, whole or in part.
    Aborted,
    /// All else.
    Unsettled,
}

/// What a merge asks of transactions and rows. An answer may change from one question to the next only as the world does:
/// unsettled to settled or aborted, a row to gone.
pub trait MergeJudge {
    /// The next pair is about to be merged. The only thing that is said of every pair: settled events need no question.
    fn next_pair(&mut self);
    /// Standing of the event with this stamp. Transaction 0 is not asked about: it is settled.
    fn standing(&mut self, txn: TxnId, lsn: Lsn) -> EventStanding;
    /// True if no live or later snapshot can see any version of the row.
    fn is_gone(&mut self, row: RowId) -> bool;
}

/// What to merge.
#[derive(Debug)]
pub struct MergeSources<'a> {
    /// Trees that take no inserts any more.
    pub trees: &'a [Arc<Tree>],
    /// Runs.
    pub runs: &'a [Arc<Run>],
    /// Rule X48: an event below this LSN has no older one of its pair in a part outside of these. 0: the base is outside.
    pub covered_below: Lsn,
}

impl MergeSources<'_> {
    /// Nothing outside is older than anything in these.
    pub const ALL_COVERED: Lsn = Lsn::new(u64::MAX);
    /// The base is outside.
    pub const NONE_COVERED: Lsn = Lsn::new(0);
}

/// A stretch of the index.
#[derive(Clone, Copy, Debug)]
pub struct MergeRange<'a> {
    /// Left end.
    pub from: SeekPos<'a>,
    /// Right end: keys from here on stay out.
    pub until: Option<&'a [u8]>,
    /// Bytes written after which to stop, at the end of a pair.
    pub bytes: u64,
}

/// Where a merge stopped: the next one goes on left of this pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergeStop {
    /// Key of the first pair that was not merged.
    pub key: Vec<u8>,
    /// Its row id.
    pub row: RowId,
}

impl MergeStop {
    /// The cut to go on from.
    pub fn pos(&self) -> SeekPos<'_> {
        SeekPos::before(&self.key, self.row, Lsn::new(0), Sign::Anti)
    }
}

/// One event of a pair.
#[derive(Clone, Debug)]
struct Event {
    lsn: Lsn,
    sign: Sign,
    txn: TxnId,
    standing: EventStanding,
    unpack: Vec<u8>,
}

/// Merges a stretch into `out`. None if the stretch was merged to its end.
///
/// # Errors
/// Those of reading and writing; `out` is then of no use.
pub fn merge_events(
    sources: &MergeSources<'_>,
    range: &MergeRange<'_>,
    judge: &mut impl MergeJudge,
    out: &mut RunBuilder<'_>,
) -> Result<Option<MergeStop>> {
    let mut walk = Walk::begin(sources, &range.from)?;
    let limit = out.stored_bytes().saturating_add(range.bytes);
    let mut key = Vec::new();
    let mut events = Vec::new();
    while let Some(first) = walk.peek() {
        if range.until.is_some_and(|until| first.key() >= until) {
            return Ok(None);
        }
        let row = first.row();
        key.clear();
        key.extend_from_slice(first.key());
        if out.stored_bytes() >= limit {
            return Ok(Some(MergeStop { key, row }));
        }
        events.clear();
        judge.next_pair();
        walk.take_pair(&key, row, judge, &mut events)?;
        reduce(&mut events, sources.covered_below, || judge.is_gone(row));
        for event in &events {
            out.push(&key, row, event.lsn, event.sign, event.txn, &event.unpack)?;
        }
    }
    Ok(None)
}

/// Drops what decides nothing (rules X35, X48). The events of one pair come in order and stay in it.
fn reduce(events: &mut Vec<Event>, covered_below: Lsn, is_gone: impl FnOnce() -> bool) {
    let covers_base = covered_below > MergeSources::NONE_COVERED;
    events.retain(|event| event.standing != EventStanding::Aborted);
    if events.is_empty() {
        return;
    }
    if covers_base && is_gone() {
        events.clear();
        return;
    }
    let newest = events
        .iter()
        .rposition(|event| event.standing == EventStanding::Settled);
    let Some(newest) = newest else { return };
    let mut index = 0;
    events.retain(|event| {
        index += 1;
        index - 1 == newest || event.standing == EventStanding::Unsettled
    });
    let at = events
        .iter()
        .position(|event| event.standing == EventStanding::Settled)
        .expect("X35: the newest settled event stays");
    events[at].txn = TxnId::new(0);
    // An unsettled event below a settled one cannot be, as the row is locked by its writer until it settles; but if it
    // were, only the LSN could tell.
    if at == 0 && events[at].lsn < covered_below {
        if events[at].sign == Sign::Anti {
            events.remove(at);
        } else {
            events[at].lsn = Lsn::new(0);
        }
    }
}

/// All sources at one position, moving right.
struct Walk {
    sources: Vec<Source>,
    /// The source with the least entry.
    least: Option<usize>,
}

enum Source {
    Tree {
        tree: Arc<Tree>,
        batch: Batch,
        at: usize,
    },
    Run(RunCursor),
}

impl Source {
    fn peek(&self) -> Option<EntryView<'_>> {
        match self {
            Source::Tree { tree, batch, at } => batch.entry(tree, *at),
            Source::Run(cursor) => cursor.peek(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Source::Tree { tree, batch, at } => {
                *at += 1;
                if *at == batch.len() {
                    tree.read_batch_on(batch, TREE_BATCH);
                    *at = 0;
                }
                Ok(())
            }
            Source::Run(cursor) => cursor.advance(),
        }
    }
}

impl Walk {
    fn begin(from: &MergeSources<'_>, pos: &SeekPos<'_>) -> Result<Walk> {
        let mut sources = Vec::with_capacity(from.trees.len() + from.runs.len());
        for tree in from.trees {
            let mut batch = Batch::new();
            tree.read_batch_forward(pos, &mut batch, TREE_BATCH);
            sources.push(Source::Tree {
                tree: Arc::clone(tree),
                batch,
                at: 0,
            });
        }
        for run in from.runs {
            let mut cursor = RunCursor::uncached(Arc::clone(run));
            cursor.seek(pos, true)?;
            sources.push(Source::Run(cursor));
        }
        let mut walk = Walk { sources, least: None };
        walk.find_least();
        Ok(walk)
    }

    fn find_least(&mut self) {
        let heads = self.sources.iter().enumerate();
        let heads = heads.filter_map(|(number, source)| source.peek().map(|entry| (number, entry)));
        self.least = heads
            .min_by(|(_, left), (_, right)| left.order(*right))
            .map(|(number, _)| number);
    }

    fn peek(&self) -> Option<EntryView<'_>> {
        self.least.and_then(|least| self.sources[least].peek())
    }

    /// Moves all events of the pair at the position to `events`.
    fn take_pair(
        &mut self,
        key: &[u8],
        row: RowId,
        judge: &mut impl MergeJudge,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        while let Some(least) = self.least {
            let source = &mut self.sources[least];
            let Some(entry) = source
                .peek()
                .filter(|entry| entry.row() == row && entry.key() == key)
            else {
                return Ok(());
            };
            let (txn, lsn) = (entry.txn(), entry.lsn());
            let standing = if txn == TxnId::new(0) {
                EventStanding::Settled
            } else {
                judge.standing(txn, lsn)
            };
            // Rule X34: never the same event from two sources, unless both copies mean the same.
            if events
                .last()
                .is_some_and(|last| (last.lsn, last.sign) == (lsn, entry.sign()))
            {
                source.advance()?;
                self.find_least();
                continue;
            }
            events.push(Event {
                lsn,
                sign: entry.sign(),
                txn,
                standing,
                unpack: entry.unpack().to_vec(),
            });
            source.advance()?;
            self.find_least();
        }
        Ok(())
    }
}
