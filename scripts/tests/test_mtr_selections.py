"""Selections of the server's tests: whose name is replaced, and which failures are excused."""

import pytest

from mtr_run import Verdict
from mtr_selected import DELIBERATE, named, only, read_rules, reason_of
from mtr_selections import SELECTIONS, Chosen, Part, choose, copy_results, kind_of, renamed


@pytest.mark.parametrize(
    "before, after",
    [
        ("create table t (a int) engine=innodb;", "create table t (a int) engine=pbxt;"),
        (") ENGINE=InnoDB DEFAULT", ") ENGINE=PBXT DEFAULT"),
        ("--innodb-lock-wait-timeout=2", "--pbxt-lock-wait-timeout=2"),
        ("--skip-innodb", "--skip-pbxt"),
        ("--loose-disable-innodb --replicate-ignore-table=test.t3", "--loose-disable-pbxt --replicate-ignore-table=test.t3"),
        ("--skip-innodb-doublewrite --innodb", "--skip-innodb-doublewrite --innodb"),
        ("mysql.gtid_slave_pos_InnoDB", "mysql.gtid_slave_pos_PBXT"),
        ("--source include/have_innodb.inc", "--source include/have_innodb.inc"),
        ("--source suite/innodb/include/x.inc", "--source suite/innodb/include/x.inc"),
        ("set innodb_monitor_enable=x", "set innodb_monitor_enable=x"),
    ],
)
def test_the_engines_name_is_replaced_where_it_is_one(before, after):
    assert renamed(before, "pbxt") == after


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
