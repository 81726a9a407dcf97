//! Status: the one table from engine errors to `pbxt_status`.

use pbxt::Error;
use pbxt_base::Error as StorageError;

/// `pbxt_status`; the numbers are those of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[expect(missing_docs, reason = "the header documents them")]
pub enum Status {
    Ok = 0,
    NotFound = 1,
    End = 2,
    DuplicateKey = 3,
    WriteConflict = 4,
    Deadlock = 5,
    LockTimeout = 6,
    Killed = 7,
    NoSpace = 8,
    Poisoned = 9,
    Corrupt = 10,
    Io = 11,
    TooLarge = 12,
    TableExists = 13,
    NoSuchTable = 14,
    DefChanged = 15,
    RowDeleted = 16,
    Invalid = 17,
    InUse = 18,
    WrongVersion = 19,
    ReadOnly = 20,
    NoSuchXid = 21,
    SameRow = 22,
    Internal = 23,
    TxnAborted = 24,
    SnapshotTooOld = 25,
    Unserializable = 26,
    RowIsReferenced = 27,
    NoReferencedRow = 28,
    BadForeignKey = 29,
    ForeignKeyNameTaken = 30,
    NeedsCopy = 31,
    NoKey = 32,
    Denied = 33,
    OtherLayout = 34,
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::Storage(storage) | Error::Row(pbxt_rows::Error::Base(storage)) => storage_status(storage),
            Error::Row(pbxt_rows::Error::Corrupt { .. }) => Self::Corrupt,
            Error::Row(pbxt_rows::Error::WrongFormat { .. }) => Self::WrongVersion,
            Error::Row(pbxt_rows::Error::TooLarge { .. }) | Error::KeyTooLarge { .. } => Self::TooLarge,
            Error::WriteConflict { .. } => Self::WriteConflict,
            Error::Deadlock { .. } => Self::Deadlock,
            Error::Unserializable => Self::Unserializable,
            Error::LockTimeout { .. } => Self::LockTimeout,
            Error::Killed => Self::Killed,
            Error::DuplicateKey { .. } => Self::DuplicateKey,
            Error::RowNotFound { .. } => Self::RowDeleted,
            Error::RowIsReferenced { .. } => Self::RowIsReferenced,
            Error::NoReferencedRow { .. } => Self::NoReferencedRow,
            Error::BadForeignKey { .. } => Self::BadForeignKey,
            Error::ForeignKeyNameTaken { .. } => Self::ForeignKeyNameTaken,
            Error::NoSuchTable { .. } => Self::NoSuchTable,
            Error::TableExists { .. } => Self::TableExists,
            Error::DefinitionChanged { .. } => Self::DefChanged,
            Error::OtherLayout { .. } => Self::OtherLayout,
            Error::NeedsCopy { .. } => Self::NeedsCopy,
            Error::TransactionAborted { .. } => Self::TxnAborted,
            Error::SnapshotTooOld { .. } => Self::SnapshotTooOld,
            Error::NoSuchXid => Self::NoSuchXid,
            _ => Self::Invalid,
        }
    }
}

