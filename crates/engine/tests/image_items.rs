//! An image whose items say what cannot be, under checksums that are right, is refused by file and item; nothing panics, nothing is believed.
//!
//! Rule: D36.

use pbxt_base::codec::put_varint;
use pbxt_sim::exhibit::{Answer, Cover, End, Exhibit, ask, open, refusal};
use pbxt_sim::image_edit::{Item, block_of, image_of, starts, with_blocks, with_items};
use std::sync::OnceLock;

mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const TXNS: u8 = 2;
    pub(crate) const PREPARED: u8 = 3;
    pub(crate) const TABLE: u8 = 4;
    pub(crate) const WORDS: u8 = 5;
    pub(crate) const GONE: u8 = 6;
    pub(crate) const ROW_RUN: u8 = 7;
    pub(crate) const INDEX: u8 = 8;
    pub(crate) const INDEX_RUN: u8 = 9;
    pub(crate) const END: u8 = 10;
    pub(crate) const SAMPLE: u8 = 11;
}

const ROW_MAX: u64 = (1 << 48) - 1;

fn exhibit() -> &'static Exhibit {
    static EXHIBIT: OnceLock<Exhibit> = OnceLock::new();
    EXHIBIT.get_or_init(|| Exhibit::new(End::Closed, Cover::Plain))
}

fn items() -> Vec<Item> {
    image_of(&exhibit().disk)
}

fn item(kind: u8, fields: impl Into<Vec<u8>>) -> Item {
    Item {
        kind,
        fields: fields.into(),
    }
}

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        put_varint(&mut bytes, *number);
    }
    bytes
}

/// Number of the first item of a kind.
fn place(items: &[Item], kind: u8) -> usize {
    let found = items.iter().position(|item| item.kind == kind);
    found.unwrap_or_else(|| panic!("the exhibit's image has an item of kind {kind}"))
}

/// The END item counts again.
fn count(items: &mut [Item]) {
    let before = items.len() as u64 - 1;
    let end = items.last_mut().expect("an image has an end");
    end.fields = before.to_le_bytes().to_vec();
}

fn refused_blocks(what: &str, blocks: &[Vec<u8>], expected: &str) {
    match open(&with_blocks(&exhibit().disk, blocks)) {
        Ok(_) => panic!("D36: {what}: accepted"),
        Err(error) => match refusal("open", &error) {
            Answer::Detected(text) => {
                assert!(
                    text.contains("meta-") && text.contains(expected),
                    "{what}: {text}"
                );
            }
            other => panic!("{what}: {other:?}"),
        },
    }
}

/// Changes the items, counts them again, and is refused.
fn refused(what: &str, expected: &str, change: impl FnOnce(&mut Vec<Item>)) {
    let mut items = items();
    change(&mut items);
    count(&mut items);
    refused_blocks(what, &[block_of(&items)], expected);
}

