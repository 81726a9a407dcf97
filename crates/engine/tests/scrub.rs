//! The scrubber finds damage in files of every kind, says whose it is, and takes nothing else for damage: rules SC1 to SC8 of docs/storage.md.

#[path = "common/scrubbed.rs"]
mod scrubbed;

use pbxt::{Progress, ScrubStatus};
use pbxt_base::RowId;
use pbxt_index::SECTION_INDEX_RUN;
use pbxt_io::Disk;
use pbxt_segment::{PieceFile, SegmentClass, SegmentStore, segment_name};
use pbxt_sim::client::Client;
use pbxt_sim::table::{NAME_INDEX, PlayTable};
use scrubbed::{ROWS, Scrubbed, fill, insert, row};
use std::collections::BTreeSet;
use std::sync::Arc;

const SECTION_ROWS: u8 = 1;
const SECTION_IMAGE: u8 = 3;
const HOUR_MILLIS: u64 = 3_600_000;

/// Pieces of a class, as the newest checkpoint and the shapes have them.
fn pieces(store: &SegmentStore, class: SegmentClass) -> Vec<Arc<PieceFile>> {
    let ids = store.list(class).expect("a list").into_iter();
    ids.map(|id| PieceFile::open(store, class, id).expect("a piece file"))
        .collect()
}

fn sealed_log(store: &SegmentStore) -> Vec<String> {
    let ids = store.list(SegmentClass::Hot).expect("a list").into_iter();
    let sealed = ids.filter(|id| store.sealed(SegmentClass::Hot, *id).is_some());
    sealed.map(|id| segment_name(SegmentClass::Hot, id)).collect()
}

#[test]
fn a_sound_database_is_read_through_and_nothing_is_told() {
    let bench = Scrubbed::new();
    assert_eq!(bench.pass(), Vec::<String>::new(), "a new database");
    fill(&bench.db);
    let before = bench.db.scrub_status();
    assert_eq!(bench.pass(), Vec::<String>::new());
    let now = bench.db.scrub_status();
    assert_eq!((now.passes, now.damage_found, now.is_running), (2, 0, false));
    assert_eq!(now.percent, 0, "none is under way");
    let store = bench.db.store();
    let mut bytes = 0;
    for class in [SegmentClass::Cold, SegmentClass::Meta] {
        let blocks = pieces(store, class);
        assert!(!blocks.is_empty(), "{class:?}");
        bytes += blocks
            .iter()
            .flat_map(|piece| piece.sections())
            .map(|section| section.stored_bytes)
            .sum::<u64>();
    }
    let sealed = sealed_log(store).len() as u64;
    assert!(sealed >= 2, "{sealed} sealed segments");
    bytes += sealed * (store.geometry().hot_segment_bytes - 512);
    bytes += bench.db.blobs().bytes_written();
    let read = now.bytes_read - before.bytes_read;
    assert!(read >= bytes && read < bytes * 2, "SC1: {read} of {bytes}");
}

