//! Every bit of every file is flipped, one at a time: the damage is found and its file named, or it harms nothing.
//!
//! Rules TR1 to TR4 of docs/testing.md. A flip is judged by opening the database as any user would and asking it everything,
//! by table scan, every index in both directions, single rows by unique keys, conditions, count and check. What must be there
//! follows from arithmetic (`pbxt_sim::exhibit`). Each flip has a copy of the disk and an opening of its own, so none hides
//! another one.
//!
//! `PBXT_FLIP_STRIDE=1` flips every bit; without it every `STRIDE`-th is; `PBXT_FLIP_KIND='index runs'` only those of one kind of
//! file. A failure names file, offset and bit, and `PBXT_FLIP=PlainClosed:hot-00000003.seg:4711:5` plays that one again.

use pbxt::Database;
use pbxt_base::limits::SECTOR_BYTES;
use pbxt_sim::exhibit::{Answer, Cover, End, Exhibit, LAST, Tables, ask, open_under, refusal};
use pbxt_sim::world::geometry;
use pbxt_testkit::SimDisk;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bits from one flip to the next: a prime, so that every place in a byte and in a field comes up.
const STRIDE: u64 = 331;
/// The same in the zeros behind the last byte that was written, as a multiple.
const ROOM_STRIDES: u64 = 64;
/// The same in encrypted files, each of whose openings takes several times as long.
const ENCRYPTED_STRIDES: u64 = 11;
/// One flip in so many, if it does no harm, is followed by an orderly close and a second opening.
const SECOND_LIFE: u64 = 8;
/// A flip that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);
/// Manifest in force and superseded, log, large values, row pieces, index runs, image.
const KINDS: usize = 7;
/// The kind of which no flip may refuse an opening.
const INDEX_RUNS: &str = "index runs";
/// Wrong answers told in full.
const TOLD: usize = 5;

#[derive(Clone, Debug)]
struct Flip {
    kind: &'static str,
    file: Arc<str>,
    bit: u64,
}

impl Flip {
    fn offset(&self) -> u64 {
        self.bit / 8
    }

    fn text(&self, exhibit: &Exhibit) -> String {
        format!(
            "{}:{}:{}:{}",
            name_of(exhibit),
            self.file,
            self.offset(),
            self.bit % 8
        )
    }
}

/// What `PBXT_FLIP` calls it.
fn name_of(exhibit: &Exhibit) -> String {
    format!("{:?}{:?}", exhibit.cover, exhibit.end)
}

fn open(exhibit: &Exhibit, disk: &SimDisk) -> pbxt::Result<Arc<Database>> {
    open_under(exhibit.cover, disk)
}

/// Who came upon a flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    Opening,
    Reading,
    /// The check of a table, and nothing else.
    Check,
}

/// What became of a flip.
#[derive(Debug)]
enum Seen {
    /// By whom, and the error.
    Found(Finder, String),
    /// The last commit is gone, as after a torn write (rule D5).
    Cut,
    Harmless,
    Wrong(String),
}

/// Files, bytes and flips of one kind of file.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    files: u64,
    bytes: u64,
    flips: u64,
    at_open: u64,
    reading: u64,
    checking: u64,
    /// Errors that name another file than the one with the flip.
    elsewhere: u64,
    cut: u64,
    harmless: u64,
    wrong: u64,
}

impl Line {
    fn count(&mut self, flip: &Flip, seen: &Seen) {
        self.flips += 1;
        let place = match seen {
            Seen::Found(Finder::Opening, _) => &mut self.at_open,
            Seen::Found(Finder::Reading, _) => &mut self.reading,
            Seen::Found(Finder::Check, _) => &mut self.checking,
            Seen::Cut => &mut self.cut,
            Seen::Harmless => &mut self.harmless,
            Seen::Wrong(_) => &mut self.wrong,
        };
        *place += 1;
        let names_another = |text: &str| !text.contains(&*flip.file);
        self.elsewhere += u64::from(matches!(seen, Seen::Found(_, text) if names_another(text)));
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.flips += other.flips;
        self.at_open += other.at_open;
        self.reading += other.reading;
        self.checking += other.checking;
        self.elsewhere += other.elsewhere;
        self.cut += other.cut;
        self.harmless += other.harmless;
        self.wrong += other.wrong;
    }

