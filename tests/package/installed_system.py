"""A folder that stands for a Debian system with MariaDB: dpkg installs into it, and its server can be started.

Rules: every file of the private server is a link in a folder of our own, so that what dpkg puts beside them stays here; dpkg never enters
the folder (its scripts are told by DPKG_ROOT where they are); only the server that a System has started is ever signalled.
"""

import os
import subprocess
import time
from pathlib import Path

import pymysql
from common import PREFIX, output_of
from mtr_root import link_children

LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6")
DATABASE = Path("var/lib/dpkg")
START_SECONDS = 60
# Small files of InnoDB, because each test copies them.
SMALL = ["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M"]


def server_stanza(version):
    """What dpkg notes of an installed server."""
    return (
        "Package: mariadb-server\nStatus: install ok installed\nMaintainer: none <root@localhost>\n"
        f"Architecture: {output_of(['dpkg', '--print-architecture']).strip()}\n"
        f"Version: {version}\nDescription: stands for the server of this test\n\n"
    )


def make_template(root, server_version):
    """A system with server and system tables, and without the package."""
    link_children(PREFIX / "sbin", root / "usr/sbin")
    link_children(PREFIX / "bin", root / "usr/bin")
    link_children(PREFIX / "lib/mysql/plugin", root / "usr/lib/mysql/plugin")
    link_children(PREFIX / "share/mysql", root / "usr/share/mysql", leave_out=["mysql-test"])
    for folder in ("etc/mysql/mariadb.conf.d", "run/mysqld", "tmp", "var/lib", *(DATABASE / name for name in ("info", "updates", "triggers"))):
        (root / folder).mkdir(parents=True, exist_ok=True)
    # A file of the server keeps the folder there when the package's own goes.
    (root / "etc/mysql/mariadb.conf.d/50-server.cnf").write_text("[mariadbd]\ncharacter-set-server = utf8mb4\n", encoding="utf-8")
    stanzas = "".join(output_of(["dpkg-query", "--status", library]).strip() + "\n\n" for library in LIBRARIES)
    (root / DATABASE / "status").write_text(stanzas + server_stanza(server_version), encoding="utf-8")
    (root / DATABASE / "available").touch()
    output_of(
        [
            root / "usr/bin/mariadb-install-db",
            "--no-defaults",
            f"--basedir={root / 'usr'}",
            f"--datadir={root / 'var/lib/mysql'}",
            f"--lc-messages-dir={root / 'usr/share/mysql'}",
            f"--tmpdir={root / 'tmp'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *SMALL,
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
    )
    return root


class System:
    """The folder, its dpkg and its server; use it with `with`, which stops the server."""

    def __init__(self, root):
        self.root, self.process = root, None
        self.data, self.log = root / "var/lib/mysql", root / "error.log"

    def __enter__(self):
        return self

    def __exit__(self, *_failure):
        self.stop()

    def dpkg(self, *words):
        """dpkg on this system: exit status and all that it and the package's scripts print."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        as_user = [] if os.geteuid() == 0 else ["--force-not-root"]
        command = ["dpkg", f"--root={self.root}", f"--log={self.root / 'dpkg.log'}", "--force-script-chrootless", *as_user, *map(str, words)]
        environment = {**os.environ, "PATH": path, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def must(self, *words):
        """The same; answers the text, and fails when dpkg does."""
        status, text = self.dpkg(*words)
        assert status == 0, text
        return text

    def file(self, inner):
        """A path in the system."""
        return self.root / inner

    def start(self):
        """Starts the server with the system's settings, and waits until it answers."""
        mine = {
            "basedir": self.root / "usr",
            "datadir": self.data,
            "socket": self.root / "s",
            "pid-file": self.root / "run/mysqld/mysqld.pid",
            "plugin-dir": self.root / "usr/lib/mysql/plugin",
            "lc-messages-dir": self.root / "usr/share/mysql",
            "tmpdir": self.root / "tmp",
            "log-error": self.log,
            "skip-networking": 1,
        }
        lines = [f"!includedir {self.root}/etc/mysql/mariadb.conf.d", "[mariadbd]", *(f"{key}={value}" for key, value in mine.items())]
        settings = self.root / "my.cnf"
        settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [self.root / "usr/sbin/mariadbd", f"--defaults-file={settings}", *SMALL, *(["--user=root"] if os.geteuid() == 0 else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8", errors="replace")
            try:
                return self.ask("SELECT 1")
            except pymysql.err.OperationalError:
                time.sleep(0.1)
        raise AssertionError(f"the server does not answer: {self.log.read_text(encoding='utf-8', errors='replace')}")

    def stop(self):
        """Clean shutdown, if a server runs."""
        if self.process:
            self.process.terminate()
            self.process.wait(timeout=START_SECONDS)
            self.process = None

    def restart(self):
        """What the operator does when asked to."""
        self.stop()
        self.start()

    def ask(self, *statements):
        """The rows of the last of some statements, over a connection of their own."""
        connection = pymysql.connect(unix_socket=str(self.root / "s"), user="root", autocommit=True)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()
