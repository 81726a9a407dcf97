#!/usr/bin/env python3
"""Counts the instructions of the engine's hot paths under valgrind and compares them with what is recorded.

Why it exists: on a machine that does other things too, a statement may get a tenth dearer without anyone seeing it in times. Counted
instructions repeat to a fraction of a percent. A path that costs more than recorded is a failure, and so is one that costs much less and
was not recorded again: the next one to make it dearer would not be noticed.

  scripts/hot_paths.py                      all paths of crates/paths (about two minutes)
  scripts/hot_paths.py update find-cold     some of them
  scripts/hot_paths.py --record             the counts of now become the recorded ones; say in the commit why they changed
  callgrind_annotate build/paths/update.out        where the instructions of a path go

Counted are the engine's instructions in user mode, of one operation, on one thread, as a host calls it: what the server and the plugin's
C++ add is not among them. Processors differ in which variant of a routine the C library picks, which changes little.
Last line: `N passed, N failed, N skipped`. Exit status 1 when something failed.
"""

import argparse
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import BUILD, ROOT, Problem, guarded, output_of

BASELINE = ROOT / "crates" / "paths" / "baseline.json"
OUTPUT = BUILD / "paths"
TOLERANCE = 0.03
COLLECTED = re.compile(r"Collected : (\d+)")


def build():
    """The program that does the paths."""
    command = ["cargo", "build", "--release", "--quiet", "--package", "pbxt-paths"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Problem("pbxt-paths could not be built: see the compiler's messages above.")
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "pbxt-paths"


def listed(program):
    """Operations and meaning of each path, by name."""
    lines = [line.split(maxsplit=2) for line in output_of([program]).splitlines()]
    return {name: (int(operations), what) for name, operations, what in lines}


def count(program, name, operations):
    """Instructions of one operation."""
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={OUTPUT / name}.out", "--toggle-collect=pbxt_paths::paths::measured*",
        program, name, "--operations", str(operations),
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    found = COLLECTED.search(done.stderr)
    if done.returncode != 0 or not found or int(found[1]) == 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")] or done.stderr.splitlines()
        raise Problem(f"{name} could not be counted: {' / '.join(said[-3:])}")
    return int(found[1]) / operations


def verdict(counted, recorded):
    """Whether a count agrees with the recorded one, and in which words."""
    if recorded is None:
        return False, "not recorded: run with --record"
    change = counted / recorded - 1
    text = f"{change:+.1%} of {recorded:,.0f}"
    if change > TOLERANCE:
        return False, f"{text}: dearer by more than {TOLERANCE:.0%}"
    if change < -TOLERANCE:
        return False, f"{text}: cheaper; record it, so that it stays so"
    return True, text


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="only these")
    parser.add_argument("--record", action="store_true", help="write the counts to crates/paths/baseline.json")
    return parser.parse_args()


def main():
    options = parse_arguments()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    program = build()
    paths = listed(program)
    unknown = set(options.paths) - set(paths)
    if unknown:
        raise Problem(f"there is no path {', '.join(sorted(unknown))}: choose of {', '.join(paths)}.")
    chosen = [name for name in paths if not options.paths or name in options.paths]
    recorded = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    failed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        counts = workers.map(lambda name: count(program, name, paths[name][0]), chosen)
        for name, counted in zip(chosen, counts):
            agrees, text = verdict(counted, recorded.get(name))
            failed += not (agrees or options.record)
            recorded[name] = round(counted) if options.record else recorded.get(name)
            print(f"{name:14} {counted:>10,.0f} instructions  {text if not options.record else 'recorded'}  ({paths[name][1]})", flush=True)
    if options.record:
        kept = {name: recorded[name] for name in paths if recorded.get(name)}
        BASELINE.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    print(f"{len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    guarded(main)
