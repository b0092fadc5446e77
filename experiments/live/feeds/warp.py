"""An event loop whose clock leaps to the next timer whenever nothing else is to be done.

Days of a crawl over real sockets then take seconds, with the code as it is: sleeps, time-outs and
slow servers included. Servers have to run in the same loop; what connections on loopback carry is
there at the next look at them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

START = 1_700_000_000.0  # seconds since 1970 at which a loop begins
_PATIENCE = 1e-3  # real seconds to wait for what the kernel may still have to deliver
_IDLE = 1.0  # real seconds between two looks where there is no timer

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0.0):
            return ready
        ready = super().select(_IDLE if timeout is None else _PATIENCE)
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

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine until it ends, and close the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()
