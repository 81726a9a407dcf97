//! Index merge plan: which pieces of which runs of an index become one, from fences and counts alone.
//!
//! Why it exists: every run is one more place to look; an anti-entry, and an entry of a row that is gone, weigh until they
//! reach the base. The base is rewritten piece by piece; that needs upper runs cut where the base is cut, so several upper
//! runs are first merged into one that is.
//! Rules: S17 at most four upper runs; upper entries of a quarter of the base are merged into it, S38 of a tenth if the
//! foreground is idle, S55 of any if all is asked for; S18 a tagged run whose
//! owner is not settled takes no part; S14, S39 a piece in a file of which too much is dead is written anew;
//! S19 a piece over nothing older is moved down, not rewritten; S25 pieces with many
//! entries of gone rows are rewritten for that alone.
//! Latches and I/O: none.

use crate::row_merge_plan::{Need, UPPER_RUNS};
use pbxt_base::SegmentId;
use pbxt_index::{Run, RunPiece, SeekPos};
use std::collections::HashSet;
use std::sync::Arc;

/// Entries of the base for one upper entry at which they are merged.
const BASE_ENTRIES_PER_UPPER: u64 = 4;
/// The same when the foreground is idle (rule S38).
const BASE_ENTRIES_PER_IDLE_UPPER: u64 = 10;
/// An index up to this size is merged as a whole.
const WHOLE_BYTES: u64 = 32 << 20;
/// A job of one base piece is not larger than this, or else upper runs are cut first.
const CLOSED_BYTES: u64 = 160 << 20;
/// Upper entries over a base piece for one of its own, in parts of this.
const WEIGHT_UNIT: u64 = 1_000_000;
/// A piece of the base below this is small.
const SMALL_BYTES: u64 = 4 << 20;
/// So many small pieces that follow each other are worth being merged.
const SMALL_PIECES: usize = 4;

/// What is merged.
#[derive(Debug)]
pub(crate) struct IndexChoice {
    /// Gets the output.
    pub target: Arc<Run>,
    /// Pieces by run.
    pub inputs: Vec<Vec<Arc<RunPiece>>>,
    pub covers_base: bool,
    /// Every run that may take part and has something of these keys does (rule X48).
    pub covers_all: bool,
    /// Keys at which the output is cut.
    pub cuts: Vec<Vec<u8>>,
}

impl IndexChoice {
    /// Bytes to read.
    pub(crate) fn bytes(&self) -> u64 {
        self.inputs
            .iter()
            .flatten()
            .map(|piece| piece.stored_bytes())
            .sum()
    }

    /// True if the piece is one of the inputs.
    pub(crate) fn has(&self, piece: &Arc<RunPiece>) -> bool {
        self.inputs
            .iter()
            .flatten()
            .any(|input| Arc::ptr_eq(input, piece))
    }
}

/// The next merge, if one is due. `runs`: newest first; `may_take`: rule S18; `cut`: rule S25; `need`: rule S38.
pub(crate) fn plan_index(
    runs: &[Arc<Run>],
    cut: Option<u64>,
    need: Need,
    may_take: impl Fn(&Run) -> bool,
) -> Option<IndexChoice> {
    let others = runs.len().saturating_sub(1);
    // A run that must wait keeps nobody: what it may need stays (rule X48).
    let taken: Vec<&Arc<Run>> = runs.iter().filter(|run| may_take(run)).collect();
    let (&base, uppers) = taken.split_last()?;
    let upper_entries: u64 = uppers.iter().map(|run| run.entries()).sum();
    let is_enough = match need {
        Need::Due => upper_entries * BASE_ENTRIES_PER_UPPER >= base.entries(),
        Need::Useful => upper_entries * BASE_ENTRIES_PER_IDLE_UPPER >= base.entries(),
        Need::Possible => true,
    };
    if is_enough && upper_entries > 0 {
        return Some(into_base(base, uppers));
    }
    if uppers.len() > UPPER_RUNS {
        let sizes = uppers.iter().map(|run| run.stored_bytes());
        let count = crate::row_merge_plan::tier(sizes);
        return Some(among_uppers(base, &uppers[..count]));
    }
    small_base(base, others).or_else(|| sweep(base, uppers, cut?))
}

