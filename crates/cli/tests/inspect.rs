//! `pbxt inspect` names what was written, in every kind of file.

mod common;

use common::{Fixture, INDEX, TABLE, answer, fill, flip, text_of};
use pbxt_segment::Geometry;

fn file(directory: &tempfile::TempDir, name: &str) -> String {
    text_of(&directory.path().join(name)).to_owned()
}

#[test]
fn each_command_teaches_with_examples() {
    for arguments in [
        &["--help"][..],
        &["inspect", "--help"],
        &["verify", "--help"],
        &["version", "--help"],
    ] {
        let (text, code) = answer(arguments);
        assert_eq!(code, 0, "{arguments:?}");
        assert!(
            text.contains("Example") && text.contains("pbxt "),
            "{arguments:?}: {text}"
        );
    }
    let (text, code) = answer(&["version"]);
    assert!(text.contains("format version 1") && code == 0, "{text}");
    assert_eq!(answer(&["inspect"]).1, 2, "a path is wanted");
}

#[test]
fn a_directory_is_a_table_of_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let (text, code) = answer(&["inspect", text_of(directory.path())]);
    assert_eq!(code, 0, "{text}");
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line for {start} in {text}"))
    };
    assert!(
        text.contains("database 0000000000000000000000000000abcd"),
        "{text}"
    );
    assert!(text.contains("closed in order, the log ends at LSN"), "{text}");
    assert!(line("pbxt.manifest.a").contains("counts"), "{text}");
    assert!(line("pbxt.manifest.b").contains("older"), "{text}");
    assert!(
        line("hot-00000001.seg").contains("sealed       LSN 131072 to "),
        "{text}"
    );
    assert!(line("blob-00000001.seg").contains("begun"), "{text}");
    let image = format!("meta-{:08x}.seg", written.image.raw());
    assert!(
        line(&image).contains("image        image of a checkpoint"),
        "{text}"
    );
    let run = format!("meta-{:08x}.seg", written.run.raw());
    assert!(line(&run).contains("kept         entries of index 7"), "{text}");
    let rows = format!("cold-{:08x}.seg", written.rows.raw());
    assert!(line(&rows).contains("rows of table 5"), "{text}");
}

#[test]
fn a_hot_segment_is_a_list_of_its_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let name = file(&directory, "hot-00000001.seg");
    let (text, code) = answer(&["inspect", &name, "--limit", "2"]);
    assert_eq!(code, 0, "{text}");
    let first = format!(
        "  {} insert table {TABLE} row 1 txn 11 schema 1",
        written.first_row
    );
    assert!(
        text.contains(&first) && text.contains("payload 100 bytes"),
        "{text}"
    );
    assert!(
        text.contains("sealed: the log ends at LSN") && text.contains("the log begins here"),
        "{text}"
    );
    let second = text
        .lines()
        .find(|line| line.contains("row 2 "))
        .expect("the second row");
    let lsn = second.split_whitespace().next().expect("an LSN").to_owned();
    assert!(
        text.contains("more from LSN") && !text.contains(" row 3 "),
        "{text}"
    );

    let (text, code) = answer(&["inspect", &name, "--from", &lsn, "--limit", "0"]);
    assert!(
        !text.contains(" row 1 ") && text.contains(" row 2 ") && text.contains(" row 3 "),
        "{text}"
    );
    assert!(text.contains("commit ts 50") && code == 0, "{text}");
    assert_eq!(answer(&["inspect", &name, "--from", "99999999"]).1, 2);

    let (text, code) = answer(&["inspect", &file(&directory, "hot-00000002.seg"), "--limit", "0"]);
    assert!(
        text.contains("continues hot segment 1") && text.contains("commit ts 200"),
        "{text}"
    );
    assert_eq!(code, 0);

    // Behind damage nothing is printed, and the place is named.
    flip(&directory.path().join("hot-00000001.seg"), 70_000);
    let (text, code) = answer(&["inspect", &name, "--limit", "0"]);
    assert!(text.contains("is damaged at offset") && code == 1, "{text}");
    assert!(
        text.contains("commit ts 50"),
        "what lies before it is printed: {text}"
    );
}

