"""Charts of the report, each as SVG and as PNG: how far the targets are reached, gains of single statements, curves over the number of clients
and over the seconds of a run.

Why bars show gains: times, rates and bytes of one work stand in one picture only if more to the right always means better, so each bar
is how many times better than InnoDB an engine is, on a logarithmic scale, with its own figure written behind it. Engines have the same
colour and sign in every chart; the colours are told apart by readers who do not see all of them.
"""

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from bench import curves as over_time
from bench.curves import COLOURS, save
from bench.record import value_text
from bench.targets import BASE, ENGINE
from bench.works.base import FLOOR

# Of lines.
SIGNS = {"PBXT": "o", "InnoDB": "s", "MyRocks": "^", "Aria": "D", "MyISAM": "v", "ARCHIVE": "P"}
MET, MISSED = "#009E73", "#D55E00"
PANELS_ACROSS = 2
EDGE = 1000  # multiples of a target beyond this are drawn here


def look(engine):
    """(colour, sign) of an engine."""
    if engine == FLOOR:
        return "#777777", "x"
    return COLOURS.get(engine, "#000000"), SIGNS.get(engine, ".")


def texture(engine):
    """The floor is hatched: it is no engine that keeps rows."""
    return {"hatch": "//" if engine == FLOOR else None, "edgecolor": "white", "linewidth": 0}


def draw_all(figures, works, judged, folder):
    """Draws everything there is to draw; returns the names of the charts, without their endings."""
    names = []
    if any(one.reached is not None for one in judged):
        save(draw_targets([one for one in judged if one.reached is not None]), folder / "targets")
        names.append("targets")
    for work in works:
        measures = figures.measures(work.name)
        curves = {measure: places for measure, places in measures.items() if None not in places}
        bars = [measure for measure, places in measures.items() if None in places]
        bars = [measure for measure in bars if figures.median(work.name, measure, BASE) and engines_with(figures, work.name, measure)]
        if bars:
            save(draw_bars(figures, work, bars), folder / f"{work.name}-bars")
            names.append(f"{work.name}-bars")
        if curves:
            save(draw_curves(figures, work, curves), folder / f"{work.name}-curves")
            names.append(f"{work.name}-curves")
        if figures.curves(work.name):
            over_time.draw(figures.curves(work.name), folder / f"{work.name}-seconds", work.heading(), ignored=work.unsteady)
            names.append(f"{work.name}-seconds")
    return names


def engines_with(figures, work, measure):
    """Engines that have a figure greater than 0 of a measure without a scale, but for the base."""
    return [engine for engine in figures.engines(work) if engine != BASE and figures.median(work, measure, engine)]


def times_axis(axis, least, greatest):
    """A logarithmic axis of ratios, labelled 0.1x, 0.5x, 1x, 2x and so on."""
    steps = [base * 10.0**power for power in range(-4, 6) for base in (1, 2, 5)]
    low, high = min(least, 0.9), max(greatest, 1.1)
    inside = [step for step in steps if low / 1.3 <= step <= high * 1.3]
    if len(inside) > 9:
        inside = [step for step in inside if f"{step:e}"[0] == "1"]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def limits(values, for_text):
    """Ends of a logarithmic axis that leaves this share of its length for the text behind the greatest value."""
    low, high = min([*values, 0.8]) / 1.2, max([*values, 1.25])
    return low, high * (high / low) ** (for_text / (1 - for_text))


