"""Recorded arrivals: a log of what sources published, played back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crawl_env.content.decay import Decay, make_decay
from crawl_env.content.item_store import IntArray, Published
from crawl_env.fleet.sources import Sources
from crawl_env.log.item_log import ItemLog
from crawl_env.numerics import FloatArray

_ROUNDING = 1e-9  # epochs before a boundary at which an item counts as published at it


@dataclass(frozen=True, eq=False)
class Trace:
    """Replays a log: every item is published when it was, and worth what it was.

    Arguments:
        items: the log, in the unit of time of the fleet's rates.
        random_start: an episode begins at an epoch of the log drawn at reset, so that seeds mean
            different windows; False: at its first one. Past its end the log goes on from its
            beginning; its span is rounded up to whole epochs.
        decay: how items without a recorded curve lose interest, at the rate of their source.

    Sources are found by name. A source of the fleet that the log does not name is silent.

    >>> log = ItemLog(["1", "2"], source=[0, 1], published=[0.5, 1.5], utility=[3, 4], end=3)
    >>> Trace(log)
    Trace(2 items of 2 sources, 0.5 to 3 hours)
    """

    items: ItemLog
    random_start: bool = True
    decay: str | Decay = "exponential"
    deterministic: bool = field(default=False, init=False)
    itemised: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.items, ItemLog):
            raise ValueError(
                f"items is {self.items!r}; give a crawl_env.ItemLog, such as ItemLog.from_csv(path)"
            )
        object.__setattr__(self, "decay", make_decay(self.decay))

    def __repr__(self) -> str:
        return repr(self.items).replace("ItemLog(", "Trace(", 1)

    def epochs(self, period: float) -> int:
        """Return how many epochs of the given length the log has, the last perhaps in part."""
        return max(1, int(np.ceil(self.items.span / period * (1 - 1e-12))))

    def feed(self, sources: Sources, rows: int) -> TraceFeed:
        """Return the items of `rows` environments, each at its own place in the log.

        Raises:
            ValueError: the log names sources that the fleet lacks, or there are several fleets.
        """
        if sources.arrival_rate.ndim != 1:
            raise ValueError("a log is of one fleet, and sources holds a batch; give one `row`")
        return TraceFeed(self, sources, rows)


class TraceFeed:
    """The log as seen by the cells of one world; see `crawl_env.content.item_store.Feed`.

    An item published in [t, t+T) belongs to the epoch that ends at t+T, when it is seen first.
    """

    def __init__(self, trace: Trace, sources: Sources, rows: int) -> None:
        items = trace.items
        self._trace, self._curves, self._n = trace, items.curves, len(sources)
        self._utility = items.utility
        self._source = _places(items, sources)
        self._decay = np.broadcast_to(sources.decay_per_epoch, (self._n,))
        self._recorded = None if items.curves is None else items.curves.recorded
        self._period, self._length = sources.period, trace.epochs(sources.period)
        when = (items.published - items.start) / sources.period
        last = self._length - 1
        self._epoch = np.minimum(np.floor(when + _ROUNDING), last).astype(np.intp)
        self._age = np.clip(self._epoch + 1.0 - when, 0.0, 1.0)
        self._next = np.zeros(rows, dtype=np.intp)  # epoch of the log that is to come

    def start(
        self, cells: IntArray, epochs: FloatArray, rows: IntArray, rng: np.random.Generator
    ) -> Published:
        random = self._trace.random_start
        self._next[rows] = rng.integers(0, self._length, rows.size) if random else 0
        since = np.zeros((self._next.size, self._n))
        since.reshape(-1)[cells] = epochs
        # At most one turn of the log; and nothing was published before its beginning is played.
        longest = self._longest(epochs) if random else 0.0
        found = self._before(rows, int(min(longest, self._length)))
        return found.only(found.age <= since.reshape(-1)[found.cell])

    def advance(self, rng: np.random.Generator) -> Published:
        self._next = (self._next + 1) % self._length
        return self._before(np.arange(self._next.size), 1)

    def share(self, items: Published) -> FloatArray:
        decay = self._trace.decay
        assert not isinstance(decay, str)  # resolved by the trace
        source = items.cell % self._n
        left = decay.share(self._decay[source] * items.age)
        if self._curves is not None and self._recorded is not None:
            known = self._recorded[items.number]
            age = items.age[known] * self._period
            left[known] = self._curves.share(items.number[known], age)
        return left

    def get_state(self) -> Any:
        return self._next.copy()

    def set_state(self, state: Any) -> None:
        self._next = state.copy()

    def _before(self, rows: IntArray, epochs: int) -> Published:
        """Return what the last epochs, at most one turn of the log, have brought to some rows."""
        now = self._next[rows]
        first = now - epochs  # below 0: the log begins anew in between
        low = np.searchsorted(self._epoch, first % self._length) - (first < 0) * self._epoch.size
        count = np.searchsorted(self._epoch, now) - low
        step = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        number = np.repeat(low, count) + step
        number[number < 0] += self._epoch.size
        ago = (np.repeat(now, count) - 1 - self._epoch[number]) % self._length
        cell = np.repeat(rows, count) * self._n + self._source[number]
        return Published(cell, self._age[number] + ago, self._utility[number], number)

    def _longest(self, epochs: FloatArray) -> float:
        """Return after how many epochs nothing is left of what start needs; `epochs` as there."""
        known = float(np.ceil(epochs[np.isfinite(epochs)]).max(initial=0.0))
        return max(known, self._faded()) if np.isinf(epochs).any() else known

    def _faded(self) -> float:
        """Return the age, in whole epochs, from which every item is worth nothing."""
        decay = self._trace.decay
        assert not isinstance(decay, str)  # resolved by the trace
        end = decay.end / self._decay[self._source]
        if self._curves is not None and self._recorded is not None:
            last = self._curves.first[1:][self._recorded] - 1
            age = self._curves.age[last] / self._period
            end[self._recorded] = np.where(self._curves.remaining[last] > 0, np.inf, age)
        return float(np.ceil(end).max(initial=0.0))


def _places(items: ItemLog, sources: Sources) -> IntArray:
    """Return the fleet's number of each item's source, (n,)."""
    number = {name: i for i, name in enumerate(sources.names)}
    place = np.array([number.get(name, -1) for name in items.names], dtype=np.intp)
    publishes = np.bincount(items.source, minlength=len(items.names))
    missing = np.flatnonzero((place < 0) & (publishes > 0))
    if missing.size:
        names = ", ".join(items.names[i] for i in missing[:5]) + ", …" * (missing.size > 5)
        raise ValueError(
            f"the log has {publishes[missing].sum()} items of {missing.size} sources that the "
            f"fleet lacks ({names}); add them to the fleet, or keep only its own with "
            "items.select([name for name in items.names if name in sources.names])"
        )
    found: IntArray = place[items.source]
    return found
