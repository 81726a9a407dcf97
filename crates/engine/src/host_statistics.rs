//! Host statistics: a host's questions about the keys of its table, and ANALYZE.
//!
//! Why it exists: keys are compared part by part, and which parts they have the host's table knows.
//! Rules: ST2 to ST6, ST8 of docs/statistics.md. An ANALYZE takes its samples first, one index after the other, without any latch; then it
//! logs all of them as one change of the catalog, and only then anybody goes by them.
//! Latches and I/O: reads blocks through the cache; the latch of DDL while the record is logged, and until it is durable.
//! After a crash: the samples of a whole ANALYZE or none of them.

use crate::catalog::CatalogOp;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::host::HostTable;
use crate::key_sample::{KeySample, SampleSource, SampledBy};
use crate::session::Session;
use crate::statistics::StatisticsOptions;
use crate::table::{Index, Table};
use pbxt_base::stop_point;
use pbxt_txlog::Space;

impl HostTable {
    /// Takes over what the table's definition says of its statistics.
    pub fn set_statistics_options(&self, options: &StatisticsOptions) {
        let indexes = self.table().indexes.iter();
        indexes.for_each(|index| index.statistics().set_options(options));
    }

    /// Writes rows per distinct value of each prefix of 1, 2, ... parts of an index, estimated and at least 1.
    pub fn rows_per_key(&self, index: usize, out: &mut [u64]) -> Result<()> {
        let (db, maker) = (self.database(), self.maker(index)?);
        let index = &self.table().indexes[index];
        let source = SampleSource {
            parts: &index.parts(),
            cache: &db.cache,
            maker,
            clock: &*db.clock,
        };
        let rows = self.table().latest_rows();
        let is_new = index.statistics().rows_per_key(&source, rows, out)?;
        if is_new && !self.table().temporary && index.statistics().is_saved() {
            db.maintenance.note_sample();
        }
        Ok(())
    }

    /// Samples all indexes and saves what it found. `progress` is told how much of how much is done; a kill of the session's statement
    /// ends it.
    ///
    /// # Errors
    /// `Killed`, and whatever stands against reading an index or writing the log: statistics are then as they were.
    pub fn analyze(&self, session: &Session, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let db = self.database();
        let parts: Vec<_> = self.table().indexes.iter().map(Index::parts).collect();
        let sizes: Vec<_> = (self.table().indexes.iter())
            .map(|index| index.statistics().size(SampledBy::Analyze))
            .collect();
        let steps = parts.iter().zip(&sizes);
        let total: u64 = steps.map(|(parts, size)| 1 + size.steps(parts.entries())).sum();
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress(done.min(total), total);
            if db.waits.host_killed(session.gate()) {
                return Err(Error::Killed);
            }
            Ok(())
        };
        let mut samples = Vec::with_capacity(parts.len());
        for (number, (parts, size)) in parts.iter().zip(&sizes).enumerate() {
            let source = SampleSource {
                parts,
                cache: &db.cache,
                maker: self.maker(number)?,
                clock: &*db.clock,
            };
            step()?;
            samples.push(KeySample::take(&source, size, &mut step)?);
        }
        stop_point!("analyze.after_sampling");
        db.keep_samples(self.table(), samples)?;
        progress(total, total);
        Ok(())
    }
}

impl Database {
    /// Logs the samples of all indexes of a table, unless they are to go with the process, and lets everybody go by them (rule ST5).
    fn keep_samples(&self, table: &Table, samples: Vec<KeySample>) -> Result<()> {
        let _turn = self.ddl.lock();
        table.check_current()?;
        let of_indexes = || table.indexes.iter().zip(&samples);
        let saved: Vec<_> = of_indexes()
            .filter(|(index, _)| index.statistics().is_saved())
            .map(|(index, sample)| (index.def.id, sample.clone()))
            .collect();
        if !saved.is_empty() && !table.temporary {
            self.log_ddl(&[CatalogOp::Statistics(table.id, saved)], Space::Row)?;
        }
        for (index, sample) in table.indexes.iter().zip(samples) {
            index.statistics().keep(sample);
        }
        Ok(())
    }
}
