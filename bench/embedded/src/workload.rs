//! Workload: what is done with a store, in which order, and whether it answered rightly.
//!
//! Why it exists: a store that answers wrongly may be fast. Each value that is read is compared with what it must be; after writes,
//! removals, compaction and a new opening the rows are counted; at the end all of them are read in order. What ranges have shown is
//! added up: stores that were asked the same must come to the same sum.
//! State: none between phases but the store itself. Background work that a phase has left over runs into the next one, and
//! into the compaction, as it does in a program.

use crate::meters;
use crate::pairs::{Key, Pairs, Stream, head};
use crate::store::{Durability, Result, Session, Store, View};
use std::path::Path;
use std::time::Instant;

/// How much of everything.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Pairs of the bulk load.
    pub(crate) rows: u64,
    /// Transactions of one pair.
    pub(crate) singles: u64,
    /// Transactions of many pairs, and how many.
    pub(crate) batches: u64,
    pub(crate) batch_rows: u64,
    /// Relaxed transactions of one pair.
    pub(crate) relaxed: u64,
    /// Reads of one pair; so many also by threads together.
    pub(crate) reads: u64,
    /// Reads of the next pairs in order, and how many.
    pub(crate) ranges: u64,
    pub(crate) range_rows: u64,
    /// Numbers of threads that read together.
    pub(crate) threads: Vec<u32>,
}

impl Sizes {
    /// Pairs that are there after all writes.
    fn pairs(&self) -> u64 {
        self.rows + self.singles + self.batches * self.batch_rows + self.relaxed
    }

    /// Of those, how many are removed: every second one.
    fn removed(&self) -> u64 {
        self.pairs().div_ceil(2)
    }
}

/// What one phase took.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub(crate) phase: String,
    /// Pairs written or removed, keys or ranges asked for; 1 of what is done as a whole.
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// What the files take afterwards.
    pub(crate) disk_bytes: u64,
    /// Must be the same for all stores.
    pub(crate) answer: u64,
}

/// Seeds of what is drawn; every store draws the same.
const FIRST_READS_SEED: u64 = 0x4669_7273;
const READS_SEED: u64 = 0x5265_6164;
const RANGES_SEED: u64 = 0x5261_6e67;
const CHECK_SEED: u64 = 0x4368_6563;
/// Keys that are looked for after the removals.
const CHECKED_KEYS: u64 = 2_000;

/// See the module.
pub(crate) struct Workload<'a> {
    pub(crate) pairs: Pairs,
    pub(crate) sizes: &'a Sizes,
    /// Where the store's files lie.
    pub(crate) directory: &'a Path,
    /// Told of each phase when it is over.
    pub(crate) tell: &'a mut dyn FnMut(&Measure),
}

/// Opens the store, again and again.
pub(crate) type Opening<'o, 's> = &'o dyn Fn() -> Result<Box<dyn Store + 's>>;

