"""The report of `make bench`: its arithmetic, its registry of works, what it takes from other programs, what it says of failures. No server, no timing."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from common import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import charts, fleet, lab, record, report, runner, sysbench, targets, works  # noqa: E402  # the path to bench/ is set above
from bench.figures import BACKGROUND, CPU, PEAK, Answers, Figures  # noqa: E402
from bench.works import base, tools  # noqa: E402


def options(**more):
    """Options of bench/run as they are without any."""
    usual = {"quick": False, "engine": None, "only": None, "rounds": 3, "seconds": None, "cache": "2G", "small_cache": "64M", "redo": "1G",
             "set": [], "limit": 60, "datadir": Path("build/none"), "keep": False, "rows": "-"}  # fmt: skip
    return SimpleNamespace(**{**usual, **more})


def figures_of(*cells):
    """Figures from (work, measure, engine, values, unit, at)."""
    found = Figures()
    for work, measure, engine, values, unit, at in cells:
        for value in values:
            found.add(work, measure, engine, value, unit, at)
    return found


class DryTurn(base.Turn):
    """A turn without a server: statements are kept, every measurement takes 2 or does 100 a second."""

    def __init__(self, work, engine, results):  # pylint: disable=super-init-not-called  # there is nothing to connect to
        kind = lab.kind_of(engine)
        self.work, self.number, self.results, self.answers = work, 0, results, Answers()
        self.lab = SimpleNamespace(kind=kind, socket="socket")
        self.engine, self.sql_engine = kind.name, kind.sql_name
        self.statements, self.commands = [], []

    def run(self, statement):
        self.statements.append(statement)
        return 1

    def rows(self, statement):
        self.statements.append(statement)
        return [(7, 7, 7, 7)]

    def _once(self, statements):
        self.statements += [statements] if isinstance(statements, str) else statements
        return 2.0, ((7,),)

    def load(self, measure, words, clients, seconds, at=None, unit="1/s", factor=1):
        self.commands.append(words)
        self.record(measure, 100.0 * factor, unit, at)
        return sysbench.Load(100, 100.0, (100.0, 90.0, 110.0))

    def bytes_on_disk(self, measure, rows):
        self.record(measure, 50.0, "bytes/row")

    def mark_disk(self):
        pass

    def settle(self):
        return None


def dry_run(work, monkeypatch):
    """All turns of a work for all its engines, without servers; returns its turns and figures."""
    monkeypatch.setattr(sysbench, "call", lambda words, patience=None: "")
    results, turns = Figures(), []
    for kind in work.kinds():
        turn = DryTurn(work, kind.name, results)
        work.prepare(turn)
        (work.floor_round if kind.name == base.FLOOR else work.round)(turn)
        turns.append(turn)
    return turns, results


VIDEO = {
    "facts": {"machine": "2 x one", "settings of PBXT, 4G": ["--a"]},
    "results": [
        {
            "engine": engine,
            "cache": cache,
            "tests": {
                "1": {"seconds": seconds, "cpu": 1.0, "written": 10, "peak": 100, "background": 0.5},
                "1a": {"per_row": 49.0, "bytes": 1, "cpu": 0.0, "written": 0, "peak": 90},
                "2": {"seconds": 3.0, "cpu": 2.0, "written": 5, "peak": 200, "background": 0.25} if cache != "200M" else
                     {"error": "it broke", "seconds_until_error": 1.0, "cpu": 2.0, "written": 5, "peak": 200},
            },
        }
        for cache in ("4G", "143M", "200M")
        for engine, seconds in (("PBXT", 2.0), ("InnoDB", 10.0))
    ],
}  # fmt: skip
WHOLESALER = {
    "tool": "tpcc",
    "facts": {"machine": "2 x one", "settings of InnoDB": ["--b"]},
    "failures": ["InnoDB, round 2, 16 clients: it broke"],
    "loads": {"PBXT": {"seconds": 30.0}},
    "runs": [
        {"engine": "PBXT", "clients": 16, "round": 1, "new_orders_per_minute": 9000.0, "slowest_to_median": 0.75, "cpu_seconds": 3.0,
         "written_bytes": 5, "peak_bytes": 7, "series": {"warmup": 2, "transactions": [3, 8, 9, 7]}}
    ],
}  # fmt: skip


def test_medians_spread_and_ratios_of_times_and_of_rates():
    found = figures_of(
        ("w", "load", "PBXT", [3.0, 1.0, 2.0], "s", None), ("w", "load", "InnoDB", [8.0, 4.0], "s", None),
        ("w", "rate", "PBXT", [300.0], "1/s", 8), ("w", "rate", "InnoDB", [100.0], "1/s", 8),
    )  # fmt: skip
    assert found.median("w", "load", "PBXT") == 2.0 and found.spread("w", "load", "PBXT") == (1.0, 3.0)
    assert found.ratio("w", "load", "PBXT", "InnoDB") == found.cost_ratio("w", "load", "PBXT", "InnoDB") == 2 / 6
    assert found.gain("w", "load", "PBXT", "InnoDB") == pytest.approx(3.0)
    assert found.ratio("w", "rate", "PBXT", "InnoDB", 8) == pytest.approx(3.0)
    assert found.cost_ratio("w", "rate", "PBXT", "InnoDB", 8) == pytest.approx(1 / 3)
    assert found.gain("w", "rate", "PBXT", "InnoDB", 8) == pytest.approx(3.0)


def test_what_was_not_measured_or_is_zero_has_no_ratio():
    found = figures_of(("w", "m", "PBXT", [1.0], "s", None), ("w", "m", "Aria", [0.0], "s", None), ("w", "r", "PBXT", [0.0], "1/s", None), ("w", "r", "Aria", [1.0], "1/s", None))
    assert found.ratio("w", "m", "PBXT", "InnoDB") is found.ratio("w", "m", "PBXT", "Aria") is found.gain("w", "m", "Aria", "PBXT") is None
    assert found.cost_ratio("w", "r", "PBXT", "Aria") is None
    assert found.median("w", "other", "PBXT") is found.spread("w", "m", "InnoDB") is None and found.values("w", "m", "InnoDB") == []


def test_a_unit_is_known_and_stays():
    found = figures_of(("w", "m", "PBXT", [1.0], "s", None))
    with pytest.raises(ValueError):
        found.add("w", "m", "PBXT", 1.0, "bytes")
    with pytest.raises(ValueError):
        found.add("w", "n", "PBXT", 1.0, "parsecs")


def test_a_typical_cost_counts_a_measure_with_a_scale_once_and_no_costs_of_turns():
    cells = [("w", "m", "PBXT", [4.0], "s", None), ("w", "m", "InnoDB", [1.0], "s", None)]
    for at in (1, 8, 64):
        cells += [("w", "rate", "PBXT", [400.0], "1/s", at), ("w", "rate", "InnoDB", [100.0], "1/s", at)]
    cells += [("w", CPU, "PBXT", [9.0], "s", None), ("w", CPU, "InnoDB", [1.0], "s", None)]
    cells += [("w", "room", engine, [value], "bytes/row", None) for engine, value in (("PBXT", 1.0), ("InnoDB", 9.0))]
    found = figures_of(*cells)
    assert found.typical_cost("w", "PBXT", "InnoDB") == pytest.approx(1.0)  # of 4 and 1/4, each once
    assert found.typical_cost("w", "PBXT", "Aria") is None
    assert found.measures("w") == {"m": [None], "rate": [1, 8, 64], "room": [None]} and found.measures("w", costs=True) == {CPU: [None]}


def test_answers_that_differ_are_told_with_who_said_what():
    answers = Answers()
    for engine, answer in (("PBXT", "3"), ("InnoDB", "3"), ("Aria", "4")):
        answers.add("w", "count", engine, answer, 8)
    answers.add("w", "other", "PBXT", "3")
    (sentence,) = answers.differences()
    assert sentence == "w, count at 8: the answers differ: InnoDB, PBXT said 3; Aria said 4"


def target(kind, goal, measure="m"):
    return targets.Target("line", "w", measure, kind, goal)


def test_targets_are_judged_by_kind_and_the_bound_itself_is_met():
    found = figures_of(
        ("w", "m", "PBXT", [1.0], "s", None), ("w", "m", "InnoDB", [4.0], "s", None),
        ("w", "r", "PBXT", [150.0], "1/s", None), ("w", "r", "InnoDB", [100.0], "1/s", None),
    )  # fmt: skip
    assert targets.judge(target("cost", 0.25), found).met is True
    assert targets.judge(target("cost", 0.24), found).met is False
    assert targets.judge(target("gain", 1.5, "r"), found).met is True
    assert targets.judge(target("gain", 1.6, "r"), found).met is False
    assert targets.judge(target("cost", 0.7, "r"), found).reached == pytest.approx(100 / 150)  # a rate asked for as time
    assert targets.judge(target("most", 1.0), found).met is True and targets.judge(target("most", 0.9), found).met is False
    assert targets.judge(target("least", 150, "r"), found).met is True and targets.judge(target("least", 151, "r"), found).met is False
    missing = targets.judge(target("cost", 1.0, "other"), found)
    assert (missing.met, missing.verdict(), missing.reached_text()) == (None, "-", "not measured")


def test_goals_are_told_in_the_units_of_their_figures():
    assert target("cost", 0.3).goal_text("s") == "at most 0.30x the time"
    assert target("gain", 1.5).goal_text("1/s") == "at least 1.5x the throughput"
    assert target("most", 0.010).goal_text("s") == "at most 10.00 ms"
    assert target("most", 50).goal_text("bytes/row") == "at most 50.0 B"
    assert target("least", 70).goal_text("%") == "at least 70 %"


def test_small_values_keep_their_digits():
    assert [record.value_text(value, "s") for value in (0.00002, 0.0005, 0.005, 2.0)] == ["20.0 us", "500.0 us", "5.00 ms", "2.00 s"]
    assert [record.ratio_text(value) for value in (None, 1.5, 0.01, 0.00012)] == ["-", "1.500x", "0.010x", "0.00012x"]
    assert record.value_text(None, "s") == "-" and record.value_text(99.0, "1/min") == "99.0/min" and record.value_text(1234.5, "1/s") == "1,234/s"


def test_works_have_names_headings_and_sizes_of_the_same_kind():
    assert len(set(works.names())) == len(works.ALL)
    for work_class in works.ALL:
        work = work_class(options())
        assert work.heading() and work.explanation() and work.seed in ("000", "001", "002", "003", "004"), work.name
        assert set(work.quick) <= set(work.full), work.name
        assert all(lab.kind_of(name).name == name for name in work.engines)
        assert set(work.quick_engines or ()) <= set(work.engines)
        names = [kind.name for kind in work.kinds()]
        assert names[:2] == ["PBXT", "InnoDB"] and (names[-1] == base.FLOOR) == work.floor
        quick = work_class(options(quick=True))
        assert all(vars(quick.size)[name] == value for name, value in work.quick.items())


def test_works_and_engines_that_were_not_asked_for_are_left_out(monkeypatch):
    monkeypatch.setattr(tools.Tool, "present", lambda self: True)
    assert [work.name for work in works.chosen(options(only=["count", "video"]))] == ["count", "video"]
    archive = works.chosen(options(engine=["archive"]))
    assert {work.name for work in archive} == {"big_table", "procedure"}
    assert [kind.name for kind in archive[0].kinds()] == ["ARCHIVE", base.FLOOR]
    with pytest.raises(Problem):
        works.chosen(options(engine=["Falcon"]))
    monkeypatch.setattr(tools.Tool, "present", lambda self: False)
    assert works.chosen(options(only=["video"])) == []


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("work_class", [work for work in works.ALL if not work.tool], ids=lambda work: work.name)
def test_every_work_fills_in_its_statements_and_knows_its_scripts(work_class, quick, monkeypatch):
    work = work_class(options(quick=quick))
    turns, results = dry_run(work, monkeypatch)
    for turn in turns:
        assert not [text for text in turn.statements if "{" in text or "}" in text]
        for words in turn.commands:
            script = Path(words[1])
            if script.suffix != ".lua":
                assert words[1].startswith("oltp_")
                continue
            text = script.read_text(encoding="utf-8")
            own = [word for word in words[2:] if word not in sysbench.base_words(turn.lab, work.name)]
            assert own and all(f"   {word[2:].split('=')[0].replace('-', '_')} = {{" in text for word in own), own
        assert results.engines(work.name) and turn.engine in results.engines(work.name)
    scaled = [at for places in results.measures(work.name).values() for at in places if at is not None]
    assert bool(scaled) == bool(work.scale), "a work with a scale says what it counts"


def test_every_target_is_measured_by_a_work_of_the_registry(monkeypatch):
    measured = Figures()
    fake = SimpleNamespace(figures=measured, settings_used={}, facts={}, fail=lambda sentence: None)
    for work_class in works.ALL:
        work = work_class(options())
        if work.tool:
            continue
        _, results = dry_run(work, monkeypatch)
        for cell in results.as_list():
            measured.add(cell["work"], cell["measure"], cell["engine"], cell["median"], cell["unit"], cell["at"])
    monkeypatch.setattr("bench.works.seed003.kept_json", lambda output: VIDEO)
    works.Video(options()).take("", fake)
    judged = targets.judge_all(measured)
    assert [one.target.measure for one in judged if one.reached is None] == []


def test_figures_of_the_videos_belong_to_a_cache_and_failed_tests_have_none(monkeypatch):
    fake = SimpleNamespace(figures=Figures(), settings_used={}, facts={}, fail=lambda sentence: None)
    monkeypatch.setattr("bench.works.seed003.kept_json", lambda output: VIDEO)
    works.Video(options()).take("", fake)
    assert fake.figures.values("video", "1 bulk insert, large cache", "PBXT") == [2.0]
    assert fake.figures.values("video", "2 update of an indexed column, small cache", "PBXT") == [3.0]  # of 143M; with 200M it failed
    assert fake.figures.values("video", "1 bulk insert, small cache", "InnoDB") == [10.0, 10.0]
    assert fake.figures.median("video", "1a bytes on disk, large cache", "PBXT") == 49.0
    assert fake.figures.median("video", f"{PEAK}, large cache", "PBXT") == 200
    assert fake.figures.median("video", f"{BACKGROUND}, large cache", "PBXT") == 0.75
    assert fake.settings_used == {"PBXT, 4G (video)": ["--a"]} and fake.facts == {"machine": "2 x one"}


def test_the_small_cache_is_a_twentieth_of_the_data_and_no_less_than_sixteen_megabytes():
    assert works.Video(options()).small() == f"{10_875_440 * 276 // 20 >> 20}M"
    assert works.Video(options(quick=True)).small() == "16M"


def test_figures_of_the_wholesaler_are_taken_with_its_failures():
    failures = []
    fake = SimpleNamespace(figures=Figures(), settings_used={}, facts={}, fail=failures.append)
    works.Wholesaler(options()).take("progress\n" + json.dumps(WHOLESALER) + "\n", fake)
    assert fake.figures.median("tpcc", "new orders", "PBXT", 16) == 9000.0
    assert fake.figures.median("tpcc", "new orders, slowest second", "PBXT", 16) == 75.0
    assert fake.figures.median("tpcc", "loading", "PBXT") == 30.0
    assert fake.figures.curves("tpcc") == {"transactions of 16 clients": {"PBXT": [[3, 8, 9, 7]]}}
    assert failures == ["tpcc: InnoDB, round 2, 16 clients: it broke"]


def test_a_program_that_fails_is_reported_with_its_reasons_or_its_last_words(monkeypatch):
    failures = []
    fake = SimpleNamespace(figures=Figures(), settings_used={}, facts={}, fail=failures.append)
    work = works.Video(options())
    monkeypatch.setattr("bench.works.seed003.kept_json", lambda output: VIDEO)
    monkeypatch.setattr(tools.Tool, "start", staticmethod(lambda command: (1, "table\n\nfailed:\n\n- Aria: it broke\n- MyISAM: so did it\n\nkept: x")))
    work.run_tool(fake)
    monkeypatch.setattr(tools.Tool, "start", staticmethod(lambda command: (3, "no idea")))
    work.run_tool(fake)
    assert failures == [
        "video (bench/seed003): Aria: it broke",
        "video (bench/seed003): MyISAM: so did it",
        "video (bench/seed003): it ended with status 3; its last words: no idea",
    ]


def test_what_a_tool_kept_is_found_by_its_last_line(tmp_path):
    (tmp_path / "seed003-1.json").write_text('{"results": []}', encoding="utf-8")
    assert tools.kept_json(f"much\nkept: {tmp_path}/seed003-1.md and .json\n") == {"results": []}
    with pytest.raises(Problem):
        tools.kept_json("much\n")


SYSBENCH = """[ 1s ] thds: 2 tps: 10.00 qps: 1 (r/w/o: 1/0/0) lat (ms,95%): 1.00 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 2 tps: 100.00 qps: 1 (r/w/o: 1/0/0) lat (ms,95%): 1.00 err/s: 0.00 reconn/s: 0.00
[ 3s ] thds: 2 tps: 60.00 qps: 1 (r/w/o: 1/0/0) lat (ms,95%): 1.00 err/s: 0.00 reconn/s: 0.00
[ 4s ] thds: 2 tps: 120.00 qps: 1 (r/w/o: 1/0/0) lat (ms,95%): 1.00 err/s: 0.00 reconn/s: 0.00
    transactions:                        290    (72.50 per sec.)
