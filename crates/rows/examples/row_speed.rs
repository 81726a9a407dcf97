//! Prints the time per row of encoding, decoding and key making for a 12-column row, best of several runs.
//!
//! Why it exists:    the targets (encode under 60 ns, decode under 50 ns) are checked by hand before a release:
//!                   `cargo run --release -p pbxt-rows --example row_speed`. Nothing is measured in tests.

use pbxt_rows::*;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 100_000;
const RUNS: usize = 60;

fn column(offset: u32, kind: HostKind, null_bit: u8) -> HostColumn {
    HostColumn {
        offset,
        kind,
        null_offset: 0,
        null_bit,
        stored: true,
    }
}

/// Two keys, six numbers, a date, two strings and a padded string: what tables mostly look like.
fn layout() -> HostLayout {
    let columns = vec![
        column(1, HostKind::Fixed(8), 0),
        column(9, HostKind::Fixed(4), 0),
        column(13, HostKind::Fixed(4), 2),
        column(17, HostKind::Fixed(8), 4),
        column(25, HostKind::Var1(60), 8),
        column(86, HostKind::Fixed(5), 0),
        column(91, HostKind::Fixed(1), 16),
        column(92, HostKind::Padded { len: 16, pad: b' ' }, 0),
        column(108, HostKind::Fixed(8), 0),
        column(116, HostKind::Fixed(8), 32),
        column(124, HostKind::Var2(500), 64),
        column(626, HostKind::Fixed(4), 0),
    ];
    HostLayout::new(630, columns).expect("fields lie one behind the other")
}

fn record() -> Vec<u8> {
    let mut record = vec![0; 630];
    for (at, byte) in record.iter_mut().enumerate() {
        *byte = at as u8;
    }
    record[0] = 32;
    record[25] = 18;
    record[92..108].copy_from_slice(b"padded          ");
    record[124..126].copy_from_slice(&[30, 0]);
    record
}

/// Runs `work` many times and prints the nanoseconds per call of the fastest run.
fn measure(name: &str, mut work: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        best = best.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    println!("{name:<44} {best:7.1} ns");
}

/// Weights of a collation without a host: the bytes, upper case.
struct UpperCase;

impl Weigher for UpperCase {
    fn weights(&self, _part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        out.extend(src.iter().map(u8::to_ascii_uppercase));
    }
}

fn part(column: u16, length: u32, nullable: bool, encoding: KeyEncoding) -> KeyPart {
    KeyPart {
        column,
        length,
        prefix: false,
        nullable,
        descending: false,
        encoding,
    }
}

fn rows(codec: &RowCodec, record: HostRecord<'_>) -> Result<()> {
    let mut payload = Vec::new();
    codec.encode(record, &[], &mut payload)?;
    println!("payload of {} bytes", payload.len());
    let mut out = Vec::with_capacity(4096);
    measure("plan and encode 12 columns", || {
        out.clear();
        let plan = codec
            .plan(black_box(record), Limits::default())
            .expect("a whole record");
        assert!(plan.is_empty());
        codec
            .encode(black_box(record), &[], &mut out)
            .expect("a whole record");
    });
    let mut back = record.bytes().to_vec();
    let three = codec.projection([0, 4, 8].into_iter().collect());
    for (name, columns) in [
        ("decode 12 columns", codec.all_columns()),
        ("decode 3 of 12 columns", &three),
    ] {
        measure(name, || {
            codec
                .decode(black_box(&payload), columns, &mut back, &mut NoBlobs)
                .expect("just encoded");
        });
    }
    Ok(())
}

fn keys(name: &str, codec: &RowCodec, record: HostRecord<'_>, parts: Vec<KeyPart>) -> Result<()> {
    let contexts = vec![0; parts.len()];
    let maker = KeyMaker::new(&KeySpec::new(parts, true)?, codec.layout(), &contexts)?;
    let (mut key, mut unpack, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    measure(name, || {
        key.clear();
        maker
            .key_from_record(black_box(record), &UpperCase, &mut key)
            .expect("a whole record");
    });
    maker.unpack_from_record(record, &mut unpack)?;
    let mut back = record.bytes().to_vec();
    let all = codec.all_columns();
    measure("  back into the record", || {
        maker
            .record_from_key(
                (black_box(&key), &unpack),
                maker.part_count(),
                all,
                &mut back,
                &mut NoBlobs,
                &mut scratch,
            )
            .expect("just made");
    });
    measure("  unchanged?", || {
        assert!(
            !maker
                .changed(black_box(record), record, &UpperCase, &mut scratch)
                .expect("whole records")
        );
    });
    Ok(())
}

fn main() -> Result<()> {
    let layout = layout();
    let codec = RowCodec::new(layout.schema(1)?, layout)?;
    let bytes = record();
    // SAFETY: the layout has no blob columns, so the record holds no pointers.
    let record = unsafe { HostRecord::new(&bytes) };
    rows(&codec, record)?;

    let space = WeightScheme::PadSpace {
        weight: [b' ', 0, 0, 0, 0, 0, 0, 0],
        len: 1,
    };
    let text = KeyEncoding::Host {
        collation: 8,
        scheme: space,
    };
    let two = vec![
        part(1, 4, false, KeyEncoding::Int),
        part(3, 8, true, KeyEncoding::F64),
    ];
    keys(
        "key of an 8-byte number",
        &codec,
        record,
        vec![part(0, 8, false, KeyEncoding::Int)],
    )?;
    keys("key of two numbers", &codec, record, two)?;
    keys(
        "key of binary text, 18 bytes",
        &codec,
        record,
        vec![part(4, 60, true, KeyEncoding::VarBinary)],
    )?;
    keys(
        "key of padded text, 18 bytes, with collation",
        &codec,
        record,
        vec![part(4, 60, true, text)],
    )
}
