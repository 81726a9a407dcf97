//! Cursors: scans, index reads, fetches and row changes.

use crate::foreign_keys::{Violated, violated};
use crate::guard::{Failure, bytes, call, value};
use crate::session::{PbxtSession, session};
use crate::status::Status;
use crate::table::{PbxtTable, optional_session, table};
use pbxt::host::{HostCursor, HostTable};
use pbxt::{Bind, Busy, Error, Seek, Session};
use pbxt_base::RowId;
use pbxt_rows::{ColumnSet, Condition, HostRecord, RowFilter};
use pbxt_txn::LockMode;
use std::ops::Bound;
use std::sync::Arc;

/// `pbxt_bind`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtBind {
    pub lock_mode: u8,
    pub for_write: u8,
    pub skip_locked: u8,
    pub no_wait: u8,
    pub autonomous: u8,
    pub newest: u8,
    pub check_foreign_keys: u8,
    pub leave_out_damaged: u8,
}

/// `pbxt_condition`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtCondition {
    pub column: u32,
    pub kind: u8,
    pub low_inclusive: u8,
    pub high_inclusive: u8,
    pub low: *const u8,
    pub low_len: usize,
    pub high: *const u8,
    pub high_len: usize,
}

/// # Safety
/// `value` is null or names that many readable bytes while `'a` lasts.
unsafe fn bound<'a>(value: *const u8, len: usize, inclusive: u8) -> Bound<&'a [u8]> {
    if value.is_null() {
        return Bound::Unbounded;
    }
    // SAFETY: by the contract above.
    let value = unsafe { bytes(value, len) };
    if inclusive == 0 {
        Bound::Excluded(value)
    } else {
        Bound::Included(value)
    }
}

/// `pbxt_cursor`.
#[derive(Debug)]
pub struct PbxtCursor {
    host: Arc<HostTable>,
    cursor: HostCursor,
    session: *mut PbxtSession,
    /// Session of its own: each change commits by itself.
    autonomous: Option<Box<Session>>,
    columns: usize,
    record_bytes: usize,
    index: usize,
    /// By the last change, if that is why it failed.
    violated: Option<Violated>,
}

impl PbxtCursor {
    /// The constraint that the last change violated.
    pub(crate) fn violated(&self) -> Option<&Violated> {
        self.violated.as_ref()
    }

    /// Passes on the result of a change, and keeps which constraint forbade it.
    #[inline]
    pub(crate) fn judged<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.violated = violated(error);
        }
        result
    }

    /// The cursor, for what needs no session.
    pub(crate) fn inner(&mut self) -> &mut HostCursor {
        &mut self.cursor
    }

    /// Number of the index that was started last.
    pub(crate) fn index_in_use(&self) -> usize {
        self.index
    }

    /// True if each change commits by itself.
    pub(crate) fn is_autonomous(&self) -> bool {
        self.autonomous.is_some()
    }

    /// The cursor, the session its calls run in, and the length of a record.
    ///
    /// # Safety
    /// The bound session is open and used by this thread only.
    #[inline]
    pub(crate) unsafe fn split(&mut self) -> Result<(&mut HostCursor, &mut Session, usize), Error> {
        let session = match self.autonomous.as_deref_mut() {
            Some(own) => own,
            // SAFETY: passed on.
            None => unsafe { session(self.session)? },
        };
        Ok((&mut self.cursor, session, self.record_bytes))
    }
}

/// # Safety
/// `cursor` came from `pbxt_cursor_open`, is open, and no other reference to it exists.
#[inline]
pub(crate) unsafe fn cursor<'a>(cursor: *mut PbxtCursor) -> Result<&'a mut PbxtCursor, Error> {
    // SAFETY: by the contract above.
    unsafe { cursor.as_mut() }.ok_or_else(|| Error::Invalid("the cursor handle is null".into()))
}

/// The host's record buffer.
///
/// # Safety
/// `record` names that many bytes nobody else uses during the call.
#[inline]
pub(crate) unsafe fn record_mut<'a>(record: *mut u8, bytes: usize) -> &'a mut [u8] {
    // SAFETY: by the contract above.
    unsafe { std::slice::from_raw_parts_mut(record, bytes) }
}

