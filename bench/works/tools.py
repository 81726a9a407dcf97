"""A work that a program of its own does: it is started as a child, and what it wrote as JSON becomes figures.

Why it exists: bench/seed003 and bench/tpcc run by themselves too; the report must not have a second version of what they do. A program that
ends with another status than 0 has failed; what it measured before counts all the same.
"""

import json
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from bench.works.base import Work
from common import Problem

BENCH = Path(__file__).resolve().parents[1]


class Tool(Work):
    """A heading of the report whose figures come from a program in bench/."""

    tool = True
    program = ""  # in bench/

    def present(self):
        """Whether this tree has the program."""
        return (BENCH / self.program).exists()

    def arguments(self):
        """Its command line, without its name."""
        raise NotImplementedError

    def take(self, output, runner):
        """Puts what the program printed or wrote into the runner's figures."""
        raise NotImplementedError

    def run_tool(self, runner):
        """Runs the program, shows what it says, and takes its figures."""
        if not self.present():
            return
        status, output = self.start([sys.executable, str(BENCH / self.program), *self.arguments()])
        try:
            self.take(output, runner)
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            runner.fail(f"{self.name}: what bench/{self.program} wrote cannot be read ({type(error).__name__}: {error})")
        if status != 0:
            reasons = failures_in(output) or [f"it ended with status {status}; its last words: {output.strip()[-300:]}"]
            for reason in reasons:
                runner.fail(f"{self.name} (bench/{self.program}): {reason}")

    def note(self, found, runner):
        """Machine and settings, as the program kept them."""
        for name, value in found["facts"].items():
            if name.startswith("settings of "):
                runner.settings_used[f"{name.removeprefix('settings of ')} ({self.name})"] = value
        if not runner.facts:
            runner.facts = {name: value for name, value in found["facts"].items() if isinstance(value, str) and not name.startswith("settings of ")}

    @staticmethod
    def start(command):
        """(status, standard output) of a child whose lines are shown as they come; it ends with us."""
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=None, text=True, errors="replace") as child:
            try:
                for line in child.stdout:
                    lines.append(line)
                    if not line.startswith("{"):  # figures for programs
                        tqdm.write(f"  {line.rstrip()}", file=sys.stdout)
                        sys.stdout.flush()
                child.wait()
            finally:
                if child.poll() is None:
                    child.terminate()  # it stops its servers itself
                    child.wait(330)
        return child.returncode, "".join(lines)


def failures_in(output):
    """The sentences behind `failed:`, as bench/record.py prints them."""
    lines = iter(output.splitlines())
    if not any(line.strip() == "failed:" for line in lines):
        return []
    return [line.strip()[2:] for line in lines if line.strip().startswith("- ")]


def kept_json(output):
    """The JSON document of a tool that ends with bench/record.py."""
    line = next((line for line in output.splitlines() if line.startswith("kept: ")), None)
    if line is None:
        raise Problem("the tool kept no results.")
    path = Path(line.removeprefix("kept: ").removesuffix(" and .json")).with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8"))
