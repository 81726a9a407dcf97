"""Extended keys: behind the columns of an index that is not unique stand those of the primary key (rules X40 to X47).

InnoDB in the same server has them too and is the oracle: of answers, of what EXPLAIN says of an index (its name, bytes of the key used,
whether it answers alone), and of how many rows the server asked for. Rows are inserted in another order than that of primary keys, so
that an index that gives rows in the order of their insertion is found out.
"""

import json

import pytest

ROWS = 4000
COLUMNS = "id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT, c VARCHAR(20), u INT, pad VARCHAR(200)"
KEYS = "KEY a (a), KEY b (b, c), KEY c (c), UNIQUE KEY u (u), KEY au (a, u), KEY part (pad(5)), KEY pa (id, a)"
# 3001 has no factor in common with 4000: ids come in a random-looking order.
FILL = (
    "INSERT INTO t SELECT seq * 3001 MOD {rows} + 1, seq MOD 40, IF(seq MOD 9 = 0, NULL, seq MOD 25), CONCAT('c', seq MOD 13),"
    " IF(seq MOD 3 = 0, seq, NULL), CONCAT('p', seq MOD 7, REPEAT('x', 150)) FROM seq_1_to_{rows}"
)

# What an index with the primary key behind it does better. EXPLAIN has to name the same index, bytes of the key and use of it alone.
EXTENDED = [
    "SELECT id FROM t WHERE a = 7",
    "SELECT id, a FROM t WHERE a = 7 AND id > 2000",
    "SELECT id FROM t WHERE a = 7 AND id BETWEEN 100 AND 900",
    "SELECT pad FROM t WHERE a = 7 AND id > 3900",
    "SELECT pad FROM t WHERE a = 7 ORDER BY id DESC LIMIT 3",
    "SELECT id, pad FROM t WHERE b = 3 AND c = 'c5' ORDER BY id LIMIT 4",
    "SELECT id FROM t WHERE b IS NULL AND c = 'c5' ORDER BY id DESC LIMIT 4",
    "SELECT MIN(id), MAX(id) FROM t WHERE a = 7",
    "SELECT a, MAX(id) FROM t GROUP BY a",
    "SELECT a, MIN(id) FROM t GROUP BY a",
    "SELECT COUNT(*) FROM t WHERE c = 'c5' AND id < 50",
    "SELECT c, id FROM t WHERE c IN ('c5', 'c7') AND id IN (1, 17, 300, 3999)",
    "SELECT c, id FROM t FORCE INDEX (c) ORDER BY c, id LIMIT 30",
    "SELECT c, id FROM t FORCE INDEX (c) ORDER BY c DESC, id DESC LIMIT 30",
    "SELECT pad FROM t WHERE a = 7 AND id = 18",
    "SELECT x.id, y.id FROM t x JOIN t y ON y.a = x.a AND y.id = x.id + 40 WHERE x.id < 30",
    "SELECT DISTINCT a, id FROM t WHERE a < 3",
]

# Answers have to agree, whatever the plan.
ANSWERS = [
    "SELECT id, u FROM t WHERE u IS NULL ORDER BY id LIMIT 20",
    "SELECT id FROM t FORCE INDEX (u) WHERE u IS NULL ORDER BY id LIMIT 20",
    "SELECT u, id FROM t FORCE INDEX (u) ORDER BY u, id LIMIT 40",
    "SELECT id FROM t FORCE INDEX (u) WHERE u = 300",
    "SELECT id FROM t FORCE INDEX (u) WHERE u BETWEEN 300 AND 400 ORDER BY u",
    "SELECT id FROM t FORCE INDEX (part) WHERE pad LIKE 'p3%' ORDER BY id LIMIT 20",
    "SELECT id, a, u FROM t FORCE INDEX (au) WHERE a = 3 ORDER BY u, id",
    "SELECT id FROM t WHERE a = 7 AND c = 'c5' ORDER BY id",
    "SELECT id, pad FROM t WHERE a = 7 OR b = 3 ORDER BY id",
    "SELECT id, pad FROM t WHERE a = 7 OR u = 300 ORDER BY id",
    "SELECT id, pad FROM t WHERE a = 7 OR u IS NULL ORDER BY id",
    "SELECT id, pad FROM t WHERE a = 7 OR id = 5 OR c = 'c3' ORDER BY id",
    "SELECT id FROM t WHERE (a = 7 AND c = 'c5') OR (a = 8 AND b = 3) ORDER BY id",
    "SELECT a, b, pad FROM t ORDER BY pad, id LIMIT 50",
    "SELECT a, COUNT(DISTINCT id), MAX(id) FROM t WHERE a < 5 GROUP BY a",
]


