//! Definition: `pbxt_table_def` and its parts, turned into layouts, key specifications and table definitions.

use crate::foreign_keys::{PbxtForeignKey, foreign_key};
use crate::guard::{bytes, text};
use pbxt::host::HostIndex;
use pbxt::{Compression, ConflictMode, Error, HostRecordDef, IndexDef, RecordColumn, Result, TableDef};
use pbxt_base::{IndexId, TableId};
use pbxt_rows::{HostColumn, HostKind, HostLayout, KeyEncoding, KeyPart, KeySpec, Order, WeightScheme};
use std::ffi::{c_char, c_void};

/// `pbxt_column`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtColumn {
    pub offset: u32,
    pub length: u32,
    pub null_offset: u32,
    pub null_bit: u8,
    pub kind: u8,
    pub pad: u8,
    pub stored: u8,
    pub order: u8,
    pub has_default: u8,
    pub name: *const c_char,
    pub name_len: usize,
    pub type_text: *const c_char,
    pub type_len: usize,
}

/// `pbxt_key_part`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtKeyPart {
    pub column: u32,
    pub length: u32,
    pub store_length: u32,
    pub weight_len: u32,
    pub encoding: u8,
    pub nullable: u8,
    pub descending: u8,
    pub is_prefix: u8,
    pub is_var: u8,
    pub pad_len: u8,
    pub pad_weight: [u8; 8],
    pub collation: u32,
    pub ctx: *const c_void,
}

/// `pbxt_index`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtIndex {
    pub name: *const c_char,
    pub name_len: usize,
    pub unique: u8,
    pub primary: u8,
    pub part_count: u32,
    pub parts: *const PbxtKeyPart,
    pub extension_count: u32,
}

/// `pbxt_table_def`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtTableDef {
    pub name: *const c_char,
    pub name_len: usize,
    pub record_length: u32,
    pub column_count: u32,
    pub columns: *const PbxtColumn,
    pub index_count: u32,
    pub indexes: *const PbxtIndex,
    pub host_image: *const u8,
    pub host_image_len: usize,
    pub host_version: *const u8,
    pub host_version_len: usize,
    pub auto_increment: u64,
    pub conflict_mode: i32,
    pub temporary: u8,
    pub compression: u8,
    pub encrypted: u8,
    pub check_foreign_keys: u8,
    pub default_record: *const u8,
    pub foreign_keys: *const PbxtForeignKey,
    pub foreign_key_count: u32,
    pub replaces: *const c_char,
    pub replaces_len: usize,
}

/// Schema version of every definition made here; an ALTER counts it up (rule AL1).
const SCHEMA_VERSION: u16 = 1;

/// A list a caller names by pointer and count.
///
/// # Safety
/// `data` is null with count 0, or names `count` readable elements that nobody changes while `'a` lasts.
pub(crate) unsafe fn list<'a, T>(data: *const T, count: u32) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { std::slice::from_raw_parts(data, count as usize) }
}

impl PbxtTableDef {
    /// # Safety
    /// The pointers of the definition are as the header says.
    pub(crate) unsafe fn name(&self) -> Result<&str> {
        // SAFETY: passed on.
        unsafe { text(self.name, self.name_len) }
    }

    /// Name of the table whose place this one is to take.
    ///
    /// # Safety
    /// As `name`.
    pub(crate) unsafe fn replaces(&self) -> Result<Option<&str>> {
        // SAFETY: passed on.
        let name = unsafe { text(self.replaces, self.replaces_len)? };
        Ok((!name.is_empty()).then_some(name))
    }

    /// # Safety
    /// As `name`.
    unsafe fn host_record(&self) -> Result<Option<HostRecordDef>> {
        if self.default_record.is_null() {
            return Ok(None);
        }
        // SAFETY: passed on.
        let given = unsafe { list(self.columns, self.column_count) };
        // SAFETY: passed on.
        let mut defaults = unsafe { bytes(self.default_record, self.record_length as usize) }.to_vec();
        let mut columns = Vec::with_capacity(given.len());
        for column in given {
            let place = host_column(column)?;
            clear_pointer(&place, &mut defaults);
            columns.push(RecordColumn {
                // SAFETY: passed on.
                name: unsafe { text(column.name, column.name_len)? }.to_owned(),
                // SAFETY: passed on.
                type_text: unsafe { text(column.type_text, column.type_len)? }.to_owned(),
                place,
                has_default: column.has_default != 0,
            });
        }
        Ok(Some(HostRecordDef { columns, defaults }))
    }

    /// # Safety
    /// As `name`.
    pub(crate) unsafe fn layout(&self) -> Result<HostLayout> {
        // SAFETY: passed on.
        let columns = unsafe { list(self.columns, self.column_count) };
        let orders = columns.iter().map(column_order).collect::<Result<Vec<_>>>()?;
        let columns = columns.iter().map(host_column).collect::<Result<Vec<_>>>()?;
        Ok(HostLayout::new(self.record_length as usize, columns)?.with_orders(orders))
    }

    /// # Safety
    /// As `name`.
    pub(crate) unsafe fn host_indexes(&self) -> Result<Vec<HostIndex>> {
        // SAFETY: passed on.
        let indexes = unsafe { list(self.indexes, self.index_count) };
        // SAFETY: passed on.
        indexes.iter().map(|index| unsafe { host_index(index) }).collect()
    }

