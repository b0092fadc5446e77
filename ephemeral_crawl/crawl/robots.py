"""What sites allow programs to fetch: robots.txt, as RFC 9309 describes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from protego import Protego

from ephemeral_crawl.crawl.client import Client, FetchError, NotAllowed

EXPIRY = 86_400.0  # seconds after which a robots.txt is fetched again
LONGEST_DELAY = 3600.0  # seconds between fetches that Crawl-delay may ask for
_FIRST_WAIT = 600.0  # seconds until one that could not be fetched is asked for again, then twice it
_MOST_BYTES = 512_000  # of a robots.txt that are read; the RFC asks for 500 KiB at least
_MOST_SITES = 10_000  # that are remembered
_TOO_MANY_REQUESTS = 429
_AGENT = re.compile(r"\s*user[- ]?agent\s*+:?\s*+([^\s#][^#]*)", re.I)
_OWN, _ANY = "robot", "*"  # names under which the rules for this program are kept


class Disallowed(NotAllowed):
    """The robots.txt of a site does not allow a fetch, or cannot be read.

    Attributes:
        again_after: seconds after which it may be different.
        delay: what `Robots.check` returns of other URLs of the site; None if it is not known.
    """

    def __init__(self, reason: str, again_after: float, delay: float | None) -> None:
        super().__init__("refused", reason)
        self.again_after, self.delay = again_after, delay


class _Site:
    """The robots.txt of a site."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # held while it is fetched
        self.until = 0.0  # when it is to be fetched again
        self.wait = _FIRST_WAIT  # until then, if it fails
        self.rules: Protego | None = None  # None: it could not be fetched yet
        self.failure = ""


class Robots:
    """Looks up what the robots.txt of sites allows, each of which is fetched once a day.

    A site without one (status 4xx) allows everything. One that cannot be fetched allows nothing
    (5xx, 429, no answer) and is asked again after ten minutes, later once a day at least; what it
    said before holds meanwhile.

    Arguments:
        client: which fetches, and whose user agent the rules are for.
        clock: which returns the time, in seconds.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._sites: dict[str, _Site] = {}

    async def check(self, url: str) -> float:
        """Return the seconds between two fetches that the site of a URL asks for, at most
        `LONGEST_DELAY`; 0 if it does not.

        Raises:
            Disallowed: the URL must not be fetched, or it is not known whether it may be.
            NotAllowed: the address is one that is not fetched at all.
        """
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}/robots.txt"
        site = self._sites.pop(address, None) or _Site()
        self._sites[address] = site  # as the last, since it was used last
        while len(self._sites) > _MOST_SITES:
            del self._sites[next(iter(self._sites))]
        async with site.lock:
            if self._clock() >= site.until:
                await self._fetch(site, address)
        wait = max(site.until - self._clock(), 0.0)
        if site.rules is None:
            raise Disallowed(f"{address} cannot be read: {site.failure}", wait, None)
        delay = min(site.rules.crawl_delay(_OWN) or 0.0, LONGEST_DELAY)
        if not site.rules.can_fetch(url, _OWN):
            raise Disallowed(f"{address} does not allow this program to fetch it", wait, delay)
        return delay

    async def _fetch(self, site: _Site, address: str) -> None:
        try:
            response = await self._client.get(address)
            status = response.status
            if status >= 500 or status == _TOO_MANY_REQUESTS:
                raise FetchError("http", f"HTTP {status}")
        except NotAllowed:
            raise
        except FetchError as error:
            site.failure, site.until = str(error), self._clock() + site.wait
            site.wait = min(2.0 * site.wait, EXPIRY)
            return
        text = response.body[:_MOST_BYTES].decode("utf-8-sig", "replace")
        site.rules = rules_of(text if 200 <= status < 300 else "", self._client.user_agent)
        site.until, site.wait = self._clock() + EXPIRY, _FIRST_WAIT


def rules_of(text: str, user_agent: str) -> Protego:
    """Return the rules of a robots.txt for a program, which are those for "robot" in what is
    returned.

    They are those of the groups with the longest name that is a word of the user agent, or else of
    the groups for all ("*"). The names of others are replaced by one, so that the time that a
    document takes is in proportion to its length.

    >>> rules = rules_of("User-agent: *\\nDisallow: /a/*.html$", "me/1.0")
    >>> [rules.can_fetch(f"https://example.org/a/{name}", "robot") for name in ("b.html", "b.xml")]
    [False, True]
    """
    lines = text.splitlines()
    names = {i: match[1].strip().lower() for i, x in enumerate(lines) if (match := _AGENT.match(x))}
    agent = user_agent.lower()
    ours = [name for name in {*names.values()} if name in agent and _is_word(name, agent)]
    own_name = max(ours, key=len, default=_ANY)
    for i, name in names.items():
        lines[i] = f"User-agent: {_OWN if name == own_name else 'other'}"
    return Protego.parse("\n".join(lines))


def _is_word(name: str, agent: str) -> bool:
    """Return whether a word of a user agent begins with a name."""
    return re.search(rf"(?<![\w-]){re.escape(name)}", agent) is not None
