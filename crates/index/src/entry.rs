//! Entries: what an index event looks like in the arena.
//!
//! Why it exists:    an index event is (key, row id, sign, transaction id, LSN, unpack information). It is written once
//!                   and read by anyone at any time, so everything but one flag byte is fixed before publication.
//! Format / state:   offset 0 row id (48 bits) | key length (16), 8 transaction id, 16 LSN, 24 unpack length (16),
//!                   26 sign, 27 flags (atomic), 28 key bytes, then unpack bytes. Memory only, native byte order.
//! Rules:            X1 order is (key bytes, row id, LSN, sign); X2 published entries do not change, except that flags
//!                   are set and never cleared.
//! Latches and I/O:  none here; DEAD is set under the latch of the leaf that holds the entry (X7).

use std::cmp::Ordering as Order;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use pbxt_base::{Lsn, RowId, TxnId, invariant};

/// Longest key, and longest unpack information, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

const TXN_AT: usize = 8;
const LSN_AT: usize = 16;
const UNPACK_LEN_AT: usize = 24;
const SIGN_AT: usize = 26;
const FLAGS_AT: usize = 27;
pub(crate) const KEY_AT: usize = 28;
pub(crate) const ROW_BITS: u32 = 48;

/// The entry is resolved as dead for everyone; scans leave it out.
const DEAD: u8 = 1;

/// Whether an index event puts a row under a key or takes it away.
///
/// At equal LSN the entry wins over the anti-entry, so it sorts after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Sign {
    /// From here on the row is not under this key.
    Anti = 0,
    /// From here on the row is under this key.
    Entry = 1,
}

/// Names an entry of one tree, as long as that tree lives. Useless with another tree, which refuses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRef {
    pub(crate) tree: u64,
    pub(crate) place: u32,
}

/// Content of a new entry.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) row: RowId,
    pub(crate) txn: TxnId,
    pub(crate) lsn: Lsn,
    pub(crate) sign: Sign,
    pub(crate) unpack: &'a [u8],
}

impl EntryRef {
    /// The tree it belongs to, as [`crate::Tree::id`] has it.
    pub fn tree_id(self) -> u64 {
        self.tree
    }
}

impl NewEntry<'_> {
    /// Bytes the entry takes in the arena.
    pub(crate) fn bytes(&self) -> usize {
        KEY_AT + self.key.len() + self.unpack.len()
    }

    /// Writes the entry; afterwards it may be published, and nothing but its flags ever changes.
    ///
    /// # Safety
    /// `room` is 8-aligned, `self.bytes()` long and known to no other thread.
    pub(crate) unsafe fn write(&self, room: NonNull<u8>) {
        invariant!(
            self.key.len() <= KEY_BYTES_MAX && self.unpack.len() <= KEY_BYTES_MAX,
            "X2: lengths fit 16 bits"
        );
        invariant!(self.row.raw() >> ROW_BITS == 0, "X2: a row id is 48 bits");
        // SAFETY: all offsets lie within `self.bytes()`; the 8-byte fields are at multiples of 8, the length at an
        // even offset; the caller owns the room.
        unsafe {
            room.cast::<u64>()
                .write(self.row.raw() | (self.key.len() as u64) << ROW_BITS);
            room.add(TXN_AT).cast::<u64>().write(self.txn.raw());
            room.add(LSN_AT).cast::<u64>().write(self.lsn.raw());
            room.add(UNPACK_LEN_AT)
                .cast::<u16>()
                .write(self.unpack.len() as u16);
            room.add(SIGN_AT).write(self.sign as u8);
            room.add(FLAGS_AT).cast::<AtomicU8>().write(AtomicU8::new(0));
            let key = room.add(KEY_AT);
            key.copy_from_nonoverlapping(NonNull::from(self.key).cast(), self.key.len());
            key.add(self.key.len())
                .copy_from_nonoverlapping(NonNull::from(self.unpack).cast(), self.unpack.len());
        }
    }
}

impl NewEntry<'_> {
    /// Writes over what an entry has of its own: row, lengths and flags. Sign, transaction, LSN and key stay.
    ///
    /// # Safety
    /// `room` is the start of an entry that was written, is longer than that of this key and unpack information, and nobody has a
    /// view of it.
    #[inline]
    pub(crate) unsafe fn write_own(room: NonNull<u8>, row: u64, key_len: usize, unpack: u16, is_dead: bool) {
        let flags = if is_dead { DEAD } else { 0 };
        // SAFETY: as in `write`, in a room that the caller owns.
        unsafe {
            room.cast::<u64>().write(row | (key_len as u64) << ROW_BITS);
            room.add(UNPACK_LEN_AT).cast::<u16>().write(unpack);
            room.add(FLAGS_AT).cast::<AtomicU8>().write(AtomicU8::new(flags));
        }
    }
}