def fill(database, columns=COLUMNS, keys=KEYS, rows=ROWS):
    """The module's table, its rows in runs."""
    database.ok(f"CREATE TABLE t ({columns}, {keys}) ENGINE={database.engine}")
    database.ok(FILL.format(rows=rows))
    database.rows("ANALYZE TABLE t")


def disturb(twin):
    """Some rows that are newer than the runs, deleted, or under another key."""
    twin.ok("DELETE FROM t WHERE id MOD 17 = 3")
    twin.ok("UPDATE t SET a = a + 1 WHERE id MOD 19 = 5")
    twin.ok("UPDATE t SET id = id + 10000 WHERE id MOD 23 = 7")
    twin.ok("INSERT INTO t SELECT seq + 20000, seq MOD 40, 3, 'c5', NULL, 'p3' FROM seq_1_to_200")


@pytest.fixture
def pair(twin):
    """The table in both engines."""
    for database in (twin.under_test, twin.oracle):
        fill(database)
    return twin


def used(session, query):
    """Of each line of EXPLAIN: access, index, bytes of the key, and whether the index answers alone."""
    lines = session.rows("EXPLAIN " + query)
    return [(row[3], row[5], row[6], "Using index" in (row[9] or "").replace("Using index condition", "")) for row in lines]


def key_parts(session, query):
    """used_key_parts of every table of EXPLAIN FORMAT=JSON."""
    found = []

    def walk(node):
        if isinstance(node, dict):
            found.extend([tuple(node["used_key_parts"])] if "used_key_parts" in node else [])
            node = list(node.values())
        for child in node if isinstance(node, list) else []:
            walk(child)

    walk(json.loads(session.value("EXPLAIN FORMAT=JSON " + query)))
    return found


def rows_read(session, query):
    """Rows that the server asked the engine for."""
    session.ok("FLUSH STATUS")
    session.rows(query)
    return sum(int(value) for _, value in session.rows("SHOW SESSION STATUS LIKE 'Handler_read_%'"))


def test_plans_and_rows_read_are_those_of_innodb(pair):
    """Rules X40, X45, X46."""
    differences = []
    for query in EXTENDED:
        mine, theirs = used(pair.under_test, query), used(pair.oracle, query)
        parts = key_parts(pair.under_test, query), key_parts(pair.oracle, query)
        reads = rows_read(pair.under_test, query), rows_read(pair.oracle, query)
        if mine != theirs or parts[0] != parts[1] or reads[0] > reads[1] + 1:
            differences.append(f"{query}\n    {mine} {parts[0]} {reads[0]} rows\n    {theirs} {parts[1]} {reads[1]} rows")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("switch", ["extended_keys=on", "extended_keys=off", "index_merge_sort_intersection=on", "mrr=on"])
def test_answers_are_those_of_innodb(pair, switch):
    """Rules X40, X42, X44, from runs and from trees."""
    pair.ok(f"SET optimizer_switch = '{switch}'")
    for is_disturbed in (False, True):
        if is_disturbed:
            disturb(pair)
        for query in EXTENDED + ANSWERS:
            pair.run(query, ordered="ORDER BY" in query)
    assert pair.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


