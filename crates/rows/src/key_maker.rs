//! KeyMaker: key images of one index from a host's records and search tuples, and covering reads from index entries.
//!
//! Why it exists:    the foreground has records, search tuples and the host's collations; everything else uses the images made
//!                   here (design rules 18, 23). For rows without a host see `PayloadKeyMaker`.
//! Format / state:   docs/format-rows.md#key-images, #unpack-information, #search-tuples.
//! Rules:            X20 - X25; F28: restoring changes only the fields and null bits of the restored columns.
//! Latches and I/O:  none; calls the `Weigher`.

use crate::blob::BlobSink;
use crate::codec::Projection;
use crate::columns::ColumnSet;
use crate::error::{Error, Result};
use crate::host::{HostKind, HostLayout};
use crate::host_field::{HostField, HostRecord, strip_padding};
use crate::image::PartCode;
use crate::image_read::Taken;
use crate::key_spec::{KeyEncoding, KeySpec};
use crate::restore::{has_unpack, put_unpack, take_unpack};
use crate::weights::Weigher;

#[derive(Clone, Debug)]
struct Part {
    code: PartCode,
    field: HostField,
    /// A search tuple has two length bytes before the value.
    tuple_var: bool,
    restorable: bool,
    /// It is a whole number, in the key as in the record.
    is_number: bool,
}

/// Makes the keys of one index from records of one layout.
#[derive(Clone, Debug)]
pub struct KeyMaker {
    parts: Vec<Part>,
    unpack: bool,
    record_length: usize,
    restorable: ColumnSet,
}

impl KeyMaker {
    /// Compiles the key maker of an index. `contexts` has one entry per part; those of `Host` parts are given to the weigher.
    ///
    /// # Errors
    /// `BadKey` names the first part that does not fit its column, or has no context.
    pub fn new(spec: &KeySpec, layout: &HostLayout, contexts: &[usize]) -> Result<Self> {
        let mut parts = Vec::with_capacity(spec.parts().len());
        for (number, part) in spec.parts().iter().enumerate() {
            let bad = |why| Error::BadKey { part: number, why };
            let field = layout
                .field(part.column as usize)
                .ok_or_else(|| bad("the table has no such column"))?;
            let kind = field.kind.column_kind();
            part.check_kind(kind).map_err(bad)?;
            if part.nullable != (field.null_bit != 0) {
                return Err(bad("part and column differ in whether they may be NULL"));
            }
            let context = contexts
                .get(number)
                .copied()
                .ok_or_else(|| bad("no context was given for its weights"))?;
            let code = PartCode::new(number, part, kind, context);
            let tuple_var = !matches!(field.kind, HostKind::Fixed(_) | HostKind::Padded { .. });
            parts.push(Part {
                code,
                field,
                tuple_var,
                restorable: code.restorable(spec.unpack()),
                is_number: matches!(part.encoding, KeyEncoding::Uint | KeyEncoding::Int)
                    && matches!(field.kind, HostKind::Fixed(width) if usize::from(width) == code.length),
            });
        }
        let restorable = parts
            .iter()
            .filter(|part| part.restorable)
            .map(|part| part.code.column)
            .collect();
        Ok(Self {
            parts,
            unpack: spec.unpack(),
            record_length: layout.record_length(),
            restorable,
        })
    }

    /// Compiles what makes prefixes of the keys of one table's index from records of another: the columns of `from`, in their
    /// order, stand for the first parts of the index `spec` of a table with the layout `of`. Contexts are those of the index.
    ///
    /// # Errors
    /// `BadKey` names the first part that has no column or no context.
    pub fn across(
        spec: &KeySpec,
        of: &HostLayout,
        from: &HostLayout,
        columns: &[usize],
        contexts: &[usize],
    ) -> Result<Self> {
        let mut parts = Vec::with_capacity(columns.len());
        for (number, &column) in columns.iter().enumerate() {
            let bad = |why| Error::BadKey { part: number, why };
            let part = spec
                .parts()
                .get(number)
                .ok_or_else(|| bad("the index has fewer parts"))?;
            let own = of.field(part.column as usize);
            let own = own.ok_or_else(|| bad("the table has no such column"))?;
            let field = from.field(column);
            let field = field.ok_or_else(|| bad("the other table has no such column"))?;
            let context = contexts.get(number).copied();
            let context = context.ok_or_else(|| bad("no context was given for its weights"))?;
            let mut code = PartCode::new(number, part, own.kind.column_kind(), context);
            code.column = column;
            parts.push(Part {
                code,
                field,
                tuple_var: false,
                restorable: false,
                is_number: false,
            });
        }
        Ok(Self {
            parts,
            unpack: false,
            record_length: from.record_length(),
            restorable: ColumnSet::default(),
        })
    }

