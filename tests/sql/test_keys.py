"""Keys of every kind: multi-part, prefix, descending, unique with NULLs, and the order and equality of many collations."""

import random

import pytest

COLLATIONS = [
    "utf8mb4_general_ci",
    "utf8mb4_bin",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_nopad_bin",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_swedish_ci",
    "utf8mb4_german2_ci",
    "utf8mb4_turkish_ci",
    "utf8mb4_czech_ci",
    "utf8mb3_general_ci",
    "latin1_swedish_ci",
    "latin1_german1_ci",
    "latin1_german2_ci",
    "latin1_bin",
    "latin1_general_cs",
    "latin2_czech_cs",
    "cp1250_general_ci",
    "ucs2_general_ci",
    "utf16_unicode_ci",
    "utf32_general_ci",
    "sjis_japanese_ci",
    "big5_chinese_ci",
    "gbk_chinese_ci",
    "tis620_thai_ci",
    "binary",
]

WORDS = [
    "", " ", "  ", "a", "A", "a ", "a  ", "ab", "aB", "Ab", "AB", "a b", "abc", "b", "B", "z", "Z", "zz", "0", "00", "1",
    "10", "9", "_", "-", "a-b", "a_b", "~", "!", "a\t", "a\n", "\t", "a!", "straße", "strasse", "Strasse", "müller",
    "mueller", "MÜLLER", "muller", "é", "É", "e", "ê", "è", "ñ", "n", "ö", "Ö", "oe", "o", "ø", "å", "aa", "ch", "cz", "h",
    "i", "I", "ı", "İ", "ll", "lz", "ß", "ss", "s", "ž", "š", "č", "あ", "ア", "漢字", "汉", "ก", "กา", "Ω", "ω", "и", "И", "й",
    "€", "x" * 60, "X" * 60,
]  # fmt: skip

EMOJI = ["😀", "😁", "a😀", "A😀", "𝒳"]


def storable(words, collation, twin):
    """The words that the character set can hold, so that both engines store the same."""
    charset = twin.oracle.value(
        f"SELECT character_set_name FROM information_schema.collation_character_set_applicability WHERE full_collation_name = '{collation}' OR collation_name = '{collation}' LIMIT 1"
    )
    if charset == "binary":
        return words
    good = twin.oracle.rows(
        " UNION ALL ".join(
            f"SELECT {i}, CONVERT(CONVERT(_utf8mb4 x'{w.encode().hex()}' USING {charset}) USING utf8mb4) = _utf8mb4 x'{w.encode().hex()}' COLLATE utf8mb4_bin"
            for i, w in enumerate(words)
        )
    )
    return [words[i] for i, same in good if same]


def insert_words(twin, table, words, charset_cast=""):
    for number, word in enumerate(words, 1):
        twin.run(f"INSERT INTO {table} (n, v) VALUES ({number}, {charset_cast} _utf8mb4 x'{word.encode().hex()}')")


