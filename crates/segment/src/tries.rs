//! Tries: which blocks are given to a compressor.
//!
//! Why it exists: bytes that do not shrink - pictures, keys drawn at random, what was encrypted before - cost a compressor more than all
//! else that is done with a row, and their neighbours do not shrink either.
//! State: how many in a row were tried in vain, or not tried.
//! Rules: S56.
//! Latches and I/O: none.

/// A block is worth it that gets smaller by this part of itself.
const WORTH: usize = 32;
/// So many in a row that are not: of those behind them not all are tried.
const VAIN_MAX: u32 = 4;
/// But one in so many.
const TRIED: u32 = 16;
/// A smaller block is always tried: that costs little, and it may be small because it ends a section.
const BYTES_MIN: usize = 2048;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    vain: u32,
}

impl Tries {
    /// True if the next block, of so many bytes, is to be tried; `note` is told what came of it then.
    pub fn is_next(&mut self, bytes: usize) -> bool {
        let is_tried = bytes < BYTES_MIN || self.vain < VAIN_MAX || self.vain.is_multiple_of(TRIED);
        self.vain += u32::from(!is_tried);
        is_tried
    }

    /// A block of so many bytes became one of so many.
    pub fn note(&mut self, bytes: usize, packed: usize) {
        if packed + bytes / WORTH < bytes {
            self.vain = 0;
        } else if bytes >= BYTES_MIN {
            self.vain = self.vain.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many blocks are tried that become as large as this.
    fn tried(tries: &mut Tries, blocks: usize, bytes: usize, packed: usize) -> usize {
        let mut tried = 0;
        for _ in 0..blocks {
            if tries.is_next(bytes) {
                tries.note(bytes, packed);
                tried += 1;
            }
        }
        tried
    }

    #[test]
    fn what_shrinks_is_always_tried() {
        let mut tries = Tries::default();
        assert_eq!(tried(&mut tries, 100, 16_000, 15_000), 100);
        assert_eq!(tried(&mut tries, 3, 16_000, 16_000), 3);
        assert_eq!(
            tried(&mut tries, 100, 16_000, 15_000),
            100,
            "three in vain are none"
        );
    }

    #[test]
    fn what_does_not_shrink_is_tried_one_time_in_sixteen_until_one_does() {
        let mut tries = Tries::default();
        assert_eq!(tried(&mut tries, 4, 16_000, 15_900), 4);
        assert_eq!(tried(&mut tries, 160, 16_000, 16_000), 10);
        while !tries.is_next(16_000) {}
        tries.note(16_000, 9_000);
        assert_eq!(tried(&mut tries, 10, 16_000, 9_000), 10);
    }

    #[test]
    fn small_ones_are_always_tried_and_say_nothing() {
        let mut tries = Tries::default();
        assert_eq!(tried(&mut tries, 100, 100, 100), 100);
        assert_eq!(tried(&mut tries, 4, 16_000, 16_000), 4);
        assert_eq!(tried(&mut tries, 5, 16_000, 16_000), 0);
        assert_eq!(tried(&mut tries, 5, 100, 100), 5);
    }
}
