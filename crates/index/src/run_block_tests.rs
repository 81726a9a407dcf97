//! Tests of the codec of run blocks: golden bytes, round trips, damage.

use std::fmt::Write;

use pbxt_base::RowId;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::entry::Sign;
use crate::run_encode::{BlockWriter, Item};

/// Key, row, LSN, sign, transaction, unpack information.
type Entry = (Vec<u8>, u64, u64, Sign, u64, Vec<u8>);

fn encode(entries: &[Entry], level: Option<i32>) -> Vec<u8> {
    encode_with_suffix(entries, level, 0)
}

fn encode_with_suffix(entries: &[Entry], level: Option<i32>, suffix_bytes: usize) -> Vec<u8> {
    let mut writer = BlockWriter::default();
    writer.suffix_bytes = suffix_bytes;
    for (key, row, lsn, sign, txn, unpack) in entries {
        writer.push(&Item {
            key,
            row: RowId::new(*row),
            lsn: Lsn::new(*lsn),
            sign: *sign,
            txn: TxnId::new(*txn),
            unpack,
        });
    }
    let mut out = Vec::new();
    writer.encode(level, &mut out);
    assert_eq!(writer.len(), 0, "the writer is ready for the next block");
    out
}

fn entries_of(block: &RunBlock) -> Vec<Entry> {
    let mut room = EntryRoom::default();
    let entry = |index| {
        let entry: EntryView<'_> = block.entry(index, &mut room);
        (
            entry.key().to_vec(),
            entry.row().raw(),
            entry.lsn().raw(),
            entry.sign(),
            entry.txn().raw(),
            entry.unpack().to_vec(),
        )
    };
    (0..block.len()).map(entry).collect()
}

fn settled(key: &[u8], row: u64) -> Entry {
    (key.to_vec(), row, 0, Sign::Entry, 0, Vec::new())
}

