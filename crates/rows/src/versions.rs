//! Versions: the columns that a table has now, those it had before, and how rows of then are read now.
//!
//! Why it exists:    an ALTER that only changes columns leaves every row where it is. Whoever reads a row or a block names the
//!                   version it was written with, and gets it with the columns of now.
//! Format / state:   docs/format-rows.md#older-versions (catalog image).
//! Rules:            AL1 versions rise, AL2 what older ones keep, AL3 two steps are one, AL6 how many there can be. F20 total.
//! Latches and I/O:  none.
//! After a crash:    comes back with the catalog.

use crate::block::RowBlock;
use crate::error::{Error, Result};
use crate::fields::ImageReader;
use crate::remap::{Remap, widened};
use crate::schema::Schema;
use pbxt_base::codec::{push_bytes, push_u16};

const IMAGE: &str = "list of older schemas";
/// Older versions that a table can have (rule AL6).
pub const OLDER_MAX: usize = 255;
const COLUMN: u8 = 0;
const NULL: u8 = 1;
const VALUE: u8 = 2;

/// What a column has in rows of an older version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// What they have in the column of this number.
    Column(u16),
    /// The same for all of them: NULL, or these bytes as they are stored.
    Constant(Option<Vec<u8>>),
}

/// The columns of an older version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OlderSchema {
    /// As it was.
    pub schema: Schema,
    /// One for each column of the newest version.
    pub origins: Vec<Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Older {
    given: OlderSchema,
    remap: Remap,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    current: Schema,
    /// By version, rising.
    older: Vec<Older>,
}

impl Versions {
    /// The newest version and those before it, by version, rising.
    ///
    /// # Errors
    /// `BadLayout`, `TooLarge`: an older version that rows cannot be read with (rules AL1, AL4 to AL6).
    pub fn new(current: Schema, older: Vec<OlderSchema>) -> Result<Self> {
        if older.len() > OLDER_MAX {
            return Err(Error::TooLarge {
                what: IMAGE,
                found: older.len() as u64,
                limit: OLDER_MAX as u64,
            });
        }
        let numbers = older.iter().map(|older| older.schema.version());
        if !numbers.chain([current.version()]).is_sorted_by(|a, b| a < b) {
            return Err(Error::BadLayout {
                column: 0,
                why: "schema versions of a table rise",
            });
        }
        let compile = |given: OlderSchema| -> Result<Older> {
            let remap = Remap::new(&given.schema, &current, &given.origins)?;
            Ok(Older { given, remap })
        };
        let older = older.into_iter().map(compile).collect::<Result<Vec<_>>>()?;
        Ok(Self { current, older })
    }

    /// The same with another newest version, of which each column has its origin in the one that was the newest (rule AL3).
    ///
    /// # Errors
    /// As `new`.
    pub fn altered(&self, next: Schema, step: &[Origin]) -> Result<Self> {
        // Columns of the step are looked up below.
        Remap::new(&self.current, &next, step)?;
        let older = self.older.iter().map(|older| OlderSchema {
            schema: older.given.schema.clone(),
            origins: self.joined(&older.given.origins, &next, step),
        });
        let mut older: Vec<_> = older.collect();
        older.push(OlderSchema {
            schema: self.current.clone(),
            origins: step.to_vec(),
        });
        Self::new(next, older)
    }

    /// Two steps as one: from older rows to those of `current`, and on to those of `next`.
    fn joined(&self, first: &[Origin], next: &Schema, second: &[Origin]) -> Vec<Origin> {
        let join = |(column, origin): (usize, &Origin)| {
            let Origin::Column(number) = origin else {
                return origin.clone();
            };
            let number = usize::from(*number);
            match (&first[number], self.current.column(number), next.column(column)) {
                (Origin::Constant(Some(value)), Some(before), Some(now)) => {
                    let order = self.current.order(number);
                    Origin::Constant(Some(widened(value, (before, order), now)))
                }
                (origin, ..) => origin.clone(),
            }
        };
        second.iter().enumerate().map(join).collect()
    }

    /// The newest version.
    #[inline]
    pub fn current(&self) -> &Schema {
        &self.current
    }

    /// Those before it, by version, rising.
    pub fn older(&self) -> impl Iterator<Item = &OlderSchema> {
        self.older.iter().map(|older| &older.given)
    }

    /// The columns of this version, if the table has or had it.
    pub fn schema(&self, version: u16) -> Option<&Schema> {
        if version == self.current.version() {
            return Some(&self.current);
        }
        self.find(version).map(|older| &older.given.schema)
    }