def draw_targets(judged):
    """One line for each target: how many times better than asked for."""
    figure = Figure(figsize=(11, 1.6 + 0.34 * len(judged)), layout="constrained")
    axes = figure.subplots()
    surplus = [surplus_of(one) for one in judged]
    for place, (one, value) in enumerate(zip(judged, surplus)):
        colour = MET if one.met else MISSED
        axes.plot([1, value], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot([value], [place], "o" if one.met else "X", color=colour, markersize=8)
        axes.annotate(
            f"{one.reached_text()}  ({one.target.goal_text(one.unit)})", (max(value, 1), place), (9, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(*limits(surplus, 0.33))
    times_axis(axes.xaxis, min(surplus), max(surplus))
    axes.set_yticks(range(len(judged)), [label_of(one) for one in judged], fontsize=9)
    axes.set_ylim(len(judged) - 0.5, -0.5)
    axes.set_xlabel("reached, in multiples of the target (right of 1x: met, green with a dot; left: not met, red with a cross)")
    axes.set_title(f"{ENGINE} beside {BASE}: speed targets")
    axes.grid(axis="x", alpha=0.3)
    return figure


def surplus_of(one):
    """How many times better than the goal, at most EDGE and at least 1 / EDGE; 1 is just met."""
    less_is_better = one.target.kind in ("cost", "most")
    if not one.reached:
        return EDGE if less_is_better else 1 / EDGE
    times = one.target.goal / one.reached if less_is_better else one.reached / one.target.goal
    return min(max(times, 1 / EDGE), EDGE)


def label_of(one):
    """A target's line, those of sysbench with their test."""
    if one.target.work != "sysbench":
        return one.target.line
    test = one.target.measure.split(",")[0].removeprefix("oltp_")
    return f"sysbench {test}, 16 connections{', slowest second' if one.target.kind == 'least' else ''}"


def draw_bars(figures, work, measures):
    """A group of bars for each measure, one for each engine: how many times better than the base."""
    engines = [engine for engine in figures.engines(work.name) if engine != BASE]
    height = 0.8 / max(len(engines), 1)
    figure = Figure(figsize=(11, 1.8 + len(measures) * (0.25 + 0.22 * len(engines))), layout="constrained")
    axes = figure.subplots()
    gains = []
    for row, engine in enumerate(engines):
        for place, measure in enumerate(measures):
            gain = figures.gain(work.name, measure, engine, BASE)
            if not gain:
                continue
            gains.append(gain)
            y = place - 0.4 + (row + 0.5) * height
            axes.barh(y, gain - 1, height * 0.9, left=1, color=look(engine)[0], **texture(engine))
            text = f" {gain:,.{0 if gain >= 100 else 2}f}x, {value_text(figures.median(work.name, measure, engine), figures.unit(work.name, measure))}"
            axes.annotate(text, (max(gain, 1), y), va="center", fontsize=7.5)
    axes.axvline(1, color=look(BASE)[0], linewidth=2)
    axes.set_xscale("log")
    axes.set_xlim(*limits(gains, 0.18))
    times_axis(axes.xaxis, min(gains), max(gains))
    units = {measure: figures.unit(work.name, measure) for measure in measures}
    labels = [f"{measure}\n({BASE}: {value_text(figures.median(work.name, measure, BASE), units[measure])})" for measure in measures]
    axes.set_yticks(range(len(measures)), labels, fontsize=9)
    axes.set_ylim(len(measures) - 0.5, -0.5)
    axes.set_xlabel(f"times better than {BASE} (the line at 1x); more to the right is better, logarithmic scale")
    handles = [Patch(facecolor=look(engine)[0], label=f"{engine} (floor)" if engine == FLOOR else engine, **texture(engine)) for engine in engines]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(engines), fontsize=9, frameon=False)
    axes.set_title(work.heading())
    axes.grid(axis="x", alpha=0.3)
    return figure


def draw_curves(figures, work, curves):
    """A panel for each measure: the figure over the scale, a line for each engine, least and greatest value as a band."""
    down = -(-len(curves) // PANELS_ACROSS)
    figure = Figure(figsize=(11, 1.3 + 2.9 * down), layout="constrained")
    panels = figure.subplots(down, PANELS_ACROSS, squeeze=False)
    drawn = {}
    for panel, (measure, places) in zip(panels.flat, curves.items()):
        for engine in figures.engines(work.name):
            known = [at for at in places if figures.values(work.name, measure, engine, at)]
            if not known:
                continue
            colour, sign = look(engine)
            spreads = [figures.spread(work.name, measure, engine, at) for at in known]
            middle = [figures.median(work.name, measure, engine, at) for at in known]
            panel.fill_between(known, [low for low, _ in spreads], [high for _, high in spreads], color=colour, alpha=0.18, linewidth=0)
            (drawn[engine],) = panel.plot(known, middle, color=colour, marker=sign, markersize=5, linewidth=1.8 if engine == ENGINE else 1.2)
        dress_panel(panel, figures.unit(work.name, measure), measure, places, work.scale)
    for panel in panels.flat[len(curves) :]:
        panel.set_visible(False)
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=max(len(drawn), 1), fontsize=9, frameon=False)
    figure.suptitle(work.heading())
    return figure


def dress_panel(panel, unit, measure, places, scale):
    """Title, axes and grid of one panel."""
    panel.set_title(measure, fontsize=10)
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_locator(FixedLocator(places))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}"))
    panel.set_xlabel(scale or "", fontsize=9)
    panel.set_ylabel({"1/s": "per second", "1/min": "per minute", "s": "seconds", "%": "% of the median second"}.get(unit, unit), fontsize=9)
    panel.tick_params(labelsize=8)
    panel.grid(alpha=0.3)
