//! ALTER in place: a changed definition with what its columns and indexes were before, and indexes that are built for it. The contract is
//! `include/pbxt_alter.h`.

use crate::cursor::record_mut;
use crate::database::{PbxtDb, database};
use crate::definition::{PbxtTableDef, list};
use crate::guard::{Failure, call, text, value};
use crate::progress::{Report, advance};
use crate::session::{PbxtSession, session};
use crate::sight::PbxtText;
use crate::status::Status;
use crate::table::{PbxtTable, optional_session, table};
use pbxt::{Alteration, Error, IndexBuild, Result, TableDef};
use std::ffi::c_void;

/// `pbxt_alteration`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtAlteration {
    pub columns: *const i32,
    pub indexes: *const i32,
}

/// `pbxt_index_build`.
#[derive(Debug)]
pub struct PbxtIndexBuild {
    build: IndexBuild,
    record_bytes: usize,
}

/// # Safety
/// `numbers` names `count` numbers.
unsafe fn origins(numbers: *const i32, count: u32) -> Result<Vec<Option<u16>>> {
    // SAFETY: passed on.
    let numbers = unsafe { list(numbers, count) }.iter();
    let origin = |number: &i32| match *number {
        -1 => Ok(None),
        number => u16::try_from(number).map(Some).map_err(|_| {
            Error::Invalid(format!(
                "{number} is no number of a column or index: use -1 for what is added"
            ))
        }),
    };
    numbers.map(origin).collect()
}

/// # Safety
/// The pointers of both are as the header says.
unsafe fn alteration(def: &PbxtTableDef, change: &PbxtAlteration) -> Result<Alteration> {
    // SAFETY: passed on.
    let (columns, indexes) = unsafe {
        (
            origins(change.columns, def.column_count)?,
            origins(change.indexes, def.index_count)?,
        )
    };
    Ok(Alteration { columns, indexes })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_check_alter(
    db: *mut PbxtDb,
    def: *const PbxtTableDef,
    change: *const PbxtAlteration,
    adds_indexes: *mut i32,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, def, change) = unsafe { (database(db)?, &*def, &*change) };
        // SAFETY: their pointers are valid for the call.
        let (definition, change) = unsafe { (def.definition()?, alteration(def, change)?) };
        db.db
            .check_alter(definition, &change, def.check_foreign_keys != 0)?;
        // SAFETY: a place of the caller.
        unsafe { *adds_indexes = i32::from(change.adds_indexes()) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_wait_for_prepared(
    handle: *mut PbxtTable,
    session_handle: *mut PbxtSession,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (host, session) = unsafe { (&table(handle)?.host, session(session_handle)?) };
        Ok(host.database().wait_for_prepared(session, host.table())?)
    })
}

/// # Safety
/// `build` came from `pbxt_index_build_open`, is open, and no other reference to it exists.
unsafe fn index_build<'a>(build: *mut PbxtIndexBuild) -> Result<&'a mut PbxtIndexBuild> {
    // SAFETY: by the contract above.
    unsafe { build.as_mut() }.ok_or_else(|| Error::Invalid("the index build is null".into()))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_open(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    def: *const PbxtTableDef,
    change: *const PbxtAlteration,
    out: *mut *mut PbxtIndexBuild,
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, session, def, change) =
            unsafe { (database(db)?, optional_session(session), &*def, &*change) };
        // SAFETY: their pointers are valid for the call.
        let (definition, change) = unsafe { (def.definition()?, alteration(def, change)?) };
        let opened = PbxtIndexBuild {
            build: db.db.open_index_build(session, definition, &change)?,
            record_bytes: def.record_length as usize,
        };
        // SAFETY: a place of the caller for the handle.
        unsafe { *out = Box::into_raw(Box::new(opened)) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_run(
    handle: *mut PbxtIndexBuild,
    progress: Report,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let build = unsafe { &mut index_build(handle)?.build };
        Ok(build.run(&mut advance(progress, ctx))?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_catch_up_beside(
    handle: *mut PbxtIndexBuild,
    progress: Report,
    ctx: *mut c_void,
    made: *mut i32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let build = unsafe { &mut index_build(handle)?.build };
        let is_made = build.catch_up_beside(&mut advance(progress, ctx))?;
        // SAFETY: a place of the caller.
        unsafe { *made = i32::from(is_made) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_catch_up(
    handle: *mut PbxtIndexBuild,
    progress: Report,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let build = unsafe { &mut index_build(handle)?.build };
        build.catch_up(IndexBuild::PATIENCE, &mut advance(progress, ctx))?;
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_refused(
    handle: *mut PbxtIndexBuild,
    record: *mut u8,
    index: *mut u32,
) -> Status {
    call(|| {
        // SAFETY: a valid handle, and a record of the definition it was opened with.
        let (build, record) = unsafe {
            let build = index_build(handle)?;
            (&mut build.build, record_mut(record, build.record_bytes))
        };
        let number = build.show_refused(record)?;
        let number = number.ok_or(Failure::Answer(Status::NotFound))?;
        // SAFETY: a place of the caller.
        unsafe { *index = number as u32 };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_index_build_close(handle: *mut PbxtIndexBuild) {
    value((), || {
        if !handle.is_null() {
            // SAFETY: the handle came from `pbxt_index_build_open` and is given back once.
            drop(unsafe { Box::from_raw(handle) });
        }
    });
}

/// The builds that a caller hands over.
///
/// # Safety
/// `builds` names `count` handles of `pbxt_index_build_open`, each given back by this, or null.
unsafe fn take_builds(builds: *const *mut PbxtIndexBuild, count: u32) -> Vec<IndexBuild> {
    // SAFETY: by the contract above.
    let handles = unsafe { list(builds, count) }.iter();
    // SAFETY: as above.
    let taken = handles
        .filter(|handle| !handle.is_null())
        .map(|&handle| unsafe { Box::from_raw(handle) });
    taken.map(|build| build.build).collect()
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_tables_alter(
    db: *mut PbxtDb,
    session: *mut PbxtSession,
    def: *const PbxtTableDef,
    change: *const PbxtAlteration,
    names: *const PbxtText,
    name_count: u32,
    builds: *const *mut PbxtIndexBuild,
    build_count: u32,
) -> Status {
    call(|| {
        // SAFETY: handed over, whatever comes.
        let builds = unsafe { take_builds(builds, build_count) };
        // SAFETY: valid for the call.
        let (db, session, def, change) =
            unsafe { (database(db)?, optional_session(session), &*def, &*change) };
        // SAFETY: their pointers are valid for the call.
        let (definition, change) = unsafe { (def.definition()?, alteration(def, change)?) };
        // SAFETY: as above.
        let names = unsafe { list(names, name_count) }.iter();
        let named = |name: &PbxtText| -> Result<TableDef> {
            Ok(TableDef {
                // SAFETY: as above.
                name: unsafe { text(name.bytes, name.len)? }.to_owned(),
                ..definition.clone()
            })
        };
        let defs = names.map(named).collect::<Result<Vec<_>>>()?;
        let checks = def.check_foreign_keys != 0;
        Ok(db.db.alter_tables_with(session, defs, &change, checks, builds)?)
    })
}
