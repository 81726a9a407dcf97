//! Tell: an anomaly in words, with the transactions that have to do with it and nothing else.

use crate::history::graph::{Edge, Why};
use crate::history::judge::Anomaly;
use crate::history::record::{Content, End, Op, Predicate, Read, Record, TxnNo, VersionNo};
use std::fmt::Write;

/// Columns by name.
const NAMES: [&str; 4] = ["id", "group", "tag", "name"];

/// What is wrong, the cycle if it is one, and what its transactions did, in the order in which it happened.
pub(super) fn tell(record: &Record, anomaly: &Anomaly) -> String {
    let mut text = format!("{}: {}\n", anomaly.kind, anomaly.what);
    for edge in &anomaly.cycle {
        let _ = writeln!(text, "  {}", tell_edge(record, edge));
    }
    let mut lines = Vec::new();
    let mut txns = anomaly.txns.clone();
    txns.sort_unstable();
    txns.dedup();
    for txn in txns {
        lines_of(record, txn, &mut lines);
    }
    lines.sort();
    for (moment, line) in lines {
        let _ = writeln!(text, "  {moment:>7} {line}");
    }
    text
}

fn tell_edge(record: &Record, edge: &Edge) -> String {
    let Edge {
        from, to, version, ..
    } = edge;
    let how = match (edge.why, edge.by_predicate) {
        (Why::Overwritten, _) => "ww: the second wrote over the first one's version".to_owned(),
        (Why::ReadBy, false) => "wr: the second saw the version".to_owned(),
        (Why::ReadBy, true) => "wr: the second asked by a condition that the version left".to_owned(),
        (Why::ReadBefore, false) => "rw: the first saw the version that this one replaced".to_owned(),
        (Why::ReadBefore, true) => {
            "rw: the first asked by a condition that the version came to meet".to_owned()
        }
    };
    format!(
        "T{from} before T{to} by {}, {how}",
        tell_version(record, *version)
    )
}

fn tell_version(record: &Record, number: VersionNo) -> String {
    let version = &record.versions[number];
    let (table, row) = version.row;
    format!(
        "v{number} = t{table} row {row} {}",
        tell_content(version.content.as_ref())
    )
}

fn tell_content(content: Option<&Content>) -> String {
    let Some(content) = content else {
        return "deleted".to_owned();
    };
    let values: Vec<String> = content
        .values
        .iter()
        .map(|value| value.map_or("-".to_owned(), |value| value.to_string()))
        .collect();
    format!("({})", values.join(" "))
}

fn tell_predicate(predicate: &Predicate) -> String {
    let Predicate {
        table,
        column,
        low,
        high,
    } = predicate;
    if (*low, *high) == (0, u32::MAX) {
        format!("t{table}")
    } else {
        format!("t{table} where {} between {low} and {high}", NAMES[*column])
    }
}

fn tell_read(record: &Record, read: &Read) -> String {
    let how = match (read.how.as_of, read.how.locks) {
        (Some(as_of), false) => format!("as of {as_of}"),
        (Some(as_of), true) => format!("as of {as_of}, locked"),
        (None, _) => "newest, locked".to_owned(),
    };
    let part = if read.how.whole { "" } else { ", in part" };
    let seen: Vec<String> = read
        .seen
        .iter()
        .map(|(number, _)| {
            let writer = record.versions[*number].writer;
            let row = record.versions[*number].row.1;
            let content = tell_content(record.versions[*number].content.as_ref());
            format!("v{number} of T{writer} = row {row} {content}")
        })
        .collect();
    let seen = if seen.is_empty() {
        "nothing".to_owned()
    } else {
        seen.join(", ")
    };
    format!("reads {} ({how}{part}): {seen}", tell_predicate(&read.predicate))
}

fn lines_of(record: &Record, number: TxnNo, lines: &mut Vec<(u64, String)>) {
    let txn = &record.txns[number];
    let level = txn.level;
    lines.push((
        txn.began,
        format!("T{number} begins, {:?} {:?}", level.isolation, level.conflict),
    ));
    for op in &txn.ops {
        let (moment, what) = match op {
            Op::Snapshot(at) => (*at, "takes its snapshot".to_owned()),
            Op::Read(read) => (read.ended, tell_read(record, read)),
            Op::Write(version) => (
                record.versions[*version].written,
                format!("writes {}", tell_version(record, *version)),
            ),
            Op::Savepoint(at) => (*at, "sets a savepoint".to_owned()),
            Op::RolledBackTo(at, since) => (*at, format!("rolls back to the savepoint of {since}")),
            Op::Failed(at, why) => (*at, format!("fails in a statement: {why}")),
            Op::Waited(at) => (*at, "has to wait, and will begin this statement anew".to_owned()),
        };
        lines.push((moment, format!("T{number} {what}")));
    }
    match txn.end {
        End::Open => {}
        End::Committed(at) => lines.push((at, format!("T{number} commits"))),
        End::Aborted(at) => lines.push((at, format!("T{number} is rolled back"))),
    }
}
