//! Bulk gather: rows of a load that come in no order of the primary key, sorted outside memory before they get their ids.
//!
//! Why it exists: row ids are given out one after the other, and rows whose ids follow each other lie side by side. A load in
//! random order would leave neighbours by key in as many blocks as it had chunks, and a range of ten rows would read ten
//! blocks. Rows that are written once more on the way stand in the order of the key, and their ids take no room beside it
//! (Knuth, The Art of Computer Programming 3, 5.4: external sorting).
//! State: sorted parts on disk, one for each chunk; as many as two chunks' memory has readers for, but 32.
//! Format: entries of bulk_spill whose key is the primary key; what is unpacked is: payload bytes (4), payload, and for each
//! entry of the row: index (2), claim (1), key bytes (2), unpack bytes (2), key, unpack.
//! Rules: L16.
//! Latches and I/O: none held; writes and reads piece files, in the thread of the load.
//! After a crash: nothing names the files; they are removed at open.

use crate::bulk_chunk::{Chunk, KeyEntry, NO_ENTRY, Ranks};
use crate::bulk_sort::{FAN_IN, MergedSource};
use crate::bulk_spill::{Part, READER_BYTES, Source, SpillWriter};
use crate::error::Result;
use pbxt_base::RowId;
use pbxt_base::codec::{get_u16, get_u32, push_u16, push_u32};

/// Index, claim, key bytes, unpack bytes.
const ENTRY_HEAD: usize = 7;
/// Parts that are merged at once, however little memory there is.
const PARTS_MIN: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gathering {
    parts: Vec<Part>,
    parts_max: usize,
    /// Rows that ever came.
    pub rows: u64,
    /// Of each index where the entry of each row of a chunk begins.
    places: Vec<Vec<u32>>,
    image: Vec<u8>,
}

impl Gathering {
    /// Without rows, for chunks of so many bytes.
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        Self {
            parts: Vec::new(),
            parts_max: (2 * chunk_bytes / READER_BYTES).clamp(PARTS_MIN, FAN_IN),
            rows: 0,
            places: Vec::new(),
            image: Vec::new(),
        }
    }

    /// True if no row is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if there are as many parts as are merged at once.
    pub(crate) fn is_full(&self) -> bool {
        self.parts.len() >= self.parts_max
    }

    /// Takes a chunk whose rows are in order `ranks` of index `by`, in which each has an entry.
    pub(crate) fn take(
        &mut self,
        chunk: &Chunk,
        (by, ranks): (usize, &Ranks),
        mut spill: SpillWriter,
    ) -> Result<()> {
        self.places.resize_with(chunk.indexes.len(), Vec::new);
        for (arena, places) in chunk.indexes.iter().zip(&mut self.places) {
            arena.places(chunk.rows(), places);
        }
        spill.begin(by);
        for &number in &ranks.order {
            self.encode(chunk, number as usize);
            let entry = chunk.indexes[by].entry(
                u128::from(self.places[by][number as usize]),
                RowId::new(self.rows + u64::from(number)),
            );
            spill.push(&KeyEntry {
                unpack: &self.image,
                ..entry
            })?;
        }
        spill.end()?;
        self.parts.extend(spill.finish(0)?);
        self.rows += chunk.rows() as u64;
        Ok(())
    }

    /// Makes the image of a row.
    fn encode(&mut self, chunk: &Chunk, number: usize) {
        let image = &mut self.image;
        image.clear();
        let payload = chunk.payload(number);
        push_u32(image, payload.len() as u32);
        image.extend_from_slice(payload);
        for (index, (arena, places)) in chunk.indexes.iter().zip(&self.places).enumerate() {
            if places[number] == NO_ENTRY {
                continue;
            }
            let entry = arena.entry(u128::from(places[number]), RowId::new(0));
            push_u16(image, index as u16);
            image.push(u8::from(entry.claim));
            push_u16(image, entry.key.len() as u16);
            push_u16(image, entry.unpack.len() as u16);
            image.extend_from_slice(entry.key);
            image.extend_from_slice(entry.unpack);
        }
    }

    /// Everything taken, as one stream in the order of the key, of equal ones in that in which they came. None is left.
    pub(crate) fn merge(&mut self) -> Result<Gathered> {
        let parts = std::mem::take(&mut self.parts);
        let sources = parts.iter().map(Source::file).collect::<Result<_>>()?;
        Ok(Gathered(MergedSource::new(sources)))
    }
}

/// Rows in order.
pub(crate) struct Gathered(MergedSource<'static>);

impl Gathered {
    /// Fills a chunk with the next rows, to so many bytes; false if none is left behind them.
    pub(crate) fn fill(&mut self, chunk: &mut Chunk, bytes: usize) -> Result<bool> {
        chunk.clear();
        while let Some(entry) = self.0.entry() {
            if chunk.bytes() >= bytes {
                return Ok(true);
            }
            decode(entry.unpack, chunk);
            self.0.advance()?;
        }
        Ok(false)
    }
}

/// Appends the row of an image.
fn decode(image: &[u8], chunk: &mut Chunk) {
    let (payload, mut rest) = image[4..].split_at(get_u32(image, 0) as usize);
    let row = chunk.push_payload(payload);
    while !rest.is_empty() {
        let key_end = ENTRY_HEAD + usize::from(get_u16(rest, 3));
        let unpack_end = key_end + usize::from(get_u16(rest, 5));
        let (key, unpack) = (&rest[ENTRY_HEAD..key_end], &rest[key_end..unpack_end]);
        chunk.indexes[usize::from(get_u16(rest, 0))].push(row, key, rest[2] != 0, unpack);
        rest = &rest[unpack_end..];
    }
}