"""


def test_what_sysbench_prints_is_read_and_its_first_second_does_not_count_for_evenness():
    assert sysbench.parse(SYSBENCH) == sysbench.Load(290, 72.5, (10.0, 100.0, 60.0, 120.0))
    assert sysbench.parse(SYSBENCH).slowest == 60.0
    short = sysbench.parse("\n".join(SYSBENCH.splitlines()[:2] + SYSBENCH.splitlines()[4:]))
    assert short.slowest is None
    with pytest.raises(Problem):
        sysbench.parse(SYSBENCH.replace("290", "0"))


def test_sysbench_is_noted_second_by_second(monkeypatch):
    for work in (works.Oltp(options()), works.LargerThanMemory(options())):
        _, results = dry_run(work, monkeypatch)
        noted = results.curves(work.name)
        assert set(noted) == {measure.removesuffix(", slowest second") for measure in results.measures(work.name) if measure.endswith("slowest second")}
        assert {engine for curves in noted.values() for engine in curves} >= {"PBXT", "InnoDB"}
        assert all(series == [[100.0, 90.0, 110.0]] for curves in noted.values() for series in curves.values())
    assert not Figures().curves("sysbench")


def test_a_load_counts_the_processor_time_of_each_transaction(monkeypatch):
    turn, clock = DryTurn(TwoSteps(options()), "PBXT", Figures()), iter([1.0, 4.0])
    client = iter([2.0, 2.6])
    monkeypatch.setattr(base, "client_seconds", lambda: next(client))
    turn.lab.cpu_seconds = lambda: next(clock)
    monkeypatch.setattr(sysbench, "run", lambda *words: sysbench.Load(600, 150.0, ()))
    base.Turn.load(turn, "new orders", ["sysbench"], 8, 4, 8, "1/min", 60)
    assert turn.results.median("two_steps", "new orders", "PBXT", 8) == 9000.0
    assert turn.results.median("two_steps", f"{CPU} each, new orders", "PBXT", 8) == 0.005
    assert turn.results.median("two_steps", f"{CPU} of the client each, new orders", "PBXT", 8) == pytest.approx(0.001)
    assert turn.results.measures("two_steps") == {"new orders": [8]}


class DryFleet:
    """Servers that are there as names only."""

    def __init__(self, *_):
        self.labs, self.settings_used, self.cache = {}, {}, "2G"

    @contextmanager
    def at_work(self, kind):
        yield SimpleNamespace(kind=kind)

    def check(self, fake):
        pass

    def end(self):
        pass


class TwoSteps(base.Work):
    """A heading
    An explanation.
    """

    name = "two_steps"
    engines = ("PBXT", "InnoDB", "Aria", "MyISAM")
    broken = {}  # {engine: (where, round)}
    seen = []

    def prepare(self, turn):
        self._maybe_break(turn, "prepare")

    def round(self, turn):
        self._maybe_break(turn, "round")
        turn.record("m", 1.0 + turn.number)

    def _maybe_break(self, turn, where):
        self.seen.append((turn.engine, where, turn.number))
        if self.broken.get(turn.engine) == (where, turn.number):
            raise Problem("it broke")


@pytest.fixture(name="dry_runner")
def make_dry_runner(monkeypatch):
    def dry_turn(work, fake, number, results, _answers):
        turn = DryTurn(work, fake.kind.name, results)
        turn.number, turn.close = number, lambda: None
        return turn

    monkeypatch.setattr(runner, "Fleet", DryFleet)
    monkeypatch.setattr(runner, "Turn", dry_turn)
    monkeypatch.setattr(runner, "Meter", lambda fake: SimpleNamespace(read=lambda turn, background: None))
    monkeypatch.setattr(runner, "fresh_database", lambda *_: None)
    monkeypatch.setattr(runner.Runner, "_note", lambda self, fake: None)
    monkeypatch.setattr(TwoSteps, "seen", [])
    return runner.Runner(options())


def test_engines_change_places_and_one_that_fails_is_left_out_of_the_rest(dry_runner, monkeypatch):
    monkeypatch.setattr(TwoSteps, "broken", {"Aria": ("prepare", 0), "InnoDB": ("round", 1)})
    dry_runner.run([TwoSteps(options())])
    rounds = [(engine, number) for engine, where, number in TwoSteps.seen if where == "round"]
    assert rounds == [("PBXT", 0), ("InnoDB", 0), ("MyISAM", 0), ("MyISAM", 1), ("InnoDB", 1), ("PBXT", 1), ("PBXT", 2), ("MyISAM", 2)]
    assert dry_runner.failures == ["two_steps, Aria, preparing: it broke", "two_steps, InnoDB, round 2: it broke"]
    assert dry_runner.figures.values("two_steps", "m", "PBXT") == [1.0, 2.0, 3.0]


def test_servers_that_an_interruption_left_go_with_the_second_call(tmp_path):
    calls = []

    def wipe(name):
        calls.append(name)
        if calls == ["pbxt", "innodb"]:
            raise KeyboardInterrupt

    together = fleet.Fleet(options(datadir=tmp_path / "none"), "2G")
    together.labs = {name: SimpleNamespace(alive=lambda: False, wipe=lambda name=name: wipe(name)) for name in ("pbxt", "innodb", "aria")}
    with pytest.raises(KeyboardInterrupt):
        together.end()
    together.end()
    assert calls == ["pbxt", "innodb", "innodb", "aria"] and not together.labs


def sample_runner(*failures):
    """A runner after a run of one work with and one without a scale."""
    cells = [("two_steps", "m", engine, values, "s", None) for engine, values in (("PBXT", [1.0, 2.0, 3.0]), ("InnoDB", [4.0]), (base.FLOOR, [0.5]))]
    cells += [("two_steps", "rate", engine, [rate * at], "1/s", at) for engine, rate in (("PBXT", 10.0), ("InnoDB", 5.0)) for at in (1, 8, 64)]
    cells += [("two_steps", CPU, "PBXT", [1.5], "s", None)]
    return SimpleNamespace(
        figures=figures_of(*cells), failures=list(failures), facts={"machine": "2 x one", "settings": ["--a"]}, versions={"PBXT": "0.1"},
        settings_used={"PBXT, cache 2G": ["--a", "--b"]}, seconds={"two_steps": 9.0},
    )  # fmt: skip


def test_the_report_begins_with_failures_and_ends_with_the_targets():
    done = sample_runner("two_steps, Aria, round 1: it\nbroke")
    text = report.markdown(done, [TwoSteps(options(rounds=3))], targets.judge_all(done.figures), ["two_steps-bars"], options())
    lines = text.splitlines()
    assert lines[2] == "**Failed:**" and lines[4] == "- two_steps, Aria, round 1: it broke"
    assert text.rindex("## ") == text.index("## Speed targets")
    assert len([line for line in lines[lines.index("## Speed targets") :] if line.startswith("| ")]) == len(targets.ALL) + 1
    table = {line.split("|")[1].strip() + line.split("|")[2].strip(): line for line in lines if line.startswith("| ")}
    assert "2.00 s (1.00 s .. 3.00 s)" in table["m-"] and "0.500x" in table["m-"] and "failed" in table["m-"]
    assert "80.0/s" in table["rate8"] and "2.000x" in table["rate8"]
    assert "BLACKHOLE (floor)" in text and "![A heading](two_steps-bars.svg)" in text


def test_charts_are_drawn_as_svg_and_png_with_their_units(tmp_path):
    done = sample_runner()
    judged = [targets.judge(target("cost", 0.25), figures_of(("w", "m", "PBXT", [1.0], "s", None), ("w", "m", "InnoDB", [4.0], "s", None)))]
    done.figures.add_curve("two_steps", "rate", "PBXT", (70.0, 80.0, 90.0))
    names = charts.draw_all(done.figures, [TwoSteps(options())], judged, tmp_path)
    assert names == ["targets", "two_steps-bars", "two_steps-curves", "two_steps-seconds"]
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


def test_a_chart_of_targets_shows_multiples_of_the_goal():
    assert charts.surplus_of(targets.Judged(target("cost", 0.5), 0.25, True, "s")) == 2.0
    assert charts.surplus_of(targets.Judged(target("least", 70), 35.0, False, "%")) == 0.5
    assert charts.surplus_of(targets.Judged(target("most", 50), 0.0, True, "s")) == charts.EDGE
    assert charts.surplus_of(targets.Judged(target("least", 70), 0.0, False, "%")) == 1 / charts.EDGE


def test_the_run_ends_with_status_1_when_something_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "call", lambda words: "sysbench 1")
    for failures in ([], ["two_steps, Aria, round 1: it broke"]):
        monkeypatch.setattr(report.time, "strftime", lambda _, n=len(failures): f"time-{n}")
        assert report.finish(sample_runner(*failures), [TwoSteps(options())], options()) == len(failures)
        kept = json.loads((tmp_path / f"report-time-{len(failures)}" / "report.json").read_text(encoding="utf-8"))
        assert kept["failures"] == failures and len(kept["targets"]) == len(targets.ALL)
        assert {"work": "two_steps", "measure": "m", "at": None, "unit": "s", "engine": "PBXT", "median": 2.0, "values": [1.0, 2.0, 3.0]} in kept["figures"]
    assert "it broke" in capsys.readouterr().out
