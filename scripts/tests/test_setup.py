"""The scripts that prepare a machine and judge a change: whoever asks what they do, or mistypes, is answered, and nothing has begun."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What the scripts begin with, each of them.
TOOLS = ("apt-get", "cargo", "dpkg-query", "make", "python3")


@pytest.mark.parametrize("script", ["scripts/setup.sh", ".ci/run"])
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("-h", 0), ("--list", 2), ("now", 2)])
def test_a_script_asked_for_help_or_for_nonsense_explains_itself_and_does_nothing(tmp_path, script, argument, code):
    copy = tmp_path / script
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / script, copy)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        tool = tools / name
        tool.write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/begun\nexit 1\n")
        tool.chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    answer = subprocess.run([copy, argument], env=environment, capture_output=True, text=True, check=False)
    assert not (tmp_path / "begun").exists(), answer
    assert answer.returncode == code, answer
    purpose = (ROOT / script).read_text().splitlines()[1].removeprefix("# ")
    assert purpose in (answer.stdout if code == 0 else answer.stderr), answer


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_there_is_not_starts_no_server(tmp_path, port):
    command = [ROOT / "scripts" / "server", "--datadir", tmp_path / "data", "start", "--port", port]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2 and f"{port} is no port" in answer.stderr, answer
    assert not (tmp_path / "data").exists(), answer