    /// # Safety
    /// As `name`.
    pub(crate) unsafe fn definition(&self) -> Result<TableDef> {
        // SAFETY: passed on, here and below.
        let (layout, host_indexes) = unsafe { (self.layout()?, self.host_indexes()?) };
        // SAFETY: as above.
        let given = unsafe { list(self.indexes, self.index_count) };
        let mut indexes = Vec::with_capacity(given.len());
        for (index, host) in given.iter().zip(host_indexes) {
            indexes.push(IndexDef {
                id: IndexId::new(0),
                // SAFETY: as above.
                name: unsafe { text(index.name, index.name_len)? }.to_owned(),
                unique: index.unique != 0,
                primary: index.primary != 0,
                spec: host.spec,
            });
        }
        Ok(TableDef {
            id: TableId::new(0),
            // SAFETY: as above.
            name: unsafe { self.name()? }.to_owned(),
            schema: layout.schema(SCHEMA_VERSION)?,
            older: Vec::new(),
            indexes,
            // SAFETY: as above.
            host_image: unsafe { bytes(self.host_image, self.host_image_len) }.to_vec(),
            // SAFETY: as above.
            host_version: unsafe { bytes(self.host_version, self.host_version_len) }.to_vec(),
            conflict_mode: conflict_mode(self.conflict_mode)?,
            encrypted: self.encrypted != 0,
            temporary: self.temporary != 0,
            // SAFETY: as above.
            provisional: unsafe { self.replaces()? }.is_some(),
            // SAFETY: as above.
            host_record: unsafe { self.host_record()? },
            // SAFETY: as above.
            foreign_keys: unsafe { list(self.foreign_keys, self.foreign_key_count) }
                .iter()
                // SAFETY: as above.
                .map(|key| unsafe { foreign_key(key) })
                .collect::<Result<Vec<_>>>()?,
            compression: Compression::from_code(self.compression).ok_or_else(|| {
                Error::Invalid(format!("compression {} is not one of 0 to 3", self.compression))
            })?,
            created: 0,
        })
    }
}

pub(crate) fn conflict_mode(code: i32) -> Result<ConflictMode> {
    match code {
        0 => Ok(ConflictMode::Default),
        1 => Ok(ConflictMode::Error),
        2 => Ok(ConflictMode::Wait),
        other => Err(Error::Invalid(format!(
            "{other} is no conflict mode: use error or wait"
        ))),
    }
}

/// Values of that kind are not in the record, and what points to them means nothing later on.
fn clear_pointer(place: &HostColumn, record: &mut [u8]) {
    let HostKind::Blob(length_bytes) = place.kind else {
        return;
    };
    let start = place.offset as usize;
    let end = start + usize::from(length_bytes) + size_of::<*const u8>();
    record
        .get_mut(start..end)
        .into_iter()
        .flatten()
        .for_each(|byte| *byte = 0);
}

fn column_order(column: &PbxtColumn) -> Result<Order> {
    let unknown = || Error::Invalid(format!("{} is no order of a column", column.order));
    Order::from_code(column.order).ok_or_else(unknown)
}

fn host_column(column: &PbxtColumn) -> Result<HostColumn> {
    let short = || {
        let length = u16::try_from(column.length);
        length.map_err(|_| {
            Error::Invalid(format!(
                "a column of {} bytes is longer than 65535",
                column.length
            ))
        })
    };
    let kind = match column.kind {
        0 => HostKind::Fixed(short()?),
        1 => HostKind::Var1(short()?),
        2 => HostKind::Var2(short()?),
        kind @ 3..=6 => HostKind::Blob(kind - 2),
        7 => HostKind::Padded {
            len: short()?,
            pad: column.pad,
        },
        other => return Err(Error::Invalid(format!("{other} is no kind of column"))),
    };
    Ok(HostColumn {
        offset: column.offset,
        kind,
        null_offset: column.null_offset,
        null_bit: column.null_bit,
        stored: column.stored != 0,
    })
}

/// # Safety
/// The pointers of the index are as the header says.
unsafe fn host_index(index: &PbxtIndex) -> Result<HostIndex> {
    // SAFETY: passed on.
    let parts = unsafe { list(index.parts, index.part_count) };
    let contexts = parts.iter().map(|part| part.ctx.expose_provenance()).collect();
    let parts = parts.iter().map(key_part).collect::<Result<Vec<_>>>()?;
    // What weights lose stands beside them, so that the index alone can answer for its columns.
    let unpack = parts.iter().any(|part| part.encoding.loses());
    Ok(HostIndex {
        spec: KeySpec::new(parts, unpack)?.with_extension(index.extension_count as usize)?,
        contexts,
    })
}

fn key_part(part: &PbxtKeyPart) -> Result<KeyPart> {
    let scheme = match part.encoding {
        6 => Some(WeightScheme::FixedLen(part.weight_len)),
        7 => Some(WeightScheme::NoPad),
        8 => Some(WeightScheme::PadSpace {
            weight: part.pad_weight,
            len: part.pad_len,
        }),
        _ => None,
    };
    let encoding = match (part.encoding, scheme) {
        (_, Some(scheme)) => KeyEncoding::Host {
            collation: part.collation,
            scheme,
        },
        (0, _) => KeyEncoding::Uint,
        (1, _) => KeyEncoding::Int,
        (2, _) => KeyEncoding::F32,
        (3, _) => KeyEncoding::F64,
        (4, _) => KeyEncoding::Raw,
        (5, _) => KeyEncoding::VarBinary,
        (other, _) => return Err(Error::Invalid(format!("{other} is no key encoding"))),
    };
    Ok(KeyPart {
        column: u16::try_from(part.column).unwrap_or(u16::MAX),
        length: part.length,
        prefix: part.is_prefix != 0,
        nullable: part.nullable != 0,
        descending: part.descending != 0,
        encoding,
    })
}
