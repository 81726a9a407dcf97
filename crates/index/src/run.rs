//! `Run`: an immutable part of an index on disk, made of pieces with rising keys.
//!
//! Why it exists:    what has left memory must be found by one read of one block; fences, filter and counts of all blocks
//!                   are therefore kept in memory as long as the run is open.
//! Format / state:   `docs/indexes.md`, runs. A piece is one section of a piece file; small runs share files.
//! Rules:            X1, X31 (tag), X32 (no (key, row id) pair in two pieces), X33 (filter).
//! Latches and I/O:  none; a block is read through the cache.

use std::ops::Range;
use std::sync::Arc;

use pbxt_base::codec::Reader;
use pbxt_base::{Error, IndexId, Lsn, Result, SegmentId, TxnId};
use pbxt_segment::{
    BlockCache, BlockKey, BlockShelf, CachedBlock, DamagedPiece, PieceFile, Section, SegmentClass,
    SegmentStore, ShelfPlace,
};

use crate::entry::KEY_BYTES_MAX;
use crate::filter::{Filter, key_hash};
use crate::run_block::RunBlock;
use crate::seek::{SeekPos, Side};
use crate::swept::Swept;

/// Kind of a section that holds a piece of an index run.
pub const SECTION_INDEX_RUN: u8 = b'I';

pub(crate) const EXTRA_TAG: u8 = 1;
pub(crate) const EXTRA_STAMPS: u8 = 2;
pub(crate) const EXTRA_FILTER: u8 = 4;
const EXTRA_KNOWN: u8 = 7;
/// Bytes that an entry of a file may have whose entries cannot be counted.
const ENTRY_BYTES_GUESSED: u64 = 16;

impl CachedBlock for RunBlock {
    fn bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn is_used_again(&self) -> bool {
        true
    }

    fn shelf_place(&self) -> Option<&ShelfPlace> {
        Some(RunBlock::shelf_place(self))
    }
}

/// One piece: a section of a piece file, with what it says of itself.
#[derive(Debug)]
pub struct RunPiece {
    file: Arc<PieceFile>,
    /// Place in `file`.
    section: u32,
    /// Place in the file on disk: the same, unless it is a stand-in.
    number: u32,
    tag: Option<(TxnId, Lsn)>,
    stamped: Option<(TxnId, TxnId)>,
    greatest_lsn: Lsn,
    filter: Option<Filter>,
    swept: Swept,
    shelf: Arc<BlockShelf<RunBlock>>,
}

/// What a piece says of itself.
struct Extra {
    tag: Option<(TxnId, Lsn)>,
    stamped: Option<(TxnId, TxnId)>,
    greatest_lsn: Lsn,
    filter: Option<Filter>,
}

impl Extra {
    fn read(bytes: &[u8]) -> Result<Extra> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        if flags & !EXTRA_KNOWN != 0 {
            return Err(Error::Corrupt {
                file: String::new(),
                offset: 0,
                expected: "a run of this version".into(),
                found: format!("flags {flags:#04x}: written by a later version"),
            });
        }
        let greatest_lsn = Lsn::new(reader.varint()?);
        let mut tag = None;
        if flags & EXTRA_TAG != 0 {
            tag = Some((TxnId::new(reader.varint()?), Lsn::new(reader.varint()?)));
        }
        let mut stamped = None;
        if flags & EXTRA_STAMPS != 0 {
            stamped = Some((TxnId::new(reader.varint()?), TxnId::new(reader.varint()?)));
        }
        let filter = (flags & EXTRA_FILTER != 0).then(|| Filter::read(&mut reader));
        Ok(Extra {
            tag,
            stamped,
            greatest_lsn,
            filter: filter.transpose()?,
        })
    }
}

