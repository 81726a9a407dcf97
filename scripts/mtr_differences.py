"""What a test of the server prints otherwise with PBXT on purpose, as a whole: recorded, compared, and refused when anything else differs.

Why it exists: a test that ends at the first statement that is answered otherwise says nothing of what follows. So tests of a selection with
`past` go on after a failed statement (the driver's second --force), which leaves the whole of what they print, and the excuse is the whole difference.
A line of tests/mtr/deliberate.def gives the reason; the file here gives the extent.

What every test of a kind prints otherwise for one reason (REPAIR makes a copy, tables have no .ibd files) would fill these files and hide the rest:
tests/mtr/known_lines.def says such lines once, and they are left out of differences before these are recorded and compared.

Format: tests/mtr/differences/SUITE.TEST[,COMBINATION].diff has the lines that differ: `@ N` is the line of the recorded result at which they stand,
`-` a line that is expected, `+` one that is printed in its place. No line of what agrees is kept.
Rules: FE1 a test with such a file is excused only if it prints exactly this difference; FE2 and only if a line of deliberate.def gives the reason;
FE3 a known line is one that is the same everywhere, said with its sign, its whole text and the reason; a test that prints nothing else otherwise is excused.
"""

import re
from collections import namedtuple
from fnmatch import fnmatch

from common import ROOT, Problem

DIFFERENCES = ROOT / "tests" / "mtr" / "differences"
KNOWN_LINES = ROOT / "tests" / "mtr" / "known_lines.def"
LINES_MAX = 300  # a longer difference is not read by anybody, so it is not kept
HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
# What differs between two runs of the same test: places of a run, and numbers that count up while a server lives.
PRIVATE_ROOT = re.compile(r"/\S*?/(?:root-\w+/usr/share/mysql/mysql-test|pbxt-mtr-\w+)")
COUNTED = re.compile(r"(\b(?:transaction|connection|thread|row) )\d+")

# test: pattern of its name; line: what a whole line of a difference, sign and all, must match.
KnownLine = namedtuple("KnownLine", "test line reason")


def read_known_lines(path=KNOWN_LINES):
    """The lines of known_lines.def."""
    known = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" : ")]
        if len(parts) != 3 or parts[1][:1] not in ("-", "+"):
            raise Problem(f"{path}:{number}: not of the form `test pattern : + or - and the line, as a regular expression : reason`.")
        known.append(KnownLine(parts[0], re.compile(re.escape(parts[1][0]) + parts[1][1:]), parts[2]))
    return known


def without_known(name, lines, known):
    """A difference without known lines, and the reasons of those that were left out."""
    ours = [rule for rule in known if fnmatch(name.partition(" ")[0], rule.test)]
    kept, reasons, place = [], [], None
    for line in lines:
        rule = None if line.startswith("@") else next((rule for rule in ours if rule.line.fullmatch(line)), None)
        if line.startswith("@"):
            place = line
        elif rule:
            reasons.append(rule.reason)
        else:
            kept += [place, line] if place else [line]
            place = None
    return kept, list(dict.fromkeys(reasons))


def steady(line):
    """A printed line without what differs between two runs."""
    return COUNTED.sub(r"\1#", PRIVATE_ROOT.sub("TESTS", line))


def difference_of(report):
    """The lines that differ, read from the driver's report of a failed test; None if it does not have the whole difference."""
    found, at, inside = [], 0, False
    for line in report.splitlines():
        hunk = HUNK.match(line)
        if hunk:
            at, inside = int(hunk[1]), True
            begun = False
        elif not inside:
            continue
        elif line.startswith(" "):
            at, begun = at + 1, False
        elif line[:1] in ("-", "+"):
            if not begun:
                found.append(f"@ {at}")
                begun = True
            found.append(steady(line))
            at += line.startswith("-")
        elif not line.startswith("\\"):
            return found if line.startswith(("mysqltest: Result", "Result ")) or not line else None
    return None


def path_of(name):
    """Where the difference of a test with its combination is kept."""
    test, _, combination = name.partition(" ")
    return DIFFERENCES / (test.replace("/", "-") + (f",{combination}" if combination else "") + ".diff")


def recorded(name):
    """The recorded difference of a test, or None."""
    path = path_of(name)
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else None


def record(name, report, known):
    """Keeps the difference of a failed test without known lines; a sentence that says what was done."""
    lines = difference_of(report)
    if lines is None:
        return f"{name}: the report has no whole difference; is it the end of a test that was stopped?"
    lines, _ = without_known(name, lines, known)
    if not lines:
        return f"{name}: nothing differs but known lines, nothing to record."
    if len(lines) > LINES_MAX:
        return f"{name}: {len(lines)} lines differ, more than {LINES_MAX}: not recorded."
    DIFFERENCES.mkdir(parents=True, exist_ok=True)
    path_of(name).write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    return f"{name}: {len(lines)} lines recorded; read them."
