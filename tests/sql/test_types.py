"""Every column type, stored and read back: limits, NULL, character sets; the answers must equal InnoDB's, also through a key."""

import pytest

NUMBERS = {
    "TINYINT": ["-128", "127", "0", "-1"],
    "TINYINT UNSIGNED": ["0", "255", "128"],
    "SMALLINT": ["-32768", "32767", "0", "-1", "256"],
    "SMALLINT UNSIGNED": ["0", "65535"],
    "MEDIUMINT": ["-8388608", "8388607", "0", "-1"],
    "MEDIUMINT UNSIGNED": ["0", "16777215"],
    "INT": ["-2147483648", "2147483647", "0", "-1", "65536"],
    "INT UNSIGNED": ["0", "4294967295"],
    "INT(5) ZEROFILL": ["0", "42", "4294967295"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "0", "-1"],
    "BIGINT UNSIGNED": ["0", "18446744073709551615"],
    "DECIMAL(1,0)": ["-9", "9", "0"],
    "DECIMAL(12,2)": ["-9999999999.99", "9999999999.99", "0.01", "-0.01", "0"],
    "DECIMAL(65,30)": [
        "-99999999999999999999999999999999999.999999999999999999999999999999",
        "0",
        "1e-30",
        "12345.678901234567890",
    ],
    "FLOAT": ["0", "-1.5", "3.402823e38", "1.175494e-38", "-3.402823e38", "0.1"],
    "DOUBLE": ["0", "-1.5", "1.7976931348623157e308", "2.2250738585072014e-308", "0.1", "-1e100"],
    "BIT(1)": ["b'0'", "b'1'"],
    "BIT(7)": ["b'0'", "b'1111111'", "b'1010101'"],
    "BIT(64)": ["0", "18446744073709551615", "1"],
    "BOOLEAN": ["TRUE", "FALSE"],
}

TIMES = {
    "DATE": ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'"],
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"],
    "TIME(3)": ["'-838:59:59.999'", "'838:59:59.999'", "'-00:00:00.001'", "'00:00:00.001'"],
    "TIME(6)": ["'-12:34:56.789012'", "'00:00:00.000001'", "'838:59:59.999999'"],
    "DATETIME": ["'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"],
    "DATETIME(6)": ["'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"],
    "TIMESTAMP NULL": ["'1970-01-02 00:00:01'", "'2038-01-18 03:14:07'"],
    "TIMESTAMP(6) NULL": ["'1970-01-02 00:00:01.000001'", "'2038-01-18 03:14:07.999999'"],
    "YEAR": ["0", "1901", "2155", "2024"],
}

TEXTS = {
    "CHAR(0)": ["''"],
    "CHAR(10)": ["''", "'a'", "'abcdefghij'", "'a  '", "'ünïcödé'", "_utf8mb4 x'F09F9880'"],
    "CHAR(10) CHARACTER SET latin1": ["''", "'abc'", "'ü'", "'a '"],
    "CHAR(255) CHARACTER SET utf8mb4": ["REPEAT('x', 255)", "REPEAT(_utf8mb4 x'F09F9880', 255)", "''"],
    "CHAR(5) CHARACTER SET ucs2": ["'abc'", "'ÄÖ'", "''"],
    "VARCHAR(1)": ["''", "'a'", "' '"],
    "VARCHAR(255)": ["REPEAT('v', 255)", "''", "'trailing  '"],
    "VARCHAR(256) CHARACTER SET latin1": ["REPEAT('v', 256)", "''", "'trailing  '"],
    "VARCHAR(16000)": ["REPEAT('ü', 16000)", "''", "'x'"],
    "BINARY(8)": ["x'00'", "x'FFFFFFFFFFFFFFFF'", "''", "x'0100'"],
    "VARBINARY(300)": ["x'00'", "x'0000'", "REPEAT(x'FF', 300)", "''"],
    "TINYTEXT": ["REPEAT('t', 255)", "''", "'é'"],
    "TEXT": ["REPEAT('t', 65535)", "''", "'x  '"],
    "MEDIUMTEXT": ["REPEAT('m', 1000000)", "''"],
    "LONGTEXT": ["REPEAT('long', 500000)", "''"],
    "TINYBLOB": ["REPEAT(x'00', 255)", "''"],
    "BLOB": ["REPEAT(x'FE', 65535)", "''", "x'00FF00'"],
    "MEDIUMBLOB": ["REPEAT(x'0102', 1000000)", "''", "REPEAT('b', 8191)", "REPEAT('b', 8192)"],
    "LONGBLOB": ["REPEAT('0123456789abcdef', 400000)", "''"],
    "ENUM('red','green','')": ["'red'", "'green'", "''"],
    "SET('a','b','c','d')": ["''", "'a'", "'a,d'", "'a,b,c,d'"],
    "JSON": ['\'{"a": [1, 2, {"b": null}]}\'', "'[]'"],
    "UUID": ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"],
    "INET4": ["'0.0.0.0'", "'255.255.255.255'", "'192.168.1.1'"],
    "INET6": ["'::'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'192.168.1.1'"],
}

