"""The benchmark of orders: its arithmetic, its conditions on rows broken on purpose, and what its clients draw."""

import importlib.machinery
import importlib.util
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from common import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import curves, lab, tpcc_figures, tpcc_tables  # noqa: E402  # the path to bench/ is set above
from bench.tpcc_figures import MICRO, Record, Sample  # noqa: E402

# One warehouse with two districts. In district 1 an order that was delivered and one that is open, in district 2 an open one.
ROWS = {
    "warehouse": [{"w_id": 1, "w_ytd": 60}],
    "district": [{"d_w_id": 1, "d_id": 1, "d_ytd": 40, "d_next_o_id": 3}, {"d_w_id": 1, "d_id": 2, "d_ytd": 20, "d_next_o_id": 2}],
    "customer": [
        {"c_w_id": 1, "c_d_id": 1, "c_id": 1, "c_balance": -33, "c_ytd_payment": 40},
        {"c_w_id": 1, "c_d_id": 2, "c_id": 1, "c_balance": -20, "c_ytd_payment": 20},
    ],
    "history": [
        {"h_c_w_id": 1, "h_c_d_id": 1, "h_c_id": 1, "h_w_id": 1, "h_d_id": 1, "h_amount": 40},
        {"h_c_w_id": 1, "h_c_d_id": 2, "h_c_id": 1, "h_w_id": 1, "h_d_id": 2, "h_amount": 20},
    ],
    "orders": [
        {"o_w_id": 1, "o_d_id": 1, "o_id": 1, "o_c_id": 1, "o_carrier_id": 5, "o_ol_cnt": 2},
        {"o_w_id": 1, "o_d_id": 1, "o_id": 2, "o_c_id": 1, "o_carrier_id": None, "o_ol_cnt": 1},
        {"o_w_id": 1, "o_d_id": 2, "o_id": 1, "o_c_id": 1, "o_carrier_id": None, "o_ol_cnt": 1},
    ],
    "new_orders": [{"no_w_id": 1, "no_d_id": 1, "no_o_id": 2}, {"no_w_id": 1, "no_d_id": 2, "no_o_id": 1}],
    "order_line": [
        {"ol_w_id": 1, "ol_d_id": 1, "ol_o_id": 1, "ol_number": 1, "ol_amount": 3, "ol_delivery_d": "2026-01-01"},
        {"ol_w_id": 1, "ol_d_id": 1, "ol_o_id": 1, "ol_number": 2, "ol_amount": 4, "ol_delivery_d": "2026-01-01"},
        {"ol_w_id": 1, "ol_d_id": 1, "ol_o_id": 2, "ol_number": 1, "ol_amount": 9, "ol_delivery_d": None},
        {"ol_w_id": 1, "ol_d_id": 2, "ol_o_id": 1, "ol_number": 1, "ol_amount": 8, "ol_delivery_d": None},
    ],
}
COUNTS = {name: len(rows) for name, rows in ROWS.items()}
# A change, and the conditions that it breaks.
BREAKS = {
    "UPDATE warehouse SET w_ytd = 61": {"1", "8"},
    "UPDATE district SET d_ytd = 41 WHERE d_id = 1": {"1", "9"},
    "UPDATE district SET d_next_o_id = 4 WHERE d_id = 1": {"2"},
    "UPDATE new_orders SET no_o_id = 3 WHERE no_d_id = 1": {"2", "5"},
    "INSERT INTO new_orders (no_w_id, no_d_id, no_o_id) VALUES (1, 1, 0)": {"3"},
    "UPDATE orders SET o_ol_cnt = 3 WHERE o_d_id = 1 AND o_id = 1": {"4", "6, 7"},
    "DELETE FROM order_line WHERE ol_d_id = 2": {"4", "6, 7"},
    "UPDATE orders SET o_carrier_id = 1 WHERE o_d_id = 2": {"5", "6, 7"},
    "UPDATE order_line SET ol_o_id = 2, ol_number = 2, ol_delivery_d = NULL, ol_amount = 0 WHERE ol_number = 2": {"6, 7", "10, 12"},
    "UPDATE order_line SET ol_delivery_d = NULL, ol_amount = 0 WHERE ol_number = 2": {"6, 7", "10, 12"},
    "DELETE FROM history WHERE h_d_id = 2": {"8", "9", "10, 12"},
    "UPDATE customer SET c_balance = -32 WHERE c_d_id = 1": {"10, 12"},
    "UPDATE customer SET c_ytd_payment = 0 WHERE c_d_id = 2": {"10, 12"},
}


