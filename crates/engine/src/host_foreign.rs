//! Host foreign: changes by record buffers that keep the constraints.
//!
//! Why it exists: constraints are checked where both the record and the row are at hand; a table without any pays one branch.
//! Rules: FK12 parents are locked before the row is written. FK13 a row that others may refer to is written first, then its children are looked
//! up; if they forbid it, it is taken back alone. FK18 with checks off nothing is done. FK23 a row whose
//! bindings have changed before it is written, or before what follows from it is done, is begun anew. FK53 rows that an action has reached before the statement does; those that it has deleted are not shown.
//! FK54 a parent whose place is about to be taken is waited for, by actions with the row that they follow from taken back.
//! Latches and I/O: those of any change of a row.

use super::{Fill, HostCursor, HostTable};
use crate::error::{Error, Result};
use crate::foreign_action::{Actions, record_without_pointers};
use crate::foreign_plan::{Plan, Writer};
use crate::session::Session;
use crate::version::Show;
use crate::view::{Resolved, View, read_version};
use crate::write::{OldRow, Terms, Updated};
use pbxt_base::RowId;
use pbxt_rows::{ColumnSet, HostRecord, Projection};
use pbxt_txn::Viewer;
use std::sync::Arc;
use std::time::Duration;

/// How often who waits for an exchange of tables looks.
const LOOK: Duration = Duration::from_millis(2);

/// The newest version of a row that the running statement has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    There,
    Gone,
}

/// What a cursor knows of constraints.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// The statement keeps them.
    pub checks: bool,
    /// Changes of bindings for which the plan is known to hold.
    bindings: Option<u64>,
    plan: Option<Box<Plan>>,
}

impl HostTable {
    pub(crate) fn projection(&self, columns: ColumnSet) -> Projection {
        self.codec.projection(columns)
    }

    /// Fills columns of a record that hold no pointers.
    pub(crate) fn decode_numbers(
        &self,
        payload: &[u8],
        projection: &Projection,
        record: &mut [u8],
    ) -> Result<()> {
        let mut values = crate::stored_values::StoredValues::new(self.db.blobs());
        self.codec.decode(payload, projection, record, &mut values)?;
        Ok(())
    }
}

impl HostCursor {
    /// Makes the plan anew if bindings of its tables have changed.
    fn rebind(&mut self) -> Result<()> {
        if !self.is_bound() {
            // The count first: what changes after it is seen by the next look.
            let bindings = self.host.db.bindings();
            self.foreign.plan = Plan::of(&self.host)?;
            self.foreign.bindings = Some(bindings);
        }
        Ok(())
    }

    /// True if the plan still says how its tables are bound (rule FK23).
    #[inline]
    fn is_bound(&mut self) -> bool {
        let bindings = self.host.db.bindings();
        self.foreign.bindings == Some(bindings) || self.holds_for(bindings)
    }

    /// Other tables were bound, or ours.
    #[cold]
    fn holds_for(&mut self, bindings: u64) -> bool {
        let holds = match &self.foreign.plan {
            Some(plan) => plan.is_bound(),
            None => false,
        };
        if holds {
            self.foreign.bindings = Some(bindings);
        }
        holds
    }

    /// Locks the parents of a row that is about to be written (rule FK12).
    #[inline]
    pub(super) fn check_references(
        &mut self,
        session: &mut Session,
        old: Option<HostRecord<'_>>,
        new: HostRecord<'_>,
    ) -> Result<()> {
        self.rebind()?;
        match &self.foreign.plan {
            Some(plan) if !plan.nodes[0].outgoing.is_empty() => self.check_parents(session, old, new),
            _ => Ok(()),
        }
    }

    fn check_parents(
        &mut self,
        session: &mut Session,
        old: Option<HostRecord<'_>>,
        new: HostRecord<'_>,
    ) -> Result<()> {
        let mut since = None;
        loop {
            let Some(plan) = &mut self.foreign.plan else {
                return Ok(());
            };
            let mut fresh = Vec::new();
            let entered = plan.nodes[0].enter_parents(session, &mut fresh);
            if self.is_bound() {
                entered?;
                let Some(plan) = &mut self.foreign.plan else {
                    return Ok(());
                };
                let checked = plan.nodes[0].check(session, old, new, None);
                let comes = matches!(checked, Err(Error::NoReferencedRow { .. }))
                    && plan.nodes[0].has_parent_to_come(&self.host.db);
                if !comes || !sleep_once(session, &mut since)? {
                    return checked;
                }
                continue;
            }
            // A parent came, went or was exchanged before its lock was there.
            if let Err(error @ (Error::Deadlock { .. } | Error::Killed | Error::LockTimeout { .. })) = entered
            {
                return Err(error);
            }
            // Nothing was done under them, and whoever exchanges tables drops the one that was.
            for table in &fresh {
                session.leave_table(table);
            }
            self.rebind()?;
        }
    }

