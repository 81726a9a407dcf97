//! Sweep: runs a piece of work once for every moment at which the power can fail.
//!
//! Why it exists: a crash test that picks its moments misses the one that matters; the work is short, so all are met.
//! `PBXT_SWEEP_SEEDS=10` looks at ten times as many crash images of each moment (`make test-long` does).

use crate::sim_disk::SimDisk;

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Crash images looked at for each moment.
    pub seeds: u64,
    /// Every how many operations the power is cut; 1 for all.
    pub step: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { seeds: 4, step: 1 }
    }
}

impl Sweep {
    /// Runs `work` on a new disk for each moment of cut and hands `check` the image, what the work said it had achieved,
    /// and a sentence that names the case. The work must stop at the first error; what it returns is what was
    /// acknowledged to it before. Returns the number of images looked at.
    pub fn run<R>(self, work: impl Fn(&SimDisk) -> R, check: impl Fn(&SimDisk, &R, &str)) -> u64 {
        self.run_prepared(|_| {}, work, check)
    }

    /// As `run`, on disks that `prepare` has filled or told to misbehave before. The power does not fail in `prepare`.
    pub fn run_prepared<R>(
        self,
        prepare: impl Fn(&SimDisk),
        work: impl Fn(&SimDisk) -> R,
        check: impl Fn(&SimDisk, &R, &str),
    ) -> u64 {
        let whole = SimDisk::new();
        prepare(&whole);
        let first = whole.operations();
        work(&whole);
        let count = whole.operations() - first;
        let seeds = self.seeds * more_seeds();
        let mut images = 0;
        for cut in (0..=count).step_by(self.step.max(1)) {
            let disk = SimDisk::new();
            prepare(&disk);
            disk.cut_power_at(first + cut);
            let achieved = work(&disk);
            for seed in 0..seeds {
                let case = format!("power cut before operation {cut} of {count}, seed {seed}");
                check(&disk.crash(cut * seeds + seed), &achieved, &case);
                images += 1;
            }
        }
        images
    }
}

/// By how much a long run multiplies the crash images of each moment.
fn more_seeds() -> u64 {
    let asked = std::env::var("PBXT_SWEEP_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}
