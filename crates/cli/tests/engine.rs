//! A database that the engine made: what its checkpoint names is told from what nothing names, rows are read with their
//! columns, and nothing of it changes, although it is opened.

mod common;
#[path = "../../engine/tests/common/family.rs"]
mod family;

use common::{answer, flip, overwrite, state, text_of, wait_until_free};
use family::Plan;
use pbxt::{Action, Database, Options, Progress};
use pbxt_io::{Disk, OsDisk};
use pbxt_segment::{PieceWriter, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::image_edit::{image_of, with_items};
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use pbxt_testkit::SimDisk;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Of a pipe, and of those that are left for one line.
const PIPE_BYTES: usize = 64 << 10;
const ROOM_FOR_A_LINE: usize = 50;

fn open(directory: &Path) -> Arc<Database> {
    let options = Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    let disk = Arc::new(OsDisk::open(directory, true).expect("a directory"));
    Database::open(disk, &options).expect("a database")
}

/// Rows of table `t`; some have left the log. Ends as `end` says.
fn fill(directory: &Path, end: impl FnOnce(&Arc<Database>)) {
    let db = open(directory);
    let table = PlayTable::create(&db, "t").expect("a table");
    let mut client = Client::new(&db, 1);
    for id in 0..400 {
        let mut row = PlayRow::new(id);
        row.memo = (id % 100 == 0).then(|| Arc::from(vec![id as u8; 20_000]));
        client.insert(&table, &row).expect("inserted");
    }
    client.session.commit().expect("committed");
    db.flush().expect("flushed");
    db.housekeeping_step();
    while db.compact_step().expect("compacted") == Progress::Worked {}
    db.checkpoint_step().expect("a checkpoint");
    client.insert(&table, &PlayRow::new(1000)).expect("inserted");
    client.session.commit().expect("committed");
    drop(client);
    end(&db);
    drop((table, db));
    wait_until_free(directory);
}

/// A database of `fill` as a process that is killed after `end` leaves it.
fn killed(end: impl FnOnce(&Arc<Database>)) -> tempfile::TempDir {
    let (directory, left) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    fill(directory.path(), |db| {
        end(db);
        for (path, bytes, _) in state(directory.path()) {
            std::fs::write(left.path().join(path.file_name().expect("a name")), bytes).expect("a copy");
        }
    });
    left
}

/// The next file of rows; nothing names it.
fn write_rows_of_nobody(db: &Arc<Database>) {
    let mut piece = PieceWriter::create(db.store(), SegmentClass::Cold).expect("a file");
    piece.begin_section(77, 1);
    piece
        .push_block(b"k", 1, b"rows of nobody", pbxt_segment::Codec::Plain)
        .expect("a block");
    piece.end_section(b"k", &[]);
    piece.finish().expect("a piece");
}

fn first_of(directory: &Path, class: &str) -> PathBuf {
    let mut names: Vec<PathBuf> = state(directory).into_iter().map(|(path, ..)| path).collect();
    names.retain(|path| text_of(path).contains(&format!("/{class}-")));
    names.into_iter().next().expect("a file of this class")
}

#[test]
fn tables_are_listed_and_checked_without_a_byte_written() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let before = state(directory.path());
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(text.ends_with("clean\n") && code == 0, "{text}");
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(text.contains("table 't': 401 rows, good") && code == 0, "{text}");
    let (text, code) = answer(&["inspect", "--open", text_of(directory.path())]);
    assert!(text.contains("'t': 401 rows") && code == 0, "{text}");
    let cold = text
        .lines()
        .find(|line| line.starts_with("cold-"))
        .expect("rows have left the log");
    assert!(
        cold.contains(" named ") && cold.contains("rows of table"),
        "{cold}"
    );
    assert!(!text.contains("orphan"), "{text}");
    assert!(before == state(directory.path()), "not a byte of it has changed");
}