    /// True if the table refers to itself and constraints are kept (rule FK20).
    pub(super) fn refers_to_itself(&mut self) -> Result<bool> {
        if !self.foreign.checks {
            return Ok(false);
        }
        self.rebind()?;
        let table = self.host.table();
        let is_own = |link: &crate::foreign_plan::ChildLink| Arc::ptr_eq(&link.child, table);
        Ok(self
            .foreign
            .plan
            .as_ref()
            .is_some_and(|plan| plan.nodes[0].incoming.iter().any(is_own)))
    }

    /// `update` that keeps the constraints.
    pub(super) fn update_checked(
        &mut self,
        session: &mut Session,
        row: RowId,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
    ) -> Result<bool> {
        self.refuse_overtaken(session, row, old)?;
        let mut since = None;
        loop {
            self.check_references(session, Some(old), new)?;
            let updated = if self.is_touched(old, new)? {
                self.update_referred(session, row, (old, new), &mut since)?
            } else {
                self.replace(session, row, old, new, self.foreign.bindings)?
            };
            if updated != Updated::Rebound {
                return Ok(updated == Updated::Written);
            }
        }
    }

    /// The same for values that others may refer to.
    fn update_referred(
        &mut self,
        session: &mut Session,
        row: RowId,
        (old, new): (HostRecord<'_>, HostRecord<'_>),
        since: &mut Option<u64>,
    ) -> Result<Updated> {
        session.begin_row()?;
        let updated = self.replace(session, row, old, new, self.foreign.bindings);
        let done = updated.and_then(|updated| {
            if updated == Updated::Written {
                self.act(session, old, Some(new))?;
            }
            Ok(updated)
        });
        self.end_row(session, done, since)
    }

    /// The change of a row stays, or is taken back with all that followed from it, also if it was done by bindings that are no
    /// longer those of its tables (rule FK23).
    fn end_row(
        &mut self,
        session: &mut Session,
        done: Result<Updated>,
        since: &mut Option<u64>,
    ) -> Result<Updated> {
        let plan = self.foreign.plan.as_mut();
        let fresh = plan.map_or_else(Vec::new, |plan| std::mem::take(&mut plan.fresh));
        let may_be_stale = matches!(
            done,
            Ok(Updated::Written)
                | Err(Error::RowIsReferenced { .. }
                    | Error::NoReferencedRow { .. }
                    | Error::DefinitionChanged { .. })
        );
        if may_be_stale && !self.is_bound() {
            session.take_back_row()?;
            // What was done under them is taken back, and the new plan locks those that are parents still.
            for table in &fresh {
                session.leave_table(table);
            }
            return Ok(Updated::Rebound);
        }
        if matches!(done, Err(Error::NoReferencedRow { .. })) && self.has_parent_to_come() {
            // Taken back before the wait: nobody finds what may not stay, and nothing is written again and again.
            session.take_back_row()?;
            while self.is_bound() && self.has_parent_to_come() {
                if !sleep_once(session, since)? {
                    return done;
                }
            }
            return Ok(Updated::Rebound);
        }
        session.end_row(done)
    }

    /// True if a table of the plan lacks a parent that is about to come (rule FK54).
    fn has_parent_to_come(&self) -> bool {
        let db = &self.host.db;
        let plan = self.foreign.plan.as_ref();
        plan.is_some_and(|plan| plan.nodes.iter().any(|node| node.has_parent_to_come(db)))
    }

    /// True if the row just shown to a statement that changes rows is gone by an action that it has caused (rule FK53). There was none
    /// before the first change, which makes the plan.
    #[inline]
    pub(crate) fn is_gone_by_action(&self, session: &Session) -> Result<bool> {
        match &self.foreign.plan {
            Some(plan) if self.foreign.checks && self.cursor.bind.for_write => {
                let is_reached = plan.nodes[0].is_reached_by_actions();
                Ok(is_reached && self.newest_own(session, self.row)? == Some(Newest::Gone))
            }
            _ => Ok(false),
        }
    }

