"""A shop for films, after the Dell DVD Store of the comparison of 2007: customers log in, look through the shelves and buy.

The tables are the store's (customers, products, inventory, orders, orderlines, the history of purchases) with the columns that its visits
touch; one visit is one transaction of sysbench, in bench/lua/store.lua: one visitor in ten registers, the others log in and see what they bought
last; three looks at the shelves, by category, actor and title; one to five films bought in one transaction, which takes them from stock.
"""

from bench.works.base import TRANSACTIONAL, Work
from common import Problem

TABLES = {
    "customers": "customerid INT NOT NULL AUTO_INCREMENT, username VARCHAR(50) NOT NULL, password VARCHAR(50) NOT NULL, firstname VARCHAR(50) NOT NULL,"
    " lastname VARCHAR(50) NOT NULL, email VARCHAR(50), creditcard VARCHAR(50) NOT NULL, age TINYINT, income INT, PRIMARY KEY (customerid),"
    " UNIQUE KEY username (username)",
    "products": "prod_id INT NOT NULL AUTO_INCREMENT, category TINYINT NOT NULL, title VARCHAR(50) NOT NULL, actor VARCHAR(50) NOT NULL,"
    " price DECIMAL(12,2) NOT NULL, special TINYINT NOT NULL, PRIMARY KEY (prod_id), KEY shelf (category, special), KEY title (title), KEY actor (actor)",
    "inventory": "prod_id INT NOT NULL, quan_in_stock INT NOT NULL, sales INT NOT NULL, PRIMARY KEY (prod_id)",
    "orders": "orderid INT NOT NULL AUTO_INCREMENT, orderdate DATE NOT NULL, customerid INT, netamount DECIMAL(12,2) NOT NULL, tax DECIMAL(12,2) NOT NULL,"
    " totalamount DECIMAL(12,2) NOT NULL, PRIMARY KEY (orderid), KEY customer (customerid)",
    "orderlines": "orderlineid INT NOT NULL, orderid INT NOT NULL, prod_id INT NOT NULL, quantity SMALLINT NOT NULL, orderdate DATE NOT NULL,"
    " PRIMARY KEY (orderid, orderlineid)",
    "cust_hist": "customerid INT NOT NULL, orderid INT NOT NULL, prod_id INT NOT NULL, KEY customer (customerid, orderid)",
}
FILLS = (
    "INSERT INTO customers SELECT seq, CONCAT('user', seq), 'password', CONCAT('first', seq % 1000), CONCAT('last', seq % 5000),"
    " CONCAT('user', seq, '@example.com'), LPAD(seq, 16, '4'), 18 + seq % 70, 20000 + (seq * 31) % 80000 FROM seq_1_to_{customers}",
    "INSERT INTO products SELECT seq, 1 + (seq * 7919) % 16, CONCAT('film ', seq), CONCAT('actor ', seq % ({products} DIV 20)), 9.99 + seq % 20,"
    " seq % 3 = 0 FROM seq_1_to_{products}",
    "INSERT INTO inventory SELECT seq, 1000000, 0 FROM seq_1_to_{products}",
)
SOLD = "SELECT (SELECT SUM(sales) FROM inventory), (SELECT SUM(1000000 - quan_in_stock) FROM inventory), (SELECT COUNT(*) FROM orderlines), (SELECT COUNT(*) FROM cust_hist)"


class Store(Work):
    """A shop for films, after the Dell DVD Store, 2007
    Visits of customers who log in or register, look three times, and buy one to five films; new orders a minute, by 1 to 64 clients. The account's
    medium size: 2 million customers, 100,000 films. After each turn every film that was sold must be in an order, in the history and missing in stock.
    """

    name = "store"
    seed = "004"
    engines = TRANSACTIONAL
    quick_engines = ("PBXT", "InnoDB")
    scale = "clients"
    full = {"customers": 2_000_000, "products": 100_000, "seconds": 20, "clients": (1, 8, 32, 64)}
    quick = {"customers": 20_000, "products": 1_000, "seconds": 1, "clients": (1, 16)}

    def prepare(self, turn):
        for name, columns in TABLES.items():
            turn.run(f"CREATE TABLE {name} ({columns}) ENGINE={turn.sql_engine} DEFAULT CHARSET=latin1")
        for fill in FILLS:
            turn.run(fill.format(customers=self.size.customers, products=self.size.products))
        for name in TABLES:
            turn.rows(f"ANALYZE TABLE {name}")
        turn.warm("customers", "username")
        turn.warm("products", "title")

    def round(self, turn):
        words = turn.script("store", f"--customers={self.size.customers}", f"--products={self.size.products}")
        for clients in self.size.clients:
            turn.load("new orders", words, clients, self.size.seconds, clients, "1/min", 60)
        seen = turn.rows(SOLD)[0]
        if len(set(map(int, seen))) != 1:
            raise Problem(f"films sold by the stock's two columns, order lines and history are {', '.join(map(str, seen))}: they must be equal.")
