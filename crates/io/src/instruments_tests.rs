//! Instruments: threads and waits tell of themselves, in pairs, whatever happens in between.

use super::*;
use crate::{Answer, Lane, Poison, Worker, for_each_parallel};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// What a recorder was told of, once it had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Opened(FileKind, String, bool),
    Refused(FileKind, String),
    Done(usize, FileWork, usize),
    Failed(usize, FileWork),
    Removed(FileKind, String, bool),
    Thread(String),
    ThreadOver(String),
    Waited(WaitKind),
}

/// Something that has begun: its place, its thread, and what it will have been.
type Begun = (usize, ThreadId, Told);

/// Instruments that remember what they were told.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    told: Mutex<Vec<Told>>,
    begun: Mutex<Vec<Begun>>,
    threads: Mutex<Vec<(ThreadId, String)>>,
    files: AtomicUsize,
    /// Wants to hear of nothing.
    pub(crate) is_deaf: AtomicBool,
    /// While a test has this latch, reads do not get past their beginning.
    pub(crate) hold_reads: Mutex<()>,
}

impl Recorder {
    /// What it was told since it was last asked; everything has ended.
    pub(crate) fn take(&self) -> Vec<Told> {
        assert!(self.begun.lock().is_empty(), "PS7: {self:?}");
        std::mem::take(&mut self.told.lock())
    }

    /// What it was told so far.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().clone()
    }

    /// How much is under way.
    pub(crate) fn under_way(&self) -> usize {
        self.begun.lock().len()
    }

    fn begins(&self, place: &mut Place, what: Told) -> bool {
        let wants = !self.is_deaf.load(Ordering::Relaxed);
        if wants {
            let here = place.words().as_ptr().addr();
            self.begun.lock().push((here, thread::current().id(), what));
        }
        wants
    }

    fn ends(&self, place: &mut Place) -> Told {
        let (here, thread) = (place.words().as_ptr().addr(), thread::current().id());
        let mut begun = self.begun.lock();
        let found = begun.iter().rposition(|(at, by, _)| (*at, *by) == (here, thread));
        begun.remove(found.expect("PS7: the same place and thread")).2
    }
}

impl Instruments for Recorder {
    fn opening(&self, place: &mut Place, kind: FileKind, path: &CStr, is_new: bool) -> bool {
        let path = path.to_string_lossy().into_owned();
        self.begins(place, Told::Opened(kind, path, is_new))
    }

    fn opened(&self, place: &mut Place, succeeded: bool) -> usize {
        let what = match self.ends(place) {
            Told::Opened(kind, path, _) if !succeeded => Told::Refused(kind, path),
            opened => opened,
        };
        self.told.lock().push(what);
        if succeeded {
            self.files.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        }
    }

    fn begin(&self, place: &mut Place, file: usize, work: FileWork, bytes: usize) -> bool {
        let wants = self.begins(place, Told::Done(file, work, bytes));
        if work == FileWork::Read {
            drop(self.hold_reads.lock());
        }
        wants
    }

    fn end(&self, place: &mut Place, bytes: usize, succeeded: bool) {
        let Told::Done(file, work, wanted) = self.ends(place) else {
            panic!("the end of something else");
        };
        assert_eq!(bytes, if succeeded { wanted } else { 0 });
        let what = if succeeded {
            Told::Done(file, work, bytes)
        } else {
            Told::Failed(file, work)
        };
        self.told.lock().push(what);
    }

    fn removing(&self, place: &mut Place, kind: FileKind, path: &CStr) -> bool {
        let path = path.to_string_lossy().into_owned();
        self.begins(place, Told::Removed(kind, path, true))
    }

    fn removed(&self, place: &mut Place, succeeded: bool) {
        let Told::Removed(kind, path, _) = self.ends(place) else {
            panic!("the end of something else");
        };
        self.told.lock().push(Told::Removed(kind, path, succeeded));
    }

    fn thread_begins(&self, name: &CStr) {
        let name = name.to_string_lossy().into_owned();
        self.threads.lock().push((thread::current().id(), name.clone()));
        self.told.lock().push(Told::Thread(name));
    }

