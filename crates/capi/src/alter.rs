//! ALTER in place: a changed definition with what its columns and indexes were before.

use crate::database::{PbxtDb, database};
use crate::definition::{PbxtTableDef, list};
use crate::guard::{call, text};
use crate::session::PbxtSession;
use crate::sight::PbxtText;
use crate::status::Status;
use crate::table::optional_session;
use pbxt::{Alteration, Error, Result, TableDef};

/// `pbxt_alteration`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtAlteration {
    pub columns: *const i32,
    pub indexes: *const i32,
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
) -> Status {
    call(|| {
        // SAFETY: valid for the call.
        let (db, def, change) = unsafe { (database(db)?, &*def, &*change) };
        // SAFETY: their pointers are valid for the call.
        let (definition, change) = unsafe { (def.definition()?, alteration(def, change)?) };
        Ok(db
            .db
            .check_alter(definition, &change, def.check_foreign_keys != 0)?)
    })
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
) -> Status {
    call(|| {
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
        Ok(db
            .db
            .alter_tables(session, defs, &change, def.check_foreign_keys != 0)?)
    })
}
