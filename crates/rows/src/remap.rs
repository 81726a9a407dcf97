//! Remap: how the payload of an older schema becomes one of the newest.
//!
//! Why it exists:    rows stay as they were written when a table gets other columns; who reads them wants columns of now. Worked
//!                   out once for a pair of schemas, it is a few copies for each row, without a decision per column.
//! Format / state:   docs/format-rows.md#row-payload, both sides.
//! Rules:            AL4 (which columns can follow which), AL5 (constants). F20 total; F27: the result is the one encoding of
//!                   the row in the newer schema.
//! Latches and I/O:  none.
//! After a crash:    nothing; made anew from what the catalog keeps.

use crate::error::{Error, Result};
use crate::payload::{Payload, write_payload};
use crate::schema::{Column, ColumnKind, Order, Place, Placed, Schema, Shape};
use crate::versions::Origin;

/// Bytes of constants that one row can get, so that rows do not outgrow their blocks.
pub(crate) const CONSTANT_BYTES_MAX: usize = 8191;
/// A number with sign has it in the highest bit of its last byte.
const SIGN_BIT: u8 = 0x80;

/// Bytes that move as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    from: usize,
    to: usize,
    len: usize,
}

/// A number that gets more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widening {
    from: usize,
    from_len: usize,
    to: usize,
    to_len: usize,
    has_sign: bool,
}

/// Where a value of variable length comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueOrigin {
    /// Number among the older schema's values.
    Value(usize),
    Constant(Vec<u8>),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remap {
    from: Shape,
    to: Shape,
    /// Flags, null bits and fixed columns of a row that has nothing but constants.
    head: Vec<u8>,
    moves: Vec<Move>,
    widenings: Vec<Widening>,
    /// Null bits: numbers among the nullable columns, before and now.
    nulls: Vec<(usize, usize)>,
    values: Vec<ValueOrigin>,
    /// Payloads are the same, byte by byte.
    is_same: bool,
}

