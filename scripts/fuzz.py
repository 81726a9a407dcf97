#!/usr/bin/env python3
"""Feeds every decoder with bytes that a fuzzer makes, and shows how much of the code they reach.

Why it exists: a test tries the damage that somebody thought of. A fuzzer keeps whatever input takes a branch that no other one took, and
goes on from there; after a minute it is where nobody thought of going.

  scripts/fuzz.py                              every target for a minute of a processor, as many at a time as there are processors
  scripts/fuzz.py --seconds 3600 row-block     one of them for an hour
  scripts/fuzz.py --list                       the targets, and what each reads
  scripts/fuzz.py --read database INPUT        the same input once more, with the stack of where it ends
  scripts/fuzz.py --keep                       writes what reaches all that has been reached to crates/fuzz/corpus, for the next machine

Inputs that reached something new are kept in build/fuzz/corpus/TARGET; they, and those in crates/fuzz/corpus, are where the next run begins.
An input that made a target panic, hang (over 25 seconds) or ask for more than 1 GiB is left in build/fuzz/found/TARGET: mend the decoder,
and put the input into crates/fuzz/found/TARGET, where `make test` reads it for ever. Time is a processor's, so that a target gets as much on a
machine that is busy with other things, only later. The table has, of each target, the time that it got, the inputs, and the edges of the
program that they reached. Targets are compiled with AddressSanitizer and with overflow checks by the nightly compiler, which is installed if it is not there.

Exit status 1 if something was found.
"""

import argparse
import os
import re
import signal
import subprocess
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import BUILD, HOST, ROOT, Problem, guarded, need_nightly, output_of

PLACE = BUILD / "fuzz"
KEPT = ROOT / "crates" / "fuzz" / "corpus"
# What cargo-fuzz passes: every edge counted, comparisons traced, so that the fuzzer learns what a byte is compared with.
FLAGS = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    " -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=4"
    " -Cdebug-assertions=on -Coverflow-checks=on"
)
INPUT_BYTES_MAX = 1 << 17
DONE = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
COVERED = re.compile(r"cov: (\d+) ft: (\d+)")
ALL_EDGES = re.compile(r"\((\d+) inline 8-bit counters\)")
PANIC = re.compile(r"panicked at (.*)")
# How often a running target is asked for its time, in seconds.
LOOK = 1
TICKS = os.sysconf("SC_CLK_TCK")


def build():
    """The program; it reads the name of its target from the environment."""
    need_nightly()
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "fuzz"
    command = ["cargo", "+nightly", "build", "--release", "--quiet", "--package", "pbxt-fuzz", "--target", HOST]
    settings = {"RUSTFLAGS": FLAGS, "CARGO_TARGET_DIR": str(folder), "CARGO_PROFILE_RELEASE_LTO": "off"}
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode != 0:
        raise Problem("pbxt-fuzz could not be built: see the compiler's messages above.")
    return folder / HOST / "release" / "pbxt-fuzz"


def targets():
    """What each target reads, by its name, in order."""
    lines = output_of(["cargo", "run", "--quiet", "--package", "pbxt-fuzz", "--", "list"]).splitlines()
    return dict(line.split("\t") for line in lines)


def environment(target, **more):
    """For the program, with one target."""
    return {**os.environ, "PBXT_FUZZ_TARGET": target, "RUST_BACKTRACE": "1", "ASAN_OPTIONS": "detect_leaks=0", **more}


def plant(program, target):
    """Writes the seeds of a target, and what was kept of earlier runs, into its corpus; its folders are there then."""
    corpus, found = PLACE / "corpus" / target, PLACE / "found" / target
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    if kept_of(target).exists():
        with zipfile.ZipFile(kept_of(target)) as archive:
            archive.extractall(corpus)
    done = subprocess.run([program], env=environment(target, PBXT_FUZZ_SEEDS=str(corpus)), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"the seeds of {target} could not be written to {corpus}: {done.stderr.strip()[-500:]}")
    return corpus, found


def kept_of(target):
    """The archive with what reaches all that earlier runs reached."""
    return KEPT / f"{target}.zip"


