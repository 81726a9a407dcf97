//! How many SERIALIZABLE transactions are ended, and how many of those would have closed no circle: random steps of four
//! clients on five rows. `cargo run --release -p pbxt-txn --example serial_rate`
//!
//! A transaction ended in vain would have fitted as things stood when it was ended; what came later may have made it fit no more.

#[path = "../tests/support/serial_world.rs"]
mod serial_world;

use serial_world::{CLIENTS, ROWS, Step, World};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// One step; `ranges` of ten reads are of ranges, tables or counts.
fn any_step(random: &mut Random, ranges: usize) -> Step {
    let row = random.below(ROWS);
    match random.below(10) {
        0..=1 => Step::Begin {
            is_reader: random.below(5) == 0,
        },
        2..=5 if random.below(10) < ranges => match random.below(4) {
            0 => Step::All,
            1 => Step::Count,
            _ => Step::Range {
                first: row / 2,
                last: row,
                is_open: random.below(2) == 0,
            },
        },
        2..=5 => Step::Row(row),
        6..=7 => Step::Change {
            row,
            deletes: random.below(2) == 0,
        },
        _ => Step::Commit,
    }
}

fn main() {
    println!("ranges of ten reads | kept at most | committed | ended | of these in vain");
    for ranges in [0, 3, 7] {
        for kept in [1024, 2] {
            let mut random = Random(7);
            let (mut committed, mut ended, mut in_vain) = (0, 0, 0);
            for _ in 0..20_000 {
                let mut world = World::new(kept);
                for _ in 0..60 {
                    let client = random.below(CLIENTS);
                    let step = any_step(&mut random, ranges);
                    world.step(client, step);
                }
                world.finish();
                committed += world.committed;
                ended += world.ended;
                in_vain += world.ended_in_vain;
            }
            println!("{ranges} | {kept} | {committed} | {ended} | {in_vain}");
        }
    }
}
