//! Text: bytes, keys and counts as people read them.

use std::fmt::Write;

/// Bytes of a key that are printed.
const KEY_BYTES_SHOWN: usize = 32;

/// A size: exact where it is a whole number of a unit or below 64 KiB, else rounded.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fitting = UNITS.into_iter().find(|(_, shift)| bytes >= 1 << shift);
    match fitting {
        Some((unit, shift)) if bytes.is_multiple_of(1 << shift) => format!("{} {unit}", bytes >> shift),
        Some((unit, shift)) if bytes >= 64 << 10 => {
            format!("{:.1} {unit}", bytes as f64 / f64::from(1_u32 << shift))
        }
        _ => format!("{bytes} B"),
    }
}

/// A count and what is counted.
pub(crate) fn count(number: u64, one: &str) -> String {
    match (number, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {one}s"),
    }
}

/// Bytes in hexadecimal, shortened; `-` if there are none.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * KEY_BYTES_SHOWN + 16);
    for byte in bytes.iter().take(KEY_BYTES_SHOWN) {
        // Writing to a String never fails.
        let _ = write!(out, "{byte:02x}");
    }
    if bytes.len() > KEY_BYTES_SHOWN {
        let _ = write!(out, "... ({} bytes)", bytes.len());
    }
    if bytes.is_empty() { "-".into() } else { out }
}

/// How much smaller `stored` is than `raw`, as in `3.1x`.
pub(crate) fn ratio(raw: u64, stored: u64) -> String {
    if stored == 0 {
        return "-".into();
    }
    format!("{:.1}x", raw as f64 / stored as f64)
}