GEOMETRY = {
    "POINT": ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 1e10)')"],
    "GEOMETRY": ["ST_GeomFromText('POLYGON((0 0,10 0,10 10,0 10,0 0))')", "ST_GeomFromText('LINESTRING(0 0,1 1)')"],
}

KEYABLE = {**NUMBERS, **TIMES, **{name: values for name, values in TEXTS.items() if name not in ("CHAR(0)", "JSON")}}


def key_part(kind):
    """A long column is indexed by a prefix."""
    long = ("TEXT" in kind or "BLOB" in kind or kind == "VARCHAR(16000)") and "CHAR(2" not in kind
    return "v(20)" if long else "v"


def fill(twin, values):
    twin.ok("SET sql_mode = ''")
    for number, value in enumerate(values, 1):
        twin.ok(f"INSERT INTO t VALUES ({number}, {value})")
    twin.ok(f"INSERT INTO t VALUES ({len(values) + 1}, NULL)")


@pytest.mark.parametrize("kind", [*NUMBERS, *TIMES, *TEXTS, *GEOMETRY])
def test_a_type_keeps_its_limits_and_null(twin, kind):
    values = {**NUMBERS, **TIMES, **TEXTS, **GEOMETRY}[kind]
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v {kind}) ENGINE={{engine}}")
    fill(twin, values)
    twin.ok("SELECT n, v, LENGTH(v), HEX(v) FROM t ORDER BY n")
    for number, value in enumerate(values, 1):
        twin.ok(f"UPDATE t SET v = NULL WHERE n = {number}")
        twin.ok(f"UPDATE t SET v = {value} WHERE n = {number} OR n = {len(values) + 1}")
    twin.ok("SELECT n, HEX(v), v IS NULL FROM t ORDER BY n")
    twin.ok("DELETE FROM t WHERE v IS NOT NULL")
    twin.same_table("t", "n, HEX(v)")


@pytest.mark.parametrize("kind", KEYABLE)
def test_a_type_is_found_and_ordered_through_a_key(twin, kind):
    values = KEYABLE[kind]
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v {kind}, KEY k ({key_part(kind)})) ENGINE={{engine}}")
    fill(twin, values)
    twin.ok("INSERT INTO t SELECT n + 100, v FROM t")
    for value in values:
        for compare in ("=", ">", "<=", "<>"):
            twin.same(f"SELECT n, HEX(v) FROM t FORCE INDEX (k) WHERE v {compare} {value}")
    twin.same("SELECT n FROM t FORCE INDEX (k) WHERE v IS NULL")
    twin.ok("SELECT HEX(v), n FROM t FORCE INDEX (k) ORDER BY v, n")
    twin.ok("SELECT HEX(v), n FROM t FORCE INDEX (k) ORDER BY v DESC, n DESC")
    twin.ok("SELECT HEX(MIN(v)), HEX(MAX(v)), COUNT(v) FROM t")


