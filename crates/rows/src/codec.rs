//! RowCodec: record buffer to payload and back, by programs compiled once per table and once per statement.
//!
//! Why it exists:    every row written or read passes here; see program.rs for how the moves are compiled.
//! Format / state:   docs/format-rows.md#row-payload.
//! Rules:            F20 total decoding, F24 exact lengths of external values, F27 one encoding per row, F28 a decode changes
//!                   nothing in the record but the fields and null bits of the projected columns.
//! Latches and I/O:  none; the `BlobSink` may read blob files.

use crate::blob::{BlobRef, BlobSink, External, LargeValue, Limits};
use crate::columns::ColumnSet;
use crate::error::{Error, Result};
use crate::host::{HostKind, HostLayout};
use crate::host_field::{HostField, HostRecord};
use crate::payload::{Payload, VarWriter, corrupt, write_payload};
use crate::program::{Program, VarMove};
use crate::row_view::RowView;
use crate::schema::{Schema, Shape};

/// Moves rows between records of one layout and payloads of one schema.
#[derive(Clone, Debug)]
pub struct RowCodec {
    schema: Schema,
    layout: HostLayout,
    all: Projection,
    /// Upper bound of a payload, saturating.
    payload_max: usize,
    /// Longest value any column can hold.
    value_max: usize,
}

/// The columns a statement reads, compiled.
#[derive(Clone, Debug)]
pub struct Projection {
    columns: ColumnSet,
    program: Program,
    shape: Shape,
    record_length: usize,
}

impl Projection {
    /// The projected columns.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }
}

impl RowCodec {
    /// Compiles a codec.
    ///
    /// # Errors
    /// `BadLayout` names the first column that the layout and the stored schema do not agree on.
    pub fn new(schema: Schema, layout: HostLayout) -> Result<Self> {
        let (stored, host) = (schema.columns().len(), layout.columns().len());
        if stored != host {
            return Err(Error::BadLayout {
                column: stored.min(host),
                why: "schema and layout have different columns",
            });
        }
        for (column, (stored, host)) in schema.columns().iter().zip(layout.columns()).enumerate() {
            if stored.kind != host.stored_kind() {
                return Err(Error::BadLayout {
                    column,
                    why: "it is stored with another kind or length",
                });
            }
            if stored.nullable != (host.null_bit != 0) {
                return Err(Error::BadLayout {
                    column,
                    why: "schema and layout differ in whether it may be NULL",
                });
            }
        }
        let all = compile(&schema, &layout, ColumnSet::all(stored))?;
        let values = || all.program.vars.iter().map(|var| var.field.kind.value_max());
        let value_max = values().max().unwrap_or(0);
        let payload_max = values().fold(fixed_bytes(schema.shape()), usize::saturating_add);
        Ok(Self {
            schema,
            layout,
            all,
            payload_max,
            value_max,
        })
    }

    /// The stored schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The host's layout.
    pub fn layout(&self) -> &HostLayout {
        &self.layout
    }

    /// The projection of all columns.
    pub fn all_columns(&self) -> &Projection {
        &self.all
    }

    /// Compiles the projection of the given columns; virtual ones and unknown numbers are left out when rows are decoded.
    pub fn projection(&self, columns: ColumnSet) -> Projection {
        compile(&self.schema, &self.layout, columns)
            .expect("rule F26: RowCodec::new compared schema and layout")
    }

