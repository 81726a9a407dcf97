//! T29 to T34 through rows, indexes, counts, unique keys and two-phase commit: of SERIALIZABLE transactions those that fit into
//! no order with the others are ended, and nobody waits.

mod common;

use common::{Bench, row};
use pbxt::{Bind, ConflictMode, Cursor, Error, Isolation, NewVersion, Result, Seek, SessionConfig};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayRow, PlayTable, TAG_INDEX};

const BY_GROUP: usize = 1;

fn client(bench: &Bench, read_only: bool) -> Client {
    let mut client = bench.other(5);
    client.session.configure(SessionConfig {
        isolation: Isolation::Serializable,
        conflict_mode: ConflictMode::Wait,
        lock_wait_timeout_ms: 0,
        read_only,
        ..SessionConfig::default()
    });
    client
}

/// Rows 1 to `count`, and two SERIALIZABLE clients.
fn world(count: u32) -> (Bench, Vec<RowId>, [Client; 2]) {
    let mut bench = Bench::new();
    let new: Vec<PlayRow> = (1..=count).map(row).collect();
    let rows = bench.client.insert_all(&bench.table, &new).expect("new rows");
    bench.client.session.commit().expect("a commit");
    let clients = [client(&bench, false), client(&bench, false)];
    (bench, rows, clients)
}

/// The id of the row with this primary key, if it is there.
fn find(client: &mut Client, table: &PlayTable, id: u32) -> Result<Option<RowId>> {
    let key = table.prefix(0, &[Some(id)]);
    Ok(client.seek(table, 0, &key, Seek::Exact)?.map(|(row, _)| row))
}

fn regroup(client: &mut Client, table: &PlayTable, row: RowId, group: u32) -> Result<()> {
    let change = |old: &PlayRow| PlayRow {
        group: Some(group),
        ..old.clone()
    };
    client.update(table, row, change).map(|_| ())
}

/// Ends both, the first one first; the error of the second one, which comes with its last step or with its commit.
fn ends(clients: &mut [Client; 2], last_step: Result<()>) -> Result<()> {
    let [one, two] = clients;
    one.session.commit().expect("the first to commit may");
    match last_step {
        Ok(()) => two.session.commit(),
        Err(error) => {
            two.session.rollback().expect("a rollback");
            Err(error)
        }
    }
}

fn expect_ended(bench: &mut Bench, end: &Result<()>) {
    assert!(matches!(end, Err(Error::Unserializable)), "{end:?}");
    let usage = bench.db.serial_usage();
    assert_eq!(
        (usage.txns, usage.footprints),
        (0, 0),
        "T31: nobody runs any more"
    );
    bench.settle();
}

