"""A private copy of the server's test tree, made of links, for one run of the server's test driver (MTR).

Why it exists: MTR writes beside the tests (rejected and re-recorded results), so runs in a shared tree disturb each other and dirty
the installation. A root made here has real folders and linked files, takes a second to make, and is removed after the run.
Layout: ROOT/usr like the packages' /usr, with a plugin folder that also holds the engine built here.
Rule: a file in the root is replaced by removing the link first; writing through a link would change the installation.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from common import BUILD, PLUGIN, ROOT, need_prefix

WORK = BUILD / "mtr"
OVERLAYS = ROOT / "tests" / "mtr" / "overlay"
MEMORY = Path("/dev/shm")  # a folder whose files the kernel keeps in memory
OWN_SUITES = ROOT / "tests" / "mtr" / "suite"


def link_children(source, target, leave_out=()):
    """Links every entry of one folder into another, new one."""
    target.mkdir(parents=True)
    for child in source.iterdir():
        if child.name not in leave_out:
            (target / child.name).symlink_to(child)


def replace_file(target, text):
    """Puts a file of our own where a link may be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_bytes(text)


class MtrRoot:
    """The private root; use it with `with`, which removes it at the end."""

    def __init__(self, keep=False, in_memory=False):
        self.keep, self.in_memory = keep, in_memory
        self.path = None
        self.var = None  # data directories and logs of the servers under test

    def __enter__(self):
        prefix = need_prefix()
        WORK.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="root-", dir=WORK))
        self.var = Path(tempfile.mkdtemp(prefix="pbxt-mtr-", dir=MEMORY)) if self.in_memory else self.path / "var"
        usr = self.path / "usr"
        usr.mkdir()
        for folder in ("bin", "sbin"):
            (usr / folder).symlink_to(prefix / folder)
        link_children(prefix / "lib" / "mysql" / "plugin", usr / "lib" / "mysql" / "plugin")
        link_children(prefix / "share" / "mysql", usr / "share" / "mysql", leave_out=["mysql-test"])
        subprocess.run(["cp", "-rs", prefix / "share/mysql/mysql-test", self.tests], check=True)
        if PLUGIN.exists():
            (usr / "lib" / "mysql" / "plugin" / PLUGIN.name).symlink_to(PLUGIN)
        self._add_our_own()
        return self

    def __exit__(self, *_failure):
        if not self.keep:
            shutil.rmtree(self.path, ignore_errors=True)
            shutil.rmtree(self.var, ignore_errors=True)

    @property
    def tests(self):
        """The folder that the driver starts in."""
        return self.path / "usr" / "share" / "mysql" / "mysql-test"

    def overlay(self, folder):
        """Where the overlay of an engine lies for the suite storage_engine."""
        return self.tests / "plugin" / folder / "storage_engine"

    def make_results_real(self, suite):
        """Copies in place of links: the driver applies `.rdiff` files with patch, which refuses to read through links."""
        for result in (self.tests / "suite" / suite).rglob("*.result"):
            replace_file(result, result.read_bytes())

    def _add_our_own(self):
        """Overlays and suites of this repository; a file of ours replaces the installed one."""
        for source in OVERLAYS.rglob("*"):
            if source.is_file():
                folder, _, inner = str(source.relative_to(OVERLAYS)).partition("/")
                replace_file(self.overlay(folder) / inner, source.read_bytes())
        for source in OWN_SUITES.rglob("*"):
            if source.is_file():
                replace_file(self.tests / "suite" / source.relative_to(OWN_SUITES), source.read_bytes())