def script(name):
    """A tool of bench/ as a module; its file has no extension."""
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(ROOT / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def small_database():
    """The rows above, in memory; columns that no condition reads are 0."""
    connection = sqlite3.connect(":memory:")
    for table in tpcc_tables.TABLES:
        connection.execute(tpcc_tables.create(table))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
        for row in ROWS.get(table.name, []):
            assert set(row) <= set(columns)
            marks = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO {table.name} VALUES ({marks})", [row.get(column, 0) for column in columns])
    return connection


def asker(connection):
    """Runs a query as tpcc_tables.complaints wants it."""
    return lambda query: connection.execute(query).fetchall()


def test_conditions_hold_on_rows_that_are_right():
    assert not list(tpcc_tables.complaints(asker(small_database()), COUNTS))


@pytest.mark.parametrize("change", BREAKS)
def test_each_broken_row_is_found_by_its_conditions_and_no_other(change):
    connection = small_database()
    assert connection.execute(change).rowcount == 1
    found = {line.split("3.3.2.")[1].split(":")[0] for line in tpcc_tables.complaints(asker(connection), {})}
    assert found == BREAKS[change]


def test_every_condition_is_broken_by_some_change():
    assert {name.split(":")[0] for name in tpcc_tables.CONDITIONS} == set().union(*BREAKS.values())


def test_lost_rows_are_missed_and_what_the_clients_did_is_expected():
    lines = list(tpcc_tables.complaints(asker(small_database()), {**COUNTS, "history": 3}))
    assert lines == ["table history has 2 rows, 3 must be there"]
    before = tpcc_tables.loaded_rows(2)
    assert before["orders"] == 60_000 and before["new_orders"] == 18_000 and before["stock"] == 200_000
    after = tpcc_tables.grown(before, {"payments": 7, "orders": 5, "delivered": 20})
    assert {name: after[name] - before[name] for name in before if after[name] != before[name]} == {"history": 7, "orders": 5, "new_orders": -15}


def test_constraints_are_declared_with_the_indexes_they_need_or_not_at_all():
    tables = {table.name: table for table in tpcc_tables.TABLES}
    with_keys = tpcc_tables.create(tables["stock"], "PBXT")
    assert "FOREIGN KEY (s_i_id) REFERENCES item (i_id)" in with_keys and "KEY stock_by_item (s_i_id)" in with_keys
    assert with_keys.endswith("ENGINE=PBXT DEFAULT CHARSET=latin1")
    without = tpcc_tables.create(tables["stock"], "PBXT", foreign_keys=False)
    assert "FOREIGN" not in without and "stock_by_item" not in without
    seen = set()
    for table in tpcc_tables.TABLES:
        assert {parent for _, parent, _, _ in table.foreign} <= seen  # a child comes after its parents
        seen.add(table.name)
    assert sum(len(table.foreign) for table in tpcc_tables.TABLES) == 10


def test_percentiles_are_those_of_the_nearest_rank():
    hundred = list(range(100, 0, -1))
    assert [tpcc_figures.percentile(hundred, p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert tpcc_figures.percentile([7], 99) == 7 and tpcc_figures.percentile([], 99) is None
    assert tpcc_figures.percentile([1, 2, 3], 95) == 3


def test_meters_are_read_between_samples():
    samples = [Sample(0, 1.0, 0, 0, 0), Sample(10, 2.0, 0, 100, 0), Sample(20, 4.0, 0, 100, 0)]
    assert [tpcc_figures.at(samples, moment, "cpu") for moment in (-5, 0, 5, 15, 20, 99)] == [1.0, 1.0, 1.5, 3.0, 4.0, 4.0]


def test_a_machine_that_has_no_time_for_the_meters_is_told_of():
    samples = [Sample(int(second * MICRO), 0.0, 0, 0, 0) for second in (0, 1.01, 2.6, 3.6, 9, 10)]
    assert tpcc_figures.late(samples, 0, 10 * MICRO) == 2
    assert tpcc_figures.late(samples, 3 * MICRO, 10 * MICRO) == 1
    assert tpcc_figures.late(samples, 0, 2 * MICRO) == 0


def ended(second, kind="O", result=1, time=1000, deadlocks=0):
    """A record that ends so many seconds after the clock's 50th."""
    return Record(int((50 + second) * MICRO) - time, time, kind, result, 0, 0, deadlocks)


def test_only_seconds_after_the_warm_up_count():
    first = Record(50 * MICRO, 1000, "P", 1, 0, 0, 0)  # its begin is second 0
    records = [
        first, ended(0.5), ended(1.1), ended(1.2, time=5000), ended(1.3, "P"), ended(1.9, result=0), ended(2.5, deadlocks=2), ended(3.5),
    ]  # fmt: skip
    samples = [Sample(50 * MICRO, 1.0, 0, 0, 0), Sample(54 * MICRO, 5.0, 0, 0, 4096)]
    figures = tpcc_figures.of_run(records, samples, warmup=1, seconds=2)
    assert figures["new_orders_per_minute"] == 3 * 30 and figures["transactions_per_second"] == 5 / 2
    assert figures["rolled_back"] == 1 and figures["repeated"] == {"1020": 0, "1205": 0, "1213": 2}
    assert figures["series"]["transactions"] == [2, 4, 1] and figures["series"]["new_orders"] == [1, 2, 1]
    assert (figures["median"], figures["slowest"], figures["slowest_second"]) == (2.5, 1, 2)
    assert figures["kinds"]["new order"]["p99_ms"] == 5.0 and figures["kinds"]["delivery"] == {"count": 0, "mean_ms": None, "p95_ms": None, "p99_ms": None}
    assert (figures["cpu_seconds"], figures["cpu_ms_each"]) == pytest.approx((2.0, 400.0)) and figures["written_bytes"] == pytest.approx(2048)
    # What the tables must have grown by is counted over the whole run.
    assert tpcc_figures.totals(records) == {"payments": 2, "orders": 5, "delivered": 0}
    with pytest.raises(Problem):
        tpcc_figures.of_run(records, samples, warmup=10, seconds=2)


def test_a_share_of_rollbacks_that_is_no_chance_is_told():
    def orders(rolled, count):
        return [ended(1, result=0)] * rolled + [ended(1)] * (count - rolled)

    assert tpcc_figures.unlikely_rollbacks(orders(100, 10_000)) is None
    assert tpcc_figures.unlikely_rollbacks(orders(145, 10_000)) is None
    assert "160 of 10000" in tpcc_figures.unlikely_rollbacks(orders(160, 10_000))
    assert tpcc_figures.unlikely_rollbacks(orders(0, 10_000)) is not None
    assert tpcc_figures.unlikely_rollbacks(orders(1, 3)) is None


def test_the_ratio_is_median_against_median_for_each_number_of_clients():
    def run(engine, clients, rate):
        part = {"count": 1, "mean_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0}
        return {
            "engine": engine, "clients": clients, "round": 1, "new_orders_per_minute": rate, "transactions_per_second": rate / 27, "median": 1.0,
            "slowest_to_median": 0.5, "cpu_seconds": 1.0, "cpu_ms_each": 1.0, "late_readings": int(clients == 1), "peak_bytes": 1 << 20, "disk_bytes": 1 << 20, "written_bytes": 1 << 20, "all": part,
            "kinds": {name: part for name in tpcc_figures.KINDS.values()}, "repeated": {"1020": 1, "1205": 0, "1213": 2},
            "series": {"transactions": [1, 2]},
        }  # fmt: skip

    runs = [run("PBXT", 16, rate) for rate in (100, 900, 300)] + [run("InnoDB", 16, rate) for rate in (150, 150, 999)] + [run("PBXT", 1, 5)]
    entries = {(entry["clients"], entry["engine"]): entry for entry in tpcc_figures.summary(runs)}
    assert entries[16, "PBXT"]["ratio_to_innodb"] == 2.0 and entries[16, "InnoDB"]["ratio_to_innodb"] == 1.0
    assert entries[1, "PBXT"]["ratio_to_innodb"] is None  # InnoDB did not run with one client
    assert (entries[16, "PBXT"]["least"], entries[16, "PBXT"]["greatest"], entries[16, "PBXT"]["rounds"]) == (100, 900, 3)
    assert entries[16, "PBXT"]["repeated"] == {"1020": 3, "1205": 0, "1213": 6}
    text = tpcc_figures.markdown(runs, {"PBXT": {"seconds": 1.0, "cpu_seconds": 1.0, "disk_bytes": 1 << 20}})
    assert "2.000x" in text and "100..900" in text and text.count("came late") == 1
    assert list(tpcc_figures.panels(runs)) == ["16 clients", "1 client"] and len(tpcc_figures.panels(runs)["16 clients"]["PBXT"]) == 3


def test_records_are_read_back(tmp_path):
    (tmp_path / "0").write_text("1000 250 O 1 0 0 2\n2000 9 D 10 1 0 0\n", encoding="ascii")
    (tmp_path / "1").write_text("1500 7 L 1 0 3 0\n", encoding="ascii")
    assert tpcc_figures.read(tmp_path) == [Record(1000, 250, "O", 1, 0, 0, 2), Record(2000, 9, "D", 10, 1, 0, 0), Record(1500, 7, "L", 1, 0, 3, 0)]


def test_a_chart_is_written_twice_and_starts_at_nothing(tmp_path):
    written = curves.draw({"1 client": {"PBXT": [[5, 6], [5, 5]], "Else": [[4, 4]]}, "2 clients": {"InnoDB": [[1, 9]]}}, tmp_path / "c.md", "title", ignored=1)
    assert [path.name for path in written] == ["c.svg", "c.png"] and all(path.stat().st_size > 1000 for path in written)
    assert curves.colour_of("PBXT", []) != curves.colour_of("Else", ["Else"]) != curves.colour_of("Other", ["Else", "Other"])


def test_options_have_their_defaults_and_nonsense_is_refused(monkeypatch):
    tpcc = script("tpcc")
    monkeypatch.setattr(sys, "argv", ["tpcc"])
    options = tpcc.parse_arguments(lab)
    assert (options.clients, options.warehouses, options.foreign_keys, options.redo) == ([1, 16], 10, True, "1G")
    monkeypatch.setattr(sys, "argv", ["tpcc", "--clients", "3", "--clients", "9", "--no-foreign-keys"])
    options = tpcc.parse_arguments(lab)
    assert options.clients == [3, 9] and options.rows == "10 warehouses, foreign keys off"
    for wrong in (["--clients", "0"], ["--seconds", "0"], ["--warmup", "-1"], ["--warehouses", "0"]):
        monkeypatch.setattr(sys, "argv", ["tpcc", *wrong])
        with pytest.raises(Problem):
            tpcc.parse_arguments(lab)


def test_a_load_that_stopped_half_way_is_noticed(monkeypatch):
    tpcc = script("tpcc")
    engine = object.__new__(tpcc.Engine)
    engine.kind, engine.options = lab.KINDS["pbxt"], SimpleNamespace(warehouses=2, seed=1)
    said = ["loaded warehouse 1\n", "FATAL: no room\n"]
    monkeypatch.setattr(engine, "_sysbench", lambda *_: (line for line in said), raising=False)
    with pytest.raises(Problem, match="no room"):
        engine._fill()  # pylint: disable=protected-access
    said[1] = "loaded warehouse 2\n"
    engine._fill()  # pylint: disable=protected-access


def lua(tmp_path, body):
    """What a script prints that sysbench runs with the modules of bench/ at hand; it needs no server."""
    path = tmp_path / "ask.lua"
    path.write_text(
        f'package.path = "{ROOT}/bench/?.lua;" .. package.path\nlocal draw = require("tpcc_random")\n'
        f'local transactions = require("tpcc_transactions")\nlocal load = require("tpcc_load")\n'
        f"function event() end\nsysbench.cmdline.commands = {{ask = {{function()\ndraw.seed(7)\n{body}\nend}}}}\n",
        encoding="utf-8",
    )
    done = subprocess.run(["sysbench", str(path), "ask"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "FATAL" not in done.stdout + done.stderr, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line and not line.startswith("sysbench 1")]


def test_names_are_the_syllables_of_the_specification(tmp_path):
    body = "for _, n in ipairs({0, 371, 999}) do print(draw.last_name(n)) end"
    assert lua(tmp_path, body) == ["BARBARBAR", "PRICALLYOUGHT", "EINGEINGEING"]


def test_values_lie_where_the_specification_wants_them(tmp_path):
    body = """
    local original, least, most, longest, shortest = 0, 3000, 1, 0, 99
    for _ = 1, 20000 do
       local text = draw.original(26, 50)
       original = original + (text:find("ORIGINAL") and 1 or 0)
       longest, shortest = math.max(longest, #text), math.min(shortest, #text)
       local c, i = draw.customer(), draw.item()
       least, most = math.min(least, c), math.max(most, c)
       assert(i >= 1 and i <= 100000 and i == math.floor(i))
    end
    print(original, shortest, longest, least, most)
    local seen = {}
    for _, n in ipairs(draw.shuffled(3000)) do assert(not seen[n] and n >= 1 and n <= 3000); seen[n] = true end
    print(draw.decimal(5, 5), draw.decimal(5, 5, 4), #draw.zip(), draw.zip():sub(5))
    """
    first, second = lua(tmp_path, body)
    original, *others = map(int, first.split())
    assert 1800 < original < 2200 and others == [26, 50, 1, 3000]
    assert second.split() == ["0.05", "0.0005", "9", "11111"]


def test_new_orders_and_payments_are_drawn_in_their_shares(tmp_path):
    body = """
    local unused, remote, lines, away, named, n = 0, 0, 0, 0, 0, 20000
    for _ = 1, n do
       local order = transactions.draw_order(4)
       assert(#order.lines >= 5 and #order.lines <= 15 and order.w >= 1 and order.w <= 4)
       unused = unused + (order.lines[#order.lines].item > 100000 and 1 or 0)
       local all_local = 1
       for _, line in ipairs(order.lines) do
          lines = lines + 1
          if line.supply ~= order.w then remote = remote + 1; all_local = 0 end
          assert(line.supply >= 1 and line.supply <= 4)
       end
       assert(all_local == order.all_local)
       local payment = transactions.draw_payment(4)
       away = away + (payment.c_w ~= payment.w and 1 or 0)
       named = named + (payment.last and 1 or 0)
       assert((payment.last == nil) ~= (payment.c == nil))
    end
    print(unused / n, lines / n, remote / lines, away / n, named / n)
    local alone = transactions.draw_order(1)
    print(alone.all_local, transactions.draw_payment(1).c_w)
    """
    shares, alone = lua(tmp_path, body)
    unused, lines, remote, away, named = map(float, shares.split())
    assert abs(unused - 0.01) < 0.003 and abs(lines - 10) < 0.15 and abs(remote - 0.01) < 0.002
    assert abs(away - 0.15) < 0.02 and abs(named - 0.60) < 0.02
    assert alone.split() == ["1", "1"]


def test_a_warehouse_has_the_same_rows_whichever_thread_loads_it(tmp_path):
    body = """
    local function load_with(threads)
       local sum, counts = 0, {}
       local connection = {query = function(_, text)
          local name = text:match("^INSERT INTO (%S+)")
          if name then
             counts[name] = (counts[name] or 0) + select(2, text:gsub("%),%(", "")) + 1
             for place = 1, #text, 101 do sum = bit.tobit(sum * 33 + text:byte(place)) end
          end
       end}
       for id = 0, threads - 1 do load.share(connection, id, threads, 2, 5) end
       return sum, counts
    end
    local one, counts = load_with(1)
    print("same", tostring(load_with(2) == one))
    for name, count in pairs(counts) do print("count", name, count) end
    """
    found = [line.split() for line in lua(tmp_path, body)]
    assert ["same", "true"] in found
    counts = {words[1]: int(words[2]) for words in found if words[0] == "count"}
    lines = counts.pop("order_line")
    assert counts == tpcc_tables.loaded_rows(2) and abs(lines / counts["orders"] - 10) < 0.1
