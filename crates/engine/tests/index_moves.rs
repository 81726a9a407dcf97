//! Where an index scan stands when a search or a move has found nothing, and where it goes from there: rule X62 of indexes.md.

mod common;

use common::{Bench, row};
use pbxt::{Bind, Cursor, Isolation, Progress, Result, Seek, Session, SessionConfig};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::Rng;
use pbxt_txn::LockMode;

const BY_ID: usize = 0;
const BY_GROUP: usize = 1;
const IDS: u64 = 70;
const GROUPS: u64 = 12;

/// What is done with a scan.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Edge { last: bool },
    Search(Seek, u32),
    Move { forward: bool, same: bool },
}

/// Where the model stands: at this place of the list, or in front of it.
#[derive(Clone, Copy, Debug)]
enum Place {
    On(usize),
    Before(usize),
}

/// The rows of a table in the order of an index: each one's key as a number, and its id.
struct Model {
    rows: Vec<(u32, u32)>,
    place: Place,
    /// The key that the last search was for; none: any.
    sought: Option<u32>,
}

/// What the model has for a value: groups descend.
fn place_of(index: usize, value: u32) -> u32 {
    if index == BY_GROUP {
        u32::MAX - value
    } else {
        value
    }
}

impl Model {
    fn stand(&mut self, at: Option<usize>, otherwise: usize) -> Option<u32> {
        self.place = at.map_or(Place::Before(otherwise), Place::On);
        at.map(|at| self.rows[at].1)
    }

    fn search(&mut self, seek: Seek, key: u32) -> Option<u32> {
        self.sought = Some(key);
        let below = self.rows.partition_point(|row| row.0 < key);
        let upto = self.rows.partition_point(|row| row.0 <= key);
        let there = |at: usize| (at < self.rows.len()).then_some(at);
        match seek {
            Seek::Exact | Seek::Key => self.stand((below < upto).then_some(below), below),
            Seek::OrNext => self.stand(there(below), below),
            Seek::After => self.stand(there(upto), upto),
            Seek::OrPrev => self.stand(upto.checked_sub(1), upto),
            Seek::Before => self.stand(below.checked_sub(1), below),
            Seek::Last => self.stand((below < upto).then(|| upto - 1), upto),
        }
    }

    fn go(&mut self, forward: bool, same: bool) -> Option<u32> {
        let next = match (self.place, forward) {
            (Place::On(at), true) => Some(at + 1),
            (Place::Before(at), true) => Some(at),
            (Place::On(at) | Place::Before(at), false) => at.checked_sub(1),
        };
        let found = next.and_then(|next| self.rows.get(next)).copied();
        let is_wanted = |row: &(u32, u32)| !same || self.sought.is_none_or(|key| row.0 == key);
        if found.as_ref().is_some_and(is_wanted) {
            return self.stand(next, 0);
        }
        if let Place::On(at) = self.place {
            self.place = Place::Before(if forward { at + 1 } else { at });
        }
        None
    }

    fn play(&mut self, index: usize, deed: Deed) -> Option<u32> {
        match deed {
            Deed::Search(seek, key) => self.search(seek, place_of(index, key)),
            Deed::Move { forward, same } => self.go(forward, same),
            Deed::Edge { last } => {
                self.sought = None;
                let count = self.rows.len();
                let at = if last { count.checked_sub(1) } else { Some(0) };
                self.stand(at.filter(|at| *at < count), 0)
            }
        }
    }
}

fn play(
    session: &mut Session,
    (table, index): (&PlayTable, usize),
    cursor: &mut Cursor,
    deed: Deed,
) -> Result<Option<u32>> {
    let mut shown = None;
    let show = |version: &pbxt::RowVersion<'_>| {
        shown = Some(table.decode(version.payload())?.id);
        Ok(())
    };
    let found = match deed {
        Deed::Edge { last } => cursor.index_edge(session, last, show),
        Deed::Search(seek, key) => cursor.seek(session, &table.prefix(index, &[Some(key)]), seek, show),
        Deed::Move { forward, same } => cursor.index_move(session, forward, same, show),
    }?;
    Ok(shown.filter(|_| found))
}

