//! Theatre: a database on a simulated disk, several sessions, and whose turn it is.
//!
//! Why it exists: one thread and one source of random numbers make any schedule repeatable.
//! Waiting: a session that has to wait for a lock does one of two things, as the dice say. Most are told at once by whom they are
//! kept, and begin the statement anew when that transaction has ended or undone something. Up to `Mix::waiters` at a time wait
//! inside the engine as threads would: the engine tells its observer, who lets the others go on, further up the same stack, until
//! the waiter has its turn; so who came last goes on first. If none of them can go on, or the waiter has waited long enough, its
//! wait reaches its limit. Circles of waiters are found by the engine, those of sessions that were told are broken here; one of
//! both ends when a waiter's limit is reached.
//! Background work (homing, merges, checkpoints) is done in steps between those of the sessions, so that versions and index
//! entries move while somebody is reading them.

use crate::client::Client;
use crate::history::mix::Mix;
use crate::history::played::Played;
use crate::history::player::{Player, Step};
use crate::history::record::Levels;
use crate::history::stage::{Stage, count};
use crate::table::{PlayRow, PlayTable};
use pbxt::{Bind, Cursor, Database, Error, Isolation, Options, Result, WaitObserver};
use pbxt_base::TxnId;
use pbxt_testkit::{Rng, SimDisk};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Transactions of one history.
const TXNS: usize = 500;
/// Steps between two steps of background work, in the mean.
const BACKGROUND: u64 = 60;
/// Steps of others that a wait inside the engine lasts at most.
const PATIENCE: u64 = 300;

thread_local! {
    /// Where the observer of this thread's database finds the others.
    static PLAYING: RefCell<Option<Rc<Theatre>>> = const { RefCell::new(None) };
}

/// See the module.
pub(super) struct Theatre {
    db: Arc<Database>,
    players: Vec<RefCell<Player>>,
    /// Whom each player waits for.
    blocked: RefCell<Vec<Option<TxnId>>>,
    pub stage: Stage,
    /// What went wrong while somebody waited.
    failure: RefCell<Option<Error>>,
}

