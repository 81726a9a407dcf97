"""Selections of the server's own tests that are written for InnoDB or for no engine at all, and what it takes to run them with another one.

Why it exists: the suites main, binlog and rpl name InnoDB in their tests, so an engine that is the server's default is not tested by them.
Here the private tree's copy of a test has the engine's name replaced: in the test, in what it sources, in its options and in its
recorded result. Nothing else is changed, so a result still says what this server does with its own engine.

A selection has tests of one or several suites, and two kinds of them: `named` ones speak of InnoDB; `plain` ones create tables and speak of no engine, so they run with another default
engine and are otherwise untouched. Tests that speak of other engines only (MyISAM, Aria, MEMORY, ...) are not in it.
Rule: a file in the private tree is replaced, never written through its link (mtr_root.py).
"""

import re
from collections import namedtuple
from fnmatch import fnmatch

from mtr_root import replace_file

# parts: tests of one or several suites; formats: binary log formats that they are run in, or none.
Selection = namedtuple("Selection", "parts formats")
# suite: of the server; patterns: names of its tests.
Part = namedtuple("Part", "suite patterns")

TRANSACTIONS = (
    "*commit* *rollback* *savepoint* xa xa_* *_xa *trans* *read_only* *deadlock* *lock lock* *lock2 *locks flush_* *snapshot* mdl* "
    "*autocom* concurrent_innodb* unsafe_binlog_innodb partition_innodb_semi_consistent single_delete_update_innodb insert_innodb "
    "update_innodb delete_innodb multi_update_innodb long_unique_innodb sp-innodb innodb_mysql_sync cache_innodb"
).split()

# What of InnoDB's own tests is about foreign keys. The suites storage_engine and engines/iuds have a test each, which run with PBXT there; of
# engines/funcs none is about them.
FOREIGN_KEYS = [
    Part("main", ["*foreign*"]),
    Part("innodb", "*foreign* *fk* *fk_* add_constraint cascade_lock_wait update-cascade".split()),
    Part("gcol", ["*fk*"]),
    Part("vcol", ["*fk*"]),
    Part("versioning", ["foreign"]),
]

SELECTIONS = {
    "trx": Selection([Part("main", TRANSACTIONS)], ()),
    "binlog": Selection([Part("binlog", ["*"])], ("row", "mix")),
    "rpl": Selection([Part("rpl", ["*"])], ("row", "mix")),
    "fk": Selection(FOREIGN_KEYS, ()),
}

NAME = re.compile(r"(?<![/\w.-])innodb(?![/\w-]|\.\w)|(?<=\bgtid_slave_pos_)innodb\b", re.IGNORECASE)
# Servers of a test that are to be without the engine.
SWITCHED_OFF = re.compile(r"(?:(?<=-skip-)|(?<=-disable-))innodb(?![-_\w])")
# Settings that both engines have under names of their own.
SETTING = re.compile(r"innodb(?=[-_](?:lock[-_]wait[-_]timeout|flush[-_]log[-_]at[-_]trx[-_]commit)\b)", re.IGNORECASE)
OTHER_ENGINES = re.compile(r"\b(?:myisam|aria|memory|heap|archive|csv|blackhole|merge|mrg_myisam|federated|rocksdb|spider|s3)\b", re.IGNORECASE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
SOURCE = re.compile(r"^\s*(?:--)?\s*source\s+([^\s;$]+)", re.MULTILINE | re.IGNORECASE)
CREATES = re.compile(r"\bcreate\s+(?:or\s+replace\s+)?(?:temporary\s+)?table\b", re.IGNORECASE)
# Only InnoDB knows what these ask for.
ABOUT_INNODB = re.compile(r"have_innodb|innodb_page_size|innodb-page-size")

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
        asked = names & set(wanted) if wanted else any(fnmatch(path.stem, pattern) for pattern in part.patterns)
        kind = kind_of(with_sources(root, path).values()) if asked else None
        if kind:
            getattr(chosen, kind).append(path.stem)
    return chosen


def renamed(text, engine):
    """The text with another engine's name in place of InnoDB's; names in small letters stay small."""

    def name(found):
        return engine.lower() if found[0].islower() else engine.upper()

    for pattern in (SWITCHED_OFF, SETTING):
        text = pattern.sub(engine.lower(), text)
    return NAME.sub(name, text)


def replace_engine(root, suite, tests, engine):
    """Puts copies with another engine's name in place of the tests, their options and results, and of all that may be sourced: the
    names of sourced files can be in variables."""
    paths = set()
    tests_folder, results = folder_of(root, suite), results_of(root, suite)
    for test in tests:
        paths.update(with_sources(root, tests_folder / f"{test}.test"))
        paths.update(path for ending in ("opt", "cnf") for path in tests_folder.glob(f"{test}*.{ending}"))
        paths.update(path for ending in ("result", "rdiff") for path in results.glob(f"{test}[.,]*{ending}"))
    for folder in {tests_folder, tests_folder.parent / "include", root.tests / "include", *shared_folders(root)}:
        paths.update(path for ending in ("inc", "test") for path in folder.glob(f"*.{ending}") if ending == "inc" or folder.name == "include")
    for path in paths:
        old = read(path)
        new = renamed(old, engine)
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


def rename_default(root, suite, tests, engine):
    """In results of tests that name no engine, tables are shown with the default one's name."""
    for test in tests:
        for path in results_of(root, suite).glob(f"{test}[.,]*result"):
            old = read(path)
            new = old.replace("ENGINE=MyISAM", f"ENGINE={engine}").replace("engine=InnoDB", f"engine={engine}")
            if new != old:
                replace_file(path, new.encode("utf-8", errors="surrogateescape"))


def restrict_formats(root, selection, formats):
    """Leaves of a suite's combinations these binary log formats."""
    words = {"row": "row", "mix": "mixed"}
    if selection.formats:
        lines = "".join(f"[{name}]\nbinlog-format={words[name]}\n\n" for name in formats)
        for part in selection.parts:
            replace_file(folder_of(root, part.suite).parent / "combinations", lines.encode())
