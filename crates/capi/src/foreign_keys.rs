//! Foreign keys: constraints of a definition, lists of constraints, and which one a change violated.

use crate::cursor::PbxtCursor;
use crate::database::{PbxtDb, database};
use crate::definition::list;
use crate::guard::{Failure, call, text, value};
use crate::progress::{Report, advance};
use crate::session::{PbxtSession, session};
use crate::sight::{PbxtText, text_of};
use crate::status::Status;
use crate::table::{PbxtTable, table};
use pbxt::{Action, Database, Error, ForeignKey, ForeignKeyInfo, KeyColumn, Result, Unkept};
use std::ffi::{c_char, c_void};

/// `pbxt_foreign_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtForeignKey {
    pub name: PbxtText,
    pub parent: PbxtText,
    pub column_count: u32,
    pub columns: *const u32,
    pub parent_columns: *const PbxtText,
    pub on_delete: u8,
    pub on_update: u8,
}

/// `pbxt_foreign_key_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtForeignKeyInfo {
    pub name: PbxtText,
    pub child: PbxtText,
    pub parent: PbxtText,
    pub column_count: u32,
    pub columns: *const PbxtText,
    pub parent_columns: *const PbxtText,
    pub nullable: *const u8,
    pub parent_nullable: *const u8,
    pub on_delete: u8,
    pub on_update: u8,
    pub bound: u8,
    pub parent_index: PbxtText,
}

/// # Safety
/// The text is as the header says.
unsafe fn owned(given: PbxtText) -> Result<String> {
    // SAFETY: passed on.
    Ok(unsafe { text(given.bytes, given.len)? }.to_owned())
}

fn action(code: u8) -> Result<Action> {
    Action::from_code(code)
        .ok_or_else(|| Error::Invalid(format!("{code} is no action of a foreign key: use 0 to 4")))
}

/// # Safety
/// The pointers of the constraint are as the header says.
pub(crate) unsafe fn foreign_key(given: &PbxtForeignKey) -> Result<ForeignKey> {
    // SAFETY: passed on.
    let columns = unsafe { list(given.columns, given.column_count) };
    // SAFETY: passed on.
    let parent_columns = unsafe { list(given.parent_columns, given.column_count) };
    let columns = columns.iter().zip(parent_columns).map(|(child, parent)| {
        Ok(KeyColumn {
            child: u16::try_from(*child).unwrap_or(u16::MAX),
            // SAFETY: passed on.
            parent: unsafe { owned(*parent)? },
        })
    });
    Ok(ForeignKey {
        // SAFETY: passed on.
        name: unsafe { owned(given.name)? },
        // SAFETY: passed on.
        parent: unsafe { owned(given.parent)? },
        columns: columns.collect::<Result<Vec<_>>>()?,
        on_delete: action(given.on_delete)?,
        on_update: action(given.on_update)?,
    })
}

type Each = unsafe extern "C" fn(*mut c_void, *const PbxtForeignKeyInfo) -> i32;

/// Shows one constraint to the caller's function. Its answer.
fn show(key: &ForeignKeyInfo, each: Each, ctx: *mut c_void) -> i32 {
    let columns: Vec<_> = key.columns.iter().map(|c| text_of(c.child.as_bytes())).collect();
    let parents: Vec<_> = key.columns.iter().map(|c| text_of(c.parent.as_bytes())).collect();
    let nullable: Vec<_> = key.columns.iter().map(|c| u8::from(c.child_nullable)).collect();
    let parent_nullable: Vec<_> = key.columns.iter().map(|c| u8::from(c.parent_nullable)).collect();
    let info = PbxtForeignKeyInfo {
        name: text_of(key.name.as_bytes()),
        child: text_of(key.child.as_bytes()),
        parent: text_of(key.parent.as_bytes()),
        column_count: key.columns.len() as u32,
        columns: columns.as_ptr(),
        parent_columns: parents.as_ptr(),
        nullable: nullable.as_ptr(),
        parent_nullable: parent_nullable.as_ptr(),
        on_delete: key.on_delete.code(),
        on_update: key.on_update.code(),
        bound: u8::from(key.parent_index.is_some()),
        parent_index: text_of(key.parent_index.as_deref().unwrap_or_default().as_bytes()),
    };
    // SAFETY: the caller's function; all that the line points to outlives the call.
    unsafe { each(ctx, &raw const info) }
}

