#!/usr/bin/env python3
"""Makes the Debian package mariadb-plugin-pbxt: the plugin, its settings file, the inspector `pbxt` and the documents.

Why it exists: a copied plugin has nobody to tell it from one for another server version. The package depends on exactly the version of
mariadb-server that the plugin was built against, as Debian's own packages of engines do, so an upgrade of the server alone is held back.
It is put together by dpkg-deb from what `make plugin` has built; files that say what the package does to a system are in plugin/debian.
The same tree gives the same package, byte by byte: all times in it are that of the newest commit.

The package's version is that of the workspace, that of the server, and a revision: 0.1.0+mariadb10.11.18-1.

usage: package.py [--output build] [--revision 1] [--maintainer 'Name <address>']          prints the path of the package

Without --maintainer the name is that of DEBFULLNAME and DEBEMAIL, as other Debian tools use them.
"""

import argparse
import email.utils
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from common import BUILD, PLUGIN, PREFIX, ROOT, Problem, guarded, output_of
from licences import linked_packages

NAME = "mariadb-plugin-pbxt"
SOURCES = ROOT / "plugin" / "debian"
SCRIPTS = ("postinst", "prerm", "postrm")
DOCUMENTS = f"usr/share/doc/{NAME}"
SETTINGS = "etc/mysql/mariadb.conf.d/pbxt.cnf"
LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*")


def server_package_version():
    """The Debian version of the server that the plugin was built against, for example 1:10.11.18-0+deb12u1."""
    stamp = PREFIX.parent / "VERSION"
    if not stamp.exists():
        raise Problem(f"{stamp} is missing: the package is made for the server of `make setup`, whose Debian version stands there.")
    return stamp.read_text(encoding="utf-8").strip()


def package_version(revision):
    """Workspace, server and revision in one."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    server = server_package_version().split(":")[-1].split("-")[0]
    return f"{workspace}+mariadb{server}-{revision}"


def put(tree, inner, content, mode=0o644):
    """One file of the package, of a path or of text."""
    target = tree / inner
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.read_bytes() if isinstance(content, Path) else content.encode("utf-8"))
    target.chmod(mode)
    return target


def put_packed(tree, inner, text):
    """A compressed file, without the name and time that gzip would note in it."""
    put(tree, inner, "").write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))


def put_program(tree, inner, source, mode):
    """A program or library without what only a debugger needs."""
    target = put(tree, inner, source, mode)
    output_of(["strip", "--strip-unneeded", "--remove-section=.comment", "--remove-section=.note", target])
    return target


def build_inspector():
    """The program `pbxt`, optimized."""
    output_of(["cargo", "build", "--release", "--quiet", "--package", "pbxt-cli"], cwd=ROOT)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "pbxt"


def put_documents(tree, version, maintainer, seconds):
    """Documents in the folders where they link to each other, changelogs, licences, the manual page."""
    files = output_of(["git", "ls-files", "README.md", "CHANGELOG.md", "docs", "bench/README.md", "plugin/mariadb/HOST_NOTES.md"], cwd=ROOT)
    for name in files.splitlines():
        if name.endswith(".md") and name != "CHANGELOG.md":
            put(tree, f"{DOCUMENTS}/{name}", ROOT / name)
    put(tree, f"{DOCUMENTS}/README.Debian", SOURCES / "README.Debian")
    put_packed(tree, f"{DOCUMENTS}/changelog.gz", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    when = email.utils.formatdate(seconds)
    entry = f"{NAME} ({version}) bookworm; urgency=medium\n\n  * Built for mariadb-server {server_package_version()}.\n\n -- {maintainer}  {when}\n"
    put_packed(tree, f"{DOCUMENTS}/changelog.Debian.gz", entry)
    put(tree, f"{DOCUMENTS}/copyright", copyright_text())
    put_packed(tree, f"{DOCUMENTS}/crates.txt.gz", crates_text())
    put_packed(tree, "usr/share/man/man1/pbxt.1.gz", (SOURCES / "pbxt.1").read_text(encoding="utf-8"))
    put(tree, f"usr/share/lintian/overrides/{NAME}", SOURCES / "lintian-overrides")


def copyright_text():
    """The copyright file, with the text of the licence that Debian does not have at hand."""
    text = (ROOT / "LICENSE-MIT").read_text(encoding="utf-8")
    holder = next(line for line in text.splitlines() if line.startswith("Copyright")).removeprefix("Copyright (c) ")
    paragraphs = text[text.index("Permission is hereby") :].strip().splitlines()
    indented = "\n".join(f" {line}" if line.strip() else " ." for line in paragraphs)
    return filled("copyright.in", COPYRIGHT=holder, MIT=indented)


def crates_text():
    """Every crate that is linked in, with its licence files."""
    metadata = json.loads(output_of(["cargo", "metadata", "--format-version", "1", "--quiet"], cwd=ROOT))
    crates = {}
    for root in ("pbxt-capi", "pbxt-cli"):
        crates |= {crate["id"]: crate for crate in linked_packages(metadata, root) if crate["source"]}
    parts = []
    for crate in sorted(crates.values(), key=lambda crate: (crate["name"], crate["version"])):
        folder = Path(crate["manifest_path"]).parent
        licences = sorted({path for pattern in LICENCE_FILES for path in folder.rglob(pattern) if path.is_file()})
        authors = f", by {', '.join(crate['authors'])}" if crate["authors"] else ""
        parts.append(f"==== {crate['name']} {crate['version']}: {crate['license']}{authors}\n")
        parts += [f"-- {path.relative_to(folder)}\n{path.read_text(encoding='utf-8', errors='replace').strip()}\n" for path in licences]
    return "\n".join(parts)


def filled(name, **values):
    """A template of plugin/debian with its @NAMES@ replaced."""
    text = (SOURCES / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def libraries_of(programs):
    """What the programs need of other packages, as dpkg-shlibdeps finds it. Names that the server has in itself are no library's."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "debian").mkdir()
        (Path(folder) / "debian" / "control").write_text(f"Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n", encoding="utf-8")
        command = ["dpkg-shlibdeps", "-O", "--warnings=0", *[f"-e{program}" for program in programs]]
        return output_of(command, cwd=folder).strip().removeprefix("shlibs:Depends=")


