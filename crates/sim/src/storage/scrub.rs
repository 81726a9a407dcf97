//! Scrub: the scrubber beside everything else, and openings, which must find nothing in what nobody damaged.
//!
//! Why it exists: files come, go and are written while a pass reads them, and crashes leave bytes behind that nobody needs. Whoever takes any
//! of that for damage sends a database to its backup for nothing.
//! Rules: SM9.

use crate::storage::life::{Life, Step, Stop};
use pbxt::WaitObserver;
use std::sync::{Mutex, PoisonError};

/// Steps at a time.
const STEPS: u64 = 6;

/// What scrubber and openings said of damage.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<Vec<String>>);

impl WaitObserver for Told {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
    fn damage(&self, text: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.to_owned());
    }
}

impl Told {
    /// What was said since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Life {
    /// An opening that ended well has told of nothing, where nothing is damaged and no read fails.
    pub(super) fn opened_without_doubt(&self) -> Step {
        let told = self.told.take();
        if told.is_empty() || self.trouble.breaks || self.trouble.damaged {
            return Ok(());
        }
        Err(self.wrong(&format!(
            "SM9: an opening doubts a sound database: {}",
            told.join("\n")
        )))
    }

    /// Goes on reading, or begins anew. Where reads fail, and where something is damaged, nothing follows from what is found.
    pub(super) fn scrub(&mut self) -> Step {
        if self.trouble.breaks || self.trouble.damaged {
            return Ok(());
        }
        let db = self.db();
        let before = db.scrub_status().passes;
        if !db.scrub_status().is_running {
            db.scrub_now(true);
        }
        for _ in 0..STEPS {
            db.scrub_step();
        }
        let now = db.scrub_status();
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        if now.damage_found > 0 {
            let told = self.told.take().join("\n");
            return Err(self.wrong(&format!("SM9: a sound database is damaged: {told}")));
        }
        self.done.scrubs += now.passes - before;
        Ok(())
    }
}
