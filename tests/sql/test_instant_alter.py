"""ALTER TABLE without a copy: what is accepted, what is refused and why, and that every row is as after the same ALTER in InnoDB."""

import itertools
import random
import re
import threading
import time

import alter_storm
import pytest
from cross_engine import kill
from sql_tools import Session

ROWS = 3000
ACCEPTED = [
    "ADD COLUMN x INT", "ADD COLUMN x INT NOT NULL DEFAULT 7 FIRST", "ADD COLUMN x VARCHAR(300) DEFAULT 'later' AFTER v", "ADD COLUMN x TEXT",
    "ADD COLUMN x DECIMAL(10,2) NOT NULL DEFAULT 1.5, ADD COLUMN y DATETIME(3) DEFAULT '2020-02-02 02:02:02.222'", "ADD COLUMN x INT NOT NULL",
    "ADD COLUMN x CHAR(10) NOT NULL DEFAULT 'pad'", "ADD COLUMN x INT GENERATED ALWAYS AS (v + 1) VIRTUAL", "DROP COLUMN d", "DROP COLUMN v, DROP KEY k",
    "DROP COLUMN d, ADD COLUMN d BIGINT DEFAULT 5", "MODIFY d INT FIRST", "MODIFY w VARCHAR(40) AFTER n", "CHANGE d dd INT", "RENAME COLUMN d TO dd",
    "MODIFY s SMALLINT NULL", "MODIFY s INT NOT NULL", "MODIFY s BIGINT NOT NULL DEFAULT 4", "MODIFY w VARCHAR(200)", "MODIFY w VARCHAR(700)", "MODIFY c CHAR(60)",
    "MODIFY b MEDIUMTEXT", "DROP KEY k", "DROP KEY u, DROP KEY k", "MODIFY n INT NOT NULL, DROP PRIMARY KEY, DROP KEY k", "RENAME KEY k TO kk", "ALTER INDEX k IGNORED", "ALTER COLUMN d SET DEFAULT 9",
    "ALTER COLUMN s DROP DEFAULT", "COMMENT 'changed'", "AUTO_INCREMENT = 90000", "DEFAULT CHARACTER SET latin1", "ROW_FORMAT = DYNAMIC", "KEY_BLOCK_SIZE = 8", "CHECKSUM = 1", "PACK_KEYS = 1", "DELAY_KEY_WRITE = 1", "DROP COLUMN d, RENAME KEY k TO kk, ADD COLUMN x INT FIRST, MODIFY s INT NOT NULL",
]  # fmt: skip
REFUSED = {
    "ADD KEY x (d)": "index", "ADD COLUMN x INT, ADD KEY (x)": "index", "MODIFY d INT NOT NULL": "read", "MODIFY v BIGINT": "keys of index 'k'",
    "MODIFY n INT NOT NULL, DROP PRIMARY KEY": "keys of index 'k'",
    "MODIFY d INT UNSIGNED": "values", "MODIFY s TINYINT NOT NULL": "values", "MODIFY d VARCHAR(20)": "values", "MODIFY w VARCHAR(10)": "values",
    "MODIFY w VARCHAR(40) CHARACTER SET latin1": "values", "ADD CONSTRAINT x CHECK (d > 0)": "read", "ADD COLUMN x INT CHECK (x > 0)": "condition",
    "ADD COLUMN x DATETIME DEFAULT NOW()": "constant", "ADD COLUMN x INT DEFAULT (v + 1)": "constant", "ADD COLUMN x INT GENERATED ALWAYS AS (v) STORED": "read",
    "FORCE": "read", "COMPRESSION=LZ4": "compressed", "CONVERT TO CHARACTER SET latin1": "",
}  # fmt: skip


