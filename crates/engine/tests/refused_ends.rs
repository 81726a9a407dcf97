//! Ends that the log cannot take: what was not committed or taken back never comes with a later commit (rule T44).

#[path = "common/store.rs"]
mod store;

use pbxt::{Error, TableDef};
use pbxt_base::RowId;
use pbxt_sim::client::Client;
use pbxt_sim::table::{PlayTable, definition};
use pbxt_sim::world::geometry;
use store::Store;

/// Rows of several segments.
const ROWS: u32 = 3000;
/// Transactions whose ENDs fill what is left of a log.
const FILLERS: usize = 2000;

/// A table with rows, and transactions that have written something each.
struct Scene {
    store: Store,
    rows: Vec<RowId>,
    fillers: Vec<Client>,
}

impl Scene {
    fn new() -> Self {
        let mut store = Store::new();
        store.insert(0..ROWS);
        let found = store.client.scan(&store.table).expect("a scan");
        store.client.session.commit().expect("a commit");
        let fillers = (0..FILLERS).map(|number| {
            let mut filler = Client::new(&store.db, 10 + number);
            let row = Store::row(100_000 + number as u32);
            filler.insert(&store.table, &row).expect("an insert");
            filler
        });
        let fillers = fillers.collect();
        Self {
            rows: found.iter().map(|(row, _)| *row).collect(),
            store,
            fillers,
        }
    }

    /// One statement deletes rows until the log has no room for another END, were it as short as can be.
    fn fill_log(&mut self) {
        let table = self.store.table.table.clone();
        let session = &mut self.store.client.session;
        session.begin_statement().expect("a statement");
        self.store.disk.set_free_bytes(Some(0));
        let is_refused = |row: &RowId| session.delete(&table, *row).is_err();
        assert!(self.rows.iter().any(is_refused), "all tombstones found room");
        let mut fillers = self.fillers.iter_mut();
        assert!(
            fillers.any(|filler| filler.session.rollback().is_err()),
            "all ENDs found room"
        );
    }

    /// There is room again, and the other transactions end.
    fn has_room(&mut self) {
        self.store.disk.set_free_bytes(None);
        for filler in &mut self.fillers {
            let _ = filler.session.rollback();
        }
    }

    /// There is room again, and a change is committed; nothing but that has come to the rows.
    fn goes_on(mut self) {
        self.has_room();
        let row = Store::row(ROWS);
        let Store { client, table, .. } = &mut self.store;
        client.insert(table, &row).expect("an insert");
        client.session.commit().expect("a commit");
        self.store.shows(0..=ROWS);
    }
}

#[test]
fn a_commit_without_room_in_the_log_rolls_back() {
    let mut scene = Scene::new();
    scene.fill_log();
    let session = &mut scene.store.client.session;
    session.end_statement();
    let committed = session.commit();
    assert!(matches!(committed, Err(Error::Storage(_))), "{committed:?}");
    scene.goes_on();
}

#[test]
fn a_vote_whose_rollback_finds_no_room_is_no_vote_any_more() {
    // V2, D19: the list of votes is what a checkpoint asks.
    let mut scene = Scene::new();
    let mut voter = Client::new(&scene.store.db, 2);
    voter
        .insert(&scene.store.table, &Store::row(90_000))
        .expect("an insert");
    voter.session.prepare(b"vote").expect("prepared");
    assert_eq!(scene.store.db.prepared.open_votes(), 1);
    scene.fill_log();
    let undone = voter.session.rollback();
    assert!(matches!(undone, Err(Error::Storage(_))), "{undone:?}");
    assert_eq!(scene.store.db.prepared.open_votes(), 0);
    drop(voter);
    scene.store.client.session.rollback_statement().unwrap_err();
    scene.store.client.session.rollback().expect("a rollback");
    scene.goes_on();
}

/// Rules V12, D6: the log, or the newest image, has the vote of a transaction whose rollback is not in the log, and then another
/// vote under its id.
#[test]
fn who_votes_under_the_id_of_a_rollback_without_room_is_the_only_one_that_has_it() {
    for is_saved in [false, true] {
        let mut scene = Scene::new();
        let votes = |scene: &Scene, number: usize, id: u32| {
            let mut voter = Client::new(&scene.store.db, number);
            let inserted = voter.insert(&scene.store.table, &Store::row(id));
            inserted.expect("an insert");
            voter.session.prepare(b"vote").expect("prepared");
            voter
        };
        let mut refused = votes(&scene, 2, 90_000);
        if is_saved {
            scene.store.db.checkpoint_step().expect("a checkpoint");
        }
        scene.fill_log();
        refused.session.rollback().unwrap_err();
        drop(refused);
        scene.store.client.session.rollback_statement().unwrap_err();
        scene.store.client.session.rollback().expect("a rollback");
        scene.has_room();
        votes(&scene, 3, ROWS).session.detach_prepared();
        scene.fillers.clear();
        for _ in 0..2 {
            scene.store.kill();
            assert_eq!(scene.store.db.prepared.xids(), [b"vote"]);
            assert_eq!(scene.store.db.prepared.open_votes(), 1, "V12, saved: {is_saved}");
            scene.store.db.checkpoint_step().expect("a checkpoint");
        }
        scene.store.db.commit_prepared(b"vote").expect("prepared");
        scene.store.insert(90_000..90_001);
        scene.store.shows((0..=ROWS).chain([90_000]));
    }
}

