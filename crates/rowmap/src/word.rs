//! One word of the row map: the address of a row's newest version and two tag bits.
//!
//! Format / state:   bits 0..58 address (`pbxt_base::Addr`), bit 58 LOCKED, bit 59 TOMBSTONE, bits 60..63 reserved
//!                   and zero. The address 0 means BASE: no version in the log is linked, ask the row shape of the table
//!                   (which may not know the row either). Bit 63 stands alone in the words of a leaf that is being given
//!                   back (rule M3) and is 0 for every reader.
//! Rules:            TOMBSTONE repeats what the newest version's log record says, so that a scan needs no read to
//!                   pass over a deleted row; it never stands without an address. LOCKED says "ask the table of
//!                   explicit row locks before you swap this word"; it may stand on any word.

use std::fmt;

use pbxt_base::Addr;

use crate::radix::SEALED;

const ADDR_BITS: u32 = 58;
const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;
pub(crate) const LOCKED: u64 = 1 << 58;
const TOMBSTONE: u64 = 1 << 59;

/// Content of a row map word. A plain value: compare-and-swap happens in [`crate::RowMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct MapWord(u64);

impl MapWord {
    /// No version in the log is linked under this row id: ask the row shape.
    pub const ABSENT: MapWord = MapWord(0);

    /// Word that names a live version, without tags.
    #[inline]
    pub fn version(addr: Addr) -> MapWord {
        MapWord(addr.raw() & ADDR_MASK)
    }

    /// Word that names a version which says "deleted".
    #[inline]
    pub fn tombstone(addr: Addr) -> MapWord {
        MapWord(addr.raw() & ADDR_MASK | TOMBSTONE)
    }

    /// A word as loaded from a leaf; a sealed one reads as 0.
    #[inline]
    pub const fn from_raw(raw: u64) -> MapWord {
        MapWord(raw & !SEALED)
    }

    /// All 64 bits.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Address of the newest version; `Addr::NONE` if none is linked.
    #[inline]
    pub fn addr(self) -> Addr {
        Addr::new(self.0 & ADDR_MASK)
    }

    /// True if no version in the log is linked: the row is as the table's row shape says, or absent if that does not know
    /// it. Such a row may be LOCKED all the same.
    #[inline]
    pub const fn is_absent(self) -> bool {
        self.0 & ADDR_MASK == 0
    }

    /// True if the newest version says "deleted".
    #[inline]
    pub const fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// True if an explicit lock on this row stands in the lock table.
    #[inline]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// The same word with LOCKED set.
    #[inline]
    #[must_use]
    pub const fn with_lock(self) -> MapWord {
        MapWord(self.0 | LOCKED)
    }

    /// The same word with LOCKED clear.
    #[inline]
    #[must_use]
    pub const fn without_lock(self) -> MapWord {
        MapWord(self.0 & !LOCKED)
    }

    /// `self` with the LOCKED bit of `other`: a new head must not take a lock bit away.
    #[inline]
    #[must_use]
    pub const fn keeping_lock_of(self, other: MapWord) -> MapWord {
        MapWord(self.0 & !LOCKED | other.0 & LOCKED)
    }
}

impl fmt::Debug for MapWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_absent() {
            f.write_str("absent")?;
        } else {
            write!(f, "{:?}", self.addr())?;
        }
        if self.is_tombstone() {
            f.write_str(" tombstone")?;
        }
        if self.is_locked() {
            f.write_str(" locked")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_layout_is_as_the_format_says() {
        let addr = Addr::new(0x0123_4567_89ab_cdef & ADDR_MASK);
        assert_eq!(MapWord::version(addr).raw(), 0x0123_4567_89ab_cdef);
        assert_eq!(MapWord::version(addr).with_lock().raw(), 0x0523_4567_89ab_cdef);
        assert_eq!(MapWord::tombstone(addr).raw(), 0x0923_4567_89ab_cdef);
        assert_eq!(MapWord::tombstone(addr).with_lock().raw(), 0x0d23_4567_89ab_cdef);
        assert_eq!(MapWord::version(Addr::BASE).raw(), 0x03ff_ffff_ffff_ffff);
        assert_eq!(MapWord::version(Addr::NONE), MapWord::ABSENT);
        assert_eq!(MapWord::ABSENT.raw(), 0);
    }

    #[test]
    fn tags_and_address_do_not_disturb_each_other() {
        let addr = Addr::new(77);
        let word = MapWord::tombstone(addr).with_lock();
        assert!(word.is_locked() && word.is_tombstone() && !word.is_absent());
        assert_eq!(word.addr(), addr);
        assert_eq!(word.without_lock(), MapWord::tombstone(addr));
        assert!(MapWord::ABSENT.with_lock().is_absent());
        assert_eq!(
            MapWord::version(addr).keeping_lock_of(word),
            MapWord::version(addr).with_lock()
        );
        assert_eq!(word.keeping_lock_of(MapWord::ABSENT), MapWord::tombstone(addr));
    }
}