def test_many_nullable_columns_of_every_kind_fit_one_row(twin):
    kinds = [*NUMBERS, *TIMES, *[k for k in TEXTS if not k.startswith(("CHAR(255)", "VARCHAR(16000)"))]]
    columns = ", ".join(f"c{i} {kind} DEFAULT NULL" for i, kind in enumerate(kinds))
    twin.ok("SET sql_mode = ''")
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {columns}) ENGINE={{engine}}")
    sources = {**NUMBERS, **TIMES, **TEXTS}
    for row in range(8):
        chosen = [sources[kind][row % len(sources[kind])] if (row + i) % 3 else "NULL" for i, kind in enumerate(kinds)]
        twin.ok(f"INSERT INTO t VALUES ({row}, {', '.join(chosen)})")
    hexes = ", ".join(f"HEX(c{i})" for i in range(len(kinds)))
    twin.ok(f"SELECT n, {hexes} FROM t ORDER BY n")
    twin.ok("UPDATE t SET " + ", ".join(f"c{i} = NULL" for i in range(0, len(kinds), 2)) + " WHERE n % 2 = 0")
    twin.ok(f"SELECT n, {hexes} FROM t ORDER BY n")


def test_a_table_of_a_thousand_columns_works(twin):
    columns = ", ".join(f"c{i} SMALLINT" for i in range(1000))
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {columns}) ENGINE={{engine}}")
    twin.ok(f"INSERT INTO t VALUES (1, {', '.join(str(i) for i in range(1000))})")
    twin.ok(f"INSERT INTO t VALUES (2, {', '.join(['NULL'] * 1000)})")
    twin.ok("SELECT * FROM t ORDER BY n")


def test_values_around_the_size_where_they_leave_the_row_keep_every_byte(twin):
    sizes = [
        0,
        1,
        127,
        128,
        255,
        256,
        4095,
        4096,
        4097,
        8191,
        8192,
        8193,
        16383,
        32767,
        32768,
        65535,
        65536,
        262143,
        262144,
        262145,
        1048577,
    ]
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v LONGBLOB, w LONGTEXT CHARACTER SET latin1) ENGINE={engine}")
    for size in sizes:
        twin.ok(f"INSERT INTO t VALUES ({size}, REPEAT(CHAR({size % 250}), {size}), REPEAT('w', {size}))")
    twin.ok("SELECT n, LENGTH(v), MD5(v), LENGTH(w), MD5(w) FROM t ORDER BY n")
    twin.ok("UPDATE t SET v = CONCAT(v, 'end'), w = REVERSE(v) WHERE n % 2 = 1")
    twin.ok("SELECT n, LENGTH(v), MD5(v), LENGTH(w), MD5(w) FROM t ORDER BY n")


def test_blob_of_sixteen_megabytes_comes_back_equal(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v LONGBLOB) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, REPEAT('0123456789abcdef', 1000000))")
    size, digest = db.rows("SELECT LENGTH(v), MD5(v) FROM t")[0]
    assert size == 16_000_000
    assert digest == db.value("SELECT MD5(REPEAT('0123456789abcdef', 1000000))")


@pytest.mark.parametrize("length", [100, 7_000, 9_000, 20_000, 70_000])
def test_a_large_value_of_a_row_found_by_its_key_keeps_its_bytes(db, length):
    """The server unlocks a table that it reads one row of before it sends that row."""
    db.ok("CREATE TABLE large (id INT PRIMARY KEY, b LONGTEXT CHARACTER SET latin1) ENGINE={engine}")
    db.ok(f"INSERT INTO large VALUES (1, REPEAT('0123456789', {length // 10}))")
    assert db.value("SELECT b FROM large WHERE id = 1") == "0123456789" * (length // 10)
    digest = db.value(f"SELECT MD5(REPEAT('0123456789', {length // 10}))")
    assert db.value("SELECT MD5(b) FROM large WHERE id = 1") == digest
