"""WebSub (https://www.w3.org/TR/websub/): subscriptions at the hubs that feeds name, whose notices
become pings.

A hub is asked to send notices to an address that nobody else knows, and asks back there whether
this was meant. Notices are signed with a secret of the subscription; what is not signed with it is
left alone. Notices only say that something is new: what they hold is not read, and the feed is
fetched when it is due.

`listen` is where hubs reach the crawler: the little of HTTP that they need.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin

from ephemeral_crawl.crawl.client import Client, FetchError, Response
from ephemeral_crawl.crawl.feeds import Feed, Parser
from ephemeral_crawl.crawl.memory import HUBS, FileBeside, beside
from ephemeral_crawl.crawl.urls import check_url, host_of
from ephemeral_crawl.live.errors import StoreLocked
from ephemeral_crawl.live.explanation import time_text
from ephemeral_crawl.live.journal.sqlite import copy_file
from ephemeral_crawl.live.reasons import reason_of

_LOG = logging.getLogger(__name__)

PATH = "/websub/"  # below the public address, before the key of a subscription
KIND = "websub"
MOST_BYTES = 1 << 20  # of a notice
LEASE = 10 * 86_400.0  # seconds for which notices are asked for, and are sent if a hub does not say
_LEASES = (300.0, 90 * 86_400.0)  # shortest and longest lease that is believed
_RENEWED = 0.8  # of a lease, after which it is renewed
_UNANSWERED = 3600.0  # seconds in which a hub asks back, or is asked again, at first
_FAILED = 600.0  # seconds after which a hub that failed is asked again, at first
_LONGEST = 86_400.0  # seconds after which it is asked again after many times
_LOOK = 7 * 86_400.0  # seconds after which a feed that named no hub is looked at again
_EVERY = 30.0  # seconds between two rounds
_AT_ONCE = 8  # hosts of hubs that are asked at once
_OF_A_HOST, _IN_A_ROUND = 20, 1000  # requests in a round
_PATIENCE = 1.0  # seconds in which nothing else is done while another process changes the file
_MOST_HEADERS = 32 * 1024  # bytes
_ARRIVAL = 10.0  # seconds in which a request of a hub arrives
_MOST_CONNECTIONS = 100
_METHODS = {"sha1", "sha256", "sha384", "sha512"}
_CONTENT = "subscriptions at hubs"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS subscription (source TEXT PRIMARY KEY, topic TEXT, hub TEXT, "
    "key TEXT UNIQUE, secret TEXT, state TEXT, again REAL, failures INTEGER) STRICT, WITHOUT ROWID",
)
ASKED, ACTIVE, LEAVING, NONE = "asked", "active", "leaving", "none"  # states


class HubSubscription(NamedTuple):
    """The subscription of a source at its hub, or that it names none."""

    source: str
    topic: str  # address by which the hub knows the feed
    hub: str  # "": it names none
    key: str  # end of the address to which notices are sent
    secret: str
    state: str
    again: float  # when something is to be done, seconds since 1970
    failures: int  # consecutive requests to the hub that it has not confirmed


class NotYet(Exception):
    """A source is not looked at now, since its host was asked just before.

    Attributes:
        wait: seconds after which it may be.
    """

    def __init__(self, wait: float) -> None:
        super().__init__(f"in {wait:.0f} s")
        self.wait = wait


class Notice(NamedTuple):
    """The answer to a hub."""

    status: int
    text: str = ""


def hub_of(response: Response, feed: Feed | None) -> tuple[str, str]:
    """Return the addresses of the hub and of the topic that a feed names, by its headers `Link` or
    in itself; "" and "" if it names no hub that `check_url` accepts.

    >>> links = {"link": '<https://hub.example/>; rel="hub", </feed>; rel=self'}
    >>> hub_of(Response(200, links, b"", "https://example.org/f", None), None)
    ('https://hub.example/', 'https://example.org/feed')
    """
    links = _links(response.headers.get("link", ""))
    hub, topic = links.get("hub", ""), links.get("self", "")
    if not hub and feed is not None:
        hub, topic = feed.hub, feed.topic
    with suppress(ValueError):
        if hub:
            address = check_url(urljoin(response.url, hub))
            return address, check_url(urljoin(response.url, topic)) if topic else response.url
    return "", ""


def _links(header: str) -> dict[str, str]:
    """Return the first target of each relation that a header `Link` (RFC 8288) names."""
    targets: dict[str, str] = {}
    for part in header.split("<")[1:]:
        target, _, parameters = part.partition(">")
        for parameter in parameters.split(";"):
            name, _, value = parameter.strip(" ,").partition("=")
            if name.strip().lower() == "rel":
                for relation in value.strip(' "').lower().split():
                    targets.setdefault(relation, target.strip())
    return targets


class Subscriptions:
    """Subscribes to the hubs of sources, answers the hubs, and renews subscriptions.

    Arguments:
        path: SQLite file of the subscriptions, or ":memory:".
        public: address under which hubs reach this program.
        client: which sends requests to hubs.
        is_source: whether there is a source of a name, that is not paused.
        ping: called with the name of a source that has something new.
        clock: seconds since 1970.
        look: returns which hub and topic a source names at present: where feeds are not fetched by
            this program, it looks whether they still name the hub before a subscription is renewed;
            `NotYet` puts that off.

    Raises:
        ValueError: the public address is not a URL, or the file is something else.
        TimeoutError: another process changes the file for a second; also later, by all methods that
            change something. Nothing is changed then.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        public: str,
        client: Client,
        is_source: Callable[[str], Awaitable[bool]],
        ping: Callable[[str], Awaitable[None]],
        clock: Callable[[], float] = time.time,
        look: Callable[[str], Awaitable[tuple[str, str]]] | None = None,
    ) -> None:
        self._public = check_url(public, "public URL").rstrip("/")
        self._client, self._is_source, self._ping = client, is_source, ping
        self._clock, self._look = clock, look
        self._accepted = set[str]()  # keys of subscriptions that a hub accepted when first asked
        if path != ":memory:":
            Path(path).touch(mode=0o600)  # it holds the secrets of the subscriptions
        self._file = FileBeside(path, _CONTENT, _TABLES, _PATIENCE)

    def close(self) -> None:
        """Close the file. Subscriptions last, for the next start."""
        self._file.close()

    def of(self, source: str) -> HubSubscription | None:
        """Return the subscription of a source, None if there is none."""
        return self._one("source", source)

    def wants(self, source: str) -> bool:
        """Return whether a source is to be looked at, since it is not known whether it names a
        hub."""
        return self.of(source) is None

    def note_hub(self, source: str, hub: str, topic: str) -> None:
        """Note what a feed names: `hub_of`. The next round subscribes, or unsubscribes."""
        record, now = self.of(source), self._clock()
        if record and record.state != LEAVING and (record.hub, record.topic) == (hub, topic):
            if not hub:
                self._put(record._replace(again=now + _LOOK))
        elif hub:
            if record and record.hub:  # which sends no more: under a name that no source has
                leaves = record._replace(
                    source=f"\n{record.key}", state=LEAVING, again=now, failures=0
                )
                with self._file.transaction():
                    self._forget(record)
                    self._put(leaves)
            key, secret = secrets.token_urlsafe(24), secrets.token_urlsafe(32)
            self._put(HubSubscription(source, topic, hub, key, secret, ASKED, now, 0))
        elif record and record.hub:
            self._put(record._replace(state=LEAVING, again=now, failures=0))
        else:
            key = secrets.token_urlsafe(24)
            self._put(HubSubscription(source, "", "", key, "", NONE, now + _LOOK, 0))

    # ------------------------------------------------------------------------------- hubs

    async def keep(self) -> None:
        """Subscribe, renew and unsubscribe until cancelled."""
        while True:
            try:
                await self.round()
            except StoreLocked as error:
                _LOG.warning("subscriptions at hubs wait: %s", error)
            except Exception:  # the next round is another
                _LOG.exception("a round of subscriptions failed")
            await asyncio.sleep(_EVERY)

    async def round(self) -> None:
        """Send requests that are due: to the hubs of several hosts (registered domains) at once, to
        those of each host one after the other, at most a few, and none after one that fails. That a
        source names no hub is forgotten when it is to be looked at again."""
        self._file.rows("DELETE FROM subscription WHERE again <= ? AND hub = ''", (self._clock(),))
        due = self._file.rows(
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY hub ORDER BY again) AS place "
            "FROM subscription WHERE again <= ? AND hub != '') WHERE place <= ? "
            "ORDER BY place, again LIMIT ?",
            (self._clock(), _OF_A_HOST, _IN_A_ROUND),
        )
        of_host: dict[str, list[HubSubscription]] = {}
        for *row, _ in due:
            record = HubSubscription(*row)
            of_host.setdefault(host_of(record.hub), []).append(record)
        free = asyncio.Semaphore(_AT_ONCE)

        async def ask(subscriptions: list[HubSubscription]) -> None:
            async with free:
                for record in subscriptions[:_OF_A_HOST]:
                    if not await self._ask(record):
                        break

        async with asyncio.TaskGroup() as tasks:
            for subscriptions in of_host.values():
                tasks.create_task(ask(subscriptions))

    async def _hub_has_changed(self, record: HubSubscription) -> bool:
        """Return whether a source names another hub than the one that it is subscribed at, or none,
        which is noted then, or is to be looked at later."""
        if self._look is None or record.state != ACTIVE:
            return False
        try:
            hub, topic = await self._look(record.source)
        except NotYet as error:
            self._put(record._replace(again=self._clock() + error.wait))
            return True
        except FetchError:  # which says nothing about its hub
            return False
        if (hub, topic) == (record.hub, record.topic):
            return False
        self.note_hub(record.source, hub, topic)
        return True

    async def _ask(self, record: HubSubscription) -> bool:
        """Ask the hub of a source to send notices, or to send no more if it is gone; return whether
        the hub seems to answer."""
        now = self._clock()
        if record.state == ASKED and not await self._is_source(record.source):
            self._forget(record)  # what the hub asks back is refused
            return True
        if record.state == LEAVING and record.failures:  # it was asked before
            self._forget(record)
            return True
        if record.state == ACTIVE and not await self._is_source(record.source):
            record = record._replace(state=LEAVING)
        if await self._hub_has_changed(record):
            return True
        if record.state == ASKED and record.key in self._accepted:
            self._accepted.remove(record.key)  # this is said once
            _LOG.warning(
                "the hub %s of %s accepted the subscription, but has not confirmed it; check that "
                "hubs can reach %s",
                *(record.hub, record.source, self._public + PATH),
            )
        fields = {
            "hub.callback": self._public + PATH + record.key,
            "hub.mode": "unsubscribe" if record.state == LEAVING else "subscribe",
            "hub.topic": record.topic,
        }
        if record.state != LEAVING:
            fields |= {"hub.secret": record.secret, "hub.lease_seconds": f"{LEASE:.0f}"}
        # Hubs may ask back before they answer.
        record = record._replace(failures=record.failures + 1)
        self._put(record._replace(again=now + _wait(_UNANSWERED, record.failures)))
        try:
            answer = await self._client.post(record.hub, urlencode(fields).encode())
            if not 200 <= answer.status < 300:
                raise FetchError("http", f"HTTP {answer.status}")
        except FetchError as error:
            self._retry_later(record, str(error))
            return False
        if record.failures == 1:
            self._accepted.add(record.key)
        return True

    def _retry_later(self, record: HubSubscription, reason: str) -> None:
        """Ask a hub again later, if nothing else was agreed on meanwhile."""
        _LOG.warning("the hub %s of %s: %s", record.hub, record.source, reason_of(reason))
        present = self._one("key", record.key)
        if present is not None and present.state != LEAVING:
            failures = max(present.failures, 1)  # a hub may deny what it has confirmed
            again = self._clock() + _wait(_FAILED, failures)
            self._put(present._replace(again=again, failures=failures))

    # ------------------------------------------------------------------------------- answers

    def verify(self, key: str, query: Mapping[str, str]) -> Notice:
        """Return the answer to a hub that asks whether a request was meant, or that denies it."""
        record = self._one("key", key)
        mode, topic = query.get("hub.mode", ""), query.get("hub.topic", "")
        if record is None or topic != record.topic or not record.hub:
            return Notice(404, "nothing was asked for at this address")
        if mode == "denied":
            self._retry_later(record, f"it denies the subscription: {query.get('hub.reason', '')}")
            return Notice(200)
        challenge = query.get("hub.challenge", "")
        if mode == "unsubscribe" and record.state == LEAVING:
            self._forget(record)
            return Notice(200, challenge)
        if mode == "subscribe" and record.state in (ASKED, ACTIVE):
            lease = _lease(query.get("hub.lease_seconds", ""))
            again = self._clock() + _RENEWED * lease
            self._put(record._replace(state=ACTIVE, again=again, failures=0))
            return Notice(200, challenge)
        return Notice(404, "this was not asked for")

    async def notify(self, key: str, signature: str, body: bytes) -> Notice:
        """Ping the source of a notice, if it is signed with the secret of its subscription; return
        the answer, which does not tell whether it is."""
        record = self._one("key", key)
        if record is None or record.state not in (ASKED, ACTIVE):
            return Notice(410, "there is no such subscription")
        if is_signed(record.secret, signature, body):
            await self._ping(record.source)
        return Notice(202)

    # ------------------------------------------------------------------------------- the file

    def _one(self, column: str, value: str) -> HubSubscription | None:
        rows = self._file.rows(f"SELECT * FROM subscription WHERE {column} = ?", (value,))
        return HubSubscription(*rows[0]) if rows else None

    def _put(self, record: HubSubscription) -> None:
        self._file.rows(
            "INSERT OR REPLACE INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?, ?)", record
        )

    def _forget(self, record: HubSubscription) -> None:
        self._file.rows("DELETE FROM subscription WHERE key = ?", (record.key,))


