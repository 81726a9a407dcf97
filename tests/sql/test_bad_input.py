"""Damaged, missing and foreign files, full and read-only disks, wrong settings: said plainly, and nothing is lost or made up.

Every damaged file is a copy; the same rows must be there when the sound file is put back. A start that is refused must say in the
server's log which file, what was expected and what to do. The tests with a small disk of their own need root (they mount a tmpfs).
"""

import contextlib
import os
import shutil
import subprocess

import pytest
from common import Problem
from sql_tools import Session

pytestmark = pytest.mark.pbxt_only

ROWS = 4000
DIGEST = "SELECT COUNT(*), SUM(n), SUM(CRC32(v)), SUM(CRC32(b)), SUM(LENGTH(b)) FROM d.t"
ADVICE = (
    "restore",
    "copy",
    "remove",
    "set ",
    "start",
    "check",
    "free",
    "use ",
    "backup",
    "another",
    "stop",
    "give",
    "make",
    "mount",
    "choose",
)


def fill(server):
    """Rows with marks that can be found in the files, some of them as large values."""
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT PRIMARY KEY, v VARCHAR(60), b LONGBLOB, KEY (v)) ENGINE=PBXT")
    session.ok(f"INSERT INTO d.t SELECT seq, CONCAT('MARK-', LPAD(seq, 6, '0'), '-row'), 'small' FROM seq_1_to_{ROWS}")
    session.ok(
        "INSERT INTO d.t SELECT seq + 100000, 'with blob', CONCAT('BLOB-', LPAD(seq, 6, '0'), REPEAT('#', 40000)) FROM seq_1_to_20"
    )
    digest = session.rows(DIGEST)
    session.close()
    return digest


@pytest.fixture
def sound(own_server):
    """A server that was filled and stopped: (server, its engine folder, the digest of its rows)."""
    server = own_server()
    digest = fill(server)
    folder = server.engine_dir()
    server.stop()
    return server, folder, digest


def start_and_look(server):
    """('refused', log) when the engine does not open, ('error', text) when reading fails, else ('rows', digest)."""
    mark = server.log_size()
    try:
        server.start()
    except Problem:
        server.stop()
        return "refused", server.log_text(mark)
    session = Session(server, None, "PBXT")
    answer = session.run(DIGEST)
    session.close()
    text = f"{answer.error}\n{server.log_text(mark)}"
    server.stop()
    return ("error", text) if answer.error else ("rows", answer.rows)


def engine_lines(log):
    """The lines of the log that the engine wrote."""
    return [line for line in log.splitlines() if "PBXT" in line or "pbxt" in line]


def assert_sentence(log, *words):
    """Some line of the engine names all the words and says what to do."""
    lines = engine_lines(log)
    fitting = [line for line in lines if all(word.lower() in line.lower() for word in words)]
    assert fitting, f"no line of the log names {words}:\n" + "\n".join(lines or [log[-2000:]])
    assert any(hint in line.lower() for line in fitting for hint in ADVICE), "no advice in: " + "\n".join(fitting)


def assert_put_back(server, folder, kept, digest):
    """With the sound files back, every row is there."""
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    assert start_and_look(server) == ("rows", digest)


def copy_of(folder):
    kept = folder.with_name(folder.name + ".kept")
    shutil.copytree(folder, kept)
    return kept


def files(folder, kind):
    found = sorted(path for path in folder.iterdir() if kind in path.name and path.stat().st_size > 0)
    assert found, f"no {kind} file in {sorted(p.name for p in folder.iterdir())}"
    return found


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))


def find(paths, mark):
    """(file, offset) of a mark that was stored in a row."""
    for path in paths:
        place = path.read_bytes().find(mark)
        if place >= 0:
            return path, place
    return pytest.fail(f"{mark} is in none of {[path.name for path in paths]}")


