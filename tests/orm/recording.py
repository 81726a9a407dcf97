"""Writes the verdict of each test of a foreign suite as a line of JSON; loaded by the suites' own runners.

Why it exists: the suites print their results in two ways, none of them made to be read again, and a run of an hour should be
seen while it goes on. Format of a line: {"test": id, "verdict": "passed" | "failed" | "skipped", "text": report or reason}. A test may
have several lines, of its subtests or of what comes before and after it: the worst one counts.
The file is named by ORM_RECORD in the environment. This module is a plugin of pytest (`-p recording`) and has a result class for suites
of unittest.
"""

import json
import os
import unittest

TEXT_MAX = 6000  # the end of a report says what was wrong


def record(test, verdict, text=""):
    """Adds one line."""
    with open(os.environ["ORM_RECORD"], "a", encoding="utf-8") as lines:
        lines.write(json.dumps({"test": test, "verdict": verdict, "text": text[-TEXT_MAX:]}) + "\n")


def pytest_runtest_logreport(report):
    """Called by pytest for the parts of each test: setup, call, teardown."""
    if report.failed:
        record(report.nodeid, "failed", report.longreprtext)
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        record(report.nodeid, "skipped", reason)
    elif report.when == "call":
        record(report.nodeid, "passed")


def pytest_collectreport(report):
    """A file that cannot be loaded is a failed test."""
    if report.failed:
        record(report.nodeid, "failed", report.longreprtext)


class RecordingResult(unittest.TextTestResult):
    """unittest's result that writes each verdict down."""

    def _failed(self, test, error):
        record(test.id(), "failed", self._exc_info_to_string(error, test))

    def addSuccess(self, test):
        super().addSuccess(test)
        record(test.id(), "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        record(test.id(), "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        record(test.id(), "skipped", "the suite expects it to fail")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        record(test.id(), "failed", "the suite expects it to fail, and it passed")
