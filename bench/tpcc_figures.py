"""From what the clients of bench/tpcc wrote down to figures, tables and ratios; nothing here touches a server.

Why it exists: sysbench knows one kind of transaction and rounds its percentiles to a histogram. The clients write a line per transaction
(tpcc.lua says which), and everything that is printed is counted from these lines here.
A transaction belongs to the second in which it ended. Second 0 begins with the first transaction of any client.
"""

import math
import statistics
from collections import namedtuple

from bench.record import ratio_text, size_text, table
from common import Problem

Record = namedtuple("Record", "begin time kind result conflicts timeouts deadlocks")  # of begin and time the unit is a microsecond
Sample = namedtuple("Sample", "at cpu resident disk written")  # at: microseconds of the same clock
KINDS = {"O": "new order", "P": "payment", "S": "order status", "D": "delivery", "L": "stock level"}
MICRO = 1_000_000
ROLLED_BACK = 0.01  # of new orders, by the rule of clause 2.4.1.4
SIGMAS = 5  # by so many standard deviations their share may differ: chance does that once in two million runs


def read(folder):
    """The records of all clients."""
    found = []
    for path in sorted(folder.iterdir()):
        for line in path.read_text(encoding="ascii").splitlines():
            words = line.split()
            found.append(Record(int(words[0]), int(words[1]), words[2], *map(int, words[3:])))
    return found


def percentile(values, percent):
    """The smallest value that at least `percent` of a hundred values do not exceed (nearest rank); None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def per_second(ends, zero, seconds):
    """How many of the moments lie in each of the seconds after `zero`."""
    counts = [0] * seconds
    for end in ends:
        second = (end - zero) // MICRO
        if 0 <= second < seconds:
            counts[second] += 1
    return counts


def at(samples, moment, field):
    """A meter's value at a moment, on the straight line between the samples around it."""
    before = [sample for sample in samples if sample.at <= moment]
    after = [sample for sample in samples if sample.at > moment]
    if not before or not after:
        return getattr(before[-1] if before else after[0], field)
    left, right = before[-1], after[0]
    share = (moment - left.at) / (right.at - left.at)
    return getattr(left, field) + (getattr(right, field) - getattr(left, field)) * share


def late(samples, begin, end):
    """Readings between two moments that came more than half a second late: the machine was busy with other work, and had no time for us."""
    return sum(begin <= right.at < end and right.at - left.at > 1.5 * MICRO for left, right in zip(samples, samples[1:]))


def totals(records):
    """What all transactions together did to the tables, from the first to the last one."""
    return {
        "payments": sum(record.kind == "P" for record in records),
        "orders": sum(record.result for record in records if record.kind == "O"),
        "delivered": sum(record.result for record in records if record.kind == "D"),
    }


def unlikely_rollbacks(records):
    """A sentence if the share of new orders that were rolled back cannot be the one of the rule, else None."""
    results = [record.result for record in records if record.kind == "O"]
    rolled, wanted = results.count(0), len(results) * ROLLED_BACK
    spread = math.sqrt(wanted * (1 - ROLLED_BACK))
    if abs(rolled - wanted) <= SIGMAS * spread + 1:
        return None
    return f"{rolled} of {len(results)} new orders were rolled back, by the rule it is one of a hundred"


def of_run(records, samples, warmup, seconds):
    """Figures of one run: those of the `seconds` after `warmup`."""
    zero = min((record.begin for record in records), default=0)
    begin, end = zero + warmup * MICRO, zero + (warmup + seconds) * MICRO
    counted = [record for record in records if begin <= record.begin + record.time < end]
    if not counted:
        raise Problem("no transaction ended in the time that counts: is --seconds long enough?")
    ends = [record.begin + record.time for record in records]
    orders = [record for record in counted if record.kind == "O"]
    committed = sum(record.result for record in orders)
    series = per_second(ends, zero, warmup + seconds)
    steady = series[warmup:]
    median = statistics.median(steady)
    cpu_seconds = at(samples, end, "cpu") - at(samples, begin, "cpu")
    return {
        "new_orders_per_minute": committed * 60 / seconds,
        "transactions_per_second": len(counted) / seconds,
        "rolled_back": len(orders) - committed,
        "kinds": {name: _of_kind([r.time for r in counted if r.kind == kind]) for kind, name in KINDS.items()},
        "all": _of_kind([record.time for record in counted]),
        "repeated": {
            "1020": sum(record.conflicts for record in counted),
            "1205": sum(record.timeouts for record in counted),
            "1213": sum(record.deadlocks for record in counted),
        },
        "median": median,
        "slowest": min(steady),
        "slowest_to_median": min(steady) / median if median else 0.0,
        "slowest_second": warmup + steady.index(min(steady)),
        "cpu_seconds": cpu_seconds,
        "cpu_ms_each": cpu_seconds * 1000 / len(counted),
        "written_bytes": at(samples, end, "written") - at(samples, begin, "written"),
        "late_readings": late(samples, begin, end),
        "series": {
            "warmup": warmup,
            "transactions": series,
            "new_orders": per_second([r.begin + r.time for r in records if r.kind == "O" and r.result], zero, warmup + seconds),
            "meters": [[round((sample.at - zero) / MICRO, 2), *sample[1:]] for sample in samples],
        },
    }


