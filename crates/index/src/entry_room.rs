//! `EntryRoom`: memory for one entry of a packed block at a time.
//!
//! Why it exists:    a packed block has no entry that could be lent out. Who reads it has room for one, where the entry at its
//!                   position is put together; what all entries of the block have in common is written once a block.
//! Format / state:   an entry as [`crate::entry`] has it, and `SPARE` bytes more, so that a short end of a key is copied as a block.
//! Rules:            X2, X38: a view of the room is lent out under a borrow of whoever holds the room and is given up before the next
//!                   entry is shown.
//! Latches and I/O:  none; a room belongs to one reader.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use pbxt_base::{Lsn, RowId, TxnId, invariant};

use crate::entry::{EntryView, KEY_AT, KEY_BYTES_MAX, NewEntry, Sign};

/// Bytes beyond the end of a cell that may be read, and beyond that of an entry that may be written.
pub(crate) const SPARE: usize = 16;

/// Eight bytes of an entry. Views reach the flags in them as atomics, hence the cell.
pub(crate) type Word = MaybeUninit<UnsafeCell<u64>>;
pub(crate) const WORD: usize = size_of::<Word>();

/// See the module.
#[derive(Default)]
pub struct EntryRoom {
    /// A vector, not a box: views stay good when the room itself is moved.
    memory: Vec<Word>,
    /// Bytes of the entry before its cell.
    cell_at: usize,
}

// SAFETY: the memory is written only through an exclusive reference; a shared one gives views, whose flags nobody sets.
unsafe impl Sync for EntryRoom {}

/// What all entries of a packed block have in common.
pub(crate) struct Common<'b> {
    /// Bytes that all keys begin with.
    pub(crate) prefix: &'b [u8],
    pub(crate) stamp: (TxnId, Lsn),
    /// Most bytes that the rest of a key and its unpack information take.
    pub(crate) cell_bytes_max: usize,
}

/// What one entry has of its own.
#[derive(Clone, Copy)]
pub(crate) struct Own<'b> {
    pub(crate) row: u64,
    /// The rest of the key, unpack information, and at least `SPARE` bytes more.
    pub(crate) cell: &'b [u8],
    pub(crate) tail: u16,
    pub(crate) unpack: u16,
    pub(crate) is_dead: bool,
}

impl EntryRoom {
    /// Writes what all entries of a block have in common; entries of that block can be shown then.
    pub(crate) fn begin(&mut self, common: &Common<'_>) {
        invariant!(
            common.prefix.len() <= KEY_BYTES_MAX,
            "X38: a block's prefix is part of a key"
        );
        let first = NewEntry {
            key: common.prefix,
            row: RowId::new(0),
            txn: common.stamp.0,
            lsn: common.stamp.1,
            sign: Sign::Entry,
            unpack: &[],
        };
        let words = (first.bytes() + common.cell_bytes_max + SPARE).div_ceil(WORD);
        if self.memory.len() < words {
            self.memory.resize_with(words, MaybeUninit::uninit);
        }
        self.cell_at = first.bytes();
        // SAFETY: the memory is 8-aligned, longer than the entry, and nobody else knows it.
        unsafe { first.write(NonNull::from(self.memory.as_mut_slice()).cast()) };
    }

    /// Puts an entry of the block that `begin` was called for together.
    #[inline]
    pub(crate) fn show(&mut self, own: Own<'_>) -> EntryView<'_> {
        let Own {
            row,
            cell,
            tail,
            unpack,
            is_dead,
        } = own;
        let bytes = usize::from(tail) + usize::from(unpack);
        invariant!(
            self.cell_at + bytes + SPARE <= self.memory.len() * WORD && bytes + SPARE <= cell.len(),
            "X38: a room was made for the greatest entry of the block"
        );
        let key_len = self.cell_at - KEY_AT + usize::from(tail);
        let room = NonNull::from(self.memory.as_mut_slice()).cast::<u8>();
        // SAFETY: room and cell have the entry's bytes and `SPARE` more, checked above; nobody holds a view of the room, which is
        // borrowed exclusively.
        unsafe {
            NewEntry::write_own(room, row, key_len, unpack, is_dead);
            let from = NonNull::from(cell).cast::<u8>();
            let to = room.add(self.cell_at);
            if bytes <= SPARE {
                to.cast::<[u8; SPARE]>().write(from.cast::<[u8; SPARE]>().read());
            } else {
                to.copy_from_nonoverlapping(from, bytes);
            }
            // `begin` and the lines above wrote an entry at the start of the memory; it changes only under another exclusive borrow.
            EntryView::new(room)
        }
    }
}

impl std::fmt::Debug for EntryRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryRoom")
            .field("bytes", &(self.memory.len() * WORD))
            .finish_non_exhaustive()
    }
}
