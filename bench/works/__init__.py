"""The registry: every work of `make bench`, in the order of the report. A new work is a class of its own and one line here."""

from bench.works.seed000 import BigTable, UserLoad
from bench.works.seed001 import CountAll, SelfJoin
from bench.works.seed001_tpcc import Wholesaler
from bench.works.seed002 import Procedure
from bench.works.seed003 import Video
from bench.works.seed004 import Accounts, LargerThanMemory, Oltp
from bench.works.seed004_sqlbench import SqlBench
from bench.works.seed004_store import Store

ALL = (BigTable, UserLoad, SelfJoin, CountAll, Procedure, Accounts, Oltp, Store, SqlBench, LargerThanMemory, Wholesaler, Video)


def names():
    """Names of all works, for --only."""
    return [work.name for work in ALL]


def chosen(options):
    """The works asked for, made for these options; those of a program that this tree does not have, or that have no engine left, are not among them."""
    works = [work(options) for work in ALL if not options.only or work.name in options.only]
    return [work for work in works if work.kinds() and (not work.tool or work.present())]
