"""The comparison of 2011, done by bench/seed003: the table of videos with a large and with a small cache."""

from bench import figures, lab
from bench.works.base import WITH_KEYS
from bench.works.tools import Tool, kept_json

INNODB_BYTES_PER_ROW = 276  # what the targets were set by
SMALLER = 20  # how much smaller than the data the small cache is
LEAST_CACHE = 16 << 20  # less is no cache for anybody
TESTS = {
    "1": "bulk insert",
    "1a": "bytes on disk",
    "2": "update of an indexed column",
    "3": "delete by a key range",
    "4": "fetch of one day",
    "4a": "fetch of a key range",
    "5": "count of one day",
    "5a": "count of a key range",
    "6": "count of all",
    "6a": "least and greatest",
    "7": "insert, delete, select side by side",
}


class Video(Tool):
    """Comparison of 2011: the table of videos, tests 1 to 7
    bench/seed003, each engine alone on a server of its own: bulk insert into four indexes, bytes on disk, update of an indexed column, delete by
    a key range, key lookups with and without fetching, counts, and insert, delete and select side by side. The small cache is 20 times smaller
    than InnoDB's table (16 MiB at least); MyISAM, Aria and MyRocks have the system's page cache beside it.
    """

    name = "video"
    seed = "003"
    program = "seed003"
    engines = WITH_KEYS
    quick_engines = ("PBXT", "InnoDB")
    full = {"rows": 10_875_440, "large": "4G"}
    quick = {"rows": 60_000, "large": "256M"}

    def small(self):
        """Size of the small cache."""
        return f"{max(self.size.rows * INNODB_BYTES_PER_ROW // SMALLER, LEAST_CACHE) >> 20}M"

    def arguments(self):
        engines = [word for kind in self.kinds() for word in ("--engine", kind.name)]
        more = [f"--set={setting}" for setting in self.options.set]
        size = ["--rows", str(self.size.rows), "--cache", f"{self.size.large},{self.small()}", "--redo", self.options.redo]
        quick = ["--repeats", "1"] if self.options.quick else []
        return [*size, *engines, "--rounds", str(self.rounds()), *quick, *more, "--datadir", str(self.options.datadir / "video")]

    def take(self, output, runner):
        found = kept_json(output)
        self.note(found, runner)
        for contest in found["results"]:
            large = lab.bytes_of(contest["cache"]) == lab.bytes_of(self.size.large)
            self._take_contest(contest, "large cache" if large else "small cache", runner)

    def _take_contest(self, contest, cache, runner):
        """The tests of one engine, cache and round."""
        engine, tests = contest["engine"], contest["tests"]
        if not tests:
            return

        def add(measure, value, unit="s"):
            runner.figures.add(self.name, measure, engine, value, unit)

        for name, result in tests.items():
            if "error" not in result:
                add(f"{name} {TESTS[name]}, {cache}", *((result["per_row"], "bytes/row") if name == "1a" else (result["seconds"],)))
        add(f"{figures.CPU}, {cache}", sum(result["cpu"] for result in tests.values()))
        add(f"{figures.WRITTEN}, {cache}", sum(result["written"] for result in tests.values()), "bytes")
        add(f"{figures.PEAK}, {cache}", max(result["peak"] for result in tests.values()), "bytes")
        add(f"{figures.BACKGROUND}, {cache}", sum(result.get("background", 0) for result in tests.values()))