@pytest.mark.parametrize("row", [1, ROWS // 2, ROWS])
def test_a_flipped_byte_in_the_log_is_refused_by_name(sound, row):
    server, folder, digest = sound
    kept = copy_of(folder)
    path, place = find(files(folder, "hot-"), f"MARK-{row:06d}".encode())
    flip(path, place + 6)
    outcome, text = start_and_look(server)
    assert outcome in ("refused", "error"), f"a damaged log was read as sound: {text}"
    assert_sentence(text, path.name)
    assert_put_back(server, folder, kept, digest)


def test_a_flipped_byte_in_a_large_value_is_named_when_it_is_read(sound):
    server, folder, digest = sound
    kept = copy_of(folder)
    path, place = find(files(folder, "blob-"), b"BLOB-000007")
    flip(path, place + 5000)
    outcome, text = start_and_look(server)
    assert outcome in ("refused", "error"), f"a damaged large value was read as sound: {text}"
    assert path.name in text, text[-2000:]
    assert_put_back(server, folder, kept, digest)


KEYS = "SELECT COUNT(*), SUM(n) FROM d.k FORCE INDEX (v) WHERE v >= ''"
KEYED_ROWS = "SELECT COUNT(*), SUM(n), SUM(CRC32(v)) FROM d.k IGNORE INDEX (v)"


@pytest.fixture
def keyed_server(own_server):
    """A stopped server with table d.k, the digest of its rows, and the place of an entry of its index on v: file and offset."""
    server = own_server()
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.k (n INT PRIMARY KEY, v VARBINARY(60), pad TEXT, KEY v (v)) ENGINE=PBXT COMPRESSION=NONE")
    session.ok(f"INSERT INTO d.k SELECT seq, CONCAT('MARK', UNHEX(SHA1(seq))), REPEAT('p', 100) FROM seq_1_to_{ROWS}")
    keyed = session.rows(KEYED_ROWS)
    # The last bytes of a key: blocks leave out what a key has in common with the one before it.
    marks = [row[0] for row in session.rows("SELECT RIGHT(v, 12) FROM d.k") if 0 not in row[0]]
    session.close()
    folder = server.engine_dir()
    server.stop()
    return server, keyed, find_any(files(folder, "meta-"), marks)


@pytest.fixture
def damaged_server(keyed_server):
    """That server with a damaged block of the index on v, and the digest."""
    server, keyed, place = keyed_server
    flip(*place)
    server.start()
    return server, keyed


@pytest.fixture
def damaged_index(damaged_server):
    """A session on that server, and the digest."""
    server, keyed = damaged_server
    session = Session(server, None, "PBXT")
    yield session, keyed
    session.close()


def find_any(paths, marks):
    """(file, offset) of the first mark that is in one of the files."""
    for path in paths:
        content = path.read_bytes()
        for mark in marks[:400]:
            place = content.find(mark)
            if place >= 0:
                return path, place
    return pytest.fail(f"no key is in {[path.name for path in paths]}")


def test_damage_that_statements_meet_is_in_the_error_log_once(damaged_server):
    # And the whole sentence of ERROR 1296, which the server cuts.
    server, _ = damaged_server
    session = Session(server, None, "PBXT")
    for _ in range(3):
        code, text = session.run(KEYS).error
        assert code == 1296 and "meta-" in text
    notes = [row[2] for row in session.rows("SHOW WARNINGS")]
    met = [line for line in server.log_text().splitlines() if "a statement met damage" in line]
    assert len(met) == 1 and "meta-" in met[0], met
    assert any("Restore" in note or "restore" in note for note in notes), notes
    session.close()


def test_repair_makes_a_damaged_index_anew_from_the_rows(damaged_index):
    session, keyed = damaged_index
    error = session.run(KEYS).error
    assert error and "meta-" in error[1], error
    assert session.rows("CHECK TABLE d.k")[-1][3] == "Corrupt"
    assert session.rows(KEYED_ROWS) == keyed, "rows are read without the index"
    answer = session.rows("REPAIR TABLE d.k")
    assert answer[-1][2:] == ("status", "OK"), answer
    assert session.rows("CHECK TABLE d.k EXTENDED")[-1][3] == "OK"
    assert session.rows(KEYED_ROWS) == keyed
    assert session.rows(KEYS) == [keyed[0][:2]]
    assert session.value("SELECT n FROM d.k FORCE INDEX (v) WHERE v = CONCAT('MARK', UNHEX(SHA1(77)))") == 77
    assert session.affected("UPDATE d.k SET v = 'changed' WHERE n < 10") == 9
    assert session.value("SELECT COUNT(*) FROM d.k FORCE INDEX (v) WHERE v = 'changed'") == 9


@pytest.mark.parametrize("part", ["header", "version", "directory", "tail"])
def test_an_index_whose_file_cannot_be_opened_is_set_aside_until_it_is_repaired(keyed_server, part):
    server, keyed, (path, _) = keyed_server
    size = path.stat().st_size
    flip(path, {"header": 1000, "version": 8, "directory": size - 60, "tail": size - 10}[part])
    mark = server.log_size()
    server.start()
    told = [line for line in server.log_text(mark).splitlines() if "index 'v' of table './d/k' is set aside" in line]
    assert len(told) == 1 and path.name in told[0] and "REPAIR TABLE" in told[0] and "[ERROR] PBXT" in told[0], told
    session = Session(server, None, "PBXT")
    error = session.run(KEYS).error
    assert error and error[0] == 1296 and path.name in error[1], error
    assert session.rows(KEYED_ROWS) == keyed, "rows are read without the index"
    assert session.rows("CHECK TABLE d.k")[-1][3] == "Corrupt"
    answer = session.rows("REPAIR TABLE d.k")
    assert answer[-1][2:] == ("status", "OK"), answer
    assert session.rows("CHECK TABLE d.k EXTENDED")[-1][3] == "OK"
    assert session.rows(KEYS) == [keyed[0][:2]]
    session.close()
    mark = server.log_size()
    server.restart()
    assert "set aside" not in server.log_text(mark)


@pytest.mark.parametrize("statement", ["REPAIR TABLE d.k QUICK", "REPAIR TABLE d.k USE_FRM", "ALTER TABLE d.k FORCE"])
def test_every_way_to_copy_a_table_repairs_its_indexes(damaged_index, statement):
    session, keyed = damaged_index
    session.ok(statement)
    assert session.rows("CHECK TABLE d.k EXTENDED")[-1][3] == "OK"
    assert session.rows(KEYS) == [keyed[0][:2]]


def test_optimize_names_the_damaged_file_that_it_has_to_read_and_changes_nothing(damaged_index):
    session, keyed = damaged_index
    session.ok("UPDATE d.k SET v = CONCAT(v, 'x') WHERE n MOD 50 = 0")
    session.ok("UPDATE d.k SET v = LEFT(v, LENGTH(v) - 1) WHERE n MOD 50 = 0")
    for _ in range(2):
        answer = session.rows("OPTIMIZE TABLE d.k")
        assert answer[-1][3] == "Corrupt", answer
        assert any(row[2] == "error" and "meta-" in row[3] for row in answer), answer
        assert session.rows(KEYED_ROWS) == keyed
    session.ok("REPAIR TABLE d.k")
    assert session.rows("OPTIMIZE TABLE d.k")[-1][2:] == ("status", "OK")
    assert session.rows(KEYS) == [keyed[0][:2]]


def test_repair_of_a_table_with_a_damaged_value_says_so_and_changes_nothing(sound):
    server, folder, digest = sound
    kept = copy_of(folder)
    path, place = find(files(folder, "blob-"), b"BLOB-000007")
    flip(path, place + 5000)
    server.start()
    session = Session(server, None, "PBXT")
    answer = session.rows("REPAIR TABLE d.t")
    assert answer[-1][3] == "Operation failed", answer
    assert any(row[2] == "error" and path.name in row[3] for row in answer), answer
    assert session.rows("SELECT COUNT(*), SUM(n) FROM d.t") == [digest[0][:2]]
    assert session.value("SELECT LENGTH(b) FROM d.t WHERE n = 100008") == 40011
    session.close()
    server.stop()
    assert_put_back(server, folder, kept, digest)


SAVED_ROWS = "SELECT n, v, LENGTH(b) FROM d.s IGNORE INDEX (PRIMARY)"


@pytest.fixture
def damaged_rows(own_server):
    """A session on a server with table d.s, of which one block of rows on disk and one large value are damaged, and all of its rows."""
    server = own_server()
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.s (n INT PRIMARY KEY, v CHAR(200) CHARACTER SET latin1, b LONGBLOB) ENGINE=PBXT COMPRESSION=NONE")
    # So many bytes that they are loaded beside the log.
    session.ok(f"INSERT INTO d.s SELECT seq, CONCAT(SHA1(seq), SHA2(seq, 512)), NULL FROM seq_1_to_{ROWS * 20}")
    session.ok(
        "INSERT INTO d.s SELECT seq + 100000, 'large', CONCAT('BLOB-', LPAD(seq, 6, '0'), REPEAT('#', 40000)) FROM seq_1_to_10"
    )
    rows = session.rows(SAVED_ROWS)
    session.close()
    folder = server.engine_dir()
    server.stop()
    loaded = max(files(folder, "cold-"), key=lambda path: path.stat().st_size)
    flip(loaded, loaded.stat().st_size // 2)
    path, place = find(files(folder, "blob-"), b"BLOB-000007")
    flip(path, place + 5000)
    server.start()
    session = Session(server, None, "PBXT")
    yield server, session, rows
    session.close()


def test_a_quick_check_passes_over_what_lies_between_the_ends(damaged_rows):
    _, session, _ = damaged_rows
    assert session.rows("CHECK TABLE d.s QUICK")[-1][3] == "OK"
    for depth in ("", "FAST", "MEDIUM", "EXTENDED", "QUICK EXTENDED"):
        answer = session.rows(f"CHECK TABLE d.s {depth}")
        assert answer[-1][3] == "Corrupt", (depth, answer)


def assert_most_are_there(saved, rows):
    """All that is there is right, one block is missing, and of the rows with large values one."""
    assert set(saved) <= set(rows)
    large = [row for row in saved if row[2]]
    assert len(large) == 9, f"{len(large)} large values"
    assert len(rows) * 0.8 < len(saved) < len(rows) - 1, f"{len(saved)} of {len(rows)}"


def test_what_is_left_of_a_damaged_table_can_be_saved(damaged_rows):
    server, session, rows = damaged_rows
    refused = session.run(SAVED_ROWS).error
    assert refused and "is damaged at offset" in refused[1], refused
    mark = server.log_size()
    session.ok("SET SESSION pbxt_leave_out_damaged = ON")
    saved = session.rows(SAVED_ROWS)
    assert_most_are_there(saved, rows)
    notes = [note for note in session.rows("SHOW WARNINGS") if "were left out" in note[2]]
    assert len(notes) == 2 and {note[0] for note in notes} == {"Note"}, notes
    assert any("cold-" in note[2] for note in notes) and any("blob-" in note[2] for note in notes), notes
    assert server.log_text(mark).count("were left out") == 2
    session.ok("CREATE TABLE d.saved ENGINE=PBXT SELECT * FROM d.s IGNORE INDEX (PRIMARY)")
    assert session.rows("SELECT n, v, LENGTH(b) FROM d.saved") == saved
    for statement in ("SELECT n, v, b FROM d.s IGNORE INDEX (PRIMARY) FOR UPDATE", "UPDATE d.s SET v = '' WHERE b IS NOT NULL"):
        refused = session.run(statement).error
        assert refused and "is damaged at offset" in refused[1], (statement, refused)
    session.ok("SET SESSION pbxt_leave_out_damaged = OFF")
    assert session.run(SAVED_ROWS).error, "nobody else leaves anything out"


def test_repair_does_without_what_cannot_be_read_if_asked_to(damaged_rows):
    server, session, rows = damaged_rows
    assert session.rows("REPAIR TABLE d.s")[-1][3] == "Operation failed"
    mark = server.log_size()
    session.ok("SET SESSION pbxt_leave_out_damaged = ON")
    answer = session.rows("REPAIR TABLE d.s")
    assert answer[-1][2:] == ("status", "OK"), answer
    assert server.log_text(mark).count("were left out") == 2
    session.ok("SET SESSION pbxt_leave_out_damaged = OFF")
    assert session.rows("CHECK TABLE d.s EXTENDED")[-1][3] == "OK"
    assert_most_are_there(session.rows(SAVED_ROWS), rows)


@pytest.mark.parametrize("which", [0, 1])
def test_a_flipped_byte_in_a_manifest_loses_nothing(sound, which):
    server, folder, digest = sound
    kept = copy_of(folder)
    found = files(folder, "manifest")
    path = found[which % len(found)]
    flip(path, path.stat().st_size // 2)
    outcome, text = start_and_look(server)
    if outcome == "rows":
        assert text == digest
    else:
        assert_sentence(text, "manifest")
    assert_put_back(server, folder, kept, digest)


@pytest.mark.parametrize("kind", ["hot-", "blob-", "manifest"])
@pytest.mark.parametrize("offset", [0, 9, 40])
def test_a_flipped_byte_in_a_file_header_is_refused_or_harmless(sound, kind, offset):
    server, folder, digest = sound
    kept = copy_of(folder)
    path = files(folder, kind)[0]
    flip(path, offset)
    outcome, text = start_and_look(server)
    if outcome == "rows":
        assert text == digest, f"byte {offset} of {path.name} changed what is read"
    else:
        assert path.name.rsplit(".", 1)[0] in text or kind.strip("-") in text, text[-2000:]
    assert_put_back(server, folder, kept, digest)


@pytest.mark.parametrize("kind", ["hot-", "blob-"])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "missing"])
def test_a_short_or_missing_file_is_refused_by_name(sound, kind, damage):
    server, folder, digest = sound
    kept = copy_of(folder)
    mark = b"MARK-002000" if kind == "hot-" else b"BLOB-000010"
    path, place = find(files(folder, kind), mark)
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, place if damage == "truncated" else 0)
    outcome, text = start_and_look(server)
    assert outcome in ("refused", "error"), f"{damage} {path.name} was read as sound: {text}"
    assert path.name in text, text[-2000:]
    assert_put_back(server, folder, kept, digest)


def test_both_manifests_missing_is_not_taken_for_an_empty_database(sound):
    server, folder, digest = sound
    kept = copy_of(folder)
    for path in files(folder, "manifest"):
        path.unlink()
    outcome, text = start_and_look(server)
    assert outcome in ("refused", "error"), f"an empty database was made over existing files: {text}"
    assert_sentence(text, "manifest")
    assert_put_back(server, folder, kept, digest)


def test_a_strange_file_among_the_engines_files_does_no_harm(sound):
    server, folder, digest = sound
    (folder / "notes.txt").write_text("not ours", encoding="utf-8")
    assert start_and_look(server) == ("rows", digest)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "not ours"


def test_a_second_server_on_the_same_files_is_refused(sound, own_server):
    server, folder, digest = sound
    server.start()
    second = own_server(f"--pbxt-data-dir={folder}", start=False)
    mark = second.log_size()
    with pytest.raises(Problem):
        second.start()
    second.stop()
    assert_sentence(second.log_text(mark), str(folder.name))
    session = Session(server, None, "PBXT")
    assert session.rows(DIGEST) == digest, "the first server must go on"
    session.ok("INSERT INTO d.t VALUES (-1, 'still writes', '')")
    session.close()
    server.stop()


def test_an_unknown_option_and_a_wrong_value_are_named(own_server):
    server = own_server("--pbxt-nonsense=1", start=False)
    mark = server.log_size()
    with pytest.raises(Problem):
        server.start()
    server.stop()
    assert "pbxt-nonsense" in server.log_text(mark)
    for setting in ("pbxt-conflict-mode", "pbxt-direct-io"):
        other = own_server(f"--{setting}=perhaps", start=False)
        mark = other.log_size()
        with contextlib.suppress(Problem):  # this server version goes on without the plugin, another may give up
            other.start()
        other.stop()
        assert f"'perhaps' to '{setting}'" in other.log_text(mark)


def test_a_cache_of_bytes_that_were_meant_to_be_megabytes_is_told_and_not_taken(own_server):
    server = own_server("--pbxt-cache-size=256")
    session = Session(server, None, "PBXT")
    assert session.value("SELECT @@GLOBAL.pbxt_cache_size") == 1 << 20
    session.close()
    assert [line for line in engine_lines(server.log_text()) if "pbxt_cache_size is given in bytes" in line]


def test_a_cache_larger_than_the_machine_is_told(own_server):
    server = own_server("--pbxt-cache-size=100T")
    lines = [line for line in engine_lines(server.log_text()) if "cache is to have 109951162777600 bytes" in line]
    assert len(lines) == 1, "told once"
    assert "give it less" in lines[0]


def test_a_setting_of_the_old_engine_is_accepted_with_a_warning(own_server):
    switches = ("--pbxt-enable-replication", "--skip-pbxt-support-xa")
    server = own_server("--pbxt-index-cache-size=64M", "--pbxt-trx-log-threshold=32M", *switches)
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT) ENGINE=PBXT")
    session.close()
    lines = [line for line in engine_lines(server.log_text()) if "pbxt_index_cache_size" in line]
    assert lines and "pbxt_cache_size" in lines[0], "the warning must name the setting to use instead"
    for other in ("pbxt_trx_log_threshold", "pbxt_enable_replication", "pbxt_support_xa"):
        assert [line for line in engine_lines(server.log_text()) if other in line], other


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 260 MB of its own, at tmp_path/disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=260m", "pbxt-test", disk], check=False).returncode != 0
    ):
        pytest.skip("needs the right to mount a small file system (root)")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_an_error_and_room_is_a_cure(own_server, small_disk):
    server = own_server(f"--pbxt-data-dir={small_disk}/pbxt")
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT AUTO_INCREMENT PRIMARY KEY, v VARBINARY(2000)) ENGINE=PBXT")
    full = None
    for _ in range(1000):  # values that no codec makes smaller
        answer = session.run("INSERT INTO d.t (v) SELECT CONCAT(RANDOM_BYTES(950), RANDOM_BYTES(950)) FROM seq_1_to_500")
        if answer.error:
            full = answer.error
            break
    assert full and full[0] in (1021, 1114, 1030), full
    count = session.value("SELECT COUNT(*) FROM d.t")
    assert count % 500 == 0 and count > 0, f"a failed statement left rows: {count}"
    assert session.value("SELECT COUNT(*) FROM (SELECT n FROM d.t) x") == count
    # In strict mode the server makes errors of warnings while an index is built: the file's name is told in one, and must stay beside the error.
    answer = session.run("ALTER TABLE d.t ADD KEY v (v(700)), ALGORITHM=INPLACE")
    assert answer.error and answer.error[0] == 1021, answer.error
    assert any("no space left for" in row[2] for row in session.rows("SHOW WARNINGS"))
    subprocess.run(["mount", "-o", "remount,size=600m", small_disk], check=True)
    session.ok("INSERT INTO d.t (v) SELECT REPEAT('g', 1900) FROM seq_1_to_500")
    assert session.value("SELECT COUNT(*) FROM d.t") == count + 500
    server.kill()
    server.start()
    session = Session(server, None, "PBXT")
    assert session.value("SELECT COUNT(*) FROM d.t") == count + 500
    assert session.rows("CHECK TABLE d.t")[-1][3] == "OK"
    session.close()
    server.stop()


