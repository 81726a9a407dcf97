//! `pbxt verify` finds every kind of damage, names its place, and changes nothing.

mod common;

use common::{Fixture, answer, fill, flip, overwrite, state, text_of};
use pbxt_segment::{PieceWriter, SegmentClass};

#[test]
fn a_good_database_is_clean_and_not_a_byte_of_it_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path());
    let before = state(directory.path());
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(text.ends_with("clean\n") && code == 0, "{text}");
    assert!(text.contains("sealed hot segment") && text.contains("log: "));
    let live = answer(&["verify", "--live", text_of(directory.path())]);
    assert_eq!(live.1, 0, "{}", live.0);
    let quiet = answer(&["verify", "--quiet", text_of(directory.path())]);
    assert_eq!(quiet, (String::new(), 0));
    answer(&["inspect", text_of(directory.path())]);
    assert!(
        before == state(directory.path()),
        "no file was written, made or removed"
    );
}

#[test]
fn a_flipped_byte_in_each_kind_of_file_is_found_with_file_and_offset() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let run = format!("meta-{:08x}.seg", written.run.raw());
    let rows = format!("cold-{:08x}.seg", written.rows.raw());
    let image = format!("meta-{:08x}.seg", written.image.raw());
    let bytes = |name: &str| {
        std::fs::metadata(directory.path().join(name))
            .expect("a file")
            .len()
    };
    let blob = written.blob.addr.offset();
    // Where a bit is flipped, and the place that is named: the beginning of what its checksum covers.
    let cases: Vec<(&str, u64, u64)> = vec![
        ("pbxt.manifest.a", 70, 64),
        ("pbxt.manifest.b", 50, 60),
        ("hot-00000001.seg", 20, 4092),
        ("hot-00000001.seg", 4096, 4096),
        ("hot-00000001.seg", 4200, 4096),
        ("hot-00000001.seg", (128 << 10) - 400, (128 << 10) - 512),
        ("blob-00000001.seg", 4000, 4092),
        ("blob-00000001.seg", blob, blob),
        ("blob-00000001.seg", blob + 100, blob),
        ("blob-00000001.seg", blob + 262_152 + 9, blob + 262_152),
        ("blob-00000001.seg", blob + 2 * 262_152 + 9, blob + 2 * 262_152),
        ("blob-00000002.seg", blob + 5, blob),
        (&run, 100, 4092),
        (&run, 4096 + 20, 4096),
        (&rows, 4096 + 3, 4096),
        (&image, 4096 + 12, 4096),
        (&image, bytes(&image) - 10, bytes(&image) - 48),
        (&rows, bytes(&rows) - 48, bytes(&rows) - 48),
    ];
    for (name, offset, named) in cases {
        let path = directory.path().join(name);
        let byte = flip(&path, offset);
        let (text, code) = answer(&["verify", text_of(directory.path())]);
        let place = format!("{name}' is damaged at offset {named}: expected ");
        let finding = text
            .lines()
            .find(|line| line.starts_with("finding: ") && line.contains(&place));
        let finding = finding.unwrap_or_else(|| panic!("{name} at {offset}: {text}"));
        assert!(
            finding.contains(", found ") && finding.contains("; "),
            "{finding}"
        );
        assert_eq!(code, 1, "{name} at {offset}");
        overwrite(&path, offset, &[byte]);
    }
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert_eq!(code, 0, "all is as it was: {text}");
}

#[test]
fn two_flipped_bytes_are_two_findings() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    flip(&directory.path().join("hot-00000001.seg"), 5000);
    flip(&directory.path().join("hot-00000002.seg"), 5000);
    flip(
        &directory
            .path()
            .join(format!("cold-{:08x}.seg", written.rows.raw())),
        4100,
    );
    let (text, code) = answer(&["verify", "--quiet", text_of(directory.path())]);
    assert_eq!(code, 1, "{text}");
    for (name, offset) in [
        ("hot-00000001.seg", 4096),
        ("hot-00000002.seg", 4096),
        ("cold-00000001.seg", 4096),
    ] {
        assert!(
            text.contains(&format!("{name}' is damaged at offset {offset}")),
            "{text}"
        );
    }
}

