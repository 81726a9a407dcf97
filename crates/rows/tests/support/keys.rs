//! Random indexes: one column per part, two rows that are often equal or nearly so, a small collation, and what order the
//! values have by definition.

use super::*;
use std::cmp::Ordering;

/// One part of a random index with its column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartWish {
    pub(crate) kind: HostKind,
    pub(crate) encoding: KeyEncoding,
    pub(crate) length: u32,
    pub(crate) prefix: bool,
    pub(crate) nullable: bool,
    pub(crate) descending: bool,
}

/// A table with one index over all its columns, and two rows.
#[derive(Clone, Debug)]
pub(crate) struct KeySample {
    pub(crate) parts: Vec<PartWish>,
    pub(crate) rows: [Vec<Cell>; 2],
    pub(crate) unpack: bool,
}

/// Longest value of a column of variable length.
const VALUE_MAX: u32 = 20;

/// A collation of one byte per character that ignores the case of ASCII letters. Each weight has `unit` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collation {
    unit: usize,
    /// Pads weights to this many characters.
    fixed: Option<usize>,
    prefix: Option<usize>,
    /// Spaces left at the end by the cut go.
    strip: bool,
}

impl Collation {
    pub(crate) fn of(part: &PartWish) -> Option<Self> {
        let KeyEncoding::Host { scheme, .. } = part.encoding else {
            return None;
        };
        let (unit, fixed) = match scheme {
            WeightScheme::FixedLen(bytes) => (1, Some(bytes as usize)),
            WeightScheme::NoPad => (1, None),
            WeightScheme::PadSpace { len, .. } => (len as usize, None),
        };
        let prefix = part.prefix.then_some(part.length as usize);
        Some(Self {
            unit,
            fixed,
            prefix,
            strip: matches!(part.kind, HostKind::Padded { .. }),
        })
    }

    fn characters(&self, value: &[u8]) -> Vec<u8> {
        let cut = self.prefix.map_or(value.len(), |prefix| prefix.min(value.len()));
        let mut characters = value[..cut].to_ascii_uppercase();
        if self.strip {
            characters = stripped(characters, b' ');
        }
        characters.resize(self.fixed.unwrap_or(characters.len()), b' ');
        characters
    }

    /// The weight of a space as a key specification has it.
    pub(crate) fn space(unit: u8) -> WeightScheme {
        let mut weight = [0; 8];
        weight[unit as usize - 1] = b' ';
        WeightScheme::PadSpace { weight, len: unit }
    }
}

/// Looks the collation of a part up by its context.
#[derive(Debug)]
pub(crate) struct Collations(pub(crate) Vec<Option<Collation>>);

impl Weigher for Collations {
    fn weights(&self, part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        let collation = self.0[part_ctx].expect("only parts with a collation ask for weights");
        for character in collation.characters(src) {
            out.extend(std::iter::repeat_n(0, collation.unit - 1));
            out.push(character);
        }
    }
}

fn var_kinds() -> impl Strategy<Value = HostKind> {
    let max = VALUE_MAX as u16;
    prop_oneof![
        Just(HostKind::Var1(max)),
        Just(HostKind::Var2(max)),
        Just(HostKind::Blob(2))
    ]
}

