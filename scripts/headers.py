#!/usr/bin/env python3
"""Prints the compiler flags for a tree of MariaDB headers, after checking that it fits the server.

A storage engine is bound to one patch level: headers of another would compile and then read the server's structures at wrong
places. So the version of the headers must be the server's, to the last number. Two layouts are known: the one that `make setup`
writes (generated/, include/, sql/), and an installed include folder with private headers (server/, server/private/).

usage: headers.py HEADERS
"""

import re
import sys
from pathlib import Path

from common import Problem, guarded, server_version

SETUP_FOLDERS = ("generated", "include", "sql", "wsrep-lib/include", "wsrep-lib/wsrep-API/v26")
INSTALLED_FOLDERS = ("server", "server/private")


def folders(headers):
    """The include folders of a header tree, most specific first."""
    for names, proof in ((SETUP_FOLDERS, "sql/handler.h"), (INSTALLED_FOLDERS, "server/private/handler.h")):
        if (headers / proof).exists():
            return [headers / name for name in names if (headers / name).is_dir()]
    raise Problem(f"{headers} has neither sql/handler.h nor server/private/handler.h: run `make setup`, or correct MARIADB_HEADERS.")


def headers_version(include):
    """The version that mysql_version.h states, for example 10.11.18."""
    for folder in include:
        path = folder / "mysql_version.h"
        if path.exists():
            found = re.search(r'MYSQL_SERVER_VERSION\s+"([0-9.]+)', path.read_text(encoding="utf-8"))
            if found:
                return found.group(1)
    raise Problem("mysql_version.h is missing beside handler.h: the header tree is not complete, run `make setup`.")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] == ["--help"] else 2
    include = folders(Path(sys.argv[1]).resolve())
    ours, server = headers_version(include), server_version()
    if ours != server:
        raise Problem(
            f"the headers in {sys.argv[1]} are of MariaDB {ours} but the server is {server}: "
            "take headers of exactly the server's version, or `scripts/matched_pair.py --force` for a fresh pair."
        )
    print("HEADER_FLAGS :=", " ".join(f"-isystem {folder}" for folder in include))
    return 0


if __name__ == "__main__":
    guarded(main)
