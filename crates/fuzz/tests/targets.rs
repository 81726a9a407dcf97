//! Every target takes its seeds, random changes of them, noise, and whatever a fuzzer once found.
//!
//! Rules: FZ1 to FZ5 of docs/testing.md. A failure names target, seed and round:
//! `PBXT_FUZZ_REPLAY=row-block:3:17 cargo test -p pbxt-fuzz` plays that input alone.

use pbxt_fuzz::{TARGETS, Target};
use pbxt_testkit::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Changed inputs of a target that only decodes; of a target that opens databases a twentieth.
const ROUNDS: u64 = 10_000;

fn opens_databases(target: &Target) -> bool {
    [
        "manifest",
        "log",
        "values",
        "rows",
        "runs",
        "image",
        "image-items",
        "database",
        "calls",
    ]
    .contains(&target.name)
}

/// Seed number `seed` with the changes of a round; what a fuzzer does, without its feeling for branches.
fn changed(seeds: &[Vec<u8>], seed: usize, round: u64) -> Vec<u8> {
    let mut input = seeds[seed].clone();
    let mut rng = Rng::new(round << 16 | seed as u64);
    for _ in 0..=rng.below(4) {
        if input.is_empty() {
            break;
        }
        let at = rng.below(input.len() as u64) as usize;
        match rng.below(8) {
            0 => input.truncate(at),
            1 => input[at] = 0xff,
            2 => input[at] = 0,
            3 => input[at] ^= 1 << rng.below(8),
            4 => {
                let other = &seeds[rng.below(seeds.len() as u64) as usize];
                let from = rng.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input[at] = rng.next_u64() as u8,
        }
    }
    input
}

fn reads(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| target.run(input))).is_ok()
}

#[test]
fn seeds_changed_or_not_give_a_value_or_an_error() {
    let replay = std::env::var("PBXT_FUZZ_REPLAY").ok();
    let mut failed = Vec::new();
    for target in &TARGETS {
        let seeds = target.seeds();
        assert!(!seeds.is_empty(), "FZ4: {} has seeds", target.name);
        let rounds = if opens_databases(target) {
            ROUNDS / 20
        } else {
            ROUNDS
        } / seeds.len() as u64;
        for seed in 0..seeds.len() {
            for round in 0..=rounds {
                let name = format!("{}:{seed}:{round}", target.name);
                if replay.as_ref().is_some_and(|wanted| *wanted != name) {
                    continue;
                }
                let input = if round == 0 {
                    seeds[seed].clone()
                } else {
                    changed(&seeds, seed, round)
                };
                if !reads(target, &input) {
                    failed.push(name);
                }
            }
        }
    }
    assert!(
        failed.is_empty(),
        "FZ1: {} inputs: PBXT_FUZZ_REPLAY={failed:?}",
        failed.len()
    );
}

#[test]
fn noise_gives_a_value_or_an_error() {
    let mut rng = Rng::new(1);
    for target in TARGETS.iter().filter(|target| !opens_databases(target)) {
        for _ in 0..ROUNDS {
            let mut input = vec![0; rng.below(200) as usize];
            rng.fill(&mut input);
            // Small numbers are what lengths and kinds are made of.
            if rng.chance(50) {
                for byte in &mut input {
                    *byte %= 8;
                }
            }
            assert!(reads(target, &input), "FZ1: {}: {input:?}", target.name);
        }
    }
}

/// Rule FZ4: `found/TARGET/*` are inputs that once were a panic, a hang or too much memory.
#[test]
fn what_a_fuzzer_found_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    for target in &TARGETS {
        let Ok(inputs) = std::fs::read_dir(folder.join(target.name)) else {
            continue;
        };
        for input in inputs {
            let path = input.expect("a listing").path();
            let bytes = std::fs::read(&path).expect("an input");
            assert!(reads(target, &bytes), "FZ4: {}", path.display());
        }
    }
}
