//! Table definition: what the catalog keeps of one table generation, and its image in catalog records.
//!
//! Why it exists: recovery, tools and replicas must know columns and indexes without a host; the host's own
//! definition travels along as opaque bytes so that a copied database can be opened elsewhere.
//! Format: docs/format-catalog.md#table-definition; one encoder and one decoder, here.
//! Rules: K1 an image is self-contained: name, ids, schema, indexes, options, host image. K2 unknown format
//! versions are refused, never guessed. K5 an encrypted table has a format of its own.

use crate::error::{Error, Result};
use crate::foreign_key::ForeignKey;
use crate::host_record::HostRecordDef;
use pbxt_base::codec::{Reader, push_bytes, push_u8, push_u16, push_u32, push_u64};
use pbxt_base::{IndexId, TableId};
use pbxt_rows::{KeySpec, OlderSchema, Schema, Versions};
use pbxt_segment::Codec;

/// Of encrypted tables, and of no others: who does not know it would write them in plain (rule K5).
const FORMAT_ENCRYPTED: u8 = 5;
const FORMAT: u8 = 4;
/// Had no older schemas.
const FORMAT_WITHOUT_OLDER: u8 = 3;
/// Had neither the host's record nor foreign keys.
const FORMAT_WITHOUT_KEYS: u8 = 2;
/// Had no compression.
const FORMAT_WITHOUT_COMPRESSION: u8 = 1;

/// Flags of a definition.
const TEMPORARY: u8 = 1;
const PROVISIONAL: u8 = 2;
const ENCRYPTED: u8 = 4;

/// What an update does when the row changed after the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictMode {
    /// Whatever the session says (table option) or the default (session).
    #[default]
    Default,
    /// Write conflict (ERROR 1020).
    Error,
    /// Lock and continue with the newest committed version.
    Wait,
}

impl ConflictMode {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Error => 1,
            Self::Wait => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Default, Self::Error, Self::Wait]
            .into_iter()
            .find(|mode| mode.code() == code)
    }
}

/// How the blocks of settled rows and index entries are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As the engine finds best: Zstandard, quickly for what is merged soon.
    #[default]
    Default,
    /// Only the light encodings of the columns.
    None,
    /// LZ4 everywhere.
    Lz4,
    /// Zstandard everywhere.
    Zstd,
}

impl Compression {
    fn code(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::None => 1,
            Self::Lz4 => 2,
            Self::Zstd => 3,
        }
    }

    /// By its number on disk and in the C interface.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Default, Self::None, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|compression| compression.code() == code)
    }

    /// Codec of blocks that will be merged again soon.
    pub(crate) fn upper(self) -> Codec {
        match self {
            Self::None => Codec::Plain,
            Self::Lz4 => Codec::Lz4,
            Self::Default | Self::Zstd => Codec::Zstd(1),
        }
    }

    /// Codec of blocks that stay.
    pub(crate) fn base(self) -> Codec {
        match self {
            Self::None => Codec::Plain,
            Self::Lz4 => Codec::Lz4,
            Self::Default => Codec::Zstd(5),
            Self::Zstd => Codec::Zstd(9),
        }
    }
}

/// One index of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDef {
    /// Unique in the database, never reused.
    pub id: IndexId,
    /// Name inside the table.
    pub name: String,
    /// Refuses a second row with the same key, unless a part is NULL.
    pub unique: bool,
    /// The primary key.
    pub primary: bool,
    /// How keys are made and compared.
    pub spec: KeySpec,
}

/// One table generation.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDef {
    /// Generation id; TRUNCATE gives a new one.
    pub id: TableId,
    /// Unique in the database.
    pub name: String,
    /// Physical columns.
    pub schema: Schema,
    /// Those that rows may still have been written with (rules AL1, AL2).
    pub older: Vec<OlderSchema>,
    /// Indexes in the host's order.
    pub indexes: Vec<IndexDef>,
    /// The host's own definition, opaque.
    pub host_image: Vec<u8>,
    /// The host's version of that definition, opaque.
    pub host_version: Vec<u8>,
    /// Table option; wins over the session's.
    pub conflict_mode: ConflictMode,
    /// Table option.
    pub compression: Compression,
    /// Table option: all files are encrypted while it lives (rule EN17).
    pub encrypted: bool,
    /// Gone at the next open.
    pub temporary: bool,
    /// Made to replace another table, or set aside by what replaced it (rule FK8).
    pub provisional: bool,
    /// The host's record buffer, if it told of it.
    pub host_record: Option<HostRecordDef>,
    /// What its columns refer to.
    pub foreign_keys: Vec<ForeignKey>,
    /// Unix seconds of creation.
    pub created: u64,
}

impl IndexDef {
    /// The primary key, for a table that is going to be created.
    pub fn primary(spec: KeySpec) -> Self {
        Self {
            id: IndexId::new(0),
            name: "PRIMARY".to_owned(),
            unique: true,
            primary: true,
            spec,
        }
    }
}

impl TableDef {
    /// A table that is going to be created, with every option as it is if nobody asks for another one. Its ids are given to it
    /// then.
    pub fn new(name: impl Into<String>, schema: Schema, indexes: Vec<IndexDef>) -> Self {
        Self {
            id: TableId::new(0),
            name: name.into(),
            schema,
            older: Vec::new(),
            indexes,
            host_image: Vec::new(),
            host_version: Vec::new(),
            conflict_mode: ConflictMode::Default,
            compression: Compression::Default,
            encrypted: false,
            temporary: false,
            provisional: false,
            host_record: None,
            foreign_keys: Vec::new(),
            created: 0,
        }
    }

