#!/usr/bin/env python3
"""Runs the engine under AddressSanitizer and ThreadSanitizer: the crates' tests, and the plugin inside the stock server.

Why it exists: Miri interprets single structures and is too slow for whole statements, loom sees latches only, and neither knows C++. The
sanitizers watch every access of the compiled program: what is read after it was given back, beyond its end, or by two threads with nothing
between them.

  scripts/sanitize.py address core                 the tests of all crates
  scripts/sanitize.py thread core                  those that have threads
  scripts/sanitize.py address server               the SQL tests, with core and C++ instrumented
  scripts/sanitize.py thread server                those with many connections
  scripts/sanitize.py thread planted               a fault that it must report (core does that too)
  scripts/sanitize.py thread server -- tests/sql/test_locks.py -k kill     some of them; what follows -- is pytest's (of core: cargo's)

Everything is compiled by the nightly compiler, its standard library included, into target/sanitize; compiler and library's source are
installed if they are not there. The server is the stock one: it knows nothing of sanitizers, so their runtime is loaded before it
(LD_PRELOAD), and what only its own code does is not watched. The core takes the C library's memory there, which the runtime minds.

Reports go to build/sanitize/KIND, one file for each process, and the first of them to the screen. Exit status 1 if there is one, or if a test failed.
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from common import BUILD, HOST, ROOT, Problem, guarded, need_nightly, output_of
from live_server import WORKSHOP_PYTHON

KINDS = ("address", "thread")
RUNTIME = {"address": "libasan.so", "thread": "libtsan.so"}
# Where threads meet. The rest of the tests have one thread, and under this sanitizer they would only take hours.
THREADED_CRATES = "index rowmap txn txlog segment io base".split()
THREADED_TESTS = (
    "stress stop_points background_jobs scrub_beside foreign_key_races added_indexes bulk checkpoint compaction lines optimize"
    " serializable snapshot_age storage gone forgotten_transactions given_up_claims statistics two_phase"
).split()
THREADED_SQL = (
    "added_indexes atomicity auto_increment bulk conflicts crash delete_by_index foreign_keys isolation lock_tables lock_waits locks"
    " metadata_locks old_snapshots optimize processlist restart scrub semi_consistent snapshots status transactions"
).split()
# Faults that are planted to be reported (crates/rowmap/examples/planted.rs), and the beginning of the report.
PLANTED = {
    "address": ("map.freed_early", "ERROR: AddressSanitizer: heap-use-after-free"),
    "thread": ("map.unpublished", "WARNING: ThreadSanitizer: data race"),
}
# They judge memory, seconds and stacks, which are the sanitizer's here.
LEFT_OUT = {
    "address": ["test_many_tables.py::test_many_tables_are_cheap_and_all_there_after_a_kill"],
    "thread": ["test_lock_waits.py::test_a_thousand_waiters_get_the_row_in_the_order_in_which_they_came"],
}
# exitcode=0: the server ends as it does without a sanitizer; the reports are what counts. The server has its own handlers of signals,
# its own allocations that others free, and headers whose inline functions poison, in the plugin, what the server then does not cure.
OPTIONS = {
    "address": "allow_user_poisoning=0:detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0:handle_segv=0:handle_abort=0:detect_stack_use_after_return=0",
    "thread": "exitcode=0:report_thread_leaks=0:report_signal_unsafe=0:history_size=7:second_deadlock_stack=1:ignore_interceptors_accesses=1",
}
# rustc calls its own names of these, which g++'s runtime has not got. What the C library reads and writes is not watched
# (ignore_interceptors_accesses), or each word of InnoDB's log that is written to its file would be taken for a race, and a second take minutes:
# so the ranges are told here. The crates' tests watch reads and writes of files.
COPIES = """
#include <string.h>
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  __tsan_read_range((void *)from, bytes);
  __tsan_write_range(to, bytes);
  return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  __tsan_read_range((void *)from, bytes);
  __tsan_write_range(to, bytes);
  return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int byte, size_t bytes) {
  __tsan_write_range(to, bytes);
  return memset(to, byte, bytes);
}
"""
# ThreadSanitizer keeps its own data in each stack, and has no 8 TiB of addresses for InnoDB's buffer pool to grow into.
SERVER_ARGUMENTS = "--thread-stack=4M --loose-innodb-buffer-pool-size-max=1G"


def settings(kind):
    """Environment of cargo. Without increments and with line numbers in files of their own a build takes a third of the space."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "sanitize" / kind
    return {
        **os.environ,
        "RUSTFLAGS": f"-Zsanitizer={kind} -Cforce-frame-pointers=yes --cfg sanitizing",
        "CARGO_TARGET_DIR": str(folder),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_DEV_SPLIT_DEBUGINFO": "unpacked",
        "CARGO_PROFILE_RELEASE_LTO": "off",
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "history_size=7",
    }


def cargo(kind, verb, *words, **how):
    """Runs cargo with everything instrumented."""
    command = ["setarch", "--addr-no-randomize", "cargo", "+nightly", verb, "-Zbuild-std", "--target", HOST, *words]
    return subprocess.run(command, cwd=ROOT, env=settings(kind), check=False, **how)


