"""ALTER TABLE that builds an index in place: the table is that of InnoDB, readers go on, and what fails leaves nothing (docs/alter.md, AL17 to AL31)."""

import time

import pytest
from cross_engine import kill
from sql_tools import Session, wait_for
from test_instant_alter import healthy, prepare, same_definition, shown

pytestmark = pytest.mark.pbxt_only

IN_PLACE = "ALGORITHM=NOCOPY, LOCK=SHARED"
BUILT = [
    "ADD KEY x (d)", "ADD KEY x (s, v)", "ADD KEY x (c)", "ADD KEY x (c(3), d)", "ADD KEY x (b(30))", "ADD KEY x (w DESC, v)", "ADD KEY x (d) IGNORED",
    "ADD UNIQUE x (s)", "ADD UNIQUE x (d)", "ADD UNIQUE x (c, v)", "ADD UNIQUE x (w(10))", "ADD KEY x (d), ADD KEY y (c), ADD UNIQUE z (s)",
    "ADD KEY x (d), DROP KEY k", "ADD KEY x (d), RENAME KEY k TO kk, ALTER COLUMN d SET DEFAULT 4", "ADD KEY x (d), RENAME COLUMN c TO cc, COMMENT 'more'",
]  # fmt: skip
OF_THE_NAME = [
    "DROP KEY k, ADD KEY k (d)", "DROP KEY k, ADD KEY k (v, d)", "DROP KEY k, ADD KEY k (v DESC)", "DROP KEY k, ADD UNIQUE k (v, n)",
    "DROP KEY k, ADD KEY k (c(3), v)", "RENAME KEY k TO kk, ADD KEY k (d)", "DROP KEY k, DROP KEY u, ADD KEY k (d), ADD UNIQUE u (w(20), n)",
    "DROP KEY k, ADD KEY k (d), RENAME COLUMN s TO ss, COMMENT 'more'",
]  # fmt: skip
COPIED = {
    "ADD COLUMN x INT, ADD KEY x (d)": "columns change",
    "ADD KEY x (g)": "",
    "MODIFY n INT NOT NULL, DROP PRIMARY KEY, DROP KEY k, ADD PRIMARY KEY (s)": "PRIMARY",
}
INDEXES = "SELECT index_name, seq_in_index, column_name, non_unique FROM information_schema.statistics WHERE table_schema = DATABASE()"
PROGRESS = "SELECT stage, max_stage, progress FROM information_schema.processlist WHERE id = {}"


@pytest.mark.parametrize("change", BUILT)
def test_what_is_built_in_place_gives_the_table_of_innodb(twin, change):
    prepare(twin)
    assert twin.under_test.affected(f"ALTER TABLE t {change}, {IN_PLACE}") == 0
    twin.oracle.ok(f"ALTER TABLE t {change}")
    twin.same_table("t")
    same_definition(twin)
    asked = "SELECT n, d, s FROM t FORCE INDEX (x) WHERE d > 100 AND s < -50"
    twin.same(asked)
    twin.run("SELECT MIN(d), MAX(d), MIN(s), COUNT(DISTINCT d) FROM t")
    healthy(twin.under_test)
    twin.run("INSERT INTO t (n, w, s, d, v) VALUES (70000, 'after', 12, 70000, 3), (70001, 'more', 12, 70000, 4)")
    twin.run("INSERT INTO t (n, w, s, d) VALUES (70002, 'third', 13, 70002)")
    twin.ok("UPDATE t SET d = d + 100000, s = s - 9000 WHERE n % 13 = 1")
    twin.ok("DELETE FROM t WHERE n % 19 = 2")
    twin.same(asked)
    twin.same_table("t")
    healthy(twin.under_test)


