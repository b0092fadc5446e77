"""The live scheduler in crawlers and feed readers of others."""

from __future__ import annotations

from collections.abc import Mapping

from ephemeral_crawl.crawl.urls import source_of
from ephemeral_crawl.live import Scheduler


def follow(scheduler: Scheduler, feeds: Mapping[str, bool]) -> None:
    """Add feeds to a scheduler that lacks them, remove the others that it has, and pause and resume
    them.

    Arguments:
        feeds: whether each is fetched, by its URL.
    """
    for name in scheduler.sources():
        if name not in feeds:
            scheduler.remove(name)
    scheduler.add_many(({"source": url, "host": _host(url)} for url in feeds), exist_ok=True)
    for url, enabled in feeds.items():
        if scheduler.settings(url)["paused"] == enabled:
            scheduler.update(url, paused=not enabled)


def _host(url: str) -> str | None:
    try:
        return source_of(url)[1]
    except ValueError:  # such as the path of a file
        return None
