"""Where hubs reach the crawler: the little of HTTP that they need."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qsl

from ephemeral_crawl.crawl.websub import MOST_BYTES, PATH, Notice, Subscriptions

_MOST_HEADERS = 32 * 1024  # bytes
_PATIENCE = 10.0  # seconds for a request to arrive
_MOST_CONNECTIONS = 100


async def listen(
    subscriptions: Subscriptions, host: str, port: int, patience: float = _PATIENCE
) -> asyncio.Server:
    """Return a server that answers hubs, and nobody else.

    Each connection has one request, of limited size, which must arrive in time.

    Raises:
        OSError: the address cannot be used.
    """
    open_now = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        open_now += 1
        try:
            if open_now <= _MOST_CONNECTIONS:
                async with asyncio.timeout(patience):
                    notice = await _answer(subscriptions, reader)
                    text = notice.text.encode("utf-8", "replace")
                    writer.write(
                        f"HTTP/1.1 {notice.status} {HTTPStatus(notice.status).phrase}\r\n"
                        "Content-Type: text/plain; charset=utf-8\r\n"
                        "X-Content-Type-Options: nosniff\r\n"
                        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode()
                        + text
                    )
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the hub will come again
        finally:
            open_now -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    return await asyncio.start_server(handle, host, port, limit=_MOST_HEADERS)


async def _answer(subscriptions: Subscriptions, reader: asyncio.StreamReader) -> Notice:
    """Read a request, and return the answer."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return Notice(431)
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Notice(400)
    path, _, query = words[1].partition("?")
    headers = {name.strip().lower(): value.strip() for name, _, value in map(_split, lines)}
    if not path.startswith(PATH):
        return Notice(404)
    key = path.removeprefix(PATH)
    if words[0] == "GET":
        return subscriptions.verify(key, dict(parse_qsl(query)))
    if words[0] != "POST":
        return Notice(405)
    length = headers.get("content-length", "")
    whole = length.isascii() and length.isdecimal() and len(length) < 15
    if not whole or "transfer-encoding" in headers:
        return Notice(411)
    if int(length) > MOST_BYTES:
        return Notice(413)
    body = await reader.readexactly(int(length))
    return await subscriptions.notify(key, headers.get("x-hub-signature", ""), body)


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")