    /// Says which values of a record should leave the row: all of at least `limits.blob_min` bytes, then the largest ones
    /// until the payload has at most `limits.inline_max` bytes or no value is left that is longer than a reference.
    /// The answer is in column order, and empty (without allocation) for most rows.
    ///
    /// # Errors
    /// `TooShort`, `BadValue` if the record is not of this layout.
    pub fn plan<'a>(&self, record: HostRecord<'a>, limits: Limits) -> Result<Vec<LargeValue<'a>>> {
        if self.value_max < limits.blob_min && self.payload_max <= limits.inline_max {
            return Ok(Vec::new());
        }
        let record = record.checked(self.layout.record_length())?;
        let mut bytes = fixed_bytes(self.schema.shape());
        let mut longest = 0;
        for var in &self.all.program.vars {
            let len = value_of(var, record)?.len();
            longest = longest.max(len);
            bytes += len;
        }
        if longest < limits.blob_min && bytes <= limits.inline_max {
            return Ok(Vec::new());
        }
        self.choose(record, limits, bytes)
    }

    fn choose<'a>(
        &self,
        record: HostRecord<'a>,
        limits: Limits,
        bytes: usize,
    ) -> Result<Vec<LargeValue<'a>>> {
        let mut values = Vec::new();
        for var in &self.all.program.vars {
            let value = value_of(var, record)?;
            if value.len() > BlobRef::BYTES {
                values.push(LargeValue {
                    column: var.field.column,
                    value,
                });
            }
        }
        values.sort_by_key(|large| std::cmp::Reverse(large.value.len()));
        let mut bytes = bytes + self.schema.shape().external_bytes();
        let leaves = |large: &LargeValue<'_>| {
            let leaves = large.value.len() >= limits.blob_min || bytes > limits.inline_max;
            if leaves {
                bytes -= large.value.len() - BlobRef::BYTES;
            }
            leaves
        };
        let count = values.iter().map(leaves).take_while(|&leaves| leaves).count();
        values.truncate(count);
        values.sort_by_key(|large| large.column);
        Ok(values)
    }

    /// Appends the payload of a record to `out`. `externals`, in column order, stand in for the values that left the row.
    ///
    /// # Errors
    /// `TooShort`, `BadValue` if the record is not of this layout; `TooLarge` beyond 4 GiB. `out` is then as before.
    pub fn encode(&self, record: HostRecord<'_>, externals: &[External], out: &mut Vec<u8>) -> Result<()> {
        let record = record.checked(self.layout.record_length())?;
        let program = &self.all.program;
        write_payload(
            self.schema.shape(),
            !externals.is_empty(),
            out,
            |payload| encode_fixed(program, record.bytes(), payload),
            |writer| encode_values(program, record, externals, writer),
        )
    }

    /// Fills the projected columns of `record`, and their null bits, from a payload.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no payload of this schema or do not fit the layout, `TooShort`, and what `sink` gives; `record` may then be filled in part.
    pub fn decode(
        &self,
        payload: &[u8],
        projection: &Projection,
        record: &mut [u8],
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        if projection.shape != self.schema.shape() || projection.record_length != self.layout.record_length()
        {
            return Err(Error::BadLayout {
                column: 0,
                why: "the projection was compiled for another table",
            });
        }
        projection.decode(payload, record, sink)
    }

    /// Checks all of a payload, beyond what reading its columns would (F20, F27).
    ///
    /// # Errors
    /// `Corrupt` says what is wrong.
    pub fn check(&self, payload: &[u8]) -> Result<()> {
        RowView::new(&self.schema, payload)?.check()
    }
}

impl Projection {
    fn decode(&self, payload: &[u8], record: &mut [u8], sink: &mut dyn BlobSink) -> Result<()> {
        let payload = Payload::parse(self.shape, payload)?;
        let (found, expected) = (record.len(), self.record_length);
        let Some(record) = record.get_mut(..expected) else {
            return Err(Error::TooShort {
                what: "the record",
                found,
                expected,
            });
        };
        let bytes = payload.bytes();
        for null in &self.program.nulls {
            let bits = bytes[null.payload].rotate_right(null.rotation) & null.mask;
            record[null.record] = record[null.record] & !null.mask | bits;
        }
        for span in &self.program.spans {
            copy(
                &mut record[span.record..span.record + span.len],
                &bytes[span.payload..span.payload + span.len],
            );
        }
        for var in &self.program.vars {
            decode_value(var, &payload, record, sink)?;
        }
        Ok(())
    }
}

