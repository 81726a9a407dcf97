//! A host that keeps what it is told, and openings that tell it.

#![allow(dead_code, reason = "each test file uses a part of this")]

use parking_lot::Mutex;
use pbxt::{Database, Options, Simulation, WaitObserver};
use pbxt_io::Clock;
use pbxt_sim::world::geometry;
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// The lines of each kind.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) damage: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) left_alone: Vec<String>,
    pub(crate) read_only: Vec<String>,
    pub(crate) opening: Vec<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Told(pub(crate) Mutex<Lines>);

impl Told {
    /// Lines about damage since the last call.
    pub(crate) fn take_damage(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().damage)
    }
}

impl WaitObserver for Told {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}
    fn begin(&self, _host_session: usize) {}
    fn end(&self, _host_session: usize) {}
    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
    fn damage(&self, text: &str) {
        self.0.lock().damage.push(text.to_owned());
    }
    fn removed(&self, text: &str) {
        self.0.lock().removed.push(text.to_owned());
    }
    fn left_alone(&self, text: &str) {
        self.0.lock().left_alone.push(text.to_owned());
    }
    fn opening(&self, text: &str) {
        self.0.lock().opening.push(text.to_owned());
    }
    fn read_only(&self, text: &str) {
        self.0.lock().read_only.push(text.to_owned());
    }
}

/// An opening without threads, and what it told.
pub(crate) fn open(disk: &SimDisk) -> (pbxt::Result<Arc<Database>>, Lines) {
    open_by(disk, None)
}

/// The same by a clock of the test's.
pub(crate) fn open_by(disk: &SimDisk, clock: Option<Arc<dyn Clock>>) -> (pbxt::Result<Arc<Database>>, Lines) {
    let told = Arc::new(Told::default());
    let options = Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        observer: Some(Arc::clone(&told) as _),
        simulation: clock.map(|clock| Simulation { clock, uuid: 1 }),
        ..Options::default()
    };
    let opened = Database::open(Arc::new(disk.clone()), &options);
    let told = std::mem::take(&mut *told.0.lock());
    (opened, told)
}
