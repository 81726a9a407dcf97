"""What each isolation level admits: the anomalies of the literature on every level, in both conflict modes, set for the session and
for the table; and the table of docs/transactions.md, which is compared with what is seen."""

from pathlib import Path

import pytest

from anomalies import ANOMALIES, COLUMNS, EXPECTED, PROCEDURES
from schedules import Stage
from sql_tools import Database

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"
HEADING = "What each level admits"
LEVELS = tuple(dict.fromkeys(level for level, _ in COLUMNS))
OPPOSITE = {"ERROR": "WAIT", "WAIT": "ERROR"}
PLACES = ("session", "table")


class Seen:
    """What came of every schedule, played once for each level, conflict mode and place where the mode is set."""

    def __init__(self, server):
        self.server, self.cells = server, {}

    def column(self, level, mode, place):
        """{name: 'admitted' or what kept the anomaly away} of one setting."""
        if (level, mode, place) not in self.cells:
            self.cells[level, mode, place] = self._play_all(level, mode, place)
        return self.cells[level, mode, place]

    def _play_all(self, level, mode, place):
        with Database(self.server, f"levels_{mode}_{place}", "PBXT") as database:
            # The mode of the other place is the opposite one: the table's wins, and the session's counts where the table has none.
            option = f" CONFLICT_MODE={mode}" if place == "table" else ""
            stage = prepare(database, "PBXT", option)
            try:
                for actor in stage.actors.values():
                    actor.session.ok(f"SET SESSION pbxt_conflict_mode = '{mode if place == 'session' else OPPOSITE[mode]}'")
                return {anomaly.name: cell_of(stage.play(anomaly.steps, level), anomaly, level) for anomaly in ANOMALIES}
            finally:
                stage.close()


def prepare(database, engine, option=""):
    """A stage over the table and the procedures that the schedules name."""
    database.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v INT) ENGINE={engine}{option}")
    for statement in PROCEDURES.values():
        database.ok(statement)
    return Stage(database, engine)


def cell_of(history, anomaly, level):
    """One cell of the table. How SERIALIZABLE prevents is its own affair."""
    how = history.how()
    if anomaly.admitted(history):
        return "admitted"
    return "prevented" if level == "SERIALIZABLE" else how


@pytest.fixture(scope="module")
def seen(shared_server):
    """Filled by the tests as they ask."""
    return Seen(shared_server)


@pytest.mark.pbxt_only
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", OPPOSITE)
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_admits_what_is_expected_and_no_more(seen, level, mode, place):
    column = next(number for number, (name, only) in enumerate(COLUMNS) if name == level and only in (None, mode))
    assert seen.column(level, mode, place) == {name: cells[column] for name, cells in EXPECTED.items()}


@pytest.mark.pbxt_only
def test_the_document_says_what_is_seen(seen):
    section = DOCUMENT.read_text(encoding="utf-8").split(f"{HEADING}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    columns = [seen.column(level, mode or "ERROR", "session") for level, mode in COLUMNS]
    head = " | ".join(level + (f", `{mode}`" if mode else "") for level, mode in COLUMNS)
    rows = [f"| {anomaly.name} | {' | '.join(column[anomaly.name] for column in columns)} |" for anomaly in ANOMALIES]
    assert lines == [f"| | {head} |", *rows]


@pytest.mark.pbxt_only
@pytest.mark.parametrize("anomaly", [a for a in ANOMALIES if a.witness], ids=lambda anomaly: anomaly.name.split(",")[0])
def test_a_schedule_whose_anomaly_is_never_admitted_can_show_it(shared_server, anomaly):
    engine, level = anomaly.witness
    with Database(shared_server, "witness", engine) as database:
        stage = prepare(database, engine)
        try:
            history = stage.play(anomaly.steps, level)
        finally:
            stage.close()
    assert anomaly.admitted(history), f"{engine}, {level}:\n{history}"


def test_every_anomaly_is_admitted_somewhere_or_has_a_witness():
    assert set(EXPECTED) == {anomaly.name for anomaly in ANOMALIES}
    without = [a.name for a in ANOMALIES if "admitted" not in EXPECTED[a.name] and not a.witness]
    assert not without
