//! Tests of the judge: histories written by hand, one for each thing that is forbidden, and their harmless neighbours.

use crate::history::{
    Content, How, Kind, Level, Moment, Predicate, Read, Record, RowKey, TxnNo, VersionNo, judge,
};
use pbxt::{ConflictMode, Isolation};

const X: RowKey = (0, 1);
const Y: RowKey = (0, 2);

const COMMITTED: Level = level(Isolation::ReadCommitted, ConflictMode::Error);
const REPEATABLE: Level = level(Isolation::RepeatableRead, ConflictMode::Error);
const WAITING: Level = level(Isolation::RepeatableRead, ConflictMode::Wait);
const SERIALIZABLE: Level = level(Isolation::Serializable, ConflictMode::Error);

const fn level(isolation: Isolation, conflict: ConflictMode) -> Level {
    Level { isolation, conflict }
}

/// A history under way. Rows have id and group; the id is that of the row, predicates ask for the group.
struct Hand {
    record: Record,
    level: Level,
    x: VersionNo,
    y: VersionNo,
}

fn group(row: RowKey, value: u32) -> Content {
    Content {
        values: [Some(row.1 as u32), Some(value), None, Some(0)],
    }
}

fn in_group(value: u32) -> Predicate {
    Predicate {
        table: 0,
        column: 1,
        low: value,
        high: value,
    }
}

impl Hand {
    /// Transaction 0 has made rows X and Y, both of group 1.
    fn new(level: Level) -> Self {
        let mut record = Record::default();
        let txn = record.begin(level);
        let x = record.write(txn, X, Some(group(X, 1)));
        let y = record.write(txn, Y, Some(group(Y, 1)));
        record.commit(txn);
        Self { record, level, x, y }
    }

    fn begin(&mut self) -> TxnNo {
        self.record.begin(self.level)
    }

    fn write(&mut self, txn: TxnNo, row: RowKey) -> VersionNo {
        self.record.write(txn, row, Some(group(row, 1)))
    }

    fn commit(&mut self, txn: TxnNo) {
        self.record.commit(txn);
    }

    fn enter(&mut self, txn: TxnNo, predicate: Predicate, how: How, seen: &[VersionNo]) {
        let now = self.record.tick();
        let read = Read {
            predicate,
            how,
            began: now,
            ended: self.record.tick(),
            seen: seen.iter().map(|version| (*version, now)).collect(),
        };
        self.record.read(txn, read);
    }

    /// A look-up of one row, as of a moment.
    fn see_as_of(&mut self, txn: TxnNo, version: VersionNo, as_of: Moment) {
        let how = How {
            as_of: Some(as_of),
            ..How::default()
        };
        self.enter(txn, Predicate::all(0), how, &[version]);
    }

    /// A look-up of one row by the transaction's snapshot, which is taken if there is none.
    fn see(&mut self, txn: TxnNo, version: VersionNo) {
        let as_of = self.record.snapshot(txn);
        self.see_as_of(txn, version, as_of);
    }

    /// A look-up of one row as it is at this moment.
    fn see_now(&mut self, txn: TxnNo, version: VersionNo) {
        let now = self.record.tick();
        self.see_as_of(txn, version, now);
    }

    /// All rows of a group as they are at this moment.
    fn ask_now(&mut self, txn: TxnNo, value: u32, seen: &[VersionNo]) {
        let how = How {
            as_of: Some(self.record.tick()),
            whole: true,
            locks: false,
        };
        self.enter(txn, in_group(value), how, seen);
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = judge(&self.record)
            .into_iter()
            .map(|anomaly| anomaly.kind)
            .collect();
        kinds.dedup();
        kinds
    }

    #[track_caller]
    fn shows(&self, kind: Kind) {
        let kinds = self.kinds();
        assert!(kinds.contains(&kind), "{kinds:?}");
    }

