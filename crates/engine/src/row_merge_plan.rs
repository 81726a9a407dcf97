//! Row merge plan: which pieces of a table are merged next, from the shape alone.
//!
//! Why it exists: the choice decides how often a row is rewritten and how much space superseded slots bind; it is arithmetic
//! over ranges and counts, without I/O, so it can be tried with any shape.
//! Rules: S8 (closed ranges of neighbouring runs); S11 at most four upper runs lie over a row; S12 upper slots of a quarter of
//! a base piece's rows are merged into it; S34 of a fifth of the base's, into the piece with most of them; S37 of a tenth, if
//! the foreground is idle, S55 of one, if all is asked for; S13 small pieces of the base that follow each other become one; S14 what lives in
//! a file of which more than half is dead is rewritten.
//! Latches and I/O: none.

use crate::breath::WHOLE;
use crate::budget::PieceSizes;
use crate::row_merge::overlaps;
use crate::row_pieces::Cutter;
use crate::row_shape::{RowPiece, RowRun, RowShape};
use pbxt_base::{RowId, SegmentId};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Upper runs that may lie over one row.
pub(crate) const UPPER_RUNS: usize = 4;
/// Upper slots for one slot of the base at which they are merged: one for so many.
const BASE_SLOTS_PER_UPPER: u64 = 4;
/// The same for the whole base, if it has several pieces (rule S34).
const BASE_SLOTS_PER_ALL_UPPER: u64 = 5;
/// Merges are as far behind as they may be with so many more slots than are due: one for so many of those.
const DUE_PER_LAG: u64 = 2;
/// Pieces of a base of which one can be merged for all.
const SEVERAL_PIECES: usize = 4;
/// The same for the whole base, when the foreground is idle (rule S37).
const BASE_SLOTS_PER_IDLE_UPPER: u64 = 10;
/// A piece of the base below this is small.
const SMALL_BYTES: u64 = 4 << 20;
/// So many small pieces that follow each other are worth being merged.
const SMALL_PIECES: usize = 4;
/// The same if all is asked for (rule OP2), up to so many bytes.
const SMALL_PIECES_POSSIBLE: usize = 2;
const SMALL_JOB_BYTES: u64 = 64 << 20;

/// What is worth a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// What has to be done under load too.
    Due,
    /// And what gives space back while the foreground is idle.
    Useful,
    /// And whatever else can be brought into the oldest runs, whoever asks for that (rule S55).
    Possible,
}

impl Need {
    pub(crate) fn when(is_idle: bool) -> Self {
        if is_idle { Self::Useful } else { Self::Due }
    }

    /// True if it is more than has to be done under load.
    pub(crate) fn is_more_than_due(self) -> bool {
        self != Self::Due
    }
}

/// Pieces to be merged.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The oldest run of the job; gets the output.
    pub target: Arc<RowRun>,
    /// Pieces of each run, newest run first.
    pub inputs: Vec<Vec<Arc<RowPiece>>>,
    /// The target is the oldest run of all.
    pub is_oldest: bool,
    /// The oldest run, where the output does not become part of it.
    base: Option<Arc<RowRun>>,
}

impl Choice {
    /// Bytes to read.
    pub(crate) fn bytes(&self) -> u64 {
        self.inputs
            .iter()
            .flatten()
            .map(|piece| piece.stored_bytes())
            .sum()
    }

    /// True if the piece is one of the oldest of its runs.
    pub(crate) fn has_base(&self, piece: &Arc<RowPiece>) -> bool {
        let oldest = self.inputs.last().into_iter().flatten();
        oldest.into_iter().any(|input| Arc::ptr_eq(input, piece))
    }

    /// Where the output is cut (rule S7).
    pub(crate) fn cutter(&self, sizes: PieceSizes) -> Cutter {
        match &self.base {
            Some(base) if !self.is_oldest => Cutter::over(&base.pieces, RowId::new(u64::MAX), sizes),
            _ => Cutter::for_base(self.inputs.last().map_or(0, |pieces| bytes_of(pieces)), sizes),
        }
    }
}

/// The next merge, if one is due. `sparse`: files of which little is alive.
pub(crate) fn plan(shape: &RowShape, sparse: &HashSet<SegmentId>, need: Need) -> Option<Choice> {
    let groups = groups_of(shape);
    let deep = groups.iter().find_map(|group| too_deep(shape, group.clone()));
    deep.or_else(|| heavy_base(shape, &groups, need, |_| true))
        .or_else(|| small_base(shape, need))
        .or_else(|| in_sparse_file(shape, sparse))
}

