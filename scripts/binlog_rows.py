"""What the binary log says is in a table: keys of the rows that its committed transactions have inserted and not deleted.

Why it exists: a server's tables and its binary log must hold the same transactions, or replicas and restores differ from it. The log
is read with MariaDB's own mariadb-binlog, which prints each row event with the values of its columns (ROW format, full images).
State: a transaction under way, XA transactions that are prepared and not yet ended, and what is committed; a file is read once.
"""

import re
import subprocess
from collections import Counter, defaultdict

from common import PREFIX, Problem
from live_server import execute, rows_of

CHANGE = re.compile(r"^### (INSERT INTO|DELETE FROM|UPDATE) `([^`]+)`\.`([^`]+)`$")
VALUE = re.compile(r"^###   @(\d+)=(\S+)")
BEGIN = re.compile(r"^(BEGIN|START TRANSACTION)$")
XA = re.compile(r"^XA (START|END|PREPARE|COMMIT|ROLLBACK) (?:X'([0-9a-fA-F]*)'|'([^']*)')")
COMMIT = re.compile(r"^COMMIT(/\*!\*/;)?$")
ROLLBACK = re.compile(r"^ROLLBACK(/\*!\*/;)?$")
GTID = re.compile(r"^#\d{6} .*\bGTID (\d+-\d+-\d+)\b")


class BinlogRows:
    """Reads the files of one server, oldest first. `keys` says for each table how many leading columns are its key."""

    def __init__(self, server, keys):
        self.server, self.keys = server, keys
        self.there = defaultdict(Counter)  # table -> key -> inserted minus deleted
        self.prepared = {}  # XA id -> changes
        self.gtids = set()
        self.read = set()
        self.open = None  # changes of the transaction under way
        self.xa = None  # its XA id

    def catch_up(self, connection):
        """Ends the current file and reads all that were not read yet."""
        execute(connection, "FLUSH BINARY LOGS")
        names = [row[0] for row in rows_of(connection, "SHOW BINARY LOGS")]
        for name in names[:-1]:
            if name not in self.read:
                self._read_file(self.server.data / name)
                self.read.add(name)

    def complaints(self, connection):
        """How the tables differ from what the log says."""
        found = []
        for table, columns in self.keys.items():
            seen = {row[:columns] for row in rows_of(connection, f"SELECT * FROM {table}")}
            said = {key for key, count in self.there[table].items() if count > 0}
            odd = [key for key, count in self.there[table].items() if count not in (0, 1)]
            if seen != said:
                found.append(
                    f"table {table}: rows {sorted(seen - said)[:5]} are not in the binary log, rows {sorted(said - seen)[:5]} only there"
                )
            if odd:
                found.append(f"table {table}: the binary log has rows {odd[:5]} inserted or deleted more than once")
        return found

    def _read_file(self, path):
        command = [PREFIX / "bin" / "mariadb-binlog", "--no-defaults", "--base64-output=decode-rows", "--verbose", path]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise Problem(f"mariadb-binlog cannot read {path}: {done.stderr.strip()[-300:]}")
        self.take(done.stdout.splitlines())

    def take(self, lines):
        """What mariadb-binlog prints of one file."""
        row = None  # (kind, table, values by column number) of the row being printed
        for line in lines:
            if not line.startswith("###"):
                self._end_row(row)
                row = None
                self._control(line)
                continue
            change, value = CHANGE.match(line), VALUE.match(line)
            if change:
                self._end_row(row)
                row = (change[1], change[3], {})
            elif value and row:
                row[2][int(value[1])] = value[2]
        self._end_row(row)

    def _end_row(self, row):
        if row is None or self.open is None:
            return
        kind, table, values = row
        columns = self.keys.get(table)
        if columns and kind != "UPDATE":  # an update changes no key here
            key = tuple(int(values[number]) for number in range(1, columns + 1))
            self.open.append((table, key, 1 if kind == "INSERT INTO" else -1))

    def _control(self, line):
        gtid = GTID.match(line)
        if gtid:
            if gtid[1] in self.gtids:
                raise Problem(f"the binary log has GTID {gtid[1]} twice")
            self.gtids.add(gtid[1])
            return
        if BEGIN.match(line):
            self.open, self.xa = [], None
        elif COMMIT.match(line):
            self._commit(self.open or [])
            self.open = None
        elif ROLLBACK.match(line):
            self.open = None
        else:
            self._xa(XA.match(line))

    def _xa(self, found):
        if not found:
            return
        name = bytes.fromhex(found[2]).decode() if found[2] is not None else found[3]
        if found[1] == "START":
            self.open, self.xa = [], name
        elif found[1] == "PREPARE":
            self.prepared[name] = self.open or []
            self.open = None
        elif found[1] in ("COMMIT", "ROLLBACK"):
            # After a crash a coordinator sends its decision again, so it can stand here twice.
            changes = self.prepared.pop(name, [])
            if found[1] == "COMMIT":
                self._commit(changes)

    def _commit(self, changes):
        for table, key, by in changes:
            self.there[table][key] += by