#[test]
fn damage_in_each_kind_of_file_is_found_with_its_owner() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let store = bench.db.store();
    let mut kinds = BTreeSet::new();
    for class in [SegmentClass::Cold, SegmentClass::Meta] {
        for piece in pieces(store, class) {
            let name = segment_name(class, piece.id());
            for section in piece.sections() {
                let whose = match section.kind {
                    SECTION_ROWS => "rows ",
                    SECTION_INDEX_RUN => "entries of index '",
                    _ => "the image of a checkpoint",
                };
                kinds.insert(section.kind);
                for block in [0, section.block_count() - 1] {
                    let line = bench.finds_flip(&name, section.block_offset(block) + 14);
                    let place = format!("is damaged at offset {}", section.block_offset(block));
                    assert!(line.contains(&place), "SC6: {place}: {line}");
                    assert!(
                        line.contains(&format!("damage in {whose}")),
                        "SC6: {whose}: {line}"
                    );
                    assert!(
                        section.kind == SECTION_IMAGE || line.contains(" of table 't'"),
                        "SC6: {line}"
                    );
                    if section.block_count() == 1 {
                        break;
                    }
                }
            }
            for offset in [100, piece.file_bytes() - 10, piece.file_bytes() - 60] {
                bench.finds_flip(&name, offset);
            }
        }
    }
    assert_eq!(kinds.len(), 3, "rows, entries and an image: {kinds:?}");
    let sealed = sealed_log(store);
    for offset in [20, 4096 + 40, store.geometry().hot_segment_bytes - 400] {
        let line = bench.finds_flip(&sealed[0], offset);
        assert!(line.contains("damage in the log"), "{line}");
    }
    let line = bench.finds_flip(&sealed[1], 4096 + 40);
    assert!(line.contains("at offset 4096"), "SC6: the batch is named: {line}");
    let values = &bench.files("blob-")[0];
    let line = bench.finds_flip(values, 4096 + 50);
    assert!(
        line.contains("a large value of row 1 of table 't'"),
        "SC5: {line}"
    );
    let line = bench.finds_flip(values, 40);
    assert!(line.contains("a file of large values"), "{line}");
}

