//! The scrubber beside threads that write, move, drop and checkpoint, and over encrypted files: rules SC1, SC4 and SC5 of docs/storage.md.

#[path = "common/scrubbed.rs"]
mod scrubbed;

use parking_lot::Mutex;
use pbxt::{Database, Options, Progress};
use pbxt_base::{Error, Result};
use pbxt_io::{Disk, DiskFile, DiskLock, EncryptedDisk, KeySource, SecretKey};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use scrubbed::{Scrubbed, Told, fill, options, row};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Passes beside writers.
const PASSES: u64 = 12;

/// Inserts, changes and deletes rows of a table of its own, which it makes anew now and then.
fn write(db: &Arc<Database>, number: u32, is_over: &AtomicBool) {
    let name = format!("w{number}");
    let mut client = Client::new(db, number as usize + 10);
    let mut next = 0;
    while !is_over.load(Ordering::Relaxed) {
        let table = PlayTable::create(db, &name).expect("a new table");
        for _ in 0..12 {
            let rows: Vec<_> = (next..next + 40)
                .map(|id| client.insert(&table, &row(id)).expect("inserted"))
                .collect();
            next += 40;
            for (at, row) in rows.into_iter().enumerate() {
                if at % 3 == 0 {
                    client.delete(&table, row).expect("deleted");
                } else if at % 3 == 1 {
                    let change = |old: &PlayRow| PlayRow {
                        group: Some(9),
                        ..old.clone()
                    };
                    client.update(&table, row, change).expect("changed");
                }
            }
            if next % 240 == 0 {
                client.session.rollback().expect("rolled back");
            } else {
                client.session.commit().expect("committed");
            }
        }
        drop(table);
        db.drop_table(None, &name).expect("dropped");
    }
}

#[test]
fn a_sound_database_is_sound_beside_writers_merges_checkpoints_and_drops() {
    let (disk, told) = (SimDisk::new(), Arc::<Told>::default());
    let db = Database::open(Arc::new(disk), &options(&told, None)).expect("the database opens");
    fill(&db);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || write(db, number, is_over));
        }
        let (worked, is_over_there) = (&db, &is_over);
        let upkeep = scope.spawn(move || {
            while !is_over_there.load(Ordering::Relaxed) {
                worked.housekeeping_step();
                for _ in 0..4 {
                    worked.upkeep_step(true).expect("worked");
                }
                worked.checkpoint_step().expect("a checkpoint");
            }
        });
        // Without upkeep nothing is given back, and the scope passes its panic on.
        while db.scrub_status().passes < PASSES && !upkeep.is_finished() {
            if !db.scrub_status().is_running {
                db.scrub_now(true);
            }
            db.scrub_step();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(told.take_damage(), Vec::<String>::new(), "SC4, SC5");
    assert_eq!(db.scrub_status().damage_found, 0);
    assert!(db.maintenance_status().checkpoints > 4, "files came and went");
}

#[test]
fn the_thread_scrubs_when_told_and_ends_with_the_database() {
    let told = Arc::<Told>::default();
    let options = Options {
        background: true,
        ..options(&told, None)
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).expect("the database opens");
    fill(&db);
    db.set_scrub_hours(0);
    db.scrub_now(true);
    let began = Instant::now();
    while db.scrub_status().passes == 0 {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "{:?}",
            db.scrub_status()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    db.scrub_now(true);
    let began = Instant::now();
    db.close().expect("closed");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "SC7: {:?}",
        began.elapsed()
    );
    assert_eq!(told.take_damage(), Vec::<String>::new());
}

/// One key.
#[derive(Debug)]
struct Key;

impl KeySource for Key {
    fn latest_version(&self, key_id: u32) -> Option<u32> {
        (key_id == 1).then_some(1)
    }

    fn key(&self, key_id: u32, version: u32) -> Option<SecretKey> {
        ((key_id, version) == (1, 1)).then(|| SecretKey::new(vec![9; 32]))
    }

    fn remedy(&self) -> String {
        "ask the test for it".into()
    }
}

#[test]
fn damage_of_encrypted_files_is_found_behind_and_in_their_headers() {
    let medium = SimDisk::new();
    let disk = EncryptedDisk::new(Arc::new(medium.clone()), Arc::new(Key), Some(1)).expect("a key");
    let bench = Scrubbed::on(medium, Arc::new(disk));
    fill(&bench.db);
    assert_eq!(bench.pass(), Vec::<String>::new());
    for beginning in ["cold-", "meta-", "blob-"] {
        let file = bench.files(beginning)[0].clone();
        // The header of the encryption: what is remembered of it does not hide it.
        for offset in [2, 30] {
            bench.finds_flip(&file, offset);
        }
    }
    // Behind it and the header of the segment; short blocks of small indexes share a block of the cipher.
    for beginning in ["cold-", "blob-"] {
        let file = bench.files(beginning)[0].clone();
        bench.finds_flip(&file, 4096 + 4096 + 70);
    }
}

/// What the system says of a process that has as many files open as it may.
const EMFILE: i32 = 24;
/// Of so many reads past the cache one finds no memory.
const SHORT_READS: u64 = 13;

/// A medium whose readers past the cache find no descriptor each time they come to a file, and now and then no memory.
#[derive(Debug)]
struct Short {
    medium: SimDisk,
    /// Files that can be opened now.
    granted: Mutex<HashSet<String>>,
    reads: Arc<AtomicU64>,
    /// Files that begin so find no descriptor for their readers, whichever way they read.
    lacking: Arc<Mutex<Option<&'static str>>>,
}

