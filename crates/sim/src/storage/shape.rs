//! Shape: the columns and indexes that a table of a storage life has at one moment.
//!
//! Why it exists: ALTER changes them, so they are part of the state that a power cut may bring back; `Shape::of` reads them from
//! the catalog's definition, and what it reads is compared with what the model has.
//! Columns: id, a number with an index, a number that only one row may have, a number that may refer to a parent, numbers that
//! ALTER added, and a text last, long enough to leave its row. Numbers are stored without a host's rules, so indexes order them as the model does.

use crate::storage::rows::{Row, encode};
use pbxt::{
    Action, Alteration, Compression, ConflictMode, ForeignKey, HostRecordDef, IndexDef, KeyColumn,
    RecordColumn, Result, TableDef,
};
use pbxt_base::{IndexId, TableId};
use pbxt_rows::{HostColumn, HostKind, HostLayout, KeyEncoding, KeyPart, KeySpec, Order};

/// Numbers that every table has: id, group, tag, parent.
pub(super) const BASE: usize = 4;
/// Position of the number that only one row may have.
pub(super) const TAG: usize = 2;
/// Position of the number that refers to a parent.
pub(super) const PARENT: usize = 3;
/// Longest text. A quarter of a record of the log's is the most that stays in a row, so that these leave it.
pub(super) const TEXT_MAX: usize = 4000;
/// Bytes of null bits.
pub(super) const NULLS: usize = 2;

/// A number that ALTER added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// Part of its name; never used twice.
    pub label: u32,
    /// What rows of before have.
    pub default: Option<u32>,
}

/// An index over one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub name: String,
    pub column: usize,
    pub unique: bool,
}

/// What the number `PARENT` refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub table: String,
    pub on_delete: Action,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub added: Vec<Added>,
    pub indexes: Vec<Index>,
    pub parent: Option<Parent>,
}

impl Shape {
    /// As a table is created.
    pub(super) fn new(parent: Option<Parent>) -> Self {
        let index = |name: &str, column, unique| Index {
            name: name.into(),
            column,
            unique,
        };
        Self {
            added: Vec::new(),
            indexes: vec![
                index("primary", 0, true),
                index("group", 1, false),
                index("tag", TAG, true),
                index("parent", PARENT, false),
            ],
            parent,
        }
    }

    /// How many numbers a row has.
    pub(super) fn numbers(&self) -> usize {
        BASE + self.added.len()
    }

    /// Bytes of a record.
    pub(super) fn record_bytes(&self) -> usize {
        NULLS + 4 * self.numbers() + 2 + TEXT_MAX
    }

    fn label(&self, number: usize) -> u32 {
        match self.added.get(number.wrapping_sub(BASE)) {
            Some(added) => added.label,
            None => number as u32,
        }
    }

    /// The values that rows of before have in added columns.
    fn defaults(&self) -> Row {
        let mut numbers = vec![Some(0), None, None, None];
        numbers.extend(self.added.iter().map(|added| added.default));
        Row { numbers, text: None }
    }

    fn places(&self) -> Vec<HostColumn> {
        let place = |number: usize, kind| HostColumn {
            offset: (NULLS + 4 * number) as u32,
            kind,
            null_offset: (number / 8) as u32,
            null_bit: if number == 0 { 0 } else { 1 << (number % 8) },
            stored: true,
        };
        let numbers = (0..self.numbers()).map(|number| place(number, HostKind::Fixed(4)));
        let text = place(self.numbers(), HostKind::Var2(TEXT_MAX as u16));
        numbers.chain([text]).collect()
    }

    fn record(&self) -> HostRecordDef {
        let column = |(number, place): (usize, HostColumn)| {
            let is_text = number == self.numbers();
            RecordColumn {
                name: if is_text {
                    "text".into()
                } else {
                    format!("c{}", self.label(number))
                },
                type_text: if is_text { "text" } else { "int" }.into(),
                place,
                has_default: true,
            }
        };
        HostRecordDef {
            columns: self.places().into_iter().enumerate().map(column).collect(),
            defaults: encode(self, &self.defaults()),
        }
    }

