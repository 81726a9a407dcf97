//! Row shape: where the rows of a table that are not in the hot log are found.
//!
//! Why it exists: settled rows stand in immutable runs of compressed blocks, ordered by row id, so no map from rows to
//! places is kept: a row id is its own place (docs/decisions/0003).
//! State: a shape is a list of runs, newest first; the newest run that has a row id has the row. A shape never changes;
//! a change installs another one. A run with a tag belongs to the transaction that loaded it.
//! Rules: B1 a shape that holds a row is installed before the row's word in the row map is cleared. B2 a reader loads the
//! word first and the shape afterwards. B3 a tagged run holds only rows whose ids no other run had before. B14 one that
//! all readers see is read as if it had no tag. AL8 blocks are handed out with the columns of now, AL11 or refused.
//! Latches and I/O: none; reading a block may load it.
//! After a crash: the checkpoint image names all pieces; the log's tail names tagged ones that came later.

use crate::database::Database;
use crate::error::{Error, Result};
use crate::homing::{Standing, standing_of};
use crate::superseded::{Former, Superseded};
use crate::version::BaseRow;
use arc_swap::{ArcSwap, Guard};
use pbxt_base::{Error as StorageError, Lsn, RowId, SegmentId, TxnId, prefetch};
use pbxt_rows::{RowBlock, RowFilter, SectionExtra, Versions, Zones};
use pbxt_segment::{
    BlockCache, BlockKey, BlockShelf, CachedBlock, PieceFile, Section, SegmentClass, ShelfPlace,
};
use pbxt_txn::Stamp;
use roaring::RoaringTreemap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stamp of what is settled.
pub(crate) const SETTLED: Stamp = Stamp {
    txn: TxnId::new(0),
    lsn: Lsn::new(0),
};

/// Rows are near each other if their ids differ by so many at most: to count the slots between them is little then.
const NEAR: u64 = 1 << 12;

/// A decoded block as the block cache keeps it, with all that leads to a row in one line of memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CachedRows {
    rows: RowBlock,
    shelf_place: ShelfPlace,
}

impl CachedRows {
    fn of(rows: RowBlock) -> Self {
        Self {
            rows,
            shelf_place: ShelfPlace::default(),
        }
    }
}

impl Deref for CachedRows {
    type Target = RowBlock;

    #[inline]
    fn deref(&self) -> &RowBlock {
        &self.rows
    }
}

impl CachedBlock for CachedRows {
    fn bytes(&self) -> usize {
        self.rows.memory_bytes() - size_of::<RowBlock>() + size_of::<Self>()
    }

    fn shelf_place(&self) -> Option<&ShelfPlace> {
        Some(&self.shelf_place)
    }
}

/// The runs of one table.
#[derive(Debug, Default)]
pub(crate) struct RowShape {
    /// Newest first.
    pub runs: Vec<Arc<RowRun>>,
}

/// Pieces with rising row ids.
#[derive(Debug)]
pub(crate) struct RowRun {
    /// `SETTLED`, or who loaded it.
    pub stamp: Stamp,
    /// Rising, without overlap.
    pub pieces: Vec<Arc<RowPiece>>,
    /// Of all pieces: statements ask for sums, and a large run has hundreds of pieces.
    slots: u64,
    stored_bytes: u64,
    /// Tagged, and found to be seen by every reader there is and will be (rule B14).
    is_seen: AtomicBool,
}

/// One section of a piece file with blocks of one table.
#[derive(Debug)]
pub(crate) struct RowPiece {
    pub file: Arc<PieceFile>,
    pub section: u32,
    /// Exactly the row ids that have a slot.
    pub rows: RoaringTreemap,
    /// These are all from the first to the last one.
    is_dense: bool,
    /// What the rows of each block can have.
    zones: Zones,
    shelf: Arc<BlockShelf<CachedRows>>,
    pub first: RowId,
    pub last: RowId,
}

/// Shape of one table, changed by installing another one.
#[derive(Debug, Default)]
pub(crate) struct RowBase {
    shape: ArcSwap<RowShape>,
    /// Twice how often it was exchanged; odd while it is being so.
    installs: AtomicU64,
    /// Those before, as long as somebody reads them.
    superseded: Superseded,
}

/// What runs have of a row.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Nothing.
    None,
    /// That it was deleted.
    Deleted,
    /// Its newest version that is not hot.
    Row(BaseRow),
}

