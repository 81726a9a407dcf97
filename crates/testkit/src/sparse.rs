//! Sparse: the bytes of a file, pages that were never written taking no memory.
//!
//! Why it exists: preallocated segments are mostly zeros, and a crash image is a copy of every file; shared pages make
//! both cheap.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Bytes with a length; what was never written reads as zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Sparse {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Cuts or extends; what is cut off reads as zero if the file grows again.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            let within = (len % PAGE as u64) as usize;
            if let Some(page) = self.pages.get_mut(&(len / PAGE as u64)).filter(|_| within != 0) {
                Arc::make_mut(page)[within..].fill(0);
            }
        }
        self.len = len;
    }

    /// Calls `each` with page number, offset in the page and range of the buffer.
    fn pieces(offset: u64, length: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min(length - done);
            each(at / PAGE as u64, within, done..done + count);
            done += count;
        }
    }

    /// Fills `buf`; false if the file is shorter.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        if offset
            .checked_add(buf.len() as u64)
            .is_none_or(|end| end > self.len)
        {
            return false;
        }
        Self::pieces(offset, buf.len(), |page, within, range| {
            let part = &mut buf[range];
            match self.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + part.len()]),
                None => part.fill(0),
            }
        });
        true
    }

    /// Bytes of whole pages in the range that take memory.
    pub(crate) fn room(&self, range: &std::ops::Range<u64>) -> u64 {
        let (from, to) = (range.start.div_ceil(PAGE as u64), range.end / PAGE as u64);
        self.pages.range(from..to.max(from)).count() as u64 * PAGE as u64
    }

    /// Forgets the whole pages in the range.
    pub(crate) fn clear(&mut self, range: &std::ops::Range<u64>) {
        let (from, to) = (range.start.div_ceil(PAGE as u64), range.end / PAGE as u64);
        self.pages.retain(|page, _| !(from..to).contains(page));
    }

    /// Writes; the file grows if it must.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        Self::pieces(offset, bytes.len(), |page, within, range| {
            let part = &bytes[range];
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
        });
        self.len = self.len.max(offset + bytes.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn random_writes_and_cuts_match_a_plain_vector() {
        let mut rng = Rng::new(1);
        let (mut sparse, mut plain) = (Sparse::default(), Vec::new());
        for _ in 0..300 {
            if rng.chance(10) {
                let len = rng.below(40_000);
                sparse.set_len(len);
                plain.resize(len as usize, 0);
            } else {
                let offset = rng.below(30_000) as usize;
                let mut bytes = vec![0; rng.below(9000) as usize + 1];
                rng.fill(&mut bytes);
                sparse.write(&bytes, offset as u64);
                plain.resize(plain.len().max(offset + bytes.len()), 0);
                plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            let mut back = vec![1; plain.len()];
            assert!(sparse.read(&mut back, 0));
            assert_eq!(back, plain);
            assert!(!sparse.read(&mut [0], plain.len() as u64));
        }
    }
}