/// Shows what `keys` finds of the named table, until the caller's function has enough.
///
/// # Safety
/// As the header says of the two functions that list constraints.
unsafe fn show_all(
    db: *mut PbxtDb,
    (name, name_len): (*const c_char, usize),
    (each, ctx): (Each, *mut c_void),
    keys: impl FnOnce(&Database, &str) -> Result<Vec<ForeignKeyInfo>>,
) -> std::result::Result<(), Failure> {
    // SAFETY: valid for the call.
    let (db, name) = unsafe { (database(db)?, text(name, name_len)?) };
    keys(&db.db, name)?.iter().any(|key| show(key, each, ctx) != 0);
    Ok(())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_foreign_keys_of(
    db: *mut PbxtDb,
    name: *const c_char,
    name_len: usize,
    each: Each,
    ctx: *mut c_void,
) -> Status {
    // SAFETY: passed on.
    call(|| unsafe { show_all(db, (name, name_len), (each, ctx), Database::foreign_keys_of) })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_foreign_keys_to(
    db: *mut PbxtDb,
    name: *const c_char,
    name_len: usize,
    each: Each,
    ctx: *mut c_void,
) -> Status {
    // SAFETY: passed on.
    call(|| unsafe { show_all(db, (name, name_len), (each, ctx), Database::foreign_keys_to) })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_is_referenced(handle: *const PbxtTable) -> i32 {
    value(0, || {
        // SAFETY: a valid handle.
        unsafe { table(handle) }.map_or(0, |table| {
            i32::from(!table.host.table().references().incoming.is_empty())
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_goes_with_parents(handle: *const PbxtTable) -> i32 {
    value(0, || {
        // SAFETY: a valid handle.
        unsafe { table(handle) }.map_or(0, |table| {
            let references = table.host.table().references();
            let mut outgoing = references.outgoing.iter();
            i32::from(outgoing.any(|outgoing| outgoing.key().on_delete == Action::Cascade))
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_foreign_key_changes(db: *mut PbxtDb) -> u64 {
    value(0, || {
        // SAFETY: valid for the call.
        unsafe { database(db) }.map_or(0, |db| db.db.foreign_key_changes())
    })
}

/// `pbxt_unkept`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtUnkept {
    pub constraint: PbxtText,
    pub parent: PbxtText,
    pub orphans: u64,
    pub example: u64,
    pub why: PbxtText,
}

impl PbxtUnkept {
    fn of(unkept: &Unkept<'_>) -> Self {
        match *unkept {
            Unkept::Orphans {
                constraint,
                parent,
                rows,
                example,
            } => Self {
                constraint: text_of(constraint.as_bytes()),
                parent: text_of(parent.as_bytes()),
                orphans: rows,
                example: example.raw(),
                why: text_of(b""),
            },
            Unkept::Unbound {
                constraint,
                parent,
                why,
            } => Self {
                constraint: text_of(constraint.as_bytes()),
                parent: text_of(parent.as_bytes()),
                orphans: 0,
                example: 0,
                why: text_of(why.why().as_bytes()),
            },
        }
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_table_check_references(
    handle: *mut PbxtTable,
    session_handle: *mut PbxtSession,
    report: unsafe extern "C" fn(*mut c_void, *const PbxtUnkept),
    progress: Report,
    ctx: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: valid handles.
        let (table, session) = unsafe { (table(handle)?, session(session_handle)?) };
        let mut tell = |unkept: Unkept<'_>| {
            let line = PbxtUnkept::of(&unkept);
            // SAFETY: the caller's function; all that the line points to outlives the call.
            unsafe { report(ctx, &raw const line) }
        };
        table
            .host
            .check_references(session, &mut tell, &mut advance(progress, ctx))?;
        Ok(())
    })
}

/// Constraint, child and parent of a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violated {
    constraint: String,
    child: String,
    parent: String,
}

/// What an error says of a constraint.
pub(crate) fn violated(error: &Error) -> Option<Violated> {
    match error {
        Error::RowIsReferenced {
            constraint,
            child,
            parent,
        }
        | Error::NoReferencedRow {
            constraint,
            child,
            parent,
            ..
        } => Some(Violated {
            constraint: constraint.clone(),
            child: child.clone(),
            parent: parent.clone(),
        }),
        _ => None,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pbxt_cursor_violated(
    handle: *const PbxtCursor,
    constraint: *mut PbxtText,
    child: *mut PbxtText,
    parent: *mut PbxtText,
) -> Status {
    call(|| {
        // SAFETY: a valid handle.
        let cursor = unsafe { handle.as_ref() };
        let Some(violated) = cursor.and_then(PbxtCursor::violated) else {
            return Err(Failure::Answer(Status::NotFound));
        };
        // SAFETY: places of the caller.
        unsafe {
            *constraint = text_of(violated.constraint.as_bytes());
            *child = text_of(violated.child.as_bytes());
            *parent = text_of(violated.parent.as_bytes());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_violations_name_constraint_and_tables_and_other_errors_name_none() {
        let names = || ("fk".to_owned(), "child".to_owned(), "parent".to_owned());
        let (constraint, child, parent) = names();
        let wanted = Violated {
            constraint: constraint.clone(),
            child: child.clone(),
            parent: parent.clone(),
        };
        let referenced = Error::RowIsReferenced {
            constraint,
            child,
            parent,
        };
        assert_eq!(violated(&referenced), Some(wanted.clone()));
        let (constraint, child, parent) = names();
        let missing = Error::NoReferencedRow {
            constraint,
            child,
            parent,
            why: "",
        };
        assert_eq!(violated(&missing), Some(wanted));
        assert_eq!(violated(&Error::Killed), None);
    }

    #[test]
    fn a_constraint_of_the_c_interface_becomes_one_of_the_engine() {
        let columns = [3u32, 1];
        let parent_columns = [text_of(b"a"), text_of(b"b")];
        let given = PbxtForeignKey {
            name: text_of(b"fk"),
            parent: text_of(b"./d/p"),
            column_count: 2,
            columns: columns.as_ptr(),
            parent_columns: parent_columns.as_ptr(),
            on_delete: 1,
            on_update: 4,
        };
        // SAFETY: everything it points to is above.
        let key = unsafe { foreign_key(&given) }.unwrap();
        assert_eq!((key.name.as_str(), key.parent.as_str()), ("fk", "./d/p"));
        let pairs: Vec<_> = key.columns.iter().map(|c| (c.child, c.parent.as_str())).collect();
        assert_eq!(pairs, [(3, "a"), (1, "b")]);
        assert_eq!(
            (key.on_delete, key.on_update),
            (Action::Cascade, Action::SetDefault)
        );
        let wrong = PbxtForeignKey {
            on_delete: 5,
            ..given
        };
        // SAFETY: as above.
        assert!(unsafe { foreign_key(&wrong) }.is_err());
    }
}
