//! Memory that is given back has no key in it (rule EN13).

use pbxt_io::{KeyFile, KeySource};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the keys of this test consist of; nothing else does.
const KEY: [u8; 8] = [0xe7, 0x13, 0x9d, 0x42, 0xb8, 0x6f, 0x05, 0xca];

/// The same, as a file of keys has it.
const DIGITS: &str = "e7139d42b86f05ca";

/// The system's memory, looked at when it is given back.
struct Watched;

static FOUND: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is the system's; what is added reads memory that is still the caller's.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: it was allocated with this layout and filled with zeros, so all of it can be read.
        let bytes = unsafe { std::slice::from_raw_parts(memory, layout.size()) };
        if bytes.windows(KEY.len()).any(|window| window == KEY) {
            FOUND.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

fn found_of(digits: &str) -> (bool, usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("keys");
    std::fs::write(&path, format!("1;{digits}")).expect("written");
    let before = FOUND.load(Ordering::Relaxed);
    let keys = KeyFile::open(&path);
    let has_key = keys.is_ok_and(|keys| keys.key(1, 1).is_some());
    (has_key, FOUND.load(Ordering::Relaxed) - before)
}

#[test]
fn memory_that_is_given_back_has_no_key_in_it() {
    let key = DIGITS.repeat(2);
    assert_eq!(found_of(&key), (true, 0), "EN13: a key");
    let with_wrong_end = format!("{}0g", &key[..30]);
    assert_eq!(
        found_of(&with_wrong_end),
        (false, 0),
        "EN13: a line with a wrong digit"
    );
    drop(std::hint::black_box(KEY.to_vec()));
    assert_eq!(FOUND.load(Ordering::Relaxed), 1, "what is not wiped is found");
}