def prepare(session, rows=ROWS):
    session.ok(
        "CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, v INT, w VARCHAR(40), d INT, s SMALLINT NOT NULL DEFAULT -3, c CHAR(20), b TEXT,"
        " KEY k (v), UNIQUE KEY u (w)) ENGINE={engine}"
    )
    session.ok(
        "INSERT INTO t (v, w, d, s, c, b) SELECT seq % 17, CONCAT('row ', seq), IF(seq % 5, seq, NULL), -seq, CONCAT('c', seq),"
        f" REPEAT('b', IF(seq % 100, seq % 40, 20000)) FROM seq_1_to_{rows}"
    )
    session.ok("UPDATE t SET d = -d WHERE n % 7 = 0")
    session.ok("DELETE FROM t WHERE n % 11 = 0")


CHECKED = "CREATE TABLE t (n INT PRIMARY KEY, d INT, doc JSON, q INT CHECK (q > 0), w VARCHAR(20)) ENGINE={engine}"


@pytest.mark.pbxt_only
@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN x INT", "DROP COLUMN d", "DROP COLUMN q", "DROP COLUMN doc", "RENAME COLUMN d TO dd", "RENAME COLUMN doc TO document", "RENAME COLUMN q TO qq",
        "MODIFY w VARCHAR(60)", "MODIFY d INT FIRST", "COMMENT 'changed'", "ALTER COLUMN d SET DEFAULT 4", "ADD KEY (d)", "ADD UNIQUE KEY (n, d)",
    ],
)  # fmt: skip
def test_conditions_of_columns_that_stay_need_no_copy(twin, change):
    twin.ok(CHECKED)
    twin.ok("INSERT INTO t SELECT seq, seq % 50, JSON_OBJECT('k', seq), seq, CONCAT('w', seq) FROM seq_1_to_500")
    algorithm = "NOCOPY" if "KEY" in change else "INSTANT"
    assert twin.under_test.affected(f"ALTER TABLE t {change}, ALGORITHM={algorithm}, LOCK=NONE") == 0
    twin.oracle.ok(f"ALTER TABLE t {change}")
    twin.same_table("t")
    same_definition(twin)
    for column, value in (("doc", "'no json'"), ("document", "'no json'"), ("q", "-1"), ("qq", "-1")):
        answer = twin.run(f"UPDATE t SET {column} = {value} WHERE n = 3")
        assert answer.error is not None and answer.error[0] in (4025, 1054), answer
    twin.same_table("t")
    healthy(twin.under_test)


@pytest.mark.pbxt_only
def test_other_conditions_of_columns_need_a_copy(twin):
    twin.ok(CHECKED)
    twin.ok("INSERT INTO t SELECT seq, 0, '{}', 1, 'w' FROM seq_1_to_10")
    for change in ("MODIFY q INT CHECK (q > 5)", "MODIFY d INT CHECK (d > 0)", "CHANGE d dd INT CHECK (dd > 0)"):
        twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=INSTANT", (1845, 1846))
        twin.under_test.fails(f"ALTER TABLE t {change}", 4025)
    twin.same_table("t")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", ACCEPTED)
def test_what_is_instant_gives_the_rows_of_innodb(twin, change):
    prepare(twin)
    assert twin.under_test.affected(f"ALTER TABLE t {change}, ALGORITHM=INSTANT, LOCK=NONE") == 0
    twin.oracle.ok(f"ALTER TABLE t {change}")
    twin.same_table("t")
    same_definition(twin)
    twin.run("INSERT INTO t (n, w, s) VALUES (70000, 'after', 12)")
    twin.ok("UPDATE t SET w = CONCAT(w, '!') WHERE n % 13 = 1")
    twin.ok("DELETE FROM t WHERE n % 19 = 2")
    twin.same_table("t")
    healthy(twin.under_test)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", REFUSED)
def test_what_is_not_instant_is_refused_with_a_reason_and_copied(twin, change):
    prepare(twin, 200)
    said = twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=INSTANT", (1845, 1846))
    assert REFUSED[change] in said, said
    if "COMPRESSION" not in change:
        twin.run(f"ALTER TABLE t {change}, ALGORITHM=COPY")
        twin.same_table("t")


