//! Assertions: `invariant!` always, `verify!` only with feature `verify`.
//!
//! Rules: the text begins with the number of the rule it holds ("D3: ...").

/// Panics with the rule's text unless the condition holds. For O(1) checks; always on.
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            ::core::panic!($($text)+);
        }
    };
}

/// Like `invariant!`, for checks that cost more than the work they check; on with feature `verify` only.
#[macro_export]
macro_rules! verify {
    ($condition:expr, $($text:tt)+) => {
        if $crate::VERIFY && !$condition {
            ::core::panic!($($text)+);
        }
    };
}
