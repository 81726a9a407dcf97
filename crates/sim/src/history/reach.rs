//! Reach: how the rows of a predicate are come by, and what a statement sees of them.
//!
//! Why it exists: point look-ups, ranges up and down, whole indexes and table scans with and without a filter must give the same rows.

use crate::history::mix::{Action, Path};
use crate::history::record::{Content, Level, Predicate};
use crate::table::{NAME_INDEX, PlayRow, PlayTable};
use pbxt::{Bind, Busy, ConflictMode, Cursor, Isolation, Result, RowVersion, Seek, Session};
use pbxt_base::RowId;
use pbxt_rows::{Condition, RowFilter};
use std::ops::Bound;

/// A row as a cursor showed it.
pub(super) struct Shown {
    pub row: RowId,
    pub content: PlayRow,
}

/// What a statement sees.
pub(super) enum Source {
    /// The transaction's snapshot.
    Snapshot,
    /// What is committed when it begins.
    Statement,
    /// The newest version of each row when it comes to it.
    Newest,
}

/// True if statements that lock or change rows go by the newest version (rule T22). SERIALIZABLE that locks no tables reads and
/// changes as REPEATABLE READ in conflict mode error does.
pub(super) fn counts_newest(level: Level, by_locks: bool) -> bool {
    let waits = level.conflict == ConflictMode::Wait;
    match level.isolation {
        Isolation::ReadCommitted => true,
        Isolation::RepeatableRead => waits,
        Isolation::Serializable => waits && by_locks,
    }
}

/// What a statement sees and whether it locks what it shows (rules T18, T22).
pub(super) fn source_of(level: Level, action: Action, by_locks: bool) -> (Source, bool) {
    let locks = matches!(action, Action::Lock(..));
    let under_lock = level.isolation == Isolation::Serializable && by_locks;
    if action != Action::Look && counts_newest(level, by_locks) || locks && under_lock {
        return (Source::Newest, true);
    }
    let source = match level.isolation {
        Isolation::ReadCommitted => Source::Statement,
        // The table is locked: nothing changes while the statement runs.
        Isolation::Serializable if by_locks => Source::Statement,
        Isolation::RepeatableRead | Isolation::Serializable => Source::Snapshot,
    };
    (source, locks)
}

pub(super) fn bind_of(action: Action) -> Bind {
    let (lock, busy) = match action {
        Action::Lock(mode, busy) => (Some(mode), busy),
        _ => (None, Busy::Wait),
    };
    Bind {
        lock,
        busy,
        for_write: matches!(action, Action::Update(_) | Action::Delete),
        ..Bind::default()
    }
}

pub(super) fn name_of(value: u32) -> Vec<u8> {
    format!("{value:03}").into_bytes()
}

/// The path that a statement takes in a table which may lack its index.
pub(super) fn path_in(table: &PlayTable, predicate: Predicate, path: Path) -> Path {
    let index = match path {
        Path::Table { .. } => return path,
        Path::Whole { index, .. } => index,
        Path::Range { .. } => predicate.column,
    };
    if index < table.indexes() {
        path
    } else {
        Path::Table { filtered: false }
    }
}

/// Goes to the first row.
pub(super) fn first(
    session: &mut Session,
    cursor: &mut Cursor,
    table: &PlayTable,
    predicate: Predicate,
    path: Path,
) -> Result<Option<Shown>> {
    let mut shown = None;
    let show = |version: &RowVersion<'_>| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    };
    match path {
        Path::Table { filtered } => {
            cursor.set_filter(filtered.then(|| filter_of(table, predicate)));
            cursor.scan_start(session)?;
            cursor.scan_next(session, show)?;
        }
        Path::Whole { index, forward } => {
            cursor.index_start(session, index)?;
            cursor.index_edge(session, !forward, show)?;
        }
        Path::Range { forward } => {
            let index = predicate.column;
            cursor.index_start(session, index)?;
            let low = key_of(table, index, predicate.low);
            let high = key_of(table, index, predicate.high);
            let (first, last) = if index == 1 { (high, low) } else { (low, high) };
            if predicate.low == predicate.high {
                let seek = if forward { Seek::Exact } else { Seek::Last };
                cursor.seek(session, &first, seek, show)?;
            } else if forward {
                cursor.set_end(Some((&last, true)));
                cursor.seek(session, &first, Seek::OrNext, show)?;
            } else {
                cursor.seek(session, &last, Seek::OrPrev, show)?;
            }
        }
    }
    Ok(shown.map(|content| Shown {
        row: cursor.row(),
        content,
    }))
}

/// Goes to the next row.
pub(super) fn next(
    session: &mut Session,
    cursor: &mut Cursor,
    table: &PlayTable,
    predicate: Predicate,
    path: Path,
) -> Result<Option<Shown>> {
    let mut shown = None;
    let show = |version: &RowVersion<'_>| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    };
    match path {
        Path::Table { .. } => cursor.scan_next(session, show)?,
        Path::Whole { forward, .. } => cursor.index_move(session, forward, false, show)?,
        Path::Range { forward } => {
            let same = predicate.low == predicate.high;
            cursor.index_move(session, forward, same, show)?
        }
    };
    Ok(shown.map(|content| Shown {
        row: cursor.row(),
        content,
    }))
}

pub(super) fn content_of(row: &PlayRow) -> Content {
    let name = std::str::from_utf8(&row.name)
        .ok()
        .and_then(|name| name.parse().ok());
    Content {
        values: [Some(row.id), row.group, row.tag, name],
    }
}

pub(super) fn key_of(table: &PlayTable, index: usize, value: u32) -> Vec<u8> {
    if index == NAME_INDEX {
        let mut key = name_of(value);
        key.push(0);
        key
    } else {
        table.prefix(index, &[Some(value)])
    }
}

pub(super) fn filter_of(table: &PlayTable, predicate: Predicate) -> RowFilter {
    let mut filter = RowFilter::new(table.table.schema());
    let (low, high) = (predicate.low.to_le_bytes(), predicate.high.to_le_bytes());
    let between = Condition::Between(Bound::Included(&low), Bound::Included(&high));
    filter.add(table.table.schema(), predicate.column, between);
    filter
}
