//! Ids: newtypes for every number that names something, and the address of a version.
//!
//! Why it exists: a bare u64 passed for another compiles; a newtype does not.
//! Format: `Addr` is the only packed one, docs/format.md#addresses.
//! Rules: F1 hot positions are LSN / 8; other classes are segment and offset / 8. F2 no id is ever reused.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($raw);

        impl $name {
            /// From its number.
            #[inline]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// From its number as stored.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// Its number.
            #[inline]
            pub const fn raw(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id! {
    /// Names a transaction; 0 means none. Rising in order of begin.
    TxnId(u64)
}
id! {
    /// Byte position in the hot log; a multiple of 8; only grows.
    Lsn(u64)
}
id! {
    /// Names a row of one table generation; 48 bits, from 1.
    RowId(u64)
}
id! {
    /// Names one generation of a table.
    TableId(u32)
}
id! {
    /// Names an index.
    IndexId(u32)
}
id! {
    /// Names a segment; 29 bits, from 1.
    SegmentId(u32)
}
id! {
    /// Place of a commit in the order of commits; 0 is before everything.
    CommitTs(u64)
}

/// Kind of store an address leads into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddrClass {
    /// Hot log: the position is an LSN.
    Hot,
    /// Compressed row blocks.
    Cold,
    /// Index and map runs.
    Meta,
    /// Large values.
    Blob,
}

/// Address of a version or value: 58 bits, class (2) and position (56).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(u64);

impl Addr {
    /// Bits of an address; the bits above belong to the row map word.
    pub const BITS: u32 = 58;
    /// No predecessor.
    pub const NONE: Self = Self(0);
    /// The row's newest settled version, as named by the map's base layer.
    pub const BASE: Self = Self((1 << Self::BITS) - 1);

    const CLASS_SHIFT: u32 = 56;
    const POSITION_MASK: u64 = (1 << Self::CLASS_SHIFT) - 1;
    const OFFSET_BITS: u32 = 27;

    /// From its bits.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// From its bits as stored.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Its bits.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Address of the log record at `lsn`.
    #[inline]
    pub const fn hot(lsn: Lsn) -> Self {
        Self(lsn.raw() / 8)
    }

    /// Address in a segment of another class; `offset` is a multiple of 8 below 1 GiB.
    #[inline]
    pub const fn in_segment(class: AddrClass, segment: SegmentId, offset: u64) -> Self {
        let class = match class {
            AddrClass::Hot => 0,
            AddrClass::Cold => 1,
            AddrClass::Meta => 2,
            AddrClass::Blob => 3,
        };
        Self((class << Self::CLASS_SHIFT) | ((segment.raw() as u64) << Self::OFFSET_BITS) | (offset / 8))
    }

    /// The store it leads into.
    #[inline]
    pub const fn class(self) -> AddrClass {
        match (self.0 >> Self::CLASS_SHIFT) & 3 {
            0 => AddrClass::Hot,
            1 => AddrClass::Cold,
            2 => AddrClass::Meta,
            _ => AddrClass::Blob,
        }
    }

    /// LSN of a hot address.
    #[inline]
    pub const fn lsn(self) -> Lsn {
        Lsn::new((self.0 & Self::POSITION_MASK) * 8)
    }

    /// Segment of an address of another class.
    #[inline]
    pub const fn segment(self) -> SegmentId {
        SegmentId::new(((self.0 & Self::POSITION_MASK) >> Self::OFFSET_BITS) as u32)
    }

    /// Byte offset in the segment of an address of another class.
    #[inline]
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << Self::OFFSET_BITS) - 1)) * 8
    }

    /// True for the address of no version.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::BASE => f.write_str("base"),
            hot if hot.class() == AddrClass::Hot => write!(f, "hot@{}", hot.lsn()),
            other => write!(f, "{:?} {}@{}", other.class(), other.segment(), other.offset()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_bits_are_as_the_format_says() {
        assert_eq!(Addr::hot(Lsn::new(0x1_0000_0040)).raw(), 0x2000_0008);
        assert_eq!(Addr::hot(Lsn::new(0x1_0000_0040)).lsn().raw(), 0x1_0000_0040);
        let blob = Addr::in_segment(AddrClass::Blob, SegmentId::new(7), 4096);
        assert_eq!(blob.raw(), (3 << 56) | (7 << 27) | 512);
        assert_eq!(
            (blob.class(), blob.segment(), blob.offset()),
            (AddrClass::Blob, SegmentId::new(7), 4096)
        );
        assert_eq!(Addr::BASE.raw(), (1 << 58) - 1);
    }
}