@pytest.mark.parametrize("change", OF_THE_NAME)
def test_an_index_that_gets_other_columns_under_its_name_is_built(twin, change):
    prepare(twin)
    assert twin.under_test.affected(f"ALTER TABLE t {change}, {IN_PLACE}") == 0
    twin.oracle.ok(f"ALTER TABLE t {change}")
    same_definition(twin)
    asked = "SELECT n, d, v FROM t FORCE INDEX (k) WHERE {} ORDER BY n"
    for condition in ("d > 100", "v = 5", "v > 3 AND d > 50", "c = 'c20'"):
        twin.same(asked.format(condition))
    twin.ok("UPDATE t SET d = d + 100000, v = v + 1 WHERE n % 13 = 1")
    twin.ok("DELETE FROM t WHERE n % 19 = 2")
    for condition in ("d > 100", "v = 5"):
        twin.same(asked.format(condition))
    twin.same_table("t")
    healthy(twin.under_test)


def test_an_index_that_a_constraint_needs_may_be_built_anew(twin):
    twin.ok("CREATE TABLE p (n INT PRIMARY KEY, u INT, z INT, UNIQUE k (u)) ENGINE={engine}")
    twin.ok("CREATE TABLE c (n INT PRIMARY KEY, v INT, z INT, KEY k (v), CONSTRAINT f FOREIGN KEY (v) REFERENCES p (u) ON UPDATE CASCADE) ENGINE={engine}")
    twin.ok("INSERT INTO p VALUES (1, 10, 1), (2, 20, 2)")
    twin.ok("INSERT INTO c VALUES (1, 10, 1), (2, 20, 2)")
    for table, column in (("p", "u"), ("c", "v")):
        twin.ok(f"ALTER TABLE {table} DROP KEY k, ADD KEY k ({column}, z), ALGORITHM=NOCOPY")
        twin.fails(f"ALTER TABLE {table} DROP KEY k, ADD KEY k (z, {column})", 1553)
    twin.ok("UPDATE p SET u = u + 1")
    twin.fails("INSERT INTO c VALUES (3, 10, 1)", 1452)
    twin.same_table("c")
    healthy(twin.under_test, "p")
    healthy(twin.under_test, "c")


def test_periods_that_overlap_are_looked_for_by_a_copy(twin):
    twin.ok("CREATE TABLE t (n INT, f DATE, u DATE, PERIOD FOR p (f, u)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, '2020-01-01', '2020-03-01'), (1, '2020-02-01', '2020-04-01')")
    said = twin.under_test.fails("ALTER TABLE t ADD UNIQUE x (n, p WITHOUT OVERLAPS), ALGORITHM=NOCOPY", 1846)
    assert "overlap" in said, said
    twin.fails("ALTER TABLE t ADD UNIQUE x (n, p WITHOUT OVERLAPS)", 1062)
    twin.same_table("t")


@pytest.mark.parametrize("change", COPIED)
def test_what_is_not_built_in_place_is_refused_with_a_reason_and_copied(twin, change):
    prepare(twin, 200)
    twin.ok("ALTER TABLE t ADD COLUMN g INT AS (v + 1) VIRTUAL")
    said = twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=INPLACE", 1846)
    assert COPIED[change] in said, said
    for side in (twin.under_test, twin.oracle):
        side.ok(f"ALTER TABLE t {change}")
    twin.same_table("t")
    healthy(twin.under_test)


def test_a_primary_key_is_made_by_a_copy(twin):
    twin.ok("CREATE TABLE t (n INT NOT NULL, a INT) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT 301 - seq, seq % 7 FROM seq_1_to_300")
    assert "order of the primary key" in twin.under_test.fails("ALTER TABLE t ADD PRIMARY KEY (n), ALGORITHM=INPLACE", 1846)
    for side in (twin.under_test, twin.oracle):
        side.ok("ALTER TABLE t ADD PRIMARY KEY (n)")
        side.ok("ALTER TABLE t ADD KEY a (a)")
    twin.same("SELECT a, n FROM t FORCE INDEX (a) WHERE a = 3 AND n > 100")
    healthy(twin.under_test)


def test_an_index_is_built_with_any_lock_and_never_at_once(db):
    prepare(db, 100)
    for number, lock in enumerate(("NONE", "SHARED", "EXCLUSIVE", "DEFAULT")):
        assert db.affected(f"ALTER TABLE t ADD KEY x{number} (d), ALGORITHM=NOCOPY, LOCK={lock}") == 0
    assert "build an index" in db.fails("ALTER TABLE t ADD KEY x (d), ALGORITHM=INSTANT", 1846)
    assert "IGNORE" in db.fails("ALTER IGNORE TABLE t ADD UNIQUE x (v), ALGORITHM=INPLACE", 1846)
    db.ok("ALTER IGNORE TABLE t ADD UNIQUE x (v)")
    healthy(db)