#[test]
fn files_that_are_missing_or_of_another_place_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let path = |name: &str| directory.path().join(name);
    for name in [
        "hot-00000001.seg",
        "blob-00000001.seg",
        &format!("meta-{:08x}.seg", written.image.raw()),
    ] {
        std::fs::rename(path(name), path("away")).expect("renamed");
        let (text, code) = answer(&["verify", text_of(directory.path())]);
        assert!(
            text.contains(&format!(
                "{name}' is damaged at offset 0: expected a file the manifest lists"
            )),
            "{text}"
        );
        assert_eq!(code, 1);
        std::fs::rename(path("away"), path(name)).expect("renamed");
    }
    std::fs::copy(path("blob-00000001.seg"), path("blob-00000009.seg")).expect("a copy");
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(
        text.contains("blob-00000009.seg' is damaged at offset 12: expected the segment its name says"),
        "{text}"
    );
    assert_eq!(code, 1);
    std::fs::remove_file(path("blob-00000009.seg")).expect("removed");
    for name in ["pbxt.manifest.a", "pbxt.manifest.b"] {
        std::fs::remove_file(path(name)).expect("removed");
    }
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(text.contains("neither file can be read") && code == 1, "{text}");
    assert!(
        text.contains("blob-00000001.seg: 1 value,"),
        "the rest is read all the same: {text}"
    );
}

#[test]
fn a_database_in_use_is_refused_unless_live() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path());
    let fixture = Fixture::open(directory.path());
    fixture.insert(1000, 100);
    fixture.commit(2000);
    let mut unfinished = PieceWriter::create(&fixture.store, SegmentClass::Cold).expect("a file");
    unfinished.begin_section(1, 1);
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    let holder = format!("is in use by process {}", std::process::id());
    assert!(
        text.contains(&holder) && text.contains("--live") && code == 2,
        "{text}"
    );
    let (text, code) = answer(&["verify", "--live", text_of(directory.path())]);
    assert!(
        text.contains("log: left out") && text.ends_with("clean\n") && code == 0,
        "{text}"
    );
    let (text, code) = answer(&["inspect", text_of(directory.path())]);
    assert!(text.contains(&holder) && code == 0, "{text}");
    drop(unfinished);
}

#[test]
fn after_a_crash_a_torn_end_is_no_damage_and_an_unfinished_piece_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::open(directory.path());
    fixture.insert(1, 100);
    fixture.commit(1);
    let lsn = fixture.insert(2, 5000);
    fixture.commit(2);
    let crashed = tempfile::tempdir().expect("a directory");
    for (path, bytes, _) in state(directory.path()) {
        std::fs::write(crashed.path().join(path.file_name().expect("a name")), bytes).expect("a copy");
    }
    drop(fixture);
    let (text, code) = answer(&["verify", text_of(crashed.path())]);
    assert!(
        text.contains("log: 4 records from LSN 0 to ") && code == 0,
        "{text}"
    );
    overwrite(
        &crashed.path().join("hot-00000001.seg"),
        lsn.raw() % (128 << 10) + 1000,
        &[1; 8],
    );
    let (text, code) = answer(&["verify", text_of(crashed.path())]);
    assert!(
        text.contains("log: 2 records from LSN 0 to ") && code == 0,
        "torn, as nothing follows: {text}"
    );

    std::fs::write(crashed.path().join("cold-00000001.seg"), []).expect("a file");
    let (text, code) = answer(&["verify", text_of(crashed.path())]);
    assert!(
        text.contains("cold-00000001.seg' is damaged at offset 0")
            && text.contains("'pbxt verify --open' tells which")
    );
    assert_eq!(code, 1);
}

#[test]
fn what_is_no_database_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (text, code) = answer(&["verify", text_of(directory.path())]);
    assert!(text.contains("is not a PBXT database") && code == 2, "{text}");
    assert!(state(directory.path()).is_empty(), "no lock file is left behind");
    let (text, code) = answer(&["verify", text_of(&directory.path().join("nothing"))]);
    assert!(code == 2, "{text}");
}
