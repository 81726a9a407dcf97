"""Which licence expressions may be linked into the plugin."""

import pytest
from licences import complaint, linked_packages, satisfied

ALLOWED = {"MIT", "Zlib"}
RULES = {
    "licenses": {"allow": ["MIT"], "exceptions": [{"crate": "unicode-ident", "allow": ["Unicode-3.0"]}]},
    "bans": {"deny": [{"crate": "prost", "reason": "Apache-2.0 alone"}]},
}


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("MIT", True),
        ("MIT OR Apache-2.0", True),
        ("MIT/Apache-2.0", True),
        ("Apache-2.0", False),
        ("Apache-2.0 WITH LLVM-exception OR MIT", True),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", False),
        ("Zlib AND (MIT OR BSL-1.0)", True),
        ("Apache-2.0 OR (GPL-2.0 AND MIT)", False),
    ],
)
def test_an_expression_is_met_only_by_allowed_licences(expression, expected):
    assert satisfied(expression, ALLOWED) is expected


def package(name, licence="MIT", source="registry+https://example.org/index"):
    return {"id": name, "name": name, "version": "1.0.0", "license": licence, "source": source}


def test_a_crate_is_refused_for_its_name_its_source_or_its_licence():
    assert complaint(package("good"), RULES) is None
    assert "banned" in complaint(package("prost"), RULES)
    assert "only the registry" in complaint(package("fork", source="git+https://example.org/x"), RULES)
    assert "states no licence" in complaint(package("bare", licence=None), RULES)
    assert "`Apache-2.0`" in complaint(package("apache", licence="Apache-2.0"), RULES)


def test_an_exception_holds_for_its_crate_only():
    both = "(MIT OR Apache-2.0) AND Unicode-3.0"
    assert complaint(package("unicode-ident", both), RULES) is None
    assert complaint(package("other", both), RULES) is not None


def test_crates_that_only_tests_need_are_not_part_of_the_plugin():
    names = ["pbxt-capi", "core", "proptest"]
    dependencies = {"pbxt-capi": [("core", None), ("proptest", "dev")], "core": [], "proptest": []}
    nodes = [
        {"id": name, "deps": [{"pkg": other, "dep_kinds": [{"kind": kind}]} for other, kind in dependencies[name]]}
        for name in names
    ]
    metadata = {"packages": [package(name) for name in names], "resolve": {"nodes": nodes}}
    assert [found["name"] for found in linked_packages(metadata)] == ["core", "pbxt-capi"]
