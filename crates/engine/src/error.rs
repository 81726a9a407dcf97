//! Error: everything an engine call can answer except its result.
//!
//! Why it exists: the lower floors speak of files and bytes (`pbxt_base::Error`); callers of the engine also
//! need to tell a write conflict from a deadlock. Each border (C interface, host plugin) maps this enum in one
//! table; a test walks all variants so that none is forgotten.
//! Rules: messages are sentences that name the table, row, setting or file and what to do.

use pbxt_base::{RowId, TxnId};
use std::fmt;

/// Result of engine calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A transaction that others wait for, and who has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Blocker {
    /// Its id.
    pub txn: TxnId,
    /// The host's number of its connection; 0 if none holds it.
    pub host_thread: u64,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_thread {
            0 => write!(f, "transaction {}, which no connection holds", self.txn),
            thread => write!(f, "transaction {} of connection {thread}", self.txn),
        }
    }
}

fn because_of(blocker: Option<&Blocker>) -> String {
    match blocker {
        Some(blocker) if blocker.txn.raw() != 0 => format!(" because of {blocker}"),
        _ => String::new(),
    }
}

/// What went wrong, in the engine's words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, the disk or the format failed; see the inner error.
    #[error(transparent)]
    Storage(#[from] pbxt_base::Error),
    /// A row or key image could not be encoded or decoded.
    #[error(transparent)]
    Row(#[from] pbxt_rows::Error),
    /// The row changed after the transaction's snapshot (rule T20). Only the statement is undone.
    #[error(
        "row {row} of table '{table}' was changed by another transaction since this transaction's snapshot: ROLLBACK, then retry"
    )]
    WriteConflict {
        /// Table name.
        table: String,
        /// Row that changed.
        row: RowId,
    },
    /// The transaction's snapshot was ended because of its age (rule T28). Only the statement is undone.
    #[error(
        "the snapshot of this transaction, which began {age_seconds} s ago, was ended: it is older than \
         pbxt_max_snapshot_age = {limit_seconds} s and kept too much log from being given back; COMMIT or ROLLBACK and start \
         a new transaction, or set pbxt_max_snapshot_age higher, or to 0 for no limit"
    )]
    SnapshotTooOld {
        /// Since the transaction began.
        age_seconds: u64,
        /// The setting.
        limit_seconds: u64,
    },
    /// Waiting would close a cycle; the requester is the victim.
    #[error(
        "transaction {txn} was chosen as the victim of a deadlock when it waited for a lock on table '{table}'{}: ROLLBACK, \
         then retry the transaction", because_of(other.as_ref())
    )]
    Deadlock {
        /// Victim.
        txn: TxnId,
        /// Name of the table whose lock, or lock of a row or key, it asked for.
        table: String,
        /// The next one in the circle, if it is known.
        other: Option<Blocker>,
    },
    /// No serial order has this transaction and those that ran beside it (rule T29): it is rolled back.
    #[error(
        "no serial order has this transaction and the SERIALIZABLE ones that ran beside it; it was rolled back: retry the transaction"
    )]
    Unserializable,
    /// A wait reached its limit.
    #[error(
        "waited {waited_ms} ms for a lock on table '{table}'{}: retry, or raise pbxt_lock_wait_timeout",
        because_of(Some(holder))
    )]
    LockTimeout {
        /// Table name.
        table: String,
        /// One of the holders, or else one before it in line; no id if it has just ended.
        holder: Blocker,
        /// Time spent waiting, in milliseconds.
        waited_ms: u64,
    },
    /// The session was killed while it waited or in a long step.
    #[error("the statement was stopped by a kill request")]
    Killed,
    /// A unique index already has the key.
    #[error("table '{table}' already has a row with this key in unique index '{index}'")]
    DuplicateKey {
        /// Table name.
        table: String,
        /// Index name.
        index: String,
        /// Position of the index in the definition.
        index_no: usize,
        /// Row that holds the key.
        row: RowId,
    },
    /// Rows refer to the one that was to go or change (rule FK13).
    #[error(
        "rows of table '{child}' refer to this row of table '{parent}' by foreign key '{constraint}': change or delete them \
         first"
    )]
    RowIsReferenced {
        /// Name of the constraint.
        constraint: String,
        /// Table that refers.
        child: String,
        /// Table referred to.
        parent: String,
    },
    /// No row has the values that a new row refers to (rules FK12, FK22).
    #[error("table '{child}' refers to a row of table '{parent}' by foreign key '{constraint}', and {why}")]
    NoReferencedRow {
        /// Name of the constraint.
        constraint: String,
        /// Table that refers.
        child: String,
        /// Table referred to.
        parent: String,
        /// What is missing: the row, the table, or a fitting index.
        why: &'static str,
    },
    /// A constraint that cannot be kept was refused (rules FK3 to FK6, FK9, FK10).
    #[error("foreign key '{constraint}' of table '{child}': {why}")]
    BadForeignKey {
        /// Name of the constraint.
        constraint: String,
        /// Table that was to refer.
        child: String,
        /// Which column or table, what is wrong with it, and what would do.
        why: String,
    },
    /// A constraint of this name exists already (rule FK1).
    #[error(
        "foreign key '{constraint}' of table '{child}': table '{owner}' has a constraint of this name: choose another name"
    )]
    ForeignKeyNameTaken {
        /// The name.
        constraint: String,
        /// Table that was to refer.
        child: String,
        /// Table that has a constraint of that name.
        owner: String,
    },
    /// The row exists no more, or never did, for this reader.
    #[error("row {row} of table '{table}' is not there for this transaction")]
    RowNotFound {
        /// Table name.
        table: String,
        /// Row id asked for.
        row: RowId,
    },
    /// No such table.
    #[error("there is no table '{name}' in this database")]
    NoSuchTable {
        /// Name asked for.
        name: String,
    },
    /// A table of that name exists.
    #[error("a table '{name}' exists already in this database")]
    TableExists {
        /// Name asked for.
        name: String,
    },
    /// Table generation newer than the snapshot, or dropped, or another layout than stored (rule T19).
    #[error("the definition of table '{table}' changed: {why}; start a new transaction and try again")]
    DefinitionChanged {
        /// Table name.
        table: String,
        /// What differs.
        why: String,
    },
    /// A host's definition that the stored one does not fit (rule K7).
    #[error("table '{table}' was made with other {what} than its host's definition has now")]
    OtherLayout {
        /// Table name.
        table: String,
        /// What differs: columns or indexes.
        what: &'static str,
    },
    /// An ALTER that needs the rows of a table or its indexes written anew (rules AL4 to AL6, AL10).
    #[error("table '{table}' has to be copied: {why}")]
    NeedsCopy {
        /// Table name.
        table: String,
        /// Which column or index, and what of it.
        why: String,
    },
    /// Index key over the limit.
    #[error("a key of index '{index}' of table '{table}' takes {bytes} bytes, over the limit of {limit}")]
    KeyTooLarge {
        /// Table name.
        table: String,
        /// Index name.
        index: String,
        /// Bytes needed.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// Index key that has no room for the columns that extend its index (rule X43): whoever made it left them out.
    #[error(
        "a key of index '{index}' of table '{table}' takes {bytes} bytes, and each of that index ends with {suffix} bytes of the \
         primary key"
    )]
    KeyTooSmall {
        /// Table name.
        table: String,
        /// Index name.
        index: String,
        /// Bytes it has.
        bytes: usize,
        /// Bytes it has at least.
        suffix: usize,
    },
    /// The transaction was rolled back by the engine; the session accepts only ROLLBACK.
    #[error("this transaction was rolled back by the engine ({why}): ROLLBACK, then retry the transaction")]
    TransactionAborted {
        /// The reason given then.
        why: &'static str,
    },
    /// A call that does not fit the state of the session or an absurd argument.
    #[error("{0}")]
    Invalid(String),
    /// No prepared transaction has this XA id.
    #[error("no prepared transaction has this XA id")]
    NoSuchXid,
}

impl Error {
    /// The name that a refusal is about, for a host whose own text has a place for it; empty if it has none.
    pub fn subject(&self) -> &str {
        match self {
            Self::ForeignKeyNameTaken { constraint, .. } => constraint,
            _ => "",
        }
    }
}

impl From<pbxt_txn::Unserializable> for Error {
    fn from(_: pbxt_txn::Unserializable) -> Self {
        Self::Unserializable
    }
}