    #[track_caller]
    fn is_clean(&self) {
        let found = judge(&self.record);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn transactions_one_after_the_other_are_clean_on_every_level() {
    for level in Level::ALL {
        let mut hand = Hand::new(level);
        let (mut x, y) = (hand.x, hand.y);
        for _ in 0..3 {
            let txn = hand.begin();
            hand.see(txn, x);
            hand.ask_now(txn, 1, &[x, y]);
            x = hand.write(txn, X);
            hand.see(txn, x);
            hand.commit(txn);
        }
        let undone = hand.begin();
        hand.write(undone, Y);
        hand.record.abort(undone);
        let reader = hand.begin();
        hand.ask_now(reader, 1, &[x, y]);
        hand.commit(reader);
        hand.is_clean();
    }
}

#[test]
fn overwriting_each_other_is_a_dirty_write() {
    let mut hand = Hand::new(COMMITTED);
    let (one, two) = (hand.begin(), hand.begin());
    hand.write(one, X);
    hand.write(two, X);
    hand.write(two, Y);
    hand.write(one, Y);
    hand.commit(one);
    hand.commit(two);
    hand.shows(Kind::DirtyWrite);
    let anomalies = judge(&hand.record);
    let cycle = anomalies.iter().find(|anomaly| !anomaly.cycle.is_empty());
    assert_eq!(cycle.map(|anomaly| anomaly.cycle.len()), Some(2), "{anomalies:?}");
}

#[test]
fn reading_what_was_rolled_back_is_an_aborted_read() {
    let mut hand = Hand::new(COMMITTED);
    let (writer, reader) = (hand.begin(), hand.begin());
    let version = hand.write(writer, X);
    hand.see_now(reader, version);
    hand.commit(reader);
    hand.record.abort(writer);
    hand.shows(Kind::AbortedRead);
}

#[test]
fn reading_what_a_savepoint_took_back_is_an_aborted_read() {
    let mut hand = Hand::new(COMMITTED);
    let (writer, reader) = (hand.begin(), hand.begin());
    let savepoint = hand.record.tick();
    let version = hand.write(writer, X);
    hand.record.roll_back_to(writer, savepoint);
    hand.commit(writer);
    hand.see_now(reader, version);
    hand.commit(reader);
    hand.shows(Kind::AbortedRead);
}

#[test]
fn reading_what_its_writer_replaced_is_an_intermediate_read() {
    let mut hand = Hand::new(COMMITTED);
    let (writer, reader) = (hand.begin(), hand.begin());
    let version = hand.write(writer, X);
    hand.write(writer, X);
    hand.commit(writer);
    hand.see_now(reader, version);
    hand.commit(reader);
    hand.shows(Kind::IntermediateRead);
}

#[test]
fn seeing_each_others_changes_is_circular() {
    let mut hand = Hand::new(COMMITTED);
    let (one, two) = (hand.begin(), hand.begin());
    let x = hand.write(one, X);
    let y = hand.write(two, Y);
    hand.see_now(one, y);
    hand.see_now(two, x);
    hand.commit(one);
    hand.commit(two);
    hand.shows(Kind::CircularFlow);
}

#[test]
fn a_snapshot_does_not_see_later_commits() {
    let mut hand = Hand::new(REPEATABLE);
    let (reader, writer) = (hand.begin(), hand.begin());
    let y = hand.y;
    hand.see(reader, y);
    let version = hand.write(writer, X);
    hand.commit(writer);
    hand.see(reader, version);
    hand.commit(reader);
    hand.shows(Kind::FutureRead);
}

#[test]
fn a_snapshot_sees_every_earlier_commit() {
    let mut hand = Hand::new(REPEATABLE);
    let (writer, reader) = (hand.begin(), hand.begin());
    let old = hand.x;
    let new = hand.write(writer, X);
    hand.commit(writer);
    hand.see(reader, old);
    hand.commit(reader);
    hand.shows(Kind::StaleRead);
    let mut good = Hand::new(REPEATABLE);
    let (writer, early) = (good.begin(), good.begin());
    let old = good.x;
    good.record.snapshot(early);
    let also = good.write(writer, X);
    assert_eq!(also, new);
    good.commit(writer);
    good.see(early, old);
    good.commit(early);
    good.is_clean();
}

#[test]
fn a_read_of_one_half_before_and_one_after_a_commit_is_skewed() {
    // One statement's snapshot under READ COMMITTED; two statements may differ.
    for (is_one_statement, is_clean) in [(true, false), (false, true)] {
        let mut hand = Hand::new(COMMITTED);
        let (reader, writer) = (hand.begin(), hand.begin());
        let x = hand.x;
        let as_of = hand.record.tick();
        hand.see_as_of(reader, x, as_of);
        hand.write(writer, X);
        let y = hand.write(writer, Y);
        hand.commit(writer);
        if is_one_statement {
            hand.see_as_of(reader, y, as_of);
        } else {
            hand.see_now(reader, y);
        }
        hand.commit(reader);
        assert_eq!(hand.kinds().is_empty(), is_clean, "{:?}", hand.kinds());
    }
}

#[test]
fn a_row_that_meets_the_condition_is_not_missed() {
    for level in [COMMITTED, REPEATABLE, SERIALIZABLE] {
        let mut hand = Hand::new(level);
        let (writer, reader) = (hand.begin(), hand.begin());
        let (x, y) = (hand.x, hand.y);
        let new = hand.record.write(writer, (0, 3), Some(group((0, 3), 1)));
        hand.commit(writer);
        hand.ask_now(reader, 1, &[x, y]);
        hand.shows(Kind::StaleRead);
        hand.ask_now(reader, 1, &[x, y, new]);
        assert_eq!(judge(&hand.record).len(), 1, "only the first answer misses it");
    }
}

#[test]
fn a_row_that_left_the_condition_or_is_own_counts_by_its_own_version() {
    let mut hand = Hand::new(REPEATABLE);
    let txn = hand.begin();
    let (x, y) = (hand.x, hand.y);
    hand.record.snapshot(txn);
    let moved = hand.record.write(txn, X, Some(group(X, 2)));
    hand.ask_now(txn, 1, &[y]);
    hand.ask_now(txn, 2, &[moved]);
    hand.is_clean();
    hand.ask_now(txn, 1, &[x, y]);
    hand.shows(Kind::WrongAnswer);
    let mut hand = Hand::new(REPEATABLE);
    let txn = hand.begin();
    hand.record.write(txn, X, Some(group(X, 2)));
    hand.ask_now(txn, 2, &[]);
    hand.shows(Kind::WrongAnswer);
}

#[test]
fn an_answer_has_no_row_twice_and_none_that_was_not_asked_for() {
    let mut hand = Hand::new(COMMITTED);
    let reader = hand.begin();
    let (x, y) = (hand.x, hand.y);
    hand.ask_now(reader, 1, &[x, y, x]);
    hand.shows(Kind::WrongAnswer);
    let mut hand = Hand::new(COMMITTED);
    let reader = hand.begin();
    hand.ask_now(reader, 2, &[y]);
    hand.shows(Kind::WrongAnswer);
}

#[test]
fn two_rows_with_one_unique_key_are_a_wrong_answer() {
    let mut hand = Hand::new(WAITING);
    let (writer, reader) = (hand.begin(), hand.begin());
    let twin = hand.record.write(writer, (0, 3), Some(group(X, 1)));
    hand.commit(writer);
    let (x, y) = (hand.x, hand.y);
    hand.ask_now(reader, 1, &[x, y, twin]);
    hand.shows(Kind::WrongAnswer);
}

#[test]
fn a_key_that_a_row_took_after_the_snapshot_comes_with_a_change_of_that_row() {
    for (takes_itself, is_clean) in [(false, true), (true, false)] {
        let mut hand = Hand::new(WAITING);
        let (mover, taker, txn) = (hand.begin(), hand.begin(), hand.begin());
        let (x, y) = (hand.x, hand.y);
        hand.see(txn, x);
        hand.record.write(mover, X, None);
        hand.commit(mover);
        hand.record
            .write(taker, Y, Some(group(if takes_itself { Y } else { X }, 1)));
        hand.commit(taker);
        let own = hand.record.write(txn, Y, Some(group(X, 2)));
        let as_of = hand.record.snapshot(txn);
        let how = How {
            as_of: Some(as_of),
            ..How::default()
        };
        hand.enter(txn, Predicate::all(0), how, &[x, own]);
        hand.commit(txn);
        assert_eq!(hand.kinds().is_empty(), is_clean, "{:?}", hand.kinds());
        assert_ne!(y, own);
    }
}

#[test]
fn changing_what_changed_since_the_snapshot_loses_an_update() {
    for (level, is_clean) in [(REPEATABLE, false), (WAITING, true)] {
        let mut hand = Hand::new(level);
        let (one, two) = (hand.begin(), hand.begin());
        let x = hand.x;
        hand.see(one, x);
        hand.see(two, x);
        hand.write(one, X);
        hand.commit(one);
        hand.write(two, X);
        hand.commit(two);
        assert_eq!(hand.kinds().is_empty(), is_clean, "{:?}", hand.kinds());
        if !is_clean {
            hand.shows(Kind::LostUpdate);
        }
    }
}

#[test]
fn a_row_that_was_read_with_a_lock_is_not_changed_by_others() {
    let locks = How {
        locks: true,
        ..How::default()
    };
    for (level, ends_first) in [(COMMITTED, false), (WAITING, false), (COMMITTED, true)] {
        let mut hand = Hand::new(level);
        let (reader, writer) = (hand.begin(), hand.begin());
        let x = hand.x;
        hand.enter(reader, Predicate::all(0), locks, &[x]);
        if ends_first {
            hand.commit(reader);
        }
        hand.write(writer, X);
        hand.commit(writer);
        if ends_first {
            hand.is_clean();
        } else {
            hand.commit(reader);
            hand.shows(Kind::LockIgnored);
        }
    }
}

#[test]
fn write_skew_is_forbidden_to_serializable_transactions_only() {
    for (level, is_clean) in [(COMMITTED, true), (REPEATABLE, true), (SERIALIZABLE, false)] {
        let mut hand = Hand::new(level);
        let (one, two) = (hand.begin(), hand.begin());
        let (x, y) = (hand.x, hand.y);
        hand.see(one, y);
        hand.see(two, x);
        hand.write(one, X);
        hand.write(two, Y);
        hand.commit(one);
        hand.commit(two);
        assert_eq!(hand.kinds().is_empty(), is_clean, "{:?}", hand.kinds());
        if !is_clean {
            hand.shows(Kind::NotSerializable);
        }
    }
}

#[test]
fn each_asking_for_what_the_other_inserts_is_not_serializable() {
    let mut hand = Hand::new(SERIALIZABLE);
    let (one, two) = (hand.begin(), hand.begin());
    hand.ask_now(one, 7, &[]);
    hand.ask_now(two, 8, &[]);
    hand.record.write(one, (0, 3), Some(group((0, 3), 8)));
    hand.record.write(two, (0, 4), Some(group((0, 4), 7)));
    hand.commit(one);
    hand.commit(two);
    hand.shows(Kind::NotSerializable);
    let mut hand = Hand::new(SERIALIZABLE);
    let (one, two) = (hand.begin(), hand.begin());
    hand.ask_now(one, 7, &[]);
    hand.ask_now(two, 8, &[]);
    hand.record.write(one, (0, 3), Some(group((0, 3), 9)));
    hand.record.write(two, (0, 4), Some(group((0, 4), 7)));
    hand.commit(one);
    hand.commit(two);
    hand.is_clean();
}

#[test]
fn a_reader_that_sees_the_second_but_not_the_first_is_not_serializable() {
    // The read-only anomaly (Fekete, O'Neil, O'Neil 2004): both writers alone fit, the reader shows that they do not.
    let mut hand = Hand::new(SERIALIZABLE);
    let (x, y) = (hand.x, hand.y);
    let (batch, deposit, report) = (hand.begin(), hand.begin(), hand.begin());
    hand.see(batch, x);
    hand.see(batch, y);
    let new_y = hand.write(deposit, Y);
    hand.commit(deposit);
    hand.see(report, x);
    hand.see(report, new_y);
    hand.commit(report);
    hand.write(batch, X);
    hand.commit(batch);
    hand.shows(Kind::NotSerializable);
    let cycle = judge(&hand.record).pop().map(|anomaly| anomaly.cycle.len());
    assert_eq!(cycle, Some(3));
}

#[test]
fn a_cycle_through_a_transaction_that_was_rolled_back_is_none() {
    let mut hand = Hand::new(SERIALIZABLE);
    let (one, two) = (hand.begin(), hand.begin());
    let (x, y) = (hand.x, hand.y);
    hand.see(one, y);
    hand.see(two, x);
    hand.write(one, X);
    hand.write(two, Y);
    hand.commit(one);
    hand.record.abort(two);
    hand.is_clean();
}
