//! A decoded run block.
//!
//! Why it exists:    readers merge trees and runs. If the entries of both look alike, a merge compares and hands out one
//!                   type, and a block that is read a thousand times is decoded once.
//! Format / state:   stored: `docs/indexes.md`, run blocks; decoded: packed, if all entries have one stamp, else wide.
//! Rules:            X1, X2 (entries never change, except that DEAD is set), X30 damage is an error and nothing is
//!                   guessed, X31 in a tagged run each entry gets the run's stamp, X38 which blocks are packed.
//! Latches and I/O:  none. DEAD is a hint that dies with the cached block.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use pbxt_base::codec::Reader;
use pbxt_base::{Lsn, Result, TxnId};
use pbxt_segment::ShelfPlace;

use crate::columns::damaged;
use crate::entry::EntryView;
use crate::entry_room::EntryRoom;
use crate::packed_block::{PackedBlock, PackedBuilder};
use crate::run_decode::Columns;
use crate::seek::SeekPos;
use crate::wide_block::{WideBlock, WideBuilder};

/// Decoded entries of one block of a run, in the order of the index.
pub struct RunBlock {
    form: Form,
    len: usize,
    dead: AtomicU32,
    shelf_place: ShelfPlace,
}

enum Form {
    Packed(PackedBlock),
    Wide(WideBlock),
}

impl RunBlock {
    /// Entries of stored bytes. `tag` is the stamp of a tagged run.
    ///
    /// # Errors
    /// `Corrupt` without a file name, if the bytes are not those of a run block.
    pub fn decode(bytes: &[u8], tag: Option<(TxnId, Lsn)>) -> Result<RunBlock> {
        let mut reader = Reader::new(bytes);
        let columns = Columns::read(&mut reader)?;
        if !reader.rest().is_empty() {
            let left = format!("{} bytes more", reader.rest().len());
            return Err(damaged(&reader, "the end of the block", &left));
        }
        let bytes = columns.memory_bytes(&reader)?;
        let form = if columns.have_one_stamp(tag.is_some()) {
            let stamp = tag.unwrap_or((TxnId::new(0), Lsn::new(0)));
            if let Some(packed) = columns.packed_numbers(&reader, stamp)? {
                Form::Packed(packed)
            } else {
                let mut builder = PackedBuilder::new(bytes, columns.entries);
                columns.each(&reader, tag, |entry| builder.push(entry))?;
                let packed = builder.finish();
                Form::Packed(packed.ok_or_else(|| damaged(&reader, "keys in order", "another order"))?)
            }
        } else {
            let mut builder = WideBuilder::new(bytes, columns.entries);
            columns.each(&reader, tag, |entry| builder.push(entry))?;
            Form::Wide(builder.finish())
        };
        Ok(RunBlock {
            form,
            len: columns.entries,
            dead: AtomicU32::new(0),
            shelf_place: ShelfPlace::default(),
        })
    }

    /// Where it stands beside the cache.
    pub(crate) fn shelf_place(&self) -> &ShelfPlace {
        &self.shelf_place
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no entry; a block that was read has one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entry `index`, in the block or put together in `room`.
    ///
    /// # Panics
    /// Beyond the last entry.
    pub fn entry<'a>(&'a self, index: usize, room: &'a mut EntryRoom) -> EntryView<'a> {
        self.hold(room);
        self.show(index, room)
    }

    /// Makes `room` one for entries of this block.
    pub(crate) fn hold(&self, room: &mut EntryRoom) {
        if let Form::Packed(block) = &self.form {
            block.hold(room);
        }
    }

    /// Entry `index`, in a room that holds this block.
    #[inline]
    pub(crate) fn show<'a>(&'a self, index: usize, room: &'a mut EntryRoom) -> EntryView<'a> {
        match &self.form {
            Form::Packed(block) => {
                let is_dead = self.has_dead() && block.is_dead(index);
                block.show(index, is_dead, room)
            }
            Form::Wide(block) => block.entry(index),
        }
    }

    /// As `show`, for who has just found that the entry is not dead.
    #[inline]
    pub(crate) fn show_live<'a>(&'a self, index: usize, room: &'a mut EntryRoom) -> EntryView<'a> {
        match &self.form {
            Form::Packed(block) => block.show(index, false, room),
            Form::Wide(block) => block.entry(index),
        }
    }

    /// The block if all entries have one stamp and put rows under their keys: so there is one of a key and row (rule X38).
    #[inline]
    pub(crate) fn packed(&self) -> Option<&PackedBlock> {
        match &self.form {
            Form::Packed(block) => Some(block),
            Form::Wide(_) => None,
        }
    }

    /// True if entry `index` has exactly this key.
    pub(crate) fn has_key(&self, index: usize, key: &[u8]) -> bool {
        match &self.form {
            Form::Packed(block) => block.has_key(index, key),
            Form::Wide(block) => block.entry(index).key() == key,
        }
    }

    /// True if entry `index` lies left of the cut.
    pub(crate) fn lies_left(&self, index: usize, pos: &SeekPos<'_>) -> bool {
        match &self.form {
            Form::Packed(block) => block.lies_left(index, pos),
            Form::Wide(block) => pos.is_right_of(block.entry(index)),
        }
    }

    /// Number of entries left of the cut.
    pub fn partition_point(&self, pos: &SeekPos<'_>) -> usize {
        match &self.form {
            Form::Packed(block) => block.partition_point(pos),
            Form::Wide(block) => block.partition_point(pos),
        }
    }

    /// The same, if there are entries of the block on both sides.
    pub(crate) fn cut_inside(&self, pos: &SeekPos<'_>) -> Option<usize> {
        match &self.form {
            Form::Packed(block) => block.cut_inside(pos),
            Form::Wide(block) => {
                let last = block.entry(self.len - 1);
                let is_inside = pos.is_right_of(block.entry(0)) && !pos.is_right_of(last);
                is_inside.then(|| block.partition_point(pos))
            }
        }
    }

    /// Marks entry `index` dead, as a hint to those who read this copy of the block.
    pub fn mark_dead(&self, index: usize) {
        let is_new = match &self.form {
            Form::Packed(block) => block.set_dead(index),
            Form::Wide(block) => block.entry(index).set_dead(),
        };
        if is_new {
            self.dead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if entry `index` is marked dead.
    pub fn is_dead(&self, index: usize) -> bool {
        match &self.form {
            Form::Packed(block) => block.is_dead(index),
            Form::Wide(block) => block.entry(index).is_dead(),
        }
    }

    /// True if some entry is marked dead.
    #[inline]
    pub fn has_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) > 0
    }

    /// True if every entry is marked dead.
    pub fn is_all_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) as usize == self.len()
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let entries = match &self.form {
            Form::Packed(block) => block.memory_bytes(),
            Form::Wide(block) => block.memory_bytes(),
        };
        size_of::<RunBlock>() + entries
    }
}

impl fmt::Debug for RunBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBlock")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "run_block_tests.rs"]
mod tests;
