//! Failure: why a command could not do its work, as a sentence.
//!
//! Why it exists: people read the storage floor's errors as they are; a reader of the output that goes away (`| head`) is
//! no error at all, and must be told from a full disk behind `>`. And what this user, with these keys, cannot read says nothing of
//! whether it is damaged (EN11).

use pbxt_base::Error;
use pbxt_io::is_passing_want;
use std::io;

/// Result of every command.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// What a command came to; the greater is the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Nothing that was looked at is damaged.
    Good,
    /// Neither, but some of it could not be looked at.
    Unread,
    Damaged,
}

impl Verdict {
    pub(crate) fn of(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Damaged }
    }

    /// Of something that gave this error.
    pub(crate) fn of_error(error: &Error) -> Self {
        if is_unread(error) {
            Self::Unread
        } else {
            Self::Damaged
        }
    }
}

/// True if a file could not be looked at, for want of a key, a right or a descriptor, and may be as good as any.
pub(crate) fn is_unread(error: &Error) -> bool {
    is_passing_want(error)
        || matches!(
            error,
            Error::Encrypted { .. } | Error::NoKey { .. } | Error::Denied { .. }
        )
}

/// True if the error is about one file, and others can be looked at all the same.
pub(crate) fn is_of_a_file(error: &Error) -> bool {
    is_unread(error)
        || matches!(
            error,
            Error::Corrupt { .. } | Error::Io { .. } | Error::WrongVersion { .. } | Error::TooLarge { .. }
        )
}

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The storage floor's word on a file.
    #[error(transparent)]
    Storage(#[from] Error),
    /// The engine's word on a database.
    #[error(transparent)]
    Engine(#[from] pbxt::Error),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The command line asks for something there is not.
    #[error("{0}")]
    Usage(String),
    /// Damage was found, and nobody reads on.
    #[error("something is damaged, and nobody reads what")]
    Unheard,
}

impl Failure {
    /// True if whoever read the output has seen enough.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