/// Where a look-up gets decoded blocks from.
pub(crate) trait BlockSource {
    /// A block of a piece.
    fn block_of(&self, piece: &RowPiece, versions: &Versions, block: usize) -> Result<Arc<CachedRows>>;
}

impl BlockSource for BlockCache {
    #[inline]
    fn block_of(&self, piece: &RowPiece, versions: &Versions, block: usize) -> Result<Arc<CachedRows>> {
        piece.block(versions, self, block)
    }
}

/// The cache, for who changes a row, which the statement has mostly read before: that is no further use of its block. With more
/// data than memory every block that is changed would count as used again otherwise, and push out those that are.
pub(crate) struct Again<'c>(pub(crate) &'c BlockCache);

impl BlockSource for Again<'_> {
    #[inline]
    fn block_of(&self, piece: &RowPiece, versions: &Versions, block: usize) -> Result<Arc<CachedRows>> {
        let key = || piece.block_key(block);
        match self.0.peek_in(&piece.shelf, block, key) {
            Some(rows) => {
                piece.check_known(versions)?;
                piece.newest(versions, self.0, block, rows)
            }
            None => piece.block(versions, self.0, block),
        }
    }
}

/// Key bytes of a row id in the fences of a piece.
#[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
pub(crate) fn fence_of(row: RowId) -> [u8; 8] {
    row.raw().to_be_bytes()
}

impl RowBase {
    /// The shape now (rule B2: after the word was loaded).
    #[inline]
    pub(crate) fn shape(&self) -> Arc<RowShape> {
        self.shape.load_full()
    }

    /// The shape now, for a look that keeps it no longer than that.
    #[inline]
    pub(crate) fn now(&self) -> Guard<Arc<RowShape>> {
        self.shape.load()
    }

    /// A number for `is_unchanged`, to be asked for before the shape is.
    #[inline]
    pub(crate) fn installs(&self) -> u64 {
        self.installs.load(Ordering::Acquire)
    }

    /// True if a shape that was taken after the number is the one of now. An even number that has not changed says that no exchange has
    /// begun of which this thread could have seen anything. False says nothing.
    #[inline]
    pub(crate) fn is_unchanged(&self, installs: u64) -> bool {
        installs & 1 == 0 && self.installs() == installs
    }

    /// Installs another shape (rule B1). The caller holds the table's shape latch.
    pub(crate) fn install(&self, shape: RowShape) {
        self.installs.fetch_add(1, Ordering::AcqRel);
        let before = self.shape.swap(Arc::new(shape));
        self.installs.fetch_add(1, Ordering::AcqRel);
        self.superseded.note(&before);
    }

    /// Adds earlier shapes that somebody still reads (rule S23). The caller holds the table's shape latch.
    pub(crate) fn held_shapes(&self, out: &mut Vec<Former>) {
        self.superseded.held(out);
    }

    /// The stamp that readers judge the row by, of the newest run that has a slot of it. No I/O; the slot may say "deleted".
    pub(crate) fn stamp_of(&self, row: RowId) -> Option<Stamp> {
        let shape = self.shape.load();
        let mut runs = shape.runs.iter();
        runs.find(|run| run.has_slot(row)).map(|run| run.judged_stamp())
    }

    /// What `look` finds of a settled row in a block that is at hand, held no longer than that; none if it is not, or the newest run
    /// that has the row says otherwise. The row's word was loaded before and says BASE (rule B2).
    #[inline]
    pub(crate) fn look_at<R>(
        &self,
        db: &Database,
        versions: &Versions,
        row: RowId,
        look: impl FnOnce(&[u8], u16) -> R,
    ) -> Option<R> {
        let shape = self.now();
        let (run, piece) = shape.piece_of(row)?;
        if !run.is_for_all(db) {
            return None;
        }
        piece.look_on_shelf(versions, &db.cache, piece.block_of(row), |rows| {
            let payload = rows.payload(rows.find(row)?)?;
            // Not line by line, as they are come to.
            prefetch(payload);
            Some(look(payload, rows.schema_version()))
        })?
    }

    /// The row's slot in the newest run that has one.
    #[inline]
    pub(crate) fn find(&self, versions: &Versions, blocks: &impl BlockSource, row: RowId) -> Result<Slot> {
        let shape = self.shape.load();
        for run in &shape.runs {
            let slot = run.find(versions, blocks, row)?;
            if !matches!(slot, Slot::None) {
                return Ok(slot);
            }
        }
        Ok(Slot::None)
    }
}

