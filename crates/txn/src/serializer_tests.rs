//! T31: what is kept of transactions has a bound, and nothing is left of them in the end.

use super::*;

const TABLE: TableId = TableId::new(1);

/// Transactions that are kept, and those that run beside a long one.
const KEPT: usize = if cfg!(miri) { 40 } else { ENDED_MAX };
const BESIDE: u64 = if cfg!(miri) { 100 } else { 20_000 };

/// A transaction that reads a row of its own and changes another one.
fn short(serializer: &Serializer, txns: &TxnTable, number: u64) {
    let (_snapshot, serial) = serializer.begin(txns, false);
    let mut serial = serial.expect("it may write");
    let txn = txns.begin();
    serializer.note_row(&mut serial, TABLE, RowId::new(1000 + number));
    serializer.note_write(&serial, txn, TABLE);
    serializer
        .changed_row(
            &mut serial,
            TABLE,
            RowId::new(500_000 + number),
            RowChange::Update,
        )
        .expect("nobody reads there");
    let publish = || txns.commit_critical(txn, |_| Ok::<_, std::convert::Infallible>(()));
    let published = serializer.commit(&mut serial, publish).expect("it fits");
    assert!(published.is_ok());
    serializer.end(serial);
}

#[test]
fn a_long_transaction_does_not_keep_all_that_run_beside_it() {
    let (serializer, txns) = (Serializer::with_ended_max(KEPT), TxnTable::new());
    let (_snapshot, old) = serializer.begin(&txns, false);
    let mut old = old.expect("it may write");
    serializer.note_table(&mut old, TABLE, WholeTable::COUNT);
    for number in 0..BESIDE {
        short(&serializer, &txns, number);
        let usage = serializer.usage();
        assert!(usage.ended <= KEPT && usage.txns <= KEPT + 2, "{usage:?}");
    }
    let usage = serializer.usage();
    assert!(usage.footprints <= 2 * KEPT, "{usage:?}");
    serializer.end(old);
    let left = SerialUsage {
        txns: 0,
        ended: 0,
        footprints: 0,
    };
    assert_eq!(serializer.usage(), left);
}

#[test]
fn who_rolls_back_leaves_nothing() {
    let (serializer, txns) = (Serializer::default(), TxnTable::new());
    let (_snapshot, serial) = serializer.begin(&txns, false);
    let mut serial = serial.expect("it may write");
    serializer.note_row(&mut serial, TABLE, RowId::new(1));
    serializer.note_range(&mut serial, IndexId::new(1), KeyRange::everything());
    assert_eq!(serializer.usage().footprints, 2);
    serializer.end(serial);
    assert_eq!((serializer.usage().txns, serializer.usage().footprints), (0, 0));
}