def test_zeros_behind_binary_values_do_not_pass_a_condition(twin):
    twin.ok("CREATE TABLE t (b BINARY(2), CONSTRAINT k CHECK (b IN ('ab', 'cd'))) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES ('ab')")
    assert "condition" in twin.under_test.fails("ALTER TABLE t MODIFY b BINARY(4), ALGORITHM=INSTANT", (1845, 1846))
    twin.fails("ALTER TABLE t MODIFY b BINARY(4)", 4025)
    twin.under_test.ok("ALTER TABLE t DROP CONSTRAINT k, MODIFY b BINARY(4), ALGORITHM=INSTANT")
    twin.oracle.ok("ALTER TABLE t DROP CONSTRAINT k, MODIFY b BINARY(4)")
    twin.same_table("t", "HEX(b)")


READ_OTHERWISE = {
    "MODIFY a INT(6) UNSIGNED ZEROFILL": "a INT(3) UNSIGNED ZEROFILL", "MODIFY a INT(3) UNSIGNED": "a INT(3) UNSIGNED ZEROFILL",
    "MODIFY a DOUBLE(10,2)": "a DOUBLE(10,4)", "MODIFY a FLOAT(12,1)": "a FLOAT(10,2)", "MODIFY a DECIMAL(8,2) UNSIGNED": "a DECIMAL(8,2) UNSIGNED ZEROFILL",
    "MODIFY a ENUM('X1', '2', '22')": "a ENUM('x1', '2', '22')", "MODIFY a SET('X1', '2', '22')": "a SET('x1', '2', '22')",
}  # fmt: skip


@pytest.mark.parametrize("change", READ_OTHERWISE)
@pytest.mark.parametrize("computed", ["VIRTUAL", "STORED"])
def test_what_is_computed_of_values_that_read_otherwise_is_computed_again(twin, change, computed):
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {READ_OTHERWISE[change]}, g VARBINARY(40) AS (CONCAT('g', a)) {computed}, KEY k (g)) ENGINE={{engine}}")
    twin.ok("INSERT INTO t (n, a) VALUES (1, 1), (2, 2), (3, '22')")
    assert "generated" in twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=INSTANT", (1845, 1846))
    twin.under_test.ok(f"ALTER TABLE t {change}")
    twin.oracle.ok(f"ALTER TABLE t {change}, ALGORITHM=COPY")
    for index in ("FORCE", "IGNORE"):
        twin.same(f"SELECT g FROM t {index} INDEX (k) ORDER BY g")
    twin.ok("UPDATE t SET a = 2 WHERE n = 1")
    twin.same_table("t")
    healthy(twin.under_test)


@pytest.mark.parametrize("change", READ_OTHERWISE)
def test_values_that_read_otherwise_are_changed_at_once_where_nothing_depends_on_it(twin, change):
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {READ_OTHERWISE[change]}) ENGINE={{engine}}")
    twin.ok("INSERT INTO t (n, a) VALUES (1, 1), (2, 2), (3, '22')")
    twin.ok("ALTER TABLE t ADD CONSTRAINT k CHECK (LENGTH(a) < 100)")
    assert "condition" in twin.under_test.fails(f"ALTER TABLE t {change}, ALGORITHM=INSTANT", (1845, 1846))
    twin.under_test.ok(f"ALTER TABLE t {change}, DROP CONSTRAINT k, ALGORITHM=INSTANT")
    twin.oracle.ok(f"ALTER TABLE t {change}, DROP CONSTRAINT k")
    twin.same_table("t")


