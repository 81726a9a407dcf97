//! Command line: what people type, and what `--help` teaches them.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Shows what the files of a PBXT database hold, and verifies every checksum in them. Reads
/// only: no command writes a byte.
#[derive(Debug, Parser)]
#[command(
    name = "pbxt",
    version,
    after_help = "\
Examples:
  pbxt inspect '/var/lib/mysql/#pbxt'                     a table of all files
  pbxt inspect '/var/lib/mysql/#pbxt/hot-00000001.seg'    the records of a log segment
  pbxt verify '/var/lib/mysql/#pbxt'                      every checksum; exit code 1 if something is damaged
  pbxt verify --key-file keys.txt '/var/lib/mysql/#pbxt'  the same of encrypted files

Each command explains itself: pbxt inspect --help. Formats: docs/format.md; a guide: docs/guide/inspector.md."
)]
pub(crate) struct Arguments {
    /// Keys of encrypted files: lines 'number;hexadecimal bytes', as the server's plugin file_key_management reads them
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// See `--help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Inspect(InspectArgs),
    Verify(VerifyArgs),
    /// Print the version of this program and of the format it reads
    #[command(after_help = "Example:\n  pbxt version")]
    Version,
}

/// Print what a directory or a file of a database holds.
///
/// A directory gives a table: every file with its size, the opening of the database that wrote
/// it (incarnation), its state and its content. States of hot and blob segments: sealed, begun
/// (the manifest vouches for them), prepared (set aside, empty), not needed (below the start of
/// the log), orphan (no word in the manifest). States of piece files: image (of the newest
/// checkpoint), named or orphan (with --open), kept (an opening found that a checkpoint or the log names them), new (written
/// by the last opening; named or not yet). Of all files: missing (the manifest or the checkpoint
/// names it), damaged (not even its header is good), unread (no key or no right).
///
/// A file is told by its first bytes, so a copy under any name is read too. Hot segment: its
/// log records, one a line, with LSN, kind, transaction, table, row and sizes. Piece file
/// (cold, meta): sections with owner, entries, sizes and key range; with --blocks every block,
/// with --entries what is in them. Blob segment: its values with offset, length and hash.
/// Manifest: every record with its offset, and which of the two files counts and why.
///
/// Exit code: 0 nothing looked at is damaged, 1 something is, 2 it could not be looked at.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  pbxt inspect data                                       all files of the database in 'data'
  pbxt inspect data --open                                all tables, and which piece files count
  pbxt inspect data/pbxt.manifest.a                       the manifest: what exists, and since when
  pbxt inspect data/hot-00000003.seg --from 201330688     log records from this LSN on
  pbxt inspect data/meta-00000007.seg --blocks            a run of index entries, block by block
  pbxt inspect data/cold-00000002.seg --entries --section 0 --limit 20
  pbxt inspect data --key-file <(openssl enc -d ...)      encrypted files, with keys that touch no disk"
)]
pub(crate) struct InspectArgs {
    /// Directory of a database, or one file of it
    pub(crate) path: PathBuf,
    /// Hot segment: begin with the record at this LSN or the next one
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<u64>,
    /// Records, values, or entries of a section to print at most; 0 for all
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) limit: u64,
    /// Piece file: print every block with offset, sizes, codec, entries and first key
    #[arg(long)]
    pub(crate) blocks: bool,
    /// Piece file: print the entries of an index, or the rows of a table
    #[arg(long)]
    pub(crate) entries: bool,
    /// Directory: open the database too, in memory, and list its tables. Files that nothing names
    /// are told from those that are named, which only recovery knows. Nothing is written
    #[arg(long)]
    pub(crate) open: bool,
    /// Piece file: only the section of this number
    #[arg(long, value_name = "N")]
    pub(crate) section: Option<u32>,
}

/// Compare everything in a directory with its checksums. Never writes.
///
/// Read are: both manifest files; the header of every segment; every sealed segment, compared
/// with its hash in the manifest; the log from its start on, batch by batch, as recovery reads
/// it; every block of every piece file and the hash of the file; every frame of every large
/// value. Each finding is one line: file, offset, what was expected, what was found, what to
/// do. A file for which there is no key or no right is a line that begins with 'unread'; the
/// others are read.
///
/// A database that a server has open is refused, because what is being written looks
/// unfinished; --live verifies what never changes any more: sealed segments, finished piece
/// files, blob segments of earlier openings.
///
/// Exit code: 0 clean, 1 findings, 2 it could not be verified.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  pbxt verify '/var/lib/mysql/#pbxt'            after the server was stopped
  pbxt verify --open backup                     and every row, index entry and large value
  pbxt verify --live '/var/lib/mysql/#pbxt'     beside a running server
  pbxt verify --quiet backup && echo good       findings only"
)]
pub(crate) struct VerifyArgs {
    /// Directory of a database
    pub(crate) directory: PathBuf,
    /// Beside a running server: only files that never change any more
    #[arg(long)]
    pub(crate) live: bool,
    /// Open the database too, in memory, and check every table as CHECK TABLE does: rows, indexes
    /// and large values against each other. Tells damage from what a kill or a full disk left
    /// unfinished. Nothing is written
    #[arg(long, conflicts_with = "live")]
    pub(crate) open: bool,
    /// Inside parts that take long, print how far they are every so many seconds; 0 for at every step
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) progress: u32,
    /// Print findings and what could not be looked at only, no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}
