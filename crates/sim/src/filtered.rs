//! Filtered: table scans with conditions, against the rows of a scan without.
//!
//! Why it exists: a filter passes over rows and whole blocks; wherever rows stand, in the log, in an upper run over older
//! slots, in the base, nothing that meets the conditions may be missing, and no older version may come to light.
//! Rules: B12, F37. What is asked follows from the rows alone, so a life is repeated by its seed.

use crate::client::Read;
use crate::table::{PlayRow, PlayTable};
use pbxt::{Bind, Cursor, Result, Session};
use pbxt_rows::{Condition, RowFilter};
use std::ops::Bound;

/// One question: a column, what must hold for it, and the same said of a row.
pub struct Question {
    column: usize,
    /// Both ends included; None asks for NULL.
    between: Option<(u32, u32)>,
}

impl Question {
    /// Rows whose value lies in the range.
    pub fn between(column: usize, low: u32, high: u32) -> Self {
        Self {
            column,
            between: Some((low, high)),
        }
    }

    /// Rows that are NULL in the column.
    pub fn null(column: usize) -> Self {
        Self {
            column,
            between: None,
        }
    }

    /// True if the row is wanted.
    pub fn holds(&self, row: &PlayRow) -> bool {
        let value = [Some(row.id), row.group, row.tag][self.column];
        match (self.between, value) {
            (Some((low, high)), Some(value)) => low <= value && value <= high,
            (None, None) => true,
            _ => false,
        }
    }

    fn add_to(&self, filter: &mut RowFilter, table: &PlayTable) -> bool {
        let (low, high) = self.between.unwrap_or_default();
        let (low, high) = (low.to_le_bytes(), high.to_le_bytes());
        let condition = match self.between {
            Some(_) => Condition::Between(Bound::Included(&low), Bound::Included(&high)),
            None => Condition::IsNull,
        };
        filter.add(table.table.schema(), self.column, condition)
    }
}

/// Rows of a table scan that may leave out what does not meet all conditions.
pub fn scan(session: &mut Session, table: &PlayTable, questions: &[Question]) -> Result<Read> {
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, Bind::default())?;
    let mut filter = RowFilter::new(table.table.schema());
    for question in questions {
        assert!(
            question.add_to(&mut filter, table),
            "numbers compare without a host"
        );
    }
    cursor.set_filter(Some(filter));
    cursor.scan_start(session)?;
    let mut rows = Vec::new();
    let mut shown = None;
    while cursor.scan_next(session, |version| {
        shown = Some(table.decode(version.payload())?);
        Ok(())
    })? {
        rows.extend(shown.take().map(|row| (cursor.row(), row)));
    }
    Ok(rows)
}

/// Some questions to which the answers are neither all rows nor none.
fn questions(rows: &Read) -> Vec<Vec<Question>> {
    let at = |part: usize| rows.get(rows.len() * part / 4).map(|(_, row)| row);
    let (Some(first), Some(second), Some(third)) = (at(1), at(2), at(3)) else {
        return Vec::new();
    };
    let group = first.group.unwrap_or(third.id);
    vec![
        vec![Question::between(0, second.id, second.id)],
        vec![Question::between(0, first.id, u32::MAX)],
        vec![Question::between(0, 0, third.id), Question::null(1)],
        vec![Question::between(1, group, group)],
        vec![
            Question::null(2),
            Question::between(0, second.id, third.id.max(second.id)),
        ],
    ]
}

/// Whether scans with conditions find what a scan without them finds.
pub(crate) fn agrees(
    session: &mut Session,
    table: &PlayTable,
    rows: &Read,
) -> Result<std::result::Result<(), String>> {
    for questions in questions(rows) {
        let is_wanted = |row: &PlayRow| questions.iter().all(|question| question.holds(row));
        let expected: Vec<_> = rows.iter().filter(|(_, row)| is_wanted(row)).cloned().collect();
        let mut found = scan(session, table, &questions)?;
        // Where other versions than the snapshot's count, a scan has no filter.
        found.retain(|(_, row)| is_wanted(row));
        if found != expected {
            let asked: Vec<_> = questions
                .iter()
                .map(|question| format!("column {} {:?}", question.column, question.between))
                .collect();
            return Ok(Err(format!(
                "a scan with the conditions {asked:?} shows {found:?}, one without them {expected:?}"
            )));
        }
    }
    Ok(Ok(()))
}
