"""Random tables of every type, collation and kind of key, changed and altered at random; every answer and every row must be that of InnoDB.

Where test_random.py has one table and many statements, this has many tables: keys over prefixes, descending, over computed columns, UNIQUE
over whole long values. The statements are made from a seed, and a failure prints it with the command that replays it. What SQL leaves open is not
asked: which of several rows in the way ON DUPLICATE KEY UPDATE changes, what comes first without ORDER BY, which row an error names.
Nor is what the server or the oracle answers wrongly itself: a sort by computed columns, ORDER BY ... LIMIT of rows that are copied into
their own table, ranges by a prefix of texts whose collation compares capitals last or a letter like two ('ß' like 'ss': the prefix of
one letter is beyond that of 's'), values that their type does not take (they become NULL, and of many such
rows <=> by a unique key shows one), how many rows ON DUPLICATE KEY UPDATE changes where a NULL stays NULL in a column that has a default (the oracle
leaves the default in the row that it hands over, and a row left as it was counts 1).
"""

import random
import re

import pytest
from sql_tools import compare

STATEMENTS = 110
# Of the first of the tables that every change is tried with.
SEED = 20_261_130
INTEGERS = {"TINYINT": 127, "SMALLINT": 32767, "MEDIUMINT": 2**23 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}
COLLATIONS = [
    "utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_nopad_bin", "utf8mb4_unicode_520_nopad_ci", "utf8mb4_swedish_ci",
    "utf8mb3_czech_ci", "latin1_swedish_ci", "latin1_german2_ci", "ucs2_general_ci", "utf16_bin", "sjis_japanese_ci", "tis620_thai_ci",
]  # fmt: skip
WORDS = ["''", "'a'", "'A'", "'ab'", "'Ab'", "'b '", "'b'", "' '", "'zz'", "'aa'", "'ss'", "'abcdefghij'", "REPEAT('q', 30)", "REPEAT('a ', 12)", "'10'", "'9'"]
LETTERS = ["'ß'", "'ä'", "'Ä'", "'é'", "'æ'", "'ch'", "'ı'", "'ñ'", "'漢'"]
BY_SEVERAL_LETTERS = ("unicode", "utf8mb4_swedish", "czech", "german2")
LARGE = ["REPEAT('k', 300)", "CONCAT(REPEAT('k', 300), 'z')", "REPEAT('m', 9000)", "REPEAT('n', 70000)", "UNHEX('00')", "UNHEX('FF')"]
FIXED = [
    ("DECIMAL(10,2)", ["0", "1.25", "-1.25", "99999999.99", "-99999999.99"]),
    ("DECIMAL(65,30)", ["0", "-1.000000000000000000000000000001", "99999999999999999999999999999999999.999999999999999999999999999999"]),
    ("DOUBLE", ["0", "1.5", "-1.5", "1.7e308", "1e-300", "-0.0"]),
    ("BIT(11)", ["0", "1", "255", "256", "b'11111111111'"]),
    ("ENUM('b','a','C')", ["'a'", "'b'", "'C'", "1"]),
    ("SET('p','q','r')", ["''", "'p'", "'q,r'", "'p,q,r'"]),
    ("YEAR", ["0", "1901", "2155", "2000"]),
    ("DATE", ["'0001-01-01'", "'9999-12-31'", "'2000-02-29'"]),
    ("TIME(6)", ["'-838:59:59.999999'", "'838:59:59.999999'", "'-00:00:00.000001'", "'00:00:00'"]),
    ("DATETIME(3)", ["'1000-01-01 00:00:00.001'", "'9999-12-31 23:59:59.999'", "'2000-02-29 12:00:00'"]),
    ("TIMESTAMP(6) NULL", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "'2020-01-01 00:00:00.000001'"]),
    ("INET6", ["'::'", "'::1'", "'ffff::'", "'::10.0.0.1'"]),
    ("UUID", ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'123e4567-e89b-12d3-a456-426655440000'"]),
    ("BINARY(8)", ["''", "'a'", "'a '", "UNHEX('FFFF')", "'abcdefgh'"]),
    ("VARBINARY(40)", ["''", "'a'", "'a '", "'ab'", "UNHEX('00')", "UNHEX('FF00')"]),
]  # fmt: skip


