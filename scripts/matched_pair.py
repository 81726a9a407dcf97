#!/usr/bin/env python3
"""Unpacks a matched pair of MariaDB: the server's binary packages and the headers of exactly the same version.

A storage engine is bound to one patch level of the server, and Debian ships no private headers; so both halves must be of
one version, and an index may list a version whose files are gone. This script takes the newest 10.11 version whose packages
*and* source archive apt can really fetch, unpacks the packages into build/mariadb and the headers into build/mariadb-headers.

It uses package lists of its own under build/apt: the machine's apt settings, installed packages and running servers stay as
they are. It writes nothing outside build/.

usage: matched_pair.py [--series 10.11] [--version DEBIAN_VERSION] [--force]
"""

import argparse
import functools
import shutil
import subprocess
import tarfile
from pathlib import Path

from common import BUILD, HEADERS, Problem, guarded, output_of

APT = BUILD / "apt"
UNPACKED = BUILD / "mariadb"
STAMP = UNPACKED / "VERSION"
NEEDED_BYTES = 2 << 30
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

PACKAGES = [
    "mariadb-server",
    "mariadb-server-core",
    "mariadb-client",
    "mariadb-client-core",
    "mariadb-backup",
    "mariadb-plugin-rocksdb",
    "mariadb-test",
    "mariadb-test-data",
    "libmariadbd-dev",
]
HEADER_FOLDERS = ("sql/", "include/", "wsrep-lib/include/", "wsrep-lib/wsrep-API/v26/")
GENERATED_HEADERS = ("my_config.h", "mysql_version.h", "mysqld_error.h", "mysqld_ername.h")


def update_lists(apt):
    """Fetches package lists into our own folder."""
    try:
        output_of(["apt-get", *apt, "update"])
    except Problem as problem:
        raise Problem(f"Debian's archive cannot be read: check the network, then run `make setup` again. ({problem})") from None


def archives_in(lists):
    """The (URI, release) pairs with component `main` of Debian that apt's downloaded lists describe."""
    shape = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(TARGET_OF)"
    rows = output_of(["apt-get", *lists, "indextargets", "--format", shape]).splitlines()
    parts = {tuple(row.split("|")) for row in rows}
    return sorted((part[0], part[1]) for part in parts if part[2:] == ("main", "deb") and "debian" in part[0])


def debian_archives():
    """The archives that this machine's apt already uses, so that a mirror stays in use."""
    archives = archives_in([])
    if not archives:
        # A fresh image has no lists at all: fetch them, but into our own folder.
        lists = ["-o", f"Dir::State::Lists={APT / 'lists'}"]
        update_lists(lists)
        archives = archives_in(lists)
    if not archives:
        raise Problem("apt knows no Debian archive with component main: restore /etc/apt/sources.list.d/debian.sources.")
    return archives


def private_apt():
    """Options that make apt use package lists, sources and a cache under build/apt only."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (APT / folder).mkdir(parents=True, exist_ok=True)
    with open(APT / "sources.list", "w", encoding="utf-8") as sources:
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        for uri, release in debian_archives():
            sources.write(f"deb {signed}{uri} {release} main\ndeb-src {signed}{uri} {release} main\n")
    settings = {
        "Dir::Etc::sourcelist": APT / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": APT / "lists",
        "Dir::Cache": APT / "cache",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "2",
        "Acquire::Languages": "none",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def listed_versions(apt, package, series):
    """Versions of a package that the lists name, as a set of Debian version strings."""
    rows = output_of(["apt-cache", *apt, "madison", package]).splitlines()
    versions = {row.split("|")[1].strip() for row in rows if row.count("|") >= 2}
    return {version for version in versions if version.split(":")[-1].startswith(series + ".")}


def newest_first(versions):
    """Sorted by Debian's own rules, which only dpkg knows."""

    def compare(left, right):
        if left == right:
            return 0
        return -1 if subprocess.run(["dpkg", "--compare-versions", left, "gt", right], check=False).returncode == 0 else 1

    return sorted(versions, key=functools.cmp_to_key(compare))


