"""The comparisons' arithmetic: generated rows have the known shares, rounds are merged, targets are judged, questions fit statements."""

import importlib.machinery
import importlib.util
import itertools
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from common import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import evenness, lab, record, storm, video  # noqa: E402  # the path to bench/ is set above


def script(name):
    """A tool of bench/ as a module; its file has no extension."""
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(ROOT / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_sizes_are_read_and_nonsense_is_refused():
    assert [lab.bytes_of(text) for text in ("4G", "256M", "1.5k", "77")] == [4 << 30, 256 << 20, 1536, 77]
    with pytest.raises(Problem):
        lab.bytes_of("many")


def test_names_of_artists_have_the_known_shares_lengths_and_are_different():
    names, popularity = video.artist_names(random.Random(1))
    assert len(set(names)) == len(names) == video.ARTISTS
    assert all(4 <= len(name) <= 25 for name in names)
    weights = [after - before for before, after in zip([0, *popularity], popularity)]
    for start, share in video.SHARES.items():
        found = sum(w for name, w in zip(names, weights) if name.lower().startswith(start)) / popularity[-1]
        assert abs(found - share) < 0.001, (start, found, share)


def test_the_same_seed_makes_the_same_rows_and_every_id_once():
    first, second = ("".join(video.chunks(3000, 5, "scattered")) for _ in range(2))
    assert first == second != "".join(video.chunks(3000, 6, "scattered"))
    rows = [line.split("\t") for line in first.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, 3001))
    assert {len(row[3]) for row in rows} == {11}


def test_rising_dates_rise_over_all_days():
    dates = [line.split("\t")[4] for line in "".join(video.chunks(5000, 5, "rising")).splitlines()]
    assert dates == sorted(dates) and len(set(dates)) == video.DAYS and "2010-11-11" in dates


def test_targets_are_judged_by_ratio_bytes_and_milliseconds():
    seed003 = script("seed003")
    assert seed003.verdict("1", {}, 0.2, False) == ("<= 0.25x", "yes")
    assert seed003.verdict("1", {}, 0.2, True) == ("<= 0.12x", "NO")
    assert seed003.verdict("1a", {"per_row": 50.1}, 0.1, False)[1] == "NO"
    assert seed003.verdict("6", {"seconds": 0.00009}, None, False)[1] == "yes"
    assert seed003.verdict("3", {"seconds": 1}, 9.0, False) == ("<= 0.35x", "NO")
    assert seed003.verdict("6a", {"seconds": 1}, 9.0, False) == ("-", "-")


def test_rounds_become_medians_and_one_failure_is_a_failure():
    seed003 = script("seed003")

    def contest(seconds, **more):
        return SimpleNamespace(kind="engine", tests={"2": {"seconds": seconds, "peak": seconds, "answer": "5", **more}})

    whole = seed003.merge([contest(1.0), contest(9.0), contest(2.0)])
    assert whole.tests["2"] == {"seconds": 2.0, "peak": 9.0, "answer": "5"}
    assert "error" in seed003.merge([contest(1.0), contest(1.0, error="no")]).tests["2"]


def test_engines_that_answer_otherwise_are_found():
    seed003 = script("seed003")
    one, other = (SimpleNamespace(kind=SimpleNamespace(name=n), tests={"5": {"answer": a}}) for n, a in (("PBXT", "3"), ("InnoDB", "4")))
    assert not list(seed003.different_answers([one, one]))
    assert len(list(seed003.different_answers([one, other]))) == 1


def test_a_large_value_counts_as_lost_changed_or_in_doubt():
    blobs = storm.Blobs(1, 100)
    blobs.there = {1: (3, "a"), 2: (4, "b")}
    stored = SimpleNamespace(rows=[])
    blobs_rows = storm.rows_of
    storm.rows_of = lambda connection, _: connection.rows
    try:
        stored.rows = [(1, 3, "a"), (2, 4, "b")]
        assert blobs.verify(stored) == []
        stored.rows = [(1, 3, "a"), (2, 4, "x")]
        assert len(blobs.verify(stored)) == 1
        stored.rows = [(1, 3, "a")]
        assert len(blobs.verify(stored)) == 1
        blobs.in_doubt = ("delete", 2, (4, "b"))
        assert blobs.verify(stored) == [] and 2 not in blobs.there
        blobs.in_doubt = ("insert", 3, (5, "c"))
        stored.rows = [(1, 3, "a"), (3, 5, "c")]
        assert blobs.verify(stored) == [] and blobs.there[3] == (5, "c")
    finally:
        storm.rows_of = blobs_rows


def test_tables_are_padded_markdown():
    assert record.table(["a", "b"], [[1, "long"]]).splitlines() == ["| a | b    |", "|---|------|", "| 1 | long |"]


def test_background_work_is_over_when_the_engine_says_so(monkeypatch):
    clock, jobs = itertools.count(0, 0.25), iter(["2", "1", "0", "1", "0", "0", "7"])
    monkeypatch.setattr(lab.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(lab.time, "sleep", lambda _: None)
    monkeypatch.setattr(lab, "rows_of", lambda *_: [(lab.BACKGROUND_STATUS, next(jobs))])
    server = object.__new__(lab.Lab)
    server.kind = lab.KINDS["pbxt"]
    server.disk_bytes = server.written_bytes = lambda: 0
    # The clock ticks at the begin, at each look at the deadline and after each answer; the last busy answer, the fourth, comes at 2 s.
    assert server._wait_until_quiet(None, 100) == 2  # pylint: disable=protected-access
    assert next(jobs) == "7"


def test_figures_of_waits_are_judged_by_median_and_greatest_and_the_order_is_told():
    waits = script("waits")
    figures = {"deadlock, 2": [0.001, 0.002, 0.5], "KILL QUERY": [0.02, 0.03], "hand-over in a line of 9, write": [0.2], "moved": 2}
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in waits.markdown({"PBXT": figures}).splitlines()]
    verdicts = {line[1]: tuple(line[4:7]) for line in lines[2:]}
    assert verdicts == {
        "deadlock, 2": ("yes", "NO", "-"),
        "KILL QUERY": ("NO", "NO", "-"),
        "hand-over in a line of 9, write": ("-", "-", "2 out of place"),
    }


def test_a_machine_that_was_slow_for_a_while_is_taken_out_of_rates_and_a_server_that_was_is_not():
    slow_machine = [1000.0] * 10 + [600.0] * 10 + [1000.0] * 10
    client = [18.0] * 10 + [30.0] * 10 + [18.0] * 10
    assert evenness.evened(slow_machine, client) == [1000.0] * 30
    assert evenness.evened(slow_machine, [18.0] * 30) == slow_machine
    # One second of a client that seems slow is how the system counts: no second is made faster by it.
    assert evenness.evened([500.0] * 9, [18.0] * 4 + [36.0] + [18.0] * 4) == [500.0] * 9
    assert evenness.evened([], []) == []
