//! Store: what the workload asks of a store, in words that all of them know.
//!
//! Why it exists: the workload must not know whom it measures. One trait for the open store, one for what a thread has of it,
//! one for a consistent view.
//! Rules held: everything of one `insert` or `remove` is there or nothing of it; a view does not change while it is read. Calls are
//! dynamic for all stores alike, which costs some nanoseconds.

use crate::pairs::{Feed, Key};

/// What a store answers, or a sentence that says why not.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a commit promises before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// On disk: it outlives the machine's power.
    Synced,
    /// The weakest that the store still calls a commit: see `About::relaxed`.
    Relaxed,
}

/// What every store is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes of all caches and write buffers together, as far as the store lets itself be told.
    pub(crate) bytes: u64,
    /// Threads for background work where their number can be chosen.
    pub(crate) threads: u32,
}

/// How a store is used here: what a reader must know to judge its figures.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Version of the library.
    pub(crate) version: String,
    /// What it does with the budget.
    pub(crate) memory: String,
    /// How a synced commit reaches the disk.
    pub(crate) synced: &'static str,
    /// What a relaxed commit has done when it returns.
    pub(crate) relaxed: &'static str,
    /// How a bulk load goes.
    pub(crate) load: &'static str,
    /// What compaction is.
    pub(crate) compaction: &'static str,
}

/// An open store.
pub(crate) trait Store: Send + Sync {
    /// How it is used.
    fn about(&self) -> About;

    /// What one thread has of it. `sharers`: how many there will be at a time.
    fn session(&self, sharers: u32) -> Result<Box<dyn Session + '_>>;

    /// Does all that makes it smaller, and waits for it.
    fn compact(&mut self) -> Result<()>;

    /// Ends it orderly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What one thread has of a store.
pub(crate) trait Session {
    /// Inserts many pairs that are not there yet, synced at the end.
    fn load(&mut self, feed: &mut Feed) -> Result<()> {
        self.insert(feed, Durability::Synced)
    }

    /// One transaction that inserts pairs that are not there yet.
    fn insert(&mut self, feed: &mut Feed, durability: Durability) -> Result<()>;

    /// One transaction that removes these keys, which are there; synced.
    fn remove(&mut self, keys: &mut dyn Iterator<Item = Key>) -> Result<()>;

    /// Lets `work` read one consistent view.
    fn read(&mut self, work: &mut dyn FnMut(&mut dyn View) -> Result<()>) -> Result<()>;
}

/// A consistent view of a store.
pub(crate) trait View {
    /// Shows the value of a key; false if there is none.
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows pairs in the order of their keys, from the first key that is not below `from`, `most` at most.
    fn range(&mut self, from: &[u8], most: u64, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// The exact number of pairs.
    fn count(&mut self) -> Result<u64>;
}

/// A key to be removed is not there.
pub(crate) fn missing(key: &[u8]) -> Box<dyn std::error::Error + Send + Sync> {
    format!("the key {key:02x?} is to be removed and is not there").into()
}

/// The version of a crate in the lock file.
pub(crate) fn locked_version(crate_name: &str) -> String {
    version_in(include_str!("../Cargo.lock"), crate_name).unwrap_or_else(|| "unknown".to_owned())
}

fn version_in(lock: &str, crate_name: &str) -> Option<String> {
    let name = format!("name = \"{crate_name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.next()?;
    let version = lines.next()?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"redb\"\nversion = \"4.1.0\"\nsource = \"x\"\n";
        assert_eq!(version_in(lock, "redb").as_deref(), Some("4.1.0"));
        assert_eq!(version_in(lock, "red"), None);
        assert_ne!(locked_version("redb"), "unknown");
    }
}
