//! Three rows, and sessions that see them in their own ways: what tests of snapshots and conflicts share.

#![allow(dead_code, reason = "each test file uses a part of this")]

use crate::common::{Bench, row};
use pbxt::{ConflictMode, Isolation, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable};

pub(crate) fn with(bench: &Bench, isolation: Isolation, conflict_mode: ConflictMode) -> Client {
    let mut client = bench.other(5);
    client.session.configure(SessionConfig {
        isolation,
        conflict_mode,
        lock_wait_timeout_ms: 0,
        ..SessionConfig::default()
    });
    client
}

pub(crate) fn waiting(bench: &Bench) -> Client {
    with(bench, Isolation::RepeatableRead, ConflictMode::Wait)
}

pub(crate) fn read(client: &mut Client, table: &PlayTable) -> Vec<u32> {
    let rows = client
        .agreed(table)
        .expect("readable")
        .unwrap_or_else(|differs| panic!("{differs}"));
    rows.into_iter().map(|(_, row)| row.id).collect()
}

/// Rows 1, 2, 3.
pub(crate) fn three() -> (Bench, Vec<RowId>) {
    let mut bench = Bench::new();
    let rows = bench
        .client
        .insert_all(&bench.table, &[row(1), row(2), row(3)])
        .expect("new rows");
    bench.client.session.commit().expect("a commit");
    (bench, rows)
}

pub(crate) fn renumber(client: &mut Client, table: &PlayTable, row: RowId, id: u32) -> pbxt::Result<()> {
    client
        .update(table, row, |old| PlayRow { id, ..old.clone() })
        .map(|_| ())
}
