//! Host tables: reading and writing rows in a host's record buffers.
//!
//! Why it exists: a database server keeps a row in one buffer of its own layout; encoding it, making its keys, storing
//! its large values and filling the buffer again is the same for every host, and belongs on this side of the border.
//! State: `HostTable` is compiled once per open table and shared; `HostCursor` has the buffers, so that a row costs no
//! allocation once they are warm.
//! Rules: X11 a key changed if key bytes or unpack information differ; a key whose bytes stay needs no new claim.
//! Latches and I/O: none; large values are written before the row record that names them (rule D2).

use crate::autoinc::Reserved;
use crate::cursor::{Bind, Cursor};
use crate::database::Database;
use crate::definition::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::index_cursor::Seek;
use crate::keys::{KeyChanges, key_limit};
use crate::session::Session;
use crate::table::Table;
pub use crate::version::Admission;
use crate::version::{RowVersion, Show};
use crate::write::{NewVersion, Terms, Updated};
use pbxt_base::RowId;
use pbxt_base::limits::{BLOB_BYTES_MIN, PAYLOAD_BYTES_MAX};
use pbxt_rows::{
    BlobRef, ColumnSet, External, HostKind, HostLayout, HostRecord, KeyEncoding, KeyMaker, KeyPart, KeySpec,
    Limits, Projection, RowCodec, RowFilter, Weigher,
};
use std::sync::Arc;

#[path = "host_build.rs"]
mod build;
#[path = "host_foreign.rs"]
mod foreign;
#[path = "host_index.rs"]
mod index;
#[path = "host_insert.rs"]
mod insert;
#[path = "host_judge.rs"]
mod judge;
#[path = "host_values.rs"]
mod values;
pub(crate) use build::StoredRecords;
use foreign::Foreign;
pub use index::{HostBound, HostIndex, HostRange};
pub use judge::EntryJudge;
use judge::Judging;
use values::RowValues;

/// Gives collation weights; the host's, or none.
pub type SharedWeigher = Arc<dyn Weigher + Send + Sync>;

/// What the engine asks of a host about tables that it opens by itself.
pub trait TableHost: Weigher + std::fmt::Debug {
    /// Computes the generated columns of a record of `table` that was changed by the action of a constraint (rule FK19). `host_session` is
    /// the one whose statement acts. Fails if the host has no such table open for the statement.
    fn generate(&self, _host_session: usize, _table: &str, _record: &mut [u8]) -> Result<()> {
        Ok(())
    }

    /// True if a column of this type, whose field has room for so many bytes, can hold the value: of text it may be too many characters,
    /// which the host alone can count (rule FK27).
    fn fits(&self, _type_text: &str, _field_bytes: usize, _value: &[u8]) -> bool {
        true
    }
}

impl TableHost for pbxt_rows::NoWeigher {}

/// The host of a database.
pub type SharedHost = Arc<dyn TableHost + Send + Sync>;

/// A table opened with a host's record layout.
pub struct HostTable {
    db: Arc<Database>,
    table: Arc<Table>,
    codec: RowCodec,
    makers: Vec<KeyMaker>,
    /// Columns that each index has.
    key_columns: Vec<Projection>,
    weigher: SharedWeigher,
    limits: Limits,
}

impl std::fmt::Debug for HostTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostTable")
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

impl HostTable {
    /// Opens a table; layout and indexes must be those it was created with, but for the extensions of indexes (rule X47).
    pub fn open(
        db: &Arc<Database>,
        name: &str,
        layout: HostLayout,
        indexes: &[HostIndex],
        weigher: SharedWeigher,
    ) -> Result<Self> {
        let table = db.catalog.find(name)?;
        let def = table.def();
        let other = |what| Error::OtherLayout {
            table: name.to_owned(),
            what,
        };
        let schema = layout.schema(def.schema.version())?;
        if schema != def.schema {
            return Err(other("columns"));
        }
        let given = indexes.iter().zip(&def.indexes);
        let fitted: Option<Vec<HostIndex>> = (indexes.len() == def.indexes.len())
            .then(|| {
                given
                    .map(|(given, stored)| given.fitted_to(&stored.spec, indexes))
                    .collect()
            })
            .flatten();
        let Some(fitted) = fitted else {
            return Err(other("indexes"));
        };
        Self::build(db, table, layout, &fitted, weigher)
    }