    /// Number of parts.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// True if `record_from_key` can give back every column of the index whole.
    pub fn restores_all(&self) -> bool {
        self.parts.iter().all(|part| part.restorable)
    }

    /// Columns that `record_from_key` can give back.
    pub fn restorable_columns(&self) -> &ColumnSet {
        &self.restorable
    }

    /// Number of leading parts that `record_from_key` has to look at for these columns.
    pub fn parts_for(&self, columns: &ColumnSet) -> usize {
        let is_wanted = |part: &Part| part.restorable && columns.contains(part.code.column);
        self.parts.iter().rposition(is_wanted).map_or(0, |last| last + 1)
    }

    /// Bytes of a search tuple of the first `parts_used` parts.
    pub fn tuple_length(&self, parts_used: usize) -> usize {
        self.parts.iter().take(parts_used).map(Part::tuple_length).sum()
    }

    /// Appends the key of a record.
    ///
    /// # Errors
    /// `TooShort`, `BadValue`, `BadWeights`; `out` is then as before.
    pub fn key_from_record(
        &self,
        record: HostRecord<'_>,
        weigher: &dyn Weigher,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let record = record.checked(self.record_length)?;
        let start = out.len();
        for part in &self.parts {
            let put = part
                .value(record)
                .and_then(|value| part.code.put(value, weigher, out));
            if put.is_err() {
                out.truncate(start);
                return put;
            }
        }
        Ok(())
    }

    /// Appends the unpack information of a record; nothing if the index keeps none.
    ///
    /// # Errors
    /// `TooShort`, `BadValue`; `out` may then hold a part of it.
    pub fn unpack_from_record(&self, record: HostRecord<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !self.unpack {
            return Ok(());
        }
        let record = record.checked(self.record_length)?;
        for part in self.parts.iter().filter(|part| has_unpack(&part.code)) {
            if let Some(value) = part.value(record)? {
                put_unpack(&part.code, value, out);
            }
        }
        Ok(())
    }

    /// Appends the key of the first `parts_used` parts of a search tuple: a prefix of every key that matches it.
    ///
    /// # Errors
    /// `TooShort` for a tuple shorter than its parts, `BadKey` for more parts than the index has, `BadValue`, `BadWeights`;
    /// `out` is then as before.
    pub fn key_from_search_tuple(
        &self,
        tuple: &[u8],
        parts_used: usize,
        weigher: &dyn Weigher,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(parts) = self.parts.get(..parts_used) else {
            return Err(Error::BadKey {
                part: parts_used,
                why: "the index has fewer parts",
            });
        };
        let start = out.len();
        let mut rest = tuple;
        for part in parts {
            let Some((bytes, behind)) = rest.split_at_checked(part.tuple_length()) else {
                out.truncate(start);
                let (found, expected) = (tuple.len(), self.tuple_length(parts_used));
                return Err(Error::TooShort {
                    what: "the search tuple",
                    found,
                    expected,
                });
            };
            rest = behind;
            let put = part
                .tuple_value(bytes)
                .and_then(|value| part.code.put(value, weigher, out));
            if put.is_err() {
                out.truncate(start);
                return put;
            }
        }
        Ok(())
    }

    /// True if any part is NULL: such a row is no duplicate of any other.
    ///
    /// # Errors
    /// `TooShort`.
    pub fn has_null(&self, record: HostRecord<'_>) -> Result<bool> {
        let record = record.checked(self.record_length)?;
        Ok(self.parts.iter().any(|part| part.field.is_null(record.bytes())))
    }

