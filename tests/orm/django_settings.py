"""Settings of Django's own tests for scripts/orm_suites.py: two databases on the server under test, through PyMySQL.

Django's suite asks for these names. The server's socket comes in ORM_SOCKET; engine and SQL mode are options of the server.
"""

import os

import pymysql
from django.test.runner import DiscoverRunner
from recording import RecordingResult

pymysql.install_as_MySQLdb()


def database(name):
    """One of the two databases that the suite uses."""
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": name,
        "USER": "root",
        "HOST": os.environ["ORM_SOCKET"],
        "TEST": {"CHARSET": "utf8mb4"},
    }


class Runner(DiscoverRunner):
    """Django's runner, with verdicts that are written down."""

    def get_resultclass(self):
        return RecordingResult


DATABASES = {"default": database("one"), "other": database("two")}
TEST_RUNNER = "django_settings.Runner"
SECRET_KEY = "of the tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick; nothing here is a secret
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
