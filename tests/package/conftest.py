"""Fixtures of the package's tests: the package, and systems to install it into.

How to run: `build/venv/bin/python -m pytest tests/package` from the root of the repository, after `make plugin`.
A system is a folder with dpkg's own database, in which mariadb-server and the libraries of this machine are noted as installed, and with
the private server's files as links. dpkg installs into it without entering it, so nothing of the machine changes; the server that is
started reads the settings that the package has put there, and loads the plugin from there.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import package  # noqa: E402  # the path to scripts/ is set above
from installed_system import System, make_template  # noqa: E402

MAINTAINER = "The PBXT developers <root@localhost>"


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """Builds the package in a revision, once each."""
    built = {}

    def of_revision(revision):
        if revision not in built:
            built[revision] = package.build(tmp_path_factory.mktemp("built"), revision, MAINTAINER)
        return built[revision]

    return of_revision


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A system with the server and its system tables, to be copied."""
    return make_template(tmp_path_factory.mktemp("template") / "root", package.server_package_version())


@pytest.fixture
def system(template, tmp_path):
    """A system of its own, without the package."""
    subprocess.run(["cp", "-a", template, tmp_path / "root"], check=True)
    with System(tmp_path / "root") as one:
        yield one
