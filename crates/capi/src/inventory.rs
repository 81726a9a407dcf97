//! Inventory: the lists of what a database consists of, as lines of cells, so that a host needs one function and no structure for each. The
//! contract is `include/pbxt_inventory.h`.

use crate::database::{PbxtDb, database};
use crate::guard::{Failure, call};
use crate::sight::{PbxtText, text_of};
use crate::status::Status;
use pbxt::{
    CacheLine, Compression, ConflictMode, Error, IndexLine, IndexStatisticsLine, RunLevel, RunLine,
    RunTotals, SampledBy, SegmentLine, SegmentState, SegmentUse, TableLine,
};
use pbxt_base::TxnId;
use std::ffi::c_void;

/// `pbxt_cell`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtCell {
    pub kind: u32,
    pub number: u64,
    pub text: PbxtText,
}

/// `pbxt_cell_kind`.
const NOTHING: u32 = 0;
const NUMBER: u32 = 1;
const TEXT: u32 = 2;
const TABLE: u32 = 3;
const TIME: u32 = 4;

/// The caller's function, told of a line; it ends the list by an answer that is not 0.
type EachLine = unsafe extern "C" fn(*mut c_void, *const PbxtCell, usize) -> i32;

impl From<u64> for PbxtCell {
    fn from(number: u64) -> Self {
        Self {
            kind: NUMBER,
            number,
            text: text_of(b""),
        }
    }
}

impl From<Option<u64>> for PbxtCell {
    fn from(number: Option<u64>) -> Self {
        let kind = if number.is_some() { NUMBER } else { NOTHING };
        Self {
            kind,
            ..number.unwrap_or_default().into()
        }
    }
}

impl From<bool> for PbxtCell {
    fn from(is_so: bool) -> Self {
        u64::from(is_so).into()
    }
}

/// A text; the cell points into it.
fn word(text: &str) -> PbxtCell {
    PbxtCell {
        kind: TEXT,
        number: 0,
        text: text_of(text.as_bytes()),
    }
}

fn word_or_nothing(text: Option<&str>) -> PbxtCell {
    PbxtCell {
        kind: if text.is_some() { TEXT } else { NOTHING },
        ..word(text.unwrap_or_default())
    }
}

/// The name of a table as the host gave it.
fn table_name(name: &str) -> PbxtCell {
    PbxtCell {
        kind: TABLE,
        ..word(name)
    }
}

fn time(unix_seconds: u64) -> PbxtCell {
    PbxtCell {
        kind: TIME,
        ..unix_seconds.into()
    }
}

fn runs(totals: RunTotals) -> [PbxtCell; 3] {
    [totals.runs.into(), totals.pieces.into(), totals.bytes.into()]
}

fn compression(compression: Compression) -> &'static str {
    match compression {
        Compression::Default => "DEFAULT",
        Compression::None => "NONE",
        Compression::Lz4 => "LZ4",
        Compression::Zstd => "ZSTD",
    }
}

fn conflict_mode(mode: ConflictMode) -> &'static str {
    match mode {
        ConflictMode::Default => "DEFAULT",
        ConflictMode::Error => "ERROR",
        ConflictMode::Wait => "WAIT",
    }
}

fn table_cells(line: &TableLine) -> Vec<PbxtCell> {
    let [row_runs, row_pieces, row_bytes] = runs(line.runs);
    vec![
        table_name(&line.table),
        u64::from(line.info.id.raw()).into(),
        line.info.rows.into(),
        line.info.mean_row_bytes.into(),
        row_runs,
        row_pieces,
        line.slots.into(),
        row_bytes,
        line.indexes.into(),
        line.info.index_bytes.into(),
        line.gone_rows.into(),
        line.row_map_bytes.into(),
        line.info.next_auto_increment.into(),
        word(compression(line.compression)),
        word(conflict_mode(line.conflict_mode)),
        line.temporary.into(),
    ]
}

fn index_cells(line: &IndexLine) -> Vec<PbxtCell> {
    let [run_count, pieces, bytes] = runs(line.runs);
    vec![
        table_name(&line.table),
        word(&line.index),
        u64::from(line.id.raw()).into(),
        line.unique.into(),
        line.entries.into(),
        run_count,
        pieces,
        bytes,
        line.memory_bytes.into(),
    ]
}

fn run_cells(line: &RunLine) -> Vec<PbxtCell> {
    let level = match line.level {
        RunLevel::Base => "base",
        RunLevel::Upper => "upper",
        RunLevel::Tagged => "tagged",
    };
    vec![
        table_name(&line.table),
        word_or_nothing(line.index.as_deref()),
        line.number.into(),
        word(level),
        line.owner.map(TxnId::raw).into(),
        line.pieces.into(),
        line.entries.into(),
        line.bytes.into(),
    ]
}

fn segment_cells(line: &SegmentLine) -> Vec<PbxtCell> {
    let holds = match line.holds {
        SegmentUse::Log => "log",
        SegmentUse::Rows => "rows",
        SegmentUse::Indexes => "indexes",
        SegmentUse::Image => "image",
        SegmentUse::Values => "values",
    };
    let state = match line.state {
        SegmentState::Ahead => "ahead",
        SegmentState::Current => "current",
        SegmentState::Needed => "needed",
        SegmentState::Unneeded => "unneeded",
    };
    vec![
        word(&line.file),
        word(holds),
        word(state),
        line.bytes.into(),
        line.named_bytes.into(),
    ]
}

fn cache_cells(line: &CacheLine) -> Vec<PbxtCell> {
    vec![
        word(line.name),
        line.bytes.into(),
        line.budget.into(),
        line.hits.into(),
        line.misses.into(),
    ]
}

fn statistics_cells(line: &IndexStatisticsLine) -> Vec<PbxtCell> {
    let by = match line.by {
        SampledBy::Use => "use",
        SampledBy::Analyze => "ANALYZE",
    };
    vec![
        table_name(&line.table),
        word(&line.index),
        line.parts.into(),
        line.rows_per_value.into(),
        line.entries.into(),
        line.compared.into(),
        line.differing.into(),
        time(line.taken),
        word(by),
        line.saved.into(),
    ]
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_list(db: *mut PbxtDb, list: u32, each: EachLine, ctx: *mut c_void) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let db = &unsafe { database(db)? }.db;
        // SAFETY: the caller's function; what the cells point to outlives the call.
        let tell = |cells: Vec<PbxtCell>| unsafe { each(ctx, cells.as_ptr(), cells.len()) } != 0;
        // `pbxt_list_kind`.
        let _ = match list {
            0 => db.list_tables().iter().any(|line| tell(table_cells(line))),
            1 => db.list_indexes().iter().any(|line| tell(index_cells(line))),
            2 => db.list_runs().iter().any(|line| tell(run_cells(line))),
            3 => db.list_segments()?.iter().any(|line| tell(segment_cells(line))),
            4 => db.list_caches().iter().any(|line| tell(cache_cells(line))),
            5 => db
                .list_index_statistics()
                .iter()
                .any(|line| tell(statistics_cells(line))),
            _ => return Err(Failure::from(Error::Invalid(format!("there is no list {list}")))),
        };
        Ok(())
    })
}
