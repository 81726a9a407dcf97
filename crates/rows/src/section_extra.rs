//! SectionExtra: what stands beside the row blocks of a section, in memory while its file is open.
//!
//! Why it exists:    which rows a section has, and what its blocks can have, must be known without reading a block.
//! Format / state:   docs/format-rows.md#sections-of-row-blocks. The set of row ids is the caller's own bytes here.
//! Rules:            F20 total decoding; nothing is copied.
//! Latches and I/O:  none.

use crate::error::Result;
use crate::fields::ImageReader;
use crate::zones::{ZoneBuilder, Zones};
use pbxt_base::codec::push_bytes;

const IMAGE: &str = "extra bytes of a section of rows";
const FORMAT: u8 = 1;

/// The parts of a section's extra bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionExtra<'a> {
    /// The set of row ids that have a slot.
    pub rows: &'a [u8],
    /// Where the zones of the blocks stand in the extra bytes.
    pub zones: Zones,
}

impl<'a> SectionExtra<'a> {
    /// The extra bytes of a section; `zones` starts with the next one.
    pub fn encode(rows: &[u8], zones: &mut ZoneBuilder) -> Vec<u8> {
        let mut out = vec![FORMAT];
        push_bytes(&mut out, rows);
        zones.finish(&mut out);
        out
    }

    /// Takes the extra bytes of a section with `blocks` blocks apart.
    ///
    /// # Errors
    /// `Corrupt`, or `WrongFormat` for bytes of a later version.
    pub fn decode(bytes: &'a [u8], blocks: usize) -> Result<Self> {
        let mut reader = ImageReader::new(IMAGE, bytes);
        reader.format(FORMAT)?;
        let len = reader.varint()?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let rows = reader.take(len)?;
        let zones = Zones::decode_behind(bytes, reader.position(), blocks)?;
        Ok(Self { rows, zones })
    }
}