#[test]
fn tables_are_listed_with_columns_and_foreign_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| {
        let child = Plan::new("./d/c", 2).key("fk", &[1], "./d/p", &[0], Action::Cascade, Action::SetNull);
        db.create_table(Plan::new("./d/p", 1).definition(), 1)
            .expect("a parent");
        db.create_table(child.definition(), 1).expect("a child");
        db.close().expect("closed");
    });
    let (text, code) = answer(&["inspect", "--open", text_of(directory.path())]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\n    columns 'c0' int, 'c1' int\n"), "{text}");
    let line = "\n    foreign key 'fk': (c1) refers to './d/p' (c0), on delete cascade, on update set null; \
                found by index 'primary'\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn rows_are_printed_with_the_columns_their_directory_tells() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let cold = first_of(directory.path(), "cold");
    let (text, code) = answer(&["inspect", text_of(&cold), "--entries", "--limit", "0"]);
    assert!(
        text.contains("    table 't'") && text.contains("'name 17'") && code == 0,
        "{text}"
    );
    assert!(text.contains("20000 bytes at Blob 1@4096, hash "), "{text}");
    let copy = tempfile::tempdir().expect("a directory");
    let alone = copy.path().join("cold");
    std::fs::copy(&cold, &alone).expect("a copy");
    let (text, code) = answer(&["inspect", text_of(&alone), "--entries"]);
    assert!(
        text.contains("columns of its tables are not known") && text.contains(" row 17\n"),
        "{text}"
    );
    assert_eq!(code, 0);
}

#[test]
fn a_piece_file_that_nothing_names_is_an_orphan() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), write_rows_of_nobody);
    let (text, code) = answer(&["inspect", text_of(directory.path())]);
    let orphan = |text: &str| {
        let line = text.lines().find(|line| line.contains("rows of table 77"));
        line.expect("a line").to_owned()
    };
    assert!(orphan(&text).contains(" new ") && code == 0, "{text}");
    let (text, code) = answer(&["inspect", "--open", text_of(directory.path())]);
    assert!(orphan(&text).contains(" orphan ") && code == 0, "{text}");
}