    fn print(&self, kind: &str) {
        println!(
            "| {kind:22} | {:5} | {:7} | {:8} | {:8} | {:8} | {:6} | {:9} | {:5} | {:8} | {:5} |",
            self.files,
            self.bytes,
            self.flips,
            self.at_open,
            self.reading,
            self.checking,
            self.elsewhere,
            self.cut,
            self.harmless,
            self.wrong
        );
    }
}

/// What a run has seen so far.
#[derive(Debug, Default)]
struct Tally {
    lines: BTreeMap<&'static str, Line>,
    wrong: Vec<String>,
}

impl Tally {
    fn note(&mut self, exhibit: &Exhibit, flip: &Flip, seen: &Seen) {
        self.lines.entry(flip.kind).or_default().count(flip, seen);
        if let Seen::Wrong(text) = seen {
            self.wrong
                .push(format!("PBXT_FLIP={}: {text}", flip.text(exhibit)));
        }
    }
}

/// The flips of a run, and a line for each kind of file.
fn plan(exhibit: &Exhibit, stride: u64) -> (Vec<Flip>, Tally) {
    let (mut flips, mut tally) = (Vec::new(), Tally::default());
    let only = std::env::var("PBXT_FLIP_KIND").ok();
    for (kind, file) in exhibit.kinds() {
        let bytes = exhibit.disk.content(&file).expect("readable");
        let line = tally.lines.entry(kind).or_default();
        line.files += 1;
        line.bytes += bytes.len() as u64;
        if only.as_ref().is_some_and(|only| only != kind) {
            continue;
        }
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let (content, all) = (written as u64 * 8, bytes.len() as u64 * 8);
        let within = (0..content).step_by(stride as usize);
        let room = (content..all).step_by((stride * ROOM_STRIDES) as usize);
        let file: Arc<str> = file.into();
        flips.extend(within.chain(room).map(|bit| Flip {
            kind,
            file: Arc::clone(&file),
            bit,
        }));
    }
    (flips, tally)
}

/// Flips the bit in a copy, opens it and asks everything.
fn examine(exhibit: &Exhibit, flip: &Flip, lives_on: bool) -> Seen {
    let disk = exhibit.disk.kill();
    disk.flip_bit(&flip.file, flip.offset(), (flip.bit % 8) as u32)
        .expect("a byte of the file");
    let db = match open(exhibit, &disk) {
        Ok(db) => db,
        Err(error) => return opening_refused(flip, &error),
    };
    let seen = sum_up(&ask(&db, &exhibit.tables));
    let seen = match seen {
        Seen::Wrong(_) if exhibit.end == End::Killed && is_last_commit(exhibit, flip) => {
            match sum_up(&ask(&db, &without_last(&exhibit.tables))) {
                Seen::Harmless => Seen::Cut,
                _ => seen,
            }
        }
        seen => seen,
    };
    if !lives_on || !matches!(seen, Seen::Harmless) {
        return seen;
    }
    let closed = db.close();
    drop(db);
    if let Err(error) = closed {
        return Seen::Wrong(format!("the database does not close: {error}"));
    }
    match open(exhibit, &disk.kill()) {
        Ok(db) => sum_up(&ask(&db, &exhibit.tables)),
        Err(error) => Seen::Wrong(format!("after an orderly close it does not open: {error}")),
    }
}

/// Entries of indexes can be made anew from rows, so no damage of theirs keeps the rest from opening (rule D39).
fn opening_refused(flip: &Flip, error: &pbxt::Error) -> Seen {
    if flip.kind == INDEX_RUNS {
        return Seen::Wrong(format!("damage of index entries refuses all: {error}"));
    }
    match refusal("open", error) {
        Answer::Detected(text) => Seen::Found(Finder::Opening, text),
        _ => Seen::Wrong(format!("refused without the name of a file: {error}")),
    }
}

