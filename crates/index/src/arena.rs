//! The arena of a tree: entries and nodes lie here, from first use until the whole tree is dropped.
//!
//! Why it exists:    an optimistic reader may follow a reference that a writer has just replaced. If nothing is freed
//!                   before the tree is, such a reference still leads to valid memory, and no reader ever announces
//!                   itself (rule X3). One bump of a word per entry is also all an insert pays for memory.
//! Format / state:   a place is a 32-bit number of 8-byte units, never 0, so a tree reaches 32 GiB. Blocks double from
//!                   512 bytes to 4 MiB, then stay at 4 MiB. With the first block starting at unit 64, the number of
//!                   the leading bit of a place is its block, up to unit 2^19; above, block = place / 2^19.
//! Rules:            X2 what is handed out is written by its owner alone until published, X3 nothing is freed early.
//! Latches and I/O:  none; two threads that need the same new block both allocate, and one gives its copy back.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pbxt_base::invariant;

use crate::sync::prefetch;

/// Bytes per unit of a place.
pub(crate) const UNIT_BYTES: usize = 8;
const FIRST_PLACE_LOG2: u32 = 6;
const LARGE_UNITS_LOG2: u32 = 19;
const LARGE_UNITS: u64 = 1 << LARGE_UNITS_LOG2;
const SMALL_BLOCKS: usize = (LARGE_UNITS_LOG2 - FIRST_PLACE_LOG2) as usize;
/// Number of 4 MiB blocks a 32-bit place can name; block 0 of these is the span of all small ones.
const LARGE_BLOCKS: usize = 1 << (u32::BITS - LARGE_UNITS_LOG2);
/// Nodes start on a cache line, so blocks do.
const BLOCK_ALIGN: usize = 64;
/// Entries are refused here, so that the splits of those already inside find room for their nodes.
const ENTRY_PLACE_MAX: u64 = (1 << 32) - 32 * LARGE_UNITS;

/// Append-only memory of one tree.
pub(crate) struct Arena {
    /// High half: first free place. Low half: entries handed out. One word, so that counting costs nothing extra.
    tail: AtomicU64,
    small: [AtomicPtr<u8>; SMALL_BLOCKS],
    large: OnceLock<Box<[AtomicPtr<u8>]>>,
}

/// Which block a place lies in, and how many units into it.
struct Spot {
    block: Block,
    units_in: u64,
}

#[derive(Clone, Copy)]
enum Block {
    Small(usize),
    Large(usize),
}

impl Block {
    fn units(self) -> u64 {
        match self {
            Block::Small(number) => 1 << (number as u32 + FIRST_PLACE_LOG2),
            Block::Large(_) => LARGE_UNITS,
        }
    }

    fn layout(self) -> Layout {
        Layout::from_size_align(self.units() as usize * UNIT_BYTES, BLOCK_ALIGN)
            .expect("X3: a block is at most 4 MiB")
    }
}

#[inline]
fn spot(place: u64) -> Spot {
    if place < LARGE_UNITS {
        let bit = place.ilog2();
        Spot {
            block: Block::Small((bit - FIRST_PLACE_LOG2) as usize),
            units_in: place - (1 << bit),
        }
    } else {
        Spot {
            block: Block::Large((place >> LARGE_UNITS_LOG2) as usize),
            units_in: place & (LARGE_UNITS - 1),
        }
    }
}

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena {
            tail: AtomicU64::new(1 << (32 + FIRST_PLACE_LOG2)),
            small: [const { AtomicPtr::new(null_mut()) }; SMALL_BLOCKS],
            large: OnceLock::new(),
        }
    }

    /// Room for an entry of `bytes`; none if the tree has used up its 32 GiB.
    pub(crate) fn allocate_entry(&self, bytes: usize) -> Option<(u32, NonNull<u8>)> {
        self.allocate(bytes, 1, 1, ENTRY_PLACE_MAX)
    }

    /// Room for a node of `bytes`, on a cache line boundary.
    pub(crate) fn allocate_node(&self, bytes: usize) -> (u32, NonNull<u8>) {
        let room = self.allocate(bytes, BLOCK_ALIGN / UNIT_BYTES, 0, u64::from(u32::MAX));
        room.expect("X3: entries are refused long before the arena has no room for a node")
    }

    /// Bytes of `len` units' multiple at an `align`ed place; counts `entries` more entries.
    fn allocate(&self, bytes: usize, align: usize, entries: u64, limit: u64) -> Option<(u32, NonNull<u8>)> {
        let units = bytes.div_ceil(UNIT_BYTES) as u64;
        invariant!(
            units > 0 && units <= LARGE_UNITS,
            "X2: no entry or node is larger than a block"
        );
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let place = first_fit((tail >> 32).next_multiple_of(align as u64), units);
            if place + units > limit {
                return None;
            }
            let after = (place + units) << 32 | ((tail & 0xffff_ffff) + entries);
            // Relaxed: the tail orders nothing. Whoever learns a place learns it through a slot of a node.
            match self
                .tail
                .compare_exchange_weak(tail, after, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some((place as u32, self.make(place))),
                Err(now) => tail = now,
            }
        }
    }

    /// Entries handed out so far.
    pub(crate) fn entries(&self) -> u64 {
        self.tail.load(Ordering::Relaxed) & 0xffff_ffff
    }

    /// Bytes of all blocks; of the 4 MiB ones only what was used, because the rest is not backed by memory yet.
    pub(crate) fn memory_bytes(&self) -> usize {
        let small = |(number, block): (usize, &AtomicPtr<u8>)| {
            if block.load(Ordering::Relaxed).is_null() {
                0
            } else {
                Block::Small(number).units() as usize * UNIT_BYTES
            }
        };
        let small: usize = self.small.iter().enumerate().map(small).sum();
        let beyond =
            (self.tail.load(Ordering::Relaxed) >> 32).saturating_sub(LARGE_UNITS) as usize * UNIT_BYTES;
        let table = self.large.get().map_or(0, |blocks| size_of_val::<[_]>(blocks));
        small + beyond + table
    }

    /// Address of a place that was handed out before.
    #[inline]
    pub(crate) fn at(&self, place: u32) -> NonNull<u8> {
        let spot = spot(u64::from(place));
        let base = match spot.block {
            Block::Small(number) => self.small[number].load(Ordering::Acquire),
            Block::Large(number) => match self.large.get() {
                Some(blocks) => blocks[number].load(Ordering::Acquire),
                None => null_mut(),
            },
        };
        let base = NonNull::new(base).expect("X3: a place in use lies in a block that exists");
        // SAFETY: `spot` gives an offset below the size of its block, and `base` is the start of that block.
        unsafe { base.add(spot.units_in as usize * UNIT_BYTES) }
    }

    /// Asks the processor for what lies at a place, which will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, place: u32) {
        prefetch(self.at(place).as_ptr());
    }

    /// Address of a place just taken; allocates its block if this is the first one in it.
    fn make(&self, place: u64) -> NonNull<u8> {
        let spot = spot(place);
        let slot = match spot.block {
            Block::Small(number) => &self.small[number],
            Block::Large(number) => {
                let blocks = self
                    .large
                    .get_or_init(|| (0..LARGE_BLOCKS).map(|_| AtomicPtr::default()).collect());
                &blocks[number]
            }
        };
        let base = NonNull::new(slot.load(Ordering::Acquire)).unwrap_or_else(|| install(slot, spot.block));
        // SAFETY: as in `at`; `first_fit` made sure that the whole room ends inside the block.
        unsafe { base.add(spot.units_in as usize * UNIT_BYTES) }
    }
}