/// Names of the files of a database that the table of `inspect --open` calls so.
fn called(directory: &Path, state: &str) -> Vec<String> {
    let (text, _) = answer(&["inspect", "--open", text_of(directory)]);
    let lines = text.lines().filter(|line| line.contains(&format!(" {state} ")));
    lines
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.contains(".seg"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_file_that_the_checkpoint_names_and_that_is_gone_is_a_finding() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let named = called(directory.path(), "named");
    for class in ["cold-", "meta-"] {
        assert!(
            named.iter().any(|name| name.starts_with(class)),
            "{class}: {named:?}"
        );
    }
    let image = called(directory.path(), "image");
    for name in named.iter().chain(&image) {
        let (path, away) = (directory.path().join(name), directory.path().join("away"));
        std::fs::rename(&path, &away).expect("renamed");
        for is_link in [false, true] {
            if is_link {
                std::os::unix::fs::symlink("nowhere", &path).expect("a link");
            }
            for option in ["--open", "--live"] {
                let (text, code) = answer(&["verify", option, text_of(directory.path())]);
                let findings = text.matches("finding: ").count();
                let sentence = format!("{name}' is damaged at offset 0: expected a file");
                assert!(
                    text.contains(&sentence) && code == 1,
                    "{option} {name}, link {is_link}: {text}"
                );
                assert_eq!(findings, 1, "told once: {text}");
            }
            let (text, code) = answer(&["inspect", text_of(directory.path())]);
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            let state = if is_link { " damaged " } else { " missing " };
            assert!(
                line.contains(state) && code == 1,
                "{name}, link {is_link}: {text}"
            );
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::rename(&away, &path).expect("renamed");
    }
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert_eq!(code, 0, "all is as it was: {text}");
}

/// Files and values that end in the middle, of which nothing is named yet, beside some that are named.
#[test]
fn what_a_killed_server_left_behind_is_told_from_damage() {
    let directory = killed(write_rows_of_nobody);
    let path = directory.path().join("cold-00000002.seg");
    let piece = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the piece");
    piece.set_len(4200).expect("cut off");
    std::fs::write(directory.path().join("meta-00000099.seg"), []).expect("a file");
    let blob = directory.path().join("blob-00000001.seg");
    let end = std::fs::metadata(&blob).expect("values").len();
    overwrite(&blob, end, &[1; 64]);
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert_eq!(text.matches("finding: ").count(), 3, "{text}");
    assert_eq!(code, 1, "{text}");
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert_eq!(text.matches("the next opening removes it").count(), 2, "{text}");
    assert_eq!(text.matches("no row names a value there").count(), 1, "{text}");
    assert!(text.ends_with("clean\n") && code == 0, "{text}");
    let (quiet, code) = answer(&["verify", "--quiet", "--open", text_of(directory.path())]);
    assert_eq!((quiet.as_str(), code), ("", 0));
}

/// Each file that something names, in the last life of a database that was killed: what might be left behind is damage there.
#[test]
fn damage_of_what_is_named_is_no_leftover() {
    let directory = killed(|_| {});
    let mut files = called(directory.path(), "named");
    files.push("blob-00000001.seg".to_owned());
    assert!(files.len() >= 3, "{files:?}");
    for name in files {
        let path = directory.path().join(&name);
        // Of a value its bytes, of a file of rows or entries its end, without which it looks unfinished.
        let at = if name.starts_with("blob-") {
            5000
        } else {
            std::fs::metadata(&path).expect("a file").len() - 10
        };
        let byte = flip(&path, at);
        let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
        assert!(text.contains("finding: ") && code == 1, "{name}: {text}");
        assert!(!text.contains("left by a write"), "{name}: {text}");
        overwrite(&path, at, &[byte]);
    }
}

#[test]
fn what_recovery_or_a_check_finds_is_a_finding() {
    let directory = killed(|_| {});
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(
        text.contains("table 't': 401 rows, good") && code == 0,
        "killed, and good: {text}"
    );
    // The value of row 100 becomes another one that is whole, which no checksum of the file can tell.
    let blob = directory.path().join("blob-00000001.seg");
    let bytes = std::fs::read(&blob).expect("values");
    let first = &bytes[4096..4096 + 20_008];
    let other = answer(&["inspect", text_of(&blob)]).0;
    assert!(other.contains(" value of 20000 bytes"), "{other}");
    overwrite(&blob, 4096, &vec![0; first.len()]);
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert_eq!(
        code, 0,
        "a value that is gone looks like room never written: {text}"
    );
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(
        text.contains("finding: table 't': ") && text.contains("blob-00000001.seg"),
        "{text}"
    );
    assert_eq!(code, 1);
    flip(&first_of(directory.path(), "meta"), 4100);
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(text.contains("tables: left out") && code == 1, "{text}");
}

/// The checkpoint's image says of each table that it has so many rows, under checksums that are right.
fn say_rows(directory: &Path, rows: i64) {
    const TABLE: u8 = 4;
    const FROM_END: usize = 32;
    let disk = SimDisk::new();
    for (path, bytes, _) in state(directory) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        disk.replace(name, &bytes);
    }
    let mut items = image_of(&disk);
    for item in items.iter_mut().filter(|item| item.kind == TABLE) {
        let at = item.fields.len() - FROM_END;
        item.fields[at..at + 8].copy_from_slice(&rows.to_le_bytes());
    }
    let disk = with_items(&disk, &items);
    for name in disk.list().expect("files") {
        std::fs::write(directory.join(&name), disk.content(&name).expect("content")).expect("written");
    }
}

#[test]
fn a_number_of_rows_that_cannot_be_is_a_finding() {
    let directory = killed(|_| {});
    say_rows(directory.path(), -7);
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert_eq!(code, 0, "no file is damaged: {text}");
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(
        text.contains("finding: table 't' has -6 rows by checkpoint and log")
            && text.contains("table 't' has 401 rows, as counted anew"),
        "C4: {text}"
    );
    assert_eq!(code, 1);
}

#[test]
fn a_finding_names_the_rows_of_the_table_or_the_index_that_are_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let named = called(directory.path(), "named");
    for (class, parts) in [
        ("cold-", &["this is rows 1 to ", " of table 't': restore"][..]),
        (
            "meta-",
            &["this is entries of index '", "' of table 't': restore"],
        ),
    ] {
        let name = named.iter().find(|name| name.starts_with(class)).expect("a file");
        let path = directory.path().join(name);
        // A block, and the end of the file, which has the places of all of them.
        let end = std::fs::metadata(&path).expect("a file").len() - 10;
        for (offset, parts) in [
            (4100, parts),
            (end, &["this is a file with ", " of table 't'"][..]),
        ] {
            let byte = flip(&path, offset);
            let (text, code) = answer(&["verify", "--quiet", text_of(directory.path())]);
            for part in parts {
                assert!(
                    text.contains(part) && code == 1,
                    "{name} at {offset}: {part}: {text}"
                );
            }
            assert_eq!(text.lines().count(), 1, "{text}");
            overwrite(&path, offset, &[byte]);
        }
    }
}

#[test]
fn findings_of_a_table_beyond_those_that_are_told_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    let table = PlayTable::create(&db, "t").expect("a table");
    let mut client = Client::new(&db, 1);
    for id in 0..50 {
        let mut row = PlayRow::new(id);
        row.memo = Some(Arc::from(vec![id as u8; 10_000]));
        client.insert(&table, &row).expect("inserted");
    }
    client.session.commit().expect("committed");
    db.checkpoint_step().expect("a checkpoint");
    drop(client);
    db.close().expect("closed");
    drop((table, db));
    wait_until_free(directory.path());
    // Values that are gone look like room never written, which no checksum of the file can tell.
    let blobs: Vec<PathBuf> = state(directory.path())
        .into_iter()
        .map(|(path, ..)| path)
        .filter(|path| text_of(path).contains("/blob-"))
        .collect();
    for blob in &blobs {
        let bytes = std::fs::metadata(blob).expect("a file").len();
        overwrite(blob, 4096, &vec![0; bytes as usize - 4096]);
    }
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(text.contains("finding: table 't': and 30 more\n"), "{text}");
    assert!(text.ends_with("\n50 findings\n") && code == 1, "{text}");
}

