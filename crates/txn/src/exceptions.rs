//! Exception set: the transactions below the low-water mark that do not share their neighbours' answer.
//!
//! Why it exists: one prepared transaction of three weeks ago, or an aborted one, must not keep the slots of
//! all that came after it.
//! State: entries (id, word) sorted by id, cut into chunks that successors share; entries come in at the end,
//! because the mark only rises, and go out anywhere.
//! Rules: T5, T7 (a word moves here once; from then on it is changed here).
//! Latches and I/O: readers none; writers hold the core latch of the transaction table.
//! After a crash: the aborted, prepared and void-carrying ones come back from the checkpoint and the log's
//! tail.

use std::sync::Arc;

use pbxt_base::ids::TxnId;
use pbxt_base::invariant;

use crate::status::Word;
use crate::sync::{AtomicU64, Ordering};

const CHUNK_ENTRIES: usize = 512;

#[derive(Debug)]
struct Entry {
    id: TxnId,
    word: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ExceptionSet {
    /// Never an empty chunk among them.
    chunks: Vec<Arc<[Entry]>>,
}

fn build(words: &[(TxnId, Word)]) -> Arc<[Entry]> {
    words
        .iter()
        .map(|(id, word)| Entry {
            id: *id,
            word: AtomicU64::new(word.0),
        })
        .collect()
}

fn first_id(chunk: &[Entry]) -> TxnId {
    chunk.first().map_or(TxnId::new(0), |entry| entry.id)
}

fn copy(chunk: &[Entry]) -> impl Iterator<Item = (TxnId, Word)> + '_ {
    chunk
        .iter()
        .map(|entry| (entry.id, Word(entry.word.load(Ordering::Acquire))))
}

impl ExceptionSet {
    /// From entries sorted by id.
    pub(crate) fn new(words: &[(TxnId, Word)]) -> Self {
        ExceptionSet {
            chunks: words.chunks(CHUNK_ENTRIES).map(build).collect(),
        }
    }

    pub(crate) fn find(&self, id: TxnId) -> Option<&AtomicU64> {
        let after = self.chunks.partition_point(|chunk| first_id(chunk) <= id);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let at = chunk.binary_search_by_key(&id, |entry| entry.id).ok()?;
        chunk.get(at).map(|entry| &entry.word)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxnId, Word)> + '_ {
        self.chunks.iter().flat_map(|chunk| copy(chunk))
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Adds entries sorted by id, all greater than those in the set.
    pub(crate) fn append(&mut self, words: &[(TxnId, Word)]) {
        let Some((smallest, _)) = words.first() else {
            return;
        };
        let last = self
            .chunks
            .last()
            .and_then(|chunk| chunk.last())
            .map(|entry| entry.id);
        invariant!(
            last.is_none_or(|id| id < *smallest),
            "T5: the low-water mark only rises"
        );
        let mut tail = Vec::with_capacity(words.len() + CHUNK_ENTRIES);
        if self
            .chunks
            .last()
            .is_some_and(|chunk| chunk.len() < CHUNK_ENTRIES)
        {
            tail.extend(self.chunks.pop().iter().flat_map(|chunk| copy(chunk)));
        }
        tail.extend_from_slice(words);
        self.chunks.extend(tail.chunks(CHUNK_ENTRIES).map(build));
    }

    /// Takes out the ids of a sorted list; ids that are not in the set are passed over. Chunks without any of
    /// them stay shared.
    pub(crate) fn remove(&mut self, ids: &[TxnId]) {
        if ids.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.chunks);
        for chunk in old {
            // Of this chunk: the others are not compared with any of it.
            let begin = ids.partition_point(|id| *id < first_id(&chunk));
            let end = ids.partition_point(|id| chunk.last().is_some_and(|last| *id <= last.id));
            let ids = &ids[begin..end.max(begin)];
            let leaves = |id: &TxnId| ids.binary_search(id).is_ok();
            if !ids.is_empty() && chunk.iter().any(|entry| leaves(&entry.id)) {
                let kept: Vec<_> = copy(&chunk).filter(|(id, _)| !leaves(id)).collect();
                self.chunks.extend(kept.chunks(CHUNK_ENTRIES).map(build));
            } else {
                self.chunks.push(chunk);
            }
        }
    }
}

#[cfg(test)]
#[path = "exceptions_tests.rs"]
mod exceptions_tests;
