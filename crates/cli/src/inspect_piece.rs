//! Dump of a piece file: sections, their fences, blocks, and what is in them.
//!
//! Format: docs/format.md#piece-files.
//! Latches and I/O: none; one read a block, only of the blocks that are printed.

use crate::failure::{Failure, Outcome};
use crate::piece_content::{Content, name_of, zone_line};
use crate::text::{count, hex, ratio, size};
use pbxt_base::codec::get_u32;
use pbxt_base::{Error, Result};
use pbxt_segment::{PieceFile, Section, SegmentHeader, SegmentStore};
use std::io::Write;
use std::sync::Arc;

/// Where a block's head has the raw length and the codec, and where the head ends.
const RAW_AT: usize = 8;
const CODEC_AT: usize = 12;

/// How much to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    pub(crate) blocks: bool,
    pub(crate) entries: bool,
    /// Only this section.
    pub(crate) section: Option<u32>,
    /// Entries at most a section; 0 for all.
    pub(crate) limit: u64,
}

/// Prints the file. True if nothing that was looked at is damaged.
pub(crate) fn inspect(
    store: &SegmentStore,
    header: &SegmentHeader,
    depth: Depth,
    content: &Content,
    out: &mut dyn Write,
) -> Outcome<bool> {
    let file = match PieceFile::open(store, header.class, header.id) {
        Ok(file) => file,
        Err(error @ Error::Corrupt { .. }) => {
            writeln!(out, "  {error}")?;
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let sections = file.sections();
    let blocks: usize = sections.iter().map(Section::block_count).sum();
    writeln!(
        out,
        "  {}, {}; {} of memory for fences while open",
        count(sections.len() as u64, "section"),
        count(blocks as u64, "block"),
        size(file.memory_bytes() as u64)
    )?;
    if let Some(wanted) = depth.section.filter(|wanted| *wanted as usize >= sections.len()) {
        let sections = count(sections.len() as u64, "section");
        return Err(Failure::Usage(format!(
            "'{}' has {sections}, numbered from 0: --section {wanted} names none",
            file.name()
        )));
    }
    let mut is_good = true;
    for (number, section) in sections.iter().enumerate() {
        let number = number as u32;
        if depth.section.is_none_or(|wanted| wanted == number) {
            print_section(number, section, content, out)?;
            is_good &= print_content(&file, number, depth, content, out)?;
        }
    }
    Ok(is_good)
}

fn print_section(number: u32, section: &Section, content: &Content, out: &mut dyn Write) -> Outcome<()> {
    writeln!(
        out,
        "  section {number}: {}: {} in {}, {} raw, {} stored ({}), {} extra bytes",
        name_of(section.kind, section.owner),
        count(section.entries, "entry"),
        count(section.block_count() as u64, "block"),
        size(section.raw_bytes),
        size(section.stored_bytes),
        ratio(section.raw_bytes, section.stored_bytes),
        section.extra.len()
    )?;
    if let Some(name) = content.name_of_table(section) {
        writeln!(out, "    table '{name}'")?;
    }
    if section.block_count() > 0 {
        writeln!(
            out,
            "    keys {} to {}",
            hex(section.first_key(0)),
            hex(&section.last_key)
        )?;
    }
    Ok(())
}

fn print_content(
    file: &Arc<PieceFile>,
    number: u32,
    depth: Depth,
    content: &Content,
    out: &mut dyn Write,
) -> Outcome<bool> {
    if !depth.blocks && !depth.entries {
        return Ok(true);
    }
    let section = file.section(number)?;
    let (mut raw, mut printed, mut is_good) = (Vec::new(), 0_u64, true);
    for block in 0..section.block_count() {
        if depth.blocks {
            print_block(file, number, block, out)?;
        }
        if let Err(error) = file.read_block(number, block, &mut raw) {
            is_good = false;
            writeln!(out, "      {error}")?;
            continue;
        }
        if !depth.entries {
            continue;
        }
        for line in content.lines(file, number, block, &raw)? {
            if depth.limit != 0 && printed == depth.limit {
                writeln!(out, "      more entries: --limit 0 for all")?;
                return Ok(is_good);
            }
            writeln!(out, "      {line}")?;
            printed += 1;
        }
    }
    Ok(is_good)
}

fn print_block(file: &Arc<PieceFile>, number: u32, block: usize, out: &mut dyn Write) -> Outcome<()> {
    let section = file.section(number)?;
    let (raw, codec) = head_of(file, number, block)?;
    let stored = section.block_stored_bytes(block);
    writeln!(
        out,
        "    block {block} at {}: {stored} stored, {raw} raw ({}), {codec}, {} entries, first key {}",
        section.block_offset(block),
        ratio(u64::from(raw), stored as u64),
        section.block_entries(block),
        hex(section.first_key(block))
    )?;
    if let Some(zones) = zone_line(section, block) {
        writeln!(out, "      zones: {zones}")?;
    }
    Ok(())
}

/// Raw length and codec as the block's head says, which may be damaged.
fn head_of(file: &Arc<PieceFile>, number: u32, block: usize) -> Result<(u32, &'static str)> {
    let stored = file.read_blocks_ahead(number, block, 1)?;
    let bytes = stored.stored(block)?;
    let codec = match bytes.get(CODEC_AT) {
        Some(0) => "plain",
        Some(1) => "lz4",
        Some(2) => "zstd",
        _ => "unknown codec",
    };
    Ok((
        if bytes.len() > CODEC_AT {
            get_u32(bytes, RAW_AT)
        } else {
            0
        },
        codec,
    ))
}
