"""Where and with what figures were measured: machine, commit, server, file system, settings."""

import os
import platform
import subprocess
import time
from pathlib import Path

from live_server import rows_of


def facts(server, options, settings):
    """Where and with what the numbers were measured."""
    connection = server.connect()
    version = rows_of(connection, "SELECT VERSION()")[0][0]
    connection.close()
    return {
        **surroundings(server.data),
        "server": version,
        "settings": settings,
        "rounds": options.rounds,
        "rows": options.rows or "each workload's own",
    }


def surroundings(folder):
    """What of it has nothing to do with a server: time, commit, machine, and the file system under `folder`."""
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
        "file system": filesystem(folder),
    }


def git(*words):
    """One answer of git, or '' outside a repository."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()


def filesystem(path):
    """Kind and device of the file system under the data directory."""
    done = subprocess.run(["df", "--output=fstype,source", str(path)], capture_output=True, text=True, check=False)
    return " ".join(done.stdout.splitlines()[-1].split()) if done.returncode == 0 else "unknown"
