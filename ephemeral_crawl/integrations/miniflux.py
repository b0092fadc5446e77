"""A side-car of Miniflux: decides which feed Miniflux refreshes, and when.

Miniflux runs with DISABLE_SCHEDULER_SERVICE=1. Its documented routes are used: GET /v1/feeds, PUT
/v1/feeds/{id}/refresh, GET /v1/feeds/{id}/entries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import httpx

from ephemeral_crawl.crawl.client import certificates
from ephemeral_crawl.integrations import follow
from ephemeral_crawl.live import Lease, Scheduler
from ephemeral_crawl.live.arguments import Item, time_of

_LOG = logging.getLogger(__name__)

_SHOWN = 100  # entries of a feed that are looked at
_LEASE = "5min"
_FOLLOW, _LONGEST_SLEEP = 600.0, 60.0  # seconds between two looks at the list of feeds; at the due


class MinifluxSidecar:
    """Refreshes the feeds of a Miniflux server when they are due.

    Arguments:
        scheduler: to which the feeds are added, named by their URLs; it must be for them alone.
        url: of the server.
        token: its API key.
        timeout: seconds for a request.
    """

    def __init__(
        self, scheduler: Scheduler, url: str, token: str, *, timeout: float = 60.0
    ) -> None:
        self._scheduler = scheduler
        self._client = httpx.Client(
            base_url=url,
            headers={"X-Auth-Token": token},
            timeout=timeout,
            verify=certificates(),
            trust_env=False,
        )
        self._ids: dict[str, int] | None = None  # of the feeds, by URL; before `follow`: None
        self._latest: dict[int, int] = {}  # number of the last entry that is known, by feed

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Refresh what is due until `stop` returns True. Feeds that were added to Miniflux, or are
        gone there, are noticed every ten minutes, if it answers.

        Raises:
            httpx.HTTPError: Miniflux does not answer at the beginning, or refuses the token.
        """
        self.follow()
        last_follow = time.monotonic()
        while not stop():
            if time.monotonic() - last_follow >= _FOLLOW:
                last_follow = time.monotonic()
                try:
                    self.follow()
                except httpx.HTTPError as error:  # such as while it is started again
                    _LOG.warning("Miniflux does not answer: %s", error)
            if not self.refresh():
                due = self._scheduler.next_due()
                wait = _LONGEST_SLEEP if due is None else due - time.time()
                time.sleep(min(max(wait, 1.0), _LONGEST_SLEEP))

    def follow(self) -> None:
        """Add the feeds that Miniflux has, remove those that it no longer has, and pause those that
        are disabled there.

        Raises:
            httpx.HTTPError: Miniflux does not answer, or refuses the token.
        """
        feeds = {feed["feed_url"]: feed for feed in self._get("/v1/feeds")}
        self._ids = {url: int(feed["id"]) for url, feed in feeds.items()}
        enabled = {url: not feed.get("disabled", False) for url, feed in feeds.items()}
        follow(self._scheduler, enabled)

    def refresh(self, limit: int = 8) -> int:
        """Refresh the feeds that are due, and return how many there were.

        Raises:
            httpx.HTTPError: at the first call, if `follow` was not called, Miniflux does not answer
                or refuses the token.
        """
        if self._ids is None:
            self.follow()
        leases = self._scheduler.lease(limit, _LEASE)
        for lease in leases:
            try:
                items = self._refresh(lease)
            except httpx.HTTPError as error:  # Miniflux answers 500 if it cannot fetch the feed
                self._scheduler.failed(lease.id, reason=str(error))
            else:
                self._scheduler.report(lease.id, items)
        return len(leases)

    def _refresh(self, lease: Lease) -> list[Item]:
        """Refresh a feed, and return its new entries."""
        assert self._ids is not None
        feed = self._ids[lease.source]
        first = self._scheduler.explain(lease.source).fetched_at is None
        if feed not in self._latest:
            newest = [] if first else self._entries(feed, 0, limit=1)
            self._latest[feed] = max((int(entry["id"]) for entry in newest), default=0)
        self._client.put(f"/v1/feeds/{feed}/refresh").raise_for_status()
        entries = self._entries(feed, self._latest[feed])
        self._latest[feed] = max([self._latest[feed], *(int(entry["id"]) for entry in entries)])
        return [(_time(entry.get("published_at")), 1.0) for entry in entries]

    def _entries(self, feed: int, after: int, limit: int = _SHOWN) -> list[Any]:
        parameters: dict[str, Any] = {"order": "id", "direction": "desc", "limit": limit}
        if after:
            parameters["after_entry_id"] = after
        return self._get(f"/v1/feeds/{feed}/entries", **parameters)["entries"]

    def _get(self, path: str, **parameters: Any) -> Any:
        answer = self._client.get(path, params=parameters).raise_for_status()
        try:
            return answer.json()
        except ValueError:  # such as the page of a proxy
            text = f"the answer to {path} is not JSON"
            raise httpx.DecodingError(text, request=answer.request) from None


def _time(text: object) -> float | None:
    try:
        return time_of("published_at", text)
    except ValueError:
        return None
