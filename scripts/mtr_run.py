"""One run of the server's test driver (MTR) in a private root: start it, show progress, read what it printed.

A test's verdict is one line of MTR's output; verdicts are read from there and nowhere else. A test that MTR repeats counts as its
last verdict; what is printed between the verdict of a failed test and the next verdict is its text. The whole output, with the differences of failed tests, is kept under build/mtr for reading.
"""

import os
import re
import subprocess
import sys
from collections import namedtuple

from common import Problem
from mtr_root import WORK

VERDICT = re.compile(
    r"^(?P<suite>[\w/]+)(?:-(?P<overlay>\w+))?\.(?P<test>\S+)\s+(?:'(?P<combination>[^']*)'\s+)?(?:w\d+\s+)?"
    r"\[ (?P<word>pass|fail|skipped|disabled|retry-pass|retry-fail|exp-fail) \]\s*(?P<rest>.*)$"
)
WORDS = {"pass": "passed", "retry-pass": "passed", "fail": "failed", "retry-fail": "failed", "exp-fail": "failed"}

Verdict = namedtuple("Verdict", "suite overlay test combination word reason text", defaults=[""])

# The driver's summary, which it prints only when it is through.
LAST_WORDS = "The servers were restarted"
# Lines of a failed test's report that are kept: those of replicas begin with the state of each server.
TEXT_LINES = 20000  # a difference whose lines are nearly all known ones may be long


class DriverStopped(Problem):
    """The driver ended before it was through."""

    def __init__(self, verdicts, text):
        super().__init__(text)
        self.verdicts = list(verdicts)


def read_verdict(line):
    """The verdict that a line of output states, or None."""
    found = VERDICT.match(line)
    if not found:
        return None
    word = WORDS.get(found["word"], "skipped")
    reason = found["rest"] if word == "skipped" else ""
    return Verdict(found["suite"], found["overlay"] or "", found["test"], found["combination"] or "", word, reason.strip())


def run_mtr(root, name, arguments, tests=(), parallel=0, minutes=5):
    """Runs MTR, a test for at most so many minutes, and answers {(suite, overlay, test, combination): Verdict}; `name` is the file name of the kept output."""
    command = [
        "perl",
        "mariadb-test-run.pl",
        f"--vardir={root.var}",
        f"--parallel={parallel or os.cpu_count()}",
        "--force",
        "--max-test-fail=0",
        "--retry=1",
        "--nocheck-testcases",
        f"--testcase-timeout={minutes}",
        "--suite-timeout=120",
        *arguments,
        *tests,
    ]
    log_path = WORK / f"{name}.log"
    verdicts = {}
    failed, text, ended = None, [], False
    with open(log_path, "w", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, cwd=root.tests, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for raw in process.stdout:
            line = raw.decode("utf-8", errors="replace")
            log.write(line)
            ended = ended or line.startswith(LAST_WORDS)
            verdict = read_verdict(line.rstrip())
            if verdict:
                keep_text(verdicts, failed, text)
                verdicts[verdict[:4]] = verdict
                failed, text = (verdict[:4] if verdict.word == "failed" else None), []
                show_progress(name, verdicts, verdict)
            elif failed and len(text) < TEXT_LINES:
                text.append(line)
        process.wait()
    keep_text(verdicts, failed, text)
    if not verdicts:
        raise Problem(f"the server's test driver ran no test: see the end of {log_path}.")
    if not ended:
        raise DriverStopped(
            verdicts.values(),
            f"the server's test driver stopped after {len(verdicts)} tests with exit status {process.returncode}, "
            f"before it was through: see the end of {log_path}, and run it again.",
        )
    return verdicts


def keep_text(verdicts, failed, text):
    """Joins a failed verdict and what was printed behind it."""
    if failed:
        verdicts[failed] = verdicts[failed]._replace(text="".join(text))


def show_progress(name, verdicts, last):
    """One line that rewrites itself, on a terminal only."""
    if sys.stderr.isatty():
        text = f"{name}: {len(verdicts)} tests, last {last.suite}.{last.test}"[:100]
        end = "\r"
        print(f"\r{text:<100}", end=end, file=sys.stderr, flush=True)
