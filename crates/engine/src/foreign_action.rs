//! Foreign action: what becomes of children when a row that they may refer to was deleted or got other values.
//!
//! Why it exists: one deleted row may take a million others in a thousand tables with it; recursion would need a stack as deep as
//! the data, and a list of all rows memory as large. So there is a list of work whose items are (constraint, key), one item for all
//! children of a row, and an item is left aside after some rows when these have items of their own.
//! Rules: FK13 to FK17, FK19, FK21. FK26 constraints that refuse are asked before any acts. FK27 an action that cannot be
//! carried out refuses the change.
//! Latches and I/O: those of any change of a row.
//! After a crash: all of it is changes of one transaction.

use crate::error::{Error, Result};
use crate::foreign_key::Action;
use crate::foreign_plan::{Node, Plan, fits};
use crate::host::TableHost;
use crate::locking::{Busy, RowLock};
use crate::session::Session;
use crate::table::Table;
use crate::write::Terms;
use pbxt_base::{RowId, stop_point};
use pbxt_rows::{HostKind, HostLayout, HostRecord};
use pbxt_txn::LockMode;
use std::sync::Arc;

/// Children of an item that are changed before the items of their own children are looked at.
const CHILDREN_AT_ONCE: usize = 1024;

/// Values of the columns of a constraint, in its order.
type Values = Arc<[Option<Vec<u8>>]>;

/// What is done to children.
#[derive(Debug, Clone)]
enum Deed {
    Delete,
    Set(Values),
    /// A value is too long for the child's column: who has a child keeps its key (rule FK27).
    Refuse,
}

/// All children of one row by one constraint.
#[derive(Debug)]
struct Item {
    /// The row's table.
    node: usize,
    link: usize,
    prefix: Box<[u8]>,
    deed: Deed,
    /// The last child that was met.
    behind: Option<(Box<[u8]>, RowId)>,
}

/// The actions that follow from the change of one row.
pub(crate) struct Actions<'a> {
    session: &'a mut Session,
    plan: &'a mut Plan,
    work: Vec<Item>,
    key: Vec<u8>,
}

impl<'a> Actions<'a> {
    pub(crate) fn new(session: &'a mut Session, plan: &'a mut Plan) -> Self {
        Self {
            session,
            plan,
            work: Vec::new(),
            key: Vec::new(),
        }
    }

    /// A row of node 0 was deleted (`new` is none) or replaced: does all that follows.
    pub(crate) fn run(mut self, old: HostRecord<'_>, new: Option<HostRecord<'_>>) -> Result<()> {
        self.note(0, old, new)?;
        if self.work.is_empty() {
            return Ok(());
        }
        self.session.is_acting = true;
        let done = self.work_off();
        self.session.is_acting = false;
        self.session.probe.entries.clear();
        done
    }

    fn work_off(&mut self) -> Result<()> {
        while let Some(item) = self.work.pop() {
            self.step(item)?;
        }
        Ok(())
    }

    /// A row of this table was deleted or replaced: refuses, or enters what is to be done.
    fn note(&mut self, number: usize, old: HostRecord<'_>, new: Option<HostRecord<'_>>) -> Result<()> {
        let Node { host, incoming, .. } = &mut self.plan.nodes[number];
        let weigher = &*host.database().host;
        let first = self.work.len();
        for (position, link) in incoming.iter_mut().enumerate() {
            if link.maker.has_null(old)? {
                continue;
            }
            if let Some(new) = new
                && !link.is_touched(host.layout(), old, new)?
            {
                continue;
            }
            // Rule FK20: the row may be one that a constraint has found.
            self.session.referenced_changes += 1;
            self.key.clear();
            if !fits(link.maker.key_from_record(old, weigher, &mut self.key))? {
                continue;
            }
            let action = match new {
                Some(_) => link.link.on_update(),
                None => link.link.on_delete(),
            };
            let deed = match (action, new) {
                (Action::Restrict | Action::NoAction, _) => {
                    if self
                        .session
                        .has_child(&mut link.probe, link.link.child_index, &self.key)?
                    {
                        return Err(link.refused(host.table()));
                    }
                    continue;
                }
                (Action::Cascade, None) => Deed::Delete,
                (Action::Cascade, Some(new)) => {
                    let values = values(host.layout(), &link.link.parent_columns, new)?;
                    if link.can_hold(weigher, &values) {
                        Deed::Set(values)
                    } else {
                        Deed::Refuse
                    }
                }
                (Action::SetNull, _) => Deed::Set(vec![None; link.link.parent_columns.len()].into()),
                (Action::SetDefault, _) => Deed::Set(link.defaults()?),
            };
            self.work.push(Item {
                node: number,
                link: position,
                prefix: Box::from(&*self.key),
                deed,
                behind: None,
            });
        }
        // The last one is taken first.
        self.work[first..].reverse();
        Ok(())
    }

