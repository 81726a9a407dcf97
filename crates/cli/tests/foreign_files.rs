//! Files of unknown origin: no file that somebody gives ends the program, takes its memory or holds it up (docs/security.md).

mod common;

use common::{fill, text_of, wait_until_free};
use pbxt::{Database, Options};
use pbxt_io::OsDisk;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const BEYOND_MEMORY: u64 = 8 << 40;
/// What `timeout` ends with if its time is over.
const TIME_IS_OVER: i32 = 124;

/// As `common::answer`, for whoever might wait for ever.
fn answer_soon(arguments: &[&str]) -> (String, i32) {
    let output = Command::new("timeout")
        .arg("60")
        .arg(env!("CARGO_BIN_EXE_pbxt"))
        .args(arguments)
        .output()
        .expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    let text = String::from_utf8(text).expect("text");
    assert_ne!(code, TIME_IS_OVER, "{arguments:?}: it waits for ever: {text}");
    (text, code)
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success(), "{made}");
}

#[test]
fn a_manifest_beyond_all_memory_is_damaged_and_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path());
    let path = directory.path().join("pbxt.manifest.a");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    file.set_len(BEYOND_MEMORY).expect("a file of nothing");
    let sentence = "pbxt.manifest.a' is damaged at offset 1073741824: expected the end of a manifest, found 8796093022208 bytes";
    for arguments in [
        &["verify", text_of(directory.path())][..],
        &["inspect", text_of(directory.path())],
        &["inspect", text_of(&path)],
    ] {
        let (text, code) = answer_soon(arguments);
        assert!(
            text.contains(sentence) && code == 1,
            "{arguments:?}: {code}: {text}"
        );
    }
    wait_until_free(directory.path());
    let disk = Arc::new(OsDisk::open(directory.path(), false).expect("the directory"));
    let refused = Database::open(disk, &Options::default()).expect_err("no manifest counts");
    assert!(refused.to_string().contains(sentence), "{refused}");
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path());
    for name in ["cold-00000009.seg", "hot-7fffffff.seg", "blob-00000009.seg"] {
        let path = directory.path().join(name);
        make_pipe(&path);
        let sentence = format!("{name}': it is a pipe, and no file");
        for arguments in [
            &["verify", text_of(directory.path())][..],
            &["verify", "--live", text_of(directory.path())],
        ] {
            let (text, code) = answer_soon(arguments);
            assert!(
                text.contains(&format!("finding: cannot open '{}", directory.path().display())),
                "{text}"
            );
            assert!(text.contains(&sentence) && code == 1, "{text}");
            assert!(
                text.contains("blob-00000001.seg: 1 value,"),
                "the rest is read: {text}"
            );
        }
        let (text, code) = answer_soon(&["inspect", text_of(directory.path())]);
        assert!(text.contains(&sentence) && code == 1, "{text}");
        assert!(text.contains("\nmeta-"), "the rest is listed: {text}");
        let (text, code) = answer_soon(&["inspect", text_of(&path)]);
        assert!(text.contains(&sentence) && code == 2, "{text}");
        std::fs::remove_file(&path).expect("removed");
    }
    let lock = directory.path().join("pbxt.lock");
    std::fs::remove_file(&lock).expect("removed");
    make_pipe(&lock);
    let (text, code) = answer_soon(&["verify", text_of(directory.path())]);
    assert!(text.contains("pbxt.lock': it is a pipe") && code == 2, "{text}");
}

#[test]
fn a_manifest_is_a_file_too() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(directory.path());
    let path = directory.path().join("pbxt.manifest.b");
    std::fs::remove_file(&path).expect("removed");
    make_pipe(&path);
    let (text, code) = answer_soon(&["verify", text_of(directory.path())]);
    assert!(
        text.contains("pbxt.manifest.b': it is a pipe") && code != 0,
        "{text}"
    );
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a directory");
    let (text, code) = answer_soon(&["verify", text_of(directory.path())]);
    assert!(
        text.contains("pbxt.manifest.b': it is a directory") && code != 0,
        "{text}"
    );
}
