//! The program and encrypted files: read with a file of keys, refused by the number of the key without (rule EN16).

mod common;

use common::{answer, flip, state, text_of, wait_until_free};
use pbxt::{Database, Options};
use pbxt_io::{EncryptedDisk, KeyFile, OsDisk};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_sim::world::geometry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn key_file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// A database of which all files are encrypted.
fn fill(directory: &Path, keys: &Path) {
    let options = Options {
        geometry: geometry(),
        cache_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    let disk = Arc::new(OsDisk::open(directory, true).expect("a directory"));
    let keys = Arc::new(KeyFile::open(keys).expect("keys"));
    let disk = EncryptedDisk::new(disk, keys, Some(3)).expect("a key");
    let db = Database::open(Arc::new(disk), &options).expect("a database");
    let table = PlayTable::create(&db, "t").expect("a table");
    let mut client = Client::new(&db, 1);
    for id in 0..200 {
        let mut row = PlayRow::new(id);
        row.memo = (id % 50 == 0).then(|| Arc::from(vec![id as u8; 20_000]));
        client.insert(&table, &row).expect("inserted");
    }
    client.session.commit().expect("committed");
    drop((client, table));
    db.checkpoint_step().expect("a checkpoint");
    db.close().expect("closed");
    drop(db);
    wait_until_free(directory);
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
