"""Selections of the server's tests: whose name is replaced, and which failures are excused."""

import pytest

import mtr_differences
from common import Problem
from mtr_differences import difference_of, read_known_lines, record, without_known
from mtr_lists import SELECTIONS, Part
from mtr_run import Verdict
from mtr_selected import DELIBERATE, NOT_DIFFERENT, OTHERWISE, excuse, judge, named, only, read_rules, reason_of
from mtr_selections import Chosen, altered_by_default, choose, chosen_combinations, copy_results, kind_of, renamed


@pytest.mark.parametrize(
    "before, after",
    [
        ("create table t (a int) engine=innodb;", "create table t (a int) engine=pbxt;"),
        (") ENGINE=InnoDB DEFAULT", ") ENGINE=PBXT DEFAULT"),
        ("--innodb-lock-wait-timeout=2", "--pbxt-lock-wait-timeout=2"),
        ("--skip-innodb", "--skip-pbxt"),
        ("SET innodb_snapshot_isolation=ON;", "SET pbxt_conflict_mode=ERROR;"),
        ("from information_schema.INNODB_LOCK_WAITS;", "from information_schema.pbxt_lock_waits;"),
        ("--loose-disable-innodb --replicate-ignore-table=test.t3", "--loose-disable-pbxt --replicate-ignore-table=test.t3"),
        ("--skip-innodb-doublewrite --innodb", "--skip-innodb-doublewrite --innodb"),
        ("mysql.gtid_slave_pos_InnoDB", "mysql.gtid_slave_pos_PBXT"),
        ("--source include/have_innodb.inc", "--source include/have_innodb.inc"),
        ("--source suite/innodb/include/x.inc", "--source suite/innodb/include/x.inc"),
        ("set innodb_monitor_enable=x", "set innodb_monitor_enable=x"),
        ("SHOW ENGINE INNODB STATUS", "SHOW ENGINE INNODB STATUS"),
        ("InnoDB\t\t0 transactions not purged", "InnoDB\t\t0 transactions not purged"),
    ],
)
def test_the_engines_name_is_replaced_where_it_is_one(before, after):
    assert renamed(before, "pbxt") == after


def test_how_tables_are_altered_is_left_to_the_engine():
    before = "alter table t add key (a), algorithm=inplace, LOCK = NONE; set alter_algorithm='instant'; alter table t force, algorithm=copy"
    after = "alter table t add key (a), algorithm=DEFAULT, LOCK = DEFAULT; set alter_algorithm='instant'; alter table t force, algorithm=copy"
    assert altered_by_default(before) == after
    for refused in ("--error 1846\nalter table t add key (a),\nalgorithm=inplace;", "alter table t, lock=none;\nERROR 0A000: LOCK=NONE is not"):
        assert altered_by_default(f"{before};\n{refused}\nalter table t;\n{before};\n") == f"{after};\n{refused}\nalter table t;\n{after};\n"


def test_a_test_is_told_by_the_engines_that_it_names():
    assert kind_of(["create table t (a int) engine=InnoDB"]) == "named"
    assert kind_of(["# innodb", "create table t (a int)"]) == "plain"
    assert kind_of(["create table t (a int) engine=myisam"]) is None
    assert kind_of(["select 1"]) is None


def test_an_excuse_holds_only_with_its_text():
    rules = [("rpl.rpl_x*", "mix", "Annotate_rows", "rows")]
    failed = Verdict("rpl", "", "rpl_xa", "mix,row", "failed", "", "+ Annotate_rows")
    assert reason_of(rules, failed, failed.combination) == "rows"
    assert reason_of(rules, failed._replace(text="server crashed"), failed.combination) is None
    assert reason_of(rules, failed, "row") is None
    assert reason_of(rules, failed._replace(test="rpl_y"), failed.combination) is None


def test_every_excuse_has_a_test_a_text_and_a_reason():
    assert all(test and text and reason for test, _, text, reason in read_rules(DELIBERATE))


