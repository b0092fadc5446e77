"""The live scheduler in lemon24/reader: which feeds are updated, and when."""

from __future__ import annotations

from typing import Any

from reader import FeedNotFoundError, ParseError, Reader
from reader.types import EntryUpdateStatus

from ephemeral_crawl.integrations import follow
from ephemeral_crawl.live import Lease, Scheduler
from ephemeral_crawl.live.arguments import Item

_LEASE = "10min"


class ScheduledReader:
    """Updates the feeds of a reader when they are due.

    Call `update` in place of `reader.update_feeds`. Feeds that are updated otherwise are reported
    as well, and the tag `.reader.update` of each feed holds the learnt interval, so that
    `reader.update_feeds` without a scheduler is right, too.

    Arguments:
        reader: whose feeds are followed.
        scheduler: to which they are added, named by their URLs; it must be for them alone.
    """

    def __init__(self, reader: Reader, scheduler: Scheduler) -> None:
        self._reader, self._scheduler = reader, scheduler
        self._items: dict[str, list[Item]] = {}
        self._leases: dict[str, Lease] = {}
        reader.after_entry_update_hooks.append(self._entry)
        reader.after_feed_update_hooks.append(self._feed)

    def update(self, limit: int = 100) -> int:
        """Update the feeds that are due, and return how many there were."""
        self.follow()
        leases = self._scheduler.lease(limit, _LEASE)
        for lease in leases:
            self._leases[lease.source] = lease
            try:
                self._reader.update_feed(lease.source)
            except ParseError as error:
                if lease.source in self._leases:  # and not yet reported by the hook
                    self._scheduler.failed(lease.id, reason=str(error))
            except FeedNotFoundError:
                self._scheduler.remove(lease.source)
            else:
                if lease.source in self._leases:  # nothing had changed
                    self._feed(self._reader, lease.source)
            finally:
                self._leases.pop(lease.source, None)
                self._items.pop(lease.source, None)
        return len(leases)

    def follow(self) -> None:
        """Add the feeds that the reader has, and remove those that it no longer has."""
        feeds = {feed.url: feed.updates_enabled for feed in self._reader.get_feeds()}
        follow(self._scheduler, feeds)

    def _entry(self, reader: Reader, entry: Any, status: EntryUpdateStatus) -> None:
        if status is EntryUpdateStatus.NEW:
            published = getattr(entry, "published", None) or getattr(entry, "updated", None)
            self._items.setdefault(entry.feed_url, []).append((published, 1.0))

    def _feed(self, reader: Reader, url: str) -> None:
        """Report an update, which may have failed, and store the interval that follows from it."""
        items = self._items.pop(url, [])
        if url not in self._scheduler:
            return
        lease = self._leases.pop(url, None)
        fetch = lease.id if lease else url
        if (error := reader.get_feed(url).last_exception) is not None:
            self._scheduler.failed(fetch, reason=error.value_str)
            return
        self._scheduler.report(fetch, items)
        interval = self._scheduler.explain(url).interval
        if interval is not None:
            minutes = min(max(round(interval / 60.0), 1), 31 * 24 * 60)
            reader.set_tag(url, ".reader.update", {"interval": minutes})
