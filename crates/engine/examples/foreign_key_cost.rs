//! What foreign keys cost: a load of children with few and with many parents, with and without checks; one parent deleted with all its
//! children. `cargo run --release --example foreign_key_cost -p pbxt [children] [dir]`; the directory must be empty or missing.

#[path = "../tests/common/family.rs"]
mod family;

use family::{Opened, Plan, Row, User, encode, record, row};
use pbxt::{Action, Database, Options, Result};
use pbxt_io::OsDisk;
use std::sync::Arc;
use std::time::Instant;

fn load(user: &mut User, table: &Opened, rows: impl Iterator<Item = Row>, count: u64) -> Result<()> {
    user.statement(table, |session, cursor| {
        cursor.bulk_begin(session, count, false);
        for row in rows {
            cursor.insert(session, record(&encode(&row)))?;
        }
        cursor.bulk_end(session, false)
    })?;
    user.session.commit()
}

fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let done = work()?;
    println!("{what:60} {:>8.2} s", began.elapsed().as_secs_f64());
    Ok(done)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u32 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000);
    let dir = arguments.next().unwrap_or_else(|| "foreign_key_cost".into());
    let options = Options {
        cache_bytes: 512 << 20,
        ..Options::default()
    };
    let disk = OsDisk::open(std::path::Path::new(&dir), true).expect("a directory for the database");
    let db = Database::open(Arc::new(disk), &options)?;
    let parent = Opened::create(&db, Plan::new("d/p", 2));
    let plan = |name: &str| {
        Plan::new(&format!("d/{name}"), 2).key(name, &[1], "d/p", &[0], Action::Cascade, Action::Cascade)
    };
    let mut user = User::waiting(&db, 1, 50_000);
    load(
        &mut user,
        &parent,
        (0..count).map(|id| row(&[id, 0])),
        count.into(),
    )?;
    for (name, parents, checks) in [
        ("unchecked", 10, false),
        ("few", 10, true),
        ("many", count, true),
        ("one", 1, true),
    ] {
        let child = Opened::create(&db, plan(name));
        user.checks = checks;
        let rows = (0..count).map(|id| row(&[id, id % parents]));
        let what = format!("load of {count} children of {parents} parents, checks {checks}");
        timed(&what, || load(&mut user, &child, rows, count.into()))?;
        user.checks = true;
        if name == "one" {
            timed("deletion of the one parent of a tenth and of all", || {
                user.delete(&parent, 0)?;
                user.session.commit()
            })?;
        }
    }
    // The same with children that were inserted row by row and stand in memory.
    let child = Opened::create(&db, plan("hot"));
    timed(&format!("{count} children inserted row by row"), || {
        user.insert_all(&child, &(0..count).map(|id| row(&[id, 1])).collect::<Vec<_>>())?;
        user.session.commit()
    })?;
    timed("deletion of their parent", || {
        user.delete(&parent, 1)?;
        user.session.commit()
    })?;
    Ok(())
}
