//! Instruments: the host's accounts of files, threads, waits and memory behind the traits of the floors below.
//!
//! Why it exists: a host has its own way to time and to add up; the engine only says when something begins and ends.
//! Rules: PS1 to PS9 of docs/instruments.md. Without a table from the host nothing here is made or called.

use pbxt::{Database, Error, MemoryUse};
use pbxt_base::Error as StorageError;
use pbxt_io::{
    Disk, FileKind, FileWork, Instruments, MeasuredDisk, Place, Poison, WaitKind, Worker, set_instruments,
};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

/// How often the host is told of memory.
const PAUSE: Duration = Duration::from_secs(1);

/// `pbxt_instruments`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents them")]
pub struct PbxtInstruments {
    pub opening: unsafe extern "C" fn(*mut u64, u32, *const c_char, i32) -> i32,
    pub opened: unsafe extern "C" fn(*mut u64, i32) -> *mut c_void,
    pub begin: unsafe extern "C" fn(*mut u64, *mut c_void, u32, usize) -> i32,
    pub end: unsafe extern "C" fn(*mut u64, usize, i32),
    pub removing: unsafe extern "C" fn(*mut u64, u32, *const c_char) -> i32,
    pub removed: unsafe extern "C" fn(*mut u64, i32),
    pub thread_begins: unsafe extern "C" fn(*const c_char),
    pub thread_ends: unsafe extern "C" fn(),
    pub waiting: unsafe extern "C" fn(*mut u64, u32) -> i32,
    pub waited: unsafe extern "C" fn(*mut u64),
    pub memory: unsafe extern "C" fn(u32, u64),
}

fn pointer(file: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(file)
}

impl Instruments for PbxtInstruments {
    fn opening(&self, place: &mut Place, kind: FileKind, path: &CStr, is_new: bool) -> bool {
        // SAFETY: the host's function. The place has as many words as the header promises and stays where it is until
        // `opened`, and so does the path, which ends with a zero (PS7).
        unsafe {
            (self.opening)(
                place.words().as_mut_ptr(),
                kind as u32,
                path.as_ptr(),
                i32::from(is_new),
            ) != 0
        }
    }

    fn opened(&self, place: &mut Place, succeeded: bool) -> usize {
        // SAFETY: the host's function, with the place of `opening`, in the same thread (PS7).
        let file = unsafe { (self.opened)(place.words().as_mut_ptr(), i32::from(succeeded)) };
        file.expose_provenance()
    }

    fn begin(&self, place: &mut Place, file: usize, work: FileWork, bytes: usize) -> bool {
        // SAFETY: the host's function. The file is what the host gave at `opened`; it was neither closed nor removed since
        // (PS4). The place has the header's words and stays where it is until `end`.
        unsafe { (self.begin)(place.words().as_mut_ptr(), pointer(file), work as u32, bytes) != 0 }
    }

    fn end(&self, place: &mut Place, bytes: usize, succeeded: bool) {
        // SAFETY: the host's function, with the place of `begin`, in the same thread (PS7).
        unsafe { (self.end)(place.words().as_mut_ptr(), bytes, i32::from(succeeded)) }
    }

    fn removing(&self, place: &mut Place, kind: FileKind, path: &CStr) -> bool {
        // SAFETY: as `opening`; place and path stay where they are until `removed`.
        unsafe { (self.removing)(place.words().as_mut_ptr(), kind as u32, path.as_ptr()) != 0 }
    }

    fn removed(&self, place: &mut Place, succeeded: bool) {
        // SAFETY: the host's function, with the place of `removing`, in the same thread (PS7).
        unsafe { (self.removed)(place.words().as_mut_ptr(), i32::from(succeeded)) }
    }

    fn thread_begins(&self, name: &CStr) {
        // SAFETY: the host's function, with a string that ends with a zero and outlives the call.
        unsafe { (self.thread_begins)(name.as_ptr()) }
    }

    fn thread_ends(&self) {
        // SAFETY: the host's function; the calling thread has told its beginning (PS5).
        unsafe { (self.thread_ends)() }
    }

