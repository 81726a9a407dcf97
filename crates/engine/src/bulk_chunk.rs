//! Bulk chunk: rows of a load as they arrive, with their keys, until they are sorted and written.
//!
//! Why it exists: a row of a load costs its sender a few copies into buffers that are used again and again: no log record,
//! no row id, no tree. What makes order of them is done a chunk at a time, by another thread.
//! State: payloads back to back, and for each index the keys back to back, all in arrival order; rows are numbered
//! from 0 until the chunk is written and gets its row ids.
//! Rules: L1 the rows of a chunk get row ids in the order of the primary key. L2 entries of one index are in the order of
//! (key bytes, row id).
//! Latches and I/O: none.

use crate::keys::KeyChanges;
use pbxt_base::RowId;
use pbxt_base::codec::{get_u16, get_u32, push_u16, push_u32};

/// Row number (4), key bytes (2), unpack bytes (2), claim (1).
const ENTRY_HEAD: usize = 9;
/// The place of the entry of a row that has none.
pub(crate) const NO_ENTRY: u32 = u32::MAX;
/// Rows of so many bytes stand by themselves wherever they are.
const LONG_ROW: usize = 2 << 10;

/// One entry of an index on its way into a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyEntry<'a> {
    pub key: &'a [u8],
    pub row: RowId,
    /// No other row may have the key.
    pub claim: bool,
    pub unpack: &'a [u8],
}

/// Keys of one index in arrival order.
#[derive(Debug, Default)]
pub(crate) struct KeyArena {
    bytes: Vec<u8>,
    entries: usize,
    /// Bytes all keys have in common with the first one.
    shared: usize,
}

/// Rows in arrival order.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    payloads: Vec<u8>,
    ends: Vec<u32>,
    pub indexes: Vec<KeyArena>,
}

/// Order of a chunk's rows: which number stands at each place, and the place of each number. None: as they arrived.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    pub order: Vec<u32>,
    pub place: Vec<u32>,
}

impl Ranks {
    /// True if most neighbours came in no order, so that it is of other chunks that they will be neighbours too.
    fn are_shuffled(&self) -> bool {
        let is_break = |pair: &&[u32]| pair[0].abs_diff(pair[1]) != 1;
        let breaks = self.order.windows(2).filter(is_break).count();
        breaks > self.order.len() / 2
    }
}

impl KeyArena {
    /// Appends the entry of the row of this number.
    pub(crate) fn push(&mut self, row: u32, key: &[u8], claim: bool, unpack: &[u8]) {
        if self.entries == 0 {
            self.shared = key.len();
        } else if self.shared > 0 {
            let first = &self.bytes[ENTRY_HEAD..ENTRY_HEAD + self.shared];
            if key.get(..self.shared) != Some(first) {
                self.shared = first.iter().zip(key).take_while(|(a, b)| a == b).count();
            }
        }
        push_u32(&mut self.bytes, row);
        push_u16(&mut self.bytes, key.len() as u16);
        push_u16(&mut self.bytes, unpack.len() as u16);
        self.bytes.push(u8::from(claim));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(unpack);
        self.entries += 1;
    }

    /// Fills `places` with where the entry of each of so many rows begins, or `NO_ENTRY`.
    pub(crate) fn places(&self, rows: usize, places: &mut Vec<u32>) {
        places.clear();
        places.resize(rows, NO_ENTRY);
        let mut at = 0;
        while at < self.bytes.len() {
            places[get_u32(&self.bytes, at) as usize] = at as u32;
            let key_bytes = usize::from(get_u16(&self.bytes, at + 4));
            at += ENTRY_HEAD + key_bytes + usize::from(get_u16(&self.bytes, at + 6));
        }
    }

    fn key(&self, at: u32) -> &[u8] {
        let begin = at as usize + ENTRY_HEAD;
        &self.bytes[begin..begin + usize::from(get_u16(&self.bytes, at as usize + 4))]
    }

