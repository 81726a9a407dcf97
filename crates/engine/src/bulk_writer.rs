//! Bulk writer: makes files of the chunks of a load: row blocks at once, index entries sorted, one run an index at the end.
//!
//! Why it exists: a row of a load is written once, where it stays, and its index entries are merged before anybody reads them;
//! row by row they would go through the log, a tree, a checkpoint and several merges.
//! Rules: L1, L2. L3 nothing of a load is named by anything before all of it is durable. L4 a load that ends otherwise
//! removes its files. B6 its files are held from their creation to the end of the load.
//! Latches and I/O: none held; writes piece files, in the thread of the load.
//! After a crash: unnamed files are removed at open.

use crate::bulk_chunk::{Chunk, Ranks};
use crate::bulk_sort::{FAN_IN, MergedSource};
use crate::bulk_spill::{Part, Source, SpillWriter};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::row_shape::{RowPiece, RowRun, Slot};
use crate::row_writer::RowWriter;
use crate::table::Table;
use parking_lot::Mutex;
use pbxt_base::{Lsn, RowId, SegmentId, TxnId, stop_point};
use pbxt_index::{PIECE_BYTES_MAX, Run, RunBuilder, Sign};
use pbxt_io::for_each_parallel;
use pbxt_segment::{PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_txn::Stamp;
use roaring::RoaringTreemap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Indexes whose runs are built at the same time.
const BUILDERS: usize = 2;
/// Entries between two looks at the stop flag.
const STOP_CHECK: u64 = 1 << 16;

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
    _held: [Held; 2],
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

/// Finished files of a load; removed when dropped (rule L4).
#[derive(Debug)]
pub(crate) struct LoadFiles {
    store: Arc<SegmentStore>,
    files: Vec<(SegmentClass, SegmentId)>,
}

impl LoadFiles {
    /// From now on something names them.
    pub(crate) fn keep(&mut self) {
        self.files.clear();
    }
}

impl Drop for LoadFiles {
    fn drop(&mut self) {
        for &(class, id) in &self.files {
            // If it cannot go now, the next opening removes it as an orphan.
            let _ = self.store.remove_piece(class, id);
        }
    }
}

/// Keeps every piece file made since from being taken for an orphan (rule B6).
#[derive(Debug)]
struct Held {
    db: Arc<Database>,
    job: u64,
}

impl Held {
    fn begin(db: &Arc<Database>) -> Self {
        Self {
            db: Arc::clone(db),
            job: db.flight.begin(&db.store).detach(),
        }
    }

    /// Only these files are held from now on.
    fn narrow_to(&self, files: Vec<(SegmentClass, SegmentId)>) {
        let job = self.db.flight.resume(self.job);
        job.narrow_to(files);
        job.detach();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.db.flight.resume(self.job));
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct BulkWriter {
    db: Arc<Database>,
    table: Arc<Table>,
    stop: Arc<AtomicBool>,
    /// Index by which rows are ordered.
    cluster: Option<usize>,
    out: Option<PieceWriter>,
    /// Sections of `out`, and of finished files.
    open_sections: Vec<u32>,
    sections: Vec<(SegmentId, u32)>,
    files: LoadFiles,
    held: Held,
    /// Every file begun so far.
    begun: Vec<(SegmentClass, SegmentId)>,
    /// Sorted entries of each index.
    parts: Vec<Vec<Part>>,
    items: Vec<u128>,
    count: u64,
}

/// The last chunk, in order, still in memory.
struct LastChunk {
    chunk: Chunk,
    base: RowId,
    items: Vec<Vec<u128>>,
}

impl BulkWriter {
    pub(crate) fn new(db: &Arc<Database>, table: &Arc<Table>, stop: &Arc<AtomicBool>) -> Self {
        let primary = table.indexes.iter().position(|index| index.def.primary);
        let held = Held::begin(db);
        held.narrow_to(Vec::new());
        Self {
            db: Arc::clone(db),
            table: Arc::clone(table),
            stop: Arc::clone(stop),
            cluster: primary.or_else(|| table.indexes.iter().position(|index| index.def.unique)),
            out: None,
            open_sections: Vec::new(),
            sections: Vec::new(),
            files: LoadFiles {
                store: Arc::clone(&db.store),
                files: Vec::new(),
            },
            held,
            begun: Vec::new(),
            parts: std::iter::repeat_with(Vec::new)
                .take(table.indexes.len())
                .collect(),
            items: Vec::new(),
            count: 0,
        }
    }

    /// Writes the rows of a chunk and spills its keys.
    pub(crate) fn take(&mut self, chunk: &Chunk) -> Result<()> {
        let (ranks, base) = self.write_rows(chunk)?;
        let mut items = std::mem::take(&mut self.items);
        let mut spill = self.new_spill()?;
        for (number, arena) in chunk.indexes.iter().enumerate() {
            self.check_stop()?;
            arena.sort(ranks.as_ref(), &mut items);
            spill.begin(number);
            for &item in &items {
                spill.push(&arena.entry(item, base))?;
            }
            spill.end()?;
        }
        self.items = items;
        let parts = spill.finish(0)?;
        for (parts, part) in self.parts.iter_mut().zip(parts) {
            if part.entries > 0 {
                parts.push(part);
            }
        }
        for number in 0..self.parts.len() {
            self.reduce(number)?;
        }
        Ok(())
    }

    /// Ends the load: its files are durable, its runs carry the tag.
    pub(crate) fn finish(
        mut self,
        last: Option<Chunk>,
        tag: (TxnId, Lsn),
    ) -> std::result::Result<Loaded, Failed> {
        // Rule B6: files begun from here on; those before stay held with it until the shape names all of them.
        let newer = Held::begin(&self.db);
        let last = match last {
            Some(chunk) if chunk.rows() > 0 => Some(self.sort_last(chunk)?),
            _ => None,
        };
        self.finish_row_file()?;
        let rows = self.open_rows(tag)?;
        let (runs, unclaimed) = self.build_runs(last.as_ref(), tag, &rows)?;
        stop_point!("bulk.after_files");
        Ok(Loaded {
            rows: Arc::new(rows),
            runs,
            unclaimed,
            count: self.count,
            files: self.files,
            _held: [self.held, newer],
        })
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Killed);
        }
        Ok(())
    }

    /// Begins a file, which is held from its first moment on (rule B6).
    fn create(&mut self, class: SegmentClass) -> Result<PieceWriter> {
        let newer = Held::begin(&self.db);
        let out = PieceWriter::create(&self.db.store, class)?;
        self.begun.push((class, out.id()));
        self.held.narrow_to(self.begun.clone());
        drop(newer);
        Ok(out)
    }

    fn new_spill(&mut self) -> Result<SpillWriter> {
        let out = self.create(SegmentClass::Meta)?;
        Ok(SpillWriter::new(&self.db.store, out))
    }

    /// Gives the rows their ids (rule L1) and writes them; how they are ordered, and the first id.
    fn write_rows(&mut self, chunk: &Chunk) -> Result<(Option<Ranks>, RowId)> {
        self.check_stop()?;
        let ranks = self.cluster.and_then(|by| chunk.rank(by, &mut self.items));
        let rows = chunk.rows() as u64;
        let base = self.table.map.allocate_many(rows);
        let mut out = match self.out.take() {
            Some(out) => out,
            None => self.create(SegmentClass::Cold)?,
        };
        let table = Arc::clone(&self.table);
        let mut writer = RowWriter::new(table.schema(), table.def().compression.base());
        RowWriter::begin(&mut out, table.id);
        for place in 0..chunk.rows() {
            let number = ranks.as_ref().map_or(place, |ranks| ranks.order[place] as usize);
            let row = RowId::new(base.raw() + place as u64);
            writer.push(&mut out, row, Some(chunk.payload(number)))?;
        }
        self.open_sections.push(writer.end(&mut out)?);
        self.count += rows;
        let is_full = out.file_bytes() >= PIECE_BYTES_MAX.min(self.db.piece_sizes().file);
        self.out = Some(out);
        if is_full {
            self.finish_row_file()?;
        }
        Ok((ranks, base))
    }

    fn finish_row_file(&mut self) -> Result<()> {
        if let Some(out) = self.out.take() {
            let class = out.class();
            let id = out.finish()?;
            self.files.files.push((class, id));
            let sections = self.open_sections.drain(..);
            self.sections.extend(sections.map(|section| (id, section)));
        }
        Ok(())
    }

    /// Merges the parts of an index while there are so many of one level that the last merge would take too much memory.
    fn reduce(&mut self, number: usize) -> Result<()> {
        while let Some(level) = self.parts[number].last().map(|part| part.level) {
            let begin = self.parts[number].partition_point(|part| part.level > level);
            if self.parts[number].len() - begin < FAN_IN {
                return Ok(());
            }
            let mut spill = self.new_spill()?;
            let parts = self.parts[number].split_off(begin);
            let sources = parts.iter().map(Source::file).collect::<Result<_>>()?;
            let mut merged = MergedSource::new(sources);
            spill.begin(number);
            let mut entries = 0_u64;
            while let Some(entry) = merged.entry() {
                spill.push(&entry)?;
                merged.advance()?;
                entries += 1;
                if entries.is_multiple_of(STOP_CHECK) {
                    self.check_stop()?;
                }
            }
            spill.end()?;
            drop(merged);
            self.parts[number].extend(spill.finish(level + 1)?);
        }
        Ok(())
    }

    /// Writes the rows of the last chunk and sorts its keys; they are merged from memory.
    fn sort_last(&mut self, chunk: Chunk) -> Result<LastChunk> {
        let (ranks, base) = self.write_rows(&chunk)?;
        let mut items = Vec::with_capacity(chunk.indexes.len());
        for arena in &chunk.indexes {
            let mut sorted = Vec::new();
            arena.sort(ranks.as_ref(), &mut sorted);
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
        let built: Mutex<Vec<Option<Built>>> = Mutex::new(numbers.iter().map(|_| None).collect());
        let result: std::result::Result<(), Failed> = for_each_parallel(&numbers, BUILDERS, |&number| {
            let made = self.build_run(number, last, tag, rows)?;
            built.lock()[number] = Some(made);
            Ok(())
        });
        let built = built.into_inner();
        for made in built.iter().flatten() {
            let pieces = made.run.pieces.iter();
            let files = pieces.map(|piece| (SegmentClass::Meta, piece.reference().0));
            self.files.files.extend(files);
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
        let mut sources = self.parts[number]
            .iter()
            .map(Source::file)
            .collect::<Result<Vec<_>>>()?;
        sources.extend(
            last.map(|last| Source::memory(&last.chunk.indexes[number], &last.items[number], last.base)),
        );
        let mut merged = MergedSource::new(sources);
        let codec = self.table.def().compression.base();
        let mut builder = RunBuilder::new(&self.db.store, index.def.id, Some(tag), codec)
            .with_filter(index.def.unique)
            .with_suffix(index.def.spec.suffix_bytes());
        let mut unclaimed = RoaringTreemap::new();
        let mut claimed = Claimed::default();
        while let Some(entry) = merged.entry() {
            builder.push(
                entry.key,
                entry.row,
                Lsn::new(0),
                Sign::Entry,
                TxnId::new(0),
                entry.unpack,
            )?;
            if index.def.unique {
                if !entry.claim {
                    unclaimed.insert(entry.row.raw());
                } else if let Some(first) = claimed.pass(entry.key, entry.row) {
                    let twins = (first.min(entry.row), first.max(entry.row));
                    return Err(self.twins(number, twins, rows)?);
                }
            }
            if builder.entries().is_multiple_of(STOP_CHECK) {
                self.check_stop()?;
            }
            merged.advance()?;
        }
        let run = builder.finish()?;
        Ok(Built { run, unclaimed })
    }

    fn twins(&self, index: usize, twins: (RowId, RowId), rows: &RowRun) -> Result<Failed> {
        Ok(Failed::Twins(Twins {
            index,
            rows: twins,
            payload: payload_of(&self.db, &self.table, rows, twins.1)?,
        }))
    }
}

struct Built {
    run: Run,
    unclaimed: RoaringTreemap,
}

/// The key claimed last.
#[derive(Default)]
struct Claimed {
    key: Vec<u8>,
    row: Option<RowId>,
}

impl Claimed {
    /// Notes a claim; the row before it, if that has the same key.
    #[inline]
    fn pass(&mut self, key: &[u8], row: RowId) -> Option<RowId> {
        let before = self.row.replace(row).filter(|_| self.key == key);
        if before.is_none() {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        before
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
