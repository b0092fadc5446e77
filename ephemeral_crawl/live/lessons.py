"""What is known of a source before its first fetch: from a log of its items, or from a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crawl_env.errors import check_within
from ephemeral_crawl.live.arguments import Time, time_of
from ephemeral_crawl.live.outcomes import items_of

_PARTS = 64  # of a log, whose items are counted in each
_LONGEST = 10 * 365 * 86_400.0  # seconds for which a rate is believed to have been observed
_MOST_ITEMS = 1e12


@dataclass(frozen=True)
class Lesson:
    """Numbers of items that a source published in parts of a time, and what they are worth.

    Arguments:
        source: its name.
        counts: number of items in each of P parts of equal length, the oldest first.
        seconds: length of a part.
        end: end of the last part; None: now.
        worth, squares: sum of the items' worths at publication, and of their squares; 0 if the
            latter is not known.
    """

    source: str
    counts: tuple[float, ...]  # (P,)
    seconds: float
    end: Time | None
    worth: float
    squares: float

    @staticmethod
    def of_items(
        source: str, items: Sequence[tuple[Time, float]], start: Time, end: Time
    ) -> Lesson:
        """Return the lesson of all items that a source published from `start` to `end`.

        Arguments:
            items: time of publication and worth of each; others than in this time are left out.

        Raises:
            ValueError: a time or worth is out of range, or the end is not after the start.
        """
        first, last = time_of("start", start), time_of("end", end)
        if not last > first:
            raise ValueError(f"source {source!r}: the log's end must be after its start")
        times, worths = map(np.array, items_of(items))
        inside = (times >= first) & (times <= last)
        times, worths = times[inside], worths[inside]
        counts, _ = np.histogram(times, _PARTS, (first, last))
        return Lesson(
            source,
            tuple(counts.astype(float).tolist()),
            (last - first) / _PARTS,
            last,
            float(worths.sum()),
            float((worths**2).sum()),
        )

    @staticmethod
    def of_rate(source: str, rate: float, worth: float, items: float = 20.0) -> Lesson:
        """Return a lesson that says what an estimate from so many items would say.

        Arguments:
            rate: items per hour.
            worth: mean worth of an item at publication.
            items: how much the rate is to be believed, in items.
        """
        per_second = check_within("rate", rate, 0.0, 1e9, unit="items per hour") / 3600.0
        check_within("worth", worth, 0.0, 1e12)
        check_within("items", items, 0.0, 1e6, open_low=True)
        seconds = min(items / per_second, _LONGEST) if per_second > 0.0 else _LONGEST
        number = per_second * seconds
        return Lesson(source, (number,), seconds, None, number * worth, 0.0)

    def as_row(self, clock: float) -> list[Any]:
        """Return the lesson as the journal holds it: its end is a time before now, in seconds."""
        end = clock if self.end is None else min(time_of("end", self.end), clock)
        for name, value in (("worth", self.worth), ("squares", self.squares)):
            check_within(name, value, 0.0, math.inf, open_high=True)
        check_within("seconds", self.seconds, 0.0, 3.2e9, open_low=True)
        counts = [check_within("a count", n, 0.0, _MOST_ITEMS) for n in self.counts]
        return [self.source, counts, self.seconds, clock - end, self.worth, self.squares]