impl Remap {
    /// Payloads of `from` as those of `to`, of which each column has its origin.
    ///
    /// # Errors
    /// `BadLayout` names a column that cannot follow its origin (rule AL4); `TooLarge` for constants over the limit (rule AL5).
    pub(crate) fn new(from: &Schema, to: &Schema, origins: &[Origin]) -> Result<Self> {
        if origins.len() != to.columns().len() {
            return Err(Error::BadLayout {
                column: origins.len(),
                why: "every column has one origin in older rows",
            });
        }
        let mut remap = Self {
            from: from.shape(),
            to: to.shape(),
            head: vec![0; to.shape().fixed_end],
            moves: Vec::new(),
            widenings: Vec::new(),
            nulls: Vec::new(),
            values: Vec::new(),
            is_same: false,
        };
        let mut constants = 0;
        for (column, origin) in origins.iter().enumerate() {
            let added = match origin {
                Origin::Column(number) => remap.follow(from, usize::from(*number), to, column).map(|()| 0),
                Origin::Constant(value) => remap.fill(to, column, value.as_deref()),
            };
            constants += added.map_err(|why| Error::BadLayout { column, why })?;
        }
        if constants > CONSTANT_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "the defaults of added columns",
                found: constants as u64,
                limit: CONSTANT_BYTES_MAX as u64,
            });
        }
        remap.is_same = remap.changes_nothing();
        Ok(remap)
    }

    /// True if payloads are the same, byte by byte.
    pub(crate) fn is_same(&self) -> bool {
        self.is_same
    }

    /// Appends the payload as one of the newer schema. `out` is as before on an error.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no payload of the older schema.
    pub(crate) fn apply(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let old = Payload::parse(self.from, bytes)?;
        if self.is_same {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let is_external =
            |value: &ValueOrigin| matches!(value, ValueOrigin::Value(at) if old.is_external(*at));
        let external = self.values.iter().any(is_external);
        let head = |head: &mut [u8]| self.fill_head(&old, head);
        write_payload(self.to, external, out, head, |writer| {
            let mut fits = true;
            for (ordinal, value) in self.values.iter().enumerate() {
                fits &= match value {
                    ValueOrigin::Value(at) if old.is_external(*at) => {
                        writer.push_external(ordinal, old.blob(*at)?)
                    }
                    ValueOrigin::Value(at) => writer.push(ordinal, old.var(*at)?),
                    ValueOrigin::Constant(value) => writer.push(ordinal, value),
                };
            }
            Ok(fits)
        })
    }

    fn fill_head(&self, old: &Payload<'_>, head: &mut [u8]) {
        head.copy_from_slice(&self.head);
        for part in &self.moves {
            head[part.to..part.to + part.len].copy_from_slice(old.fixed(part.from, part.len));
        }
        for number in &self.widenings {
            let value = old.fixed(number.from, number.from_len);
            widen(
                value,
                number.has_sign,
                &mut head[number.to..number.to + number.to_len],
            );
        }
        for &(from, to) in &self.nulls {
            if old.is_null(from) {
                head[1 + to / 8] |= 1 << (to % 8);
            }
        }
    }

    /// A column that goes on from an older one (rule AL4).
    fn follow(&mut self, from: &Schema, number: usize, to: &Schema, column: usize) -> Reason<()> {
        let (Some(before), Some(now)) = (from.column(number), to.column(column)) else {
            return Err("the older rows have no column of this number");
        };
        if before.nullable && !now.nullable {
            return Err("it may be NULL in older rows, and no longer");
        }
        let (Some(old_place), Some(new_place)) = (from.placed(number), to.placed(column)) else {
            return Err("the older rows have no column of this number");
        };
        let orders = (from.order(number), to.order(column));
        match (step_of(before, now, orders)?, old_place.place, new_place.place) {
            (Step::Nothing, ..) => return Ok(()),
            (Step::Same, Place::Fixed { offset, len }, Place::Fixed { offset: to, .. }) => {
                self.move_bytes(offset as usize, to as usize, len as usize);
            }
            (
                Step::Widen { has_sign },
                Place::Fixed { offset, len },
                Place::Fixed {
                    offset: to,
                    len: to_len,
                },
            ) => self.widenings.push(Widening {
                from: offset as usize,
                from_len: len as usize,
                to: to as usize,
                to_len: to_len as usize,
                has_sign,
            }),
            (Step::Same, Place::Var { ordinal }, Place::Var { .. }) => {
                self.values.push(ValueOrigin::Value(usize::from(ordinal)));
            }
            _ => return Err(OTHER_KIND),
        }
        if let (Some(old), Some(new)) = (old_place.null_ordinal, new_place.null_ordinal) {
            self.nulls.push((usize::from(old), usize::from(new)));
        }
        Ok(())
    }

    /// A column that older rows do not have; the bytes of its constant (rule AL5).
    fn fill(&mut self, to: &Schema, column: usize, value: Option<&[u8]>) -> Reason<usize> {
        let (Some(description), Some(placed)) = (to.column(column), to.placed(column)) else {
            return Err("the table has no column of this number");
        };
        match (description.kind, value) {
            (ColumnKind::Virtual, None) => return Ok(0),
            (ColumnKind::Virtual, Some(_)) => return Err("it is not stored, so it has no constant"),
            (_, None) => return self.fill_null(placed),
            (ColumnKind::Fixed(len), Some(value)) if value.len() != usize::from(len) => {
                return Err("its constant has not the fixed length");
            }
            (ColumnKind::Padded { len, pad }, Some(value))
                if value.len() > usize::from(len) || value.last() == Some(&pad) =>
            {
                return Err("its constant is too long, or padded");
            }
            _ => {}
        }
        let value = value.unwrap_or_default();
        match placed.place {
            Place::Fixed { offset, .. } => {
                let at = offset as usize;
                self.head[at..at + value.len()].copy_from_slice(value);
            }
            Place::Var { .. } => self.values.push(ValueOrigin::Constant(value.to_vec())),
            Place::Nowhere => {}
        }
        Ok(value.len())
    }

    fn fill_null(&mut self, placed: Placed) -> Reason<usize> {
        let Some(ordinal) = placed.null_ordinal.map(usize::from) else {
            return Err("it cannot be NULL, and older rows have no value for it");
        };
        self.head[1 + ordinal / 8] |= 1 << (ordinal % 8);
        if matches!(placed.place, Place::Var { .. }) {
            self.values.push(ValueOrigin::Constant(Vec::new()));
        }
        Ok(0)
    }

    /// Neighbours on both sides move as one.
    fn move_bytes(&mut self, from: usize, to: usize, len: usize) {
        if let Some(last) = self.moves.last_mut()
            && (last.from + last.len, last.to + last.len) == (from, to)
        {
            last.len += len;
            return;
        }
        self.moves.push(Move { from, to, len });
    }

    fn changes_nothing(&self) -> bool {
        let first = 1 + self.to.null_bytes;
        let fixed = self.to.fixed_end - first;
        let moves_all = match self.moves.as_slice() {
            [part] => (part.from, part.to, part.len) == (first, first, fixed),
            _ => fixed == 0,
        };
        let same_value =
            |(at, value): (usize, &ValueOrigin)| matches!(value, ValueOrigin::Value(from) if *from == at);
        self.from == self.to
            && moves_all
            && self.widenings.is_empty()
            && self.head.iter().all(|byte| *byte == 0)
            && self.nulls.len() == self.to.null_count
            && self.nulls.iter().all(|(from, to)| from == to)
            && self.values.iter().enumerate().all(same_value)
    }
}

