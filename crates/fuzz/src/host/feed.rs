//! Feed: an input read as choices and numbers.
//!
//! Rules: an input that has ended gives zeros, so every input is a whole one; a choice takes one byte, so that a byte which is
//! changed changes one choice.

/// See the module.
pub(crate) struct Feed<'i>(&'i [u8]);

impl<'i> Feed<'i> {
    pub(crate) fn new(input: &'i [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// One of `count` choices.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// True once in `of` times; false at the end.
    pub(crate) fn once_in(&mut self, of: u8) -> bool {
        self.byte() % of == of - 1
    }

    /// A number: small ones are what counts and kinds are made of, large ones what nobody expects.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() % 4 {
            0 | 1 => u64::from(self.byte()),
            2 => u64::from(u16::from_le_bytes([self.byte(), self.byte()])),
            _ => u64::from_le_bytes([0; 8].map(|_: u8| self.byte())),
        }
    }

    /// At most `max` bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> &'i [u8] {
        let len = self.byte();
        // Lengths above a byte's are worth as much as small ones.
        let len = if len == 255 {
            max
        } else {
            usize::from(len) % (max + 1)
        };
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
