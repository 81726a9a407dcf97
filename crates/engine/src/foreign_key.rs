//! Foreign key: one constraint as the catalog keeps it.
//!
//! Why it exists: the definition of a child says which columns refer to which table; what is found under that name, and by
//! which index, changes with every table that comes and goes and is not part of it.
//! Format: docs/format-catalog.md#table-definition; one encoder and one decoder, here.
//! Rules: FK1 it belongs to the child's definition. FK2 the parent is a name.

use crate::definition::{damaged, text};
use crate::error::Result;
use pbxt_base::codec::{Reader, push_bytes, push_u8, push_u16};

/// What becomes of children when a referenced row goes or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::enum_variant_names, reason = "NO ACTION is the standard's word")]
pub enum Action {
    /// The change is refused.
    #[default]
    Restrict,
    /// They go too, or take over the new values.
    Cascade,
    /// Their columns become NULL.
    SetNull,
    /// As `Restrict` (rule FK14), but the host prints it otherwise.
    NoAction,
    /// Their columns take the values of the default record.
    SetDefault,
}

/// All actions, by the number that stands for them on disk and in the C interface.
const ACTIONS: [Action; 5] = [
    Action::Restrict,
    Action::Cascade,
    Action::SetNull,
    Action::NoAction,
    Action::SetDefault,
];

impl Action {
    /// The number that stands for it.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The action of this number.
    pub fn from_code(code: u8) -> Option<Self> {
        ACTIONS.get(code as usize).copied()
    }

    /// True if it refuses the change (rule FK14).
    pub fn refuses(self) -> bool {
        matches!(self, Self::Restrict | Self::NoAction)
    }
}

/// One column of a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Number in the child.
    pub child: u16,
    /// Name in the parent.
    pub parent: String,
}

/// One constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Unique among the tables whose names agree up to the last `/` (rule FK1).
    pub name: String,
    /// Name of the parent.
    pub parent: String,
    /// Its columns, at least one.
    pub columns: Vec<KeyColumn>,
    /// What a deletion of the parent does.
    pub on_delete: Action,
    /// What a change of the parent's columns does.
    pub on_update: Action,
}

impl ForeignKey {
    /// Appends the catalog image.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        push_bytes(out, self.name.as_bytes());
        push_bytes(out, self.parent.as_bytes());
        push_u8(out, self.on_delete.code());
        push_u8(out, self.on_update.code());
        push_u8(
            out,
            u8::try_from(self.columns.len()).expect("FK3: an index has at most 64 parts"),
        );
        for column in &self.columns {
            push_u16(out, column.child);
            push_bytes(out, column.parent.as_bytes());
        }
    }

    /// Reads what `encode` wrote.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let name = text(reader.length_prefixed()?)?;
        let parent = text(reader.length_prefixed()?)?;
        let on_delete = action(reader.u8()?)?;
        let on_update = action(reader.u8()?)?;
        let count = reader.u8()?;
        let columns = (0..count)
            .map(|_| {
                Ok(KeyColumn {
                    child: reader.u16()?,
                    parent: text(reader.length_prefixed()?)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            name,
            parent,
            columns,
            on_delete,
            on_update,
        })
    }
}

fn action(code: u8) -> Result<Action> {
    Action::from_code(code).ok_or_else(|| damaged("an action of a foreign key", u64::from(code)))
}
