"""How even a throughput is, and how even the machine was meanwhile: whose fault a slow second is.

Why it exists: a virtual machine shares cores, caches and memory with others. For minutes at a time it may be half as fast again or slower without a
trace in its own accounts (stolen time tells of processors taken away, not of slow ones). The client of a benchmark does the same work for each
update, so the processor time it takes for one says how fast the machine was in that second. What remains uneven with this taken out is the server's.
Not all that it takes out is the machine's: the client waits for caches, too, which the server's own background work may have emptied. So it is shown
beside the plain figure, and targets are of the plain one.
"""

import os
import statistics
import time

AROUND = 2  # seconds before and behind that one second's speed is taken from: the system counts processor time in hundredths of a second


def evened(rates, client_us):
    """Rates of the seconds as if the machine had always had its median speed; `client_us`: the client's processor time for each unit of work."""
    times = [statistics.median(client_us[max(0, at - AROUND) : at + AROUND + 1]) for at in range(len(client_us))]
    middle = statistics.median(times) if any(times) else 1
    return [rate * used / middle if used else rate for rate, used in zip(rates, times)]


def processor_ticks():
    """(stolen, taken by processes, idle, all) of the machine's processors since it started."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    return ticks[7], sum(ticks[:3]), ticks[3] + ticks[4], sum(ticks)


class Machine:
    """Who had the processors, second by second (shares of what the machine's owner took, of what other processes did, of what nobody took), and
    the processor time that an update took, of the server and of sysbench, in microseconds."""

    def __init__(self, lab, client, seconds_of):
        self.spent = lambda: (seconds_of(client), lab.cpu_seconds(), time.process_time())
        self.stolen, self.others, self.idle, self.client_us, self.server_us = [], [], [], [], []
        self.ticks, self.own = processor_ticks(), self.spent()

    def note(self, updates):
        """Ends a second, in which there were so many updates."""
        before, own_before = self.ticks, self.own
        self.ticks, self.own = processor_ticks(), self.spent()
        stolen, taken, idle, every = (after - then for after, then in zip(self.ticks, before))
        client, server, mine = (after - then for after, then in zip(self.own, own_before))
        ours = (client + server + mine) * os.sysconf("SC_CLK_TCK")
        self.stolen.append(round(stolen / max(1, every), 3))
        self.others.append(round(max(0.0, taken - ours) / max(1, every), 3))
        self.idle.append(round(idle / max(1, every), 3))
        self.client_us.append(round(client * 1e6 / max(1, updates), 1))
        self.server_us.append(round(server * 1e6 / max(1, updates), 1))

    def slower(self):
        """Of each second, by how much the machine was slower than in the median second."""
        median = statistics.median(self.client_us) if any(self.client_us) else 1
        return [used / median - 1 for used in self.client_us]

    def series(self):
        """All of it, for the report's file."""
        return {"stolen": self.stolen, "others": self.others, "idle": self.idle, "client_us": self.client_us, "server_us": self.server_us}