def test_indexes_that_exchange_their_names_are_not_copied(twin):
    twin.ok("CREATE TABLE t (x INT, y INT, z INT, KEY a (x), KEY b (y), KEY c (z)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq % 7, seq % 5, seq % 3 FROM seq_1_to_100")
    for change in ("RENAME INDEX a TO b, RENAME INDEX b TO a", "RENAME INDEX a TO b, RENAME INDEX b TO c, RENAME INDEX c TO a"):
        twin.under_test.ok(f"ALTER TABLE t {change}, ALGORITHM=INSTANT")
        twin.oracle.ok(f"ALTER TABLE t {change}")
        same_definition(twin)
        for index in "abc":
            twin.same(f"SELECT x, y, z FROM t FORCE INDEX ({index}) WHERE x = 1 AND y = 2 AND z = 0")
        healthy(twin.under_test)


def same_definition(twin):
    twin.same(
        "SELECT column_name, ordinal_position, column_default, is_nullable, column_type, collation_name, column_key, extra FROM"
        " information_schema.columns WHERE table_schema = DATABASE()"
    )
    twin.same(
        "SELECT index_name, seq_in_index, column_name, non_unique, sub_part, nullable, ignored FROM information_schema.statistics WHERE table_schema = DATABASE()"
    )
    left, right = (shown(side) for side in (twin.under_test, twin.oracle))
    assert left == right


def shown(side):
    """SHOW CREATE TABLE without the engine, and without the next value, of which InnoDB hands out more at once."""
    return re.sub(r" AUTO_INCREMENT=\d+", "", side.rows("SHOW CREATE TABLE t")[0][1].replace(f"ENGINE={side.engine}", ""))


def healthy(session, name="t"):
    assert [row[3] for row in session.rows(f"CHECK TABLE {name} EXTENDED")] == ["OK"]


def test_rows_keep_the_default_of_their_alter(twin):
    prepare(twin, 50)
    twin.ok("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 1")
    twin.ok("INSERT INTO t (w) VALUES ('one')")
    twin.ok("ALTER TABLE t ALTER COLUMN x SET DEFAULT 2")
    twin.ok("INSERT INTO t (w) VALUES ('two')")
    twin.ok("ALTER TABLE t DROP COLUMN x, ADD COLUMN y INT DEFAULT 9")
    twin.ok("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 3 AFTER n")
    twin.ok("INSERT INTO t (w) VALUES ('three')")
    twin.same_table("t")


@pytest.mark.pbxt_only
def test_an_older_snapshot_reads_its_rows_with_the_columns_of_now(db):
    prepare(db, 100)
    reader = db.session()
    reader.ok("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    before = db.rows("SELECT n, d FROM t ORDER BY n")
    db.ok("DELETE FROM t WHERE n < 50")
    db.ok("ALTER TABLE t ADD COLUMN x INT DEFAULT 5, DROP COLUMN b, ALGORITHM=INSTANT")
    db.ok("UPDATE t SET x = 6")
    assert reader.rows("SELECT n, d FROM t ORDER BY n") == before
    assert reader.rows("SELECT DISTINCT x FROM t") == [(5,)]
    reader.ok("COMMIT")
    assert reader.rows("SELECT DISTINCT x FROM t") == [(6,)]


@pytest.mark.pbxt_only
def test_all_partitions_change_at_once(twin):
    rule = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN MAXVALUE)"
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, a INT, KEY a (a)) ENGINE={{engine}} {rule}")
    twin.ok("INSERT INTO t SELECT seq, seq % 7 FROM seq_1_to_300")
    for change in ("ADD COLUMN x VARCHAR(20) DEFAULT 'x' FIRST", "DROP KEY a", "MODIFY a BIGINT", "RENAME COLUMN x TO y", "DROP COLUMN a"):
        twin.under_test.ok(f"ALTER TABLE t {change}, ALGORITHM=INSTANT")
        twin.oracle.ok(f"ALTER TABLE t {change}")
        twin.same_table("t")
        twin.ok("UPDATE t SET n = n WHERE n % 10 = 0")
    assert {row[3] for row in twin.under_test.rows("CHECK TABLE t EXTENDED")} == {"OK"}
    twin.ok("CREATE TABLE s (y VARCHAR(20) DEFAULT 'x', n INT NOT NULL PRIMARY KEY) ENGINE={engine}")
    twin.ok("INSERT INTO s VALUES ('s', 5)")
    twin.ok("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE s")
    for name in "ts":
        twin.same_table(name)
    twin.under_test.ok("ALTER TABLE t ADD COLUMN z INT DEFAULT 3, ALGORITHM=INSTANT")
    twin.oracle.ok("ALTER TABLE t ADD COLUMN z INT DEFAULT 3")
    twin.same_table("t")