def about(store: Path, source: str) -> str:
    """Return whether a source is subscribed at a hub, in a sentence; "" if there is no file of
    subscriptions beside the store. It is read in a copy, so that nothing is changed."""
    path = beside(store, HUBS)
    if not path.exists():
        return ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.hubs"
            copy_file(path, copy)
            with closing(FileBeside(copy, _CONTENT, _TABLES, _PATIENCE)) as file:
                rows = file.rows("SELECT * FROM subscription WHERE source = ?", (source,))
    except (OSError, ValueError, sqlite3.Error) as error:  # such as that it is another user's
        return f"Its subscription cannot be told, since {path} cannot be read: {error}."
    if not rows:
        return "It is not known yet whether it names a WebSub hub."
    record = HubSubscription(*rows[0])
    if not record.hub:
        return "It names no WebSub hub."
    if record.state == LEAVING:
        return f"Its subscription at the hub {record.hub} ends."
    again = time_text(record.again)
    if record.state == ASKED:
        return f"The hub {record.hub} has not confirmed a subscription; it is asked at {again}."
    return f"It is subscribed at the hub {record.hub}, to be renewed at {again}."


def _wait(first: float, failures: int) -> float:
    """Return the seconds after which a hub is asked again after so many failures, at least 1."""
    return min(first * 2.0 ** min(failures - 1, 20), _LONGEST)


