"""The records of bench/wide_work.py: what they say is there follows from the statements, and what they must not accept ends their worker."""

import re
import sqlite3
import sys
from pathlib import Path

import pymysql
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import full_work, wide_work  # noqa: E402  # the path to bench/ is set above

ONLY_HERE = re.compile(r" (?:IGNORE|FORCE) INDEX \([^)]*\)|, (?:UNIQUE )?KEY \w+ \(\w+\)| CHARACTER SET utf8mb4 COLLATE utf8mb4_bin| ENCRYPTED=YES")


class Lite:
    """Another database that knows foreign keys, in the place of the server."""

    def __init__(self, kind):
        self.files = sqlite3.connect(":memory:", isolation_level=None)
        self.files.create_function("CHAR_LENGTH", 1, len, deterministic=True)
        self.files.execute("PRAGMA foreign_keys = ON")
        for statement in kind.create:
            for unique in re.findall(r"CREATE TABLE (\w+).* UNIQUE KEY \w+ \((\w+)\)", statement):
                statement += f"; CREATE UNIQUE INDEX of_{'_'.join(unique)} ON {unique[0]} ({unique[1]})"
            self.files.executescript(ONLY_HERE.sub("", statement))

    def rows_of(self, _, statement, arguments=()):
        """What the server would answer."""
        try:
            return list(self.files.execute(ONLY_HERE.sub("", statement).replace("%s", "?"), arguments or ()))
        except sqlite3.IntegrityError as error:
            number = wide_work.NO_PARENT if "FOREIGN KEY" in str(error) else wide_work.DUPLICATE
            raise pymysql.err.IntegrityError(number, str(error)) from None

    def execute(self, connection, statement, arguments=None):
        """What the server would do."""
        if not statement.startswith("SET TRANSACTION"):
            self.rows_of(connection, statement, arguments)


@pytest.fixture(name="lite")
def fixture_lite(monkeypatch):
    def make(kind):
        lite = Lite(kind)
        for module in (full_work, wide_work):
            monkeypatch.setattr(module, "rows_of", lite.rows_of)
        monkeypatch.setattr(full_work, "execute", lite.execute)
        return lite

    return make


def test_families_are_what_another_database_makes_of_the_statements(lite):
    files = lite(wide_work.Families).files
    families = wide_work.Families(3)
    for _ in range(1500):
        families.step(None)
    parents, children, pets = families.families
    assert families.verify(None) == [] and len(parents) > 20 and len(children) > 50 and None in pets.values()
    files.execute("UPDATE child SET v = v + 1 WHERE id = (SELECT MIN(id) FROM child)")
    assert "table child: 1 differ" in families.verify(None)[0]


def test_a_family_in_doubt_is_there_as_a_whole_or_not_at_all(lite):
    for there, good in ((0, True), (3, True), (2, False)):
        files = lite(wide_work.Families).files
        families = wide_work.Families(1)
        families.in_doubt = ({1: 2}, {3: (2, 50)}, {4: 3})
        for statement in ("INSERT INTO parent VALUES (1, 2)", "INSERT INTO child VALUES (3, 2, 50)", "INSERT INTO pet VALUES (4, 3)")[:there]:
            files.execute(statement)
        assert (families.verify(None) == []) is good, there


def test_a_child_without_parent_that_is_accepted_ends_the_worker(lite):
    lite(wide_work.Families).files.execute("PRAGMA foreign_keys = OFF")
    families = wide_work.Families(3)
    with pytest.raises(full_work.Stopped):
        while True:
            families.step(None)
    assert "was not refused with 1452" in families.failure


def test_texts_are_unique(lite):
    files = lite(wide_work.Sealed).files
    sealed = wide_work.Sealed(1)
    sealed.rows = {1: "one"}
    files.execute("INSERT INTO sealed (n, words) VALUES (1, 'one')")
    insert = "INSERT INTO sealed (n, words) VALUES (%s, %s)"
    sealed.must_fail(None, wide_work.DUPLICATE, insert, (2, "one"))
    assert sealed.verify(None) == []
    with pytest.raises(full_work.Stopped):
        sealed.must_fail(None, wide_work.DUPLICATE, insert, (2, "two"))
    assert "table sealed: 1 differ" in sealed.verify(None)[0]


def test_a_number_given_twice_ends_the_worker(monkeypatch):
    spread = wide_work.Spread(1)
    monkeypatch.setattr(wide_work, "rows_of", lambda *_: [(7,)])
    spread.draw(None)
    assert spread.last_number == 7
    with pytest.raises(full_work.Stopped):
        spread.draw(None)
    assert "is 7, and 7 had been given" in spread.failure


def test_a_spread_change_in_doubt_is_there_whole_or_not(monkeypatch):
    for seen, good in (({1: 5, 2: 6}, True), ({1: 6, 2: 7}, True), ({1: 6, 2: 6}, False)):
        spread = wide_work.Spread(1)
        spread.rows, spread.in_doubt = {1: 5, 2: 6}, {1: 6, 2: 7}
        lines = [(mark, mark, a, a * 2) for mark, a in seen.items()]
        answers = {"id": lines, "doubled": [(a * 2, mark) for mark, a in seen.items()]}
        monkeypatch.setattr(wide_work, "rows_of", lambda _, statement, answers=answers: answers[re.match(r"SELECT (\w+)", statement)[1]])
        assert (spread.verify(None) == []) is good, seen
        assert spread.greatest == 2
