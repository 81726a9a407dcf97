//! Index cursor: positions in an index, both directions, with the row behind every visible entry.
//!
//! Why it exists: an index entry is an event of a (key, row id); which rows a reader finds under a key is decided from
//! those events by the same visibility rules as versions.
//! Rules: T11 of the visible events of one (key, row id) the greatest LSN decides, the entry wins at equal LSN. T22 where
//! the row is locked first, its events are read again afterwards. X12 an entry found dead for everyone is marked so that
//! later readers pass it without a look at the row. X16 entries that the host does not want are passed before anything of their
//! row is read, locked or noted. X49 a search for one whole key knows that key only. X58 a hint may lead to its row at once. X56 lone entries are taken many at once. X62 where a scan stands. AL20 an index that an
//! ALTER has built answers for snapshots since.
//! Latches and I/O: none held between calls. Entries are immutable and live as long as the tree.

use crate::cursor::{Access, Cursor};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::fetch_ahead::FetchAhead;
use crate::noting::NotedScan;
use crate::session::Session;
use crate::table::{Index, Table};
use crate::version::{Admission, RowVersion, Show};
use crate::view::{View, read_version};
use crossbeam_epoch::Guard;
use pbxt_base::{Lsn, RowId, planted, stop_point};
use pbxt_index::{EntryMark, EntryView, IndexParts, MergedCursor, SeekPos, Sign};
use pbxt_txn::{EventDecision, IndexEvent, KeyRange, Stamp, TxnStatus, Verdict, Viewer, decide_events};
use std::sync::Arc;

#[path = "index_again.rs"]
mod again;
#[path = "index_ahead.rs"]
mod ahead;
#[path = "index_count.rs"]
mod count;
#[path = "index_handful.rs"]
mod handful;
#[path = "index_hint.rs"]
mod hint;
#[path = "index_lone.rs"]
mod lone;
#[path = "index_moves.rs"]
mod moves;
#[path = "index_probe.rs"]
mod probe;
#[path = "index_ranges.rs"]
mod ranges;
#[path = "index_show.rs"]
mod show;
pub(crate) use again::Since;
use handful::Handful;
use hint::HintWalk;
use lone::LoneWalk;
use moves::{Stand, behind};
pub(crate) use ranges::IndexRange;
use ranges::ReadRanges;
use show::SecondLook;

/// Where to go in an index, by a key prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// First entry equal to the prefix.
    Exact,
    /// The same, for who knows that the prefix is a whole key: runs that cannot have it are not asked.
    Key,
    /// First entry not below the prefix.
    OrNext,
    /// First entry above all that begin with the prefix.
    After,
    /// Last entry not above the prefix.
    OrPrev,
    /// Last entry below the prefix.
    Before,
    /// Last entry equal to the prefix.
    Last,
}

impl Seek {
    /// True if only entries that begin with the prefix are sought.
    pub(crate) fn is_of_prefix(self) -> bool {
        matches!(self, Self::Exact | Self::Key | Self::Last)
    }
}

/// State of an index scan.
#[derive(Debug, Default)]
pub(crate) struct IndexScan {
    number: usize,
    /// Parts the entries come from; exchanged when the index has others (see `Cursor::renew`).
    parts: Option<Arc<IndexParts>>,
    /// How often the index had got other parts before these were taken.
    installs: u64,
    entries: MergedCursor,
    forward: bool,
    ended: bool,
    /// It has, for who wanted rows of the prefix only.
    ended_with_prefix: bool,
    stand: Stand,
    /// Only entries under one key were sought: whoever goes on to others seeks again (rule X49).
    is_of_key: bool,
    prefix: Vec<u8>,
    must_match: bool,
    /// The last row of the prefix was sought: who goes back from it may want no row of another one (rule X50).
    wishes_prefix: bool,
    end: Option<(Vec<u8>, bool)>,
    /// Key and row of the row last shown.
    current_key: Vec<u8>,
    current_row: RowId,
    /// Key and row of the group being judged.
    group_key: Vec<u8>,
    group_row: RowId,
    /// The entries read ahead are older than the row last visited.
    is_stale: bool,
    /// They are of a statement before: who goes on seeks again.
    pub(crate) is_outdated: bool,
    /// Unpack information of the entry that decides.
    group_unpack: Vec<u8>,
    /// The group's first entry.
    group_mark: Option<EntryMark>,
    events: Vec<IndexEvent>,
    second_look: SecondLook,
    lone: LoneWalk,
    handful: Handful,
    ahead: FetchAhead,
    ranges: ReadRanges,
    hinted: HintWalk,
    /// What of the index is noted as read (rule T30).
    pub(crate) noted: NotedScan,
}