impl Theatre {
    pub(super) fn open(seed: u64, levels: Levels) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let mix = Mix::draw(&mut rng);
        let options = Options {
            geometry: crate::world::geometry(),
            cache_bytes: 64 << 10,
            background: false,
            observer: Some(Arc::new(Prompter)),
            ..Options::default()
        };
        let db = Database::open(Arc::new(SimDisk::new()), &options)?;
        let mut tables = Vec::new();
        for number in 0..mix.tables {
            let name = format!("t{number}");
            tables.push(if number % 2 == 0 {
                PlayTable::create(&db, &name)?
            } else {
                PlayTable::create_lean(&db, &name)?
            });
        }
        let by_locks = locks_tables(&db, &tables[0])?;
        let players: Vec<_> = (0..mix.sessions)
            .map(|number| RefCell::new(Player::new(Client::new(&db, number))))
            .collect();
        Ok(Self {
            db,
            blocked: RefCell::new(vec![None; players.len()]),
            players,
            stage: Stage::new(mix, levels, tables, by_locks, rng),
            failure: RefCell::new(None),
        })
    }

    pub(super) fn played(&self) -> Played {
        let record = self.stage.record.borrow();
        let tally = &self.stage.tally;
        let txns = record.txns.len();
        Played {
            histories: 1,
            txns: txns as u64,
            committed: (0..txns).filter(|txn| record.committed(*txn).is_some()).count() as u64,
            waits: tally.waits.get(),
            waits_in_place: tally.waits_in_place.get(),
            timeouts: tally.timeouts.get(),
            deadlocks: self.db.waits.deadlocks.load(std::sync::atomic::Ordering::Relaxed),
            failed: tally.failed.get(),
            refused: tally.refused.get(),
            circles: tally.circles.get(),
            homed: self.db.upkeep_counters().rows_homed.get(),
        }
    }

    /// Until all transactions have ended.
    pub(super) fn play(self: &Rc<Self>) -> Result<()> {
        PLAYING.set(Some(Rc::clone(self)));
        let ended = self.play_on();
        PLAYING.set(None);
        ended
    }

    fn play_on(&self) -> Result<()> {
        loop {
            while self.turn()? {}
            // Who waits for nobody that is still there begins anew.
            let mut blocked = self.blocked.borrow_mut();
            match blocked.iter().position(Option::is_some) {
                Some(number) => blocked[number] = None,
                None => return Ok(()),
            }
        }
    }

    /// Gives one session its turn; false if none can go on.
    fn turn(&self) -> Result<bool> {
        let is_over = self.stage.note(|record| record.txns.len() >= TXNS);
        let may_go = |number: &usize| {
            self.blocked.borrow()[*number].is_none()
                && self.players[*number]
                    .try_borrow()
                    .is_ok_and(|player| !(is_over && player.is_idle()))
        };
        let ready: Vec<usize> = (0..self.players.len()).filter(may_go).collect();
        if ready.is_empty() {
            return Ok(false);
        }
        let number = ready[self.stage.below(ready.len() as u64) as usize];
        let step = self.players[number].borrow_mut().step(&self.stage)?;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.follow(number, step)?;
        if self.stage.below(BACKGROUND) == 0 {
            self.work()?;
        }
        Ok(true)
    }

    fn follow(&self, number: usize, step: Step) -> Result<()> {
        match step {
            Step::Went => {}
            Step::Released(txn) => self.release(txn),
            Step::Blocked(holder) => {
                count(&self.stage.tally.waits);
                if !self.is_there(holder) {
                    return Ok(());
                }
                self.blocked.borrow_mut()[number] = Some(holder);
                if self.is_circle(number) {
                    count(&self.stage.tally.circles);
                    self.blocked.borrow_mut()[number] = None;
                    let step = self.players[number].borrow_mut().abort(&self.stage)?;
                    return self.follow(number, step);
                }
            }
        }
        Ok(())
    }

    /// Who waits for this transaction may go on, and who waits for one that is not there any more: a transaction may begin, be met
    /// while it waits, and be ended by the engine, all in one step of its session.
    fn release(&self, txn: TxnId) {
        let is_over = |holder: TxnId| holder == txn || holder.raw() == 0 || !self.is_there(holder);
        for blocked in self.blocked.borrow_mut().iter_mut() {
            *blocked = blocked.filter(|holder| !is_over(*holder));
        }
    }

    /// False if the transaction has ended. Who waits inside the engine stands in a line.
    fn is_there(&self, txn: TxnId) -> bool {
        let has_it = |player: &RefCell<Player>| {
            player
                .try_borrow()
                .is_ok_and(|player| player.client.session.txn() == txn)
        };
        self.players.iter().any(has_it) || self.db.waits.in_line().contains(&txn)
    }

    fn is_circle(&self, start: usize) -> bool {
        let blocked = self.blocked.borrow();
        let mut at = start;
        // A circle that `start` only leads to was broken when it formed, or ends with a wait inside the engine.
        for _ in 0..blocked.len() {
            let Some(holder) = blocked[at] else { return false };
            let is_holder = |player: &RefCell<Player>| {
                player
                    .try_borrow()
                    .is_ok_and(|player| player.client.session.txn() == holder)
            };
            match self.players.iter().position(is_holder) {
                Some(next) if next == start => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }

    /// One random step of background work.
    fn work(&self) -> Result<()> {
        let db = &self.db;
        match self.stage.below(12) {
            0..4 => {
                db.compact_step()?;
                if self.stage.chance(50) {
                    db.flush()?;
                    db.log().set_start(db.log_floor());
                }
            }
            4..6 => {
                db.row_merge_step()?;
            }
            6..8 => {
                db.index_merge_step()?;
            }
            8 => {
                db.gone_step()?;
            }
            9 => db.checkpoint_step()?,
            10 => {
                db.upkeep_step(true)?;
            }
            _ => db.housekeeping_step(),
        }
        Ok(())
    }

    /// A session waits inside the engine: the others go on until it has its turn.
    fn wait(&self, number: usize) {
        let waiting = &self.stage.waiting;
        count(&self.stage.tally.waits_in_place);
        count(waiting);
        for _ in 0..PATIENCE {
            if !self.db.waits.is_waiting(number) {
                break;
            }
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.failure.replace(Some(error));
                    break;
                }
            }
        }
        waiting.set(waiting.get() - 1);
        if self.db.waits.is_waiting(number) {
            count(&self.stage.tally.timeouts);
        }
    }
}

/// The observer of the database's waits.
#[derive(Debug)]
struct Prompter;

impl WaitObserver for Prompter {
    fn waiting(&self, _waiter: usize, _blocker: usize) {}

    fn begin(&self, host_session: usize) {
        let playing = PLAYING.with_borrow(Option::clone);
        if let Some(theatre) = playing {
            theatre.wait(host_session);
        }
    }

    fn end(&self, _host_session: usize) {}

    fn is_killed(&self, _host_session: usize) -> bool {
        false
    }
}

/// True if a serializable reader keeps writers out of the table: then it sees the newest rows, else those of its snapshot.
fn locks_tables(db: &Arc<Database>, table: &PlayTable) -> Result<bool> {
    let (mut reader, mut writer) = (Client::new(db, 0), Client::new(db, 1));
    let mut config = reader.session.config();
    config.isolation = Isolation::Serializable;
    reader.session.configure(config);
    reader.statement(|session| {
        let mut cursor = Cursor::new(&table.table);
        cursor.bind(session, Bind::default())?;
        cursor.scan_start(session)?;
        cursor.scan_next(session, |_| Ok(()))
    })?;
    let inserted = writer.insert(table, &PlayRow::new(0));
    writer.session.rollback()?;
    reader.session.rollback()?;
    match inserted {
        Ok(_) => Ok(false),
        Err(Error::LockTimeout { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