def fetch(apt, version, folder):
    """Downloads every package and the source archive of one version into `folder`; a Problem when one cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    output_of(["apt-get", *apt, "source", "--download-only", "--tar-only", f"mariadb={version}"], cwd=folder)
    output_of(["apt-get", *apt, "download", *[f"{name}={version}" for name in PACKAGES]], cwd=folder)


def fetch_newest(apt, candidates):
    """Goes down the candidates until one can be fetched whole; answers its version and the folder with its files."""
    refused = []
    for version in candidates:
        folder = BUILD / "downloads" / version.replace(":", "_")
        try:
            fetch(apt, version, folder)
            return version, folder
        except Problem as problem:
            refused.append(f"{version}: {problem}")
            print(f"matched pair: {version} is listed but cannot be fetched whole; trying the next older one")
            shutil.rmtree(folder, ignore_errors=True)
    raise Problem("no listed version could be fetched: check the network and the mirror. " + " | ".join(refused))


def replace_folder(target):
    """A fresh empty folder beside `target`, to be moved into place when it is complete."""
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    return fresh


def move_into_place(fresh, target):
    """The last step: a reader of `target` sees the old tree or the new one, never half of one."""
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def unpack_packages(folder, version):
    """Binary packages into build/mariadb; answers the folder with the generated headers of libmariadbd-dev."""
    fresh, development = replace_folder(UNPACKED), replace_folder(folder / "development")
    for package in sorted(folder.glob("*.deb")):
        target = development if package.name.startswith("libmariadbd-dev") else fresh
        output_of(["dpkg-deb", "-x", package, target])
    (fresh / "VERSION").write_text(version + "\n", encoding="utf-8")
    return fresh, development / "usr/include/mariadb/server"


def unpack_headers(folder, generated):
    """Headers of the source archive, and no other file of it, into build/mariadb-headers."""
    archives = sorted(folder.glob("mariadb_*.orig.tar.*z"))
    if not archives:
        raise Problem(f"the source archive is not in {folder}: remove the folder and run `make setup` again.")
    fresh = replace_folder(HEADERS)
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            inner = member.name.partition("/")[2]
            if member.isfile() and inner.startswith(HEADER_FOLDERS) and ".h" in Path(inner).name:
                member.name = inner
                archive.extract(member, fresh, filter="data")
    (fresh / "generated").mkdir()
    for name in GENERATED_HEADERS:
        shutil.copy(generated / name, fresh / "generated" / name)
    probes = fresh / "include" / "probes_mysql_nodtrace.h"
    shutil.copy(probes.with_name(probes.name + ".in"), probes)
    return fresh


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", default="10.11", help="release series to take (default: 10.11)")
    parser.add_argument("--version", help="take exactly this Debian version, for example 1:10.11.18-0+deb12u1")
    parser.add_argument("--force", action="store_true", help="unpack again even if the pair is in place")
    options = parser.parse_args()
    if STAMP.exists() and HEADERS.exists() and not options.force:
        print(f"matched pair: {STAMP.read_text(encoding='utf-8').strip()} is in place")
        return
    BUILD.mkdir(exist_ok=True)
    if shutil.disk_usage(BUILD).free < NEEDED_BYTES:
        raise Problem(f"{BUILD} needs {NEEDED_BYTES >> 30} GiB of free disk space for the server and its tests: make room.")
    apt = private_apt()
    update_lists(apt)
    both = listed_versions(apt, "mariadb-server-core", options.series) & listed_versions(apt, "mariadb", options.series)
    candidates = [options.version] if options.version else newest_first(both)
    if not candidates:
        raise Problem(f"the archives list no MariaDB {options.series} with source: Debian 12 (bookworm) is expected.")
    version, folder = fetch_newest(apt, candidates)
    packages, generated = unpack_packages(folder, version)
    headers = unpack_headers(folder, generated)
    move_into_place(headers, HEADERS)
    move_into_place(packages, UNPACKED)
    shutil.rmtree(BUILD / "downloads")
    print(f"matched pair: unpacked {version}")


if __name__ == "__main__":
    guarded(main)
