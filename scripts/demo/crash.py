"""Part 4: kill -9 while eight clients write, then recovery and the proof of what survived. See transfers.py for the witness."""

import time

import transfers
from live_server import execute, rows_of

CLIENTS = 8
WORK_SECONDS = 4.0


def run(server, engine, screen):
    """The whole part; the server runs again afterwards."""
    screen.heading(f"kill -9 while {CLIENTS} clients write multi-row transactions")
    setup = server.connect()
    execute(setup, "DROP DATABASE IF EXISTS bank")
    execute(setup, "CREATE DATABASE bank")
    setup.select_db("bank")
    transfers.create_tables(setup, engine)
    setup.close()
    crowd = transfers.Crowd(server, "bank", CLIENTS, seed=int(time.time()))
    crowd.start()
    with screen.progress(int(WORK_SECONDS * 10), "clients at work", "ticks") as bar:
        for _ in range(int(WORK_SECONDS * 10)):
            time.sleep(0.1)
            bar.update(1)
    server.kill()
    crowd.finish()
    screen.say(f"killed after {crowd.commits():,} acknowledged transactions, {crowd.conflicts():,} conflicts retried")
    in_flight = sum(witness.in_doubt is not None for witness in crowd.witnesses)
    seconds = server.start()
    connection = server.connect("bank")
    own = rows_of(connection, "SHOW GLOBAL STATUS LIKE 'Pbxt_recovery_micros'")
    share = f", {int(own[0][1]) / 1e6:.2f} s of it recovery of PBXT" if own else ""
    screen.prove("the server comes back by itself", True, f"{seconds:.1f} s to the first answer{share}")
    complaints = transfers.verify(connection, crowd)
    connection.close()
    screen.prove(
        "every acknowledged transaction is there whole, nothing rolled back is, the sums are intact",
        crowd.commits() > 0 and not complaints,
        "; ".join(complaints[:3]) or f"{crowd.commits():,} transactions checked, {in_flight} were waiting for their answer",
    )
