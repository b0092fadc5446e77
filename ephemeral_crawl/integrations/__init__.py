"""The live scheduler in crawlers and feed readers of others."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ephemeral_crawl.crawl.urls import source_of
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.arguments import name_of
from ephemeral_crawl.live.reasons import redacted

_LOG = logging.getLogger(__name__)


def follow(scheduler: Scheduler, feeds: Mapping[str, bool]) -> None:
    """Add feeds to a scheduler that lacks them, remove the others that it has, and pause and resume
    them. Feeds whose URLs cannot be names of sources, such as very long ones, are left out, and
    warned of.

    Arguments:
        feeds: whether each is fetched, by its URL.
    """
    is_enabled = dict[str, bool]()
    for url, enabled in feeds.items():
        try:
            is_enabled[name_of("feed", url)] = enabled
        except ValueError as error:
            _LOG.warning("a feed is left out: %s", redacted(str(error)))
    for name in scheduler.sources():
        if name not in is_enabled:
            scheduler.remove(name)
    scheduler.add_many(({"source": url, "host": _host(url)} for url in is_enabled), exist_ok=True)
    for url, enabled in is_enabled.items():
        if scheduler.settings(url)["paused"] == enabled:
            scheduler.update(url, paused=not enabled)


def _host(url: str) -> str | None:
    try:
        return source_of(url)[1]
    except ValueError:  # such as the path of a file
        return None
