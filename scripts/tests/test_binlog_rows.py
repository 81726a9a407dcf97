"""The reader of binary logs counts committed rows: rolled back ones not, XA when it is committed, repeated decisions once."""

import pytest
from binlog_rows import BinlogRows
from common import Problem


def row(kind, table, *values):
    """A row event as mariadb-binlog prints it."""
    return [f"### {kind} `bank`.`{table}`", "### SET", *(f"###   @{number}={value}" for number, value in enumerate(values, 1))]


def reader(*lines):
    """A reader that has seen these lines."""
    rows = BinlogRows(None, {"leg": 2, "transfer": 1})
    rows.take([text for line in lines for text in ([line] if isinstance(line, str) else line)])
    return rows


def there(rows, table):
    """Keys that the reader takes for present."""
    return {key for key, count in rows.there[table].items() if count > 0}


def test_committed_rows_count_and_rolled_back_ones_do_not():
    rows = reader(
        "#260101  1:00:00 server id 1  end_log_pos 380 CRC32 0x1 \tGTID 0-1-5 trans", "START TRANSACTION",
        row("INSERT INTO", "leg", 7, 1, -5), row("INSERT INTO", "leg", 7, 2, 5), row("INSERT INTO", "other", 7), "COMMIT/*!*/;",
        "START TRANSACTION", row("INSERT INTO", "leg", 8, 1, 1), "ROLLBACK/*!*/;",
    )  # fmt: skip
    assert there(rows, "leg") == {(7, 1), (7, 2)} and rows.gtids == {"0-1-5"}


def test_a_deleted_row_is_gone_and_an_updated_one_stays():
    rows = reader(
        "BEGIN", row("INSERT INTO", "transfer", 1), row("INSERT INTO", "transfer", 2), "COMMIT/*!*/;",
        "BEGIN", row("DELETE FROM", "transfer", 1), row("UPDATE", "transfer", 2), "COMMIT/*!*/;",
    )  # fmt: skip
    assert there(rows, "transfer") == {(2,)}


def test_xa_counts_when_it_is_committed_and_a_repeated_decision_once():
    begin = ["XA START X'7831',X'',1", row("INSERT INTO", "transfer", 1), "XA END X'7831',X'',1", "XA PREPARE X'7831',X'',1"]
    rows = reader(*begin)
    assert there(rows, "transfer") == set()
    rows.take(["XA COMMIT X'7831',X'',1", "XA COMMIT 'x1'"])
    assert there(rows, "transfer") == {(1,)}
    assert there(reader(*begin, "XA ROLLBACK 'x1'", "XA COMMIT 'x1'"), "transfer") == set()


def test_xa_goes_on_in_the_next_file():
    rows = reader("XA START X'78',X'',1", row("INSERT INTO", "transfer", 3), "XA END X'78',X'',1", "XA PREPARE X'78',X'',1")
    rows.take(["BEGIN", *row("INSERT INTO", "transfer", 4), "COMMIT/*!*/;", "XA COMMIT 'x'"])
    assert there(rows, "transfer") == {(3,), (4,)}


def test_a_gtid_that_comes_twice_is_refused():
    line = "#260101  1:00:00 server id 1  end_log_pos 380 CRC32 0x1 \tGTID 0-1-5 trans"
    with pytest.raises(Problem):
        reader(line, line)