/// First place at or after `place` from which `units` fit into one block.
fn first_fit(mut place: u64, units: u64) -> u64 {
    loop {
        if place >= 1 << 32 {
            return place;
        }
        let spot = spot(place);
        if spot.units_in + units <= spot.block.units() {
            return place;
        }
        place += spot.block.units() - spot.units_in;
    }
}

/// Allocates `block` and puts it into `slot`, unless another thread was quicker.
#[cold]
fn install(slot: &AtomicPtr<u8>, block: Block) -> NonNull<u8> {
    let layout = block.layout();
    // SAFETY: the layout of a block is never of size zero.
    let Some(fresh) = NonNull::new(unsafe { alloc(layout) }) else {
        handle_alloc_error(layout)
    };
    match slot.compare_exchange(null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(theirs) => {
            // SAFETY: allocated above with this layout, and shown to nobody.
            unsafe { dealloc(fresh.as_ptr(), layout) };
            NonNull::new(theirs).expect("X3: a block, once there, stays")
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let small = self
            .small
            .iter()
            .enumerate()
            .map(|(number, slot)| (Block::Small(number), slot));
        let large = self
            .large
            .get()
            .into_iter()
            .flat_map(|blocks| blocks.iter().enumerate());
        let large = large.map(|(number, slot)| (Block::Large(number), slot));
        for (block, slot) in small.chain(large) {
            let base = slot.load(Ordering::Relaxed);
            if !base.is_null() {
                // SAFETY: installed with this layout, and `&mut self` says that no reference into it is left (X3).
                unsafe { dealloc(base, block.layout()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_apart_aligned_and_inside_their_block() {
        let arena = Arena::new();
        let mut rooms: Vec<(usize, usize)> = Vec::new();
        for round in 0..300_usize {
            let bytes = 1 + round * 37 % 900;
            let (place, room) = arena.allocate_entry(bytes).unwrap();
            assert_eq!(arena.at(place), room);
            assert_eq!(room.addr().get() % UNIT_BYTES, 0);
            // SAFETY: the room is `bytes` long and ours.
            unsafe { room.write_bytes(round as u8, bytes) };
            rooms.push((room.addr().get(), bytes));
            let (place, room) = arena.allocate_node(192);
            assert_eq!(arena.at(place), room);
            assert_eq!(room.addr().get() % BLOCK_ALIGN, 0);
            rooms.push((room.addr().get(), 192));
        }
        rooms.sort_unstable();
        assert!(rooms.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert_eq!(arena.entries(), 300);
    }

    #[test]
    fn places_cover_every_block_without_gap() {
        let mut place = 1 << FIRST_PLACE_LOG2;
        let mut blocks = 0;
        while place < 1 << 32 {
            let spot = spot(place);
            assert_eq!(spot.units_in, 0);
            place += spot.block.units();
            blocks += 1;
        }
        assert_eq!(blocks, SMALL_BLOCKS + LARGE_BLOCKS - 1);
        assert_eq!(first_fit((1 << 32) - 1, 2), 1 << 32);
    }

    #[test]
    fn a_full_arena_refuses_entries_and_still_has_room_for_nodes() {
        let arena = Arena::new();
        arena.tail.store((ENTRY_PLACE_MAX - 2) << 32, Ordering::Relaxed);
        assert!(arena.allocate_entry(24).is_none());
        let (place, _) = arena.allocate_node(4096);
        assert!(u64::from(place) >= ENTRY_PLACE_MAX - 8);
    }
}
