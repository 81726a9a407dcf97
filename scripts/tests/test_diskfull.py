"""The record of bench/diskfull: refusals must be clear and leave nothing, changes in doubt are there as a whole or not at all."""

import os
import random
import sys
from pathlib import Path

import pymysql
import pytest
from common import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import full_disk, full_work  # noqa: E402  # the path to bench/ is set above


class Database:
    """Answers of a server, by the beginning of the statement."""

    def __init__(self, **answers):
        self.answers, self.error = answers, None

    def rows(self, _, statement, __=None):
        """What `rows_of` would give."""
        return next((rows for begin, rows in self.answers.items() if statement.startswith(begin.replace("_", " "))), [])

    def run(self, *_):
        """What `execute` would do."""
        if self.error:
            raise self.error


@pytest.fixture(name="database")
def fixture_database(monkeypatch):
    database = Database()
    monkeypatch.setattr(full_work, "rows_of", database.rows)
    monkeypatch.setattr(full_work, "execute", database.run)
    return database


def test_a_clear_refusal_is_counted_and_leaves_nothing_in_the_record(database):
    singles = full_work.Singles(1)
    database.error = pymysql.err.InternalError(1021, "Disk full (./full/single); waiting for someone to free some space...")
    singles.step(None)
    assert singles.refused == {("single insert", 1021): 1} and not singles.failure
    assert (singles.rows, singles.in_doubt, singles.acknowledged) == ({}, None, 0)


def test_a_refusal_that_does_not_speak_of_room_ends_the_worker(database):
    for error in (pymysql.err.InternalError(1296, "Got error 203 'is damaged' from PBXT"), pymysql.err.InternalError(1030, "Got error 5")):
        singles = full_work.Singles(1)
        database.error = error
        with pytest.raises(full_work.Stopped):
            singles.step(None)
        assert str(error.args[0]) in singles.failure


def test_the_engines_sentence_among_the_warnings_makes_a_refusal_clear(database):
    database.answers["SHOW_WARNINGS"] = [("Warning", 1105, "PBXT: no space left for 'hot-00000007.seg': free some space and try again")]
    database.error = pymysql.err.InternalError(1005, "Can't create table `full`.`made_1` (errno: 155)")
    ddl = full_work.Ddl(1)
    ddl.step(None)
    assert ddl.refused == {("DDL CREATE", 1005): 1} and not ddl.made and not ddl.failure


def test_a_lost_connection_leaves_the_change_in_doubt(database):
    singles = full_work.Singles(1)
    database.error = pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
    with pytest.raises(pymysql.err.OperationalError):
        singles.step(None)
    ident, after = singles.in_doubt
    database.answers["SELECT_id,_k,_pad"] = [(ident, *after)]
    database.answers["SELECT_k,_id"] = [(after[0], ident)]
    assert singles.verify(None) == [] and singles.rows == {ident: after}


def test_rows_that_are_missing_or_were_refused_are_complaints(database):
    singles = full_work.Singles(1)
    singles.rows = {1: (5, "s")}
    assert "table single: 1 differ" in singles.verify(None)[0]
    database.answers["SELECT_id,_k,_pad"] = [(1, 5, "s"), (2, 7, "s")]
    database.answers["SELECT_k,_id"] = [(5, 1), (7, 2)]
    assert "2: has (7, 's'), expected None" in singles.verify(None)[0]
    database.answers["SELECT_id,_k,_pad"] = [(1, 5, "s")]
    assert singles.verify(None) == ["table single: index k and the rows differ"]


def test_a_long_transaction_in_doubt_is_there_as_a_whole_or_not_at_all(database):
    for there, good in (([], True), ([(1, 3, 4), (2, 3, 4)], True), ([(1, 3, 4)], False)):
        ledger = full_work.Ledger(1)
        ledger.in_doubt = {1: (3, 4), 2: (3, 4)}
        database.answers = {"SELECT_id,_n": there, "SELECT_COUNT": [(len(there), sum(row[0] for row in there))]}
        assert (ledger.verify(None) == []) is good, there


def test_sums_of_the_bulk_table_follow_from_its_rows():
    rows = {ident: (ident * 7 % 1000, "b" * (ident % 60)) for ident in range(1, 101)}
    assert full_work.Bulk.sums((100, 0, False)) == (100, sum(rows), sum(a for a, _ in rows.values()), sum(len(b) for _, b in rows.values()))
    left = {ident: row for ident, row in rows.items() if ident % 3}
    expected = (len(left), sum(left), sum(a + 2 for a, _ in left.values()), sum(len(b) for _, b in left.values()))
    assert full_work.Bulk.sums((100, 2, True)) == expected and full_work.Bulk.sums((0, 0, False)) == (0, 0, 0, 0)


@pytest.mark.usefixtures("database")
def test_the_record_of_tables_follows_their_statements(monkeypatch):
    ddl = full_work.Ddl(5)
    for _ in range(300):
        ddl.step(None)
    assert ddl.acknowledged == 300 and len(ddl.made) <= full_work.TABLES_KEPT
    ddl.made.setdefault("made_0", (3, frozenset({"KEY"})))
    texts = {name: " ".join(("KEY `ka`" if part == "KEY" else "`extra`") for part in has) for name, (_, has) in ddl.made.items()}
    monkeypatch.setattr(full_work, "rows_of", lambda _, statement: answer_of(ddl, texts, statement))
    assert ddl.verify(None) == []
    ddl.made[next(iter(ddl.made))] = (-1, frozenset())
    assert "tables made: 1 differ" in ddl.verify(None)[0]


def answer_of(ddl, texts, statement):
    """What the server would say of the tables that were made."""
    name = statement.split()[-1]
    if statement.startswith("SHOW TABLES"):
        return [(name,) for name in texts]
    if statement.startswith("SHOW CREATE"):
        return [(name, texts[name])]
    rows = max(ddl.made[name][0], 0)
    return [(rows, rows * (rows + 1) // 2)]


def test_without_root_nothing_is_mounted(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Problem, match="only be mounted by root"):
        full_disk.SmallDisk(tmp_path / "disk", "tmpfs", 1 << 20).mount()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_ballast_leaves_what_it_is_told_and_everything_is_given_back(tmp_path):
    disk = full_disk.SmallDisk(tmp_path / "disk", "tmpfs", 16 << 20)
    disk.mount()
    try:
        (disk.path / "kept").write_bytes(random.Random(1).randbytes(1000))
        assert disk.fill(1 << 20) < (1 << 20) + 8192
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(bytes(2 << 20))
        disk.relieve()
        assert disk.free() > 14 << 20
        disk.copy_to(tmp_path / "copy")
    finally:
        disk.unmount()
    assert len((tmp_path / "copy" / "kept").read_bytes()) == 1000
    assert not (tmp_path / "disk").exists()
