"""The orders of a wholesaler of 2010 (TPC-C), done by bench/tpcc where this tree has it."""

import json

from bench import figures
from bench.works.tools import Tool


class Wholesaler(Tool):
    """Orders of a wholesaler after TPC-C, 2010
    bench/tpcc: its nine tables and five transactions, with foreign keys, by clients who do not think or type; new orders a minute. PBXT runs with
    pbxt_conflict_mode=WAIT there. Its consistency conditions are checked before and after each run.
    """

    name = "tpcc"
    seed = "001"
    program = "tpcc"
    engines = ("PBXT", "InnoDB")
    scale = "clients"
    full = {"warehouses": 10, "clients": (1, 16), "seconds": 60, "warmup": 5}
    quick = {"warehouses": 1, "clients": (4,), "seconds": 4, "warmup": 1}

    @property
    def unsteady(self):
        """The seconds before those that count."""
        return self.size.warmup

    def arguments(self):
        engines = [word for kind in self.kinds() for word in ("--engine", kind.name)]
        clients = [word for number in self.size.clients for word in ("--clients", str(number))]
        more = [f"--set={setting}" for setting in self.options.set]
        time = ["--seconds", str(self.size.seconds), "--warmup", str(self.size.warmup), "--rounds", str(self.rounds())]
        place = ["--datadir", str(self.options.datadir / "tpcc"), "--cache", self.options.cache, "--redo", self.options.redo]
        return ["--json", "--warehouses", str(self.size.warehouses), *clients, *engines, *time, *place, *more]

    def take(self, output, runner):
        line = next((line for line in output.splitlines() if line.startswith("{")), None)
        if line is None:
            return  # it failed before it had figures, and its status says so
        found = json.loads(line)
        for sentence in found.get("failures", []):
            runner.fail(f"{self.name}: {sentence}")
        self.note(found, runner)
        for run in found["runs"]:
            self._take_run(run, runner.figures)
        for engine, load in found.get("loads", {}).items():
            runner.figures.add(self.name, "loading", engine, load["seconds"])

    def _take_run(self, run, results):
        """One engine, one number of clients, one round."""
        place = (run["engine"], run["clients"])

        def add(measure, value, unit):
            results.add(self.name, measure, place[0], value, unit, place[1])

        add("new orders", run["new_orders_per_minute"], "1/min")
        add("new orders, slowest second", 100 * run["slowest_to_median"], "%")
        results.add_curve(self.name, f"transactions of {place[1]} clients", place[0], run["series"]["transactions"])
        add(figures.CPU, run["cpu_seconds"], "s")
        add(figures.WRITTEN, run["written_bytes"], "bytes")
        add(figures.PEAK, run["peak_bytes"], "bytes")
