"""The crawler of `ephemeral-crawl crawl` in a world, over HTTP."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import suppress
from typing import Any

from ephemeral_crawl.crawl.client import Client, Response
from ephemeral_crawl.crawl.crawler import Crawler, Visit
from ephemeral_crawl.crawl.feeds import Feed, FeedItem, parse_feed
from ephemeral_crawl.crawl.memory import Memory
from ephemeral_crawl.crawl.urls import host_of
from ephemeral_crawl.live import Scheduler, UnknownSource
from experiments.live.feeds.server import address, resolve, serving
from experiments.live.feeds.warp import WarpedLoop
from experiments.live.feeds.world import World

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
    done = visits.append if visits is not None else lambda visit: None

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
                done=done,
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
        self._known: dict[bytes, FeedItem] = {}

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        found = list(_ITEM.finditer(body))
        new = [match[0] for match in found if match[0] not in self._known]
        start, end = (found[0].start(), found[-1].end()) if found else (0, 0)
        short = b"".join([body[:start], *new, body[end:]])
        feed = parse_feed(short, content_type, url, "ec_worth")
        self._known.update(zip(new, feed.items, strict=True))
        return feed._replace(items=[self._known[match[0]] for match in found])


class WarpedClient(Client):
    """A client in accelerated time, of servers on loopback."""

    def __init__(self, loop: WarpedLoop, **options: Any) -> None:
        super().__init__(**{"allow_private": True, **options})
        self._loop = loop

    async def get(self, url: str, etag: str = "", modified: str = "") -> Response:
        with self._loop.request():
            return await super().get(url, etag, modified)


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
