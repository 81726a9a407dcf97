"""Fixtures of the SQL tests: real servers, real connections, and a second engine as the oracle.

How to run: `build/venv/bin/python -m pytest tests/sql` from the root of the repository, with -k NAME for one test.
`--engine InnoDB` runs the same tests against another engine (what only PBXT has is then skipped), which tests the tests.
Rules: every test has a database of its own; a test that kills or damages a server has a server of its own; the oracle is InnoDB
in the same server, never an expectation copied from a run of the engine under test.
"""

import itertools
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import live_server  # noqa: E402  # the path to scripts/ is set above
from sql_tools import Database, Twin  # noqa: E402

WORK = ROOT / "build" / "sql-tests"
SMALL = [
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=32M",
    "--max-connections=100",
    "--lock-wait-timeout=30",
    "--innodb-lock-wait-timeout=5",
]


def pytest_addoption(parser):
    parser.addoption("--engine", default="PBXT", help="engine under test (default PBXT)")
    parser.addoption("--crash-rounds", type=int, default=None, help="kill -9 rounds (default 3, with --long 50)")
    parser.addoption("--random-seed", type=int, default=None, help="replay one seed of the random comparison")
    parser.addoption(
        "--random-rounds", type=int, default=None, help="rounds of the random comparison (default 6, with --long 200)"
    )
    parser.addoption("--long", action="store_true", help="long runs: more crashes, more random rounds")


def pytest_configure(config):
    config.addinivalue_line("markers", "pbxt_only: states what PBXT does and other engines do not")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--engine").upper() == "PBXT":
        return
    skip = pytest.mark.skip(reason="only PBXT does this")
    for item in items:
        if "pbxt_only" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def engine(request):
    """Name of the engine under test."""
    return request.config.getoption("--engine")


@pytest.fixture(scope="session")
def work_folder():
    """Scratch folder of this test run, removed when it ends well."""
    folder = WORK / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(work_folder):
    """A data directory with system tables and nothing else; own servers start from a copy of it."""
    server = live_server.LiveServer(work_folder / "template", "none", SMALL)
    server.start()
    server.stop()
    return server.data


@pytest.fixture(scope="session")
def shared_server(work_folder, engine, template):
    """The server of all tests that do no harm."""
    server = live_server.LiveServer(work_folder / "shared", engine, SMALL)
    shutil.copytree(template, server.data)
    try:
        # One that refuses the plugin runs all the same.
        server.start()
        yield server
    finally:
        server.stop()


_numbers = itertools.count(1)


@pytest.fixture
def own_server(work_folder, engine, template, request):
    """Makes servers with a data directory of their own: own_server('--log-bin', start=False, networking=True)."""
    made = []

    def make(*arguments, start=True, networking=False):
        server = live_server.LiveServer(work_folder / f"own{next(_numbers)}", engine, [*SMALL, *arguments], networking)
        if not server.data.exists():
            shutil.copytree(template, server.data)
        made.append(server)
        if start:
            server.start()
        return server

    yield make
    for server in made:
        server.wipe()


def _name_of(request):
    return f"t{next(_numbers)}"


@pytest.fixture
def db(shared_server, engine, request):
    """A database of this test's own in the shared server."""
    with Database(shared_server, _name_of(request), engine) as database:
        yield database


@pytest.fixture
def twin(shared_server, engine, request):
    """The same statements in two databases: the engine under test, and the oracle."""
    name = _name_of(request)
    with Database(shared_server, name + "_e", engine) as under_test, Database(shared_server, name + "_o", "InnoDB") as oracle:
        yield Twin(under_test, oracle)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """A background statement that a test forgot would disturb the next one."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name.startswith("statement:")]
    for thread in left:
        thread.join(30)
    assert not [thread.name for thread in left if thread.is_alive()]
