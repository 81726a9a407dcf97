"""Which of the server's own tests a selection has (mtr_selections.py runs them): suites, and names of tests in them.

Left out everywhere: what is about InnoDB's own files, memory, tables and settings, or about another engine. Tests that need a debug server are
in it and are skipped by the driver, which says so.
"""

from collections import namedtuple

# parts: tests of one or several suites; formats: binary log formats that they are run in, or none; past: a failed statement does not end a
# test, so that what follows it is compared too (mtr_differences.py).
Selection = namedtuple("Selection", "parts formats past", defaults=[(), False])
# suite: of the server; patterns: names of its tests; but: those of them that are left out; also: tests that run with PBXT as the default engine
# although another one stands somewhere in their text.
Part = namedtuple("Part", "suite patterns but also", defaults=[(), ()])

TRANSACTIONS = (
    "*commit* *rollback* *savepoint* xa xa_* *_xa *trans* *read_only* *deadlock* *lock lock* *lock2 *locks flush_* *snapshot* mdl* "
    "*autocom* concurrent_innodb* unsafe_binlog_innodb partition_innodb_semi_consistent single_delete_update_innodb insert_innodb "
    "update_innodb delete_innodb multi_update_innodb long_unique_innodb sp-innodb innodb_mysql_sync cache_innodb"
).split()

# What of InnoDB's own tests is about foreign keys. The suites storage_engine and engines/iuds have a test each, which run with PBXT there; of
# engines/funcs none is about them.
FOREIGN_KEYS = [
    Part("main", ["*foreign*"]),
    Part("innodb", "*foreign* *fk* *fk_* add_constraint cascade_lock_wait update-cascade".split()),
    Part("gcol", ["*fk*"]),
    Part("vcol", ["*fk*"]),
    Part("versioning", ["foreign"]),
]

# Tests that end in _myisam repeat those that end in _innodb.
TWINS = ["*_myisam"]

# Tests that copy definition files of MyISAM tables of older servers.
OLD_FILES = ["*upgrade"]

# What of InnoDB's own tests is about rows, keys, locks and statements.
INNODB = (
    "alter_algorithm alter_algorithm2 alter_candidate_key alter_copy alter_copy_bulk alter_kill alter_mdl_timeout alter_not_null alter_partitioned* "
    "alter_persistent_autoinc alter_primary_key alter_rename_existing alter_sql_mode alter_table alter_varchar_change analyze_table auto_increment_dup "
    "auto_increment_lock_mode autoinc_persist binlog_consistent blob_cmp_empty blob_unique2pk change_column_collation count_distinct create-index "
    "create_like create_select create_table_insert_skip_locked cursor-restore-* data_types ddl_purge deadlock_* dropdb dropdb_cs flush gap_locks "
    "group_commit group_commit_binlog_pos* group_commit_crash* group_commit_no_* implicit_gap_* index_length information_schema_grants "
    "innodb innodb-ac-* innodb-agregate innodb-alter* innodb-analyze innodb-autoinc* innodb-bigblob innodb-blob innodb-bug-* innodb-consistent "
    "innodb-enlarge-blob innodb-index innodb-index_ucs2 innodb-index-online* innodb-isolation innodb-lock innodb-lock-* innodb-mdev* innodb-on-* "
    "innodb-read-view innodb-replace innodb-rollback innodb-semi-consistent innodb-table-online innodb-timeout innodb-trim innodb-truncate innodb-ucs2 "
    "innodb-update-insert innodb-virtual-columns innodb-virtual-columns2 innodb-xa innodb_28867993 innodb_bug[1-5]* innodb_bug59[34]* innodb_bug6* "
    "innodb_bug8* innodb_bulk_create_index innodb_bulk_create_index_replication innodb_bulk_create_index_small innodb_ctype_* innodb_force_pk "
    "innodb_lock_wait_timeout_1 innodb_multi_update innodb_mysql innodb_mysql_rbk innodb_notembedded innodb_prefix_index_restart_server "
    "innodb_query_cache innodb_rename_index innodb_timeout_rollback innodb_trx_weight insert-before-delete insert_into_empty "
    "insert_into_empty_notembedded instant_alter_bugs instant_alter_charset instant_alter_extend instant_alter_index_rename instant_alter_limit "
    "instant_alter_null instant_alter_rollback instant_auto_inc instant_drop lock_* max_record_size mdev-* multi_repair-7404 mvcc mvcc_secondary "
    "no_pad online_table_rebuild partition_locking purge purge_secondary records_in_range rename_table restart row_lock skip_locked_nowait snapshot "
    "snapshot_isolation_race sp_temp_table sql_mode_* stat_tables strict_mode temp_table temp_table_savepoint temporary_table "
    "temporary_table_optimization trigger trigger_error truncate trx_deadlock update_time xa_prepare_* xa_recovery xa_unlock_* add_foreign_key"
).split()
# Row locks as InnoDB's own tables show them; formats and sizes of its pages, and what fits into one; settings, names, files and status variables
# that it alone has; which of two transactions it takes for the victim.
INNODB_INSIDE = (
    "lock_memory* innodb-alter-debug innodb-alter-tempfile innodb_bug53046 max_record_size strict_mode temporary_table index_length gap_locks data_types "
    "instant_alter_charset instant_alter_limit instant_alter_rollback deadlock_detect innodb_force_pk innodb_timeout_rollback innodb-mdev-7408 innodb_bug14147491 innodb_bug84958 "
    "innodb_bug44369 innodb_bug46000 innodb_bug57252 innodb_28867993 innodb-mdev7046 alter_persistent_autoinc alter_varchar_change innodb_trx_weight alter_rename_existing"
).split()

SELECTIONS = {
    "trx": Selection([Part("main", TRANSACTIONS)]),
    "binlog": Selection([Part("binlog", ["*"])], ("row", "mix")),
    "rpl": Selection([Part("rpl", ["*"])], ("row", "mix")),
    "fk": Selection(FOREIGN_KEYS),
    "gcol": Selection([Part("gcol", ["*"], [*TWINS, "*fk*"])], past=True),
    "vcol": Selection(
        [Part("vcol", ["*"], [*TWINS, *OLD_FILES, "*fk*", "vcol_handler_aria"], "load_data partition vcol_misc vcol_supported_sql_funcs".split())],
        past=True,
    ),
    "versioning": Selection([Part("versioning", ["*"], ["foreign"], ["derived"])], past=True),
    "period": Selection([Part("period", ["*"], (), ["delete", "update", "perfschema"])], past=True),
    "sequence": Selection(
        [
            Part(
                "sql_sequence",
                ["*"],
                ["create_archive", "aria"],
                "alter_notembedded auto_increment binlog default lock partition rename slave_nextval".split(),
            )
        ],
        past=True,
    ),
    "handler": Selection([Part("handler", ["*"], (), ["interface"])], past=True),
    "parts": Selection(
        [Part("parts", ["*"], [*TWINS, "*_maria", "*_memory", "*_archive", "*_blackhole", "*_rocksdb"], ["mdev_24610", "partition_open"])],
        past=True,
    ),
    "innodb": Selection([Part("innodb", INNODB, [*INNODB_INSIDE, *FOREIGN_KEYS[1].patterns])], past=True),
    "funcs_1": Selection(
        [Part("funcs_1", "innodb_* row_count_func is_check_constraints is_columns_innodb is_tables_innodb is_cml_innodb".split())], past=True
    ),
    "main": Selection([Part("main", ["*"], [*TRANSACTIONS, *FOREIGN_KEYS[0].patterns, "ctype_*_myisam"])], past=True),
}
