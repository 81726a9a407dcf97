//! Instruments: somebody outside who is told what files, threads and waits cost.
//!
//! Why it exists: a host keeps accounts of files, threads and waits for its users (docs/instruments.md), and only this floor knows
//! when they begin and end. Timing and adding up is the host's business, so there are pairs of calls and no figures here.
//! How: files are told of by `MeasuredDisk`, which stands before a disk if there are instruments and is not there otherwise. Threads
//! and waits have no owner that could be given instruments, so these are set once for the process.
//! Rules: PS1 without instruments a thread that begins and one that is about to sleep make one load; nobody else asks. PS5 every
//! thread of this floor tells its beginning before its work and its end after it. PS6 only who is about to sleep tells of a wait.
//! PS7 every beginning has one end, in the same thread, with the same `Place`, after a panic too. PS8 instruments call nothing of
//! the engine and wait for nothing.
//! Latches and I/O: none.

use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// Memory that the instruments may use from a beginning to its end. It stays where it is meanwhile.
#[derive(Debug, Default)]
pub struct Place([u64; Place::WORDS]);

impl Place {
    /// How much it is.
    pub const WORDS: usize = 16;

    /// All of it.
    pub fn words(&mut self) -> &mut [u64; Self::WORDS] {
        &mut self.0
    }
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FileKind {
    /// Log records.
    Log = 0,
    /// Runs of rows.
    Rows = 1,
    /// Runs of index entries, images of checkpoints.
    Indexes = 2,
    /// Large values.
    Blobs = 3,
    /// Which files there are.
    Manifest = 4,
    /// The directory of all of them: its syncs make names durable.
    Directory = 5,
    /// Anything else.
    Other = 6,
}

/// What is done to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FileWork {
    /// The handle goes.
    Close = 0,
    /// Bytes are read; a batch counts once (rule PS3).
    Read = 1,
    /// Bytes are written.
    Write = 2,
    /// What was written becomes durable.
    Sync = 3,
    /// Room is given back.
    GiveBack = 4,
}

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WaitKind {
    /// A lock of a row, key or table, or the end of another transaction.
    Lock = 0,
    /// Another thread that writes the log.
    Log = 1,
    /// Background work that is behind: writers are slowed down.
    Background = 2,
}

/// Whoever keeps the accounts. Any thread calls; rule PS8 says what must not be done in these calls.
pub trait Instruments: Send + Sync + Debug {
    /// A file is about to be opened, or made if it `is_new`. False: nobody wants to hear of it, and `opened` is not called.
    fn opening(&self, place: &mut Place, kind: FileKind, path: &CStr, is_new: bool) -> bool;
    /// It was, or could not be. Gives the instruments' own number of the file; 0: nobody wants to hear more of it.
    fn opened(&self, place: &mut Place, succeeded: bool) -> usize;
    /// Work on an open file begins, with so many bytes. False: nobody wants to hear of it, and `end` is not called.
    fn begin(&self, place: &mut Place, file: usize, work: FileWork, bytes: usize) -> bool;
    /// It is over; `bytes` were read or written, 0 if it failed.
    fn end(&self, place: &mut Place, bytes: usize, succeeded: bool);
    /// A file is about to be removed. False: nobody wants to hear of it, and `removed` is not called.
    fn removing(&self, place: &mut Place, kind: FileKind, path: &CStr) -> bool;
    /// It was, or could not be. The number of a file that was removed is not used any more.
    fn removed(&self, place: &mut Place, succeeded: bool);
    /// The calling thread begins, under this name.
    fn thread_begins(&self, name: &CStr);
    /// It ends.
    fn thread_ends(&self);
    /// The calling thread is about to sleep. False: nobody wants to hear of it, and `waited` is not called.
    fn waiting(&self, place: &mut Place, kind: WaitKind) -> bool;
    /// It goes on.
    fn waited(&self, place: &mut Place);
}

static INSTRUMENTS: OnceLock<Arc<dyn Instruments>> = OnceLock::new();

/// From now on threads that begin, and waits, are told to these instruments. The first ones stay for as long as the process runs:
/// false if there are some already.
pub fn set_instruments(instruments: Arc<dyn Instruments>) -> bool {
    INSTRUMENTS.set(instruments).is_ok()
}

/// Sleeps, by `sleep`, and tells of it. Only for who has found that it must sleep (rule PS6).
pub fn while_waiting<A>(kind: WaitKind, sleep: impl FnOnce() -> A) -> A {
    let Some(instruments) = INSTRUMENTS.get() else {
        return sleep();
    };
    let mut place = Place::default();
    if !instruments.waiting(&mut place, kind) {
        return sleep();
    }
    let _end = AtEnd(|| instruments.waited(&mut place));
    sleep()
}

/// Starts a thread with a name that tells of itself, if somebody wants to hear.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let title = name.to_owned();
    Builder::new()
        .name(name.to_owned())
        .spawn(move || as_thread(&title, run))
}

/// Does all of a thread's work. What `run` owns is gone before the thread tells that it ends.
pub(crate) fn as_thread<A>(name: &str, run: impl FnOnce() -> A) -> A {
    let (Some(instruments), Ok(name)) = (INSTRUMENTS.get(), CString::new(name)) else {
        return run();
    };
    instruments.thread_begins(&name);
    let _end = AtEnd(|| instruments.thread_ends());
    run()
}

/// Calls when it goes, after a panic too.
pub(crate) struct AtEnd<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
#[path = "instruments_tests.rs"]
pub(crate) mod instruments_tests;
