//! T12: a table made from an image answers as the crashed one would after recovery.

use std::convert::Infallible;

use crossbeam_epoch::pin;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{EndedAs, RestoredTxn, TxnStatus, TxnTable, TxnTableImage};

fn commit(table: &TxnTable, id: TxnId) -> CommitTs {
    table
        .commit_critical(id, |_| Ok::<(), Infallible>(()))
        .expect("the closure cannot fail")
        .0
}

fn lsn(raw: u64) -> Lsn {
    Lsn::new(raw)
}

fn restored(id: u64, ended: EndedAs, voids: Vec<std::ops::Range<Lsn>>) -> RestoredTxn {
    RestoredTxn {
        id: TxnId::new(id),
        ended,
        voids,
    }
}

#[test]
fn what_is_not_listed_is_settled_and_what_is_listed_stays() {
    let image = TxnTableImage {
        next: TxnId::new(10_000),
        last_ts: CommitTs::new(700),
        exceptions: vec![
            restored(
                9_000,
                EndedAs::Committed(CommitTs::new(650)),
                vec![lsn(64)..lsn(128)],
            ),
            restored(5, EndedAs::Aborted, vec![]),
            restored(77, EndedAs::Prepared, vec![lsn(8)..lsn(16), lsn(32)..lsn(40)]),
        ],
    };
    let table = TxnTable::restore(&image);
    let guard = pin();
    let status = |id| table.status(TxnId::new(id), &guard);
    assert_eq!((status(5), status(77)), (TxnStatus::Aborted, TxnStatus::Prepared));
    assert_eq!(status(9_000), TxnStatus::Committed(CommitTs::new(650)));
    assert!(
        [1, 4, 6, 76, 8_999, 9_999]
            .into_iter()
            .all(|id| status(id) == TxnStatus::Settled),
        "T12"
    );
    assert!(
        table.is_void(TxnId::new(9_000), lsn(64), &guard) && table.is_void(TxnId::new(77), lsn(39), &guard)
    );
    assert_eq!(table.published(), CommitTs::new(700));
    let new = table.begin();
    assert!(new >= image.next, "T12: no id is handed out twice");
    assert_eq!(commit(&table, new), CommitTs::new(701));
    assert_eq!(
        commit(&table, TxnId::new(77)),
        CommitTs::new(702),
        "a prepared transaction can still commit"
    );
    assert!(table.is_void(TxnId::new(77), lsn(8), &guard));
}

#[test]
fn an_image_of_a_restored_table_is_the_image_it_came_from() {
    let image = TxnTableImage {
        next: TxnId::new(2 * 4096),
        last_ts: CommitTs::new(9),
        exceptions: vec![
            restored(3, EndedAs::Prepared, vec![]),
            restored(4, EndedAs::Aborted, vec![lsn(8)..lsn(16)]),
            restored(5000, EndedAs::Committed(CommitTs::new(8)), vec![lsn(8)..lsn(24)]),
        ],
    };
    assert_eq!(TxnTable::restore(&image).image(), image);
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn an_image_of_a_running_table_lists_all_but_plain_commits() {
    let table = TxnTable::new();
    let ids: Vec<TxnId> = (0..6000).map(|_| table.begin()).collect();
    let special = [ids[0], ids[1], ids[2], ids[5000]];
    for id in ids.iter().filter(|id| !special.contains(id)) {
        commit(&table, *id);
    }
    table.prepare(special[0]);
    table.abort(special[1]);
    table.add_void(special[3], lsn(8)..lsn(16));
    commit(&table, special[3]);
    for step in ["in slots", "below the mark"] {
        let image = table.image();
        let listed: Vec<(TxnId, EndedAs)> = image.exceptions.iter().map(|txn| (txn.id, txn.ended)).collect();
        let expected = [
            (special[0], EndedAs::Prepared),
            (special[1], EndedAs::Aborted),
            (special[2], EndedAs::Aborted),
            (special[3], EndedAs::Committed(table.published())),
        ];
        assert_eq!(listed, expected, "{step}");
        assert_eq!((image.next, image.last_ts), (table.next_id(), table.published()));
        let again = TxnTable::restore(&image);
        assert!(
            ids.iter()
                .all(|id| special.contains(id) || again.status(*id, &pin()) == TxnStatus::Settled)
        );
        table.advance_low_water(&table.live_snapshots());
    }
    assert_eq!(table.low_water(), TxnId::new(4096));
}

#[test]
#[should_panic(expected = "T12")]
fn a_transaction_beyond_the_next_id_is_refused() {
    let exceptions = vec![restored(10, EndedAs::Prepared, vec![])];
    drop(TxnTable::restore(&TxnTableImage {
        next: TxnId::new(10),
        last_ts: CommitTs::new(0),
        exceptions,
    }));
}