    /// What this statement, or what it has caused, has made of a row that it comes to now, if actions come to the table at all (rule FK53).
    fn changed_by_action(&mut self, session: &Session, row: RowId) -> Result<Option<Newest>> {
        self.rebind()?;
        match &self.foreign.plan {
            Some(plan) if plan.nodes[0].is_reached_by_actions() => self.newest_own(session, row),
            _ => Ok(None),
        }
    }

    #[cold]
    fn newest_own(&self, session: &Session, row: RowId) -> Result<Option<Newest>> {
        let guard = crossbeam_epoch::pin();
        let word = self.host.table.map.load_in(row, &guard);
        let since = session.work.statement.as_ref().map(|mark| mark.lsn);
        if word.is_absent() || since.is_some_and(|since| word.addr().lsn() < since) {
            return Ok(None);
        }
        let head = read_version(&session.db, word.addr(), &guard)?;
        if head.is_none_or(|head| head.txn() != session.txn()) {
            return Ok(None);
        }
        // What was taken back alone is no change.
        let mut newest = View::new(Viewer::current(session.txn()));
        let resolved = newest.resolve_unread(&session.db, &self.host.table, row, word, &guard)?;
        Ok(Some(match resolved {
            Resolved::Absent => Newest::Gone,
            Resolved::Row(..) | Resolved::Wait(..) | Resolved::Conflict => Newest::There,
        }))
    }

    /// The record of a row that an action has changed is not that of the row any more: keys made of it would be wrong. A row that the
    /// statement comes to again, and has as it is, is no such row.
    fn refuse_overtaken(&mut self, session: &Session, row: RowId, old: HostRecord<'_>) -> Result<()> {
        let is_as_read = match self.changed_by_action(session, row)? {
            None => true,
            Some(Newest::Gone) => false,
            Some(Newest::There) => self.is_newest(session, row, old)?,
        };
        let Some(plan) = self.foreign.plan.as_ref().filter(|_| !is_as_read) else {
            return Ok(());
        };
        Err(plan.nodes[0].reached(self.host.table()))
    }

