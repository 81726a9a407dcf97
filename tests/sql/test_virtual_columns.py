"""Virtual columns read from indexes: the same values as InnoDB gives, whoever reads, whatever became of the row meanwhile.

The dangerous case is a read of the index alone that has to look at the row after all: the row does not have the column, and the server
takes it for read.
"""

import pytest

ROWS = 3000
TABLE = (
    "CREATE TABLE t (n INT PRIMARY KEY, a INT, s VARCHAR(40) COLLATE utf8mb4_general_ci, j VARCHAR(200),"
    " plus INT AS (a + 1) VIRTUAL, word VARCHAR(50) COLLATE utf8mb4_general_ci AS (CONCAT('W', s)) VIRTUAL,"
    " dec_v DECIMAL(12,3) AS (a / 8) VIRTUAL, tag VARCHAR(20) AS (JSON_VALUE(j, '$.tag')) VIRTUAL, twice INT AS (plus * 2) VIRTUAL,"
    " KEY plus (plus), KEY plus_a (plus, a), KEY a_plus (a, plus), KEY word (word), KEY dec_v (dec_v DESC), KEY tag (tag, plus), KEY twice (twice),"
    " UNIQUE KEY both_v (plus, n)) ENGINE={engine}"
)
FILL = (
    "INSERT INTO t (n, a, s, j) SELECT seq, IF(seq MOD 13, seq MOD 400, NULL), CONCAT(CHAR(65 + seq MOD 7 + 32 * (seq MOD 2)), seq MOD 50),"
    " CONCAT('{{\"tag\": \"', seq MOD 30, '\"}}') FROM seq_{first}_to_{last}"
)
QUERIES = [
    "SELECT plus FROM t FORCE INDEX (plus) WHERE plus BETWEEN 20 AND 60 ORDER BY plus",
    "SELECT plus, n FROM t FORCE INDEX (plus) WHERE plus > 380 ORDER BY plus DESC, n DESC",
    "SELECT plus, a FROM t FORCE INDEX (plus_a) WHERE plus IN (3, 9, 77) ORDER BY plus, a, n",
    "SELECT a, plus FROM t FORCE INDEX (a_plus) WHERE a < 30 ORDER BY a, plus, n",
    "SELECT word FROM t FORCE INDEX (word) WHERE word LIKE 'wa%' ORDER BY word, n",
    "SELECT dec_v FROM t FORCE INDEX (dec_v) WHERE dec_v < 5 ORDER BY dec_v DESC, n",
    "SELECT tag, plus FROM t FORCE INDEX (tag) WHERE tag = '17' ORDER BY tag, plus, n",
    "SELECT twice FROM t FORCE INDEX (twice) WHERE twice IS NULL OR twice > 700 ORDER BY twice, n",
    "SELECT MIN(plus), MAX(plus), COUNT(plus), SUM(plus) FROM t FORCE INDEX (plus)",
    "SELECT plus, COUNT(*) FROM t FORCE INDEX (plus) GROUP BY plus ORDER BY plus",
    "SELECT DISTINCT tag FROM t FORCE INDEX (tag) ORDER BY tag",
    "SELECT plus, n FROM t FORCE INDEX (both_v) WHERE plus = 100 AND n > 500 ORDER BY n",
    "SELECT x.plus FROM t x FORCE INDEX (plus) JOIN t y FORCE INDEX (plus) ON x.plus = y.plus WHERE y.plus < 4 ORDER BY x.plus",
    "SELECT plus FROM t FORCE INDEX (plus) WHERE plus < 12 ORDER BY plus FOR UPDATE",
    "SELECT word, n FROM t FORCE INDEX (word) WHERE word = 'WB1' ORDER BY n LOCK IN SHARE MODE",
    "SELECT twice FROM t FORCE INDEX (twice) WHERE twice < 20 ORDER BY twice, n FOR UPDATE",
]


@pytest.fixture
def filled(twin):
    """Rows in runs, in the log, changed and deleted since."""
    twin.ok(TABLE)
    twin.ok(FILL.format(first=1, last=ROWS))
    twin.ok("UPDATE t SET a = a + 3 WHERE n MOD 10 = 0")
    twin.ok("DELETE FROM t WHERE n MOD 17 = 5")
    twin.ok(FILL.format(first=ROWS + 1, last=ROWS + 60))
    return twin


def ask(twin):
    for query in QUERIES:
        twin.run(query)


def test_virtual_columns_are_read_from_the_index(filled):
    ask(filled)
    for partner in (filled.under_test, filled.oracle):
        for query in ("SELECT plus FROM t WHERE plus < 50", "SELECT tag, plus FROM t WHERE tag = '3'"):
            assert "Using index" in (partner.rows(f"EXPLAIN {query}")[0][9] or ""), f"{partner.engine}: {query}"


