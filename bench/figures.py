"""What the runs measured, and the arithmetic on it: medians, spread, ratios, gains. Knows no server, no file and no target.

Why it exists: report, charts and targets must not each have their own idea of what a ratio is. A figure has a work (`procedure`), a measure
(`single inserts`), a place on a scale where the measure has one (`at`: for example the number of connections), an engine, and one value for
each repetition. Its unit says whether less is better; a *cost ratio* is above 1 for the engine that is worse, whatever the unit.
"""

import statistics

# Unit: whether less is better.
UNITS = {"s": True, "bytes": True, "bytes/row": True, "1/s": False, "1/min": False, "%": False}

SPEEDS = ("s", "1/s", "1/min")  # space and evenness are no speed
# What every turn measures beside the work's own figures, kept out of charts and averages; a measure that begins so is one.
CPU, PEAK, WRITTEN, BACKGROUND = "processor time", "greatest memory", "written to disk", "background work afterwards"
COSTS = (CPU, PEAK, WRITTEN, BACKGROUND)


class Figures:
    """All values, in the order in which they were first measured."""

    def __init__(self):
        self._values = {}  # {(work, measure, at): {engine: [value of each repetition]}}
        self._units = {}  # {(work, measure): unit}
        self._curves = {}  # {work: {measure: {engine: [values of each second, of each repetition]}}}

    def add(self, work, measure, engine, value, unit="s", at=None):
        """One value of one repetition."""
        if unit not in UNITS:
            raise ValueError(f"unit {unit!r} is not known: choose of {', '.join(UNITS)}")
        if self._units.setdefault((work, measure), unit) != unit:
            raise ValueError(f"{work}, {measure}: the unit was {self._units[work, measure]}, and now is {unit}")
        self._values.setdefault((work, measure, at), {}).setdefault(engine, []).append(value)

    def add_curve(self, work, measure, engine, series):
        """What a measure was in each second of one repetition."""
        self._curves.setdefault(work, {}).setdefault(measure, {}).setdefault(engine, []).append(list(series))

    def curves(self, work):
        """{measure: {engine: [series of each repetition]}}; {} where nothing was noted second by second."""
        return self._curves.get(work, {})

    def works(self):
        """Names of the works that have figures."""
        return list(dict.fromkeys(work for work, _, _ in self._values))

    def measures(self, work, costs=False):
        """{measure: [places on its scale]} of one work, the costs of turns or all but them."""
        found = {}
        for name, measure, at in self._values:
            if name == work and measure.startswith(COSTS) == costs:
                found.setdefault(measure, []).append(at)
        return {measure: sorted(places, key=lambda at: (at is not None, at)) for measure, places in found.items()}

    def engines(self, work):
        """Names of the engines that have figures of this work, in the order of their first one."""
        return list(dict.fromkeys(engine for key, cells in self._values.items() if key[0] == work for engine in cells))

    def unit(self, work, measure):
        """Unit of a measure; it must have figures."""
        return self._units[work, measure]

    def values(self, work, measure, engine, at=None):
        """One value for each repetition; [] where nothing was measured."""
        return self._values.get((work, measure, at), {}).get(engine, [])

    def median(self, work, measure, engine, at=None):
        """The figure; None where nothing was measured."""
        values = self.values(work, measure, engine, at)
        return statistics.median(values) if values else None

    def spread(self, work, measure, engine, at=None):
        """(least, greatest) value; None where nothing was measured."""
        values = self.values(work, measure, engine, at)
        return (min(values), max(values)) if values else None

    def ratio(self, work, measure, engine, base, at=None):
        """Median against median, as it stands: of times below 1 is better, of rates above 1. None where one is missing or the base is 0."""
        mine, theirs = self.median(work, measure, engine, at), self.median(work, measure, base, at)
        return mine / theirs if mine is not None and theirs else None

    def cost_ratio(self, work, measure, engine, base, at=None):
        """How many times the base's cost: below 1 is better, for rates the ratio turned round. None where it is not defined."""
        ratio = self.ratio(work, measure, engine, base, at)
        if ratio is None or UNITS[self.unit(work, measure)]:
            return ratio
        return 1 / ratio if ratio else None

    def gain(self, work, measure, engine, base, at=None):
        """How many times better than the base: above 1 is better, whatever the unit. None where it is not defined."""
        cost = self.cost_ratio(work, measure, engine, base, at)
        return 1 / cost if cost else None

    def typical_cost(self, work, engine, base):
        """Geometric mean of the cost ratios of all times and rates of a work (a measure with a scale counts once); None without any."""
        ratios = []
        for measure, places in self.measures(work).items():
            found = [self.cost_ratio(work, measure, engine, base, at) for at in places]
            found = [ratio for ratio in found if ratio and self.unit(work, measure) in SPEEDS]
            if found:
                ratios.append(statistics.geometric_mean(found))
        return statistics.geometric_mean(ratios) if ratios else None

    def as_list(self):
        """Everything, for the JSON file."""
        return [
            {
                "work": work,
                "measure": measure,
                "at": at,
                "unit": self._units[work, measure],
                "engine": engine,
                "median": statistics.median(values),
                "values": values,
            }
            for (work, measure, at), cells in self._values.items()
            for engine, values in cells.items()
        ]


class Answers:
    """What the engines answered to the same statements: a fast wrong answer is worth nothing."""

    def __init__(self):
        self._found = {}  # {(work, measure, at): {answer: {engine}}}

    def add(self, work, measure, engine, answer, at=None):
        """One engine's answer, as text."""
        self._found.setdefault((work, measure, at), {}).setdefault(answer, set()).add(engine)

    def differences(self):
        """A sentence for each statement that was not answered by all in the same way."""
        for (work, measure, at), answers in self._found.items():
            if len(answers) > 1:
                said = "; ".join(f"{', '.join(sorted(engines))} said {answer}" for answer, engines in answers.items())
                yield f"{work}, {measure}{'' if at is None else f' at {at}'}: the answers differ: {said}"
