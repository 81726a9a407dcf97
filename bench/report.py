"""Medians, ratios, targets; the machine they were measured on; the JSON file that keeps everything."""

import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

from bench import sysbench, workloads
from live_server import rows_of


def facts(server, options, settings):
    """Where and with what the numbers were measured."""
    connection = server.connect()
    version = rows_of(connection, "SELECT VERSION()")[0][0]
    connection.close()
    cpu = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if "model name" in line
    ]
    memory = next(line for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if line.startswith("MemTotal"))
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
        "commit": git("rev-parse", "--short", "HEAD") + (" with local changes" if git("status", "--porcelain", "-uno") else ""),
        "machine": f"{os.cpu_count()} x {cpu[0] if cpu else platform.machine()}, {int(memory.split()[1]) // 2**20} GiB, {platform.release()}",
        "file system": filesystem(server.data),
        "server": version,
        "settings": settings,
        "rounds": options.rounds,
        "rows": options.rows or "each workload's own",
    }


def git(*words):
    """One answer of git, or '' outside a repository."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()


def filesystem(path):
    """Kind and device of the file system under the data directory."""
    done = subprocess.run(["df", "--output=fstype,source", str(path)], capture_output=True, text=True, check=False)
    return " ".join(done.stdout.splitlines()[-1].split()) if done.returncode == 0 else "unknown"


def text_of(value, measure):
    """A number in the unit of its measure."""
    if measure.endswith(")") and "(" in measure and not measure.endswith("(*)"):
        return f"{value:,.0f}"
    return f"{value:.3f} s" if value >= 0.1 else f"{value * 1000:.2f} ms"


def verdict(workload, measure, mine, ratio):
    """The target and whether it is met, as text; '' where there is none."""
    if workload == "sysbench":
        goal = sysbench.TESTS.get(measure.split()[0])
        return "" if goal is None or "(tps)" not in measure else f"at least {goal}x: {'met' if ratio >= goal else 'not met'}"
    owner = next(each for each in workloads.ALL if each.name == workload)
    if measure in owner.targets:
        goal = owner.targets[measure]
        return f"at most {goal}x: {'met' if ratio <= goal else 'not met'}"
    if measure in owner.absolute:
        goal = owner.absolute[measure]
        return f"at most {goal * 1000:g} ms: {'met' if mine <= goal else 'not met'}"
    return ""


def table_lines(results, engines):
    """One line per workload and measure."""
    first, second = engines[:2]
    for workload, measure in dict.fromkeys(key[:2] for key in results):
        if (workload, measure, first) not in results:
            continue
        medians = {e: statistics.median(results[workload, measure, e]) for e in engines if (workload, measure, e) in results}
        spread = results[workload, measure, first]
        ratio = medians[first] / medians[second] if medians.get(second) else float("nan")
        yield [
            workload,
            measure,
            *(text_of(medians[engine], measure) if engine in medians else "-" for engine in engines),
            f"{text_of(min(spread), measure)} .. {text_of(max(spread), measure)}",
            "-" if ratio != ratio else f"{ratio:.3f}x",
            verdict(workload, measure, medians[first], ratio),
        ]


def show(results, about, options):
    """Prints the table and where it was measured."""
    from bench.runner import engines_of  # pylint: disable=import-outside-toplevel  # runner imports the workloads, as we do

    engines = engines_of(options)
    lines = [
        ["workload", "measure", *engines, f"{engines[0]} min .. max", f"{engines[0]}/{engines[1]}", "target"],
        *table_lines(results, engines),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print()
    for number, line in enumerate(lines):
        left = 2
        print(
            "  ".join(
                cell.ljust(w) if i < left or i == len(line) - 1 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths))
            ).rstrip()
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))
    print()
    for name, value in about.items():
        print(f"{name:12} {' '.join(value) if isinstance(value, list) else value}")


def keep(results, about, folder):
    """Writes the JSON file; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    values = [{"workload": w, "measure": m, "engine": e, "values": v} for (w, m, e), v in results.items()]
    path.write_text(json.dumps({"facts": about, "results": values}, indent=1) + "\n", encoding="utf-8")
    return path