/// # Safety
/// `record` names a record of the table's layout, with readable blob values, for the duration of the call.
#[inline]
pub(crate) unsafe fn host_record<'a>(record: *const u8, length: usize) -> HostRecord<'a> {
    // SAFETY: by the contract above.
    unsafe { HostRecord::new(bytes(record, length)) }
}

#[inline]
pub(crate) fn answer(found: bool, otherwise: Status) -> Result<(), Failure> {
    if found {
        Ok(())
    } else {
        Err(Failure::Answer(otherwise))
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_open(handle: *mut PbxtTable, out: *mut *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let host = &unsafe { table(handle)? }.host;
        let layout = host.layout();
        let opened = PbxtCursor {
            cursor: HostCursor::new(host),
            session: std::ptr::null_mut(),
            autonomous: None,
            columns: layout.columns().len(),
            record_bytes: layout.record_length(),
            index: 0,
            violated: None,
            host: Arc::clone(host),
        };
        // SAFETY: a place of the caller for the handle.
        unsafe { *out = Box::into_raw(Box::new(opened)) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_close(cursor: *mut PbxtCursor) {
    value((), || {
        if !cursor.is_null() {
            // SAFETY: the handle came from `pbxt_cursor_open` and is given back once.
            drop(unsafe { Box::from_raw(cursor) });
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_bind(
    handle: *mut PbxtCursor,
    session: *mut PbxtSession,
    bind: *const PbxtBind,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (cursor, given) = unsafe { (cursor(handle)?, &*bind) };
        cursor.session = session;
        cursor.autonomous = (given.autonomous != 0).then(|| {
            // SAFETY: the session just given, or null.
            let outer = unsafe { optional_session(session) };
            let alone = || Session::open(cursor.host.database(), 0, 0);
            Box::new(outer.map_or_else(alone, Session::autonomous))
        });
        let bind = Bind {
            lock: match given.lock_mode {
                0 => None,
                1 => Some(LockMode::Shared),
                _ => Some(LockMode::Exclusive),
            },
            for_write: given.for_write != 0,
            newest: given.newest != 0,
            check_foreign_keys: given.check_foreign_keys != 0,
            leave_out_damaged: given.leave_out_damaged != 0,
            busy: match (given.skip_locked, given.no_wait) {
                (0, 0) => Busy::Wait,
                (0, _) => Busy::Fail,
                _ => Busy::Skip,
            },
        };
        // SAFETY: the session just given.
        let (inner, session, _) = unsafe { cursor.split()? };
        Ok(inner.bind(session, bind)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_reads_newest(handle: *mut PbxtCursor, session_handle: *mut PbxtSession) -> i32 {
    value(0, || {
        // SAFETY: valid handles.
        match unsafe { (cursor(handle), session(session_handle)) } {
            (Ok(cursor), Ok(session)) => i32::from(!session.conflicts_are_errors(cursor.host.table())),
            _ => 0,
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_unbind(handle: *mut PbxtCursor) {
    value((), || {
        // SAFETY: a valid handle.
        if let Ok(cursor) = unsafe { cursor(handle) } {
            cursor.session = std::ptr::null_mut();
            cursor.autonomous = None;
            // Values the record points to stay: a host may unlock a table before it sends the row.
            cursor.cursor.unbind();
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_columns(
    handle: *mut PbxtCursor,
    bitmap: *const u8,
    len: usize,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        let columns = if bitmap.is_null() {
            ColumnSet::all(cursor.columns)
        } else {
            // SAFETY: bytes of the caller.
            ColumnSet::from_bitmap(unsafe { bytes(bitmap, len) }, cursor.columns)
        };
        cursor.cursor.project(columns);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_filter(
    handle: *mut PbxtCursor,
    conditions: *const PbxtCondition,
    count: u32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        if conditions.is_null() || count == 0 {
            cursor.cursor.set_filter(None);
            return Ok(());
        }
        // SAFETY: so many conditions of the caller.
        let conditions = unsafe { std::slice::from_raw_parts(conditions, count as usize) };
        let table = Arc::clone(cursor.host.table());
        let mut filter = RowFilter::new(table.schema());
        for given in conditions {
            let condition = match given.kind {
                0 => Condition::Between(
                    // SAFETY: bytes of the caller, here and below.
                    unsafe { bound(given.low, given.low_len, given.low_inclusive) },
                    // SAFETY: as above.
                    unsafe { bound(given.high, given.high_len, given.high_inclusive) },
                ),
                1 => Condition::IsNull,
                2 => Condition::IsNotNull,
                other => return Err(Error::Invalid(format!("{other} is no kind of condition")).into()),
            };
            // One that cannot be judged is left to the host, which judges all of them.
            let _ = filter.add(table.schema(), given.column as usize, condition);
        }
        cursor.cursor.set_filter(Some(filter));
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_scan_start(handle: *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let (cursor, session, _) = unsafe { cursor(handle)?.split()? };
        Ok(cursor.scan_start(session)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_scan_next(handle: *mut PbxtCursor, record: *mut u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        let found = cursor.scan_next(session, unsafe { record_mut(record, length) })?;
        answer(found, Status::End)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_start(handle: *mut PbxtCursor, index: u32) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let outer = unsafe { cursor(handle)? };
        outer.index = index as usize;
        // SAFETY: as above.
        let (cursor, session, _) = unsafe { outer.split()? };
        Ok(cursor.index_start(session, index as usize)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_covers(handle: *mut PbxtCursor) -> i32 {
    value(0, || {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle) };
        cursor.map_or(0, |cursor| i32::from(cursor.cursor.covers()))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_expect(handle: *mut PbxtCursor, rows: u64) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let (cursor, _, _) = unsafe { cursor(handle)?.split()? };
        cursor.expect(rows);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_seek(
    handle: *mut PbxtCursor,
    tuple: *const u8,
    parts: u32,
    mode: i32,
    record: *mut u8,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let outer = unsafe { cursor(handle)? };
        let (index, parts) = (outer.index, parts as usize);
        // SAFETY: a search tuple of that many parts.
        let tuple = unsafe { bytes(tuple, outer.host.tuple_length(index, parts)?) };
        let seek = match mode {
            0 => Seek::Exact,
            1 => Seek::OrNext,
            2 => Seek::After,
            3 => Seek::OrPrev,
            4 => Seek::Before,
            5 => Seek::Last,
            other => return Err(Error::Invalid(format!("{other} is no seek mode")).into()),
        };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let found = cursor.seek(session, index, tuple, parts, seek, unsafe {
            record_mut(record, length)
        })?;
        answer(found, Status::NotFound)
    })
}

fn edge(handle: *mut PbxtCursor, record: *mut u8, last: bool) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        let found = cursor.index_edge(session, last, unsafe { record_mut(record, length) })?;
        answer(found, Status::End)
    })
}

fn step(handle: *mut PbxtCursor, record: *mut u8, forward: bool, same: bool) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        let found = cursor.index_move(session, forward, same, unsafe { record_mut(record, length) })?;
        answer(found, Status::End)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_first(cursor: *mut PbxtCursor, record: *mut u8) -> Status {
    edge(cursor, record, false)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_last(cursor: *mut PbxtCursor, record: *mut u8) -> Status {
    edge(cursor, record, true)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_next(cursor: *mut PbxtCursor, record: *mut u8) -> Status {
    step(cursor, record, true, false)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_prev(cursor: *mut PbxtCursor, record: *mut u8) -> Status {
    step(cursor, record, false, false)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_next_same(cursor: *mut PbxtCursor, record: *mut u8) -> Status {
    step(cursor, record, true, true)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_end_range(
    handle: *mut PbxtCursor,
    tuple: *const u8,
    parts: u32,
    inclusive: i32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        let (index, parts) = (cursor.index, parts as usize);
        if parts == 0 {
            return Ok(cursor.cursor.set_end(index, None)?);
        }
        // SAFETY: a search tuple of that many parts.
        let tuple = unsafe { bytes(tuple, cursor.host.tuple_length(index, parts)?) };
        Ok(cursor
            .cursor
            .set_end(index, Some((tuple, parts, inclusive != 0)))?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_scan_end(handle: *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        cursor.cursor.scan_end();
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_reset(handle: *mut PbxtCursor) {
    value((), || {
        // SAFETY: a valid handle.
        if let Ok(cursor) = unsafe { cursor(handle) } {
            cursor.cursor.reset();
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_row_id(handle: *const PbxtCursor) -> u64 {
    value(0, || {
        // SAFETY: a valid handle.
        let cursor = unsafe { handle.as_ref() };
        cursor.map_or(0, |cursor| cursor.cursor.row().raw())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_key(
    handle: *mut PbxtCursor,
    index: u32,
    record: *const u8,
    out: *mut u8,
    cap: usize,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, and a record of the table.
        let cursor = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let record = unsafe { host_record(record, cursor.record_bytes) };
        let key = cursor.cursor.key_of(index as usize, record)?;
        let bytes = key.len().min(cap);
        // SAFETY: the caller's room for `cap` bytes.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), out, bytes) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_fetch(handle: *mut PbxtCursor, row_id: u64, record: *mut u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        let found = cursor.fetch(session, RowId::new(row_id), unsafe { record_mut(record, length) })?;
        answer(found, Status::RowDeleted)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_fetch_unjudged(
    handle: *mut PbxtCursor,
    row_id: u64,
    record: *mut u8,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let (cursor, session, length) = unsafe { cursor(handle)?.split()? };
        // SAFETY: as above.
        let record = unsafe { record_mut(record, length) };
        let found = cursor.fetch_unjudged(session, RowId::new(row_id), record)?;
        answer(found, Status::RowDeleted)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_unlock_row(handle: *mut PbxtCursor) {
    value((), || {
        // SAFETY: a valid handle with its session.
        if let Ok((cursor, session, _)) = unsafe { cursor(handle).and_then(|cursor| cursor.split()) } {
            cursor.unlock_row(session);
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_hold_row(handle: *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let (cursor, session, _) = unsafe { cursor(handle)?.split()? };
        Ok(cursor.hold_row(session)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_try_semi_consistent(handle: *mut PbxtCursor, on: i32) {
    value((), || {
        // SAFETY: a valid handle.
        if let Ok(cursor) = unsafe { cursor(handle) } {
            cursor.cursor.try_semi_consistent(on != 0);
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_was_semi_consistent(handle: *mut PbxtCursor) -> i32 {
    value(0, || {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle) };
        cursor.map_or(0, |cursor| i32::from(cursor.cursor.was_semi_consistent()))
    })
}

/// Commits the change of an autonomous cursor.
pub(crate) fn finish_autonomous(outer: &mut PbxtCursor) -> Result<(), Error> {
    outer.autonomous.as_deref_mut().map_or(Ok(()), Session::commit)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_insert(handle: *mut PbxtCursor, record: *const u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record of the table.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let inserted = cursor.insert(session, unsafe { host_record(record, length) });
        outer.judged(inserted)?;
        Ok(finish_autonomous(outer)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_update(
    handle: *mut PbxtCursor,
    row_id: u64,
    old_record: *const u8,
    new_record: *const u8,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and records of the table.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let (old, new) = unsafe { (host_record(old_record, length), host_record(new_record, length)) };
        let changed = cursor.update(session, RowId::new(row_id), old, new);
        let changed = outer.judged(changed)?;
        finish_autonomous(outer)?;
        answer(changed, Status::SameRow)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_delete(handle: *mut PbxtCursor, row_id: u64, _record: *const u8) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, _) = unsafe { outer.split()? };
        let deleted = cursor.delete(session, RowId::new(row_id));
        outer.judged(deleted)?;
        Ok(finish_autonomous(outer)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_delete_scanned(
    handle: *mut PbxtCursor,
    limit: u64,
    deleted: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let outer = unsafe { cursor(handle)? };
        // SAFETY: as above.
        let (cursor, session, _) = unsafe { outer.split()? };
        let done = cursor.delete_scanned(session, limit);
        let rows = outer.judged(done)?;
        // SAFETY: a place of the caller.
        unsafe { *deleted = rows };
        answer(rows == limit, Status::End)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_duplicate(handle: *const PbxtCursor, index: *mut u32, row_id: *mut u64) {
    value((), || {
        // SAFETY: a valid handle; places of the caller.
        unsafe {
            if let Some(cursor) = handle.as_ref() {
                let (number, row) = cursor.cursor.duplicate();
                *index = number as u32;
                *row_id = row.raw();
            }
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_count(
    handle: *mut PbxtCursor,
    session_handle: *mut PbxtSession,
    rows: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (cursor, session) = unsafe { (cursor(handle)?, session(session_handle)?) };
        let count = session.count(cursor.host.table())?;
        // SAFETY: a place of the caller.
        unsafe { *rows = count };
        Ok(())
    })
}