    /// The entry of a sorted item; the chunk's first row has the id `base`.
    pub(crate) fn entry(&self, item: u128, base: RowId) -> KeyEntry<'_> {
        let at = item as u32 as usize;
        let row = (item >> 32) as u32;
        let key_end = at + ENTRY_HEAD + usize::from(get_u16(&self.bytes, at + 4));
        let unpack_end = key_end + usize::from(get_u16(&self.bytes, at + 6));
        KeyEntry {
            key: &self.bytes[at + ENTRY_HEAD..key_end],
            row: RowId::new(base.raw() + u64::from(row)),
            claim: self.bytes[at + 8] != 0,
            unpack: &self.bytes[key_end..unpack_end],
        }
    }

    /// Fills `items` with all entries in order (rule L2). An item is one number: eight bytes of the key, the row's place,
    /// where the entry stands; so most comparisons look at no key.
    pub(crate) fn sort(&self, ranks: Option<&Ranks>, items: &mut Vec<u128>) {
        items.clear();
        items.reserve(self.entries);
        let mut at = 0;
        while at < self.bytes.len() {
            let key_bytes = usize::from(get_u16(&self.bytes, at + 4));
            let number = get_u32(&self.bytes, at);
            let row = ranks.map_or(number, |ranks| ranks.place[number as usize]);
            let key = at + ENTRY_HEAD;
            let head = head_of(&self.bytes[key + self.shared.min(key_bytes)..key + key_bytes]);
            items.push(u128::from(head) << 64 | u128::from(row) << 32 | at as u128);
            at = key + key_bytes + usize::from(get_u16(&self.bytes, at + 6));
        }
        items.sort_unstable();
        for group in items.chunk_by_mut(|a, b| a >> 64 == b >> 64) {
            if group.len() > 1 && !self.is_one_key(group) {
                group.sort_unstable_by(|&a, &b| {
                    self.key(a as u32).cmp(self.key(b as u32)).then_with(|| a.cmp(&b))
                });
            }
        }
    }

    /// True if equal heads mean equal keys: then the group is in order already.
    fn is_one_key(&self, group: &[u128]) -> bool {
        let first = self.key(group[0] as u32);
        group[1..].iter().all(|&item| self.key(item as u32) == first)
    }

    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
        self.shared = 0;
    }
}

/// The first eight bytes as a number that orders as they do.
#[expect(clippy::big_endian_bytes, reason = "numbers of this kind order as bytes do")]
pub(crate) fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

impl Chunk {
    pub(crate) fn new(indexes: usize) -> Self {
        Self {
            indexes: std::iter::repeat_with(KeyArena::default).take(indexes).collect(),
            ..Self::default()
        }
    }

    /// Appends a row without keys; its number.
    pub(crate) fn push_payload(&mut self, payload: &[u8]) -> u32 {
        let row = self.ends.len() as u32;
        self.payloads.extend_from_slice(payload);
        self.ends.push(self.payloads.len() as u32);
        row
    }