    /// Changes the children of one item, all or some of them.
    fn step(&mut self, mut item: Item) -> Result<()> {
        let link = &mut self.plan.nodes[item.node].incoming[item.link];
        let child = Arc::clone(&link.child);
        let index = link.link.child_index;
        let Some(mut walk) = link.walk.take() else {
            return Err(Error::Invalid(
                "FK16: an item is worked off while another of its constraint is".into(),
            ));
        };
        let done = self.walk(&mut item, &mut walk, &child, index);
        walk.probe_end();
        self.plan.nodes[item.node].incoming[item.link].walk = Some(walk);
        let first = done?;
        if item.behind.is_some() {
            // Beneath the items of the children that were met.
            self.work.insert(first, item);
        }
        Ok(())
    }

    /// Goes from child to child. Answers where in the list their items begin; leaves in `item` where to go on.
    fn walk(
        &mut self,
        item: &mut Item,
        walk: &mut crate::cursor::Cursor,
        child: &Arc<Table>,
        index: usize,
    ) -> Result<usize> {
        let first = self.work.len();
        stop_point!("foreign.before_children");
        match item.behind.take() {
            Some((key, row)) => walk.probe_resume(self.session, index, &item.prefix, (&key, row))?,
            None => walk.probe_start(self.session, index, &item.prefix)?,
        }
        let mut node = None;
        let mut count = 0;
        while let Some(row) = walk.probe_next(self.session)? {
            // A table is opened when there is something to be done in it.
            if node.is_none() {
                node = Some(self.plan.node_of(&Arc::clone(&self.session.db), child)?);
            }
            let Some(number) = node else { break };
            let is_changed = match &item.deed {
                Deed::Delete => self.delete(number, row, (index, walk.probe_key()))?,
                Deed::Set(values) => self.set(item, number, row, (index, walk.probe_key()), Some(values))?,
                Deed::Refuse => self.set(item, number, row, (index, walk.probe_key()), None)?,
            };
            if is_changed {
                self.session.db.counters.rows_acted_on.add(1);
                stop_point!("foreign.after_action");
            } else {
                walk.probe_missed(self.session)?;
            }
            count += 1;
            if count >= CHILDREN_AT_ONCE && self.work.len() > first {
                item.behind = Some((Box::from(walk.probe_key()), row));
                break;
            }
        }
        Ok(first)
    }

