"""How the verdicts of two engines become one: what is a defect, what is excused, what is left out."""

import json

import pytest
from common import Problem
from orm_sources import SOURCES
from orm_suites import DELIBERATE, Rule, Verdict, judge, read_rules, read_verdicts

PASSED, SKIPPED, FAILED = Verdict("passed"), Verdict("skipped", "no such feature"), Verdict("failed", "ERROR 1234: no")
RULES = [Rule("django", "a.b*", "ERROR 1234", "on purpose")]


@pytest.mark.parametrize(
    "ours, theirs, word",
    [
        (PASSED, PASSED, "passed"),
        (PASSED, FAILED, "passed"),
        (PASSED, SKIPPED, "passed"),
        (FAILED, FAILED, "skipped"),
        (SKIPPED, SKIPPED, "skipped"),
        (SKIPPED, FAILED, "skipped"),
        (FAILED, PASSED, "failed"),
        (FAILED, SKIPPED, "failed"),
        (SKIPPED, PASSED, "failed"),
        (None, PASSED, "failed"),
        (None, FAILED, "skipped"),
        (FAILED, None, "failed"),
    ],
)
def test_a_test_that_only_the_other_engine_passes_is_a_defect(ours, theirs, word):
    judged, used = judge("django", {"x": ours} if ours else {}, {"x": theirs} if theirs else {}, RULES)
    assert judged["x"].word == word and not used


def test_a_rule_excuses_a_test_of_its_suite_with_its_text_only():
    theirs = {"a.b.c": PASSED}
    assert judge("django", {"a.b.c": FAILED}, theirs, RULES)[0]["a.b.c"] == ("skipped", "on purpose: on purpose")
    assert judge("django", {"a.b.c": FAILED}, theirs, RULES)[1] == set(RULES)
    assert judge("sqlalchemy", {"a.b.c": FAILED}, theirs, RULES)[0]["a.b.c"].word == "failed"
    assert judge("django", {"a.b.c": Verdict("failed", "ERROR 9")}, theirs, RULES)[0]["a.b.c"].word == "failed"
    assert judge("django", {"a.c": FAILED}, {"a.c": PASSED}, RULES)[0]["a.c"].word == "failed"


def test_a_name_with_brackets_is_itself_and_no_pattern():
    rules = [Rule("sqlalchemy", "t.py::A::b[x-1]", "", "on purpose")]
    assert judge("sqlalchemy", {"t.py::A::b[x-1]": FAILED}, {"t.py::A::b[x-1]": PASSED}, rules)[0]["t.py::A::b[x-1]"].word == "skipped"


def test_of_several_lines_about_a_test_the_worst_counts(tmp_path):
    lines = [("a", "passed", ""), ("a", "failed", "first"), ("a", "failed", "second"), ("b", "skipped", "why"), ("b", "passed", "")]
    path = tmp_path / "v.jsonl"
    text = "\n".join(json.dumps({"test": test, "verdict": word, "text": text}) for test, word, text in lines)
    path.write_text(text + '\n{"test": "c", "verd', encoding="utf-8")
    assert read_verdicts(path) == {"a": Verdict("failed", "first"), "b": Verdict("skipped", "why")}


def test_every_excuse_names_a_suite_a_text_and_a_reason():
    assert all(rule.suite in SOURCES and rule.pattern and rule.text and rule.reason for rule in read_rules(DELIBERATE))


def test_a_line_of_another_shape_is_refused_by_its_words(tmp_path):
    path = tmp_path / "x.def"
    path.write_text("django a.b : only two parts\n", encoding="utf-8")
    with pytest.raises(Problem, match="only two parts"):
        read_rules(path)
