//! What a user may not read, or a process has no descriptors for, could not be looked at: it is told, the rest is read, and it is no damage.

mod common;

use common::{fill, text_of, wait_until_free};
use pbxt::{Database, Options};
use pbxt_io::OsDisk;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const NOBODY: u32 = 65534;

/// What the program says to a user who may read what is open to all, and its exit code.
fn answer_to_nobody(directory: &Path, arguments: &[&str]) -> (String, i32) {
    let program = directory.join("pbxt");
    if !program.exists() {
        // By a process of its own: a descriptor of the copy would go to whatever another test starts meanwhile, and keep it from being run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_pbxt"))
            .arg(&program)
            .status();
        assert!(copied.expect("cp").success(), "a copy of the program");
    }
    let mut command = Command::new(&program);
    command.args(arguments);
    // Whoever is not root is held back by the modes as it is.
    if std::fs::metadata(directory).expect("its owner").uid() == 0 {
        command.uid(NOBODY);
    }
    let output = command.output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    (String::from_utf8(text).expect("text"), code)
}

fn open_to_all(path: &Path) {
    set_permissions(path, Permissions::from_mode(0o755)).expect("read by all");
}

#[test]
fn a_file_that_this_user_may_not_read_is_told_and_the_rest_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    std::fs::create_dir(&path).expect("a directory");
    let written = fill(&path);
    for place in [directory.path(), &path] {
        open_to_all(place);
    }
    for entry in std::fs::read_dir(&path).expect("names") {
        open_to_all(&entry.expect("a name").path());
    }
    let (text, code) = answer_to_nobody(directory.path(), &["verify", text_of(&path)]);
    assert_eq!(code, 0, "{text}");
    let run = format!("meta-{:08x}.seg", written.run.raw());
    for name in ["hot-00000001.seg", "blob-00000001.seg", &run] {
        set_permissions(path.join(name), Permissions::from_mode(0o000)).expect("read by nobody");
        let sentence = format!("this user may not open '{}'", text_of(&path.join(name)));
        let (text, code) = answer_to_nobody(directory.path(), &["verify", text_of(&path)]);
        assert!(text.contains(&sentence) && code == 2, "{text}");
        assert!(
            text.contains("blob-00000002.seg: 1 value,"),
            "the rest is read: {text}"
        );
        assert!(!text.contains("finding: "), "{text}");
        let (text, code) = answer_to_nobody(directory.path(), &["inspect", text_of(&path)]);
        assert!(text.contains(&sentence) && code == 2, "{text}");
        assert!(
            text.contains("image of a checkpoint"),
            "the rest is listed: {text}"
        );
        open_to_all(&path.join(name));
    }
    set_permissions(path.join("pbxt.lock"), Permissions::from_mode(0o000)).expect("read by nobody");
    let (text, code) = answer_to_nobody(directory.path(), &["verify", text_of(&path)]);
    let sentence = format!("this user may not open '{}'", text_of(&path.join("pbxt.lock")));
    assert!(
        text.contains(&sentence) && text.contains("look at owner") && code == 2,
        "{text}"
    );
}

/// A database with a table whose rows, entries and values are in several files.
fn fill_with_rows(directory: &Path) {
    let disk = Arc::new(OsDisk::open(directory, true).expect("a directory"));
    let options = Options {
        geometry: geometry(),
        background: false,
        ..Options::default()
    };
    let db = Database::open(disk, &options).expect("a database");
    let table = PlayTable::create(&db, "t").expect("a table");
    let mut client = Client::new(&db, 1);
    for id in 0..400 {
        let mut row = PlayRow::new(id);
        row.memo = (id % 10 == 0).then(|| Arc::from(vec![id as u8; 20_000]));
        client.insert(&table, &row).expect("inserted");
    }
    client.session.commit().expect("committed");
    db.checkpoint_step().expect("a checkpoint");
    drop(client);
    db.close().expect("closed");
    drop((table, db));
    wait_until_free(directory);
}

#[test]
fn want_of_descriptors_is_no_damage() {
    let directory = tempfile::tempdir().expect("a directory");
    fill_with_rows(directory.path());
    let mut codes = Vec::new();
    for descriptors in (5..40).chain([200]) {
        let script = format!("ulimit -n {descriptors}; exec \"$0\" verify --open \"$1\"");
        let output = Command::new("sh")
            .args([
                "-c",
                &script,
                env!("CARGO_BIN_EXE_pbxt"),
                text_of(directory.path()),
            ])
            .output()
            .expect("a shell");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        let code = output.status.code();
        assert!(!text.contains("finding: "), "{descriptors}: {text}");
        assert!(
            matches!(code, Some(0 | 2 | 127)),
            "{descriptors}: {code:?}: {text}"
        );
        codes.push(code);
    }
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(2)), "{codes:?}");
}
