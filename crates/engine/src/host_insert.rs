//! Host insert: new rows by record buffers.
//!
//! Why it exists: of a key that is taken some hosts want to hear, and others go on with the row that has it; both ask for parents first.
//! Rules: FK12 a row without a parent whose key is taken is told as that. T22 who goes on with the row that has the key is told of it when
//! it is locked.
//! Latches and I/O: those of any change of a row.

use super::HostCursor;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::write::NewVersion;
use pbxt_base::RowId;
use pbxt_rows::HostRecord;

/// What becomes of a row that has a key of the new one.
#[derive(Clone, Copy)]
enum Taken {
    /// The host is told.
    Told,
    /// It is locked before.
    Held,
}

impl HostCursor {
    /// Inserts the record.
    pub fn insert(&mut self, session: &mut Session, record: HostRecord<'_>) -> Result<()> {
        self.insert_unless(Taken::Told, session, record)
    }

    /// Inserts the record of a host that goes on with the row that has a key of it; see `Session::insert_or_hold`.
    pub fn insert_or_hold(&mut self, session: &mut Session, record: HostRecord<'_>) -> Result<()> {
        self.insert_unless(Taken::Held, session, record)
    }

    /// Inserts a row without leaving the one that the cursor is at.
    pub fn insert_beside(&mut self, session: &mut Session, record: HostRecord<'_>) -> Result<()> {
        let row = self.row;
        let inserted = self.insert(session, record);
        self.row = row;
        inserted
    }

    fn insert_unless(&mut self, taken: Taken, session: &mut Session, record: HostRecord<'_>) -> Result<()> {
        if self.foreign.checks {
            let checked = self.check_references(session, None, record);
            self.prefer_duplicate(taken, session, record, checked)?;
        }
        self.host.insert_keys(record, &mut self.keys)?;
        self.host.encode(session, record, &[], &mut self.payload)?;
        let version = NewVersion {
            payload: &self.payload,
            schema_version: self.host.codec.schema().version(),
            keys: &self.keys,
        };
        let inserted = match taken {
            Taken::Told => session.insert_or_load(&self.host.table, version),
            Taken::Held => session.insert_or_hold(&self.host.table, version),
        };
        self.row = self.note_duplicate(inserted)?.unwrap_or(RowId::new(0));
        Ok(())
    }

    /// Of a new row that has no parent: if one of its keys is taken, the host hears of that instead, for it may go on with the row
    /// that has the key (rule FK12).
    fn prefer_duplicate(
        &mut self,
        taken: Taken,
        session: &mut Session,
        record: HostRecord<'_>,
        checked: Result<()>,
    ) -> Result<()> {
        if matches!(checked, Err(Error::NoReferencedRow { .. })) {
            self.host.insert_keys(record, &mut self.keys)?;
            let free = match taken {
                Taken::Told => session.refuse_taken(&self.host.table, &self.keys),
                Taken::Held => session.hold_taken(&self.host.table, &self.keys),
            };
            self.note_duplicate(free)?;
        }
        checked
    }
}
