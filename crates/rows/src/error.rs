//! Errors of the row crate: sentences that say which image, column or index part is wrong and what was expected.
//!
//! Why it exists:    this crate knows no files; the engine adds file and row when it passes an error on.
//! Rules:            F20: damaged bytes are `Corrupt`, never a panic; a description the host got wrong is `BadLayout`/`BadKey`.

/// What goes wrong with rows and keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Stored bytes cannot be what this crate wrote.
    #[error("{image} is damaged at byte {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// Which kind of image: "row payload", "key image", ...
        image: &'static str,
        /// Byte position inside the image.
        offset: usize,
        /// What had to be there.
        expected: &'static str,
        /// The number found instead (a length, an offset or a byte).
        found: u64,
    },
    /// A catalog image written by another format version.
    #[error("{image} has format {found}, this program reads format {expected}: use a matching version")]
    WrongFormat {
        /// Which kind of image.
        image: &'static str,
        /// Format byte found.
        found: u8,
        /// Format byte of this version.
        expected: u8,
    },
    /// The description of a record buffer or schema contradicts itself or the stored schema.
    #[error("column {column} of the table description cannot be used: {why}")]
    BadLayout {
        /// Column number.
        column: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The description of an index contradicts itself or its table.
    #[error("part {part} of the index description cannot be used: {why}")]
    BadKey {
        /// Part number, from 0.
        part: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A record buffer, search tuple or list of values is shorter than its description says.
    #[error("{what} has {found} bytes, expected at least {expected}: it does not belong to this table")]
    TooShort {
        /// What was given.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length needed.
        expected: usize,
    },
    /// A value handed in does not fit its column.
    #[error("value of column {column} has {found} bytes, expected {expected}")]
    BadValue {
        /// Column number.
        column: usize,
        /// Length found.
        found: usize,
        /// What the column takes.
        expected: &'static str,
    },
    /// The host's weights of an index part have a length that its scheme forbids.
    #[error("the host gave {found} bytes of weights for index part {part}, expected {expected}")]
    BadWeights {
        /// Part number, from 0.
        part: usize,
        /// Bytes given.
        found: usize,
        /// What the scheme takes.
        expected: &'static str,
    },
    /// Rows of a block were given out of order.
    #[error("row {row} was given after row {last}: the rows of a block must rise")]
    RowOrder {
        /// The row given.
        row: u64,
        /// The one before it.
        last: u64,
    },
    /// A row or value is larger than the format can hold.
    #[error("{what} of {found} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The floor below failed, for instance in reading a large value.
    #[error(transparent)]
    Base(#[from] pbxt_base::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
