//! Scrubber: reads every file again and again, slowly, and compares it with every checksum in it.
//!
//! Why it exists: what rots on the medium is met when somebody happens to read it, often years later, when the backups that still had it
//! are gone. Whoever hears of it in a week has a choice.
//! State: the pass under way (scrub_pass.rs) and what was told; figures for status reports. Nothing of it is on disk.
//! Rules: SC1 to SC8 (docs/storage.md, scrubbing).
//! Latches and I/O: `work` is held for a step by whoever takes it, settings and figures are atomics beside it: nobody in the foreground
//! waits. Reads go past the caches.
//! After a crash: a new pass begins.

use crate::breath::pause_after;
use crate::counters::Counter;
use crate::database::Database;
use crate::error::Result;
use crate::pacing::Progress;
use crate::scrub_doubts::Nobodys;
use crate::scrub_pace::period_of;
use crate::scrub_pass::Pass;
use crate::scrub_tell::Known;
use parking_lot::Mutex;
use pbxt_base::Error as StorageError;
use pbxt_io::Worker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Default of the time in which all files are read once: a week.
const HOURS: u64 = 7 * 24;
/// Pause between two looks at whether something is due.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause after something that will be otherwise before long: a directory that cannot be listed, no descriptor left.
const RETRY_MILLIS: u64 = 1_000;
/// Pause between two steps of the search for rows that name a value in doubt.
const SEARCH_MILLIS: u64 = 1_000;

/// What somebody wants of the scrubber, until its next step.
mod order {
    pub(super) const NONE: u8 = 0;
    pub(super) const BEGIN: u8 = 1;
    pub(super) const END: u8 = 2;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scrub {
    /// Time in which all files are read once; 0 = only when asked for.
    hours: AtomicU64,
    order: AtomicU8,
    stopping: AtomicBool,
    work: Mutex<Work>,
    pub(crate) figures: Figures,
    worker: Mutex<Option<Worker>>,
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            hours: AtomicU64::new(HOURS),
            order: AtomicU8::new(order::NONE),
            stopping: AtomicBool::new(false),
            work: Mutex::default(),
            figures: Figures::default(),
            worker: Mutex::new(None),
        }
    }
}

/// Totals since open, and how far the pass under way is.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    passes: Counter,
    bytes_read: Counter,
    /// Places, each once.
    pub(crate) damage: Counter,
    last_seconds: AtomicU64,
    percent: AtomicU64,
    is_running: AtomicBool,
}

/// What the scrubber knows between two steps.
#[derive(Debug, Default)]
struct Work {
    pass: Option<Pass>,
    /// A pass is to begin at once.
    is_asked: bool,
    /// The hours of the newest step.
    hours: u64,
    /// Passes that began.
    begun: u64,
    /// When the newest did.
    began: Option<u64>,
    /// Nothing is done before, in milliseconds of the database's clock.
    due: u64,
    known: Known,
    /// See `Pass::nobodys`; with the pass while one is under way.
    nobodys: Nobodys,
}

/// Figures of the scrubber, totals since open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Time in which all files are read once; 0 = only when asked for.
    pub hours: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Places found damaged, each once.
    pub damage_found: u64,
    /// A pass is under way.
    pub is_running: bool,
    /// How much of its bytes are done, in percent; 0 without one.
    pub percent: u64,
    /// Seconds the last pass took that came to its end.
    pub last_pass_seconds: u64,
}

impl Scrub {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn show(&self, pass: Option<&Pass>) {
        let figures = &self.figures;
        let percent = pass.map_or(0, |pass| pass.course.percent());
        figures.percent.store(percent, Ordering::Relaxed);
        figures.is_running.store(pass.is_some(), Ordering::Relaxed);
    }

    /// Takes up what was asked and set since the last step (rule SC7).
    fn take_orders(&self, work: &mut Work) {
        let is_asked_for = |pass: &Pass| pass.is_asked;
        match self.order.swap(order::NONE, Ordering::AcqRel) {
            order::BEGIN => {
                work.pass = None;
                work.is_asked = true;
                work.due = 0;
            }
            order::END => {
                work.is_asked = false;
                work.pass = work.pass.take().filter(|pass| !is_asked_for(pass));
                work.due = 0;
            }
            _ => {}
        }
        let hours = self.hours.load(Ordering::Relaxed);
        if hours != work.hours {
            work.hours = hours;
            work.due = 0;
            work.pass = work.pass.take().filter(|pass| hours > 0 || is_asked_for(pass));
            if let Some(pass) = &mut work.pass {
                pass.course.period = period_of(hours);
            }
        }
        self.show(work.pass.as_ref());
    }
}

impl Database {
    /// Sets in how many hours all files are read once; 0 = only when asked for (rule SC7).
    pub fn set_scrub_hours(&self, hours: u64) {
        self.scrub.hours.store(hours, Ordering::Relaxed);
        self.wake_scrub();
    }

