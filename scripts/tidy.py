#!/usr/bin/env python3
"""Checks the house rules that no compiler checks; docs/style.md says why each one is there.

  length      no source file over 800 lines, no Rust function over 70 (code lines, without its comments)
  header      every Rust file opens with `//!`, every script with a docstring or comment that says what it is
  words       nothing unfinished (leftover markers, debug prints, ignored tests) and nothing that belongs to one machine
  synonyms    one word per thing in the crates, see docs/glossary.md
  floors      only crate io touches files, the clock and threads; crates import downwards only
  crates      every outside crate has its line in docs/dependencies.md
  locks       the lock file of bench/embedded has what the crates ask for today
  links       relative links in Markdown files lead somewhere
  rules       a rule number that code cites is defined in docs/, and a test that a document names exists
  features    every row of docs/features.md names the test that shows it

usage: tidy.py [FILE ...]           without arguments: every file that git knows
"""

import functools
import re
import sys
import tomllib
from pathlib import Path

from common import ROOT, guarded, output_of

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
FEATURES = Path("docs/features.md")
SOURCES = {".rs", ".cc", ".h", ".py", ".sh", ".c"}

# Assembled from halves, so that this file does not find itself.
UNFINISHED = re.compile("|".join([r"\bto" + r"do!", r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b", r"\bdb" + r"g!\(",
                                  r"\bunimple" + r"mented!\(", r"#\[ign" + r"ore", r"\bfor n" + r"ow\b"]))
OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(?:wo" + r"rk|fa" + r"rm)/")
# Words of other systems for things that have a name here.
SYNONYMS = {
    "trx": "txn",
    "xact": "txn",
    "vacuum": "sweep",
    "purge": "sweep",
    "purged": "swept",
    "journal": "log",
    "latch_lock": "latch",
    "readview": "snapshot",
    "read_view": "snapshot",
}
WORD = re.compile(r"\b(" + "|".join(SYNONYMS) + r")\b", re.IGNORECASE)

# Which crates a crate may name; what is missing here may name nothing but base.
FLOORS = {
    "base": [],
    "io": ["base"],
    "segment": ["io", "base"],
    "txlog": ["segment", "io", "base"],
    "rows": ["base"],
    "rowmap": ["base"],
    "index": ["segment", "base"],
    "txn": ["base"],
    "engine": ["txlog", "rows", "rowmap", "index", "txn", "segment", "io", "base"],
    "capi": ["engine", "rows", "txn", "io", "base"],
    "cli": ["engine", "txlog", "rows", "index", "segment", "io", "base"],
    "testkit": ["io", "base"],
    "sim": ["engine", "segment", "rows", "txn", "testkit", "io", "base"],
    "fuzz": ["capi", "sim", "engine", "txlog", "rows", "index", "txn", "segment", "testkit", "io", "base"],
    "paths": ["engine", "txn", "rows", "segment", "testkit", "io", "base"],
    "embedded": ["engine", "rows", "io"],  # bench/embedded, a workspace of its own
}
OUTSIDE_WORLD = re.compile(r"\bstd::(?:fs|net|process)\b|\bthread::(?:spawn|Builder)\b|\b(?:Instant|SystemTime)::now\b")
WITH_OUTSIDE_WORLD = {"io", "testkit", "sim", "fuzz", "paths", "cli"}

FUNCTION = re.compile(r"^(?P<indent>\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (?P<name>\w+)")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
# A rule is defined as a table row or in bold, and cited in comments and at the start of an assertion's text.
RULE_DEFINED = re.compile(r"^(?:\| ([DTXFKCA]\d{1,2}) \||(?:- )?\*\*([DTXFKCA]\d{1,2})(?: [^*]*)?\*\*)")
RULE_CITED = re.compile(r"\b([DTXFKCA](?:[1-3]\d|[1-9]))\b")
RULE_ASSERTED = re.compile(r'"([DTXFKCA]\d{1,2}): ')
TEST_NAMED = re.compile(r"`((?:[a-z0-9]+_){3,}[a-z0-9]+)`")
TEST_DEFINED = re.compile(r"\b(?:fn|def) (\w+)")
FEATURE_TEST = re.compile(r"`((?:test_)?\w+)`")
MERGE_MARK = re.compile(r"^(?:<{7}|>{7}) ")
TEST_MODULE = re.compile(r"^\s*#\[cfg\((?:all\()?test\b")


def tracked_files():
    """Every file under version control, as paths relative to the root."""
    return [Path(name) for name in output_of(["git", "ls-files"], cwd=ROOT).splitlines() if (ROOT / name).is_file()]


def is_test(path):
    """Test code may use what product code may not."""
    return "tests" in path.parts or "benches" in path.parts or "examples" in path.parts or path.stem.endswith(("tests", "loom"))


def check_length(path, lines):
    """Files and Rust functions that are too long to be read in one go."""
    if len(lines) > FILE_LINES_MAX:
        yield 1, f"{len(lines)} lines, more than {FILE_LINES_MAX}: split the file by verb or noun"
    if path.suffix == ".rs":
        for number, name, length in functions(lines):
            if length > FUNCTION_LINES_MAX:
                yield number, f"function {name} has {length} lines, more than {FUNCTION_LINES_MAX}: give its steps names"


def functions(lines):
    """(line number, name, code lines) of the functions of a Rust file; formatting puts the closing brace below `fn`."""
    opened = None
    for number, line in enumerate(lines, 1):
        if opened is None:
            found = FUNCTION.match(line)
            if found and not line.rstrip().endswith((";", "}")):
                opened = (number, found["name"], found["indent"] + "}")
        elif line.rstrip() == opened[2]:
            body = [text for text in lines[opened[0] : number - 1] if text.strip() and not text.strip().startswith("//")]
            yield opened[0], opened[1], len(body)
            opened = None
        elif line.startswith(opened[2][:-1]) and line.rstrip().endswith(";") and number - opened[0] < 12 and "{" not in "".join(
            lines[opened[0] - 1 : number]
        ):
            opened = None  # a declaration in a trait: it has no body


def check_header(path, lines):
    """What a file is must stand at its top."""
    first = next((line for line in lines if line.strip() and not line.startswith(("#!", "#!["))), "")
    if path.suffix == ".rs" and not first.startswith("//!"):
        yield 1, "no module header: say in `//!` what the file is and why it exists"
    if path.suffix in (".cc", ".h", ".c") and not first.startswith(("/*", "//")):
        yield 1, "no header comment: say what the file is and why it exists"
    if path.suffix == ".py" and len(lines) > 3 and not first.startswith('"""'):
        yield 1, "no docstring at the top: say what the script does"


def check_words(path, lines):
    """Unfinished code, marks of a merge and traces of one machine."""
    for number, line in enumerate(lines, 1):
        found = UNFINISHED.search(line)
        if found and path.suffix in SOURCES:
            yield number, f"`{found[0]}`: finish it or leave it out"
        if MERGE_MARK.match(line):
            yield number, "a mark of a merge: take one side, or both"
        if OF_ONE_MACHINE.search(line):
            yield number, "a path of one machine: make it relative to the repository"


def check_synonyms(path, lines):
    """One word per thing, in the crates; the plugin has to use the server's words too."""
    if path.suffix == ".rs" and path.parts[0] == "crates":
        for number, line in enumerate(lines, 1):
            found = WORD.search(line)
            if found:
                yield number, f"`{found[0]}`: the glossary says {SYNONYMS[found[0].lower()]}"


def check_floors(path, lines):
    """Who may touch the outside world, and who may name whom."""
    if path.suffix != ".rs" or path.parts[0] != "crates" or is_test(path):
        return
    crate = path.parts[1]
    for number, line in enumerate(lines, 1):
        if TEST_MODULE.match(line):
            return  # the rest of the file is tests
        code = line.split("//")[0]
        found = OUTSIDE_WORLD.search(code)
        if found and crate not in WITH_OUTSIDE_WORLD:
            yield number, f"`{found[0]}` outside crate io: go through pbxt_io, so that tests can simulate it"


def check_manifest(path, lines):
    """Dependencies between floors, and the list of outside crates."""
    if path.name != "Cargo.toml" or len(path.parts) != 3:
        return
    listed = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    manifest = tomllib.loads("\n".join(lines))
    crate = path.parts[1]
    allowed = {"pbxt" if name == "engine" else f"pbxt-{name}" for name in FLOORS.get(crate, ["base"])}
    tables = [manifest, *manifest.get("target", {}).values()]
    for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
        for name in (name for table in tables for name in table.get(kind, {})):
            ours = name == "pbxt" or name.startswith("pbxt-")
            if ours and kind == "dependencies" and name not in allowed:
                yield 1, f"crate {crate} may not depend on {name}: arrows point down only"
            if not ours and f"`{name}`" not in listed:
                yield 1, f"{name} is not in docs/dependencies.md: add a line that says why it is needed and its licence"


def check_lock(path, lines):
    """A lock file of another workspace: what our crates need must be in it, or `--locked` refuses to build. Cargo looks only when that is built."""
    if path.name != "Cargo.lock" or len(path.parts) == 1:
        return
    for package in tomllib.loads("\n".join(lines))["package"]:
        crate = package["name"].removeprefix("pbxt-")
        folder = ROOT / "crates" / ("engine" if crate == "pbxt" else crate)
        if "source" in package or not folder.is_dir():
            continue
        manifest = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
        tables = [manifest, *manifest.get("target", {}).values()]
        wanted = {name for table in tables for name, how in table.get("dependencies", {}).items() if isinstance(how, str) or not how.get("optional")}
        locked = {entry.split()[0] for entry in package.get("dependencies", [])}
        for name in sorted(wanted - locked):
            yield 1, f"{package['name']} needs {name} and the lock file does not know: run `cargo metadata --manifest-path {path.parent}/Cargo.toml` once"


def check_links(path, lines):
    """Relative links of Markdown files."""
    if path.suffix != ".md":
        return
    for number, line in enumerate(lines, 1):
        for target in LINK.findall(line):
            if not (ROOT / path.parent / target).exists():
                yield number, f"link to {target}, which does not exist"


@functools.cache
def defined_rules():
    """Numbers of the rules that the documents define."""
    found = set()
    for path in (ROOT / "docs").rglob("*.md"):
        for line in path.read_text(encoding="utf-8").splitlines():
            rule = RULE_DEFINED.match(line)
            if rule:
                found.add(rule[1] or rule[2])
    return found


@functools.cache
def defined_functions():
    """Names of all functions, tests among them."""
    sources = [path for path in tracked_files() if path.suffix in (".rs", ".py", ".cc", ".h")]
    return {name for path in sources for name in TEST_DEFINED.findall((ROOT / path).read_text(encoding="utf-8"))}


def check_rules(path, lines):
    """Numbers that are cited, and tests that are named."""
    if path.suffix == ".rs":
        for number, line in enumerate(lines, 1):
            cited = RULE_CITED.findall(line.partition("//")[2]) + RULE_ASSERTED.findall(line)
            for rule in cited:
                if rule not in defined_rules():
                    yield number, f"rule {rule} is cited and no document defines it"
    if path.suffix == ".md" and path.parts[0] == "docs":
        for number, line in enumerate(lines, 1):
            for name in TEST_NAMED.findall(line):
                if not name.startswith("pbxt_") and name not in defined_functions():
                    yield number, f"there is no test or function {name}"


def check_features(path, lines):
    """A feature that no test shows is a claim: the last cell of each row names one, and all names are tests."""
    if path != FEATURES:
        return
    for number, line in enumerate(lines, 1):
        if not line.startswith("| ") or line.startswith("| feature |"):
            continue
        names = FEATURE_TEST.findall(line.rstrip("| ").rpartition("|")[2])
        if not names:
            yield number, "the last cell names no test: which one shows what the row says?"
        for name in names:
            if name not in defined_functions():
                yield number, f"there is no test {name}"


CHECKS = (
    check_length,
    check_header,
    check_words,
    check_synonyms,
    check_floors,
    check_manifest,
    check_lock,
    check_links,
    check_rules,
    check_features,
)


def complaints(path):
    """(line number, sentence) for one file; files that are not text have none."""
    try:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    for check in CHECKS:
        if path.suffix in SOURCES or check in (check_words, check_manifest, check_lock, check_links, check_rules, check_features):
            yield from check(path, lines)


def main():
    if "--help" in sys.argv[1:]:
        print(__doc__)
        return 0
    files = [Path(name).resolve().relative_to(ROOT) for name in sys.argv[1:]] or tracked_files()
    count = 0
    for path in files:
        for number, sentence in complaints(path):
            count += 1
            print(f"{path}:{number}: {sentence}")
    print(f"tidy: {len(files)} files, {count} complaints")
    return 1 if count else 0


if __name__ == "__main__":
    guarded(main)