/// Writes a number at a place from the end of the fields of the first item of a kind.
fn put(kind: u8, from_end: usize, number: u64) -> impl FnOnce(&mut Vec<Item>) {
    move |items| {
        let at = place(items, kind);
        let fields = &mut items[at].fields;
        let at = fields.len() - from_end;
        fields[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
}

/// Puts a copy of the first item of a kind behind it.
fn twice(kind: u8) -> impl FnOnce(&mut Vec<Item>) {
    move |items| {
        let at = place(items, kind);
        let copy = items[at].clone();
        items.insert(at, copy);
    }
}

fn without(kind: u8) -> impl FnOnce(&mut Vec<Item>) {
    move |items| {
        items.remove(place(items, kind));
    }
}

fn instead(new: Item) -> impl FnOnce(&mut Vec<Item>) {
    move |items| {
        let at = place(items, new.kind);
        items[at] = new;
    }
}

#[test]
fn what_was_written_again_as_it_was_is_read() {
    let disk = with_items(&exhibit().disk, &items());
    let db = open(&disk).expect("nothing was changed");
    for answer in ask(&db, &exhibit().tables) {
        assert!(matches!(answer, Answer::Right), "{answer:?}");
    }
}

#[test]
fn items_in_a_wrong_place_or_twice_are_refused() {
    refused(
        "no head",
        "the head of an image at byte 0 of item 1, transactions",
        without(kind::HEAD),
    );
    refused("two heads", "a table before its parts", twice(kind::HEAD));
    refused("a vote twice", "that no other has", twice(kind::PREPARED));
    refused(
        "transactions twice",
        "the end of the transaction table image",
        twice(kind::TXNS),
    );
    refused(
        "no transactions",
        "more bytes of the transaction table image",
        without(kind::TXNS),
    );
    refused("a table twice", "no other has", |items| {
        let at = place(items, kind::TABLE);
        let copy = items[at].clone();
        items.insert(items.len() - 1, copy);
    });
    refused("an index twice", "that was not read yet", |items| {
        let (at, last) = (place(items, kind::INDEX), place(items, kind::END));
        let copy = items[at].clone();
        let next = items[at..last].iter().position(|item| item.kind == kind::TABLE);
        items.insert(next.map_or(last, |next| at + next), copy);
    });
    refused(
        "an unknown index",
        "that was not read yet",
        instead(item(kind::INDEX, [0xff; 4])),
    );
    refused("a run without an index", "an index before its runs", |items| {
        let run = items.remove(place(items, kind::INDEX_RUN));
        items.insert(place(items, kind::INDEX), run);
    });
    refused(
        "a sample without an index",
        "one sample behind an index",
        |items| {
            items.insert(place(items, kind::INDEX), item(kind::SAMPLE, [0; 27]));
        },
    );
    refused("an index without its item", "before this item", |items| {
        let at = place(items, kind::INDEX);
        let is_other = |item: &Item| matches!(item.kind, kind::INDEX | kind::TABLE | kind::END);
        let next = items[at + 1..].iter().position(is_other).expect("an end");
        items.drain(at..=at + next);
    });
    refused(
        "a run of rows twice",
        "a piece that no other run has",
        twice(kind::ROW_RUN),
    );
    refused(
        "a run of entries twice",
        "a piece that no other run has",
        twice(kind::INDEX_RUN),
    );
    refused("a part of a table first", "a table before its parts", |items| {
        items.insert(place(items, kind::TABLE), item(kind::GONE, []));
    });
    refused("a vote behind tables", "a table or a part of one", |items| {
        let vote = items.remove(place(items, kind::PREPARED));
        items.insert(items.len() - 1, vote);
    });
}

#[test]
fn items_longer_or_shorter_than_their_fields_are_refused() {
    for kind in kind::HEAD..=kind::INDEX_RUN {
        refused("a byte more", "meta-", |items| {
            let at = place(items, kind);
            items[at].fields.push(0);
        });
        refused("a byte less", "meta-", |items| {
            let at = place(items, kind);
            items[at].fields.pop();
        });
    }
    let mut longer = items();
    let last = longer.len() - 1;
    longer[last].fields.push(0);
    refused_blocks("a longer end", &[block_of(&longer)], "item");
    let mut shorter = items();
    shorter[last].fields.pop();
    refused_blocks("a shorter end", &[block_of(&shorter)], "item");
    let mut more = items();
    more.push(item(kind::INDEX, [1, 0, 0, 0]));
    refused_blocks(
        "an item behind the end",
        &[block_of(&more)],
        "more behind the item that ends it",
    );
    let whole = block_of(&items());
    refused_blocks(
        "a block behind the end",
        &[whole.clone(), vec![0; 9]],
        "more behind the item that ends it",
    );
    refused_blocks("half a head of an item", &[vec![1, 0, 0]], "of item 1");
    refused_blocks("no bytes at all", &[], "none behind item 0");
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let (start, log_start) = starts(&exhibit().disk);
    // Of a head: format, two LSNs, two ids.
    for (at, right) in [(4, start), (12, log_start)] {
        refused("another LSN", "an image of LSN", |items| {
            items[0].fields[at..at + 8].copy_from_slice(&(right.raw() + 8).to_le_bytes());
        });
    }
    for at in [20, 24] {
        refused("less ids", "of a number from 1 to 0", |items| {
            items[0].fields[at..at + 4].fill(0);
        });
    }
    // Of a table, from the end: change, bytes, greatest row, rows.
    refused(
        "rows without end",
        "rows, the greatest row id",
        put(kind::TABLE, 32, u64::MAX >> 1),
    );
    refused(
        "a greatest row",
        "a greatest row id up to",
        put(kind::TABLE, 24, ROW_MAX + 1),
    );
    refused(
        "a greatest row",
        "rows, the greatest row id",
        put(kind::TABLE, 24, 0),
    );
    // Of transactions: format, next, last commit.
    for at in [8, 16] {
        refused(
            "numbers without end",
            "numbers of transactions and commits",
            |items| {
                let txns = place(items, kind::TXNS);
                items[txns].fields[at..at + 8].fill(0xff);
            },
        );
    }
}

#[test]
fn words_and_rows_that_cannot_be_are_refused() {
    let (_, log_start) = starts(&exhibit().disk);
    let good = (log_start.raw() / 8) << 2;
    let words = |first: u64, count: u64, more: &[u64]| {
        let numbers = [&[first, count, 1], more].concat();
        instead(item(kind::WORDS, varints(&numbers)))
    };
    refused("rows beyond all numbers", "words", words(u64::MAX, 2, &[good, 0]));
    refused(
        "a row beyond the greatest",
        "words",
        words(ROW_MAX + 1, 1, &[good]),
    );
    refused("row 0", "words", words(0, 1, &[good]));
    refused("more words than bytes", "more bytes", words(1, u64::MAX, &[good]));
    refused(
        "an address beyond the log",
        "a record of the log",
        words(1, 1, &[(1 << 58) | 2]),
    );
    refused("a table that got no words", "a table before its parts", |items| {
        let words = items.remove(place(items, kind::WORDS));
        items.insert(place(items, kind::TABLE), words);
    });
    let mut set = 1_u64.to_le_bytes().to_vec();
    set.extend(0_u32.to_le_bytes());
    // All rows of a container as one run: cookie, which are runs, key and count, runs, from and length.
    let mut runs = set.clone();
    runs.extend([0x3b, 0x30, 0, 0, 1, 0, 0, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff]);
    refused(
        "runs of deleted rows",
        "runs: true",
        instead(item(kind::GONE, runs)),
    );
    // A container with one row, 0.
    set.extend([0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0]);
    refused("row 0 is deleted", "to be sound", instead(item(kind::GONE, set)));
}

#[test]
fn runs_that_are_not_of_their_owner_are_refused() {
    let run = |kind: u8, numbers: &[u64], pieces: &[(u32, u32)]| {
        let mut fields = varints(numbers);
        for (file, section) in pieces {
            fields.extend(file.to_le_bytes());
            fields.extend(section.to_le_bytes());
        }
        instead(item(kind, fields))
    };
    refused(
        "more pieces than bytes",
        "more bytes",
        run(kind::ROW_RUN, &[0, 0, u64::MAX], &[]),
    );
    refused(
        "a stamp beyond the log",
        "a run of a transaction",
        run(kind::ROW_RUN, &[1, u64::MAX, 0], &[]),
    );
    refused(
        "a stamp of no transaction",
        "a run of a transaction",
        run(kind::INDEX_RUN, &[u64::MAX, 0, 0], &[]),
    );
    refused(
        "rows of another table",
        "the next piece of a run of rows",
        |items| {
            let tables: Vec<usize> = (0..items.len())
                .filter(|at| items[*at].kind == kind::TABLE)
                .collect();
            let run = items.remove(place(items, kind::ROW_RUN));
            let last = *tables.last().expect("two tables");
            // The tables come by name; the run was before the second one.
            items.insert(last, run);
        },
    );
    refused("entries of another index", "piece of a run of index", |items| {
        let run = items.remove(place(items, kind::INDEX_RUN));
        let indexes: Vec<usize> = (0..items.len())
            .filter(|at| items[*at].kind == kind::INDEX)
            .collect();
        items.insert(indexes[1] + 1, run);
    });
}

#[test]
fn votes_that_cannot_be_are_refused() {
    let vote = |numbers: &[u64], xid: &[u8], rest: &[u8]| {
        let mut fields = varints(&numbers[..1]);
        fields.extend(varints(&[xid.len() as u64]));
        fields.extend(xid);
        fields.extend(varints(&numbers[1..]));
        fields.extend(rest);
        instead(item(kind::PREPARED, fields))
    };
    refused("who has not voted", "as prepared", vote(&[1, 0, 0, 0], b"x", &[]));
    refused(
        "rows without end",
        "rows written",
        vote(&[1, u64::MAX, 0, 0], b"x", &[]),
    );
    refused(
        "more deltas than bytes",
        "more bytes",
        vote(&[1, 0, u64::MAX], b"x", &[]),
    );
    let delta = [
        &1_u32.to_le_bytes()[..],
        &u64::MAX.wrapping_shr(1).to_le_bytes(),
        &[0],
    ]
    .concat();
    refused(
        "rows without end",
        "that it can have",
        vote(&[1, 0, 1], b"x", &delta),
    );
    let void = [16_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat();
    refused("an empty range", "a void range", vote(&[1, 0, 0, 1], b"x", &void));
    refused(
        "a long id",
        "that no other has",
        vote(&[1, 0, 0, 0], &[b'x'; 256], &[]),
    );
}

#[test]
fn dead_values_that_cannot_be_are_refused() {
    let values = |numbers: &[u64]| {
        let accounts = varints(numbers);
        move |items: &mut Vec<Item>| {
            let head = &mut items[0].fields;
            head.truncate(28);
            head.extend(varints(&[accounts.len() as u64]));
            head.extend(accounts);
        }
    };
    refused("more segments than bytes", "more bytes", values(&[u64::MAX]));
    refused("more ranges than bytes", "more bytes", values(&[1, 1, u64::MAX]));
    refused(
        "a range without end",
        "inside a blob segment",
        values(&[1, 1, 1, u64::MAX, 1]),
    );
    refused(
        "a range without end",
        "inside a blob segment",
        values(&[1, 1, 1, 4096, u64::MAX]),
    );
    refused(
        "a segment of no number",
        "a blob segment behind 0",
        values(&[1, 1 << 33, 0]),
    );
    refused(
        "a segment twice",
        "a blob segment behind 1",
        values(&[2, 1, 0, 1, 0]),
    );
    refused(
        "ranges that touch",
        "that do not touch",
        values(&[1, 1, 2, 4096, 8, 0, 8]),
    );
    refused("more behind the last", "the end", values(&[0, 0]));
}
