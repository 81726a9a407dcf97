"""The `video` table of the 2011 comparison: its columns, generated rows that are the same on every machine, and a template to copy.

Why it exists: all engines must load identical rows, and making eleven million of them for each run would take longer than many a test.
So the rows are generated once and loaded into a MyISAM table of a template data directory; every run copies that directory.

What is known of the original rows, and how it is met: 10,875,440 rows; `artist LIKE 'ni%'` finds 68,155 of them and 'a%' 790,356, so the
names are dealt to popularity ranks such that these shares come out; 10,853 rows have the date 2010-11-11, so there are about 1,002 days.
What is not known: the order of dates. They are scattered by default, the harder case (a day's rows lie all over the table);
--dates rising is the other extreme. Popularity of artists falls with rank (Zipf-Mandelbrot); titles are two to five words of a small
vocabulary, video ids 11 random letters as on a well-known site. latin1 is the server's default of 2011.
"""

import base64
import itertools
import random
import shutil
from datetime import date, timedelta

from tqdm import tqdm

from bench.lab import DATA, KINDS, Lab
from live_server import execute, value_of

ROWS = 10_875_440
DAYS = 1002
LAST_DAY = date(2010, 12, 24)
ARTISTS = 60_000
SHARES = {"ni": 68_155 / ROWS, "ma": 0.03, "a": 790_356 / ROWS}
CHUNK = 100_000

COLUMNS = (
    "id INT NOT NULL AUTO_INCREMENT, artist VARCHAR(100) NOT NULL, title VARCHAR(100) NOT NULL, video VARCHAR(20) NOT NULL,"
    " date DATE NOT NULL, PRIMARY KEY (id), KEY video_artist_ix (artist), KEY video (video), KEY date_id (date, id)"
)
BARE_COLUMNS = (
    "id INT NOT NULL, artist VARCHAR(100) NOT NULL, title VARCHAR(100) NOT NULL, video VARCHAR(20) NOT NULL, date DATE NOT NULL"
)
SYLLABLES = [c + v for c in ("b", "c", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "ch") for v in "aeiou"]


def create_statement(name, engine, charset="latin1"):
    """The table with its four indexes."""
    return f"CREATE TABLE {name} ({COLUMNS}) ENGINE={engine} DEFAULT CHARSET={charset}"


def artist_names(draw):
    """(names, cumulative weights): ARTISTS different names by falling popularity, with the known shares of first letters."""
    weights = [1 / (rank + 20) ** 0.95 for rank in range(ARTISTS)]
    total = sum(weights)
    given, names, seen = dict.fromkeys(SHARES, 0.0), [], set()
    so_far = 0.0
    for weight in weights:
        share = weight / total
        so_far += share
        start = next((s for s, goal in SHARES.items() if given[s] + share <= goal * so_far), "")
        if start:
            given[start] += share
        name = artist_name(draw, start)
        while name in seen:
            name = artist_name(draw, start)
        seen.add(name)
        names.append(name)
    return names, list(itertools.accumulate(weights))


def artist_name(draw, start):
    """A name of 4 to 25 letters that begins so; without `start`, one that counts for no share."""
    while True:
        words = ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 4))) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
        if start:
            words[0] = start + words[0]
        name = " ".join(words).title()
        begins = next((s for s in SHARES if name.lower().startswith(s)), "")
        if begins == start and 4 <= len(name) <= 25:
            return name


def chunks(rows, seed, dates):
    """The rows as text for LOAD DATA, CHUNK lines at a time."""
    draw = random.Random(seed)
    names, popularity = artist_names(draw)
    vocabulary = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(8000)]
    frequency = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(vocabulary))))
    days = [(LAST_DAY - timedelta(days=DAYS - 1 - n)).isoformat() for n in range(DAYS)]
    for first in range(1, rows + 1, CHUNK):
        number = min(CHUNK, rows + 1 - first)
        artists = draw.choices(names, cum_weights=popularity, k=number)
        words = iter(draw.choices(vocabulary, cum_weights=frequency, k=number * 5))
        lengths = draw.choices((2, 3, 3, 4, 5), k=number)
        letters = base64.urlsafe_b64encode(draw.randbytes(number * 9)).decode("ascii")
        if dates == "rising":
            when = [days[(first + n - 1) * DAYS // rows] for n in range(number)]
        else:
            when = draw.choices(days, k=number)
        yield "".join(
            f"{first + n}\t{artists[n]}\t{' '.join(itertools.islice(words, lengths[n])).capitalize()}\t{letters[n * 12 : n * 12 + 11]}\t{when[n]}\n"
            for n in range(number)
        )


def write_rows(path, rows, seed, dates):
    """The text file; complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with open(fresh, "w", encoding="ascii") as file, tqdm(total=rows, desc="generate rows", unit=" rows", unit_scale=True) as bar:
        for text in chunks(rows, seed, dates):
            file.write(text)
            bar.update(text.count("\n"))
    fresh.rename(path)


def template(options):
    """A data directory with system tables and database seed003 with table `video`; made the first time, then found."""
    name = f"video-{options.rows}-{options.dates}-{options.charset}-{options.seed}"
    folder = DATA / name
    if folder.exists():
        return folder
    text = DATA / f"{name}.tsv"
    if not text.exists():
        write_rows(text, options.rows, options.seed, options.dates)
    making = DATA / f"{name}.making"
    lab = Lab(KINDS["myisam"], _at(options, making))
    lab.wipe()
    lab.start()
    try:
        connection = lab.connect()
        execute(connection, "CREATE DATABASE seed003")
        execute(connection, f"CREATE TABLE seed003.video ({BARE_COLUMNS}) ENGINE=MyISAM DEFAULT CHARSET={options.charset}")
        print("load the rows into the template ...", flush=True)
        execute(connection, f"LOAD DATA INFILE '{text}' INTO TABLE seed003.video")
        rows = value_of(connection, "SELECT COUNT(*) FROM seed003.video")
        assert rows == options.rows, f"{rows} rows were loaded, {options.rows} were generated"
        connection.close()
    finally:
        lab.stop()
    shutil.rmtree(lab.home)
    text.unlink()
    making.rename(folder)
    return folder


def _at(options, datadir):
    """The options with another data directory."""
    copy = type(options)(**vars(options))
    copy.datadir = datadir
    return copy


def add_arguments(parser, rows=ROWS):
    """Options of everything that uses the rows."""
    parser.add_argument("--rows", type=int, default=rows, help=f"rows of the table (default {rows:,})")
    parser.add_argument("--seed", type=int, default=2011, help="seed of the generated rows (default 2011)")
    parser.add_argument("--dates", choices=("scattered", "rising"), default="scattered", help="order of the dates (default scattered)")
    parser.add_argument("--charset", default="latin1", help="character set of the tables (default latin1, the server's default of 2011)")