    fn index_def(index: &Index) -> Result<IndexDef> {
        let part = |column: usize| KeyPart {
            column: column as u16,
            length: 4,
            prefix: false,
            nullable: column != 0,
            descending: false,
            encoding: KeyEncoding::Uint,
        };
        // Behind a key that may repeat stands the primary key (rule X40).
        let extension = usize::from(!index.unique);
        let parts = [index.column, 0].into_iter().take(1 + extension).map(part);
        let spec = KeySpec::new(parts.collect(), false)?.with_extension(extension)?;
        Ok(IndexDef {
            id: IndexId::new(0),
            name: index.name.clone(),
            unique: index.unique,
            primary: index.name == "primary",
            spec,
        })
    }

    /// The definition under a name.
    pub(super) fn definition(&self, name: &str) -> Result<TableDef> {
        let mut orders = vec![Order::Uint; self.numbers()];
        orders.push(Order::Unknown);
        let layout = HostLayout::new(self.record_bytes(), self.places())?.with_orders(orders);
        let foreign_key = |parent: &Parent| ForeignKey {
            name: format!("{name} to {}", parent.table),
            parent: parent.table.clone(),
            columns: vec![KeyColumn {
                child: PARENT as u16,
                parent: "c0".into(),
            }],
            on_delete: parent.on_delete,
            on_update: Action::Restrict,
        };
        Ok(TableDef {
            id: TableId::new(0),
            name: name.to_owned(),
            schema: layout.schema(1)?,
            older: Vec::new(),
            indexes: self.indexes.iter().map(Self::index_def).collect::<Result<_>>()?,
            host_image: Vec::new(),
            host_version: Vec::new(),
            conflict_mode: ConflictMode::Default,
            compression: Compression::Default,
            encrypted: false,
            temporary: false,
            provisional: false,
            host_record: Some(self.record()),
            foreign_keys: self.parent.iter().map(foreign_key).collect(),
            created: 0,
        })
    }

    /// The shape that a definition of the catalog has.
    pub(super) fn of(def: &TableDef) -> Option<Self> {
        let record = def.host_record.as_ref()?;
        let numbers = record.columns.len().checked_sub(1)?;
        let labels = record.columns[..numbers].iter().skip(BASE);
        let labels: Vec<u32> = labels
            .filter_map(|column| column.name.strip_prefix('c')?.parse().ok())
            .collect();
        let mut shape = Self {
            added: labels
                .into_iter()
                .map(|label| Added { label, default: None })
                .collect(),
            indexes: Vec::new(),
            parent: def.foreign_keys.first().map(|key| Parent {
                table: key.parent.clone(),
                on_delete: key.on_delete,
            }),
        };
        let defaults = crate::storage::rows::decode(&shape, &record.defaults);
        for (added, value) in shape.added.iter_mut().zip(&defaults.numbers[BASE..]) {
            added.default = *value;
        }
        for index in &def.indexes {
            shape.indexes.push(Index {
                name: index.name.clone(),
                column: usize::from(index.spec.parts().first()?.column),
                unique: index.unique,
            });
        }
        Some(shape)
    }

    /// What columns and indexes of `self` were in `before`.
    pub(super) fn since(&self, before: &Self) -> Alteration {
        let added = |added: &Added| {
            let found = before.added.iter().position(|old| old.label == added.label);
            found.map(|at| (BASE + at) as u16)
        };
        let base = (0..BASE as u16).map(Some);
        let text = Some(before.numbers() as u16);
        let index = |index: &Index| {
            let found = before.indexes.iter().position(|old| old.name == index.name);
            found.map(|at| at as u16)
        };
        Alteration {
            columns: base.chain(self.added.iter().map(added)).chain([text]).collect(),
            indexes: self.indexes.iter().map(index).collect(),
        }
    }

    /// What a row of `before` is in this shape.
    pub(super) fn altered(&self, before: &Self, row: &Row) -> Row {
        let mut numbers = row.numbers[..BASE].to_vec();
        numbers.extend(self.added.iter().map(|added| {
            let found = before.added.iter().position(|old| old.label == added.label);
            found.map_or(added.default, |at| row.numbers[BASE + at])
        }));
        Row {
            numbers,
            text: row.text.clone(),
        }
    }
}