#[test]
fn the_manifest_file_that_counts_is_verified_and_the_other_one_is_nobodys() {
    let bench = Scrubbed::new();
    for _ in 0..1500 {
        bench.db.checkpoint_step().expect("a checkpoint");
        bench.db.log().background_step();
    }
    let files = bench.files("pbxt.manifest");
    assert_eq!(files.len(), 2, "the first one was full");
    let mut found = 0;
    for file in &files {
        // The image, which the header covers.
        bench.disk.flip_bit(file, 70, 1).expect("the file is there");
        let told = bench.pass();
        bench.disk.flip_bit(file, 70, 1).expect("the file is there");
        if !told.is_empty() {
            assert!(
                told[0].contains("damage in the manifest") && told[0].contains(file),
                "{told:?}"
            );
            found += 1;
        }
    }
    assert_eq!(found, 1, "SC1: of {files:?}");
    assert_eq!(bench.pass(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_read_is_damage_that_names_the_file() {
    let cases: [(&str, u64, &str); 4] = [
        ("cold-", 4096 + 600, "rows "),
        ("meta-", 4096 + 100, "entries of index "),
        ("hot-", 8192, "the log"),
        ("blob-", 4096 + 100, "a large value of row 1 of table 't'"),
    ];
    for (beginning, offset, whose) in cases {
        let bench = Scrubbed::new();
        fill(&bench.db);
        let store = bench.db.store();
        let file = match beginning {
            "hot-" => sealed_log(store)[0].clone(),
            // The newest image has a file of its own.
            "meta-" => pieces(store, SegmentClass::Meta)
                .iter()
                .find(|piece| piece.sections()[0].kind == SECTION_INDEX_RUN)
                .map(|piece| segment_name(SegmentClass::Meta, piece.id()))
                .expect("an index"),
            _ => bench.files(beginning)[0].clone(),
        };
        bench
            .disk
            .make_unreadable(&file, offset)
            .expect("the file is there");
        let told = bench.pass();
        let found = bench.db.scrub_status().damage_found;
        assert!((1..=4).contains(&found), "SC4: {file}: {told:?}");
        assert!(
            told[0].contains("cannot read") && told[0].contains(" at offset "),
            "{told:?}"
        );
        assert!(
            told[0].contains(&file) && told[0].contains(whose),
            "SC6: {whose}: {told:?}"
        );
    }
}

#[test]
fn a_file_that_is_named_and_not_there_is_damage() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let cold = bench.files("cold-")[0].clone();
    bench.disk.remove(&cold).expect("removed");
    let told = bench.pass();
    assert_eq!(bench.db.scrub_status().damage_found, 1, "SC4: {told:?}");
    assert!(
        told[0].contains(&cold) && told[0].contains("rows of table 't'"),
        "{told:?}"
    );
}

#[test]
fn bytes_of_no_value_that_a_row_names_are_no_damage() {
    let bench = Scrubbed::new();
    let table = fill(&bench.db);
    // Whose writer then failed, or the power did.
    let nobodys = bench.db.blobs().append(&[7; 3000]).expect("written");
    let file = segment_name(SegmentClass::Blob, nobodys.addr.segment());
    bench
        .disk
        .flip_bit(&file, nobodys.addr.offset() + 100, 2)
        .expect("the file is there");
    assert_eq!(bench.pass(), Vec::<String>::new(), "SC5: nobody needs it");
    // A value beside it, of a row in the log.
    insert(&bench.db, &table, 5000..5001);
    let last = bench.files("blob-").pop().expect("a file");
    let end = bench.disk.size(&last).expect("a size");
    let line = bench.finds_flip(&last, end - 100);
    assert!(
        line.contains("a large value of row 901 of table 't'"),
        "SC5: {line}"
    );
}

#[test]
fn values_of_rows_that_could_not_be_read_are_asked_for_again() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let values = bench.files("blob-")[0].clone();
    bench
        .disk
        .flip_bit(&values, 4096 + 50, 3)
        .expect("the file is there");
    let flip_rows = || {
        for piece in pieces(bench.db.store(), SegmentClass::Cold) {
            let name = segment_name(SegmentClass::Cold, piece.id());
            for section in piece.sections() {
                let place = section.block_offset(0) + 14;
                bench.disk.flip_bit(&name, place, 3).expect("the file is there");
            }
        }
    };
    flip_rows();
    let told = bench.pass();
    assert!(told[0].contains("damage in rows "), "{told:?}");
    let names_value = |line: &String| line.contains("a large value of row 1 of table 't'");
    assert!(!told.iter().any(names_value), "the row cannot be read: {told:?}");
    // As after a copy of the files from a backup.
    flip_rows();
    let told = bench.pass();
    assert!(told.iter().any(names_value), "SC5: {told:?}");
}

#[test]
fn a_block_of_rows_that_cannot_be_read_hides_no_value_of_rows_beside_it() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let piece = pieces(bench.db.store(), SegmentClass::Cold)[0].clone();
    let section = &piece.sections()[0];
    assert!(section.block_count() > 1, "rows beside those of the block");
    let name = segment_name(SegmentClass::Cold, piece.id());
    let rows = section.block_offset(0) + 14;
    // Of one of the last rows in runs.
    let values = bench.files("blob-")[0].clone();
    let end = bench.disk.size(&values).expect("a size");
    bench
        .disk
        .flip_bit(&values, end - 1000, 3)
        .expect("the file is there");
    let whole = bench.pass();
    let names_value = |line: &&String| line.contains("a large value of row ");
    let value = whole.iter().find(names_value).expect("SC5: it is told").clone();
    let bench = Scrubbed::new();
    fill(&bench.db);
    for (file, place) in [(&name, rows), (&values, end - 1000)] {
        bench.disk.flip_bit(file, place, 3).expect("the file is there");
    }
    let told = bench.pass();
    assert!(
        told.iter().any(|line| line.contains("damage in rows ")),
        "{told:?}"
    );
    assert!(told.contains(&value), "SC5: {value}: {told:?}");
}

#[test]
fn values_of_deleted_rows_and_the_room_they_gave_back_are_no_damage() {
    let bench = Scrubbed::new();
    let table = fill(&bench.db);
    let mut client = Client::new(&bench.db, 2);
    for (number, (row, _)) in client.scan(&table).expect("readable").into_iter().enumerate() {
        if number % 3 != 0 {
            client.delete(&table, row).expect("deleted");
        }
    }
    client.session.commit().expect("committed");
    drop(client);
    for _ in 0..3 {
        bench.db.housekeeping_step();
        while bench.db.upkeep_step(true).expect("worked") == Progress::Worked {}
        bench.db.checkpoint_step().expect("a checkpoint");
        assert_eq!(bench.pass(), Vec::<String>::new(), "SC5");
    }
}