/// Rule OP2: the first piece of the oldest run that is to be written anew though nothing lies over it, with what it overlaps.
pub(crate) fn plan_renewal(
    runs: &[Arc<Run>],
    renews: &dyn Fn(&RunPiece) -> bool,
    may_take: impl Fn(&Run) -> bool,
) -> Option<IndexChoice> {
    let taken: Vec<&Arc<Run>> = runs.iter().filter(|run| may_take(run)).collect();
    let (&base, uppers) = taken.split_last()?;
    let piece = base.pieces.iter().find(|piece| renews(piece))?;
    if base.tag.is_some() {
        return Some(all_into_base(base, uppers));
    }
    Some(close(base, &taken, piece))
}

/// Rule S14: a piece in one of these files, alone.
pub(crate) fn plan_leaving(
    runs: &[Arc<Run>],
    sparse: &HashSet<SegmentId>,
    may_take: impl Fn(&Run) -> bool,
) -> Option<IndexChoice> {
    let oldest = runs.iter().rposition(|run| may_take(run))?;
    let mut settled = runs.iter().enumerate().filter(|(_, run)| run.tag.is_none());
    settled.find_map(|(number, run)| {
        let piece = run.pieces.iter().find(|piece| is_in(piece, sparse))?;
        let covers_base = number == oldest;
        Some(IndexChoice {
            target: Arc::clone(run),
            inputs: vec![vec![Arc::clone(piece)]],
            covers_base,
            // Other runs may need what this one says.
            covers_all: covers_base && runs.len() == 1,
            cuts: Vec::new(),
        })
    })
}

/// True if the piece is in one of these files.
pub(crate) fn is_in(piece: &RunPiece, files: &HashSet<SegmentId>) -> bool {
    files.contains(&piece.reference().0)
}

/// The piece that was longest ago rid of entries of gone rows, with what it overlaps.
fn sweep(base: &Arc<Run>, uppers: &[&Arc<Run>], cut: u64) -> Option<IndexChoice> {
    let mut runs = uppers.to_vec();
    runs.push(base);
    let pieces = runs.iter().flat_map(|run| &run.pieces);
    let oldest = pieces.min_by_key(|piece| piece.swept().cut())?;
    if oldest.swept().cut() >= cut {
        return None;
    }
    let choice = if base.tag.is_some() {
        all_into_base(base, uppers)
    } else {
        close(base, &runs, oldest)
    };
    Some(choice)
}

/// All, if that is little; else the heaviest base piece; else the upper runs alone, to be cut.
fn into_base(base: &Arc<Run>, uppers: &[&Arc<Run>]) -> IndexChoice {
    let bytes: u64 = base.stored_bytes() + uppers.iter().map(|run| run.stored_bytes()).sum::<u64>();
    if bytes <= WHOLE_BYTES || base.pieces.len() < 2 || base.tag.is_some() {
        return all_into_base(base, uppers);
    }
    let weight = |piece: &Arc<RunPiece>| {
        let (low, high) = (
            SeekPos::lower_bound(piece.first_key()),
            SeekPos::upper_bound(piece.last_key()),
        );
        let over: u64 = uppers
            .iter()
            .map(|run| run.range_count_estimate(&low, &high))
            .sum();
        over * WEIGHT_UNIT / piece.entries().max(1)
    };
    let weights = base.pieces.iter().map(|piece| (weight(piece), piece));
    // Few entries may lie between pieces, or be estimated as none: then there is no piece to be preferred.
    let Some((_, heaviest)) = weights
        .filter(|(weight, _)| *weight > 0)
        .max_by_key(|(weight, _)| *weight)
    else {
        return all_into_base(base, uppers);
    };
    let mut runs = uppers.to_vec();
    runs.push(base);
    let choice = close(base, &runs, heaviest);
    if choice.bytes() > CLOSED_BYTES && uppers.len() > 1 {
        return among_uppers(base, uppers);
    }
    choice
}

fn all_into_base(base: &Arc<Run>, uppers: &[&Arc<Run>]) -> IndexChoice {
    let runs = uppers.iter().map(|run| run.pieces.clone());
    IndexChoice {
        target: Arc::clone(base),
        inputs: runs.chain([base.pieces.clone()]).collect(),
        covers_base: true,
        covers_all: true,
        cuts: Vec::new(),
    }
}

