//! Lock modes: what a transaction may do while others hold the same thing, and which modes go together.
//!
//! Why it exists: row locks, table locks and the queues of waiters must agree on what is compatible.
//! State: a set of modes is a small bit mask. Compatibility table in docs/transactions.md, section 6.
//! Rules: T18 (compatibility).
//! Latches and I/O: none.

/// A mode of a row, key or table lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockMode {
    /// Writers of a table, until END: go together with each other.
    Intent,
    /// Readers that must not see a change: go together with each other.
    Shared,
    /// Alone.
    Exclusive,
}

impl LockMode {
    /// All modes.
    pub const ALL: [LockMode; 3] = [LockMode::Intent, LockMode::Shared, LockMode::Exclusive];

    /// True if two transactions may hold these modes of one thing at the same time.
    pub fn goes_with(self, other: LockMode) -> bool {
        self == other && self != LockMode::Exclusive
    }

    fn bit(self) -> u8 {
        match self {
            LockMode::Intent => 1,
            LockMode::Shared => 2,
            LockMode::Exclusive => 4,
        }
    }
}

impl std::fmt::Display for LockMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LockMode::Intent => "intent",
            LockMode::Shared => "shared",
            LockMode::Exclusive => "exclusive",
        })
    }
}

/// The modes one transaction holds of one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModeSet(u8);

impl ModeSet {
    /// True if no mode is held.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `mode` itself is held.
    pub fn holds(self, mode: LockMode) -> bool {
        self.0 & mode.bit() != 0
    }

    /// True if holding this set allows what `mode` allows: exclusive allows everything.
    pub fn allows(self, mode: LockMode) -> bool {
        self.holds(mode) || self.holds(LockMode::Exclusive)
    }

    /// True if another transaction may hold `mode` beside this set.
    pub fn goes_with(self, mode: LockMode) -> bool {
        LockMode::ALL
            .into_iter()
            .all(|held| !self.holds(held) || held.goes_with(mode))
    }

    /// The set with `mode` added.
    #[must_use]
    pub fn with(self, mode: LockMode) -> Self {
        ModeSet(self.0 | mode.bit())
    }

    /// The set without `mode`.
    #[must_use]
    pub fn without(self, mode: LockMode) -> Self {
        ModeSet(self.0 & !mode.bit())
    }

    /// The modes held.
    pub fn modes(self) -> impl Iterator<Item = LockMode> {
        LockMode::ALL.into_iter().filter(move |mode| self.holds(*mode))
    }
}

#[cfg(test)]
#[path = "lock_mode_tests.rs"]
mod lock_mode_tests;
