"""Programs that open and close a store all the time while others use it.

The last one that closes a file of SQLite deletes its log. Whoever takes itself for the last one,
and is not, loses what the others write: nothing is lost where nobody comes and goes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from ephemeral_crawl.crawl.command import CrawlFeeds
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.serve import routes, server, service  # noqa: F401 (imported once for all forks)
from ephemeral_crawl.serve.command import Serve
from ephemeral_crawl.sources import ManageSources
from tests.ephemeral_crawl.live.stores import Store

_LONGEST = 0.5  # seconds that a server runs


class Visitor:
    """A process that visits a store until it is killed.

    Arguments:
        folder: for copies.
        source: that there is in the store.
        errors: file that tells why a visitor ended by itself.
    """

    def __init__(self, store: Store, folder: Path, source: str, errors: Path) -> None:
        self._given, self._errors = (store, folder, source), errors
        self.process = 0

    def start(self, seed: int) -> None:
        parent, self.process = os.getpid(), os.fork()
        if self.process == 0:
            try:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                for number in (1, 2):
                    os.dup2(nowhere, number)
                draw = random.Random(seed)
                while os.getppid() == parent:
                    with contextlib.suppress(ConnectionError, TimeoutError):
                        visit(*self._given, draw)
            except Exception:
                self._errors.write_text(traceback.format_exc())
            finally:
                os._exit(1)

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def visit(store: Store, folder: Path, source: str, draw: random.Random) -> None:
    """Open a store in one way or another, and close it."""
    ways: list[Callable[[], object]] = [
        lambda: _look(store, 1),
        lambda: _look(store, 2),
        lambda: _copy(store, folder / f"copy of {os.getpid()}.db"),
        lambda: _serve(store, draw.uniform(0.0, _LONGEST)),
    ]
    if (file := store.file) is not None:
        table = folder / "sources.csv"
        ways += [
            CrawlFeeds(store=file, dry_run=True).run,
            CrawlFeeds(store=file, explain=source).run,
            ManageSources(store=(str(file),), write=(table,)).run,
        ]
    draw.choice(ways)()


def _look(store: Store, number: int) -> None:
    live = [Scheduler(store.address) for _ in range(number)]
    for one in live:
        one.status()
        one.close()


def _copy(store: Store, place: Path) -> None:
    with Scheduler(store.address) as live:
        live.copy(place)
    for file in place.parent.glob(place.name + "*"):
        file.unlink()


def _serve(store: Store, seconds: float) -> None:
    """Serve it over HTTP for a while."""
    child = os.fork()
    if child == 0:
        # By itself, as nobody else does if the visitor is killed.
        threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        try:
            Serve(store=store.address, port=0).run()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def stop(errors: Path) -> None:
    """End this process if a visitor has ended by itself."""
    if errors.exists():
        sys.exit(f"a visitor ended:\n{errors.read_text()}")