    /// True if what is stored of the row's newest version is what the record says.
    #[cold]
    fn is_newest(&mut self, session: &Session, row: RowId, record: HostRecord<'_>) -> Result<bool> {
        let Some(plan) = &mut self.foreign.plan else {
            return Ok(true);
        };
        let writer = plan.nodes[0].writer();
        if !writer.read(session, row)? {
            return Ok(false);
        }
        let (newest, layout) = (writer.records().0, self.host.layout());
        for (column, _) in layout
            .columns()
            .iter()
            .enumerate()
            .filter(|(_, column)| column.stored)
        {
            if layout.value(column, newest)? != layout.value(column, record)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if values change that others may refer to.
    fn is_touched(&mut self, old: HostRecord<'_>, new: HostRecord<'_>) -> Result<bool> {
        let Some(plan) = &self.foreign.plan else {
            return Ok(false);
        };
        let node = &plan.nodes[0];
        if !node.may_touch(old, new)? {
            return Ok(false);
        }
        for link in &node.incoming {
            if link.is_touched(self.host.layout(), old, new)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `delete` that keeps the constraints.
    pub(super) fn delete_checked(&mut self, session: &mut Session, row: RowId) -> Result<()> {
        if self.changed_by_action(session, row)? == Some(Newest::Gone) {
            return Ok(());
        }
        let mut since = None;
        loop {
            self.rebind()?;
            let plan = self.foreign.plan.as_ref();
            let is_referred = plan.is_some_and(|plan| !plan.nodes[0].incoming.is_empty());
            let deleted = if is_referred {
                self.delete_referred(session, row, &mut since)?
            } else {
                let mut terms = Terms::bound(self.foreign.bindings);
                session.delete_on(&self.host.table, row, &mut terms)?
            };
            if deleted != Updated::Rebound {
                return Ok(());
            }
        }
    }

    /// The same for a row that others may refer to.
    fn delete_referred(
        &mut self,
        session: &mut Session,
        row: RowId,
        since: &mut Option<u64>,
    ) -> Result<Updated> {
        session.begin_row()?;
        let plan = self.foreign.plan.as_mut();
        let mut replaced = plan.map_or_else(OldRow::default, |plan| {
            std::mem::take(&mut plan.nodes[0].replaced)
        });
        let mut terms = Terms {
            old: Some(&mut replaced),
            bindings: self.foreign.bindings,
            ..Terms::default()
        };
        let deleted = session.delete_on(&self.host.table, row, &mut terms);
        if let Some(plan) = &mut self.foreign.plan {
            plan.nodes[0].replaced = replaced;
        }
        let done = deleted.and_then(|deleted| {
            if deleted == Updated::Written {
                self.act_on_deleted(session)?;
            }
            Ok(deleted)
        });
        self.end_row(session, done, since)
    }

    fn act_on_deleted(&mut self, session: &mut Session) -> Result<()> {
        let Some(plan) = &mut self.foreign.plan else {
            return Ok(());
        };
        let node = &mut plan.nodes[0];
        node.read_replaced()?;
        let referred = node.referred.clone();
        self.act(session, record_without_pointers(&referred), None)
    }

    fn act(&mut self, session: &mut Session, old: HostRecord<'_>, new: Option<HostRecord<'_>>) -> Result<()> {
        match &mut self.foreign.plan {
            Some(plan) => Actions::new(session, plan).run(old, new),
            None => Ok(()),
        }
    }

    /// Fills `record` with the newest version of a row that this transaction has locked. False if there is none.
    fn read_newest(&mut self, session: &Session, row: RowId, record: &mut [u8]) -> Result<bool> {
        let db = Arc::clone(&session.db);
        let host = Arc::clone(&self.host);
        let guard = crossbeam_epoch::pin();
        let word = host.table.map.load(row);
        let mut view = View::new(Viewer::current(session.txn()));
        match view.resolve(&db, &host.table, row, word, &guard)? {
            Resolved::Row(found) => {
                let mut fill = Fill {
                    host: &host,
                    projection: host.codec.all_columns(),
                    values: &mut self.values,
                    has_blobs: self.has_blobs,
                    record,
                    covering: None,
                    judging: None,
                    scratch: &mut self.scratch,
                };
                fill.row(&found.version(row))?;
                Ok(true)
            }
            Resolved::Absent | Resolved::Conflict | Resolved::Wait(..) => Ok(false),
        }
    }
}

/// Lets those go on who exchange tables (rule FK54); false if the statement has waited for them as long as it may.
fn sleep_once(session: &Session, since: &mut Option<u64>) -> Result<bool> {
    let db = &session.db;
    if db.waits.host_killed(session.gate()) {
        return Err(Error::Killed);
    }
    let now = db.clock.now_millis();
    let waited = now.saturating_sub(*since.get_or_insert(now));
    if waited >= session.config().lock_wait_timeout_ms {
        return Ok(false);
    }
    session.gate().sleep(LOOK);
    Ok(true)
}

impl Writer {
    /// Reads the newest version of a locked row into both records. False if there is none.
    pub(crate) fn read(&mut self, session: &Session, row: RowId) -> Result<bool> {
        let found = self.cursor.read_newest(session, row, &mut self.old)?;
        self.new.clone_from(&self.old);
        Ok(found)
    }

    /// Old and new record.
    pub(crate) fn records(&self) -> (HostRecord<'_>, HostRecord<'_>) {
        // SAFETY: both were filled by the codec of this table, `new` as a copy of `old`; what their pointers name is kept by
        // the cursor's values until it reads another row, which takes `self` exclusively. Columns are changed by
        // `HostLayout::set_value`, which refuses pointers, or by the host, which answers for those it puts there.
        unsafe { (HostRecord::new(&self.old), HostRecord::new(&self.new)) }
    }

    /// Puts the new record in the place of the old one.
    pub(crate) fn write(&mut self, session: &mut Session, row: RowId) -> Result<bool> {
        let Self { cursor, old, new, .. } = self;
        // SAFETY: as in `records`; writing reads no row.
        let (old, new) = unsafe { (HostRecord::new(old), HostRecord::new(new)) };
        let updated = cursor.replace(session, row, old, new, None)?;
        Ok(updated == Updated::Written)
    }
}
