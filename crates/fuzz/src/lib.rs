//! Fuzz targets: what may be done with bytes that nobody vouches for.
//!
//! Why it exists: a checksum keeps chance away from a decoder, not malice and not a defect of the encoder; so each decoder
//! must give a value or an error for any bytes, in bounded memory and time. A fuzzer, led by the branches that an input
//! takes, finds bytes that no other test thinks of.
//! Rules: FZ1 to FZ5 of docs/testing.md. Under `cfg(fuzzing)` checksums are all one number (`pbxt_base::checksum`), so
//! that a change of any other byte gets past them.
//! Format and state: none; corpora are files of bytes, one an input.

mod files;
mod host;
mod image_items;
mod parts;
mod rig;
mod seeds;

use std::path::Path;

/// Something that takes any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name, as on the command line.
    pub name: &'static str,
    /// What reads the bytes.
    pub what: &'static str,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them, the quick ones first.
pub const TARGETS: [Target; 19] = [
    Target {
        name: "log-record",
        what: "records of the log, one behind the other",
        run: parts::log_records,
        seeds: seeds::log_records,
    },
    Target {
        name: "transactions",
        what: "the image of a transaction table",
        run: parts::transactions,
        seeds: seeds::transactions,
    },
    Target {
        name: "definition",
        what: "a table's definition in the catalog",
        run: parts::definition,
        seeds: seeds::definitions,
    },
    Target {
        name: "key-sample",
        what: "what is kept of the statistics of an index",
        run: parts::key_sample,
        seeds: seeds::key_samples,
    },
    Target {
        name: "columns",
        what: "a schema, its older versions and the parts of a key",
        run: parts::columns,
        seeds: seeds::columns,
    },
    Target {
        name: "row-block",
        what: "a block of rows in columns",
        run: parts::row_block,
        seeds: seeds::row_blocks,
    },
    Target {
        name: "row",
        what: "the payload of a row, into a host's record",
        run: parts::row,
        seeds: seeds::rows,
    },
    Target {
        name: "key",
        what: "a key and its unpack information, into a host's record; a search tuple of a host",
        run: parts::key,
        seeds: seeds::keys,
    },
    Target {
        name: "run-block",
        what: "a block of index entries",
        run: parts::run_block,
        seeds: seeds::run_blocks,
    },
    Target {
        name: "section-extra",
        what: "row ids and zones beside the blocks of a section",
        run: parts::section_extra,
        seeds: seeds::section_extras,
    },
    Target {
        name: "manifest",
        what: "a database whose manifest is any file",
        run: files::manifest,
        seeds: files::manifest_seeds,
    },
    Target {
        name: "log",
        what: "a database with any file in its log",
        run: files::log,
        seeds: files::log_seeds,
    },
    Target {
        name: "values",
        what: "a database with any file of large values",
        run: files::values,
        seeds: files::values_seeds,
    },
    Target {
        name: "rows",
        what: "a database with any file of rows",
        run: files::rows,
        seeds: files::rows_seeds,
    },
    Target {
        name: "runs",
        what: "a database with any file of index runs",
        run: files::runs,
        seeds: files::runs_seeds,
    },
    Target {
        name: "image",
        what: "a database with any file as its checkpoint's image",
        run: files::image,
        seeds: files::image_seeds,
    },
    Target {
        name: "image-items",
        what: "a database with any items in its checkpoint's image, which then goes on to work",
        run: image_items::run,
        seeds: image_items::seeds,
    },
    Target {
        name: "database",
        what: "a database with bytes changed in any of its files, which then goes on to work",
        run: files::database,
        seeds: files::database_seeds,
    },
    Target {
        name: "calls",
        what: "calls of the C interface, of a host that makes any",
        run: host::calls,
        seeds: host::calls_seeds,
    },
];

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// Reads an input.
    ///
    /// # Panics
    /// If the code under test does, or if what it makes of the bytes contradicts itself (rule FZ2).
    pub fn run(&self, input: &[u8]) {
        (self.run)(input);
    }

    /// Inputs that decode.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)()
    }

    /// Writes the seeds to files of a directory; how many.
    ///
    /// # Errors
    /// Of the directory.
    pub fn write_seeds(&self, directory: &Path) -> std::io::Result<usize> {
        let seeds = self.seeds();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number:04}")), seed)?;
        }
        Ok(seeds.len())
    }
}
