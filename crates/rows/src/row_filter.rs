//! RowFilter: conditions on single columns that all must hold, asked of rows and of whole blocks.
//!
//! Why it exists:    most rows of a scan with a condition are not wanted; to find that out on the stored bytes costs a tenth of
//!                   filling a record with them, and zones tell it of blocks that then need not be read.
//! Format / state:   nothing stored. A condition is a closed range of numbers (rule F35), or about NULL alone.
//! Rules:            F37: what is turned away does not meet the conditions; what is let through may not meet them either (the
//!                   value is longer than its number, or stored elsewhere), so whoever set the filter still asks.
//! Latches and I/O:  none.

use crate::column_order::{Cell, ColumnOrder};
use crate::schema::Schema;
use crate::versions::Versions;
use crate::zones::Zones;
use std::ops::Bound;

/// What must hold for the value of a column. Values are given as stored.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// It is NULL.
    IsNull,
    /// It is not NULL.
    IsNotNull,
    /// It lies between these two, and is not NULL.
    Between(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

#[derive(Clone, Copy, Debug)]
struct Term {
    column: usize,
    order: ColumnOrder,
    wants_null: bool,
    /// Of values: both ends count; nothing matches if the first is greater.
    least: u64,
    greatest: u64,
}

/// See the module. Empty, it lets everything through.
#[derive(Clone, Debug)]
pub struct RowFilter {
    version: u16,
    terms: Vec<Term>,
}

impl RowFilter {
    /// A filter of rows of this schema without conditions.
    pub fn new(schema: &Schema) -> Self {
        Self {
            version: schema.version(),
            terms: Vec::new(),
        }
    }

    /// True if it has no conditions.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Adds a condition; `schema` is the filter's own. False, and nothing changed, if it cannot be asked of stored rows: the
    /// column's order is not known, or a bound is no value of the column.
    pub fn add(&mut self, schema: &Schema, column: usize, condition: Condition<'_>) -> bool {
        let term = ColumnOrder::new(schema, column).and_then(|order| Term::new(column, order, condition));
        self.terms.extend(term);
        term.is_some()
    }

    /// False if the row cannot meet the conditions (rule F37).
    #[inline]
    pub fn admits(&self, payload: &[u8], schema_version: u16) -> bool {
        schema_version != self.version || self.terms.iter().all(|term| term.admits(payload))
    }

    /// False if no row of a block of the table can meet the conditions. `bytes` are those that `zones` was decoded from.
    pub fn admits_block(&self, versions: &Versions, zones: &Zones, bytes: &[u8], block: usize) -> bool {
        if versions.current().version() != self.version {
            return true;
        }
        let version = zones.schema_version();
        let is_current = version == self.version;
        let admits = |term: &Term| {
            // Rule AL9.
            let number = if is_current {
                Some(term.column)
            } else {
                versions.unchanged_column(version, term.column)
            };
            let Some(zone) = number.and_then(|number| zones.zone(bytes, block, number)) else {
                return true;
            };
            if term.wants_null {
                return zone.has_null;
            }
            zone.values
                .is_some_and(|(least, greatest)| term.least <= greatest && least <= term.greatest)
        };
        self.terms.iter().all(admits)
    }
}

impl Term {
    fn new(column: usize, order: ColumnOrder, condition: Condition<'_>) -> Option<Self> {
        let all = Self {
            column,
            order,
            wants_null: false,
            least: 0,
            greatest: u64::MAX,
        };
        let (low, high) = match condition {
            Condition::IsNull => {
                return Some(Self {
                    wants_null: true,
                    ..all
                });
            }
            Condition::IsNotNull => return Some(all),
            Condition::Between(low, high) => (low, high),
        };
        let step = u64::from(order.exact());
        let least = match low {
            Bound::Unbounded => Some(0),
            Bound::Included(value) => Some(order.number(value)?),
            Bound::Excluded(value) => order.number(value)?.checked_add(step),
        };
        let greatest = match high {
            Bound::Unbounded => Some(u64::MAX),
            Bound::Included(value) => Some(order.number(value)?),
            Bound::Excluded(value) => order.number(value)?.checked_sub(step),
        };
        // Nothing lies beyond the greatest number, nor before the least.
        let (least, greatest) = least.zip(greatest).unwrap_or((1, 0));
        Some(Self {
            least,
            greatest,
            ..all
        })
    }

    #[inline]
    fn admits(&self, payload: &[u8]) -> bool {
        match self.order.cell(payload) {
            Cell::Null => self.wants_null,
            Cell::Number(number) => !self.wants_null && self.least <= number && number <= self.greatest,
            Cell::Unknown => !self.wants_null,
        }
    }
}