    fn waiting(&self, place: &mut Place, kind: WaitKind) -> bool {
        // SAFETY: the host's function. The place has the header's words and stays where it is until `waited`.
        unsafe { (self.waiting)(place.words().as_mut_ptr(), kind as u32) != 0 }
    }

    fn waited(&self, place: &mut Place) {
        // SAFETY: the host's function, with the place of `waiting`, in the same thread (PS7).
        unsafe { (self.waited)(place.words().as_mut_ptr()) }
    }
}

/// The disk, measured if the host wants to hear of it; then also threads and waits of the process are told.
pub(crate) fn measured(disk: Arc<dyn Disk>, instruments: Option<&Arc<PbxtInstruments>>) -> Arc<dyn Disk> {
    let Some(instruments) = instruments else {
        return disk;
    };
    // A host that opens a second database has the same functions for it, so the first table serves both.
    let of_the_process: Arc<PbxtInstruments> = Arc::clone(instruments);
    set_instruments(of_the_process);
    let of_the_disk: Arc<PbxtInstruments> = Arc::clone(instruments);
    Arc::new(MeasuredDisk::new(disk, of_the_disk, pbxt::file_kind))
}

/// Tells the host once a second what memory the large structures have (PS9); when it goes, that they have none.
#[derive(Debug)]
pub(crate) struct MemoryTeller {
    instruments: Arc<PbxtInstruments>,
    worker: Worker,
}

impl MemoryTeller {
    pub(crate) fn start(db: &Arc<Database>, instruments: &Arc<PbxtInstruments>) -> Result<Self, Error> {
        let (weak, table) = (Arc::downgrade(db), Arc::clone(instruments));
        let step = move || {
            if let Some(db) = weak.upgrade() {
                tell_memory(&table, db.memory_use());
            }
        };
        // A failure of this thread harms no data: it has a poison of its own, which nobody reads.
        let worker = Worker::spawn("pbxt-memory", Arc::new(Poison::new()), PAUSE, step);
        let worker = worker.map_err(|source| StorageError::Io {
            file: "pbxt-memory".into(),
            op: "start the thread",
            source,
        })?;
        let instruments = Arc::clone(instruments);
        Ok(Self { instruments, worker })
    }
}

impl Drop for MemoryTeller {
    fn drop(&mut self) {
        self.worker.stop();
        tell_memory(&self.instruments, MemoryUse::default());
    }
}