/// Base pieces that are merged beside `first`, the choice for them, with so many bytes at most: closed ranges that have no piece in common
/// touch nothing of each other (rule S8). None where `first` is another kind of merge.
pub(crate) fn beside(shape: &RowShape, first: &Choice, bytes_max: u64, need: Need) -> Vec<Choice> {
    let groups = groups_of(shape);
    let is_base = |choice: &Choice| choice.is_oldest && choice.inputs.len() > 1;
    let mut choices: Vec<Choice> = Vec::new();
    let mut bytes = first.bytes();
    if !is_base(first)
        || groups
            .last()
            .is_none_or(|group| group.end() - group.start() + 1 != first.inputs.len())
    {
        return choices;
    }
    while bytes < bytes_max {
        let is_free =
            |piece: &Arc<RowPiece>| !choices.iter().chain([first]).any(|choice| choice.has_base(piece));
        let Some(next) = heavy_base(shape, &groups, need, is_free) else {
            break;
        };
        bytes += next.bytes();
        choices.push(next);
    }
    choices
}

/// How far the merges of a table are behind, in thousandths of what may be (rule S43).
pub(crate) fn lag_of(shape: &RowShape) -> u64 {
    let Some((base, uppers)) = shape.runs.split_last() else {
        return 0;
    };
    let slots = |run: &RowRun| run.pieces.iter().map(|piece| piece.rows.len()).sum::<u64>();
    let upper: u64 = uppers.iter().map(|run| slots(run)).sum();
    let due = slots(base) / BASE_SLOTS_PER_ALL_UPPER;
    let of_slots = upper.saturating_sub(due) * DUE_PER_LAG * WHOLE / due.max(1);
    let of_runs = lag_of_runs(shape.runs.iter().filter(|run| !run.is_tagged()).count());
    if base.pieces.len() < SEVERAL_PIECES {
        return of_runs.min(WHOLE);
    }
    of_slots.max(of_runs).min(WHOLE)
}

/// The same for so many runs, the base among them, of which five may be: from there on to twice as many upper ones.
pub(crate) fn lag_of_runs(runs: usize) -> u64 {
    let beyond = runs.saturating_sub(UPPER_RUNS + 2).min(UPPER_RUNS);
    beyond as u64 * WHOLE / UPPER_RUNS as u64
}

/// Neighbouring settled runs: tagged ones are never merged, nor is anything moved across them.
fn groups_of(shape: &RowShape) -> Vec<RangeInclusive<usize>> {
    let mut groups: Vec<RangeInclusive<usize>> = Vec::new();
    for (number, run) in shape.runs.iter().enumerate() {
        if run.is_tagged() {
            continue;
        }
        match groups.last_mut() {
            Some(group) if group.end() + 1 == number => *group = *group.start()..=number,
            _ => groups.push(number..=number),
        }
    }
    groups
}

/// Rule S11: a place where more than four upper runs of a group overlap. Runs of like size are merged, from the newest on,
/// so a row is rewritten about once each time the upper runs double.
fn too_deep(shape: &RowShape, group: RangeInclusive<usize>) -> Option<Choice> {
    let oldest = shape.runs.len() - 1;
    let uppers = *group.start()..(*group.end() + 1).min(oldest);
    if uppers.len() <= UPPER_RUNS {
        return None;
    }
    for number in uppers.clone() {
        for piece in &shape.runs[number].pieces {
            let over = |other: &usize| overlaps(&shape.runs[*other].pieces, piece.first, piece.last);
            let deep: Vec<usize> = uppers.clone().filter(over).collect();
            if deep.len() > UPPER_RUNS {
                let sizes = deep.iter().map(|other| {
                    overlapping(&shape.runs[*other].pieces, piece.first, piece.last)
                        .map(|piece| piece.stored_bytes())
                        .sum()
                });
                let count = tier(sizes);
                return Some(close(shape, deep[0]..=deep[count - 1], piece.first, piece.last));
            }
        }
    }
    None
}

/// How many of these, the newest first, are merged: two, and each further one that is not larger than all before it.
pub(crate) fn tier(sizes: impl Iterator<Item = u64>) -> usize {
    let mut sum = 0_u64;
    let mut count = 0;
    for size in sizes {
        if count >= 2 && size > sum {
            break;
        }
        sum += size;
        count += 1;
    }
    count
}

/// How many of these have so many bytes together, at most.
fn within(bytes: u64, sizes: impl Iterator<Item = u64>) -> usize {
    let sums = sizes.scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= bytes).count()
}

