//! Every interleaving of the tail's protocol, by loom: run with `RUSTFLAGS="--cfg loom" cargo test --release --lib`.

use crate::tail::{BATCH_HEADER_BYTES, Space, Tail};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const RECORD: u64 = 8;

/// Every interleaving with at most three preemptions; without that bound the first model takes minutes.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A chunk of records of one word each behind one batch header.
struct Model {
    tail: Tail,
    words: Vec<UnsafeCell<u64>>,
    filled: Mutex<()>,
    changed: Condvar,
}

impl Model {
    fn new(records: usize) -> Arc<Model> {
        let tail = Tail::new(0, 0, 4);
        let end = BATCH_HEADER_BYTES + records as u64 * RECORD;
        tail.set_ends(end, end);
        let words = (0..records).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Model {
            tail,
            words,
            filled: Mutex::new(()),
            changed: Condvar::new(),
        })
    }

    /// Reserves, fills and releases one record; its position, or `None` if the room is used up.
    fn write_one(&self) -> Option<u64> {
        let claim = self.tail.try_reserve(RECORD, Space::Row)?;
        if let Some(word) = self
            .words
            .get(((claim.lsn - BATCH_HEADER_BYTES) / RECORD) as usize)
        {
            word.with_mut(|word| {
                // SAFETY: the word belongs to the claim until it is released; loom reports it if that is wrong.
                unsafe { *word = claim.lsn }
            });
        }
        if self.tail.release(claim.slot, RECORD) {
            drop(self.filled.lock().expect("no panic"));
            self.changed.notify_all();
        }
        Some(claim.lsn)
    }

    /// What the flusher does: sleeps until the batch is whole, then reads all of it. The end of the batch.
    fn read_whole(&self, sequence: u64) -> u64 {
        let mut filled = self.filled.lock().expect("no panic");
        let span = loop {
            match self.tail.whole_or_mark(sequence) {
                Some(span) => break span,
                None => filled = self.changed.wait(filled).expect("no panic"),
            }
        };
        for lsn in (span.start + BATCH_HEADER_BYTES..span.end).step_by(RECORD as usize) {
            self.words[((lsn - BATCH_HEADER_BYTES) / RECORD) as usize].with(|word| {
                // SAFETY: the batch is whole, so nobody writes to it; loom reports it if that is wrong.
                assert_eq!(unsafe { *word }, lsn, "D8: a whole batch has all its records");
            });
        }
        span.end
    }
}

#[test]
fn a_whole_batch_has_all_its_records_and_nobody_sleeps_for_ever() {
    explore(|| {
        let model = Model::new(2);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.write_one().is_some())
            })
            .collect();
        // Records that come after the seal belong to the next batch, far behind the words of this model.
        let (span, _) = model.tail.seal(0, |_| 1 << 20);
        assert_eq!(model.read_whole(0), span.end);
        model.tail.set_ends(0, 0);
        for writer in writers {
            writer.join().expect("no panic");
        }
    });
}

#[test]
fn no_record_crosses_a_chunk_and_none_is_lost() {
    explore(|| {
        let model = Model::new(1);
        let opener = Arc::new(Mutex::new(0_u64));
        let next_chunk = 512_u64;
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (model, opener) = (Arc::clone(&model), Arc::clone(&opener));
                thread::spawn(move || {
                    loop {
                        if let Some(lsn) = model.write_one() {
                            return lsn;
                        }
                        let mut sequence = opener.lock().expect("no panic");
                        if *sequence == 0 {
                            model.tail.seal(0, |_| next_chunk);
                            *sequence = 1;
                            let end = next_chunk + BATCH_HEADER_BYTES + 2 * RECORD;
                            model.tail.set_ends(end, end);
                        }
                    }
                })
            })
            .collect();
        let mut places: Vec<u64> = writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .collect();
        places.sort_unstable();
        assert_eq!(places, [BATCH_HEADER_BYTES, next_chunk + BATCH_HEADER_BYTES]);
        assert_eq!(model.read_whole(0), BATCH_HEADER_BYTES + RECORD);
    });
}
