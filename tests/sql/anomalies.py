"""Anomalies of the literature as schedules over two rows, (1, 10) and (2, 20), and what each isolation level is expected to do.

The names are those of Adya (Weak Consistency, 1999, chapters 3 and 4), Berenson et al. (A Critique of ANSI SQL Isolation Levels, 1995:
P4, P4C), Bailis et al. (Highly Available Transactions, 2013: OTV) and Fekete, O'Neil and O'Neil (A Read-Only Transaction Anomaly Under
Snapshot Isolation, 2004). A schedule admits its anomaly if `admitted` is true of its history; the clients follow schedules.py.

EXPECTED follows from the rules of docs/transactions.md. T10: only committed versions are read. Reading committed: one snapshot a
statement, writes judge the newest version after a wait (T22), and rows that do not match are unlocked. Repeatable read: one snapshot,
and a row changed since is error 1020 (T20), or in mode WAIT the newest version counts, as for reading committed, but locks stay.
"""

from collections import namedtuple

Anomaly = namedtuple("Anomaly", "name steps admitted witness")
# Where an anomaly can be seen that this engine never admits: proof that the schedule can show it.
NO_LOCKS, DIRTY_READS = ("MyISAM", "READ COMMITTED"), ("InnoDB", "READ UNCOMMITTED")

# Fetches through a cursor, pauses while connection 3 holds a lock of that name, and writes one more than it has fetched.
PROCEDURES = {
    name: f"CREATE PROCEDURE {name}() BEGIN DECLARE seen INT; DECLARE c CURSOR FOR SELECT v FROM t WHERE n = 1{lock};"
    " OPEN c; FETCH c INTO seen; DO GET_LOCK(DATABASE(), 60); DO RELEASE_LOCK(DATABASE());"
    " UPDATE t SET v = seen + 1 WHERE n = 1; CLOSE c; END"
    for name, lock in (("add_by_cursor", ""), ("add_by_locking_cursor", " FOR UPDATE"))
}


def saw(history, label, *values):
    """True if the labelled step was reached and read one of these values."""
    return bool(set(history.rows(label) or ()) & set(values))


def went_back(history):
    """True if a transaction that had seen the k-th version of a row saw an older one of any row afterwards (versions end in 0, 1, 2)."""
    seen = [history.rows(label) for label in "abcde"]
    versions = [rows[0] % 10 for rows in seen if rows]
    return versions != sorted(versions)


def cursor_steps(procedure):
    """A cursor's row is changed by another transaction before its reader writes it."""
    return (
        "3: DO GET_LOCK(DATABASE(), 60)",
        f"1: CALL {procedure}()",
        "2: UPDATE t SET v = 50 WHERE n = 1",
        "2: COMMIT",
        "3: DO RELEASE_LOCK(DATABASE())",
        "3: COMMIT",
        "1: COMMIT",
    )


def update_was_lost(history):
    """Both cursor and update were committed, and the row is what the cursor saw before the update, and one more."""
    return history.committed(1, 2) and history.end[1] == 11


