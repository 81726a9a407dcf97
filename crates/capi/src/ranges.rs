//! Many ranges of an index: the host's list of ranges behind the engine's. The contract is `include/pbxt_ranges.h`.

use crate::cursor::{PbxtCursor, answer, cursor, record_mut};
use crate::guard::{bytes, call};
use crate::status::Status;
use pbxt::Error;
use pbxt::host::{HostBound, HostRange, HostTable};
use std::ffi::c_void;
use std::sync::Arc;

/// `pbxt_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtRange {
    pub low: *const u8,
    pub high: *const u8,
    pub low_parts: u32,
    pub high_parts: u32,
    pub low_inclusive: u8,
    pub high_inclusive: u8,
    pub tag: u64,
}

/// `pbxt_next_range`.
pub type PbxtNextRange = unsafe extern "C" fn(*mut c_void, *mut PbxtRange) -> i32;

impl PbxtRange {
    const NOWHERE: Self = Self {
        low: std::ptr::null(),
        high: std::ptr::null(),
        low_parts: 0,
        high_parts: 0,
        low_inclusive: 1,
        high_inclusive: 1,
        tag: 0,
    };

    /// # Safety
    /// The tuples have that many parts and are valid while `'t` lasts.
    unsafe fn of<'t>(&self, host: &HostTable, index: usize) -> Result<HostRange<'t>, Error> {
        let bound = |tuple: *const u8, parts: u32, inclusive: u8| {
            let parts = parts as usize;
            if parts == 0 {
                return Ok(None);
            }
            let length = host.tuple_length(index, parts)?;
            // SAFETY: by the contract above.
            let tuple = unsafe { bytes(tuple, length) };
            let inclusive = inclusive != 0;
            Ok::<_, Error>(Some(HostBound {
                tuple,
                parts,
                inclusive,
            }))
        };
        Ok(HostRange {
            low: bound(self.low, self.low_parts, self.low_inclusive)?,
            high: bound(self.high, self.high_parts, self.high_inclusive)?,
            tag: self.tag,
        })
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_ranges_start(handle: *mut PbxtCursor) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { cursor(handle)? };
        answer(cursor.inner().ranges_begin(), Status::NotFound)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_range_count(
    handle: *mut PbxtCursor,
    range: *const PbxtRange,
    rows: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session.
        let outer = unsafe { cursor(handle)? };
        let index = outer.index_in_use();
        // SAFETY: as above.
        let (cursor, session, _) = unsafe { outer.split()? };
        let host = Arc::clone(cursor.host());
        // SAFETY: a range of the caller, whose tuples have the parts it says.
        let range = unsafe { (*range).of(&host, index)? };
        let counted = cursor.count_range(session, index, &range)?;
        // SAFETY: a place of the caller.
        unsafe { *rows = counted };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_ranges_next(
    handle: *mut PbxtCursor,
    next: PbxtNextRange,
    ctx: *mut c_void,
    record: *mut u8,
    tag: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: a valid handle with its session, and a record buffer of the table.
        let outer = unsafe { cursor(handle)? };
        let index = outer.index_in_use();
        let mut give = |host: &HostTable| {
            let mut range = PbxtRange::NOWHERE;
            // SAFETY: the caller's function and context.
            if unsafe { next(ctx, &raw mut range) } == 0 {
                return Ok(None);
            }
            // SAFETY: tuples are valid until the next call, by when they have been turned into keys.
            unsafe { range.of(host, index) }.map(Some)
        };
        // SAFETY: as above.
        let (cursor, session, length) = unsafe { outer.split()? };
        // SAFETY: as above.
        let record = unsafe { record_mut(record, length) };
        let found = cursor.ranges_next(session, index, &mut give, record)?;
        if let Some(found) = found {
            // SAFETY: a place of the caller.
            unsafe { *tag = found };
        }
        answer(found.is_some(), Status::End)
    })
}
