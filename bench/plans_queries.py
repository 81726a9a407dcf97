"""The queries of bench/plans: what an application asks, each for one ability of the optimizer or of an index.

Why it exists: a plan is as good as the rows it reads. Each query names its data set, what it is about, and how answers are compared:
SET (any order), ORDERED (as they come), where LIMIT cuts among equals only the column that orders is selected.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One statement for both engines."""

    name: str
    data: str  # flights or shop
    about: str
    text: str
    ordered: bool = False


QUERIES = [
    Query("range2", "flights", "range over both parts of a key",
          "SELECT COUNT(*), SUM(dep_delay) FROM flights WHERE origin = 'JFK' AND time_hour BETWEEN '2013-03-01' AND '2013-03-03'"),
    Query("second-part", "flights", "condition on the second part behind a range of the first",
          "SELECT id, flight, tailnum FROM flights WHERE carrier BETWEEN 'F' AND 'O' AND month = 7"),
    Query("function", "flights", "condition on a key column that is no range",
          "SELECT SUM(distance) FROM flights WHERE origin = 'LGA' AND time_hour < '2013-07-01' AND HOUR(time_hour) = 6"),
    Query("group-covered", "flights", "grouping by a covering index", "SELECT carrier, month, COUNT(*) FROM flights GROUP BY carrier, month"),
    Query("distinct-loose", "flights", "distinct values of the first part", "SELECT DISTINCT carrier FROM flights"),
    Query("minmax-loose", "flights", "least and greatest per group", "SELECT origin, MIN(time_hour), MAX(time_hour) FROM flights GROUP BY origin"),
    Query("join3", "flights", "from a few planes to their flights and airlines",
          "SELECT a.name, COUNT(*), SUM(f.distance) FROM planes p JOIN flights f USING (tailnum) JOIN airlines a USING (carrier)"
          " WHERE p.manufacturer = 'CANADAIR' GROUP BY a.name"),
    Query("join-composite", "flights", "join by a key of two parts",
          "SELECT w.origin, COUNT(*), SUM(f.dep_delay) FROM weather w JOIN flights f ON f.origin = w.origin AND f.time_hour = w.time_hour"
          " WHERE w.precip > 0.3 GROUP BY w.origin"),
    Query("top-desc", "flights", "the last entries of a part",
          "SELECT time_hour FROM flights WHERE origin = 'LGA' ORDER BY time_hour DESC LIMIT 20", True),
    Query("ids", "flights", "nothing but primary keys, by another key", "SELECT id FROM flights WHERE dest = 'LAX'"),
    Query("ids-first", "flights", "the first primary keys of a value",
          "SELECT id, carrier FROM flights WHERE dest = 'BOS' ORDER BY id LIMIT 10", True),
    Query("either", "flights", "one key or the other", "SELECT id, flight FROM flights WHERE dest = 'ANC' OR tailnum = 'N14228'"),
    Query("both", "flights", "one key and the other", "SELECT id, flight FROM flights WHERE dest = 'LAX' AND tailnum = 'N328AA'"),
    Query("in-list", "flights", "several values of a key", "SELECT id, dep_delay FROM flights WHERE dest IN ('ANC', 'LEX', 'MTJ', 'SBN', 'HDN')"),
    Query("semijoin", "flights", "rows that others refer to",
          "SELECT manufacturer, COUNT(*) FROM planes WHERE tailnum IN (SELECT tailnum FROM flights WHERE dest = 'HNL') GROUP BY manufacturer"),
    Query("antijoin", "flights", "rows that none refers to",
          "SELECT COUNT(*) FROM airports a WHERE NOT EXISTS (SELECT 1 FROM flights f WHERE f.dest = a.faa)"),
    Query("filter", "flights", "two conditions, each on a key of its own",
          "SELECT COUNT(*), SUM(dep_delay) FROM flights WHERE carrier = 'UA' AND month = 3 AND dest = 'ORD'"),
    Query("year-scan", "flights", "all rows", "SELECT month, COUNT(*), SUM(arr_delay) FROM flights GROUP BY month"),
    Query("join2", "shop", "customers of a region and what they ordered",
          "SELECT c.segment, COUNT(*), SUM(o.total) FROM customer c JOIN orders o ON o.customer = c.id WHERE c.region = 19 GROUP BY c.segment"),
    Query("chain", "shop", "one name, its orders, their lines",
          "SELECT o.id, l.number, l.price FROM customer c JOIN orders o ON o.customer = c.id JOIN line l ON l.order_id = o.id"
          " WHERE c.name LIKE 'ba%' AND o.placed >= '2022-01-01'"),
    Query("join5", "shop", "five tables, two of them narrowed",
          "SELECT c.region, SUM(l.price * l.quantity) FROM supplier s JOIN line l ON l.supplier = s.id JOIN part p ON p.id = l.part"
          " JOIN orders o ON o.id = l.order_id JOIN customer c ON c.id = o.customer"
          " WHERE s.region = 3 AND p.brand = 'brand07' GROUP BY c.region"),
    Query("filtered-join", "shop", "a join, and a narrow range of another key",
          "SELECT p.size, COUNT(*), SUM(l.price) FROM part p JOIN line l ON l.part = p.id WHERE p.brand = 'brand07'"
          " AND l.shipped BETWEEN '2021-05-01' AND '2021-05-07' GROUP BY p.size"),
    Query("join-dates", "shop", "a join narrowed by dates at both ends",
          "SELECT o.priority, COUNT(*) FROM orders o JOIN line l ON l.order_id = o.id"
          " WHERE o.placed BETWEEN '2021-05-01' AND '2021-05-31' AND l.shipped > '2021-06-20' GROUP BY o.priority"),
    Query("customer-dates", "shop", "range over a composite key, not covered",
          "SELECT id, total FROM orders WHERE customer IN (11, 12, 13, 14) AND placed BETWEEN '2020-01-01' AND '2021-12-31'"),
    Query("group-range", "shop", "grouping over a range", "SELECT priority, COUNT(*), SUM(total) FROM orders WHERE placed BETWEEN"
          " '2020-03-01' AND '2020-03-20' GROUP BY priority"),
    Query("open-last", "shop", "the latest of a rare status",
          "SELECT placed FROM orders WHERE status = 'P' ORDER BY placed DESC LIMIT 10", True),
    Query("top-total", "shop", "the greatest without an index", "SELECT id, total FROM orders ORDER BY total DESC, id LIMIT 10", True),
    Query("last-order", "shop", "the latest of each group", "SELECT customer, MAX(placed) FROM orders GROUP BY customer"),
    Query("distinct-range", "shop", "distinct values under a prefix", "SELECT DISTINCT part FROM line WHERE supplier = 17"),
    Query("semijoin-rare", "shop", "who has an open order",
          "SELECT COUNT(*), SUM(balance) FROM customer WHERE id IN (SELECT customer FROM orders WHERE status = 'P' AND total > 30000)"),
    Query("correlated", "shop", "less than the average of its part",
          "SELECT COUNT(*) FROM part p JOIN line l ON l.part = p.id WHERE p.brand = 'brand11' AND p.size = 20"
          " AND l.quantity < (SELECT AVG(i.quantity) FROM line i WHERE i.part = p.id)"),
    Query("covered-sum", "shop", "a sum from a covering index", "SELECT SUM(quantity) FROM line WHERE mode = 'air'"),
    Query("pushed", "shop", "wide range of the first part, narrow condition on the second",
          "SELECT SUM(price) FROM line WHERE supplier BETWEEN 100 AND 160 AND shipped = '2021-08-09'"),
    Query("pushed-null", "shop", "lines not shipped of some suppliers",
          "SELECT COUNT(*), SUM(price) FROM line WHERE supplier BETWEEN 100 AND 300 AND shipped IS NULL"),
    Query("either-orders", "shop", "a clerk's or a customer's orders", "SELECT id, total FROM orders WHERE clerk = 7 OR customer = 11"),
    Query("both-orders", "shop", "a clerk's urgent orders", "SELECT COUNT(*), SUM(total) FROM orders WHERE clerk = 17 AND priority = 5"),
    Query("minmax", "shop", "ends of an index", "SELECT MIN(placed), MAX(placed) FROM orders WHERE status = 'P'"),
    Query("primary-range", "shop", "range of a composite primary key",
          "SELECT SUM(price) FROM line WHERE order_id BETWEEN 5000 AND 5600 AND number = 1"),
    Query("extended-range", "shop", "a value and a range of primary keys", "SELECT id, total FROM orders WHERE clerk = 17 AND id > 90000"),
    Query("extended-last", "shop", "the last primary keys of a value",
          "SELECT id, total FROM orders WHERE priority = 3 ORDER BY id DESC LIMIT 5", True),
    Query("two-ranges", "shop", "ranges of both parts", "SELECT COUNT(*), SUM(price) FROM part WHERE brand IN ('brand03', 'brand30') AND size BETWEEN 40 AND 44"),
    Query("left-join", "shop", "customers of a region and the newest order of each",
          "SELECT c.id, (SELECT MAX(o.placed) FROM orders o WHERE o.customer = c.id) FROM customer c WHERE c.region = 21"),
    Query("order-join", "shop", "the first rows of a join in index order",
          "SELECT o.placed FROM orders o JOIN customer c ON c.id = o.customer WHERE c.segment = 'office' ORDER BY o.placed LIMIT 20", True),
]  # fmt: skip
