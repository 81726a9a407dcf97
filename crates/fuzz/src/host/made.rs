//! Made: the definition of a table as an input chooses it, and records and search tuples for it.
//!
//! Why it exists: the C interface takes pointers, and what stands behind them is the host's duty. Everything that a host may pass
//! is made here, and no more: a record as long as its definition says, values where its pointers point.
//! Rules: FZ5. A definition is either sound, or has one number in it that is any number; with such a one nothing is done that
//! would need records or tuples, because nobody knows what they look like.

use crate::host::feed::Feed;
use pbxt_capi::{PbxtColumn, PbxtForeignKey, PbxtIndex, PbxtKeyPart, PbxtTableDef, PbxtText};
use std::ffi::{c_char, c_void};
use std::ptr::null;

/// A column of some type, and the part of an index that it makes.
struct Template {
    kind: u8,
    length: u32,
    /// Bytes in a record.
    width: u32,
    order: u8,
    encoding: u8,
    part_length: u32,
    is_var: bool,
    is_prefix: bool,
}

const fn template(kind: u8, length: u32, width: u32, order: u8, encoding: u8) -> Template {
    Template {
        kind,
        length,
        width,
        order,
        encoding,
        part_length: length,
        is_var: false,
        is_prefix: false,
    }
}

const fn varying(kind: u8, length: u32, width: u32, encoding: u8) -> Template {
    Template {
        is_var: true,
        ..template(kind, length, width, 0, encoding)
    }
}

const fn beginning(kind: u8, width: u32, encoding: u8, part_length: u32) -> Template {
    Template {
        is_prefix: true,
        part_length,
        ..varying(kind, 0, width, encoding)
    }
}

const TEMPLATES: [Template; 12] = [
    template(0, 4, 4, 2, 1),
    template(0, 8, 8, 1, 0),
    template(0, 4, 4, 3, 2),
    template(0, 8, 8, 4, 3),
    template(0, 5, 5, 5, 4),
    varying(1, 20, 21, 5),
    varying(2, 300, 302, 7),
    beginning(4, 10, 5, 12),
    beginning(6, 12, 7, 9),
    template(7, 10, 10, 0, 8),
    template(7, 6, 6, 5, 4),
    template(7, 8, 8, 0, 6),
];
const HOST_FIXED: u8 = 6;
const HOST_PAD: u8 = 8;
const COLUMNS_MAX: usize = 6;
const NAMES: [&str; COLUMNS_MAX] = ["a", "b", "c", "d", "e", "f"];
const TYPES: [&str; 12] = [
    "int", "u64", "f32", "f64", "raw", "var", "nopad", "blob", "text", "char", "bin", "fixed",
];
/// Longest large value.
const VALUE_BYTES_MAX: usize = 300;
const DEFAULTS_BYTES_MAX: u32 = 1 << 20;

/// Weights: capital letters; two bytes each where the template pads with two, always so many where it says so.
pub(crate) fn weights(context: usize, src: &[u8]) -> Vec<u8> {
    let template = &TEMPLATES[context.wrapping_sub(1) % TEMPLATES.len()];
    let letters = src.iter().take(template.part_length as usize);
    let mut out: Vec<u8> = match template.encoding {
        HOST_PAD => letters.flat_map(|byte| [0, byte.to_ascii_uppercase()]).collect(),
        _ => letters.map(u8::to_ascii_uppercase).collect(),
    };
    if template.encoding == HOST_FIXED {
        out.resize(template.part_length as usize, b' ');
    }
    out
}

struct MadeIndex {
    unique: u8,
    primary: u8,
    extension_count: u32,
    parts: Vec<PbxtKeyPart>,
}

struct MadeReference {
    columns: Vec<u32>,
    parent_columns: Vec<usize>,
    on_delete: u8,
    on_update: u8,
}

/// See the module.
pub(crate) struct Made {
    pub(crate) name: Vec<u8>,
    templates: Vec<usize>,
    columns: Vec<PbxtColumn>,
    indexes: Vec<MadeIndex>,
    reference: Option<MadeReference>,
    record_length: u32,
    numbers: [u8; 5],
    auto_increment: u64,
    /// One of its numbers is any number.
    pub(crate) is_wild: bool,
}

