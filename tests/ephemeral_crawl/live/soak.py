"""Workers that crawl for a long time while everything goes wrong.

`python -m tests.ephemeral_crawl.live.soak --minutes 60 --store postgres` lets processes share a
scheduler in a time that runs faster (`--speed`): workers are killed and started again, the clock is
set forward and back, the database is restarted, hosts answer 429 for hours, pings come in floods,
feeds list 10⁵ items or dates of 1970 and 2099, reports come late, twice or unasked, and sources
come, go and change their names. The hosts note every fetch, and at the end their notes are checked:
budget, intervals and `Retry-After` were kept, memory stayed flat, nobody raised an exception, and
the state is a replay of the journal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ephemeral_crawl.live import Scheduler, UnknownSource, snapshot
from ephemeral_crawl.live.journal import base
from ephemeral_crawl.live.state import State
from tests.ephemeral_crawl.live.stores import NO_SERVER, Server, Store, servers

HOUR, DAY = 3600.0, 86_400.0
START = 1_700_000_000.0
WORKERS = 3
SOURCES, HOSTS = 1500, 150
BUDGET, BURST = 1200.0, 200.0  # per hour, and at once
INTERVAL, LEAST = 600.0, 900.0  # seconds between two fetches of a host, and of a source
TIMEOUT = 1200.0  # seconds of a lease
LIMITED = 2  # every second host has an interval
ANGRY = 10  # every tenth host answers 429 half of the time
_MOST_WORKERS = 100_000
_LATEST = 4_070_908_800.0  # the year 2099


class SoakClock:
    """A clock that all processes share, and that can be set; its time runs faster."""

    def __init__(self, speed: float) -> None:
        self._speed, self._begin = speed, time.monotonic()
        self._set = memoryview(mmap.mmap(-1, 8)).cast("d")  # shared with children

    def true(self) -> float:
        """Return the time that has passed since `START`, plus this."""
        return START + self._speed * (time.monotonic() - self._begin)

    def __call__(self) -> float:
        return self.true() + self._set[0]

    def set(self, by: float) -> None:
        """Set the clock forward or back."""
        self._set[0] += by


def opened(address: str, clock: SoakClock) -> Scheduler:
    """Return a scheduler that knows the clock, and a steady one, as it does the system's."""
    while True:
        try:
            live = Scheduler(address, clock=clock)
        except ConnectionError:
            continue
        live._ledger.clock.steady = clock.true
        return live


def host_of(source: int) -> int:
    return source * 7919 % HOSTS


def is_angry(host: int, now: float) -> bool:
    """Return whether a host answers 429."""
    return host % ANGRY == 0 and int(now / (3 * HOUR)) % 2 == 1