class Column:
    """A column of the table; `rule` is the expression of a computed one."""

    def __init__(self, name, kind, values, rule=None):
        self.name, self.kind, self.values, self.rule, self.default = name, kind, values, rule, "NULL"
        self.is_large = "BLOB" in kind or "TEXT" in kind
        self.is_text = "COLLATE" in kind
        # Lengths of its prefix in a key; 200 letters are the whole of each text.
        short = [] if any(name in kind for name in BY_SEVERAL_LETTERS) else [1, 3] if self.is_large else [1, 5]
        self.prefixes = [*short, 200] if self.is_large else short if self.is_text else []
        self.is_number = kind.split()[0] in INTEGERS

    def define(self):
        return f"{self.name} {self.kind}" + (f" AS ({self.rule}) VIRTUAL" if self.rule else "")

    def shown(self):
        """What a query asks for: bytes, and of long values a digest."""
        if self.is_large:
            return f"MD5({self.name})"
        return f"HEX({self.name})" if self.is_text or "BINARY" in self.kind else f"{self.name} + 0" if "BIT" in self.kind else self.name


class Maker:
    """A table and statements over it. Column `r` gets another number for each new row and makes orders unique."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.number, self.names, self.in_transaction, self.savepoints = 0, 0, False, []
        self.columns, self.keys, self.unique = [Column("r", "INT NOT NULL", [])], [], {}

    def column(self):
        draw, self.names = self.random, self.names + 1
        name, kind = f"c{self.names}", draw.choice(["integer", "fixed", "fixed", "text", "text", "large"])
        if kind == "integer":
            word = draw.choice(list(INTEGERS))
            return Column(name, word, ["0", "1", "2", "3", "7", "-5", str(INTEGERS[word]), str(-INTEGERS[word] - 1)])
        if kind == "fixed":
            return Column(name, *draw.choice(FIXED))
        if kind == "large":
            return Column(name, draw.choice(["BLOB", "LONGBLOB"]), WORDS[:8] + LARGE)
        collation = draw.choice(COLLATIONS)
        character_set = collation.partition("_")[0]
        values = WORDS + (LETTERS if character_set.startswith("u") else [])
        word = draw.choice(["VARCHAR(40)", "VARCHAR(300)", "CHAR(40)", "TEXT"])
        return Column(name, f"{word} CHARACTER SET {character_set} COLLATE {collation}", values)

    def computed(self):
        draw, self.names = self.random, self.names + 1
        of = draw.choice([column for column in self.columns if not column.rule])
        if of.is_number:
            return Column(f"c{self.names}", "BIGINT", ["0", "1", "3", "8"], f"{of.name} > 2")
        return Column(f"c{self.names}", "VARCHAR(32)", ["NULL", "'0'"], f"MD5({of.name})")

    def part(self, column):
        draw = self.random
        length = f"({draw.choice(column.prefixes)})" if column.is_large or column.prefixes and draw.random() < 0.3 else ""
        return column.name + length + draw.choice(["", "", " DESC"])

    def key(self):
        draw, self.names = self.random, self.names + 1
        name, columns = f"k{self.names}", draw.sample(self.columns, min(len(self.columns), draw.choice([1, 1, 2, 3])))
        is_unique = draw.random() < 0.35
        is_whole = is_unique and any(column.is_large for column in columns) and draw.random() < 0.6
        parts = ", ".join(column.name if is_whole else self.part(column) for column in columns)
        self.keys.append(name)
        if is_unique:
            self.unique[name] = {column.name for column in columns} | {column.rule for column in columns}
        return f"{'UNIQUE ' if is_unique else ''}KEY {name} ({parts})"

    def create(self):
        draw = self.random
        self.columns += [self.column() for _ in range(draw.randint(2, 6))]
        self.columns += [self.computed() for _ in range(draw.choice([0, 1, 2]))]
        keys = [self.key() for _ in range(draw.randint(1, 5))]
        primary = draw.choice(["PRIMARY KEY (r)", "PRIMARY KEY (r)", "KEY (r)"])
        if primary.startswith("PRIMARY"):
            self.unique["PRIMARY"] = {"r"}
        return f"CREATE TABLE t ({', '.join([column.define() for column in self.columns] + [primary] + keys)}) ENGINE={{engine}}"

    def value(self, column):
        if column.name == "r":
            self.number += 1
            return str(self.number)
        return "NULL" if self.random.random() < 0.2 else self.random.choice(column.values)

    def assigned(self, column, of_duplicate):
        """What it is set to; in a column with a default nothing that leaves a NULL, which the oracle would count wrongly (above)."""
        if column.is_text and self.random.random() < 0.3:
            text = f"CONCAT({column.name}, 'x')"
            return f"IFNULL({text}, {column.default})" if of_duplicate else text
        value = self.value(column)
        return column.default if of_duplicate and value == "NULL" else value

    def constant(self, column):
        return str(self.random.randint(0, self.number + 1)) if column.name == "r" else self.random.choice(column.values)

    def where(self, depth=0):
        draw = self.random
        if depth < 2 and draw.random() < 0.3:
            return f"({self.where(depth + 1)} {draw.choice(['AND', 'OR'])} {self.where(depth + 1)})"
        column = draw.choice([column for column in self.columns if "MD5" not in (column.rule or "")])
        values = [self.constant(column) for _ in range(3)]
        return f"{column.name} " + draw.choice([
            f"= {values[0]}", f"<=> {values[0]}", f"> {values[0]}", f"<= {values[0]}", f"<> {values[0]}", f"BETWEEN {values[0]} AND {values[1]}",
            f"IN ({', '.join(values)})", "IS NULL", "IS NOT NULL",
        ])  # fmt: skip

    def change(self, of_duplicate=False):
        """Assignments, and whether a unique key hears of them; `of_duplicate` if those of ON DUPLICATE KEY UPDATE."""
        draw = self.random
        columns = [column for column in self.columns if column.name != "r" and not column.rule]
        chosen = draw.sample(columns, min(len(columns), draw.choice([1, 1, 2])))
        text = ", ".join(f"{column.name} = {self.assigned(column, of_duplicate)}" for column in chosen)
        heard = any(re.search(rf"\b{column.name}\b", " ".join(filter(None, words))) for column in chosen for words in self.unique.values())
        return text, heard

    def insert(self):
        draw = self.random
        columns = [column for column in self.columns if not column.rule]
        rows = ", ".join("(" + ", ".join(self.value(column) for column in columns) + ")" for _ in range(draw.choice([1, 1, 3, 8])))
        verb = draw.choice(["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"])
        tail = ""
        if verb == "INSERT" and len(self.unique) == 1 and draw.random() < 0.5:
            tail = f" ON DUPLICATE KEY UPDATE {self.change(of_duplicate=True)[0]}"
        return f"{verb} INTO t ({', '.join(column.name for column in columns)}) VALUES {rows}{tail}"

    def update(self):
        draw = self.random
        text, heard = self.change()
        order = f" ORDER BY r {draw.choice(['', 'DESC'])} {draw.choice(['', 'LIMIT 5'])}" if heard or draw.random() < 0.3 else ""
        return f"UPDATE {'IGNORE ' if order and draw.random() < 0.2 else ''}t SET {text} WHERE {self.where()}{order}"

    def query(self):
        draw = self.random
        hint = f" {draw.choice(['FORCE', 'IGNORE'])} INDEX ({draw.choice(self.keys)})" if self.keys and draw.random() < 0.7 else ""
        wanted = draw.sample(self.columns, draw.randint(1, len(self.columns)))
        locks = draw.choice(["", "", " FOR UPDATE"])
        return f"SELECT {', '.join(column.shown() for column in wanted)} FROM t{hint} WHERE {self.where()}{locks}"

    def control(self):
        draw = self.random
        if not self.in_transaction:
            self.in_transaction, self.savepoints = True, []
            return "BEGIN"
        dice = draw.random()
        if dice < 0.35:
            self.savepoints.append(f"s{draw.randint(1, 3)}")
            return f"SAVEPOINT {self.savepoints[-1]}"
        if dice < 0.6 and self.savepoints:
            return f"ROLLBACK TO SAVEPOINT {draw.choice(self.savepoints)}"
        self.in_transaction = False
        return draw.choice(["COMMIT", "COMMIT", "ROLLBACK"])

    def alter(self):
        """A change of the definition, which counts for what follows only if it is done: the caller asks `settle`."""
        draw = self.random
        self.before = list(self.columns), list(self.keys), dict(self.unique)
        dice = draw.random()
        if dice < 0.35:
            added = self.column()
            added.default = draw.choice(["NULL", "NULL", *added.values[:2]])
            self.columns.append(added)
            return f"ALTER TABLE t ADD COLUMN {added.define()} DEFAULT {added.default} FIRST"
        if dice < 0.6:
            return f"ALTER TABLE t ADD {self.key()}"
        if dice < 0.75 and self.keys:
            name = self.keys.pop(draw.randrange(len(self.keys)))
            self.unique.pop(name, None)
            return f"ALTER TABLE t DROP KEY {name}"
        if dice < 0.9:
            column = draw.choice(self.columns[1:])
            return f"ALTER TABLE t MODIFY {column.define()} AFTER r" if column.name != "r" else "ALTER TABLE t FORCE"
        return "ALTER TABLE t FORCE"

    def settle(self, is_done):
        if not is_done:
            self.columns, self.keys, self.unique = self.before

    def statement(self):
        dice = self.random.random()
        if dice < 0.3:
            return self.insert()
        if dice < 0.5:
            return self.update()
        if dice < 0.56:
            return f"DELETE FROM t WHERE {self.where()} AND {self.where()}"
        if dice < 0.82:
            return self.query()
        if dice < 0.95 or self.in_transaction:
            return self.control()
        return self.alter()


def run(twin, statement):
    """In both; of errors the number counts, of ALTER whether it is done."""
    twin.history.append(statement)
    answers = [side.run(statement) for side in (twin.under_test, twin.oracle)]
    if statement.startswith("ALTER"):
        refused = [answer.error for answer in answers]
        assert refused[0] is None or refused[1] is not None, f"only {twin.under_test.engine} refuses {statement}: {refused[0]}"
        return answers
    difference = compare(*answers, ordered=False)
    assert not difference, f"{statement}\n{difference}"
    return answers


def play(twin, seed):
    """One table; False if the oracle does not take it."""
    maker = Maker(seed)
    for side in (twin.under_test, twin.oracle):
        side.ok("SET sql_mode = '', timestamp = 1600000000, time_zone = '+00:00'")
        side.run("DROP TABLE IF EXISTS t")
    definition = maker.create()
    twin.history.append(definition)
    if twin.oracle.run(definition).error:
        return False
    twin.under_test.ok(definition)
    for _ in range(STATEMENTS):
        statement = maker.statement()
        answers = run(twin, statement)
        if statement.startswith("ALTER"):
            maker.settle(answers[1].error is None)
            if answers[1].error and answers[0].error is None:
                return False  # longer keys, more bytes in a row: the tables are not the same any more
        if statement.split()[0] in ("REPLACE", "INSERT", "UPDATE", "DELETE", "ALTER", "ROLLBACK"):
            run(twin, f"SELECT {', '.join(column.shown() for column in maker.columns)} FROM t")
    run(twin, "COMMIT")
    checked = twin.under_test.rows("CHECK TABLE t EXTENDED")
    assert checked[-1][3] == "OK", checked
    return True


def test_random_tables_agree_with_innodb(twin, request, engine):
    asked, wanted, is_long = (request.config.getoption(name) for name in ("--random-seed", "--random-rounds", "--long"))
    rounds = wanted or (300 if is_long else 24)
    # New tables are looked for where somebody asks for them; what every change must pass are the same ones, or a change would be refused for
    # what the oracle answers wrongly of a table that nobody has met yet.
    first = random.SystemRandom().randrange(1 << 30) if wanted or is_long else SEED
    played = 0
    for seed in [asked] if asked is not None else range(first, first + rounds):
        del twin.history[:]
        try:
            played += play(twin, seed)
        except AssertionError as error:
            pytest.fail(
                f"{error}\n{twin._replay()}\nreplay: build/venv/bin/python -m pytest tests/sql/test_random_tables.py --engine {engine} --random-seed {seed}"
            )
    assert played or asked is not None, "no table was one that both engines take"