impl IndexScan {
    fn begin(&mut self, db: &Database, index: &Index, from: &SeekPos<'_>, forward: bool) -> Result<()> {
        let parts = self.begin_at(index, forward, false);
        self.entries.seek(&parts, &db.cache, from, forward)?;
        stop_point!("seek.after_entries");
        self.parts = Some(parts);
        Ok(())
    }

    /// Begins forward at a cut with a whole key, for entries of that key only.
    fn begin_key(&mut self, db: &Database, index: &Index, from: &SeekPos<'_>) -> Result<()> {
        let parts = self.begin_at(index, true, true);
        self.entries.seek_key(&parts, &db.cache, from)?;
        stop_point!("seek.after_entries");
        self.parts = Some(parts);
        Ok(())
    }

    /// The parts to be read. Most seeks find them as they were: taking them again would write to a word that all sessions write to.
    /// They are not kept over a seek that fails.
    fn begin_at(&mut self, index: &Index, forward: bool, is_of_key: bool) -> Arc<IndexParts> {
        self.forward = forward;
        self.is_of_key = is_of_key;
        self.ended = false;
        self.is_outdated = false;
        self.lone.reset();
        self.handful.reset();
        self.ahead.reset();
        match self.parts.take() {
            Some(parts) if index.is_unchanged(self.installs) => parts,
            _ => {
                self.installs = index.installs();
                index.parts()
            }
        }
    }