class Tree:
    """Suites with the named tests; of each kind one suffices."""

    def __init__(self, folder, suites):
        self.tests = folder
        for suite, names in suites.items():
            place = folder / "main" if suite == "main" else folder / "suite" / suite / "t"
            place.mkdir(parents=True)
            for name in names:
                (place / f"{name}.test").write_text("create table t (a int) engine=innodb;", encoding="utf-8")


def test_a_selection_chooses_of_each_of_its_suites(tmp_path):
    tree = Tree(tmp_path, {"main": ["foreign_key", "alter"], "innodb": ["innodb-fk", "foreign_key", "insert"]})
    parts = {part.suite: part for part in SELECTIONS["fk"].parts}
    assert choose(tree, parts["main"]).named == ["foreign_key"]
    assert choose(tree, parts["innodb"]).named == ["foreign_key", "innodb-fk"]
    assert choose(tree, parts["innodb"], ["innodb.innodb-fk", "main.foreign_key"]).named == ["innodb-fk"]
    assert choose(tree, Part("innodb", ["*"]), ["foreign_key"]).named == ["foreign_key"]


def test_tests_of_one_name_are_told_by_their_suites():
    verdicts = [Verdict(suite, "", "foreign_key", combination, "passed", "") for suite, combination in [("main", ""), ("innodb", "normal")]]
    assert sorted(named(verdicts)) == ["innodb.foreign_key normal", "main.foreign_key"]
    chosen = {"main": Chosen(["foreign_key"], []), "innodb": Chosen(["foreign_key"], ["x"])}
    assert only(chosen, {"innodb.foreign_key", "main.x"}) == {"main": Chosen([], []), "innodb": Chosen(["foreign_key"], [])}


def test_results_of_untouched_tests_are_files_that_patch_can_read(tmp_path):
    tree = Tree(tmp_path, {"innodb": ["foreign_null"]})
    kept = tmp_path / "installed.result"
    kept.write_text("as recorded", encoding="utf-8")
    link = tmp_path / "suite" / "innodb" / "r" / "foreign_null.result"
    link.parent.mkdir()
    link.symlink_to(kept)
    copy_results(tree, "innodb", ["foreign_null"])
    assert not link.is_symlink() and link.read_text(encoding="utf-8") == "as recorded" == kept.read_text(encoding="utf-8")


def test_of_combinations_those_with_another_default_engine_go():
    text = "[timestamp]\ndefault-storage-engine=innodb\n\n[trx_id]\ndefault-storage-engine=innodb\n\n[heap]\ndefault-storage-engine=memory\n"
    both = "[timestamp]\ndefault-storage-engine=pbxt\n\n[trx_id]\ndefault-storage-engine=pbxt\n\n"
    assert chosen_combinations(text, "pbxt") == both
    assert chosen_combinations(text, "innodb") == text[: text.index("[heap]")]
    assert chosen_combinations("[pk]\n[sec]\n", "pbxt") == "[pk]\n[sec]\n"
    assert chosen_combinations("[64k]\n--a\n[16k]\n--b\n[compact]\n--c\n[dynamic]\n--d\n", "pbxt") == "[16k]\n--b\n[dynamic]\n--d\n"


def test_what_is_left_out_is_left_out_and_what_is_named_besides_is_plain(tmp_path):
    tree = Tree(tmp_path, {"vcol": ["a_myisam", "a_innodb", "misc"]})
    (tmp_path / "suite" / "vcol" / "t" / "misc.test").write_text("create table t (a int) engine=myisam;", encoding="utf-8")
    assert choose(tree, Part("vcol", ["*"], ["*_myisam"], ["misc"])) == Chosen(["a_innodb"], ["misc"])
    assert choose(tree, Part("vcol", ["*"], ["*_myisam"])) == Chosen(["a_innodb"], [])


REPORT = """
CURRENT_TEST: gcol.x
--- /a/root-1/usr/share/mysql/mysql-test/suite/gcol/r/x.result\t2026-01-01
+++ /a/root-1/usr/share/mysql/mysql-test/suite/gcol/r/x.reject\t2026-01-01
@@ -3,7 +3,8 @@
 a
 b
-expected
+mysqltest: In included file "/a/build/mtr/root-1/usr/share/mysql/mysql-test/x.inc": transaction 77 failed
+more
 c
 d
@@ -40,3 +41,2 @@
 y
-z

mysqltest: Result content mismatch
"""
LINES = ["@ 5", "-expected", '+mysqltest: In included file "TESTS/x.inc": transaction # failed', "+more", "@ 41", "-z"]


