"""sysbench's OLTP runs: transactions per second with 16 threads, and the slowest second of each run."""

import re
import statistics
import subprocess

from common import Problem
from live_server import execute, value_of

TESTS = {
    "oltp_point_select": 1.0,
    "oltp_update_non_index": 1.5,
    "oltp_update_index": 1.5,
    "oltp_insert": 1.5,
    "oltp_read_write": 1.3,
}
THREADS = 16
LINE = re.compile(r"^\[ \d+s \].*? tps: ([\d.]+)", re.MULTILINE)


def command(server, test, rows, *words):
    """sysbench's command line for one test."""
    return [
        "sysbench",
        test,
        "--db-driver=mysql",
        f"--mysql-socket={server.socket}",
        "--mysql-user=root",
        "--mysql-db=sysbench",
        "--tables=1",
        f"--table-size={rows}",
        "--mysql-ignore-errors=1020,1205,1213",
        *words,
    ]


def call(words):
    """Output of one call; a Problem when it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Problem("sysbench is missing: run `make setup`, or leave out --sysbench.") from error
    if done.returncode != 0:
        raise Problem(f"{' '.join(words[:2])} failed: {(done.stdout + done.stderr).strip()[-400:]}")
    return done.stdout


def run(server, options, engines, results):
    """All tests, engines in turn; values are transactions per second."""
    rows = options.rows or 500_000
    connection = server.connect()
    for engine in engines:
        if value_of(connection, "SELECT transactions FROM information_schema.engines WHERE engine = %s", (engine,)) != "YES":
            continue  # its mixed runs end with errors where they expect a rollback
        execute(connection, "CREATE OR REPLACE DATABASE sysbench")
        call(command(server, "oltp_read_write", rows, f"--mysql-storage-engine={engine.lower()}", "prepare"))
        for test in TESTS:
            words = [f"--threads={THREADS}", f"--time={options.seconds}", "--report-interval=1", "run"]
            seconds = [float(value) for value in LINE.findall(call(command(server, test, rows, *words)))]
            steady = seconds[1:] or seconds
            results["sysbench", f"{test} (tps)", engine].append(statistics.mean(steady))
            results["sysbench", f"{test} slowest second (% of median)", engine].append(
                100 * min(steady) / statistics.median(steady)
            )
        print(f"done: sysbench {engine}", flush=True)
    execute(connection, "DROP DATABASE sysbench")
    connection.close()