/// Why something does not do.
type Reason<T> = std::result::Result<T, &'static str>;

const OTHER_KIND: &str = "older rows have it in another form, which no simple step turns into the new one";

/// What happens to the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is not stored.
    Nothing,
    Same,
    Widen {
        has_sign: bool,
    },
}

/// Rule AL4.
fn step_of(before: Column, now: Column, orders: (Order, Order)) -> Reason<Step> {
    let is_same_order = orders.0 == orders.1;
    match (before.kind, now.kind) {
        (ColumnKind::Virtual, ColumnKind::Virtual) => Ok(Step::Nothing),
        (ColumnKind::Fixed(old), ColumnKind::Fixed(new)) if old == new && is_same_order => Ok(Step::Same),
        (ColumnKind::Fixed(old), ColumnKind::Fixed(new)) if old < new => match orders {
            (Order::Uint, Order::Uint | Order::Int) => Ok(Step::Widen { has_sign: false }),
            (Order::Int, Order::Int) => Ok(Step::Widen { has_sign: true }),
            _ => Err(OTHER_KIND),
        },
        (ColumnKind::Var, ColumnKind::Var) if is_same_order => Ok(Step::Same),
        (ColumnKind::Padded { len: old, pad }, ColumnKind::Padded { len: new, pad: same })
            if old <= new && pad == same && is_same_order =>
        {
            Ok(Step::Same)
        }
        _ => Err(OTHER_KIND),
    }
}

fn widen(value: &[u8], has_sign: bool, out: &mut [u8]) {
    let is_negative = has_sign && value.last().is_some_and(|last| last & SIGN_BIT != 0);
    let (low, high) = out.split_at_mut(value.len());
    low.copy_from_slice(value);
    high.fill(if is_negative { 0xff } else { 0 });
}

/// A constant of `before` as one of `now`, which can follow it (rule AL4).
pub(crate) fn widened(value: &[u8], before: (Column, Order), now: Column) -> Vec<u8> {
    match (before.0.kind, now.kind) {
        (ColumnKind::Fixed(old), ColumnKind::Fixed(new)) if old < new => {
            let mut out = vec![0; usize::from(new)];
            widen(value, before.1 == Order::Int, &mut out);
            out
        }
        _ => value.to_vec(),
    }
}
