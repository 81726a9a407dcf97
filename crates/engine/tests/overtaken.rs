//! Changes over versions that the snapshot of the writer does not see: the writer finds its rows once, under the keys they have (rule T11).

mod common;
#[path = "common/family.rs"]
mod family;
#[path = "common/three.rs"]
mod three;

use common::{Bench, put, row};
use family::{Opened, Plan, User};
use pbxt::host::{HostIndex, HostTable, TableHost};
use pbxt::{Bind, ConflictMode, Database, Error, Isolation, Options, Session};
use pbxt_base::RowId;
use pbxt_rows::{KeyEncoding, KeyPart, KeySpec, Weigher, WeightScheme};
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::SimDisk;
use std::sync::Arc;
use three::{read, renumber, three, waiting, with};

/// Rows of a load that takes the way around the log.
const LOADED: u32 = 3_000;

#[test]
fn a_newer_version_overtaken_is_found_once_under_its_own_key_and_counted() {
    // T11, in conflict mode wait: the change is made over a version that the snapshot does not see.
    for id in [7, 1] {
        let (mut bench, rows) = three();
        let mut late = waiting(&bench);
        assert_eq!(read(&mut late, &bench.table), [1, 2, 3]);
        renumber(&mut bench.client, &bench.table, rows[0], 20).unwrap();
        let new = bench.client.insert(&bench.table, &row(4)).unwrap();
        bench.client.session.commit().unwrap();
        renumber(&mut late, &bench.table, rows[0], id).unwrap();
        assert_eq!(read(&mut late, &bench.table)[0], id);
        late.update(&bench.table, new, |old| PlayRow {
            group: Some(9),
            ..old.clone()
        })
        .unwrap();
        assert_eq!(
            read(&mut late, &bench.table),
            [id, 2, 3, 4],
            "what it changed it sees"
        );
        late.delete(&bench.table, new).unwrap();
        assert_eq!(read(&mut late, &bench.table), [id, 2, 3]);
        late.session.commit().unwrap();
        drop(late);
        bench.settle();
        bench.reopen();
        assert_eq!(read(&mut bench.client, &bench.table), [id, 2, 3]);
    }
}

/// Gives a row several new contents, one after the other, within one statement.
fn rewrite(session: &mut Session, table: &PlayTable, row: RowId, contents: &[PlayRow]) -> pbxt::Result<()> {
    for pair in contents.windows(2) {
        let (keys, payload) = (
            table.key_changes(Some(&pair[0]), &pair[1])?,
            table.encode(&pair[1])?,
        );
        let version = pbxt::NewVersion {
            payload: &payload,
            schema_version: table.schema_version(),
            keys: &keys,
        };
        session.update(&table.table, row, version)?;
    }
    Ok(())
}

fn in_group(group: u32) -> PlayRow {
    PlayRow {
        group: Some(group),
        ..row(1)
    }
}

fn noted(old: &PlayRow) -> PlayRow {
    PlayRow {
        memo: Some(Arc::from(&b"seen"[..])),
        ..old.clone()
    }
}

#[test]
fn a_row_changed_twice_in_one_statement_is_overtaken_under_the_keys_before_and_after_both() {
    // T11, T24: the first of the two changes is what says under which key the snapshot has the row.
    let named = |name: &str, group| PlayRow {
        name: name.into(),
        ..in_group(group)
    };
    let lives = [
        vec![row(1), in_group(5), in_group(6)],
        vec![row(1), in_group(5), noted(&in_group(5))],
        vec![row(1), named("x", 5), named("x", 6), noted(&named("x", 6))],
        vec![row(1), in_group(5), row(1)],
    ];
    for contents in &lives {
        for own in [None, Some(7), Some(5), Some(6)] {
            let (mut bench, rows) = three();
            let mut late = waiting(&bench);
            assert_eq!(read(&mut late, &bench.table), [1, 2, 3]);
            let Bench { client, table, .. } = &mut bench;
            let changed = client.statement(|session| rewrite(session, table, rows[0], contents));
            changed.expect("changed");
            bench.client.session.commit().expect("a commit");
            late.update(&bench.table, rows[0], |old| PlayRow {
                group: own.or(old.group),
                memo: Some(Arc::from(&b"mine"[..])),
                ..old.clone()
            })
            .expect("overtaken");
            assert_eq!(read(&mut late, &bench.table), [1, 2, 3], "{contents:?}, {own:?}");
            late.session.commit().expect("a commit");
            drop(late);
            bench.settle();
            bench.reopen();
        }
    }
}

