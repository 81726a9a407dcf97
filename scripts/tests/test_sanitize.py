"""What of a sanitizer's reports is about the plugin."""

import sanitize

LINE = "=" * 18 + "\n"
RACE = "WARNING: ThreadSanitizer: data race (pid=1)\n  Write of size 8 by thread T2:\n    #0 {} (mariadbd+0x1)\n  Previous read:\n    #0 {} ({}+0x2)\n"


def test_a_race_in_the_plugin_is_reported_and_one_in_the_server_is_not():
    ours, theirs = RACE.format("free", "append", "ha_pbxt.so"), RACE.format("free", "lf_hash_insert", "mariadbd")
    text = LINE + theirs + LINE + LINE + ours + LINE + "ThreadSanitizer: reported 2 warnings\n"
    assert sanitize.wanted(text) == [ours]


def test_memory_of_threads_that_have_ended_is_the_c_librarys():
    assert sanitize.wanted(LINE + RACE.format("_dl_deallocate_tls", "drop", "ha_pbxt.so") + LINE) == []


def test_an_error_of_memory_is_reported_wherever_it_is():
    error = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n    #0 memcpy\n    #1 (mariadbd+0x1)\n"
    assert len(sanitize.wanted("=" * 65 + "\n" + error)) == 1


def test_reports_make_a_run_fail(tmp_path, capsys):
    (tmp_path / "report.1").write_text(LINE + RACE.format("free", "append", "ha_pbxt.so") + LINE, encoding="utf-8")
    (tmp_path / "report.2").write_text(LINE + RACE.format("free", "free", "mariadbd") + LINE, encoding="utf-8")
    assert sanitize.show(sorted(tmp_path.glob("report.*"))) == 1
    assert "1 reports about the plugin, in 1 of 2 files of reports" in capsys.readouterr().out