@pytest.mark.parametrize("collation", COLLATIONS)
@pytest.mark.parametrize("column", ["VARCHAR(80)", "CHAR(80)"])
def test_a_collation_orders_and_compares_as_in_innodb(twin, collation, column):
    kind = column.replace("VARCHAR", "VARBINARY").replace("CHAR", "BINARY") if collation == "binary" else column
    kind = kind.replace("VARVAR", "VAR")
    rule = "" if collation == "binary" else f"CHARACTER SET {collation.split('_')[0]} COLLATE {collation}"
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, v {kind} {rule}, KEY k (v), KEY p (v(3), n)) ENGINE={{engine}}")
    twin.ok(f"CREATE TABLE u (n INT, v {kind} {rule} PRIMARY KEY) ENGINE={{engine}}")
    words = storable(WORDS + (EMOJI if "mb4" in collation else []), collation, twin)
    random.Random(7).shuffle(words)
    insert_words(twin, "t", words)
    insert_words(twin, "u", words)  # equal words are duplicates: both engines must refuse the same ones
    twin.same_table("u", "n, HEX(v)")
    twin.ok("SELECT HEX(WEIGHT_STRING(v)) FROM t FORCE INDEX (k) WHERE v >= '' ORDER BY v")
    for hint in ("FORCE INDEX (k)", "FORCE INDEX (p)"):
        for word in words[::3]:
            literal = (
                f"CONVERT(_utf8mb4 x'{word.encode().hex()}' USING {collation.split('_')[0]})"
                if collation != "binary"
                else f"x'{word.encode().hex()}'"
            )
            for compare in ("=", ">=", "<"):
                twin.same(f"SELECT n, HEX(v) FROM t {hint} WHERE v {compare} {literal}")
        twin.same(f"SELECT n FROM t {hint} WHERE v LIKE 'a%'")
    twin.same("SELECT COUNT(*), COUNT(DISTINCT v) FROM t")
    twin.same("SELECT COUNT(*), MIN(n) FROM t FORCE INDEX (k) GROUP BY v")


def test_thai_without_padding_is_compared_up_to_a_zero(twin):
    """The server compares these values as strings of C: what lies behind a zero, vowels and tones changed places, does not count."""
    column = "VARCHAR(20) CHARACTER SET tis620 COLLATE tis620_thai_nopad_ci"
    for table, key in (("t", "KEY k (v)"), ("p", "KEY k (v(3), n)"), ("u", "UNIQUE KEY k (v)")):
        twin.ok(f"CREATE TABLE {table} (n INT PRIMARY KEY, v {column}, {key}) ENGINE={{engine}}")
    words = ["61", "6100", "610062", "6109", "6120", "", "00", "0078", "620041", "42", "A1E8", "A1E800E0A1", "A100E8", "E0A1"]
    for number, word in enumerate(words):
        for table in "tpu":
            twin.run(f"INSERT INTO {table} VALUES ({number}, x'{word}')")
    twin.same("SELECT n, HEX(v) FROM u")
    for table in "tpu":
        for word in words:
            for compare in ("=", ">=", "<"):
                twin.same(f"SELECT n FROM {table} FORCE INDEX (k) WHERE v {compare} CONVERT(x'{word}' USING tis620)")

