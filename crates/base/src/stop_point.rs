//! Stop points: named moments in the code where a test can hold a thread or cut the power.
//!
//! Why it exists: races between two named moments become deterministic tests. Without feature `stop-points` every
//! point compiles to nothing.
//! Rules: all names stand in `NAMES`; reaching an unlisted one is a panic, so the list stays whole.

/// Every stop point, in the order of a transaction's life.
pub const NAMES: &[&str] = &[
    "write.after_reserve",
    "write.after_fill",
    "write.after_link",
    "write.after_index_event",
    "unique.after_probe",
    "unique.after_claim",
    "foreign.before_parent_lock",
    "foreign.after_parent_lock",
    "foreign.before_children",
    "foreign.after_action",
    "prepare.after_append",
    "commit.after_ts",
    "commit.before_publish",
    "commit.after_publish",
    "rollback.after_append",
    "flush.before_seal",
    "flush.after_seal",
    "flush.before_write",
    "flush.after_write",
    "flush.before_sync",
    "flush.after_sync",
    "segment.before_seal",
    "segment.after_seal",
    "manifest.before_write",
    "manifest.after_sync",
    "manifest.before_supersede",
    "blob.after_reserve",
    "blob.before_sync",
    "blob.after_sync",
    "blob.before_give_back",
    "build.after_files",
    "analyze.after_sampling",
    "ddl.after_append",
    "ddl.after_publish",
    "wait.before_enqueue",
    "wait.after_enqueue",
    "snapshot.after_load",
    "piece.before_sync",
    "piece.after_sync",
    "checkpoint.after_begin",
    "checkpoint.after_freeze",
    "checkpoint.after_install",
    "checkpoint.after_txns",
    "checkpoint.before_log_wait",
    "checkpoint.after_image",
    "checkpoint.before_note",
    "checkpoint.after_note",
    "checkpoint.after_removal",
    "seek.after_entries",
    "read.after_word",
    "read.after_version",
    "gone.after_swept",
    "gone.before_remove",
    "read.after_gone",
    "read.before_shape",
    "merge.after_install",
    "merge.before_install",
    "compact.after_install",
    "compact.before_install",
    "bulk.after_files",
    "bulk.after_claims",
    "bulk.before_records",
    "bulk.after_records",
    "bulk.after_publish",
];

/// Names a moment; see the module.
#[macro_export]
macro_rules! stop_point {
    ($name:literal) => {
        $crate::stop_point::reach($name)
    };
}

#[cfg(feature = "stop-points")]
mod active {
    use std::sync::{Arc, RwLock};

    /// What a test does at a stop point.
    pub type Hook = Arc<dyn Fn(&'static str) + Send + Sync>;

    static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

    /// Installs or removes the hook.
    pub fn set_hook(hook: Option<Hook>) {
        *HOOK.write().unwrap_or_else(std::sync::PoisonError::into_inner) = hook;
    }

    /// Called by `stop_point!`.
    pub fn reach(name: &'static str) {
        assert!(super::NAMES.contains(&name), "stop point '{name}' is not listed");
        let hook = HOOK
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        if let Some(hook) = hook {
            hook(name);
        }
    }
}

/// Called by `stop_point!`; nothing without feature `stop-points`.
#[cfg(not(feature = "stop-points"))]
#[inline(always)]
pub fn reach(_name: &'static str) {}

#[cfg(feature = "stop-points")]
pub use active::{Hook, reach, set_hook};