fn text(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

impl Made {
    /// A table of that name; every eighth has a number in it that is any number.
    pub(crate) fn new(name: &[u8], feed: &mut Feed<'_>) -> Self {
        let templates: Vec<usize> = (0..=feed.below(COLUMNS_MAX))
            .map(|_| feed.below(TEMPLATES.len()))
            .collect();
        let mut record_length = 2;
        let mut columns = Vec::new();
        for (number, chosen) in templates.iter().enumerate() {
            let made = column(number, *chosen, record_length, feed);
            record_length += TEMPLATES[*chosen].width;
            columns.push(made);
        }
        let mut indexes: Vec<MadeIndex> = Vec::new();
        for number in 0..feed.below(4) {
            let parts = (0..=feed.below(3))
                .map(|_| {
                    let column = feed.below(columns.len());
                    part(column, templates[column], &columns[column], feed)
                })
                .collect();
            let primary = u8::from(number == 0 && !feed.once_in(3));
            indexes.push(MadeIndex {
                unique: u8::from(primary == 1 || feed.once_in(2)),
                primary,
                extension_count: 0,
                parts,
            });
        }
        let reference = feed.once_in(4).then(|| MadeReference {
            columns: vec![feed.below(columns.len()) as u32],
            parent_columns: vec![feed.below(COLUMNS_MAX)],
            on_delete: feed.byte() % 6,
            on_update: feed.byte() % 6,
        });
        let mut made = Self {
            name: name.to_vec(),
            templates,
            columns,
            indexes,
            reference,
            record_length,
            numbers: [0, 0, feed.byte() % 4, 1, feed.byte() & 1],
            auto_increment: u64::from(feed.byte()),
            is_wild: false,
        };
        if feed.once_in(8) {
            made.go_wild(feed);
        }
        made
    }

    /// Puts any number somewhere.
    fn go_wild(&mut self, feed: &mut Feed<'_>) {
        self.is_wild = true;
        let (which, place, value) = (feed.byte(), feed.byte(), feed.number());
        let (small, number) = (value as u8, value as u32);
        match which % 4 {
            0 => {
                let numbers = self.columns.len();
                let column = &mut self.columns[usize::from(place) % numbers];
                match which / 4 % 7 {
                    0 => column.offset = number,
                    1 => column.length = number,
                    2 => column.null_offset = number,
                    3 => column.null_bit = small,
                    4 => column.kind = small,
                    5 => column.order = small,
                    _ => column.stored = small,
                }
            }
            1 if !self.indexes.is_empty() => {
                let numbers = self.indexes.len();
                let index = &mut self.indexes[usize::from(place) % numbers];
                let parts = index.parts.len();
                let part = &mut index.parts[usize::from(place) / numbers % parts];
                match which / 4 % 12 {
                    0 => part.column = number,
                    1 => part.length = number,
                    2 => part.weight_len = number,
                    3 => part.encoding = small,
                    4 => part.nullable = small,
                    5 => part.descending = small,
                    6 => part.is_prefix = small,
                    7 => part.pad_len = small,
                    8 => part.collation = number,
                    9 => index.extension_count = number,
                    10 => index.primary = small,
                    _ => index.parts.clear(),
                }
            }
            2 => self.record_length = number,
            _ => self.numbers[usize::from(place) % self.numbers.len()] = small,
        }
    }

    /// The definition as the interface wants it. A reference names `parent`.
    pub(crate) fn with_def<T>(&self, parent: &[u8], call: impl FnOnce(&PbxtTableDef) -> T) -> T {
        let indexes: Vec<PbxtIndex> = self.indexes.iter().zip(NAMES).map(c_index).collect();
        let parent_columns: Vec<PbxtText> = self.reference.iter().flat_map(parents_of).collect();
        let references = self.reference.iter().map(|reference| PbxtForeignKey {
            name: c_text(&self.name[self.name.len().min(4)..]),
            parent: c_text(parent),
            column_count: reference.columns.len() as u32,
            columns: reference.columns.as_ptr(),
            parent_columns: parent_columns.as_ptr(),
            on_delete: reference.on_delete,
            on_update: reference.on_update,
        });
        let references: Vec<PbxtForeignKey> = references.collect();
        let [
            conflict_mode,
            temporary,
            compression,
            check_foreign_keys,
            has_defaults,
        ] = self.numbers;
        let defaults = vec![0; self.record_length.min(DEFAULTS_BYTES_MAX) as usize];
        let keeps_defaults = has_defaults != 0 && self.record_length <= DEFAULTS_BYTES_MAX;
        let (name, name_len) = text(&self.name);
        call(&PbxtTableDef {
            name,
            name_len,
            record_length: self.record_length,
            column_count: self.columns.len() as u32,
            columns: self.columns.as_ptr(),
            index_count: indexes.len() as u32,
            indexes: indexes.as_ptr(),
            host_image: b"image".as_ptr(),
            host_image_len: 5,
            host_version: b"version".as_ptr(),
            host_version_len: 7,
            auto_increment: self.auto_increment,
            conflict_mode: i32::from(conflict_mode),
            temporary,
            compression,
            encrypted: 0,
            check_foreign_keys,
            default_record: if keeps_defaults { defaults.as_ptr() } else { null() },
            foreign_keys: references.as_ptr(),
            foreign_key_count: references.len() as u32,
            replaces: null(),
            replaces_len: 0,
        })
    }

    pub(crate) fn column_count(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn index_count(&self) -> usize {
        self.indexes.len()
    }

    pub(crate) fn part_count(&self, index: usize) -> usize {
        self.indexes.get(index).map_or(0, |index| index.parts.len())
    }

    pub(crate) fn record_bytes(&self) -> usize {
        self.record_length as usize
    }

    /// Puts values into a record; `kept` has large ones from then on. Of a record with values, `some` of its columns keep theirs.
    pub(crate) fn fill(&self, feed: &mut Feed<'_>, some: bool, record: &mut [u8], kept: &mut Vec<Box<[u8]>>) {
        for (column, chosen) in self.columns.iter().zip(&self.templates) {
            if some && feed.once_in(2) {
                continue;
            }
            if column.null_bit != 0 && feed.once_in(4) {
                record[column.null_offset as usize] |= column.null_bit;
                continue;
            }
            record[column.null_offset as usize] &= !column.null_bit;
            let place = &mut record[column.offset as usize..][..TEMPLATES[*chosen].width as usize];
            let length = column.length as usize;
            match column.kind {
                1 | 2 => {
                    let (counts, area) = place.split_at_mut(usize::from(column.kind));
                    let value = feed.bytes(length);
                    counts.copy_from_slice(&count_of(value)[..usize::from(column.kind)]);
                    area[..value.len()].copy_from_slice(value);
                }
                kind @ 3..=6 => {
                    let counts = usize::from(kind - 2);
                    let value: Box<[u8]> = feed.bytes(VALUE_BYTES_MAX).into();
                    place[..counts].copy_from_slice(&count_of(&value)[..counts]);
                    let pointer = value.as_ptr();
                    let room = place[counts..].as_mut_ptr();
                    // SAFETY: the column has room for a pointer behind its length.
                    unsafe {
                        (&raw const pointer)
                            .cast::<u8>()
                            .copy_to_nonoverlapping(room, size_of_val(&pointer));
                    };
                    kept.push(value);
                }
                _ => {
                    let value = feed.bytes(length);
                    place.fill(column.pad);
                    place[..value.len()].copy_from_slice(value);
                }
            }
        }
    }

    /// A search tuple of the first `parts` parts of an index.
    pub(crate) fn tuple(&self, index: usize, parts: usize, feed: &mut Feed<'_>) -> Vec<u8> {
        let mut tuple = Vec::new();
        for part in self
            .indexes
            .get(index)
            .iter()
            .flat_map(|index| index.parts.iter().take(parts))
        {
            if part.nullable != 0 {
                tuple.push(u8::from(feed.once_in(4)));
            }
            let value = feed.bytes(part.length as usize);
            if part.is_var != 0 {
                // A length beyond the part is a host's mistake that has to be told.
                let length = if feed.once_in(16) {
                    feed.number() as u16
                } else {
                    value.len() as u16
                };
                tuple.extend_from_slice(&length.to_le_bytes());
            }
            let end = tuple.len() + part.length as usize;
            tuple.extend_from_slice(value);
            tuple.resize(end, b' ');
        }
        tuple
    }
}

fn column(number: usize, chosen: usize, offset: u32, feed: &mut Feed<'_>) -> PbxtColumn {
    let template = &TEMPLATES[chosen];
    let (name, name_len) = text(NAMES[number].as_bytes());
    let (type_text, type_len) = text(TYPES[chosen].as_bytes());
    PbxtColumn {
        offset,
        length: template.length,
        null_offset: 0,
        null_bit: if feed.once_in(2) { 1 << number } else { 0 },
        kind: template.kind,
        pad: if chosen == 10 { 0 } else { b' ' },
        stored: u8::from(template.kind != 0 || !feed.once_in(8)),
        order: template.order,
        has_default: feed.byte() & 1,
        name,
        name_len,
        type_text,
        type_len,
    }
}

fn part(number: usize, chosen: usize, column: &PbxtColumn, feed: &mut Feed<'_>) -> PbxtKeyPart {
    let template = &TEMPLATES[chosen];
    let context = chosen + 1;
    let nullable = u8::from(column.null_bit != 0);
    PbxtKeyPart {
        column: number as u32,
        length: template.part_length,
        store_length: template.part_length + u32::from(nullable) + u32::from(template.is_var) * 2,
        weight_len: template.part_length,
        encoding: template.encoding,
        nullable,
        descending: u8::from(feed.once_in(3)),
        is_prefix: u8::from(template.is_prefix),
        is_var: u8::from(template.is_var),
        pad_len: 2,
        pad_weight: [0, b' ', 0, 0, 0, 0, 0, 0],
        collation: context as u32,
        ctx: std::ptr::without_provenance::<c_void>(context),
    }
}

/// A value's length as a record has it, in as many bytes as the column counts with.
fn count_of(value: &[u8]) -> [u8; 4] {
    (value.len() as u32).to_le_bytes()
}

fn c_index((index, name): (&MadeIndex, &str)) -> PbxtIndex {
    let (name, name_len) = text(name.as_bytes());
    PbxtIndex {
        name,
        name_len,
        unique: index.unique,
        primary: index.primary,
        part_count: index.parts.len() as u32,
        parts: index.parts.as_ptr(),
        extension_count: index.extension_count,
    }
}

pub(crate) fn c_text(bytes: &[u8]) -> PbxtText {
    let (bytes, len) = text(bytes);
    PbxtText { bytes, len }
}

fn parents_of(reference: &MadeReference) -> impl Iterator<Item = PbxtText> {
    reference
        .parent_columns
        .iter()
        .map(|column| c_text(NAMES[*column].as_bytes()))
}