# Scans merged by row reference, which has to be in the order of rows under a key: statement and words of EXPLAIN.
MERGED = [
    ("SELECT COUNT(*), SUM(id), SUM(a) FROM m FORCE INDEX (a, c) WHERE a = 7 AND c = 4", "intersect"),
    ("SELECT id, pad FROM m FORCE INDEX (a, c) WHERE a = 7 AND c = 4 ORDER BY pad, id", "intersect"),
    ("SELECT id, pad FROM m FORCE INDEX (a, c) WHERE a = 7 OR c = 4 ORDER BY pad, id", "union"),
    ("SELECT id, a, c FROM m FORCE INDEX (a, c) WHERE a = 7 AND c = 4 ORDER BY -a, c + id", "intersect"),
    ("SELECT id, pad FROM m FORCE INDEX (PRIMARY, a) WHERE id = 12 OR a = 7 ORDER BY pad, id", "union"),
]


def test_scans_merged_by_reference_give_each_row_once(twin):
    """Some of the merged scans are those of clones, one is the table's own; what is sorted afterwards is referred to again."""
    twin.ok("CREATE TABLE m (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, c INT NOT NULL, pad VARCHAR(2000), KEY a (a), KEY c (c))")
    twin.ok("INSERT INTO m SELECT seq * 3001 MOD 8000 + 1, seq MOD 10, seq MOD 9, CONCAT('p', seq MOD 7, REPEAT('x', 900)) FROM seq_1_to_8000")
    for database in (twin.under_test, twin.oracle):
        database.rows("ANALYZE TABLE m")
    for query, words in MERGED:
        twin.run(query)
        assert words in twin.under_test.rows("EXPLAIN " + query)[0][9], query
    twin.ok("CREATE TABLE f (a INT, c INT)")
    twin.ok("INSERT INTO f VALUES (7, 4), (3, 3), (NULL, 2), (5, NULL), (7, 4)")
    twin.same("SELECT f.a, m.id FROM f JOIN m ON m.a <= f.a AND m.c <= f.c WHERE m.id < 3000")
    for switch in ("materialization=off,firstmatch=off,loosescan=off", "default"):
        twin.ok(f"SET optimizer_switch = '{switch}'")
        twin.same("SELECT id FROM m WHERE (a, c) IN (SELECT a, c FROM f)")
        twin.same("SELECT f.a FROM f WHERE f.a IN (SELECT m.a FROM m WHERE m.a = 7 AND m.c = 4)")
    twin.ok("DELETE m FROM m JOIN f ON m.a = f.a AND m.c = f.c")
    twin.ok("UPDATE m FORCE INDEX (a, c) SET a = a + 1, pad = 'new' WHERE a = 6 AND c = 4")
    twin.ok("DELETE FROM m WHERE a = 2 OR c = 8 ORDER BY pad, id LIMIT 300")
    twin.same_table("m")
    assert twin.under_test.rows("CHECK TABLE m EXTENDED")[0][3] == "OK"


def test_check_finds_nothing_after_changes_of_the_primary_key(pair):
    """Rule X42: entries of all extended indexes move."""
    pair.ok("UPDATE t SET id = -id WHERE a = 7")
    pair.ok("UPDATE t SET id = id + 5000, a = 3 WHERE a = 9 AND id MOD 2 = 0")
    pair.fails("UPDATE t SET id = 5 WHERE id = 6", 1062)
    pair.run("SELECT id, c FROM t WHERE a = 7 ORDER BY id")
    pair.run("SELECT id FROM t FORCE INDEX (a) WHERE a = 3 AND id > 5000 ORDER BY id DESC")
    assert pair.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"
    pair.ok("BEGIN")
    pair.ok("UPDATE t SET id = id + 100000 WHERE a < 20")
    pair.run("SELECT id FROM t WHERE a = 7 AND id > 99000 ORDER BY id")
    pair.ok("ROLLBACK")
    pair.run("SELECT id FROM t WHERE a = 7 ORDER BY id")
    pair.same_table("t")


