//! KeyBridge: keys of one table's index as prefixes of the keys of another's whose first columns stand for the same values.
//!
//! Why it exists:    who goes through an index of rows that refer to others has their keys in hand, not their records; columns that only
//!                   the host computes are nowhere else.
//! Format / state:   docs/format-rows.md#key-images. The parts' images differ in NULL markers, direction and the length of padded values.
//! Rules:            FK3, FK4: the two columns of each pair are of one type; X21 a part shows its own end.
//! Latches and I/O:  none.

use crate::error::{Error, Result};
use crate::host::HostKind;
use crate::image::{NOT_NULL, PartCode};
use crate::image_read::Taken;
use crate::key_spec::KeySpec;
use crate::weights::NoWeigher;

/// One end of a bridge.
#[derive(Clone, Copy, Debug)]
pub struct BridgeEnd<'a> {
    /// The index.
    pub spec: &'a KeySpec,
    /// Kinds of the columns of its first parts, one for each pair.
    pub kinds: &'a [HostKind],
}

/// What a key becomes on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bridged {
    /// A prefix of keys was appended.
    Prefix,
    /// A part is NULL: it stands for no value.
    Null,
    /// A value is longer than the other column can have.
    TooLong,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct KeyBridge {
    pairs: Vec<(PartCode, PartCode)>,
}

impl KeyBridge {
    /// Compiles a bridge between the first parts of two indexes.
    ///
    /// # Errors
    /// `BadKey` names the first part that one of the indexes has not.
    pub fn new(from: BridgeEnd<'_>, to: BridgeEnd<'_>) -> Result<Self> {
        let code = |end: &BridgeEnd<'_>, number: usize| -> Result<PartCode> {
            let missing = Error::BadKey {
                part: number,
                why: "the index has fewer parts",
            };
            let part = end.spec.parts().get(number).ok_or(missing)?;
            Ok(PartCode::new(number, part, end.kinds[number].column_kind(), 0))
        };
        let pairs = from.kinds.len().min(to.kinds.len());
        let pairs = (0..pairs).map(|number| Ok((code(&from, number)?, code(&to, number)?)));
        Ok(Self {
            pairs: pairs.collect::<Result<_>>()?,
        })
    }

    /// Length of the bridged parts' image at the beginning of a key; `scratch` is overwritten.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn prefix_length(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<usize> {
        let mut at = 0;
        for (from, _) in &self.pairs {
            from.take(key, &mut at, scratch)?;
        }
        Ok(at)
    }

    /// Appends the prefix that a key becomes. `out` may hold a part of it if there is none; `scratch` is overwritten.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn cross(&self, key: &[u8], out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<Bridged> {
        let mut at = 0;
        for (from, to) in &self.pairs {
            let begin = at;
            match from.take(key, &mut at, scratch)? {
                Taken::Null => return Ok(Bridged::Null),
                Taken::Weights => {
                    // Behind the NULL marker stand the same weights.
                    put_weights((from, to), &key[begin + usize::from(from.nullable)..at], out);
                }
                Taken::Value => match to.put(Some(from.relevant(scratch)), &NoWeigher, out) {
                    Ok(()) => {}
                    Err(Error::BadValue { .. }) => return Ok(Bridged::TooLong),
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(Bridged::Prefix)
    }
}

fn put_weights((from, to): (&PartCode, &PartCode), weights: &[u8], out: &mut Vec<u8>) {
    let flip = if to.descending { 0xFF } else { 0 };
    if to.nullable {
        out.push(NOT_NULL ^ flip);
    }
    let flip = if from.descending == to.descending { 0 } else { 0xFF };
    out.extend(weights.iter().map(|byte| byte ^ flip));
}

#[cfg(test)]
#[path = "key_bridge_tests.rs"]
mod key_bridge_tests;