impl RowShape {
    /// The newest run that has a slot of the row, and the piece.
    #[inline]
    pub(crate) fn piece_of(&self, row: RowId) -> Option<(&RowRun, &RowPiece)> {
        let mut runs = self.runs.iter();
        runs.find_map(|run| Some((&**run, &**run.piece_with(row)?)))
    }

    /// The runs that may have a slot of a row between these two, as bits; all, where there are more than bits or the rows are far apart.
    pub(crate) fn runs_within(&self, first: RowId, last: RowId) -> u64 {
        if last.raw().saturating_sub(first.raw()) > NEAR || self.runs.len() > 64 {
            return u64::MAX;
        }
        let runs = self.runs.iter().enumerate();
        let has_some = runs.filter(|(_, run)| run.has_slot_within(first, last));
        has_some.fold(0, |bits, (number, _)| bits | 1 << number)
    }

    /// `piece_of`, if one of these runs has the row.
    #[inline]
    pub(crate) fn piece_among(&self, runs: u64, row: RowId) -> Option<(&RowRun, &RowPiece)> {
        let is_one = |number: usize| number >= 64 || runs >> number & 1 == 1;
        let mut among = self.runs.iter().enumerate().filter(|(number, _)| is_one(*number));
        among.find_map(|(_, run)| Some((&**run, &**run.piece_with(row)?)))
    }

    /// Piece and number of the block in which the newest run has the row, if one has.
    pub(crate) fn place_of(&self, row: RowId) -> Option<(&Arc<RowPiece>, usize)> {
        self.runs.iter().find_map(|run| {
            let piece = run.piece_with(row)?;
            Some((piece, piece.block_of(row)))
        })
    }

    /// Slots of all runs; a row has one in each run that has it.
    pub(crate) fn slots(&self) -> u64 {
        self.runs.iter().map(|run| run.slots).sum()
    }

    /// Bytes on disk.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.stored_bytes()).sum()
    }
}

impl RowRun {
    pub(crate) fn new(stamp: Stamp, pieces: Vec<Arc<RowPiece>>) -> Self {
        Self {
            stamp,
            slots: pieces.iter().map(|piece| piece.section().entries).sum(),
            stored_bytes: pieces.iter().map(|piece| piece.stored_bytes()).sum(),
            is_seen: AtomicBool::new(false),
            pieces,
        }
    }

    /// True if its rows are for all readers: it is settled, or the transaction that loaded it is (rule B14).
    #[inline]
    pub(crate) fn is_for_all(&self, db: &Database) -> bool {
        !self.is_tagged() || self.is_seen.load(Ordering::Relaxed) || self.turns_out_seen(db)
    }

    #[cold]
    fn turns_out_seen(&self, db: &Database) -> bool {
        let Stamp { txn, lsn } = self.stamp;
        let standing = standing_of(db, txn, lsn, db.horizon(), &crossbeam_epoch::pin());
        let is_seen = standing == Standing::Settled;
        if is_seen {
            self.is_seen.store(true, Ordering::Relaxed);
        }
        is_seen
    }

    /// The stamp that readers judge its rows by (rule B14).
    #[inline]
    pub(crate) fn judged_stamp(&self) -> Stamp {
        if self.is_seen.load(Ordering::Relaxed) {
            SETTLED
        } else {
            self.stamp
        }
    }

    /// Number of the piece whose range the row lies in or before.
    pub(crate) fn piece_at(&self, row: RowId) -> usize {
        self.pieces.partition_point(|piece| piece.last < row)
    }

    pub(crate) fn find(&self, versions: &Versions, blocks: &impl BlockSource, row: RowId) -> Result<Slot> {
        let Some(piece) = self.piece_with(row) else {
            return Ok(Slot::None);
        };
        let block_no = piece.block_of(row);
        let block = blocks.block_of(piece, versions, block_no)?;
        let at = block.find(row).ok_or_else(|| piece.damaged(block_no, row))?;
        if block.payload(at).is_none() {
            return Ok(Slot::Deleted);
        }
        Ok(Slot::Row(BaseRow {
            block,
            at,
            stamp: self.judged_stamp(),
        }))
    }

    /// True if the run has a slot of the row; it may say "deleted". No I/O.
    pub(crate) fn has_slot(&self, row: RowId) -> bool {
        self.piece_with(row).is_some()
    }

