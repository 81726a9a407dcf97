"""Where things lie in the working tree, and how every script says that something is wrong.

Why it exists: the scripts agree here on paths, so that a path is written once; each of them can be started from any directory.
An error that the reader can do something about is a Problem: one sentence on standard error, exit status 1, no stack trace.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PREFIX = Path(os.environ.get("MARIADB_PREFIX", BUILD / "mariadb" / "usr"))
HEADERS = BUILD / "mariadb-headers"
PLUGIN = Path(os.environ.get("PBXT_PLUGIN", BUILD / "ha_pbxt.so"))
RUN = BUILD / "run"
HOST = "x86_64-unknown-linux-gnu"  # what compilers call it


class Problem(Exception):
    """A sentence that names what is wrong, what was expected and what to do."""


def guarded(main):
    """Runs `main`; turns a Problem into one sentence and exit status 1, Ctrl-C and SIGTERM into status 130 after all clean-up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main() or 0)
    except Problem as problem:
        print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def output_of(command, **options):
    """Standard output of a command; a Problem with the end of its error output when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Problem(f"`{' '.join(map(str, command[:4]))} ...` failed: {' / '.join(tail) or 'no message'}")
    return done.stdout


def need_prefix():
    """The private server; a Problem when `make setup` has not unpacked it yet."""
    server = PREFIX / "sbin" / "mariadbd"
    if not server.exists():
        raise Problem(f"{server} is missing: run `make setup` first, it unpacks a private MariaDB there.")
    return PREFIX


def server_version():
    """Version of the private server, for example 10.11.18."""
    text = output_of([need_prefix() / "sbin" / "mariadbd", "--no-defaults", "--version"])
    return text.split("Ver ")[1].split("-")[0]


def need_nightly(*components):
    """The nightly compiler, which knows sanitizers and Miri, with more of its components; installed if they are not there."""
    have = subprocess.run(["rustup", "component", "list", "--installed", "--toolchain", "nightly"], capture_output=True, text=True, check=False)
    names = {name.removesuffix(f"-{HOST}") for name in have.stdout.split()}
    if have.returncode == 0 and names.issuperset(components):
        return
    command = ["rustup", "toolchain", "install", "nightly", "--profile", "minimal", *(f"--component={name}" for name in components)]
    if subprocess.run(command, check=False).returncode != 0:
        raise Problem("the nightly compiler could not be installed: see the messages of rustup above.")