    /// Opens a table by what the catalog knows of its records, for changes that no host asks for.
    ///
    /// # Errors
    /// `Invalid` if the host told nothing of its records when it was made, or has no such collation any more.
    pub fn open_stored(db: &Arc<Database>, table: &Arc<Table>) -> Result<Self> {
        let def = table.def();
        let Some(record) = &def.host_record else {
            return Err(Error::Invalid(format!(
                "table '{}' was made by an older version, which did not keep the layout of its records: copy it with ALTER \
                 TABLE ... FORCE",
                def.name
            )));
        };
        let layout = record.layout(&def.schema)?;
        let index = |index: &IndexDef| -> Result<HostIndex> {
            Ok(HostIndex {
                contexts: stored_contexts(&*db.host, &def, &index.spec)?,
                spec: index.spec.clone(),
            })
        };
        let indexes = def.indexes.iter().map(index).collect::<Result<Vec<_>>>()?;
        let weigher: SharedWeigher = Arc::<dyn TableHost + Send + Sync>::clone(&db.host);
        Self::build(db, Arc::clone(table), layout, &indexes, weigher)
    }

    fn build(
        db: &Arc<Database>,
        table: Arc<Table>,
        layout: HostLayout,
        indexes: &[HostIndex],
        weigher: SharedWeigher,
    ) -> Result<Self> {
        let maker = |index: &HostIndex| KeyMaker::new(&index.spec, &layout, &index.contexts);
        let makers = indexes
            .iter()
            .map(maker)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let inline_max = PAYLOAD_BYTES_MAX.min(db.log().record_bytes_max() / 4);
        let limits = Limits {
            blob_min: BLOB_BYTES_MIN.min(inline_max),
            inline_max,
        };
        let codec = RowCodec::new(table.schema().clone(), layout)?;
        let key_columns = makers
            .iter()
            .map(|maker| codec.projection(maker.restorable_columns().clone()))
            .collect();
        Ok(Self {
            db: Arc::clone(db),
            table,
            codec,
            makers,
            key_columns,
            weigher,
            limits,
        })
    }

    /// The table generation.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// Appends the key prefix of a search tuple's first `parts` parts.
    pub fn search_key(&self, index: usize, tuple: &[u8], parts: usize, out: &mut Vec<u8>) -> Result<()> {
        let maker = self.maker(index)?;
        maker.key_from_search_tuple(tuple, parts, &*self.weigher, out)?;
        Ok(())
    }

    /// Parts of an index, those of its extension included.
    pub fn part_count(&self, index: usize) -> Result<usize> {
        Ok(self.maker(index)?.part_count())
    }

    /// Bytes of a search tuple of the first `parts` parts.
    pub fn tuple_length(&self, index: usize, parts: usize) -> Result<usize> {
        Ok(self.maker(index)?.tuple_length(parts))
    }

    /// Columns of the host's record.
    pub fn layout(&self) -> &HostLayout {
        self.codec.layout()
    }

    /// Hands out auto-increment values.
    pub fn reserve_auto_increment(&self, offset: u64, increment: u64, count: u64) -> Result<Reserved> {
        self.table
            .autoinc
            .reserve(self.db.log(), self.table.id, offset, increment, count)
    }

    /// Makes the next auto-increment value at least `next`.
    pub fn raise_auto_increment(&self, next: u64) -> Result<()> {
        self.table.autoinc.raise(self.db.log(), self.table.id, next)
    }

    /// Makes the next auto-increment value exactly `next`.
    pub fn set_auto_increment(&self, next: u64) -> Result<()> {
        self.table.autoinc.set(self.db.log(), self.table.id, next)
    }

    /// Makes and compares keys of an index.
    pub(crate) fn maker(&self, index: usize) -> Result<&KeyMaker> {
        self.makers.get(index).ok_or_else(|| {
            Error::Invalid(format!(
                "table '{}' has no index number {index}",
                self.table.name()
            ))
        })
    }

