//! Histories of concurrent transactions on every level, and the proof that faults of the engine would be noticed.

use pbxt_sim::history::{Levels, Played, play};

#[test]
fn no_level_shows_what_it_forbids() {
    for levels in Levels::all() {
        let played = play(1, 4, levels, |_| {}).unwrap_or_else(|wrong| panic!("{}", wrong.text));
        let missing = played.missing(levels);
        assert_eq!(
            missing, None,
            "the histories were too calm: {levels:?} {played:?}"
        );
        let is_busy = [played.waits_in_place, played.waits, played.failed, played.homed]
            .iter()
            .min()
            > Some(&20);
        assert!(is_busy, "the histories were too calm: {levels:?} {played:?}");
    }
}

#[test]
fn a_history_without_deadlocks_is_called_too_calm() {
    for levels in Levels::all() {
        let played = play(1, 4, levels, |_| {}).unwrap_or_else(|wrong| panic!("{}", wrong.text));
        let calm = Played {
            deadlocks: 0,
            ..played
        };
        assert_eq!(calm.missing(levels), Some("deadlocks"), "H11: {levels:?}");
    }
}

#[test]
fn a_seed_plays_the_same_history_again() {
    for levels in Levels::all() {
        let two =
            [(); 2].map(|()| play(77, 1, levels, |_| {}).unwrap_or_else(|wrong| panic!("{}", wrong.text)));
        assert_eq!(format!("{:?}", two[0]), format!("{:?}", two[1]));
    }
}

#[cfg(feature = "planted-faults")]
mod planted {
    use pbxt::{ConflictMode, Isolation};
    use pbxt_sim::history::{Kind, Level, Levels, play_planted};

    /// Histories in which a fault must show.
    const HISTORIES: u64 = 20;

    /// Plays until the fault shows; what it is taken for, first that which was noticed first.
    #[track_caller]
    fn caught(fault: &'static str, isolation: Isolation, conflict: ConflictMode) -> Vec<Kind> {
        let level = Level { isolation, conflict };
        let mut before = 0;
        for seed in 1..=HISTORIES {
            match play_planted(seed, Levels::One(level), fault) {
                Ok(played) => before += played.txns,
                Err(wrong) => {
                    println!(
                        "{fault} {level:?}: {:?} in transaction {}",
                        wrong.kinds.first(),
                        before + wrong.txns
                    );
                    return wrong.kinds;
                }
            }
        }
        panic!("{fault} was not noticed under {level:?} in {before} transactions");
    }

    #[test]
    fn a_snapshot_that_is_one_commit_late_is_caught() {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let kinds = caught("snapshot.one_late", isolation, ConflictMode::Error);
            // H6 has two signs of a wrong snapshot; the schedule decides which is noticed first.
            let is_of_snapshot = matches!(kinds.first(), Some(Kind::FutureRead | Kind::StaleRead));
            assert!(is_of_snapshot, "{kinds:?}");
        }
    }

    #[test]
    fn a_read_of_unfinished_changes_is_caught() {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let kinds = caught("read.unfinished", isolation, ConflictMode::Error);
            assert!(kinds.contains(&Kind::AbortedRead), "{kinds:?}");
            assert!(kinds.contains(&Kind::FutureRead), "{kinds:?}");
        }
    }

    #[test]
    fn a_first_updater_that_does_not_win_is_caught() {
        let kinds = caught(
            "write.no_conflict",
            Isolation::RepeatableRead,
            ConflictMode::Error,
        );
        assert!(kinds.contains(&Kind::LostUpdate), "{kinds:?}");
    }

    #[test]
    fn an_index_scan_that_passes_over_anti_entries_is_caught() {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let kinds = caught("index.no_anti_entries", isolation, ConflictMode::Error);
            assert!(kinds.contains(&Kind::WrongAnswer), "{kinds:?}");
        }
    }

    #[test]
    fn a_locked_row_that_is_not_looked_up_again_is_caught() {
        let kinds = caught(
            "index.no_second_look",
            Isolation::ReadCommitted,
            ConflictMode::Error,
        );
        // Shown under a key that it has left, or not met under the one it has: entries behind it are not read again either.
        let is_noticed = matches!(kinds.first(), Some(Kind::WrongAnswer | Kind::StaleRead));
        assert!(is_noticed, "{kinds:?}");
    }

    #[test]
    fn a_change_of_a_row_that_was_only_looked_at_is_caught() {
        let kinds = caught("semi.no_return", Isolation::ReadCommitted, ConflictMode::Error);
        assert_eq!(kinds.first(), Some(&Kind::LockIgnored));
    }

    #[test]
    fn a_writer_that_passes_over_row_locks_is_caught() {
        let kinds = caught(
            "link.ignores_locks",
            Isolation::RepeatableRead,
            ConflictMode::Error,
        );
        assert_eq!(kinds.first(), Some(&Kind::LockIgnored));
    }

    #[test]
    fn a_serializable_read_of_which_nobody_hears_is_caught() {
        for fault in [
            "serializable.no_rows",
            "serializable.no_ranges",
            "serializable.no_tables",
            "serializable.no_passing_over",
            "serializable.no_check_at_end",
        ] {
            let kinds = caught(fault, Isolation::Serializable, ConflictMode::Error);
            assert!(kinds.contains(&Kind::NotSerializable), "{fault}: {kinds:?}");
        }
    }
}