def test_own_changes_are_seen_in_virtual_columns(filled):
    filled.ok("BEGIN")
    filled.ok("UPDATE t SET a = a * 2, s = UPPER(s) WHERE n MOD 9 = 1")
    filled.ok("DELETE FROM t WHERE plus = 21")
    filled.ok(FILL.format(first=9001, last=9100))
    ask(filled)
    filled.ok("ROLLBACK")
    ask(filled)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_has_old_virtual_columns(twin, level):
    twin.ok(TABLE)
    twin.ok(FILL.format(first=1, last=400))
    readers = [partner.session() for partner in (twin.under_test, twin.oracle)]
    plain = [query for query in QUERIES if "FOR UPDATE" not in query and "LOCK IN" not in query]
    for reader in readers:
        reader.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level if level != 'SERIALIZABLE' else 'REPEATABLE READ'}")
        reader.ok("BEGIN")
    before = [[reader.rows(query) for query in plain] for reader in readers]
    assert before[0] == before[1]
    twin.ok("UPDATE t SET a = a + 100, s = CONCAT('z', s), j = '{\"tag\": \"new\"}' WHERE n MOD 3 = 0")
    twin.ok("DELETE FROM t WHERE n MOD 11 = 4")
    after = [[reader.rows(query) for query in plain] for reader in readers]
    assert after[0] == after[1]
    for reader in readers:
        reader.ok("COMMIT")
        reader.close()
    ask(twin)


def test_rows_are_found_changed_and_deleted_by_virtual_columns(filled):
    for statement in (
        "UPDATE t SET s = 'by plus' WHERE plus = 44",
        "UPDATE t SET a = a + 1000 WHERE plus BETWEEN 50 AND 55",
        "DELETE FROM t WHERE twice BETWEEN 100 AND 110",
        "DELETE FROM t WHERE plus = 33",
        "UPDATE t SET a = NULL WHERE word = 'wc2' ORDER BY word, n LIMIT 5",
    ):
        filled.ok(statement)
    filled.same("SELECT * FROM t")
    ask(filled)
    assert filled.under_test.rows("CHECK TABLE t")[-1][3] == "OK"


def test_partitions_give_virtual_columns_from_their_indexes(twin):
    twin.ok(TABLE + " PARTITION BY HASH (n) PARTITIONS 4")
    twin.ok(FILL.format(first=1, last=1000))
    twin.ok("UPDATE t SET a = a + 3 WHERE n MOD 10 = 0")
    ask(twin)


def test_rows_of_parts_come_in_the_order_of_virtual_columns(twin):
    # The server merges rows of parts by their keys, in buffers for which it computes no virtual column.
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, a INT, d INT, g INT AS (a) VIRTUAL, twice INT AS (g * 2) VIRTUAL, KEY g (g), KEY twice (twice DESC, d))"
        " ENGINE={engine} PARTITION BY HASH (n) PARTITIONS 3"
    )
    twin.ok("INSERT INTO t (n, a, d) SELECT seq, seq MOD 4, seq FROM seq_1_to_24")
    under_test = twin.under_test

    def column(query, number=0):
        return [row[number] for row in under_test.rows(query)]

    for moved in (False, True):
        assert column("SELECT g, n FROM t ORDER BY g LIMIT 8") == [0] * 6 + [1] * 2, moved
        assert column("SELECT g, MAX(n) FROM t GROUP BY g") == [0, 1, 2, 3], moved
        assert column("SELECT g, d FROM t FORCE INDEX (g) WHERE g >= 1 ORDER BY g DESC LIMIT 9") == [3] * 6 + [2] * 3, moved
        assert column("SELECT twice, a, d FROM t FORCE INDEX (twice) WHERE twice > 0 ORDER BY twice DESC, d LIMIT 7") == [6] * 6 + [4], moved
        assert column("SELECT d, twice FROM t FORCE INDEX (twice) ORDER BY twice DESC, d LIMIT 3") == [3, 7, 11], moved
        under_test.ok("HANDLER t OPEN")
        assert [column("HANDLER t READ g " + ("NEXT" if at else "FIRST"), 3)[0] for at in range(7)] == [0] * 6 + [1], moved
        under_test.ok("HANDLER t CLOSE")
        under_test.ok("OPTIMIZE TABLE t")
    under_test.ok("DELETE FROM t ORDER BY g LIMIT 6")
    assert column("SELECT DISTINCT g FROM t") == [1, 2, 3]
    under_test.ok("UPDATE t SET d = 0 WHERE g > 0 ORDER BY g LIMIT 6")
    assert column("SELECT g, n FROM t WHERE d = 0 ORDER BY n") == [1] * 6


@pytest.mark.pbxt_only
@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
@pytest.mark.parametrize("cut", ["UPDATE t FOR PORTION OF p FROM '2020-01-05' TO '2020-01-15' SET b = 'q'",
                                 "DELETE FROM t FOR PORTION OF p FROM '2020-01-09' TO '2020-01-10'"])
def test_what_is_left_of_a_period_is_computed_after_its_triggers(db, kind, cut):
    """The server computes before them; an index of InnoDB has keys that its rows have not."""
    db.ok(
        f"CREATE TABLE t (id INT, a INT, b VARCHAR(9), s DATE, e DATE, y INT AS (a % 5) {kind}, PERIOD FOR p (s, e), KEY ky (y)) ENGINE={{engine}}"
    )
    db.ok("INSERT INTO t (id, a, b, s, e) VALUES (1, 5, 'l', '2020-01-08', '2020-01-16')")
    db.ok("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = NEW.a + 1")
    db.ok(cut)
    rows = "SELECT a, y, s, e FROM t {} INDEX (ky) WHERE y = 1 ORDER BY s"
    assert db.rows(rows.format("FORCE")) == db.rows(rows.format("IGNORE"))
    assert db.value("SELECT COUNT(*) FROM t WHERE a = 6 AND y = 1") == db.value("SELECT COUNT(*) FROM t WHERE a = 6") > 0
    assert db.rows("CHECK TABLE t EXTENDED")[-1][-1] == "OK"
