//! BlockPress: a thread that compresses the blocks of one file while its owner makes the next ones.
//!
//! Why it exists: compression is half of what a block of rows costs. Where somebody waits for a file, another processor may do it.
//! Rules: L14 (docs/bulk.md). Blocks come back in the order in which they were given, and few are on their way at a time.
//! Latches and I/O: none; bytes in, bytes out.
//! After a panic of the thread: an error, as its block will never come.

use crate::piece_block::{BlockEncoder, Codec};
use parking_lot::Mutex;
use pbxt_base::{Error, Result};
use pbxt_io::{Answer, Lane};
use std::collections::VecDeque;
use std::time::Duration;

/// Blocks on their way at most: one in work, one waiting.
pub(crate) const ON_THEIR_WAY_MAX: usize = 2;
/// How long to wait before asking again; blocks take milliseconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// A block before and behind the press.
#[derive(Debug)]
struct Block {
    raw: Vec<u8>,
    codec: Codec,
    stored: Vec<u8>,
    /// Of the codec that `stored` needs.
    number: u8,
}

/// What the owner knows of a block.
#[derive(Debug)]
struct Given {
    first_key: Vec<u8>,
    entries: u32,
}

/// A block that came back.
#[derive(Debug)]
pub(crate) struct Pressed {
    block: Block,
    given: Given,
}

impl Pressed {
    /// Key and number of its entries, as given.
    pub(crate) fn entries(&self) -> (&[u8], u32) {
        (&self.given.first_key, self.given.entries)
    }

    /// Before compression.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.block.raw
    }

    /// Whether it was to be compressed.
    pub(crate) fn is_tried(&self) -> bool {
        self.block.codec != Codec::Plain
    }

    /// What is to be stored, and its codec's number.
    pub(crate) fn stored(&self) -> (&[u8], u8) {
        match self.block.number {
            0 => (&self.block.raw, 0),
            number => (&self.block.stored, number),
        }
    }
}

/// See the module. Dropped, it waits until the thread has ended.
pub(crate) struct BlockPress {
    file: String,
    /// Never waited for: it lets other threads look at the owner.
    lane: Mutex<Lane<Block, (Block, Result<()>)>>,
    given: VecDeque<Given>,
    /// Memory of blocks that came back.
    spare: Vec<Pressed>,
}

impl BlockPress {
    /// Starts the thread, for blocks of this file.
    pub(crate) fn spawn(file: &str) -> Result<Self> {
        let mut encoder = BlockEncoder::default();
        let name = file.to_owned();
        let work = move |mut block: Block| {
            let pressed = encoder.compress(&block.raw, block.codec, &name);
            let result = pressed.map(|number| {
                block.number = number;
                encoder.exchange(&mut block.stored);
            });
            (block, result)
        };
        let lane = Lane::spawn("pbxt-press", work).map_err(|source| Error::Io {
            file: file.to_owned(),
            op: "start a thread that compresses",
            source,
        })?;
        Ok(Self {
            file: file.to_owned(),
            lane: Mutex::new(lane),
            given: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Blocks on their way.
    pub(crate) fn len(&self) -> usize {
        self.given.len()
    }

    /// Hands a block over.
    pub(crate) fn give(&mut self, first_key: &[u8], entries: u32, raw: &[u8], codec: Codec) -> Result<()> {
        let (mut block, mut given) = match self.spare.pop() {
            Some(spare) => (spare.block, spare.given),
            None => (
                Block {
                    raw: Vec::new(),
                    codec,
                    stored: Vec::new(),
                    number: 0,
                },
                Given {
                    first_key: Vec::new(),
                    entries,
                },
            ),
        };
        block.raw.clear();
        block.raw.extend_from_slice(raw);
        block.codec = codec;
        given.first_key.clear();
        given.first_key.extend_from_slice(first_key);
        given.entries = entries;
        self.given.push_back(given);
        if self.lane.get_mut().give(block) {
            Ok(())
        } else {
            Err(self.is_gone())
        }
    }

    /// The oldest block on its way, once it is compressed; none if nothing is on its way.
    pub(crate) fn take(&mut self) -> Result<Option<Pressed>> {
        let Some(given) = self.given.pop_front() else {
            return Ok(None);
        };
        loop {
            match self.lane.get_mut().answer(PATIENCE) {
                Answer::Ready((block, result)) => {
                    result?;
                    return Ok(Some(Pressed { block, given }));
                }
                Answer::NotYet => {}
                Answer::Never => return Err(self.is_gone()),
            }
        }
    }

    /// Keeps the memory of a block for another one.
    pub(crate) fn give_back(&mut self, pressed: Pressed) {
        self.spare.push(pressed);
    }

    fn is_gone(&self) -> Error {
        Error::Io {
            file: self.file.clone(),
            op: "compress a block of",
            source: std::io::Error::other("the thread that compresses it has ended; make the file anew"),
        }
    }
}