    /// The piece that has a slot of the row; it may say "deleted". No I/O.
    #[inline]
    pub(crate) fn piece_with(&self, row: RowId) -> Option<&Arc<RowPiece>> {
        let piece = self.pieces.get(self.piece_at(row))?;
        piece.has_slot(row).then_some(piece)
    }

    /// True if it has a slot of a row between these two, both included. No I/O.
    pub(crate) fn has_slot_within(&self, first: RowId, last: RowId) -> bool {
        let pieces = self.pieces.get(self.piece_at(first)..).unwrap_or(&[]);
        let mut pieces = pieces.iter().take_while(|piece| piece.first <= last);
        pieces.any(|piece| piece.is_dense || piece.has_row_within(first, last))
    }

    /// True if a piece may have slots of rows between these two, both included. No I/O.
    pub(crate) fn has_piece_within(&self, first: RowId, last: RowId) -> bool {
        let piece = self.pieces.get(self.piece_at(first));
        piece.is_some_and(|piece| piece.first <= last)
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Of all pieces.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.stamp.txn.raw() != 0
    }
}

impl RowPiece {
    /// A section of an open piece file.
    pub(crate) fn open(file: Arc<PieceFile>, section: u32) -> Result<Self> {
        let damaged = |found: String| StorageError::Corrupt {
            file: file.name().to_owned(),
            offset: 0,
            expected: format!("the set of row ids and the zones of section {section}"),
            found,
        };
        let (rows, zones) = {
            let found = file.section(section)?;
            let extra = SectionExtra::decode(&found.extra, found.block_count())
                .map_err(|fault| damaged(fault.to_string()))?;
            let rows = RoaringTreemap::deserialize_from(extra.rows);
            (rows.map_err(|fault| damaged(fault.to_string()))?, extra.zones)
        };
        let (first, last) = (rows.min().unwrap_or(0), rows.max().unwrap_or(0));
        let blocks = file.section(section)?.block_count();
        Ok(Self {
            is_dense: rows.len() == last - first + 1,
            shelf: BlockShelf::new(blocks),
            first: RowId::new(first),
            last: RowId::new(last),
            file,
            section,
            rows,
            zones,
        })
    }

    #[inline]
    pub(crate) fn has_slot(&self, row: RowId) -> bool {
        row >= self.first && row <= self.last && (self.is_dense || self.rows.contains(row.raw()))
    }

    /// Goes to the first row that is not before `first`; a count of the range would go through all rows before it.
    fn has_row_within(&self, first: RowId, last: RowId) -> bool {
        let mut rows = self.rows.iter();
        rows.advance_to(first.raw());
        rows.next().is_some_and(|row| row <= last.raw())
    }

    /// File and section, for the checkpoint image and the log.
    pub(crate) fn reference(&self) -> (SegmentId, u32) {
        (self.file.id(), self.section)
    }

    pub(crate) fn block_count(&self) -> usize {
        self.section().block_count()
    }

    pub(crate) fn section(&self) -> &Section {
        &self.file.sections()[self.section as usize]
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.section().stored_bytes
    }

    /// Number of the block that has the row, if one has.
    pub(crate) fn block_of(&self, row: RowId) -> usize {
        // A fence is a row id as a word.
        self.section().blocks_up_to_word(row.raw()).saturating_sub(1)
    }

    /// False if no row of the block can meet the filter's conditions. No I/O.
    pub(crate) fn admits_block(&self, versions: &Versions, filter: &RowFilter, block: usize) -> bool {
        filter.admits_block(versions, &self.zones, &self.section().extra, block)
    }

    /// Where row ids of the block begin, and the last one it can have.
    #[expect(clippy::big_endian_bytes, reason = "fences order as big-endian numbers do")]
    pub(crate) fn ids_of_block(&self, block: usize) -> (RowId, RowId) {
        let fence = |block: usize| {
            let bytes = self.section().first_key(block).try_into();
            u64::from_be_bytes(bytes.unwrap_or_default())
        };
        let last = if block + 1 < self.block_count() {
            RowId::new(fence(block + 1).saturating_sub(1))
        } else {
            self.last
        };
        (RowId::new(fence(block)), last)
    }

