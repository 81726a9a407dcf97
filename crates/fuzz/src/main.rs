//! pbxt-fuzz: lists the targets, writes their seeds and reads inputs; compiled for fuzzing, the engine of a fuzzer for one
//! target.
//!
//! Why it exists: what a fuzzer found is looked at in an ordinary build too, under a debugger or with checksums.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod fuzzer {
    use pbxt_fuzz::Target;
    use std::path::Path;
    use std::sync::OnceLock;

    static TARGET: OnceLock<Target> = OnceLock::new();

    /// The target that `PBXT_FUZZ_TARGET` names; with `PBXT_FUZZ_SEEDS` its seeds are written to that directory, and no more.
    fn choose() {
        let name = std::env::var("PBXT_FUZZ_TARGET").unwrap_or_default();
        let Some(target) = Target::named(&name) else {
            eprintln!(
                "PBXT_FUZZ_TARGET names no target: '{name}'; `cargo run -p pbxt-fuzz -- list` shows them"
            );
            std::process::exit(2);
        };
        if let Ok(directory) = std::env::var("PBXT_FUZZ_SEEDS") {
            let written = target.write_seeds(Path::new(&directory));
            std::process::exit(i32::from(written.is_err()));
        }
        TARGET.get_or_init(|| target);
    }

    libfuzzer_sys::fuzz_target!(init: choose(), |input: &[u8]| {
        TARGET.get().expect("chosen before the first input").run(input);
    });
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    program::run()
}

#[cfg(not(fuzzing))]
mod program {
    use clap::{Parser, Subcommand};
    use pbxt_fuzz::{TARGETS, Target};
    use std::path::PathBuf;
    use std::process::ExitCode;

    /// Reads any bytes with a decoder of PBXT. `scripts/fuzz.py` makes such bytes.
    #[derive(Parser)]
    #[command(version)]
    struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        /// Shows the targets: name, tab, what it reads
        List,
        /// Writes inputs that decode to a directory
        Seeds {
            /// One of `list`
            target: String,
            /// A directory that is there
            directory: PathBuf,
        },
        /// Reads inputs one after the other; ends with a panic at the first that should not have passed
        Read {
            /// One of `list`
            target: String,
            /// Files, each an input
            #[arg(required = true)]
            inputs: Vec<PathBuf>,
        },
    }

    pub(crate) fn run() -> ExitCode {
        match carry_out(Arguments::parse().command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("pbxt-fuzz: {text}");
                ExitCode::FAILURE
            }
        }
    }

    fn named(target: &str) -> Result<Target, String> {
        Target::named(target)
            .ok_or_else(|| format!("no target is called '{target}'; `pbxt-fuzz list` shows them"))
    }

    fn carry_out(command: Command) -> Result<(), String> {
        match command {
            Command::List => TARGETS
                .iter()
                .for_each(|target| println!("{}\t{}", target.name, target.what)),
            Command::Seeds { target, directory } => {
                let written = named(&target)?.write_seeds(&directory);
                let count = written.map_err(|error| format!("{}: {error}", directory.display()))?;
                println!("{count} seeds in {}", directory.display());
            }
            Command::Read { target, inputs } => {
                let target = named(&target)?;
                for path in inputs {
                    let input =
                        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                    println!("{}: {} bytes", path.display(), input.len());
                    target.run(&input);
                }
            }
        }
        Ok(())
    }
}
