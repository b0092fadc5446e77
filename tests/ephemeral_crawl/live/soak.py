"""Workers that crawl for a long time while everything goes wrong.

`python -m tests.ephemeral_crawl.live.soak --minutes 60 --store postgres` lets processes share a
scheduler in a time that runs faster (`--speed`): workers are killed or end in order, and are
started again, or stopped for longer than their leases last; other programs open and close the store
all the time; the clock is set forward and back; the database is restarted, or locked by another
program; a third of the feeds is dead, some of them for a day at a time; hosts answer 429 for hours;
pings come in floods; feeds list 10⁵ items or dates of 1970 and 2099; reports come late, twice or
unasked; sources come, go, pause and change their names; and the store is copied. Workers and
simulated hosts note what they see. After each fault, every acknowledged outcome is looked for in
the store, and what was there before must still be. At the end `soak_checks` goes through the notes:
the budget is kept within its burst, and intervals, `Retry-After`, floors and pauses are; no
acknowledged outcome is lost, none counts twice; nobody is forgotten, stuck, or raises an exception;
memory and store stay flat; and the state is a replay of the journal.

Earlier versions had neither visitors nor orderly ends. A process that had lost its locks then lost
nothing: the long-lived ones kept the log of SQLite in place, since only who closes the file as the
last one deletes it, and those that are killed do not close it. What a soak on one machine still
does not see: power failures, in which the disk forgets what it had promised; file systems of
networks; and time in which the machine itself stands still.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import mmap
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from ephemeral_crawl.live import Scheduler, UnknownSource, snapshot
from ephemeral_crawl.live.journal import base
from tests.ephemeral_crawl.live import soak_checks
from tests.ephemeral_crawl.live.archive import Archive
from tests.ephemeral_crawl.live.soak_shards import ShardSoak
from tests.ephemeral_crawl.live.stores import NO_SERVER, Server, Store, servers
from tests.ephemeral_crawl.live.visitors import Visitor

HOUR, DAY = 3600.0, 86_400.0
START = 1_700_000_000.0
WORKERS = 3
SOURCES, HOSTS = 1500, 150
BUDGET, BURST = 1200.0, 200.0  # per hour, and at once
DOMAINS = 15  # of the hosts, in turn
INTERVAL, LEAST = 600.0, 900.0  # seconds between two fetches of a host, and of a source
WITHIN = 60.0  # and of a domain
TIMEOUT = 1200.0  # seconds of a lease
LIMITED = 2  # every second host has an interval
TOGETHER = 3  # as has every third domain
DEAD, OF = 4, 13  # so many of so many sources never answer, or not on every other day
ANGRY = 5  # every fifth host answers 429 half of the time
# Real seconds for which a lock is waited for, and in which a worker must get something done: many
# times as long as on an idle machine, since a busy one may leave who holds a lock without a turn.
PATIENCE, STUCK = 600.0, 900.0
FORGOTTEN = 100 * HOUR  # one and a half rotations of 50 hours, and a host that answers 429
SETTLED = 1800.0  # real seconds after which memory no longer grows
KEPT = 3000  # events in the journal before the last snapshot
FAULTS = (
    *("kill", "kill", "end", "end", "visitor", "clock", "clock", "stop", "database", "copy"),
    *("add", "remove", "rename", "pause", "resume", "ping"),
)
_MOST_WORKERS = 100_000
_LATEST = 4_070_908_800.0  # the year 2099


class SoakClock:
    """A clock that all processes share, and that can be set; its time runs faster."""

    def __init__(self, speed: float) -> None:
        self._speed, self._begin = speed, time.monotonic()
        self._set = memoryview(mmap.mmap(-1, 8)).cast("d")  # shared with children

    def true(self) -> float:
        """Return the seconds that have passed since the beginning."""
        return self._speed * (time.monotonic() - self._begin)

    def __call__(self) -> float:
        return START + self.true() + self._set[0]

    def set(self, by: float) -> None:
        """Set the clock forward or back."""
        self._set[0] += by


def opened(address: str, clock: SoakClock) -> Scheduler:
    """Return a scheduler that knows the clock, and a steady one, as it does the system's."""
    while True:
        try:
            live = Scheduler(address, clock=clock, patience=PATIENCE)
        except ConnectionError:
            continue
        live._ledger.clock.steady = clock.true
        return live