def test_create_index_builds_in_place(twin):
    prepare(twin)
    for statement in ("CREATE INDEX x ON t (c, d)", "CREATE UNIQUE INDEX y ON t (s) ALGORITHM=INPLACE LOCK=SHARED"):
        twin.ok(statement)  # 0 rows are affected, as in InnoDB
    same_definition(twin)
    healthy(twin.under_test)


DUPLICATES = {
    "ADD UNIQUE x (a)": "UPDATE t SET a = 7 WHERE n IN (20, 3000)",
    "ADD UNIQUE x (w)": "UPDATE t SET w = 'twice' WHERE n IN (20, 3000)",
    "ADD UNIQUE x (w(6), a)": "UPDATE t SET w = CONCAT('same  ', n), a = 8 WHERE n IN (2, 4)",
    "ADD KEY y (b(20)), ADD UNIQUE x (b(40))": "UPDATE t SET b = REPEAT('long', 9000) WHERE n IN (5, 6)",
}


@pytest.mark.parametrize("change", DUPLICATES)
def test_a_duplicate_is_told_as_by_a_copy_and_leaves_nothing(twin, change):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, w VARCHAR(40), b TEXT) ENGINE={engine} CHARACTER SET utf8mb4")
    twin.ok("INSERT INTO t SELECT seq, seq * 3 + 1000000, CONCAT('row ', seq), CONCAT(seq, ' ', REPEAT('b', seq % 300)) FROM seq_1_to_3000")
    twin.ok(DUPLICATES[change])
    before = shown(twin.under_test)
    said = [side.fails(f"ALTER TABLE t {change}", 1062) for side in (twin.under_test, twin.oracle)]
    said.append(twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=COPY", 1062))
    assert said[0] == said[2]
    # Of a value that it keeps outside the row InnoDB says NULL.
    assert said[0] == said[1] or "'NULL'" in said[1]
    assert shown(twin.under_test) == before
    healthy(twin.under_test)
    twin.ok("DELETE FROM t WHERE n IN (4, 6, 3000)")
    twin.ok(f"ALTER TABLE t {change}")
    same_definition(twin)
    twin.same_table("t")
    healthy(twin.under_test)


def test_rows_without_a_value_and_letters_of_either_case(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, w VARCHAR(40)) ENGINE={engine} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    twin.ok("INSERT INTO t VALUES (1, NULL, 'one'), (2, NULL, 'two'), (3, 3, 'ONE'), (4, 4, NULL), (5, 5, NULL)")
    twin.ok("ALTER TABLE t ADD UNIQUE a (a)")
    twin.fails("ALTER TABLE t ADD UNIQUE w (w)", 1062)
    for side in (twin.under_test, twin.oracle):
        side.ok("ALTER TABLE t MODIFY w VARCHAR(40) COLLATE utf8mb4_bin")
    twin.ok("ALTER TABLE t ADD UNIQUE w (w)")
    twin.run("INSERT INTO t VALUES (6, 3, 'x')")
    twin.run("INSERT INTO t VALUES (7, NULL, 'one ')")
    twin.same_table("t")
    healthy(twin.under_test)


def test_an_older_snapshot_is_refused_by_the_index_alone(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_500")
    for side in (twin.under_test, twin.oracle):
        reader = side.session()
        reader.ok("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        side.ok("UPDATE t SET a = a + 1000 WHERE n <= 250")
        side.ok("ALTER TABLE t ADD KEY x (a)")
        side.ok("UPDATE t SET a = a + 5000 WHERE n > 450")
        reader.fails("SELECT COUNT(*) FROM t FORCE INDEX (x) WHERE a BETWEEN 200 AND 300", 1412)
        assert reader.value("SELECT COUNT(*) FROM t IGNORE INDEX (x) WHERE a BETWEEN 200 AND 300") == 101
        assert reader.value("SELECT a FROM t WHERE n = 10") == 10
        reader.ok("COMMIT")
        assert reader.value("SELECT COUNT(*) FROM t FORCE INDEX (x) WHERE a > 500") == 300
        reader.ok("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        side.ok("ALTER TABLE t ADD KEY y (a, n)")
        assert reader.value("SELECT COUNT(*) FROM t FORCE INDEX (y) WHERE a > 500") == 300


def family(db):
    """A parent whose index is going to be built as soon as a child's transaction lets it."""
    db.ok("CREATE TABLE p (n INT PRIMARY KEY, a INT) ENGINE={engine}")
    db.ok("CREATE TABLE c (n INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (n)) ENGINE={engine}")
    db.ok("INSERT INTO p SELECT seq, seq % 10 FROM seq_1_to_1000")
    child = db.session()
    child.ok("BEGIN")
    child.ok("INSERT INTO c VALUES (1, 5)")
    builder = db.session()
    number = builder.thread_id()
    build = builder.later(f"ALTER TABLE p ADD KEY x (a), {IN_PLACE}")
    assert build.waits(1)
    return child, build, number


def test_readers_go_on_while_an_index_is_built(db):
    child, build, _ = family(db)
    reader = db.session()
    assert reader.value("SELECT COUNT(*) FROM p WHERE a = 3") == 100
    reader.ok("BEGIN")
    assert reader.value("SELECT n FROM p WHERE n = 7 LOCK IN SHARE MODE") == 7
    reader.ok("COMMIT")
    assert build.waits(0.1)
    child.ok("COMMIT")
    assert build.result().error is None
    assert reader.value("SELECT COUNT(*) FROM p FORCE INDEX (x) WHERE a = 3") == 100
    healthy(db, "p")


def test_writers_wait_for_the_moment_at_which_a_build_begins(db):
    child, build, _ = family(db)
    writer = db.session().later("UPDATE p SET a = 77 WHERE n = 9")
    assert writer.waits()
    child.ok("COMMIT")
    assert build.result().error is None
    assert writer.result().affected == 1
    assert db.rows("SELECT n FROM p FORCE INDEX (x) WHERE a = 77") == [(9,)]
    healthy(db, "p")


def test_children_stand_behind_a_build_that_waits_for_others(db):
    # T15: the server keeps nobody away who writes a child.
    child, build, _ = family(db)
    other = db.session()
    other.ok("BEGIN")
    inserting = other.later("INSERT INTO c VALUES (2, 6)")
    assert inserting.waits()
    child.ok("COMMIT")
    # Between its beginning and its end the build lets children in, and waits for them once more.
    assert inserting.result().error is None
    other.ok("COMMIT")
    assert build.result().error is None
    assert db.value("SELECT COUNT(*) FROM c") == 2
    healthy(db, "p")


def test_writers_go_on_while_an_index_is_built(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT NOT NULL, w VARCHAR(60)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq, CONCAT(SHA1(seq), seq) FROM seq_1_to_600000")
    builder, writer, late = db.session(), db.session(), db.session()
    number = builder.thread_id()
    build = builder.later("ALTER TABLE t ADD UNIQUE x (a), ADD KEY y (w), ALGORITHM=NOCOPY, LOCK=NONE")
    wait_for(lambda: not build.is_alive() or float(db.rows(PROGRESS.format(number))[0][2]) > 0, 60, "progress")
    done, changed = 0, 0
    while build.is_alive() and done < 40:
        row = 1 + done * 14_983
        writer.ok(f"UPDATE t SET a = -a, w = CONCAT('other ', n) WHERE n BETWEEN {row} AND {row + 9}")
        writer.ok(f"DELETE FROM t WHERE n = {row + 20}")
        writer.ok(f"INSERT INTO t SELECT 1000000 + seq, 1000000 + seq, 'new' FROM seq_{done * 500 + 1}_to_{done * 500 + 500}")
        writer.ok("BEGIN")
        writer.ok("UPDATE t SET a = a + 5000000 WHERE n % 1000 = 7")
        writer.ok("ROLLBACK")
        changed += 10
        done += build.is_alive()
    late.ok("BEGIN")
    late.ok("INSERT INTO t VALUES (-1, -9999999, 'late')")
    late.ok("COMMIT")
    assert build.result(120).error is None
    assert done > 0, "no statement was over before the build was"
    for index, all_of_them in (("x", "a > -99999999"), ("y", "w > ''")):
        by_index = db.rows(f"SELECT n FROM t FORCE INDEX ({index}) WHERE {all_of_them} ORDER BY n")
        assert by_index == db.rows("SELECT n FROM t IGNORE INDEX (x, y) ORDER BY n")
    assert db.value("SELECT COUNT(*) FROM t FORCE INDEX (y) WHERE w LIKE 'other %'") == changed
    assert db.value("SELECT COUNT(*) FROM t FORCE INDEX (x) WHERE a = -9999999") == 1
    db.fails("INSERT INTO t VALUES (-2, -9999999, 'again')", 1062)
    healthy(db)


def test_parts_that_were_built_first_catch_up_beside_writers(db):
    db.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, a INT NOT NULL, w VARCHAR(60)) ENGINE={engine} PARTITION BY RANGE (n)"
        " (PARTITION a VALUES LESS THAN (20001), PARTITION b VALUES LESS THAN (20002), PARTITION z VALUES LESS THAN MAXVALUE)"
    )
    db.ok("INSERT INTO t SELECT seq, seq, CONCAT(SHA1(seq), seq) FROM seq_1_to_700000")
    counters = "SHOW GLOBAL STATUS LIKE 'Pbxt_build_rows_%'"
    before = db.rows(counters)
    builder, writer = db.session(), db.session()
    number = builder.thread_id()
    build = builder.later("ALTER TABLE t ADD KEY x (a), ADD KEY y (w), ALGORITHM=NOCOPY, LOCK=NONE")
    wait_for(lambda: not build.is_alive() or float(db.rows(PROGRESS.format(number))[0][2]) > 0, 60, "progress")
    # By then the first part is built.
    time.sleep(0.5)
    assert writer.affected("UPDATE t PARTITION (a) SET a = -a") == 20_000
    assert build.is_alive(), "the last part was built before others wrote"
    assert build.result(120).error is None
    beside, held = (int(after[1]) - int(was[1]) for after, was in zip(db.rows(counters), before, strict=True))
    # A round that waits for the writer leaves what was written meanwhile noted (AL29), and no more than a last round may have.
    assert beside >= 20_000 and held <= 10_000, f"AL35: {beside} beside, {held} held"
    assert db.value("SELECT COUNT(*) FROM t FORCE INDEX (x) WHERE a < 0") == 20_000
    healthy(db)


def test_a_duplicate_that_comes_while_an_index_is_built_is_told(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT NOT NULL) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_600000")
    before = shown(db)
    builder, writer = db.session(), db.session()
    number = builder.thread_id()
    build = builder.later("ALTER TABLE t ADD UNIQUE x (a), LOCK=NONE")
    wait_for(lambda: not build.is_alive() or float(db.rows(PROGRESS.format(number))[0][2]) > 0, 60, "progress")
    assert build.is_alive()
    writer.ok("INSERT INTO t VALUES (0, 77)")
    assert build.result(60).error == (1062, "Duplicate entry '77' for key 'x'")
    assert shown(db) == before
    writer.ok("DELETE FROM t WHERE n = 0")
    assert db.affected("ALTER TABLE t ADD UNIQUE x (a), LOCK=NONE") == 0
    healthy(db)


def test_a_kill_ends_the_wait_for_others(db):
    child, build, number = family(db)
    db.ok(f"KILL QUERY {number}")
    assert build.result().error[0] == 1317
    db.ok("UPDATE p SET a = 77 WHERE n = 9")
    child.ok("COMMIT")
    db.ok(f"ALTER TABLE p ADD KEY x (a), {IN_PLACE}")
    healthy(db, "p")


def test_progress_is_shown_and_a_kill_leaves_nothing(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, w VARCHAR(60)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, CONCAT(SHA1(seq), seq) FROM seq_1_to_600000")
    before, files = shown(db), index_bytes(db)
    builder = db.session()
    number = builder.thread_id()
    build = builder.later(f"ALTER TABLE t ADD KEY x (w), {IN_PLACE}")
    seen = []

    def is_under_way():
        seen[:] = db.rows(PROGRESS.format(number))
        return not build.is_alive() or seen[0][1] == 1 and float(seen[0][2]) > 0

    wait_for(is_under_way, 60, "progress")
    db.ok(f"KILL QUERY {number}")
    assert build.result(60).error[0] == 1317
    assert shown(db) == before
    assert index_bytes(db) <= files + (1 << 20)
    healthy(db)
    assert db.affected(f"ALTER TABLE t ADD KEY x (w), {IN_PLACE}") == 0
    assert db.value("SELECT COUNT(*) FROM t FORCE INDEX (x) WHERE w > ''") == 600000
    healthy(db)


def index_bytes(db):
    """Bytes of index runs that tables of the server have."""
    return sum(int(size) for name, size in db.rows("SHOW GLOBAL STATUS LIKE 'pbxt_space_index%'"))


def test_all_parts_of_a_table_get_the_index_or_none(twin):
    rule = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN MAXVALUE)"
    twin.ok(f"CREATE TABLE t (n INT NOT NULL, a INT, w VARCHAR(20)) ENGINE={{engine}} {rule}")
    twin.ok("INSERT INTO t SELECT seq, seq % 7, CONCAT('row ', seq) FROM seq_1_to_300")
    twin.under_test.ok(f"ALTER TABLE t ADD KEY x (a), ADD KEY w (w), {IN_PLACE}")
    twin.oracle.ok("ALTER TABLE t ADD KEY x (a), ADD KEY w (w)")
    twin.same(INDEXES)
    twin.same("SELECT n FROM t FORCE INDEX (x) WHERE a = 4")
    twin.ok("INSERT INTO t VALUES (250, 5, 'again')")
    said = [side.fails("ALTER TABLE t ADD UNIQUE u (n)", 1062) for side in (twin.under_test, twin.oracle)]
    assert said[0] == said[1]
    twin.same(INDEXES)
    twin.ok("UPDATE t SET a = a + 10 WHERE n % 3 = 0")
    twin.ok("DELETE FROM t WHERE w = 'again'")
    assert twin.under_test.affected("ALTER TABLE t ADD KEY more (w, a), LOCK=SHARED") == 0
    twin.oracle.ok("ALTER TABLE t ADD KEY more (w, a)")
    twin.same_table("t")
    twin.same("SELECT n, w FROM t FORCE INDEX (more) WHERE w LIKE 'row 2%'")
    assert {row[3] for row in twin.under_test.rows("CHECK TABLE t EXTENDED")} == {"OK"}


def test_an_index_is_whole_after_a_kill_of_the_server(own_server):
    server = own_server("--pbxt-cache-size=16M")
    writer = Session(server, None, "PBXT")
    writer.ok("CREATE DATABASE d")
    writer.ok("USE d")
    writer.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, w VARCHAR(60)) ENGINE=PBXT")
    writer.ok("INSERT INTO t SELECT seq, seq % 1000, CONCAT('row ', seq) FROM seq_1_to_30000")
    writer.ok("UPDATE t SET a = a + 5000, w = CONCAT(w, '!') WHERE n % 10 = 3")
    for number in range(3):
        writer.ok(f"INSERT INTO t VALUES ({-1 - number}, {number}, 'first')")
        writer.ok(f"UPDATE t SET a = 90000 + n, w = 'second' WHERE n = {-1 - number}")
        writer.ok(f"ALTER TABLE t ADD KEY x{number} (a, w), ADD KEY y{number} (w(9)), {IN_PLACE}")
        writer.ok(f"UPDATE t SET a = a + 1 WHERE n % 100 = {number}")
        time.sleep(0.2 * number)
        kill(server)
        server.start()
        writer = Session(server, "d", "PBXT")
        healthy(writer)
        for index in (f"x{number}", f"y{number}"):
            assert writer.value(f"SELECT COUNT(*) FROM t FORCE INDEX ({index}) WHERE w > ''") == 30001 + number
        assert writer.value(f"SELECT COUNT(*) FROM t FORCE INDEX (x{number}) WHERE a >= 89000") == number + 1