def test_a_kill_on_a_full_disk_opens_again_without_room(own_server, small_disk):
    server = own_server(f"--pbxt-data-dir={small_disk}/pbxt")
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(2000)) ENGINE=PBXT")
    while session.run("INSERT INTO d.t (v) SELECT REPEAT('f', 1900) FROM seq_1_to_500").error is None:
        pass
    count = session.value("SELECT COUNT(*) FROM d.t")
    server.kill()
    outcome = None
    try:
        server.start()
        session = Session(server, None, "PBXT")
        outcome = session.value("SELECT COUNT(*) FROM d.t")
        session.close()
    except Problem:
        assert_sentence(server.log_text(), "space")
    server.stop()
    assert outcome in (None, count)
    subprocess.run(["mount", "-o", "remount,size=600m", small_disk], check=True)
    server.start()
    session = Session(server, None, "PBXT")
    assert session.value("SELECT COUNT(*) FROM d.t") == count
    session.close()
    server.stop()


def test_a_read_only_directory_is_named(own_server, small_disk):
    server = own_server(f"--pbxt-data-dir={small_disk}/pbxt")
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=PBXT")
    session.ok("INSERT INTO d.t VALUES (1), (2)")
    session.close()
    server.stop()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    mark = server.log_size()
    with pytest.raises(Problem):
        server.start()
    server.stop()
    assert_sentence(server.log_text(mark), str(small_disk.name), "only be read", "mount it for writing")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    server.start()
    session = Session(server, None, "PBXT")
    assert session.value("SELECT COUNT(*) FROM d.t") == 2
    session.close()
    server.stop()


