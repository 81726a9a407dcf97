//! Bulk writer: makes files of the chunks of a load: row blocks at once, index entries sorted, one run an index at the end.
//!
//! Why it exists: a row of a load is written once, where it stays, and its index entries are merged before anybody reads them;
//! row by row they would go through the log, a tree, a checkpoint and several merges.
//! Rules: L1, L16. L3 nothing of a load is named by anything before all of it is durable. L4, B6 (bulk_files). L2 (bulk_keys).
//! Latches and I/O: none held; writes piece files, in the thread of the load.
//! After a crash: unnamed files are removed at open.

use crate::bulk_chunk::{Chunk, Ranks};
use crate::bulk_files::{Held, LoadFiles};
use crate::bulk_gather::Gathering;
use crate::bulk_keys::{Built, KeySorter, Unbuilt};
use crate::bulk_spill::Source;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::row_shape::{RowPiece, RowRun, Slot};
use crate::row_writer::RowWriter;
use crate::table::Table;
use parking_lot::Mutex;
use pbxt_base::{Lsn, RowId, SegmentId, TxnId, stop_point};
use pbxt_index::{PIECE_BYTES_MAX, Run};
use pbxt_io::for_each_parallel;
use pbxt_segment::{Codec, PieceFile, PieceWriter, SegmentClass};
use pbxt_txn::Stamp;
use roaring::RoaringTreemap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Indexes whose runs are built at the same time, at most.
const BUILDERS: usize = 2;

/// What a load has written, not yet part of the table.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub rows: Arc<RowRun>,
    /// One run for each index, in their order.
    pub runs: Vec<Arc<Run>>,
    /// Rows whose key in an index need not be the only one, for unique indexes.
    pub unclaimed: Vec<RoaringTreemap>,
    /// Rows of the load.
    pub count: u64,
    /// Removes the files unless they are kept.
    pub files: LoadFiles,
    /// Rule B6: these files, until the shape names them.
    _held: Held,
}

/// A key that two rows of the load have.
#[derive(Debug)]
pub(crate) struct Twins {
    pub index: usize,
    /// Which was there first, and which is one too many.
    pub rows: (RowId, RowId),
    /// Payload of the latter.
    pub payload: Vec<u8>,
}

/// Why there is nothing to make part of the table.
#[derive(Debug)]
pub(crate) enum Failed {
    Twins(Twins),
    Error(Error),
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// What the thread of a load and the session that waits for it tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    stop: AtomicBool,
    /// Index entries that were merged into runs, and all that will be; 0 before that begins.
    merged: AtomicU64,
    to_merge: AtomicU64,
}

