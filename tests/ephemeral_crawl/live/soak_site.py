"""Feeds on loopback addresses, half of which are dead or odd, and crawlers that fetch them."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import numpy as np

from ephemeral_crawl.crawl.client import Client, FetchError
from ephemeral_crawl.crawl.feeds import parse_feed
from ephemeral_crawl.live.arguments import retry_after
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.servers import Servers
from tests.ephemeral_crawl.crawl.odd_feeds import Odd, corpus

HOSTS, FEEDS = 60, 600
LIMITED = 2  # every second host has an interval
ANGRY = 10  # every tenth host answers 429 half of the time
TURN = 300.0  # seconds after which hosts and feeds change their mood
ASKED = 60.0  # seconds of Retry-After
TIMEOUT = 60.0  # seconds of a lease
PATIENCE = 2.0  # seconds that a crawler waits for a feed
_LISTED = 20  # items in a feed
_LONGEST = 2 * 3600.0  # seconds for which there are items
_AT_ONCE = 8  # leases
_ODD: list[Odd] = list(corpus())

Note = Callable[..., None]


def host_of(source: int) -> int:
    return source % HOSTS


def address_of(host: int) -> str:
    """Return the address of a host, which is on loopback, and a domain of its own."""
    return f"127.0.1.{host + 1}"


def is_angry(host: int, now: float) -> bool:
    """Return whether a host answers 429."""
    return host % ANGRY == 0 and int(now / TURN) % 2 == 1


def kind_of(source: int) -> str:
    """Return what a feed is like: every second one is as it should be."""
    kinds = ("gone", "busy", "silent", "odd", "slow", "changing")
    turn, other = divmod(source // HOSTS, 2)
    return kinds[(turn + host_of(source)) % len(kinds)] if other else "usual"


class Site:
    """The feeds, each at /NUMBER of its host, which note who fetches them.

    Arguments:
        note: writes a note; see `soak_checks.Notes`.
    """

    def __init__(self, note: Note, seed: int) -> None:
        self._note, self._begun = note, dict[int, float]()
        draw = np.random.default_rng(seed)
        self.start, self.port = time.time(), 0
        rates = 0.002 * draw.lognormal(0.0, 1.0, FEEDS)  # items per second
        self._items = [
            np.cumsum(draw.exponential(1.0 / rate, int(rate * 2 * _LONGEST) + _LISTED))
            - _LISTED / rate
            for rate in rates
        ]

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.time() - self.start

    def name_of(self, source: int) -> str:
        return f"http://{address_of(host_of(source))}:{self.port}/{source}"

    async def serve(self) -> asyncio.Server:
        """Listen on all addresses, at one port."""
        first = await asyncio.start_server(self._answer, address_of(0), 0)
        self.port = first.sockets[0].getsockname()[1]
        first.close()
        places = [address_of(host) for host in range(HOSTS)]
        return await asyncio.start_server(self._answer, places, self.port)

    def expect(self, source: int, begun: float) -> None:
        """Note when the lease was asked for whose fetch comes next."""
        self._begun[source] = begun

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            source = int(lines[0].split()[1].removeprefix("/"))
            tags = [line for line in lines if line.lower().startswith("if-none-match:")]
            now, host = self.now(), host_of(source)
            self._note("fetch", now, source, host, self._begun.get(source, now))
            writer.write(await self._document(source, host, now, tags))
            await writer.drain()
        writer.close()

    async def _document(self, source: int, host: int, now: float, tags: list[str]) -> bytes:
        kind = kind_of(source)
        if kind == "changing":
            kind = "usual" if int(now / TURN) % 2 else "busy"
        if is_angry(host, now):
            return _message("429 Too Many Requests", f"Retry-After: {ASKED:.0f}\r\n")
        if kind == "silent":
            return b""
        if kind in ("gone", "busy"):
            return _message({"gone": "410 Gone", "busy": "503 Service Unavailable"}[kind])
        if kind == "odd":
            return _message("200 OK", body=_ODD[source % len(_ODD)].body)
        if kind == "slow":
            await asyncio.sleep(1.5 * PATIENCE)
        items = self._items[source]
        last = int(np.searchsorted(items, now))
        tag = f'"{last}"'
        if any(tag in line for line in tags):
            return _message("304 Not Modified", f"ETag: {tag}\r\n")
        items_text = "".join(
            f"<item><title>Item {k}</title><guid>{source}-{k}</guid>"
            f"<pubDate>{formatdate(self.start + items[k], usegmt=True)}</pubDate></item>"
            for k in range(last - 1, max(last - _LISTED, 0) - 1, -1)
        )
        text = f"<rss version='2.0'><channel><title>{source}</title>{items_text}</channel></rss>"
        return _message("200 OK", f"ETag: {tag}\r\n", text.encode())


def _message(status: str, headers: str = "", body: bytes = b"") -> bytes:
    if len(body) > 2000:
        body, headers = gzip.compress(body, 1), headers + "Content-Encoding: gzip\r\n"
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Crawler:
    """Leases from a router, fetches and reports, not always as it should."""

    def __init__(self, site: Site, router: str, note: Note, seed: int) -> None:
        self._site, self._servers, self._note = site, Servers([router]), note
        self._client = Client(timeout=PATIENCE, allow_private=True)
        self._random = random.Random(seed)
        self._seen = dict[int, set[int]]()  # keys of items
        self._tags = dict[int, str]()
        self.leases = dict[int, int]()  # the source of each
        self.times: list[tuple[float, float]] = []  # when leases were asked for, and how long
        self.collected = 0

    async def run(self) -> None:
        """Crawl until this is cancelled."""
        while True:
            try:
                await self._step()
            except Refusal as refused:
                if refused.status_code != 503:
                    raise
                await asyncio.sleep(0.5)

    async def _step(self) -> None:
        begun, clock = self._site.now(), time.perf_counter()
        question = {"limit": _AT_ONCE, "timeout": TIMEOUT}
        leases = (await self._servers.post(0, "lease", question))["leases"]
        self.times.append((begun, time.perf_counter() - clock))
        answered_at = self._site.now()
        for lease in leases:
            self._note("lease", lease["id"], begun, answered_at, 1.0)
        await asyncio.gather(*(self._handle(lease, begun) for lease in leases))
        if not leases:
            await asyncio.sleep(0.2)

    async def _handle(self, lease: dict[str, Any], begun: float) -> None:
        source, number = int(lease["source"].rpartition("/")[2]), lease["id"]
        self.leases[number], chance = source, self._random.random()
        if chance < 0.02:
            return  # forgotten
        if chance < 0.05:
            asked_at = self._site.now()
            self._note("releasing", number, asked_at)
            if await self._insist("release", {"lease": number}):
                self._note("released", number, asked_at, self._site.now())
            return
        method, outcome = await self._fetch(source, begun, lease["source"])
        fetched_at = self._site.now()
        if await self._insist(method, {"lease": number, **outcome}):
            self._note("acknowledged", number)
            if outcome.get("status") == 429:
                self._note("429", self._site.now(), host_of(source), fetched_at + ASKED)
            if chance < 0.1:
                assert not await self._insist(method, {"lease": number, **outcome})

    async def _fetch(self, source: int, begun: float, url: str) -> tuple[str, dict[str, Any]]:
        """Return a method of the scheduler, and what to tell it."""
        self._site.expect(source, begun)
        try:
            answer = await self._client.get(url, self._tags.get(source, ""))
            if answer.status == 304:
                return "report", {"status": 304}
            if answer.status != 200:
                wait = retry_after(answer.headers.get("retry-after", ""), time.time())
                return "failed", {"status": answer.status, "retry_after": wait}
            feed = parse_feed(answer.body, answer.headers.get("content-type", ""), url)
        except ValueError:
            return "failed", {"kind": "format"}
        except FetchError as error:
            return "failed", {"kind": error.kind}
        self._tags[source] = answer.etag
        seen = self._seen.setdefault(source, set())
        items = [[item.published, 1.0] for item in feed.items if item.key not in seen]
        seen.update(item.key for item in feed.items)
        self.collected += len(items)
        return "report", {"items": items, "status": 200}

    async def _insist(self, method: str, arguments: dict[str, Any]) -> bool:
        """Return whether an outcome was recorded, told again if there was no answer.

        If so, it may have been recorded before; then this returns False.
        """
        arguments = {name: value for name, value in arguments.items() if value is not None}
        while True:
            try:
                await self._servers.post(0, method, arguments)
                return True
            except Refusal as refused:
                if refused.status_code == 410:
                    return False
                if refused.status_code != 503:
                    raise
                await asyncio.sleep(0.5)


async def storm(servers: Servers, names: list[str], seconds: float) -> int:
    """Ping the sources of a host all the time; return how often."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        pings = [{"source": name, "kind": "websub"} for name in names * 10]
        with suppress(Refusal):
            await servers.post(0, "signal_many", {"pings": pings})
            number += len(pings)
        await asyncio.sleep(1.0)
    return number
