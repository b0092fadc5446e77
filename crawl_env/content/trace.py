"""Recorded arrivals: `Trace` replays a log of published items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crawl_env.compiled import compiled
from crawl_env.content.process import ArrivalProcess, Block, Cells, Feed, Published
from crawl_env.content.utility import Decay, ExponentialDecay, make_decay
from crawl_env.fleet.sources import Sources
from crawl_env.log.item_log import ItemLog
from crawl_env.numerics import FloatArray, IntArray

_ROUNDING = 1e-9  # steps before a boundary within which an item counts as published at it


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trace(ArrivalProcess):
    """Replays a log: every item is published at its time, with its utility.

    Arguments:
        log: the published items, in the time unit of the fleet's rates.
        random_start: whether each episode begins at a step of the log drawn at reset, so that each
            seed selects a window; False: every episode begins at the first step. At its end the log
            is repeated from the start; its span is rounded up to whole steps.
        decay: decay function of items without a recorded curve, at the decay rate of their source.
            Deadlines and looks need exponential decay, and so a log without curves.

    Sources are matched by name. A source of the fleet that the log does not name publishes nothing.

    >>> log = ItemLog(["1", "2"], [0, 1], published=[0.5, 1.5], utility=[3, 4], start=0, end=3)
    >>> Trace(log)
    Trace(2 items of 2 sources, 0 to 3 hours)
    """

    log: ItemLog
    random_start: bool
    decay: Decay

    items = True

    def __init__(
        self,
        log: ItemLog,
        random_start: bool = True,
        decay: str | Mapping[str, Any] | Decay = "exponential",
    ) -> None:
        if not isinstance(log, ItemLog):
            raise ValueError(
                f"log is {log!r}; give a crawl_env.ItemLog, such as ItemLog.from_csv(path)"
            )
        object.__setattr__(self, "log", log)
        object.__setattr__(self, "random_start", random_start)
        object.__setattr__(self, "decay", make_decay(decay))

    def __repr__(self) -> str:
        return repr(self.log).replace("ItemLog(", "Trace(", 1)

    @property
    def exponential(self) -> bool:  # type: ignore[override]
        curves = self.log.curves
        has_curves = curves is not None and bool(curves.recorded.any())
        return isinstance(self.decay, ExponentialDecay) and not has_curves

    def steps(self, period: float) -> int:
        """Return the number of steps of length `period` in the log; the last may be incomplete."""
        return max(1, int(np.ceil(self.log.span / period * (1 - 1e-12))))

    def check(self, sources: Sources) -> None:
        """Raise ValueError as `bind` does; warn if the log is shorter than one step."""
        super().check(sources)
        span, unit = self.log.span, self.log.unit
        if span < sources.period:
            warnings.warn(
                f"the log covers {span:.3g} {unit}s, less than one period of {sources.period:g}, "
                "so every step repeats all of it; give the log its `start` and `end`, or use the "
                "time unit of the fleet",
                stacklevel=5,
            )

    def bind(self, sources: Sources, num_envs: int) -> TraceFeed:
        """Return the items of `num_envs` environments, each at its own position in the log.

        Raises:
            ValueError: the log names sources that the fleet lacks, or `sources` is a batch.
        """
        if sources.arrival_rate.ndim != 1:
            raise ValueError(
                "a log belongs to one fleet of named sources, and `sources` is a batch of fleets "
                "or draws a new one at each reset; give one fleet"
            )
        return TraceFeed(self, sources, num_envs)


class TraceFeed(Feed):
    """The log as replayed in the cells of one world. Its rate is the mean rate.

    An item published in [t, t + T) belongs to the step that ends at t + T, at which it is first
    observable.
    """

    _arrivals: Trace

    def __init__(self, arrivals: Trace, sources: Sources, num_envs: int) -> None:
        super().__init__(arrivals, sources, num_envs)
        log = arrivals.log
        self._curves, self._utility = log.curves, log.utility
        self._source = _places(log, sources)
        self._recorded = None if log.curves is None else log.curves.recorded
        self._period, self._length = sources.period, arrivals.steps(sources.period)
        when = (log.published - log.start) / sources.period
        last = self._length - 1
        self._step = np.minimum(np.floor(when + _ROUNDING), last).astype(np.intp)
        self._age = np.clip(self._step + 1.0 - when, 0.0, 1.0)
        self._state = np.zeros(num_envs, dtype=np.intp)  # next step of the log

    @cached_property
    def blocks(self) -> list[tuple[slice, Block]]:
        cells = self._cells(np.arange(self._num_envs))
        return [(slice(0, cells.items.size), _Replay(cells, self._advance))]

    def _cells(self, envs: IntArray) -> Cells:
        return Cells.of(self._sources, lambda p: np.tile(p, envs.size))

    def start(self, envs: IntArray, rng: np.random.Generator) -> None:
        random = self._arrivals.random_start
        self._state[envs] = rng.integers(0, self._length, envs.size) if random else 0

    def past(self, envs: IntArray, steps: FloatArray) -> Block:
        return _Replay(self._cells(envs), lambda: self.published_before(envs, steps))

    def published_before(self, envs: IntArray, steps: FloatArray) -> Published:
        """Return the items of the last `steps` (b·N,) steps at the environments `envs` (b,)."""
        # At most one repetition of the log; nothing was published before its first replayed step.
        longest = self._longest(steps) if self._arrivals.random_start else 0.0
        items = self._before(self._state[envs], int(min(longest, self._length)))
        return items.only(items.age <= steps[items.cell])

    def published_last(self) -> Published:
        """Return the items of the last step at all environments."""
        return self._before(self._state, 1)

    def replay_of(self, log: ItemLog) -> TraceFeed:
        """Return a replay, for the same sources and environments, of another log of the same span.

        Raises:
            ValueError: the span differs.
        """
        mine = self._arrivals.log
        if (log.start, log.end) != (mine.start, mine.end):
            raise ValueError(
                f"{log!r} and {mine!r} cover different spans; put a log of pings on the clock of "
                "the items with pings.aligned_with(items)"
            )
        return TraceFeed(Trace(log, self._arrivals.random_start), self._sources, self._num_envs)

    def _advance(self) -> Published:
        self._state = (self._state + 1) % self._length
        return self.published_last()

    def survival(self, items: Published) -> FloatArray:
        fractions = super().survival(items)
        if self._curves is not None and self._recorded is not None:
            recorded = self._recorded[items.number]
            age = items.age[recorded] * self._period
            fractions[recorded] = self._curves.remaining_at(items.number[recorded], age)
        return fractions

    def _before(self, now: IntArray, steps: int) -> Published:
        """Return the items that the last `steps` steps of the log (at most one repetition) before
        the steps `now` (b,) bring to b environments."""
        begin = now - steps  # negative: the log wraps around
        low = np.searchsorted(self._step, begin % self._length) - (begin < 0) * self._step.size
        high = np.searchsorted(self._step, now)
        size = int((high - low).sum())
        whole, real = np.empty((2, size), dtype=np.intp), np.empty((2, size))
        columns = whole[0], real[0], real[1], whole[1]
        log = self._step, self._source, self._age, self._utility
        _read(low, high, now, self._length, self._shape[1], log, columns)
        return Published(*columns)

    def _longest(self, steps: FloatArray) -> float:
        """Return the age in steps after which all content that `past` needs has lost its utility.

        `steps` is the argument of `past`.
        """
        window = float(np.ceil(steps[np.isfinite(steps)]).max(initial=0.0))
        return max(window, self._faded()) if np.isinf(steps).any() else window

    def _faded(self) -> float:
        """Return the age, in whole steps, from which no item has any utility left."""
        end = self._arrivals.decay.end / self.decay[self._source]
        if self._curves is not None and self._recorded is not None:
            last = self._curves.first[1:][self._recorded] - 1
            age = self._curves.age[last] / self._period
            end[self._recorded] = np.where(self._curves.remaining[last] > 0, np.inf, age)
        return float(np.ceil(end).max(initial=0.0))


@compiled
def _read(
    low: IntArray,
    high: IntArray,
    now: IntArray,
    length: int,
    n: int,
    log: tuple[IntArray, IntArray, FloatArray, FloatArray],
    columns: tuple[IntArray, FloatArray, FloatArray, IntArray],
) -> None:
    """Copy the items from `low` to `high`, (b,) each, and their ages at the steps `now` (b,).

    Negative numbers are items of the repetition of the log before.
    """
    k, (cell, age, utility, number) = 0, columns
    log_step, log_source, log_age, log_utility = log
    for env in range(now.size):
        for j in range(low[env], high[env]):
            item = j + log_source.size if j < 0 else j
            ago = now[env] - 1 - log_step[item]
            cell[k] = env * n + log_source[item]
            age[k] = log_age[item] + (ago + length if ago < 0 else ago)
            utility[k] = log_utility[item]
            number[k] = item
            k += 1


class _Replay(Block):
    """Items read from a log."""

    def __init__(self, cells: Cells, read: Callable[[], Published]) -> None:
        super().__init__(cells)
        self._read = read

    def draw(self, rng: np.random.Generator) -> Iterator[Published]:
        yield self._read()


def _places(items: ItemLog, sources: Sources) -> IntArray:
    """Return the position in the fleet of each item's source, (n,)."""
    number = {name: i for i, name in enumerate(sources.names)}
    place = np.array([number.get(name, -1) for name in items.names], dtype=np.intp)
    missing = np.flatnonzero((place < 0) & (items.counts > 0))
    if missing.size:
        names = ", ".join(items.names[i] for i in missing[:5]) + ", …" * (missing.size > 5)
        raise ValueError(
            f"the log has {items.counts[missing].sum()} items of {missing.size} sources that the "
            f"fleet lacks ({names}); add them to the fleet, or keep only its own with "
            "items.select([name for name in items.names if name in sources.names])"
        )
    places: IntArray = place[items.source]
    return places
