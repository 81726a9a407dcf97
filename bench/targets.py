"""The speed targets: what PBXT is to reach beside InnoDB of the same server, which work shows it, and whether it does.

Why it exists: a report of a hundred figures needs one place that says which of them were promised. A target is a line of the table below;
lines of several figures have one entry for each. Ratios of times are "at most", ratios of throughput "at least", and a few goals are values
that need no other engine. What was not measured in a run is neither met nor missed.
"""

from dataclasses import dataclass

from bench.record import ratio_text, value_text

ENGINE, BASE = "PBXT", "InnoDB"


@dataclass(frozen=True)
class Target:
    """One promise: `kind` says how `goal` is meant."""

    line: str  # the line of the table of targets
    work: str
    measure: str
    kind: str  # cost: ratio of time at most; gain: ratio of throughput at least; most: value at most; least: value at least
    goal: float
    at: int | None = None

    def goal_text(self, unit):
        """The goal as people read it."""
        if self.kind == "cost":
            return f"at most {self.goal:.2f}x the time"
        if self.kind == "gain":
            return f"at least {self.goal:.1f}x the throughput"
        return f"at {self.kind} {value_text(self.goal, unit)}"


@dataclass(frozen=True)
class Judged:
    """A target beside what was reached; `met` is None where nothing was measured."""

    target: Target
    reached: float | None
    met: bool | None
    unit: str

    def reached_text(self):
        """The ratio or value reached."""
        if self.reached is None:
            return "not measured"
        return ratio_text(self.reached) if self.target.kind in ("cost", "gain") else value_text(self.reached, self.unit)

    def verdict(self):
        """One word for the table."""
        return {True: "met", False: "NOT MET", None: "-"}[self.met]


def _sysbench(test, goal):
    line = "sysbench, 16 connections, flush at commit"
    return (
        Target(line, "sysbench", test, "gain", goal),
        Target(f"{line}: no second under 70 % of the median", "sysbench", f"{test}, slowest second", "least", 70),
    )


ALL = (
    Target("INSERT..SELECT into a table without keys", "big_table", "INSERT..SELECT", "cost", 0.30),
    Target("INSERT..SELECT into the table of videos, 4 indexes, in memory", "video", "1 bulk insert, large cache", "cost", 0.25),
    Target("the same, cache 20 times smaller than the data", "video", "1 bulk insert, small cache", "cost", 0.12),
    Target("UPDATE of a column without a key in all rows", "big_table", "UPDATE of all rows", "cost", 0.25),
    Target("UPDATE of an indexed column in all rows, in memory", "video", "2 update of an indexed column, large cache", "cost", 0.35),
    Target("the same, cache 20 times smaller than the data", "video", "2 update of an indexed column, small cache", "cost", 0.20),
    Target("DELETE of all rows", "big_table", "DELETE of all rows", "cost", 0.25),
    Target("then ROLLBACK", "big_table", "ROLLBACK", "most", 0.010),
    Target("full scan with a sum", "big_table", "scan with a sum", "cost", 0.7),
    Target("full scan with a filter", "big_table", "scan with a filter", "cost", 0.5),
    Target("secondary range and fetch", "self_join", "secondary range and fetch", "cost", 0.5),
    Target("primary key range join, one connection", "self_join", "1000 rows", "cost", 0.85, at=1),
    Target("point select, one connection", "accounts", "by primary key", "cost", 0.95, at=1),
    Target("COUNT(*)", "count", "COUNT(*)", "most", 0.0001),
    Target("COUNT(*) over an index range", "count", "COUNT(*) over an index range", "cost", 0.6),
    Target("single-row INSERTs in a procedure", "procedure", "single inserts, one transaction", "cost", 0.95),
    *_sysbench("oltp_point_select", 1.0),
    *_sysbench("oltp_update_non_index", 1.5),
    *_sysbench("oltp_update_index", 1.5),
    *_sysbench("oltp_insert", 1.5),
    *_sysbench("oltp_read_write", 1.3),
    Target("bytes on disk, the table of videos", "video", "1a bytes on disk, large cache", "most", 50),
)


def judge(target, figures, engine=ENGINE, base=BASE):
    """What was reached of one target."""
    place = (target.work, target.measure)
    if figures.median(*place, engine, target.at) is None:
        return Judged(target, None, None, "bytes/row" if target.measure.startswith("1a ") else "%" if target.kind == "least" else "s")
    unit = figures.unit(*place)
    if target.kind in ("most", "least"):
        reached = figures.median(*place, engine, target.at)
    elif target.kind == "cost":
        reached = figures.cost_ratio(*place, engine, base, target.at)
    else:
        reached = figures.gain(*place, engine, base, target.at)
    if reached is None:
        return Judged(target, None, None, unit)
    met = reached <= target.goal if target.kind in ("cost", "most") else reached >= target.goal
    return Judged(target, reached, met, unit)


def judge_all(figures, engine=ENGINE, base=BASE):
    """Every target in the order of the table."""
    return [judge(target, figures, engine, base) for target in ALL]
