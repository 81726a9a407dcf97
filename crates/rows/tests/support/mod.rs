//! Support of the row tests: random tables, their records written and read by a second, plain implementation, and stores for
//! external values.
//!
//! Why it exists:    a codec tested with its own helpers agrees with itself; here every byte of a record is placed by code that
//!                   shares nothing with the crate but the public description of a layout.
#![allow(dead_code, reason = "each test file uses its own part of the support")]

use pbxt_base::Addr;
use pbxt_rows::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// A column's value: None is NULL. Values of padded columns have no trailing padding.
pub(crate) type Cell = Option<Vec<u8>>;

/// A layout with one row of values.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) layout: HostLayout,
    pub(crate) cells: Vec<Cell>,
}

/// One column before it has a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: HostKind,
    pub(crate) nullable: bool,
    pub(crate) stored: bool,
    /// Unused bytes before the field.
    pub(crate) gap: u32,
}

/// Places columns behind their null bytes, whose first bit stays unused as in the hosts we know.
pub(crate) fn place(wishes: &[Wish]) -> HostLayout {
    let null_count = wishes.iter().filter(|wish| wish.nullable).count() as u32;
    let mut offset = (null_count + 1).div_ceil(8);
    let mut null = 0;
    let columns = wishes.iter().map(|wish| {
        offset += wish.gap;
        let (null_offset, null_bit) = if wish.nullable {
            null += 1;
            (null / 8, 1_u8 << (null % 8))
        } else {
            (0, 0)
        };
        let column = HostColumn {
            offset,
            kind: wish.kind,
            null_offset,
            null_bit,
            stored: wish.stored,
        };
        offset += wish.kind.width() as u32;
        column
    });
    let columns: Vec<_> = columns.collect();
    HostLayout::new(offset as usize + 3, columns).expect("columns are placed one behind the other")
}

pub(crate) fn kinds() -> impl Strategy<Value = HostKind> {
    prop_oneof![
        4 => (0_u16..12).prop_map(HostKind::Fixed),
        2 => (0_u16..=255).prop_map(HostKind::Var1),
        2 => prop_oneof![0_u16..700, Just(if cfg!(miri) { 700 } else { 60_000 })].prop_map(HostKind::Var2),
        2 => (1_u8..=4).prop_map(HostKind::Blob),
        2 => (0_u16..40, prop_oneof![Just(b' '), Just(0), any::<u8>()])
            .prop_map(|(len, pad)| HostKind::Padded { len, pad }),
    ]
}

