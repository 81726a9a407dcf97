//! The program and encrypted files: read with a file of keys, refused by the number of the key without (rule EN16).

mod common;

use common::{answer, flip, key_file, state, text_of, wait_until_free};
use pbxt::{Database, Options, TableDef};
use pbxt_io::{EncryptedDisk, KeyFile, OsDisk};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, definition};
use pbxt_sim::world::geometry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn disk(directory: &Path, keys: &Path, new_files: Option<u32>) -> EncryptedDisk {
    let disk = Arc::new(OsDisk::open(directory, true).expect("a directory"));
    let keys = Arc::new(KeyFile::open(keys).expect("keys"));
    EncryptedDisk::new(disk, keys, new_files).expect("a key")
}

/// A database of which all files are encrypted.
fn fill(directory: &Path, keys: &Path) {
    let db = open(disk(directory, keys, Some(3)));
    fill_table(&db, "t", false, 200);
    db.close().expect("closed");
    drop(db);
    wait_until_free(directory);
}

fn open(disk: EncryptedDisk) -> Arc<Database> {
    let options = Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    Database::open(Arc::new(disk), &options).expect("a database")
}

/// A table with so many rows, some of them with large values.
fn fill_table(db: &Arc<Database>, name: &str, encrypted: bool, rows: u32) {
    let def = TableDef {
        encrypted,
        ..definition(name).expect("a definition")
    };
    db.create_table(def, 1).expect("a table");
    let table = PlayTable::open(db, name).expect("the table");
    let mut client = Client::new(db, 1);
    for id in 0..rows {
        let mut row = PlayRow::new(id);
        row.memo = (id % 50 == 0).then(|| Arc::from(vec![id as u8; 20_000]));
        client.insert(&table, &row).expect("inserted");
    }
    client.session.commit().expect("committed");
    drop((client, table));
    db.checkpoint_step().expect("a checkpoint");
}

#[test]
fn plain_and_encrypted_files_of_one_database_are_verified_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let keys = key_file(directory.path(), "keys", &format!("3;{KEY}\n"));
    let path = directory.path().join("db");
    let db = open(disk(&path, &keys, None).with_key(3).standing_by());
    fill_table(&db, "t", false, 200);
    fill_table(&db, "s", true, 100);
    db.close().expect("closed");
    drop(db);
    wait_until_free(&path);
    let before = state(&path);
    let (text, code) = answer(&["verify", "--open", "--key-file", text_of(&keys), text_of(&path)]);
    assert!(
        code == 0 && text.contains("table 't': 200 rows, good") && text.contains("table 's': 100 rows, good"),
        "{text}"
    );
    let (text, code) = answer(&["inspect", "--open", "--key-file", text_of(&keys), text_of(&path)]);
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(
        code == 0
            && line("'s': 100 rows").ends_with("; encrypted")
            && !line("'t': 200 rows").contains("encrypted"),
        "{text}"
    );
    let (text, code) = answer(&["verify", text_of(&path)]);
    assert!(
        code == 2 && text.contains("is encrypted with version 1 of key 3"),
        "{text}"
    );
    assert!(before == state(&path), "no file was written, made or removed");
}

#[test]
fn encrypted_files_are_read_with_their_keys_and_refused_by_number_without() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = key_file(
        directory.path(),
        "keys",
        &format!("1;{}\n3;{KEY}\n", "ab".repeat(32)),
    );
    let other = key_file(directory.path(), "other", &format!("3;{}\n", "ab".repeat(32)));
    let path = directory.path().join("db");
    fill(&path, &good);
    let before = state(&path);
    let manifest = path.join("pbxt.manifest.b");
    for place in [&path, &manifest] {
        for command in ["verify", "inspect"] {
            if command == "verify" && place == &manifest {
                continue;
            }
            let (text, code) = answer(&[command, text_of(place)]);
            assert!(
                code == 2
                    && text
                        .contains("is encrypted with version 1 of key 3: there is no such key: name a file"),
                "{text}"
            );
            let (text, code) = answer(&[command, text_of(place), "--key-file", text_of(&other)]);
            assert!(
                code == 2 && text.contains("of key 3: the key of that number and version is another one now"),
                "{text}"
            );
            let (text, code) = answer(&["--key-file", text_of(&good), command, text_of(place)]);
            assert_eq!(code, 0, "{text}");
            assert!(!text.to_lowercase().contains(&KEY[..12]), "EN13: {text}");
        }
    }
    let (text, code) = answer(&["verify", "--open", "--key-file", text_of(&good), text_of(&path)]);
    assert!(code == 0 && text.contains("table 't': 200 rows, good"), "{text}");
    assert!(before == state(&path), "no file was written, made or removed");
    let (text, code) = answer(&["verify", "--key-file", "no such file", text_of(&path)]);
    assert!(code == 2 && text.contains("cannot read 'no such file'"), "{text}");
}