    fn thread_ends(&self) {
        let mut threads = self.threads.lock();
        let found = threads.iter().position(|(id, _)| *id == thread::current().id());
        let (_, name) = threads.remove(found.expect("PS5: it has begun"));
        self.told.lock().push(Told::ThreadOver(name));
    }

    fn waiting(&self, place: &mut Place, kind: WaitKind) -> bool {
        self.begins(place, Told::Waited(kind))
    }

    fn waited(&self, place: &mut Place) {
        let what = self.ends(place);
        self.told.lock().push(what);
    }
}

/// The instruments of this process. All tests have the same, so each looks for names and kinds of its own.
fn of_the_process() -> &'static Recorder {
    static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = Arc::new(Recorder::default());
        let (first, second) = (Arc::clone(&recorder), Arc::new(Recorder::default()));
        assert!(set_instruments(first), "nobody else sets them");
        assert!(!set_instruments(second), "the first ones stay");
        recorder
    })
}

fn about_thread(name: &str) -> Vec<Told> {
    let is_about = |told: &Told| matches!(told, Told::Thread(of) | Told::ThreadOver(of) if of == name);
    of_the_process().told().into_iter().filter(is_about).collect()
}

fn whole_life(name: &str) -> Vec<Told> {
    vec![Told::Thread(name.into()), Told::ThreadOver(name.into())]
}

/// Looks, when it goes, whether its thread has told its end.
struct Last(Arc<AtomicBool>);

impl Drop for Last {
    fn drop(&mut self) {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let told = about_thread(&name);
        self.0.store(told == [Told::Thread(name)], Ordering::Release);
    }
}

#[test]
fn a_thread_has_a_name_and_tells_its_end_after_all_that_it_owned() {
    of_the_process();
    let (was_in_time, seen) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(String::new())),
    );
    let (last, name_seen) = (Last(Arc::clone(&was_in_time)), Arc::clone(&seen));
    let run = move || {
        let _last = &last;
        *name_seen.lock() = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    };
    let thread = spawn("pbxt-named", run).expect("a thread");
    thread.join().expect("no panic");
    assert_eq!(seen.lock().trim(), "pbxt-named");
    assert!(was_in_time.load(Ordering::Acquire));
    assert_eq!(about_thread("pbxt-named"), whole_life("pbxt-named"));
}

#[test]
fn a_thread_that_panics_tells_its_end() {
    of_the_process();
    let thread = spawn("pbxt-panics", || panic!("planted")).expect("a thread");
    assert!(thread.join().is_err());
    assert_eq!(about_thread("pbxt-panics"), whole_life("pbxt-panics"));
}

#[test]
fn workers_lanes_and_helpers_tell_of_themselves() {
    of_the_process();
    let poison = Arc::new(Poison::new());
    let mut worker = Worker::spawn("pbxt-w", poison, Duration::from_millis(1), || ()).expect("a thread");
    worker.stop();
    assert_eq!(about_thread("pbxt-w"), whole_life("pbxt-w"));
    let lane = Lane::spawn("pbxt-l", |job: u32| job + 1).expect("a thread");
    assert!(lane.give(1));
    assert_eq!(lane.answer(LONG), Answer::Ready(2));
    drop(lane);
    assert_eq!(about_thread("pbxt-l"), whole_life("pbxt-l"));
    let before = about_thread("pbxt-helper").len();
    for_each_parallel(&[1, 2, 3], 2, |_| Ok::<(), ()>(())).expect("no failure");
    // Other tests have helpers too.
    assert!(about_thread("pbxt-helper").len() >= before + 4);
}

#[test]
fn a_wait_is_told_once_after_a_panic_too() {
    let waits = || {
        let told = of_the_process().told();
        told.iter()
            .filter(|told| **told == Told::Waited(WaitKind::Background))
            .count()
    };
    assert_eq!(waits(), 0);
    assert_eq!(while_waiting(WaitKind::Background, || 7), 7);
    assert_eq!(waits(), 1);
    let panics = AssertUnwindSafe(|| while_waiting::<()>(WaitKind::Background, || panic!("planted")));
    assert!(catch_unwind(panics).is_err());
    assert_eq!(waits(), 2);
}