    fn find(&self, version: u16) -> Option<&Older> {
        let at = self
            .older
            .binary_search_by_key(&version, |older| older.given.schema.version());
        at.ok().map(|at| &self.older[at])
    }

    fn known(&self, version: u16) -> Result<&Older> {
        self.find(version).ok_or(Error::Corrupt {
            image: "row or row block",
            offset: 0,
            expected: "a schema version that the table has or had",
            found: version as u64,
        })
    }

    /// Appends a payload of that version as one of the newest.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no payload of that version, or a version that the table never had.
    pub fn convert(&self, version: u16, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if version == self.current.version() {
            out.extend_from_slice(payload);
            return Ok(());
        }
        self.known(version)?.remap.apply(payload, out)
    }

    /// Reads a block; its rows are those of the newest version, whichever it was written with.
    ///
    /// # Errors
    /// As `RowBlock::decode`, and `Corrupt` for a version that the table never had.
    pub fn decode_block(&self, bytes: &[u8]) -> Result<RowBlock> {
        let version = RowBlock::schema_version_of(bytes)?;
        if version == self.current.version() {
            return RowBlock::decode(&self.current, bytes);
        }
        let older = self.known(version)?;
        let block = RowBlock::decode(&older.given.schema, bytes)?;
        block.remapped(&older.remap, self.current.version())
    }

    /// A block of an older version as one of the newest.
    ///
    /// # Errors
    /// `Corrupt` for a version that the table never had.
    pub fn convert_block(&self, block: RowBlock) -> Result<RowBlock> {
        if block.schema_version() == self.current.version() {
            return Ok(block);
        }
        let older = self.known(block.schema_version())?;
        block.remapped(&older.remap, self.current.version())
    }

    /// The number that a column of the newest version has in an older one, where both have the same values in the same form;
    /// what zones of older blocks say of it holds (rule AL9).
    pub(crate) fn unchanged_column(&self, version: u16, column: usize) -> Option<usize> {
        let older = &self.find(version)?.given;
        let Some(Origin::Column(number)) = older.origins.get(column) else {
            return None;
        };
        let number = usize::from(*number);
        let is_same = older.schema.column(number)?.kind == self.current.column(column)?.kind
            && older.schema.order(number) == self.current.order(column);
        is_same.then_some(number)
    }
}

impl OlderSchema {
    /// Appends the catalog image of a list (docs/format-rows.md#older-versions).
    pub fn encode_list(list: &[Self], out: &mut Vec<u8>) {
        push_u16(out, list.len() as u16);
        let mut schema = Vec::new();
        for older in list {
            schema.clear();
            older.schema.encode(&mut schema);
            push_bytes(out, &schema);
            for origin in &older.origins {
                match origin {
                    Origin::Column(number) => {
                        out.push(COLUMN);
                        push_u16(out, *number);
                    }
                    Origin::Constant(None) => out.push(NULL),
                    Origin::Constant(Some(value)) => {
                        out.push(VALUE);
                        push_bytes(out, value);
                    }
                }
            }
        }
    }

    /// Reads what `encode_list` wrote for a newest schema of so many columns; `bytes` must be exactly one image.
    ///
    /// # Errors
    /// `Corrupt`, or `WrongFormat` for a schema of a later version.
    pub fn decode_list(bytes: &[u8], columns: usize) -> Result<Vec<Self>> {
        let mut reader = ImageReader::new(IMAGE, bytes);
        let count = reader.u16()? as usize;
        if count > OLDER_MAX {
            return Err(reader.corrupt("at most 255 older schemas", count as u64));
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.varint()? as usize;
            let schema = Schema::decode(reader.take(length)?)?;
            let origins = (0..columns)
                .map(|_| decode_origin(&mut reader))
                .collect::<Result<Vec<_>>>()?;
            list.push(Self { schema, origins });
        }
        reader.end()?;
        Ok(list)
    }
}

fn decode_origin(reader: &mut ImageReader<'_>) -> Result<Origin> {
    match reader.u8()? {
        COLUMN => Ok(Origin::Column(reader.u16()?)),
        NULL => Ok(Origin::Constant(None)),
        VALUE => {
            let length = reader.varint()? as usize;
            Ok(Origin::Constant(Some(reader.take(length)?.to_vec())))
        }
        other => Err(reader.corrupt("the origin of a column: 0, 1 or 2", other as u64)),
    }
}