impl RunPiece {
    /// Opens section number `section` of a file.
    ///
    /// # Errors
    /// `Corrupt`, if the file has no such section or it holds something else.
    pub fn open(file: Arc<PieceFile>, section: u32) -> Result<Arc<RunPiece>> {
        let found = file.section(section)?;
        if found.kind != SECTION_INDEX_RUN || found.block_count() == 0 {
            return Err(Error::Corrupt {
                file: file.name().to_owned(),
                offset: found.block_offset(0),
                expected: format!("blocks of an index in section {section}"),
                found: format!("{} blocks of kind {}", found.block_count(), found.kind),
            });
        }
        let extra = Extra::read(&found.extra).map_err(|error| error.in_file(file.name()))?;
        let Extra {
            tag,
            stamped,
            greatest_lsn,
            filter,
        } = extra;
        let shelf = BlockShelf::new(found.block_count());
        Ok(Arc::new(RunPiece {
            file,
            section,
            number: section,
            tag,
            stamped,
            greatest_lsn,
            filter,
            swept: Swept::default(),
            shelf,
        }))
    }

    /// Stands in for section number `section` of a file that is damaged: whoever reads it is told of that (rule D39). It may have any
    /// key from the first to the last one, which those of the pieces beside it are, and stamps of all transactions and LSNs.
    ///
    /// # Errors
    /// `TooLarge`, for keys beyond all limits.
    pub fn stand_in(
        damaged: &DamagedPiece,
        section: u32,
        (index, tag): (IndexId, Option<(TxnId, Lsn)>),
        first: &[u8],
        last: Option<&[u8]>,
    ) -> Result<Arc<RunPiece>> {
        let greatest = vec![u8::MAX; KEY_BYTES_MAX + 1];
        let keys = (first, last.unwrap_or(&greatest));
        // About, for estimates.
        let entries = (damaged.file_bytes() / ENTRY_BYTES_GUESSED).clamp(1, u64::from(u32::MAX));
        let owner = u64::from(index.raw());
        Ok(Arc::new(RunPiece {
            file: damaged.stand_in(owner, SECTION_INDEX_RUN, keys, entries as u32)?,
            section: 0,
            number: section,
            tag,
            stamped: tag.is_none().then_some((TxnId::new(1), TxnId::new(u64::MAX))),
            greatest_lsn: Lsn::new(u64::MAX),
            filter: None,
            swept: Swept::default(),
            shelf: BlockShelf::new(1),
        }))
    }

    /// File and section, for whoever has to name the piece.
    pub fn reference(&self) -> (SegmentId, u32) {
        (self.file.id(), self.number)
    }

    /// Index it belongs to.
    pub fn index(&self) -> IndexId {
        IndexId::new(self.section().owner as u32)
    }

    /// Stamp of all its entries; none if each has its own, or is settled.
    pub fn tag(&self) -> Option<(TxnId, Lsn)> {
        self.tag
    }

    /// Fences and counts.
    pub(crate) fn section(&self) -> &Section {
        &self.file.sections()[self.section as usize]
    }

    /// Whose entries are not in it.
    pub fn swept(&self) -> &Swept {
        &self.swept
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.section().entries
    }

    /// Bytes in the file.
    pub fn stored_bytes(&self) -> u64 {
        self.section().stored_bytes
    }

    /// Bytes of all sections of its file.
    pub fn bytes_beside(&self) -> u64 {
        let sections = self.file.sections().iter();
        sections.map(|section| section.stored_bytes).sum()
    }

    /// Key of the first entry.
    pub fn first_key(&self) -> &[u8] {
        self.section().first_key(0)
    }

    /// Key of the last entry.
    pub fn last_key(&self) -> &[u8] {
        &self.section().last_key
    }

    /// Least and greatest transaction id that entries are stamped with; none if all are settled, or the run is tagged.
    pub fn stamped_txns(&self) -> Option<(TxnId, TxnId)> {
        self.stamped
    }

    /// Greatest LSN of an entry; 0 in a tagged run.
    pub fn greatest_lsn(&self) -> Lsn {
        self.greatest_lsn
    }

