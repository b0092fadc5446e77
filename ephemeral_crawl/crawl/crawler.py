"""`Crawler`: fetches the feeds that a scheduler leases, and reports what it found."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, TextIO, TypeVar
from zlib import crc32

from crawl_env.errors import check_choice
from ephemeral_crawl.crawl.client import Client, FetchError, NotAllowed, Response
from ephemeral_crawl.crawl.feeds import Feed, FeedItem, Parser, is_page
from ephemeral_crawl.crawl.memory import FeedState, Memory
from ephemeral_crawl.crawl.robots import Disallowed, Robots
from ephemeral_crawl.crawl.urls import check_url, host_of
from ephemeral_crawl.crawl.waiting import PAUSE, Waiting
from ephemeral_crawl.crawl.websub import Subscriptions, hub_of
from ephemeral_crawl.live import Lease, Scheduler, UnknownSource
from ephemeral_crawl.live.arguments import Duration, retry_after, seconds
from ephemeral_crawl.live.errors import StoreLocked
from ephemeral_crawl.live.hosts import is_domain
from ephemeral_crawl.live.reasons import reason_of

UNITS = ("requests", "kB", "seconds")  # of the budget
LONGEST_PAUSE = 86_400.0  # seconds for which a feed's own wish not to be fetched is honoured
# Seconds until an address that is not allowed is looked at again, at first and after many times.
_NOT_ALLOWED, _MOST_NOT_ALLOWED = 60.0, 600.0
_SHORTEST_SLEEP = 1.0  # seconds between two looks at the schedule
_GONE = 410
_REFUSE_CONDITIONS = (400, 412, 500)  # of some servers, although they sent the ETag or the date
_DAY = 86_400.0
_WEEK = 7.0 * _DAY

T = TypeVar("T")


class Visit(NamedTuple):
    """What a fetch came to."""

    source: str
    status: int | None
    new: int  # items that were not known
    error: str  # "" if it succeeded
    kind: str = ""  # of the error, as in `FetchError`
    allowed: bool = True  # whether anything was asked for
    moved: str = ""  # where the feed has moved for good
    merged: bool = False  # whether it was removed, since another source is there
    other_paused: bool = False  # whether that other source is paused
    paused: bool = False  # since it is gone for good
    unstable: bool = False  # whether the feed gives known items other identifiers


class Crawler:
    """Fetches what is due, several feeds at once.

    Arguments:
        scheduler: of which sources are URLs of feeds.
        client: which fetches.
        parse: which turns documents into feeds.
        memory: of the items that are known.
        output: where new items are written, one JSON object a line; None: nowhere.
        parallel: largest number of fetches at once.
        lease_time: time in which a fetch must end.
        per_host: least time between two fetches of a host to which a feed moves.
        poll: longest time between two looks at the schedule, seconds: others may change it.
        clock: that of the scheduler.
        done: called after each fetch.
        subscriptions: at the hubs that feeds name.
        unit: what a fetch costs, one of `UNITS`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        client: Client,
        parse: Parser,
        memory: Memory,
        output: TextIO | None = None,
        *,
        parallel: int = 8,
        lease_time: Duration = "5min",
        per_host: Duration = 0.0,
        poll: float = 60.0,
        clock: Callable[[], float] = time.time,
        done: Callable[[Visit], object] = lambda visit: None,
        idle: Callable[[], object] = lambda: None,
        subscriptions: Subscriptions | None = None,
        unit: str = "requests",
    ) -> None:
        self._scheduler, self._client, self._parse = scheduler, client, parse
        self._memory, self._output, self._clock = memory, output, clock
        self._on_visit, self._idle, self._subscriptions = done, idle, subscriptions
        self._parallel, self._lease_time, self._poll = parallel, lease_time, poll
        self._per_host = seconds("per_host", per_host)
        self._unit = check_choice("unit", unit, UNITS)
        self._stop, self._news = asyncio.Event(), asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._robots = Robots(client, clock)
        self._not_allowed: dict[str, float] = {}  # seconds that those feeds have waited
        self._last_cleaning = -math.inf  # when removed sources were last forgotten
        self._storing = asyncio.Lock()  # held while a store is locked by another process
        self._waiting = Waiting(clock)

    def stop(self) -> None:
        """Let the fetches under way end, and begin no other; the second time, give them up."""
        if self._stop.is_set():
            for task in self._under_way:
                task.cancel()
        self._stop.set()
        self._news.set()

    def look(self) -> None:
        """Look at the schedule at once, since it was changed, such as by a ping."""
        self._news.set()

    async def run(self, *, once: bool = False) -> None:
        """Crawl until `stop` is called, or, with `once`, until nothing more is due, also at hosts
        that accept one fetch after the other, or as many fetches were begun as there are sources.
        """
        under_way, remaining = self._under_way, len(self._scheduler)
        try:
            while not self._stop.is_set():
                self._news.clear()
                free = self._parallel - len(under_way)
                leases = self._lease(free) if free else []
                for lease in leases or ():
                    under_way.add(asyncio.create_task(self._visit(lease)))
                remaining -= len(leases or ())
                if not under_way and leases is not None:
                    if once and (remaining <= 0 or not self._waits_for_hosts()):
                        return
                    self._idle()
                news = asyncio.create_task(self._news.wait())
                wait = PAUSE
                if leases is not None:
                    wait = self._until_due() if free > len(leases) else self._poll
                await asyncio.wait(
                    {news, *under_way}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                news.cancel()
                self._finish()
        finally:
            if under_way:
                await asyncio.wait(under_way)
                self._finish()

    def _lease(self, most: int) -> list[Lease] | None:
        """Return the feeds to fetch now; None if another process has the store locked."""
        if self._storing.locked():  # what was fetched is stored first
            return None
        try:
            if self._clock() >= self._last_cleaning + _DAY:
                self._forget_removed()
            leases = self._scheduler.lease(most, self._lease_time)
        except StoreLocked as error:
            self._waiting.begin(error)
            return None
        self._waiting.end()
        return leases

    async def _store(self, change: Callable[[], T]) -> T:
        """Return what a change of a store returns, when no other process has the store locked."""
        async with self._storing:  # one after the other
            while True:
                try:
                    result = change()
                except StoreLocked as error:
                    self._waiting.begin(error)
                    await asyncio.sleep(PAUSE)
                else:
                    self._waiting.end()
                    return result

    def _forget_removed(self) -> None:
        """Forget feeds that are no sources any more, and the limits of hosts that none is at, but
        for those that others have set."""
        names = self._memory.names()  # before the sources, to which others may be added meanwhile
        sources = set(self._scheduler.sources())
        for name in names - sources:
            self._memory.forget(name)
        for name in self._not_allowed.keys() - sources:
            del self._not_allowed[name]
        self._memory.keep_delays(map(_site_of, sources))
        with self._scheduler.together():
            limits = self._scheduler.unused_limits()
            unused = {host: limit for host, limit in limits.items() if not is_domain(host)}
            own = {host: self._memory.own_limit(host, limit) for host, limit in unused.items()}
            limits = {h: 0.0 if limit == self._per_host else limit for h, limit in own.items()}
            changes = {host: limits[host] for host in unused if limits[host] != unused[host]}
            self._scheduler.limit_hosts(changes)
        for host in changes:
            self._memory.note_limit(host, limits[host], 0.0)
        self._last_cleaning = self._clock()

    def _waits_for_hosts(self) -> bool:
        """Return whether a source is due, and the next is leased once its host accepts a fetch."""
        wait = (self._scheduler.next_due() or math.inf) - self._clock()
        return 0.0 < wait <= self._per_host and self._scheduler.status().due > 0

    def _until_due(self) -> float:
        due = self._scheduler.next_due()
        wait = self._poll if due is None else due - self._clock()
        return min(max(wait, _SHORTEST_SLEEP), self._poll)

    def _finish(self) -> None:
        """Remove fetches that have ended from those under way; raise unexpected errors."""
        tasks = [task for task in self._under_way if task.done()]
        self._under_way.difference_update(tasks)
        failures = [task.exception() for task in tasks if not task.cancelled()]
        for failure in filter(None, failures):
            raise failure

    # ------------------------------------------------------------------------------- one fetch

    async def _visit(self, lease: Lease) -> None:
        source, response = lease.source, None
        try:
            if self._memory.is_page(source):
                await self._slow_down(source, await self._robots.check(source))
            state, start = self._memory.of(source), self._clock()
            if (state.etag or state.modified) and self._is_first_of_week(source):
                state = state._replace(etag="", modified="")
            response = await self._client.get(source, state.etag, state.modified)
            visit = await self._read(lease, state, response, self._clock() - start)
        except NotAllowed as error:  # which costs nothing
            reason = reason_of(str(error))
            if isinstance(error, Disallowed):
                wait = error.again_after
                if error.delay is not None:
                    await self._slow_down(source, error.delay)
            else:
                wait = 2.0 * self._not_allowed.get(source, _NOT_ALLOWED / 2.0)
                self._not_allowed[source] = wait = min(wait, _MOST_NOT_ALLOWED)
            await self._store(
                lambda: self._scheduler.release(lease.id, again_after=wait, reason=reason)
            )
            self._on_visit(Visit(source, None, 0, reason, error.kind, allowed=False))
            return
        except FetchError as error:
            await self._fail(lease, error, response)
        except ValueError as error:
            await self._fail(lease, FetchError("format", str(error)), response)
        except asyncio.CancelledError:
            with suppress(StoreLocked):  # then it expires
                self._scheduler.release(lease.id)
            return
        else:
            self._on_visit(visit)
        self._not_allowed.pop(source, None)

    def _is_first_of_week(self, source: str) -> bool:
        """Return whether a feed is fetched for the first time in a week, which begins for each host
        at a time of its own. It is then asked for without conditions, since some servers answer for
        ever that nothing has changed."""
        begin, now = crc32(host_of(source).encode()) % _WEEK, self._clock()
        with suppress(UnknownSource):
            if (last := self._scheduler.explain(source).fetched_at) is not None:
                return (last - begin) // _WEEK < (now - begin) // _WEEK
        return False

    async def _fail(self, lease: Lease, error: FetchError, response: Response | None) -> None:
        """Report a fetch that came to nothing; a feed that is gone is paused, and of a page it is
        remembered that it is one."""
        status, pause, reason = None, None, reason_of(str(error))
        if response is not None:
            if is_page(response.body):
                await self._store(lambda: self._memory.add_pages([lease.source]))
            status = response.status
            if error.kind == "http":
                pause = retry_after(response.headers.get("retry-after", ""), self._clock())
                state = self._memory.of(lease.source)
                if status in _REFUSE_CONDITIONS and (state.etag or state.modified):
                    state = state._replace(etag="", modified="")
                    await self._store(lambda: self._memory.remember(lease.source, state, None))
        is_gone = status == _GONE

        def report() -> None:
            with self._scheduler.together():
                self._scheduler.failed(
                    lease.id, status=status, kind=error.kind, retry_after=pause, reason=reason
                )
                if is_gone:
                    with suppress(UnknownSource):
                        self._scheduler.pause(lease.source)

        await self._store(report)
        self._on_visit(Visit(lease.source, status, 0, reason, error.kind, paused=is_gone))

    async def _read(self, lease: Lease, state: FeedState, response: Response, took: float) -> Visit:
        """Report a document, or that there is no other than before.

        A page that names a feed is one from which the feed has moved for good. Items of a feed that
        has moved to another source are left to that one. Entries of a sitemap that are sources
        themselves are pings of these, and no items: what these pings are worth is what the sitemap
        is fetched for.

        What is new is written first, then remembered, then reported: if the process is killed in
        between, items may be written twice, but none is lost.

        Raises:
            FetchError: it is no document.
            ValueError: it is not a feed.
        """
        if response.status != 304 and not response.is_document:
            raise FetchError("http", f"HTTP {response.status}")
        if response.status == 304 and not (state.etag or state.modified):
            raise ValueError("HTTP 304 says that nothing has changed, which was not asked")
        source, moved = lease.source, response.permanent or ""
        digest = blake2b(response.body, digest_size=16).digest()
        feed: Feed | None = None
        first = not state.digest
        new: list[FeedItem] = []
        entries: list[FeedItem] | None = None  # new entries of a sitemap that are sources
        unstable = False
        if response.status != 304 and digest != state.digest:
            feed = await self._parse_response(response)
            if feed.elsewhere:
                moved = check_url(feed.elsewhere, "the feed that the page names")
                page, response = response, await self._client.get(moved, "", "")
                response = replace(response, received=page.received + response.received)
                if not response.is_document:
                    raise ValueError(
                        f"the page names {moved}, which answers HTTP {response.status}"
                    )
                feed, moved = await self._parse_response(response), response.permanent or moved
                if feed.elsewhere:
                    raise ValueError(f"the page names {moved} as its feed, which is a page, too")
                digest = blake2b(response.body, digest_size=16).digest()
            if moved == source or moved not in self._scheduler:  # which is fetched itself
                new, unstable = self._new_items(source, feed)
            state = FeedState("", "", digest, feed.pause, feed.title)
            other_sources = self._sources_in(feed)
            if other_sources - {source}:
                entries = [entry for entry in new if entry.link in other_sources and not first]
                if not feed.is_index:
                    await self._store(lambda: self._memory.add_pages(other_sources - {source}))
            new = [entry for entry in new if entry.link not in other_sources]
            self._write(source, new, first=first)
            if first:
                new = self._uncounted(source, new)
        time_of_fetch = self._clock()
        state = state._replace(
            etag=response.etag or state.etag, modified=response.modified or state.modified
        )
        keys = feed and [key for item in feed.items for key in (item.key, item.alias) if key]
        await self._store(lambda: self._memory.remember(source, state, keys))
        pause = min(max(response.max_age, state.pause), LONGEST_PAUSE)

        def report() -> None:
            with self._scheduler.together():
                self._scheduler.report(
                    lease.id,
                    [(_plausible(item.published), item.worth) for item in new],
                    status=response.status,
                    at=time_of_fetch,
                    again_after=pause,
                    cost=_cost(self._unit, response, took),
                    pings=None if entries is None else self._announce(source, entries),
                )

        await self._store(report)
        if feed and self._subscriptions is not None:
            note = partial(self._subscriptions.note_hub, moved or source, *hub_of(response, feed))
            await self._store(note)
        if moved in ("", source):
            return Visit(source, response.status, len(new), "", unstable=unstable)
        merged, other_paused = await self._move(source, moved)
        visit = Visit(source, response.status, len(new), "", moved=moved, unstable=unstable)
        return visit._replace(merged=merged, other_paused=other_paused)

    async def _parse_response(self, response: Response) -> Feed:
        content_type = response.headers.get("content-type", "")
        return await self._parse(response.body, content_type, response.url)

    def _new_items(self, source: str, feed: Feed) -> tuple[list[FeedItem], bool]:
        """Return the items that are not known, and whether the feed gives most of those that are
        other identifiers: they are known by their link, title and date, unless several have the
        same."""
        keys = Counter(key for item in feed.items for key in (item.key, item.alias))
        unknown = self._memory.unknown(source, keys)
        by_key = [item for item in feed.items if item.key in unknown]
        new = [item for item in by_key if item.alias in unknown or keys[item.alias] > 1]
        return new, len(by_key) - len(new) > 0.5 * len(feed.items)

    def _uncounted(self, source: str, items: list[FeedItem]) -> list[FeedItem]:
        """Return which items of a feed of which nothing is remembered were not reported before: if
        it was fetched, as where a backup of the store was put back, those published since."""
        since = self._scheduler.explain(source).fetched_at if source in self._scheduler else None
        if since is None:
            return items
        return [item for item in items if (item.published or 0.0) > since]

    def _sources_in(self, feed: Feed) -> set[str]:
        """Return which entries of a sitemap are sources of their own."""
        links = {entry.link for entry in feed.items} if feed.announces else set()
        return {link for link in links if link in self._scheduler}

    def _announce(
        self, sitemap: str, entries: Sequence[FeedItem]
    ) -> list[tuple[float | None, float]]:
        """Ping the sources of the host of a sitemap which it lists anew or with another date; of
        other hosts it may not speak. Return the date of each ping, None if it is not known to the
        hour, and what the ping is worth."""
        host, pings = host_of(sitemap), list[tuple[float | None, float]]()
        for entry in sorted(entries, key=lambda entry: entry.link):
            if entry.link != sitemap and host_of(entry.link) == host:
                at = _plausible(entry.published)
                at = None if at is None or at % _DAY == 0.0 else at
                with suppress(UnknownSource):
                    pings.append((at, self._scheduler.signal(entry.link, "sitemap", at=at)))
        return pings

    async def _slow_down(self, source: str, delay: float) -> None:
        """Fetch from the host of a source no more often than the robots.txt of its sites ask for,
        nor than it is limited otherwise: what they no longer ask for is taken back."""
        with suppress(UnknownSource):
            host = self._scheduler.settings(source)["host"]
            if host is None:
                return
            longest = await self._store(
                lambda: self._memory.note_delay(_site_of(source), host, delay)
            )
            present = self._scheduler.host_limit(host)
            own_limit = self._memory.own_limit(host, present)
            limit = max(own_limit, longest)
            if limit == present:
                return
            note = partial(self._memory.note_limit, host, own_limit, limit)
            if limit > present:  # or it would count as set by others if the process were killed
                await self._store(note)
            await self._store(lambda: self._scheduler.limit_host(host, limit))
            await self._store(note)

    async def _move(self, source: str, url: str) -> tuple[bool, bool]:
        """Follow a feed that has moved for good; where two have moved to the same place, one is
        removed. Return whether it is, and whether the other one is paused."""

        def rename() -> tuple[bool, bool]:
            """Rename or remove it in the scheduler."""
            with self._scheduler.together():
                if url in self._scheduler:
                    self._scheduler.remove(source)
                    return True, self._scheduler.explain(url).paused
                self._scheduler.rename(source, url)
                if host_of(url) != host_of(check_url(source)):
                    self._scheduler.update(url, host=host_of(url))
                    if self._scheduler.host_limit(host_of(url)) < self._per_host:
                        self._scheduler.limit_host(host_of(url), self._per_host)
                return False, False

        merged = other_paused = False
        with suppress(UnknownSource):
            merged, other_paused = await self._store(rename)
            if merged:
                await self._store(lambda: self._memory.forget(source))
            else:
                await self._store(lambda: self._memory.rename(source, url))
        return merged, other_paused

    def _write(self, source: str, items: Sequence[FeedItem], *, first: bool) -> None:
        if self._output is None or not items:
            return
        now = _stamp(self._clock())
        encoding = self._output.encoding or "utf-8"  # which may be that of the terminal
        lines = []
        for item in items:
            line = {
                "source": source,
                "id": f"{item.key & (1 << 64) - 1:016x}",
                "title": item.title,
                "link": item.link,
                "published": _stamp(item.published),
                "fetched": now,
                "worth": item.worth,
                "backlog": first,
            }
            text = json.dumps(line, ensure_ascii=not encoding.lower().startswith("utf"))
            lines.append(text + "\n")
        try:
            self._output.write("".join(lines))  # at once: between two writes, a file may be renamed
            self._output.flush()
        except BrokenPipeError:
            raise
        except OSError as error:  # such as that the disk is full
            text = f"new items cannot be written: {error.strerror}"
            raise OSError(error.errno, text, getattr(self._output, "name", None)) from error


def _site_of(source: str) -> str:
    """Return the part of a URL that has a robots.txt of its own."""
    return "/".join(source.split("/")[:3])


def _cost(unit: str, response: Response, took: float) -> float | None:
    """Return what a fetch cost, None if it is what was charged for it."""
    if unit == "requests":
        return None
    return response.received / 1000.0 if unit == "kB" else max(took, 0.0)


def _plausible(published: float | None) -> float | None:
    """Return a date that the scheduler accepts: of the years 1 to 9999."""
    return published if published is not None and abs(published) < 6e10 else None


def _stamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    with suppress(ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(seconds, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    return None
