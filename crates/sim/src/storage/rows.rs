//! Rows of a storage life, and the record buffers in which the engine takes and gives them.

use crate::storage::shape::{NULLS, Shape, TEXT_MAX};
use pbxt_rows::HostRecord;
use std::fmt;
use std::sync::Arc;

/// One row: its numbers, the first of which is the id, and a text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub numbers: Vec<Option<u32>>,
    pub text: Option<Arc<[u8]>>,
}

impl Row {
    /// Its primary key.
    pub(super) fn id(&self) -> u32 {
        self.numbers.first().copied().flatten().unwrap_or_default()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(")?;
        for number in &self.numbers {
            match number {
                Some(number) => write!(f, "{number} ")?,
                None => write!(f, "- ")?,
            }
        }
        match &self.text {
            Some(text) => write!(f, "{} bytes {:?})", text.len(), text.first()),
            None => write!(f, "-)"),
        }
    }
}

/// The record of a row.
pub(super) fn encode(shape: &Shape, row: &Row) -> Vec<u8> {
    let mut record = vec![0; shape.record_bytes()];
    for (number, value) in row.numbers.iter().enumerate() {
        match value {
            Some(value) => record[NULLS + 4 * number..][..4].copy_from_slice(&value.to_le_bytes()),
            None => record[number / 8] |= 1 << (number % 8),
        }
    }
    let number = row.numbers.len();
    match &row.text {
        Some(text) => {
            let place = &mut record[NULLS + 4 * number..];
            place[..2].copy_from_slice(&(text.len().min(TEXT_MAX) as u16).to_le_bytes());
            place[2..2 + text.len()].copy_from_slice(text);
        }
        None => record[number / 8] |= 1 << (number % 8),
    }
    record
}

/// The row in a record.
pub(super) fn decode(shape: &Shape, record: &[u8]) -> Row {
    let is_null = |number: usize| record[number / 8] & (1 << (number % 8)) != 0;
    let at = |number: usize| &record[NULLS + 4 * number..];
    let number = |number: usize| {
        let bytes: Option<[u8; 4]> = at(number)[..4].try_into().ok();
        bytes.map(u32::from_le_bytes).filter(|_| !is_null(number))
    };
    let numbers = shape.numbers();
    let text = at(numbers);
    let length = usize::from(u16::from_le_bytes([text[0], text[1]])).min(TEXT_MAX);
    Row {
        numbers: (0..numbers).map(number).collect(),
        text: (!is_null(numbers)).then(|| Arc::from(&text[2..2 + length])),
    }
}

/// A record buffer as the engine takes it.
pub(super) fn record(bytes: &[u8]) -> HostRecord<'_> {
    // SAFETY: the tables here have no blob columns, so there is no pointer in the record.
    unsafe { HostRecord::new(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::shape::Added;

    #[test]
    fn a_row_comes_back_from_its_record() {
        let mut shape = Shape::new(None);
        shape.added.push(Added {
            label: 10,
            default: Some(7),
        });
        let row = Row {
            numbers: vec![Some(1), None, Some(3), None, Some(5)],
            text: Some(Arc::from(&b"some"[..])),
        };
        assert_eq!(decode(&shape, &encode(&shape, &row)), row);
        let row = Row { text: None, ..row };
        assert_eq!(decode(&shape, &encode(&shape, &row)), row);
    }

    #[test]
    fn a_shape_comes_back_from_its_definition() {
        let mut shape = Shape::new(None);
        let row = Row {
            numbers: vec![Some(1), None, Some(3), None],
            text: None,
        };
        let mut next = shape.clone();
        next.added.push(Added {
            label: 10,
            default: Some(7),
        });
        assert_eq!(
            next.altered(&shape, &row).numbers,
            [Some(1), None, Some(3), None, Some(7)]
        );
        shape = next;
        let def = shape.definition("t").expect("a definition");
        assert_eq!(Shape::of(&def), Some(shape));
    }
}