ANOMALIES = (
    Anomaly(
        "G0, dirty write",
        (
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2: UPDATE t SET v = 12 WHERE n = 1",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "1: UPDATE t SET v = 21 WHERE n = 2",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: h.end[1] % 10 != h.end[2] % 10,
        NO_LOCKS,
    ),
    Anomaly(
        "G1a, read of what is rolled back",
        (
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2 a: SELECT v FROM t WHERE n = 1",
            "1: ROLLBACK",
            "2 b: SELECT v FROM t WHERE n = 1",
            "2: COMMIT",
        ),
        lambda h: saw(h, "a", 11) or saw(h, "b", 11),
        DIRTY_READS,
    ),
    Anomaly(
        "G1b, read of what is not the last",
        (
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2 a: SELECT v FROM t WHERE n = 1",
            "1: UPDATE t SET v = 12 WHERE n = 1",
            "1: COMMIT",
            "2 b: SELECT v FROM t WHERE n = 1",
            "2: COMMIT",
        ),
        lambda h: saw(h, "a", 11) or saw(h, "b", 11),
        DIRTY_READS,
    ),
    Anomaly(
        "G1c, each reads from the other",
        (
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "1 a: SELECT v FROM t WHERE n = 2",
            "2 b: SELECT v FROM t WHERE n = 1",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: saw(h, "a", 22) and saw(h, "b", 11),
        DIRTY_READS,
    ),
    Anomaly(
        "OTV, observed transaction vanishes",
        (
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "1: UPDATE t SET v = 21 WHERE n = 2",
            "2: UPDATE t SET v = 12 WHERE n = 1",
            "1: COMMIT",
            "3 a: SELECT v FROM t WHERE n = 1",
            "3 b: SELECT v FROM t WHERE n = 2",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "3 c: SELECT v FROM t WHERE n = 2",
            "2: COMMIT",
            "3 d: SELECT v FROM t WHERE n = 1",
            "3 e: SELECT v FROM t WHERE n = 2",
            "3: COMMIT",
        ),
        went_back,
        DIRTY_READS,
    ),
    Anomaly(
        "PMP, predicate read",
        (
            "1 a: SELECT n FROM t WHERE v = 30",
            "2: INSERT INTO t VALUES (3, 30)",
            "2: COMMIT",
            "1 b: SELECT n FROM t WHERE v > 25",
            "1: COMMIT",
        ),
        lambda h: h.rows("a") == [] and h.rows("b") == [3],
        None,
    ),
    Anomaly(
        "PMP, predicate write",
        (
            "1: UPDATE t SET v = 30 WHERE n = 2",
            "2: DELETE FROM t WHERE v = 20",
            "1: UPDATE t SET v = 20 WHERE n = 1",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: h.committed(1, 2) and h.end == {1: 20, 2: 30},  # in each serial order one row goes
        None,
    ),
    Anomaly(
        "P4, lost update",
        (
            "1 a: SELECT v FROM t WHERE n = 1",
            "2 b: SELECT v FROM t WHERE n = 1",
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2: UPDATE t SET v = 12 WHERE n = 1",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: h.committed(1, 2) and h.rows("a") == h.rows("b") == [10],
        None,
    ),
    Anomaly("P4C, lost update of a cursor", cursor_steps("add_by_cursor"), update_was_lost, None),
    Anomaly("P4C, cursor FOR UPDATE", cursor_steps("add_by_locking_cursor"), update_was_lost, NO_LOCKS),
    Anomaly(
        "G-single, read skew",
        (
            "1 a: SELECT v FROM t WHERE n = 1",
            "2: UPDATE t SET v = 12 WHERE n = 1",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "2: COMMIT",
            "1 b: SELECT v FROM t WHERE n = 2",
            "1: COMMIT",
        ),
        lambda h: h.rows("a") == [10] and h.rows("b") == [22],
        None,
    ),
    Anomaly(
        "G-single, by predicates",
        (
            "1 a: SELECT n FROM t WHERE v < 15",
            "2: UPDATE t SET v = 16 WHERE n = 1",
            "2: COMMIT",
            "1 b: SELECT n FROM t WHERE v >= 15",
            "1: COMMIT",
        ),
        lambda h: saw(h, "a", 1) and saw(h, "b", 1),
        None,
    ),
    Anomaly(
        "G-single, with a write",
        (
            "1 a: SELECT v FROM t WHERE n = 1",
            "2: UPDATE t SET v = 12 WHERE n = 1",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "2: COMMIT",
            "1: DELETE FROM t WHERE v = 20",
            "1: COMMIT",
        ),
        lambda h: h.committed(1, 2) and h.rows("a") == [10] and h.end == {1: 12, 2: 22},
        None,
    ),
    Anomaly(
        "G2-item, write skew",
        (
            "1 a: SELECT v FROM t WHERE n IN (1, 2) ORDER BY n",
            "2 b: SELECT v FROM t WHERE n IN (1, 2) ORDER BY n",
            "1: UPDATE t SET v = 11 WHERE n = 1",
            "2: UPDATE t SET v = 22 WHERE n = 2",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: h.committed(1, 2) and h.rows("a") == h.rows("b") == [10, 20],
        None,
    ),
    Anomaly(
        "G2, write skew by predicates",
        (
            "1 a: SELECT n FROM t WHERE v % 3 = 0",
            "2 b: SELECT n FROM t WHERE v % 3 = 0",
            "1: INSERT INTO t VALUES (3, 30)",
            "2: INSERT INTO t VALUES (4, 42)",
            "1: COMMIT",
            "2: COMMIT",
        ),
        lambda h: h.committed(1, 2) and h.rows("a") == h.rows("b") == [],
        None,
    ),
    Anomaly(
        "anomaly of a read-only transaction",
        (
            "2 a: SELECT v FROM t ORDER BY n",
            "1: UPDATE t SET v = 40 WHERE n = 2",
            "1: COMMIT",
            "3 c: SELECT v FROM t ORDER BY n",
            "3: COMMIT",
            "2: UPDATE t SET v = -30 WHERE n = 1",
            "2: COMMIT",
        ),
        # 2 is before 1, which it did not see; 1 is before 3; and 3 is before 2.
        lambda h: h.committed(1, 2, 3) and h.rows("a") == [10, 20] and h.rows("c") == [10, 40],
        None,
    ),
)

# Level and conflict mode (None: both do the same). Serializable prevents all, by whatever it likes.
COLUMNS = (
    ("READ UNCOMMITTED", None),
    ("READ COMMITTED", None),
    ("REPEATABLE READ", "ERROR"),
    ("REPEATABLE READ", "WAIT"),
    ("SERIALIZABLE", None),
)
EXPECTED = {
    "G0, dirty write": ("waits", "waits", "1020", "waits", "prevented"),
    "G1a, read of what is rolled back": ("values", "values", "values", "values", "prevented"),
    "G1b, read of what is not the last": ("values", "values", "values", "values", "prevented"),
    "G1c, each reads from the other": ("values", "values", "values", "values", "prevented"),
    "OTV, observed transaction vanishes": ("waits", "waits", "1020", "waits", "prevented"),
    "PMP, predicate read": ("admitted", "admitted", "values", "values", "prevented"),
    "PMP, predicate write": ("admitted", "admitted", "1020", "1213", "prevented"),
    "P4, lost update": ("admitted", "admitted", "1020", "admitted", "prevented"),
    "P4C, lost update of a cursor": ("admitted", "admitted", "1020", "admitted", "prevented"),
    "P4C, cursor FOR UPDATE": ("waits", "waits", "1020", "waits", "prevented"),
    "G-single, read skew": ("admitted", "admitted", "values", "values", "prevented"),
    "G-single, by predicates": ("admitted", "admitted", "values", "values", "prevented"),
    "G-single, with a write": ("admitted", "admitted", "1020", "admitted", "prevented"),
    "G2-item, write skew": ("admitted", "admitted", "admitted", "admitted", "prevented"),
    "G2, write skew by predicates": ("admitted", "admitted", "admitted", "admitted", "prevented"),
    "anomaly of a read-only transaction": ("admitted", "admitted", "admitted", "admitted", "prevented"),
}