fn compile(schema: &Schema, layout: &HostLayout, columns: ColumnSet) -> Result<Projection> {
    let program = Program::new(schema, layout, &columns)?;
    Ok(Projection {
        columns,
        program,
        shape: schema.shape(),
        record_length: layout.record_length(),
    })
}

/// Bytes of a narrow payload without values and without external ones.
fn fixed_bytes(shape: Shape) -> usize {
    shape.fixed_end + shape.var_count * 2
}

/// Copies a few bytes; short moves of the usual column widths become plain loads and stores.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    match (to.len(), from.len()) {
        (4, 4) => to[..4].copy_from_slice(&from[..4]),
        (8, 8) => to[..8].copy_from_slice(&from[..8]),
        (1, 1) => to[..1].copy_from_slice(&from[..1]),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
fn value_of<'a>(var: &VarMove, record: HostRecord<'a>) -> Result<&'a [u8]> {
    if var.field.is_null(record.bytes()) {
        Ok(&[])
    } else {
        var.field.value(record)
    }
}

#[inline]
fn encode_fixed(program: &Program, record: &[u8], payload: &mut [u8]) {
    for span in &program.spans {
        copy(
            &mut payload[span.payload..span.payload + span.len],
            &record[span.record..span.record + span.len],
        );
    }
    let mut any = 0;
    for null in &program.nulls {
        let bits = (record[null.record] & null.mask).rotate_left(null.rotation);
        payload[null.payload] |= bits;
        any |= bits;
    }
    if any != 0 {
        for fixed in program
            .fixed_nulls
            .iter()
            .filter(|fixed| fixed.field.is_null(record))
        {
            payload[fixed.payload..fixed.payload + fixed.len].fill(0);
        }
    }
}

#[inline]
fn encode_values(
    program: &Program,
    record: HostRecord<'_>,
    externals: &[External],
    writer: &mut VarWriter<'_>,
) -> Result<bool> {
    let mut externals = externals.iter().peekable();
    let mut fits = true;
    for var in &program.vars {
        let external = externals.next_if(|external| external.column == var.field.column);
        fits &= match external {
            Some(external) => writer.push_external(var.ordinal, external.blob),
            None => writer.push(var.ordinal, value_of(var, record)?),
        };
    }
    match externals.next() {
        None => Ok(fits),
        Some(left) => {
            let expected = "no external value: the column is not of variable length or out of order";
            Err(Error::BadValue {
                column: left.column,
                found: left.blob.len as usize,
                expected,
            })
        }
    }
}

#[inline]
fn decode_value(
    var: &VarMove,
    payload: &Payload<'_>,
    record: &mut [u8],
    sink: &mut dyn BlobSink,
) -> Result<()> {
    let field = &var.field;
    if field.is_null(record) {
        field.write_null(record);
        return Ok(());
    }
    if payload.is_external(var.ordinal) {
        let blob = payload.blob(var.ordinal)?;
        let value = sink.load(field.column, &blob)?;
        if value.len() as u64 != blob.len {
            return Err(corrupt(
                0,
                "an external value of the length its reference says",
                value.len() as u64,
            ));
        }
        return write_checked(field, record, value, value.as_ptr());
    }
    let value = payload.var(var.ordinal)?;
    let address = match field.kind {
        HostKind::Blob(_) => sink.keep(field.column, value),
        _ => value.as_ptr(),
    };
    write_checked(field, record, value, address)
}

/// Writes a value that came from stored bytes: one too long for its field is damage, not a caller's mistake.
#[inline]
fn write_checked(field: &HostField, record: &mut [u8], value: &[u8], address: *const u8) -> Result<()> {
    let too_long = |_| corrupt(0, "values that fit the fields of the host", value.len() as u64);
    field.write(record, value, address).map_err(too_long)
}