#[test]
fn damage_in_encrypted_files_is_found_with_file_and_offset_of_the_content() {
    let directory = tempfile::tempdir().expect("a directory");
    let keys = key_file(directory.path(), "keys", &format!("3;{KEY}\n"));
    let path = directory.path().join("db");
    fill(&path, &keys);
    let blob = path.join("blob-00000001.seg");
    // The first byte of the first value, which stands behind the encryption's page and the segment's header.
    flip(&blob, 2 * 4096 + 3);
    let (text, code) = answer(&["verify", "--key-file", text_of(&keys), text_of(&path)]);
    assert!(
        code == 1 && text.contains("blob-00000001.seg' is damaged at offset 4096"),
        "{text}"
    );
    flip(&blob, 2 * 4096 + 3);
    flip(&blob, 40);
    let (text, code) = answer(&["verify", "--key-file", text_of(&keys), text_of(&path)]);
    assert!(
        code == 1 && text.contains("blob-00000001.seg' is damaged at offset 508: expected checksum"),
        "{text}"
    );
}

/// Two keys, of which files of both are there; the newer one alone; and the database.
fn of_two_keys(directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let newer = "ab".repeat(32);
    let both = key_file(directory, "both", &format!("3;{KEY}\n4;{newer}\n"));
    let path = directory.join("db");
    fill(&path, &both);
    let db = open(disk(&path, &both, Some(4)));
    fill_table(&db, "u", false, 200);
    db.close().expect("closed");
    drop(db);
    wait_until_free(&path);
    (both, key_file(directory, "newer", &format!("4;{newer}\n")), path)
}

#[test]
fn all_files_are_named_for_which_the_keys_are_not_enough() {
    let directory = tempfile::tempdir().expect("a directory");
    let (both, newer, path) = of_two_keys(directory.path());
    assert_eq!(
        answer(&["verify", "--key-file", text_of(&both), text_of(&path)]).1,
        0
    );
    let names: Vec<String> = state(&path)
        .iter()
        .map(|(path, ..)| text_of(path).to_owned())
        .collect();
    let is_named =
        |text: &str, name: &str| text.contains(&format!("'{name}' is encrypted with version 1 of key 3"));
    let (quiet, code) = answer(&["verify", "--quiet", "--key-file", text_of(&newer), text_of(&path)]);
    assert_eq!(code, 2, "nothing is damaged: {quiet}");
    let old: Vec<&String> = names.iter().filter(|name| is_named(&quiet, name)).collect();
    let (text, _) = answer(&["verify", "--key-file", text_of(&newer), text_of(&path)]);
    let has_values = old.iter().any(|name| name.contains("/blob-"));
    assert!(has_values && old.len() > 1, "{quiet}");
    for name in names.iter().filter(|name| name.contains(".seg")) {
        let (text, code) = answer(&["inspect", "--key-file", text_of(&newer), name]);
        assert_eq!(old.contains(&name), is_named(&text, name), "{name}: {quiet}");
        assert_eq!(code, if old.contains(&name) { 2 } else { 0 }, "{text}");
    }
    assert!(
        !text.contains("finding: ") && text.contains("could not be looked at"),
        "{text}"
    );
    let (text, code) = answer(&["inspect", "--key-file", text_of(&newer), text_of(&path)]);
    for name in &names {
        let short = name.rsplit('/').next().expect("a name");
        let is_listed = text.lines().any(|line| line.starts_with(short));
        assert!(is_listed || short == "pbxt.lock", "{short}: {text}");
    }
    assert_eq!(
        (old.iter().filter(|name| is_named(&text, name)).count(), code),
        (old.len(), 2),
        "{text}"
    );
    // What is damaged is worse than what could not be looked at.
    let whole = names
        .iter()
        .find(|name| name.contains("/blob-") && !old.contains(name));
    flip(
        Path::new(whole.expect("large values of the newer key")),
        2 * 4096 + 3,
    );
    let (text, code) = answer(&["verify", "--key-file", text_of(&newer), text_of(&path)]);
    assert!(text.contains("finding: ") && code == 1, "{text}");
    assert!(is_named(&text, old[0]), "{text}");
}