/// Rules S12, S34, S37: the base piece with the most upper slots over it for its size, if it or the whole base has enough. A
/// piece has at least the share that the whole base has, so each job rids the base of at least that part of what it rewrites. Only pieces
/// that are `is_free` are chosen.
fn heavy_base(
    shape: &RowShape,
    groups: &[RangeInclusive<usize>],
    need: Need,
    is_free: impl Fn(&Arc<RowPiece>) -> bool,
) -> Option<Choice> {
    let oldest = shape.runs.len() - 1;
    let group = groups.last().filter(|group| *group.end() == oldest)?;
    let base = &shape.runs[oldest].pieces;
    let mut best: Option<(u64, &Arc<RowPiece>)> = None;
    let (mut upper, mut slots) = (0, 0);
    for piece in base {
        let over: u64 = (*group.start()..oldest)
            .map(|number| slots_between(&shape.runs[number], piece.first, piece.last))
            .sum();
        let rows = piece.rows.len();
        let share = over * 1000 / rows.max(1);
        if over > 0 && best.is_none_or(|(most, _)| share > most) && is_free(piece) {
            best = Some((share, piece));
        }
        upper += over;
        slots += rows;
    }
    let (share, piece) = best?;
    let is_due = share * BASE_SLOTS_PER_UPPER >= 1000
        || base.len() >= SEVERAL_PIECES && upper * BASE_SLOTS_PER_ALL_UPPER >= slots
        || need == Need::Useful && upper * BASE_SLOTS_PER_IDLE_UPPER >= slots
        || need == Need::Possible;
    is_due.then(|| close(shape, group.clone(), piece.first, piece.last))
}

/// Slots of a run between these rows.
fn slots_between(run: &RowRun, first: RowId, last: RowId) -> u64 {
    overlapping(&run.pieces, first, last)
        .map(|piece| {
            if first <= piece.first && piece.last <= last {
                return piece.rows.len();
            }
            let below = first.raw().checked_sub(1).map_or(0, |row| piece.rows.rank(row));
            piece.rows.rank(last.raw()) - below
        })
        .sum()
}

/// Rule S13: from the end, as that is where small pieces come.
fn small_base(shape: &RowShape, need: Need) -> Option<Choice> {
    let base = shape.runs.last().filter(|run| !run.is_tagged())?;
    let is_small = |piece: &&Arc<RowPiece>| piece.stored_bytes() < SMALL_BYTES;
    let mut end = base.pieces.len();
    while end > 0 {
        let small = base.pieces[..end].iter().rev().take_while(is_small).count();
        let begin = end - small;
        let sizes = base.pieces[begin..end]
            .iter()
            .rev()
            .map(|piece| piece.stored_bytes());
        let (count, least) = if need == Need::Possible {
            (within(SMALL_JOB_BYTES, sizes), SMALL_PIECES_POSSIBLE)
        } else {
            (tier(sizes), SMALL_PIECES)
        };
        if count >= least {
            return Some(alone(base, base.pieces[end - count..end].to_vec()));
        }
        end = if small <= 1 { end - 1 } else { begin };
    }
    None
}

/// Rule S14.
fn in_sparse_file(shape: &RowShape, sparse: &HashSet<SegmentId>) -> Option<Choice> {
    if sparse.is_empty() {
        return None;
    }
    let oldest = shape.runs.len() - 1;
    for (number, run) in shape.runs.iter().enumerate().filter(|(_, run)| !run.is_tagged()) {
        let piece = run.pieces.iter().find(|piece| sparse.contains(&piece.file.id()));
        if let Some(piece) = piece {
            return Some(Choice {
                is_oldest: number == oldest,
                base: shape.runs.last().cloned(),
                ..alone(run, vec![Arc::clone(piece)])
            });
        }
    }
    None
}

fn bytes_of(pieces: &[Arc<RowPiece>]) -> u64 {
    pieces.iter().map(|piece| piece.stored_bytes()).sum()
}

fn alone(run: &Arc<RowRun>, pieces: Vec<Arc<RowPiece>>) -> Choice {
    Choice {
        target: Arc::clone(run),
        inputs: vec![pieces],
        is_oldest: true,
        base: None,
    }
}

/// The job of these runs over these rows, widened until no piece lies half in it (rule S8).
fn close(shape: &RowShape, runs: RangeInclusive<usize>, mut first: RowId, mut last: RowId) -> Choice {
    let oldest = shape.runs.len() - 1;
    let target = *runs.end();
    loop {
        let mut range = (first, last);
        for run in &shape.runs[runs.clone()] {
            for piece in overlapping(&run.pieces, first, last) {
                range = (range.0.min(piece.first), range.1.max(piece.last));
            }
        }
        if range == (first, last) {
            break;
        }
        (first, last) = range;
    }
    let inputs = shape.runs[runs].iter();
    Choice {
        target: Arc::clone(&shape.runs[target]),
        inputs: inputs
            .map(|run| overlapping(&run.pieces, first, last).cloned().collect())
            .collect(),
        is_oldest: target == oldest,
        base: shape.runs.last().cloned(),
    }
}

/// Pieces that lie in part between these rows.
fn overlapping(pieces: &[Arc<RowPiece>], first: RowId, last: RowId) -> impl Iterator<Item = &Arc<RowPiece>> {
    let at = pieces.partition_point(|piece| piece.last < first);
    pieces[at..].iter().take_while(move |piece| piece.first <= last)
}
