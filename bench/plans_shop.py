"""The generated half of bench/plans: a wholesaler's customers, suppliers, parts, orders and order lines, the same rows for every seed.

Why it exists: flights have one large table. Joins of five tables, composite primary keys and skewed foreign keys need a schema of their
own, and both engines must have identical rows.
What is uneven, as in life: a few customers order most, a few suppliers deliver most, one order in fifty is still open, prices of parts
follow their brand, and goods are shipped some days after the order was placed.
"""

import random
from bisect import bisect_left
from datetime import date, timedelta
from itertools import accumulate, takewhile

FIRST_DAY = date(2019, 1, 1)
DAYS = 1500
REGIONS = 25
SEGMENTS = ("builder", "garage", "kitchen", "office", "shop")
MODES = ("air", "courier", "rail", "ship", "truck")
MODE_WEIGHTS = (2, 3, 20, 25, 50)
BRANDS = 40

TABLES = {
    "customer": "id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, region TINYINT NOT NULL, segment CHAR(10) NOT NULL,"
    " balance DECIMAL(12,2) NOT NULL, since DATE NOT NULL, note VARCHAR(80), KEY name (name), KEY region (region, segment),"
    " KEY balance (balance)",
    "supplier": "id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, region TINYINT NOT NULL, rating TINYINT, KEY region (region)",
    "part": "id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, brand CHAR(8) NOT NULL, size INT NOT NULL,"
    " price DECIMAL(10,2) NOT NULL, KEY brand (brand, size), KEY size (size)",
    "orders": "id INT NOT NULL PRIMARY KEY, customer INT NOT NULL, placed DATE NOT NULL, status CHAR(1) NOT NULL, priority TINYINT NOT NULL,"
    " clerk SMALLINT NOT NULL, total DECIMAL(12,2) NOT NULL, note VARCHAR(60), KEY customer (customer, placed), KEY placed (placed),"
    " KEY status (status, placed), KEY clerk (clerk), KEY priority (priority)",
    "line": "order_id INT NOT NULL, number TINYINT NOT NULL, part INT NOT NULL, supplier INT NOT NULL, quantity SMALLINT NOT NULL,"
    " price DECIMAL(10,2) NOT NULL, discount DECIMAL(4,2), shipped DATE, mode CHAR(8) NOT NULL, note VARCHAR(40),"
    " PRIMARY KEY (order_id, number), KEY part (part, supplier), KEY shipped (shipped), KEY supplier (supplier, shipped),"
    " KEY mode (mode, quantity)",
}


class Skewed:
    """Draws 1, 2, ... `count`, small numbers far more often (Zipf-Mandelbrot); numbers are scattered over the ids by a fixed shuffle."""

    def __init__(self, draw, count, steepness):
        self.draw = draw
        self.sums = list(accumulate(1 / (rank + 10) ** steepness for rank in range(count)))
        self.ids = list(range(1, count + 1))
        draw.shuffle(self.ids)

    def one(self):
        """One id."""
        return self.ids[bisect_left(self.sums, self.draw.random() * self.sums[-1])]


def word(draw):
    """A pronounceable name."""
    return "".join(draw.choice("bcdfghklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 4)))


def sizes(lines):
    """Rows of each table, for about so many order lines."""
    return {"customer": lines // 25, "supplier": max(lines // 400, 20), "part": lines // 20, "orders": lines // 4}


def named_rows(table, rows):
    """Rows as dictionaries of text."""
    words = (text.split()[0] for text in TABLES[table].split(", "))
    names = list(takewhile(lambda word: word not in ("PRIMARY", "KEY"), words))
    return [{name: None if value is None else str(value) for name, value in zip(names, row, strict=True)} for row in rows]


def generate(lines, seed):
    """Yields the rows of each table, in the order of TABLES."""
    draw = random.Random(seed)
    count = sizes(lines)
    yield [
        (
            number,
            f"{word(draw)} {word(draw)}",
            min(int(draw.expovariate(0.2)), REGIONS - 1),
            draw.choice(SEGMENTS),
            f"{draw.gauss(2000, 3000):.2f}",
            FIRST_DAY - timedelta(days=draw.randrange(3000)),
            f"{word(draw)} {word(draw)} {word(draw)}",
        )
        for number in range(1, count["customer"] + 1)
    ]
    yield [
        (number, word(draw), draw.randrange(REGIONS), draw.randrange(1, 11)) for number in range(1, count["supplier"] + 1)
    ]
    brands = [draw.randrange(BRANDS) for _ in range(count["part"])]
    yield [
        (number, f"{word(draw)} {word(draw)}", f"brand{brand:02}", draw.randrange(1, 51), f"{(brand + 1) * draw.uniform(2, 9):.2f}")
        for number, brand in enumerate(brands, 1)
    ]
    yield from _orders(draw, count)


def _orders(draw, count):
    customers, suppliers = Skewed(draw, count["customer"], 0.8), Skewed(draw, count["supplier"], 1.0)
    parts, clerks = Skewed(draw, count["part"], 0.7), Skewed(draw, 500, 0.5)
    orders, lines = [], []
    for number in range(1, count["orders"] + 1):
        placed = FIRST_DAY + timedelta(days=number * DAYS // (count["orders"] + 1))
        total = 0.0
        is_open = draw.random() < 0.02
        for line in range(1, min(1 + int(draw.expovariate(0.28)), 15) + 1):
            quantity, price = draw.randint(1, 50), draw.uniform(2, 300)
            total += quantity * price
            shipped = None if is_open else placed + timedelta(days=draw.randint(1, 60))
            mode = draw.choices(MODES, MODE_WEIGHTS)[0]
            discount = None if draw.random() < 0.7 else f"{draw.randrange(20) / 100:.2f}"
            lines.append((number, line, parts.one(), suppliers.one(), quantity, f"{price:.2f}", discount, shipped, mode, word(draw)))
        status = "P" if is_open else draw.choice("FFFO")
        orders.append(
            (number, customers.one(), placed, status, draw.randint(1, 5), clerks.one(), f"{total:.2f}", f"{word(draw)} {word(draw)}")
        )
    yield orders
    yield lines
