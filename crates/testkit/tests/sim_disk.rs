//! The simulated disk keeps to the contract of a medium, at its least helpful; and a sweep finds a forgotten sync.

use pbxt_base::Error;
use pbxt_io::{Disk, DiskFile, EncryptedDisk, KeySource, SecretKey};
use pbxt_testkit::{Fault, SimClock, SimDisk, Sweep};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A file under a durable name, with nothing in it yet.
fn new_file(disk: &SimDisk, name: &str, bytes: u64) -> Arc<dyn DiskFile> {
    let file = disk.create(name, bytes).expect("a new file");
    file.sync_data().expect("a sync");
    disk.sync_dir().expect("a directory sync");
    file
}

#[test]
fn what_was_synced_survives_every_crash() {
    let disk = SimDisk::new();
    let file = new_file(&disk, "a", 4096);
    file.write_at(b"kept", 100).expect("a write");
    file.sync_data().expect("a sync");
    file.write_at(b"maybe", 2000).expect("a write");
    for seed in 0..100 {
        assert_eq!(
            &disk.crash(seed).content("a").expect("the file")[100..104],
            b"kept"
        );
    }
}

#[test]
fn what_was_not_synced_is_lost_in_some_crashes_and_kept_in_others() {
    let disk = SimDisk::new();
    let file = new_file(&disk, "a", 4096);
    file.write_at(&[7; 1024], 512).expect("a write");
    let kept = |seed| -> u64 {
        let content = disk.crash(seed).content("a").expect("the file");
        content[512..1536].iter().map(|byte| u64::from(*byte) / 7).sum()
    };
    let counts: std::collections::BTreeSet<u64> = (0..100).map(kept).collect();
    assert_eq!(counts, [0, 512, 1024].into());
    assert_eq!(
        &disk.content("a").expect("the file")[512..514],
        [7, 7],
        "the machine that runs on sees its writes"
    );
}