def _of_kind(times):
    """Number and milliseconds of the transactions of one kind."""
    milliseconds = [time / 1000 for time in times]
    return {
        "count": len(times),
        "mean_ms": statistics.fmean(milliseconds) if times else None,
        "p95_ms": percentile(milliseconds, 95),
        "p99_ms": percentile(milliseconds, 99),
    }


def summary(runs):
    """One entry for each number of clients and engine: medians over the rounds, and the ratio to InnoDB."""
    found = []
    for clients in dict.fromkeys(run["clients"] for run in runs):
        theirs = _middle([run for run in runs if run["clients"] == clients and run["engine"] == "InnoDB"], "new_orders_per_minute")
        for engine in dict.fromkeys(run["engine"] for run in runs if run["clients"] == clients):
            mine = [run for run in runs if run["clients"] == clients and run["engine"] == engine]
            rates = [run["new_orders_per_minute"] for run in mine]
            found.append(
                {
                    "clients": clients,
                    "engine": engine,
                    "rounds": len(mine),
                    "new_orders_per_minute": statistics.median(rates),
                    "least": min(rates),
                    "greatest": max(rates),
                    "ratio_to_innodb": statistics.median(rates) / theirs if theirs else None,
                    **{name: _middle(mine, name) for name in ("transactions_per_second", "median", "slowest_to_median", "cpu_seconds", "cpu_ms_each",
                                                              "peak_bytes", "disk_bytes", "written_bytes")},
                    "p95_ms": statistics.median(run["all"]["p95_ms"] for run in mine),
                    "p99_ms": statistics.median(run["all"]["p99_ms"] for run in mine),
                    "repeated": {name: sum(run["repeated"][name] for run in mine) for name in ("1020", "1205", "1213")},
                    "transactions": sum(run["all"]["count"] for run in mine),
                }
            )  # fmt: skip
    return found


def _middle(runs, name):
    """Median of one figure; None of no runs."""
    return statistics.median(run[name] for run in runs) if runs else None


def markdown(runs, loads):
    """Three tables: the comparison, the kinds of transactions, the loading; and what speaks against the figures."""
    entries = summary(runs)
    lines = [
        [
            entry["clients"], entry["engine"], f"{entry['new_orders_per_minute']:,.0f}", f"{entry['least']:,.0f}..{entry['greatest']:,.0f}",
            ratio_text(entry["ratio_to_innodb"]), f"{entry['transactions_per_second']:,.0f}", f"{entry['p95_ms']:.1f}", f"{entry['p99_ms']:.1f}",
            f"{entry['median']:,.0f}", f"{entry['slowest_to_median']:.2f}", " ".join(f"{entry['repeated'][n]}" for n in ("1020", "1205", "1213")),
            f"{entry['cpu_seconds']:.1f}", f"{entry['cpu_ms_each']:.2f}", size_text(entry["written_bytes"]), size_text(entry["peak_bytes"]), size_text(entry["disk_bytes"]),
        ]
        for entry in entries
    ]  # fmt: skip
    header = ["clients", "engine", "new orders/min", "rounds", "/ InnoDB", "all/s", "p95 ms", "p99 ms", "median/s", "slowest/median",
              "1020 1205 1213", "CPU s", "CPU ms each", "written", "memory", "disk"]  # fmt: skip
    doubts = [
        f"- {run['engine']}, {clients_text(run['clients'])}, round {run['round']}: {run['late_readings']} readings of the meters came late. The machine was "
        "busy with other work, so the rates say little."
        for run in runs
        if run["late_readings"]
    ]
    return "\n\n".join([table(header, lines), *(["\n".join(doubts)] if doubts else []), _kinds_table(runs), _loads_table(loads)])


def _kinds_table(runs):
    """Milliseconds of each kind, medians over the rounds: mean, p95, p99."""
    lines = []
    for clients, engine in dict.fromkeys((run["clients"], run["engine"]) for run in runs):
        cells = []
        for name in KINDS.values():
            found = [run["kinds"][name] for run in runs if run["clients"] == clients and run["engine"] == engine and run["kinds"][name]["count"]]
            cells.append(" ".join(f"{statistics.median(kind[part] for kind in found):.1f}" for part in ("mean_ms", "p95_ms", "p99_ms")) if found else "-")
        lines.append([clients, engine, *cells])
    return table(["clients", "engine", *(f"{name}: mean, p95, p99 ms" for name in KINDS.values())], lines)


def _loads_table(loads):
    """Time, processor and space of loading."""
    lines = [[name, f"{load['seconds']:.1f}", f"{load['cpu_seconds']:.1f}", size_text(load["disk_bytes"])] for name, load in loads.items()]
    return table(["loading", "seconds", "CPU s", "disk"], lines)


def clients_text(number):
    """How many clients, as people say it."""
    return f"{number} client{'s' * (number != 1)}"


def panels(runs):
    """What bench/curves.py draws: {heading: {engine: [series of each round]}}."""
    found = {}
    for run in runs:
        found.setdefault(clients_text(run["clients"]), {}).setdefault(run["engine"], []).append(run["series"]["transactions"])
    return found