#[test]
fn two_that_read_what_the_other_changes_do_not_both_commit() {
    let (mut bench, rows, mut clients) = world(2);
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(
            find(client, &bench.table, 2 - at as u32).unwrap(),
            Some(rows[1 - at])
        );
    }
    regroup(&mut clients[0], &bench.table, rows[0], 7).unwrap();
    let last = regroup(&mut clients[1], &bench.table, rows[1], 7);
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn a_deletion_meets_who_has_read_the_row() {
    let (mut bench, rows, mut clients) = world(2);
    for (at, client) in clients.iter_mut().enumerate() {
        find(client, &bench.table, 2 - at as u32).unwrap();
    }
    clients[0].delete(&bench.table, rows[0]).unwrap();
    let last = clients[1].delete(&bench.table, rows[1]).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn two_that_insert_the_keys_the_other_found_missing_do_not_both_commit() {
    let (mut bench, _, mut clients) = world(2);
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(find(client, &bench.table, 10 + at as u32).unwrap(), None);
    }
    clients[0].insert(&bench.table, &row(11)).unwrap();
    let last = clients[1].insert(&bench.table, &row(10)).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn two_that_insert_after_a_scan_do_not_both_commit() {
    let (mut bench, _, mut clients) = world(2);
    for client in &mut clients {
        assert_eq!(client.scan(&bench.table).unwrap().len(), 2);
    }
    clients[0].insert(&bench.table, &row(11)).unwrap();
    let last = clients[1].insert(&bench.table, &row(12)).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn a_row_that_moves_into_a_range_meets_who_has_read_the_range() {
    let (mut bench, rows, mut clients) = world(2);
    for (at, client) in clients.iter_mut().enumerate() {
        let key = bench.table.prefix(BY_GROUP, &[Some(1 + at as u32)]);
        assert_eq!(
            client.seek(&bench.table, BY_GROUP, &key, Seek::Exact).unwrap(),
            None
        );
    }
    regroup(&mut clients[0], &bench.table, rows[0], 2).unwrap();
    let last = regroup(&mut clients[1], &bench.table, rows[1], 1);
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn a_scan_in_an_index_minds_what_it_came_to_in_both_directions() {
    // T30: the first client reads rows 1 to 3 of 9, in one or the other direction, the second one row 9.
    for (edge, moves, beyond, within) in [(false, 2, 20, 2), (true, 2, 0, 8)] {
        for (id, fits) in [(beyond, true), (within, false)] {
            let (mut bench, rows, mut clients) = world(9);
            bench.client.delete(&bench.table, rows[1]).unwrap();
            bench.client.delete(&bench.table, rows[7]).unwrap();
            bench.client.session.commit().unwrap();
            let [one, two] = &mut clients;
            one.statement(|session| {
                let mut cursor = Cursor::new(&bench.table.table);
                cursor.bind(session, Bind::default())?;
                cursor.index_start(session, 0)?;
                assert!(cursor.index_edge(session, edge, |_| Ok(()))?);
                for _ in 0..moves {
                    assert!(cursor.index_move(session, !edge, false, |_| Ok(()))?);
                }
                cursor.let_go();
                Ok(())
            })
            .unwrap();
            find(two, &bench.table, 5).unwrap();
            regroup(one, &bench.table, rows[4], 3).unwrap();
            let last = two.insert(&bench.table, &row(id)).map(|_| ());
            let end = ends(&mut clients, last);
            assert_eq!(end.is_ok(), fits, "insert of {id}: {end:?}");
        }
    }
}

#[test]
fn a_move_beyond_an_exact_search_is_noted_too() {
    let (mut bench, rows, mut clients) = world(5);
    let key = bench.table.prefix(0, &[Some(2)]);
    let [one, two] = &mut clients;
    one.statement(|session| {
        let mut cursor = Cursor::new(&bench.table.table);
        cursor.bind(session, Bind::default())?;
        cursor.index_start(session, 0)?;
        assert!(cursor.seek(session, &key, Seek::Exact, |_| Ok(()))?);
        while cursor.index_move(session, true, false, |_| Ok(()))? {}
        Ok(())
    })
    .unwrap();
    find(two, &bench.table, 1).unwrap();
    regroup(one, &bench.table, rows[0], 3).unwrap();
    let last = two.insert(&bench.table, &row(6)).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn rows_that_were_fetched_ahead_are_noted() {
    let (mut bench, rows, mut clients) = world(320);
    assert_eq!(
        clients[0].index_scan(&bench.table, BY_GROUP, true).unwrap().len(),
        320
    );
    find(&mut clients[1], &bench.table, 1).unwrap();
    regroup(&mut clients[0], &bench.table, rows[0], 3).unwrap();
    let last = clients[1].update(&bench.table, rows[310], |old| PlayRow {
        memo: Some(vec![1].into()),
        ..old.clone()
    });
    let end = ends(&mut clients, last.map(|_| ()));
    expect_ended(&mut bench, &end);
}

#[test]
fn a_change_made_before_the_read_is_passed_over_and_noticed() {
    // T29: the reader finds the versions, the writer no footprint; by row, by index event and by count.
    for way in 0..3 {
        let (mut bench, rows, mut clients) = world(3);
        let [one, two] = &mut clients;
        find(one, &bench.table, 3).unwrap();
        one.delete(&bench.table, rows[0]).unwrap();
        one.insert(&bench.table, &row(9)).unwrap();
        one.insert(&bench.table, &row(10)).unwrap();
        match way {
            0 => assert_eq!(two.scan(&bench.table).unwrap().len(), 3),
            1 => assert_eq!(find(two, &bench.table, 9).unwrap(), None),
            _ => assert_eq!(two.count(&bench.table).unwrap(), 3),
        }
        let last = regroup(two, &bench.table, rows[2], 7);
        let end = ends(&mut clients, last);
        expect_ended(&mut bench, &end);
    }
}

#[test]
fn counts_stand_before_rows_that_come_and_go() {
    let (mut bench, rows, mut clients) = world(3);
    for client in &mut clients {
        assert_eq!(client.count(&bench.table).unwrap(), 3);
    }
    regroup(&mut clients[0], &bench.table, rows[0], 1).unwrap();
    let last = regroup(&mut clients[1], &bench.table, rows[1], 1);
    ends(&mut clients, last).expect("no count has changed");
    for client in &mut clients {
        assert_eq!(client.count(&bench.table).unwrap(), 3);
    }
    clients[0].insert(&bench.table, &row(10)).unwrap();
    let last = clients[1].delete(&bench.table, rows[2]).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn a_refused_key_is_a_read_of_the_row_that_has_it() {
    let (mut bench, rows, mut clients) = world(3);
    let [one, two] = &mut clients;
    let refused = one.insert(&bench.table, &row(1));
    assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
    find(two, &bench.table, 2).unwrap();
    regroup(one, &bench.table, rows[1], 7).unwrap();
    let last = two.delete(&bench.table, rows[0]).map(|_| ());
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn a_key_that_somebody_took_since_the_snapshot_is_a_write_conflict() {
    // T34: as a duplicate it would show a row that the snapshot does not see.
    let (mut bench, rows, mut clients) = world(1);
    let [one, two] = &mut clients;
    find(one, &bench.table, 1).unwrap();
    bench.client.insert(&bench.table, &row(5)).unwrap();
    regroup(&mut bench.client, &bench.table, rows[0], 5).unwrap();
    bench.client.session.commit().unwrap();
    let refused = one.insert(&bench.table, &row(5));
    assert!(matches!(refused, Err(Error::WriteConflict { .. })), "{refused:?}");
    // T34: conflict mode WAIT, which this session has, is ERROR here.
    let refused = regroup(one, &bench.table, rows[0], 6);
    assert!(matches!(refused, Err(Error::WriteConflict { .. })), "{refused:?}");
    let refused = two.insert(&bench.table, &row(5));
    assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
}

#[test]
fn a_key_given_up_again_was_found_free() {
    // T34: the first client takes tag 5 and gives it up; the second one, which reads what the first changes, takes it.
    let (mut bench, rows, mut clients) = world(3);
    let tagged = |id| PlayRow {
        tag: Some(5),
        ..row(id)
    };
    let [one, two] = &mut clients;
    find(two, &bench.table, 1).unwrap();
    let taken = one.insert(&bench.table, &tagged(20)).unwrap();
    one.delete(&bench.table, taken).unwrap();
    regroup(one, &bench.table, rows[0], 7).unwrap();
    let key = bench.table.prefix(TAG_INDEX, &[Some(5)]);
    one.session.commit().unwrap();
    let last = two.insert(&bench.table, &tagged(21)).map(|_| ());
    let last = last.and_then(|()| two.session.commit());
    let _ = two.session.rollback();
    expect_ended(&mut bench, &last);
    assert_eq!(
        bench
            .client
            .seek(&bench.table, TAG_INDEX, &key, Seek::Exact)
            .unwrap(),
        None
    );
}

/// Batch processing (Ports, Grittner, figure 2): row 1 is the batch, row 2 a receipt. True if the receipt commits.
fn batch(with_report: bool) -> bool {
    let (bench, rows, [mut receipt, mut close]) = world(1);
    let mut report = client(&bench, true);
    find(&mut receipt, &bench.table, 1).expect("it fits");
    regroup(&mut close, &bench.table, rows[0], 1).expect("it fits");
    close.session.commit().expect("it fits");
    if with_report {
        assert_eq!(report.scan(&bench.table).expect("it fits")[0].1.group, Some(1));
        report.session.commit().expect("it fits");
    }
    let inserted = receipt.insert(&bench.table, &row(2));
    inserted.and_then(|_| receipt.session.commit()).is_ok()
}

#[test]
fn a_report_of_a_closed_batch_keeps_receipts_out_of_it() {
    // T29: the anomaly of a transaction that only reads (Fekete, O'Neil, O'Neil 2004).
    assert!(batch(false));
    assert!(!batch(true));
}

#[test]
fn a_reader_without_writers_beside_it_notes_nothing_and_cannot_write() {
    // T30.
    let (bench, _, [mut writer, _]) = world(3);
    let mut reader = client(&bench, true);
    assert_eq!(reader.scan(&bench.table).unwrap().len(), 3);
    assert_eq!(bench.db.serial_usage().txns, 0);
    let refused = reader.insert(&bench.table, &row(9));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    writer.insert(&bench.table, &row(9)).unwrap();
    reader.session.commit().unwrap();
    reader.scan(&bench.table).unwrap();
    assert_eq!(bench.db.serial_usage().txns, 2);
    writer.session.commit().unwrap();
    reader.session.commit().unwrap();
    assert_eq!(bench.db.serial_usage().txns, 0);
}

#[test]
fn a_prepared_transaction_commits_and_the_other_one_is_ended() {
    // T32: also detached from its session.
    for is_detached in [false, true] {
        let (mut bench, rows, mut clients) = world(2);
        for (at, client) in clients.iter_mut().enumerate() {
            find(client, &bench.table, 2 - at as u32).unwrap();
        }
        regroup(&mut clients[0], &bench.table, rows[0], 7).unwrap();
        clients[0].session.prepare(b"vote").unwrap();
        if is_detached {
            clients[0].session.detach_prepared();
        }
        let late = regroup(&mut clients[1], &bench.table, rows[1], 7);
        let late = late.and_then(|()| clients[1].session.prepare(b"late"));
        assert!(matches!(late, Err(Error::Unserializable)), "{late:?}");
        clients[1].session.rollback().unwrap();
        if is_detached {
            bench.db.commit_prepared(b"vote").unwrap();
        } else {
            clients[0].session.commit_ordered().unwrap();
            clients[0].session.commit().unwrap();
        }
        assert_eq!(bench.db.serial_usage().txns, 0);
        bench.settle();
    }
}

#[test]
fn who_reads_what_a_prepared_transaction_of_before_the_crash_changes_is_ended() {
    // T33.
    let (mut bench, rows, [mut prepared, other]) = world(3);
    regroup(&mut prepared, &bench.table, rows[0], 7).unwrap();
    prepared.session.prepare(b"vote").unwrap();
    drop((prepared, other));
    bench.crash_reopen();
    let mut reader = client(&bench, false);
    find(&mut reader, &bench.table, 2).unwrap();
    reader.session.commit().expect("that row is not in doubt");
    let refused = find(&mut reader, &bench.table, 1).and_then(|_| reader.session.commit());
    assert!(matches!(refused, Err(Error::Unserializable)), "{refused:?}");
    let _ = reader.session.rollback();
    bench.db.commit_prepared(b"vote").unwrap();
    find(&mut reader, &bench.table, 1).unwrap();
    reader.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_rollback_to_a_savepoint_keeps_what_was_read() {
    let (mut bench, rows, mut clients) = world(2);
    let savepoint = clients[0].session.savepoint().unwrap();
    find(&mut clients[0], &bench.table, 2).unwrap();
    clients[0].session.rollback_to(savepoint).unwrap();
    find(&mut clients[1], &bench.table, 1).unwrap();
    regroup(&mut clients[0], &bench.table, rows[0], 7).unwrap();
    let last = regroup(&mut clients[1], &bench.table, rows[1], 7);
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

#[test]
fn who_was_ended_is_rolled_back_whole_and_can_begin_anew() {
    let (mut bench, rows, mut clients) = world(3);
    for (at, client) in clients.iter_mut().enumerate() {
        find(client, &bench.table, 2 - at as u32).unwrap();
    }
    let [one, two] = &mut clients;
    two.insert(&bench.table, &row(9)).unwrap();
    regroup(one, &bench.table, rows[0], 7).unwrap();
    let _ = regroup(two, &bench.table, rows[1], 7);
    one.session.commit().unwrap();
    let next = two.count(&bench.table);
    assert!(
        matches!(next, Err(Error::Unserializable)),
        "the next statement says so: {next:?}"
    );
    let after = two.count(&bench.table);
    assert!(
        matches!(after, Err(Error::TransactionAborted { .. })),
        "{after:?}"
    );
    two.session.rollback().unwrap();
    assert_eq!(two.count(&bench.table).unwrap(), 3);
    regroup(two, &bench.table, rows[1], 7).unwrap();
    two.session.commit().unwrap();
    assert_eq!(bench.db.status().serialization_failures, 1);
    bench.settle();
}

#[test]
fn transactions_of_other_levels_have_no_part_in_it() {
    let (mut bench, rows, [mut one, _]) = world(2);
    let mut other = bench.other(6);
    find(&mut one, &bench.table, 2).unwrap();
    find(&mut other, &bench.table, 1).unwrap();
    regroup(&mut one, &bench.table, rows[0], 7).unwrap();
    regroup(&mut other, &bench.table, rows[1], 7).unwrap();
    other.session.commit().unwrap();
    one.session.commit().unwrap();
    bench.settle();
}

#[test]
fn a_bulk_load_meets_who_has_read_of_its_table() {
    let (mut bench, rows, mut clients) = world(2);
    let [one, two] = &mut clients;
    assert_eq!(find(one, &bench.table, 2000).unwrap(), None);
    find(two, &bench.table, 1).unwrap();
    regroup(one, &bench.table, rows[0], 7).unwrap();
    let last = two.statement(|session| {
        session.bulk_begin(&bench.table.table, u64::MAX, false);
        for id in 1000..4000 {
            let new = row(id);
            let keys = bench.table.key_changes(None, &new)?;
            let payload = bench.table.encode(&new)?;
            let version = NewVersion {
                payload: &payload,
                schema_version: bench.table.schema_version(),
                keys: &keys,
            };
            session.insert_or_load(&bench.table.table, version)?;
        }
        session.bulk_end(&bench.table.table, false)
    });
    let end = ends(&mut clients, last);
    expect_ended(&mut bench, &end);
}

/// Rules T32, V12: whoever may not vote is as unsure as before.
#[test]
fn a_refused_vote_is_none() {
    let (mut bench, rows, [mut one, mut two]) = world(2);
    let mut holder = bench.other(6);
    holder.insert(&bench.table, &row(60)).expect("an insert");
    holder.session.prepare(b"taken").expect("prepared");
    one.insert(&bench.table, &row(50)).expect("an insert");
    let refused = one.session.prepare(b"taken");
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    // Write skew, half of it by one that has committed meanwhile.
    find(&mut two, &bench.table, 1).expect("found");
    regroup(&mut two, &bench.table, rows[1], 7).expect("changed");
    two.session.commit().expect("a commit");
    let last = find(&mut one, &bench.table, 2)
        .and_then(|_| regroup(&mut one, &bench.table, rows[0], 7))
        .and_then(|()| one.session.commit());
    assert!(matches!(last, Err(Error::Unserializable)), "T32: {last:?}");
    one.session.rollback().expect("a rollback");
    holder.session.rollback().expect("a rollback");
    bench.settle();
}

/// Rule T46: a scan that ends before its last row does not look whether its transaction fits; the end of its statement does.
#[test]
fn a_scan_that_is_given_up_tells_with_its_statement_that_the_transaction_fits_nowhere() {
    let (bench, rows, [mut reader, mut writer]) = world(3);
    let mut early = client(&bench, false);
    find(&mut writer, &bench.table, 2).unwrap();
    regroup(&mut early, &bench.table, rows[1], 20).unwrap();
    early.session.commit().unwrap();
    find(&mut reader, &bench.table, 2).unwrap();
    regroup(&mut writer, &bench.table, rows[0], 10).unwrap();
    writer.session.commit().unwrap();
    let session = &mut reader.session;
    session.begin_statement().unwrap();
    let mut cursor = Cursor::new(&bench.table.table);
    cursor.bind(session, Bind::default()).unwrap();
    cursor.scan_start(session).unwrap();
    assert!(
        cursor.scan_next(session, |_| Ok(())).unwrap(),
        "the row of before"
    );
    drop(cursor);
    let ended = session.finish_statement();
    assert!(matches!(ended, Err(Error::Unserializable)), "T46: {ended:?}");
    let vote = session.prepare(b"late");
    assert!(matches!(vote, Err(Error::TransactionAborted { .. })), "{vote:?}");
    session.rollback().unwrap();
}

/// Rule T46: who has told others that it changes a table may be chosen because of what they do, also if no row of it came to be; so the host
/// hears of it by the vote.
#[test]
fn who_has_begun_to_change_a_table_votes_although_nothing_came_of_it() {
    let (mut bench, rows, [mut failed, mut writer]) = world(3);
    let mut counting = client(&bench, false);
    find(&mut failed, &bench.table, 2).expect("found");
    let taken = failed.insert(&bench.table, &row(1));
    assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
    assert_eq!(counting.count(&bench.table).expect("a count"), 3);
    // Its statements are over before the last of the three it stands among commits.
    regroup(&mut writer, &bench.table, rows[1], 7).expect("changed");
    writer.session.commit().expect("a commit");
    assert!(failed.session.has_changes(), "T46: the host asks for no vote");
    let vote = failed.session.prepare(b"failed");
    assert!(matches!(vote, Err(Error::Unserializable)), "T46: {vote:?}");
    failed.session.rollback().expect("a rollback");
    counting.session.commit().expect("a commit");
    bench.settle();
}

/// The same with a vote that says yes: nothing of it is in the log, nothing stays prepared, and nobody can end it any more.
#[test]
fn a_vote_about_nothing_leaves_nothing() {
    let (mut bench, rows, [mut failed, mut writer]) = world(3);
    let mut counting = client(&bench, false);
    for end in ["commit", "ordered", "rollback", "close"] {
        find(&mut failed, &bench.table, 2).expect("found");
        failed.insert(&bench.table, &row(1)).expect_err("a taken key");
        counting.count(&bench.table).expect("a count");
        failed.session.prepare(b"nothing").expect("a vote");
        let change = regroup(&mut writer, &bench.table, rows[1], 7);
        let last = change.and_then(|()| writer.session.commit());
        assert!(matches!(last, Err(Error::Unserializable)), "T32: {last:?}");
        writer.session.rollback().expect("a rollback");
        match end {
            "commit" => failed.session.commit().expect("T46: its vote holds"),
            "ordered" => {
                failed.session.commit_ordered().expect("T46: its vote holds");
                failed.session.commit().expect("a commit");
            }
            "rollback" => failed.session.rollback().expect("a rollback"),
            _ => failed = client(&bench, false),
        }
        assert!(!failed.session.is_prepared(), "{end}");
        assert_eq!(bench.db.prepared.open_votes(), 0, "{end}");
        assert!(bench.db.prepared.xids().is_empty(), "{end}");
        counting.session.rollback().expect("a rollback");
    }
    bench.settle();
}