/// One wrong answer is wrong, whatever else was detected.
fn sum_up(answers: &[Answer]) -> Seen {
    let wrong = answers.iter().find_map(|answer| match answer {
        Answer::Wrong(text) => Some(text.clone()),
        _ => None,
    });
    if let Some(text) = wrong {
        return Seen::Wrong(text);
    }
    let found = answers.iter().find_map(|answer| match answer {
        Answer::Detected(text) => Some((Finder::Reading, text)),
        _ => None,
    });
    let checked = || {
        answers.iter().find_map(|answer| match answer {
            Answer::Checked(text) => Some((Finder::Check, text)),
            _ => None,
        })
    };
    match found.or_else(checked) {
        Some((finder, text)) => Seen::Found(finder, text.clone()),
        None => Seen::Harmless,
    }
}

/// True if the bit is one of the batch that nothing behind it claims to be durable (rule D5).
fn is_last_commit(exhibit: &Exhibit, flip: &Flip) -> bool {
    let (segment, sector) = (geometry().hot_segment_bytes, SECTOR_BYTES as u64);
    // Batches begin with a sector; the position lies behind the header of the next one.
    let from = exhibit.last_commit.raw() / sector * sector;
    let place = exhibit.cover.header_bytes() + from % segment;
    *flip.file == format!("hot-{:08x}.seg", from / segment) && flip.offset() >= place
}

fn without_last(tables: &Tables) -> Tables {
    let mut tables = tables.clone();
    for rows in tables.values_mut() {
        rows.remove(&LAST);
    }
    tables
}

/// Examines all flips, on every processor; a panic is a wrong answer, and a hang ends the process with a word.
fn run(exhibit: &Exhibit, flips: &[Flip], tally: &Mutex<Tally>) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let at_work: Vec<Mutex<Option<(usize, Instant)>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let one = |number: usize, flip: &Flip| {
        let lives_on = (number as u64).is_multiple_of(SECOND_LIFE);
        let seen = catch_unwind(AssertUnwindSafe(|| examine(exhibit, flip, lives_on)));
        let seen = seen.unwrap_or_else(|_| Seen::Wrong("a panic".into()));
        held(tally).note(exhibit, flip, &seen);
    };
    let work = |place: &Mutex<Option<(usize, Instant)>>| {
        while let Some((number, flip)) = next_of(&next, flips) {
            *held(place) = Some((number, Instant::now()));
            one(number, flip);
        }
        *held(place) = None;
    };
    std::thread::scope(|scope| {
        let work = &work;
        let begin = |place| scope.spawn(move || work(place));
        let workers: Vec<_> = at_work.iter().map(begin).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            for place in &at_work {
                let work = *held(place);
                if let Some((number, _)) = work.filter(|(_, since)| since.elapsed() > PATIENCE) {
                    eprintln!("no answer within {PATIENCE:?}: {}", flips[number].text(exhibit));
                    std::process::abort();
                }
            }
        }
    });
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_of<'f>(next: &AtomicUsize, flips: &'f [Flip]) -> Option<(usize, &'f Flip)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    flips.get(number).map(|flip| (number, flip))
}

fn print(name: &str, lines: &BTreeMap<&'static str, Line>, took: Duration) {
    let mut total = Line::default();
    println!("{name}, {:.0} s:", took.as_secs_f64());
    println!(
        "| {:22} | {:>5} | {:>7} | {:>8} | {:>8} | {:>8} | {:>6} | {:>9} | {:>5} | {:>8} | {:>5} |",
        "kind of file",
        "files",
        "bytes",
        "flips",
        "at open",
        "reading",
        "check",
        "elsewhere",
        "cut",
        "harmless",
        "wrong"
    );
    for (kind, line) in lines {
        line.print(kind);
        total.add(line);
    }
    total.print("all");
}

fn stride() -> u64 {
    let wanted = std::env::var("PBXT_FLIP_STRIDE").ok();
    wanted.map_or(STRIDE, |text| {
        text.parse().expect("PBXT_FLIP_STRIDE is a number from 1 on")
    })
}

