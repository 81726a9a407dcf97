//! Index hint: a search for one whole key of a unique index that goes to the row at once.
//!
//! Why it exists: see `pbxt_index::KeyHints`. Here a hint is held against the row that the reader's snapshot sees.
//! State: of a cursor the hints it read last, so that a search takes none of its own; after a row found so, key and row id are the
//! position, and the cursor beneath stands anywhere.
//! Rules: X58. B2 the row's word is loaded before the shape is.
//! Latches and I/O: none held between calls; reading a hinted row may load its block or its chunk of the log.

use super::{Access, Cursor, Index, IndexScan, Seek, Session, Show, Stand, Table};
use crate::error::Result;
use crate::key_hints::{HintsOfIndex, SEEKS_TOLD};
use crate::version::RowVersion;
use crate::view::Resolved;
use pbxt_base::RowId;
use pbxt_index::{HintKey, KeyHints};
use pbxt_rows::PayloadKeyMaker;
use std::sync::Arc;

/// What a cursor has of hints.
#[derive(Debug, Default)]
pub(super) struct HintWalk {
    hints: Option<Arc<KeyHints>>,
    /// How often those of the index had been exchanged before these were taken; 0: never looked.
    exchanges: u64,
    /// Searches that the index was not told of.
    seeks: u64,
    scratch: Vec<u8>,
}

impl HintWalk {
    /// Lets go of the hints.
    #[inline]
    pub(super) fn stop(&mut self) {
        if self.exchanges != 0 {
            self.hints = None;
            self.exchanges = 0;
        }
    }

    /// Counts a search, and takes the hints that the index has now.
    #[inline]
    fn begin(&mut self, session: &Session, of: &HintsOfIndex) {
        self.seeks += 1;
        if self.seeks == SEEKS_TOLD {
            self.seeks = 0;
            session.db.hints.note_seeks(of, SEEKS_TOLD);
        }
        let exchanges = of.exchanges();
        if self.exchanges != exchanges {
            self.exchanges = exchanges;
            self.hints = of.now();
        }
    }
}

impl IndexScan {
    /// The position is behind a row that was found by a hint: who goes on seeks from there.
    fn stand_at(&mut self, key: &[u8], row: RowId) {
        self.current_key.clear();
        self.current_key.extend_from_slice(key);
        self.current_row = row;
        self.forward = true;
        self.ended = false;
        self.stand = Stand::Row;
        self.is_of_key = true;
        self.is_outdated = true;
        self.wishes_prefix = false;
        self.lone.reset();
        self.handful.reset();
        self.ahead.reset();
    }
}

impl Cursor {
    /// How hints know the key, if it may be found by one (rule X58).
    #[inline]
    pub(super) fn hint_key(
        &mut self,
        session: &Session,
        index: &Index,
        (key, seek): (&[u8], Seek),
        show: &impl Show,
    ) -> Option<HintKey> {
        let may_be_followed = seek == Seek::Key
            && index.finder().is_some()
            && self.access == Access::Snapshot
            && !self.is_noting
            && !show.wants_key()
            && !show.is_choosy()
            && !session.has_entered(&self.table);
        if !may_be_followed {
            return None;
        }
        self.index.hinted.begin(session, index.hints());
        let hints = self.index.hinted.hints.as_ref()?;
        let hint = HintKey::of(key);
        hints.prefetch(hint);
        Some(hint)
    }

    /// The row was found under the key by the normal way.
    #[inline]
    pub(super) fn set_hint(&self, hint: HintKey) {
        if let Some(hints) = &self.index.hinted.hints {
            hints.set(hint, self.row());
        }
    }

    /// Shows the row with the key of the present search, if a hint leads to it.
    pub(super) fn show_hinted(
        &mut self,
        session: &Session,
        (table, index): (&Table, &Index),
        hint: HintKey,
        show: &mut impl Show,
    ) -> Result<bool> {
        let (Some(hints), Some(finder)) = (self.index.hinted.hints.take(), index.finder()) else {
            return Ok(false);
        };
        let found = hints.find(hint, |row| {
            self.show_if_key(session, (table, finder), row, show).transpose()
        });
        self.index.hinted.hints = Some(hints);
        let Some(row) = found.transpose()? else {
            return Ok(false);
        };
        self.note_shown(row);
        let key = std::mem::take(&mut self.index.prefix);
        self.index.stand_at(&key, row);
        self.index.prefix = key;
        self.take_ready();
        self.at_hand = None;
        Ok(true)
    }

    /// Shows the row if the snapshot sees it with the key that is sought; then it is the answer, for no other row has the key.
    #[inline]
    fn show_if_key(
        &mut self,
        session: &Session,
        (table, finder): (&Table, &PayloadKeyMaker),
        row: RowId,
        show: &mut impl Show,
    ) -> Result<Option<RowId>> {
        self.check_kill(session)?;
        let guard = crossbeam_epoch::pin();
        let word = table.map.load_in(row, &guard);
        let Self { view, index, .. } = self;
        let (key, scratch) = (&index.prefix, &mut index.hinted.scratch);
        let mut show_it = |payload: &[u8], version: u16| {
            // A key that cannot be made is not this one, as far as is known here.
            let is_it = finder.is_key_of(payload, key, scratch).unwrap_or_default();
            is_it.then(|| show.row(&RowVersion::new(row, payload, version)))
        };
        let at_hand = word
            .is_absent()
            .then(|| {
                table
                    .base
                    .look_at(&session.db, table.versions(), row, &mut show_it)
            })
            .flatten();
        let shown = at_hand.unwrap_or_else(|| {
            view.viewer.own = session.work.txn;
            // What cannot be read may be another row: who goes the normal way meets the error if it is not.
            match view.resolve(&session.db, table, row, word, &guard) {
                Ok(Resolved::Row(found)) => show_it(found.payload(), found.schema_version()),
                _ => None,
            }
        });
        shown.transpose().map(|shown| shown.map(|()| row))
    }
}
