//! Files: whole databases in which one file, or some bytes of several, are the fuzzer's.
//!
//! Why it exists: a file is read by many decoders, one behind the other, and by a recovery that must believe what passed.
//! Format of an input: a file's first byte chooses one of its kind, the rest is its content. Of `database`: edits, each a
//! file, a place, a count and that many bytes.
//! Rules: FZ1, FZ3: the database is refused or opens, and every question gets an answer or an error; without checksums the
//! answer may be wrong.

use pbxt::{Database, Progress};
use pbxt_sim::client::Client;
use pbxt_sim::exhibit::{Cover, End, Exhibit, ask, open};
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use std::hint::black_box;
use std::sync::{Arc, OnceLock};

/// Both ends of the small database, with what their files are.
struct Hall {
    exhibits: [(Exhibit, Vec<(&'static str, String)>); 2],
}

fn hall() -> &'static Hall {
    static HALL: OnceLock<Hall> = OnceLock::new();
    HALL.get_or_init(|| Hall {
        exhibits: [End::Closed, End::Killed].map(|end| {
            let exhibit = Exhibit::new(end, Cover::Plain);
            let kinds = exhibit.kinds();
            (exhibit, kinds)
        }),
    })
}

impl Hall {
    /// Files of a kind, with the number of their exhibit.
    fn files(&self, kind: &str) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        for (number, (_, kinds)) in self.exhibits.iter().enumerate() {
            let of_kind = kinds.iter().filter(|(what, _)| what.starts_with(kind));
            found.extend(of_kind.map(|(_, name)| (number, name.as_str())));
        }
        found
    }
}

/// Opens the exhibit with this content of one of its files and asks everything.
fn with_file(kind: &str, input: &[u8]) {
    let Some((which, content)) = input.split_first() else {
        return;
    };
    let files = hall().files(kind);
    let (number, name) = files[usize::from(*which) % files.len()];
    let exhibit = &hall().exhibits[number].0;
    let disk = exhibit.disk.kill();
    disk.replace(name, content);
    if let Ok(db) = open(&disk) {
        black_box(ask(&db, &exhibit.tables).len());
    }
}

fn file_seeds(kind: &str) -> Vec<Vec<u8>> {
    let seed = |(at, (number, name)): (usize, &(usize, &str))| {
        let disk = &hall().exhibits[*number].0.disk;
        let content = disk.content(name).expect("a file of the exhibit");
        [&[at as u8], content.as_slice()].concat()
    };
    hall().files(kind).iter().enumerate().map(seed).collect()
}

macro_rules! whole_files {
    ($($kind:literal $run:ident $seeds:ident,)*) => {$(
        pub(crate) fn $run(input: &[u8]) {
            with_file($kind, input);
        }

        pub(crate) fn $seeds() -> Vec<Vec<u8>> {
            file_seeds($kind)
        }
    )*};
}

whole_files! {
    "manifest" manifest manifest_seeds,
    "log" log log_seeds,
    "large values" values values_seeds,
    "row pieces" rows rows_seeds,
    "index runs" runs runs_seeds,
    "image" image image_seeds,
}

/// Changes bytes where the edits say; the number of files is small, and places wrap at the end of a file.
fn edit(disk: &SimDisk, names: &[(&'static str, String)], mut edits: &[u8]) {
    while let Some((head, rest)) = edits.split_first_chunk::<5>() {
        let [file, low, middle, high, count] = *head;
        let (bytes, rest) = rest.split_at(usize::from(count % 32).min(rest.len()));
        edits = rest;
        let name = &names[usize::from(file) % names.len()].1;
        let mut content = disk.content(name).expect("a file of the exhibit");
        // The end of what was written is where a file says what is in it.
        let written = content
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(1, |last| last + 1);
        let place = u32::from_le_bytes([low, middle, high, 0]) as usize % written;
        let len = bytes.len().min(content.len() - place);
        content[place..place + len].copy_from_slice(&bytes[..len]);
        disk.replace(name, &content);
    }
}

pub(crate) fn database(input: &[u8]) {
    let Some((which, edits)) = input.split_first() else {
        return;
    };
    let (exhibit, names) = &hall().exhibits[usize::from(*which & 1)];
    let disk = exhibit.disk.kill();
    edit(&disk, names, edits);
    let Ok(db) = open(&disk) else { return };
    go_on(db, exhibit, &disk);
}

/// Asks an open database everything, writes, moves rows, makes a checkpoint, closes and opens it again.
pub(crate) fn go_on(db: Arc<Database>, exhibit: &Exhibit, disk: &SimDisk) {
    black_box(ask(&db, &exhibit.tables).len());
    let mut client = Client::new(&db, 2);
    for name in exhibit.tables.keys() {
        let Ok(table) = PlayTable::open(&db, name) else {
            continue;
        };
        for id in [5000, 7, 5001] {
            black_box(client.insert(&table, &PlayRow::new(id)).is_ok());
        }
        black_box(client.session.commit().is_ok());
    }
    drop(client);
    black_box(db.flush().is_ok());
    db.housekeeping_step();
    let mut steps = 0..100;
    while steps.next().is_some() && matches!(db.compact_step(), Ok(Progress::Worked)) {}
    black_box(db.checkpoint_step().is_ok());
    black_box(db.close().is_ok());
    drop(db);
    if let Ok(db) = open(&disk.kill()) {
        black_box(ask(&db, &exhibit.tables).len());
    }
}

/// Edits of every kind of file: none, and one byte at the beginning and at the end.
pub(crate) fn database_seeds() -> Vec<Vec<u8>> {
    let of = |end: u8| {
        let files = hall().exhibits[usize::from(end)].1.len() as u8;
        (0..files).map(move |file| vec![end, file, 64, 0, 0, 1, 1, file, 255, 255, 255, 1, 1])
    };
    [vec![0], vec![1]].into_iter().chain(of(0)).chain(of(1)).collect()
}

/// One of both ends, by any number.
pub(crate) fn exhibit(number: u8) -> &'static Exhibit {
    &hall().exhibits[usize::from(number & 1)].0
}

/// The disk of the closed exhibit, for who needs blocks of its files.
pub(crate) fn closed() -> &'static Exhibit {
    &hall().exhibits[0].0
}