    /// Goes over to the index of this number.
    fn change_to(&mut self, number: usize) {
        if self.number != number {
            // Another index counts its exchanges by itself.
            self.parts = None;
            self.hinted.stop();
            self.number = number;
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The border of forward moves.
    pub(crate) fn border(&self) -> Option<(&[u8], bool)> {
        self.end
            .as_ref()
            .map(|(key, inclusive)| (key.as_slice(), *inclusive))
    }

    /// The row of the entry that comes next, if the scan is expected to go on to it.
    #[inline]
    fn row_ahead(&self) -> Option<RowId> {
        let next = self.entries.peek().filter(|_| !self.must_match)?;
        Some(next.row())
    }

    /// The block of a row that was looked for was not at hand (rule X55).
    #[inline]
    pub(crate) fn note_miss(&mut self) {
        self.ahead.miss();
    }

    /// Key of the row last shown, and whether the scan goes forward; none if it has come to its end.
    pub(crate) fn last_shown(&self) -> Option<(&[u8], bool)> {
        (!self.ended).then_some((self.current_key.as_slice(), self.forward))
    }

    /// Rule X50: true if the scan has come to entries that nobody may want.
    fn is_past_wish(&mut self) -> bool {
        let Self { entries, prefix, .. } = self;
        let is_wished = |next: EntryView<'_>| next.key().starts_with(prefix);
        self.wishes_prefix && !self.forward && !entries.peek().is_some_and(is_wished)
    }

    /// Lets go of trees, files and blocks.
    pub(crate) fn stop(&mut self) {
        self.close_noted();
        self.parts = None;
        self.entries.clear();
        self.second_look.let_go();
        self.lone.reset();
        self.handful.reset();
        self.ahead.release();
        self.hinted.stop();
        self.ranges.stop();
        self.ended = true;
    }
}

impl Cursor {
    /// Begins reading through index `number`.
    pub fn index_start(&mut self, session: &mut Session, number: usize) -> Result<()> {
        self.begin_reading(session)?;
        self.refuse_younger_index(number)?;
        self.index.close_noted();
        self.index.change_to(number);
        self.index.ended = true;
        self.index.lone.reset();
        self.index.handful.reset();
        self.index.end = None;
        self.index.must_match = false;
        self.index.ahead.expect(0);
        Ok(())
    }

    /// Refuses an index that was built of newer rows than those the snapshot sees (rule AL20).
    fn refuse_younger_index(&self, number: usize) -> Result<()> {
        let goes_by_snapshot = match self.access {
            Access::Snapshot | Access::LockSeen(_) => true,
            Access::Current | Access::LockNewest(_) => self.view.refuses_newer(),
        };
        match self.table.indexes.get(number) {
            Some(index) if goes_by_snapshot && !index.answers(self.view.viewer.snapshot) => {
                Err(Error::DefinitionChanged {
                    table: self.table.name().to_string(),
                    why: format!(
                        "index '{}' was built after this transaction's snapshot: end the transaction, or read without the index",
                        index.def.name
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Entries beyond this border end forward moves.
    pub fn set_end(&mut self, end: Option<(&[u8], bool)>) {
        self.index.end = end.map(|(key, inclusive)| (key.to_vec(), inclusive));
        self.index.outdate_strip();
        self.index.noted.is_outgrown = true;
    }

    /// About so many rows will be asked for from each seek on, 0: nobody knows. They are looked for together (rule X60), and others are not fetched far
    /// beyond (X51); a wrong number costs time alone.
    pub fn expect(&mut self, rows: u64) {
        self.index.ahead.expect(rows);
    }

    /// Goes to the first row that `seek` names. False if there is none.
    pub fn seek(
        &mut self,
        session: &mut Session,
        prefix: &[u8],
        seek: Seek,
        show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.seek_showing(session, prefix, seek, show)
    }

    /// `seek` for those who can do with the index entry.
    pub(crate) fn seek_showing(
        &mut self,
        session: &mut Session,
        prefix: &[u8],
        seek: Seek,
        show: impl Show,
    ) -> Result<bool> {
        let table = self.borrow_table();
        let found = self.seek_in(session, &table, (prefix, seek), show);
        self.give_back(table);
        found
    }

    fn seek_in(
        &mut self,
        session: &mut Session,
        table: &Arc<Table>,
        (prefix, seek): (&[u8], Seek),
        mut show: impl Show,
    ) -> Result<bool> {
        let index = self.index_of(table)?;
        let hint = self.hint_key(session, index, (prefix, seek), &show);
        self.leave_row();
        self.index.prefix.clear();
        self.index.prefix.extend_from_slice(prefix);
        if let Some(hint) = hint
            && self.show_hinted(session, (table, index), hint, &mut show)?
        {
            return Ok(true);
        }
        let mut since = self.since(session);
        loop {
            let found = self.search(session, table, (prefix, seek), &mut show);
            if matches!(found, Ok(false))
                && let Some(since) = &mut since
                && self.was_overtaken(session, seek, since)?
            {
                continue;
            }
            if matches!(found, Ok(true))
                && let Some(hint) = hint
            {
                self.set_hint(hint);
            }
            return found;
        }
    }

    /// Seeks once.
    fn search(
        &mut self,
        session: &mut Session,
        table: &Arc<Table>,
        (prefix, seek): (&[u8], Seek),
        show: &mut impl Show,
    ) -> Result<bool> {
        let index = &table.indexes[self.index.number];
        let (stand, forward) = Stand::of_seek(seek);
        let from = stand.place_of(prefix);
        self.index.stand = stand;
        if self.is_noting {
            self.note_seek(session, prefix, seek);
        }
        if seek == Seek::Key {
            self.index.begin_key(&session.db, index, &from)?;
        } else {
            self.index.begin(&session.db, index, &from, forward)?;
        }
        self.index.wishes_prefix = seek == Seek::Last;
        self.index.must_match = seek.is_of_prefix();
        let found = self.advance(session, table, show);
        let same = std::mem::take(&mut self.index.must_match);
        if matches!(found, Ok(true)) {
            self.index.stand = Stand::Row;
        } else {
            self.index.end_with_prefix(same);
        }
        found
    }

    /// Goes to the first or last row of the index.
    pub fn index_edge(
        &mut self,
        session: &mut Session,
        last: bool,
        show: impl FnMut(&RowVersion<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.index_edge_showing(session, last, show)
    }

    /// `index_edge` for those who can do with the index entry.
    pub(crate) fn index_edge_showing(
        &mut self,
        session: &mut Session,
        last: bool,
        mut show: impl Show,
    ) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let index = self.index_of(&table)?;
        self.leave_row();
        let stand = if last {
            Stand::BehindPrefix
        } else {
            Stand::BeforePrefix
        };
        // Of all keys.
        self.index.prefix.clear();
        self.index.stand = stand;
        self.index.wishes_prefix = false;
        if self.is_noting {
            self.note_open_range(session, KeyRange::everything(), !last);
        }
        self.index
            .begin(&session.db, index, &stand.place_of(&[]), !last)?;
        let found = self.advance(session, &table, &mut show);
        if matches!(found, Ok(true)) {
            self.index.stand = Stand::Row;
        } else {
            self.index.end_with_prefix(false);
        }
        found
    }

    /// The index being read.
    #[inline]
    fn index_of<'t>(&self, table: &'t Table) -> Result<&'t Index> {
        let none = || Error::Invalid(format!("table '{}' has no such index to be read", table.name()));
        table.indexes.get(self.index.number).ok_or_else(none)
    }

    /// Key of the row last shown.
    pub(crate) fn current_key(&self) -> &[u8] {
        self.index
            .lone
            .last()
            .map_or(&self.index.current_key, |(key, _)| key)
    }

    /// Goes to the next row that is shown.
    fn advance(&mut self, session: &mut Session, table: &Arc<Table>, show: &mut impl Show) -> Result<bool> {
        let found = self.walk(session, table, show)?;
        if self.is_noting {
            session.settle_victim()?;
            // Who finds nothing more has read to the end of what is noted.
            self.index.noted.has_shown = found;
        }
        Ok(found)
    }

    /// Shows the next row of those taken at once, or takes some where that is worth it; none if the scan goes on by itself.
    #[inline]
    fn show_of_many(
        &mut self,
        session: &mut Session,
        index: &Index,
        show: &mut impl Show,
    ) -> Result<Option<bool>> {
        if self.index.ahead.is_waiting()
            && let Some(shown) = self.serve_ahead(session, index, show)?
        {
            return Ok(Some(shown));
        }
        if self.index.handful.is_waiting()
            && let Some(shown) = self.show_of_handful(session, show)?
        {
            return Ok(Some(shown));
        }
        if !self.index.ended && !show.wants_key() && self.index.ahead.is_worth_it() {
            let shown = self.show_of_ahead(session, index, show)?;
            if shown.is_some() {
                return Ok(shown);
            }
        }
        if self.index.ended {
            return Ok(Some(false));
        }
        if show.wants_key() {
            let shown = self.show_of_strips(session, index, show)?;
            return Ok(shown.then_some(true));
        }
        self.show_of_handful(session, show)
    }

    /// Walks groups of events of one (key, row id) until one shows its row.
    fn walk(&mut self, session: &mut Session, table: &Arc<Table>, show: &mut impl Show) -> Result<bool> {
        let index = &table.indexes[self.index.number];
        if let Some(shown) = self.show_of_many(session, index, show)? {
            return Ok(shown);
        }
        let reads_rows = !show.wants_key() && !show.is_choosy();
        while let Some(first) = self.index.entries.peek() {
            if is_beyond(&self.index, first.key()) {
                self.index.ended = true;
                break;
            }
            if reads_rows && !first.is_dead() {
                let row = first.row();
                self.make_ready(&session.db, row);
            }
            if !self.take_group(session, show.wants_key() || show.is_choosy())? {
                // There may be millions that nobody but their writer sees.
                self.check_kill(session)?;
                continue;
            }
            match self.admission(session, show)? {
                Admission::Wanted => {}
                Admission::Unwanted => continue,
                Admission::Beyond => {
                    self.index.ended = true;
                    break;
                }
            }
            let row = self.index.group_row;
            self.note_row(session, row);
            if show.wants_key() && self.is_plain(row) {
                self.show_key(session, row, show)?;
                return Ok(true);
            }
            self.take_ready();
            if let Some(next) = self.index.row_ahead().filter(|_| reads_rows) {
                self.make_ready(&session.db, next);
            }
            let key = std::mem::take(&mut self.index.group_key);
            let shown = self.show_entry(session, index, &key, row, show);
            let read_on = self.read_on_behind(session, index, &key, row);
            self.index.group_key = key;
            read_on?;
            if shown? {
                if show.wants_key() {
                    // Rule X52.
                    show.key(&self.index.group_key, &self.index.group_unpack)?;
                }
                std::mem::swap(&mut self.index.current_key, &mut self.index.group_key);
                self.index.current_row = row;
                return Ok(true);
            }
            if self.is_gone_for_all(session, row)? {
                // Rule X12.
                self.mark_group_dead();
            }
        }
        // As if the next key had been met.
        self.index.ended |= self.index.is_of_key;
        Ok(false)
    }

    /// Shows a row by its entry alone.
    #[inline]
    fn show_key(&mut self, session: &Session, row: RowId, show: &mut impl Show) -> Result<()> {
        self.check_kill(session)?;
        show.key(&self.index.group_key, &self.index.group_unpack)?;
        self.note_shown(row);
        self.index.lone.count();
        std::mem::swap(&mut self.index.current_key, &mut self.index.group_key);
        self.index.current_row = row;
        Ok(())
    }

    /// What the host says to the entry just taken (rule X16).
    #[inline]
    fn admission(&mut self, session: &Session, show: &mut impl Show) -> Result<Admission> {
        if !show.is_choosy() {
            return Ok(Admission::Wanted);
        }
        self.check_kill(session)?;
        show.admit(
            &self.index.group_key,
            &self.index.group_unpack,
            self.index.group_row,
        )
    }

    /// Rule T22: entries behind this one that were read before a wait, or before somebody moved the row, are old: they are read again.
    #[inline]
    fn read_on_behind(&mut self, session: &Session, index: &Index, key: &[u8], row: RowId) -> Result<()> {
        if !std::mem::take(&mut self.index.is_stale) {
            return Ok(());
        }
        let forward = self.index.forward;
        let from = behind(key, row, forward);
        self.index.begin(&session.db, index, &from, forward)
    }

    /// True if the row was deleted and no live or later snapshot can see it: then every entry of it is dead (rule X5). Keeps
    /// the head of a queue from becoming a graveyard.
    fn is_gone_for_all(&self, session: &Session, row: RowId) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        let word = self.table.map.load_in(row, &guard);
        if word.is_absent() {
            return Ok(self.table.gone.contains(row));
        }
        if !word.is_tombstone() {
            return Ok(false);
        }
        let Some(tombstone) = read_version(&session.db, word.addr(), &guard)? else {
            return Ok(self.table.gone.contains(row));
        };
        let standing = session
            .db
            .txns
            .standing(tombstone.txn(), word.addr().lsn(), &guard);
        Ok(!standing.void
            && match standing.status {
                TxnStatus::Settled => true,
                TxnStatus::Committed(ts) => ts <= session.db.horizon(),
                TxnStatus::Active | TxnStatus::Prepared | TxnStatus::Aborted => false,
            })
    }

    /// True if an entry that the snapshot sees says all there is to know (rule B7): nobody deleted the row. A hot row whose
    /// head is no tombstone is there for whoever sees its entry; one that is not hot, unless its deletion is settled.
    #[inline]
    fn is_plain(&self, row: RowId) -> bool {
        if self.access != Access::Snapshot || self.may_be_removed {
            return false;
        }
        self.is_plain_in(row, &crossbeam_epoch::pin())
    }

    /// The same for a snapshot whose transaction has removed no row of the table before.
    #[inline]
    fn is_plain_in(&self, row: RowId, guard: &Guard) -> bool {
        let map = &self.table.map;
        // Rule B7: a settled deletion is in the set before the word, or its whole leaf, loses the tombstone.
        if map.may_be_deleted(row, guard) && map.load_in(row, guard).is_tombstone() {
            return false;
        }
        !self.table.gone.contains(row)
    }

    fn mark_group_dead(&self) {
        if let Some(mark) = self.index.group_mark {
            self.index.entries.mark_dead(mark);
        }
    }

    /// Consumes the events of one (key, row id) and notes which. True if the row may be under the key for this reader.
    #[inline]
    fn take_group(&mut self, session: &Session, with_unpack: bool) -> Result<bool> {
        self.view.viewer.own = session.work.txn;
        let scan = &mut self.index;
        let Some(first) = scan.entries.peek() else {
            return Ok(false);
        };
        scan.group_key.clear();
        scan.group_key.extend_from_slice(first.key());
        scan.group_row = first.row();
        scan.group_mark = scan.entries.mark();
        if with_unpack {
            scan.group_unpack.clear();
            scan.group_unpack.extend_from_slice(first.unpack());
        }
        let (is_dead, sign) = (first.is_dead(), first.sign());
        let stamp = stamp_of(first);
        scan.entries.advance()?;
        let is_more = |next: EntryView<'_>| next.row() == scan.group_row && next.key() == scan.group_key;
        if !scan.entries.peek().is_some_and(is_more) {
            if is_dead || sign == Sign::Anti {
                return Ok(false);
            }
            // Settled entries are most of all: no transaction is asked for.
            if stamp.txn.raw() == 0 {
                return Ok(true);
            }
            let judge = |view: &mut View| view.judge(&session.db, stamp, &crossbeam_epoch::pin());
            let verdict = self.view.kept(stamp.txn);
            return Ok(verdict.map_or_else(|| judge(&mut self.view), Ok)? != Verdict::Skip);
        }
        scan.events.clear();
        if counts(is_dead, sign) {
            scan.events.push(event_of(&session.db, stamp, sign));
        }
        // The newest entry that counts for this reader has the spelling: backwards it is met first.
        let is_present = |event: Option<&IndexEvent>| {
            decide_events(&self.view.viewer, event.copied()) == EventDecision::Present
        };
        let mut is_newest =
            !scan.forward && sign == Sign::Entry && with_unpack && is_present(scan.events.last());
        while let Some(next) = scan.entries.peek() {
            if next.row() != scan.group_row || next.key() != scan.group_key {
                break;
            }
            if counts(next.is_dead(), next.sign()) {
                scan.events
                    .push(event_of(&session.db, stamp_of(next), next.sign()));
                let may_be_newest = with_unpack && next.sign() == Sign::Entry && !is_newest;
                if may_be_newest && is_present(scan.events.last()) {
                    scan.group_unpack.clear();
                    scan.group_unpack.extend_from_slice(next.unpack());
                    is_newest = !scan.forward;
                }
            }
            scan.entries.advance()?;
        }
        if !self.view.reader.is_none() {
            for event in &self.index.events {
                self.view.pass_over(&session.db, event.stamp.txn, event.standing);
            }
        }
        Ok(decide_events(&self.view.viewer, self.index.events.iter().copied()) != EventDecision::Absent)
    }
}

/// True if a scan has no business at `key`.
#[inline]
fn is_beyond(scan: &IndexScan, key: &[u8]) -> bool {
    let prefix = scan.must_match.then_some(scan.prefix.as_slice());
    is_beyond_of(prefix, scan.end.as_ref().filter(|_| scan.forward), key)
}

/// The same for a prefix that keys must have, and a border of moves forward.
#[inline]
fn is_beyond_of(prefix: Option<&[u8]>, end: Option<&(Vec<u8>, bool)>, key: &[u8]) -> bool {
    if prefix.is_some_and(|prefix| !key.starts_with(prefix)) {
        return true;
    }
    end.is_some_and(|(end, inclusive)| {
        let head = key.get(..end.len()).unwrap_or(key);
        if *inclusive {
            head > end.as_slice()
        } else {
            head >= end.as_slice()
        }
    })
}

/// True if an event has a say in whether its row is under the key.
#[inline]
fn counts(is_dead: bool, sign: Sign) -> bool {
    let is_passed_over = sign == Sign::Anti && planted!("index.no_anti_entries");
    !is_dead && !is_passed_over
}

#[inline]
fn stamp_of(entry: EntryView<'_>) -> Stamp {
    Stamp {
        txn: entry.txn(),
        lsn: entry.lsn(),
    }
}

/// An index event with the standing its transaction has now.
pub(crate) fn event_of(db: &Database, stamp: Stamp, sign: Sign) -> IndexEvent {
    let guard = crossbeam_epoch::pin();
    let sign = if sign == Sign::Entry {
        pbxt_txn::Sign::Entry
    } else {
        pbxt_txn::Sign::AntiEntry
    };
    IndexEvent {
        sign,
        stamp,
        standing: db.txns.standing(stamp.txn, stamp.lsn, &guard),
    }
}

/// Calls `found` for every event of this row under exactly this key that may count. Others may have the same key, a million of them:
/// they are not met.
pub(crate) fn events_of(
    db: &Database,
    parts: &Arc<IndexParts>,
    key: &[u8],
    row: RowId,
    entries: &mut MergedCursor,
    mut found: impl FnMut(IndexEvent),
) -> Result<()> {
    let first = SeekPos::before(key, row, Lsn::new(0), Sign::Anti);
    entries.seek_key(parts, &db.cache, &first)?;
    while let Some(entry) = entries.peek() {
        if entry.row() != row || entry.key() != key {
            break;
        }
        if !entry.is_dead() {
            found(event_of(db, stamp_of(entry), entry.sign()));
        }
        entries.advance()?;
    }
    Ok(())
}
