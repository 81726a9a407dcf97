"""How results are read from what test programs print; a failure that is overlooked here would be overlooked everywhere."""

from mtr_baseline import agreed, edited, edits_between, unprinted
from mtr_run import read_verdict
from run_tests import add_up


def test_results_of_cargo_are_added_up():
    lines = [
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        "running 3 tests",
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
    ]
    assert add_up(lines) == (14, 1, 1)


def test_results_of_pytest_are_read_in_every_form():
    assert add_up(["21 passed in 3.20s"]) == (21, 0, 0)
    assert add_up(["2 failed, 19 passed, 1 skipped in 63.20s (0:01:03)"]) == (19, 2, 1)
    assert add_up(["3 failed in 1.00s"]) == (0, 3, 0)
    assert add_up(["5 passed, 2 errors in 1.00s"]) == (5, 2, 0)
    assert add_up(["1 failed, 5 passed, 1 error in 1.00s"]) == (5, 2, 0)
    assert add_up(["1 error in 0.10s"]) == (0, 1, 0)
    assert add_up(["======= 1 failed, 2 passed in 0.10s ======="]) == (2, 1, 0)


def test_other_lines_count_for_nothing():
    assert add_up(["", "passed", "loaded 20 passed rows in 3.0s", "error in 3 places", "10 passed through"]) == (0, 0, 0)


def test_results_of_the_servers_test_driver_are_added_up():
    assert add_up(["101 passed, 3 failed, 10 skipped"]) == (101, 3, 10)


def test_the_simulator_counts_as_one_test():
    assert add_up(["20001 transactions show nothing that their level forbids, --level mixed (12000 committed; 3.0 s)"]) == (1, 0, 0)
    assert add_up(["400 storage lives agree with the model (90 statements and ends, 3 refused; 9 s, 900 seeds a minute)"]) == (1, 0, 0)
    assert add_up(["10000 states after power cuts agree with what was acknowledged (9 lives, 3 cuts during recovery, 2.0 s)"]) == (1, 0, 0)


def test_a_verdict_is_read_with_suite_overlay_combination_and_reason():
    passed = read_verdict("storage_engine/trx-innobase.update w2 [ pass ]    312")
    assert (passed.suite, passed.overlay, passed.test, passed.word) == ("storage_engine/trx", "innobase", "update", "passed")
    failed = read_verdict("engines/iuds.insert_year 'innodb,x'           w1 [ fail ]")
    assert (failed.suite, failed.combination, failed.word) == ("engines/iuds", "innodb,x", "failed")
    skipped = read_verdict("storage_engine-rocksdb.vcol             [ disabled ]  Not supported")
    assert (skipped.word, skipped.reason) == ("skipped", "Not supported")
    assert read_verdict("worker[01] Using MTR_BUILD_THREAD 300") is None


def test_a_result_is_recorded_only_where_innodb_and_another_engine_print_the_same():
    printed = {
        "innobase": {"a": b"1", "b": b"2", "c": b"3"},
        "myisam": {"a": b"1", "b": b"x", "c": b"y"},
        "maria": {"a": b"1", "b": b"x"},
        "rocksdb": {"c": b"3"},
    }
    assert agreed(printed) == {"a": (b"1", ["myisam", "maria"]), "c": (b"3", ["rocksdb"])}


def test_an_expectation_that_no_engine_prints_is_known_as_such():
    installed = {"old": b"0", "agreed": b"0", "one": b"2", "kept": b"7"}
    printed = {
        "innobase": {"old": b"1", "agreed": b"5", "one": b"2", "kept": b"7"},
        "myisam": {"old": b"2", "agreed": b"5", "one": b"3", "kept": b"7"},
        "maria": {},
        "rocksdb": {},
    }
    assert unprinted(installed, printed) == ["old"]


def test_edits_turn_an_installed_result_into_the_recorded_one():
    texts = [b"", b"a\nb\nc\n", b"b\nc\nd", b"x\n\xff\xfe\nc\n\n", b"a\nb\nc\na\nb\nc\n"]
    for old in texts:
        for new in texts:
            assert edited(old, edits_between(old, new)) == new