def host_of(source: int) -> int:
    return source * 7919 % HOSTS


def name_of(host: int) -> str:
    return f"h{host}.d{host % DOMAINS}.test"


def cost_of(source: int) -> float:
    return 1.0 + source % 3


def number_of(name: str) -> int:
    return int(name.split()[1])


def is_angry(host: int, now: float) -> bool:
    """Return whether a host answers 429."""
    return host % ANGRY == 0 and int(now / (3 * HOUR)) % 2 == 1


def is_dead(source: int) -> bool:
    return source % OF < DEAD


def failure_of(source: int, now: float) -> dict[str, Any] | None:
    """Return how fetches of a source fail, if they do."""
    recovers, kind = divmod(source // OF % 10, 5)
    if not is_dead(source) or (recovers and int(now / DAY) % 2):
        return None
    return ({"status": 404}, {"status": 410}, {"status": 503}, {"reason": "it timed out"}, {})[kind]


class Worker:
    """Leases, fetches and reports, not always as it should."""

    def __init__(
        self, live: Scheduler, clock: SoakClock, note: soak_checks.Notebook, seed: int
    ) -> None:
        self.live, self.clock, self.note = live, clock, note
        self.random = random.Random(seed)
        self.late: list[tuple[float, int]] = []  # true time, and lease, to be reported then

    def step(self) -> None:
        """Make some calls; pause if nothing is due."""
        draw, begun = self.random.random, self.clock.true()
        leases = self.live.lease(self.random.choice((1, 1, 4, 16)), timeout=TIMEOUT)
        answered_at = self.clock.true()
        for lease in leases:
            self.note("lease", lease.id, begun, answered_at, cost_of(number_of(lease.source)))
        for lease in leases:
            source = number_of(lease.source)
            host, chance = host_of(source), draw()
            if chance < 0.05:  # passed over
                asked_at, after = self.clock.true(), self.random.choice((0, "20min"))
                self.note("releasing", lease.id, asked_at)
                self._insist(self.live.release, lease.id, again_after=after)
                self.note("released", lease.id, asked_at, self.clock.true())
                continue
            if chance < 0.08:
                continue  # forgotten
            now = self.clock.true()
            if now > begun + TIMEOUT:
                self.late.append((now + HOUR, lease.id))  # too late to fetch, but not to report
                continue
            at = self.clock() if draw() < 0.3 else None
            self.note("fetch", now, source, host, begun)
            if is_angry(host, now):
                asked_at = self.random.uniform(1, 6) * HOUR
                if self._insist(self.live.failed, lease.id, retry_after=asked_at, status=429):
                    self.note("429", self.clock.true(), host, now + asked_at)
            elif (failure := failure_of(source, now)) is not None:
                self._insist(self.live.failed, lease.id, at=at, **failure)
            elif chance < 0.12:
                self._insist(self.live.failed, lease.id, status=500, at=at)
            elif chance < 0.2:
                self.late.append((now + draw() * DAY / 2, lease.id))
            else:
                wait = self.random.uniform(1, 4) * HOUR if draw() < 0.1 else 0.0
                items = self._items(source)
                options = {"status": 200, "at": at, "again_after": wait}
                if self._insist(self.live.report, lease.id, items, **options):
                    self.note("acknowledged", lease.id)
                    self.note("again", self.clock.true(), source, now + wait)
                if chance < 0.3:
                    assert not self._insist(self.live.report, lease.id, items)
        now = self.clock.true()
        for entry in [entry for entry in self.late if entry[0] <= now]:
            self.late.remove(entry)
            if self._insist(self.live.report, entry[1], self._items(0)):
                self.note("acknowledged", entry[1])
        self._aside()
        if not leases:
            time.sleep(0.1)

    def flood(self) -> None:
        """Ping many sources, and some of them very often, at any time and by many channels."""
        name = self._any()
        with contextlib.suppress(UnknownSource):  # it was removed or renamed meanwhile
            self.live.signal_many(
                {
                    "source": name if k % 2 else self.random.choice(self._names),
                    "kind": f"kind {k % 400}" if self.random.random() < 0.01 else "websub",
                    "at": self.clock() + self.random.uniform(-DAY, DAY),
                }
                for k in range(3000)
            )

    def _aside(self) -> None:
        """Ping, ask, and report what was fetched unasked."""
        draw, source = self.random.random, self._any
        with contextlib.suppress(UnknownSource):
            if draw() < 0.2:
                self.live.signal(source(), "sitemap")
            if draw() < 0.01:
                name = source()
                self.note("unasked", self.clock.true(), number_of(name))
                self.live.report(name, self._items(0))
            if draw() < 0.05:
                str(self.live.explain(source()))
            if draw() < 0.02:
                self.live.next_due()
                self.live.status()
            if draw() < 0.01:
                self.live.overview(5)
                self.live.find("7", limit=5)

    def _any(self) -> str:
        """Return a source, which may be gone."""
        text = f"source {self.random.randrange(1000)}"
        self._names = self.live.find(text, limit=100)[0] or ["source 0"]
        return self.random.choice(self._names)

    def _items(self, source: int) -> list[tuple[float | None, float]]:
        now, number = self.clock(), self.random.randrange(6)
        if source % 97 == 1:
            return [(now - 30.0 * k, 1.0) for k in range(100_000)]
        if source % 89 == 1:
            return [(0.0, 1.0), (_LATEST, 1.0), (None, 2.0)]
        worth = 0.0 if source % 61 == 1 else 1.0 + source % 5
        return [(now - self.random.uniform(0, 6 * HOUR), worth) for _ in range(number)]

    def _insist(self, call: Callable[..., bool], *arguments: Any, **options: Any) -> bool:
        """Return whether an outcome was recorded, made again if the connection was lost.

        If so, it may have been recorded before; then this returns False.
        """
        while True:
            with contextlib.suppress(ConnectionError):
                return call(*arguments, **options)


class Nursery:
    """A process that starts the workers, without a connection to the store that they would inherit.

    What is compiled is compiled before.
    """

    def __init__(
        self, address: str, clock: SoakClock, note: soak_checks.Notebook, errors: Path
    ) -> None:
        live = Scheduler(":memory:", budget="1/h", clock=clock)
        live.add("mark")
        live.signal("mark")
        live.report(live.lease()[0].id, [(clock(), 1.0)])
        live.status()
        live.overview()
        self._given, self._errors = (address, clock, note), errors
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._done = memoryview(mmap.mmap(-1, 8 * _MOST_WORKERS)).cast("d")  # last step of each
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
        """Crawl until told to end."""
        (address, clock, note), signals = self._given, list[int]()
        signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
        try:
            worker = Worker(opened(address, clock), clock, note, number)
            while not signals:
                with contextlib.suppress(ConnectionError):
                    worker.step()
                    self._done[number] = time.monotonic()
            worker.live.close()
        except BaseException:
            self._errors.write_text(traceback.format_exc())
        finally:
            os._exit(1)

    def start(self) -> tuple[int, int]:
        """Start a worker; return the numbers of its process, and of the worker."""
        self._number += 1
        os.write(self._orders, self._number.to_bytes(4, "little"))
        return int.from_bytes(os.read(self._answers, 4), "little"), self._number

    def done_at(self, number: int) -> float:
        """Return when a worker last got something done, 0 if it has not yet."""
        return self._done[number]

    def end(self, child: int, kind: str = "kill") -> None:
        """Kill a worker, or let it end in order, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            os.kill(child, signal.SIGCONT)  # it may be stopped
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
        every: seconds between two faults.
    """

    def __init__(
        self,
        store: Store,
        server: Server | None,
        folder: Path,
        speed: float,
        every: float,
        seed: int,
    ) -> None:
        base.HISTORY = KEPT
        self.store, self.server, self.folder, self.every = store, server, folder, every
        self.clock, self.random = SoakClock(speed), random.Random(seed)
        self.notes, self.errors = soak_checks.Notebook(folder / "notes"), folder / "errors"
        self.nursery = Nursery(store.address, self.clock, self.notes, self.errors)
        budget = {"budget": f"{BUDGET}/h", "burst": BURST}
        Scheduler(store.address, clock=self.clock, **budget).close()
        live = opened(store.address, self.clock)
        self.worker = Worker(live, self.clock, self.notes, seed)
        live.add_many(self._new(range(SOURCES)))
        live.add("mark 0")
        live.pause("mark 0")
        for host in range(0, HOSTS, LIMITED):
            live.limit_host(name_of(host), INTERVAL)
        live.limit_hosts({f"*.d{k}.test": WITHIN for k in range(0, DOMAINS, TOGETHER)})
        self.children: dict[int, int] = {}  # number of each worker, by that of its process
        self.started: dict[int, float] = {}  # when each began, or went on after it was stopped
        self.elder = 0  # the worker that is never killed
        self.number = SOURCES
        self.faults = dict.fromkeys(FAULTS, 0)
        self.waiting: list[str] = []  # faults to come
        self.archive = Archive(store, folder / "journal")
        self.visitor = Visitor(store, folder, "mark 0", self.errors)
        self.samples: dict[str, list[float]] = {"this": [], "elder": [], "store": []}

    def _new(self, numbers: Iterable[int]) -> Iterator[dict[str, object]]:
        for i in numbers:
            self.worker.note("running", self.clock.true(), i)
            yield {
                "source": f"source {i}",
                "host": name_of(host_of(i)),
                "min_interval": LEAST,
                "max_interval": DAY if i % 11 == 0 else None,
                "cost": cost_of(i),
            }

    def run(self, seconds: float) -> None:
        """Let it happen for a time, and until each fault has happened."""
        end = time.monotonic() + seconds
        following = time.monotonic()
        self.lasted = seconds
        self.visitor.start(0)
        try:
            while time.monotonic() < end or not all(self.faults.values()):
                while len(self.children) < WORKERS:
                    child, number = self.nursery.start()
                    self.children[child] = number
                    self.started[child] = time.monotonic()
                    self.elder = self.elder or child
                with contextlib.suppress(ConnectionError):
                    self.worker.step()
                    if time.monotonic() > following:
                        self._fault()
                        self._archive()
                        self._sample()
                        following = time.monotonic() + self.every
                self._look()
        finally:
            for child in self.children:
                self.nursery.end(child)
            self.nursery.close()
            self.visitor.kill()

    def _look(self) -> None:
        """Refuse that a worker ends by itself, or gets stuck."""
        if self.errors.exists():
            raise RuntimeError(f"a worker ended:\n{self.errors.read_text()}")
        for child, number in self.children.items():
            try:
                os.kill(child, 0)
            except ProcessLookupError:
                raise RuntimeError("a worker has vanished") from None
            last = max(self.nursery.done_at(number), self.started[child])
            if time.monotonic() > last + STUCK:
                raise RuntimeError(f"a worker got nothing done for {STUCK:g} s")

    def _fault(self) -> None:
        """Let the next thing go wrong."""
        if not self.waiting:
            self.waiting = self.random.sample(FAULTS, len(FAULTS))
        has_worked = [self.nursery.done_at(place) > 0 for place in self.children.values()]
        # One that has just started has no steady clock yet, and takes a leap for an outage; only
        # one that has done something is stopped.
        ready = {"clock": all(has_worked), "stop": any(has_worked)}
        which = next((k for k, kind in enumerate(self.waiting) if ready.get(kind, True)), None)
        if which is None:
            return
        kind, live = self.waiting.pop(which), self.worker.live
        old = f"source {self.random.randrange(self.number)}"
        with contextlib.suppress(UnknownSource):
            match kind:
                case "kill" | "end":
                    child = self.random.choice([c for c in self.children if c != self.elder])
                    self.nursery.end(child, kind)
                    del self.children[child]
                case "visitor":
                    self.visitor.kill()
                    self.visitor.start(self.random.randrange(1000))
                case "clock":
                    live.status()
                    step = self.random.uniform(0.1, 40) * HOUR
                    self.clock.set(self.random.choice((-1, 1)) * step)
                    self._mark(live)
                case "stop":
                    self._stop()
                case "database":
                    self._restart()
                case "copy":
                    self._copy(live)
                case "add":
                    live.add_many(self._new([self.number]), exist_ok=True)
                    self.number += 1
                case "remove":
                    live.remove(old)
                    self.worker.note("stopped", self.clock.true(), number_of(old))
                case "rename":
                    live.rename(old, f"{old} moved")
                case "pause":
                    live.pause(old)
                    self.worker.note("stopped", self.clock.true(), number_of(old))
                case "resume":
                    for name in filter(self._is_paused, live.sources()):
                        self.worker.note("running", self.clock.true(), number_of(name))
                        live.update(name, paused=False, max_interval="12h")
                        break
                case "ping":
                    self.worker.flood()
        self.faults[kind] += 1

    def _is_paused(self, name: str) -> bool:
        return name.startswith("source") and bool(self.worker.live.settings(name)["paused"])

    def _mark(self, live: Scheduler) -> None:
        """Record a change, and with it by how much the clock was set."""
        while True:
            with contextlib.suppress(ConnectionError):
                return live.update("mark 0", paused=True)

    def _stop(self) -> None:
        """Stop a worker, wherever it is, for up to one and a half times as long as a lease."""
        child = self.random.choice(
            [c for c in self.children if self.nursery.done_at(self.children[c])]
        )
        pause = self.random.uniform(0.0, 15.0)
        os.kill(child, signal.SIGSTOP)
        self.started[child] = time.monotonic() + pause

        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
                os.kill(child, signal.SIGCONT)

        timer = threading.Timer(pause, go_on)
        timer.daemon = True  # at the end nobody waits for it
        timer.start()

    def _restart(self) -> None:
        if self.server is not None:
            self.server.stop(self.random.choice(("fast", "immediate")))
            self.server.start()
        else:  # another program keeps the file for a while
            with contextlib.closing(
                sqlite3.connect(self.store.file or "", timeout=PATIENCE)
            ) as other:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(0.5)
                other.execute("ROLLBACK")

    def _copy(self, live: Scheduler) -> None:
        """Refuse copies that are not the same."""
        place = self.folder / "copy.db"
        live.copy(place)
        with Scheduler(place, clock=self.clock) as copy:
            copy.status()
            same = snapshot.to_bytes(copy._ledger.state) == snapshot.to_bytes(live._ledger.state)
        assert same, "the copy of the store differs"
        for file in self.folder.glob("copy.db*"):
            file.unlink()

    def _archive(self) -> None:
        """Look for what was acknowledged before now."""
        self.archive.unseen.update(self.notes.acknowledged())
        self.archive.read()

    def _sample(self) -> None:
        """Note sizes, MiB."""
        self.samples["this"].append(soak_checks.memory(os.getpid()))
        self.samples["elder"].append(soak_checks.memory(self.elder))
        if (file := self.store.file) is not None:
            files = file.parent.glob(file.name + "*")
            self.samples["store"].append(sum(path.stat().st_size for path in files) / 2**20)
            return
        with contextlib.suppress(psycopg.OperationalError):
            # Without what is vacuumed later: the server is never up for long enough.
            (journal,), (states,) = self.store.run(
                "SELECT coalesce(sum(pg_column_size(event)), 0) FROM journal UNION ALL "
                "SELECT coalesce(sum(pg_column_size(state)), 0) FROM snapshot"
            )
            self.samples["store"].append(float(journal + states) / 2**20)

    # ------------------------------------------------------------------------------- checks

    def check(self) -> dict[str, Any]:
        """Check the notes, the memory and the state; return what happened, and what should not."""
        self._archive()
        live, end = self.worker.live, self.clock.true()
        notes = self.notes.notes()
        names = [name for name in live.sources() if name != "mark 0"]
        leases = notes.leases.values()
        hosts = dict.fromkeys(range(0, HOSTS, LIMITED), INTERVAL)
        domains = dict.fromkeys(range(0, DOMAINS, TOGETHER), WITHIN)
        growth = 4.0 if self.lasted >= SETTLED else math.inf
        sizes = {"this": (0.0, growth), "elder": (0.0, growth), "store": (0.5, 8.0)}
        checks: dict[str, Callable[[], object]] = {
            "least balance": lambda: soak_checks.check_budget(leases, BUDGET / HOUR, BURST),
            "shortest of source and host, s": lambda: soak_checks.check_politeness(
                notes, LEAST, hosts
            ),
            "shortest of domain, s": lambda: soak_checks.check_intervals(
                "domain", ((fetch.time, fetch.host % DOMAINS) for fetch in notes.fetches), domains
            ),
            "longest wait, h": lambda: self._forgotten(notes, end),
            **{
                f"{name}, MiB": lambda name=name, part=part, least=least: soak_checks.check_flat(
                    name, self.samples[name], part, least
                )
                for name, (part, least) in sizes.items()
            },
            "events": lambda: self._replay(notes),
            "explained": lambda: soak_checks.check_explained(live, names),
        }
        summary: dict[str, Any] = {"hours": end / HOUR, "leases": len(leases)}
        summary |= {"fetches": len(notes.fetches), "429": notes.refused, **self.faults}
        results, violations = soak_checks.results_of(checks)
        return summary | results | {"violations": violations}

    def _forgotten(self, notes: soak_checks.Notes, end: float) -> float:
        notes.waits = [wait for wait in notes.waits if not is_dead(wait[1])]
        longest = soak_checks.longest_wait(notes, end)
        assert longest < FORGOTTEN, f"a source was not fetched for {longest / HOUR:.0f} h"
        return longest / HOUR

    def _replay(self, notes: soak_checks.Notes) -> int:
        live = self.worker.live
        live.status()
        expected = snapshot.to_bytes(live._ledger.state)
        again = Scheduler(self.store.address, clock=self.clock)
        again.status()
        assert snapshot.to_bytes(again._ledger.state) == expected, "the snapshot differs"
        self.archive.check(notes.acknowledged)
        replayed = snapshot.to_bytes(self.archive.replayed())
        self.archive.close()
        assert replayed == expected, "the state is not a replay of the journal"
        return self.archive.number


@dataclass
class Options:
    minutes: float
    store: str
    speed: float
    every: float | None
    seed: int
    shards: int | None


def main(options: Options) -> None:
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    everything = contextlib.ExitStack()
    server = None
    if options.store == "postgres":
        server = everything.enter_context(contextlib.contextmanager(servers)())
        if server is None:
            sys.exit(NO_SERVER)
        store = server.new()
    else:
        store = Store(f"sqlite:///{folder / 'crawl.db'}", folder / "crawl.db")
    soak: Soak | ShardSoak
    with everything:
        if options.shards is not None:
            if server is None:
                sys.exit("shards need --store postgres")
            soak = ShardSoak(server, folder, options.shards, options.every or 30.0, options.seed)
        else:
            soak = Soak(store, server, folder, options.speed, options.every or 1.0, options.seed)
        soak.run(60.0 * options.minutes)
        summary = soak.check()
        print(json.dumps(summary))
    if summary["violations"]:
        sys.exit(f"see {folder}")  # what has failed is kept, to look at
    shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--speed", type=float, default=120.0, help="seconds per second")
    parser.add_argument("--every", type=float, help="seconds between two faults")
    parser.add_argument("--shards", type=int, help="do as in `soak_shards`, in real time")
    parser.add_argument("--seed", type=int, default=0)
    main(Options(**vars(parser.parse_args())))
