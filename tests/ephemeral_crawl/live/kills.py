"""Workers on one store that are killed at random moments.

`python -m tests.ephemeral_crawl.live.kills ADDRESS FILE KILLS` kills as many, and FILE has the
leases whose reports were acknowledged. A worker leases and reports all the time, so that most of
them die inside a call.
"""

from __future__ import annotations

import os
import random
import sys
import time

from ephemeral_crawl.live import Scheduler

WORKERS = 2  # at once
SOURCES = 400
LONGEST = 0.06  # seconds that workers live after the first report
SEED = 0


def items_of(lease: int) -> int:
    """Return how many items the report of a lease has."""
    return lease % 4


def work(address: str, file: int, ready: int) -> None:
    """Lease and report for ever."""
    live = Scheduler(address)
    while True:
        for lease in live.lease(3, timeout="1h"):
            live.report(lease.id, [(None, 1.0)] * items_of(lease.id))
            os.write(file, f"{lease.id}\n".encode())
            os.write(ready, b"x")


def main(address: str, path: str, kills: int) -> None:
    with Scheduler(address, budget="100000/h", burst=1e6) as live:  # compiles, too
        sources = [
            {"source": str(i), "max_interval": "1s", "min_interval": 0} for i in range(SOURCES)
        ]
        live.add_many(sources, exist_ok=True)
        live.report(live.lease()[0].id)
        live.status()
    moments = random.Random(SEED)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for _ in range(kills // WORKERS):
        reading, writing = os.pipe()
        workers = []
        for _ in range(WORKERS):
            child = os.fork()
            if child == 0:
                try:
                    work(address, file, writing)
                finally:
                    os._exit(1)  # an error: nothing is written, and the parent sees the end
            workers.append(child)
        os.close(writing)
        alive = os.read(reading, 1)
        time.sleep(moments.uniform(0.0, LONGEST))
        for worker in workers:
            os.kill(worker, 9)
            os.waitpid(worker, 0)
        os.close(reading)
        if not alive:
            sys.exit("the workers ended by themselves")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