    /// Appends the catalog image.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_u8(out, if self.encrypted { FORMAT_ENCRYPTED } else { FORMAT });
        push_u32(out, self.id.raw());
        push_u64(out, self.created);
        push_u8(out, self.conflict_mode.code());
        push_u8(out, self.flags());
        push_bytes(out, self.name.as_bytes());
        push_bytes(out, &self.host_version);
        push_bytes(out, &self.host_image);
        let mut part = Vec::new();
        self.schema.encode(&mut part);
        push_bytes(out, &part);
        push_u16(
            out,
            u16::try_from(self.indexes.len()).expect("K1: a table has at most 128 indexes"),
        );
        for index in &self.indexes {
            push_u32(out, index.id.raw());
            push_u8(out, u8::from(index.unique) | u8::from(index.primary) << 1);
            push_bytes(out, index.name.as_bytes());
            part.clear();
            index.spec.encode(&mut part);
            push_bytes(out, &part);
        }
        push_u8(out, self.compression.code());
        HostRecordDef::encode(self.host_record.as_ref(), out);
        push_u16(
            out,
            u16::try_from(self.foreign_keys.len()).expect("K1: a table has at most 65535 foreign keys"),
        );
        for key in &self.foreign_keys {
            key.encode(out);
        }
        part.clear();
        OlderSchema::encode_list(&self.older, &mut part);
        push_bytes(out, &part);
    }

    fn flags(&self) -> u8 {
        let flags = [
            (self.temporary, TEMPORARY),
            (self.provisional, PROVISIONAL),
            (self.encrypted, ENCRYPTED),
        ];
        flags
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, flag)| flag)
            .sum()
    }

    /// Columns now and before.
    pub(crate) fn versions(&self) -> Versions {
        Versions::new(self.schema.clone(), self.older.clone())
            .expect("AL2: definitions are checked when they are decoded or made")
    }

    /// Reads a catalog image.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let format = reader.u8()?;
        if !(FORMAT_WITHOUT_COMPRESSION..=FORMAT_ENCRYPTED).contains(&format) {
            return Err(Error::Invalid(format!(
                "a table definition in the log has format {format}, this program knows format {FORMAT_ENCRYPTED}: use a newer PBXT"
            )));
        }
        let id = TableId::new(reader.u32()?);
        let created = reader.u64()?;
        let mode = reader.u8()?;
        let conflict_mode =
            ConflictMode::from_code(mode).ok_or_else(|| damaged("a conflict mode", u64::from(mode)))?;
        let flags = reader.u8()?;
        let encrypted = flags & ENCRYPTED != 0;
        if encrypted != (format == FORMAT_ENCRYPTED) {
            return Err(damaged(
                "the flag of encryption in format 5 alone",
                u64::from(format),
            ));
        }
        let name = text(reader.length_prefixed()?)?;
        let host_version = reader.length_prefixed()?.to_vec();
        let host_image = reader.length_prefixed()?.to_vec();
        let schema = Schema::decode(reader.length_prefixed()?)?;
        let count = reader.u16()?;
        let indexes = (0..count)
            .map(|_| decode_index(&mut reader))
            .collect::<Result<Vec<_>>>()?;
        let code = if format >= FORMAT_WITHOUT_KEYS {
            reader.u8()?
        } else {
            0
        };
        let compression =
            Compression::from_code(code).ok_or_else(|| damaged("a compression", u64::from(code)))?;
        let (host_record, foreign_keys) = if format >= FORMAT_WITHOUT_OLDER {
            decode_keys(&mut reader, &schema)?
        } else {
            (None, Vec::new())
        };
        let older = if format >= FORMAT {
            OlderSchema::decode_list(reader.length_prefixed()?, schema.columns().len())?
        } else {
            Vec::new()
        };
        if !reader.rest().is_empty() {
            return Err(damaged("the end of the definition", reader.rest().len() as u64));
        }
        // Rule AL2: whoever reads a row later has nobody to tell.
        Versions::new(schema.clone(), older.clone())?;
        Ok(Self {
            id,
            name,
            schema,
            older,
            indexes,
            host_image,
            host_version,
            conflict_mode,
            compression,
            encrypted,
            temporary: flags & TEMPORARY != 0,
            provisional: flags & PROVISIONAL != 0,
            host_record,
            foreign_keys,
            created,
        })
    }
}

fn decode_index(reader: &mut Reader<'_>) -> Result<IndexDef> {
    let id = IndexId::new(reader.u32()?);
    let flags = reader.u8()?;
    let name = text(reader.length_prefixed()?)?;
    let spec = KeySpec::decode(reader.length_prefixed()?)?;
    Ok(IndexDef {
        id,
        name,
        unique: flags & 1 != 0,
        primary: flags & 2 != 0,
        spec,
    })
}

fn decode_keys(reader: &mut Reader<'_>, schema: &Schema) -> Result<(Option<HostRecordDef>, Vec<ForeignKey>)> {
    let record = HostRecordDef::decode(reader, schema.columns().len())?;
    let count = reader.u16()?;
    let keys = (0..count)
        .map(|_| ForeignKey::decode(reader))
        .collect::<Result<Vec<_>>>()?;
    Ok((record, keys))
}

pub(crate) fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| damaged("a name in UTF-8", bytes.len() as u64))
}

pub(crate) fn damaged(expected: &str, found: u64) -> Error {
    Error::Invalid(format!(
        "a table definition in the log is damaged: expected {expected}, found {found}"
    ))
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
