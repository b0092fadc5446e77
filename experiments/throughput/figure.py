"""A figure of the record: what was measured, and the limit that it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import Any, Literal, NamedTuple

from experiments.core.clock import Call, Timing, interleaved

Sense = Literal["≤", "≥", ""]


class Figure(NamedTuple):
    """One figure. A median over rounds, or NaN if it could not be measured."""

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
    note: str = ""  # a condition, or why there is no figure

    @property
    def met(self) -> bool | None:
        """Whether the limit is met; None if there is no limit or no figure."""
        if isnan(self.value) or not self.sense:
            return None
        return self.value <= self.limit if self.sense == "≤" else self.value >= self.limit

    def row(self) -> dict[str, Any]:
        """Return the figure as a row of a table; NaN is empty."""
        return {name: "" if x != x else x for name, x in self._asdict().items()}

    @staticmethod
    def of(row: Mapping[str, Any]) -> Figure:
        """Return the figure of a row, which may be of text."""
        numbers = ("value", "limit", "low", "high", "ours", "other")
        read: Any = {name: row[name] for name in Figure._fields}
        return Figure(**{**read, **{name: float(read[name] or nan) for name in numbers}})


def absent(group: str, what: str, unit: str, sense: Sense, limit: float, why: str) -> Figure:
    """Return a figure that was not measured."""
    return Figure(group, what, nan, unit, sense, limit, note=why)


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