def keep(program, target):
    """Chooses of a corpus the fewest and shortest inputs that reach as much, and writes them to the archive; how many, and its bytes."""
    corpus, _ = plant(program, target)
    with tempfile.TemporaryDirectory(dir=PLACE) as chosen:
        command = [program, "-merge=1", f"-max_len={INPUT_BYTES_MAX}", "-timeout=25", "-rss_limit_mb=3000", chosen, corpus]
        done = subprocess.run(command, env=environment(target), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(f"the corpus of {target} could not be merged: {done.stderr.strip()[-500:]}")
        KEPT.mkdir(exist_ok=True)
        inputs = sorted(Path(chosen).iterdir())
        with zipfile.ZipFile(kept_of(target), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in inputs:
                archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)  # without times: the same bytes each time
    return len(inputs), kept_of(target).stat().st_size


def keep_all(names):
    """The archives of all targets."""
    program = build()
    for name in names:
        inputs, size = keep(program, name)
        print(f"{name:14} {inputs:7,} inputs {size:11,} bytes", flush=True)
    return True


def processor_seconds(pid):
    """What a process has had of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def end_after(pid, seconds, over):
    """Has the fuzzer end, with its figures, once it has had its time; unless it is over before."""
    while not over.wait(LOOK):
        if processor_seconds(pid) >= seconds:
            os.kill(pid, signal.SIGUSR1)
            return


def fuzz(program, target, seconds):
    """Runs a target; a line of figures, and a sentence for each input that was found."""
    corpus, found = plant(program, target)
    known = set(found.iterdir())
    command = [
        program, f"-artifact_prefix={found}/", f"-max_len={INPUT_BYTES_MAX}", "-timeout=25",
        "-rss_limit_mb=3000", "-malloc_limit_mb=1024", "-print_final_stats=1", corpus,
    ]  # fmt: skip
    log = PLACE / f"{target}.log"
    with log.open("wb") as out:
        fuzzer = subprocess.Popen(command, env=environment(target), stdout=out, stderr=subprocess.STDOUT)  # pylint: disable=consider-using-with
        over = threading.Event()
        watch = threading.Thread(target=end_after, args=(fuzzer.pid, seconds, over))
        watch.start()
        # Not reaped before its watch is over: until then the number is no other process's.
        os.waitid(os.P_PID, fuzzer.pid, os.WEXITED | os.WNOWAIT)
        over.set()
        watch.join()
        _, status, usage = os.wait4(fuzzer.pid, 0)
    fuzzer.returncode = code = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    executed, covered, edges = DONE.search(text), COVERED.findall(text), ALL_EDGES.search(text)
    figures = {
        "processor": usage.ru_utime + usage.ru_stime,
        "inputs": int(executed[1]) if executed else 0,
        "edges": int(covered[-1][0]) if covered else 0,
        "features": int(covered[-1][1]) if covered else 0,
        "of": int(edges[1]) if edges else 0,
        "corpus": len(list(corpus.iterdir())),
    }
    new = sorted(set(found.iterdir()) - known)
    panics = PANIC.findall(text)
    sentences = [f"{target}: {path} ({panics[-1] if panics else f'see {log}'})" for path in new]
    if code != 0 and not new:
        sentences.append(f"{target}: ended with {code} and left no input, see {log}")
    return figures, sentences


def run(names, seconds, jobs):
    """All targets; True if nothing was found."""
    program = build()
    print(f"{'target':14} {'processor':>10} {'inputs':>12} {'a second':>9} {'edges':>7} {'features':>9} {'corpus':>7}", flush=True)
    complaints = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = {name: pool.submit(fuzz, program, name, seconds) for name in names}
        for name, done in runs.items():
            figures, sentences = done.result()
            rate = figures["inputs"] / max(figures["processor"], 1)
            print(
                f"{name:14} {figures['processor']:8,.0f} s {figures['inputs']:12,} {rate:9,.0f} {figures['edges']:7,} {figures['features']:9,}"
                f" {figures['corpus']:7,}",
                flush=True,
            )
            complaints += sentences
    for sentence in complaints:
        print(f"FOUND {sentence}")
    print(f"{len(names)} targets, {seconds} s each, {len(complaints)} found")
    return not complaints


def read(target, inputs):
    """Reads inputs in the build for fuzzing."""
    program = build()
    return subprocess.run([program, *inputs], env=environment(target), check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TARGET", help="targets (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="processor time of each target (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time (default: one a processor)")
    parser.add_argument("--list", action="store_true", help="show the targets and end")
    parser.add_argument("--keep", action="store_true", help="instead of making inputs, write the shortest that reach as much to crates/fuzz/corpus")
    parser.add_argument("--read", metavar="TARGET", help="read the inputs named instead of making some")
    arguments = parser.parse_args()
    known = targets()
    if arguments.list:
        print("\n".join(f"{name:14} {what}" for name, what in known.items()))
        return 0
    wanted = [arguments.read] if arguments.read else arguments.names
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Problem(f"no target is called {unknown[0]}; there are: {', '.join(known)}.")
    if arguments.read:
        return 0 if read(arguments.read, arguments.names) else 1
    names = arguments.names or list(known)
    return 0 if (keep_all(names) if arguments.keep else run(names, arguments.seconds, arguments.jobs)) else 1


if __name__ == "__main__":
    guarded(main)
