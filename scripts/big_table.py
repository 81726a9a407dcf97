"""The non-indexed table of the 2007 test drive of PBXT and its 1,120,500 rows, made from row numbers alone.

Why it exists: the demo and the benchmark time the same statements on the same data; every run, machine and engine gets identical
bytes, because each column is a function of the sequence number.
"""

ROWS = 1_120_500

COLUMNS = """
  client_transaction_id int(11) NOT NULL DEFAULT 0,
  client_id int(11) NOT NULL DEFAULT 0,
  investment_id int(11) NOT NULL DEFAULT 0,
  action varchar(10) NOT NULL DEFAULT '',
  price decimal(12,2) NOT NULL DEFAULT 0.00,
  number_of_units int(11) NOT NULL DEFAULT 0,
  transaction_status varchar(10) NOT NULL DEFAULT '',
  transaction_sub_timestamp datetime NOT NULL DEFAULT '2007-01-01 00:00:00',
  transaction_comp_timestamp datetime NOT NULL DEFAULT '2007-01-01 00:00:00',
  description varchar(200) DEFAULT NULL,
  broker_id bigint(10) DEFAULT NULL,
  broker_commission decimal(10,2) DEFAULT NULL"""


def create_statement(name, engine):
    """CREATE TABLE with the columns of the test drive."""
    return f"CREATE TABLE {name} ({COLUMNS}\n) ENGINE={engine} DEFAULT CHARSET=latin1"


def fill_statement(name, rows=ROWS):
    """INSERT that makes `rows` deterministic rows (the server's SEQUENCE engine counts)."""
    return f"""INSERT INTO {name} SELECT
  seq, 1 + (seq * 7919) % 5000, 1 + (seq * 104729) % 800,
  ELT(1 + seq % 3, 'buy', 'sell', 'transfer'),
  ((seq * 2654435761) % 100000) / 100 + 1, 1 + (seq * 31) % 1000,
  ELT(1 + seq % 5, 'complete', 'complete', 'complete', 'pending', 'cancelled'),
  '2007-01-01' + INTERVAL (seq * 13) % 31536000 SECOND,
  '2007-01-01' + INTERVAL (seq * 13) % 31536000 + 3600 SECOND,
  CONCAT('order ', seq, ' of client ', 1 + (seq * 7919) % 5000),
  1 + (seq * 17) % 300, ((seq * 40503) % 10000) / 100
FROM seq_1_to_{rows}"""


# Whole-table fingerprint: row count, sums and an order-free checksum. Equal before and after means nothing changed.
FINGERPRINT = """SELECT COUNT(*), SUM(client_transaction_id), SUM(price), SUM(number_of_units),
  BIT_XOR(CRC32(CONCAT_WS('|', client_transaction_id, client_id, action, price, description, broker_id))) FROM {table}"""
