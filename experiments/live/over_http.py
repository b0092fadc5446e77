"""The crawler of `ephemeral-crawl crawl` in a world, over HTTP, in accelerated time.

Days of a crawl over real sockets take seconds, with the code as it is: sleeps, time-outs and slow
servers included. The feeds are served on loopback as RSS and Atom, with everything that their
servers do; each connection serves one request, so that names are resolved for each.
"""

from __future__ import annotations

import asyncio
import io
import re
import selectors
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any, TypeVar

from ephemeral_crawl.crawl import feeds
from ephemeral_crawl.crawl.client import Client, Response
from ephemeral_crawl.crawl.crawler import Crawler, Visit
from ephemeral_crawl.crawl.memory import Memory
from ephemeral_crawl.crawl.urls import host_of
from ephemeral_crawl.live import Scheduler, UnknownSource
from experiments.live.world import Feed, World

START = 1_700_000_000.0  # seconds since 1970 at which a loop begins
_PATIENCE = 3.0  # real seconds to wait for what is under way

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.under_way = 0.0, 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0.0):
            return ready
        if self.under_way > 0 or timeout is None:
            ready = super().select(_PATIENCE)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class WarpedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock leaps to the next timer whenever nothing else is to be done.

    Servers have to run in the same loop. While a request is under way, the clock stands still,
    unless its server waits on purpose.

    >>> loop = WarpedLoop()
    >>> loop.run(asyncio.sleep(3600.0, "an hour later"))
    'an hour later'
    >>> loop.clock() - START
    3600.0
    """

    def __init__(self) -> None:
        self._warped = _Selector()
        super().__init__(self._warped)

    def time(self) -> float:
        return self._warped.now

    def clock(self) -> float:
        """Return the time in seconds since 1970."""
        return START + self._warped.now

    @contextmanager
    def request(self, number: int = 1) -> Iterator[None]:
        """Let the clock stand still, since a request is under way; with −1, let it go on for a
        server that waits on purpose."""
        self._warped.under_way += number
        try:
            yield
        finally:
            self._warped.under_way -= number

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine until it ends, and close the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()


_NAMESPACE = "https://ephemeral-crawl.example/ns"


def address(world: World, i: int, port: int, second: bool = False) -> str:
    """Return the URL of a feed: on a host of its own, or a shared one."""
    host = world.feeds[i].host
    name = f"feed{i}.test" if host is None else f"feed{i}.shared{host}.test"
    return f"http://{name}:{port}/{'second' if second else 'first'}/{i}"


def resolve(world: World, now: float, name: str) -> list[str]:
    """Return the addresses of the host of a feed: where the server listens, or where none does.

    Raises:
        OSError: the name is not known.
    """
    i = int(name.partition(".")[0].removeprefix("feed"))
    outage = world.feeds[i].outage(now)
    kind = outage.answer.kind if outage else "http"
    if kind in ("dns", "connection"):  # the server hears nothing of it
        world.ask(i, now)
    if kind == "dns":
        raise OSError(socket.EAI_NONAME, "Name or service not known")
    return ["::1" if kind == "connection" else "127.0.0.1"]


@asynccontextmanager
async def serving(world: World, loop: WarpedLoop) -> AsyncIterator[int]:
    """Serve the feeds on loopback; give the port."""
    open_now: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            line, headers = (await reader.readline()).split(), {}
            while text := (await reader.readline()).decode("latin-1").strip():
                name, _, value = text.partition(":")
                headers[name.lower()] = value.strip()
            port = writer.get_extra_info("sockname")[1]
            writer.write(await _answer(world, loop, line[1].decode(), headers, port))
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            open_now.discard(task)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)


async def _answer(
    world: World, loop: WarpedLoop, path: str, headers: dict[str, str], port: int
) -> bytes:
    _, place, number = path.split("/")
    i = int(number)
    feed = world.feeds[i]
    second = place == "second"
    answer = feed.answer(loop.time()) if second else world.ask(i, loop.time())
    if answer.moved and not second:
        status = 302 if feed.nature.value.startswith("redirects") else 301 if i % 2 else 308
        return _message(status, {"Location": address(world, i, port, second=True)})
    if answer.delay:
        with loop.request(-1):
            # A client that loses patience does so before.
            await asyncio.sleep(answer.delay + (0.001 if answer.status is None else 0.0))
    if answer.status is None:
        return b""
    if answer.status != 200:
        seconds = answer.retry_after
        if not seconds:
            return _message(answer.status, {})
        date = format_datetime(datetime.fromtimestamp(loop.clock() + seconds, UTC), usegmt=True)
        return _message(answer.status, {"Retry-After": date if i % 2 else f"{seconds:.0f}"})
    now = loop.time()
    span = feed.listed(now)
    tag = f'"{span.start}-{span.stop}"'
    last = feed.time[span.stop - 1] if span.stop else 0.0
    modified = format_datetime(datetime.fromtimestamp(START + last, UTC), usegmt=True)
    world.show(i, now)
    extra = {"ETag": tag, "Last-Modified": modified} if feed.conditional else {}
    if feed.conditional and headers.get("if-none-match") == tag:
        return _message(304, extra)
    body = (_atom if feed.atom else _rss)(feed, span, i)
    kind = "application/atom+xml" if feed.atom else "application/rss+xml; charset=utf-8"
    return _message(200, {**extra, "Content-Type": kind}, body.encode())


def _message(status: int, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if status != 304:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _rss(feed: Feed, span: slice, i: int) -> str:
    items = "".join(
        f"<item><title>Item {k}</title><link>http://feed{i}.test/{k}</link>"
        f"<guid isPermaLink='false'>{i}-{k}</guid>"
        f"<pubDate>{format_datetime(datetime.fromtimestamp(START + feed.time[k], UTC))}</pubDate>"
        f"<ec:worth>{feed.worth[k]:.6f}</ec:worth></item>"
        for k in reversed(range(span.start, span.stop))
    )
    return (
        f"<?xml version='1.0'?><rss version='2.0' xmlns:ec='{_NAMESPACE}'><channel>"
        f"<title>Feed {i}</title>{items}</channel></rss>"
    )


def _atom(feed: Feed, span: slice, i: int) -> str:
    items = "".join(
        f"<entry><title>Item {k}</title><link href='http://feed{i}.test/{k}'/>"
        f"<id>urn:feed:{i}:{k}</id>"
        f"<published>{datetime.fromtimestamp(START + feed.time[k], UTC).isoformat()}</published>"
        f"<ec:worth>{feed.worth[k]:.6f}</ec:worth></entry>"
        for k in reversed(range(span.start, span.stop))
    )
    return (
        f"<?xml version='1.0'?><feed xmlns='http://www.w3.org/2005/Atom' xmlns:ec='{_NAMESPACE}'>"
        f"<title>Feed {i}</title>{items}</feed>"
    )


_ITEM = re.compile(rb"<(item|entry)>.*?</\1>", re.DOTALL)
POLL = 900.0  # seconds between two looks at the schedule when nothing is due


def crawl(
    world: World,
    per_hour: float,
    *,
    per_host: float = 0.0,
    pings: bool = False,
    output: io.StringIO | None = None,
    visits: list[Visit] | None = None,
) -> Scheduler:
    """Crawl a world to its end, and return the scheduler; `world` tells what was collected.

    Arguments:
        per_host: least time between two fetches of a host, seconds; 0: none.
        pings: whether the scheduler is told of the world's pings.
        output: where new items are written.
        visits: to which what each fetch came to is added.
    """
    loop = WarpedLoop()
    scheduler = Scheduler(":memory:", budget=f"{per_hour:g}/h", clock=loop.clock)
    callback = visits.append if visits is not None else lambda visit: None

    async def names(host: str, port: int) -> list[str]:
        return resolve(world, loop.time(), host)

    async def main() -> None:
        async with serving(world, loop) as port, WarpedClient(loop, resolve=names) as client:
            urls = [address(world, i, port) for i in range(world.number)]
            scheduler.add_many({"source": url, "host": host_of(url)} for url in urls)
            for host in {host_of(url) for url in urls} if per_host else ():
                scheduler.limit_host(host, per_host)
            crawler = Crawler(
                scheduler,
                client,
                Once(),
                Memory(":memory:"),
                output,
                per_host=per_host,
                poll=POLL,
                clock=loop.clock,
                done=callback,
            )
            stop = loop.call_later(world.end, crawler.stop)
            telling = asyncio.create_task(_tell(world, scheduler, crawler, port, loop))
            if not pings:
                telling.cancel()
            await crawler.run()
            stop.cancel()
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling

    loop.run(main())
    return scheduler


class Once:
    """Parses feeds as the crawler does, but each item only once, which takes most of the time."""

    def __init__(self) -> None:
        self._items: dict[bytes, feeds.FeedItem] = {}

    async def __call__(self, body: bytes, content_type: str, url: str) -> feeds.Feed:
        matches = list(_ITEM.finditer(body))
        new = [match[0] for match in matches if match[0] not in self._items]
        start, end = (matches[0].start(), matches[-1].end()) if matches else (0, 0)
        short = b"".join([body[:start], *new, body[end:]])
        feed = feeds.parse_feed(short, content_type, url, "ec_worth")
        self._items.update(zip(new, feed.items, strict=True))
        return feed._replace(items=[self._items[match[0]] for match in matches])


class WarpedClient(Client):
    """A client in accelerated time, of servers on loopback."""

    def __init__(self, loop: WarpedLoop, **options: Any) -> None:
        super().__init__(**{"allow_private": True, **options})
        self._loop = loop

    async def _ask(self, url: str, headers: dict[str, str], form: bytes | None = None) -> Response:
        with self._loop.request():
            return await super()._ask(url, headers, form)


async def _tell(
    world: World, scheduler: Scheduler, crawler: Crawler, port: int, loop: WarpedLoop
) -> None:
    """Tell the scheduler of pings as they come, by the present name of the feed."""
    for time, i in world.pings:
        await asyncio.sleep(time - loop.time())
        for second in (False, True):
            with suppress(UnknownSource):
                scheduler.signal(address(world, i, port, second), "websub")
                crawler.look()
                break
