//! Want of descriptors does not touch what needs none. Alone in its process, as descriptors are the process's.

use pbxt_io::{Disk, OsDisk, is_passing_want};
use std::fs::File;

/// Fewer descriptors than a process has otherwise, so that they are soon used up.
fn lower_the_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` outlives the call, which fills it.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max.min(64);
    // SAFETY: `limit` is whole and outlives the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!((asked, set), (0, 0));
}

#[test]
fn names_are_made_durable_without_a_new_descriptor() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let disk = OsDisk::open(directory.path(), true).expect("the directory");
    lower_the_limit();
    let file = disk
        .create("a", 0)
        .expect("the last file but those that nobody needs");
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = disk.create("b", 0).expect_err("no descriptor is left");
    assert!(is_passing_want(&error), "{error}");
    file.sync_data().expect("synced");
    disk.sync_dir()
        .expect("D9: what fails here is final, so nothing passing may");
    drop(all);
    disk.create("b", 0).expect("descriptors are back");
}
