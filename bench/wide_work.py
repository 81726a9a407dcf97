"""Work with what plain tables have not: foreign keys with actions, partitions, virtual and stored columns, automatic values, sequences, unique
keys over long texts, an encrypted table.

Why it exists: each of these has a path of its own through statement, log and recovery. Records are kept as in bench/full_work.py; transactions
draw their isolation level. The encrypted table asks for keys: start the server with key_settings().
"""

from common import BUILD
from live_server import rows_of

from bench.full_work import Memory, Stopped, differences

PARENTS_KEPT = 200
SPREAD_KEPT = 3_000
SEALED_KEPT = 400
NO_PARENT, DUPLICATE = 1452, 1062
KEYS = BUILD / "bench" / "keys.txt"


def key_settings():
    """The server's arguments that give it a key for encryption."""
    KEYS.parent.mkdir(parents=True, exist_ok=True)
    KEYS.write_text("1;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n", encoding="ascii")
    return ["--plugin-load-add=file_key_management", f"--file-key-management-filename={KEYS}"]


class Families(Memory):
    """Parents whose code changes and who go, children who follow them, pets who stay alone: ON UPDATE CASCADE, ON DELETE CASCADE, SET NULL."""

    tables = ("parent", "child", "pet")
    create = (
        "CREATE TABLE parent (id INT PRIMARY KEY, code INT NOT NULL, UNIQUE KEY code (code))",
        "CREATE TABLE child (id INT PRIMARY KEY, code INT NOT NULL, v INT NOT NULL, KEY code (code),"
        " FOREIGN KEY (code) REFERENCES parent (code) ON UPDATE CASCADE ON DELETE CASCADE)",
        "CREATE TABLE pet (id INT PRIMARY KEY, child INT, KEY child (child), FOREIGN KEY (child) REFERENCES child (id) ON DELETE SET NULL)",
    )

    def __init__(self, seed):
        super().__init__(seed)
        self.families, self.next = ({}, {}, {}), 0  # id -> code; id -> (code, v); id -> child

    def new(self):
        """A number that nothing has had."""
        self.next += 1
        return self.next

    def step(self, connection):
        """One transaction, or a child that nobody knows."""
        parents = self.families[0]
        dice = self.random.random()
        if dice < 0.1:
            self.must_fail(connection, NO_PARENT, "INSERT INTO child VALUES (%s, %s, 0)", (self.new(), -1))
            self.done()
            return
        if not parents or (dice < 0.55 and len(parents) < PARENTS_KEPT):
            statements, after = self.birth()
        elif dice < 0.8:
            statements, after = self.rename(self.random.choice(list(parents)))
        else:
            statements, after = self.death(self.random.choice(list(parents)))
        if self.transaction(connection, "family", statements, after):
            self.families = after

    def birth(self):
        """A parent with children, each with a pet or none."""
        parents, children, pets = map(dict, self.families)
        parent, code = self.new(), self.new()
        parents[parent] = code
        statements = [("INSERT INTO parent VALUES (%s, %s)", (parent, code))]
        for _ in range(self.random.randint(0, 6)):
            child, pet = self.new(), self.new()
            children[child] = (code, self.random.randrange(100))
            statements.append(("INSERT INTO child VALUES (%s, %s, %s)", (child, *children[child])))
            if self.random.random() < 0.5:
                pets[pet] = child
                statements.append(("INSERT INTO pet VALUES (%s, %s)", (pet, child)))
        return statements, (parents, children, pets)

    def rename(self, parent):
        """Another code; its children follow."""
        parents, children, pets = map(dict, self.families)
        old, new = parents[parent], self.new()
        parents[parent] = new
        children = {ident: (new if code == old else code, v) for ident, (code, v) in children.items()}
        return [("UPDATE parent SET code = %s WHERE id = %s", (new, parent))], (parents, children, pets)

    def death(self, parent):
        """The parent goes, and its children; their pets stay, until the next death takes those that are alone."""
        parents, children, pets = map(dict, self.families)
        code = parents.pop(parent)
        pets = {ident: child for ident, child in pets.items() if child is not None}
        children = {ident: row for ident, row in children.items() if row[0] != code}
        pets = {ident: child if child in children else None for ident, child in pets.items()}
        return [("DELETE FROM pet WHERE child IS NULL",), ("DELETE FROM parent WHERE id = %s", (parent,))], (parents, children, pets)

    def verify(self, connection):
        """Complaints; a transaction in doubt is there as a whole or not at all."""
        seen = (
            dict(rows_of(connection, "SELECT id, code FROM parent IGNORE INDEX (code)")),
            {ident: (code, v) for ident, code, v in rows_of(connection, "SELECT id, code, v FROM child IGNORE INDEX (code)")},
            dict(rows_of(connection, "SELECT id, child FROM pet IGNORE INDEX (child)")),
        )
        if self.in_doubt is not None and seen == self.in_doubt:
            self.families = self.in_doubt
        self.in_doubt = None
        found = sorted(rows_of(connection, "SELECT code, id FROM child FORCE INDEX (code) WHERE code >= 0"))
        keyed = [] if found == sorted((code, ident) for ident, (code, _) in seen[1].items()) else ["table child: index code and the rows differ"]
        return keyed + [text for at, name in enumerate(self.tables) for text in differences(f"table {name}", self.families[at], seen[at])]