def test_a_table_partitioned_by_key_keeps_its_rows_where_they_belong(twin):
    twin.ok("CREATE TABLE t (n INT NOT NULL, a INT, PRIMARY KEY (n)) ENGINE={engine} PARTITION BY KEY (n) PARTITIONS 4")
    twin.ok("INSERT INTO t SELECT seq, seq FROM seq_1_to_200")
    twin.ok("ALTER TABLE t ADD COLUMN x INT DEFAULT 4")
    twin.run("ALTER TABLE t MODIFY n BIGINT NOT NULL")
    for number in (1, 77, 200):
        twin.same(f"SELECT * FROM t WHERE n = {number}")
    twin.same_table("t")


def test_foreign_keys_are_kept_over_alters_of_both_sides(twin):
    twin.ok("CREATE TABLE p (n INT PRIMARY KEY, v INT) ENGINE={engine}")
    twin.ok("CREATE TABLE c (n INT PRIMARY KEY, p INT, KEY p (p), CONSTRAINT fk FOREIGN KEY (p) REFERENCES p (n) ON DELETE CASCADE) ENGINE={engine}")
    twin.ok("INSERT INTO p SELECT seq, seq FROM seq_1_to_50")
    twin.ok("INSERT INTO c SELECT seq, seq FROM seq_1_to_50")
    twin.ok("ALTER TABLE p ADD COLUMN x INT DEFAULT 1 FIRST")
    twin.ok("ALTER TABLE c ADD COLUMN y INT FIRST, ADD COLUMN z VARCHAR(10) DEFAULT 'z' AFTER n")
    twin.ok("DELETE FROM p WHERE n <= 10")
    twin.same_table("c")
    twin.fails("INSERT INTO c (n, p) VALUES (100, 1)", 1452)
    twin.fails("ALTER TABLE c DROP KEY p", 1553)
    twin.ok("ALTER TABLE p CHANGE n m INT")
    twin.ok("DELETE FROM p WHERE m <= 20")
    twin.same_table("c")
    twin.ok("ALTER TABLE c DROP FOREIGN KEY fk")
    twin.ok("ALTER TABLE c DROP KEY p")
    twin.ok("ALTER TABLE c DROP COLUMN p")
    twin.same_table("c")


HASHED_KEPT = [
    "RENAME COLUMN a TO aa", "RENAME COLUMN x TO xx", "CHANGE b bb INT", "ALTER COLUMN a SET DEFAULT 9", "COMMENT 'changed'", "RENAME KEY k TO kk",
    "CHANGE b c INT, CHANGE c b INT", "CHANGE x y TEXT, CHANGE y x TEXT", "ALTER INDEX k IGNORED", "MODIFY s INT", "AUTO_INCREMENT = 90000", "MODIFY e ENUM('one', 'two', 'three')",
]  # fmt: skip
HASHED_COPIED = [
    "MODIFY b INT FIRST", "MODIFY c INT AFTER a, MODIFY b INT AFTER e", "MODIFY x TEXT FIRST", "DROP y, ADD z TEXT AFTER x", "DROP b, ADD q INT DEFAULT 7 AFTER a",
    "DROP c, ADD q INT", "RENAME KEY u TO uu", "MODIFY l VARCHAR(20) CHARACTER SET latin2", "MODIFY m TEXT CHARACTER SET latin2",
    "MODIFY d DECIMAL(9,3)", "MODIFY e ENUM('two', 'one')", "MODIFY b INT UNSIGNED", "MODIFY b INT CHECK (b > 0)", "DROP INDEX u, ADD UNIQUE u (y)",
    "MODIFY x TEXT COLLATE utf8mb4_bin", "MODIFY y TEXT COLLATE utf8mb4_bin, DROP INDEX u, ADD UNIQUE u (y)", "DROP INDEX u, ADD UNIQUE u (x, b)",
    "DROP INDEX u, ADD UNIQUE u (x(3))", "DROP INDEX u, DROP INDEX k, ADD UNIQUE k (x), ADD INDEX u (a)",
]  # fmt: skip


