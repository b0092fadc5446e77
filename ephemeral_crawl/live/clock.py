"""The scheduler's time, which follows a clock and never falls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from crawl_env.errors import check_within, shown
from ephemeral_crawl.live.outcomes import Moment
from ephemeral_crawl.live.state import State

_STEP = 60.0  # seconds by which a clock may differ from the last event without being set


class Clock:
    """Tells the scheduler's time from that of a clock that may be set back or forth.

    Arguments:
        clock: function that returns seconds since 1970. If it is `time.time`, it is compared with a
            clock that cannot be set, so that a leap is told from time that has passed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        if not callable(clock):
            raise ValueError(f"clock is {shown(clock)}; give a function that returns seconds")
        self._clock = clock
        self.steady = _steady if clock is time.time else None
        # The scheduler's time, a steady clock's, and the offset that was stored then.
        self._seen: tuple[float, float, float] | None = None
        self._jump = (math.nan, 0.0)  # time of the last event, and the offset since then

    def now(self, state: State) -> Moment:
        """Return the time after the last event of a state."""
        # Between these, the process may be stopped for a while: time must not seem longer by it.
        before = self.steady() if self.steady is not None else 0.0
        clock = check_within("the clock's time", self._clock(), -1e11, 1e12, unit="seconds")
        # A jump that no event has recorded yet is remembered here.
        offset = self._jump[1] if self._jump[0] == state.time else state.offset
        now = clock + offset
        if self.steady is not None:
            if self._seen is not None:
                expected = self._seen[0] + max(before - self._seen[1], 0.0)
                # The clock was set, rather than time passed; set back, unless others have noted it.
                # No time is lost, since another process would catch up with it: too fast for hosts.
                if now > expected + _STEP or (
                    now < expected - _STEP and state.offset == self._seen[2]
                ):
                    now = max(expected, state.time)
                    offset = now - clock
            self._seen = max(now, state.time), self.steady(), state.offset
        if now < state.time - _STEP:
            now, offset = state.time, state.time - clock
        self._jump = state.time, offset
        return Moment(max(now, state.time), offset)


def _steady() -> float:
    """Return a clock that cannot be set, and counts the time in which the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