#[test]
fn files_that_go_while_a_pass_reads_are_no_damage() {
    for steps in (0..60).step_by(4) {
        let bench = Scrubbed::new();
        let table = fill(&bench.db);
        let other = PlayTable::create(&bench.db, "other").expect("a table");
        insert(&bench.db, &other, 0..200);
        bench.db.scrub_now(true);
        for _ in 0..steps {
            bench.db.scrub_step();
        }
        drop(other);
        bench.db.drop_table(None, "other").expect("dropped");
        let mut client = Client::new(&bench.db, 2);
        for (row, _) in client.scan(&table).expect("readable") {
            if row.raw() % 2 == 0 {
                client.delete(&table, row).expect("deleted");
            }
        }
        client.session.commit().expect("committed");
        insert(&bench.db, &table, 2000..2100);
        bench.db.housekeeping_step();
        while bench.db.upkeep_step(true).expect("worked") == Progress::Worked {
            bench.db.scrub_step();
        }
        bench.db.checkpoint_step().expect("a checkpoint");
        while bench.db.scrub_status().is_running {
            bench.db.scrub_step();
        }
        assert_eq!(
            bench.told.take_damage(),
            Vec::<String>::new(),
            "SC4: after {steps} steps"
        );
        assert_eq!(bench.pass(), Vec::<String>::new(), "SC4: after {steps} steps");
    }
}

#[test]
fn the_same_damage_is_told_once_and_later_passes_say_that_it_was() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let cold = bench.files("cold-")[0].clone();
    bench
        .disk
        .flip_bit(&cold, 4096 + 30, 3)
        .expect("the file is there");
    let told = bench.pass();
    assert!(
        told.len() == 2 && told[1].contains("1 damaged places found"),
        "{told:?}"
    );
    for _ in 0..2 {
        let told = bench.pass();
        assert_eq!(told.len(), 1, "SC6: {told:?}");
        assert!(
            told[0].contains("told by an earlier pass and are not told again"),
            "SC6: {told:?}"
        );
    }
    let sealed = sealed_log(bench.db.store())[0].clone();
    bench
        .disk
        .flip_bit(&sealed, 4096 + 30, 3)
        .expect("the file is there");
    let told = bench.pass();
    assert!(
        told.len() == 2 && told[0].contains(&sealed),
        "SC6: what is new is told: {told:?}"
    );
    assert!(
        told[1].contains("2 damaged places found; 1 of them"),
        "SC6: {told:?}"
    );
    assert_eq!(bench.db.scrub_status().damage_found, 2, "each once");
}

#[test]
fn a_pass_takes_the_time_it_has_and_the_next_one_begins_behind_it() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    bench.db.set_scrub_hours(10);
    let before = bench.db.scrub_status().bytes_read;
    let mut read_at = Vec::new();
    // What the figures say in each of so many minutes.
    let minutes = |count: usize| -> Vec<ScrubStatus> {
        let minute = || {
            while bench.db.scrub_step() == Progress::Worked {}
            let now = bench.db.scrub_status();
            bench.clock.advance_millis(60_000);
            now
        };
        std::iter::repeat_with(minute).take(count).collect()
    };
    for (minute, now) in minutes(10 * 60).into_iter().enumerate() {
        assert!(
            now.passes == 0 || minute > 590,
            "SC2: not before its time, in minute {minute}"
        );
        read_at.push(now.bytes_read - before);
    }
    let all = *read_at.last().expect("an hour has minutes");
    let largest = bench
        .db
        .store()
        .sizes()
        .expect("sizes")
        .into_iter()
        .map(|(.., bytes)| bytes)
        .max();
    let largest = largest.expect("there are files") + 4096;
    for (minute, read) in (0..).zip(&read_at) {
        let even = all * minute / 600;
        assert!(
            read.abs_diff(even) <= 2 * largest,
            "SC2: {read} of {even} in minute {minute}, files have {largest}"
        );
    }
    assert_eq!(minutes(5)[4].passes, 1, "SC2: all is read in time");
    let half = minutes(5 * 60)[5 * 60 - 1];
    assert!(
        half.passes == 1 && (40..60).contains(&half.percent),
        "SC2: {half:?}"
    );
    assert_eq!(minutes(5 * 60 + 5)[5 * 60 + 4].passes, 2, "SC2: and again");
    assert_eq!(bench.told.take_damage(), Vec::<String>::new());
}