fn storage_status(error: &StorageError) -> Status {
    match error {
        StorageError::Corrupt { .. } => Status::Corrupt,
        StorageError::NoSpace { .. } => Status::NoSpace,
        StorageError::Poisoned { .. } => Status::Poisoned,
        StorageError::WrongVersion { .. } => Status::WrongVersion,
        StorageError::Locked { .. } => Status::InUse,
        StorageError::ReadOnlyMedia { .. } => Status::ReadOnly,
        StorageError::Denied { .. } => Status::Denied,
        StorageError::TooLarge { .. } => Status::TooLarge,
        StorageError::Encrypted { .. } | StorageError::NoKey { .. } => Status::NoKey,
        StorageError::NotADatabase { .. } | StorageError::Closed => Status::Invalid,
        _ => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pbxt_base::{RowId, TxnId};

    #[test]
    fn a_definition_that_does_not_fit_has_its_own_status() {
        let table = "t".into();
        let other = Error::OtherLayout {
            table,
            what: "columns",
        };
        assert_eq!(Status::from(&other), Status::OtherLayout);
    }

    #[test]
    fn every_kind_of_engine_error_has_its_own_status() {
        let table = || "t".to_owned();
        let row = RowId::new(1);
        let txn = TxnId::new(1);
        let cases = [
            (
                Error::WriteConflict { table: table(), row },
                Status::WriteConflict,
            ),
            (
                Error::Deadlock {
                    txn,
                    table: table(),
                    other: None,
                },
                Status::Deadlock,
            ),
            (Error::Unserializable, Status::Unserializable),
            (
                Error::LockTimeout {
                    table: table(),
                    holder: pbxt::Blocker { txn, host_thread: 1 },
                    waited_ms: 0,
                },
                Status::LockTimeout,
            ),
            (Error::Killed, Status::Killed),
            (
                Error::DuplicateKey {
                    table: table(),
                    index: table(),
                    index_no: 0,
                    row,
                },
                Status::DuplicateKey,
            ),
            (Error::RowNotFound { table: table(), row }, Status::RowDeleted),
            (Error::NoSuchTable { name: table() }, Status::NoSuchTable),
            (Error::TableExists { name: table() }, Status::TableExists),
            (
                Error::DefinitionChanged {
                    table: table(),
                    why: table(),
                },
                Status::DefChanged,
            ),
            (
                Error::KeyTooLarge {
                    table: table(),
                    index: table(),
                    bytes: 1,
                    limit: 0,
                },
                Status::TooLarge,
            ),
            (Error::TransactionAborted { why: "" }, Status::TxnAborted),
            (
                Error::SnapshotTooOld {
                    age_seconds: 2,
                    limit_seconds: 1,
                },
                Status::SnapshotTooOld,
            ),
            (Error::Invalid(table()), Status::Invalid),
            (Error::NoSuchXid, Status::NoSuchXid),
        ];
        for (error, status) in cases {
            assert_eq!(Status::from(&error), status, "{error}");
        }
    }

    #[test]
    fn an_alter_that_needs_a_copy_has_its_own_status() {
        let error = Error::NeedsCopy {
            table: "t".into(),
            why: "of its keys".into(),
        };
        assert_eq!(Status::from(&error), Status::NeedsCopy, "{error}");
    }

    #[test]
    fn every_violation_of_a_foreign_key_has_its_own_status() {
        let table = || "t".to_owned();
        let cases = [
            (
                Error::RowIsReferenced {
                    constraint: table(),
                    child: table(),
                    parent: table(),
                },
                Status::RowIsReferenced,
            ),
            (
                Error::NoReferencedRow {
                    constraint: table(),
                    child: table(),
                    parent: table(),
                    why: "",
                },
                Status::NoReferencedRow,
            ),
            (
                Error::BadForeignKey {
                    constraint: table(),
                    child: table(),
                    why: table(),
                },
                Status::BadForeignKey,
            ),
            (
                Error::ForeignKeyNameTaken {
                    constraint: table(),
                    child: table(),
                    owner: table(),
                },
                Status::ForeignKeyNameTaken,
            ),
        ];
        for (error, status) in cases {
            assert_eq!(Status::from(&error), status, "{error}");
        }
    }

    #[test]
    fn every_kind_of_storage_error_has_its_own_status() {
        let name = || "t".to_owned();
        let cases = [
            (StorageError::NoSpace { what: name() }.into(), Status::NoSpace),
            (pbxt_io::Poison::new().error().into(), Status::Poisoned),
            (
                StorageError::Locked {
                    path: name(),
                    holder: name(),
                }
                .into(),
                Status::InUse,
            ),
            (
                StorageError::ReadOnlyMedia { path: name() }.into(),
                Status::ReadOnly,
            ),
            (
                StorageError::Denied {
                    file: name(),
                    op: "open",
                    source: std::io::Error::from(std::io::ErrorKind::PermissionDenied),
                }
                .into(),
                Status::Denied,
            ),
            (
                StorageError::WrongVersion {
                    file: name(),
                    found: 2,
                    expected: 1,
                }
                .into(),
                Status::WrongVersion,
            ),
            (
                StorageError::Encrypted {
                    file: name(),
                    key_id: 1,
                    version: 1,
                    why: name(),
                }
                .into(),
                Status::NoKey,
            ),
            (
                StorageError::NoKey {
                    path: name(),
                    key_id: 1,
                    why: name(),
                }
                .into(),
                Status::NoKey,
            ),
            (
                StorageError::Corrupt {
                    file: name(),
                    offset: 0,
                    expected: name(),
                    found: name(),
                }
                .into(),
                Status::Corrupt,
            ),
        ];
        for (error, status) in cases {
            let error: Error = error;
            assert_eq!(Status::from(&error), status, "{error}");
        }
    }
}
