//! Program: a compiled list of moves between a record buffer and a payload.
//!
//! Why it exists:    a row has tens of columns, most of them a few bytes; going through descriptions column by column would cost
//!                   more than the moves. Neighbours on both sides become one move, null bits of one byte one rotation.
//! Rules:            F20: all places were checked by `HostLayout::new` and laid out by `Schema::new`; a program is used with
//!                   records and payloads of its own record length and shape only (checked per row).
//! Latches and I/O:  none.

use crate::columns::ColumnSet;
use crate::error::{Error, Result};
use crate::host::HostLayout;
use crate::host_field::HostField;
use crate::schema::{Place, Schema};

/// Fixed columns that are neighbours in record and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) record: usize,
    pub(crate) payload: usize,
    pub(crate) len: usize,
}

/// Null bits of one record byte whose place in one payload byte is the same rotation away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NullMove {
    pub(crate) record: usize,
    pub(crate) payload: usize,
    /// Bits of the record's byte.
    pub(crate) mask: u8,
    /// Rotation to the left from record to payload.
    pub(crate) rotation: u32,
}

/// A nullable fixed column: zero in the payload while it is NULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedNull {
    pub(crate) field: HostField,
    pub(crate) payload: usize,
    pub(crate) len: usize,
}

/// A column of variable length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarMove {
    pub(crate) field: HostField,
    pub(crate) ordinal: usize,
}

/// The moves for a set of columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) spans: Vec<Span>,
    pub(crate) nulls: Vec<NullMove>,
    pub(crate) fixed_nulls: Vec<FixedNull>,
    pub(crate) vars: Vec<VarMove>,
}

impl Program {
    /// Compiles the moves of the stored columns among `columns`.
    pub(crate) fn new(schema: &Schema, layout: &HostLayout, columns: &ColumnSet) -> Result<Self> {
        let mut program = Self::default();
        for column in columns
            .iter()
            .take_while(|&column| column < schema.columns().len())
        {
            let (Some(placed), Some(field)) = (schema.placed(column), layout.field(column)) else {
                return Err(Error::BadLayout {
                    column,
                    why: "schema and layout have different columns",
                });
            };
            match placed.place {
                Place::Nowhere => continue,
                Place::Var { ordinal } => program.vars.push(VarMove {
                    field,
                    ordinal: ordinal as usize,
                }),
                Place::Fixed { offset, len } => {
                    let (payload, len) = (offset as usize, len as usize);
                    program.add_span(Span {
                        record: field.offset,
                        payload,
                        len,
                    });
                    if placed.null_ordinal.is_some() {
                        program.fixed_nulls.push(FixedNull { field, payload, len });
                    }
                }
            }
            if let Some(ordinal) = placed.null_ordinal {
                program.add_null(&field, ordinal as usize);
            }
        }
        Ok(program)
    }

    fn add_span(&mut self, span: Span) {
        match self.spans.last_mut() {
            _ if span.len == 0 => {}
            Some(last)
                if last.record + last.len == span.record && last.payload + last.len == span.payload =>
            {
                last.len += span.len;
            }
            _ => self.spans.push(span),
        }
    }

    fn add_null(&mut self, field: &HostField, ordinal: usize) {
        let payload = 1 + ordinal / 8;
        let rotation = ((ordinal % 8) as u32 + 8 - field.null_bit.trailing_zeros()) % 8;
        let same = |other: &&mut NullMove| {
            other.record == field.null_offset && other.payload == payload && other.rotation == rotation
        };
        if let Some(other) = self.nulls.iter_mut().find(same) {
            other.mask |= field.null_bit;
        } else {
            let (record, mask) = (field.null_offset, field.null_bit);
            self.nulls.push(NullMove {
                record,
                payload,
                mask,
                rotation,
            });
        }
    }
}
