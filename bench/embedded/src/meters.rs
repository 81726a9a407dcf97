//! Meters: processor time, memory and bytes written of this process, and what a directory takes on disk.
//!
//! Why it exists: a store runs in a process of its own, so the system's figures of the process are the store's, background threads
//! included. Linux only.

use crate::store::Result;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that a block of `st_blocks` has.
const STAT_BLOCK_BYTES: u64 = 512;

/// Processor seconds of this process so far, user and system, of threads that have ended too.
pub(crate) fn cpu_seconds() -> Result<f64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live structure that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// The greatest memory this process has had, mapped files included.
pub(crate) fn peak_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let kib = number_after(&text, "VmHWM:").ok_or("/proc/self/status has no VmHWM")?;
    Ok(kib << 10)
}

/// Bytes this process has caused to be written to storage.
pub(crate) fn written_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    number_after(&text, "write_bytes:").ok_or_else(|| "/proc/self/io has no write_bytes".into())
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Blocks that all files of a directory take; a file that goes meanwhile does not count.
pub(crate) fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(about) = entry.metadata() else { continue };
        bytes += if about.is_dir() {
            disk_bytes(&entry.path()).unwrap_or(0)
        } else {
            about.blocks() * STAT_BLOCK_BYTES
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_processor_time() {
        let before = cpu_seconds().expect("time");
        let mut number = before.to_bits();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 50 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        let worked = cpu_seconds().expect("time") - before;
        assert!(worked > 0.005, "{worked} s");
    }

    #[test]
    fn labels_are_found_at_the_beginning_of_lines() {
        let text = "Name: x\nVmHWM:\t  2048 kB\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n";
        assert_eq!(number_after(text, "VmHWM:"), Some(2048));
        assert_eq!(number_after(text, "write_bytes:"), Some(4096));
        assert_eq!(number_after(text, "none:"), None);
    }

    #[test]
    fn the_meters_of_this_process_can_be_read() {
        assert!(peak_bytes().expect("memory") > 1 << 16);
        written_bytes().expect("bytes");
    }

    #[test]
    fn a_directory_takes_what_its_files_take_at_any_depth() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("in")).expect("made");
        fs::write(directory.path().join("in/one"), vec![1; 10_000]).expect("written");
        fs::write(directory.path().join("two"), vec![1; 10_000]).expect("written");
        let all = fs::metadata(directory.path().join("two"))
            .expect("there")
            .blocks()
            * STAT_BLOCK_BYTES
            * 2;
        assert_eq!(disk_bytes(directory.path()).expect("bytes"), all);
    }
}