    /// False only if no entry has exactly this key; true where fences and filter cannot tell. No I/O.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hashed(key, key_hash(key))
    }

    fn may_contain_hashed(&self, key: &[u8], hash: u64) -> bool {
        if key < self.first_key() || key > self.last_key() {
            return false;
        }
        let Some(filter) = &self.filter else { return true };
        let Range { start, end } = self.blocks_with_key(key);
        filter.may_contain(&self.section().extra, hash, start, end - 1)
    }

    /// Blocks in which entries with exactly this key can lie; at least one.
    pub(crate) fn blocks_with_key(&self, key: &[u8]) -> Range<usize> {
        let section = self.section();
        let mut end = section.blocks_below(key);
        let begin = end.saturating_sub(1);
        if end < section.block_count() && section.first_key(end) == key {
            end = section.blocks_up_to(key);
        }
        begin..end.max(begin + 1)
    }

    /// Blocks between which the cut runs: those before lie left of it, those behind right of it. At least one.
    pub(crate) fn blocks_at(&self, pos: &SeekPos<'_>) -> Range<usize> {
        let section = self.section();
        let key = pos.key;
        match pos.side {
            Side::BeforePrefix => {
                let end = section.blocks_below(key).max(1);
                end - 1..end
            }
            Side::AfterPrefix => {
                let end = section
                    .partition_point(|first| first < key || first.starts_with(key))
                    .max(1);
                end - 1..end
            }
            Side::BeforeEvent(..) | Side::AfterEvent(..) => self.blocks_with_key(key),
        }
    }

    /// Name of a block in the cache.
    pub(crate) fn block_key(&self, block: usize) -> BlockKey {
        BlockKey {
            class: self.file.class(),
            segment: self.file.id(),
            offset: self.section().block_offset(block),
        }
    }

    /// A block, from the cache or the file.
    #[inline]
    pub(crate) fn load(&self, cache: &BlockCache, block: usize) -> Result<Arc<RunBlock>> {
        let key = || self.block_key(block);
        cache.get_or_load_in(&self.shelf, block, key, || self.read(block))
    }

    /// A block from the file.
    fn read(&self, block: usize) -> Result<RunBlock> {
        let mut bytes = Vec::new();
        self.file.read_block(self.section, block, &mut bytes)?;
        self.decode(block, &bytes)
    }

    /// Entries of the bytes of a block; names file and place if they are damaged.
    pub(crate) fn decode(&self, block: usize, bytes: &[u8]) -> Result<RunBlock> {
        RunBlock::decode(bytes, self.tag).map_err(|error| match error {
            Error::Corrupt {
                expected,
                found,
                offset,
                ..
            } => Error::Corrupt {
                file: self.file.name().to_owned(),
                offset: self.section().block_offset(block),
                expected: format!("an index block with {expected} at byte {offset}"),
                found,
            },
            other => other,
        })
    }

    /// The file it is a section of.
    pub fn file(&self) -> &Arc<PieceFile> {
        &self.file
    }

    pub(crate) fn section_no(&self) -> u32 {
        self.section
    }
}

/// An immutable sorted part of one index.
#[derive(Debug)]
pub struct Run {
    /// Index it belongs to.
    pub index: IndexId,
    /// Stamp of all its entries; none if each has its own, or is settled.
    pub tag: Option<(TxnId, Lsn)>,
    /// Its pieces, keys rising.
    pub pieces: Vec<Arc<RunPiece>>,
    /// Of all pieces: statements ask for sums, and a large run has hundreds of pieces.
    entries: u64,
    stored_bytes: u64,
}

