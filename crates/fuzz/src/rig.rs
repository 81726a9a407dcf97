//! Rig: the columns and indexes that rows and keys of the targets have.
//!
//! Why it exists: payloads and keys say nothing without a layout; this one has a column of every kind and a part of every
//! encoding.

use pbxt_rows::{
    HostColumn, HostKind, HostLayout, KeyEncoding, KeyMaker, KeyPart, KeySpec, Result, RowCodec, Schema,
    Weigher, WeightScheme,
};

/// Columns: where each is held and how it is compared.
const COLUMNS: [(HostKind, KeyEncoding, u32); 11] = [
    (HostKind::Fixed(4), KeyEncoding::Int, 4),
    (HostKind::Fixed(8), KeyEncoding::Uint, 8),
    (HostKind::Fixed(4), KeyEncoding::F32, 4),
    (HostKind::Fixed(8), KeyEncoding::F64, 8),
    (HostKind::Fixed(5), KeyEncoding::Raw, 5),
    (HostKind::Var1(20), KeyEncoding::VarBinary, 20),
    (HostKind::Var2(300), NO_PAD, 300),
    (HostKind::Blob(2), KeyEncoding::VarBinary, 12),
    (HostKind::Padded { len: 10, pad: b' ' }, PAD_SPACE, 10),
    (HostKind::Blob(4), NO_PAD, 9),
    (HostKind::Padded { len: 6, pad: 0 }, KeyEncoding::Raw, 6),
];
const NO_PAD: KeyEncoding = KeyEncoding::Host {
    collation: 1,
    scheme: WeightScheme::NoPad,
};
const PAD_SPACE: KeyEncoding = KeyEncoding::Host {
    collation: 2,
    scheme: WeightScheme::PadSpace {
        weight: [0, b' ', 0, 0, 0, 0, 0, 0],
        len: 2,
    },
};
/// Columns whose keys hold only the beginning of a value.
const CUT: [usize; 2] = [7, 9];

/// A collation without case.
pub(crate) struct Capitals;

impl Weigher for Capitals {
    fn weights(&self, part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        let (number, limit) = (part_ctx % COLUMNS.len(), part_ctx / COLUMNS.len());
        let of_two = matches!(COLUMNS[number].0, HostKind::Padded { .. });
        for byte in src.iter().take(limit) {
            if of_two {
                out.push(0);
            }
            out.push(byte.to_ascii_uppercase());
        }
    }
}

/// The layout; every second column may be NULL.
pub(crate) fn layout() -> Result<HostLayout> {
    let mut offset = 2;
    let columns = COLUMNS.iter().enumerate().map(|(number, (kind, ..))| {
        let column = HostColumn {
            offset,
            kind: *kind,
            null_offset: (number / 2 + 1) as u32 / 8,
            null_bit: if number % 2 == 1 {
                1 << ((number / 2 + 1) % 8)
            } else {
                0
            },
            stored: true,
        };
        offset += width(*kind);
        column
    });
    let columns = columns.collect();
    HostLayout::new(offset as usize, columns)
}

fn width(kind: HostKind) -> u32 {
    match kind {
        HostKind::Fixed(bytes) | HostKind::Padded { len: bytes, .. } => u32::from(bytes),
        HostKind::Var1(bytes) => 1 + u32::from(bytes),
        HostKind::Var2(bytes) => 2 + u32::from(bytes),
        HostKind::Blob(bytes) => u32::from(bytes) + 8,
    }
}

/// The stored columns.
pub(crate) fn schema() -> Result<Schema> {
    layout()?.schema(1)
}

/// The codec of the rows.
pub(crate) fn codec() -> Result<RowCodec> {
    RowCodec::new(schema()?, layout()?)
}

/// An index of some of the columns, chosen by the bits of `wanted`, of descending ones by those of `descending`.
pub(crate) fn key_maker(wanted: u16, descending: u16, unpack: bool) -> Result<KeyMaker> {
    let is_wanted = |number: &usize| wanted >> number & 1 == 1;
    let numbers: Vec<usize> = (0..COLUMNS.len()).filter(is_wanted).collect();
    let parts = numbers.iter().map(|&number| KeyPart {
        column: number as u16,
        length: COLUMNS[number].2,
        prefix: CUT.contains(&number),
        nullable: number % 2 == 1,
        descending: descending >> number & 1 == 1,
        encoding: COLUMNS[number].1,
    });
    let spec = KeySpec::new(parts.collect(), unpack)?;
    let limits = numbers.iter().map(|&number| {
        let limit = if CUT.contains(&number) {
            COLUMNS[number].2 as usize
        } else {
            usize::from(u16::MAX)
        };
        number + COLUMNS.len() * limit
    });
    KeyMaker::new(&spec, &layout()?, &limits.collect::<Vec<_>>())
}