/// The flip that `PBXT_FLIP` names, if it is one of this exhibit.
fn named_flip(exhibit: &Exhibit) -> Option<Vec<Flip>> {
    let text = std::env::var("PBXT_FLIP").ok()?;
    let parts: Vec<&str> = text.split(':').collect();
    let [whose, file, offset, bit] = parts[..] else {
        panic!("PBXT_FLIP is END:FILE:OFFSET:BIT, not {text}");
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let flip = Flip {
        kind: "named",
        file: file.into(),
        bit: number(offset) * 8 + number(bit),
    };
    Some(if whose == name_of(exhibit) {
        vec![flip]
    } else {
        Vec::new()
    })
}

fn flip_all(end: End, cover: Cover) {
    let exhibit = Exhibit::new(end, cover);
    let sound = open(&exhibit, &exhibit.disk.kill()).expect("the exhibit opens");
    let sound = sum_up(&ask(&sound, &exhibit.tables));
    assert!(matches!(sound, Seen::Harmless), "without any flip: {sound:?}");
    let strides = match cover {
        Cover::Plain => 1,
        Cover::Encrypted => ENCRYPTED_STRIDES,
    };
    let (planned, tally) = plan(&exhibit, stride() * strides);
    assert_eq!(
        tally.lines.len(),
        KINDS,
        "TR1: every kind of file is there: {tally:?}"
    );
    let (flips, tally) = (named_flip(&exhibit).unwrap_or(planned), Mutex::new(tally));
    let begin = Instant::now();
    run(&exhibit, &flips, &tally);
    let Tally { lines, wrong } = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&name_of(&exhibit), &lines, begin.elapsed());
    let told = wrong.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "TR1: {} flips, of them\n{told}", wrong.len());
}

#[test]
fn no_flipped_bit_of_a_closed_database_gives_a_wrong_answer() {
    flip_all(End::Closed, Cover::Plain);
}

#[test]
fn no_flipped_bit_of_a_killed_database_gives_a_wrong_answer_or_loses_more_than_the_last_commit() {
    flip_all(End::Killed, Cover::Plain);
}

#[test]
fn no_flipped_bit_of_a_closed_encrypted_database_gives_a_wrong_answer() {
    flip_all(End::Closed, Cover::Encrypted);
}

#[test]
fn no_flipped_bit_of_a_killed_encrypted_database_gives_a_wrong_answer_or_loses_more_than_the_last_commit() {
    flip_all(End::Killed, Cover::Encrypted);
}

/// A net that could not fail would prove nothing: rows that should be there and are not, and the other way round, are noticed.
#[test]
fn a_row_too_many_or_too_few_or_another_one_is_a_wrong_answer() {
    let exhibit = Exhibit::new(End::Closed, Cover::Plain);
    let db = open(&exhibit, &exhibit.disk.kill()).expect("the exhibit opens");
    let mut fewer = exhibit.tables.clone();
    let taken = fewer.get_mut("young").and_then(|rows| rows.remove(&3));
    let mut more = exhibit.tables.clone();
    let rows = more.get_mut("old").expect("a table");
    rows.insert(3000, taken.expect("a row"));
    let mut other = exhibit.tables.clone();
    let rows = other.get_mut("old").expect("a table");
    rows.get_mut(&7).expect("a row").memo = Some(vec![7; 2000].into());
    for (what, expected) in [("fewer", fewer), ("more", more), ("other", other)] {
        let seen = sum_up(&ask(&db, &expected));
        assert!(matches!(seen, Seen::Wrong(_)), "{what}: {seen:?}");
    }
}

/// Two bits that undo each other are no damage; one of them is, wherever a file is read through a checksum.
#[test]
fn a_flip_is_found_and_flipping_back_mends_it() {
    let exhibit = Exhibit::new(End::Closed, Cover::Plain);
    let flip_in = |disk: &SimDisk, file: &str| disk.flip_bit(file, 4100, 2).expect("a byte");
    let (_, file) = exhibit
        .kinds()
        .into_iter()
        .find(|(kind, _)| *kind == "row pieces")
        .expect("a file of rows");
    let disk = exhibit.disk.kill();
    flip_in(&disk, &file);
    let db = open(&exhibit, &disk).expect("blocks are not read at an opening");
    let seen = sum_up(&ask(&db, &exhibit.tables));
    assert!(matches!(seen, Seen::Found(Finder::Reading, _)), "TR2: {seen:?}");
    drop(db);
    let disk = exhibit.disk.kill();
    flip_in(&disk, &file);
    flip_in(&disk, &file);
    let db = open(&exhibit, &disk).expect("whole again");
    assert!(matches!(sum_up(&ask(&db, &exhibit.tables)), Seen::Harmless));
}
