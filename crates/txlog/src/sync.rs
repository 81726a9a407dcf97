//! Atomics of the tail and the marks, exchanged for loom's under `cfg(loom)`.
//!
//! Why it exists:    loom sees only its own primitives; one module chooses, so these are written once.
//! Rules:            D8 and D37 are proved through it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
