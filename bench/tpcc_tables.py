"""The tables of bench/tpcc, and what must hold in them: the consistency conditions of the TPC-C specification (clause 3.3.2) as queries.

Why it exists: tpcc.lua fills and changes the tables, and nothing it says about itself proves that an engine kept them. A condition is a query
that returns the rows which break it, so a failure names them. The queries are plain SQL: the tests run them on SQLite, on rows
broken on purpose.
Conditions 6 and 7 and conditions 10 and 12 are about the same sums, so each pair is one query. Condition 11 (orders less open
orders are 2,100 in each district) holds after loading only; afterwards the clients' own counts say what must be there (`grown`).
"""

from dataclasses import dataclass

DATABASE = "tpcc"
ITEMS, STOCK, DISTRICTS, CUSTOMERS, OPEN_ORDERS = 100_000, 100_000, 10, 3_000, 900


@dataclass(frozen=True)
class Table:
    """A table of clause 1.3; `foreign` are constraints: columns, parent, its columns, and the index if the primary key does not serve."""

    name: str
    columns: str
    primary: str = ""
    keys: tuple = ()
    foreign: tuple = ()


def _address(letter):
    """The columns of a postal address."""
    return (
        f"{letter}_street_1 VARCHAR(20) NOT NULL, {letter}_street_2 VARCHAR(20) NOT NULL, {letter}_city VARCHAR(20) NOT NULL, "
        f"{letter}_state CHAR(2) NOT NULL, {letter}_zip CHAR(9) NOT NULL"
    )


# In an order in which each comes after those it refers to. Columns stand in the order in which tpcc.lua inserts them.
TABLES = (
    Table(
        "warehouse",
        f"w_id SMALLINT NOT NULL, w_name VARCHAR(10) NOT NULL, {_address('w')}, w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL",
        "w_id",
    ),
    Table(
        "district",
        f"d_id TINYINT NOT NULL, d_w_id SMALLINT NOT NULL, d_name VARCHAR(10) NOT NULL, {_address('d')}, d_tax DECIMAL(4,4) NOT NULL, "
        "d_ytd DECIMAL(12,2) NOT NULL, d_next_o_id INT NOT NULL",
        "d_w_id, d_id",
        foreign=(("d_w_id", "warehouse", "w_id", ""),),
    ),
    Table(
        "customer",
        "c_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_w_id SMALLINT NOT NULL, c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, "
        f"c_last VARCHAR(16) NOT NULL, {_address('c')}, c_phone CHAR(16) NOT NULL, c_since DATETIME NOT NULL, c_credit CHAR(2) NOT NULL, "
        "c_credit_lim DECIMAL(12,2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL, c_balance DECIMAL(12,2) NOT NULL, "
        "c_ytd_payment DECIMAL(12,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL",
        "c_w_id, c_d_id, c_id",
        keys=(("customer_by_name", "c_w_id, c_d_id, c_last, c_first"),),
        foreign=(("c_w_id, c_d_id", "district", "d_w_id, d_id", ""),),
    ),
    Table(
        "history",
        "h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_w_id SMALLINT NOT NULL, h_d_id TINYINT NOT NULL, h_w_id SMALLINT NOT NULL, "
        "h_date DATETIME NOT NULL, h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL",
        foreign=(
            ("h_c_w_id, h_c_d_id, h_c_id", "customer", "c_w_id, c_d_id, c_id", "history_by_customer"),
            ("h_w_id, h_d_id", "district", "d_w_id, d_id", "history_by_district"),
        ),
    ),
    Table(
        "orders",
        "o_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_w_id SMALLINT NOT NULL, o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, "
        "o_carrier_id TINYINT, o_ol_cnt TINYINT NOT NULL, o_all_local TINYINT NOT NULL",
        "o_w_id, o_d_id, o_id",
        keys=(("orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id"),),
        foreign=(("o_w_id, o_d_id, o_c_id", "customer", "c_w_id, c_d_id, c_id", ""),),
    ),
    Table(
        "new_orders",
        "no_o_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_w_id SMALLINT NOT NULL",
        "no_w_id, no_d_id, no_o_id",
        foreign=(("no_w_id, no_d_id, no_o_id", "orders", "o_w_id, o_d_id, o_id", ""),),
    ),
    Table(
        "item",
        "i_id INT NOT NULL, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL",
        "i_id",
    ),
    Table(
        "stock",
        "s_i_id INT NOT NULL, s_w_id SMALLINT NOT NULL, s_quantity SMALLINT NOT NULL, "
        + "".join(f"s_dist_{d:02} CHAR(24) NOT NULL, " for d in range(1, 11))
        + "s_ytd INT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, s_data VARCHAR(50) NOT NULL",
        "s_w_id, s_i_id",
        foreign=(("s_w_id", "warehouse", "w_id", ""), ("s_i_id", "item", "i_id", "stock_by_item")),
    ),
    Table(
        "order_line",
        "ol_o_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_w_id SMALLINT NOT NULL, ol_number TINYINT NOT NULL, ol_i_id INT NOT NULL, "
        "ol_supply_w_id SMALLINT NOT NULL, ol_delivery_d DATETIME, ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, "
        "ol_dist_info CHAR(24) NOT NULL",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
        foreign=(
            ("ol_w_id, ol_d_id, ol_o_id", "orders", "o_w_id, o_d_id, o_id", ""),
            ("ol_supply_w_id, ol_i_id", "stock", "s_w_id, s_i_id", "order_line_by_stock"),
        ),
    ),
)