    /// About how many entries lie in a key range; short ranges are counted (rule X37).
    pub fn estimate_range(
        &self,
        index: usize,
        low: Option<(&[u8], bool)>,
        high: Option<(&[u8], bool)>,
    ) -> u64 {
        use pbxt_index::SeekPos;
        let Some(index) = self.table.indexes.get(index) else {
            return 1;
        };
        let low = low.map_or(SeekPos::START, |(key, inclusive)| {
            if inclusive {
                SeekPos::lower_bound(key)
            } else {
                SeekPos::upper_bound(key)
            }
        });
        let high = high.map_or(SeekPos::END, |(key, inclusive)| {
            if inclusive {
                SeekPos::upper_bound(key)
            } else {
                SeekPos::lower_bound(key)
            }
        });
        index.parts().range_count(&low, &high, &self.db.cache)
    }

    /// The keys of a record in all indexes, as one insert.
    fn insert_keys(&self, record: HostRecord<'_>, keys: &mut KeyChanges) -> Result<()> {
        keys.clear();
        for (number, maker) in self.makers.iter().enumerate() {
            let claim = self.table.indexes[number].def.unique && !maker.has_null(record)?;
            keys.push(
                number,
                claim,
                None,
                Some(&mut |out| self.key(number, maker, record, out)),
                &mut |out| Ok(maker.unpack_from_record(record, out)?),
            )?;
        }
        Ok(())
    }

    /// The keys that differ between two records.
    fn update_keys(
        &self,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
        keys: &mut KeyChanges,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        keys.clear();
        for (number, maker) in self.makers.iter().enumerate() {
            if !maker.changed(old, new, &*self.weigher, scratch)? {
                continue;
            }
            let claim = self.table.indexes[number].def.unique && !maker.has_null(new)?;
            keys.push(
                number,
                claim,
                Some(&mut |out| self.key(number, maker, old, out)),
                Some(&mut |out| self.key(number, maker, new, out)),
                &mut |out| Ok(maker.unpack_from_record(new, out)?),
            )?;
        }
        keys.unclaim_unchanged();
        Ok(())
    }

    fn key(&self, number: usize, maker: &KeyMaker, record: HostRecord<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        maker.key_from_record(record, &*self.weigher, out)?;
        let bytes = out.len() - start;
        let limit = key_limit(self.db.log().record_bytes_max());
        if bytes > limit {
            let index = self.table.indexes[number].def.name.clone();
            return Err(Error::KeyTooLarge {
                table: self.table.name().to_string(),
                index,
                bytes,
                limit,
            });
        }
        Ok(())
    }

    /// Encodes a record; its large values go to the blob store first (rule D2), but for those in `shared`.
    fn encode(
        &self,
        session: &mut Session,
        record: HostRecord<'_>,
        shared: &[External],
        payload: &mut Vec<u8>,
    ) -> Result<()> {
        payload.clear();
        let mut externals = Vec::new();
        for value in self.codec.plan(record, self.limits)? {
            if let Some(kept) = shared.iter().find(|kept| kept.column == value.column) {
                externals.push(*kept);
                continue;
            }
            let blob = session.keep_value(value.value)?;
            let blob = BlobRef {
                addr: blob.addr,
                len: blob.len,
                hash: blob.hash,
            };
            externals.push(External {
                column: value.column,
                blob,
            });
        }
        self.codec.encode(record, &externals, payload)?;
        Ok(())
    }
}

/// Contexts for the parts of an index of a table that no host has opened.
pub(crate) fn stored_contexts(host: &dyn TableHost, def: &TableDef, spec: &KeySpec) -> Result<Vec<usize>> {
    let context = |part: &KeyPart| {
        let KeyEncoding::Host { collation, .. } = part.encoding else {
            return Ok(0);
        };
        let columns = def.host_record.as_ref().map(|record| &record.columns);
        let column = columns.and_then(|columns| columns.get(usize::from(part.column)));
        let is_char = column
            .is_some_and(|column| matches!(column.place.kind, HostKind::Fixed(_) | HostKind::Padded { .. }));
        host.context(collation, part.length, part.prefix, is_char).ok_or_else(|| {
            Error::Invalid(format!(
                "the host has no collation {collation}, by which table '{}' has an index: install it again",
                def.name
            ))
        })
    };
    spec.parts().iter().map(context).collect()
}

