//! Random tables with many rows, whose columns have the habits that block forms exist for, made from one number.

use super::*;

/// A row of a block: id, and payload or None for a tombstone.
pub(crate) type BlockRow = (u64, Option<Vec<u8>>);

/// splitmix64: small, and every state is a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, len: usize, letters: &[u8]) -> Vec<u8> {
        (0..len)
            .map(|_| letters[self.below(letters.len() as u64) as usize])
            .collect()
    }
}

/// What the values of a column have in common.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Constant,
    Rising,
    Near,
    Few,
    Some,
    Any,
    Long,
}

struct Plan {
    column: Column,
    habit: Habit,
    seed: u64,
    nulls: u64,
    externals: u64,
}

fn plan(random: &mut Random) -> Plan {
    let habits = [
        Habit::Constant,
        Habit::Rising,
        Habit::Near,
        Habit::Few,
        Habit::Some,
        Habit::Any,
        Habit::Long,
    ];
    let kind = match random.below(10) {
        0 => ColumnKind::Fixed(random.below(20) as u16),
        1..=4 => ColumnKind::Fixed(1 + random.below(8) as u16),
        5..=7 => ColumnKind::Var,
        8 => ColumnKind::Padded {
            len: random.below(40) as u16,
            pad: b' ',
        },
        _ => ColumnKind::Virtual,
    };
    let nullable = random.below(2) == 0;
    let rate = |random: &mut Random| [0, 0, 5, 50][random.below(4) as usize];
    Plan {
        column: Column { kind, nullable },
        habit: habits[random.below(7) as usize],
        seed: random.next(),
        nulls: if nullable { rate(random) } else { 0 },
        externals: rate(random) / 10,
    }
}

/// A number with the column's habit, as bytes in one of both orders.
fn fixed(plan: &Plan, len: usize, row: u64, random: &mut Random) -> Vec<u8> {
    let number = match plan.habit {
        Habit::Constant => plan.seed,
        Habit::Rising => plan.seed.wrapping_add(row * 3),
        Habit::Near => (plan.seed % 100).wrapping_sub(random.below(90)),
        Habit::Few | Habit::Some => plan.seed.wrapping_mul(random.below(6)),
        Habit::Any | Habit::Long => random.next(),
    };
    let mut bytes = [number.to_le_bytes(), plan.seed.to_le_bytes(), [7; 8]].concat();
    bytes.truncate(len);
    if plan.seed.is_multiple_of(3) {
        bytes.reverse();
    }
    bytes
}

fn text(plan: &Plan, row: u64, random: &mut Random) -> Vec<u8> {
    let of = |number: u64| format!("{:x}", plan.seed.wrapping_mul(number)).into_bytes();
    match plan.habit {
        Habit::Constant => of(1),
        Habit::Rising => of(row + 1),
        Habit::Near => random.bytes(
            11,
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-",
        ),
        Habit::Few => of(random.below(5) + 1),
        Habit::Some => of(random.below(400).min(random.below(400)) + 1),
        Habit::Any => {
            let all: Vec<u8> = (0..=255).collect();
            let len = random.below(40) as usize;
            random.bytes(len, &all)
        }
        Habit::Long if random.below(60) == 0 => vec![b'l'; random.below(70_000) as usize],
        Habit::Long => random.bytes((row % 30) as usize, b"ab"),
    }
}

fn value(plan: &Plan, number: usize, row: u64, random: &mut Random, builder: &mut RowBuilder<'_>) {
    if random.below(100) < plan.nulls {
        return builder.set(number, None).expect("the column can be NULL");
    }
    let value = match plan.column.kind {
        ColumnKind::Virtual => return,
        ColumnKind::Fixed(len) => fixed(plan, len as usize, row, random),
        ColumnKind::Var | ColumnKind::Padded { .. } if random.below(100) < plan.externals => {
            let blob = BlobRef {
                addr: Addr::new(random.below(1 << 40)),
                len: random.below(1 << 20),
                hash: random.next(),
            };
            return builder.set_external(number, blob).expect("of variable length");
        }
        ColumnKind::Var => text(plan, row, random),
        ColumnKind::Padded { len, .. } => {
            let mut value = text(plan, row, random);
            value.truncate(len as usize);
            value
        }
    };
    builder.set(number, Some(&value)).expect("fits its column");
}

/// A table and up to `rows` of its rows with rising ids.
pub(crate) fn random_rows(seed: u64, rows: u64) -> (Schema, Vec<BlockRow>) {
    let mut random = Random(seed);
    let plans: Vec<_> = (0..random.below(14)).map(|_| plan(&mut random)).collect();
    let columns = plans.iter().map(|plan| plan.column).collect();
    let schema = Schema::new(random.next() as u16, columns).expect("few columns");
    let gaps = [1, 1, 2, 1000][random.below(4) as usize];
    let tombstones = [0, 0, 3, 100][random.below(4) as usize];
    let mut id = random.below(1 << 40);
    let mut builder = RowBuilder::new(&schema);
    let mut made = Vec::new();
    for row in 0..random.below(rows + 1) {
        id += 1 + random.below(gaps);
        if random.below(100) < tombstones {
            made.push((id, None));
            continue;
        }
        for (number, plan) in plans.iter().enumerate() {
            value(plan, number, row, &mut random, &mut builder);
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload).expect("every column is set");
        made.push((id, Some(payload)));
    }
    (schema, made)
}
