//! RowView and RowBuilder: rows by column number, for programs that have no record buffer.
//!
//! Why it exists:    the embedded interface and the tools give and take values one by one.
//! Format / state:   docs/format-rows.md#row-payload.
//! Rules:            F20 total reads; F27: the same values give the same bytes here and in `RowCodec`.
//! Latches and I/O:  none.

use crate::blob::BlobRef;
use crate::error::{Error, Result};
use crate::host_field::strip_padding;
use crate::payload::{EXTERNAL, Payload, VarWriter, corrupt, write_payload};
use crate::schema::{Column, ColumnKind, Place, Schema};
use std::ops::Range;

/// A value as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// The bytes; of a padded column without the padding.
    Bytes(&'a [u8]),
    /// The bytes are kept outside the row.
    External(BlobRef),
}

/// True if a payload names values kept outside the row, by its flags alone.
#[inline]
pub fn names_external(payload: &[u8]) -> bool {
    payload.first().is_some_and(|flags| flags & EXTERNAL != 0)
}

/// Reads the columns of one payload.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    schema: &'a Schema,
    payload: Payload<'a>,
}

impl<'a> RowView<'a> {
    /// Looks at a payload written with `schema`.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be one.
    pub fn new(schema: &'a Schema, payload: &'a [u8]) -> Result<Self> {
        Ok(Self {
            schema,
            payload: Payload::parse(schema.shape(), payload)?,
        })
    }

