"""Fifteen operations of sql-bench, as the comparison of 2007 lists them: one client, a small set of data, each repeated so many times.

sql-bench's client is a script that sends each statement. Here a stored procedure repeats them, so that what is measured is the server and its
engine; what changes rows does so in one transaction. Tables have sql-bench's shape: rows with a two-part primary key, places with unique keys over
parts of each other, a table with many keys, one with many columns.
"""

from bench.works.base import TRANSACTIONAL, Work

MANY = 16  # keys of the table with many keys
FIELDS = 200  # columns of the table with many columns
TABLES = {
    "numbers": "id INT NOT NULL, id2 INT NOT NULL, id3 INT NOT NULL, dummy CHAR(30) NOT NULL, PRIMARY KEY (id, id2), KEY id3 (id3)",
    "places": "region CHAR(1) NOT NULL, idn INT NOT NULL, rev_idn INT NOT NULL, grp INT NOT NULL, PRIMARY KEY (region, idn),"
    " UNIQUE KEY rev (region, rev_idn), UNIQUE KEY grp (region, grp, idn)",
    "many_keys": "id INT NOT NULL PRIMARY KEY, " + ", ".join(f"f{n} INT NOT NULL, KEY (f{n})" for n in range(MANY)),
    "many_fields": ", ".join(f"f{n} INT NOT NULL" for n in range(FIELDS)),
    "growing": "id INT NOT NULL PRIMARY KEY, word VARCHAR(40) NOT NULL",
}
FILLS = (
    "INSERT INTO places SELECT CHAR(65 + seq % 26 USING latin1), seq, {places} - seq, seq % 100 FROM seq_1_to_{places}",
    "INSERT INTO many_keys SELECT seq, " + ", ".join(f"(seq * {7919 + 2 * n}) % 100000" for n in range(MANY)) + " FROM seq_1_to_{keyed}",
    "INSERT INTO many_fields SELECT " + ", ".join(f"seq + {n}" for n in range(FIELDS)) + " FROM seq_1_to_10",
    "INSERT INTO growing SELECT seq, MD5(seq) FROM seq_1_to_1000",
)
FIELD_LIST = ", ".join(f"f{n}" for n in range(FIELDS))
PLACE = "CHAR(65 + i % 26 USING latin1)"
COUNTED = "SELECT {what} INTO x FROM {source}; SET total = total + x"

# Operation of the account: (times, what is done each time, with `i` counting from 0). {rows}, {places} and {keyed} are sizes, {part} and
# {key_part} the rows of one of the ranges.
OPERATIONS = {
    "insert": (350_768, "INSERT INTO numbers VALUES (i, i % 10, {rows} - i, 'ABCDEFGHIJ')"),
    "count": (100, COUNTED.format(what="COUNT(*)", source="numbers")),
    "count_distinct": (1000, COUNTED.format(what="COUNT(DISTINCT region)", source="places")),
    "count_distinct_2": (1000, COUNTED.format(what="COUNT(DISTINCT grp)", source=f"places WHERE region = {PLACE}")),
    "count_group_on_key_parts": (
        1000,
        COUNTED.format(what="COUNT(*)", source=f"(SELECT grp, COUNT(*) FROM places WHERE region = {PLACE} GROUP BY grp) AS groups_found"),
    ),
    "count_on_key": (50_100, COUNTED.format(what="COUNT(*)", source=f"places WHERE region = {PLACE} AND idn > {{places}} - 100")),
    "outer_join": (10, COUNTED.format(what="COUNT(b.id2)", source="numbers a LEFT JOIN numbers b ON b.id = a.id3")),
    "select_key2_return_prim": (
        200_000,
        COUNTED.format(what="COALESCE(SUM(idn), 0)", source="places WHERE region = CHAR(65 + ({places} - 1 - i % {places}) % 26 USING latin1) AND rev_idn = 1 + i % {places}"),
    ),
    "select_many_fields": (2000, COUNTED.format(what=f"SUM(CRC32(CONCAT_WS(',', {FIELD_LIST})))", source="many_fields")),
    "update_with_key_prefix": (100_000, "UPDATE numbers SET dummy = 'updated' WHERE id = (i * 7919) % {rows}"),
    "update_big": (10, "UPDATE numbers SET id3 = id3 + {rows}"),
    "update_of_key_big": (501, "UPDATE numbers SET id2 = id2 + 10 WHERE id BETWEEN i * {part} AND (i + 1) * {part} - 1"),
    "update_of_primary_key_many_keys": (256, "UPDATE many_keys SET id = -id WHERE id BETWEEN i * {key_part} + 1 AND (i + 1) * {key_part}"),
    "delete_all_many_keys": (1, "DELETE FROM many_keys"),
}


