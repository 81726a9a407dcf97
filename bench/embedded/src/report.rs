//! Report: what a run found, as lines for people or as one JSON object a line for `bench/compare`.

use crate::store::About;
use crate::workload::Measure;

/// What the whole run took of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// Text as JSON has it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => out.push(' '),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// How a store is used.
pub(crate) fn about_json(store: &str, about: &About) -> String {
    let fields = [
        ("store", store),
        ("version", about.version.as_str()),
        ("memory", about.memory.as_str()),
        ("synced", about.synced),
        ("relaxed", about.relaxed),
        ("load", about.load),
        ("compaction", about.compaction),
    ];
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, text)| format!("{}: {}", quoted(name), quoted(text)))
        .collect();
    format!("{{\"about\": {{{}}}}}", fields.join(", "))
}

/// One phase.
pub(crate) fn measure_json(measure: &Measure) -> String {
    format!(
        "{{\"phase\": {}, \"operations\": {}, \"seconds\": {:.6}, \"cpu_seconds\": {:.6}, \"disk_bytes\": {}, \"answer\": {}}}",
        quoted(&measure.phase),
        measure.operations,
        measure.seconds,
        measure.cpu_seconds,
        measure.disk_bytes,
        measure.answer
    )
}

/// The end.
pub(crate) fn totals_json(totals: &Totals) -> String {
    format!(
        "{{\"totals\": {{\"cpu_seconds\": {:.2}, \"peak_bytes\": {}, \"written_bytes\": {}}}}}",
        totals.cpu_seconds, totals.peak_bytes, totals.written_bytes
    )
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// One phase for people.
pub(crate) fn measure_text(measure: &Measure) -> String {
    let each = measure.seconds * 1e6 / measure.operations.max(1) as f64;
    format!(
        "{:26} {:10.3} s {:10.3} s cpu {:12.2} us each {:10.1} MiB on disk",
        measure.phase,
        measure.seconds,
        measure.cpu_seconds,
        each,
        mib(measure.disk_bytes)
    )
}

/// The end for people.
pub(crate) fn totals_text(totals: &Totals) -> String {
    format!(
        "{:26} {:.2} s of processor time, {:.1} MiB of memory at most, {:.1} MiB written",
        "all",
        totals.cpu_seconds,
        mib(totals.peak_bytes),
        mib(totals.written_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_every_figure_and_no_unfinished_text() {
        let measure = Measure {
            phase: "a \"b\"\n".into(),
            operations: 3,
            seconds: 1.5,
            cpu_seconds: 0.25,
            disk_bytes: 4096,
            answer: u64::MAX,
        };
        assert_eq!(
            measure_json(&measure),
            "{\"phase\": \"a \\\"b\\\" \", \"operations\": 3, \"seconds\": 1.500000, \"cpu_seconds\": 0.250000, \
             \"disk_bytes\": 4096, \"answer\": 18446744073709551615}"
        );
        let totals = Totals {
            cpu_seconds: 2.0,
            peak_bytes: 5,
            written_bytes: 6,
        };
        assert_eq!(
            totals_json(&totals),
            "{\"totals\": {\"cpu_seconds\": 2.00, \"peak_bytes\": 5, \"written_bytes\": 6}}"
        );
    }

    #[test]
    fn what_one_operation_took_is_the_whole_divided() {
        let measure = Measure {
            phase: "reads".into(),
            operations: 1000,
            seconds: 0.002,
            cpu_seconds: 0.0,
            disk_bytes: 1 << 20,
            answer: 0,
        };
        assert!(measure_text(&measure).contains(" 2.00 us each"));
        assert!(measure_text(&measure).ends_with(" 1.0 MiB on disk"));
    }
}