def is_signed(secret: str, signature: str, body: bytes) -> bool:
    """Return whether a header `X-Hub-Signature`, METHOD=HEX, is that of a body.

    >>> is_signed("s", "sha256=" + hmac.new(b"s", b"news", "sha256").hexdigest(), b"news")
    True
    >>> is_signed("s", "", b"news"), is_signed("s", "md5=00", b"news")
    (False, False)
    """
    method, _, digest = signature.strip().partition("=")
    if method.lower() not in _METHODS or not digest.isascii():
        return False
    right = hmac.new(secret.encode(), body, getattr(hashlib, method.lower())).hexdigest()
    return hmac.compare_digest(right, digest.lower())


def _lease(text: str) -> float:
    """Return the seconds for which a hub sends notices."""
    try:
        seconds = float(text)
    except ValueError:
        return LEASE
    low, high = _LEASES
    return min(max(seconds, low), high) if math.isfinite(seconds) and seconds > 0.0 else LEASE


async def look(source: str, client: Client, parse: Parser) -> tuple[str, str]:
    """Fetch a feed and return `hub_of` it; of a page that names a feed, too.

    Raises:
        FetchError: it cannot be fetched.
    """
    response = await client.get(source)
    if not response.is_document:
        raise FetchError("http", f"HTTP {response.status}")
    feed = None
    with suppress(ValueError):
        feed = await parse(response.body, response.headers.get("content-type", ""), response.url)
    return hub_of(response, feed)


