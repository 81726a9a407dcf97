"""The Debian package, installed, upgraded, removed and purged in a system of its own, with a real server that runs from there."""

import subprocess

import package
import pymysql
import pytest
from common import output_of
from installed_system import DATABASE, server_stanza

NAME = package.NAME
ROWS = [(1, "one"), (2, "two")]
RESTART = "systemctl restart mariadb"


def has_engine(system):
    """Whether the running server offers ENGINE=PBXT."""
    return ("PBXT",) in system.ask("SELECT engine FROM information_schema.engines")


def fill(system):
    """A PBXT table with rows."""
    system.ask(
        "CREATE DATABASE kept",
        "CREATE TABLE kept.t (a INT PRIMARY KEY, b VARCHAR(10)) ENGINE=PBXT",
        "INSERT INTO kept.t VALUES (1, 'one'), (2, 'two')",
    )


def rows(system):
    """What is in that table."""
    return system.ask("SELECT * FROM kept.t ORDER BY a")


@pytest.fixture
def installed(system, packages):
    """A system with the package, a running server and a table."""
    system.must("-i", packages("1"))
    system.start()
    fill(system)
    return system


def test_the_package_depends_on_exactly_the_servers_version(packages):
    depends = output_of(["dpkg-deb", "-f", packages("1"), "Depends"])
    assert f"mariadb-server (= {package.server_package_version()})" in depends
    assert "libc6 (>=" in depends and "libstdc++6" in depends


def test_every_file_belongs_to_root_and_only_programs_can_be_run(packages):
    lines = output_of(["dpkg-deb", "-c", packages("1")]).splitlines()
    assert {line.split()[1] for line in lines} == {"root/root"}
    assert [line.split()[5] for line in lines if line.startswith("-rwx")] == ["./usr/bin/pbxt"]
    assert {line[:10] for line in lines if line.startswith("d")} == {"drwxr-xr-x"}


def test_the_same_tree_gives_the_same_package(packages, tmp_path):
    first = packages("1")
    again = package.build(tmp_path, "1", output_of(["dpkg-deb", "-f", first, "Maintainer"]).strip())
    assert again.read_bytes() == first.read_bytes()


def test_lintian_has_nothing_to_say(packages):
    # Whose address stands in the package is for its builder to say; here it is nobody's.
    address = "bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact"
    command = ["lintian", "--allow-root", "--fail-on", "warning", "--suppress-tags", address, str(packages("1"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_server_has_the_engine_after_the_package_is_installed(system, packages):
    assert "restart" not in system.must("-i", packages("1"))
    system.start()
    assert has_engine(system)
    fill(system)
    assert rows(system) == ROWS
    assert system.ask("SELECT @@pbxt_data_dir") == [("#pbxt",)]
    assert "pbxt" not in " ".join(name for (name,) in system.ask("SHOW DATABASES"))
    system.stop()
    seen = subprocess.run([system.file("usr/bin/pbxt"), "verify", system.data / "#pbxt"], capture_output=True, text=True, check=False)
    assert seen.returncode == 0, seen.stdout + seen.stderr


def test_a_running_server_is_not_touched_and_its_operator_is_asked_to_restart_it(system, packages):
    system.start()
    text = system.must("-i", packages("1"))
    assert "does not have ENGINE=PBXT yet" in text and RESTART in text
    assert system.process.poll() is None and not has_engine(system)
    system.restart()
    assert has_engine(system)


def test_an_upgrade_keeps_tables_and_changed_settings(installed, packages):
    settings = installed.file(package.SETTINGS)
    settings.write_text(settings.read_text().replace("#loose_pbxt_conflict_mode = ERROR", "loose_pbxt_conflict_mode = WAIT"))
    text = installed.must("-i", packages("2"))
    assert f"loaded at its start: {package.package_version('1')} or older" in text and RESTART in text
    assert rows(installed) == ROWS, "the running server goes on with the plugin that it has loaded"
    installed.restart()
    assert rows(installed) == ROWS
    assert installed.ask("SELECT @@pbxt_conflict_mode") == [("WAIT",)]


def test_after_a_removal_the_server_starts_and_after_another_installation_the_rows_are_there(installed, packages):
    text = installed.must("-r", NAME)
    assert "stays where it is" in text
    assert rows(installed) == ROWS, "a running server keeps what it has loaded"
    installed.restart()
    assert not has_engine(installed)
    with pytest.raises(pymysql.err.MySQLError, match="PBXT|engine"):
        rows(installed)
    installed.must("-i", packages("1"))
    installed.restart()
    assert rows(installed) == ROWS


def test_a_purge_takes_the_settings_and_leaves_the_data_and_says_where(installed, packages):
    installed.stop()
    text = installed.must("-P", NAME)
    data = installed.data / "#pbxt"
    assert f"the data of PBXT tables stays in {data}" in text
    assert not installed.file(package.SETTINGS).exists() and not installed.file("usr/bin/pbxt").exists()
    assert any(data.iterdir())
    installed.start()
    assert not has_engine(installed)
    installed.must("-i", packages("1"))
    installed.restart()
    assert rows(installed) == ROWS


def test_a_server_of_another_version_is_refused(system, packages):
    status = system.file(DATABASE / "status")
    ours = package.server_package_version()
    status.write_text(status.read_text(encoding="utf-8").replace(server_stanza(ours), server_stanza(ours + "+b1")), encoding="utf-8")
    code, text = system.dpkg("-i", packages("1"))
    assert code != 0
    assert f"depends on mariadb-server (= {ours})" in text
