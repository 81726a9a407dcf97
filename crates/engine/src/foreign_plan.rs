//! Foreign plan: the constraints of a table compiled for one cursor, and of every table that its changes may reach.
//!
//! Why it exists: a row looks nothing up but keys. Which index of which table, and how a record of the one becomes a key of the other, is
//! worked out once, as far as changes really come: a chain of a thousand tables is opened table by table as actions go along it.
//! State: node 0 is the cursor's own table; others are opened by what the catalog knows of their records. A plan is thrown away when
//! a table in it is bound otherwise (rule FK23).
//! Rules: FK12, FK17, FK20, FK22, FK29, FK54.
//! Latches and I/O: table locks of parents; probes read indexes.

use crate::cursor::Cursor;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::foreign_key::ForeignKey;
use crate::host::{HostCursor, HostTable, stored_contexts};
use crate::references::{Link, Missing, Outgoing, References};
use crate::session::Session;
use crate::table::Table;
use crate::write::OldRow;
use pbxt_base::checksum::xxh3;
use pbxt_base::{TableId, TxnId};
use pbxt_rows::{HostLayout, HostRecord, KeyMaker, KeySpec, Projection};
use pbxt_txn::LockMode;
use std::collections::HashMap;
use std::sync::Arc;

/// Keys of parents that a statement remembers, for each constraint.
const KNOWN_KEYS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Plan {
    pub nodes: Vec<Node>,
    by_table: HashMap<TableId, usize>,
    /// Parents that actions of the row under way have locked first (rule FK54).
    pub fresh: Vec<Arc<Table>>,
}

/// One table.
#[derive(Debug)]
pub(crate) struct Node {
    pub host: Arc<HostTable>,
    /// How the table was bound when the node was made.
    references: Arc<References>,
    pub outgoing: Vec<ParentProbe>,
    pub incoming: Vec<ChildLink>,
    /// The columns that others refer to.
    referenced: Projection,
    /// A record of which no more than these is filled: it holds no pointers.
    pub referred: Vec<u8>,
    pub replaced: OldRow,
    /// Changes rows for actions.
    pub writer: Option<Box<Writer>>,
}

/// Buffers of a table whose rows actions change.
#[derive(Debug)]
pub(crate) struct Writer {
    pub cursor: HostCursor,
    pub old: Vec<u8>,
    pub new: Vec<u8>,
    /// The host computes columns of it that are not stored.
    pub is_computed: bool,
}

/// A constraint of the table.
#[derive(Debug)]
pub(crate) struct ParentProbe {
    key: ForeignKey,
    columns: Vec<usize>,
    bound: std::result::Result<Box<Parent>, Missing>,
    prefix: Vec<u8>,
    known: KnownKeys,
}

#[derive(Debug)]
struct Parent {
    table: Arc<Table>,
    index: usize,
    /// What the constraint gives is a whole key of the index.
    is_whole: bool,
    /// The parent's key from a record of the child.
    maker: KeyMaker,
    /// Of a table that refers to itself: a record's own key.
    own: Option<KeyMaker>,
    probe: Cursor,
    /// The transaction that has locked the table (rule FK29).
    entered: TxnId,
}

/// A constraint that leads to the table.
#[derive(Debug)]
pub(crate) struct ChildLink {
    pub link: Arc<Link>,
    pub child: Arc<Table>,
    /// The child's key from a record of the parent.
    pub maker: KeyMaker,
    /// Asks whether there are children.
    pub probe: Cursor,
    /// Goes from child to child; away while it does.
    pub walk: Option<Cursor>,
}

/// Keys whose parents are locked (rule FK20).
#[derive(Debug, Default)]
struct KnownKeys {
    /// What was true when they were found.
    since: (TxnId, u64),
    /// The key found last; the table behind it is made for the second one, so a statement of one row needs none.
    last: Vec<u8>,
    has_last: bool,
    slots: Vec<Box<[u8]>>,
}

impl KnownKeys {
    fn slot(key: &[u8]) -> usize {
        (xxh3(key) % KNOWN_KEYS as u64) as usize
    }

    fn has(&mut self, session: &Session, key: &[u8]) -> bool {
        self.has_since((session.txn(), session.referenced_changes), key)
    }

    fn has_since(&mut self, now: (TxnId, u64), key: &[u8]) -> bool {
        if self.since != now {
            self.since = now;
            self.has_last = false;
            self.slots.clear();
        }
        if !self.has_last {
            return false;
        }
        if self.last == key {
            return true;
        }
        self.slots
            .get(Self::slot(key))
            .is_some_and(|known| **known == *key)
    }