def prepare_hashed(session):
    session.ok(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, x TEXT, y TEXT, l VARCHAR(20) CHARACTER SET latin1, m TEXT CHARACTER SET latin1, d DECIMAL(10,2),"
        " s INT NOT NULL, e ENUM('one', 'two'), c INT, KEY k (a), UNIQUE u (x)) ENGINE={engine}"
    )
    session.ok("INSERT INTO t VALUES (1, 10, 20, 'key', 'yes', 'Ž', 'Ž', 1.25, 3, 'one', 30), (2, 11, 21, 'Lock', 'No', 'š', 'š', 3.5, 4, 'two', 31)")


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", HASHED_KEPT)
def test_a_table_with_hashes_keeps_rows_whose_columns_stay(twin, change):
    prepare_hashed(twin)
    assert twin.under_test.affected(f"ALTER TABLE t {change}, ALGORITHM=INSTANT") == 0
    twin.oracle.ok(f"ALTER TABLE t {change}")
    refuses_what_innodb_refuses(twin)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("change", HASHED_COPIED)
def test_a_table_with_hashes_is_copied_when_a_column_moves_or_changes(twin, change):
    prepare_hashed(twin)
    assert twin.under_test.run(f"ALTER TABLE t {change}, ALGORITHM=INSTANT").error, "INSTANT is accepted"
    for side in (twin.under_test, twin.oracle):
        side.run(f"ALTER TABLE t {change}")
    same_definition(twin)
    refuses_what_innodb_refuses(twin)


def refuses_what_innodb_refuses(twin):
    """Rows are the same, and their copies meet the same unique indexes, in capitals as well."""
    twin.same_table("t")
    columns = [row[0] for row in twin.oracle.rows("SHOW COLUMNS FROM t")]
    texts = [name for name in columns if name in ("x", "xx", "y", "z")]
    for number, way in enumerate(["{}", "UPPER({})", "LOWER({})", "LEFT({}, 1)"], 1):
        for text in texts:
            for other in ("", "a = a + 1000"):
                taken = [f"id + {100 * number} + {10 * bool(other)}" if name == "id" else way.format(name) if name == text else f"CONCAT({name}, id, '{way}')" if name in texts else name for name in columns]
                if other and "a" in columns:
                    taken[columns.index("a")] = "a + 1000"
                twin.run(f"INSERT INTO t SELECT {', '.join(taken)} FROM t WHERE id = 1")
    twin.same_table("t")
    healthy(twin.under_test)


def test_duplicates_of_a_new_hash_are_found(twin):
    twin.ok("CREATE TABLE t (id INT PRIMARY KEY, x TEXT COLLATE utf8mb4_bin, y TEXT, UNIQUE u (x)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, 'k', 'same'), (2, 'K', 'same')")
    twin.fails("ALTER TABLE t MODIFY x TEXT COLLATE utf8mb4_general_ci", 1062)
    twin.fails("ALTER TABLE t DROP INDEX u, ADD UNIQUE u (y)", 1062)
    twin.same_table("t")