class Worker:
    """Leases, fetches and reports, not always as it should."""

    def __init__(self, live: Scheduler, clock: SoakClock, notes: int, seed: int) -> None:
        self.live, self.clock, self.notes = live, clock, notes
        self.random = random.Random(seed)
        self.late: list[tuple[float, int]] = []  # true time, and lease, to be reported then

    def note(self, *words: object) -> None:
        os.write(self.notes, (" ".join(map(str, words)) + "\n").encode())

    def step(self) -> None:
        """Make some calls; pause if nothing is due."""
        draw, begun = self.random.random, self.clock.true()
        leases = self.live.lease(self.random.choice((1, 1, 4, 16)), timeout=TIMEOUT)
        for lease in leases:
            name, host = self._source(lease.source)
            chance = draw()
            if chance < 0.05:  # passed over
                self.live.release(lease.id, again_after=self.random.choice((0, "20min")))
                continue
            if chance < 0.08:
                continue  # forgotten
            now = self.clock.true()
            if now > begun + TIMEOUT:
                self.late.append((now + HOUR, lease.id))  # too late to fetch, but not to report
                continue
            at = self.clock() if draw() < 0.3 else None
            self.note("fetch", now, name, host, begun)
            if is_angry(host, now):
                asked = self.random.uniform(1, 6) * HOUR
                if self._insist(self.live.failed, lease.id, retry_after=asked, status=429):
                    self.note("asked", self.clock.true(), host, now + asked)
            elif chance < 0.12:
                self._insist(self.live.failed, lease.id, status=500, at=at)
            elif chance < 0.2:
                self.late.append((now + draw() * 2 * DAY, lease.id))
            else:
                self._insist(self.live.report, lease.id, self._items(name), status=200, at=at)
                if chance < 0.3:
                    assert not self._insist(self.live.report, lease.id, self._items(name))
        now = self.clock.true()
        for entry in [entry for entry in self.late if entry[0] <= now]:
            self.late.remove(entry)
            self._insist(self.live.report, entry[1], self._items(0))
        self._aside()
        if not leases:
            time.sleep(0.02)

    def _aside(self) -> None:
        """Ping, ask, and report what was fetched unasked."""
        draw, source = self.random.random, self._any
        with contextlib.suppress(UnknownSource):  # it was removed or renamed meanwhile
            if draw() < 0.02:
                name = source()
                self.live.signal_many(
                    {
                        "source": name if k % 2 else source(),
                        "kind": f"kind {k % 400}" if draw() < 0.01 else "websub",
                        "at": self.clock() + self.random.uniform(-DAY, DAY),
                    }
                    for k in range(1000)
                )
            if draw() < 0.2:
                self.live.signal(source(), "sitemap")
            if draw() < 0.02:
                self.live.report(source(), self._items(0))
            if draw() < 0.05:
                str(self.live.explain(source()))
            if draw() < 0.02:
                self.live.next_due()
                self.live.status()
            if draw() < 0.01:
                self.live.overview(5)
                self.live.find("7", limit=5)

    def _any(self) -> str:
        # Of the names that sources begin with; some of them are gone.
        return f"source {self.random.randrange(SOURCES)}"

    def _source(self, name: str) -> tuple[int, int]:
        number = int(name.split()[1])
        return number, host_of(number)

    def _items(self, source: int) -> list[tuple[float | None, float]]:
        now, number = self.clock(), self.random.randrange(6)
        if source % 97 == 1 and self.random.random() < 0.02:
            return [(now - 30.0 * k, 1.0) for k in range(100_000)]
        if source % 89 == 1:
            return [(0.0, 1.0), (_LATEST, 1.0), (None, 2.0)]
        worth = 0.0 if source % 61 == 1 else 1.0 + source % 5
        return [(now - self.random.uniform(0, 6 * HOUR), worth) for _ in range(number)]

    def _insist(self, call: Callable[..., bool], *given: Any, **options: Any) -> bool:
        """Return whether a report counts, made again if the connection was lost."""
        lost = False
        while True:
            try:
                return call(*given, **options) or lost  # the one that was lost may have counted
            except ConnectionError:
                lost = call.__name__ != "report"


def work(address: str, clock: SoakClock, notes: int, ready: memoryview, seed: int) -> None:
    """Crawl for ever."""
    worker = Worker(opened(address, clock), clock, notes, seed)
    while True:
        with contextlib.suppress(ConnectionError):
            worker.step()
            ready[0] = 1