    fn add(&mut self, key: &[u8]) {
        if self.has_last {
            if self.slots.is_empty() {
                self.slots.resize(KNOWN_KEYS, Box::default());
            }
            let slot = Self::slot(&self.last);
            self.slots[slot] = Box::from(self.last.as_slice());
        }
        self.has_last = true;
        self.last.clear();
        self.last.extend_from_slice(key);
    }
}

/// The layout in which the catalog knows the records of a table.
fn layout_of(table: &Table) -> Result<HostLayout> {
    let def = table.def();
    let record = def.host_record.as_ref().ok_or_else(|| {
        Error::Invalid(format!(
            "FK3: table '{}' is bound by a foreign key, but nothing is known of its records",
            def.name
        ))
    })?;
    record.layout(&def.schema)
}

/// What makes prefixes of the keys of `table`'s index from columns of records of the layout `from`.
fn key_maker(
    db: &Database,
    table: &Table,
    spec: &KeySpec,
    from: &HostLayout,
    columns: &[usize],
) -> Result<KeyMaker> {
    let contexts = stored_contexts(&*db.host, &table.def(), spec)?;
    Ok(KeyMaker::across(
        spec,
        &layout_of(table)?,
        from,
        columns,
        &contexts,
    )?)
}

impl Plan {
    /// The plan of a table; none if it neither has constraints nor is referred to.
    pub(crate) fn of(host: &Arc<HostTable>) -> Result<Option<Box<Self>>> {
        if host.table().references().is_empty() {
            return Ok(None);
        }
        let mut plan = Self {
            nodes: Vec::new(),
            by_table: HashMap::new(),
            fresh: Vec::new(),
        };
        plan.add(Arc::clone(host))?;
        Ok(Some(Box::new(plan)))
    }

    /// The node of a table, which is opened if it is not there yet.
    pub(crate) fn node_of(&mut self, db: &Arc<Database>, table: &Arc<Table>) -> Result<usize> {
        match self.by_table.get(&table.id) {
            Some(node) => Ok(*node),
            None => self.add(Arc::new(HostTable::open_stored(db, table)?)),
        }
    }

    fn add(&mut self, host: Arc<HostTable>) -> Result<usize> {
        let id = host.table().id;
        self.nodes.push(Node::new(host)?);
        let number = self.nodes.len() - 1;
        self.by_table.insert(id, number);
        Ok(number)
    }

    /// True if all its tables are bound as they were when they came into it (rule FK23).
    pub(crate) fn is_bound(&self) -> bool {
        let is_bound = |node: &Node| Arc::ptr_eq(&node.references, &node.host.table().references());
        self.nodes.iter().all(is_bound)
    }
}

impl Node {
    fn new(host: Arc<HostTable>) -> Result<Self> {
        let references = host.table().references();
        let db = Arc::clone(host.database());
        let outgoing = references.outgoing.iter();
        let outgoing = outgoing
            .map(|outgoing| ParentProbe::new(&db, &host, outgoing))
            .collect::<Result<Vec<_>>>()?;
        let mut incoming = Vec::with_capacity(references.incoming.len());
        for link in &references.incoming {
            incoming.extend(ChildLink::new(&db, &host, link)?);
        }
        let columns = incoming
            .iter()
            .flat_map(|link: &ChildLink| link.link.parent_columns.iter());
        let columns = columns.copied().collect();
        Ok(Self {
            referred: vec![0; host.layout().record_length()],
            referenced: host.projection(columns),
            replaced: OldRow::default(),
            writer: None,
            host,
            references,
            outgoing,
            incoming,
        })
    }

    /// True if actions may change rows of the table.
    #[inline]
    pub(crate) fn is_reached_by_actions(&self) -> bool {
        self.outgoing.iter().any(ParentProbe::acts)
    }

    /// A row of the table is not as the statement has read it, for an action has changed it (rule FK53).
    #[cold]
    pub(crate) fn reached(&self, table: &Table) -> Error {
        let mut acting = self.outgoing.iter().filter(|probe| probe.acts());
        let key = acting.next().map(|probe| &probe.key);
        Error::RowIsReferenced {
            constraint: key.map_or_else(String::new, |key| key.name.clone()),
            child: table.name().to_string(),
            parent: key.map_or_else(String::new, |key| key.parent.clone()),
        }
    }

