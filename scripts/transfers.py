"""Clients that move money in multi-row transactions while the server is killed, and the proof of what survived.

Why it exists: "nothing acknowledged is lost, nothing appears in part" is checked from outside, with the memory of the clients as
the witness: they live in this process and survive the crash.
What a client does, at random from a seed: transfer between two to four accounts (accounts, one transfer row, one leg per account),
take an earlier transfer back (deletes and reversed balances), write rubbish and roll back, write rubbish behind a savepoint.
What is proved afterwards, see `verify`: acknowledged changes are there whole, changes whose COMMIT was never sent are absent,
those in between are there whole or not at all, every balance equals its legs, and the total never changes.
"""

import random
import threading
from dataclasses import dataclass, field

from live_server import execute, rows_of, value_of

ACCOUNTS = 200
OPENING_BALANCE = 10_000
RUBBISH = 1 << 40  # ids from here on belong to work that was rolled back; none may ever be seen
CONFLICTS = {1020, 1205, 1213}  # record changed, lock wait timeout, deadlock: roll back and try something else
FIRST_LOST = {2003, 2006, 2013, 2055, 0, 1053}  # what PyMySQL reports when the server is gone, or shuts down


def create_tables(connection, engine, leg_engine=None):
    """The three tables, filled with the opening balances; with `leg_engine` every transfer changes two engines."""
    execute(connection, f"CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE={engine}")
    execute(
        connection,
        f"CREATE TABLE transfer (id BIGINT PRIMARY KEY, client INT NOT NULL, note VARCHAR(200), KEY (client)) ENGINE={engine}",
    )
    execute(
        connection,
        "CREATE TABLE leg (transfer BIGINT NOT NULL, account INT NOT NULL, amount BIGINT NOT NULL,"
        f" PRIMARY KEY (transfer, account), KEY (account)) ENGINE={leg_engine or engine}",
    )
    execute(connection, f"INSERT INTO account SELECT seq, {OPENING_BALANCE} FROM seq_1_to_{ACCOUNTS}")


@dataclass
class Witness:
    """What one client knows: legs of each transfer it holds acknowledged, and the one change whose answer never came."""

    number: int
    legs: dict = field(default_factory=dict)
    taken_back: set = field(default_factory=set)
    in_doubt: tuple = None  # ("make" | "undo", transfer id, legs)
    next_id: int = 0
    commits: int = 0
    conflicts: int = 0
    failure: str = ""

    def new_id(self):
        """Transfer ids are unique over clients and restarts."""
        self.next_id += 1
        return self.number * 10_000_000 + self.next_id