/// The lowest `len` bytes of a number, as keys have them.
fn be(number: u64, len: usize) -> Vec<u8> {
    (0..len).rev().map(|byte| (number >> (8 * byte)) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn golden_run_block_with_keys_as_numbers() {
    let entries: Vec<Entry> = (5_u64..205)
        .map(|id| settled(&be(0x8000_0000 + id, 4), id + 100))
        .collect();
    let bytes = encode(&entries, None);
    // Keys are numbers; row ids are steps; 200 entries; first key of 4 bytes; all steps 1 - 1; first row id 105; all
    // steps zigzag(1).
    assert_eq!(hex(&bytes), "2001c80104800000050000690002");
    let back = RunBlock::decode(&bytes, None).expect("golden bytes");
    assert_eq!(entries_of(&back), entries);
}

/// Values of 11 letters of both cases; keys are their upper case, in one piece or with a verdict after 8 bytes.
fn values_under_weights(has_verdicts: bool) -> Vec<Entry> {
    let entry = |number: u64| {
        let letter = |at: u64| {
            let letter = b'A' + ((number * 31 + at * at * 17 + number * at) % 26) as u8;
            letter + if (number * 7 + at * 3) % 5 < 2 { 32 } else { 0 }
        };
        let value: Vec<u8> = (0..11).map(letter).collect();
        let mut key = value.to_ascii_uppercase();
        if has_verdicts {
            key.insert(8, 3);
            key.extend([32, 32, 32, 32, 32, 2]);
        }
        key.push(number as u8);
        (key, 1 + number, 0, Sign::Entry, 0, [vec![11], value].concat())
    };
    let mut entries: Vec<Entry> = (0..200).map(entry).collect();
    entries.sort();
    entries
}

#[test]
#[cfg_attr(miri, ignore = "the compressor is C, which the interpreter does not call")]
fn unpack_information_that_is_the_key_but_for_its_case_takes_next_to_nothing() {
    for has_verdicts in [false, true] {
        let entries = values_under_weights(has_verdicts);
        let bytes = encode(&entries, Some(1));
        let back = RunBlock::decode(&bytes, None).expect("what was encoded");
        assert_eq!(entries_of(&back), entries);
        let bare: Vec<Entry> = entries
            .iter()
            .map(|(key, row, lsn, sign, txn, _)| (key.clone(), *row, *lsn, *sign, *txn, Vec::new()))
            .collect();
        let extra = bytes.len() - encode(&bare, Some(1)).len();
        assert!(
            extra < 200 * 4,
            "{extra} bytes for the case of 200 values of 11 letters"
        );
    }
}

#[test]
fn golden_run_block_with_every_column() {
    let entries: Vec<Entry> = vec![
        (b"abba".to_vec(), 3, 64, Sign::Anti, 9, Vec::new()),
        (b"abba".to_vec(), 7, 128, Sign::Entry, 9, vec![1]),
        (b"abc".to_vec(), 2, 72, Sign::Entry, 10, vec![2, 3]),
    ];
    let bytes = encode(&entries, None);
    let expected = [
        "1f00",   // LSN, transaction, sign, unpack, repeats; row ids plain
        "0302",   // 3 entries, 2 keys
        "020100", // one more of the first
        "020403",
        "0002",
        "0500",
        "61626261",
        "63", // lengths 4 and 3, 2 shared, 5 bytes of text, not compressed
        "03",
        "0002",       // first row id 3, then 2
        "0004",       // 7 is 4 behind 3
        "0240800148", // LSNs
        "01010904",   // transactions: one frame, width 1 from 9 on, bits 0 0 1
        "01010006",   // signs: bits 0 1 1
        "01020024",
        "0003",
        "00",
        "010203", // unpack lengths, two bits each, and bytes as text
    ];
    assert_eq!(hex(&bytes), expected.concat());
    let back = RunBlock::decode(&bytes, None).expect("golden bytes");
    assert_eq!(entries_of(&back), entries);
}

#[test]
fn golden_run_block_with_suffixes() {
    let entry = |head: &[u8], id: u64, row| settled(&[head, &be(0x8000_0000 + id, 4)].concat(), row);
    let entries = vec![entry(b"ab", 5, 5), entry(b"ab", 7, 7), entry(b"b", 6, 6)];
    let bytes = encode_with_suffix(&entries, None, 4);
    let expected = [
        "5000",         // suffixes, repeats; row ids plain
        "0302",         // 3 entries, 2 keys but for their suffixes
        "020100",       // one more of the first
        "020201",       // lengths 2 and 1
        "0000",         // nothing shared
        "0300616262",   // 3 bytes of text, not compressed
        "050006",       // first row id 5, then 6
        "0002",         // 7 is 2 behind 5
        "048080808010", // suffixes of 4 bytes, row ids rise; the first suffix is 2^31 above its row id
        "0000",         // the first suffix of the other key is as far above
        "000000",       // so is the suffix that begins no key: off row ids, all 0
    ];
    assert_eq!(hex(&bytes), expected.concat());
    let back = RunBlock::decode(&bytes, None).expect("golden bytes");
    assert_eq!(entries_of(&back), entries);
}

#[test]
fn golden_run_block_with_suffixes_against_the_order_of_row_ids() {
    let entries = vec![settled(b"k\x01", 9), settled(b"k\x02", 3)];
    let bytes = encode_with_suffix(&entries, None, 1);
    let expected = [
        "700002",   // suffixes, repeats, keys as numbers; row ids plain; 2 entries
        "010001",   // 1 key, 1 more
        "016b02",   // the key, and no steps
        "0902000b", // row id 9, no others, then 3: zigzag(-6)
        "110f",     // suffixes of 1 byte, row ids fall; zigzag(1 - 9)
        "02",       // no other key
        "00000e",   // off row ids: zigzag((2 - 3) - (1 - 9))
    ];
    assert_eq!(hex(&bytes), expected.concat());
    let back = RunBlock::decode(&bytes, None).expect("golden bytes");
    assert_eq!(entries_of(&back), entries);
}

#[test]
#[cfg_attr(miri, ignore = "the compressor is C, which the interpreter does not call")]
fn a_primary_key_that_rises_with_row_ids_takes_next_to_nothing() {
    // 40 names, 20 rows each at random; primary keys without gaps, and with one of ten missing.
    for step in [1_u64, 10] {
        let row = |name: u64, at: u64| 1 + at * 50_000 + (name * 7919 + at * 31) % 50_000;
        let id = |row: u64| 0x8000_0000 + if step == 1 { row } else { row + row / 10 };
        let mut entries: Vec<Entry> = (0..800)
            .map(|number| (format!("name{:05}", number / 20), row(number / 20, number % 20)))
            .map(|(name, row)| settled(&[name.as_bytes(), &be(id(row), 4)].concat(), row))
            .collect();
        entries.sort();
        let bare: Vec<Entry> = entries
            .iter()
            .map(|entry| settled(&entry.0[..9], entry.1))
            .collect();
        let bytes = encode_with_suffix(&entries, Some(1), 4);
        assert_eq!(
            entries_of(&RunBlock::decode(&bytes, None).expect("just encoded")),
            entries
        );
        let extra = bytes.len() - encode(&bare, Some(1)).len();
        let most = if step == 1 { 20 } else { 800 * 2 };
        assert!(
            extra <= most,
            "{extra} bytes for 800 primary keys, one of {step} missing"
        );
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(prop_oneof![Just(0_u8), Just(1), Just(255)], 0..5),
        2 => (0_u64..3000).prop_map(|id| be(0x8000_0000 + id, 4)),
        1 => (any::<u8>(), 0_u64..5000).prop_map(|(day, id)| [&[day][..], &be(id << 3, 8)].concat()),
        1 => "[A-Z0-9_]{11}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 200..260),
    ]
}

fn row() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1_u64..9, 1 => 1_u64..1 << 48]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let stamp = prop_oneof![Just((0_u64, 0_u64)), (1_u64..9, 1_u64..1 << 40)];
    let sign = prop_oneof![3 => Just(Sign::Entry), 1 => Just(Sign::Anti)];
    let one = (key(), row(), stamp, sign, vec(any::<u8>(), 0..4))
        .prop_map(|(key, row, (txn, lsn), sign, unpack)| (key, row, lsn, sign, txn, unpack));
    let size = if cfg!(miri) { 1..12 } else { 1..400 };
    (vec(one, size), 0_u8..4).prop_map(|(mut entries, plain)| {
        // Blocks with only one kind of thing take other ways through the encoder.
        for entry in &mut entries {
            if plain & 1 != 0 {
                (entry.2, entry.3, entry.4) = (0, Sign::Entry, 0);
            }
            if plain & 2 != 0 {
                entry.5.clear();
            }
        }
        entries.sort_unstable();
        entries.dedup_by(|a, b| (&a.0, a.1, a.2, a.3) == (&b.0, b.1, b.2, b.3));
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn run_blocks_come_back(entries in entries(), compress: bool) {
        let bytes = encode(&entries, (compress && !cfg!(miri)).then_some(1));
        let block = RunBlock::decode(&bytes, None).expect("just encoded");
        prop_assert_eq!(entries_of(&block), entries);
    }

    #[test]
    fn blocks_with_suffixes_come_back(mut entries in entries(), suffix in 1_usize..=8, compress: bool) {
        for entry in &mut entries {
            // Primary keys that are the row ids, follow them, have nothing to do with them, or are zero.
            let id = [entry.1, entry.1 * 3 + 7, entry.1.wrapping_mul(0x9E37_79B9_7F4A_7C15), 0][suffix % 4];
            entry.0.extend(be(id, suffix));
        }
        entries.sort();
        let bytes = encode_with_suffix(&entries, (compress && !cfg!(miri)).then_some(1), suffix);
        let block = RunBlock::decode(&bytes, None).expect("just encoded");
        prop_assert_eq!(entries_of(&block), entries);
    }

    #[test]
    fn a_tagged_block_gives_every_entry_the_tag(entries in entries()) {
        let bare: Vec<Entry> = entries.into_iter().map(|entry| settled(&entry.0, entry.1)).collect();
        let tag = (TxnId::new(77), Lsn::new(4096));
        let block = RunBlock::decode(&encode(&bare, None), Some(tag)).expect("just encoded");
        let mut room = EntryRoom::default();
        for (index, bare) in bare.iter().enumerate() {
            let entry = block.entry(index, &mut room);
            prop_assert_eq!((entry.txn(), entry.lsn()), tag);
            prop_assert_eq!((entry.key(), entry.row().raw()), (bare.0.as_slice(), bare.1));
        }
    }

    #[test]
    fn a_cut_in_a_block_is_where_a_linear_search_finds_it(entries in entries(), probe in key(), row in row()) {
        let block = RunBlock::decode(&encode(&entries, None), None).expect("just encoded");
        let mut room = EntryRoom::default();
        for (index, entry) in entries.iter().enumerate() {
            prop_assert_eq!(block.has_key(index, &probe), entry.0 == probe);
            prop_assert!(block.has_key(index, &entry.0));
        }
        let cuts = [
            SeekPos::lower_bound(&probe),
            SeekPos::upper_bound(&probe),
            SeekPos::before(&probe, RowId::new(row), Lsn::new(5), Sign::Entry),
            SeekPos::after(&probe, RowId::new(row), Lsn::new(5), Sign::Entry),
            SeekPos::START,
            SeekPos::END,
        ];
        for cut in cuts {
            let is_left = |&index: &usize| cut.is_right_of(block.entry(index, &mut room));
            let linear = (0..block.len()).filter(is_left).count();
            prop_assert_eq!(block.partition_point(&cut), linear);
            let inside = (0 < linear && linear < block.len()).then_some(linear);
            prop_assert_eq!(block.cut_inside(&cut), inside);
            for index in 0..block.len() {
                prop_assert_eq!(block.lies_left(index, &cut), index < linear);
            }
        }
    }

    #[test]
    fn damaged_blocks_are_errors_or_blocks(
        entries in entries(),
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
        with_suffixes: bool,
    ) {
        let suffix = if with_suffixes { entries.iter().map(|entry| entry.0.len()).min().unwrap_or(0).min(8) } else { 0 };
        let mut bytes = encode_with_suffix(&entries, None, suffix);
        let cut = cut.index(bytes.len());
        prop_assert!(RunBlock::decode(&bytes[..cut], None).is_err(), "a block that ends early is damaged");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(block) = RunBlock::decode(&bytes, None) {
            prop_assert!(entries_of(&block).len() == block.len());
        }
    }
}

/// Every cut at a key, at each of its beginnings and just beside it, against a linear search.
fn compare_cuts(entries: &[Entry]) {
    let block = RunBlock::decode(&encode(entries, None), None).expect("just encoded");
    assert!(matches!(block.form, Form::Packed(_)), "X38");
    let mut probes: Vec<Vec<u8>> = Vec::new();
    for (key, ..) in entries {
        probes.extend((0..=key.len()).map(|len| key[..len].to_vec()));
        for byte in [0, 255] {
            probes.push([key.as_slice(), &[byte]].concat());
            probes.push([&key[..key.len().saturating_sub(1)], &[byte]].concat());
        }
    }
    probes.sort_unstable();
    probes.dedup();
    for probe in &probes {
        let row = entries[entries.len() / 2].1;
        for cut in [
            SeekPos::lower_bound(probe),
            SeekPos::upper_bound(probe),
            SeekPos::before(probe, RowId::new(row), Lsn::new(0), Sign::Entry),
            SeekPos::after(probe, RowId::new(row), Lsn::new(0), Sign::Entry),
        ] {
            let mut room = EntryRoom::default();
            let is_left = |&index: &usize| cut.is_right_of(block.entry(index, &mut room));
            let linear = (0..block.len()).filter(is_left).count();
            assert_eq!(block.partition_point(&cut), linear, "{cut:?}");
            let inside = (0 < linear && linear < block.len()).then_some(linear);
            assert_eq!(block.cut_inside(&cut), inside, "{cut:?}");
        }
    }
}

#[test]
fn cuts_in_a_block_of_keys_of_one_length_are_where_a_linear_search_finds_them() {
    for len in 0..=11_usize {
        let greatest = u64::MAX.checked_shr(64 - 8 * len.min(8) as u32).unwrap_or(0);
        let near = if cfg!(miri) { 3_u64 } else { 40 };
        let numbers =
            (0..near).flat_map(|step| [step, step << 8, greatest.wrapping_sub(step), greatest / 2 + step]);
        // Unpack information of all ones stands behind the key, where a word must not see it.
        let entry = |number: u64| {
            let key = [
                be(number & greatest, len.min(8)),
                vec![number as u8; len.saturating_sub(8)],
            ]
            .concat();
            (key, number & 0xffff, 0, Sign::Entry, 0, vec![255, 255])
        };
        let mut entries: Vec<Entry> = numbers.map(entry).collect();
        entries.sort_unstable();
        entries.dedup();
        compare_cuts(&entries);
        // The same behind a prefix, and all keys alike.
        for entry in &mut entries {
            entry.0.splice(0..0, *b"prefix of all");
        }
        compare_cuts(&entries);
        compare_cuts(&[1, 2, 3].map(|row| settled(&vec![255; len], row)));
    }
}

#[test]
fn a_block_with_short_keys_between_long_ones_is_an_error() {
    // Ten entries; keys of 100, 0 (eight times) and 100 bytes that share nothing with the one before.
    let mut bytes = vec![0, 0, 10, 2, 100, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 200, 1, 0];
    bytes.extend([b'a'; 200]);
    bytes.extend([1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(RunBlock::decode(&bytes, None).is_err(), "X30");
}

/// A block of three entries that is packed, and one that is wide.
fn blocks_of_three() -> [RunBlock; 2] {
    [0, 9].map(|txn| {
        let entries: Vec<Entry> = (1..4)
            .map(|row| (b"k".to_vec(), row, txn, Sign::Entry, txn, Vec::new()))
            .collect();
        let block = RunBlock::decode(&encode(&entries, None), None).expect("just encoded");
        assert_eq!(matches!(block.form, Form::Packed(_)), txn == 0, "X38");
        block
    })
}

#[test]
fn dead_entries_are_counted_once() {
    for block in blocks_of_three() {
        let mut room = EntryRoom::default();
        for index in [0, 2, 2, 0] {
            block.mark_dead(index);
            assert!(block.is_dead(index) && block.entry(index, &mut room).is_dead() && !block.is_all_dead());
        }
        assert!(!block.is_dead(1) && !block.entry(1, &mut room).is_dead());
        block.mark_dead(1);
        assert!(block.is_all_dead());
    }
}

/// Bytes of memory an entry.
fn bytes_an_entry(entries: &[Entry]) -> usize {
    let block = RunBlock::decode(&encode(entries, None), None).expect("just encoded");
    assert_eq!(entries_of(&block), entries);
    block.memory_bytes() / block.len()
}

#[test]
fn a_packed_block_takes_little_memory() {
    // Counted primary keys, rows in their order and elsewhere.
    let counted = |row: fn(u64) -> u64| -> Vec<Entry> {
        (0..800)
            .map(|id| settled(&be(0x8000_0000 + id, 4), row(id)))
            .collect()
    };
    assert_eq!(bytes_an_entry(&counted(|id| id + 7)), 2);
    assert_eq!(bytes_an_entry(&counted(|id| 1 + (id * 7919) % 4_000_000)), 6);
    assert_eq!(bytes_an_entry(&counted(|id| 1 + (id << 37))), 10);
    // Names of 8 to 12 letters: 12 bytes to find one, 4 of the row id.
    let mut names: Vec<Entry> = (0..800)
        .map(|id: u64| {
            settled(
                format!("{:x<1$}", id * 7919 % 100_000_000, 8 + id as usize % 5).as_bytes(),
                id * 31,
            )
        })
        .collect();
    names.sort();
    assert!(bytes_an_entry(&names) <= 27, "{}", bytes_an_entry(&names));
}
