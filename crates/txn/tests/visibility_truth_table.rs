//! T8, T9, T10: every cell of the visibility table, written out by hand, against `judge`.

use pbxt_base::ids::{CommitTs, Lsn, TxnId};
use pbxt_txn::{
    EventDecision, IndexEvent, ReadMode, Sign, Stamp, Standing, TxnStatus, Verdict, Viewer, decide_events,
    judge,
};

const SNAPSHOT: u64 = 50;
const CURSOR: u64 = 800;
const OWN: TxnId = TxnId::new(7);
const FOREIGN: TxnId = TxnId::new(9);

/// Columns: Snapshot, Current, Write that fails on newer, Write that re-reads, ReadCommittedNoWait.
const MODES: [ReadMode; 5] = [
    ReadMode::Snapshot,
    ReadMode::Current,
    ReadMode::Write { error_on_newer: true },
    ReadMode::Write {
        error_on_newer: false,
    },
    ReadMode::ReadCommittedNoWait,
];

const FOREIGN_ROWS: [(TxnStatus, &str); 9] = [
    (TxnStatus::Committed(CommitTs::new(1)), "VVVVV"),
    (TxnStatus::Committed(CommitTs::new(SNAPSHOT - 1)), "VVVVV"),
    (TxnStatus::Committed(CommitTs::new(SNAPSHOT)), "VVVVV"),
    (TxnStatus::Committed(CommitTs::new(SNAPSHOT + 1)), "SVCVV"),
    (TxnStatus::Committed(CommitTs::new(u64::MAX >> 3)), "SVCVV"),
    (TxnStatus::Settled, "VVVVV"),
    (TxnStatus::Active, "SWWWS"),
    (TxnStatus::Prepared, "SWWWS"),
    (TxnStatus::Aborted, "SSSSS"),
];

/// LSNs below, at and beyond the cursor.
const LSNS: [(u64, bool); 4] = [
    (8, false),
    (CURSOR - 8, false),
    (CURSOR, true),
    (CURSOR + 8, true),
];

const OWN_BEFORE: &str = "VVVVV";
const OWN_BEYOND: &str = "SVSSS";
const NOT_THERE: &str = "SSSSS";

fn letter(verdict: Verdict) -> char {
    match verdict {
        Verdict::Visible => 'V',
        Verdict::Skip => 'S',
        Verdict::Wait(txn) => {
            assert_eq!(txn, FOREIGN, "the wait names the writer");
            'W'
        }
        Verdict::Conflict => 'C',
    }
}

fn row(own: TxnId, stamp: Stamp, standing: Standing) -> String {
    let viewer = |mode| Viewer {
        snapshot: CommitTs::new(SNAPSHOT),
        own,
        cursor: Lsn::new(CURSOR),
        mode,
    };
    MODES
        .iter()
        .map(|mode| letter(judge(&viewer(*mode), stamp, standing)))
        .collect()
}

#[test]
fn every_cell_is_as_written() {
    let mut cells = 0;
    for (status, expected) in FOREIGN_ROWS {
        for (lsn, beyond) in LSNS {
            let lsn = Lsn::new(lsn);
            for own in [TxnId::new(0), OWN] {
                let stamp = Stamp { txn: FOREIGN, lsn };
                assert_eq!(
                    row(own, stamp, Standing { status, void: false }),
                    expected,
                    "foreign {status:?} {lsn}"
                );
                assert_eq!(
                    row(own, stamp, Standing { status, void: true }),
                    NOT_THERE,
                    "T8: void {status:?} {lsn}"
                );
                cells += 2 * MODES.len();
            }
            let stamp = Stamp { txn: OWN, lsn };
            let expected = match (status, beyond) {
                (TxnStatus::Aborted, _) => NOT_THERE,
                (_, false) => OWN_BEFORE,
                (_, true) => OWN_BEYOND,
            };
            assert_eq!(
                row(OWN, stamp, Standing { status, void: false }),
                expected,
                "T9: own {status:?} {lsn}"
            );
            assert_eq!(
                row(OWN, stamp, Standing { status, void: true }),
                NOT_THERE,
                "T8: own, void {status:?} {lsn}"
            );
            cells += 2 * MODES.len();
        }
    }
    assert_eq!(cells, 9 * 4 * 6 * 5, "the table is complete");
}

