"""A running private server as Python objects see it: start, connect, watch, kill; built on scripts/server.

Why it exists: the demo, the benchmark and the SQL tests all need "a real server of my own, with real connections"; how such a
server is started is decided in scripts/server alone, and this module only calls it.
Rule: every LiveServer has a data directory of its own, and only the process started on that directory is ever signalled.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from common import BUILD, PREFIX, ROOT, Problem

SERVER_TOOL = ROOT / "scripts" / "server"
WORKSHOP_PYTHON = BUILD / "venv" / "bin" / "python"


def use_workshop_python():
    """Starts the running script again with build/venv's Python, where the packages it needs are installed."""
    if Path(sys.prefix).resolve() == (BUILD / "venv").resolve():
        return
    if not WORKSHOP_PYTHON.exists():
        raise SystemExit(f"{WORKSHOP_PYTHON} is missing: run `make setup` first, it installs the Python packages there.")
    os.execv(WORKSHOP_PYTHON, [str(WORKSHOP_PYTHON), *sys.argv])


class LiveServer:
    """One data directory and its server. `engine` decides whether the PBXT plugin is loaded: any other engine runs without it."""

    def __init__(self, datadir, engine="PBXT", arguments=(), networking=False):
        self.data = Path(datadir).resolve()
        self.home = self.data.with_name(self.data.name + ".server")
        self.socket = self.home / "sock"
        self.log = self.home / "error.log"
        self.engine = engine
        self.arguments = list(arguments)
        self.networking = networking

    def _tool(self, command, *words, flags=()):
        """One call of scripts/server; a Problem with its last words when it fails."""
        line = [sys.executable, SERVER_TOOL, "--quiet", "--datadir", self.data, command, *flags]
        if words:
            line += ["--", *words]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Problem((done.stderr or done.stdout).strip().removeprefix("server: "))
        return done.stdout

    def start(self, *more):
        """Starts the server and waits until it answers; returns the seconds this took, recovery included."""
        flags = [] if self.engine.upper() == "PBXT" else ["--no-pbxt"]
        flags += [] if self.networking else ["--skip-networking"]
        begin = time.monotonic()
        self._tool("start", *self.arguments, *more, flags=flags)
        return time.monotonic() - begin

    def stop(self):
        """Clean shutdown; does nothing when no server runs."""
        self._tool("stop")

    def kill(self):
        """kill -9: the end that a crash brings."""
        self._tool("kill")

    def wipe(self):
        """Stops the server and removes its files."""
        self._tool("wipe")

    def restart(self, *more):
        """Clean shutdown and a new start; returns the seconds the start took."""
        self.stop()
        return self.start(*more)

    def pid(self):
        """Process id as scripts/server wrote it down, or None."""
        try:
            return int((self.home / "pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def alive(self):
        """False once the server process has ended."""
        try:
            state = Path(f"/proc/{self.pid()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    def port(self):
        """TCP port on 127.0.0.1; None for a server that only has its socket."""
        try:
            return int((self.home / "port").read_text(encoding="ascii")) or None
        except (OSError, ValueError):
            return None

    def connect(self, database=None, **options):
        """A new client connection (autocommit, utf8mb4) through the socket."""
        import pymysql  # pylint: disable=import-outside-toplevel  # lives in build/venv; --help works without it

        settings = {
            "unix_socket": str(self.socket),
            "user": "root",
            "charset": "utf8mb4",
            "autocommit": True,
            "local_infile": True,
            "ssl_disabled": True,  # a context for TLS takes a megabyte and much time for each connection, and a socket needs none
            "database": database,
            "read_timeout": 600,
        }
        settings.update(options)
        return pymysql.connect(**settings)

    def resident_bytes(self):
        """Resident memory (RSS) of the server process in bytes; 0 when it does not run."""
        try:
            fields = Path(f"/proc/{self.pid()}/statm").read_text(encoding="ascii").split()
        except OSError:
            return 0
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self):
        """Greatest resident memory (VmHWM) since the start or the last reset_peak(), in bytes."""
        try:
            lines = Path(f"/proc/{self.pid()}/status").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)

    def reset_peak(self):
        """Makes peak_bytes() count from now."""
        Path(f"/proc/{self.pid()}/clear_refs").write_text("5", encoding="ascii")

    def log_text(self, start=0):
        """The error log from byte `start` on."""
        try:
            return self.log.read_bytes()[start:].decode("utf-8", "replace")
        except OSError:
            return ""

    def log_size(self):
        """Bytes in the error log now; a mark for log_text()."""
        return self.log.stat().st_size if self.log.exists() else 0

    def engine_dir(self):
        """Where PBXT keeps its files: `pbxt_data_dir`, as the running server names it."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@global.pbxt_data_dir")
                value = cursor.fetchone()[0]
        finally:
            connection.close()
        return (self.data / value).resolve()

    def client_program(self, name):
        """Path of one of MariaDB's own programs and the options that reach this server."""
        return [str(PREFIX / "bin" / name), "--no-defaults", f"--socket={self.socket}", "--user=root"]


def rows_of(connection, statement, arguments=None):
    """All rows of one statement as a list of tuples."""
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return list(cursor.fetchall())


def value_of(connection, statement, arguments=None):
    """The first value of the first row."""
    return rows_of(connection, statement, arguments)[0][0]


def execute(connection, statement, arguments=None):
    """Runs one statement; returns the number of affected rows as the server reports it."""
    with connection.cursor() as cursor:
        return cursor.execute(statement, arguments)
