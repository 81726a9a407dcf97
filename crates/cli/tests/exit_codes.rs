//! Exit codes: 0 good, 1 something is damaged, 2 it could not be looked at. Scripts decide by them whether a backup is kept.

mod common;

use common::{answer, fill, flip, key_file, pbxt, text_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RESTORE: &str = "restore it from a backup";

fn filled() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    std::fs::create_dir(&path).expect("a directory");
    fill(&path);
    (directory, path)
}

/// What is asked for cannot be looked at, which says nothing of the database.
fn is_refused(arguments: &[&str], why: &str) {
    let (text, code) = answer(arguments);
    assert!(text.contains(why), "{arguments:?}: {text}");
    assert!(
        code == 2 && !text.contains(RESTORE),
        "{arguments:?}: {code}: {text}"
    );
}

#[test]
fn a_bad_file_of_keys_says_nothing_of_the_database() {
    let (directory, path) = filled();
    let long = "#".repeat((1 << 20) + 1);
    for text in ["no key at all", "1;00\n", "Salted__and so on", &long] {
        let keys = key_file(directory.path(), "keys", text);
        for command in ["verify", "inspect"] {
            is_refused(
                &["--key-file", text_of(&keys), command, text_of(&path)],
                "keys' is no file of keys: expected ",
            );
        }
    }
}

#[test]
fn what_is_no_file_of_a_database_is_not_called_damaged() {
    let (directory, path) = filled();
    let other = directory.path().join("text");
    std::fs::write(&other, "no database").expect("a file");
    for file in [&other, &path.join("pbxt.lock")] {
        is_refused(&["inspect", text_of(file)], "is no file of a PBXT database");
    }
    std::fs::write(&other, [0; 10_000]).expect("a file");
    is_refused(&["inspect", text_of(&other)], "is no file of a PBXT database");
    is_refused(&["inspect", "/dev/zero"], "'/dev/zero': it is a device");
    is_refused(
        &["inspect", text_of(&directory.path().join("none"))],
        "cannot open",
    );
    // Under a name of the database it has to be one.
    std::fs::write(path.join("cold-00000009.seg"), [1; 10_000]).expect("a file");
    let (text, code) = answer(&["inspect", text_of(&path.join("cold-00000009.seg"))]);
    assert!(text.contains(RESTORE) && code == 1, "{text}");
}

#[test]
fn a_section_that_there_is_not_is_a_question_of_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let run = directory
        .path()
        .join(format!("meta-{:08x}.seg", written.run.raw()));
    for section in ["1", "4294967295"] {
        is_refused(
            &["inspect", text_of(&run), "--section", section],
            "has 1 section, numbered from 0",
        );
    }
}

#[test]
fn an_option_of_another_kind_of_file_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = fill(directory.path());
    let file = |name: &str| text_of(&directory.path().join(name)).to_owned();
    let hot = file("hot-00000001.seg");
    let run = file(&format!("meta-{:08x}.seg", written.run.raw()));
    let (blob, manifest) = (file("blob-00000001.seg"), file("pbxt.manifest.a"));
    for (file, kind) in [
        (&hot, "a hot segment"),
        (&run, "a piece file"),
        (&blob, "a blob segment"),
        (&manifest, "a manifest"),
    ] {
        assert_eq!(answer(&["inspect", file]).1, 0, "{kind}");
        for (option, what) in [
            ("--open", "a directory"),
            ("--from=1", "a hot segment"),
            ("--section=0", "a piece file"),
            ("--blocks", "a piece file"),
            ("--entries", "a piece file"),
        ] {
            if kind != what {
                let name = option.split('=').next().expect("a name");
                let why = format!("{name} is for {what}; '{file}' is {kind}: ");
                is_refused(&["inspect", file, option], &why);
            }
        }
    }
}

#[test]
fn a_damaged_footer_is_damage_of_its_segment() {
    let (_directory, path) = filled();
    let segment = path.join("hot-00000001.seg");
    flip(&segment, (128 << 10) - 400);
    let (text, code) = answer(&["inspect", text_of(&segment), "--limit", "1"]);
    assert!(text.contains(RESTORE), "{text}");
    assert_eq!(code, 1, "{text}");
    let first = segment_without_records(&path);
    assert_eq!(answer(&["inspect", text_of(&first)]).1, 0);
}

/// The newest hot segment, which has no footer: that is none that is damaged.
fn segment_without_records(path: &Path) -> PathBuf {
    let names = std::fs::read_dir(path).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").path());
    let newest = names.filter(|name| text_of(name).contains("/hot-")).max();
    newest.expect("a hot segment")
}

/// The exit code where nobody reads what is printed.
fn code_unheard(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_pbxt"))
        .args(arguments)
        .stdout(Stdio::from(writer))
        .status();
    status.expect("the program runs").code()
}

#[test]
fn the_exit_code_holds_where_nobody_reads_what_is_printed() {
    let (_directory, path) = filled();
    for quiet in [&["--quiet"][..], &[]] {
        let arguments = [&["verify", text_of(&path)], quiet].concat();
        assert_eq!(
            code_unheard(&arguments),
            Some(0),
            "{arguments:?}: nothing is damaged"
        );
    }
    flip(&path.join("hot-00000001.seg"), 5000);
    flip(&path.join("blob-00000001.seg"), 5000);
    for quiet in [&["--quiet"][..], &[]] {
        let arguments = [&["verify", text_of(&path)], quiet].concat();
        assert_eq!(pbxt(&arguments).status.code(), Some(1), "{arguments:?}");
        assert_eq!(code_unheard(&arguments), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_name_that_is_no_text_is_told_by_that_and_by_what_to_do() {
    use std::os::unix::ffi::OsStrExt;
    let (_directory, path) = filled();
    let copy = path.join(std::ffi::OsStr::from_bytes(b"hot \xff copy"));
    std::fs::copy(path.join("hot-00000001.seg"), &copy).expect("a copy");
    let output = Command::new(env!("CARGO_BIN_EXE_pbxt"))
        .arg("inspect")
        .arg(&copy)
        .output();
    let output = output.expect("the program runs");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("is not UTF-8: give it another name"), "{text}");
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(answer(&["verify", text_of(&path)]).1, 0, "a file of nobody");
}