class Nursery:
    """A process that starts the workers, without a connection to the store that they would inherit.

    What is compiled is compiled before.
    """

    def __init__(self, address: str, clock: SoakClock, notes: int, errors: Path) -> None:
        live = Scheduler(":memory:", budget="1/h", clock=clock)
        live.add("mark")
        live.report(live.lease()[0].id, [(clock(), 1.0)])
        live.status()
        self._given, self._errors = (address, clock, notes), errors
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._ready = memoryview(mmap.mmap(-1, _MOST_WORKERS))
        self._number = 0
        self._process = os.fork()
        if self._process == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
            while number := int.from_bytes(os.read(orders, 4), "little"):
                child = os.fork()
                if child == 0:
                    self._work(number)
                os.write(answers, child.to_bytes(4, "little"))
            os._exit(0)

    def _work(self, number: int) -> None:
        try:
            work(*self._given, self._ready[number : number + 1], number)
        except BaseException:
            self._errors.write_text(traceback.format_exc())
        finally:
            os._exit(1)

    def start(self) -> tuple[int, int]:
        """Start a worker; return the numbers of its process, and of the worker."""
        self._number += 1
        os.write(self._orders, self._number.to_bytes(4, "little"))
        return int.from_bytes(os.read(self._answers, 4), "little"), self._number

    def is_ready(self, number: int) -> bool:
        """Return whether a worker has done something."""
        return bool(self._ready[number])

    def kill(self, child: int) -> None:
        """Kill a worker, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            while True:
                os.kill(child, 0)
                time.sleep(0.01)

    def close(self) -> None:
        os.write(self._orders, bytes(4))
        os.waitpid(self._process, 0)


class Soak:
    """The long-lived process, which crawls too, and makes everything go wrong.

    Arguments:
        server: of the store, None for SQLite.
    """

    def __init__(
        self, store: Store, server: Server | None, folder: Path, speed: float, seed: int
    ) -> None:
        base.KEPT = 10**9  # the whole journal is replayed at the end
        self.store, self.server = store, server
        self.clock, self.random = SoakClock(speed), random.Random(seed)
        self.notes, self.errors = folder / "notes", folder / "errors"
        self.file = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.nursery = Nursery(store.address, self.clock, self.file, self.errors)
        budget = {"budget": f"{BUDGET}/h", "burst": BURST}
        Scheduler(store.address, clock=self.clock, **budget).close()
        live = opened(store.address, self.clock)
        live.add_many(self._new(range(SOURCES)))
        live.add("mark")
        live.pause("mark")
        for host in range(0, HOSTS, LIMITED):
            live.limit_host(f"host {host}", INTERVAL)
        self.worker = Worker(live, self.clock, self.file, seed)
        self.children: dict[int, int] = {}  # number of each worker, by that of its process
        self.number = SOURCES
        self.faults = dict.fromkeys(("kill", "clock", "database", "source"), 0)
        self.memory: list[float] = []

    def _new(self, numbers: Iterable[int]) -> Iterator[dict[str, object]]:
        for i in numbers:
            yield {
                "source": f"source {i}",
                "host": f"host {host_of(i)}",
                "min_interval": LEAST,
                "max_interval": DAY if i % 11 == 0 else None,
                "cost": 1 + i % 3,
            }

    def run(self, seconds: float) -> None:
        """Let it happen for a time."""
        end = time.monotonic() + seconds
        following = time.monotonic()
        try:
            while time.monotonic() < end:
                while len(self.children) < WORKERS:
                    child, number = self.nursery.start()
                    self.children[child] = number
                with contextlib.suppress(ConnectionError):
                    self.worker.step()
                    if time.monotonic() > following:
                        self._fault()
                        self.memory.append(memory())
                        following = time.monotonic() + 0.3
                self._look()
        finally:
            for child in self.children:
                self.nursery.kill(child)
            self.nursery.close()

    def _look(self) -> None:
        """Refuse that a worker ends by itself."""
        if self.errors.exists():
            raise RuntimeError(f"a worker ended:\n{self.errors.read_text()}")

    def _fault(self) -> None:
        live, chance = self.worker.live, self.random.random()
        if chance < 0.25:
            child = self.random.choice(list(self.children))
            self.nursery.kill(child)
            del self.children[child]
            self.faults["kill"] += 1
        # One that has just started has no steady clock yet, and takes a leap for an outage.
        elif chance < 0.4 and all(map(self.nursery.is_ready, self.children.values())):
            live.status()
            self.clock.set(self.random.choice((-1, 1)) * self.random.uniform(0.1, 40) * HOUR)
            self._mark(live)
            self.faults["clock"] += 1
        elif chance < 0.43:
            self.faults["database"] += 1
            self._restart()
        elif chance < 0.8:
            self.faults["source"] += 1
            with contextlib.suppress(UnknownSource):
                self._change(live)

    def _mark(self, live: Scheduler) -> None:
        """Record a change, and with it by how much the clock was set."""
        while True:
            with contextlib.suppress(ConnectionError):
                return live.update("mark", paused=True)

    def _restart(self) -> None:
        if self.server is not None:
            self.server.stop(self.random.choice(("fast", "immediate")))
            self.server.start()
        else:  # another program keeps the file for a while
            import sqlite3

            with contextlib.closing(sqlite3.connect(self.store.file or "", timeout=60)) as other:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(0.5)
                other.execute("ROLLBACK")

    def _change(self, live: Scheduler) -> None:
        what, old = self.random.randrange(5), f"source {self.random.randrange(self.number)}"
        if what == 0:
            live.add_many(self._new([self.number]), exist_ok=True)
            self.number += 1
        elif what == 1:
            live.remove(old)
        elif what == 2:
            live.rename(old, f"{old} moved")
        elif what == 3:
            live.pause(old)
        else:
            live.resume(old)
            live.update(old, max_interval="12h")

    # ------------------------------------------------------------------------------- checks

    def check(self) -> dict[str, Any]:
        """Check the notes of the hosts, the memory and the state; return what happened."""
        fetches, asked = [], []
        for line in self.notes.read_text().splitlines():
            kind, *words = line.split()
            (fetches if kind == "fetch" else asked).append([float(word) for word in words])
        fetches.sort()
        found = {"fetches": len(fetches), "429": len(asked), **self.faults}
        found |= {"budget": self._budget(fetches), "hosts": self._intervals(fetches, asked)}
        quarter = len(self.memory) // 4
        found["memory"] = [
            round(statistics.median(part), 1)
            for part in (self.memory[quarter : 2 * quarter + 1], self.memory[3 * quarter :])
        ]
        found["events"] = self._replay()
        return found

    def _budget(self, fetches: list[list[float]]) -> list[float]:
        """Return the least level of a bucket from which all fetches are paid, and its size."""
        # Each was leased at most so long before it was made.
        wait = max((now - begun for now, _, _, begun in fetches), default=0.0)
        full = BURST + wait * BUDGET / HOUR
        level, last, least = full, START, full
        for now, source, *_ in fetches:
            level = min(full, level + (now - last) * BUDGET / HOUR) - (1 + source % 3)
            least, last = min(least, level), now
        assert least >= -1e-6, f"the budget was exceeded by {-least} units"
        return [round(least, 1), round(full, 1)]

    def _intervals(self, fetches: list[list[float]], asked: list[list[float]]) -> float:
        """Return the shortest time between two fetches of a limited host."""
        closed: dict[int, list[tuple[float, float]]] = {}
        for known, host, until in asked:
            closed.setdefault(int(host), []).append((known, until))
        last: dict[int, float] = {}
        before: dict[int, float] = {}
        shortest = 1e9
        for now, source, host, begun in fetches:
            if host % LIMITED == 0:
                gap = now - last.get(int(host), -1e9)
                shortest = min(shortest, gap)
                assert gap >= INTERVAL - 1e-3, f"host {host:g} was fetched after {gap} s"
            gap = now - before.get(int(source), -1e9)
            assert gap >= LEAST - 1e-3, f"source {source:g} was fetched after {gap} s"
            for known, until in closed.get(int(host), ()):
                early = known <= begun and now < until - 1e-3
                assert not early, f"host {host:g} was fetched {until - now} s too early"
            last[int(host)] = before[int(source)] = now
        return shortest

    def _replay(self) -> int:
        live = self.worker.live
        live.status()
        expected = snapshot.to_bytes(live._ledger.state)
        again = Scheduler(self.store.address, clock=self.clock)
        again.status()
        assert snapshot.to_bytes(again._ledger.state) == expected, "the snapshot differs"
        state, number = State(), 0
        while rows := self.store.run(
            f"SELECT number, event FROM journal WHERE number > {number} ORDER BY number LIMIT 1000"
        ):
            for following, event in rows:
                assert following == number + 1
                state.apply(json.loads(event))
                number = following
        assert snapshot.to_bytes(state) == expected, "the state is not a replay of the journal"
        return number


def memory() -> float:
    """Return the memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@dataclass
class Options:
    minutes: float
    store: str
    speed: float
    seed: int


def main(given: Options) -> None:
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    everything = contextlib.ExitStack()
    server = None
    if given.store == "postgres":
        server = everything.enter_context(contextlib.contextmanager(servers)())
        if server is None:
            sys.exit(NO_SERVER)
        store = server.new()
    else:
        store = Store(f"sqlite:///{folder / 'crawl.db'}", folder / "crawl.db")
    with everything:
        soak = Soak(store, server, folder, given.speed, given.seed)
        soak.run(60.0 * given.minutes)
        print(json.dumps(soak.check()))
    shutil.rmtree(folder)  # what has failed is kept, to look at


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--speed", type=float, default=600.0, help="seconds per second")
    parser.add_argument("--seed", type=int, default=0)
    main(Options(**vars(parser.parse_args())))
