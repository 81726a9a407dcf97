//! How fast rows go into a bulk load with four indexes, and how large they come out.
//!
//! `cargo run --release -p pbxt --example bulk_speed [rows] [random]` prints what a row costs its sender (beside making it) and
//! the whole load. With `random`, primary keys come in no order.

use pbxt::{Database, NewVersion, Options, Result, Session};
use pbxt_io::OsDisk;
use pbxt_sim::table::{PlayRow, PlayTable};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn row(number: u32, random: bool) -> PlayRow {
    let mixed = number.wrapping_mul(2_654_435_761);
    PlayRow {
        group: Some(mixed % 1000),
        tag: Some(mixed),
        name: format!("name {}", mixed % 50_000).into_bytes(),
        ..PlayRow::new(if random { mixed } else { number })
    }
}

fn put(session: &mut Session, table: &PlayTable, row: &PlayRow, load: bool) -> Result<usize> {
    let keys = table.key_changes(None, row)?;
    let payload = table.encode(row)?;
    if load {
        let version = NewVersion {
            payload: &payload,
            schema_version: table.schema_version(),
            keys: &keys,
        };
        session.insert_or_load(&table.table, version)?;
    }
    Ok(payload.len())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows: u32 = arguments
        .first()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000_000);
    let random = arguments.iter().any(|argument| argument == "random");
    let directory = std::env::temp_dir().join(format!("pbxt-bulk-speed-{}", std::process::id()));
    let disk = Arc::new(OsDisk::open(&directory, true)?);
    let db = Database::open(disk, &Options::default())?;
    let table = PlayTable::create(&db, "t")?;
    let mut session = Session::open(&db, 1, 1);

    let begun = Instant::now();
    let mut bytes = 0;
    for number in 0..rows {
        bytes += put(&mut session, &table, &row(number, random), false)?;
    }
    let making = begun.elapsed();
    session.begin_statement()?;
    session.bulk_begin(&table.table, u64::from(rows), false);
    let begun = Instant::now();
    for number in 0..rows {
        put(&mut session, &table, &row(number, random), true)?;
    }
    let adding = begun.elapsed();
    session.bulk_end(&table.table, false)?;
    let all = begun.elapsed();
    session.end_statement();
    session.commit()?;
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(rows);
    println!(
        "{rows} rows of {} bytes with 4 indexes, primary key {}",
        bytes / rows as usize,
        if random { "random" } else { "rising" }
    );
    println!("making a row    {:7.0} ns", each(making));
    println!("adding a row    {:7.0} ns", each(adding) - each(making));
    println!("ending the load {:7.0} ns a row", each(all) - each(adding));
    println!(
        "the load        {:7.2} s",
        all.as_secs_f64() - making.as_secs_f64()
    );
    print_files(&directory);
    drop(session);
    drop(table);
    db.close()?;
    // What cannot be removed lies in the directory for temporary files.
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}

fn print_files(directory: &std::path::Path) {
    let Ok(files) = std::fs::read_dir(directory) else {
        return;
    };
    let mut sizes: Vec<(String, u64)> = files
        .flatten()
        .filter_map(|file| {
            Some((
                file.file_name().to_string_lossy().into_owned(),
                file.metadata().ok()?.len(),
            ))
        })
        .collect();
    sizes.sort();
    for (name, size) in sizes {
        println!("{size:12} {name}");
    }
}