class Client(threading.Thread):
    """One connection that works until told to stop or until the server is gone."""

    savepoints = True  # some engines cannot roll back to one after changes

    def __init__(self, server, database, witness, seed, stop):
        super().__init__(name=f"client-{witness.number}", daemon=True)
        self.server, self.database, self.witness, self.stop_signal = server, database, witness, stop
        self.random = random.Random(seed * 1000 + witness.number)

    def run(self):
        import pymysql  # pylint: disable=import-outside-toplevel

        try:
            connection = self.server.connect(self.database, autocommit=False, read_timeout=60)
            while not self.stop_signal.is_set():
                try:
                    self._step(connection)
                except pymysql.err.Error as error:
                    if error.args[0] not in CONFLICTS:
                        raise
                    self.witness.in_doubt = None  # the server itself said that the transaction did not commit
                    self.witness.conflicts += 1
                    connection.rollback()
            self._finish(connection)
            connection.close()
        except (pymysql.err.Error, OSError) as error:
            code = error.args[0] if error.args else 0
            if not (code in FIRST_LOST or isinstance(error, OSError)):
                self.witness.failure = f"{type(error).__name__} {error}"

    def _finish(self, connection):
        """What is to be done when told to stop."""

    def _step(self, connection):
        dice = self.random.random()
        if dice < 0.15 and self.witness.legs:
            self._take_back(connection)
        elif dice < 0.25:
            self._write_rubbish(connection)
            connection.rollback()
        else:
            self._transfer(connection, with_savepoint=self.savepoints and dice > 0.85)

    def _transfer(self, connection, with_savepoint):
        ident, legs = self._write_transfer(connection)
        if with_savepoint:
            execute(connection, "SAVEPOINT before_rubbish")
            self._write_rubbish(connection)
            execute(connection, "ROLLBACK TO SAVEPOINT before_rubbish")
        self.witness.in_doubt = ("make", ident, legs)
        connection.commit()
        self.witness.legs[ident] = legs
        self._acknowledged()

    def _write_transfer(self, connection):
        """All rows of a new transfer; returns its id and legs."""
        ident = self.witness.new_id()
        accounts = self.random.sample(range(1, ACCOUNTS + 1), self.random.randint(2, 4))
        amounts = [self.random.randint(1, 50) for _ in accounts[1:]]
        legs = dict(zip(accounts, [-sum(amounts), *amounts]))
        note = "x" * self.random.randint(0, 200)
        execute(connection, "INSERT INTO transfer VALUES (%s, %s, %s)", (ident, self.witness.number, note))
        for account, amount in legs.items():
            execute(connection, "UPDATE account SET balance = balance + %s WHERE id = %s", (amount, account))
        execute(connection, f"INSERT INTO leg VALUES {', '.join(f'({ident}, {a}, {m})' for a, m in legs.items())}")
        return ident, legs

    def _take_back(self, connection):
        ident = self.random.choice(list(self.witness.legs))
        legs = self.witness.legs[ident]
        execute(connection, "DELETE FROM leg WHERE transfer = %s", (ident,))
        execute(connection, "DELETE FROM transfer WHERE id = %s", (ident,))
        for account, amount in legs.items():
            execute(connection, "UPDATE account SET balance = balance - %s WHERE id = %s", (amount, account))
        self.witness.in_doubt = ("undo", ident, legs)
        connection.commit()
        self.witness.taken_back.add(ident)
        del self.witness.legs[ident]
        self._acknowledged()

    def _write_rubbish(self, connection):
        ident = RUBBISH + self.witness.new_id()
        execute(connection, "INSERT INTO transfer VALUES (%s, %s, 'rubbish')", (ident, self.witness.number))
        execute(connection, "INSERT INTO leg VALUES (%s, 1, 77), (%s, 2, 77)", (ident, ident))
        account = self.random.randint(1, ACCOUNTS)
        execute(connection, "UPDATE account SET balance = balance + 1000000 WHERE id = %s", (account,))

    def _acknowledged(self):
        self.witness.in_doubt = None
        self.witness.commits += 1


class Crowd:
    """Several clients at once, over any number of crashes."""

    def __init__(self, server, database, clients=8, seed=1, kinds=(Client, Witness)):
        self.server, self.database, self.seed = server, database, seed
        self.client_kind, witness_kind = kinds
        self.witnesses = [witness_kind(number) for number in range(1, clients + 1)]
        self.stop_signal = threading.Event()
        self.threads = []
        self.round = 0

    def start(self):
        """Starts one thread per client."""
        self.stop_signal.clear()
        self.round += 1
        self.threads = [
            self.client_kind(self.server, self.database, witness, self.seed + self.round, self.stop_signal)
            for witness in self.witnesses
        ]
        for thread in self.threads:
            thread.start()

    def finish(self):
        """Waits for all clients; after a kill they end by themselves."""
        self.stop_signal.set()
        for thread in self.threads:
            thread.join(90)

    def commits(self):
        """Acknowledged commits of all clients so far."""
        return sum(witness.commits for witness in self.witnesses)

    def conflicts(self):
        """Transactions that ended with a conflict, deadlock or lock timeout so far."""
        return sum(witness.conflicts for witness in self.witnesses)


