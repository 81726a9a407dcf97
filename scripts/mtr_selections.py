"""Selections of the server's own tests that are written for InnoDB or for no engine at all, and what it takes to run them with another one.

Why it exists: the suites main, binlog and rpl name InnoDB in their tests, so an engine that is the server's default is not tested by them.
Here the private tree's copy of a test has the engine's name replaced: in the test, in what it sources, in its options and in its
recorded result. Nothing else is changed, so a result still says what this server does with its own engine.

A selection (mtr_lists.py) has tests of one or several suites, and two kinds of them: `named` ones speak of InnoDB; `plain` ones create tables and speak of no engine, so they run with
another default engine and are otherwise untouched. Tests that speak of other engines only (MyISAM, Aria, MEMORY, ...) are not in it.
Rule: a file in the private tree is replaced, never written through its link (mtr_root.py).
"""

import re
from collections import namedtuple
from fnmatch import fnmatch

from mtr_root import replace_file

NAME = re.compile(
    r"(?<![/\w.-])innodb(?![/\w-]|\.\w|\s+(?:status|mutex)\b|\s+\d+ transactions not purged)|(?<=\bgtid_slave_pos_)innodb\b", re.IGNORECASE
)
# Servers of a test that are to be without the engine.
SWITCHED_OFF = re.compile(r"(?:(?<=-skip-)|(?<=-disable-))innodb(?![-_\w])")
# Settings that both engines have under names of their own.
SETTING = re.compile(r"innodb(?=[-_](?:lock[-_]wait[-_]timeout|flush[-_]log[-_]at[-_]trx[-_]commit)\b)", re.IGNORECASE)
# What of InnoDB's something of PBXT's stands for: a setting, and a table that tests count waiting transactions in.
IN_PLACE = (
    (re.compile(r"\binnodb[-_]snapshot[-_]isolation=(?:ON|1)\b", re.IGNORECASE), "pbxt_conflict_mode=ERROR"),
    (re.compile(r"(?<=information_schema\.)innodb_lock_waits\b", re.IGNORECASE), "pbxt_lock_waits"),
)
OTHER_ENGINES = re.compile(r"\b(?:myisam|aria|memory|heap|archive|csv|blackhole|merge|mrg_myisam|federated|rocksdb|spider|s3)\b", re.IGNORECASE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
SOURCE = re.compile(r"^\s*(?:--)?\s*source\s+([^\s;$]+)", re.MULTILINE | re.IGNORECASE)
CREATES = re.compile(r"\bcreate\s+(?:or\s+replace\s+)?(?:temporary\s+)?table\b", re.IGNORECASE)
# How a table is altered is left to the engine, so that what follows is tested in any case.
ALTERED_HOW = re.compile(r"\b(algorithm\s*=\s*)(?:inplace|instant|nocopy)\b|\b(lock\s*=\s*)(?:none|shared)\b", re.IGNORECASE)
# A statement of a test behind the errors that it may give, and one of a result before the error that it gave.
TO_FAIL = re.compile(r"(^--error[^\n]*\n[^;]*;|^[^\n]*\nERROR [^\n]*)", re.MULTILINE | re.IGNORECASE)
# Combinations of a test: each section runs it once, with the options that follow; many choose a default engine.
SECTION = re.compile(r"^\[(\w+)\][ \t]*$", re.MULTILINE)
DEFAULT_ENGINE = re.compile(r"^(?:--)?default[-_]storage[-_]engine=(\w+)[ \t]*$", re.MULTILINE | re.IGNORECASE)
# Of InnoDB's page sizes and row formats, which mean nothing to another engine, all but the default.
OF_INNODB_ALONE = {"4k", "8k", "32k", "64k", "redundant", "compact"}

Chosen = namedtuple("Chosen", "named plain")


def read(path):
    """A test file's text; bytes that are no text keep their value."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def folder_of(root, suite):
    """Folder of a suite's tests in the private tree."""
    suite_folder = root.tests / "suite" / suite
    if suite == "main":
        return root.tests / "main"
    return suite_folder / "t" if (suite_folder / "t").is_dir() else suite_folder


def results_of(root, suite):
    """Folder of a suite's recorded results."""
    folder = folder_of(root, suite)
    return folder.parent / "r" if folder.name == "t" else folder


def with_sources(root, path, known=None):
    """{path: text} of a test and of all that it sources, as far as the names stand there."""
    known = {} if known is None else known
    if path in known:
        return known
    known[path] = read(path)
    for name in SOURCE.findall(known[path]):
        for place in (root.tests / name, path.parent / name):
            if place.is_file() and not place.name.startswith("have_"):
                with_sources(root, place, known)
                break
    return known


def kind_of(texts):
    """`named`, `plain`, or None for a test that is not ours to run."""
    text = COMMENT.sub("", "\n".join(texts))
    if NAME.search(text):
        return "named"
    if not CREATES.search(text) or OTHER_ENGINES.search(text):
        return None
    return "plain"


def choose(root, part, wanted=()):
    """The tests of a part of a selection by kind; `wanted` leaves only those, by name or with the suite before it."""
    chosen = Chosen([], [])
    for path in sorted(folder_of(root, part.suite).glob("*.test")):
        names = {path.stem, f"{part.suite}.{path.stem}"}
        asked = names & set(wanted) if wanted else matches(path.stem, part.patterns) and not matches(path.stem, part.but)
        kind = kind_of(with_sources(root, path).values()) if asked else None
        if asked and not kind and path.stem in part.also:
            kind = "plain"
        if kind:
            getattr(chosen, kind).append(path.stem)
    return chosen


def matches(name, patterns):
    """True if a name fits one of the patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)


def sections_of(text):
    """(name, text) of the sections of a file of combinations."""
    found = list(SECTION.finditer(text))
    ends = [section.start() for section in found[1:]] + [len(text)]
    return [(section[1], text[section.start() : end]) for section, end in zip(found, ends)]


def chosen_combinations(text, engine):
    """Combinations without those that choose another engine than InnoDB, and with the engine in its place."""
    kept = []
    for name, section in sections_of(text):
        default = DEFAULT_ENGINE.search(section)
        if default and default[1].lower() != "innodb":
            continue
        if engine == "innodb" or name.lower() not in OF_INNODB_ALONE:
            kept.append(DEFAULT_ENGINE.sub(f"default-storage-engine={engine}", section))
    return "".join(kept)


def replace_combinations(root, engine):
    """The same for all files of combinations: suites source each other's."""
    for path in sorted([*(root.tests / "suite").rglob("*.combinations"), *(root.tests / "include").glob("*.combinations")]):
        old = read(path)
        new = chosen_combinations(old, engine)
        if new != old:
            replace_file(path, new.encode())


def renamed(text, engine):
    """The text with another engine's name in place of InnoDB's; names in small letters stay small."""

    def name(found):
        return engine.lower() if found[0].islower() else engine.upper()

    for pattern in (SWITCHED_OFF, SETTING):
        text = pattern.sub(engine.lower(), text)
    if engine.lower() == "pbxt":
        for pattern, ours in IN_PLACE:
            text = pattern.sub(ours, text)
    return NAME.sub(name, text)


def altered_by_default(text):
    """The text with ALTER statements that leave algorithm and lock to the engine, but for those that are to fail for it."""
    parts = TO_FAIL.split(text)  # every second one is such a statement
    parts[::2] = [ALTERED_HOW.sub(lambda found: (found[1] or found[2]) + "DEFAULT", part) for part in parts[::2]]
    return "".join(parts)


def replace_engine(root, suite, tests, engine, change=str):
    """Puts copies with another engine's name, and with one more `change`, in place of the tests, their options and results, and of all that
    may be sourced: the names of sourced files can be in variables."""
    paths = set()
    tests_folder, results = folder_of(root, suite), results_of(root, suite)
    for test in tests:
        paths.update(with_sources(root, tests_folder / f"{test}.test"))
        paths.update(path for ending in ("opt", "cnf") for path in tests_folder.glob(f"{test}*.{ending}"))
        paths.update(path for ending in ("result", "rdiff") for path in results.glob(f"{test}[.,]*{ending}"))
    for folder in {tests_folder, *(tests_folder.parent / name for name in ("include", "inc")), root.tests / "include", *shared_folders(root)}:
        paths.update(path for ending in ("inc", "test") for path in folder.glob(f"*.{ending}") if ending == "inc" or folder.name == "include")
    for path in paths:
        old = read(path)
        new = change(renamed(old, engine))
        if new != old or path.suffix == ".result":  # patch, which applies .rdiff files, refuses to read through links
            replace_file(path, new.encode("utf-8", errors="surrogateescape"))


def copy_results(root, suite, tests):
    """Puts copies in place of links to results, as they are: the driver applies .rdiff files with patch, which refuses to read through links."""
    for test in tests:
        for path in results_of(root, suite).glob(f"{test}[.,]*result"):
            replace_file(path, path.read_bytes())


def shared_folders(root):
    """Folders with what the suites of this file source of each other."""
    return [root.tests / "suite" / suite / folder for suite in ("binlog", "rpl") for folder in ("t", "include")]


def shown_with(line, engine):
    """A line of SHOW CREATE with another engine; partitions have blanks around the sign."""
    line = line.replace("ENGINE=MyISAM", f"ENGINE={engine}").replace("ENGINE = MyISAM", f"ENGINE = {engine}")
    return line.replace("engine=InnoDB", f"engine={engine}").replace(") ENGINE=InnoDB ", f") ENGINE={engine} ")


def rename_default(root, suite, tests, engine):
    """In results of tests that name no engine, tables are shown with the default one's name. Lines that the test itself has are echoed ones."""
    for test in tests:
        echoed = set(read(folder_of(root, suite) / f"{test}.test").splitlines())
        for path in results_of(root, suite).glob(f"{test}[.,]*result"):
            old = read(path)
            new = "".join(line if line.rstrip("\n") in echoed else shown_with(line, engine) for line in old.splitlines(keepends=True))
            if new != old:
                replace_file(path, new.encode("utf-8", errors="surrogateescape"))


def restrict_formats(root, selection, formats):
    """Leaves of a suite's combinations these binary log formats."""
    words = {"row": "row", "mix": "mixed"}
    if selection.formats:
        lines = "".join(f"[{name}]\nbinlog-format={words[name]}\n\n" for name in formats)
        for part in selection.parts:
            replace_file(folder_of(root, part.suite).parent / "combinations", lines.encode())
