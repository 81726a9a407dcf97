"""The report of bench/compare: what runs of bench/embedded printed becomes figures, tables and a chart. Starts nothing and measures nothing.

Every engine's figures are compared with PBXT's, so a ratio says how many times better than PBXT an engine is, whatever the unit: above 1 the
other engine is ahead. Rates and processor time are per operation; space is what the files take after a phase.
"""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.charts import limits, times_axis
from bench.curves import COLOURS, save
from bench.figures import CPU, PEAK, WRITTEN, Answers, Figures
from bench.record import size_text, table, value_text

BASE = "PBXT"
# Engines of this comparison that are in no other one; RocksDB has the colour of MyRocks.
LOOKS = {**COLOURS, "RocksDB": "#009E73", "LMDB": "#D55E00", "SQLite": "#E69F00", "redb": "#CC79A7", "fjall": "#56B4E9"}
SPEED, TIME, SPACE, WHOLE = "speed", "time of processors", "space", "the whole run"
TOTALS = {"cpu_seconds": (CPU, "s"), "peak_bytes": (PEAK, "bytes"), "written_bytes": (WRITTEN, "bytes")}
ABOUT = {"version": "version", "memory": "memory", "synced": "synced commit", "relaxed": "relaxed commit", "load": "bulk load", "compaction": "compaction"}
EACH_LEAST = 100  # phases of fewer operations are told by their whole time


class Runs:
    """What all runs of all engines found."""

    def __init__(self):
        self.figures, self.answers = Figures(), Answers()
        self.about = {}  # {engine: {field: text}}
        self.lines = []  # everything, for the JSON file

    def add(self, engine, number, said):
        """One line of a run, as a dictionary."""
        self.lines.append({"engine": engine, "round": number, **said})
        if "about" in said:
            self.about[engine] = said["about"]
        elif "totals" in said:
            for name, (measure, unit) in TOTALS.items():
                self.figures.add(WHOLE, measure, engine, said["totals"][name], unit)
        else:
            self._add_phase(engine, said)

    def _add_phase(self, engine, said):
        phase, operations = said["phase"], said["operations"]
        if operations >= EACH_LEAST:
            self.figures.add(SPEED, phase, engine, operations / max(said["seconds"], 1e-9), "1/s")
        else:
            self.figures.add(SPEED, phase, engine, said["seconds"], "s")
        self.figures.add(TIME, phase, engine, said["cpu_seconds"] / max(operations, 1), "s")
        self.figures.add(SPACE, f"after {phase}", engine, said["disk_bytes"], "bytes")
        self.answers.add(SPEED, phase, engine, str(said["answer"]))

    def engines(self):
        """Engines with figures, PBXT first."""
        return sorted(self.figures.engines(SPEED), key=lambda engine: engine != BASE)


def cell(figures, work, measure, engine):
    """Median, spread and how many times better than PBXT."""
    unit, values = figures.unit(work, measure), figures.values(work, measure, engine)
    if not values:
        return "-"
    text = value_text(figures.median(work, measure, engine), unit)
    if len(values) > 1:
        text += f" ({' .. '.join(value_text(value, unit) for value in figures.spread(work, measure, engine))})"
    gain = None if engine == BASE else figures.gain(work, measure, engine, BASE)
    return text + (f", {gain:.2f}x" if gain else "")


def section(runs, work):
    """The table of one kind of figure: a line for each measure, a column for each engine."""
    engines = runs.engines()
    measures = [*runs.figures.measures(work), *runs.figures.measures(work, costs=True)]
    return table(["", *engines], [[measure, *(cell(runs.figures, work, measure, engine) for engine in engines)] for measure in measures])


def about_table(runs):
    """What each engine was given and what its words mean."""
    engines = [engine for engine in runs.engines() if engine in runs.about]
    return table(["", *engines], [[label, *(runs.about[engine][field] for engine in engines)] for field, label in ABOUT.items()])


def markdown(runs, options):
    """The whole report."""
    data = (options.rows + options.singles + 1000 * options.batches + options.relaxed) * (24 + options.value_bytes)
    told = f"Medians of {options.rounds} rounds (least .. greatest);" if options.rounds > 1 else "Figures of one round;"
    return "\n\n".join(
        [
            f"{told} behind them how many times better than {BASE} an engine is: above 1x it is ahead, "
            f"below 1x {BASE} is. Each engine ran in a process of its own, in turn. Every value that was read was compared with what had been written. All "
            f"pairs together have {size_text(data)} before the removals and half of it afterwards.",
            "## Speed",
            section(runs, SPEED),
            "Writes, reads and removals per second; a range read shows ten pairs. Individual, batch and bulk writes and the removals are synced, relaxed ones as "
            "the last table says.",
            "## Processor time per operation",
            section(runs, TIME),
            "Of the whole process, background threads included, while the phase went on.",
            "## Space",
            section(runs, SPACE),
            "After the removals: the uncompacted size. After the compaction: the compacted one.",
            "## The whole run",
            section(runs, WHOLE),
            "Memory includes pages of mapped files, which the system can take back: of LMDB that is all of its data.",
            "## What each engine was given",
            about_table(runs),
        ]
    )


def draw(runs, path):
    """A group of bars for each phase, one for each engine: how many times better than PBXT. Paths of what was written; [] without ratios."""
    figures = runs.figures
    engines = [engine for engine in runs.engines() if engine != BASE]
    gains = {(measure, engine): figures.gain(SPEED, measure, engine, BASE) for measure in figures.measures(SPEED) for engine in engines}
    gains = {place: gain for place, gain in gains.items() if gain}
    if not gains:
        return []
    measures = list(dict.fromkeys(measure for measure, _ in gains))
    height = 0.8 / len(engines)
    figure = Figure(figsize=(11, 1.8 + len(measures) * (0.25 + 0.2 * len(engines))), layout="constrained")
    axes = figure.subplots()
    for (measure, engine), gain in gains.items():
        y = measures.index(measure) - 0.4 + (engines.index(engine) + 0.5) * height
        axes.barh(y, gain - 1, height * 0.9, left=1, color=LOOKS.get(engine, "#777777"))
        text = f" {gain:,.2f}x, {value_text(figures.median(SPEED, measure, engine), figures.unit(SPEED, measure))}"
        axes.annotate(text, (max(gain, 1), y), va="center", fontsize=7.5)
    axes.axvline(1, color=LOOKS[BASE], linewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(*limits(list(gains.values()), 0.2))
    times_axis(axes.xaxis, min(gains.values()), max(gains.values()))
    mine = {measure: value_text(figures.median(SPEED, measure, BASE), figures.unit(SPEED, measure)) for measure in measures}
    axes.set_yticks(range(len(measures)), [f"{measure}\n({BASE}: {mine[measure]})" for measure in measures], fontsize=9)
    axes.set_ylim(len(measures) - 0.5, -0.5)
    axes.set_xlabel(f"times better than {BASE} (the line at 1x), logarithmic scale: left of it {BASE} is ahead")
    handles = [Patch(facecolor=LOOKS.get(engine, "#777777"), label=engine) for engine in engines]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(engines), fontsize=9, frameon=False)
    axes.set_title(f"{BASE}'s library beside other embedded stores")
    axes.grid(axis="x", alpha=0.3)
    return save(figure, path)
