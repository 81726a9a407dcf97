//! Atomics of the tail, exchanged for loom's under `cfg(loom)`.
//!
//! Why it exists:    loom sees only its own primitives; one module chooses, so the tail is written once.
//! Rules:            D8 is proved through it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