#[test]
fn a_decided_commit_without_room_stays_prepared() {
    // V1, T44: what a coordinator has decided is not taken back by the session that could not end it.
    let mut scene = Scene::new();
    let mut voter = Client::new(&scene.store.db, 2);
    let row = Store::row(ROWS + 1);
    voter.insert(&scene.store.table, &row).expect("an insert");
    voter.session.prepare(b"vote").expect("prepared");
    scene.fill_log();
    voter.session.commit_ordered().unwrap_err();
    let committed = voter.session.commit();
    assert!(matches!(committed, Err(Error::Storage(_))), "{committed:?}");
    voter.session.rollback().expect("nothing left to roll back");
    assert_eq!(scene.store.db.prepared.xids(), [b"vote"]);
    scene.store.db.commit_prepared(b"vote").unwrap_err();
    scene.store.client.session.rollback_statement().unwrap_err();
    scene.store.disk.set_free_bytes(None);
    scene.store.client.session.rollback().expect("a rollback");
    scene.fillers.clear();
    // Who changes rows has the log make room.
    let Store { client, table, .. } = &mut scene.store;
    client.insert(table, &Store::row(ROWS)).expect("an insert");
    client.session.commit().expect("a commit");
    scene.store.db.commit_prepared(b"vote").expect("room again");
    scene.store.shows(0..=ROWS + 1);
}

#[test]
fn a_statement_that_cannot_be_taken_back_is_not_committed() {
    let mut scene = Scene::new();
    scene.fill_log();
    let session = &mut scene.store.client.session;
    let undone = session.rollback_statement();
    assert!(matches!(undone, Err(Error::Storage(_))), "{undone:?}");
    scene.store.disk.set_free_bytes(None);
    let session = &mut scene.store.client.session;
    let committed = session.commit();
    assert!(
        matches!(committed, Err(Error::TransactionAborted { .. })),
        "{committed:?}"
    );
    session.rollback().expect("a rollback");
    scene.goes_on();
}

/// Rule V15: the binary log has rows of the transaction, and other engines may.
#[test]
fn what_was_rolled_back_whole_votes_no() {
    let mut scene = Scene::new();
    scene.fill_log();
    let session = &mut scene.store.client.session;
    session.rollback_statement().unwrap_err();
    assert!(session.has_changes(), "V15: the host asks for a vote");
    let voted = session.prepare(b"vote");
    assert!(
        matches!(voted, Err(Error::TransactionAborted { .. })),
        "{voted:?}"
    );
    session.rollback().expect("a rollback");
    assert!(!session.has_changes(), "it has ended");
    scene.goes_on();
}

/// Rule T44: the host takes the answer for the end and tells no rollback any more.
#[test]
fn after_the_commit_of_what_was_rolled_back_whole_the_next_transaction_begins() {
    let mut scene = Scene::new();
    scene.fill_log();
    let session = &mut scene.store.client.session;
    session.rollback_statement().unwrap_err();
    let committed = session.commit();
    assert!(
        matches!(committed, Err(Error::TransactionAborted { .. })),
        "{committed:?}"
    );
    session.begin_statement().expect("T44: another transaction");
    session.end_statement();
    scene.goes_on();
}

/// Rule D10. Nobody prepares segments here but who needs one.
#[test]
fn who_deletes_on_a_disk_with_room_leaves_the_reserve_alone() {
    let mut store = Store::new();
    store.insert(0..ROWS);
    let found = store.client.scan(&store.table).expect("a scan");
    store.client.session.commit().expect("a commit");
    let table = store.table.table.clone();
    let deleted = store
        .client
        .statement(|session| found.iter().try_for_each(|(row, _)| session.delete(&table, *row)));
    deleted.expect("D10: the disk has room");
    store.client.session.commit().expect("a commit");
    store.shows(std::iter::empty());
}

/// Does something again and again, until the log has gone on by two segments.
fn for_two_segments(store: &Store, step: impl Fn()) {
    let tail = || store.db.status().tail;
    let end = tail() + 2 * geometry().hot_segment_bytes;
    for _ in 0..10_000 {
        step();
        if tail() >= end {
            return;
        }
    }
    panic!("the log stands still");
}

/// Rule D10, as above.
#[test]
fn who_changes_definitions_on_a_disk_with_room_leaves_the_reserve_alone() {
    let store = Store::new();
    for_two_segments(&store, || {
        PlayTable::create(&store.db, "passing").expect("D10: the disk has room");
        let dropped = store.db.drop_table(None, "passing");
        dropped.expect("D10: the disk has room");
    });
}

/// Rule D10, as above: the mark with which a checkpoint begins.
#[test]
fn checkpoints_on_a_disk_with_room_leave_the_reserve_alone() {
    let store = Store::new();
    for_two_segments(&store, || {
        store.db.checkpoint_step().expect("D10: the disk has room");
    });
}

/// Rules T44, V11: the host takes the answer for the end, and nobody else can decide.
#[test]
fn a_vote_about_temporary_tables_alone_without_room_is_rolled_back() {
    let mut scene = Scene::new();
    let def = TableDef {
        temporary: true,
        ..definition("passing").expect("a definition")
    };
    scene.store.db.create_table(def, 1).expect("a new table");
    let passing = PlayTable::open(&scene.store.db, "passing").expect("the table is there");
    let mut voter = Client::new(&scene.store.db, 2);
    voter.insert(&passing, &Store::row(1)).expect("an insert");
    voter.session.prepare(b"vote").expect("prepared");
    scene.fill_log();
    let committed = voter.session.commit();
    assert!(matches!(committed, Err(Error::Storage(_))), "{committed:?}");
    assert!(!voter.session.is_prepared(), "V11");
    voter.session.begin_statement().expect("a statement");
    voter.session.end_statement();
    drop(voter);
    scene.store.client.session.rollback_statement().unwrap_err();
    scene.store.client.session.rollback().expect("a rollback");
    scene.goes_on();
}