#[test]
fn a_version_without_a_stamp_is_not_the_own_version_of_a_reader() {
    let stamp = Stamp {
        txn: TxnId::new(0),
        lsn: Lsn::new(CURSOR + 8),
    };
    assert_eq!(row(TxnId::new(0), stamp, Standing::SETTLED), "VVVVV");
}

#[test]
fn constructors_set_the_cursor_only_where_a_scan_asks_for_it() {
    let late = Stamp {
        txn: OWN,
        lsn: Lsn::new(u64::MAX - 8),
    };
    let active = Standing {
        status: TxnStatus::Active,
        void: false,
    };
    let write = Viewer::write(CommitTs::new(SNAPSHOT), OWN, true);
    assert_eq!(
        judge(&write, late, active),
        Verdict::Visible,
        "T9: a positioned write sees the newest own version"
    );
    assert_eq!(
        judge(&write.with_cursor(Lsn::new(CURSOR)), late, active),
        Verdict::Skip,
        "T9: a scan does not"
    );
    assert_eq!(
        judge(&Viewer::current(OWN).with_cursor(Lsn::new(0)), late, active),
        Verdict::Visible
    );
    let read = Viewer::snapshot(CommitTs::new(SNAPSHOT), OWN, Lsn::new(CURSOR));
    assert_eq!(judge(&read, late, active), Verdict::Skip);
}

fn event(sign: Sign, txn: TxnId, lsn: u64, status: TxnStatus) -> IndexEvent {
    IndexEvent {
        sign,
        stamp: Stamp {
            txn,
            lsn: Lsn::new(lsn),
        },
        standing: Standing { status, void: false },
    }
}

#[test]
fn of_events_with_equal_lsn_the_entry_wins() {
    let viewer = Viewer::current(OWN);
    let committed = TxnStatus::Committed(CommitTs::new(3));
    let entry = event(Sign::Entry, FOREIGN, 16, committed);
    let anti = event(Sign::AntiEntry, FOREIGN, 16, committed);
    assert_eq!(decide_events(&viewer, [entry, anti]), EventDecision::Present);
    assert_eq!(
        decide_events(&viewer, [anti, entry]),
        EventDecision::Present,
        "in any order"
    );
    let later = event(Sign::AntiEntry, FOREIGN, 24, committed);
    assert_eq!(
        decide_events(&viewer, [later, anti, entry]),
        EventDecision::Absent
    );
    assert_eq!(
        decide_events(&viewer, []),
        EventDecision::Absent,
        "no event, no key"
    );
}

#[test]
fn an_unfinished_event_decides_only_if_it_is_the_newest() {
    let viewer = Viewer::current(OWN);
    let settled = event(Sign::Entry, TxnId::new(0), 8, TxnStatus::Settled);
    let pending = event(Sign::AntiEntry, FOREIGN, 16, TxnStatus::Prepared);
    let own = event(Sign::Entry, OWN, 24, TxnStatus::Active);
    assert_eq!(
        decide_events(&viewer, [pending, settled]),
        EventDecision::Wait(FOREIGN)
    );
    assert_eq!(
        decide_events(&viewer, [pending, settled, own]),
        EventDecision::Present
    );
    let strict = Viewer::write(CommitTs::new(2), OWN, true);
    let newer = event(
        Sign::AntiEntry,
        FOREIGN,
        16,
        TxnStatus::Committed(CommitTs::new(3)),
    );
    assert_eq!(decide_events(&strict, [newer, settled]), EventDecision::Conflict);
}
