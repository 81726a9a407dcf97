"""What the demo shows: headings, SQL steps, progress bars, the table of proofs.

Rule: every claim goes through `Screen.prove`, so the exit status and the table at the end can never disagree.
"""

import sys
import time

from tqdm import tqdm

WIDTH = 110


class Screen:
    """Prints the run and remembers each proof with its outcome."""

    def __init__(self):
        self.proofs = []
        self.timings = []
        self.begin = time.monotonic()
        self.colour = sys.stdout.isatty()

    def _paint(self, text, code):
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def heading(self, text):
        """Begins a part."""
        clock = f"{time.monotonic() - self.begin:5.1f} s"
        print(f"\n{self._paint(f'{clock}  {text}', '1;36')}", flush=True)

    def say(self, text):
        """One line of explanation."""
        print(f"  {text}", flush=True)

    def step(self, who, statement, answer):
        """One statement of a session and what came back, as a reader of the test drive would see it."""
        shown = " ".join(statement.split())
        print(f"  {self._paint(f'{who:>9}>', '1')} {shown[:84]:84}  {self._paint(answer, '33')}", flush=True)

    def prove(self, name, holds, detail=""):
        """Records one claim; `detail` says what was seen."""
        self.proofs.append((name, bool(holds), str(detail)))
        mark = self._paint("ok", "32") if holds else self._paint("FAILED", "1;31")
        print(f"  [{mark}] {name}{': ' + str(detail) if detail else ''}", flush=True)
        return holds

    def equal(self, name, seen, expected):
        """A claim that two values are the same; both are shown when they are not."""
        holds = seen == expected
        return self.prove(name, holds, brief(seen) if holds else f"seen {brief(seen)}, expected {brief(expected)}")

    def progress(self, total, text, unit="rows"):
        """A progress bar that leaves nothing behind; silent when the output is not a terminal."""
        return tqdm(total=total, desc=f"  {text}", unit=f" {unit}", leave=False, ncols=WIDTH, disable=None, file=sys.stdout)

    def table(self, title, headings, rows, left=1):
        """A table with columns as wide as they need; the first `left` columns are text, the others numbers."""
        cells = [[str(cell) for cell in row] for row in rows]
        widths = [max(len(line[i]) for line in [headings, *cells]) for i in range(len(headings))]
        print(f"\n{self._paint(title, '1')}")
        for line in [headings, ["-" * width for width in widths], *cells]:
            words = (cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
            print("  " + "  ".join(words).rstrip())
        sys.stdout.flush()

    def failed(self):
        """Names of the proofs that did not hold."""
        return [name for name, holds, _ in self.proofs if not holds]

    def summary(self):
        """The table of proofs and the verdict; returns the exit status."""
        rows = [(name, "ok" if holds else "FAILED", detail[:56]) for name, holds, detail in self.proofs]
        self.table("Proofs", ["what was claimed", "", "what was seen"], rows, left=3)
        seconds = time.monotonic() - self.begin
        bad = self.failed()
        verdict = f"{len(bad)} of {len(self.proofs)} proofs FAILED: {'; '.join(bad)}" if bad else f"all {len(rows)} proofs hold"
        print(f"\n{self._paint(verdict, '1;31' if bad else '1;32')}, {seconds:.0f} s in total")
        return 1 if bad else 0


def plain(value):
    """Numbers and texts without Python's decoration."""
    if isinstance(value, (list, tuple, set)):
        return ", ".join(plain(each) if not isinstance(each, tuple) else f"({plain(each)})" for each in value)
    return str(value)


def brief(value):
    """A value short enough for one line."""
    text = plain(value)
    return text if len(text) <= 90 else text[:87] + "..."