#[test]
fn a_piece_file_is_sections_blocks_and_entries() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let run = file(&directory, &format!("meta-{:08x}.seg", written.run.raw()));
    let (text, code) = answer(&["inspect", &run]);
    assert!(
        text.contains(&format!("section 0: entries of index {INDEX}: 3000 entries")),
        "{text}"
    );
    assert!(
        text.contains("keys 6b65792030303030 to 6b65792032393939") && code == 0,
        "{text}"
    );
    assert!(!text.contains("block 0 at"), "only with --blocks: {text}");

    let (text, _) = answer(&["inspect", &run, "--blocks"]);
    assert!(
        text.contains("block 0 at 4096: ") && text.contains("first key 6b65792030303030"),
        "{text}"
    );
    let (text, _) = answer(&["inspect", &run, "--entries", "--limit", "5"]);
    assert!(
        text.contains("+key 6b65792030303032 row 3, txn 9 lsn 16"),
        "{text}"
    );
    assert!(
        text.contains("more entries") && !text.contains("row 6,"),
        "{text}"
    );

    let rows = file(&directory, &format!("cold-{:08x}.seg", written.rows.raw()));
    let (text, code) = answer(&["inspect", &rows, "--blocks", "--entries"]);
    assert!(
        text.contains("section 0: rows of table 5: 50 entries in 7 blocks"),
        "{text}"
    );
    assert!(
        text.contains(" row 10\n") && text.contains(" row 500\n") && text.contains("ids alone"),
        "{text}"
    );
    assert!(
        text.contains("block 6 at") && text.contains(", 2 entries, first key 00000000000001ea"),
        "{text}"
    );
    assert_eq!((code, text.matches(" row ").count()), (0, 50), "{text}");
    assert_eq!(
        answer(&["inspect", &rows, "--section", "3"]).1,
        2,
        "no such section"
    );
}

#[test]
fn a_blob_segment_is_its_values() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let (text, code) = answer(&["inspect", &file(&directory, "blob-00000001.seg")]);
    let first = format!(
        "{}: value of 600000 bytes, 3 frames, checksums good, hash {:016x}",
        written.blob.addr.offset(),
        written.blob.hash
    );
    assert!(text.contains(&first) && code == 0, "{text}");
}

#[test]
fn values_that_end_with_a_full_frame_are_told_from_those_behind_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let geometry = Geometry {
        blob_segment_bytes: 1 << 20,
        ..Geometry::small()
    };
    let fixture = Fixture::open_with(directory.path(), geometry);
    for bytes in [16, 256 << 10, 256 << 10, 1, 300 << 10, 512 << 10] {
        fixture
            .blobs
            .append(&vec![bytes as u8 + 1; bytes])
            .expect("a value");
    }
    // The value of 16 bytes gives the next one an offset that has a bit in common with the bytes of a full frame.
    drop(fixture);
    let mut values = Vec::new();
    for name in ["blob-00000001.seg", "blob-00000002.seg"] {
        let (text, code) = answer(&["inspect", &file(&directory, name)]);
        assert_eq!(code, 0, "{text}");
        values.extend(
            text.lines()
                .filter(|line| line.contains(": value of"))
                .map(str::to_owned),
        );
    }
    let doubtful = values.iter().filter(|line| line.contains("and not several"));
    assert_eq!(
        doubtful.count(),
        1,
        "the one at the beginning of its segment: {values:?}"
    );
    let sizes: Vec<&str> = values.iter().filter_map(|line| line.split(' ').nth(5)).collect();
    assert_eq!(
        sizes,
        ["16", "262144", "262144", "1", "307200", "524288"],
        "{values:?}"
    );
}

#[test]
fn a_manifest_is_its_records_and_the_reason_why_it_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let (text, code) = answer(&["inspect", &file(&directory, "pbxt.manifest.b")]);
    assert!(text.contains("generation 1, format 1") && code == 0, "{text}");
    assert!(
        text.contains("  64: image: create: database 0000000000000000000000000000abcd"),
        "{text}"
    );
    assert!(text.contains("appended: begun: hot-00000001.seg"), "{text}");
    let checkpoint = format!("checkpoint: image meta-{:08x}.seg", written.image.raw());
    assert!(text.contains(&checkpoint), "{text}");
    assert!(text.contains("superseded by generation 2"), "{text}");
    let verdict =
        "'pbxt.manifest.a' counts: 'pbxt.manifest.b' of generation 1 says that generation 2 supersedes it";
    assert!(text.contains(verdict), "{text}");
    let (text, code) = answer(&["inspect", &file(&directory, "pbxt.manifest.a")]);
    assert!(
        text.contains("opened: incarnation 2") && text.contains(verdict) && code == 0,
        "{text}"
    );
    assert!(text.contains("closed: the log ends at LSN"), "{text}");
}

#[test]
fn a_file_is_told_by_its_first_bytes_and_not_by_its_name() {
    let (directory, other) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let written = fill(directory.path());
    for (name, expected) in [
        (
            format!("meta-{:08x}.seg", written.run.raw()),
            "section 0: entries of index 7",
        ),
        ("hot-00000002.seg".to_owned(), "commit ts 200"),
        ("blob-00000001.seg".to_owned(), "value of 600000 bytes"),
    ] {
        let copy = other.path().join("copy of a file");
        std::fs::copy(directory.path().join(&name), &copy).expect("a copy");
        let (text, code) = answer(&["inspect", text_of(&copy), "--limit", "0"]);
        assert!(text.contains(expected) && code == 0, "{name}: {text}");
    }
}
