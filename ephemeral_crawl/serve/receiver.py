"""What others send to the server without its token: notices of WebSub hubs, and IndexNow."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import string
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakValueDictionary

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from crawl_env.errors import shown
from ephemeral_crawl.crawl.client import Client, FetchError
from ephemeral_crawl.crawl.limited import LimitedProcess
from ephemeral_crawl.crawl.memory import HUBS, beside
from ephemeral_crawl.crawl.robots import Robots
from ephemeral_crawl.crawl.urls import check_url, host_of
from ephemeral_crawl.crawl.websub import KIND, NotYet, Subscriptions, look
from ephemeral_crawl.live import UnknownSource
from ephemeral_crawl.live.journal import file_of
from ephemeral_crawl.serve.admission import INDEXNOW, WEBSUB, Rate, strict_json, too_many
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.service import Service

_LOG = logging.getLogger(__name__)

_KEY = re.compile(r"[A-Za-z0-9-]{8,128}", re.ASCII)
_ESCAPES = re.compile(r"((?:%[89a-f][0-9a-f])+)", re.ASCII | re.IGNORECASE)  # of other than ASCII
_MOST_URLS = 10_000  # in a request, by the protocol
_RATE, _BURST = 1.0, 10_000.0  # URLs per second of a host, on average and at once
_BELIEVED, _DOUBTED = 86_400.0, 600.0  # seconds for which a key that fits, or does not, is known
_MOST_KEYS = 10_000  # that are known
_LOOKS, _MOST_LOOKS = 1 / 60.0, 20.0  # at key files of a host, per second and at once
_BETWEEN = 2.0  # seconds between two looks at feeds
_SAME_HOST = 10.0  # and between two at a host, unless its robots.txt asks for more
_PAUSE = 600.0  # seconds after all feeds were looked at
_PAGE = 1000  # names at a time


class IndexNow:
    """Receives the addresses of pages that have changed, by https://www.indexnow.org.

    Whoever sends them proves to own the site by a file in it that holds the key that was sent.
    Addresses that are not sources are left out, before the file is asked for. Files of a host are
    asked for one at a time, and not often, since anybody can send keys that do not fit.

    How many addresses a host may send is counted apart for keys that are known to fit and for
    others: what strangers send leaves those who own the site what they may send, and strangers
    cannot have any number of addresses looked up. Likewise keys that do not fit are remembered
    apart, and however many there are, none that fits is forgotten for them.

    Arguments:
        service: of the scheduler.
        client: which fetches the files.
        clock: seconds, which never fall.
    """

    def __init__(
        self, service: Service, client: Client, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service, self._client, self._clock = service, client, clock
        self._rate, self._strangers = Rate(_RATE, _BURST), Rate(_RATE, _BURST)
        # Until when keys and their files are known to fit, or not to.
        self._fitting: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._refused: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._looks = Rate(_LOOKS, _MOST_LOOKS)
        self._turns = WeakValueDictionary[str, asyncio.Lock]()  # of each host
        self._waiting = Counter[str]()  # requests that wait for a key file of each host

    async def submit(self, key: object, urls: object, host: object, location: object) -> None:
        """Ping the sources among the addresses.

        Raises:
            Refusal: with the status that the protocol says.
        """
        if not isinstance(urls, list) or not 0 < len(urls) <= _MOST_URLS:
            raise _invalid(400, f"send a list of 1 to {_MOST_URLS:,} URLs")
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise _invalid(422, "a key has 8 to 128 letters, digits and hyphens")
        try:
            names = [check_url(url) for url in urls]
            site = urlsplit(names[0])
            default = f"{site.scheme}://{site.netloc}/{key}.txt"
            file = check_url(location or default, "keyLocation")
            netloc = urlsplit(check_url(f"{site.scheme}://{host or site.netloc}/", "host")).netloc
        except ValueError as error:
            raise _invalid(422, str(error)) from None
        folder = f"//{site.netloc}" + urlsplit(file).path.rpartition("/")[0] + "/"
        if netloc not in (site.netloc, site.hostname) or urlsplit(file).netloc != site.netloc:
            raise _invalid(422, "the host, the URLs and the key file must be of one host")
        for name in names:
            if not name.partition(":")[2].startswith(folder):
                raise _invalid(
                    422, f"{shown(name)} is not below the place of the key file, {folder}"
                )
        owner = host_of(names[0])
        is_trusted = self._clock() < self._fitting.get((key, file), -math.inf)
        self._charge(self._rate if is_trusted else self._strangers, owner, len(names))
        scheduler = self._service.scheduler

        def look_up() -> list[str]:
            spelt = (next(filter(scheduler.__contains__, _spellings(x)), "") for x in names)
            return [name for name in dict.fromkeys(spelt) if name]

        # As a change, in which the store is asked once whether others have changed it.
        if not (sources := await self._service.change(look_up)):
            return
        if not await self._fits(key, file):
            text = f"{shown(file)} does not hold the key; put it there, and nothing else"
            raise Refusal(403, "key", text)
        if not is_trusted:
            self._charge(self._rate, owner, len(names))

        def ping() -> None:
            present = filter(scheduler.__contains__, sources)  # and not removed meanwhile
            scheduler.signal_many({"source": name, "kind": "indexnow"} for name in present)

        await self._service.change(ping)

    def _charge(self, rate: Rate, host: str, urls: int) -> None:
        """Count URLs against the limit of their host.

        Raises:
            Refusal: there were too many.
        """
        if wait := rate.wait(host, self._clock(), float(urls)):
            raise too_many("URLs of this host", wait)

    async def _fits(self, key: str, file: str) -> bool:
        """Return whether a file holds a key.

        Raises:
            Refusal: too many files of the host were asked for, or wait for an answer.
        """
        host = host_of(file)
        if (fit := self._cached_fit(key, file)) is not None:
            return fit
        if self._waiting[host] >= _MOST_LOOKS:  # which would take connections from others
            raise too_many("keys of this host", 1.0 / _LOOKS)
        self._waiting[host] += 1
        try:
            return await self._look_up(key, file, host)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]

    def _cached_fit(self, key: str, file: str) -> bool | None:
        """Return whether a file holds a key, None if it is not known."""
        for keys in (self._fitting, self._refused):
            if self._clock() < keys.get((key, file), -math.inf):
                return keys is self._fitting
        return None

    async def _look_up(self, key: str, file: str, host: str) -> bool:
        """Fetch a file when it is its turn at the host; return whether it holds a key."""
        turn = self._turns.setdefault(host, asyncio.Lock())
        async with turn:
            if (fit := self._cached_fit(key, file)) is not None:
                return fit
            if wait := self._looks.wait(host, self._clock()):
                raise too_many("keys of this host", wait)
            try:
                answer = await self._client.get(file)
                content = answer.body.removeprefix(b"\xef\xbb\xbf").strip()
                # Sites may redirect to wherever a visitor asks them to.
                is_own = answer.status == 200 and host_of(answer.url) == host
                fits = is_own and hmac.compare_digest(content, key.encode())
            except FetchError as error:
                _LOG.info("%s: %s", file, error)
                fits = False
            keys = self._fitting if fits else self._refused
            keys[key, file] = self._clock() + (_BELIEVED if fits else _DOUBTED)
            if len(keys) > _MOST_KEYS:
                keys.popitem(last=False)
            return fits


class Receiver:
    """Subscribes to the hubs that sources name, and receives what hubs and IndexNow send.

    Arguments:
        service: of the scheduler.
        path: file of the subscriptions, or ":memory:".
        public: address under which others reach this server.
        allow_private: whether hubs, feeds and key files may be at addresses that are not public.
    """

    def __init__(
        self, service: Service, path: str, public: str, *, allow_private: bool = False
    ) -> None:
        self._service = service
        self._client = Client(allow_private=allow_private)
        self._parse = LimitedProcess()
        self._robots = Robots(self._client, time.monotonic)
        self._again: dict[str, float] = {}  # from when on each host may be looked at
        self._subscriptions = Subscriptions(
            *(path, public, self._client, self._is_source, self._ping), look=self._hub_of
        )
        self._index_now = IndexNow(service, self._client)

    async def _is_source(self, name: str) -> bool:
        try:
            settings = await self._service.call(self._service.scheduler.settings, name)
        except UnknownSource:
            return False
        return not settings["paused"]

    async def _ping(self, source: str) -> None:
        with suppress(UnknownSource):
            await self._service.change(self._service.scheduler.signal, source, KIND)

    async def run(self) -> None:
        """Look for hubs, and keep subscriptions, until it is cancelled."""
        async with self._client:
            try:
                await asyncio.gather(self._subscriptions.keep(), self._look_for_hubs())
            finally:
                await self._parse.close()
                self._subscriptions.close()

    async def _look_for_hubs(self) -> None:
        """Look for a hub in every feed in which none was looked for yet, one after the other, until
        cancelled."""
        while True:
            try:
                await self._look_at_all()
            except Exception:  # such as a store that is locked: the next round is another
                _LOG.exception("a round of looks at feeds failed")
            now = time.monotonic()
            self._again = {host: at for host, at in self._again.items() if at > now}
            wait = min(self._again.values(), default=math.inf) - now
            await asyncio.sleep(min(max(wait, _SAME_HOST), _PAUSE))

    async def _look_at_all(self) -> None:
        """Look at the feeds of hosts that were not asked just before."""
        find = self._service.scheduler.find
        names, start = await self._service.call(find, "http", limit=_PAGE)
        while names:
            for name in filter(self._subscriptions.wants, names):
                if self._wait(name) > 0.0:
                    continue  # in another round
                if _host(name) and await self._is_source(name):
                    await self._look(name)
                    await asyncio.sleep(_BETWEEN)
            names = []
            if start:
                names, start = await self._service.call(find, "http", start=start, limit=_PAGE)

    def _wait(self, name: str) -> float:
        """Return the seconds until the host of a source may be asked again, ≤ 0 if it may now."""
        return self._again.get(_host(name), -math.inf) - time.monotonic()

    async def _look(self, name: str) -> None:
        hub, topic = "", ""
        try:
            hub, topic = await self._hub_of(name)
        except NotYet:
            return
        except FetchError as error:
            _LOG.info("%s: %s", name, error)
        except Exception:  # such as a store that is locked: others are looked at
            _LOG.exception("%s was not looked at", name)
            return
        self._subscriptions.note_hub(name, hub, topic)

    async def _hub_of(self, name: str) -> tuple[str, str]:
        """Return which hub and topic a source names, if its robots.txt allows to look: it may be a
        page as well as a feed, and this is a request beside those of the crawler.

        Raises:
            NotYet: its host was asked just before.
            FetchError: it does not allow it, or the source cannot be fetched.
        """
        if (wait := self._wait(name)) > 0.0:
            raise NotYet(wait)
        delay = _SAME_HOST
        self._again[_host(name)] = time.monotonic() + delay
        try:
            delay = max(delay, await self._robots.check(name))
            return await look(name, self._client, self._parse)
        finally:
            self._again[_host(name)] = time.monotonic() + delay

    def routes(self) -> APIRouter:
        """Return the routes by which hubs and sites reach the server."""
        router = APIRouter(tags=["arriving"])

        @router.get(WEBSUB + "{key}", response_class=PlainTextResponse)
        async def verify(key: str, request: Request) -> PlainTextResponse:
            """Confirm a request to a WebSub hub, if it was made."""
            notice = self._subscriptions.verify(key, dict(request.query_params))
            return PlainTextResponse(notice.text, notice.status)

        @router.post(WEBSUB + "{key}", response_class=PlainTextResponse)
        async def notify(key: str, request: Request) -> PlainTextResponse:
            """Receive a notice of a WebSub hub, which is a ping if its signature is right."""
            signature = request.headers.get("x-hub-signature", "")
            notice = await self._subscriptions.notify(key, signature, await request.body())
            return PlainTextResponse(notice.text, notice.status)

        @router.get(INDEXNOW, response_class=PlainTextResponse)
        async def submit(request: Request) -> PlainTextResponse:
            """Receive a URL by IndexNow: `url`, `key` and, optionally, `keyLocation`."""
            parameters = request.query_params
            urls = parameters.getlist("url")
            await self._index_now.submit(
                parameters.get("key"), urls, None, parameters.get("keyLocation")
            )
            return PlainTextResponse("")

        @router.post(INDEXNOW, response_class=PlainTextResponse)
        async def submit_many(request: Request) -> PlainTextResponse:
            """Receive many URLs by IndexNow: a JSON object of `host`, `key`, `keyLocation` and
            `urlList`."""
            content: Any = strict_json(await request.body())
            if not isinstance(content, dict):
                raise _invalid(400, "send a JSON object")
            place = content.get("keyLocation")
            await self._index_now.submit(
                content.get("key"), content.get("urlList"), content.get("host"), place
            )
            return PlainTextResponse("")

        return router


def subscriptions_of(store: str | Path) -> str:
    """Return the file of the subscriptions of a store, as `Scheduler` takes it: beside it, or in
    memory if it is no file.

    >>> subscriptions_of("sqlite:////crawl.db"), subscriptions_of("postgresql://db/crawl")
    ('/crawl.db.hubs', ':memory:')
    """
    file = file_of(store)
    return ":memory:" if file is None else str(beside(file, HUBS))


def _host(name: str) -> str:
    """Return the host of a source, "" if its name is no URL."""
    with suppress(ValueError):
        return host_of(check_url(name))
    return ""


def _spellings(url: str) -> Iterator[str]:
    """Yield a URL, and what it may also be called: sites send letters other than ASCII as they are,
    or percent-encoded with upper- or lower-case digits.

    >>> list(_spellings("https://a.example/%c3%a9"))[2:]
    ['https://a.example/%C3%A9', 'https://a.example/é']
    """
    yield url
    if "%" in url or not url.isascii():
        parts = _ESCAPES.split(quote(url, safe=string.punctuation))
        spells: tuple[Callable[[str], str], ...] = (str.lower, str.upper, unquote)
        for spell in spells:
            yield "".join(spell(part) if k % 2 else part for k, part in enumerate(parts))


def _invalid(status: int, text: str) -> Refusal:
    return Refusal(status, "indexnow", text)
