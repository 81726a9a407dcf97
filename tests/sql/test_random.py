"""Random statements given to the engine under test and to InnoDB; every answer and every table must agree.

The statements are made from a seed. A failure prints the seed and the command that replays exactly that run. Answers of single
statements are compared as multisets unless ORDER BY makes them unique; statements whose effect depends on an order that SQL leaves
open (LIMIT without a unique ORDER BY, IGNORE over several unique keys) are not made.
"""

import random

import pytest

TEXTS = ["''", "'a'", "'A'", "'ab'", "'b '", "'ß'", "'ä'", "'zz'", "REPEAT('q', 30)", "NULL"]
NUMBERS = ["-1000", "-1", "0", "1", "2", "3", "7", "50", "1000", "NULL"]
STATEMENTS = 220


class Maker:
    """Makes statements over one random table."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.in_transaction = False
        self.savepoints = []

    def create(self):
        """A table of random shape with a primary key `n` and columns a (INT), c (text), d (DECIMAL), e (DATETIME), b (BLOB)."""
        draw = self.random
        keys = ["PRIMARY KEY (n)"]
        options = [
            "KEY ka (a)",
            "KEY kc (c)",
            "KEY kac (a, c)",
            "KEY kd (d DESC, a)",
            "KEY kb (b(4))",
            "KEY ke (e)",
            "UNIQUE KEY ua (a, n)",
            "KEY kcp (c(2))",
        ]
        keys += draw.sample(options, draw.randint(0, 5))
        collation = draw.choice(["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "latin1_swedish_ci"])
        kind = draw.choice([f"VARCHAR(40) COLLATE {collation}", f"CHAR(40) COLLATE {collation}"])
        if collation.startswith("latin1"):
            kind = kind.replace(" COLLATE", " CHARACTER SET latin1 COLLATE")
        return f"CREATE TABLE t (n INT NOT NULL, a INT, c {kind}, d DECIMAL(8,2), e DATETIME(3), b BLOB, {', '.join(keys)}) ENGINE={{engine}}"

    def row(self):
        draw = self.random
        date = draw.choice(["NULL", "'2020-02-02 02:02:02.222'", "'1999-01-01 00:00:00'", f"'2010-01-{draw.randint(1, 28):02d}'"])
        blob = draw.choice(["NULL", "''", f"REPEAT(x'{draw.randint(0, 255):02X}', {draw.choice([1, 10, 300, 9000, 70000])})"])
        return [
            str(draw.randint(1, 150)),
            draw.choice(NUMBERS),
            draw.choice(TEXTS),
            draw.choice(["NULL", "0", "-1.5", "99.99", "1.25"]),
            date,
            blob,
        ]

    def where(self):
        draw = self.random
        return draw.choice([
            f"n = {draw.randint(1, 150)}", f"n BETWEEN {draw.randint(1, 75)} AND {draw.randint(50, 150)}",
            f"n IN ({draw.randint(1, 150)}, {draw.randint(1, 150)}, 3)",
            f"a = {draw.randint(-1, 8)}", f"a > {draw.randint(-1, 60)}", "a IS NULL",
            f"a <= {draw.randint(-5, 9)} AND c IS NOT NULL",
            f"c = {draw.choice(TEXTS[:-1])}", f"c >= {draw.choice(TEXTS[:-1])}", "c LIKE 'a%'",
            f"c <> {draw.choice(TEXTS[:-1])} AND a < 50",
            "d > 0", "d = 1.25 OR d IS NULL", "e < '2015-01-01'", "e IS NOT NULL AND n % 3 = 0", "LENGTH(b) > 100",
            f"n % 7 = {draw.randint(0, 6)}",
        ])  # fmt: skip

    def change(self):
        draw = self.random
        return draw.choice([
            f"a = {draw.choice(NUMBERS)}", "a = a + 1", f"c = {draw.choice(TEXTS)}", "c = CONCAT(c, 'x')",
            f"d = {draw.choice(['d + 1', 'NULL', '0'])}",
            "e = e + INTERVAL 1 DAY", f"b = REPEAT('y', {draw.choice([0, 5, 5000, 20000])})", "a = -a, c = UPPER(c)",
            f"n = n + {draw.choice([1000, 2000])}", "n = n",
        ])  # fmt: skip

    def statement(self):
        """The next statement, and whether its rows come in a fixed order."""
        draw = self.random
        dice = draw.random()
        if dice < 0.22:
            rows = ", ".join(f"({', '.join(self.row())})" for _ in range(draw.choice([1, 1, 1, 3, 10])))
            return f"{draw.choice(['INSERT', 'INSERT', 'REPLACE'])} INTO t VALUES {rows}", False
        if dice < 0.27:
            return f"INSERT INTO t VALUES ({', '.join(self.row())}) ON DUPLICATE KEY UPDATE {self.change()}", False
        if dice < 0.30:
            return (
                f"INSERT INTO t SELECT n + {draw.choice([150, 300, 3000])}, a, c, d, e, b FROM t WHERE {self.where()} AND n < 500 ORDER BY n",
                False,
            )
        if dice < 0.46:
            change = self.change()
            # Whether a row's new key is taken when its turn comes depends on the order of the rows.
            order = draw.choice([" ORDER BY n", " ORDER BY n DESC"]) if change.startswith("n = n +") else ""
            return f"UPDATE t SET {change} WHERE {self.where()}{order}", False
        if dice < 0.50:
            return (
                f"UPDATE t SET {self.change()} WHERE {self.where()} ORDER BY n {draw.choice(['', 'DESC'])} LIMIT {draw.randint(1, 20)}",
                False,
            )
        if dice < 0.58:
            return f"DELETE FROM t WHERE {self.where()} {draw.choice(['', 'ORDER BY n LIMIT 5', 'AND n > 20'])}", False
        if dice < 0.70:
            return self.query(), False
        if dice < 0.76:
            column = draw.choice(["n", "a", "c", "d", "e"])
            return (
                f"SELECT n, a, d FROM t WHERE {self.where()} ORDER BY {column} {draw.choice(['', 'DESC'])}, n LIMIT {draw.randint(1, 30)}",
                True,
            )
        if dice < 0.93:
            return self.control(), False
        return (
            draw.choice(
                ["SELECT COUNT(*) FROM t", "SELECT COUNT(*), SUM(n), MIN(a), MAX(a), SUM(LENGTH(b)) FROM t", "ANALYZE TABLE t"]
            ),
            False,
        )

    def query(self):
        draw = self.random
        return draw.choice([
            f"SELECT n, a, HEX(c), d, e, MD5(b) FROM t WHERE {self.where()}",
            f"SELECT n FROM t WHERE {self.where()} AND {self.where()}",
            f"SELECT a, COUNT(*), SUM(d) FROM t WHERE {self.where()} GROUP BY a",
            f"SELECT x.n, y.n FROM t x JOIN t y ON x.a = y.a WHERE x.n < y.n AND y.n < {draw.randint(5, 60)}",
            f"SELECT n, a FROM t WHERE {self.where()} FOR UPDATE", "SELECT DISTINCT a FROM t",
            "SELECT MIN(c) = 'a', MIN(e), HEX(MAX(d)) FROM t",
        ])  # fmt: skip

    def control(self):
        draw = self.random
        if not self.in_transaction:
            self.in_transaction, self.savepoints = True, []
            return "BEGIN"
        dice = draw.random()
        if dice < 0.25:
            self.savepoints.append(f"s{draw.randint(1, 3)}")
            return f"SAVEPOINT {self.savepoints[-1]}"
        if dice < 0.5 and self.savepoints:
            return f"ROLLBACK TO SAVEPOINT {draw.choice(self.savepoints)}"
        if dice < 0.55 and self.savepoints:
            return f"RELEASE SAVEPOINT {draw.choice(self.savepoints)}"
        if dice < 0.8:
            self.in_transaction = False
            return draw.choice(["COMMIT", "ROLLBACK"])
        return "SELECT COUNT(*) FROM t"


def play(twin, seed):
    """One table and its statements; the order of rows is free unless the statement fixes it."""
    maker = Maker(seed)
    twin.ok("SET sql_mode = 'STRICT_TRANS_TABLES'")
    twin.ok(maker.create())
    for number in range(STATEMENTS):
        statement, ordered = maker.statement()
        if statement.startswith("ANALYZE"):
            twin.under_test.rows(statement), twin.oracle.rows(statement)
            maker.in_transaction = False
            continue
        twin.run(statement, ordered=ordered)
        if number % 25 == 24:
            twin.same("SELECT n, a, HEX(c), d, e, MD5(b) FROM t")
    twin.run("ROLLBACK")
    twin.same("SELECT n, a, HEX(c), d, e, MD5(b) FROM t")
    for key in twin.oracle.rows("SHOW KEYS FROM t WHERE seq_in_index = 1"):
        twin.same(f"SELECT n, {key[4]} FROM t FORCE INDEX (`{key[2]}`) WHERE {key[4]} IS NULL OR {key[4]} IS NOT NULL")
    checked = twin.under_test.rows("CHECK TABLE t EXTENDED")
    assert checked[-1][3] == "OK", f"{checked} after {twin.history[-STATEMENTS:]}"
    twin.ok("DROP TABLE t")


def test_random_statements_agree_with_innodb(twin, request, engine):
    asked = request.config.getoption("--random-seed")
    rounds = request.config.getoption("--random-rounds") or (200 if request.config.getoption("--long") else 6)
    first = asked if asked is not None else random.SystemRandom().randrange(1 << 30)
    for seed in [first] if asked is not None else range(first, first + rounds):
        try:
            play(twin, seed)
        except AssertionError as error:
            pytest.fail(
                f"{error}\nreplay: build/venv/bin/python -m pytest tests/sql/test_random.py -k agree --engine {engine} --random-seed {seed}"
            )


def test_random_concurrent_transactions_keep_their_sum(db, request):
    """Random moves between rows of one table by eight sessions at mixed isolation levels; the sum of all rows never changes."""
    seed = request.config.getoption("--random-seed") or random.SystemRandom().randrange(1 << 30)
    db.ok("CREATE TABLE m (n INT PRIMARY KEY, v INT NOT NULL, KEY (v)) ENGINE={engine}")
    db.ok("INSERT INTO m SELECT seq, 100 FROM seq_1_to_40")
    db.ok(
        "CREATE PROCEDURE move(k INT) BEGIN DECLARE a, b INT; DECLARE CONTINUE HANDLER FOR 1020, 1205, 1213 BEGIN ROLLBACK; END;"
        " WHILE k > 0 DO SET a = 1 + FLOOR(RAND() * 40), b = 1 + FLOOR(RAND() * 40), k = k - 1; CALL one(a, b); END WHILE; END"
    )
    db.ok(
        "CREATE PROCEDURE one(a INT, b INT) BEGIN START TRANSACTION; UPDATE m SET v = v - 1 WHERE n = a;"
        " UPDATE m SET v = v + 1 WHERE n = b; IF RAND() < 0.1 THEN ROLLBACK; ELSE COMMIT; END IF; END"
    )
    levels = ["READ COMMITTED", "REPEATABLE READ"]
    workers = []
    for number in range(8):
        session = db.session()
        session.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {levels[number % 2]}")
        session.ok(f"SET rand_seed1 = {seed % 100000 + number}, rand_seed2 = {number + 1}")
        workers.append(session.later("CALL move(300)"))
    while any(worker.is_alive() for worker in workers):
        failed = [worker.answer for worker in workers if worker.answer and worker.answer.error]
        assert not failed, f"{failed} (seed {seed})"
        assert db.rows("SELECT SUM(v), COUNT(*) FROM m") == [(4000, 40)], f"a reader saw half a transaction (seed {seed})"
        assert db.rows("SELECT SUM(v), COUNT(*) FROM m FORCE INDEX (v) WHERE v > -100000") == [
            (4000, 40)
        ], f"through the key (seed {seed})"
    for worker in workers:
        assert worker.result().error is None, f"{worker.answer} (seed {seed})"
    assert db.rows("SELECT SUM(v), COUNT(*) FROM m") == [(4000, 40)]
    assert db.rows("CHECK TABLE m EXTENDED")[-1][3] == "OK"