impl Signals {
    /// Nobody wants the load any more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How far the end of the load is: entries merged, and all there are.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let all = self.to_merge.load(Ordering::Relaxed);
        (self.merged.load(Ordering::Relaxed).min(all), all)
    }

    fn expect(&self, entries: u64) {
        self.to_merge.store(entries, Ordering::Relaxed);
    }

    /// Counts merged entries; an error if the load is to stop.
    fn advance(&self, entries: u64) -> Result<()> {
        self.merged.fetch_add(entries, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Killed);
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BulkWriter {
    db: Arc<Database>,
    table: Arc<Table>,
    signals: Arc<Signals>,
    /// Index by which rows are ordered.
    cluster: Option<usize>,
    /// Rows that came in no order.
    gathering: Gathering,
    /// Bytes of a chunk of gathered rows.
    chunk_bytes: usize,
    /// Rows that came, written or gathered.
    came: u64,
    /// The file of rows that is being written, and its section (rule L15).
    open: Option<(PieceWriter, RowWriter)>,
    /// Of finished files.
    sections: Vec<(SegmentId, u32)>,
    files: LoadFiles,
    /// Sorted entries of each index; holds the files of the load, those of rows too.
    keys: KeySorter,
    count: u64,
}

/// The last chunk, in order, still in memory.
struct LastChunk {
    chunk: Chunk,
    base: RowId,
    items: Vec<Vec<u128>>,
}

impl BulkWriter {
    pub(crate) fn new(
        db: &Arc<Database>,
        table: &Arc<Table>,
        signals: &Arc<Signals>,
        chunk_bytes: usize,
    ) -> Self {
        let primary = table.indexes.iter().position(|index| index.def.primary);
        Self {
            db: Arc::clone(db),
            table: Arc::clone(table),
            signals: Arc::clone(signals),
            cluster: primary.or_else(|| table.indexes.iter().position(|index| index.def.unique)),
            gathering: Gathering::new(chunk_bytes),
            chunk_bytes,
            came: 0,
            open: None,
            sections: Vec::new(),
            files: LoadFiles::new(db),
            keys: KeySorter::new(db, table.indexes.len()),
            count: 0,
        }
    }

    /// Writes the rows of a chunk and spills its keys; rows in no order wait for others (rule L16).
    pub(crate) fn take(&mut self, chunk: &Chunk) -> Result<()> {
        self.came += chunk.rows() as u64;
        let ranks = self.rank(chunk);
        if self.gather(chunk, ranks.as_ref())? {
            if self.gathering.is_full() {
                let rest = self.write_gathered()?;
                self.take_ranked(&rest, None)?;
            }
            return Ok(());
        }
        self.take_ranked(chunk, ranks.as_ref())
    }

    fn rank(&mut self, chunk: &Chunk) -> Option<Ranks> {
        self.cluster.and_then(|by| chunk.rank(by, self.keys.items()))
    }

    /// Takes a chunk in no order to the other ones like it; false if it is not like that.
    fn gather(&mut self, chunk: &Chunk, ranks: Option<&Ranks>) -> Result<bool> {
        let (Some(by), Some(ranks)) = (self.cluster, ranks) else {
            return Ok(false);
        };
        if !chunk.is_to_be_gathered(ranks) {
            return Ok(false);
        }
        self.signals.advance(0)?;
        let spill = self.keys.new_spill()?;
        self.gathering.take(chunk, (by, ranks), spill)?;
        Ok(true)
    }

    /// Gives gathered rows their ids and writes them, all but the last chunk of them.
    fn write_gathered(&mut self) -> Result<Chunk> {
        let mut rows = self.gathering.merge()?;
        let mut chunk = Chunk::new(self.table.indexes.len());
        while rows.fill(&mut chunk, self.chunk_bytes)? {
            self.take_ranked(&chunk, None)?;
            self.signals.advance(chunk.rows() as u64)?;
        }
        self.signals.advance(chunk.rows() as u64)?;
        Ok(chunk)
    }

    fn take_ranked(&mut self, chunk: &Chunk, ranks: Option<&Ranks>) -> Result<()> {
        let base = self.write_rows(chunk, ranks)?;
        if chunk.indexes.is_empty() {
            return Ok(());
        }
        let signals = Arc::clone(&self.signals);
        let mut pulse = |_: u64| signals.advance(0);
        self.keys.spill(&chunk.indexes, ranks, base, &mut pulse)
    }

    /// Ends the load: its files are durable, its runs carry the tag.
    pub(crate) fn finish(mut self, last: Chunk, tag: (TxnId, Lsn)) -> std::result::Result<Loaded, Failed> {
        // Rule B6: files begun from here on; those before are held with the keys.
        let held = Held::begin(&self.db);
        let last = self.take_last(last)?;
        self.finish_row_file()?;
        let rows = self.open_rows(tag)?;
        let (runs, unclaimed) = self.build_runs(last.as_ref(), tag, &rows)?;
        stop_point!("bulk.after_files");
        // There are no others to come, and it may have to wait for a key for long.
        held.narrow_to(self.files.list());
        Ok(Loaded {
            rows: Arc::new(rows),
            runs,
            unclaimed,
            count: self.count,
            files: self.files,
            _held: held,
        })
    }

    /// Takes the last chunk that came, and gives ids to all that was gathered; what is the last chunk to be written then, if any.
    fn take_last(&mut self, chunk: Chunk) -> Result<Option<LastChunk>> {
        self.came += chunk.rows() as u64;
        let ranks = self.rank(&chunk);
        let (chunk, ranks) = if self.gathering.is_empty() {
            (chunk, ranks)
        } else {
            // How far the end of the load is begins to be told here.
            self.signals.expect(self.work());
            if chunk.rows() > 0 && !self.gather(&chunk, ranks.as_ref())? {
                self.take_ranked(&chunk, ranks.as_ref())?;
            }
            drop(chunk);
            (self.write_gathered()?, None)
        };
        if chunk.rows() == 0 {
            return Ok(None);
        }
        self.sort_last(chunk, ranks.as_ref()).map(Some)
    }

    /// All that is merged until the load ends: gathered rows, and index entries.
    fn work(&self) -> u64 {
        self.gathering.rows + self.came * self.table.indexes.len() as u64
    }

    /// Gives the rows their ids (rule L1) and writes them; the first id.
    fn write_rows(&mut self, chunk: &Chunk, ranks: Option<&Ranks>) -> Result<RowId> {
        self.signals.advance(0)?;
        let rows = chunk.rows() as u64;
        let base = self.table.map.allocate_many(rows);
        let (mut out, mut writer) = match self.open.take() {
            Some(open) => open,
            None => self.begin_row_file()?,
        };
        for place in 0..chunk.rows() {
            let number = ranks.map_or(place, |ranks| ranks.order[place] as usize);
            let row = RowId::new(base.raw() + place as u64);
            writer.push(&mut out, row, Some(chunk.payload(number)))?;
        }
        self.count += rows;
        let sizes = self.db.piece_sizes();
        let is_full = out.file_bytes() >= PIECE_BYTES_MAX.min(sizes.file.max(sizes.base));
        self.open = Some((out, writer));
        if is_full {
            self.finish_row_file()?;
        }
        Ok(base)
    }

    fn begin_row_file(&mut self) -> Result<(PieceWriter, RowWriter)> {
        let mut out = self.keys.create(SegmentClass::Cold)?;
        let codec = self.table.def().compression.base();
        // Rule L14.
        if codec != Codec::Plain && self.db.has_background() && self.db.threads > 1 {
            out.press_aside()?;
        }
        RowWriter::begin(&mut out, self.table.id);
        Ok((out, RowWriter::new(self.table.schema(), codec)))
    }

    fn finish_row_file(&mut self) -> Result<()> {
        if let Some((mut out, mut writer)) = self.open.take() {
            let section = writer.end(&mut out)?;
            let class = out.class();
            let id = out.finish()?;
            self.files.add(class, id);
            self.sections.push((id, section));
        }
        Ok(())
    }

    /// Writes the rows of the last chunk and sorts its keys; they are merged from memory.
    fn sort_last(&mut self, chunk: Chunk, ranks: Option<&Ranks>) -> Result<LastChunk> {
        let base = self.write_rows(&chunk, ranks)?;
        let mut items = Vec::with_capacity(chunk.indexes.len());
        for arena in &chunk.indexes {
            let mut sorted = Vec::new();
            arena.sort(ranks, &mut sorted);
            items.push(sorted);
        }
        Ok(LastChunk { chunk, base, items })
    }

    fn open_rows(&self, tag: (TxnId, Lsn)) -> Result<RowRun> {
        let mut pieces = Vec::with_capacity(self.sections.len());
        let mut open: Option<Arc<PieceFile>> = None;
        for &(id, section) in &self.sections {
            let file = match &open {
                Some(file) if file.id() == id => Arc::clone(file),
                _ => PieceFile::open(&self.db.store, SegmentClass::Cold, id)?,
            };
            pieces.push(Arc::new(RowPiece::open(Arc::clone(&file), section)?));
            open = Some(file);
        }
        let stamp = Stamp {
            txn: tag.0,
            lsn: tag.1,
        };
        Ok(RowRun::new(stamp, pieces))
    }

    fn build_runs(
        &mut self,
        last: Option<&LastChunk>,
        tag: (TxnId, Lsn),
        rows: &RowRun,
    ) -> std::result::Result<(Vec<Arc<Run>>, Vec<RoaringTreemap>), Failed> {
        let numbers: Vec<usize> = (0..self.table.indexes.len()).collect();
        self.signals.expect(self.work());
        let builders = BUILDERS.min(self.db.threads);
        let built: Mutex<Vec<Option<Built>>> = Mutex::new(numbers.iter().map(|_| None).collect());
        let result: std::result::Result<(), Failed> = for_each_parallel(&numbers, builders, |&number| {
            let made = self.build_run(number, last, tag, rows)?;
            built.lock()[number] = Some(made);
            Ok(())
        });
        let built = built.into_inner();
        for made in built.iter().flatten() {
            for piece in &made.run.pieces {
                self.files.add(SegmentClass::Meta, piece.reference().0);
            }
        }
        result?;
        let pairs = built
            .into_iter()
            .flatten()
            .map(|made| (Arc::new(made.run), made.unclaimed));
        Ok(pairs.unzip())
    }

    fn build_run(
        &self,
        number: usize,
        last: Option<&LastChunk>,
        tag: (TxnId, Lsn),
        rows: &RowRun,
    ) -> std::result::Result<Built, Failed> {
        let index = &self.table.indexes[number];
        let last =
            last.map(|last| Source::memory(&last.chunk.indexes[number], &last.items[number], last.base));
        let how = (Some(tag), self.table.def().compression.base());
        let mut pulse = |entries: u64| self.signals.advance(entries);
        let built = self.keys.build_run(number, &index.def, how, last, &mut pulse);
        built.or_else(|unbuilt| match unbuilt {
            Unbuilt::Twins(first, second) => Err(self.twins(number, (first, second), rows)?),
            Unbuilt::Error(error) => Err(error.into()),
        })
    }

    fn twins(&self, index: usize, twins: (RowId, RowId), rows: &RowRun) -> Result<Failed> {
        Ok(Failed::Twins(Twins {
            index,
            rows: twins,
            payload: payload_of(&self.db, &self.table, rows, twins.1)?,
        }))
    }
}

/// Payload of a row of the load.
pub(crate) fn payload_of(db: &Database, table: &Table, rows: &RowRun, row: RowId) -> Result<Vec<u8>> {
    let found = match rows.find(table.versions(), &*db.cache, row)? {
        Slot::Row(found) => Some(found),
        Slot::None | Slot::Deleted => None,
    };
    let payload = found.as_ref().and_then(|base| base.block.payload(base.at));
    Ok(payload.map(<[u8]>::to_vec).unwrap_or_default())
}