/// A published entry, of a tree or of a decoded run block. Valid as long as that is borrowed.
#[derive(Clone, Copy)]
pub struct EntryView<'t> {
    at: NonNull<u8>,
    tree: PhantomData<&'t [u8]>,
}

// SAFETY: a view is a shared reference to bytes that never change, but for flags that are atomic (X2).
unsafe impl Send for EntryView<'_> {}
// SAFETY: as above.
unsafe impl Sync for EntryView<'_> {}

impl<'t> EntryView<'t> {
    /// # Safety
    /// `at` is the start of an entry written with [`NewEntry::write`], that write happened before this call, and the
    /// arena stays for `'t`.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<u8>) -> EntryView<'t> {
        EntryView {
            at,
            tree: PhantomData,
        }
    }

    /// The same view without the borrow.
    ///
    /// # Safety
    /// The caller keeps the tree or block alive as long as it keeps the view, and hands it out under a borrow of itself only.
    #[inline]
    pub(crate) unsafe fn detached(self) -> EntryView<'static> {
        EntryView {
            at: self.at,
            tree: PhantomData,
        }
    }

    #[inline]
    fn word(self, offset: usize) -> u64 {
        // SAFETY: only called with the offsets of the three 8-byte fields, which never change after publication.
        unsafe { self.at.add(offset).cast::<u64>().read() }
    }

    #[inline]
    fn bytes(self, offset: usize, len: usize) -> &'t [u8] {
        // SAFETY: only called with the ranges of key and unpack bytes as written; they never change (X2) and live as
        // long as the arena (X3).
        unsafe { NonNull::slice_from_raw_parts(self.at.add(offset), len).as_ref() }
    }

    #[inline]
    fn key_len(self) -> usize {
        (self.word(0) >> ROW_BITS) as usize
    }

    /// Key bytes; they compare as the index orders.
    #[inline]
    pub fn key(self) -> &'t [u8] {
        self.bytes(KEY_AT, self.key_len())
    }

    /// Row the event is about.
    #[inline]
    pub fn row(self) -> RowId {
        RowId::new(self.word(0) & ((1 << ROW_BITS) - 1))
    }

    /// Transaction that made the event.
    #[inline]
    pub fn txn(self) -> TxnId {
        TxnId::new(self.word(TXN_AT))
    }

    /// End of the log when the event was made.
    #[inline]
    pub fn lsn(self) -> Lsn {
        Lsn::new(self.word(LSN_AT))
    }

    /// Whether the row comes under the key or leaves it.
    #[inline]
    pub fn sign(self) -> Sign {
        // SAFETY: the byte at this offset was written before publication and never changes.
        if unsafe { self.at.add(SIGN_AT).read() } == 0 {
            Sign::Anti
        } else {
            Sign::Entry
        }
    }

    /// What turns the key bytes back into the values the user stored; empty if they need no help.
    #[inline]
    pub fn unpack(self) -> &'t [u8] {
        // SAFETY: an even offset of an 8-aligned entry, written before publication.
        let len = unsafe { self.at.add(UNPACK_LEN_AT).cast::<u16>().read() };
        self.bytes(KEY_AT + self.key_len(), usize::from(len))
    }

    #[inline]
    fn flags(self) -> &'t AtomicU8 {
        // SAFETY: the flags byte was written as an AtomicU8 and is only ever reached as one.
        unsafe { self.at.add(FLAGS_AT).cast::<AtomicU8>().as_ref() }
    }

    /// True if the entry was marked dead: nobody can see what it stands for any more.
    #[inline]
    pub fn is_dead(self) -> bool {
        // Relaxed: a late view of the flag costs a look at the row, never an answer.
        self.flags().load(Ordering::Relaxed) & DEAD != 0
    }

    /// Sets DEAD; false if it stood already. The caller holds the latch of the entry's leaf (X7).
    pub(crate) fn set_dead(self) -> bool {
        self.flags().fetch_or(DEAD, Ordering::Relaxed) & DEAD == 0
    }

    /// Order of the index (X1).
    #[inline]
    pub fn order(self, other: EntryView<'_>) -> Order {
        self.key()
            .cmp(other.key())
            .then_with(|| self.event().cmp(&other.event()))
    }

    /// What orders entries of one key.
    #[inline]
    pub(crate) fn event(self) -> (RowId, Lsn, Sign) {
        (self.row(), self.lsn(), self.sign())
    }
}

impl fmt::Debug for EntryView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key())
            .field("row", &self.row())
            .field("txn", &self.txn())
            .field("lsn", &self.lsn())
            .field("sign", &self.sign())
            .field("dead", &self.is_dead())
            .finish_non_exhaustive()
    }
}