    /// True if key or unpack information of the two records differ. Compares values first and asks for weights only where
    /// these differ and nothing else has decided; `scratch` is overwritten.
    ///
    /// # Errors
    /// `TooShort`, `BadValue`, `BadWeights`.
    pub fn changed(
        &self,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
        weigher: &dyn Weigher,
        scratch: &mut Vec<u8>,
    ) -> Result<bool> {
        let (old, new) = (old.checked(self.record_length)?, new.checked(self.record_length)?);
        let mut undecided = 0_u64; // one bit per part; an index has at most 64
        for part in &self.parts {
            match (part.value(old)?, part.value(new)?) {
                (None, None) => {}
                (Some(old), Some(new)) if part.code.relevant(old) == part.code.relevant(new) => {}
                (Some(_), Some(_)) if self.value_is_lost(part) => undecided |= 1 << part.code.number,
                _ => return Ok(true),
            }
        }
        for part in self
            .parts
            .iter()
            .filter(|part| undecided >> part.code.number & 1 == 1)
        {
            scratch.clear();
            part.code.put(part.value(old)?, weigher, scratch)?;
            let middle = scratch.len();
            part.code.put(part.value(new)?, weigher, scratch)?;
            let (old, new) = scratch.split_at(middle);
            if old != new {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if two different values of a part may have the same key and the same unpack information.
    fn value_is_lost(&self, part: &Part) -> bool {
        let lossy = matches!(
            part.code.encoding,
            KeyEncoding::Host { .. } | KeyEncoding::F32 | KeyEncoding::F64
        );
        lossy && !(self.unpack && has_unpack(&part.code))
    }

    /// Length of the image of the first `parts_used` parts of a key; `scratch` is overwritten.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn prefix_length(&self, key: &[u8], parts_used: usize, scratch: &mut Vec<u8>) -> Result<usize> {
        let mut at = 0;
        for part in self.parts.iter().take(parts_used) {
            part.code.take(key, &mut at, scratch)?;
        }
        Ok(at)
    }

    /// Fills the restorable columns among the projected ones, and their null bits, from an index entry, its key and its unpack
    /// information; other columns are not touched. Looks at the first `parts_used` parts only. `scratch` is overwritten.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no entry of this index, as far as they are looked at, `TooShort` for the record.
    pub fn record_from_key(
        &self,
        (key, mut unpack): (&[u8], &[u8]),
        parts_used: usize,
        projection: &Projection,
        record: &mut [u8],
        sink: &mut dyn BlobSink,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let (found, expected) = (record.len(), self.record_length);
        let Some(record) = record.get_mut(..expected) else {
            return Err(Error::TooShort {
                what: "the record",
                found,
                expected,
            });
        };
        let mut at = 0;
        for part in self.parts.iter().take(parts_used) {
            let is_wanted = part.restorable && projection.columns().contains(part.code.column);
            if part.is_number {
                let number = part.code.take_number(key, &mut at)?;
                if is_wanted {
                    part.restore_number(number, record);
                }
                continue;
            }
            let taken = part.code.take(key, &mut at, scratch)?;
            if taken != Taken::Null && self.unpack {
                take_unpack(&part.code, &mut unpack, scratch)?;
            }
            if is_wanted {
                let value = (taken != Taken::Null).then_some(scratch.as_slice());
                part.restore(value, record, sink)?;
            }
        }
        let left = (key.len() - at + unpack.len()) as u64;
        if left == 0 || parts_used < self.parts.len() {
            Ok(())
        } else {
            Err(Error::Corrupt {
                image: "index entry",
                offset: at,
                expected: "its end",
                found: left,
            })
        }
    }
}

impl Part {
    /// The value of the column, None if it is NULL.
    #[inline]
    fn value<'a>(&self, record: HostRecord<'a>) -> Result<Option<&'a [u8]>> {
        if self.field.is_null(record.bytes()) {
            Ok(None)
        } else {
            self.field.value(record).map(Some)
        }
    }

    fn tuple_length(&self) -> usize {
        usize::from(self.code.nullable) + if self.tuple_var { 2 } else { 0 } + self.code.length
    }

    /// The value in the part's share of a search tuple, which has exactly `tuple_length` bytes.
    fn tuple_value<'a>(&self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let bytes = match (self.code.nullable, bytes.split_first()) {
            (true, Some((&marker, _))) if marker != 0 => return Ok(None),
            (true, Some((_, value))) => value,
            _ => bytes,
        };
        if !self.tuple_var {
            return Ok(Some(match self.field.kind {
                HostKind::Padded { pad, .. } => strip_padding(bytes, pad),
                _ => bytes,
            }));
        }
        let expected = "at most the length of the index part";
        let (len, area) = bytes.split_at(2);
        let len = len.iter().rev().fold(0, |len, &byte| len << 8 | byte as usize);
        let value = area.get(..len).ok_or(Error::BadValue {
            column: self.code.column,
            found: len,
            expected,
        })?;
        Ok(Some(value))
    }

    /// Writes a number that came out of an index entry.
    #[inline]
    fn restore_number(&self, number: Option<u64>, record: &mut [u8]) {
        self.field.set_null(record, number.is_none());
        match number {
            Some(number) => self.field.write_number(record, number),
            None => self.field.write_null(record),
        }
    }

    /// Writes a value that came out of an index entry.
    fn restore(&self, value: Option<&[u8]>, record: &mut [u8], sink: &mut dyn BlobSink) -> Result<()> {
        let field = &self.field;
        field.set_null(record, value.is_none());
        let Some(value) = value else {
            field.write_null(record);
            return Ok(());
        };
        let address = match field.kind {
            HostKind::Blob(_) => sink.keep(field.column, value),
            _ => value.as_ptr(),
        };
        let expected = "values that fit the fields of the host";
        let found = value.len() as u64;
        let too_long = |_| Error::Corrupt {
            image: "index entry",
            offset: 0,
            expected,
            found,
        };
        field.write(record, value, address).map_err(too_long)
    }
}
