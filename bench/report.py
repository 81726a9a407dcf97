"""The report of `make bench`: Markdown for people, JSON for programs, charts, in a folder of its own in bench/results.

It begins with what a reader must know to judge figures (what failed, machine, versions, how it was measured), has a heading for each work,
and ends with the table of speed targets. All arithmetic is in bench/figures.py and bench/targets.py.
"""

import json
import platform
import time

from bench import charts, record, targets
from bench.sysbench import call
from bench.works.base import FLOOR
from common import Problem

HOW = """Each engine has a server process of its own with the same cache, a log that is flushed at each commit where the engine has one, no binary log, and
the server's defaults for the rest. Engines take turns, in each round in the other order; while one works, the processes of the others are held
still. {figure} PBXT / InnoDB is median by median: of times and bytes
less than 1 is better, of rates more than 1. What two engines answered to the same statement was compared. BLACKHOLE, where it appears, throws rows away:
the floor that the server itself sets. MyISAM and ARCHIVE have neither transactions nor durability, Aria has no transactions and flushes its log for
each statement; MyISAM's, Aria's and ARCHIVE's rows and all of MyRocks's files are also in the system's page cache, whatever the cache's size."""
QUICK = """**This was a quick run**: small tables, few repetitions. It shows that everything works; times of so small tables mean little, and the targets are
meant for the full size."""


def cell(results, work, measure, engine, at, failed=False):
    """One engine's median and spread."""
    unit, median = results.unit(work, measure), results.median(work, measure, engine, at)
    if median is None:
        return "failed" if failed else "-"
    text = record.value_text(median, unit)
    if len(results.values(work, measure, engine, at)) > 1:
        text += f" ({' .. '.join(record.value_text(value, unit) for value in results.spread(work, measure, engine, at))})"
    return text


def work_table(results, work, scale="", failed=(), costs=False):
    """The figures of one work: a line for each measure and place on its scale, a column for each engine."""
    engines = ordered(list(dict.fromkeys([*results.engines(work), *failed])))
    rivals = [engine for engine in engines if engine not in (targets.ENGINE, targets.BASE, FLOOR)]
    measures = results.measures(work, costs)
    scaled = any(at is not None for places in measures.values() for at in places)
    lines = []
    for measure, places in measures.items():
        for at in places:
            others = [(rival, results.ratio(work, measure, targets.ENGINE, rival, at)) for rival in rivals]
            lines.append([
                measure,
                *(["-" if at is None else f"{at:,}"] if scaled else []),
                *(cell(results, work, measure, engine, at, engine in failed) for engine in engines),
                record.ratio_text(results.ratio(work, measure, targets.ENGINE, targets.BASE, at)),
                *([", ".join(f"{rival} {record.ratio_text(ratio)}" for rival, ratio in others if ratio is not None) or "-"] if rivals else []),
            ])  # fmt: skip
    names = [f"{engine} (floor)" if engine == FLOOR else engine for engine in engines]
    more = [f"{targets.ENGINE} / others"] if rivals else []
    return record.table(["", *([scale] if scaled else []), *names, f"{targets.ENGINE} / {targets.BASE}", *more], lines)


def ordered(engines):
    """PBXT first, InnoDB second, the floor last."""
    rank = {targets.ENGINE: 0, targets.BASE: 1, FLOOR: 3}
    return sorted(engines, key=lambda engine: rank.get(engine, 2))


def summary_table(results, works):
    """A line for each work: the geometric mean of PBXT's cost ratios to each rival."""
    rivals = [name for name in ordered(list(dict.fromkeys(e for work in works for e in results.engines(work.name)))) if name not in (targets.ENGINE, FLOOR)]
    lines = [
        [work.heading(), *(record.ratio_text(results.typical_cost(work.name, targets.ENGINE, rival)) for rival in rivals)]
        for work in works
        if targets.ENGINE in results.engines(work.name)
    ]
    return record.table(["work", *(f"of {rival}'s cost" for rival in rivals)], lines)


def targets_table(judged):
    """Every speed target, what was reached, and where it is shown."""
    lines = [
        [
            one.target.line,
            one.target.goal_text(one.unit),
            one.reached_text(),
            one.verdict(),
            f"{one.target.work}: {one.target.measure}" + ("" if one.target.at is None else f" at {one.target.at}"),
        ]
        for one in judged
    ]
    met = sum(one.met is True for one in judged)
    count = sum(one.met is not None for one in judged)
    return f"{met} of {count} measured targets are met.\n\n" + record.table(["work of the targets", "target", "reached", "", "shown by"], lines)