fn parts() -> impl Strategy<Value = PartWish> {
    let number = (1_u16..=8, any::<bool>()).prop_map(|(len, signed)| {
        let encoding = if signed {
            KeyEncoding::Int
        } else {
            KeyEncoding::Uint
        };
        (HostKind::Fixed(len), encoding, len as u32, false)
    });
    let float = prop_oneof![
        Just((HostKind::Fixed(4), KeyEncoding::F32, 4, false)),
        Just((HostKind::Fixed(8), KeyEncoding::F64, 8, false)),
    ];
    let raw = (
        1_u16..6,
        prop::option::of(prop_oneof![Just(0_u8), Just(b' ')]),
        prop::option::of(1_u32..6),
    );
    let raw = raw.prop_map(|(len, pad, prefix)| {
        let kind = pad.map_or(HostKind::Fixed(len), |pad| HostKind::Padded { len, pad });
        let prefix = prefix.filter(|&prefix| prefix <= len as u32);
        (
            kind,
            KeyEncoding::Raw,
            prefix.unwrap_or(len as u32),
            prefix.is_some(),
        )
    });
    let var = (var_kinds(), prop::option::of(1_u32..6));
    let var = var.prop_map(|(kind, prefix)| {
        (
            kind,
            KeyEncoding::VarBinary,
            prefix.unwrap_or(VALUE_MAX),
            prefix.is_some(),
        )
    });
    let scheme = prop_oneof![
        1 => Just(WeightScheme::FixedLen(VALUE_MAX)),
        1 => Just(WeightScheme::NoPad),
        3 => (1_u8..=8).prop_map(Collation::space),
    ];
    let padded = Just(HostKind::Padded {
        len: VALUE_MAX as u16,
        pad: b' ',
    });
    let host = (
        prop_oneof![var_kinds(), padded],
        scheme,
        prop::option::of(1_u32..6),
    );
    let host = host.prop_map(|(kind, scheme, prefix)| {
        let encoding = KeyEncoding::Host { collation: 8, scheme };
        (kind, encoding, prefix.unwrap_or(VALUE_MAX), prefix.is_some())
    });
    let part = prop_oneof![2 => number, 1 => float, 1 => raw, 2 => var, 4 => host];
    (part, any::<bool>(), any::<bool>()).prop_map(
        |((kind, encoding, length, prefix), nullable, descending)| PartWish {
            kind,
            encoding,
            length,
            prefix,
            nullable,
            descending,
        },
    )
}

fn first_value(part: &PartWish) -> BoxedStrategy<Cell> {
    let exact = |len: u16| {
        let byte = prop_oneof![Just(0_u8), Just(0x80), Just(0xFF), Just(0x7F), any::<u8>()];
        prop::collection::vec(byte, len as usize)
    };
    let value = match (part.encoding, part.kind) {
        (KeyEncoding::F64, _) => floats().prop_map(|float| float.to_le_bytes().to_vec()).boxed(),
        (KeyEncoding::F32, _) => floats()
            .prop_map(|float| (float as f32).to_le_bytes().to_vec())
            .boxed(),
        (_, HostKind::Fixed(len)) => exact(len).boxed(),
        (_, HostKind::Padded { len, pad }) => bytes(len as usize)
            .prop_map(move |value| stripped(value, pad))
            .boxed(),
        _ => bytes(VALUE_MAX as usize),
    };
    if part.nullable {
        prop_oneof![1 => Just(None), 5 => value.prop_map(Some)].boxed()
    } else {
        value.prop_map(Some).boxed()
    }
}

fn floats() -> impl Strategy<Value = f64> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
    ];
    prop_oneof![prop::sample::select(special.to_vec()), any::<f64>()]
}

/// The same value, or one that differs little, or another one.
fn second_value(part: &PartWish, first: &Cell) -> BoxedStrategy<Cell> {
    let max = VALUE_MAX as usize;
    let fixed = matches!(part.kind, HostKind::Fixed(_));
    let padded = matches!(part.kind, HostKind::Padded { .. });
    let mut near = vec![first.clone()];
    if let (Some(value), false) = (first, fixed) {
        near.push(Some(value.to_ascii_uppercase()));
        near.push(Some(value[..value.len() / 2].to_vec()));
        if !padded {
            near.push(Some([value, b"  ".as_slice()].concat()));
            near.push(Some([value, [0].as_slice()].concat()));
            near.push(Some([value, [b' ', b' ', 0x1F].as_slice()].concat()));
        }
    }
    let pad = if let HostKind::Padded { pad, .. } = part.kind {
        Some(pad)
    } else {
        None
    };
    let tidy = move |cell: Cell| cell.map(|value| pad.map_or(value.clone(), |pad| stripped(value, pad)));
    near.retain(|cell| cell.as_ref().is_none_or(|value| value.len() <= max));
    prop_oneof![3 => prop::sample::select(near).prop_map(tidy), 1 => first_value(part)].boxed()
}

/// Random indexes of one to four parts.
pub(crate) fn key_samples() -> impl Strategy<Value = KeySample> {
    let first = |parts: Vec<PartWish>| {
        let cells: Vec<_> = parts.iter().map(first_value).collect();
        (Just(parts), cells)
    };
    let second = |(parts, first): (Vec<PartWish>, Vec<Cell>)| {
        let cells: Vec<_> = parts
            .iter()
            .zip(&first)
            .map(|(part, cell)| second_value(part, cell))
            .collect();
        (Just(parts), Just(first), cells, any::<bool>())
    };
    let sample = |(parts, first, second, unpack)| KeySample {
        parts,
        rows: [first, second],
        unpack,
    };
    prop::collection::vec(parts(), 1..5)
        .prop_flat_map(first)
        .prop_flat_map(second)
        .prop_map(sample)
}