#[test]
fn whoever_waits_is_told_how_far_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let arguments = ["verify", "--open", "--progress", "0", text_of(directory.path())];
    let (text, code) = answer(&arguments);
    assert_eq!(code, 0, "{text}");
    let runs = called(directory.path(), "named");
    let parts = [
        "... log: at LSN ",
        &format!("... {}: 0 B of ", runs[0]),
        "... blob-00000001.seg: 1 value, ",
        "... table 't': 100 % checked",
    ];
    for part in parts {
        assert!(text.contains(&format!("\n{part}")), "{part}: {text}");
    }
    let (quiet, code) = answer(&[&arguments[..], &["--quiet"]].concat());
    assert_eq!((quiet.as_str(), code), ("", 0));
    let (text, _) = answer(&[
        "verify",
        "--open",
        "--progress",
        "3600",
        text_of(directory.path()),
    ]);
    assert!(!text.contains("..."), "it takes no hour: {text}");
}

/// Deletes two of four rows with large values, whose room comes back.
fn thin_out(db: &Arc<Database>) {
    let table = PlayTable::open(db, "t").expect("the table");
    let mut client = Client::new(db, 2);
    for (row, values) in client.scan(&table).expect("rows") {
        if [100, 200].contains(&values.id) {
            client.delete(&table, row).expect("deleted");
        }
    }
    client.session.commit().expect("committed");
    for _ in 0..2 {
        while db.upkeep_step(true).expect("worked") == Progress::Worked {}
        db.checkpoint_step().expect("a checkpoint");
    }
    while db.upkeep_step(true).expect("worked") == Progress::Worked {}
}

#[test]
fn room_that_is_given_back_meanwhile_is_no_damage() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| db.close().expect("closed"));
    let db = open(directory.path());
    // A pipe with room for one line: whoever writes the second one has read manifest and names, and no value, and waits.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let filling = vec![b'-'; PIPE_BYTES - ROOM_FOR_A_LINE - 1];
    writer.write_all(&filling).expect("room");
    writer.write_all(b"\n").expect("room");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pbxt"))
        .args(["verify", "--live", text_of(directory.path())])
        .stdout(Stdio::from(writer))
        .spawn()
        .expect("the program runs");
    let written = format!("/proc/{}/io", child.id());
    while std::fs::read_to_string(&written)
        .expect("what it has written")
        .contains("wchar: 0\n")
    {
        std::thread::yield_now();
    }
    thin_out(&db);
    let bytes = std::fs::read(directory.path().join("blob-00000001.seg")).expect("values");
    assert!(bytes[28_672..61_440].iter().all(|byte| *byte == 0), "a hole");
    let lines = BufReader::new(reader).lines().skip(1);
    let text: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let status = child.wait().expect("it ends");
    assert!(text[0].starts_with("pbxt.manifest."), "{text:?}");
    assert!(
        text.iter().any(|line| line.starts_with("blob-00000001.seg: ")),
        "{text:?}"
    );
    assert!(status.success(), "S50: {text:?}");
}

#[test]
fn room_that_was_given_back_is_no_damage() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path(), |db| {
        thin_out(db);
        db.close().expect("closed");
    });
    let blob = directory.path().join("blob-00000001.seg");
    let (dead, dead_bytes) = (4096 + 20_008, 2 * 20_008);
    let bytes = std::fs::read(&blob).expect("values");
    assert!(bytes[28_672..61_440].iter().all(|byte| *byte == 0), "a hole");
    let (text, code) = answer(&["verify", "--open", text_of(directory.path())]);
    assert!(
        text.contains("blob-00000001.seg: 1 value,") && code == 0,
        "{text}"
    );
    let (text, code) = answer(&["inspect", text_of(&blob)]);
    let line = format!("  {dead}: {dead_bytes} bytes of values that no row names any more");
    assert!(text.contains(&line) && code == 0, "{text}");
    flip(&blob, 4096 + 9);
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(
        text.contains("expected a value with its checksum") && code == 1,
        "{text}"
    );
}
