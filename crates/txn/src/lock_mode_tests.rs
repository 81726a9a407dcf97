//! Tests of lock modes: the compatibility table, written out.

use super::{LockMode, ModeSet};

#[test]
fn the_compatibility_table_is_the_documented_one() {
    // Rows and columns: intent, shared, exclusive.
    let expected = [[true, false, false], [false, true, false], [false, false, false]];
    let actual = LockMode::ALL.map(|held| LockMode::ALL.map(|wanted| held.goes_with(wanted)));
    assert_eq!(actual, expected, "T18");
}

#[test]
fn a_set_goes_with_a_mode_only_if_each_of_its_modes_does() {
    let both = ModeSet::default().with(LockMode::Intent).with(LockMode::Shared);
    assert!(
        LockMode::ALL.into_iter().all(|wanted| !both.goes_with(wanted)),
        "T18: intent and shared together"
    );
    assert!(both.without(LockMode::Shared).goes_with(LockMode::Intent));
    assert!(
        LockMode::ALL
            .into_iter()
            .all(|wanted| ModeSet::default().goes_with(wanted))
    );
}

#[test]
fn exclusive_allows_everything_and_shared_does_not_allow_intent() {
    let exclusive = ModeSet::default().with(LockMode::Exclusive);
    assert!(LockMode::ALL.into_iter().all(|wanted| exclusive.allows(wanted)));
    let shared = ModeSet::default().with(LockMode::Shared);
    assert!(
        shared.allows(LockMode::Shared)
            && !shared.allows(LockMode::Intent)
            && !shared.allows(LockMode::Exclusive)
    );
    assert_eq!(shared.modes().collect::<Vec<_>>(), [LockMode::Shared]);
}