#[derive(Debug)]
struct ShortFile {
    file: Arc<dyn DiskFile>,
    /// Of all files past the cache; none of one that goes through it.
    reads: Option<Arc<AtomicU64>>,
    lacking: Arc<Mutex<Option<&'static str>>>,
}

impl Short {
    fn on(medium: &SimDisk) -> Self {
        Self {
            medium: medium.clone(),
            granted: Mutex::default(),
            reads: Arc::default(),
            lacking: Arc::default(),
        }
    }

    fn wrap(&self, file: Arc<dyn DiskFile>, reads: Option<&Arc<AtomicU64>>) -> Arc<dyn DiskFile> {
        Arc::new(ShortFile {
            file,
            reads: reads.cloned(),
            lacking: Arc::clone(&self.lacking),
        })
    }
}

fn failed<T>(file: &str, op: &'static str, source: io::Error) -> Result<T> {
    let file = file.to_owned();
    Err(Error::Io { file, op, source })
}

impl Disk for Short {
    fn location(&self) -> String {
        self.medium.location()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.medium.create(name, preallocate)
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.medium.open(name, writable)?, None))
    }

    fn open_past_cache(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        if !self.granted.lock().remove(name) {
            self.granted.lock().insert(name.to_owned());
            return failed(name, "open", io::Error::from_raw_os_error(EMFILE));
        }
        Ok(self.wrap(self.medium.open(name, false)?, Some(&self.reads)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.medium.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.medium.rename(from, to)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.medium.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.medium.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.medium.sync_dir()
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        self.medium.lock(name)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.medium.free_bytes()
    }
}

impl DiskFile for ShortFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self
            .lacking
            .lock()
            .is_some_and(|kind| self.name().starts_with(kind))
        {
            return failed(self.name(), "open", io::Error::from_raw_os_error(EMFILE));
        }
        let number = self
            .reads
            .as_ref()
            .map(|reads| reads.fetch_add(1, Ordering::Relaxed));
        if number.is_some_and(|number| number % SHORT_READS == SHORT_READS - 1) {
            // As a read past the cache says where it failed.
            let source = io::Error::new(io::ErrorKind::OutOfMemory, format!("at offset {offset}"));
            return failed(self.name(), "read", source);
        }
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }
}

/// The lines of a pass that waits for what is lacking.
fn patient_pass(bench: &Scrubbed) -> Vec<String> {
    let before = bench.db.scrub_status().passes;
    bench.db.scrub_now(true);
    while bench.db.scrub_status().passes == before {
        if bench.db.scrub_step() == Progress::Idle {
            bench.clock.advance_millis(1_000);
        }
    }
    bench.told.take_damage()
}

#[test]
fn want_of_descriptors_and_of_memory_is_no_damage() {
    let medium = SimDisk::new();
    let disk = Short::on(&medium);
    let reads = Arc::clone(&disk.reads);
    let bench = Scrubbed::on(medium, Arc::new(disk));
    fill(&bench.db);
    assert_eq!(patient_pass(&bench), Vec::<String>::new(), "SC4");
    assert!(
        reads.load(Ordering::Relaxed) > SHORT_READS,
        "some found no memory"
    );
    let values = bench.files("blob-")[0].clone();
    bench
        .disk
        .flip_bit(&values, 4096 + 50, 3)
        .expect("the file is there");
    let told = patient_pass(&bench);
    assert_eq!(bench.db.scrub_status().damage_found, 1, "SC4: {told:?}");
    assert!(
        told[0].contains("a large value of row 1 of table 't'")
            && told[0].contains("is damaged at offset 4096"),
        "SC4: {told:?}"
    );
}

/// What a check finds once it has all files that it opens; each is refused the first time.
fn found_in_the_end(client: &mut Client, table: &PlayTable) -> Vec<String> {
    for _ in 0..100 {
        match client.check(table) {
            Ok(found) => return found,
            Err(error) => assert!(error.to_string().contains("Too many open files"), "{error}"),
        }
    }
    panic!("there are not so many files");
}

/// Whoever asks for a check is not told of damage that is none: what is lacking ends the check, and it can be asked for again.
#[test]
fn want_of_descriptors_ends_a_check_and_finds_nothing() {
    let medium = SimDisk::new();
    let db = Database::open(Arc::new(medium.clone()), &options(&Arc::default(), None));
    let db = db.expect("the database opens");
    fill(&db);
    drop(db);
    for kind in ["hot-", "blob-", "cold-", "meta-"] {
        // Opened anew, so that nothing of it is in memory.
        let disk = Short::on(&medium.kill());
        let lacking = Arc::clone(&disk.lacking);
        let db = Database::open(Arc::new(disk), &options(&Arc::default(), None)).expect("the database opens");
        let table = PlayTable::open(&db, "t").expect("the table is there");
        let mut client = Client::new(&db, 1);
        *lacking.lock() = Some(kind);
        let error = client.check(&table).expect_err(kind).to_string();
        assert!(error.contains("cannot open") && error.contains(kind), "{error}");
        client.session.commit().expect("nothing to commit");
        *lacking.lock() = None;
        assert_eq!(found_in_the_end(&mut client, &table), Vec::<String>::new());
    }
}