fn tell_memory(instruments: &PbxtInstruments, now: MemoryUse) {
    // The order is that of `pbxt_memory_kind`.
    for (kind, bytes) in (0..).zip([now.log, now.blocks, now.indexes + now.hints, now.row_map]) {
        // SAFETY: the host's function, which takes plain numbers.
        unsafe { (instruments.memory)(kind, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{PbxtOptions, pbxt_close, pbxt_open};
    use crate::observer::PbxtHost;
    use crate::status::Status;
    use std::ffi::CString;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    /// What the host's functions below have seen; this is the only test of the process that has instruments.
    static UNDER_WAY: AtomicI64 = AtomicI64::new(0);
    static WORK: AtomicU32 = AtomicU32::new(0);
    static THREADS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static THREADS_NOW: AtomicI64 = AtomicI64::new(0);
    static PATHS: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    static MEMORY: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn opening(place: *mut u64, kind: u32, path: *const c_char, is_new: i32) -> i32 {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the place has room, the path ends with a zero, as the header says.
        let path = unsafe {
            *place.add(Place::WORDS - 1) = u64::from(kind) + 1;
            CStr::from_ptr(path)
        };
        PATHS
            .lock()
            .expect("no panic")
            .push((kind, path.to_string_lossy().into_owned()));
        assert!(is_new == 0 || is_new == 1);
        1
    }

    unsafe extern "C" fn opened(place: *mut u64, succeeded: i32) -> *mut c_void {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the place of `opening`.
        let kind = unsafe { *place.add(Place::WORDS - 1) };
        if succeeded == 0 {
            return std::ptr::null_mut();
        }
        std::ptr::without_provenance_mut(kind as usize)
    }

    unsafe extern "C" fn begin(place: *mut u64, file: *mut c_void, work: u32, bytes: usize) -> i32 {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        assert!((1..=7).contains(&file.addr()), "what `opened` gave");
        WORK.fetch_or(1 << work, Ordering::Relaxed);
        // SAFETY: the place has room.
        unsafe { *place = bytes as u64 }
        1
    }

    unsafe extern "C" fn end(place: *mut u64, bytes: usize, succeeded: i32) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the place of `begin`.
        let wanted = unsafe { *place };
        assert_eq!(bytes as u64, if succeeded == 1 { wanted } else { 0 });
    }

    unsafe extern "C" fn removing(_: *mut u64, _: u32, _: *const c_char) -> i32 {
        0
    }

    unsafe extern "C" fn removed(_: *mut u64, _: i32) {
        unreachable!("the beginning has said no");
    }

    unsafe extern "C" fn thread_begins(name: *const c_char) {
        // SAFETY: the name ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        THREADS_NOW.fetch_add(1, Ordering::Relaxed);
        THREADS.lock().expect("no panic").push(name);
    }

    unsafe extern "C" fn thread_ends() {
        THREADS_NOW.fetch_sub(1, Ordering::Relaxed);
    }

    unsafe extern "C" fn waiting(_: *mut u64, _: u32) -> i32 {
        0
    }

    unsafe extern "C" fn waited(_: *mut u64) {
        unreachable!("the beginning has said no");
    }

    unsafe extern "C" fn memory(kind: u32, bytes: u64) {
        MEMORY.lock().expect("no panic").push((kind, bytes));
    }

    static TABLE: PbxtInstruments = PbxtInstruments {
        opening,
        opened,
        begin,
        end,
        removing,
        removed,
        thread_begins,
        thread_ends,
        waiting,
        waited,
        memory,
    };

    static NO_HOST: PbxtHost = PbxtHost::NOTHING;

    #[test]
    fn a_host_is_told_of_files_threads_and_memory_from_open_to_close() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("db");
        let name = CString::new(path.display().to_string()).expect("a path without zeros");
        let options = PbxtOptions {
            abi_version: crate::database::ABI_VERSION,
            directory: name.as_ptr(),
            cache_bytes: 64 << 20,
            read_only: 0,
            background_threads: 1,
            direct_io: 1,
            instruments: &raw const TABLE,
            keys: std::ptr::null(),
            encryption_key: 0,
            encrypt_all: 0,
        };
        let mut db = std::ptr::null_mut();
        // SAFETY: options, host and the place for the handle outlive the call; the handle is closed once.
        let opened = unsafe { pbxt_open(&raw const options, &raw const NO_HOST, &raw mut db) };
        assert_eq!(opened, Status::Ok);
        // SAFETY: as above.
        assert_eq!(unsafe { pbxt_close(db) }, Status::Ok);
        assert_eq!(UNDER_WAY.load(Ordering::Relaxed), 0, "PS7");
        assert_eq!(THREADS_NOW.load(Ordering::Relaxed), 0, "PS5");
        let threads = THREADS.lock().expect("no panic").clone();
        for thread in ["log", "checkpoint", "upkeep", "housekeeper", "scrub", "memory"] {
            let thread = format!("pbxt-{thread}");
            assert!(threads.contains(&thread), "{thread} in {threads:?}");
        }
        let paths = PATHS.lock().expect("no panic").clone();
        let begins_with = |kind: FileKind, what: &str| {
            let mut of_kind = paths.iter().filter(|(of, _)| *of == kind as u32);
            of_kind.any(|(_, file)| file.starts_with(&path.join(what).display().to_string()))
        };
        assert!(begins_with(FileKind::Log, "hot-"), "{paths:?}");
        assert!(begins_with(FileKind::Manifest, "pbxt.manifest"), "{paths:?}");
        assert!(paths.contains(&(FileKind::Directory as u32, path.display().to_string())));
        let done = WORK.load(Ordering::Relaxed);
        for work in [FileWork::Write, FileWork::Sync, FileWork::Close] {
            assert_eq!((done >> work as u32) & 1, 1, "{work:?}");
        }
        let memory = MEMORY.lock().expect("no panic").clone();
        assert!(
            memory.ends_with(&[(0, 0), (1, 0), (2, 0), (3, 0)]),
            "PS9: {memory:?}"
        );
    }
}