fn among_uppers(base: &Arc<Run>, uppers: &[&Arc<Run>]) -> IndexChoice {
    let borders = base
        .pieces
        .windows(2)
        .filter(|pair| pair[0].last_key() < pair[1].first_key());
    IndexChoice {
        target: Arc::clone(uppers[uppers.len() - 1]),
        inputs: uppers.iter().map(|run| run.pieces.clone()).collect(),
        covers_base: false,
        covers_all: false,
        cuts: borders.map(|pair| pair[1].first_key().to_vec()).collect(),
    }
}

/// The pieces of these runs that overlap the piece, and those that overlap them, until none lies half in.
fn close(base: &Arc<Run>, runs: &[&Arc<Run>], seed: &Arc<RunPiece>) -> IndexChoice {
    let (mut first, mut last) = (seed.first_key(), seed.last_key());
    loop {
        let before = (first, last);
        for piece in runs.iter().flat_map(|run| overlapping(run, first, last)) {
            first = first.min(piece.first_key());
            last = last.max(piece.last_key());
        }
        if before == (first, last) {
            break;
        }
    }
    IndexChoice {
        target: Arc::clone(base),
        inputs: runs
            .iter()
            .map(|run| overlapping(run, first, last).cloned().collect())
            .collect(),
        covers_base: true,
        covers_all: true,
        cuts: Vec::new(),
    }
}

/// Pieces with keys from `first` to `last`.
fn overlapping<'r>(
    run: &'r Run,
    first: &[u8],
    last: &[u8],
) -> impl Iterator<Item = &'r Arc<RunPiece>> + use<'r> {
    let begin = run.pieces.partition_point(|piece| piece.last_key() < first);
    let end = run.pieces.partition_point(|piece| piece.first_key() <= last);
    run.pieces[begin..end.max(begin)].iter()
}

/// Small pieces of the base that follow each other, from the right, where they come. Upper runs, if there are `uppers`, may need what
/// these pieces say.
fn small_base(base: &Arc<Run>, uppers: usize) -> Option<IndexChoice> {
    if base.tag.is_some() {
        return None;
    }
    let small = base
        .pieces
        .iter()
        .rev()
        .take_while(|piece| piece.stored_bytes() < SMALL_BYTES);
    let count = crate::row_merge_plan::tier(small.map(|piece| piece.stored_bytes()));
    (count >= SMALL_PIECES).then(|| IndexChoice {
        target: Arc::clone(base),
        inputs: vec![base.pieces[base.pieces.len() - count..].to_vec()],
        covers_base: true,
        covers_all: uppers == 0,
        cuts: Vec::new(),
    })
}

/// Pieces of upper runs that lie over nothing go to the base (rule S19). None if there are none.
pub(crate) fn move_down(runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
    let (base, uppers) = runs.split_last().filter(|(base, _)| base.tag.is_none())?;
    let mut pieces = base.pieces.clone();
    let mut left: Vec<Vec<Arc<RunPiece>>> = uppers.iter().map(|run| run.pieces.clone()).collect();
    let mut moved = false;
    for number in (0..uppers.len()).filter(|number| uppers[*number].tag.is_none()) {
        for piece in std::mem::take(&mut left[number]) {
            let (first, last) = (piece.first_key(), piece.last_key());
            let at = pieces.partition_point(|other| other.last_key() < first);
            let is_over = pieces.get(at).is_some_and(|other| other.first_key() <= last)
                || uppers
                    .iter()
                    .any(|run| overlapping(run, first, last).any(|other| !Arc::ptr_eq(other, &piece)));
            if is_over {
                left[number].push(piece);
            } else {
                moved = true;
                pieces.insert(at, piece);
            }
        }
    }
    if !moved {
        return None;
    }
    let index = base.index;
    let rebuilt = |pieces: Vec<Arc<RunPiece>>, run: &Arc<Run>| {
        if pieces.len() == run.pieces.len() {
            return Arc::clone(run);
        }
        Arc::new(Run::of(index, run.tag, pieces))
    };
    let mut result: Vec<_> = left
        .into_iter()
        .zip(uppers)
        .filter(|(pieces, _)| !pieces.is_empty())
        .map(|(pieces, run)| rebuilt(pieces, run))
        .collect();
    result.push(rebuilt(pieces, base));
    Some(result)
}