def procedure(name, body):
    """A stored procedure that does something so many times in one transaction; what counts ends with the total."""
    total = "; SELECT total" if "total" in body else ""
    return (
        f"CREATE OR REPLACE PROCEDURE do_{name}(most INT) BEGIN DECLARE i INT DEFAULT 0; DECLARE x, total BIGINT DEFAULT 0; START TRANSACTION;"
        f" WHILE i < most DO {body}; SET i = i + 1; END WHILE; COMMIT{total}; END"
    )


class SqlBench(Work):
    """Operations of sql-bench, 2007
    The fifteen of the account with its numbers of repetitions, in stored procedures; alter_table_add is a hundred ALTER TABLE ... ADD COLUMN sent one by
    one. MyISAM empties a table as TRUNCATE does. Aria is not here: without transactions it flushes its log for each of half a million statements.
    """

    name = "sql_bench"
    seed = "004"
    engines = (*TRANSACTIONAL, "MyISAM")
    quick_engines = ("PBXT", "InnoDB", "MyISAM")
    full = {"fewer": 1, "places": 10_000, "keyed": 100_000, "columns": 100}
    quick = {"fewer": 50, "places": 1_000, "keyed": 2_000, "columns": 5}

    def times(self, name):
        """Repetitions of an operation in this run."""
        return -(-OPERATIONS[name][0] // self.size.fewer)

    def body(self, name):
        """What one repetition does."""
        rows = self.times("insert")
        parts = {"part": -(-rows // self.times("update_of_key_big")), "key_part": -(-self.size.keyed // self.times("update_of_primary_key_many_keys"))}
        return OPERATIONS[name][1].format(rows=rows, places=self.size.places, keyed=self.size.keyed, **parts)

    def round(self, turn):
        for name, columns in TABLES.items():
            turn.run(f"DROP TABLE IF EXISTS {name}")
            turn.run(f"CREATE TABLE {name} ({columns}) ENGINE={turn.sql_engine} DEFAULT CHARSET=latin1")
        for fill in FILLS:
            turn.run(fill.format(places=self.size.places, keyed=self.size.keyed))
        for table in ("places", "many_keys", "many_fields"):
            turn.rows(f"ANALYZE TABLE {table}")
        turn.time("alter_table_add", self._alter(), compare=False)  # some copy the rows and say how many, some do not
        turn.agree("columns added", f"SELECT COUNT(*), SUM(LENGTH(word)), SUM(c{self.size.columns - 1}) FROM growing")
        for name in OPERATIONS:
            turn.run(procedure(name, self.body(name)))
            if name == "count":
                turn.rows("ANALYZE TABLE numbers")
            if name == "delete_all_many_keys":
                turn.agree("many keys moved", "SELECT COUNT(*), SUM(id), SUM(f0) FROM many_keys")
            turn.time(name, f"CALL do_{name}({self.times(name)})")
        turn.agree("numbers at the end", "SELECT COUNT(*), SUM(id2), SUM(id3), SUM(dummy = 'updated') FROM numbers")

    def _alter(self):
        return [f"ALTER TABLE growing ADD COLUMN c{number} INT NOT NULL DEFAULT {number}" for number in range(self.size.columns)]
