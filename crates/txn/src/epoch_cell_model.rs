//! Epoch cell for loom models: the same reads and replacements, made of what loom can see.
//!
//! Why it exists: loom does not know the pointer and the epochs of the real cell, so it would see neither its
//! stale reads nor the order it does give.
//! State: every value the cell ever had, never freed, and the number of the current one.
//! Rules: none of its own.
//! Latches and I/O: none that loom sees.

use crossbeam_epoch::Guard;

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct EpochCell<T: 'static> {
    current: AtomicU64,
    values: std::sync::Mutex<Vec<&'static T>>,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    pub(crate) fn new(value: T) -> Self {
        let first: &'static T = Box::leak(Box::new(value));
        EpochCell {
            current: AtomicU64::new(0),
            values: std::sync::Mutex::new(vec![first]),
        }
    }

    pub(crate) fn load<'a>(&'a self, _guard: &'a Guard) -> &'a T {
        let at = self.current.load(Ordering::Acquire) as usize;
        let values = self.values.lock().expect("a model does not panic here");
        values.get(at).expect("a number is published after its value")
    }

    pub(crate) fn replace(&self, value: T, _guard: &Guard) {
        let mut values = self.values.lock().expect("a model does not panic here");
        values.push(Box::leak(Box::new(value)));
        let at = values.len() as u64 - 1;
        drop(values);
        self.current.swap(at, Ordering::AcqRel);
    }
}
