"""Timings that are robust to noise: interleaved candidates, medians, ratios within a round; and
figures, which hold what was measured against a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from statistics import median
from time import perf_counter, process_time
from typing import Any, Literal, NamedTuple

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

        def timed(*arguments: Any, **keywords: Any) -> Any:
            start = self._clock()
            result = function(*arguments, **keywords)
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


Sense = Literal["≤", "≥", ""]


class Figure(NamedTuple):
    """One figure, a median over rounds."""

    group: str
    what: str
    value: float
    unit: str
    sense: Sense  # how it compares with the limit where it is met; "" without a limit
    limit: float
    low: float = nan  # smallest and largest of the rounds
    high: float = nan
    ours: float = nan  # seconds of the two things that a ratio compares
    other: float = nan
    note: str = ""  # a condition

    @property
    def met(self) -> bool | None:
        """Whether the limit is met; None if there is none."""
        if not self.sense:
            return None
        return self.value <= self.limit if self.sense == "≤" else self.value >= self.limit

    def row(self) -> dict[str, Any]:
        """Return the figure as a row of a table; NaN is empty."""
        return {name: "" if x != x else x for name, x in self._asdict().items()}

    @staticmethod
    def of(row: Mapping[str, Any]) -> Figure:
        """Return the figure of a row, which may be of text."""
        numbers = ("value", "limit", "low", "high", "ours", "other")
        cells: Any = {name: row[name] for name in Figure._fields}
        return Figure(**{**cells, **{name: float(cells[name] or nan) for name in numbers}})


def compared(
    group: str, what: str, sense: Sense, limit: float, ours: Timing, other: Timing, note: str = ""
) -> Figure:
    """Return how many times as long ours takes, which is to be at most the limit (≤), or how many
    times as fast it is, which is to be at least the limit (≥)."""
    ratio = ours.ratio_to(other) if sense == "≤" else other.ratio_to(ours)
    return Figure(
        group, what, ratio[0], "×", sense, limit, *ratio[1:], ours.median, other.median, note
    )


def of_each(group: str, what: str, unit: str, limit: float, timing: Timing, scale: float) -> Figure:
    """Return a time, in a unit of which a second a call is so many, that is to be at most the
    limit."""
    times = [scale * seconds for seconds in timing.rounds]
    return Figure(group, what, scale * timing.median, unit, "≤", limit, min(times), max(times))


def in_turn(
    group: str, what: str, sense: Sense, limit: float, ours: Call, other: Call, rounds: int
) -> Figure:
    """Return the figure of two candidates, which take turns; see `compared`."""
    times = interleaved({"ours": ours, "other": other}, rounds)
    return compared(group, what, sense, limit, times["ours"], times["other"])