    /// Appends a row with its new keys.
    pub(crate) fn push(&mut self, payload: &[u8], keys: &KeyChanges) {
        let row = self.push_payload(payload);
        for change in keys.items() {
            if let Some(key) = keys.new_key(change) {
                self.indexes[change.index].push(row, key, change.claim, keys.unpack(change));
            }
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn payload(&self, row: usize) -> &[u8] {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.payloads[begin..self.ends[row] as usize]
    }

    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        let keys: usize = self.indexes.iter().map(KeyArena::bytes).sum();
        self.payloads.len() + 4 * self.ends.len() + keys
    }

    pub(crate) fn clear(&mut self) {
        self.payloads.clear();
        self.ends.clear();
        self.indexes.iter_mut().for_each(KeyArena::clear);
    }

    /// Places of the rows in the order of index `by` (rule L1); none if that is the order in which they came, or if not
    /// every row has an entry there.
    pub(crate) fn rank(&self, by: usize, items: &mut Vec<u128>) -> Option<Ranks> {
        if self.indexes[by].entries != self.rows() {
            return None;
        }
        self.indexes[by].sort(None, items);
        let number = |item: &u128| (item >> 32) as u32;
        if items.iter().map(number).eq(0..self.rows() as u32) {
            return None;
        }
        let mut ranks = Ranks {
            order: items.iter().map(number).collect(),
            place: vec![0; items.len()],
        };
        for (place, &number) in (0..).zip(&ranks.order) {
            ranks.place[number as usize] = place;
        }
        Some(ranks)
    }

    /// True if rows in this order are to be gathered with those of other chunks (rule L16).
    pub(crate) fn is_to_be_gathered(&self, ranks: &Ranks) -> bool {
        self.payloads.len() / self.rows().max(1) < LONG_ROW && ranks.are_shuffled()
    }

    /// Calls `each` for every row in arrival order, with its keys: as if it came now.
    pub(crate) fn replay<E>(
        &self,
        mut each: impl FnMut(&[u8], &KeyChanges) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut keys = KeyChanges::new();
        let mut at = vec![0; self.indexes.len()];
        for row in 0..self.rows() {
            keys.clear();
            for (number, arena) in self.indexes.iter().enumerate() {
                let begin = at[number];
                if begin >= arena.bytes.len() || get_u32(&arena.bytes, begin) as usize != row {
                    continue;
                }
                let entry = arena.entry(begin as u128, RowId::new(0));
                at[number] = begin + ENTRY_HEAD + entry.key.len() + entry.unpack.len();
                keys.push::<E>(
                    number,
                    entry.claim,
                    None,
                    Some(&mut |out| {
                        out.extend_from_slice(entry.key);
                        Ok(())
                    }),
                    &mut |out| {
                        out.extend_from_slice(entry.unpack);
                        Ok(())
                    },
                )?;
            }
            each(self.payload(row), &keys)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(keys: &[(&[u8], &[u8])]) -> Chunk {
        let mut chunk = Chunk::new(2);
        for (number, (first, second)) in keys.iter().enumerate() {
            let mut changes = KeyChanges::new();
            for (index, key) in [first, second].into_iter().enumerate() {
                changes
                    .push::<()>(
                        index,
                        index == 0,
                        None,
                        Some(&mut |out| {
                            out.extend_from_slice(key);
                            Ok(())
                        }),
                        &mut |out| {
                            out.push(number as u8);
                            Ok(())
                        },
                    )
                    .expect("no error is possible");
            }
            chunk.push(&[number as u8; 3], &changes);
        }
        chunk
    }

    #[test]
    fn keys_are_sorted_by_bytes_then_row_whatever_their_lengths() {
        let keys: [&[u8]; 8] = [
            b"same-beginning-b",
            b"same-beginning-a\0",
            b"same-beginning-a",
            b"same-beginning-aaaaaaaaaaaaaaab",
            b"same-beginning-aaaaaaaaaaaaaaaa",
            b"same-beginning-",
            b"same-beginning-a",
            b"same-beginning-a\0\0",
        ];
        let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (*key, *key)).collect();
        let chunk = chunk(&rows);
        let mut items = Vec::new();
        chunk.indexes[1].sort(None, &mut items);
        let sorted: Vec<_> = items
            .iter()
            .map(|&item| chunk.indexes[1].entry(item, RowId::new(100)))
            .map(|entry| (entry.key, entry.row.raw(), entry.unpack[0]))
            .collect();
        let mut expected: Vec<_> = (0..)
            .zip(&keys)
            .map(|(row, key)| (*key, 100 + u64::from(row), row))
            .collect();
        expected.sort();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn rows_are_ranked_by_the_primary_key_and_entries_follow_them() {
        let ordered = chunk(&[(b"a", b""), (b"b", b"")]);
        let chunk = chunk(&[(b"c", b"1"), (b"a", b"1"), (b"b", b"0")]);
        let mut items = Vec::new();
        let ranks = chunk.rank(0, &mut items).expect("another order");
        assert_eq!(
            (&ranks.order[..], &ranks.place[..]),
            (&[1, 2, 0][..], &[2, 0, 1][..])
        );
        chunk.indexes[1].sort(Some(&ranks), &mut items);
        let sorted: Vec<_> = items
            .iter()
            .map(|&item| chunk.indexes[1].entry(item, RowId::new(10)))
            .map(|entry| (entry.key, entry.row.raw()))
            .collect();
        assert_eq!(sorted, [(&b"0"[..], 11), (b"1", 10), (b"1", 12)]);
        assert!(ordered.rank(0, &mut items).is_none());
    }

    #[test]
    fn a_replayed_chunk_gives_what_was_pushed() {
        let rows: [(&[u8], &[u8]); 2] = [(b"x", b"second"), (b"y", b"")];
        let mut seen = Vec::new();
        let replayed = chunk(&rows).replay::<()>(|payload, keys| {
            let of = |change| {
                (
                    keys.new_key(change).expect("a key").to_vec(),
                    keys.unpack(change).to_vec(),
                )
            };
            seen.push((payload.to_vec(), keys.items().iter().map(of).collect::<Vec<_>>()));
            Ok(())
        });
        assert!(replayed.is_ok());
        let expected = |row: u8| {
            let (first, second) = rows[usize::from(row)];
            (
                vec![row; 3],
                vec![(first.to_vec(), vec![row]), (second.to_vec(), vec![row])],
            )
        };
        assert_eq!(seen, [expected(0), expected(1)]);
    }
}
