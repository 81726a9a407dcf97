//! Pieces in flight: piece files that exist and that no shape names yet.
//!
//! Why it exists: after each checkpoint the files that nothing names are removed; a file that is being written, or was
//! written and is about to be installed, must not be one of them.
//! Rules: B6 a piece file is held by a job from before its creation until after the shape that names it was installed.
//! Latches: one for the jobs, held for a look-up.
//! After a crash: unnamed files are removed at open.

use crate::database::Database;
use parking_lot::Mutex;
use pbxt_base::SegmentId;
use pbxt_segment::{SegmentClass, SegmentStore};
use std::collections::BTreeMap;

/// What a job keeps from being removed.
#[derive(Debug)]
enum Hold {
    /// Every file that did not exist when it began.
    Since { cold: SegmentId, meta: SegmentId },
    /// These files.
    Files(Vec<(SegmentClass, SegmentId)>),
}

#[derive(Debug, Default)]
struct Jobs {
    last: u64,
    holds: BTreeMap<u64, Hold>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PiecesInFlight {
    jobs: Mutex<Jobs>,
}

/// A job that writes pieces. What it wrote is held until it is dropped, which is after the install.
#[derive(Debug)]
pub(crate) struct PieceJob<'a> {
    flight: &'a PiecesInFlight,
    number: u64,
}

impl PiecesInFlight {
    /// Begins a job: every piece file made from now on is held.
    pub(crate) fn begin(&self, store: &SegmentStore) -> PieceJob<'_> {
        let mut jobs = self.jobs.lock();
        jobs.last += 1;
        let number = jobs.last;
        let hold = Hold::Since {
            cold: store.next_piece_id(SegmentClass::Cold),
            meta: store.next_piece_id(SegmentClass::Meta),
        };
        jobs.holds.insert(number, hold);
        PieceJob { flight: self, number }
    }

    /// A job that was detached.
    pub(crate) fn resume(&self, number: u64) -> PieceJob<'_> {
        PieceJob { flight: self, number }
    }

    /// True if a job holds the file.
    pub(crate) fn holds(&self, class: SegmentClass, id: SegmentId) -> bool {
        self.jobs.lock().holds.values().any(|hold| match hold {
            Hold::Since { cold, .. } if class == SegmentClass::Cold => *cold <= id,
            Hold::Since { meta, .. } => *meta <= id,
            Hold::Files(files) => files.contains(&(class, id)),
        })
    }
}

impl PieceJob<'_> {
    /// From now on only these files are held: for a job that lasts, as the spilled parts of a bulk load do.
    pub(crate) fn narrow_to(&self, files: Vec<(SegmentClass, SegmentId)>) {
        self.flight
            .jobs
            .lock()
            .holds
            .insert(self.number, Hold::Files(files));
    }

    /// Goes on without this value, until `PiecesInFlight::resume` gives it back for its number.
    pub(crate) fn detach(self) -> u64 {
        std::mem::ManuallyDrop::new(self).number
    }
}

impl Drop for PieceJob<'_> {
    fn drop(&mut self) {
        self.flight.jobs.lock().holds.remove(&self.number);
    }
}

impl Database {
    /// Calls `visit` with the file of every piece that a table or an index names now; a file may come more than once.
    pub(crate) fn for_each_named_file(&self, mut visit: impl FnMut(SegmentClass, SegmentId)) {
        for table in self.catalog.tables() {
            for piece in table.base.shape().runs.iter().flat_map(|run| &run.pieces) {
                visit(SegmentClass::Cold, piece.reference().0);
            }
            for index in &table.indexes {
                for piece in index.parts().runs.iter().flat_map(|run| &run.pieces) {
                    visit(SegmentClass::Meta, piece.reference().0);
                }
            }
        }
    }
}