class Maker(alter_storm.Maker):
    """Statements over one table, most of them ALTERs."""

    def statement(self):
        kinds = [
            self.add, self.add_default, self.drop, self.move, self.rename_column, self.longer, self.wider, self.nullable, self.virtual, self.add_index,
            self.drop_index, self.rename_index, self.ignored, self.default, self.force, self.charset, self.copied, self.write, self.write, self.write,
        ]  # fmt: skip
        return self.random.choice(kinds)("t")


def test_random_alters_agree_with_innodb(twin, request):
    asked = request.config.getoption("--random-seed")
    rounds = request.config.getoption("--random-rounds") or (100 if request.config.getoption("--long") else 3)
    first = asked if asked is not None else random.SystemRandom().randrange(1 << 30)
    for seed in range(first, first + (1 if asked is not None else rounds)):
        print(f"replay: build/venv/bin/python -m pytest tests/sql/test_instant_alter.py -k random --random-seed {seed}")
        draw = random.Random(seed)
        maker = Maker(draw)
        for side, engine in ((twin.under_test, twin.under_test.engine), (twin.oracle, "InnoDB")):
            alter_storm.create_tables(side.main.connection, side.name, engine)
        for _ in range(40):
            statement = maker.statement()
            answers = [side.run(statement) for side in (twin.under_test, twin.oracle)]
            assert (answers[0].error is None) == (answers[1].error is None), f"seed {seed}, {statement}: {answers}"
            twin.history.append(statement)
            twin.same_table("t")
            same_definition(twin)
            healthy(twin.under_test)


@pytest.mark.pbxt_only
def test_the_table_is_the_old_or_the_new_one_after_a_kill(own_server, engine, request):
    rounds = request.config.getoption("--crash-rounds") or (50 if request.config.getoption("--long") else 4)
    asked = request.config.getoption("--random-seed")
    seed = asked if asked is not None else random.SystemRandom().randrange(1 << 30)
    server = own_server()
    storm = alter_storm.Storm(server, engine, random.Random(seed))
    where = f"replay: build/venv/bin/python -m pytest tests/sql/test_instant_alter.py -k kill --crash-rounds {rounds} --random-seed {seed}"
    for number in range(1, rounds + 1):
        alter_storm.check_round(storm, number, where)
    assert not storm.nothing_is_left()


@pytest.mark.pbxt_only
def test_a_partitioned_table_is_whole_after_a_kill_in_the_middle_of_an_alter(own_server, engine, request):
    server = own_server()
    writer = Session(server, None, engine)
    writer.ok("CREATE DATABASE altered")
    writer.ok("USE altered")
    parts = "PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE"
    writer.ok(f"CREATE TABLE p (n INT NOT NULL PRIMARY KEY, a INT, w VARCHAR(9)) ENGINE={engine} PARTITION BY RANGE (n) ({parts})")
    writer.ok("INSERT INTO p SELECT seq, seq * 7, CONCAT('row ', seq) FROM seq_1_to_200")
    for _ in range(60 if request.config.getoption("--long") else 12):
        altering = threading.Thread(target=alter_until_killed, args=[writer])
        altering.start()
        time.sleep(random.uniform(0.02, 0.2))
        kill(server)
        altering.join()
        server.start()
        writer = Session(server, "altered", engine)
        assert writer.rows("SELECT COUNT(*), SUM(n), SUM(a), COUNT(DISTINCT w) FROM p") == [(200, 20100, 140700, 200)]
        assert {row[3] for row in writer.rows("CHECK TABLE p EXTENDED")} == {"OK"}


def alter_until_killed(session):
    """One change of columns after the other, none of which copies a row."""
    for statement in itertools.cycle(["ALTER TABLE p MODIFY a INT FIRST", "ALTER TABLE p MODIFY a INT AFTER w"]):
        if session.run(statement).error is not None:
            return