impl KeySample {
    pub(crate) fn layout(&self) -> HostLayout {
        let wish = |part: &PartWish| Wish {
            kind: part.kind,
            nullable: part.nullable,
            stored: true,
            gap: 0,
        };
        place(&self.parts.iter().map(wish).collect::<Vec<_>>())
    }

    pub(crate) fn spec(&self) -> KeySpec {
        let part = |(column, wish): (usize, &PartWish)| KeyPart {
            column: column as u16,
            length: wish.length,
            prefix: wish.prefix,
            nullable: wish.nullable,
            descending: wish.descending,
            encoding: wish.encoding,
        };
        KeySpec::new(self.parts.iter().enumerate().map(part).collect(), self.unpack).expect("wishes fit")
    }

    pub(crate) fn maker(&self) -> (KeyMaker, Collations) {
        let contexts: Vec<usize> = (0..self.parts.len()).collect();
        let maker = KeyMaker::new(&self.spec(), &self.layout(), &contexts).expect("wishes fit");
        (maker, Collations(self.parts.iter().map(Collation::of).collect()))
    }

    /// The order of the two rows by definition.
    pub(crate) fn order(&self) -> Ordering {
        let [first, second] = &self.rows;
        let parts = self.parts.iter().zip(first.iter().zip(second));
        let orders = parts.map(|(part, (a, b))| {
            let order = match (a, b) {
                (Some(a), Some(b)) => compare(part, a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            if part.descending { order.reverse() } else { order }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }

    /// The search tuple of the first `count` parts of a row, with rubbish where nothing is said to stand.
    pub(crate) fn tuple(&self, row: usize, count: usize) -> Vec<u8> {
        let mut tuple = Vec::new();
        for (part, cell) in self.parts.iter().zip(&self.rows[row]).take(count) {
            if part.nullable {
                tuple.push(u8::from(cell.is_none()));
            }
            let mut value = cell.clone().unwrap_or_default();
            let var = match part.kind {
                HostKind::Padded { len, pad } => {
                    value.resize(len as usize, pad);
                    false
                }
                HostKind::Fixed(_) => false,
                _ => true,
            };
            value.truncate(part.length as usize);
            if var {
                tuple.extend((value.len() as u16).to_le_bytes());
            }
            value.resize(part.length as usize, 0xEE);
            tuple.extend(value);
        }
        tuple
    }
}

fn compare(part: &PartWish, a: &[u8], b: &[u8]) -> Ordering {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0_i128, |value, &byte| value << 8 | byte as i128)
    };
    let signed = |bytes: &[u8]| {
        let over = 1_i128 << (8 * bytes.len());
        if number(bytes) * 2 >= over {
            number(bytes) - over
        } else {
            number(bytes)
        }
    };
    let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("8 bytes")) + 0.0;
    let single = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("4 bytes")) + 0.0;
    let cut = |value: &[u8]| value[..value.len().min(part.length as usize)].to_vec();
    match part.encoding {
        KeyEncoding::Uint => number(a).cmp(&number(b)),
        KeyEncoding::Int => signed(a).cmp(&signed(b)),
        KeyEncoding::F32 => single(a).total_cmp(&single(b)),
        KeyEncoding::F64 => double(a).total_cmp(&double(b)),
        KeyEncoding::VarBinary => cut(a).cmp(&cut(b)),
        KeyEncoding::Raw => {
            let full = |value: &[u8]| {
                let mut value = value.to_vec();
                if let HostKind::Padded { len, pad } = part.kind {
                    value.resize(len as usize, pad);
                }
                cut(&value)
            };
            full(a).cmp(&full(b))
        }
        KeyEncoding::Host { scheme, .. } => {
            let collation = Collation::of(part).expect("a host part");
            let (mut a, mut b) = (collation.characters(a), collation.characters(b));
            if let WeightScheme::PadSpace { .. } = scheme {
                let longest = a.len().max(b.len());
                a.resize(longest, b' ');
                b.resize(longest, b' ');
            }
            a.cmp(&b)
        }
    }
}