async def listen(
    subscriptions: Subscriptions, host: str, port: int, patience: float = _ARRIVAL
) -> asyncio.Server:
    """Return a server that answers hubs, and nobody else.

    Each connection has one request, of limited size, which must arrive in time.

    Raises:
        OSError: the address cannot be used.
    """
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            if connections <= _MOST_CONNECTIONS:
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
            connections -= 1
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
    _, separator, key = path.rpartition(PATH)  # a proxy may leave the path of the public address
    if not separator:
        return Notice(404)
    if words[0] == "GET":
        return subscriptions.verify(key, dict(parse_qsl(query)))
    if words[0] != "POST":
        return Notice(405)
    length, coding = headers.get("content-length", ""), headers.get("transfer-encoding", "")
    if coding.lower() == "chunked" and not length:
        try:
            body = await _unchunked(reader)
        except (ValueError, asyncio.LimitOverrunError):
            return Notice(400)
    elif coding or not (length.isascii() and length.isdecimal() and len(length) < 15):
        return Notice(411)
    elif int(length) > MOST_BYTES:
        return Notice(413)
    else:
        body = await reader.readexactly(int(length))
    if len(body) > MOST_BYTES:
        return Notice(413)
    return await subscriptions.notify(key, headers.get("x-hub-signature", ""), body)


async def _unchunked(reader: asyncio.StreamReader) -> bytes:
    """Return a body that is sent in chunks, as by hubs and proxies that do not know its length; of
    one that is too large, the beginning. Trailers are left unread.

    Raises:
        ValueError: the length of a chunk is not a number.
    """
    parts, size = [], 0
    while size <= MOST_BYTES:
        line = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        if not line.isalnum():
            raise ValueError
        if not (length := int(line, 16)):
            break
        size += length
        parts.append(await reader.readexactly(min(length, MOST_BYTES + 1)))
        await reader.readexactly(len(b"\r\n"))
    return b"".join(parts)


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")
