"""One engine alone on a private server, and what can be measured about that server from outside.

Why it exists: the long comparisons (seed003, steady, bigtxn, blob, killstorm) give every engine a server of its own, the same cache and
the same durability, and read time, processor, memory and disk in the same way. What "the same" means is decided here, once.
Nothing here trusts an engine's own figures but one: PBXT says itself when its background work is over.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from common import BUILD, PREFIX, Problem
from live_server import LiveServer, execute, rows_of

# The status variable that counts PBXT's background jobs under way; while a server does not have it, quiet files are the sign.
BACKGROUND_STATUS = "pbxt_background_jobs_now"
STEADY_SECONDS = 3  # files that did not change for so long count as quiet
QUIET_BYTES = 1 << 20  # written per second or grown in STEADY_SECONDS: less than this is quiet
BACKGROUND_PATIENCE = 3600
DATA = BUILD / "bench-data"
LONG = 48 * 3600


@dataclass(frozen=True)
class Kind:
    """What one engine needs on the server's command line; {cache} is replaced."""

    name: str  # as people say it
    sql_name: str  # as ENGINE= wants it
    arguments: tuple = ()
    transactions: bool = True
    savepoints: bool = True  # ROLLBACK TO after changes


KINDS = {
    kind.name.lower(): kind
    for kind in (
        Kind("PBXT", "PBXT", ("--pbxt-cache-size={cache}", "--pbxt-flush-log-at-trx-commit=1")),
        Kind("InnoDB", "InnoDB", ("--innodb-buffer-pool-size={cache}", "--innodb-flush-log-at-trx-commit=1")),
        Kind("MyISAM", "MyISAM", ("--key-buffer-size={cache}",), transactions=False),
        Kind("Aria", "Aria", ("--aria-pagecache-buffer-size={cache}",), transactions=False),
        Kind(
            "MyRocks",
            "ROCKSDB",
            (
                "--plugin-load-add=ha_rocksdb",
                "--rocksdb-block-cache-size={cache}",
                "--rocksdb-flush-log-at-trx-commit=1",
                "--rocksdb-strict-collation-check=OFF",  # it allows keys over latin1_swedish_ci
                "--rocksdb-max-row-locks=1073741824",  # its default of 2^20 ends every large transaction with an error
            ),
            savepoints=False,
        ),
        Kind("ARCHIVE", "ARCHIVE", ("--plugin-load-add=ha_archive",), transactions=False),
        Kind("BLACKHOLE", "BLACKHOLE", ("--plugin-load-add=ha_blackhole",), transactions=False),
    )
}

# Caches of the engines that are not under test: enough for the server's own tables.
SMALL = {
    "innodb": "--innodb-buffer-pool-size=32M",
    "myisam": "--key-buffer-size=8M",
    "aria": "--aria-pagecache-buffer-size=8M",
}


def kind_of(name):
    """The engine of that name; a Problem that lists the known ones."""
    try:
        return KINDS["myrocks" if name.lower() == "rocksdb" else name.lower()]
    except KeyError:
        raise Problem(f"engine {name} is not known here: choose of {', '.join(k.name for k in KINDS.values())}.") from None


def add_arguments(parser, name, engines, cache, redo="96M"):
    """Options that every tool of this folder has."""
    parser.add_argument("--engine", action="append", help=f"engine to measure, may be repeated (default: {', '.join(engines)})")
    parser.add_argument("--cache", default=cache, help=f"cache of the engine under test (default {cache})")
    parser.add_argument("--redo", default=redo, help=f"InnoDB's innodb_log_file_size (default {redo}; the server's own default is 96M)")
    parser.add_argument("--set", action="append", default=[], metavar="--NAME=VALUE", help="one more setting of the server; may be repeated")
    parser.add_argument(
        "--datadir", type=Path, default=BUILD / "bench" / name, help=f"data directory, wiped before and after (default build/bench/{name})"
    )
    parser.add_argument("--keep", action="store_true", help="leave server files in place at the end")
    parser.set_defaults(default_engines=engines, rounds=1)


def engines_of(options):
    """The engines asked for, as kinds."""
    return [kind_of(name) for name in (options.engine or options.default_engines)]


def settings(kind, options, cache=None):
    """The server's command line for one engine, without the settings that the caller asks for."""
    lines = [text.format(cache=cache or options.cache) for text in kind.arguments]
    lines += [text for name, text in SMALL.items() if name != kind.name.lower()]
    lines += [
        f"--innodb-log-file-size={options.redo}",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--max-allowed-packet=1G",
        "--max-connections=300",
        "--max-prepared-stmt-count=100000",
        "--skip-log-bin",
    ]
    return lines