def failed_engines(failures, work):
    """Names of the engines that failed in a work; the sentences begin so."""
    return {sentence.split(", ")[1].split(":")[0] for sentence in failures if sentence.startswith(f"{work}, ")}


def work_section(runner, work, pictures):
    """The heading of one work with its tables and charts."""
    results, failed = runner.figures, failed_engines(runner.failures, work.name) & {kind.name for kind in work.kinds()}
    sizes = ", ".join(f"{name} {_size_text(value)}" for name, value in vars(work.size).items())
    minutes = record.seconds_text(runner.seconds.get(work.name))
    parts = [f"## {work.heading()}", work.explanation(), f"Sizes: {sizes}. It took {minutes} in all."]
    if not results.engines(work.name):
        return "\n\n".join([*parts, "Nothing was measured: see what failed, above."])
    parts.append(work_table(results, work.name, work.scale, failed))
    parts += [f"![{work.heading()}]({stem}.svg)" for stem in pictures]
    if results.measures(work.name, costs=True):
        parts += ["What the turns cost beside time:", work_table(results, work.name, work.scale, failed, costs=True)]
    return "\n\n".join(parts)


def _size_text(value):
    """A size of a work: numbers with separators, several as a list."""
    if isinstance(value, (list, tuple)):
        return "/".join(_size_text(each) for each in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def facts_of(runner, options):
    """Machine, versions, settings that were the same for all."""
    about = {name: value for name, value in runner.facts.items() if name not in ("settings", "rows")}
    about |= {"engines": ", ".join(f"{name} {version}" for name, version in runner.versions.items())}
    try:
        about["clients"] = f"{call(['sysbench', '--version']).strip()}, Python {platform.python_version()}"
    except Problem:
        about["clients"] = f"no sysbench, Python {platform.python_version()}"
    about |= {"caches": f"{options.cache}, small: {options.small_cache}", "InnoDB's redo log": options.redo}
    about |= {"whole run": record.seconds_text(sum(runner.seconds.values()))}
    return about


def markdown(runner, works, judged, pictures, options):
    """The whole document."""
    figure = "A figure is one value." if options.rounds == 1 else f"A figure is the median of {options.rounds} rounds, with the least and the greatest value."
    parts = ["# PBXT beside other engines", *([QUICK] if options.quick else [])]
    if runner.failures:
        parts.append("**Failed:**\n\n" + "\n".join(f"- {' '.join(sentence.split())}" for sentence in runner.failures))
    facts = facts_of(runner, options)
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    parts.append(HOW.format(figure=figure))
    parts.append("## At a glance\n\nGeometric mean of all times and rates of a work; less than 1 is better, 0.50x is half the time or twice the rate.")
    parts.append(summary_table(runner.figures, works))
    if "targets" in pictures:
        parts.append("![speed targets](targets.svg)")
    parts += [work_section(runner, work, [stem for stem in pictures if stem.startswith(f"{work.name}-")]) for work in works]
    parts.append("## Settings\n\n" + "\n".join(f"- {name}: `{' '.join(line)}`" for name, line in runner.settings_used.items()))
    parts.append("## Speed targets\n\n" + targets_table(judged))
    return "\n\n".join(parts) + "\n"


def finish(runner, works, options):
    """Writes everything, prints the table of targets and what failed; returns the exit status."""
    folder = record.RESULTS / f"report-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True)
    judged = targets.judge_all(runner.figures)
    document = {
        "tool": "bench",
        "quick": options.quick,
        "facts": facts_of(runner, options),
        "settings": runner.settings_used,
        "failures": runner.failures,
        "targets": [
            {**vars(one.target), "reached": one.reached, "met": one.met}
            for one in judged
        ],
        "figures": runner.figures.as_list(),
        "curves": {work.name: runner.figures.curves(work.name) for work in works if runner.figures.curves(work.name)},
        "seconds": runner.seconds,
    }  # fmt: skip
    (folder / "report.json").write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    pictures = charts.draw_all(runner.figures, works, judged, folder)
    (folder / "report.md").write_text(markdown(runner, works, judged, pictures, options), encoding="utf-8")
    print("\n" + summary_table(runner.figures, works) + "\n\n" + targets_table(judged))
    if runner.failures:
        print("\nfailed:\n\n" + "\n".join(f"- {sentence}" for sentence in runner.failures))
    print(f"\nkept: {folder}/report.md, report.json and {len(pictures)} charts")
    return 1 if runner.failures else 0