def test_a_difference_is_read_with_its_places_and_without_what_varies():
    assert difference_of(REPORT) == LINES
    assert difference_of("mysqltest: At line 1: query failed") is None
    assert difference_of(REPORT.partition("\n\nmysqltest")[0]) is None


def test_fe1_an_excuse_with_a_record_covers_that_difference_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(mtr_differences, "DIFFERENCES", tmp_path)
    name, test = DELIBERATE.read_text(encoding="utf-8"), "gcol.innodb_virtual_fk_restart"
    text = next(rule[2] for rule in read_rules(DELIBERATE) if rule[0] == test)
    assert test in name
    failed = Verdict("gcol", "", "innodb_virtual_fk_restart", "", "failed", "", REPORT.replace("+more", f"+{text}"))
    nothing = lambda _: {}  # noqa: E731
    assert judge({test: failed}, nothing)[test].word == "excused"
    assert "recorded" in record(test, failed.text, [])
    assert judge({test: failed}, nothing)[test].word == "excused"
    other = failed._replace(text=failed.text.replace("-z", "-z\n-zz"))
    assert judge({test: other}, nothing)[test][4:6] == ("failed", OTHERWISE)
    passed = failed._replace(word="passed", text="")
    assert judge({test: passed}, nothing)[test][4:6] == ("failed", NOT_DIFFERENT)


def test_fe3_known_lines_are_left_out_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(mtr_differences, "DIFFERENCES", tmp_path)
    rules = tmp_path / "known_lines.def"
    rules.write_text("# text\ngcol.* : -expect.* : one\n* : +(more|mysqltest: .*) : two\nvcol.* : -z : three\n", encoding="utf-8")
    known = read_known_lines(rules)
    assert without_known("gcol.x", LINES, known) == (["@ 41", "-z"], ["one", "two"])
    assert without_known("vcol.x pk", LINES, known) == (["@ 5", "-expected"], ["two", "three"])
    assert without_known("gcol.x", ["@ 5", "-unexpected", "+more of it"], known) == (["@ 5", "-unexpected", "+more of it"], [])
    failed = Verdict("gcol", "", "x", "", "failed", "", REPORT)
    assert excuse("gcol.x", failed, [], known).word == "failed"
    assert excuse("gcol.x", failed._replace(text=REPORT.replace("\n-z", "")), [], known)[4:6] == ("excused", "one; two")
    assert "1 lines" not in record("gcol.x", REPORT, known) and (tmp_path / "gcol.x.diff").read_text(encoding="utf-8") == "@ 41\n-z\n"
    assert excuse("gcol.x", failed, [("gcol.x", "", "expected", "four")], known)[4:6] == ("excused", "four; one; two")
    assert excuse("gcol.x", failed._replace(text=REPORT.replace("-z", "-y")), [("gcol.x", "", "expected", "four")], known).reason == OTHERWISE


@pytest.mark.parametrize("line", ["* : -x", "* : x : reason", "* : +x : too : much"])
def test_fe3_a_line_that_is_no_rule_is_refused(tmp_path, line):
    (tmp_path / "known_lines.def").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(Problem, match="known_lines.def:1"):
        read_known_lines(tmp_path / "known_lines.def")


def test_fe2_every_recorded_difference_has_its_reason():
    rules = read_rules(DELIBERATE)
    for path in sorted(mtr_differences.DIFFERENCES.glob("*.diff")):
        test, _, combination = path.stem.partition(",")
        suite, _, name = test.partition(".")
        verdict = Verdict(suite, "", name, combination, "failed", "", path.read_text(encoding="utf-8", errors="surrogateescape"))
        assert reason_of(rules, verdict, combination), f"{path.name} has no line in {DELIBERATE.name} whose text is in it"
