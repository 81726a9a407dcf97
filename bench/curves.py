"""Draws curves over time: one panel under the other, in each a line per engine and round, as SVG for documents and PNG for a look.

Why it exists: a mean hides a second in which nothing happened, a curve shows it. The vertical axis begins at zero, so that what looks like
half is half. Colours can be told apart by people who see fewer of them (palette of Okabe and Ito), and an engine has the same colour in
every chart, those of the report among them.
"""

from matplotlib.figure import Figure

COLOURS = {"PBXT": "#0072B2", "InnoDB": "#D55E00", "MyRocks": "#009E73", "MyISAM": "#CC79A7", "Aria": "#E69F00", "ARCHIVE": "#56B4E9"}
OTHER = ("#000000", "#777777", "#F0E442")
INCHES_WIDE, INCHES_HIGH = 9.0, 2.8  # of a panel


def colour_of(name, others):
    """The colour of an engine; names that are not in the list get the rest in turn."""
    return COLOURS.get(name) or OTHER[others.index(name) % len(OTHER)]


def draw(panels, path, title, unit="transactions per second", ignored=0):
    """Writes path.svg and path.png and returns their paths.

    `panels` is {heading: {name: [series, ...]}}, a value per second in each series. The first `ignored` seconds get a grey ground: they
    are shown and do not count.
    """
    figure = Figure(figsize=(INCHES_WIDE, 0.6 + INCHES_HIGH * len(panels)), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    every = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for place, (heading, curves) in zip(every, panels.items()):
        others = [name for name in curves if name not in COLOURS]
        for name, rounds in curves.items():
            for number, series in enumerate(rounds):
                label = name if number == 0 else None
                place.plot(range(len(series)), series, color=colour_of(name, others), linewidth=1.3, alpha=0.9 if number == 0 else 0.5, label=label)
        if ignored:
            place.axvspan(0, ignored, color="0.9", zorder=0)
        place.set_title(heading, fontsize="small", loc="left")
        place.set_ylabel(unit, fontsize="small")
        place.set_ylim(bottom=0)
        place.margins(x=0)
        place.grid(color="0.85", linewidth=0.5)
        place.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(curves), fontsize="small", frameon=False)
    every[-1].set_xlabel("seconds", fontsize="small")
    return save(figure, path)


def save(figure, path):
    """Writes a chart as SVG, for documents, and as PNG, for a look; their paths."""
    written = [path.with_suffix(".svg"), path.with_suffix(".png")]
    for file in written:
        figure.savefig(file, dpi=110)
    return written