    /// Begins a pass at once, or ends one that was begun so (rule SC7).
    pub fn scrub_now(&self, begins: bool) {
        let order = if begins { order::BEGIN } else { order::END };
        self.scrub.order.store(order, Ordering::Release);
        self.wake_scrub();
    }

    /// Figures of the scrubber.
    pub fn scrub_status(&self) -> ScrubStatus {
        let figures = &self.scrub.figures;
        ScrubStatus {
            hours: self.scrub.hours.load(Ordering::Relaxed),
            passes: figures.passes.get(),
            bytes_read: figures.bytes_read.get(),
            damage_found: figures.damage.get(),
            is_running: figures.is_running.load(Ordering::Relaxed),
            percent: figures.percent.load(Ordering::Relaxed),
            last_pass_seconds: figures.last_seconds.load(Ordering::Relaxed),
        }
    }

    /// One stretch of a pass, if one is due: a file opened, about a megabyte read, or some rows asked for a value in doubt. Damage is told and
    /// is no error (rule SC4).
    pub fn scrub_step(&self) -> Progress {
        let mut work = self.scrub.work.lock();
        let work = &mut *work;
        self.scrub.take_orders(work);
        let now = self.clock.now_millis();
        if now < work.due || self.poison.check().is_err() {
            return Progress::Idle;
        }
        let Some(mut pass) = work.pass.take().or_else(|| self.next_pass(work, now)) else {
            return Progress::Idle;
        };
        let since = self.clock.now_micros();
        let (mut damages, figures) = (Vec::new(), &self.scrub.figures);
        let read = self.read_on(&mut pass, &mut damages);
        for damage in &damages {
            self.tell_damage(&mut work.known, &mut pass, damage);
        }
        if let Some(bytes) = read {
            figures.bytes_read.add(bytes);
            work.due = self.next_stretch(&mut pass, bytes, since);
            work.pass = Some(pass);
        } else {
            self.tell_end(&pass);
            let took = self.clock.now_millis().saturating_sub(pass.course.began);
            figures.last_seconds.store(took / 1000, Ordering::Relaxed);
            figures.passes.add(1);
            work.nobodys = pass.nobodys;
            work.due = 0;
        }
        self.scrub.show(work.pass.as_ref());
        Progress::Worked
    }

    /// A pass, if one is to begin (rules SC2, SC7).
    fn next_pass(&self, work: &mut Work, now: u64) -> Option<Pass> {
        let period = period_of(work.hours);
        let is_time = work.began.is_none_or(|began| now >= began.saturating_add(period));
        if !work.is_asked && (work.hours == 0 || !is_time) {
            return None;
        }
        let Ok(mut pass) = self.begin_pass(work.begun + 1, work.is_asked, period, now) else {
            work.due = now + RETRY_MILLIS;
            return None;
        };
        pass.nobodys = std::mem::take(&mut work.nobodys);
        work.is_asked = false;
        work.begun += 1;
        work.began = Some(now);
        Some(pass)
    }

    /// When to go on, after so many bytes were read by a step that began then. Whoever was asked to hurry pauses here, if others work (rule
    /// SC3).
    fn next_stretch(&self, pass: &mut Pass, bytes: u64, since_micros: u64) -> u64 {
        if std::mem::take(&mut pass.is_put_off) {
            return self.clock.now_millis() + RETRY_MILLIS;
        }
        if !pass.is_asked {
            let now = self.clock.now_millis();
            return match bytes {
                _ if pass.is_searching() => now + SEARCH_MILLIS,
                0 => now,
                _ => now + pass.course.pause(bytes, now),
            };
        }
        let worked = self.clock.now_micros().saturating_sub(since_micros);
        if !self.upkeep.is_at_rest() && !self.scrub.is_stopping() {
            std::thread::sleep(pause_after(Duration::from_micros(worked), 0));
        }
        0
    }

    /// Starts the thread that takes these steps.
    pub(crate) fn start_scrub(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let step = move || {
            let Some(db) = weak.upgrade() else { return };
            while !db.scrub.is_stopping() && db.scrub_step() == Progress::Worked {}
        };
        let worker = Worker::spawn("pbxt-scrub", Arc::clone(&self.poison), PAUSE, step);
        let failed = |source| StorageError::Io {
            file: self.store.location(),
            op: "start a thread for",
            source,
        };
        *self.scrub.worker.lock() = Some(worker.map_err(failed)?);
        Ok(())
    }

    /// Lets the thread look at once.
    fn wake_scrub(&self) {
        if let Some(worker) = &*self.scrub.worker.lock() {
            worker.wake();
        }
    }

    /// Stops the thread, after the stretch at hand.
    pub(crate) fn stop_scrub(&self) {
        self.scrub.stopping.store(true, Ordering::Release);
        let worker = self.scrub.worker.lock().take();
        if let Some(mut worker) = worker {
            worker.stop();
        }
    }
}