#[test]
fn a_row_that_came_and_was_changed_in_one_statement_is_overtaken_under_every_key() {
    // T11: the host alone can make the key by name, and the insert has it.
    let (mut bench, _) = three();
    let mut late = waiting(&bench);
    assert_eq!(read(&mut late, &bench.table), [1, 2, 3]);
    let (table, new) = (bench.table.clone(), row(4));
    let came = bench.client.statement(|session| {
        let (keys, payload) = (table.key_changes(None, &new)?, table.encode(&new)?);
        let version = pbxt::NewVersion {
            payload: &payload,
            schema_version: table.schema_version(),
            keys: &keys,
        };
        let came = session.insert(&table.table, version)?;
        rewrite(session, &table, came, &[new.clone(), noted(&new)])?;
        Ok(came)
    });
    let came = came.expect("inserted");
    bench.client.session.commit().expect("a commit");
    late.update(&bench.table, came, |old| PlayRow {
        memo: None,
        ..old.clone()
    })
    .expect("overtaken");
    assert_eq!(read(&mut late, &bench.table), [1, 2, 3, 4]);
    late.session.commit().expect("a commit");
    bench.settle();
}

#[test]
fn what_a_statement_overtakes_under_read_committed_it_finds_under_its_own_key() {
    // T11: one snapshot serves a statement with all that its triggers do; the next statement has another one.
    let (mut bench, rows) = three();
    let mut late = with(&bench, Isolation::ReadCommitted, ConflictMode::Error);
    let table = bench.table.clone();
    late.session.begin_statement().expect("a statement");
    late.session.snapshot();
    renumber(&mut bench.client, &table, rows[0], 20).expect("renumbered");
    let new = bench.client.insert(&table, &row(4)).expect("inserted");
    bench.client.session.commit().expect("a commit");
    // What stands between begin and end of the outer statement belongs to it.
    let mine = PlayRow { id: 20, ..row(1) };
    rewrite(&mut late.session, &table, rows[0], &[mine.clone(), noted(&mine)]).expect("overtaken");
    rewrite(&mut late.session, &table, new, &[row(4), noted(&row(4))]).expect("overtaken");
    let (seen, count) = within(&mut late.session, &table);
    assert_eq!((seen, count), (vec![2, 3, 4, 20], 4), "T11");
    late.session.end_statement();
    let mut seen = read(&mut late, &table);
    seen.sort_unstable();
    assert_eq!(seen, [2, 3, 4, 20], "its snapshot has the row now");
    late.session.commit().expect("a commit");
    bench.settle();
}

/// Orders numbers the other way around, as a collation of the host might.
#[derive(Debug)]
struct Inverted;

impl Weigher for Inverted {
    fn weights(&self, _part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        out.extend(src.iter().map(|byte| !byte));
    }

    fn context(&self, _collation: u32, _length: u32, _is_prefix: bool, _is_char: bool) -> Option<usize> {
        Some(0)
    }
}

impl TableHost for Inverted {}