def seconds_of(pid):
    """Processor time of a process so far, user and system; 0 if it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Lab(LiveServer):
    """A private server for one engine, with meters."""

    def __init__(self, kind, options, cache=None, more=()):
        self.kind = kind
        self.settings_used = [*settings(kind, options, cache), *more, *options.set]
        super().__init__(options.datadir, kind.name, self.settings_used)
        self.empty_bytes = 0  # disk bytes that count for no table, see mark_empty

    def begin(self, template=None):
        """A fresh data directory, if asked for as a copy of `template`, and a running server."""
        self.wipe()
        if template:
            self.data.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(template, self.data)
        self.start()
        connection = self.connect()
        known = rows_of(connection, "SELECT support FROM information_schema.engines WHERE engine = %s", (self.kind.sql_name,))
        connection.close()
        if not known or known[0][0] not in ("YES", "DEFAULT"):
            raise Problem(f"the server started without engine {self.kind.name}; {self.log} ends so:\n{self.log_text()[-600:]}")
        self.mark_empty()

    def connect(self, database=None, **options):
        """A connection whose statements may take as long as they like."""
        return super().connect(database, **{"read_timeout": LONG, "write_timeout": LONG, **options})

    def cpu_seconds(self):
        """Processor time of the server so far, user and system."""
        return seconds_of(self.pid())

    def written_bytes(self):
        """Bytes the server process has caused to be written to storage (write_bytes of /proc/PID/io)."""
        try:
            lines = Path(f"/proc/{self.pid()}/io").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))

    def disk_bytes(self):
        """Space the data directory occupies beyond what the empty server took."""
        return occupied_bytes(self.data) - self.empty_bytes

    def mark_empty(self):
        """From now on disk_bytes() counts what comes on top of the present files."""
        self.empty_bytes = occupied_bytes(self.data)

    def wait_for_background(self, patience=BACKGROUND_PATIENCE):
        """Seconds until background work was over (without the time it took to be sure); a Problem if it never ends."""
        connection = self.connect()
        try:
            if self.kind.name == "MyRocks":
                execute(connection, "SET GLOBAL rocksdb_force_flush_memtable_now = 1")  # or its log counts for the table
            return self._wait_until_quiet(connection, patience)
        finally:
            connection.close()

    def _wait_until_quiet(self, connection, patience):
        begin = last_busy = time.monotonic()
        disk, written, read_at = self.disk_bytes(), self.written_bytes(), begin
        while time.monotonic() - begin < patience:
            time.sleep(0.2)
            jobs = rows_of(connection, f"SHOW GLOBAL STATUS LIKE '{BACKGROUND_STATUS}'") if self.kind.name == "PBXT" else ()
            now = time.monotonic()
            if jobs:
                if int(jobs[0][1]) > 0:
                    last_busy = now
                elif now - last_busy >= 1:
                    return last_busy - begin
                continue
            grown, wrote = self.disk_bytes() - disk, self.written_bytes() - written
            # InnoDB writes its dirty pages for many minutes at its leisure; that changes no file's size and does not count.
            busy = abs(grown) > QUIET_BYTES or (self.kind.name == "PBXT" and wrote > QUIET_BYTES * max(now - read_at, 1))
            if busy:
                last_busy = now
                disk, written, read_at = disk + grown, written + wrote, now
            elif now - last_busy >= STEADY_SECONDS:
                return last_busy - begin
        raise Problem(f"background work of {self.kind.name} was not over after {patience} s.")

    def last_words(self):
        """The end of the error log, for a report of a failure."""
        return self.log_text()[-1500:]


def occupied_bytes(folder):
    """Blocks that all files of a folder occupy; files that vanish meanwhile do not count."""
    total, waiting = 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += stat_blocks(entry)
        except FileNotFoundError:
            continue
    return total


def stat_blocks(entry):
    """Space of one file; 0 if it is gone."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if "#rocksdb" in entry.path and entry.name.endswith(".log"):
        return min(found.st_blocks * 512, found.st_size)  # its log is preallocated beyond its end, or not, as chance has it
    return found.st_blocks * 512


def need_engine_files(kinds):
    """A Problem at once if a shared library is missing, instead of after an hour."""
    for kind in kinds:
        library = {"MyRocks": "ha_rocksdb.so", "ARCHIVE": "ha_archive.so", "BLACKHOLE": "ha_blackhole.so"}.get(kind.name)
        if library and not (PREFIX / "lib" / "mysql" / "plugin" / library).exists():
            raise Problem(f"{library} is not in {PREFIX}/lib/mysql/plugin: run `make setup`.")


def bytes_of(text):
    """4G, 256M, 64K or a plain number as bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        return int(float(text[:-1]) * units[text[-1].upper()]) if text[-1].upper() in units else int(text)
    except (ValueError, IndexError):
        raise Problem(f"{text!r} is no size: write for example 256M or 4G.") from None