CONDITIONS = {
    "1: a warehouse's sum is that of its districts": """
        SELECT w_id, w_ytd, total FROM warehouse
        LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS total FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id
        WHERE total IS NULL OR w_ytd <> total""",
    "2: a district's next order comes after its newest": """
        SELECT d_w_id, d_id, d_next_o_id, newest, newest_open FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS newest FROM orders GROUP BY o_w_id, o_d_id) AS o
            ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest_open FROM new_orders GROUP BY no_w_id, no_d_id) AS n
            ON no_w_id = d_w_id AND no_d_id = d_id
        WHERE newest IS NULL OR newest <> d_next_o_id - 1 OR newest_open <> d_next_o_id - 1""",
    "3: open orders have no gaps": """
        SELECT no_w_id, no_d_id, MIN(no_o_id), MAX(no_o_id), COUNT(*) FROM new_orders GROUP BY no_w_id, no_d_id
        HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)""",
    "4: a district has the lines that its orders say": """
        SELECT o_w_id, o_d_id, promised, found FROM
            (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS promised FROM orders GROUP BY o_w_id, o_d_id) AS o
        LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id) AS l
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id
        WHERE found IS NULL OR promised <> found""",
    "5: an order without carrier is open, and no other": """
        SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders
        LEFT JOIN new_orders ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)""",
    "6, 7: an order has its lines, dated if it has a carrier": """
        SELECT o_w_id, o_d_id, o_id, o_ol_cnt, found, o_carrier_id, undated FROM orders
        LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS found, SUM(ol_delivery_d IS NULL) AS undated
                   FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) AS l
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE found IS NULL OR found <> o_ol_cnt OR undated <> CASE WHEN o_carrier_id IS NULL THEN found ELSE 0 END""",
    "8: a warehouse's sum is that of its payments": """
        SELECT w_id, w_ytd, total FROM warehouse
        LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS total FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id
        WHERE total IS NULL OR w_ytd <> total""",
    "9: a district's sum is that of its payments": """
        SELECT d_w_id, d_id, d_ytd, total FROM district
        LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS total FROM history GROUP BY h_w_id, h_d_id) AS h
            ON h_w_id = d_w_id AND h_d_id = d_id
        WHERE total IS NULL OR d_ytd <> total""",
    "10, 12: a customer owes what was delivered and not paid": """
        SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered, paid FROM customer
        LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders
                   JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                   WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS o
            ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h
            ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
        WHERE c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0) OR c_balance + c_ytd_payment <> COALESCE(delivered, 0)""",
}
SHOWN = 3  # rows of a broken condition that its message has


def create(table, engine=None, foreign_keys=True):
    """The CREATE TABLE of one table; without engine only what every SQL database knows."""
    lines = [table.columns]
    lines += [f"PRIMARY KEY ({table.primary})"] if table.primary else []
    if engine is None:
        return f"CREATE TABLE {table.name} ({', '.join(lines)})"
    lines += [f"KEY {name} ({columns})" for name, columns in table.keys]
    for columns, parent, referred, index in table.foreign if foreign_keys else ():
        lines += [f"KEY {index} ({columns})"] if index else []
        lines.append(f"FOREIGN KEY ({columns}) REFERENCES {parent} ({referred})")
    return f"CREATE TABLE {table.name} ({', '.join(lines)}) ENGINE={engine} DEFAULT CHARSET=latin1"


def loaded_rows(warehouses):
    """Rows of each table right after loading; order_line, which is drawn, is left to condition 4."""
    customers = warehouses * DISTRICTS * CUSTOMERS
    return {
        "warehouse": warehouses,
        "district": warehouses * DISTRICTS,
        "customer": customers,
        "history": customers,
        "orders": customers,
        "new_orders": warehouses * DISTRICTS * OPEN_ORDERS,
        "item": ITEMS,
        "stock": warehouses * STOCK,
    }


def grown(before, totals):
    """Rows that the tables must have after a run: those before it, and what all clients together say they did."""
    return {
        **before,
        "history": before["history"] + totals["payments"],
        "orders": before["orders"] + totals["orders"],
        "new_orders": before["new_orders"] + totals["orders"] - totals["delivered"],
    }


def complaints(ask, expected):
    """A sentence for each table of `expected` with another number of rows, and for each condition broken; `ask` runs a query."""
    for name, wanted in expected.items():
        found = ask(f"SELECT COUNT(*) FROM {name}")[0][0]
        if found != wanted:
            yield f"table {name} has {found:,} rows, {wanted:,} must be there"
    for name, query in CONDITIONS.items():
        rows = ask(f"{query} LIMIT {SHOWN}")
        if rows:
            yield f"condition 3.3.2.{name}: not so in {', '.join(str(tuple(map(str, row))) for row in rows)}{' and perhaps more' * (len(rows) == SHOWN)}"
