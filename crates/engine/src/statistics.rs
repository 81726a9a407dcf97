//! Statistics: the sample that each index goes by, when it is taken anew, and what is kept of it.
//!
//! Why it exists: the optimizer of a host asks for rows per key with every statement, and wants to hear the same after a restart.
//! State: one sample per index (key_sample.rs), for as long as the index lives: who opens the table again, or alters it and
//! leaves the index as it is, finds it. It is made again when the index has a tenth more entries, or less.
//! Rules: ST1, ST3 to ST6, ST8 to ST10 of docs/statistics.md.
//! Latches: one per index, held to copy numbers. Another one is held while a question samples, which may read blocks: nobody waits for
//! it who has an older sample to go by.
//! After a crash: the sample of the newest checkpoint, or what an ANALYZE behind it has logged.

use crate::error::{Error, Result};
use crate::key_sample::{KeySample, SampleSize, SampleSource, SampledBy, rows_per_value};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Leaves that a question looks at in an index that is not read as a whole.
const LEAVES_FOR_USE: u32 = 64;
/// Leaves that ANALYZE looks at: docs/statistics.md has the errors that were measured.
pub(crate) const LEAVES_FOR_ANALYZE: u32 = 1024;

/// What the definition of a table says of its statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatisticsOptions {
    /// Leaves of each index that are looked at; none: as many as the engine finds best.
    pub leaves: Option<u32>,
    /// Samples are taken anew when the index has grown or shrunk; if not, only by ANALYZE.
    pub follow: bool,
    /// Samples outlive the process.
    pub saved: bool,
}

impl Default for StatisticsOptions {
    fn default() -> Self {
        Self {
            leaves: None,
            follow: true,
            saved: true,
        }
    }
}

/// What is known of the keys of one index.
#[derive(Debug, Default)]
pub(crate) struct KeyStatistics {
    kept: Mutex<Option<KeySample>>,
    /// Held by the question that samples.
    sampling: Mutex<()>,
    /// 0: as the engine finds best.
    leaves: AtomicU32,
    /// Only ANALYZE takes a new sample.
    is_fixed: AtomicBool,
    /// The sample goes with the process.
    is_passing: AtomicBool,
}

impl KeyStatistics {
    /// Takes over what the table's definition says.
    pub(crate) fn set_options(&self, options: &StatisticsOptions) {
        self.leaves
            .store(options.leaves.unwrap_or_default(), Ordering::Relaxed);
        self.is_fixed.store(!options.follow, Ordering::Relaxed);
        self.is_passing.store(!options.saved, Ordering::Relaxed);
    }

    /// How much is looked at by whom.
    pub(crate) fn size(&self, by: SampledBy) -> SampleSize {
        let best = match by {
            SampledBy::Use => LEAVES_FOR_USE,
            SampledBy::Analyze => LEAVES_FOR_ANALYZE,
        };
        let leaves = self.leaves.load(Ordering::Relaxed);
        SampleSize {
            by,
            leaves: if leaves == 0 { best } else { leaves },
        }
    }

    /// Writes rows per distinct value of the prefixes of 1, 2, ... parts, at least 1 each, for a table of `rows` rows. True if the
    /// index was sampled for it.
    pub(crate) fn rows_per_key(&self, source: &SampleSource<'_>, rows: u64, out: &mut [u64]) -> Result<bool> {
        let entries = source.parts.entries();
        if self.write(entries, rows, out, false) {
            return Ok(false);
        }
        // One samples; the others do with what is there, and wait only if there is nothing (rule ST4).
        let _sampling = match self.sampling.try_lock() {
            Some(own) => own,
            None if self.write(entries, rows, out, true) => return Ok(false),
            None => self.sampling.lock(),
        };
        if self.write(entries, rows, out, false) {
            return Ok(false);
        }
        let sample = KeySample::take(source, &self.size(SampledBy::Use), &mut || Ok(()))?;
        let mut kept = self.kept.lock();
        // An ANALYZE may have been here meanwhile, and looked closer.
        if !kept.as_ref().is_some_and(|kept| self.will_do(kept, entries)) {
            *kept = Some(sample);
        }
        drop(kept);
        self.write(entries, rows, out, true);
        Ok(true)
    }

    /// The sample, if there is one.
    pub(crate) fn sample(&self) -> Option<KeySample> {
        self.kept.lock().clone()
    }

    /// The sample as far as it is to outlive the process (rule ST8).
    pub(crate) fn saved_sample(&self) -> Option<KeySample> {
        self.sample().filter(|_| self.is_saved())
    }

    /// True if samples outlive the process.
    pub(crate) fn is_saved(&self) -> bool {
        !self.is_passing.load(Ordering::Relaxed)
    }

    /// Goes by what an ANALYZE found.
    pub(crate) fn keep(&self, sample: KeySample) {
        *self.kept.lock() = Some(sample);
    }

    /// Goes by what an opening found, unless it has found a newer one.
    ///
    /// # Errors
    /// `Invalid` if it is of an index of another number of parts (rule ST7).
    pub(crate) fn restore(&self, sample: KeySample, parts: usize, whose: &str) -> Result<()> {
        if sample.changes.len() != parts {
            let found = sample.changes.len();
            return Err(Error::Invalid(format!(
                "the database has statistics for {found} parts of {whose}, which has {parts}: restore the database from a backup"
            )));
        }
        let mut kept = self.kept.lock();
        if kept.as_ref().is_none_or(|kept| kept.taken <= sample.taken) {
            *kept = Some(sample);
        }
        Ok(())
    }

    /// True if a sample is good enough for an index of so many entries (rules ST3, ST9).
    fn will_do(&self, sample: &KeySample, entries: u64) -> bool {
        entries.abs_diff(sample.entries) <= sample.entries / 10
            || sample.pairs > 0 && self.is_fixed.load(Ordering::Relaxed)
    }

    /// Answers from the sample at hand; false if there is none, or an old one that will not do.
    fn write(&self, entries: u64, rows: u64, out: &mut [u64], old_will_do: bool) -> bool {
        let kept = self.kept.lock();
        let will_do = |sample: &&KeySample| old_will_do || self.will_do(sample, entries);
        let Some(sample) = kept.as_ref().filter(will_do) else {
            return false;
        };
        for (place, &changes) in out.iter_mut().zip(&sample.changes) {
            *place = rows_per_value(rows, changes, sample.pairs);
        }
        true
    }
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