/// Moves mostly; a key of a search is mostly one that no row has, or the first or last one. Who asks for more rows of a prefix has come to
/// it: `may_ask_same`.
fn some_deed(rng: &mut Rng, keys: u64, may_ask_same: bool) -> Deed {
    let seeks = [
        Seek::Exact,
        Seek::OrNext,
        Seek::After,
        Seek::OrPrev,
        Seek::Before,
        Seek::Last,
    ];
    match rng.below(10) {
        0 => Deed::Edge { last: rng.chance(50) },
        1..4 => Deed::Search(seeks[rng.below(6) as usize], rng.below(keys + 2) as u32),
        _ => Deed::Move {
            forward: rng.chance(50),
            same: may_ask_same && rng.chance(40),
        },
    }
}

/// Every third id, in every other group; some of them settled, some in the log, some deleted again.
fn world() -> Bench {
    let mut bench = Bench::new();
    let ids: Vec<u32> = (1..IDS as u32).step_by(3).collect();
    for part in common::shuffled(ids).chunks(8) {
        for &id in part {
            let group = Some(2 + id % GROUPS as u32 / 2 * 2);
            let new = PlayRow { group, ..row(id) };
            let at = bench.client.insert(&bench.table, &new).expect("inserted");
            if id % 5 == 0 {
                bench.client.delete(&bench.table, at).expect("deleted");
            }
        }
        bench.client.session.commit().expect("committed");
        bench.db.checkpoint_step().expect("a checkpoint");
    }
    bench
}

fn walk(client: &mut Client, table: &PlayTable, (index, bind): (usize, Bind), rng: &mut Rng, told: &str) {
    let session = &mut client.session;
    session.begin_statement().expect("begun");
    let mut cursor = Cursor::new(&table.table);
    cursor.bind(session, bind).expect("bound");
    cursor.index_start(session, index).expect("started");
    let mut rows = Vec::new();
    let mut all = cursor.index_edge(session, false, |_| Ok(())).expect("read");
    while all {
        rows.push(cursor.row());
        all = cursor.index_move(session, true, false, |_| Ok(())).expect("read");
    }
    let mut listed = Vec::new();
    for row in rows {
        cursor
            .fetch(session, row, |version| {
                let row = table.decode(version.payload())?;
                let key = place_of(
                    index,
                    if index == BY_ID {
                        row.id
                    } else {
                        row.group.unwrap_or_default()
                    },
                );
                listed.push((key, row.id));
                Ok(())
            })
            .expect("fetched");
    }
    let mut model = Model {
        rows: listed,
        place: Place::Before(0),
        sought: None,
    };
    cursor.index_start(session, index).expect("started");
    let keys = if index == BY_ID { IDS } else { GROUPS };
    let mut deeds = vec![Deed::Edge { last: false }];
    for _ in 0..60 {
        let deed = deeds[deeds.len() - 1];
        let expected = model.play(index, deed);
        let found = play(session, (table, index), &mut cursor, deed).expect("no failure");
        assert_eq!(found, expected, "X62: {told}, {bind:?}, {deeds:?}");
        let asked_same = matches!(deed, Deed::Search(..) | Deed::Move { same: true, .. });
        let may_ask_same = match model.place {
            Place::On(at) => model.sought.is_none_or(|key| model.rows[at].0 == key),
            Place::Before(_) => asked_same,
        };
        deeds.push(some_deed(rng, keys, may_ask_same));
    }
    drop(cursor);
    session.end_statement();
}

#[test]
fn a_scan_goes_on_from_where_it_found_nothing() {
    let mut bench = world();
    let mut rng = Rng::new(62);
    let mut serializable = bench.other(3);
    serializable.session.configure(SessionConfig {
        isolation: Isolation::Serializable,
        ..SessionConfig::default()
    });
    let locking = Bind {
        lock: Some(LockMode::Shared),
        ..Bind::default()
    };
    for round in 0..600 {
        for index in [BY_ID, BY_GROUP] {
            let told = format!("round {round}, index {index}");
            walk(
                &mut bench.client,
                &bench.table,
                (index, Bind::default()),
                &mut rng,
                &told,
            );
            walk(&mut bench.client, &bench.table, (index, locking), &mut rng, &told);
            bench.client.session.commit().expect("committed");
            walk(
                &mut serializable,
                &bench.table,
                (index, Bind::default()),
                &mut rng,
                &told,
            );
            serializable.session.commit().expect("committed");
        }
        if round == 300 {
            while bench.db.index_merge_step().expect("worked") == Progress::Worked {}
        }
    }
}
