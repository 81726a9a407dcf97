//! Failure: why a command could not do its work, as a sentence.
//!
//! Why it exists: people read the storage floor's errors as they are; a reader of the output that goes away (`| head`) is
//! no error at all, and must be told from a full disk behind `>`.

use std::io;

/// Result of every command.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The storage floor's word on a file.
    #[error(transparent)]
    Storage(#[from] pbxt_base::Error),
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
