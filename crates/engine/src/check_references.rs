//! Check references: counts the rows whose parents are missing, as they come in while constraints are not kept.
//!
//! Why it exists: with checks off nothing is looked up, and nothing is judged afterwards (rule FK18); who loads so wants to ask once whether
//! all is as it should be.
//! How: for each constraint the child's index is walked in the order of keys; each value once is looked up in the parent's, which
//! is near the one before. Neither reads a row unless one has changed lately, and memory does not grow with the tables.
//! Rules: FK47 what is an orphan. FK48 what is told. FK49 it can be stopped, and says how far it is. FK29 the parent's table is held.
//! Latches and I/O: as a reader; may wait for the parent's table lock.

use crate::check::Check;
use crate::check_digest::{KeysOnly, for_each_entry};
use crate::cursor::{Bind, Cursor};
use crate::definition::TableDef;
use crate::error::{Error, Result};
use crate::host::HostTable;
use crate::index_cursor::Seek;
use crate::references::{Link, Missing, Outgoing};
use crate::session::Session;
use crate::table::Table;
use pbxt_base::RowId;
use pbxt_rows::{BridgeEnd, Bridged, HostKind, KeyBridge};
use pbxt_txn::LockMode;
use std::sync::Arc;

/// What a check tells of one constraint (rule FK48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unkept<'a> {
    /// Rows have no parent.
    Orphans {
        /// Of the constraint.
        constraint: &'a str,
        /// Name of the parent.
        parent: &'a str,
        /// How many.
        rows: u64,
        /// The one with the least key.
        example: RowId,
    },
    /// It is bound to no parent; its rows were not judged.
    Unbound {
        /// Of the constraint.
        constraint: &'a str,
        /// Name of the parent.
        parent: &'a str,
        /// What has to be there first.
        why: Missing,
    },
}

impl HostTable {
    /// Looks every row up by every constraint of the table, in the session's snapshot. Calls `tell` for each constraint that has
    /// something to be told of; answers the number of orphans.
    ///
    /// # Errors
    /// `Killed`; `LockTimeout` if a parent is being changed by DDL; damage.
    pub fn check_references(
        &self,
        session: &mut Session,
        tell: &mut dyn FnMut(Unkept<'_>),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64> {
        let table = self.table();
        let references = table.references();
        let links = references
            .outgoing
            .iter()
            .filter(|key| matches!(key, Outgoing::Bound(_)));
        let total = session.count(table)? * links.count() as u64;
        let mut nothing = |_: &str| {};
        let mut check = Check::new(&mut nothing, progress, total);
        let mut orphans = 0;
        for outgoing in &references.outgoing {
            let key = outgoing.key();
            let unbound = |why| Unkept::Unbound {
                constraint: &key.name,
                parent: &key.parent,
                why,
            };
            let link = match outgoing {
                Outgoing::Bound(link) => link,
                Outgoing::Unbound(_, missing) => {
                    tell(unbound(*missing));
                    continue;
                }
            };
            let Some(parent) = link.parent.upgrade() else {
                tell(unbound(Missing::Table));
                continue;
            };
            let found = Walk::new(table, link, &parent)?.run(session, &mut check)?;
            if let Some(example) = found.example {
                orphans += found.rows;
                tell(Unkept::Orphans {
                    constraint: &key.name,
                    parent: &key.parent,
                    rows: found.rows,
                    example,
                });
            }
        }
        check.end();
        Ok(orphans)
    }
}

/// What one constraint's walk has found.
#[derive(Debug, Default)]
struct Found {
    rows: u64,
    example: Option<RowId>,
}

/// Goes through the child's index and asks the parent's.
struct Walk<'a> {
    child: &'a Arc<Table>,
    child_index: usize,
    parent: &'a Arc<Table>,
    parent_index: usize,
    bridge: KeyBridge,
    found: Found,
    /// The part of the key that was judged last, and whether rows under it are orphans.
    judged: Option<(Vec<u8>, bool)>,
    prefix: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(child: &'a Arc<Table>, link: &Link, parent: &'a Arc<Table>) -> Result<Self> {
        let child_columns = link.key.columns.iter().map(|column| usize::from(column.child));
        let ours = kinds(&child.def(), child_columns)?;
        let theirs = kinds(&parent.def(), link.parent_columns.iter().copied())?;
        let from = BridgeEnd {
            spec: &child.indexes[link.child_index].def.spec,
            kinds: &ours,
        };
        let to = BridgeEnd {
            spec: &parent.indexes[link.parent_index].def.spec,
            kinds: &theirs,
        };
        Ok(Self {
            bridge: KeyBridge::new(from, to)?,
            child,
            child_index: link.child_index,
            parent,
            parent_index: link.parent_index,
            found: Found::default(),
            judged: None,
            prefix: Vec::new(),
            scratch: Vec::new(),
        })
    }

    fn run(mut self, session: &mut Session, check: &mut Check<'_>) -> Result<Found> {
        // Rule FK29.
        let locked = session.lock_table(self.parent, LockMode::Intent);
        session.settle(locked)?;
        let mut probe = Cursor::new(self.parent);
        probe.bind(session, Bind::default())?;
        probe.index_start(session, self.parent_index)?;
        let (child, index) = (self.child, self.child_index);
        for_each_entry(session, child, index, |session, row, key| {
            if self.is_orphan(session, &mut probe, key)? {
                self.found.rows += 1;
                self.found.example.get_or_insert(row);
            }
            check.step(session)
        })?;
        Ok(self.found)
    }

    fn is_orphan(&mut self, session: &mut Session, probe: &mut Cursor, key: &[u8]) -> Result<bool> {
        if let Some((judged, is_orphan)) = &self.judged
            && key.starts_with(judged)
        {
            return Ok(*is_orphan);
        }
        self.prefix.clear();
        let is_orphan = match self.bridge.cross(key, &mut self.prefix, &mut self.scratch)? {
            Bridged::Null => false,
            Bridged::TooLong => true,
            Bridged::Prefix => !probe.seek_showing(session, &self.prefix, Seek::Exact, KeysOnly)?,
        };
        let length = self.bridge.prefix_length(key, &mut self.scratch)?;
        let (judged, last) = self.judged.get_or_insert_default();
        judged.clear();
        judged.extend_from_slice(&key[..length]);
        *last = is_orphan;
        Ok(is_orphan)
    }
}

/// How the host holds these columns.
fn kinds(def: &TableDef, columns: impl Iterator<Item = usize>) -> Result<Vec<HostKind>> {
    let record = def.host_record.as_ref();
    let kind = |column: usize| Some(record?.columns.get(column)?.place.kind);
    let unknown = || Error::Invalid(format!("FK3: nothing is known of the columns of '{}'", def.name));
    columns.map(|column| kind(column).ok_or_else(unknown)).collect()
}