def put_control(tree, version, maintainer, programs):
    """The part of the package that dpkg reads."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    sums = "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files)
    control = filled(
        "control.in",
        VERSION=version,
        ARCHITECTURE=output_of(["dpkg", "--print-architecture"]).strip(),
        MAINTAINER=maintainer,
        KIBIBYTES=sum(-(-path.stat().st_size // 1024) for path in files),
        SERVER=server_package_version(),
        LIBRARIES=libraries_of(programs),
    )
    put(tree, "DEBIAN/control", control)
    put(tree, "DEBIAN/md5sums", sums)
    put(tree, "DEBIAN/conffiles", f"/{SETTINGS}\n")
    for script in SCRIPTS:
        put(tree, f"DEBIAN/{script}", SOURCES / script, 0o755)


def build(output, revision, maintainer):
    """The package; answers its path."""
    if not PLUGIN.exists():
        raise Problem(f"{PLUGIN} is missing: run `make package`, which builds it first.")
    missing = [tool for tool in ("dpkg-deb", "dpkg-shlibdeps", "strip") if not shutil.which(tool)]
    if missing:
        raise Problem(f"{', '.join(missing)} is missing: run `make setup` first.")
    version = package_version(revision)
    seconds = int(output_of(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
    inspector = build_inspector()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="package-", dir=output) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        programs = [
            put_program(tree, "usr/lib/mysql/plugin/ha_pbxt.so", PLUGIN, 0o644),
            put_program(tree, "usr/bin/pbxt", inspector, 0o755),
        ]
        put(tree, SETTINGS, ROOT / "plugin" / "mariadb" / "pbxt.cnf")
        put_documents(tree, version, maintainer, seconds)
        put_control(tree, version, maintainer, programs)
        for path in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
            path.chmod(0o755)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(output)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Problem(f"dpkg-deb failed: {done.stderr.strip()}")
        return next(output.glob(f"{NAME}_{version}_*.deb"))


def default_maintainer():
    """As devscripts and dpkg take it."""
    name, address = os.environ.get("DEBFULLNAME", "The PBXT developers"), os.environ.get("DEBEMAIL", "root@localhost")
    return f"{name} <{address}>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=BUILD, help="folder of the package (default: build)")
    parser.add_argument("--revision", default="1", help="last part of the package's version (default: 1)")
    parser.add_argument("--maintainer", default=default_maintainer(), help="who answers for the package")
    options = parser.parse_args()
    print(build(options.output.resolve(), options.revision, options.maintainer))


if __name__ == "__main__":
    guarded(main)
