//! Bulk sort: merges sorted streams of entries into one.
//!
//! Why it exists: an index gets one run from a load, however many chunks the load had; so nothing is left to merge in the
//! background, and a reader looks into one more place.
//! State: a tree of losers (Knuth, The Art of Computer Programming 3, 5.4.1): one comparison a level, and most of them of two
//! numbers.
//! Rules: L2 (key bytes, row id) rises.
//! Latches and I/O: reads spill files.

use crate::bulk_chunk::KeyEntry;
use crate::bulk_spill::Source;
use crate::error::Result;

/// Streams merged at once; more are merged in several rounds.
pub(crate) const FAN_IN: usize = 64;

/// A merged stream.
#[derive(Debug)]
pub(crate) struct MergedSource<'c> {
    sources: Vec<Source<'c>>,
    /// First bytes of each stream's key.
    heads: Vec<u64>,
    /// `losers[0]` is the stream with the least entry, the others are who lost at each inner node.
    losers: Vec<usize>,
}

impl<'c> MergedSource<'c> {
    pub(crate) fn new(sources: Vec<Source<'c>>) -> Self {
        let heads = sources.iter().map(Source::head).collect();
        let mut merged = Self {
            losers: vec![0; sources.len().max(1)],
            sources,
            heads,
        };
        if !merged.sources.is_empty() {
            merged.losers[0] = merged.play(1);
        }
        merged
    }

    /// Plays the games below a node; the winner. Leaves follow the inner nodes: node `count + i` is stream `i`.
    fn play(&mut self, node: usize) -> usize {
        let count = self.sources.len();
        if node >= count {
            return node - count;
        }
        let (left, right) = (self.play(2 * node), self.play(2 * node + 1));
        let (winner, loser) = if self.is_before(left, right) {
            (left, right)
        } else {
            (right, left)
        };
        self.losers[node] = loser;
        winner
    }

    #[inline]
    fn is_before(&self, left: usize, right: usize) -> bool {
        if self.heads[left] != self.heads[right] {
            return self.heads[left] < self.heads[right];
        }
        self.is_before_by_key(left, right)
    }

    fn is_before_by_key(&self, left: usize, right: usize) -> bool {
        match (self.sources[left].entry(), self.sources[right].entry()) {
            (Some(left), Some(right)) => (left.key, left.row) < (right.key, right.row),
            (left, _) => left.is_some(),
        }
    }

    /// The least entry; none at the end.
    #[inline]
    pub(crate) fn entry(&self) -> Option<KeyEntry<'_>> {
        self.sources.get(self.losers[0]).and_then(Source::entry)
    }

    /// Goes to the next entry.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        let count = self.sources.len();
        let mut winner = self.losers[0];
        self.sources[winner].advance()?;
        self.heads[winner] = self.sources[winner].head();
        // Parent of the stream's leaf.
        let mut node = usize::midpoint(winner, count);
        while node > 0 {
            if self.is_before(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_chunk::Chunk;
    use crate::keys::KeyChanges;
    use pbxt_base::RowId;

    #[test]
    fn streams_are_merged_in_order_whatever_their_number() {
        for count in 0..9_u64 {
            let chunks: Vec<Chunk> = (0..count)
                .map(|number| chunk_of(number, 5 * number % 7))
                .collect();
            let mut items = vec![Vec::new(); chunks.len()];
            for (chunk, items) in chunks.iter().zip(&mut items) {
                chunk.indexes[0].sort(None, items);
            }
            let mut sources = Vec::new();
            for (chunk, items) in chunks.iter().zip(&items) {
                let base = RowId::new(1 + 1000 * sources.len() as u64);
                sources.push(Source::memory(&chunk.indexes[0], items, base));
            }
            let mut merged = MergedSource::new(sources);
            let mut seen = Vec::new();
            while let Some(entry) = merged.entry() {
                seen.push((entry.key.to_vec(), entry.row));
                merged.advance().expect("memory does not fail");
            }
            let entries: usize = chunks.iter().map(Chunk::rows).sum();
            assert_eq!(seen.len(), entries, "{count} streams");
            assert!(seen.is_sorted(), "{seen:?}");
        }
    }

    fn chunk_of(seed: u64, rows: u64) -> Chunk {
        let mut chunk = Chunk::new(1);
        for row in 0..rows {
            let mut keys = KeyChanges::new();
            let text = format!("common key {}", (row * 37 + seed * 11) % 10);
            let pushed = keys.push::<()>(
                0,
                false,
                None,
                Some(&mut |out| {
                    out.extend_from_slice(text.as_bytes());
                    Ok(())
                }),
                &mut |_| Ok(()),
            );
            assert!(pushed.is_ok());
            chunk.push(b"payload", &keys);
        }
        chunk
    }
}