/// Bytes that often contain zeros, spaces and trailing padding.
pub(crate) fn bytes(max: usize) -> BoxedStrategy<Vec<u8>> {
    let byte = prop_oneof![
        Just(0_u8),
        Just(b' '),
        Just(b'a'),
        Just(b'A'),
        Just(0xFF),
        Just(0x1F),
        any::<u8>()
    ];
    let short = prop::collection::vec(byte.boxed(), 0..=max.min(24));
    if max <= 24 || cfg!(miri) {
        return short.boxed();
    }
    let long = (0..=max.min(70_000), any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
    prop_oneof![8 => short, 1 => long].boxed()
}

pub(crate) fn cell(kind: HostKind, nullable: bool) -> BoxedStrategy<Cell> {
    let value = match kind {
        HostKind::Fixed(len) => prop::collection::vec(any::<u8>(), len as usize).boxed(),
        HostKind::Padded { len, pad } => bytes(len as usize)
            .prop_map(move |value| stripped(value, pad))
            .boxed(),
        _ => bytes(kind.value_max()),
    };
    if nullable {
        prop_oneof![1 => Just(None), 3 => value.prop_map(Some)].boxed()
    } else {
        value.prop_map(Some).boxed()
    }
}

pub(crate) fn stripped(mut value: Vec<u8>, pad: u8) -> Vec<u8> {
    while value.last() == Some(&pad) {
        value.pop();
    }
    value
}

/// Random tables of up to `columns` columns with one row.
pub(crate) fn samples(columns: usize) -> impl Strategy<Value = Sample> {
    let wish = (kinds(), any::<bool>(), prop::bool::weighted(0.9), 0_u32..3);
    let wish = wish.prop_map(|(kind, nullable, stored, gap)| Wish {
        kind,
        nullable,
        stored,
        gap,
    });
    prop::collection::vec(wish, 1..columns).prop_flat_map(|wishes| {
        let cells: Vec<_> = wishes.iter().map(|wish| cell(wish.kind, wish.nullable)).collect();
        (Just(place(&wishes)), cells).prop_map(|(layout, cells)| Sample { layout, cells })
    })
}

/// Writes a record the plain way. Blob pointers lead into `cells`, bytes nobody owns are `background`.
pub(crate) fn record_of(layout: &HostLayout, cells: &[Cell], background: u8) -> Vec<u8> {
    let mut record = vec![background; layout.record_length()];
    for (column, cell) in layout.columns().iter().zip(cells) {
        if column.null_bit != 0 {
            let byte = &mut record[column.null_offset as usize];
            *byte = if cell.is_none() {
                *byte | column.null_bit
            } else {
                *byte & !column.null_bit
            };
        }
        let value = cell.as_deref().unwrap_or_default();
        let field = &mut record[column.offset as usize..column.offset as usize + column.kind.width()];
        match column.kind {
            HostKind::Fixed(_) => field[..value.len()].copy_from_slice(value),
            HostKind::Padded { pad, .. } => {
                field.fill(pad);
                field[..value.len()].copy_from_slice(value);
            }
            HostKind::Var1(_) => {
                field[0] = value.len() as u8;
                field[1..=value.len()].copy_from_slice(value);
            }
            HostKind::Var2(_) => {
                field[..2].copy_from_slice(&(value.len() as u16).to_le_bytes());
                field[2..2 + value.len()].copy_from_slice(value);
            }
            HostKind::Blob(bytes) => {
                let (length, pointer) = field.split_at_mut(bytes as usize);
                length.copy_from_slice(&(value.len() as u32).to_le_bytes()[..bytes as usize]);
                pointer.copy_from_slice(&(value.as_ptr().expose_provenance() as u64).to_le_bytes());
            }
        }
    }
    record
}

/// Reads a column the plain way.
pub(crate) fn cell_of(layout: &HostLayout, record: &[u8], column: usize) -> Cell {
    let host = layout.columns()[column];
    if host.null_bit != 0 && record[host.null_offset as usize] & host.null_bit != 0 {
        return None;
    }
    let field = &record[host.offset as usize..host.offset as usize + host.kind.width()];
    Some(match host.kind {
        HostKind::Fixed(_) => field.to_vec(),
        HostKind::Padded { pad, .. } => stripped(field.to_vec(), pad),
        HostKind::Var1(_) => field[1..=field[0] as usize].to_vec(),
        HostKind::Var2(_) => field[2..2 + u16::from_le_bytes([field[0], field[1]]) as usize].to_vec(),
        HostKind::Blob(bytes) => {
            let mut numbers = [[0_u8; 8]; 2];
            numbers[0][..bytes as usize].copy_from_slice(&field[..bytes as usize]);
            numbers[1].copy_from_slice(&field[bytes as usize..]);
            let [len, address] = numbers.map(u64::from_le_bytes);
            if len == 0 {
                return Some(Vec::new());
            }
            // SAFETY: the tests keep the values, arenas and blobs that records point into alive while they read them.
            unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), len as usize)
            }
            .to_vec()
        }
    })
}

/// Wraps a record made by `record_of`, whose cells the caller keeps.
pub(crate) fn host_record(record: &[u8]) -> HostRecord<'_> {
    // SAFETY: `record_of` wrote an exposed pointer and the length of a live cell into every blob field; the layout is the
    // one the tests compile their codecs from.
    unsafe { HostRecord::new(record) }
}

/// Keeps external values in memory and inline ones in an arena.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) blobs: HashMap<u64, Vec<u8>>,
    pub(crate) arena: InlineArena,
}

impl Store {
    /// Stores what a plan chose.
    pub(crate) fn put(&mut self, plan: &[LargeValue<'_>]) -> Vec<External> {
        let mut put = |large: &LargeValue<'_>| {
            let addr = self.blobs.len() as u64 + 1;
            self.blobs.insert(addr, large.value.to_vec());
            let blob = BlobRef {
                addr: Addr::new(addr),
                len: large.value.len() as u64,
                hash: !addr,
            };
            External {
                column: large.column,
                blob,
            }
        };
        plan.iter().map(&mut put).collect()
    }
}

impl BlobSink for Store {
    fn keep(&mut self, _column: usize, value: &[u8]) -> *const u8 {
        self.arena.copy(value)
    }

    fn load(&mut self, _column: usize, blob: &BlobRef) -> Result<&[u8]> {
        let missing = Error::Corrupt {
            image: "test store",
            offset: 0,
            expected: "a stored blob",
            found: blob.addr.raw(),
        };
        self.blobs.get(&blob.addr.raw()).map(Vec::as_slice).ok_or(missing)
    }
}

pub(crate) mod keys;

pub(crate) mod blocks;
