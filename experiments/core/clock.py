"""Timings that are robust to noise: interleaved candidates, medians, ratios within a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

Call = Callable[[], object]


class Timing(NamedTuple):
    """Seconds per call of one candidate, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    def minus(self, other: Timing) -> Timing:
        """Return the time beyond that of a part of it, round by round; at least zero."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Timing(tuple(max(a - b, 0.0) for a, b in pairs))

    def ratio_to(self, other: Timing) -> tuple[float, float, float]:
        """Return median, smallest and largest ratio to another candidate, round by round."""
        ratios = [a / b for a, b in zip(self.rounds, other.rounds, strict=True)]
        return median(ratios), min(ratios), max(ratios)


class Watch:
    """Adds up the seconds that are spent in a function.

    Arguments:
        clock: that of the processor by default.
    """

    def __init__(self, clock: Callable[[], float] = process_time) -> None:
        self.seconds, self._clock = 0.0, clock

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            start = self._clock()
            result = function(*arguments, **named)
            self.seconds += self._clock() - start
            return result

        return timed


def interleaved(
    candidates: Mapping[str, Call], rounds: int = 9, seconds: float = 0.05
) -> dict[str, Timing]:
    """Time the candidates in turn, for several rounds.

    Each is repeated for about `seconds` a round, so that changes of the machine's speed affect
    all of them.
    """
    repeats = {name: _repeats(call, seconds) for name, call in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            times[name].append(_time(call, repeats[name]))
    return {name: Timing(tuple(values)) for name, values in times.items()}


def _repeats(call: Call, seconds: float) -> int:
    call()
    once = max(_time(call, 1), 1e-7)
    few = max(1, min(int(0.2 * seconds / once), 1000))
    return max(1, int(seconds / max(_time(call, few), 1e-8)))


def _time(call: Call, repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        call()
    return (perf_counter() - start) / repeats