    /// Takes the lock that keeps parents from being dropped or exchanged (rule FK29). `fresh` gets those that the transaction had not
    /// locked before.
    pub(crate) fn enter_parents(&mut self, session: &mut Session, fresh: &mut Vec<Arc<Table>>) -> Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let entered = session.enter_table(self.host.table());
        session.settle(entered)?;
        for parent in self
            .outgoing
            .iter_mut()
            .filter_map(|probe| probe.bound.as_mut().ok())
        {
            if parent.entered != session.txn() {
                if !session.has_entered(&parent.table) {
                    fresh.push(Arc::clone(&parent.table));
                }
                let locked = session.lock_table(&parent.table, LockMode::Intent);
                session.settle(locked)?;
                parent.entered = session.txn();
            }
        }
        Ok(())
    }

    /// Looks up and locks the parents of a row that is about to be (rule FK12): of values that differ from those of `old`, and by the
    /// constraint that acts in any case, for what it gives may be the very value whose parent goes (rule FK17).
    pub(crate) fn check(
        &mut self,
        session: &mut Session,
        old: Option<HostRecord<'_>>,
        new: HostRecord<'_>,
        acting: Option<&ForeignKey>,
    ) -> Result<()> {
        let host = &self.host;
        self.outgoing.iter_mut().try_for_each(|probe| {
            let acts = acting.is_some_and(|key| key.name == probe.key.name);
            probe.check(session, host, old.filter(|_| !acts), new)
        })
    }

    /// True if a parent is missing only until another table has taken its place (rule FK54).
    #[cold]
    pub(crate) fn has_parent_to_come(&self, db: &Database) -> bool {
        let is_missing = |probe: &&ParentProbe| matches!(probe.bound, Err(Missing::Table));
        let mut missing = self.outgoing.iter().filter(is_missing);
        missing.any(|probe| db.is_to_come(&probe.key.parent))
    }

    /// True if a change between these records gives columns other bytes that others refer to: what no constraint needs to be asked for
    /// when it is not so, however many there are.
    pub(crate) fn may_touch(&self, old: HostRecord<'_>, new: HostRecord<'_>) -> Result<bool> {
        let layout = self.host.layout();
        for column in self.referenced.columns().iter() {
            if layout.value(column, old)? != layout.value(column, new)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fills `referred` with the columns that others refer to, from the version that was replaced.
    pub(crate) fn read_replaced(&mut self) -> Result<()> {
        self.host
            .decode_numbers(&self.replaced.payload, &self.referenced, &mut self.referred)
    }

    /// What changes rows of the table for actions.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        let host = &self.host;
        self.writer.get_or_insert_with(|| {
            let record = vec![0; host.layout().record_length()];
            Box::new(Writer {
                cursor: HostCursor::new(host),
                old: record.clone(),
                new: record,
                is_computed: host.layout().columns().iter().any(|column| !column.stored),
            })
        })
    }
}

impl ParentProbe {
    fn new(db: &Arc<Database>, host: &Arc<HostTable>, outgoing: &Outgoing) -> Result<Self> {
        let key = outgoing.key().clone();
        let columns: Vec<usize> = key
            .columns
            .iter()
            .map(|column| usize::from(column.child))
            .collect();
        let bound = match outgoing {
            Outgoing::Unbound(_, missing) => Err(*missing),
            Outgoing::Bound(link) => match link.parent.upgrade() {
                Some(parent) => Ok(Box::new(Parent::new(db, host, link, parent, &columns)?)),
                None => Err(Missing::Table),
            },
        };
        Ok(Self {
            key,
            columns,
            bound,
            prefix: Vec::new(),
            known: KnownKeys::default(),
        })
    }

    fn check(
        &mut self,
        session: &mut Session,
        host: &HostTable,
        old: Option<HostRecord<'_>>,
        new: HostRecord<'_>,
    ) -> Result<()> {
        if let Some(old) = old
            && !self.differ(host, old, new)?
        {
            return Ok(());
        }
        for &column in &self.columns {
            if host.layout().value(column, new)?.is_none() {
                return Ok(());
            }
        }
        let parent = match &mut self.bound {
            Ok(parent) => parent,
            Err(missing) => {
                let why = missing.why();
                return Err(self.refused(host, why));
            }
        };
        let weigher = &*host.database().host;
        self.prefix.clear();
        let made = parent.maker.key_from_record(new, weigher, &mut self.prefix);
        if fits(made)? {
            if parent.is_own(new, weigher, &self.prefix)? || self.known.has(session, &self.prefix) {
                return Ok(());
            }
            if session.lock_parent(&mut parent.probe, parent.index, &self.prefix, parent.is_whole)? {
                self.known.add(&self.prefix);
                return Ok(());
            }
        }
        Err(self.refused(host, "no row there has these values"))
    }

    /// True if changes of the parent may change the row.
    fn acts(&self) -> bool {
        !(self.key.on_delete.refuses() && self.key.on_update.refuses())
    }

