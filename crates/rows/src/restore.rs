//! Unpack information: what a key image loses, kept beside it so that an index entry alone can answer for its columns.
//!
//! Why it exists:    weights cannot be turned back into strings, nor 0 into -0; and an update that changes only such a thing
//!                   must be seen by covering reads (design rule 15), so "key changed" compares this too.
//! Format / state:   docs/format-rows.md#unpack-information.
//! Rules:            X25: key and unpack information together give back every restorable column exactly. F20 for reading.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::image::PartCode;
use crate::key_spec::KeyEncoding;
use pbxt_base::codec::{Reader, push_bytes};

fn corrupt(offset: usize, expected: &'static str, found: u64) -> Error {
    Error::Corrupt {
        image: "unpack information",
        offset,
        expected,
        found,
    }
}

/// True if the part has unpack information when it is not NULL.
pub(crate) fn has_unpack(code: &PartCode) -> bool {
    let loses = matches!(
        code.encoding,
        KeyEncoding::F32 | KeyEncoding::F64 | KeyEncoding::Host { .. }
    );
    loses && !code.prefix
}

/// Appends the unpack information of a value.
pub(crate) fn put_unpack(code: &PartCode, value: &[u8], out: &mut Vec<u8>) {
    match code.encoding {
        _ if code.prefix => {}
        KeyEncoding::F32 | KeyEncoding::F64 => out.push(u8::from(is_negative_zero(value))),
        KeyEncoding::Host { .. } => push_bytes(out, value),
        KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::Raw | KeyEncoding::VarBinary => {}
    }
}

fn is_negative_zero(value: &[u8]) -> bool {
    matches!(value, [zeros @ .., 0x80] if zeros.iter().all(|&byte| byte == 0))
}

/// Takes the unpack information of a part that is not NULL off the front of `unpack`, and completes `value`.
pub(crate) fn take_unpack(code: &PartCode, unpack: &mut &[u8], value: &mut Vec<u8>) -> Result<()> {
    if !has_unpack(code) {
        return Ok(());
    }
    if matches!(code.encoding, KeyEncoding::Host { .. }) {
        let left = unpack.len() as u64;
        let mut reader = Reader::new(unpack);
        let bytes = reader
            .length_prefixed()
            .map_err(|_| corrupt(0, "the length and bytes of a value", left))?;
        value.clear();
        value.extend_from_slice(bytes);
        *unpack = reader.rest();
        return Ok(());
    }
    match unpack.split_first() {
        Some((0, rest)) => *unpack = rest,
        Some((1, rest)) if value.iter().all(|&byte| byte == 0) => {
            if let Some(sign) = value.last_mut() {
                *sign = 0x80;
            }
            *unpack = rest;
        }
        other => {
            return Err(corrupt(
                0,
                "the sign of a zero",
                other.map_or(0, |(&byte, _)| byte as u64),
            ));
        }
    }
    Ok(())
}
