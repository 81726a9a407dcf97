//! Storage lives: everything from one seed, the proof that a seed repeats itself, and that faults of the engine would be noticed.

use pbxt_sim::storage::{Done, play_life};
use pbxt_sim::storage_runs::play_lives;

fn life(seed: u64) -> Done {
    play_life(seed).unwrap_or_else(|wrong| panic!("{}", wrong.text))
}

#[test]
fn storage_lives_agree_with_the_model() {
    let mut all = Done::default();
    for seed in 1..=120 {
        all.add(&life(seed));
    }
    let did_all = all.loads > 50
        && all.schema_changes > 500
        && all.votes > 150
        && all.acted > 30
        && all.old_reads > 250
        && all.restarts > 300
        && all.broken > 0
        && all.scrubs > 300
        && all.homed > 3000
        && all.merged > 0
        && all.noticed > 300;
    assert!(did_all, "the lives were too calm: {all:?}");
}

/// Lives that found an error once.
#[test]
fn storage_lives_that_went_wrong_agree_with_the_model() {
    // S20: a merge dropped anti-entries that a run left out still needed.
    life(11_730);
}

#[test]
fn a_seed_writes_the_same_bytes_again() {
    for seed in 101..=112 {
        assert_eq!(life(seed), life(seed), "SM1: seed {seed}");
    }
}

#[test]
fn a_run_ends_when_it_is_told_to() {
    let run = play_lives(1, u64::MAX, 2, &|| true, &mut |_| {});
    assert!(run.wrong.is_none(), "{:?}", run.wrong);
    assert!(run.done.lives <= 2, "{:?}", run.done);
}

#[cfg(feature = "planted-faults")]
mod planted {
    use pbxt_sim::storage::play_life_planted;

    /// Lives in which a fault must show.
    const LIVES: u64 = 600;

    /// Plays until the fault shows.
    #[track_caller]
    fn caught(fault: &'static str) {
        for seed in 1..=LIVES {
            if let Err(wrong) = play_life_planted(seed, fault) {
                let what = wrong.text.lines().find(|line| line.contains("==>"));
                println!("{fault}: seed {seed}: {}", what.unwrap_or(&wrong.text));
                return;
            }
        }
        panic!("{fault} was not noticed in {LIVES} lives");
    }

    #[test]
    fn a_file_that_is_named_before_it_is_durable_is_caught() {
        caught("piece.no_sync");
    }

    #[test]
    fn a_commit_that_does_not_wait_for_the_disk_is_caught() {
        caught("commit.not_awaited");
    }

    #[test]
    fn files_that_go_before_the_manifest_says_so_are_caught() {
        caught("checkpoint.removal_first");
    }

    #[test]
    fn files_that_stay_for_ever_are_caught() {
        caught("pieces.leaked");
    }

    #[test]
    fn a_count_that_misses_a_row_of_a_load_is_caught() {
        caught("load.count_off");
    }

    #[test]
    fn a_vote_that_recovery_forgets_is_caught() {
        caught("recovery.prepared_forgotten");
    }

    #[test]
    fn a_number_of_rows_that_an_opening_doubts_is_caught() {
        caught("recovery.count_below_none");
    }

    #[test]
    fn a_torn_tail_that_is_taken_for_data_is_caught() {
        caught("log.checksum_unchecked");
    }

    #[test]
    fn entries_that_a_merge_loses_are_caught() {
        caught("merge.entry_lost");
    }

    #[test]
    fn a_merge_that_forgets_old_snapshots_is_caught() {
        caught("merge.past_snapshots");
    }

    #[test]
    fn a_version_that_leaves_the_log_too_early_is_caught() {
        caught("homing.past_snapshots");
    }

    #[test]
    fn values_that_go_while_they_live_are_caught() {
        caught("blob.dropped_alive");
    }

    #[test]
    fn a_row_that_outlives_its_savepoint_is_caught() {
        caught("savepoint.row_left");
    }

    #[test]
    fn a_row_that_an_index_build_misses_is_caught() {
        caught("build.row_missed");
        caught("build.change_missed");
    }
}
