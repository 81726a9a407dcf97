"""The report of bench/compare: its arithmetic, what it says of engines that fail or answer differently, its chart. No engine, no timing."""

import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from common import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import stores_report  # noqa: E402  # the path to bench/ is set above


def tool(name):
    """A tool of bench/ as a module; its file has no extension."""
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(ROOT / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


compare = tool("compare")
ABOUT = {"store": "x", "version": "1.0", "memory": "much", "synced": "sync", "relaxed": "none", "load": "whole", "compaction": "all"}
TOTALS = {"cpu_seconds": 3.0, "peak_bytes": 10 << 20, "written_bytes": 20 << 20}
OPTIONS = SimpleNamespace(rows=1000, singles=10, batches=1, relaxed=10, value_bytes=150, rounds=2)


def phase(name, operations, seconds, answer=0, disk=1 << 20):
    """What a run prints of one phase."""
    return {"phase": name, "operations": operations, "seconds": seconds, "cpu_seconds": seconds / 2, "disk_bytes": disk, "answer": answer}


def runs_of(**seconds):
    """Runs of these engines: each list has what the reads took in each round; the compaction took ten times as long."""
    runs = stores_report.Runs()
    for engine, rounds in seconds.items():
        for number, value in enumerate(rounds, 1):
            said = [{"about": ABOUT}, phase("random reads", 1000, value, 7), phase("compaction", 1, 10 * value, 1), {"totals": TOTALS}]
            for line in said:
                runs.add(engine, number, line)
    return runs


def test_many_operations_are_rates_and_a_single_one_is_a_time():
    figures = runs_of(PBXT=[0.5, 0.25]).figures
    assert figures.unit(stores_report.SPEED, "random reads") == "1/s"
    assert figures.values(stores_report.SPEED, "random reads", "PBXT") == [2000, 4000]
    assert figures.unit(stores_report.SPEED, "compaction") == "s"
    assert figures.values(stores_report.TIME, "random reads", "PBXT") == [0.00025, 0.000125]
    assert figures.values(stores_report.SPACE, "after compaction", "PBXT") == [1 << 20, 1 << 20]


def test_a_ratio_says_how_many_times_better_than_pbxt_an_engine_is_whatever_the_unit():
    runs = runs_of(redb=[1.0], PBXT=[0.5])
    assert runs.engines() == ["PBXT", "redb"]
    for measure in ("random reads", "compaction"):
        assert stores_report.cell(runs.figures, stores_report.SPEED, measure, "redb").endswith(", 0.50x")
        assert "x" not in stores_report.cell(runs.figures, stores_report.SPEED, measure, "PBXT")


def test_the_report_has_every_engine_every_figure_and_what_it_was_given():
    text = stores_report.markdown(runs_of(PBXT=[0.5, 0.25], LMDB=[0.25, 0.25]), OPTIONS)
    assert "| random reads | 3,000/s (2,000/s .. 4,000/s) | 4,000/s (4,000/s .. 4,000/s), 1.33x |" in text
    assert "| greatest memory " in text and "10.0 MiB" in text
    assert "| synced commit " in text and "| sync " in text
    assert "have 0.3 MiB before the removals" in text


def test_an_engine_that_answers_differently_is_named():
    runs = runs_of(PBXT=[1.0], redb=[1.0])
    assert list(runs.answers.differences()) == []
    runs.add("fjall", 1, phase("random reads", 1000, 1.0, answer=8))
    (difference,) = runs.answers.differences()
    assert "random reads" in difference and "fjall said 8" in difference and "PBXT, redb said 7" in difference


def test_without_pbxt_there_are_figures_and_no_ratios(tmp_path):
    runs = runs_of(redb=[1.0])
    assert "x |" not in stores_report.section(runs, stores_report.SPEED)
    assert stores_report.draw(runs, tmp_path / "chart") == []


def test_the_chart_is_drawn_for_documents_and_for_a_look(tmp_path):
    drawn = stores_report.draw(runs_of(PBXT=[0.5], redb=[1.0], SQLite=[0.1]), tmp_path / "chart.md")
    assert [path.suffix for path in drawn] == [".svg", ".png"] and all(path.stat().st_size > 1000 for path in drawn)


def test_quick_sizes_are_small_and_any_size_can_be_chosen():
    quick = compare.parse_arguments(["--quick", "--rows", "7"])
    assert (quick.rows, quick.singles, quick.rounds, quick.cache) == (7, 100, 1, "64M")
    full = compare.parse_arguments([])
    assert (full.rows, full.singles, full.rounds, full.cache) == (1_000_000, 1_000, 3, "256M")
    with pytest.raises(Problem):
        compare.parse_arguments(["--rounds", "-1"])


def test_a_command_names_every_size_and_the_directory():
    options = compare.parse_arguments(["--quick"])
    command = compare.command_of("program", "redb", options, 64)
    assert command[:2] == ["program", "redb"] and "--rows=50000" in command and "--cache-mib=64" in command
    assert f"--directory={options.datadir}" in command and "--json" in command


def test_a_run_that_fails_is_told_with_its_last_words_and_does_not_count(tmp_path):
    line = json.dumps(phase("random reads", 1, 1.0))
    script = ["bash", "-c", f"echo '{line}'; echo first >&2; echo 'the key is not there' >&2; exit 1"]
    options = SimpleNamespace(limit=30, datadir=tmp_path / "data")
    runs = stores_report.Runs()
    with pytest.raises(Problem, match="the key is not there"):
        compare.play(script, "redb", 1, runs, options)
    assert runs.engines() == []
    compare.play(["echo", line], "redb", 1, runs, options)
    assert runs.engines() == ["redb"]


def test_a_run_that_takes_too_long_is_stopped(tmp_path):
    options = SimpleNamespace(limit=0.2, datadir=tmp_path / "data")
    with pytest.raises(Problem, match="stopped after"):
        compare.play(["sleep", "30"], "redb", 1, stores_report.Runs(), options)
