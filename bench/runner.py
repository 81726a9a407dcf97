"""Runs workloads round by round, the engines changing places, and collects every single measurement."""

import sys
from collections import defaultdict

from tqdm import tqdm

from bench import sysbench, workloads
from live_server import execute


def settings(options):
    """Server settings: both engines get the same cache and the same durability."""
    lines = [
        f"--innodb-buffer-pool-size={options.cache}",
        "--innodb-log-file-size=1G",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-autoinc-lock-mode=2",
        "--key-buffer-size=512M",
        "--aria-pagecache-buffer-size=512M",
        "--max-connections=200",
        "--max-prepared-stmt-count=100000",
    ]
    if options.engine.upper() == "PBXT":
        lines += [f"--pbxt-cache-size={options.cache}", "--pbxt-flush-log-at-trx-commit=1"]
    return lines


def engines_of(options):
    """The engine under test first."""
    return [options.engine, *(options.against or ["InnoDB"])]


def run_all(server, options):
    """{(workload, measure, engine): [values]} over all rounds; values are seconds, or what the measure's unit says."""
    chosen = [each for each in workloads.ALL if not options.only or each.name in options.only]
    results = defaultdict(list)
    for workload_class in chosen:
        workload = workload_class(server, options)
        rounds = min(options.rounds, workload.most_rounds)
        with tqdm(
            total=rounds * len(engines_of(options)),
            desc=f"{workload.name:14}",
            unit=" runs",
            leave=False,
            disable=None,
            file=sys.stdout,
        ) as bar:
            run_one(workload, rounds, engines_of(options), results, bar)
        print(f"done: {workload.name}", flush=True)
    if options.sysbench:
        sysbench.run(server, options, engines_of(options), results)
    return results


def run_one(workload, rounds, engines, results, bar):
    """All rounds of one workload in a database of its own."""
    connection = workload.server.connect()
    execute(connection, f"DROP DATABASE IF EXISTS {workload.database}")
    execute(connection, f"CREATE DATABASE {workload.database}")
    connection.close()
    workload.open()
    workload.prepare(engines)
    for number in range(rounds):
        order = engines if number % 2 == 0 else engines[::-1]
        for engine in order:
            for measure, value in workload.measure(engine).items():
                results[workload.name, measure, engine].append(value)
            bar.update(1)
    workload.open()
    execute(workload.connection, f"DROP DATABASE {workload.database}")
    workload.connection.close()
