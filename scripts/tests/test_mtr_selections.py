"""Selections of the server's tests: whose name is replaced, and which failures are excused."""

import pytest

from mtr_run import Verdict
from mtr_selected import DELIBERATE, read_rules, reason_of
from mtr_selections import kind_of, renamed


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