def passes(kind, *words):
    """True if the tests pass."""
    return cargo(kind, "test", "--no-fail-fast", *words).returncode == 0


def core(kind, more):
    """The tests of the crates; True if all passed. A report is a failure of its test program."""
    if more:
        return passes(kind, *more)
    if kind == "address":
        passed = passes(kind, "--workspace", "--all-features", "--lib", "--tests")
    else:
        crates = [f"--package=pbxt-{name}" for name in THREADED_CRATES]
        tests = [f"--test={name}" for name in THREADED_TESTS]
        passed = passes(kind, "--all-features", "--lib", "--tests", *crates)
        passed &= passes(kind, "--all-features", "--package=pbxt", "--lib", *tests)
    return planted(kind, ()) and passed


def planted(kind, _):
    """The fault that the sanitizer must report; True if it did."""
    fault, report = PLANTED[kind]
    words = ["--package=pbxt-rowmap", "--all-features", "--example=planted", "--", fault]
    done = cargo(kind, "run", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    is_found = done.returncode != 0 and report in done.stdout
    print(f"planted fault {fault}: {'reported' if is_found else 'NOT REPORTED: ' + done.stdout[-3000:]}")
    return is_found


def build_plugin(kind, place):
    """The plugin with core and C++ instrumented, as the Makefile builds it."""
    if cargo(kind, "build", "--release", "--quiet", "--package", "pbxt-capi").returncode != 0:
        raise Problem("the core could not be built: see the compiler's messages above.")
    built = Path(settings(kind)["CARGO_TARGET_DIR"]) / HOST / "release" / "libpbxt_capi.a"
    archive = place / built.name
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built, archive)
    if kind == "thread":
        source = place / "copies.c"
        source.write_text(COPIES)
        output_of(["gcc", "-O2", "-fPIC", "-c", source, "-o", source.with_suffix(".o")])
        output_of(["ar", "r", archive, source.with_suffix(".o")])
    plugin = f"{place}/ha_pbxt.so"
    words = [f"PLACE={place}/plugin", f"CORE={archive}", f"PLUGIN={plugin}", f"INSTRUMENTED=-fsanitize={kind}", plugin]
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    if subprocess.run(["make", "--no-print-directory", jobs, *words], cwd=ROOT, check=False).returncode != 0:
        raise Problem("the plugin could not be built: see the messages above.")


def server(kind, more):
    """The SQL tests with the instrumented plugin; True if all passed and nothing was reported."""
    place = BUILD / "sanitize" / kind
    build_plugin(kind, place)
    for report in place.glob("report.*"):
        report.unlink()
    runtime = output_of(["g++", f"-print-file-name={RUNTIME[kind]}"]).strip()
    name = {"address": "ASAN_OPTIONS", "thread": "TSAN_OPTIONS"}[kind]
    under = ["setarch", "--addr-no-randomize", "env", f"LD_PRELOAD={runtime}", f"{name}={OPTIONS[kind]}:log_path={place}/report"]
    environment = {
        **os.environ,
        "PBXT_PLUGIN": f"{place}/ha_pbxt.so",
        "PBXT_SERVER_UNDER": " ".join(under),
        "PBXT_SERVER_ARGUMENTS": SERVER_ARGUMENTS,
    }
    chosen = [f"tests/sql/test_{name}.py" for name in THREADED_SQL] if kind == "thread" else ["tests/sql"]
    tests = [str(WORKSHOP_PYTHON), "-m", "pytest", "-q", "--color=no", *(f"--deselect=tests/sql/{name}" for name in LEFT_OUT[kind]), *(more or chosen)]
    passed = subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode == 0
    return not show(sorted(place.glob("report.*"))) and passed


def wanted(text):
    """The reports in the text of a file that are about the plugin. The server's atomics are not seen by ThreadSanitizer, so it takes what they
    guard for races; and the C library hands the memory of an ended thread's variables on unseen (_dl_deallocate_tls)."""
    reports = [part for part in text.split("=" * 18 + "\n") if "WARNING" in part or "ERROR" in part]
    return [part for part in reports if "ERROR" in part or ("ha_pbxt.so" in part and "_dl_deallocate_tls" not in part)]


def show(paths):
    """How many reports there are about the plugin; the first is printed."""
    found = [(path, report) for path in paths for report in wanted(path.read_text(errors="replace"))]
    for path, report in found[:1]:
        print(f"{path}:\n{report[:6000]}")
    print(f"{len(found)} reports about the plugin, in {len({path for path, _ in found})} of {len(paths)} files of reports")
    return len(found)


PARTS = {"core": core, "planted": planted, "server": server}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS, help="the sanitizer")
    parser.add_argument("part", choices=PARTS, help="the crates' tests, the planted fault alone, or the plugin in the server")
    parser.add_argument("more", nargs="*", help="after --: tests to run instead of all")
    options = parser.parse_args()
    if shutil.which("setarch") is None:
        raise Problem("setarch is missing: install the package util-linux; the sanitizers need addresses that are not randomized.")
    need_nightly("rust-src")
    return 0 if PARTS[options.part](options.kind, options.more) else 1


if __name__ == "__main__":
    guarded(main)
