#!/usr/bin/env python3
"""Shows ENGINE=PBXT at work on a real server, proves each claim while it does, and leaves the server running for you.

What happens, in about three minutes on two cores:
  flights   336,776 real flights with airlines, airports, planes and weather are loaded; counts, sums and joins are compared
            with what Python computes from the source files; foreign keys keep them together
  drive     the test drive of the 2007 article "PBXT under the hood" with two connections: reading a locked row, ERROR 1020,
            the deadlock, and an online dump while rows change
  timing    that article's timing table on 1,120,500 rows, PBXT beside InnoDB, statement by statement
  crash     kill -9 while eight clients write; recovery; proof that nothing acknowledged is lost and nothing is there in part

Exit status 0 when every proof holds, 1 when one does not. The server keeps its data in build/run/data; stop it with
`scripts/server stop`, throw it away with `scripts/server wipe`.

Examples:
  scripts/run_demo.py                     everything
  scripts/run_demo.py --only drive        one part; may be given several times
  scripts/run_demo.py --engine InnoDB     the same program against another engine, without the plugin
"""

import argparse
import sys
from pathlib import Path

from common import RUN, Problem, guarded
from live_server import LiveServer, use_workshop_python

PARTS = ("flights", "drive", "timing", "crash")

# InnoDB gets what it needs to be fast: a buffer pool larger than the data and a large log. PBXT's cache is as large.
SETTINGS = [
    "--innodb-buffer-pool-size=1G",
    "--innodb-log-file-size=1G",
    "--innodb-flush-log-at-trx-commit=1",
    "--local-infile=1",
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="PBXT", help="engine under test (default PBXT)")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part only; may be repeated")
    parser.add_argument("--datadir", default=RUN / "data", type=Path, help="data directory (default build/run/data)")
    parser.add_argument("--stop", action="store_true", help="stop the server at the end instead of leaving it running")
    return parser.parse_args()


def run_part(name, part, server, engine, screen):
    """One part; what it did not survive becomes a failed proof, so that the other parts still run."""
    import pymysql  # pylint: disable=import-outside-toplevel

    try:
        return part(server, engine, screen)
    except (pymysql.err.Error, OSError, Problem) as error:
        screen.prove(f"part '{name}' runs to its end", False, f"{type(error).__name__}: {error} (server log: {server.log})")
        if server.pid() is None or not server.socket.exists():
            raise Problem(f"the server is gone; {server.log} says why.") from error
        return None


def main():
    options = parse_arguments()
    use_workshop_python()
    from demo import crash, flights, test_drive, timing  # pylint: disable=import-outside-toplevel
    from demo.screen import Screen  # pylint: disable=import-outside-toplevel

    settings = SETTINGS + (["--pbxt-cache-size=1G"] if options.engine.upper() == "PBXT" else [])
    server = LiveServer(options.datadir, options.engine, settings, networking=True)
    parts = {"flights": flights.run, "drive": test_drive.run, "timing": timing.run, "crash": crash.run}
    screen = Screen()
    server.stop()
    screen.say(f"server ready after {server.start():.1f} s (data in {server.data})")
    show_timings = None
    for name in PARTS:
        if not options.only or name in options.only:
            show_timings = run_part(name, parts[name], server, options.engine, screen) or show_timings
    status = screen.summary()
    if show_timings:
        show_timings()
    if options.stop:
        server.stop()
    else:
        print(f"\nThe server is running. Connect:  scripts/server --datadir {server.data} exec\n")
    return status


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    guarded(main)