    /// Deletes a child. False if it is none.
    fn delete(&mut self, number: usize, row: RowId, under: (usize, &[u8])) -> Result<bool> {
        let node = &mut self.plan.nodes[number];
        let table = Arc::clone(node.host.table());
        let is_parent = !node.incoming.is_empty();
        let mut terms = Terms {
            old: is_parent.then_some(&mut node.replaced),
            under: Some(under),
            bindings: None,
        };
        match self.session.delete_on(&table, row, &mut terms) {
            Ok(_) => {}
            Err(Error::RowNotFound { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        if is_parent {
            node.read_replaced()?;
            let referred = std::mem::take(&mut node.referred);
            let noted = self.note(number, record_without_pointers(&referred), None);
            self.plan.nodes[number].referred = referred;
            noted?;
        }
        Ok(true)
    }

    /// Gives the columns of the constraint new values in a child; without any, a child is one too many. False if it is none.
    fn set(
        &mut self,
        item: &Item,
        number: usize,
        row: RowId,
        (index, key): (usize, &[u8]),
        values: Option<&Values>,
    ) -> Result<bool> {
        let table = Arc::clone(self.plan.nodes[number].host.table());
        let locked = self
            .session
            .lock_row(&table, row, LockMode::Exclusive, Busy::Wait);
        let locked = self.session.settle(locked)?;
        if !matches!(locked, RowLock::Held(_)) || !self.session.stands_under(&table, row, index, key)? {
            return Ok(false);
        }
        let Some(values) = values else {
            return Err(self.refused(item));
        };
        self.plan.nodes[number].writer();
        let Some(mut writer) = self.plan.nodes[number].writer.take() else {
            return Ok(false);
        };
        let changed = self.rewrite(item, number, &mut writer, row, values);
        self.plan.nodes[number].writer = Some(writer);
        changed
    }

    fn rewrite(
        &mut self,
        item: &Item,
        number: usize,
        writer: &mut crate::foreign_plan::Writer,
        row: RowId,
        values: &Values,
    ) -> Result<bool> {
        let table = Arc::clone(self.plan.nodes[number].host.table());
        if !writer.read(self.session, row)? {
            return Ok(false);
        }
        let layout = writer.cursor.host().layout();
        let columns = &self.plan.nodes[item.node].incoming[item.link].link.key.columns;
        for (column, value) in columns.iter().zip(values.iter()) {
            let set = layout.set_value(usize::from(column.child), value.as_deref(), &mut writer.new);
            // Rule FK27.
            set.map_err(|_| self.refused(item))?;
        }
        if writer.is_computed {
            let (host, session) = (Arc::clone(&self.session.db.host), self.session.gate.host_session);
            let name = table.name();
            host.generate(session, &name, &mut writer.old)?;
            host.generate(session, &name, &mut writer.new)?;
        }
        let (old, new) = writer.records();
        let acting = Arc::clone(&self.plan.nodes[item.node].incoming[item.link].link);
        let Plan { nodes, fresh, .. } = &mut *self.plan;
        let node = &mut nodes[number];
        node.enter_parents(self.session, fresh)?;
        node.check(self.session, Some(old), new, Some(&acting.key))?;
        writer.write(self.session, row).map_err(|error| match error {
            // Rule FK27.
            Error::DuplicateKey { .. } | Error::KeyTooLarge { .. } => self.refused(item),
            error => error,
        })?;
        let (old, new) = writer.records();
        self.note(number, old, Some(new))?;
        Ok(true)
    }

    fn refused(&self, item: &Item) -> Error {
        let node = &self.plan.nodes[item.node];
        node.incoming[item.link].refused(node.host.table())
    }
}

fn values(layout: &HostLayout, columns: &[usize], record: HostRecord<'_>) -> Result<Values> {
    let value = |column: &usize| Ok(layout.value(*column, record)?.map(<[u8]>::to_vec));
    columns.iter().map(value).collect()
}

/// A record of which only columns are filled that hold no pointers; the others are zero.
pub(crate) fn record_without_pointers(bytes: &[u8]) -> HostRecord<'_> {
    // SAFETY: the callers give buffers that were zero and were filled by a codec with columns that others refer to, or default records
    // of the catalog. Columns of an index as a whole hold no pointers (rule FK3), and of default records pointers and their lengths are
    // zero; so every pointer in the record has a length of 0.
    unsafe { HostRecord::new(bytes) }
}

impl crate::foreign_plan::ChildLink {
    /// True if none of the values is too long for its column of the child, though its field has bytes enough (rule FK27).
    fn can_hold(&self, counter: &dyn TableHost, values: &Values) -> bool {
        let def = self.child.def();
        let Some(record) = &def.host_record else {
            return true;
        };
        let columns = self.link.key.columns.iter().zip(values.iter());
        columns.into_iter().all(|(column, value)| {
            let column = record.columns.get(usize::from(column.child));
            match (column.map(|column| (column, column.place.kind)), value) {
                (None | Some((_, HostKind::Fixed(_) | HostKind::Blob(_))), _) | (_, None) => true,
                (Some((column, text)), Some(value)) => {
                    counter.fits(&column.type_text, text.value_max(), value)
                }
            }
        })
    }

    /// What the constraint's columns are by default.
    fn defaults(&self) -> Result<Values> {
        let def = self.child.def();
        let Some(record) = &def.host_record else {
            return Ok(Arc::from([]));
        };
        let columns = self.link.key.columns.iter();
        let columns: Vec<usize> = columns.map(|column| usize::from(column.child)).collect();
        values(
            &record.layout(&def.schema)?,
            &columns,
            record_without_pointers(&record.defaults),
        )
    }
}
