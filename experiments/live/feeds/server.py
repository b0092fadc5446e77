"""The feeds of a world over HTTP: RSS and Atom, with everything that their servers do.

Each connection serves one request, so that names are resolved for each.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus

from experiments.live.feeds.warp import START, WarpedLoop
from experiments.live.feeds.world import Feed, World

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
    found = feed.answer(loop.time()) if second else world.ask(i, loop.time())
    if found.moved and not second:
        status = 302 if feed.nature.value.startswith("redirects") else 301 if i % 2 else 308
        return _message(status, {"Location": address(world, i, port, second=True)})
    if found.delay:
        with loop.request(-1):
            # A client that loses patience does so before.
            await asyncio.sleep(found.delay + (0.001 if found.status is None else 0.0))
    if found.status is None:
        return b""
    if found.status != 200:
        asked = found.retry_after
        if not asked:
            return _message(found.status, {})
        date = format_datetime(datetime.fromtimestamp(loop.clock() + asked, UTC), usegmt=True)
        return _message(found.status, {"Retry-After": date if i % 2 else f"{asked:.0f}"})
    now = loop.time()
    listed = feed.listed(now)
    tag = f'"{listed.start}-{listed.stop}"'
    last = feed.time[listed.stop - 1] if listed.stop else 0.0
    modified = format_datetime(datetime.fromtimestamp(START + last, UTC), usegmt=True)
    world.show(i, now)
    extra = {"ETag": tag, "Last-Modified": modified} if feed.conditional else {}
    if feed.conditional and headers.get("if-none-match") == tag:
        return _message(304, extra)
    body = (_atom if feed.atom else _rss)(feed, listed, i)
    kind = "application/atom+xml" if feed.atom else "application/rss+xml; charset=utf-8"
    return _message(200, {**extra, "Content-Type": kind}, body.encode())


def _message(status: int, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if status != 304:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _rss(feed: Feed, listed: slice, i: int) -> str:
    items = "".join(
        f"<item><title>Item {k}</title><link>http://feed{i}.test/{k}</link>"
        f"<guid isPermaLink='false'>{i}-{k}</guid>"
        f"<pubDate>{format_datetime(datetime.fromtimestamp(START + feed.time[k], UTC))}</pubDate>"
        f"<ec:worth>{feed.worth[k]:.6f}</ec:worth></item>"
        for k in reversed(range(listed.start, listed.stop))
    )
    return (
        f"<?xml version='1.0'?><rss version='2.0' xmlns:ec='{_NAMESPACE}'><channel>"
        f"<title>Feed {i}</title>{items}</channel></rss>"
    )


def _atom(feed: Feed, listed: slice, i: int) -> str:
    items = "".join(
        f"<entry><title>Item {k}</title><link href='http://feed{i}.test/{k}'/>"
        f"<id>urn:feed:{i}:{k}</id>"
        f"<published>{datetime.fromtimestamp(START + feed.time[k], UTC).isoformat()}</published>"
        f"<ec:worth>{feed.worth[k]:.6f}</ec:worth></entry>"
        for k in reversed(range(listed.start, listed.stop))
    )
    return (
        f"<?xml version='1.0'?><feed xmlns='http://www.w3.org/2005/Atom' xmlns:ec='{_NAMESPACE}'>"
        f"<title>Feed {i}</title>{items}</feed>"
    )