/// A cursor that speaks in record buffers.
pub struct HostCursor {
    host: Arc<HostTable>,
    pub(crate) cursor: Cursor,
    projection: Projection,
    /// It has all columns.
    is_whole: bool,
    values: RowValues,
    payload: Vec<u8>,
    keys: KeyChanges,
    scratch: Vec<u8>,
    search: Vec<u8>,
    /// The index being read, if it has all columns that are wanted, in so many leading parts, and its entries are what the
    /// statement is shown.
    covering: Option<(usize, usize)>,
    judge: Option<Arc<dyn EntryJudge>>,
    /// The index being read, if its entries are judged.
    judged: Option<usize>,
    pub(crate) row: RowId,
    duplicate: (usize, RowId),
    has_blobs: bool,
    foreign: Foreign,
}

impl std::fmt::Debug for HostCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCursor")
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl HostCursor {
    /// A cursor on an open table.
    pub fn new(host: &Arc<HostTable>) -> Self {
        Self {
            cursor: Cursor::new(&host.table),
            projection: host
                .codec
                .projection(ColumnSet::all(host.codec.layout().columns().len())),
            is_whole: true,
            values: RowValues::new(host.db.blobs()),
            payload: Vec::new(),
            keys: KeyChanges::new(),
            scratch: Vec::new(),
            search: Vec::new(),
            covering: None,
            judge: None,
            judged: None,
            row: RowId::new(0),
            duplicate: (0, RowId::new(0)),
            has_blobs: host.codec.layout().has_blobs(),
            foreign: Foreign::default(),
            host: Arc::clone(host),
        }
    }

    /// The open table.
    pub fn host(&self) -> &Arc<HostTable> {
        &self.host
    }

    /// Joins the session's transaction for one statement.
    pub fn bind(&mut self, session: &mut Session, bind: Bind) -> Result<()> {
        self.covering = None;
        self.foreign.checks = bind.check_foreign_keys && !self.host.table.temporary;
        self.cursor.bind(session, bind)
    }

    /// Table scans that start from now on may leave out rows that this filter turns away; of the table's schema.
    pub fn set_filter(&mut self, filter: Option<RowFilter>) {
        self.cursor.set_filter(filter);
    }

    /// Row id of the row last read or inserted.
    pub fn row(&self) -> RowId {
        self.row
    }

    /// After a duplicate key: index position and the row that has the key.
    pub fn duplicate(&self) -> (usize, RowId) {
        self.duplicate
    }

    /// Leaves the transaction. Position and the values of the row last read stay.
    pub fn unbind(&mut self) {
        self.cursor.try_semi_consistent(false);
        self.cursor.suspend();
        self.cursor.count_shown(&self.host.db);
    }

    /// Ends a scan: trees, files and blocks it kept may go.
    pub fn scan_end(&mut self) {
        self.cursor.let_go();
        self.cursor.set_end(None);
    }

    /// End of a statement: frees the values of the row last read.
    pub fn reset(&mut self) {
        self.unbind();
        self.values.begin(RowId::new(0));
    }

    /// The cursor, and what writes into the record.
    #[inline]
    fn filling<'a>(&'a mut self, record: &'a mut [u8]) -> (&'a mut Cursor, Fill<'a>) {
        let judging = self
            .judged
            .and_then(|index| Judging::of(self.judge.as_deref(), &self.host, index));
        let fill = Fill {
            host: &self.host,
            projection: &self.projection,
            values: &mut self.values,
            has_blobs: self.has_blobs,
            record,
            covering: self
                .covering
                .and_then(|(index, parts)| Some((self.host.makers.get(index)?, parts))),
            judging,
            scratch: &mut self.scratch,
        };
        (&mut self.cursor, fill)
    }

    /// Begins a table scan.
    pub fn scan_start(&mut self, session: &mut Session) -> Result<()> {
        self.cursor.scan_start(session)
    }

    /// Fills `record` with the next row. False at the end.
    #[inline]
    pub fn scan_next(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        loop {
            let (cursor, mut fill) = self.filling(record);
            let found = cursor.scan_next(session, |row| fill.row(row))?;
            self.row = self.cursor.row();
            if !(found && self.is_gone_by_action(session)?) {
                return Ok(found);
            }
        }
    }

    /// Fills `record` with the row of this id. False if there is none for the statement.
    pub fn fetch(&mut self, session: &mut Session, row: RowId, record: &mut [u8]) -> Result<bool> {
        let (cursor, mut fill) = self.filling(record);
        let found = cursor.fetch(session, row, |row| fill.row(row))?;
        self.row = row;
        Ok(found)
    }

    /// Begins reading through an index.
    pub fn index_start(&mut self, session: &mut Session, index: usize) -> Result<()> {
        self.judged = None;
        self.cursor.index_start(session, index)?;
        self.cover(index)
    }

    /// Border for forward moves: a search tuple, or none.
    pub fn set_end(&mut self, index: usize, end: Option<(&[u8], usize, bool)>) -> Result<()> {
        let Some((tuple, parts, inclusive)) = end else {
            self.cursor.set_end(None);
            return Ok(());
        };
        self.scratch.clear();
        self.host.search_key(index, tuple, parts, &mut self.scratch)?;
        self.cursor.set_end(Some((&self.scratch, inclusive)));
        Ok(())
    }

    /// Goes to the row a search tuple names.
    pub fn seek(
        &mut self,
        session: &mut Session,
        index: usize,
        tuple: &[u8],
        parts: usize,
        seek: Seek,
        record: &mut [u8],
    ) -> Result<bool> {
        self.search.clear();
        self.host.search_key(index, tuple, parts, &mut self.search)?;
        let search = std::mem::take(&mut self.search);
        // Rule X49.
        let seek = match seek {
            Seek::Exact if parts == self.host.part_count(index)? => Seek::Key,
            other => other,
        };
        let (cursor, fill) = self.filling(record);
        let found = cursor.seek_showing(session, &search, seek, fill);
        self.search = search;
        let found = found?;
        self.row = self.cursor.row();
        if found && self.is_gone_by_action(session)? {
            let (forward, same) = seek.goes_on();
            return self.index_move(session, forward, same, record);
        }
        Ok(found)
    }

    /// First or last row of the index.
    pub fn index_edge(&mut self, session: &mut Session, last: bool, record: &mut [u8]) -> Result<bool> {
        let (cursor, fill) = self.filling(record);
        let found = cursor.index_edge_showing(session, last, fill)?;
        self.row = self.cursor.row();
        if found && self.is_gone_by_action(session)? {
            return self.index_move(session, !last, false, record);
        }
        Ok(found)
    }

    /// Next or previous row of the index; with `same` only while it begins with the prefix of the last seek.
    pub fn index_move(
        &mut self,
        session: &mut Session,
        forward: bool,
        same: bool,
        record: &mut [u8],
    ) -> Result<bool> {
        loop {
            let is_covered = forward && self.covering.is_some() && self.next_covered(same, record)?;
            let found = is_covered || {
                let (cursor, fill) = self.filling(record);
                let found = cursor.index_move_showing(session, forward, same, fill)?;
                self.row = self.cursor.row();
                found
            };
            if !(found && self.is_gone_by_action(session)?) {
                return Ok(found);
            }
        }
    }

    /// The row last read did not match.
    pub fn unlock_row(&mut self, session: &mut Session) {
        self.cursor.unlock_row(session);
    }

    /// From now on the host can come back to a row, or no longer.
    pub fn try_semi_consistent(&mut self, on: bool) {
        self.cursor.try_semi_consistent(on);
    }

    /// True if the row last read was shown without the lock it needs: the next move is to the same row.
    pub fn was_semi_consistent(&mut self) -> bool {
        self.cursor.was_semi_consistent()
    }

    /// Begins a bracket of many rows; see `Session::bulk_begin`. Rows of a table that refers to itself come one by one (rule FK20).
    pub fn bulk_begin(&mut self, session: &mut Session, expected_rows: u64, row_answers: bool) {
        // What cannot be found out is told by the first row.
        if self.refers_to_itself().unwrap_or(true) {
            return;
        }
        session.bulk_begin(&self.host.table, expected_rows, row_answers);
    }

    /// Ends the bracket; see `Session::bulk_end`. After a duplicate key, `duplicate` and `refused_row` tell of it.
    pub fn bulk_end(&mut self, session: &mut Session, abort: bool) -> Result<()> {
        let ended = session.bulk_end(&self.host.table, abort);
        self.note_duplicate(ended)
    }

    /// Fills `record` with the new row that a bulk load was refused for. False if there is none.
    pub fn refused_row(&mut self, session: &Session, record: &mut [u8]) -> Result<bool> {
        let Some(payload) = session.refused_row() else {
            return Ok(false);
        };
        let all = self.host.codec.all_columns();
        self.host.codec.decode(payload, all, record, &mut self.values)?;
        Ok(true)
    }

    /// Replaces the row `row`, last read as `old`, by `new`. False if nothing differs.
    pub fn update(
        &mut self,
        session: &mut Session,
        row: RowId,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
    ) -> Result<bool> {
        if !self.is_whole {
            return Err(Error::Invalid(format!(
                "a row of table '{}' is to be changed, but this cursor reads some of its columns only: let it read all of them before",
                self.host.table.name()
            )));
        }
        if self.foreign.checks {
            return self.update_checked(session, row, old, new);
        }
        let updated = self.replace(session, row, old, new, None)?;
        Ok(updated == Updated::Written)
    }

    /// `update` without a look at constraints; with one at `bindings`, if that is what the caller knows of them (rule FK23).
    fn replace(
        &mut self,
        session: &mut Session,
        row: RowId,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
        bindings: Option<u64>,
    ) -> Result<Updated> {
        self.host
            .update_keys(old, new, &mut self.keys, &mut self.scratch)?;
        let mut shared = self.values.unchanged(&self.host, row, old, new)?;
        loop {
            self.host.encode(session, new, &shared, &mut self.payload)?;
            let version = NewVersion {
                payload: &self.payload,
                schema_version: self.host.codec.schema().version(),
                keys: &self.keys,
            };
            let named: Vec<BlobRef> = shared.iter().map(|external| external.blob).collect();
            let mut terms = Terms::bound(bindings);
            let updated = session.update_on(&self.host.table, row, (version, &named), &mut terms);
            match self.note_duplicate(updated)? {
                // Somebody changed the row since it was read: all values are stored with the new version.
                Updated::Unshared => shared.clear(),
                updated => return Ok(updated),
            }
        }
    }

    /// Deletes the row `row`.
    pub fn delete(&mut self, session: &mut Session, row: RowId) -> Result<()> {
        if self.foreign.checks {
            return self.delete_checked(session, row);
        }
        session.delete(&self.host.table, row)
    }

    fn note_duplicate<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::DuplicateKey { index_no, row, .. }) = &result {
            self.duplicate = (*index_no, *row);
        }
        result
    }
}

