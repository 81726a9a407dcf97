//! What background work costs: bytes written and read for rows inserted in order and then updated at random, time of the
//! steps, and space against the compacted size. `cargo run --release --example storage_cost -p pbxt [rows] [updates] [dir]`; the
//! directory must be empty or missing.

use pbxt::{Database, Options, Progress, Result};
use pbxt_io::OsDisk;
use pbxt_segment::{Geometry, SegmentClass};
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};
use pbxt_testkit::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn row(id: u32, rng: &mut Rng) -> PlayRow {
    let mut row = PlayRow::new(id);
    let mut memo = vec![0; 60];
    rng.fill(&mut memo[..30]);
    row.memo = Some(Arc::from(memo));
    row
}

/// Bytes of cold files.
fn cold_bytes(db: &Database) -> Result<u64> {
    let mut bytes = 0;
    for id in db.store().list(SegmentClass::Cold)? {
        bytes += db.store().file(SegmentClass::Cold, id)?.len()?;
    }
    Ok(bytes)
}

/// Background work as its thread would do it while the foreground goes on.
fn upkeep(db: &Database, is_idle: bool, spent: &mut Duration) -> Result<()> {
    let began = Instant::now();
    db.housekeeping_step();
    while db.upkeep_step(is_idle)? == Progress::Worked {}
    if db.checkpoint_due() || is_idle {
        db.checkpoint_step()?;
    }
    *spent += began.elapsed();
    Ok(())
}

fn report(db: &Database, what: &str, foreground: Duration, background: Duration) -> Result<()> {
    let counters = db.upkeep_counters();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{what}: foreground {foreground:.1?}, background {background:.1?}; log {:.0} MiB, homed {:.0} MiB, merges read {:.0} wrote {:.0} MiB, cold files {:.0} MiB, hot log {:.0} MiB",
        mib(db.log().tail().raw()),
        mib(counters.homing_bytes_written.get()),
        mib(counters.merge_bytes_read.get()),
        mib(counters.merge_bytes_written.get()),
        mib(cold_bytes(db)?),
        mib(db.hot_bytes()),
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows: u32 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300_000);
    let updates: u32 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000);
    let path = arguments.next().unwrap_or_else(|| "build/storage-cost".into());
    let disk = OsDisk::open(std::path::Path::new(&path), true)?;
    let options = Options {
        geometry: Geometry {
            hot_segment_bytes: 8 << 20,
            ..Geometry::default()
        },
        cache_bytes: 128 << 20,
        background: false,
        ..Options::default()
    };
    let db = Database::open(Arc::new(disk), &options)?;
    let table = PlayTable::create(&db, "t")?;
    let mut client = Client::new(&db, 1);
    let mut rng = Rng::new(7);
    let (began, mut spent) = (Instant::now(), Duration::ZERO);
    let mut ids = Vec::new();
    for first in (0..rows).step_by(1000) {
        let batch: Vec<_> = (first..first + 1000).map(|id| row(id, &mut rng)).collect();
        ids.extend(client.insert_all(&table, &batch)?);
        client.session.commit()?;
        upkeep(&db, false, &mut spent)?;
    }
    report(&db, "inserted", began.elapsed().saturating_sub(spent), spent)?;
    upkeep(&db, true, &mut spent)?;
    report(&db, "and homed", began.elapsed().saturating_sub(spent), spent)?;
    let compacted = cold_bytes(&db)?;
    let (began, mut spent, mut most) = (Instant::now(), Duration::ZERO, 0);
    for number in 0..updates {
        let at = rng.below(u64::from(rows)) as usize;
        let new = row(at as u32, &mut rng);
        client.update(&table, ids[at], |_| new)?;
        if number % 500 == 499 {
            client.session.commit()?;
            upkeep(&db, false, &mut spent)?;
            most = most.max(cold_bytes(&db)?);
        }
    }
    client.session.commit()?;
    report(&db, "updated", began.elapsed().saturating_sub(spent), spent)?;
    upkeep(&db, true, &mut spent)?;
    report(&db, "and settled", began.elapsed().saturating_sub(spent), spent)?;
    let findings = client.check(&table)?;
    println!("the check finds {findings:?}");
    println!(
        "most cold bytes {:.2} times the compacted ones",
        most as f64 / compacted as f64
    );
    Ok(())
}
