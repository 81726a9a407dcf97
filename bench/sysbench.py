"""sysbench as the client of many connections: its own OLTP tests, and the scripts in bench/lua.

Why it exists: a thousand connections served by Python would measure Python. One call is one run; what it prints is read here and nowhere else.
Errors that say "try again" (1020 changed since read, 1205 timeout, 1213 deadlock) are repeated by sysbench and count for no transaction.
"""

import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from common import Problem

SCRIPTS = Path(__file__).resolve().parent / "lua"
SECOND = re.compile(r"^\[ \d+s \].*? tps: ([\d.]+)", re.MULTILINE)
DONE = re.compile(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec")
PATIENCE = 900  # seconds beyond the length of a run: connecting, and transactions under way at its end


@dataclass(frozen=True)
class Load:
    """What one run reached."""

    count: int  # transactions
    rate: float  # of them a second, over the whole run
    seconds: tuple  # transactions in each second

    @property
    def slowest(self):
        """The slowest second in percent of the median second, without the first one; None in a run of less than three."""
        counted = self.seconds[1:]
        middle = statistics.median(counted) if len(counted) >= 2 else 0
        return 100 * min(counted) / middle if middle else None


def base_words(server, database):
    """Options of every call."""
    return [
        "--db-driver=mysql",
        f"--mysql-socket={server.socket}",
        "--mysql-user=root",
        f"--mysql-db={database}",
        "--mysql-ignore-errors=1020,1205,1213",
    ]


def command(server, test, rows, *words, database="sysbench"):
    """sysbench's command line for one of its own tests, over one table."""
    return ["sysbench", test, *base_words(server, database), "--tables=1", f"--table-size={rows}", *words]


def script_command(server, script, database, *words):
    """sysbench's command line for a script of bench/lua."""
    return ["sysbench", str(SCRIPTS / f"{script}.lua"), *base_words(server, database), *words]


def call(words, patience=None):
    """Output of one call; a Problem when it fails or does not come to an end."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patience)
    except FileNotFoundError as error:
        raise Problem("sysbench is missing: run `make setup`, it installs Debian's package.") from error
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{' '.join(words[:2])} was not over after {patience} s and was stopped.") from error
    if done.returncode != 0:
        raise Problem(f"{' '.join(words[:2])} failed: {(done.stdout + done.stderr).strip()[-400:]}")
    return done.stdout


def run(words, clients, seconds, seed):
    """One run of a command line with so many connections; a Problem when nothing was done."""
    line = [*words, f"--threads={clients}", f"--time={seconds}", "--events=0", f"--rand-seed={seed}", "--report-interval=1", "run"]
    return parse(call(line, seconds + PATIENCE), " ".join(words[:2]))


def parse(output, name="sysbench"):
    """The figures in what sysbench printed."""
    done = DONE.search(output)
    if not done or int(done[1]) == 0:
        raise Problem(f"{name} finished no transaction: {output.strip()[-400:]}")
    return Load(int(done[1]), float(done[2]), tuple(float(value) for value in SECOND.findall(output)))