    /// The value of a column; a virtual column is always `Null`.
    ///
    /// # Errors
    /// `Corrupt`, or `BadLayout` if the schema has no such column.
    pub fn get(&self, column: usize) -> Result<Value<'a>> {
        let Some(placed) = self.schema.placed(column) else {
            return Err(Error::BadLayout {
                column,
                why: "the table has no column of this number",
            });
        };
        if placed
            .null_ordinal
            .is_some_and(|ordinal| self.payload.is_null(ordinal as usize))
        {
            return Ok(Value::Null);
        }
        match placed.place {
            Place::Nowhere => Ok(Value::Null),
            Place::Fixed { offset, len } => {
                Ok(Value::Bytes(self.payload.fixed(offset as usize, len as usize)))
            }
            Place::Var { ordinal } if self.payload.is_external(ordinal as usize) => {
                Ok(Value::External(self.payload.blob(ordinal as usize)?))
            }
            Place::Var { ordinal } => Ok(Value::Bytes(self.payload.var(ordinal as usize)?)),
        }
    }

    /// Columns of the row, virtual ones included.
    pub fn column_count(&self) -> usize {
        self.schema.columns().len()
    }

    /// Checks what reading single columns does not: that no other bytes could stand for this row (F27).
    ///
    /// # Errors
    /// `Corrupt` says what is wrong.
    pub fn check(&self) -> Result<()> {
        self.payload.check()?;
        for (column, description) in self.schema.columns().iter().enumerate() {
            let Some(placed) = self.schema.placed(column) else {
                continue;
            };
            let null = placed
                .null_ordinal
                .is_some_and(|ordinal| self.payload.is_null(ordinal as usize));
            match placed.place {
                Place::Fixed { offset, len } if null => {
                    let bytes = self.payload.fixed(offset as usize, len as usize);
                    if let Some(&found) = bytes.iter().find(|&&byte| byte != 0) {
                        return Err(corrupt(
                            offset as usize,
                            "zeros in a column that is NULL",
                            found as u64,
                        ));
                    }
                }
                Place::Var { ordinal } => self.check_value(ordinal as usize, null, description.kind)?,
                Place::Fixed { .. } | Place::Nowhere => {}
            }
        }
        Ok(())
    }

    fn check_value(&self, ordinal: usize, null: bool, kind: ColumnKind) -> Result<()> {
        let value = self.payload.var(ordinal)?;
        let external = self.payload.is_external(ordinal);
        match kind {
            _ if null && (external || !value.is_empty()) => Err(corrupt(
                0,
                "no value for a column that is NULL",
                value.len() as u64,
            )),
            ColumnKind::Padded { len, .. } if !external && value.len() > len as usize => {
                Err(corrupt(0, "at most the padded length", value.len() as u64))
            }
            ColumnKind::Padded { pad, .. } if !external && value.last() == Some(&pad) => {
                Err(corrupt(0, "a value without its padding", pad as u64))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
enum Slot {
    Unset,
    Null,
    Bytes(Range<usize>),
    External(BlobRef),
}

/// Collects the values of one row and writes its payload. Can be used for row after row.
#[derive(Clone, Debug)]
pub struct RowBuilder<'s> {
    schema: &'s Schema,
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

impl<'s> RowBuilder<'s> {
    /// A builder for rows of `schema`.
    pub fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            slots: vec![Slot::Unset; schema.columns().len()],
            bytes: Vec::new(),
        }
    }

    /// Sets a column to a value, or to NULL with `None`. Trailing padding of a padded column may be given or not.
    ///
    /// # Errors
    /// `BadValue` if it does not fit the column, is NULL where it may not be, or the column is not stored.
    pub fn set(&mut self, column: usize, value: Option<&[u8]>) -> Result<()> {
        let description = self.column(column)?;
        let found = value.map_or(0, <[u8]>::len);
        let bad = |expected| {
            Err(Error::BadValue {
                column,
                found,
                expected,
            })
        };
        let Some(value) = value else {
            if !description.nullable {
                return bad("a value: the column cannot be NULL");
            }
            self.put(column, Slot::Null);
            return Ok(());
        };
        let value = match description.kind {
            ColumnKind::Fixed(len) if found != len as usize => return bad("exactly the fixed length"),
            ColumnKind::Padded { len, .. } if found > len as usize => {
                return bad("at most the padded length");
            }
            ColumnKind::Virtual => return bad("no value: the column is not stored"),
            ColumnKind::Padded { pad, .. } => strip_padding(value, pad),
            ColumnKind::Fixed(_) | ColumnKind::Var => value,
        };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.put(column, Slot::Bytes(start..self.bytes.len()));
        Ok(())
    }

    /// Sets a column of variable length to a value that is stored outside the row.
    ///
    /// # Errors
    /// `BadValue` if the column is of another kind.
    pub fn set_external(&mut self, column: usize, blob: BlobRef) -> Result<()> {
        match self.column(column)?.kind {
            ColumnKind::Var | ColumnKind::Padded { .. } => {
                self.put(column, Slot::External(blob));
                Ok(())
            }
            ColumnKind::Fixed(_) | ColumnKind::Virtual => {
                let expected = "a value inside the row: the column is not of variable length";
                Err(Error::BadValue {
                    column,
                    found: blob.len as usize,
                    expected,
                })
            }
        }
    }

    /// Appends the payload to `out` and starts the next row. Columns never set are NULL.
    ///
    /// # Errors
    /// `BadValue` for an unset column that cannot be NULL; `TooLarge` beyond 4 GiB. `out` is then as before.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let missing = |(slot, column): (&Slot, &Column)| {
            matches!(slot, Slot::Unset) && !column.nullable && column.kind != ColumnKind::Virtual
        };
        if let Some(column) = self.slots.iter().zip(self.schema.columns()).position(missing) {
            return Err(Error::BadValue {
                column,
                found: 0,
                expected: "a value: the column cannot be NULL",
            });
        }
        let external = self.slots.iter().any(|slot| matches!(slot, Slot::External(_)));
        let fixed = |payload: &mut [u8]| self.write_fixed(payload);
        let written = write_payload(self.schema.shape(), external, out, fixed, |writer| {
            Ok(self.write_values(writer))
        });
        self.slots.fill(Slot::Unset);
        self.bytes.clear();
        written
    }

    fn column(&self, column: usize) -> Result<Column> {
        let why = "the table has no column of this number";
        self.schema.column(column).ok_or(Error::BadLayout { column, why })
    }

    fn put(&mut self, column: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(column) {
            *place = slot;
        }
    }

    fn bytes_of(&self, slot: &Slot) -> &[u8] {
        match slot {
            Slot::Bytes(range) => self.bytes.get(range.clone()).unwrap_or_default(),
            Slot::Unset | Slot::Null | Slot::External(_) => &[],
        }
    }

    fn write_fixed(&self, payload: &mut [u8]) {
        for (column, slot) in self.slots.iter().enumerate() {
            let Some(placed) = self.schema.placed(column) else {
                continue;
            };
            match (slot, placed.null_ordinal, placed.place) {
                (Slot::Unset | Slot::Null, Some(ordinal), _) => {
                    payload[1 + ordinal as usize / 8] |= 1 << (ordinal % 8);
                }
                (Slot::Bytes(_), _, Place::Fixed { offset, len }) => {
                    let at = offset as usize;
                    payload[at..at + len as usize].copy_from_slice(self.bytes_of(slot));
                }
                _ => {}
            }
        }
    }

    fn write_values(&self, writer: &mut VarWriter<'_>) -> bool {
        let mut fits = true;
        for (column, slot) in self.slots.iter().enumerate() {
            if let Some(Place::Var { ordinal }) = self.schema.placed(column).map(|placed| placed.place) {
                fits &= match slot {
                    Slot::External(blob) => writer.push_external(ordinal as usize, *blob),
                    other => writer.push(ordinal as usize, self.bytes_of(other)),
                };
            }
        }
        fits
    }
}
