//! `Tree`: the L0 of one index, as others see it.
//!
//! Why it exists:    see the crate's documentation. This file has the public methods; what they do is in `insert`, `read`,
//!                   `estimate`, `sample` and `check`.
//! Format / state:   nothing, until the first insert makes a [`Body`].
//! Rules:            X1 to X10 of `docs/indexes.md`.
//! Latches and I/O:  as `insert` and `read` say; no method waits for a lock or for I/O.
//! After a crash:    gone; rebuilt from the key images in the log.

use std::fmt;
use std::sync::OnceLock;

use pbxt_base::{Error, Lsn, Result, RowId, TxnId};

use crate::batch::{Batch, Direction, Stop};
use crate::body::{Body, retry};
use crate::entry::{EntryRef, EntryView, KEY_BYTES_MAX, NewEntry, Sign};
use crate::latch::Version;
use crate::seek::SeekPos;
use crate::swept::Swept;

/// Entries taken at once by a walk over the whole tree.
const WALK_BATCH: usize = 256;

/// Ordered index events of one index, in memory. All methods may be called from any number of threads.
///
/// Nothing is freed before the tree is dropped, so what a method returns stays valid as long as the tree is borrowed.
#[derive(Default)]
pub struct Tree {
    body: OnceLock<Box<Body>>,
    swept: Swept,
}

/// What a probe found under one key, to be compared later with [`Tree::group_changed`].
#[derive(Clone, Copy, Debug)]
pub struct KeyGroup {
    /// Entries with exactly this key, dead ones included. Entries never leave a tree, so an equal number is the same set.
    entries: u64,
    /// The leaf that held the whole group, and its version: if that still stands, nothing needs counting.
    leaf: Option<(u32, Version)>,
}

impl KeyGroup {
    /// Number of entries with exactly this key, dead ones included.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

impl Tree {
    /// A tree without entries; costs no heap memory.
    pub fn new() -> Tree {
        Tree::default()
    }

    /// Whose entries are not in it.
    pub fn swept(&self) -> &Swept {
        &self.swept
    }

    /// Adds an index event. `key` compares bytewise; `unpack` is handed back as it is.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if key or unpack information exceed [`KEY_BYTES_MAX`], or the tree its 32 GiB.
    pub fn insert(
        &self,
        key: &[u8],
        row: RowId,
        txn: TxnId,
        lsn: Lsn,
        sign: Sign,
        unpack: &[u8],
    ) -> Result<EntryRef> {
        check_len("the key of an index entry", key)?;
        check_len("the unpack information of an index entry", unpack)?;
        let body = self.body.get_or_init(|| Box::new(Body::new()));
        let entry = NewEntry {
            key,
            row,
            txn,
            lsn,
            sign,
            unpack,
        };
        let Some((place, room)) = body.arena.allocate_entry(entry.bytes()) else {
            return Err(Error::TooLarge {
                what: "the part of an index that is kept in memory",
                bytes: body.arena.memory_bytes() as u64,
                limit: 32 << 30,
            });
        };
        // SAFETY: the arena just gave us this room, of that length and 8-aligned; its place is published below only.
        unsafe { entry.write(room) };
        retry(|| body.try_insert(place));
        Ok(EntryRef { tree: body.id, place })
    }

    /// Marks an entry dead: nobody can see it any more, and scans pass over it. False if it was marked before.
    ///
    /// # Panics
    /// If the entry belongs to another tree (rule X8).
    pub fn mark_dead(&self, entry: EntryRef) -> bool {
        let body = self.body_with_id(entry.tree);
        retry(|| body.try_mark_dead(entry.place))
    }

    /// The entry that `insert` made.
    ///
    /// # Panics
    /// If the entry belongs to another tree (rule X8).
    pub fn entry(&self, entry: EntryRef) -> EntryView<'_> {
        self.body_with_id(entry.tree).entry(entry.place)
    }

    /// Names entry `index` of a batch for [`Tree::mark_dead`]; none beyond the batch's length.
    ///
    /// # Panics
    /// If another tree filled the batch (rule X8).
    pub fn entry_ref(&self, batch: &Batch, index: usize) -> Option<EntryRef> {
        let place = *batch.places.get(index)?;
        Some(EntryRef {
            tree: self.body_of(batch).id,
            place,
        })
    }

    /// Replaces what `out` holds by the first entries right of `from`, at most `max`, ascending.
    pub fn read_batch_forward(&self, from: &SeekPos<'_>, out: &mut Batch, max: usize) {
        self.read(from, Direction::Forward, out, max);
    }

    /// Replaces what `out` holds by the last entries left of `from`, at most `max`, descending.
    pub fn read_batch_backward(&self, from: &SeekPos<'_>, out: &mut Batch, max: usize) {
        self.read(from, Direction::Backward, out, max);
    }