impl Run {
    /// A run of these pieces.
    ///
    /// # Errors
    /// `Corrupt`, if a piece belongs to another index, has another tag, or does not lie behind the one before.
    pub fn new(index: IndexId, tag: Option<(TxnId, Lsn)>, pieces: Vec<Arc<RunPiece>>) -> Result<Run> {
        let mut before: &[u8] = &[];
        for piece in &pieces {
            if piece.index() != index || piece.tag != tag || piece.first_key() < before {
                return Err(Error::Corrupt {
                    file: piece.file.name().to_owned(),
                    offset: piece.section().block_offset(0),
                    expected: format!("the next piece of a run of index {index}, tag {tag:?}"),
                    found: format!(
                        "one of index {}, tag {:?}, or keys out of order",
                        piece.index(),
                        piece.tag
                    ),
                });
            }
            before = piece.last_key();
        }
        Ok(Run::of(index, tag, pieces))
    }

    /// A run of pieces that are known to belong together and to rise.
    pub fn of(index: IndexId, tag: Option<(TxnId, Lsn)>, pieces: Vec<Arc<RunPiece>>) -> Run {
        Run {
            index,
            tag,
            entries: pieces.iter().map(|piece| piece.entries()).sum(),
            stored_bytes: pieces.iter().map(|piece| piece.stored_bytes()).sum(),
            pieces,
        }
    }

    /// Opens a run from the files and sections of its pieces; a file with several is opened once by the caller who has
    /// many runs in it, and then [`RunPiece::open`] and [`Run::new`] do the same.
    pub fn open(
        store: &SegmentStore,
        index: IndexId,
        tag: Option<(TxnId, Lsn)>,
        references: &[(SegmentId, u32)],
    ) -> Result<Run> {
        let open = |&(id, section): &(SegmentId, u32)| {
            RunPiece::open(PieceFile::open(store, SegmentClass::Meta, id)?, section)
        };
        Run::new(index, tag, references.iter().map(open).collect::<Result<_>>()?)
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// True if there is no piece.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes in files.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// True if entries carry transaction ids of their own or the run is tagged.
    pub fn has_stamps(&self) -> bool {
        self.tag.is_some() || self.pieces.iter().any(|piece| piece.stamped.is_some())
    }

    /// Least and greatest transaction id of any stamp, the tag among them.
    pub fn stamped_txns(&self) -> Option<(TxnId, TxnId)> {
        let tag = self.tag.map(|(txn, _)| (txn, txn));
        let all = self.pieces.iter().filter_map(|piece| piece.stamped).chain(tag);
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Number of the piece in which entries with exactly this key begin, if there can be any.
    pub(crate) fn pieces_with_key(&self, key: &[u8]) -> &[Arc<RunPiece>] {
        let begin = self.pieces.partition_point(|piece| piece.last_key() < key);
        let end = self.pieces.partition_point(|piece| piece.first_key() <= key);
        self.pieces.get(begin..end).unwrap_or(&[])
    }

    /// False only if no entry has exactly this key. No I/O.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hashed(key, key_hash(key))
    }

    /// The same for who has the key's hash.
    pub(crate) fn may_contain_hashed(&self, key: &[u8], hash: u64) -> bool {
        self.pieces_with_key(key)
            .iter()
            .any(|piece| piece.may_contain_hashed(key, hash))
    }

    /// The block that lies `share` (0 to 1) of the way along the entries; none in an empty run.
    pub fn sample(&self, cache: &BlockCache, share: f64) -> Result<Option<Arc<RunBlock>>> {
        let mut entry = (share.clamp(0.0, 1.0) * self.entries() as f64) as u64;
        let Some(last) = self.pieces.last() else {
            return Ok(None);
        };
        entry = entry.min(self.entries() - 1);
        for piece in &self.pieces {
            if entry < piece.entries() {
                let section = piece.section();
                let (mut low, mut high) = (0, section.block_count());
                while high - low > 1 {
                    let middle = usize::midpoint(low, high);
                    if section.entries_before(middle) <= entry {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                return piece.load(cache, low).map(Some);
            }
            entry -= piece.entries();
        }
        last.load(cache, last.section().block_count() - 1).map(Some)
    }

    /// Bytes of memory that fences and filters take.
    pub fn memory_bytes(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| piece.section().memory_bytes() + piece.shelf.memory_bytes())
            .sum()
    }
}
