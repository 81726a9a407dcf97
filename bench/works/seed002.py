"""The test drive of 2005: three million single inserts by a stored procedure, a scan, and ALTER TABLE from engine to engine."""

from bench.works.base import Work

PROCEDURE = """CREATE OR REPLACE PROCEDURE test_insert(most INT) BEGIN
  DECLARE v_ctr INT DEFAULT 0;
  WHILE v_ctr < most DO
    INSERT INTO insert_test VALUES (1, 'sample audit string', NOW());
    SET v_ctr = v_ctr + 1;
  END WHILE;
END"""
TABLE = "(c1 INT, c2 VARCHAR(20), c3 DATE)"


class Procedure(Work):
    """Test drive of 2005: three million inserts, one by one
    The account's procedure and table. All in one transaction, where the engine has them; then a hundredth as many with a commit, and its flush,
    for each; Aria flushes its log for each statement, so it has the latter only. MyISAM and ARCHIVE promise nothing after a crash. Then a scan, and the table changes its engine, from MyISAM
    to the engine of the column and from there to MyISAM and to ARCHIVE. BLACKHOLE shows what the procedure itself takes.
    """

    name = "procedure"
    seed = "002"
    floor = True
    full = {"rows": 3_000_000}
    quick = {"rows": 30_000}

    def prepare(self, turn):
        turn.run(PROCEDURE)
        turn.run(f"CREATE TABLE source {TABLE} ENGINE=MyISAM")
        turn.run(f"INSERT INTO source SELECT 1, 'sample audit string', '2005-10-26' FROM seq_1_to_{self.size.rows}")

    def round(self, turn):
        turn.mark_disk()
        self._inserts(turn, self.size.rows)
        turn.bytes_on_disk("bytes on disk", self.size.rows + self._few(self.size.rows))
        turn.time("scan with a condition", "SELECT COUNT(*) FROM insert_test WHERE c1 = 1", 3)
        turn.run("DROP TABLE insert_test")
        turn.run(f"CREATE TABLE moving {TABLE} ENGINE=MyISAM")
        turn.run("INSERT INTO moving SELECT * FROM source")
        if turn.engine != "MyISAM":
            turn.time("ALTER from MyISAM", f"ALTER TABLE moving ENGINE={turn.sql_engine}")
            turn.time("ALTER to MyISAM", "ALTER TABLE moving ENGINE=MyISAM")
        if turn.engine != "ARCHIVE":
            turn.run(f"ALTER TABLE moving ENGINE={turn.sql_engine}")
            turn.time("ALTER to ARCHIVE", "ALTER TABLE moving ENGINE=ARCHIVE")
        turn.agree("rows at the end", "SELECT COUNT(*) FROM moving WHERE c1 = 1")
        turn.run("DROP TABLE moving")

    def floor_round(self, turn):
        self._inserts(turn, self.size.rows)
        turn.run("DROP TABLE insert_test")

    @staticmethod
    def _few(rows):
        """How many inserts get a commit of their own."""
        return max(rows // 100, 1)

    def _inserts(self, turn, rows):
        turn.run(f"CREATE TABLE insert_test {TABLE} ENGINE={turn.sql_engine}")
        if turn.engine == "Aria":
            turn.run("INSERT INTO insert_test SELECT * FROM source")
        else:
            turn.run("BEGIN")
            turn.time("single inserts, one transaction", f"CALL test_insert({rows})")
            turn.run("COMMIT")
        turn.time("single inserts, a commit each", f"CALL test_insert({self._few(rows)})")