    /// True if the constraint's columns have other values.
    fn differ(&mut self, host: &HostTable, old: HostRecord<'_>, new: HostRecord<'_>) -> Result<bool> {
        if let Ok(parent) = &self.bound {
            let weigher = &*host.database().host;
            return Ok(parent.maker.changed(old, new, weigher, &mut self.prefix)?);
        }
        for &column in &self.columns {
            if host.layout().value(column, old)? != host.layout().value(column, new)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rule FK22.
    #[cold]
    fn refused(&self, host: &HostTable, why: &'static str) -> Error {
        Error::NoReferencedRow {
            constraint: self.key.name.clone(),
            child: host.table().name().to_string(),
            parent: self.key.parent.clone(),
            why,
        }
    }
}

impl Parent {
    fn new(
        db: &Arc<Database>,
        host: &Arc<HostTable>,
        link: &Link,
        table: Arc<Table>,
        columns: &[usize],
    ) -> Result<Self> {
        let spec = &table.indexes[link.parent_index].def.spec;
        let maker = |columns: &[usize]| key_maker(db, &table, spec, host.layout(), columns);
        let own = if link.is_to_itself() {
            Some(maker(&link.parent_columns)?)
        } else {
            None
        };
        Ok(Self {
            maker: maker(columns)?,
            own,
            index: link.parent_index,
            is_whole: columns.len() == spec.parts().len(),
            probe: Cursor::new(&table),
            entered: TxnId::new(0),
            table,
        })
    }

    /// True if the row is its own parent.
    fn is_own(&self, row: HostRecord<'_>, weigher: &dyn pbxt_rows::Weigher, prefix: &[u8]) -> Result<bool> {
        let Some(own) = &self.own else { return Ok(false) };
        let mut key = Vec::new();
        Ok(!own.has_null(row)? && fits(own.key_from_record(row, weigher, &mut key))? && key == prefix)
    }
}

impl ChildLink {
    fn new(db: &Arc<Database>, host: &Arc<HostTable>, link: &Arc<Link>) -> Result<Option<Self>> {
        // A table that is being dropped has no children that count any more.
        let Some(child) = link.child.upgrade() else {
            return Ok(None);
        };
        let spec = &child.indexes[link.child_index].def.spec;
        Ok(Some(Self {
            maker: key_maker(db, &child, spec, host.layout(), &link.parent_columns)?,
            link: Arc::clone(link),
            probe: Cursor::new(&child),
            walk: Some(Cursor::new(&child)),
            child,
        }))
    }

    /// True if a change between these records gives the referenced columns, of this layout, other values; another spelling of what
    /// compares alike is one (rule FK13).
    pub(crate) fn is_touched(
        &self,
        layout: &HostLayout,
        old: HostRecord<'_>,
        new: HostRecord<'_>,
    ) -> Result<bool> {
        for &column in &self.link.parent_columns {
            if layout.value(column, old)? != layout.value(column, new)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rule FK22.
    #[cold]
    pub(crate) fn refused(&self, parent: &Table) -> Error {
        Error::RowIsReferenced {
            constraint: self.link.key.name.clone(),
            child: self.child.name().to_string(),
            parent: parent.name().to_string(),
        }
    }
}

/// Whether the values fit the columns of the other table: those that do not are none of its values.
pub(crate) fn fits(made: pbxt_rows::Result<()>) -> Result<bool> {
    match made {
        Ok(()) => Ok(true),
        Err(pbxt_rows::Error::BadValue { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::KnownKeys;
    use pbxt_base::TxnId;

    const NOW: (TxnId, u64) = (TxnId::new(1), 0);

    #[test]
    fn one_known_key_takes_no_table() {
        let mut known = KnownKeys::default();
        for statement in 1..4 {
            let now = (TxnId::new(1), statement);
            assert!(!known.has_since(now, b"a"), "what was known before is no longer");
            known.add(b"a");
            assert!(known.has_since(now, b"a"));
            assert_eq!(known.slots.capacity(), 0, "FK20: memory for many keys");
        }
    }

    #[test]
    fn many_keys_are_known_until_the_transaction_or_its_changes_are_others() {
        let mut known = KnownKeys::default();
        for key in [b"a", b"b", b"c"] {
            assert!(!known.has_since(NOW, key));
            known.add(key);
        }
        assert!(
            [b"a", b"b", b"c"]
                .into_iter()
                .all(|key| known.has_since(NOW, key))
        );
        assert!(!known.has_since((TxnId::new(2), 0), b"a"));
        assert!(
            ![b"b", b"c"]
                .into_iter()
                .any(|key| known.has_since((TxnId::new(2), 0), key))
        );
    }
}
