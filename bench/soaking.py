"""What bench/soak makes of its samples: a robust slope, and whether it means growth.

Why it exists: memory and files wobble, so two readings say nothing, and one outlier must not decide. The slope is that of Theil and Sen, the
median of the slopes between pairs of points: up to 29 of 100 points may lie anywhere.
Format: a sample is a dict with `seconds` and the names in MEASURES.
"""

import os
import statistics
from dataclasses import dataclass
from pathlib import Path

POINTS = 240  # buckets that the second half is divided into: 28,680 pairs, whatever the length of the run
MIB = 1 << 20


@dataclass(frozen=True)
class Measure:
    """One curve, and how much it may grow over the second half of the run: a share of its median there, or so much at least."""

    name: str
    title: str
    share: float
    least: float
    unit: float = 1.0
    falls: bool = False  # what must not fall instead

    def allowed(self, median):
        """The greatest growth that still counts as flat."""
        return max(self.share * abs(median), self.least)


MEASURES = (
    Measure("rss", "memory, MiB", 0.05, 24 * MIB, MIB),
    Measure("handles", "file handles", 0.05, 4),
    Measure("threads", "threads", 0.0, 2),
    Measure("disk", "disk, MiB", 0.15, 64 * MIB, MIB),
    Measure("log_lines", "lines in the error log", 0.0, 3),
    Measure("rate", "steps a second", 0.25, 2, falls=True),
)


def limits_text():
    """The limits, for --help."""
    return "\n".join(
        f"  {m.title:24} {'fall' if m.falls else 'growth'} of at most {m.share:.0%} of the median, or {m.least / m.unit:g}" for m in MEASURES
    )


def sample_of(pid, folder, log, steps, begin, now):
    """One line of figures of a live process; None when it has gone."""
    from bench.lab import occupied_bytes  # pylint: disable=import-outside-toplevel

    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        threads = len(os.listdir(f"/proc/{pid}/task"))
        handles = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    lines = log.read_bytes().count(b"\n") if log.exists() else 0
    return {
        "seconds": now - begin, "rss": pages * os.sysconf("SC_PAGE_SIZE"), "handles": handles, "threads": threads,
        "disk": occupied_bytes(folder), "log_lines": lines, "steps": steps,
    }  # fmt: skip


def with_rates(samples):
    """The samples with steps a second since the one before; the first has none and goes."""
    pairs = zip(samples, samples[1:])
    return [{**now, "rate": (now["steps"] - then["steps"]) / max(now["seconds"] - then["seconds"], 1e-9)} for then, now in pairs]


def buckets(points, count):
    """At most `count` points: means of neighbours, so that a long run costs no more than a short one."""
    if len(points) <= count:
        return points
    size = len(points) / count
    parts = [points[int(at * size) : int((at + 1) * size)] for at in range(count)]
    return [(statistics.fmean(x for x, _ in part), statistics.fmean(y for _, y in part)) for part in parts if part]


def slope(points):
    """The median of the slopes between all pairs of points; 0 for fewer than two."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(points) for b in points[at + 1 :] if b[0] != a[0]]
    return statistics.median(slopes) if slopes else 0.0


@dataclass(frozen=True)
class Verdict:
    """What one curve does over the second half."""

    measure: Measure
    median: float
    grows: float  # by the slope, from the begin of the second half to the end of the run
    allowed: float

    @property
    def flat(self):
        """True if the growth is within its limit."""
        return (-self.grows if self.measure.falls else self.grows) <= self.allowed


def judge(samples):
    """A verdict for each measure over the second half of the samples (with rates)."""
    if not samples:
        return []
    middle = (samples[0]["seconds"] + samples[-1]["seconds"]) / 2
    half = [sample for sample in samples if sample["seconds"] >= middle]
    span = half[-1]["seconds"] - half[0]["seconds"]
    found = []
    for measure in MEASURES:
        points = [(sample["seconds"], sample[measure.name]) for sample in half]
        median = statistics.median(y for _, y in points)
        found.append(Verdict(measure, median, slope(buckets(points, POINTS)) * span, measure.allowed(median)))
    return found


def draw(samples, path):
    """A chart of all measures; the paths of its two forms."""
    from bench import curves  # pylint: disable=import-outside-toplevel  # it needs build/venv

    figure = curves.Figure(figsize=(10, 2 * len(MEASURES)), layout="constrained")
    axes = figure.subplots(len(MEASURES), 1, sharex=True)
    minutes = [sample["seconds"] / 60 for sample in samples]
    for measure, axis in zip(MEASURES, axes):
        axis.plot(minutes, [sample[measure.name] / measure.unit for sample in samples], linewidth=0.8)
        axis.set_ylabel(measure.title)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes")
    return curves.save(figure, path)
