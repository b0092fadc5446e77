"""Workers on one store that are killed at random moments, or end in order, while others visit it.

`python -m tests.ephemeral_crawl.live.kills ADDRESS FILE KILLS` kills as many, and FILE has the
leases whose reports were acknowledged. A worker leases and reports all the time, so that most of
them die inside a call, and writes snapshots. After each round everything that was acknowledged is
looked for in the store.

Workers alone lose nothing even if their locks do not hold, since the last process that closes a
file deletes its log, and the killed close nothing: that took visitors, and workers that live long
enough for a snapshot, which earlier versions of this test had not. What no killed process shows is
what a power failure leaves of writes that the system had only promised, and file systems that lock
in another way than a local one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from ephemeral_crawl.live import Scheduler, ledger
from tests.ephemeral_crawl.live.stores import Store
from tests.ephemeral_crawl.live.visitors import Visitor, stop

WORKERS = 2  # at once
SOURCES = 400
LONGEST = 0.3  # seconds that workers live after the first report
ENDS = 4  # every fourth round, one of them ends in order
SEED = 0


def items_of(lease: int) -> int:
    """Return how many items the report of a lease has."""
    return lease % 4


def work(address: str, file: int, ready: int) -> None:
    """Lease and report until told to end."""
    signals, has_begun, step, parent = list[int](), False, 0, os.getppid()
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    live = Scheduler(address)
    while not signals and os.getppid() == parent:
        for lease in live.lease(3, timeout="1h"):
            live.report(lease.id, [(None, 1.0)] * items_of(lease.id))
            os.write(file, f"{lease.id}\n".encode())
            if not has_begun:
                os.write(ready, b"x")
                has_begun = True
        if step % 8 == 0:  # enough for a snapshot
            live.signal_many({"source": str(i)} for i in range(SOURCES))
        step += 1
    live.close()


class Reports:
    """What is in the journal of a store, as far as it was read."""

    def __init__(self, store: Store) -> None:
        self.store, self.leases = store, set[int]()
        self._last: tuple[int, str] | None = None

    def read(self) -> None:
        """Read what is new; refuse that something was lost that was there before."""
        number = self._last[0] if self._last else 0
        rows = self.store.run(
            f"SELECT number, event FROM journal WHERE number >= {number} ORDER BY number"
        )
        if self._last is not None and self._last != rows.pop(0):
            sys.exit(f"event {number} has changed")
        for row in rows:
            event = json.loads(row[1])
            self.leases.update(event["lease"] if event["kind"] == "record" else ())
            self._last = row


def main(address: str, path: str, kills: int) -> None:
    file = Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite") else None
    store, errors = Store(address, file), Path(path + ".errors")
    with Scheduler(address, budget="1000000/h", burst=1e6) as live:  # compiles, too
        sources = [
            {"source": str(i), "max_interval": "1s", "min_interval": 0} for i in range(SOURCES)
        ]
        live.add_many(sources, exist_ok=True)
        live.report(live.lease()[0].id)
        live.status()
    visitor, reports = Visitor(store, Path(path).parent, "0", errors), Reports(store)
    visitor.start(SEED)
    moments, kills_made, ended = random.Random(SEED), 0, 0
    acknowledged = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    number = 0
    ledger._EVERY = 1
    while kills_made < kills:
        reading, writing = os.pipe()
        ledger._AT_ONCE = moments.choice((-1, SOURCES))  # snapshots by a thread, or not
        workers = []
        for _ in range(WORKERS):
            child = os.fork()
            if child == 0:
                try:
                    work(address, acknowledged, writing)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            workers.append(child)
        os.close(writing)
        alive = os.read(reading, 1)
        time.sleep(moments.uniform(0.0, LONGEST))
        for k, worker in enumerate(workers):
            ends = k == 0 and kills_made // WORKERS % ENDS == 0
            os.kill(worker, signal.SIGTERM if ends else signal.SIGKILL)
            result = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            if ends and result != 0:
                sys.exit(f"a worker ended with {result} instead of 0")
            kills_made, ended = kills_made + (not ends), ended + ends
        os.close(reading)
        if not alive:
            sys.exit("the workers ended by themselves")
        if kills_made % 5 == 0:
            visitor.kill()
            visitor.start(SEED + kills_made)
        stop(errors)
        reports.read()
        lines = Path(path).read_text().splitlines()
        missing = {int(line) for line in lines[number:]} - reports.leases
        if missing:
            sys.exit(f"{len(missing)} of {len(lines)} acknowledged reports are lost: {missing}")
        number = len(lines)
    visitor.kill()
    stop(errors)
    print(f"{kills_made} workers were killed, {ended} ended; {number} reports were acknowledged")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