def test_covering_reads_give_the_letters_that_were_stored(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb4_unicode_ci, KEY (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1,'abc'),(2,'ABC'),(3,'Abc '),(4,'äbc'),(5,'straße'),(6,'STRASSE')")
    twin.same("SELECT HEX(v), n FROM t FORCE INDEX (v) WHERE v > 'a'")
    twin.ok("UPDATE t SET v = 'ABC' WHERE n = 1")
    twin.same("SELECT HEX(v), n FROM t FORCE INDEX (v) WHERE v = 'abc'")
    twin.ok("UPDATE t SET v = 'abc ' WHERE n = 2")
    twin.same("SELECT HEX(v), n FROM t FORCE INDEX (v) WHERE v = 'abc'")


def test_a_key_of_many_parts_finds_ranges_of_each_prefix(twin):
    twin.ok(
        "CREATE TABLE t (a INT, b VARCHAR(10), c DECIMAL(6,2), d DATE, e BIGINT UNSIGNED, n INT PRIMARY KEY,"
        " KEY k (a, b, c, d, e), KEY r (e DESC, a, b DESC)) ENGINE={engine}"
    )
    draw = random.Random(11)
    for n in range(300):
        values = [
            draw.choice(["NULL", "-5", "0", "5", "2147483647"]),
            draw.choice(["NULL", "''", "'a'", "'b'", "'abc'"]),
            draw.choice(["NULL", "-1.50", "0", "1.25"]),
            draw.choice(["NULL", "'2020-01-01'", "'1999-12-31'"]),
            draw.choice(["NULL", "0", "18446744073709551615", "7"]),
        ]
        twin.ok(f"INSERT INTO t VALUES ({', '.join(values)}, {n})")
    for where in (
        "a = 5", "a > 0", "a <= 0", "a IS NULL", "a = 5 AND b = 'a'", "a = 5 AND b > 'a'", "a = 0 AND b IS NULL AND c > 0",
        "a = 5 AND b IN ('a', 'abc')",
        "a = 5 AND b = 'a' AND c = 1.25 AND d >= '2000-01-01'", "a BETWEEN -5 AND 5 AND b < 'b'",
        "a = 5 AND b = 'b' AND c IS NULL AND d IS NULL AND e IS NOT NULL",
    ):  # fmt: skip
        twin.same(f"SELECT * FROM t FORCE INDEX (k) WHERE {where}")
        twin.ok(f"SELECT a, b, c, d, e, n FROM t FORCE INDEX (k) WHERE {where} ORDER BY a, b, c, d, e, n")
        twin.ok(
            f"SELECT a, b, c, d, e, n FROM t FORCE INDEX (k) WHERE {where} ORDER BY a DESC, b DESC, c DESC, d DESC, e DESC, n DESC"
        )
    for where in ("e > 7", "e <= 7", "e IS NULL", "e = 7 AND a = 5", "e = 7 AND a = 5 AND b >= 'a'", "e < 100 AND a > 0"):
        twin.same(f"SELECT * FROM t FORCE INDEX (r) WHERE {where}")
    twin.ok("SELECT e, a, b, n FROM t FORCE INDEX (r) ORDER BY e DESC, a, b DESC, n")


def test_unique_keys_take_many_nulls_and_refuse_equal_values(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, a INT, b VARCHAR(10), UNIQUE KEY u (a, b)) ENGINE={engine}")
    for values in ("1, NULL, NULL", "2, NULL, NULL", "3, 1, NULL", "4, 1, NULL", "5, 1, 'x'", "6, NULL, 'x'", "7, NULL, 'x'"):
        twin.ok(f"INSERT INTO t VALUES ({values})")
    twin.fails("INSERT INTO t VALUES (8, 1, 'x')", 1062)
    twin.fails("INSERT INTO t VALUES (8, 1, 'X')", 1062)
    twin.fails("INSERT INTO t VALUES (8, 1, 'x  ')", 1062)
    twin.fails("UPDATE t SET b = 'x' WHERE n = 3", 1062)
    twin.fails("UPDATE t SET n = 1 WHERE n = 2", 1062)
    twin.ok("DELETE FROM t WHERE n = 5")
    twin.ok("INSERT INTO t VALUES (9, 1, 'x')")
    twin.ok("UPDATE t SET a = 2 WHERE n = 9")
    twin.ok("INSERT INTO t VALUES (10, 1, 'x')")
    twin.same_table("t")


def test_the_duplicate_message_names_value_and_key(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(10), c CHAR(10), UNIQUE KEY uv (v), UNIQUE KEY uc (c)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, 'ab', 'ab')")
    for statement in (
        "INSERT INTO t VALUES (1, 'x', 'x')",
        "INSERT INTO t VALUES (2, 'ab ', 'x')",
        "INSERT INTO t VALUES (3, 'y', 'ab ')",
    ):
        assert twin.under_test.fails(statement, 1062) == twin.oracle.fails(statement, 1062)


def test_prefix_keys_on_texts_and_blobs(twin):
    twin.ok(
        "CREATE TABLE t (n INT PRIMARY KEY, v TEXT, b BLOB, KEY kv (v(5)), KEY kb (b(3)), UNIQUE KEY u (v(8), b(2))) ENGINE={engine}"
    )
    words = ["", "a", "abcde", "abcdef", "abcdeg", "ABCDE", "abcdefgh", "abcdefghi", "abcdefgh  ", "b" * 5000]
    for n, word in enumerate(words):
        twin.run(f"INSERT INTO t VALUES ({n}, '{word}', REPEAT(CHAR({n}), {n * 100}))")
    twin.run("INSERT INTO t VALUES (100, NULL, NULL), (101, NULL, NULL)")
    for where in ("v = 'abcde'", "v > 'abcdef'", "v LIKE 'abcde%'", "v IS NULL", "v < 'b'"):
        twin.same(f"SELECT n FROM t FORCE INDEX (kv) WHERE {where}")
    for where in ("b > x'03'", "b IS NULL", "b = REPEAT(CHAR(4), 400)"):
        twin.same(f"SELECT n FROM t FORCE INDEX (kb) WHERE {where}")


def test_long_unique_values_are_unique_over_their_whole_length(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v TEXT, UNIQUE KEY (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t VALUES (1, REPEAT('x', 9000)), (2, CONCAT(REPEAT('x', 9000), 'y')), (3, NULL), (4, NULL)")
    twin.fails("INSERT INTO t VALUES (5, REPEAT('x', 9000))", 1062)
    twin.fails("UPDATE t SET v = REPEAT('x', 9000) WHERE n = 2", 1062)
    twin.same_table("t", "n, MD5(v)")


@pytest.mark.parametrize("keys", ["UNIQUE KEY ku (u), UNIQUE KEY kb (b)", "UNIQUE KEY kb (b), UNIQUE KEY ku (u)"])
@pytest.mark.parametrize("by_query", [False, True])
def test_replace_deletes_the_rows_that_a_short_and_a_long_unique_key_find(twin, keys, by_query):
    """The long value is compared after the short one, whatever the order of the keys: the row under the short one must not be overwritten."""
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, u INT, b BLOB, v INT, {keys}) ENGINE={{engine}}")
    twin.ok("INSERT INTO t SELECT seq, seq, REPEAT(CHAR(96 + seq), 9000), 0 FROM seq_1_to_9")
    for rows in (
        ["20, 1, REPEAT('b', 9000), 1"],
        ["3, 4, REPEAT('e', 9000), 2"],
        ["30, 6, NULL, 3", "7, 31, REPEAT('f', 9000), 4"],
    ):
        source = " UNION ALL ".join(f"SELECT {row}" for row in rows) if by_query else "VALUES " + ", ".join(f"({row})" for row in rows)
        twin.ok(f"REPLACE INTO t {source}")
        twin.same_table("t", "n, u, MD5(b), v")
    assert twin.under_test.rows("CHECK TABLE t EXTENDED")[-1][3] == "OK"


@pytest.mark.parametrize("rows", [20, 3000])
def test_reads_of_an_index_both_ways_show_the_newest_spelling(twin, rows):
    """Rules X11, X25: the key stays, what it loses does not; from the tree alone and from a run below it."""
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, c VARCHAR(20) CHARACTER SET latin1, v INT, UNIQUE KEY (c))")
    twin.ok(f"INSERT INTO t SELECT seq, CONCAT('Name', seq), 0 FROM seq_1_to_{rows}")
    twin.ok("UPDATE t SET c = LOWER(c) WHERE n MOD 3 = 0")
    twin.ok("BEGIN")
    twin.ok("UPDATE t SET c = UPPER(c) WHERE n MOD 5 = 0")
    for direction in ("", "DESC"):
        twin.run(f"SELECT HEX(c) FROM t FORCE INDEX (c) ORDER BY c {direction}")
    twin.ok("ROLLBACK")
    for direction in ("", "DESC"):
        twin.run(f"SELECT HEX(c) FROM t FORCE INDEX (c) ORDER BY c {direction}")
    twin.run("SELECT HEX(MAX(c)), HEX(MIN(c)) FROM t")


def test_a_table_without_any_key_and_one_with_only_secondary_keys(twin):
    twin.ok("CREATE TABLE t (a INT, b VARCHAR(10)) ENGINE={engine}")
    twin.ok("CREATE TABLE s (a INT, b VARCHAR(10), KEY (a), KEY (b, a)) ENGINE={engine}")
    for table in "ts":
        twin.ok(f"INSERT INTO {table} VALUES (1,'a'),(1,'a'),(NULL,NULL),(2,'b'),(1,'a')")
        twin.ok(f"UPDATE {table} SET b = 'c' WHERE a = 1 LIMIT 3")
        twin.ok(f"DELETE FROM {table} WHERE a = 2")
        twin.same_table(table)


def test_sixty_four_keys_stay_right_over_updates(twin):
    columns = ", ".join(f"c{i} INT" for i in range(63))
    keys = ", ".join(f"KEY (c{i})" for i in range(63))
    twin.ok(f"CREATE TABLE t (n INT PRIMARY KEY, {columns}, {keys}) ENGINE={{engine}}")
    for n in range(20):
        twin.ok(f"INSERT INTO t VALUES ({n}, {', '.join(str((n * i) % 7) for i in range(63))})")
    twin.ok("UPDATE t SET c0 = c0 + 1, c10 = c10 + 1, c62 = 5 WHERE n < 10")
    twin.ok("DELETE FROM t WHERE n % 5 = 0")
    for i in (0, 1, 10, 31, 62):
        twin.same(f"SELECT n FROM t FORCE INDEX (c{i}) WHERE c{i} >= 3")


def test_primary_key_updates_move_the_row_once(twin):
    twin.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_2000")
    twin.ok("UPDATE t SET n = n + 1000000")
    twin.ok("UPDATE t SET v = v + 100 WHERE v >= 5")
    twin.ok("UPDATE t FORCE INDEX (v) SET v = v + 1 WHERE v > 0")
    twin.ok("UPDATE t SET n = n - 1 WHERE n > 0 ORDER BY n")
    twin.same_table("t")


def test_a_scan_of_a_heap_does_not_meet_its_own_updates(twin):
    twin.ok("CREATE TABLE t (a INT, b INT) ENGINE={engine}")
    twin.ok("INSERT INTO t SELECT seq, 0 FROM seq_1_to_3000")
    twin.ok("UPDATE t SET a = a + 1, b = b + 1")
    assert twin.ok("SELECT MIN(b), MAX(b), SUM(a), COUNT(*) FROM t").rows[0][:2] == (1, 1)
    twin.ok("INSERT INTO t SELECT a + 10000, b FROM t")
    twin.ok("SELECT COUNT(*), SUM(a) FROM t")


def test_range_estimates_are_near_the_truth(db):
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}")
    db.ok("INSERT INTO t SELECT seq, seq % 100 FROM seq_1_to_20000")
    db.ok("ANALYZE TABLE t")
    small = int(db.rows("EXPLAIN SELECT * FROM t WHERE n BETWEEN 100 AND 109")[0][8])
    large = int(db.rows("EXPLAIN SELECT * FROM t FORCE INDEX (v) WHERE v BETWEEN 10 AND 29")[0][8])
    assert 1 <= small <= 100, small
    assert 400 <= large <= 20000, large


@pytest.mark.pbxt_only
def test_a_key_over_the_limit_is_refused_in_a_sentence(db):
    """In some collations weights take twelve times the bytes of the text they are of."""
    db.ok("CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_as_cs, KEY words (v)) ENGINE={engine}")
    db.ok("INSERT INTO t VALUES (1, 'short')")
    words = "REPEAT('\ufdfa', 768)"
    for statement in (
        f"INSERT INTO t VALUES (2, {words})",
        f"REPLACE INTO t VALUES (1, {words})",
        f"INSERT INTO t SELECT seq, {words} FROM seq_2_to_20000",
        f"UPDATE t SET v = {words}",
    ):
        text = db.fails(statement, 1296)
        assert "index 'words'" in text and "limit of 16384" in text, text
    assert db.rows("SELECT * FROM t") == [(1, "short")]
    db.ok("INSERT INTO t VALUES (2, 'next')")
    assert db.rows("SELECT n FROM t WHERE v = 'next'") == [(2,)]