def test_a_statement_that_moves_what_it_scans_meets_each_row_once(pair):
    """The scan is in the order of what it changes."""
    pair.ok("UPDATE t FORCE INDEX (a) SET id = id + 10000 WHERE a = 7 AND id > 0")
    pair.ok("UPDATE t FORCE INDEX (a) SET id = id + 10000 WHERE a = 8 ORDER BY id DESC LIMIT 20")
    pair.ok("DELETE FROM t WHERE a = 9 ORDER BY id DESC LIMIT 5")
    pair.ok("UPDATE t x JOIN t y ON y.a = x.a AND y.id = x.id SET x.id = x.id + 50000 WHERE x.a = 11")
    pair.ok("DELETE x FROM t x JOIN t y ON y.id = x.id WHERE y.a = 12 AND x.id < 2000")
    pair.same_table("t")
    assert pair.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


@pytest.mark.parametrize(
    "primary",
    ["id", "a, id", "id, a", "id DESC", "c, id", "a DESC, id", "id, c"],
)
def test_any_primary_key(twin, primary):
    """Composite, descending, partly in the index, with a text of one case for all: entries give back what was stored."""
    for database in (twin.under_test, twin.oracle):
        database.ok(
            "CREATE TABLE t (id INT NOT NULL, a INT NOT NULL, b INT, c VARCHAR(20) NOT NULL, u INT, pad VARCHAR(200),"
            f" PRIMARY KEY ({primary}), KEY a (a), KEY b (b, c), KEY c (c), UNIQUE KEY u (u), KEY au (a, u)) ENGINE={database.engine}"
        )
        database.ok(FILL.format(rows=ROWS))
        database.ok("UPDATE t SET c = CONCAT(c, IF(id MOD 2, 'Ä', 'a '))")
        database.rows("ANALYZE TABLE t")
    for query in [*EXTENDED, *ANSWERS, "SELECT a, c, HEX(c), id FROM t FORCE INDEX (a) WHERE a = 7 ORDER BY id"]:
        if "part" not in query:
            twin.run(query, ordered="ORDER BY" in query and "LIMIT" not in query)
    twin.ok("UPDATE t SET c = UPPER(c) WHERE a < 10")
    twin.run("SELECT HEX(c), id FROM t FORCE INDEX (a) WHERE a = 7 ORDER BY id")
    assert twin.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


@pytest.mark.parametrize(
    "collation",
    ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "latin1_swedish_ci", "utf8mb4_bin", "utf8mb4_unicode_nopad_ci"],
)
def test_a_primary_key_of_text_comes_back_as_it_was_written(twin, collation):
    """Rule X46: weights do not say upper from lower case, entries do."""
    charset = collation.split("_", maxsplit=1)[0]
    name = f"name VARCHAR(30) CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY"
    twin.ok(f"CREATE TABLE t ({name}, a INT, b INT, KEY a (a), KEY b (b))")
    twin.ok("INSERT INTO t SELECT CONCAT(IF(seq MOD 2, 'Key', 'kEY'), seq * 7919 MOD 3000), seq MOD 20, seq MOD 7 FROM seq_1_to_3000")
    twin.ok("UPDATE t SET name = LOWER(name) WHERE a = 3")
    for query in (
        "SELECT a, HEX(name) FROM t WHERE a IN (2, 3)",
        "SELECT MAX(name), MIN(name) FROM t WHERE a = 3",
        "SELECT name FROM t WHERE a = 3 AND b = 4",
        "SELECT name FROM t WHERE a = 3 OR b = 4",
        "SELECT name FROM t WHERE a = 5 AND name > 'KEY2' ORDER BY name",
    ):
        twin.run(query, ordered="ORDER BY" in query)
        assert used(twin.under_test, "SELECT a, name FROM t WHERE a = 3")[0][3], "the index answers alone"


