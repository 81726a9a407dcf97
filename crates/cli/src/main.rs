//! pbxt: shows what the files of a database hold, and verifies every checksum in them.
//!
//! Why it exists: what only the engine can read cannot be argued about; whoever has to judge a damaged file, a backup or a
//! surprising size needs to see it without opening the database, which would recover it and so change it.
//! Format: docs/format.md and what it links to; docs/guide/inspector.md is for users.
//! Rules: nothing is written. Nothing is decoded here that a lower floor decodes: conversions and printing only. The two
//! manifest modules are crate segment's own sources, compiled a second time, because its decoder is private to it; the
//! modules `geometry` and `names` give them the types they expect.
//! Exit codes: 0 good, 1 something is damaged, 2 it could not be looked at.

mod args;
mod directory;
mod failure;
mod inspect;
mod inspect_blob;
mod inspect_directory;
mod inspect_hot;
mod inspect_manifest;
mod inspect_piece;
mod keyed_disk;
#[path = "../../segment/src/manifest_file.rs"]
mod manifest_file;
#[path = "../../segment/src/manifest_record.rs"]
#[allow(unreachable_pub, reason = "public where they come from")]
mod manifest_record;
mod manifests;
mod missing;
mod opened;
mod piece_content;
mod report;
mod scratch_disk;
mod text;
mod verify;
mod verify_files;
mod verify_log;
mod view_disk;

mod geometry {
    pub(crate) use pbxt_segment::Geometry;
}
mod names {
    pub(crate) use pbxt_segment::SegmentClass;
}

use args::{Arguments, Command};
use clap::Parser;
use failure::{Failure, Outcome, Verdict};
use std::io::{BufWriter, ErrorKind, Write, stdout};
use std::process::ExitCode;

const DAMAGED: u8 = 1;
const CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = BufWriter::new(stdout().lock());
    let keys = keyed_disk::use_keys(arguments.key_file.as_deref());
    let result = keys.and_then(|()| run(&arguments.command, &mut out));
    // What was found before comes first. Whoever has gone away wants to see nothing more.
    let result = match (result, out.flush()) {
        (Ok(_), Err(error)) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        (result, _) => result,
    };
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Unread) => ExitCode::from(CANNOT_RUN),
        Ok(Verdict::Damaged) | Err(Failure::Unheard) => ExitCode::from(DAMAGED),
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pbxt: {failure}");
            match failure {
                Failure::Storage(error) | Failure::Engine(pbxt::Error::Storage(error))
                    if inspect::is_damage(&error) =>
                {
                    ExitCode::from(DAMAGED)
                }
                _ => ExitCode::from(CANNOT_RUN),
            }
        }
    }
}

fn run(command: &Command, out: &mut dyn Write) -> Outcome<Verdict> {
    match command {
        Command::Inspect(args) => inspect::run(args, out),
        Command::Verify(args) => verify::run(args, out),
        Command::Version => {
            let format = pbxt_base::limits::FORMAT_VERSION;
            writeln!(out, "pbxt {}, format version {format}", env!("CARGO_PKG_VERSION"))?;
            Ok(Verdict::Good)
        }
    }
}
