#!/usr/bin/env python3
"""Checks that every crate linked into the plugin may be combined with a GPL-2.0-only server.

It walks cargo's own graph from crates/capi (normal and build dependencies, no tests) and compares each crate's licence
expression with the lists in deny.toml. Crates must come from the registry or from this workspace. It needs no network once
`cargo fetch` has run, and takes well under a second.

usage: licences.py [--list]        --list prints every crate of the graph with its licence
"""

import json
import re
import sys
import tomllib

from common import ROOT, Problem, guarded, output_of

ROOT_CRATE = "pbxt-capi"
TOKEN = re.compile(r"\(|\)|[^\s()/]+|/")


def satisfied(expression, allowed):
    """Whether a licence expression (OR, AND, WITH, brackets; old style `A/B` means OR) can be met with the allowed licences."""
    tokens = [token.replace("/", "OR") for token in TOKEN.findall(expression)]

    def alternatives():
        met = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = conjunction() or met
        return met

    def conjunction():
        met = term()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = term() and met
        return met

    def term():
        token = tokens.pop(0)
        if token == "(":
            met = alternatives()
            tokens.pop(0)
            return met
        if tokens and tokens[0] == "WITH":
            token = f"{token} WITH {tokens[1]}"
            del tokens[:2]
        return token in allowed

    return alternatives()


def linked_packages(metadata, root=ROOT_CRATE):
    """Packages reachable from the plugin's core, or another crate, without test dependencies, sorted by name."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    start = next((identity for identity, package in packages.items() if package["name"] == root), None)
    if start is None:
        raise Problem(f"the workspace has no crate {root}: correct its name in scripts/.")
    reached, waiting = set(), [start]
    while waiting:
        identity = waiting.pop()
        if identity not in reached:
            reached.add(identity)
            deps = nodes[identity]["deps"]
            waiting += [dep["pkg"] for dep in deps if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
    return sorted((packages[identity] for identity in reached), key=lambda package: (package["name"], package["version"]))


def complaint(package, rules):
    """What is wrong with one package, or None."""
    name, licence, source = package["name"], package["license"], package["source"]
    banned = {entry["crate"]: entry["reason"] for entry in rules["bans"]["deny"]}
    if name in banned:
        return f"banned in deny.toml: {banned[name]}"
    if source is not None and not source.startswith("registry+"):
        return f"comes from {source}: only the registry and this workspace are allowed"
    if not licence:
        return "states no licence"
    extra = [entry["allow"] for entry in rules["licenses"]["exceptions"] if entry["crate"] == name]
    allowed = set(rules["licenses"]["allow"]).union(*extra)
    return None if satisfied(licence, allowed) else f"its licence `{licence}` is not in deny.toml's list"


def main():
    if sys.argv[1:] not in ([], ["--list"]):
        print(__doc__)
        return 0 if sys.argv[1:] == ["--help"] else 2
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    packages = {}
    for triple in rules["graph"]["targets"]:
        command = ["cargo", "metadata", "--format-version", "1", "--quiet", "--filter-platform", triple]
        packages |= {package["id"]: package for package in linked_packages(json.loads(output_of(command, cwd=ROOT)))}
    if sys.argv[1:]:
        for package in packages.values():
            print(f"{package['name']} {package['version']}: {package['license']}")
    found = [(package, complaint(package, rules)) for package in packages.values()]
    wrong = [f"{package['name']} {package['version']}: {text}" for package, text in found if text]
    if wrong:
        raise Problem("the plugin may not be linked with these crates (see deny.toml): " + "; ".join(wrong))
    print(f"licences: {len(packages)} crates in the plugin's graph, all usable with a GPL-2.0-only server")
    return 0


if __name__ == "__main__":
    guarded(main)