def test_prefixes_and_tables_without_a_primary_key_are_not_extended(twin):
    """Rule X40: what is not there whole cannot be given back."""
    for name, primary in (("p", ", PRIMARY KEY (c(3), id)"), ("q", ", PRIMARY KEY (id, c(3))"), ("n", ""), ("k", ", UNIQUE KEY k (id)")):
        twin.ok(f"CREATE TABLE {name} (id INT NOT NULL, a INT, c VARCHAR(50), KEY a (a){primary})")
        twin.ok(f"INSERT INTO {name} SELECT seq * 3001 MOD 4000, seq MOD 40, CONCAT('c', seq MOD 500, 'text') FROM seq_1_to_4000")
        twin.run(f"SELECT c, id FROM {name} WHERE a = 7 ORDER BY id")
        twin.run(f"SELECT id FROM {name} WHERE a = 7 AND id > 2000 ORDER BY id DESC")
        query = f"SELECT id FROM {name} WHERE a = 7"
        assert name == "p" or used(twin.under_test, query) == used(twin.oracle, query), name
    assert [row[3] for row in used(twin.under_test, "SELECT id FROM p WHERE a = 7")] == [False]


def test_adding_and_dropping_the_primary_key_makes_other_indexes(twin):
    """DDL copies the table; what EXPLAIN shows follows."""
    twin.ok("CREATE TABLE t (id INT NOT NULL, a INT, b INT, KEY a (a))")
    twin.ok("INSERT INTO t SELECT seq * 3001 MOD 4000, seq MOD 40, seq FROM seq_1_to_4000")
    query = "SELECT id FROM t WHERE a = 7"
    for statement, alone in (
        ("ADD PRIMARY KEY (id)", True),
        ("DROP PRIMARY KEY", False),
        ("ADD PRIMARY KEY (id, b)", True),
        ("RENAME COLUMN id TO no", None),
    ):
        for database in (twin.under_test, twin.oracle):
            database.ok(f"ALTER TABLE t {statement}")
        if alone is None:
            query = query.replace("id", "no")
        assert used(twin.under_test, query)[0][3] == (alone is not False), statement
        twin.same(query)
        assert twin.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