impl Workload<'_> {
    /// All of it, from an empty store on.
    pub(crate) fn play(&mut self, open: Opening<'_, '_>) -> Result<()> {
        let mut store = open()?;
        self.one_session(&*store)?;
        let sizes = self.sizes;
        for &threads in &sizes.threads {
            self.read_by_threads(&*store, threads)?;
        }
        self.remove(&*store)?;
        self.timed("compaction", 1, || {
            store.compact()?;
            Ok(1)
        })?;
        let left = sizes.pairs() - sizes.removed();
        expect_count(&mut *store.session(1)?, left)?;
        let mut reopened = None;
        self.timed("close and open", 1, || {
            store.close()?;
            reopened = Some(open()?);
            Ok(1)
        })?;
        let store = reopened.ok_or("the store was not opened again")?;
        let pairs = self.pairs;
        store.session(1)?.read(&mut |view| {
            let all = walk(view, pairs, &Key::default(), u64::MAX)?;
            expect(all.rows, left, "rows read in order after the opening")
        })?;
        expect_count(&mut *store.session(1)?, left)?;
        store.close()
    }

    /// What one thread does with one session.
    fn one_session(&mut self, store: &dyn Store) -> Result<()> {
        let mut session = store.session(1)?;
        let session = &mut *session;
        self.write(session)?;
        expect_count(session, self.sizes.pairs())?;
        let (pairs, sizes) = (self.pairs, self.sizes);
        for (phase, seed) in [
            ("first random reads", FIRST_READS_SEED),
            ("random reads", READS_SEED),
        ] {
            self.timed(phase, sizes.reads, || {
                read_some(session, pairs, sizes.pairs(), sizes.reads, seed)
            })?;
        }
        self.timed("random range reads", sizes.ranges, || {
            read_ranges(session, pairs, sizes)
        })
    }

    fn write(&mut self, session: &mut dyn Session) -> Result<()> {
        let (pairs, sizes) = (self.pairs, self.sizes);
        let mut next = 0;
        let mut feed = |rows| {
            next += rows;
            pairs.feed(next - rows..next)
        };
        self.timed("bulk load", sizes.rows, || {
            session.load(&mut feed(sizes.rows))?;
            Ok(sizes.rows)
        })?;
        self.timed("individual writes", sizes.singles, || {
            for _ in 0..sizes.singles {
                session.insert(&mut feed(1), Durability::Synced)?;
            }
            Ok(sizes.singles)
        })?;
        let batched = sizes.batches * sizes.batch_rows;
        self.timed("batch writes", batched, || {
            for _ in 0..sizes.batches {
                session.insert(&mut feed(sizes.batch_rows), Durability::Synced)?;
            }
            Ok(batched)
        })?;
        self.timed("relaxed writes", sizes.relaxed, || {
            for _ in 0..sizes.relaxed {
                session.insert(&mut feed(1), Durability::Relaxed)?;
            }
            Ok(sizes.relaxed)
        })
    }

    fn read_by_threads(&mut self, store: &dyn Store, threads: u32) -> Result<()> {
        let (pairs, sizes) = (self.pairs, self.sizes);
        let each = sizes.reads / u64::from(threads.max(1));
        let phase = format!("random reads, {threads} threads");
        let read = |number: u32| -> Result<u64> {
            let seed = READS_SEED + 1 + u64::from(number);
            read_some(&mut *store.session(threads)?, pairs, sizes.pairs(), each, seed)
        };
        self.timed(&phase, each * u64::from(threads), || {
            std::thread::scope(|scope| -> Result<u64> {
                let started: Vec<_> = (0..threads)
                    .map(|number| scope.spawn(move || read(number)))
                    .collect();
                let mut found = 0;
                for thread in started {
                    found += thread.join().map_err(|_| "a reading thread panicked")??;
                }
                Ok(found)
            })
        })
    }

    fn remove(&mut self, store: &dyn Store) -> Result<()> {
        let (pairs, sizes) = (self.pairs, self.sizes);
        let mut session = store.session(1)?;
        let session = &mut *session;
        self.timed("removals", sizes.removed(), || {
            session.remove(&mut (0..sizes.pairs()).step_by(2).map(|number| pairs.key(number)))?;
            Ok(sizes.removed())
        })?;
        expect_count(session, sizes.pairs() - sizes.removed())?;
        let mut draw = Stream::new(CHECK_SEED);
        session.read(&mut |view| {
            for _ in 0..CHECKED_KEYS {
                let number = draw.below(sizes.pairs());
                check_key(view, pairs, &pairs.key(number), number % 2 == 1)?;
            }
            Ok(())
        })
    }

    fn timed(&mut self, phase: &str, operations: u64, work: impl FnOnce() -> Result<u64>) -> Result<()> {
        let (began, cpu_before) = (Instant::now(), meters::cpu_seconds()?);
        let answer = work().map_err(|error| format!("{phase}: {error}"))?;
        let seconds = began.elapsed().as_secs_f64();
        (self.tell)(&Measure {
            phase: phase.to_owned(),
            operations,
            seconds,
            cpu_seconds: meters::cpu_seconds()? - cpu_before,
            disk_bytes: meters::disk_bytes(self.directory)?,
            answer,
        });
        Ok(())
    }
}

/// Reads keys that are there; how many were found with their values.
fn read_some(session: &mut dyn Session, pairs: Pairs, all: u64, reads: u64, seed: u64) -> Result<u64> {
    let mut draw = Stream::new(seed);
    session.read(&mut |view| {
        for _ in 0..reads {
            check_key(view, pairs, &pairs.key(draw.below(all)), true)?;
        }
        Ok(())
    })?;
    Ok(reads)
}

/// A key is there with its value, or it is not there.
fn check_key(view: &mut dyn View, pairs: Pairs, key: &Key, is_there: bool) -> Result<()> {
    let mut is_right = false;
    let found = view.get(key, &mut |value| is_right = pairs.is_value(key, value))?;
    match (found, is_there) {
        (true, true) if !is_right => {
            Err(format!("the key {key:02x?} has another value than was written").into())
        }
        (true, false) => Err(format!("the key {key:02x?} was removed and is there").into()),
        (false, true) => Err(format!("the key {key:02x?} is not there").into()),
        _ => Ok(()),
    }
}

