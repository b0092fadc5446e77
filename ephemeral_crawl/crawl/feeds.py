"""Feeds: items with an identity and a date, from documents that nobody vouches for.

Documents are parsed in a process of their own, whose time and memory are limited, so that a
document that is made to take long does not stop the crawl.
"""

from __future__ import annotations

import asyncio
import calendar
import io
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

MOST_ITEMS = 2000  # of a feed, the newest; further ones are not looked at
MOST_WORTH = 1e9
_LONGEST = 1000  # characters of a title or link
_SECONDS = 20.0  # to parse a feed
_MEMORY = 2 << 30  # bytes, of the process that parses
_PERIODS = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 604_800.0, "monthly": 2_592_000.0}
_PERIODS["yearly"] = 31_536_000.0


class FeedItem(NamedTuple):
    """An item of a feed."""

    key: int  # identity within the feed, 64 bits
    title: str
    link: str  # absolute http or https URL, or ""
    published: float | None  # seconds since 1970; None if unknown
    worth: float


class Feed(NamedTuple):
    """A feed."""

    title: str
    items: list[FeedItem]  # at most MOST_ITEMS
    pause: float  # seconds for which it asks not to be fetched again: ttl, or syn:updatePeriod


class Parser(Protocol):
    """What turns documents into feeds."""

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        """Return the feed; raise ValueError if it is none, or takes too long to read."""
        ...


def parse_feed(body: bytes, content_type: str = "", url: str = "", worth: str = "") -> Feed:
    """Return the feed that a document holds: RSS, Atom or RDF.

    Arguments:
        content_type: header of that name, which may tell the encoding.
        url: to which links are relative.
        worth: field of an item, as feedparser calls it, that states its worth; default: 1 each.

    Raises:
        ValueError: it is not a feed.

    >>> item = b"<item><guid>1</guid><pubDate>Thu, 01 Jan 1970 00:01:00 GMT</pubDate></item>"
    >>> feed = parse_feed(b"<rss version='2.0'><channel><ttl>60</ttl>%b</channel></rss>" % item)
    >>> feed.pause, feed.items[0].published
    (3600.0, 60.0)
    """
    import feedparser

    headers = {"content-type": content_type or "application/xml"}
    # A stream, since of bytes feedparser would ask whether they are the name of a file.
    try:
        found = feedparser.parse(
            io.BytesIO(body),
            response_headers=headers,
            sanitize_html=False,
            resolve_relative_uris=False,
        )
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # documents are found that no parser is ready for
        raise ValueError(f"the document cannot be read: {type(error).__name__}: {error}") from error
    if not found.get("version") and not found.entries:
        raise ValueError("the document is not a feed")
    items = [_item(entry, url, worth) for entry in found.entries]
    if len(items) > MOST_ITEMS:  # those without a date may be the newest
        items.sort(key=lambda item: -math.inf if item.published is None else -item.published)
    unique = {item.key: item for item in reversed(items[:MOST_ITEMS])}
    return Feed(_text(found.feed.get("title")), list(reversed(unique.values())), _pause(found.feed))


def _item(entry: Any, url: str, worth: str) -> FeedItem:
    link = _text(entry.get("link"))
    try:
        address = urljoin(url, link) if link else ""
        _ = urlsplit(address).port  # refused if it is not a URL
    except ValueError:
        address = ""
    identity = (
        _text(entry.get("id"), 10_000)
        or address
        or f"{entry.get('title', '')}\n{entry.get('summary', '')}"
    )
    key = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return FeedItem(
        int.from_bytes(key, "big", signed=True),
        _text(entry.get("title")),
        address if address.startswith(("http://", "https://")) else "",
        _date(entry),
        _worth(entry.get(worth)) if worth else 1.0,
    )


def _date(entry: Any) -> float | None:
    for name in ("published_parsed", "updated_parsed"):
        with suppress(TypeError, ValueError, OverflowError):
            # Asked for one date, the entry itself may return the other, with a warning.
            if moment := dict.get(entry, name):
                return float(calendar.timegm(moment))
    return None


def _worth(text: object) -> float:
    try:
        value = float(str(text)[:50])
    except ValueError:
        return 1.0
    return min(value, MOST_WORTH) if value >= 0.0 else 1.0


def _pause(feed: Any) -> float:
    """Return the seconds for which the feed may be kept: minutes in ttl, or a period ÷ frequency,
    the longer of the two."""
    found = [0.0]
    with suppress(ValueError):
        found.append(60.0 * float(str(feed.get("ttl", "")).strip()[:12]))
    period = str(feed.get("sy_updateperiod", "")).strip().lower()
    if period in _PERIODS:
        often = 1.0
        with suppress(ValueError):
            often = max(float(str(feed.get("sy_updatefrequency", "1")).strip()[:12]), 1e-3)
        found.append(_PERIODS[period] / often)
    return max((x for x in found if 0.0 <= x < 1e9), default=0.0)


def _text(value: object, longest: int = _LONGEST) -> str:
    """Return text on one line without control characters and surrogates."""
    if not isinstance(value, str):
        return ""
    kept = (c if c.isprintable() else " " for c in value[:longest])
    return " ".join("".join(kept).split())


# ------------------------------------------------------------------------------- limited processes


class InProcess:
    """Parses in this process, without a limit of time: for documents that one trusts."""

    def __init__(self, worth: str = "") -> None:
        self._worth = worth

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        return parse_feed(body, content_type, url, self._worth)


class LimitedProcess:
    """Parses in another process, of limited time and memory.

    Arguments:
        seconds: for a document.
        worth: as for `parse_feed`.
    """

    def __init__(self, worth: str = "", seconds: float = _SECONDS) -> None:
        self._worth, self._seconds = worth, seconds
        self._pool: ProcessPoolExecutor | None = None

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_limit)
        loop = asyncio.get_running_loop()
        given = body, content_type, url, self._worth
        try:
            return await loop.run_in_executor(self._pool, _parse_within, self._seconds, given)
        except (BrokenProcessPool, MemoryError):
            self._pool = None
            raise ValueError("parsing it takes too much memory") from None

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class _TimeUp(BaseException):
    """Not an Exception, since the parser handles those."""


def _limit() -> None:
    """Limit the memory of this process, and leave Ctrl-C to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _end_with_parent() -> None:
    """End this process with the one that started it, also if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _parse_within(seconds: float, given: tuple[bytes, str, str, str]) -> Feed:
    stop: Callable[..., Any] | None = getattr(signal, "setitimer", None)
    if stop is None:  # on Windows
        return parse_feed(*given)

    def time_up(*_: object) -> None:
        raise _TimeUp

    signal.signal(signal.SIGALRM, time_up)
    try:
        stop(signal.ITIMER_REAL, seconds, 0.1)  # again, in case it is ignored
        try:
            return parse_feed(*given)
        finally:
            stop(signal.ITIMER_REAL, 0.0)
    except _TimeUp:
        raise ValueError(f"parsing it takes more than {seconds:g} s") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