def test_foreign_keys_go_by_the_declared_columns(twin):
    """Rule X41: an index is found and used by what it was declared with."""
    twin.ok("CREATE TABLE p (id INT NOT NULL PRIMARY KEY, code INT NOT NULL, KEY code (code))")
    twin.ok(
        "CREATE TABLE c (no INT NOT NULL PRIMARY KEY, p INT, code INT, KEY p (p),"
        " FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    twin.ok("INSERT INTO p SELECT seq, seq MOD 5 FROM seq_1_to_50")
    twin.ok("INSERT INTO c SELECT 1000 - seq, seq MOD 50 + 1, seq FROM seq_1_to_500")
    twin.fails("INSERT INTO c VALUES (5000, 77, 1)", 1452)
    twin.ok("DELETE FROM p WHERE id = 7")
    twin.ok("UPDATE p SET id = id + 100 WHERE code = 3")
    twin.same_table("c")
    twin.same_table("p")
    assert twin.under_test.rows("CHECK TABLE c EXTENDED")[0][3] == "OK"


def test_partitions(twin):
    """Each partition has its own rows and references; they are merged in the order of the key."""
    twin.ok("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT, KEY a (a), KEY b (b)) PARTITION BY HASH (id) PARTITIONS 4")
    twin.ok("INSERT INTO t SELECT seq * 3001 MOD 4000, seq MOD 40, seq MOD 25 FROM seq_1_to_4000")
    for query in (
        "SELECT id FROM t WHERE a = 7 ORDER BY id",
        "SELECT id FROM t WHERE a = 7 AND id > 3000 ORDER BY id DESC",
        "SELECT id FROM t WHERE a = 7 AND b = 3 ORDER BY id",
        "SELECT id FROM t WHERE a = 7 OR b = 3 ORDER BY id",
        "SELECT a, MAX(id) FROM t GROUP BY a",
    ):
        twin.run(query)
    twin.ok("UPDATE t SET id = id + 4001 WHERE a = 7 ORDER BY id DESC")
    twin.same_table("t")


def test_unique_over_long_values_and_virtual_columns(twin):
    """Such indexes have no columns of the primary key to give."""
    twin.ok(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, body TEXT, a INT, v INT AS (a + 1) VIRTUAL,"
        " UNIQUE KEY body (body), KEY v (v), KEY a (a))"
    )
    twin.ok("INSERT INTO t (id, body, a) SELECT seq * 3001 MOD 4000, CONCAT('body', seq), seq MOD 40 FROM seq_1_to_4000")
    twin.fails("INSERT INTO t (id, body, a) VALUES (9999, 'body7', 1)", 1062)
    for query in (
        "SELECT id FROM t WHERE body = 'body77'",
        "SELECT id, v FROM t WHERE v = 8 ORDER BY id",
        "SELECT id FROM t WHERE a = 7 AND v = 8 ORDER BY id",
    ):
        twin.run(query)
    twin.ok("REPLACE INTO t (id, body, a) VALUES (9999, 'body7', 1)")
    twin.same_table("t")


PARTITIONED_KEYS = KEYS.replace("UNIQUE KEY u", "KEY u")


@pytest.fixture
def parted(twin):
    """The table in both engines, in five partitions, without its unique index."""
    for database in (twin.under_test, twin.oracle):
        database.ok(f"CREATE TABLE t ({COLUMNS}, {PARTITIONED_KEYS}) ENGINE={database.engine} PARTITION BY HASH (id) PARTITIONS 5")
        database.ok(FILL.format(rows=ROWS))
        database.rows("ANALYZE TABLE t")
    return twin


def test_indexes_of_partitioned_tables_answer_for_the_primary_key(parted):
    """Rule X40: the server does not say so of partitions, but reads them so."""
    for query in ("SELECT id FROM t WHERE a = 7", "SELECT id, a FROM t WHERE a IN (3, 7) AND id > 2000", "SELECT MAX(id) FROM t WHERE b = 3 AND c = 'c5'",
                  "SELECT id FROM t WHERE c LIKE 'c1%' AND id MOD 3 = 1", "SELECT a, id FROM t FORCE INDEX (a) ORDER BY a, id"):  # fmt: skip
        mine, theirs = used(parted.under_test, query), used(parted.oracle, query)
        assert mine[0][3] and mine[0][1] == theirs[0][1] and theirs[0][3], f"{query}\n    {mine}\n    {theirs}"


@pytest.mark.parametrize("switch", ["extended_keys=on", "index_merge_sort_intersection=on"])
def test_answers_of_partitioned_tables_are_those_of_innodb(parted, switch):
    parted.ok(f"SET optimizer_switch = '{switch}'")
    for is_disturbed in (False, True):
        if is_disturbed:
            disturb(parted)
        for query in EXTENDED + ANSWERS:
            parted.run(query, ordered="ORDER BY" in query)
    assert parted.under_test.rows("CHECK TABLE t EXTENDED")[0][3] == "OK"


def test_partitions_with_extended_keys_become_tables_and_back(parted):
    for database in (parted.under_test, parted.oracle):
        database.ok(f"CREATE TABLE e ({COLUMNS}, {PARTITIONED_KEYS}) ENGINE={database.engine}")
        database.ok("INSERT INTO e SELECT * FROM t PARTITION (p1) WHERE id > 100")
        database.ok("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE e")
        database.ok("ALTER TABLE t ADD KEY ca (c, a)")
        database.ok("ALTER TABLE t ADD COLUMN more INT, ALGORITHM=INSTANT")
    for query in (*EXTENDED, *ANSWERS, "SELECT id, c FROM t WHERE c = 'c5' AND a = 7 ORDER BY id", "SELECT COUNT(*), MIN(id) FROM t WHERE c = 'c5'"):
        parted.run(query, ordered="ORDER BY" in query)
        parted.run(query.replace("FROM t", "FROM e"), ordered="ORDER BY" in query) if " JOIN " not in query and "more" not in query else None
    for table in ("t", "e"):
        assert parted.under_test.rows(f"CHECK TABLE {table} EXTENDED")[0][3] == "OK"
