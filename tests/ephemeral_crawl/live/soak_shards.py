"""Servers of shards, a balancer that forwards to them, and crawlers, while everything goes wrong.

Each shard is `ephemeral-crawl serve` on a schema of PostgreSQL, and the balancer `ephemeral-crawl
balance` with a port, as people run them, in the time of the system. Feeds are on loopback
addresses, each a host and a domain of its own; half of them are dead or odd. Parts are killed or
end in order, and are started again; the database is restarted, also as if it had crashed; one host
after the other is pinged all the time; and visitors ask for the page and the metrics. What is
checked is what `soak` checks, and besides: the budgets of the shards never add up to more than the
whole, also while they move; their prices agree; a part that was killed is back within a minute; and
a host that is pinged takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from ephemeral_crawl.live import Scheduler, snapshot
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.router import MOST_SHARDS
from ephemeral_crawl.serve.servers import Servers
from ephemeral_crawl.shards.owner import owner_of
from tests.ephemeral_crawl.live import soak_checks
from tests.ephemeral_crawl.live.archive import Archive
from tests.ephemeral_crawl.live.soak_site import (
    ANGRY,
    FEEDS,
    HOSTS,
    LIMITED,
    Crawler,
    Site,
    address_of,
    host_of,
    kind_of,
    storm,
)
from tests.ephemeral_crawl.live.stores import Server

HOUR = 3600.0
BUDGET = 14_400.0  # units per hour, of all shards
TAGGED, MOST = 3, 3_600.0  # every third source has a tag, whose sources get so much at most
INTERVAL, LEAST = 10.0, 30.0  # seconds between two fetches of a host, and of a source
FAULTS = ("kill", "kill", "end", "kill router", "end router", "database", "storm")
STORM = 60.0  # seconds
BACK = 60.0  # seconds in which a part that was killed must be back
AGREE = 0.05  # by how much prices may differ from their mean, at most times
OFTEN, LONGEST = 4, 900.0  # every fourth source has a maximum interval, seconds
FORGOTTEN = 1200.0  # seconds in which a source that has one, and answers, must be fetched
CRAWLERS = 2


class Part:
    """A process that is started again when it has ended, at the same port.

    Arguments:
        words: of the command.
        first: more of them, of the first start alone.
    """

    def __init__(self, log: Path, words: Sequence[str], first: Sequence[str] = ()) -> None:
        self._words, self._log, self.port = words, log, 0
        self.process = self._started(first)

    def _started(self, more: Sequence[str] = ()) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "ephemeral_crawl", *self._words, *more]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [*words, "--port", str(self.port)], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert process.stdout is not None
        while not (match := re.search(r":(\d+)/ ", line := process.stdout.readline())):
            assert line, f"it did not start: {self._log.read_text()}"
        self.port = int(match[1])
        threading.Thread(target=process.stdout.read, daemon=True).start()
        return process

    def restart(self, kind: str, pause: float) -> None:
        """Kill it, or let it end in order, and start it after a while."""
        self.process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        code = self.process.wait(120)
        assert kind == "kill" or code == 0, f"it ended with {code}: {self._log.read_text()}"
        time.sleep(pause)
        self.process = self._started()

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(30)
        self.process.kill()


class ShardSoak:
    """Shards, what goes wrong, and what must not.

    Arguments:
        every: seconds between two faults.
    """

    def __init__(self, server: Server, folder: Path, shards: int, every: float, seed: int) -> None:
        self.server, self.folder, self.every = server, folder, every
        self.random = random.Random(seed)
        self.notes = soak_checks.Notebook(folder / "notes")
        self.site = Site(self.notes, seed)
        self.stores = [server.new() for _ in range(shards)]
        self.parts = [
            Part(folder / "log", ("serve", "--store", store.address), ("--budget", "1/h"))
            for store in self.stores
        ]
        addresses = [f"http://127.0.0.1:{part.port}" for part in self.parts]
        words = ["balance", "--servers", *addresses, "--budget", f"{BUDGET}/h"]
        self.router = Part(folder / "log", [*words, "--every", f"{every / 2}s"])
        self.archives = [
            Archive(store, folder / f"journal {k}") for k, store in enumerate(self.stores)
        ]
        self.address = f"http://127.0.0.1:{self.router.port}"
        self.crawlers: list[Crawler] = []
        self.faults = dict.fromkeys(dict.fromkeys(FAULTS), 0)
        self.waiting: list[str] = []
        self.down = False  # whether a part, or the database, is or was just
        self.back: list[float] = []  # seconds until each killed part was back
        self.windows: dict[str, list[tuple[float, float, int]]] = {"storm": [], "calm": []}
        self.pings, self.visits, self.violations = 0, 0, list[str]()
        self.apart: list[tuple[float, float]] = []  # time, and how much prices differ
        self.memory: dict[str, list[float]] = {}

    def run(self, seconds: float) -> None:
        """Let it happen for a time."""
        self.lasted = seconds
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        def call(task: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(task, loop).result(120)

        call(self._begin())
        self.crawlers = [Crawler(self.site, self.address, self.notes, k) for k in range(CRAWLERS)]
        crawls = [asyncio.run_coroutine_threadsafe(c.run(), loop) for c in self.crawlers]
        visits = asyncio.run_coroutine_threadsafe(self._visit(), loop)
        end, following = time.monotonic() + seconds, time.monotonic() + self.every
        try:
            while time.monotonic() < end:
                if time.monotonic() > following:
                    self._fault(call, time.monotonic() > end - 0.5 * seconds)
                    following = time.monotonic() + self.every
                self._look()
                call(self._sample())
                for task in (*crawls, visits):
                    if task.done():
                        task.result()
                time.sleep(1.0)
        finally:
            for task in (*crawls, visits):
                task.cancel()
            time.sleep(1.0)
            for part in (self.router, *self.parts):
                part.close()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)

    async def _begin(self) -> None:
        self.listening = await self.site.serve()
        names = [self.site.name_of(i) for i in range(FEEDS)]
        servers = Servers([self.address])
        sources = [
            {
                "source": name,
                "host": address_of(host_of(i)),
                "min_interval": LEAST,
                "max_interval": LONGEST if i % OFTEN == 0 else None,
                "tag": "tagged" if i % TAGGED == 0 else None,
            }
            for i, name in enumerate(names)
        ]
        await servers.post(0, "add_many", {"sources": sources})
        for host in range(0, HOSTS, LIMITED):
            limit = {"host": address_of(host), "interval": INTERVAL}
            await servers.post(0, "limit_host", limit)
        bounds = {"tag": "tagged", "least": f"{MOST / 2}/h", "most": f"{MOST}/h"}
        await servers.post(0, "limit_tag", bounds)
        for i in range(FEEDS):
            self.notes("running", self.site.now(), i)

    def _look(self) -> None:
        """Look for what was acknowledged before now."""
        for number in self.notes.acknowledged():
            lease, shard = divmod(number, MOST_SHARDS)
            self.archives[shard].unseen.add(lease)
        for archive in self.archives:
            archive.read()

    # ------------------------------------------------------------------------------- faults

    def _fault(self, call: Callable[[Any], Any], late: bool) -> None:
        """Let the next thing go wrong; in the second half one shard and the router are left alone,
        so that their memory can be followed."""
        if not self.waiting:
            self.waiting = self.random.sample(FAULTS, len(FAULTS))
        kind = self.waiting.pop()
        if late and kind.endswith("router"):
            return
        self.faults[kind] += 1
        if kind == "storm":
            self._storm(call)
            return
        self.down = True
        begun = time.monotonic()
        if kind == "database":
            self.server.stop(self.random.choice(("fast", "immediate")))
            self.server.start()
        elif kind.endswith("router"):
            self.router.restart(kind.split()[0], self.random.uniform(0.0, 5.0))
        else:
            part = self.random.choice(self.parts[1:] if late else self.parts)
            part.restart(kind, self.random.uniform(0.0, 5.0))
        while call(self._ask("/healthz")) != 200:
            time.sleep(0.2)
        self.back.append(took := time.monotonic() - begun)
        if took > BACK:
            self.violations.append(f"{kind}: it was back after {took:.0f} s")
        self.down = False

    def _storm(self, call: Callable[[Any], Any]) -> None:
        """Ping one host for a while, and compare what becomes of the others with the time after."""
        host = self.random.randrange(HOSTS)
        names = [self.site.name_of(i) for i in range(FEEDS) if host_of(i) == host]
        start = self.site.now()
        self.pings += call(storm(Servers([self.address]), names, STORM))
        middle = self.site.now()
        while self.site.now() < middle + STORM:
            self._look()
            call(self._sample())
            time.sleep(1.0)
        self.windows["storm"].append((start, middle, host))
        self.windows["calm"].append((middle, self.site.now(), host))

    # ------------------------------------------------------------------------------ visitors

    async def _ask(self, path: str, address: str = "") -> int:
        """Return the status of an answer, 0 if there is none."""
        host, port = (address or self.address).removeprefix("http://").split(":")
        try:
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                status = int((await reader.readline()).split()[1])
                writer.close()
                return status
        except (OSError, TimeoutError, IndexError):
            return 0

    async def _visit(self) -> None:
        """Ask for pages all the time."""
        draw = random.Random(0)
        while True:
            source = self.site.name_of(draw.randrange(FEEDS))
            words = urlencode({"source": source})
            shard = owner_of(source, len(self.parts))
            paths = [f"/?shard={shard}", f"/?{words}", "/metrics", "/v1/status", "/v1/tags"]
            path = draw.choice([*paths, f"/v1/explain?{words}", "/v1/next_due", "/healthz"])
            down = self.down
            status = await self._ask(path)
            self.visits += 1
            if status != 200 and not (down or self.down):
                self.violations.append(f"{path} was answered by {status}")
            await asyncio.sleep(2.0)

    async def _sample(self) -> None:
        """Note prices and memory."""
        for k, part in enumerate((*self.parts, self.router)):
            with suppress(OSError):
                name = f"shard {k}" if part is not self.router else "router"
                memory = soak_checks.memory(part.process.pid)
                self.memory.setdefault(name, []).append(memory)
        if self.down:
            return
        with suppress(Refusal):
            statuses = (await Servers([self.address]).ask(0, "GET", "/v1/status"))["shards"]
            prices = np.array([status["price"] for status in statuses if status is not None])
            if len(prices) == len(statuses):
                apart = float(np.abs(prices / prices.mean() - 1.0).max())
                self.apart.append((self.site.now(), apart))

    # -------------------------------------------------------------------------------- checks

    def check(self) -> dict[str, Any]:
        """Check the notes, the memory and the states; return what happened."""
        self._look()
        notes = self.notes.notes()
        leases, end = notes.leases.values(), self.site.now()
        hosts = dict.fromkeys(range(0, HOSTS, LIMITED), INTERVAL)
        tagged = {
            lease
            for crawler in self.crawlers
            for lease, source in crawler.leases.items()
            if source % TAGGED == 0
        }
        checks: dict[str, Callable[[], object]] = {
            "least balance": lambda: soak_checks.check_budget(
                leases, BUDGET / HOUR, BUDGET, float(len(self.parts))
            ),
            "largest sum of budgets": self._sum_of_budgets,
            "least balance of the tag": lambda: soak_checks.check_budget(
                [lease for number, lease in notes.leases.items() if number in tagged],
                MOST / HOUR,
                MOST,
                0.5 * MOST + len(self.parts),
            ),
            "largest sum of maxima": self._sum_of_maxima,
            "shortest of source and host, s": lambda: soak_checks.check_politeness(
                notes, LEAST, hosts
            ),
            "prices apart": self._prices_apart,
            "longest until back, s": lambda: round(max(self.back, default=0.0), 1),
            "others in a storm": lambda: self._others(notes),
            "longest wait, s": lambda: self._forgotten(notes, end),
            "memory, MiB": self._flat,
            "events": lambda: self._replay(notes),
        }
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        usage = children.ru_utime + children.ru_stime + time.process_time()
        summary: dict[str, Any] = {"hours": end / HOUR, "leases": len(leases)}
        summary |= {"fetches": len(notes.fetches), "429": notes.refused, **self.faults}
        summary |= {"pings": self.pings, "visits": self.visits, "cores": round(usage / end, 2)}
        summary["collected"] = sum(crawler.collected for crawler in self.crawlers)
        results, violations = soak_checks.results_of(checks)
        return summary | results | {"violations": self.violations + violations}

    def _sum_of_budgets(self) -> float:
        """Refuse that shards had more than the budget together, at any time."""
        changes = [
            (event["time"], k, HOUR * event["settings"]["budget"])
            for k, archive in enumerate(self.archives)
            for event in archive.events()
            if event["kind"] == "configure"
        ]
        budgets, most = [0.0] * len(self.archives), 0.0
        for _, k, budget in sorted(changes):
            budgets[k] = budget
            most = max(most, sum(budgets))
        assert most <= BUDGET * (1.0 + 1e-9), f"the budgets added up to {most} an hour"
        return most

    def _sum_of_maxima(self) -> float:
        """Refuse that the tag might have had more than its maximum on all shards together, once
        each had been told of one."""
        changes = [
            (event["time"], k, HOUR * event["most"][0] * event["parts"][1])
            for k, archive in enumerate(self.archives)
            for event in archive.events()
            if event["kind"] == "tag"
        ]
        bounds, most = [math.inf] * len(self.archives), 0.0
        for _, k, bound in sorted(changes):
            bounds[k] = bound
            if sum(bounds) < math.inf:
                most = max(most, sum(bounds))
        assert 0.0 < most <= MOST * (1.0 + 1e-9), f"the maxima added up to {most} an hour"
        return most

    def _prices_apart(self) -> list[float]:
        """Return how much prices differ in the second half: the median, and that of 95 %."""
        late = [apart for at, apart in self.apart if at > 0.5 * self.lasted]
        assert late, (
            "the soak is too short for this check: no prices were compared in its second half"
        )
        half, most = (round(float(np.quantile(late, q)), 4) for q in (0.5, 0.95))
        assert half <= AGREE, f"they differ by {half:.1%} at half of all times"
        return [half, most]

    def _others(self, notes: soak_checks.Notes) -> list[float]:
        """Return fetches per second of other hosts in storms, and after, and the time in which 99 %
        of leases were answered, s."""
        rates, slowest = [], []
        for windows in self.windows.values():
            number = sum(
                begin <= fetch.time < end and fetch.host != host
                for begin, end, host in windows
                for fetch in notes.fetches
            )
            rates.append(number / max(sum(end - begin for begin, end, _ in windows), 1.0))
            took = [
                seconds
                for begin, end, _ in windows
                for crawler in self.crawlers
                for at, seconds in crawler.times
                if begin <= at < end
            ]
            slowest.append(round(float(np.quantile(took, 0.99)), 4) if took else math.nan)
        storms = len(self.windows["storm"])
        # Three standard deviations of what chance alone may do.
        noise = 3.0 * math.sqrt(2.0 / max(rates[1] * STORM * storms, 1.0))
        assert not storms or rates[0] >= (1.0 - max(noise, 0.05)) * rates[1], (
            f"other hosts were fetched {rates[0]:.3f} times a second in storms, {rates[1]:.3f} "
            "after them"
        )
        return [*(round(rate, 3) for rate in rates), *slowest]

    def _forgotten(self, notes: soak_checks.Notes, end: float) -> float:
        """Refuse that a feed waits for long that is as it should be, and has a longest interval."""
        notes.waits = [
            wait
            for wait in notes.waits
            if wait[1] % OFTEN == 0 and kind_of(wait[1]) == "usual" and host_of(wait[1]) % ANGRY
        ]
        longest = soak_checks.longest_wait(notes, end)
        assert longest < FORGOTTEN, f"a source was not fetched for {longest:.0f} s"
        return round(longest)

    def _flat(self) -> dict[str, list[float]]:
        """Refuse that the parts that lived for the second half have grown in it."""
        growth = {}
        for name, samples in self.memory.items():
            if name in ("shard 0", "router"):
                half = samples[len(samples) // 2 :]
                growth[name] = soak_checks.check_flat(name, half, 0.0, 4.0)
        return growth

    def _replay(self, notes: soak_checks.Notes) -> int:
        for k, (store, archive) in enumerate(zip(self.stores, self.archives, strict=True)):
            mine = [
                lease // MOST_SHARDS for lease in notes.acknowledged if lease % MOST_SHARDS == k
            ]
            archive.check(mine)
            with Scheduler(store.address) as live:
                soak_checks.check_explained(live, live.sources())
                expected = snapshot.to_bytes(live._ledger.state)
            replayed = snapshot.to_bytes(archive.replayed())
            assert replayed == expected, f"the state of shard {k} is not a replay of its journal"
        return sum(archive.number for archive in self.archives)