/// Reads ranges that begin anywhere; the sum of what they show.
fn read_ranges(session: &mut dyn Session, pairs: Pairs, sizes: &Sizes) -> Result<u64> {
    let mut draw = Stream::new(RANGES_SEED);
    let mut sum = 0_u64;
    session.read(&mut |view| {
        for _ in 0..sizes.ranges {
            sum = sum.wrapping_add(walk(view, pairs, &draw.key(), sizes.range_rows)?.sum);
        }
        Ok(())
    })?;
    Ok(sum)
}

/// What a range has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Walked {
    rows: u64,
    /// Of the heads of the keys.
    sum: u64,
}

/// Reads a range and checks order and values.
fn walk(view: &mut dyn View, pairs: Pairs, from: &Key, most: u64) -> Result<Walked> {
    let mut walked = Walked::default();
    let mut before = *from;
    let mut wrong = None;
    view.range(from, most, &mut |key, value| {
        let in_order = key > before.as_slice() || walked.rows == 0 && key == before.as_slice();
        match Key::try_from(key) {
            Ok(key) if in_order && pairs.is_value(&key, value) => before = key,
            _ => wrong = Some(format!("the key {key:02x?} is out of order or has another value")),
        }
        walked.rows += 1;
        walked.sum = walked.sum.wrapping_add(head(key));
    })?;
    match wrong {
        Some(wrong) => Err(format!("a range from {from:02x?}: {wrong}").into()),
        None => Ok(walked),
    }
}

fn expect_count(session: &mut dyn Session, rows: u64) -> Result<()> {
    session.read(&mut |view| expect(view.count()?, rows, "rows counted"))
}

fn expect(found: u64, expected: u64, what: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, and {expected} were expected").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Budget;
    use crate::stores::model::{Fault, Model};
    use crate::stores::{ALL, find};

    fn small() -> Sizes {
        Sizes {
            rows: 30_000,
            singles: 20,
            batches: 3,
            batch_rows: 500,
            relaxed: 100,
            reads: 4_000,
            ranges: 500,
            range_rows: 10,
            threads: vec![2],
        }
    }

    /// Phases and answers, or why it ended.
    fn play(sizes: &Sizes, directory: &Path, open: Opening<'_, '_>) -> Result<Vec<(String, u64)>> {
        let mut told = Vec::new();
        let mut workload = Workload {
            pairs: Pairs::new(3, 150),
            sizes,
            directory,
            tell: &mut |measure| told.push((measure.phase.clone(), measure.answer)),
        };
        workload.play(open)?;
        Ok(told)
    }

    fn with_model(fault: Fault) -> Result<Vec<(String, u64)>> {
        let directory = tempfile::tempdir()?;
        let model = Model::new(fault);
        let sizes = Sizes {
            rows: 1000,
            ..small()
        };
        play(&sizes, directory.path(), &|| Ok(Box::new(&model)))
    }

    #[test]
    fn a_store_without_fault_passes_and_each_phase_is_told() {
        let told = with_model(Fault::None).expect("the model is right");
        let phases: Vec<&str> = told.iter().map(|(phase, _)| phase.as_str()).collect();
        let expected = [
            "bulk load",
            "individual writes",
            "batch writes",
            "relaxed writes",
            "first random reads",
            "random reads",
            "random range reads",
            "random reads, 2 threads",
            "removals",
            "compaction",
            "close and open",
        ];
        assert_eq!(phases, expected);
        assert_eq!(told[2].1, 1500);
    }

    #[test]
    fn every_wrong_answer_is_noticed() {
        let noticed = [
            (Fault::Values, "first random reads: "),
            (Fault::Reads, "first random reads: "),
            (Fault::Ranges, "rows read in order"),
            (Fault::Removals, "rows counted: 2620, and 1310"),
            (Fault::Compaction, "rows counted: 1309, and 1310"),
        ];
        for (fault, words) in noticed {
            let error = with_model(fault).expect_err("a fault").to_string();
            assert!(error.contains(words), "{fault:?}: {error}");
        }
    }

    #[test]
    fn all_stores_give_the_same_answers_as_the_model() {
        let sizes = small();
        let model = Model::new(Fault::None);
        let directory = tempfile::tempdir().expect("a directory");
        let expected = play(&sizes, directory.path(), &|| Ok(Box::new(&model))).expect("the model is right");
        let budget = Budget {
            bytes: 32 << 20,
            threads: 2,
        };
        for (name, _) in ALL {
            let (_, open) = find(name).expect("a store of the list");
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path();
            let told = play(&sizes, path, &|| open(path, budget));
            assert_eq!(
                told.map_err(|error| format!("{name}: {error}")),
                Ok(expected.clone())
            );
        }
    }
}