class Spread(Memory):
    """A partitioned table with automatic values and a virtual column, and a sequence: neither gives a number twice, whatever happened."""

    tables = ("spread",)
    create = (
        "CREATE TABLE spread (id BIGINT AUTO_INCREMENT PRIMARY KEY, mark INT NOT NULL, a INT NOT NULL, doubled INT AS (a * 2) VIRTUAL,"
        " KEY mark (mark), KEY doubled (doubled)) PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE SEQUENCE numbers CACHE 10",
    )

    def __init__(self, seed):
        super().__init__(seed)
        self.rows, self.next, self.greatest, self.last_number = {}, 0, 0, 0  # mark -> a

    def step(self, connection):
        """One statement."""
        dice = self.random.random()
        if dice < 0.15:
            self.draw(connection)
        elif dice < 0.55 or not self.rows:
            self.insert(connection)
        else:
            low = self.random.choice(list(self.rows))
            high = low + self.random.randint(0, 50)
            if len(self.rows) > SPREAD_KEPT:
                low, high = 0, sorted(self.rows)[len(self.rows) // 2]
            if dice < 0.8 and len(self.rows) <= SPREAD_KEPT:
                after = {mark: a + 1 if low <= mark <= high else a for mark, a in self.rows.items()}
                self.change(connection, "spread update", "UPDATE spread SET a = a + 1 WHERE mark BETWEEN %s AND %s", (low, high), after)
            else:
                after = {mark: a for mark, a in self.rows.items() if not low <= mark <= high}
                self.change(connection, "spread delete", "DELETE FROM spread WHERE mark BETWEEN %s AND %s", (low, high), after)

    def change(self, connection, what, statement, arguments, after):
        """Runs it; True when it was done."""
        self.in_doubt = after
        done = self.ask(connection, what, statement, arguments)
        if done:
            self.rows = after
            self.done()
        self.in_doubt = None
        return done

    def insert(self, connection):
        """Some rows; the numbers that they get are greater than all before."""
        first = self.next + 1
        self.next += self.random.randint(1, 30)
        new = {mark: self.random.randrange(1000) for mark in range(first, self.next + 1)}
        values = ", ".join(f"({mark}, {a})" for mark, a in new.items())
        if self.change(connection, "spread insert", f"INSERT INTO spread (mark, a) VALUES {values}", None, {**self.rows, **new}):
            self.greatest = self.above("the automatic value", self.greatest, rows_of(connection, "SELECT LAST_INSERT_ID()")[0][0])

    def draw(self, connection):
        """The next number of the sequence."""
        answer = self.answer(connection, "NEXTVAL", lambda: rows_of(connection, "SELECT NEXTVAL(numbers)"))
        if answer:
            self.last_number = self.above("the sequence's value", self.last_number, answer[0][0])
            self.done()

    def above(self, what, before, now):
        """The number; not above those before, it ends the worker."""
        if now <= before:
            self.failure = f"{what} is {now}, and {before} had been given"
            raise Stopped(self.failure)
        return now

    def verify(self, connection):
        """Complaints."""
        lines = rows_of(connection, "SELECT id, mark, a, doubled FROM spread IGNORE INDEX (mark, doubled)")
        seen = {mark: a for _, mark, a, _ in lines}
        if self.in_doubt is not None and seen == self.in_doubt:
            self.rows = self.in_doubt
        self.in_doubt = None
        self.greatest = max([self.greatest, *(ident for ident, *_ in lines)])
        found = sorted(rows_of(connection, "SELECT doubled, id FROM spread FORCE INDEX (doubled) WHERE doubled >= 0"))
        keyed = [] if found == sorted((a * 2, ident) for ident, _, a, _ in lines) else ["table spread: index doubled and the rows differ"]
        wrong = [line for line in lines if line[3] != line[2] * 2]
        return keyed + differences("table spread", self.rows, seen) + [f"table spread: doubled is wrong in {line}" for line in wrong[:1]]


class Sealed(Memory):
    """An encrypted table whose texts are unique, with a stored column; REPLACE and ON DUPLICATE KEY UPDATE beside INSERT and DELETE."""

    tables = ("sealed",)
    create = (
        "CREATE TABLE sealed (n INT PRIMARY KEY, words TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,"
        " size INT AS (CHAR_LENGTH(words)) STORED, UNIQUE KEY words (words), KEY size (size)) ENCRYPTED=YES",
    )

    def __init__(self, seed):
        super().__init__(seed)
        self.rows, self.next = {}, 0  # n -> words

    def words(self):
        """A text that nothing has had, short or of more than a thousand characters."""
        self.next += 1
        return f"{self.next} " + "Straße né 水 " * self.random.choice((0, 3, 120))

    def step(self, connection):
        """One statement."""
        dice = self.random.random()
        number = self.random.choice(list(self.rows)) if self.rows else 0
        if not self.rows or (dice < 0.35 and len(self.rows) < SEALED_KEPT):
            words = self.words()
            self.change(connection, "sealed insert", "INSERT INTO sealed (n, words) VALUES (%s, %s)", (self.next, words), {**self.rows, self.next: words})
        elif dice < 0.45:
            self.must_fail(connection, DUPLICATE, "INSERT INTO sealed (n, words) VALUES (%s, %s)", (-1, self.rows[number]))
            self.done()
        elif dice < 0.6:
            words = self.rows[number]
            self.next += 1
            after = {n: text for n, text in self.rows.items() if n != number} | {self.next: words}
            self.change(connection, "sealed replace", "REPLACE INTO sealed (n, words) VALUES (%s, %s)", (self.next, words), after)
        elif dice < 0.8:
            words = self.words()
            statement = "INSERT INTO sealed (n, words) VALUES (%s, 'x') ON DUPLICATE KEY UPDATE words = %s"
            self.change(connection, "sealed update", statement, (number, words), {**self.rows, number: words})
        else:
            after = {n: text for n, text in self.rows.items() if n != number}
            self.change(connection, "sealed delete", "DELETE FROM sealed WHERE n = %s", (number,), after)

    def change(self, connection, what, statement, arguments, after):
        """Runs it."""
        self.in_doubt = after
        if self.ask(connection, what, statement, arguments):
            self.rows = after
            self.done()
        self.in_doubt = None

    def verify(self, connection):
        """Complaints."""
        lines = rows_of(connection, "SELECT n, words, size FROM sealed IGNORE INDEX (size)")
        seen = {n: words for n, words, _ in lines}
        if self.in_doubt is not None and seen == self.in_doubt:
            self.rows = self.in_doubt
        self.in_doubt = None
        found = sorted(rows_of(connection, "SELECT size, n FROM sealed FORCE INDEX (size) WHERE size >= 0"))
        keyed = [] if found == sorted((len(words), n) for n, words in seen.items()) else ["table sealed: index size and the rows differ"]
        return keyed + differences("table sealed", self.rows, seen)
