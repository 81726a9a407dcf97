"""The sources of two object-relational mappers with their tests, and a virtualenv to run them in; all under build/orm.

Why it exists: wheels have no tests, so the suites come from source archives of PyPI, unpacked and not installed. Versions are exact, here
and in tests/orm/requirements.txt: another version has other tests, and the excuses of tests/orm/deliberate.def are for these.
Nothing is compiled: every suite talks to the server through PyMySQL, under mysqlclient's name where the suite asks for that one.
"""

import shutil
import tarfile
from collections import namedtuple

from common import BUILD, ROOT, output_of

WORK = BUILD / "orm"
VENV = WORK / "venv"
TESTS = ROOT / "tests" / "orm"
REQUIREMENTS = TESTS / "requirements.txt"

# `labels` is what runs when no test is named; `expected` is a floor under the number of tests, so that a run that ends early is noticed.
Source = namedtuple("Source", "package version labels expected")

# Of Django's suite the parts that ask a database: models, queries, types, transactions, schema changes.
DJANGO = """
aggregation aggregation_regress annotations backends basic bulk_create composite_pk constraints custom_columns custom_lookups
custom_managers custom_pk datatypes dates datetimes db_functions db_typecasts db_utils defer defer_regress delete delete_regress
distinct_on_fields expressions expressions_case expressions_window extra_regress field_defaults filtered_relation fixtures
fixtures_regress force_insert_update foreign_object from_db_value generic_relations generic_relations_regress get_earliest_or_latest
get_object_or_404 get_or_create indexes inspectdb introspection known_related_objects lookup m2m_and_m2o m2m_intermediary m2m_multiple
m2m_recursive m2m_regress m2m_signals m2m_through m2m_through_regress m2o_recursive many_to_many many_to_one many_to_one_null
max_lengths migrate_signals migrations migrations2 model_enums model_fields model_formsets model_formsets_regress model_indexes
model_inheritance model_inheritance_regress model_options model_regress model_utils multiple_database mutually_referential
nested_foreign_keys null_fk null_fk_ordering null_queries one_to_one or_lookups order_with_respect_to ordering pagination
prefetch_related properties proxy_models queries queryset_pickle raw_query reserved_names reverse_lookup save_delete_hooks schema
select_for_update select_related select_related_onetoone select_related_regress serializers sessions_tests str string_lookup
swappable_models timezones transaction_hooks transactions unmanaged_models update update_only_fields xor_lookups cache
contenttypes_tests sites_tests
""".split()

SOURCES = {
    "sqlalchemy": Source("sqlalchemy", "2.0.58", ["test"], 5000),
    "django": Source("django", "5.2.19", DJANGO, 5000),
}


def folder_of(suite):
    """Where a suite's sources lie."""
    source = SOURCES[suite]
    return WORK / f"{source.package}-{source.version}"


def make_venv():
    """The virtualenv; made anew when the requirements change."""
    stamp = VENV / ".installed"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"orm_suites: Python packages into {VENV}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    output_of([BUILD / "venv/bin/python", "-m", "venv", VENV])
    output_of([VENV / "bin/pip", "install", "--quiet", "--requirement", REQUIREMENTS])
    stamp.write_text(wanted, encoding="utf-8")


def fetch(suite):
    """Downloads and unpacks a suite's sources, once."""
    target = folder_of(suite)
    if target.exists():
        return
    source = SOURCES[suite]
    downloads, fresh = WORK / "downloads", target.with_name(target.name + ".new")
    for folder in (downloads, fresh):
        shutil.rmtree(folder, ignore_errors=True)
    print(f"orm_suites: fetching {source.package} {source.version}", flush=True)
    pinned = f"{source.package}=={source.version}"
    output_of([VENV / "bin/pip", "download", "--quiet", "--no-deps", "--no-binary", source.package, "--dest", downloads, pinned])
    with tarfile.open(next(downloads.glob("*.tar.gz"))) as archive:
        archive.extractall(fresh, filter="data")
    next(fresh.iterdir()).rename(target)
    shutil.rmtree(downloads)
    fresh.rmdir()
