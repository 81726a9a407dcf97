//! Parallel: spreads independent pieces of work over threads and returns the first failure.
//!
//! Why it exists: recovery reads segments side by side; threads are this floor's business.
//! Where the system gives fewer threads than are asked for, those that there are do all of it, and be it the caller alone.

use crate::instruments::as_thread;
use pbxt_base::Error;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Name of the threads.
const HELPER: &str = "pbxt-helper";

/// Threads worth starting on this machine.
pub fn parallelism() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` for every piece, on at most `threads` threads. After a failure no further piece is begun.
pub fn for_each_parallel<P: Sync, E: Send>(
    pieces: &[P],
    threads: usize,
    work: impl Fn(&P) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(piece) {
                next.store(pieces.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    if threads <= 1 || pieces.len() <= 1 {
        return run();
    }
    let run = &run;
    thread::scope(|scope| {
        let start = |_: usize| {
            let named = thread::Builder::new().name(HELPER.to_owned());
            named.spawn_scoped(scope, move || as_thread(HELPER, run)).ok()
        };
        let handles: Vec<_> = (0..threads.min(pieces.len())).filter_map(start).collect();
        if handles.is_empty() {
            return run();
        }
        let join = |handle: thread::ScopedJoinHandle<'_, Result<(), E>>| {
            handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).fold(Ok(()), Result::and)
    })
}

/// What `work` makes of every piece, in the order of the pieces; as [`for_each_parallel`].
pub fn map_parallel<P: Sync, T: Send + Sync, E: Send>(
    pieces: &[P],
    threads: usize,
    work: impl Fn(&P) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let made: Vec<(&P, OnceLock<T>)> = pieces.iter().map(|piece| (piece, OnceLock::new())).collect();
    for_each_parallel(&made, threads, |(piece, made)| {
        // Nobody else has this piece.
        let _ = made.set(work(piece)?);
        Ok(())
    })?;
    Ok(made
        .into_iter()
        .filter_map(|(_, made)| made.into_inner())
        .collect())
}

/// Bytes of memory of this machine.
pub fn memory_bytes() -> u64 {
    // SAFETY: plain system calls without pointers.
    let (pages, page_bytes) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0)
}

/// A number no other database has: 16 bytes of the operating system's randomness.
pub fn random_u128() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let word = || u128::from(RandomState::new().hash_one(std::process::id()));
    word() << 64 | word()
}

/// Fills with the operating system's randomness, fit for keys.
pub(crate) fn fill_randomly(bytes: &mut [u8]) -> pbxt_base::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer is to `rest.len()` bytes that are ours to write.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if let Ok(got) = usize::try_from(got) {
            filled += got;
            continue;
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            let (file, op) = ("the system's source of random numbers".into(), "read");
            return Err(Error::Io { file, op, source });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn random_bytes_are_all_filled_and_never_the_same() {
        let draw = || {
            let mut bytes = [0; 300];
            fill_randomly(&mut bytes).expect("random bytes");
            bytes
        };
        let (one, other) = (draw(), draw());
        assert_ne!(one, other);
        assert!(one.chunks(30).all(|part| part.iter().any(|byte| *byte != 0)));
    }

    #[test]
    fn every_piece_is_worked_on_once_and_a_failure_comes_back() {
        let sum = AtomicU64::new(0);
        let pieces: Vec<u64> = (1..=100).collect();
        for_each_parallel(&pieces, 4, |piece| {
            sum.fetch_add(*piece, Ordering::Relaxed);
            Ok::<(), ()>(())
        })
        .expect("no failure");
        assert_eq!(sum.into_inner(), 5050);
        assert_eq!(
            for_each_parallel(&pieces, 4, |piece| if *piece == 7 {
                Err("seven")
            } else {
                Ok(())
            }),
            Err("seven")
        );
    }

    #[test]
    fn what_is_made_comes_in_the_order_of_the_pieces_or_a_failure_does() {
        let pieces: Vec<u64> = (0..100).collect();
        let doubled = map_parallel(&pieces, 4, |piece| Ok::<u64, ()>(piece * 2));
        assert_eq!(doubled, Ok((0..200).step_by(2).collect()));
        let failed = map_parallel(
            &pieces,
            4,
            |piece| if *piece == 7 { Err("seven") } else { Ok(*piece) },
        );
        assert_eq!(failed, Err("seven"));
    }
}