    /// Replaces what `out` holds by the entries beyond it, at most `max`, in the direction it was read. Cheaper than a
    /// new read, and the same as one from the last entry. Leaves `out` empty if it was, or at the end.
    ///
    /// # Panics
    /// If another tree filled the batch (rule X8).
    pub fn read_batch_on(&self, out: &mut Batch, max: usize) {
        if out.tree.is_some() {
            self.body_of(out).read_on(out, max);
        }
    }

    /// Replaces what `out` holds by the entries of the leaf that lies `share` (0 to 1) of the way along the tree, and as
    /// many of the next ones as it has dead ones, and one more. The answer is for how many leaves this one stands, if shares spread evenly.
    pub fn sample(&self, share: f64, out: &mut Batch) -> f64 {
        out.clear();
        let body = self.body.get();
        body.map_or(1.0, |body| retry(|| body.try_sample(share, out)))
    }

    fn read(&self, from: &SeekPos<'_>, direction: Direction, out: &mut Batch, max: usize) {
        out.clear();
        if let Some(body) = self.body.get() {
            body.read(from, direction, out, max);
        } else {
            out.tree = None;
            out.stop = Stop {
                direction,
                at_end: true,
                ..Stop::default()
            };
        }
    }

    /// About how many entries lie right of `low` and left of `high`, dead ones included; exact for short ranges.
    pub fn range_count_estimate(&self, low: &SeekPos<'_>, high: &SeekPos<'_>) -> u64 {
        self.body
            .get()
            .map_or(0, |body| retry(|| body.try_estimate(low, high)))
    }

    /// What lies under exactly this key now; for [`Tree::group_changed`]. Take it before judging the entries.
    pub fn key_group(&self, key: &[u8]) -> KeyGroup {
        let Some(body) = self.body.get() else {
            return KeyGroup {
                entries: 0,
                leaf: None,
            };
        };
        let (entries, start, in_one_leaf) = retry(|| body.try_count_key(key));
        let leaf = in_one_leaf.then_some((start.leaf.place, start.version));
        KeyGroup { entries, leaf }
    }

    /// True if an entry with exactly this key has come since `group` was taken. To be asked under the stripe latch of
    /// the key, so that the answer still holds when the claim is inserted (X9).
    pub fn group_changed(&self, key: &[u8], group: &KeyGroup) -> bool {
        let Some(body) = self.body.get() else { return false };
        let unchanged = group
            .leaf
            .is_some_and(|(place, version)| body.node(place).latch().validate(version).is_ok());
        !unchanged && retry(|| body.try_count_key(key)).0 != group.entries
    }

    /// Tells this tree from every other of the process; none before the first insert, and then no entry is of this tree.
    pub fn id(&self) -> Option<u64> {
        self.body.get().map(|body| body.id)
    }

    /// True if the entry belongs to this tree.
    pub fn owns(&self, entry: EntryRef) -> bool {
        self.id() == Some(entry.tree)
    }

    /// Calls `f` for every entry that is not dead, in order, until it fails. Of a tree that no longer changes these are all;
    /// otherwise rule X8 says which.
    ///
    /// # Errors
    /// That of `f`.
    pub fn try_for_each<E>(
        &self,
        mut f: impl FnMut(EntryView<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut batch = Batch::new();
        self.read_batch_forward(&SeekPos::START, &mut batch, WALK_BATCH);
        while !batch.is_empty() {
            batch.entries(self).try_for_each(&mut f)?;
            self.read_batch_on(&mut batch, WALK_BATCH);
        }
        Ok(())
    }

    /// Entries ever inserted, dead ones included.
    pub fn len(&self) -> u64 {
        self.body.get().map_or(0, |body| body.arena.entries())
    }

    /// True if nothing was ever inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Levels of nodes; 0 if nothing was ever inserted.
    pub fn depth(&self) -> usize {
        self.body
            .get()
            .map_or(0, |body| 1 + usize::from(retry(|| body.enter()).0.level()))
    }

    /// Bytes of the tree, entries and nodes included.
    pub fn memory_bytes(&self) -> usize {
        let heap = self
            .body
            .get()
            .map_or(0, |body| size_of::<Body>() + body.arena.memory_bytes());
        size_of::<Tree>() + heap
    }

    /// Walks the whole tree and compares it with its rules. No other thread may be inserting.
    ///
    /// # Errors
    /// A sentence that names the first rule found broken, and where.
    pub fn check(&self) -> std::result::Result<(), String> {
        self.body.get().map_or(Ok(()), |body| body.check())
    }

    #[inline]
    pub(crate) fn body_of(&self, batch: &Batch) -> &Body {
        let id = batch.tree.expect("X8: a batch with entries was filled by a tree");
        self.body_with_id(id)
    }

    #[inline]
    fn body_with_id(&self, id: u64) -> &Body {
        let body = self.body.get().filter(|body| body.id == id);
        body.expect("X8: an entry or batch is used with the tree it came from")
    }
}

fn check_len(what: &'static str, bytes: &[u8]) -> Result<()> {
    if bytes.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        bytes: bytes.len() as u64,
        limit: KEY_BYTES_MAX as u64,
    })
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("len", &self.len())
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}
