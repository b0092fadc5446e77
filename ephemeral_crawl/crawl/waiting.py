"""Waiting, and saying for what: another process that has a store locked, or compilation."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ephemeral_crawl.live.errors import StoreLocked

_LOG = logging.getLogger(__name__)

PAUSE = 2.0  # seconds until a store that another process has locked is tried again

_LONG = 3.0  # seconds after which it is said what is being done

T = TypeVar("T")


@contextmanager
def telling(action: str, say: Callable[[str], object]) -> Iterator[None]:
    """Say what is done in this context, if it takes so long that something is being compiled.

    Arguments:
        action: "opening the store", for example.
        say: called with a line of text.
    """
    text = (
        f"{action}; the first time after an installation, this takes up to a minute, since machine "
        "code is compiled"
    )
    timer = threading.Timer(_LONG, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compile_scheduler(action: str, say: Callable[[str], object]) -> None:
    """Let a scheduler in memory do what others will do, so that it is compiled, or read from the
    cache, before something is under way that would run out of time meanwhile, and before there are
    several processes, each of which would compile it. The arguments are those of `telling`."""
    from ephemeral_crawl.live import Scheduler

    with telling(action, say), Scheduler(":memory:", budget="60/h") as scheduler:
        scheduler.add_many({"source": name, "host": name} for name in "abc")
        scheduler.limit_hosts({"a": 1.0})
        fetched, failed, released = scheduler.lease(3)
        with scheduler.together():
            scheduler.signal(fetched.source)
            scheduler.report(fetched.id, [(time.time(), 1.0)], cost=1.0)
        scheduler.failed(failed.id)
        scheduler.release(released.id)
        scheduler.lease()
        scheduler.next_due()
        scheduler.status()


class Waiting:
    """Says once that a store is locked, and once that it can be used again: as errors, so that
    `--quiet` does not hide why nothing is fetched.

    Arguments:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def begin(self, error: StoreLocked) -> None:
        """Say that a store is locked."""
        if self._since is None:
            self._since = self._clock()
            _LOG.error(
                "%s is locked by another process: the crawl waits, keeps what it has fetched, and "
                "goes on when that process has finished. If it does not, end it (on Linux "
                "`fuser %s` names it); Ctrl-C, twice, ends the crawl",
                error.store,
                error.store,
            )

    def end(self) -> None:
        """Say that it can be used again, if it was locked."""
        if self._since is not None:
            _LOG.error(
                "the store can be used again after %.0f s: the crawl goes on",
                self._clock() - self._since,
            )
            self._since = None

    def until(self, change: Callable[[], T]) -> T:
        """Return what a change of a store returns, when no other process has the store locked."""
        while True:
            try:
                result = change()
            except StoreLocked as error:
                self.begin(error)
                time.sleep(PAUSE)
            else:
                self.end()
                return result