    /// A decoded block, from the cache or from disk.
    ///
    /// # Errors
    /// `DefinitionChanged` if it was written after the table had got other columns than `versions` knows (rule AL11).
    pub(crate) fn block(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
    ) -> Result<Arc<CachedRows>> {
        self.check_known(versions)?;
        let key = || self.block_key(block);
        let rows = cache.get_or_load_in(&self.shelf, block, key, || self.load(versions, block))?;
        self.newest(versions, cache, block, rows)
    }

    /// A block that stands on the shelf with the columns of now. No I/O.
    #[inline]
    pub(crate) fn block_on_shelf(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
    ) -> Option<Arc<CachedRows>> {
        let rows = cache.get_in(&self.shelf, block, || self.block_key(block))?;
        (rows.schema_version() == versions.current().version()).then_some(rows)
    }

    /// Asks for the first line of a block, if it stands on the shelf.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) {
        self.shelf.prefetch(block);
    }

    /// What `look` finds in a block that stands on the shelf with the columns of now. No I/O.
    #[inline]
    fn look_on_shelf<R>(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
        look: impl FnOnce(&CachedRows) -> R,
    ) -> Option<R> {
        let key = || self.block_key(block);
        let look = |rows: &CachedRows| {
            let is_of_now = rows.schema_version() == versions.current().version();
            is_of_now.then(|| look(rows))
        };
        cache.look_in(&self.shelf, block, key, look)?
    }

    fn load(&self, versions: &Versions, block: usize) -> pbxt_base::Result<CachedRows> {
        let mut raw = Vec::new();
        self.file.read_block(self.section, block, &mut raw)?;
        self.decode(versions, block, &raw)
    }

    /// Version of the columns it was written with.
    pub(crate) fn schema_version(&self) -> u16 {
        self.zones.schema_version()
    }

    /// Rule AL11.
    #[inline]
    pub(crate) fn check_known(&self, versions: &Versions) -> Result<()> {
        if self.zones.schema_version() <= versions.current().version() {
            return Ok(());
        }
        Err(Error::DefinitionChanged {
            table: format!("number {}", self.section().owner),
            why: "it was altered while it was read".into(),
        })
    }

    /// A block of the cache with the columns of now: it may have been kept since before an ALTER (rule AL8).
    #[inline]
    pub(crate) fn newest(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
        rows: Arc<CachedRows>,
    ) -> Result<Arc<CachedRows>> {
        if rows.schema_version() == versions.current().version() {
            return Ok(rows);
        }
        self.renew(versions, cache, block, &rows)
    }

    #[cold]
    fn renew(
        &self,
        versions: &Versions,
        cache: &BlockCache,
        block: usize,
        rows: &CachedRows,
    ) -> Result<Arc<CachedRows>> {
        if rows.schema_version() > versions.current().version() {
            // Others read it with later columns: this reader gets a copy of its own.
            return Ok(Arc::new(self.load(versions, block)?));
        }
        let renewed = versions.convert_block(rows.rows.clone());
        let renewed = renewed.map_err(|fault| self.unreadable(block, &fault))?;
        let renewed = Arc::new(CachedRows::of(renewed));
        cache.put_in(&self.shelf, block, self.block_key(block), &renewed);
        Ok(renewed)
    }

    /// Name of a block in the cache.
    pub(crate) fn block_key(&self, block: usize) -> BlockKey {
        BlockKey {
            class: SegmentClass::Cold,
            segment: self.file.id(),
            offset: self.section().block_offset(block),
        }
    }

    /// Rows of the bytes of a block; names file and place if they are damaged.
    pub(crate) fn decode(
        &self,
        versions: &Versions,
        block: usize,
        raw: &[u8],
    ) -> pbxt_base::Result<CachedRows> {
        let decoded = versions.decode_block(raw);
        decoded
            .map(CachedRows::of)
            .map_err(|fault| self.unreadable(block, &fault))
    }

    pub(crate) fn unreadable(&self, block: usize, fault: &pbxt_rows::Error) -> StorageError {
        StorageError::Corrupt {
            file: self.file.name().to_owned(),
            offset: self.section().block_offset(block),
            expected: "a row block of this table".into(),
            found: fault.to_string(),
        }
    }

    fn damaged(&self, block: usize, row: RowId) -> StorageError {
        StorageError::Corrupt {
            file: self.file.name().to_owned(),
            offset: self.section().block_offset(block),
            expected: format!("row {row}, which the piece's set of row ids has"),
            found: "a block without it".into(),
        }
    }
}
