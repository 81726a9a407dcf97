"""The house rules' checker must see what it is there to see."""

from pathlib import Path

from common import ROOT
from tidy import FEATURES, check_features, check_floors, check_header, check_length, check_lock, check_rules, check_synonyms, check_words

CORE = Path("crates/txn/src/state.rs")


def sentences(check, path, lines):
    return [sentence for _, sentence in check(path, lines)]


def test_a_long_function_is_found_and_a_declaration_is_not():
    body = ["    let a = 1;"] * 71
    assert sentences(check_length, CORE, ["fn long() {", *body, "}"]) != []
    assert sentences(check_length, CORE, ["fn short() {", *body[:70], "}"]) == []
    declarations = ["trait T {", "    fn one(", "        &self,", "    ) -> u8;", *["    // why"] * 80, "    fn two(&self) -> u8 {", "    }", "}"]
    assert sentences(check_length, CORE, declarations) == []


def test_comments_do_not_make_a_function_long():
    assert sentences(check_length, CORE, ["fn told() {", *["    // why"] * 200, "    a();", "}"]) == []


def test_a_long_file_is_found():
    assert "801 lines" in sentences(check_length, CORE, ["//! x"] * 801)[0]


def test_a_file_without_header_is_found():
    assert sentences(check_header, CORE, ["use a::b;"]) != []
    assert sentences(check_header, CORE, ["//! What it is."]) == []
    assert sentences(check_header, Path("plugin/mariadb/x.cc"), ["#include <x>"]) != []
    assert sentences(check_header, Path("scripts/x.py"), ["#!/usr/bin/env python3", '"""What it does."""', "", "x = 1"]) == []


def test_unfinished_code_and_paths_of_one_machine_are_found():
    for line in ["to" + "do!()", "// FIX" + "ME later", "#[ign" + "ore]", "// good enough for n" + "ow"]:
        assert sentences(check_words, CORE, [line]) != [], line
    assert sentences(check_words, Path("README.md"), ["see /wo" + "rk/main/x"]) != []
    assert sentences(check_words, CORE, ["// the work/ of others, method, network/path"]) == []


def test_marks_of_a_merge_are_found_in_documents_too():
    for line in ["<" * 7 + " HEAD", ">" * 7 + " branch"]:
        assert sentences(check_words, Path("docs/features.md"), ["text", line]) != [], line
    assert sentences(check_words, Path("docs/features.md"), ["=======", "a << b"]) == []


def test_only_crate_io_touches_the_outside_world():
    assert sentences(check_floors, CORE, ["let now = Instant::now();"]) != []
    assert sentences(check_floors, Path("crates/io/src/clock.rs"), ["let now = Instant::now();"]) == []
    assert sentences(check_floors, CORE, ["#[cfg(test)]", "mod tests { use std::fs; }"]) == []


def test_another_systems_word_is_found_in_the_crates_only():
    assert sentences(check_synonyms, CORE, ["let trx = 1;"]) == ["`trx`: the glossary says txn"]
    assert sentences(check_synonyms, CORE, ["let matrix = txn;"]) == []
    assert sentences(check_synonyms, Path("plugin/mariadb/xa.cc"), ["trx_register();"]) == []


def test_a_rule_that_no_document_defines_is_found():
    assert sentences(check_rules, CORE, ["    // T2: in one step", '    invariant!(ok, "D3: written once");']) == []
    assert "X31" not in "".join(sentences(check_rules, CORE, ["let X29 = 1;"]))
    assert "rule X29" in sentences(check_rules, CORE, ["    // X29 is nowhere"])[0]
    assert "rule D77" in sentences(check_rules, CORE, ['    invariant!(ok, "D77: nowhere");'])[0]


def test_a_test_that_a_document_names_must_exist():
    known = "`test_a_test_that_a_document_names_must_exist`"
    assert sentences(check_rules, Path("docs/testing.md"), [known]) == []
    assert sentences(check_rules, Path("docs/testing.md"), [known.replace("must", "ought")]) != []


def test_a_feature_without_a_test_that_exists_is_found():
    head = ["| feature | PBXT | shown by |", "|---|---|---|"]
    assert sentences(check_features, FEATURES, [*head, "| HANDLER | yes | `test_handler_statements_walk_a_key` |"]) == []
    assert "names no test" in sentences(check_features, FEATURES, [*head, "| `HANDLER` | yes | |"])[0]
    assert "no test test_of_nothing" in sentences(check_features, FEATURES, [*head, "| x | yes | `test_of_nothing` |"])[0]
    assert sentences(check_features, Path("docs/testing.md"), [*head, "| x | yes | |"]) == []


def test_a_lock_file_that_does_not_know_what_a_crate_needs_is_found():
    path = Path("bench/embedded/Cargo.lock")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    assert sentences(check_lock, path, lines) == []
    assert "pbxt-io needs aes" in sentences(check_lock, path, [line for line in lines if line != ' "aes",'])[0]
    assert sentences(check_lock, Path("Cargo.lock"), ["[[package]]", 'name = "pbxt-io"']) == []