#[test]
fn files_are_lost_independently_of_each_other() {
    let disk = SimDisk::new();
    for name in ["a", "b"] {
        new_file(&disk, name, 512).write_at(&[1], 0).expect("a write");
    }
    let first = |seed, name| disk.crash(seed).content(name).expect("the file")[0];
    let seen: std::collections::BTreeSet<(u8, u8)> = (0..100)
        .map(|seed| (first(seed, "a"), first(seed, "b")))
        .collect();
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_name_is_safe_only_after_a_directory_sync() {
    let disk = SimDisk::new();
    disk.create("a", 0)
        .expect("a new file")
        .sync_data()
        .expect("a sync");
    let lost = (0..50)
        .filter(|seed| !disk.crash(*seed).exists("a").expect("an answer"))
        .count();
    assert!((1..50).contains(&lost), "{lost}");
    disk.sync_dir().expect("a directory sync");
    assert!((0..50).all(|seed| disk.crash(seed).exists("a").expect("an answer")));
}

#[test]
fn a_killed_process_loses_nothing_and_holds_no_lock() {
    let disk = SimDisk::new();
    let _held = disk.lock("lock").expect("the lock");
    assert!(matches!(disk.lock("lock"), Err(Error::Locked { .. })));
    disk.create("a", 0)
        .expect("a new file")
        .write_at(b"x", 0)
        .expect("a write");
    let after = disk.kill();
    assert_eq!(after.content("a").expect("the file"), b"x");
    after.lock("lock").expect("free after the death of its holder");
}

#[test]
fn a_second_write_to_a_segment_panics_and_to_other_files_does_not() {
    let disk = SimDisk::new();
    let segment = disk.create("hot-00000001.seg", 4096).expect("a new file");
    segment.write_at(&[1; 100], 0).expect("a write");
    segment.write_at(&[1; 100], 100).expect("a write beside it");
    let again = catch_unwind(AssertUnwindSafe(|| segment.write_at(&[1], 150)));
    let text = again.expect_err("P1 is broken");
    assert!(
        text.downcast_ref::<String>()
            .expect("a text")
            .starts_with("P1: bytes 150..151 of 'hot-00000001.seg'")
    );
    let other = disk.create("other", 0).expect("a new file");
    other.write_at(&[1], 0).expect("a write");
    other.write_at(&[2], 0).expect("a second write");
}

#[test]
fn write_once_is_checked_across_a_crash_for_what_the_crash_kept() {
    let disk = SimDisk::new();
    let segment = new_file(&disk, "hot-00000001.seg", 4096);
    segment.write_at(&[1; 512], 0).expect("a write");
    segment.sync_data().expect("a sync");
    segment
        .write_at(&[1; 512], 512)
        .expect("a write that may be lost");
    for seed in 0..40 {
        let after = disk.crash(seed);
        let was_kept = after.content("hot-00000001.seg").expect("the file")[512] == 1;
        let file = after.open("hot-00000001.seg", true).expect("the file");
        let write = |at| catch_unwind(AssertUnwindSafe(|| file.write_at(&[2; 512], at))).is_err();
        assert!(write(0), "durable bytes are never written again");
        assert_eq!(write(512), was_kept);
    }
}

/// One key, always the same.
#[derive(Debug)]
struct OneKey;

impl KeySource for OneKey {
    fn latest_version(&self, _: u32) -> Option<u32> {
        Some(1)
    }

    fn key(&self, _: u32, _: u32) -> Option<SecretKey> {
        Some(SecretKey::new(vec![7; 32]))
    }

    fn remedy(&self) -> String {
        "nothing helps".into()
    }
}

#[test]
fn an_encrypted_segment_may_complete_the_sector_in_which_it_ends_and_nothing_else() {
    let disk = SimDisk::new();
    let encrypted =
        EncryptedDisk::new(Arc::new(disk.clone()), Arc::new(OneKey), Some(1)).expect("there is a key");
    let file = encrypted.create("blob-00000001.seg", 0).expect("a new file");
    file.write_at(&[1; 1000], 0).expect("a write");
    file.write_at(&[2; 1000], 1000).expect("a write behind it");
    for offset in [600, 1990] {
        let again = catch_unwind(AssertUnwindSafe(|| file.write_at(&[3; 8], offset)));
        let text = again.expect_err("P1 is broken");
        let text = text.downcast_ref::<String>().expect("a text");
        assert!(text.starts_with("P1: bytes "), "EN8: at {offset}: {text}");
    }
}

#[test]
fn a_completion_that_is_lost_leaves_the_durable_sector_written() {
    let disk = SimDisk::new();
    let other = new_file(&disk, "other", 512);
    other.write_at(&[1; 100], 0).expect("a write");
    other.sync_data().expect("a sync");
    other.write_at(&[1; 512], 0).expect("a completion");
    disk.rename("other", "blob-00000001.seg").expect("a rename");
    disk.sync_dir().expect("a directory sync");
    let mut lost = 0;
    for seed in 0..40 {
        let after = disk.crash(seed);
        let content = after.content("blob-00000001.seg").expect("the file");
        lost += u64::from(content[200] == 0);
        let file = after.open("blob-00000001.seg", true).expect("the file");
        let write = catch_unwind(AssertUnwindSafe(|| file.write_at(&[2; 100], 0)));
        assert!(
            write.is_err(),
            "seed {seed}: durable bytes are never written again"
        );
    }
    assert!((1..40).contains(&lost), "{lost}");
}

#[test]
fn a_full_disk_refuses_new_files_and_growth_but_no_write_into_preallocated_space() {
    let disk = SimDisk::new();
    disk.set_free_bytes(Some(1000));
    let file = disk.create("a", 800).expect("a new file");
    assert!(matches!(disk.create("b", 300), Err(Error::NoSpace { .. })));
    assert!(!disk.exists("b").expect("an answer"));
    file.write_at(&[1; 800], 0)
        .expect("a write into preallocated space");
    assert!(matches!(
        file.write_at(&[1; 300], 800),
        Err(Error::NoSpace { .. })
    ));
    disk.remove("a").expect("a removal");
    disk.create("b", 900).expect("the space is back");
}

#[test]
fn the_chosen_write_and_the_chosen_sync_fail_once() {
    let disk = SimDisk::new();
    let file = disk.create("a", 2048).expect("a new file");
    disk.plant(Fault::FailWrite {
        prefix: "a".into(),
        nth: 2,
    });
    disk.plant(Fault::FailSync {
        prefix: String::new(),
        nth: 1,
    });
    file.write_at(&[1; 8], 0).expect("the first write");
    assert!(
        file.write_at(&[2; 8], 512)
            .expect_err("the second write")
            .to_string()
            .contains("'a'")
    );
    file.write_at(&[3; 8], 1024).expect("the third write");
    assert_eq!(
        &disk.content("a").expect("the file")[512..520],
        [2, 2, 2, 2, 0, 0, 0, 0],
        "half of it was written"
    );
    file.sync_data().expect_err("the first sync");
    file.sync_data().expect("the second sync");
    disk.sync_dir().expect("a directory sync");
    let lost = (0..50)
        .filter(|seed| disk.crash(*seed).content("a").expect("the file")[0] == 0)
        .count();
    assert!(
        lost > 0,
        "a later success says nothing about the writes before a failed sync"
    );
}

#[test]
fn rotten_and_unreadable_sectors_are_what_readers_meet() {
    let disk = SimDisk::new();
    let file = new_file(&disk, "a", 2048);
    disk.flip_bit("a", 600, 3).expect("a flip");
    disk.make_unreadable("a", 1024).expect("a broken sector");
    let mut byte = [0];
    file.read_at(&mut byte, 600).expect("a read");
    assert_eq!(byte, [8]);
    assert!(file.read_at(&mut [0; 2], 1023).is_err());
    disk.truncate("a", 100).expect("a cut");
    assert!(file.read_at(&mut byte, 600).is_err());
}

#[test]
fn a_read_fails_once_and_later_ones_go_well() {
    let disk = SimDisk::new();
    let file = new_file(&disk, "a", 512);
    disk.plant(Fault::FailRead {
        prefix: "a".into(),
        nth: 2,
    });
    let mut byte = [0];
    let results: Vec<bool> = (0..4).map(|_| file.read_at(&mut byte, 0).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
}

#[test]
fn bytes_that_land_in_the_wrong_place_stay_there() {
    let disk = SimDisk::new();
    let file = new_file(&disk, "a", 2048);
    file.write_at(b"right", 600).expect("a write");
    file.sync_data().expect("a sync");
    assert!(disk.overwrite("a", 600, b"wrong").expect("a file"));
    assert!(!disk.overwrite("a", 600, b"wrong").expect("the same"));
    assert!(!disk.overwrite("a", 2046, b"wrong").expect("beyond its end"));
    for disk in [disk.kill(), disk.crash(1)] {
        assert_eq!(&disk.content("a").expect("a file")[600..605], b"wrong");
    }
}

#[test]
fn a_slow_disk_moves_the_clock() {
    let (disk, clock) = (SimDisk::new(), Arc::new(SimClock::new()));
    disk.slow_down(&clock, 40);
    new_file(&disk, "a", 512);
    assert_eq!(
        pbxt_io::Clock::now_millis(&*clock),
        3 * 40,
        "creation, sync, directory"
    );
}

#[test]
fn the_footprint_tells_what_was_done_in_which_order() {
    let footprint = |bytes: &[&[u8]]| {
        let disk = SimDisk::new();
        let file = new_file(&disk, "a", 512);
        for (at, bytes) in bytes.iter().enumerate() {
            file.write_at(bytes, at as u64 * 8).expect("a write");
        }
        disk.crash(3).footprint()
    };
    assert_eq!(footprint(&[b"x", b"y"]), footprint(&[b"x", b"y"]));
    assert_ne!(footprint(&[b"x", b"y"]), footprint(&[b"x", b"z"]));
    assert_ne!(footprint(&[b"x", b"y"]), footprint(&[b"y", b"x"]));
}

#[test]
fn after_the_cut_every_operation_fails() {
    let disk = SimDisk::new();
    disk.cut_power_at(2);
    let file = disk.create("a", 512).expect("operation 0");
    file.write_at(&[1], 0).expect("operation 1");
    assert!(file.sync_data().is_err());
    assert!(disk.is_off() && file.write_at(&[1], 1).is_err() && disk.list().is_err());
    assert_eq!(disk.operations(), 2);
}

/// The smallest log there is: numbers, one after the other, each acknowledged after its sync.
fn append_numbers(disk: &SimDisk) -> u8 {
    let append = |acknowledged: &mut u8| -> pbxt_base::Result<()> {
        let file = disk.create("numbers", 0)?;
        disk.sync_dir()?;
        for number in 1..=5 {
            file.write_at(&[number], u64::from(number) - 1)?;
            file.sync_data()?;
            *acknowledged = number;
        }
        Ok(())
    };
    let mut acknowledged = 0;
    // The error is the power cut; what counts is how far the work came.
    let _ = append(&mut acknowledged);
    acknowledged
}

fn lost_number(disk: &SimDisk, acknowledged: u8) -> bool {
    let content = disk.content("numbers").unwrap_or_default();
    content.len() < acknowledged as usize
        || !content
            .iter()
            .zip(1..=acknowledged)
            .all(|(found, number)| *found == number)
}

#[test]
fn a_sweep_passes_a_correct_log_at_every_moment() {
    let images = Sweep::default().run(append_numbers, |image, acknowledged, case| {
        assert!(!lost_number(image, *acknowledged), "{case}");
    });
    assert_eq!(images, 13 * 4, "12 operations and the end");
}

#[test]
fn a_sweep_finds_a_sync_that_is_missing() {
    for fault in [Fault::SkipSync { prefix: "num".into() }, Fault::SkipDirectorySync] {
        let losses = std::cell::Cell::new(0);
        let plant = |disk: &SimDisk| disk.plant(fault.clone());
        Sweep::default().run_prepared(plant, append_numbers, |image, acknowledged, _| {
            losses.set(losses.get() + u32::from(lost_number(image, *acknowledged)));
        });
        assert!(losses.get() > 0, "{fault:?}");
    }
}