def _settle_doubt(witness, seen):
    """After a crash, a change whose answer never came counts as what the database shows; returns a complaint or ''."""
    if witness.in_doubt is None:
        return ""
    kind, ident, legs = witness.in_doubt
    witness.in_doubt = None
    there = seen.get(ident)
    if there not in (None, legs):
        return f"transfer {ident} of client {witness.number} is there in part: legs {there}, sent {legs}"
    if there == legs:
        witness.legs[ident] = legs
        return ""
    if kind == "undo":
        witness.taken_back.add(ident)
    witness.legs.pop(ident, None)
    return ""


def verify(connection, crowd):
    """Compares the database with what the clients know; returns a list of complaints, empty when all is well."""
    complaints = [f"client {w.number} ended with: {w.failure}" for w in crowd.witnesses if w.failure]
    seen = {}
    for ident, account, amount in rows_of(connection, "SELECT transfer, account, amount FROM leg"):
        seen.setdefault(ident, {})[account] = amount
    for witness in crowd.witnesses:
        doubt = _settle_doubt(witness, seen)
        if doubt:
            complaints.append(doubt)
    known = {ident: legs for witness in crowd.witnesses for ident, legs in witness.legs.items()}
    back = {ident for witness in crowd.witnesses for ident in witness.taken_back}
    complaints += _compare(known, back, seen)
    heads = {row[0] for row in rows_of(connection, "SELECT id FROM transfer")}
    if heads != set(known):
        complaints.append(f"table transfer: missing {sorted(set(known) - heads)[:5]}, unknown {sorted(heads - set(known))[:5]}")
    return complaints + _check_sums(connection, known) + _check_tables(connection)


def _compare(known, back, seen):
    complaints = []
    for ident, legs in known.items():
        if seen.get(ident) != legs:
            complaints.append(f"acknowledged transfer {ident} should have legs {legs}, the database has {seen.get(ident)}")
    for ident in seen:
        if ident not in known:
            why = "was taken back" if ident in back else "was rolled back" if ident >= RUBBISH else "never sent its COMMIT"
            complaints.append(f"transfer {ident} is there but {why}")
    return complaints[:10]


def _check_sums(connection, known):
    complaints = []
    total = value_of(connection, "SELECT SUM(balance) FROM account")
    if total != ACCOUNTS * OPENING_BALANCE:
        complaints.append(f"the sum of all balances is {total}, it must stay {ACCOUNTS * OPENING_BALANCE}")
    expected = dict.fromkeys(range(1, ACCOUNTS + 1), OPENING_BALANCE)
    for legs in known.values():
        for account, amount in legs.items():
            expected[account] += amount
    balances = dict(rows_of(connection, "SELECT id, balance FROM account"))
    wrong = [f"{a}: {balances.get(a)} instead of {b}" for a, b in expected.items() if balances.get(a) != b]
    if wrong or len(balances) != ACCOUNTS:
        complaints.append(f"{len(wrong)} balances differ from their legs ({'; '.join(wrong[:3])}), {len(balances)} accounts")
    by_key = value_of(connection, "SELECT COUNT(*) FROM leg FORCE INDEX (account) WHERE account > 0")
    by_scan = value_of(connection, "SELECT COUNT(*) FROM leg IGNORE INDEX (account, PRIMARY) WHERE amount IS NOT NULL")
    counted = value_of(connection, "SELECT COUNT(*) FROM leg")
    if len({by_key, by_scan, counted}) != 1:
        complaints.append(f"table leg: {by_key} rows by key, {by_scan} by scan, {counted} by COUNT(*)")
    return complaints


def _check_tables(connection):
    lines = rows_of(connection, "CHECK TABLE account, transfer, leg EXTENDED")
    return [f"CHECK TABLE {line[0]}: {line[2]} {line[3]}" for line in lines if line[2] == "error" or line[3] != "OK"]