/// A table of three numbers with an index on the second whose keys the host makes.
fn inverted() -> (Arc<Database>, Opened) {
    let options = Options {
        host: Some(Arc::new(Inverted)),
        ..family::options()
    };
    let db = Database::open(Arc::new(SimDisk::new()), &options).expect("the database opens");
    let plan = Plan::new("t", 3).index(&[1]);
    let mut definition = plan.definition();
    let part = KeyPart {
        column: 1,
        length: 4,
        prefix: false,
        nullable: true,
        descending: false,
        encoding: KeyEncoding::Host {
            collation: 1,
            scheme: WeightScheme::FixedLen(4),
        },
    };
    definition.indexes[1].spec = KeySpec::new(vec![part], false).expect("a part");
    let index = |index: &pbxt::IndexDef| HostIndex {
        contexts: vec![0; index.spec.parts().len()],
        spec: index.spec.clone(),
    };
    let indexes: Vec<HostIndex> = definition.indexes.iter().map(index).collect();
    db.create_table(definition, 1).expect("a new table");
    let host = HostTable::open(&db, "t", plan.layout(), &indexes, Arc::new(Inverted)).expect("opened");
    let host = Arc::new(host);
    (db, Opened { plan, host })
}

#[test]
fn a_row_of_a_load_is_overtaken_under_the_keys_that_the_host_makes() {
    // T11: there is no record of it, and so no image.
    let (db, table) = inverted();
    let mut late = User::new(&db, 2).with_mode(ConflictMode::Wait);
    assert!(late.rows(&table).is_empty());
    let mut loader = User::new(&db, 1);
    let loaded = loader.statement(&table, |session, cursor| {
        cursor.bulk_begin(session, u64::MAX, false);
        for id in 1..=LOADED {
            let new = family::encode(&family::row(&[id, 2 * id, 0]));
            cursor.insert(session, family::record(&new))?;
        }
        cursor.bulk_end(session, false)
    });
    loaded.expect("loaded");
    loader.commit();
    let new = family::row(&[5, 10, 1]);
    assert!(late.update(&table, 5, &new).expect("overtaken"));
    let by_index = late.statement(&table, |session, cursor| {
        let mut buffer = family::encode(&new);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 1)?;
        let mut rows = Vec::new();
        let mut found = cursor.index_edge(session, false, &mut buffer)?;
        while found {
            rows.push(family::decode(&buffer, 3));
            found = cursor.index_move(session, true, false, &mut buffer)?;
        }
        Ok(rows)
    });
    assert_eq!(by_index.expect("readable"), std::slice::from_ref(&new), "T11");
    assert_eq!(late.rows(&table), [new]);
    late.commit();
    late.check(&table);
}

#[test]
fn a_row_of_a_load_whose_keys_nobody_can_make_is_a_conflict() {
    // T11: the catalog knows no records of this table.
    let mut bench = Bench::new();
    let mut late = waiting(&bench);
    assert!(read(&mut late, &bench.table).is_empty());
    let table = bench.table.clone();
    let loaded = bench.client.statement(|session| {
        session.bulk_begin(&table.table, u64::MAX, false);
        for id in 1..=LOADED {
            put(session, &table, &row(id))?;
        }
        session.bulk_end(&table.table, false)
    });
    loaded.expect("loaded");
    bench.client.session.commit().expect("a commit");
    let rows = bench.client.scan(&bench.table).expect("readable");
    let refused = late.update(&bench.table, rows[4].0, noted);
    assert!(matches!(refused, Err(Error::WriteConflict { .. })), "{refused:?}");
    late.delete(&bench.table, rows[5].0)
        .expect("a deletion makes no key");
    assert!(read(&mut late, &bench.table).is_empty());
    late.session.commit().expect("a commit");
    bench.settle();
}

/// Ids by the primary key and the number of rows, as the running statement has them.
fn within(session: &mut Session, table: &PlayTable) -> (Vec<u32>, u64) {
    let mut cursor = pbxt::Cursor::new(&table.table);
    cursor.bind(session, Bind::default()).expect("bound");
    cursor.index_start(session, 0).expect("a scan");
    let mut seen = Vec::new();
    let mut show = |version: &pbxt::RowVersion<'_>| {
        seen.push(table.decode(version.payload())?.id);
        Ok(())
    };
    let mut found = cursor.index_edge(session, false, &mut show).expect("readable");
    while found {
        found = cursor
            .index_move(session, true, false, &mut show)
            .expect("readable");
    }
    (seen, session.count(&table.table).expect("a count"))
}