/// Decodes what is shown into the host's buffer.
struct Fill<'a> {
    host: &'a HostTable,
    projection: &'a Projection,
    values: &'a mut RowValues,
    has_blobs: bool,
    record: &'a mut [u8],
    /// Makes columns from keys, where the index being read has all that are wanted.
    covering: Option<(&'a KeyMaker, usize)>,
    judging: Option<Judging<'a>>,
    scratch: &'a mut Vec<u8>,
}

impl Show for Fill<'_> {
    #[inline]
    fn row(&mut self, row: &RowVersion<'_>) -> Result<()> {
        self.values.turn_to(row.row(), self.has_blobs);
        self.host
            .codec
            .decode(row.payload(), self.projection, self.record, self.values)?;
        Ok(())
    }

    #[inline]
    fn is_choosy(&self) -> bool {
        self.judging.is_some()
    }

    #[inline]
    fn admit(&mut self, key: &[u8], unpack: &[u8], row: RowId) -> Result<Admission> {
        self.ask(key, unpack, row)
    }

    #[inline]
    fn wants_key(&self) -> bool {
        self.covering.is_some()
    }

    fn key(&mut self, key: &[u8], unpack: &[u8]) -> Result<()> {
        if let Some((maker, parts_used)) = self.covering {
            if self.has_blobs {
                self.values.begin(RowId::new(0));
            }
            maker.record_from_key(
                (key, unpack),
                parts_used,
                self.projection,
                self.record,
                self.values,
                self.scratch,
            )?;
        }
        Ok(())
    }
}