#[test]
fn settings_and_orders_begin_and_end_passes() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    let is_running = || bench.db.scrub_status().is_running;
    bench.db.set_scrub_hours(0);
    assert_eq!(bench.db.scrub_step(), Progress::Idle, "SC7: switched off");
    bench.db.set_scrub_hours(1);
    assert_eq!(bench.db.scrub_step(), Progress::Worked);
    assert!(is_running());
    bench.db.set_scrub_hours(0);
    assert_eq!(bench.db.scrub_step(), Progress::Idle, "SC7: it ends where it is");
    assert!(!is_running());
    bench.db.scrub_now(true);
    for _ in 0..3 {
        assert_eq!(bench.db.scrub_step(), Progress::Worked, "SC7: asked for");
    }
    assert!(is_running());
    bench.db.scrub_now(false);
    assert_eq!(bench.db.scrub_step(), Progress::Idle, "SC7: taken back");
    assert!(!is_running());
    assert_eq!(bench.db.scrub_status().passes, 0, "none came to its end");
    bench.db.set_scrub_hours(5);
    bench.clock.advance_millis(5 * HOUR_MILLIS);
    assert_eq!(bench.db.scrub_step(), Progress::Worked);
    bench.pass();
    let now = bench.db.scrub_status();
    assert_eq!((now.passes, now.hours), (1, 5), "SC7: an order begins anew");
}

#[test]
fn a_pass_leaves_the_caches_as_they_are() {
    let bench = Scrubbed::new();
    let table = fill(&bench.db);
    let mut client = Client::new(&bench.db, 2);
    client.index_scan(&table, NAME_INDEX, true).expect("readable");
    let figures = || {
        let status = bench.db.status();
        (
            status.block_cache,
            status.log.cache_bytes,
            status.log.cache_misses,
        )
    };
    let before = figures();
    bench.pass();
    assert_eq!(figures(), before, "SC3");
    let bytes = bench.db.blobs().bytes_read();
    bench.pass();
    assert_eq!(
        bench.db.blobs().bytes_read(),
        bytes,
        "no value is asked for by name where all are sound"
    );
}

#[test]
fn an_opening_begins_a_pass_anew_and_a_close_ends_it() {
    let bench = Scrubbed::new();
    fill(&bench.db);
    bench.db.scrub_now(true);
    for _ in 0..5 {
        bench.db.scrub_step();
    }
    assert!(bench.db.scrub_status().is_running);
    bench.db.close().expect("closed");
    let Scrubbed { disk, .. } = bench;
    let after = disk.kill();
    let again = Scrubbed::on(after.clone(), Arc::new(after));
    let now = again.db.scrub_status();
    assert!(
        !now.is_running && now.bytes_read == 0,
        "SC8: nothing of it is on disk"
    );
    assert_eq!(again.pass(), Vec::<String>::new());
    let table = PlayTable::open(&again.db, "t").expect("the table is there");
    let mut client = Client::new(&again.db, 1);
    assert_eq!(client.count(&table).expect("counted"), u64::from(ROWS) + 300);
    assert!(
        client
            .scan(&table)
            .expect("readable")
            .contains(&(RowId::new(1), row(0)))
    );
}
