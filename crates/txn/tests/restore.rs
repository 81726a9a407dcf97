//! T12: a table made from an image answers as the crashed one would after recovery.

use std::collections::HashSet;
use std::convert::Infallible;

use crossbeam_epoch::pin;
use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{EndedAs, RestoredTxn, SettledAs, TxnStatus, TxnTable, TxnTableImage};

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
fn an_image_lists_every_id_below_its_next() {
    let table = TxnTable::new();
    for _ in 1..4096 {
        table.begin();
    }
    std::thread::scope(|scope| {
        let (image, ()) = table.image_with(|_| {
            scope.spawn(|| table.begin());
            // It has its id now, and waits for the latch that is held here before the id has a word.
            while table.next_id().raw() < 4097 {
                std::thread::yield_now();
            }
        });
        let listed: HashSet<u64> = image.exceptions.iter().map(|entry| entry.id.raw()).collect();
        let missing: Vec<u64> = (1..image.next.raw()).filter(|id| !listed.contains(id)).collect();
        assert!(
            missing.is_empty(),
            "T25: {missing:?} would be taken for committed"
        );
    });
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

#[test]
fn golden_transaction_table_image() {
    let image = TxnTableImage {
        next: TxnId::new(0x0102_0304),
        last_ts: CommitTs::new(0x1112),
        exceptions: vec![
            restored(
                0x21,
                EndedAs::Committed(CommitTs::new(0x22)),
                vec![lsn(0x40)..lsn(0x50)],
            ),
            restored(0x11, EndedAs::Prepared, vec![]),
            restored(0x31, EndedAs::Aborted, vec![]),
            restored(0x41, EndedAs::Aborted, vec![]),
        ],
    };
    #[rustfmt::skip]
    let golden = [
        1, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0,
        0x12, 0x11, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        0x11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0x21, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0,
        0x40, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0,
        0x31, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0x41, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let bytes = image.encode();
    assert_eq!(bytes, golden);
    let read = TxnTableImage::decode(&bytes, "file", 0).expect("decodes");
    assert_eq!(read.encode(), golden);
    assert_eq!((read.next, read.last_ts), (image.next, image.last_ts));
    for len in 0..bytes.len() {
        assert!(
            TxnTableImage::decode(&bytes[..len], "file", 0).is_err(),
            "{len} bytes"
        );
    }
    for (at, byte) in [
        (0, 2),
        (24, 3),
        (24, 5),
        (24, 255),
        (40, 4),
        (56, 0x11),
        (68, 2),
        (80, 0x50),
        (99, 9),
    ] {
        let mut changed = bytes.clone();
        changed[at] = byte;
        let error = TxnTableImage::decode(&changed, "meta-1", 1000)
            .expect_err("damaged")
            .to_string();
        assert!(error.contains("meta-1"), "{error}");
    }
}

#[test]
fn what_the_tail_says_replaces_what_the_image_says() {
    let mut image = TxnTableImage {
        next: TxnId::new(10),
        last_ts: CommitTs::new(5),
        exceptions: vec![
            restored(9, EndedAs::Aborted, vec![]),
            restored(3, EndedAs::Aborted, vec![lsn(8)..lsn(16)]),
            restored(7, EndedAs::Prepared, vec![]),
            restored(8, EndedAs::Aborted, vec![]),
        ],
    };
    image.note(restored(9, EndedAs::Committed(CommitTs::new(6)), vec![]));
    image.note(restored(
        3,
        EndedAs::Committed(CommitTs::new(7)),
        vec![lsn(32)..lsn(40)],
    ));
    image.note(restored(12, EndedAs::Prepared, vec![]));
    image.note(restored(13, EndedAs::Committed(CommitTs::new(8)), vec![]));
    image.note(restored(7, EndedAs::Aborted, vec![]));
    let expected = TxnTableImage {
        next: TxnId::new(14),
        last_ts: CommitTs::new(8),
        exceptions: vec![
            restored(
                3,
                EndedAs::Committed(CommitTs::new(7)),
                vec![lsn(8)..lsn(16), lsn(32)..lsn(40)],
            ),
            restored(7, EndedAs::Aborted, vec![]),
            restored(8, EndedAs::Aborted, vec![]),
            restored(12, EndedAs::Prepared, vec![]),
        ],
    };
    assert_eq!(image, expected);
    let status = TxnTable::restore(&image).status(TxnId::new(8), &pin());
    assert_eq!(
        status,
        TxnStatus::Aborted,
        "active in the image, and nothing behind it"
    );
}

/// T25: the closure stands for the reservation of a record; whatever was reserved before an image is in the image.
#[test]
fn an_image_knows_every_end_and_prepare_reserved_before_it() {
    let rounds = if cfg!(miri) { 20 } else { 4000 };
    let table = TxnTable::new();
    let log = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (table, log) = (&table, &log);
            scope.spawn(move || {
                for round in 0..rounds {
                    let id = table.begin();
                    let reserve = |_| {
                        log.lock().expect("no panic").push(id);
                        Ok::<(), Infallible>(())
                    };
                    if (round + thread) % 3 == 0 {
                        table
                            .prepare_critical(id, || reserve(CommitTs::new(0)))
                            .expect("never fails");
                        commit(table, id);
                    } else {
                        table.commit_critical(id, reserve).expect("never fails");
                    }
                }
            });
        }
        for _ in 0..rounds / 10 {
            let before = log.lock().expect("no panic").clone();
            let (image, (at, ts)) = table.image_with(|ts| (log.lock().expect("no panic").len(), ts));
            assert_eq!(image.last_ts, ts);
            let reserved = log.lock().expect("no panic")[..at].to_vec();
            assert!(at >= before.len());
            for txn in &image.exceptions {
                let is_reserved = reserved.contains(&txn.id);
                assert_eq!(txn.ended == EndedAs::Aborted, !is_reserved, "T25: {txn:?}");
            }
            let last = table.in_commit_section(|ts| ts);
            assert!(last >= ts && last <= table.published());
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "fills pages of slots: too many steps to interpret")]
fn a_version_is_settled_when_nothing_can_change_what_it_means() {
    let table = TxnTable::new();
    let ids: Vec<TxnId> = (0..5000).map(|_| table.begin()).collect();
    let [active, prepared, aborted, voided, late] = [ids[0], ids[1], ids[2], ids[3], ids[4]];
    let plain: Vec<TxnId> = ids[5..].to_vec();
    for id in &plain {
        commit(&table, *id);
    }
    table.prepare(prepared);
    table.abort(aborted);
    table.add_void(voided, lsn(8)..lsn(16));
    commit(&table, voided);
    let horizon = table.horizon();
    let old_reader = table.open_snapshot();
    commit(&table, late);
    for step in ["in slots", "below the mark"] {
        let guard = pin();
        let settled = |id, at| table.is_settled(id, lsn(at), horizon, &guard);
        assert_eq!(
            settled(TxnId::new(0), 8),
            SettledAs::Committed,
            "{step}: no stamp"
        );
        assert_eq!(settled(active, 8), SettledAs::Unsettled, "{step}");
        assert_eq!(settled(prepared, 8), SettledAs::Unsettled, "{step}");
        assert_eq!(settled(aborted, 8), SettledAs::Gone, "{step}");
        assert_eq!(settled(voided, 8), SettledAs::Gone, "{step}");
        assert_eq!(settled(voided, 16), SettledAs::Committed, "{step}");
        assert_eq!(
            settled(late, 8),
            SettledAs::Unsettled,
            "{step}: the old reader does not see it"
        );
        assert_eq!(
            table.is_settled(late, lsn(8), table.published(), &guard),
            SettledAs::Committed
        );
        assert_eq!(
            table.is_settled(plain[0], lsn(8), table.horizon(), &guard),
            SettledAs::Committed
        );
        table.advance_low_water(&table.live_snapshots());
    }
    drop(old_reader);
    let committed = EndedAs::Committed(horizon);
    assert_eq!(
        table.exceptions_below(TxnId::new(4096)),
        [(aborted, EndedAs::Aborted), (voided, committed)]
    );
    assert_eq!(table.exceptions_below(voided), [(aborted, EndedAs::Aborted)]);
    assert!(table.forget_traces(aborted) && table.forget_traces(voided));
    assert_eq!(table.exceptions_below(table.next_id()), []);
}
