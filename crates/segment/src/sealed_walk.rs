//! SealedWalk: compares a sealed segment with its hash in footer and manifest, some of it at a time.
//!
//! Why it exists: a segment of the log has many megabytes, and whoever verifies it beside others has to be able to stop and to pause.
//! Rules: F8 a sealed segment has the hash its footer and the manifest say.
//! Latches and I/O: none; reads in order.

use crate::footer::{FOOTER_BYTES, SegmentFooter};
use crate::manifest_record::SealedSegment;
use pbxt_base::checksum::RunningHash;
use pbxt_base::{Error, Result};
use pbxt_io::DiskFile;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct SealedWalk {
    file: Arc<dyn DiskFile>,
    /// Name, for messages.
    name: String,
    /// The manifest's word.
    sealed: SealedSegment,
    footer: SegmentFooter,
    footer_at: u64,
    hash: RunningHash,
    at: u64,
    is_over: bool,
    buffer: Vec<u8>,
}

impl SealedWalk {
    /// Reads the footer.
    pub(crate) fn new(file: Arc<dyn DiskFile>, name: String, sealed: SealedSegment) -> Result<Self> {
        let footer_at = file.len()?.saturating_sub(FOOTER_BYTES as u64);
        let mut bytes = vec![0; FOOTER_BYTES];
        file.read_at(&mut bytes, footer_at)?;
        let footer = SegmentFooter::decode(&bytes, file.name(), footer_at)?;
        Ok(Self {
            file,
            name,
            sealed,
            footer,
            footer_at,
            hash: RunningHash::new(),
            at: 0,
            is_over: false,
            buffer: Vec::new(),
        })
    }

    /// Reads so many bytes at most; how many that were, `None` behind the last one. The error of the last step says that the segment is
    /// not the one that was sealed; one of an earlier step that it cannot be read.
    pub fn step(&mut self, bytes: usize) -> Result<Option<u64>> {
        if self.is_over {
            return Ok(None);
        }
        let step = (self.footer_at - self.at).min(bytes as u64);
        self.buffer.resize(step as usize, 0);
        self.file.read_at(&mut self.buffer, self.at)?;
        self.hash.update(&self.buffer);
        self.at += step;
        if self.at == self.footer_at {
            self.is_over = true;
            self.compare()?;
        }
        Ok(Some(step))
    }

    fn compare(&self) -> Result<()> {
        let (sealed, footer) = (&self.sealed, &self.footer);
        if (footer.id, footer.end) != (sealed.id, sealed.end) {
            let expected = format!("the footer of a segment that ends at {}", sealed.end);
            let found = format!("that of segment {}, which ends at {}", footer.id, footer.end);
            return Err(self.damaged(self.footer_at, expected, found));
        }
        let hash = self.hash.finish();
        if hash != sealed.hash || footer.hash != sealed.hash {
            let expected = format!("content hash {:016x}", sealed.hash);
            return Err(self.damaged(0, expected, format!("{hash:016x}")));
        }
        Ok(())
    }

    fn damaged(&self, offset: u64, expected: String, found: String) -> Error {
        Error::Corrupt {
            file: self.name.clone(),
            offset,
            expected,
            found,
        }
    }
}
