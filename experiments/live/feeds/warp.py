"""An event loop whose clock leaps to the next timer whenever nothing else is to be done.

Days of a crawl over real sockets then take seconds, with the code as it is: sleeps, time-outs and
slow servers included. Servers have to run in the same loop. While a request is under way, the clock
stands still, unless its server waits on purpose.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

START = 1_700_000_000.0  # seconds since 1970 at which a loop begins
_PATIENCE = 3.0  # real seconds to wait for what is under way

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.under_way = 0.0, 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0.0):
            return ready
        if self.under_way > 0 or timeout is None:
            ready = super().select(_PATIENCE)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class WarpedLoop(asyncio.SelectorEventLoop):
    """An event loop in accelerated time.

    >>> loop = WarpedLoop()
    >>> loop.run(asyncio.sleep(3600.0, "an hour later"))
    'an hour later'
    >>> loop.clock() - START
    3600.0
    """

    def __init__(self) -> None:
        self._warped = _Selector()
        super().__init__(self._warped)

    def time(self) -> float:
        return self._warped.now

    def clock(self) -> float:
        """Return the time in seconds since 1970."""
        return START + self._warped.now

    @contextmanager
    def request(self, number: int = 1) -> Iterator[None]:
        """Let the clock stand still, since a request is under way; with −1, let it go on for a
        server that waits on purpose."""
        self._warped.under_way += number
        try:
            yield
        finally:
            self._warped.under_way -= number

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine until it ends, and close the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()