def test_leftovers_are_told_and_files_of_others_are_left_alone(own_server):
    server = own_server()
    session = Session(server, None, "PBXT")
    session.ok("CREATE DATABASE d")
    session.ok("USE d")
    session.ok("CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=PBXT")
    session.ok("INSERT INTO d.t SELECT seq FROM seq_1_to_1000")
    session.close()
    folder = server.engine_dir()
    server.stop()
    foreign = {folder / f"{kind}-00000f00.seg": f"notes about {kind}\n".encode() * 500 for kind in ("hot", "cold", "meta")}
    for path, content in foreign.items():
        path.write_bytes(content)
    leftovers = [folder / f"meta-00000e{number:02x}.seg" for number in range(12)]
    for path in leftovers:
        shutil.copy(files(folder, "meta-")[0], path)
    for has_leftovers in (True, False):
        mark = server.log_size()
        server.start()
        said = server.log_text(mark).splitlines()
        removed = [line for line in said if "was removed" in line]
        more = [line for line in said if "2 more" in line and "removed" in line]
        assert (len(removed), len(more)) == ((10, 1) if has_leftovers else (0, 0)), said
        assert all("meta-00000e" in line and "nothing names it" in line for line in removed), removed
        assert not any(path.exists() for path in leftovers)
        for path, content in foreign.items():
            assert path.read_bytes() == content, "a file of somebody else is his"
            told = [line for line in said if path.name in line]
            assert len(told) == 1 and "left alone" in told[0] and "[Warning] PBXT" in told[0], told
        session = Session(server, "d", "PBXT")
        session.ok("INSERT INTO d.t SELECT MAX(n) + 1 FROM d.t")
        session.ok("OPTIMIZE TABLE d.t")
        assert session.rows("CHECK TABLE d.t EXTENDED")[-1][3] == "OK"
        session.close()
        server.stop()
        assert all(path.read_bytes() == content for path, content in foreign.items())
