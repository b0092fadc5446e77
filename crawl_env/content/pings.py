"""Pings: simulated from the items that are published, or replayed from a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.compiled import compiled
from crawl_env.content.draws import Stream, exponential, mixed, stream
from crawl_env.content.items import MOST_ITEMS, PoissonTimes
from crawl_env.content.process import Published
from crawl_env.content.totals import FADED
from crawl_env.content.trace import TraceFeed
from crawl_env.fleet.sources import Sources
from crawl_env.log.item_log import ItemLog
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import beside

_ONE, _SHIFT = np.uint64(1), np.uint64(11)


class Pings(NamedTuple):
    """n pings, in any order."""

    cell: IntArray  # (n,) env·N + source
    age: FloatArray  # (n,) steps since it was received; negative if it is still on the way

    def only(self, which: Any) -> Pings:
        """Return the pings selected by a mask."""
        return Pings(self.cell[which], self.age[which])

    @staticmethod
    def concatenate(batches: Sequence[Pings]) -> Pings:
        """Return the pings of all batches, in order."""
        none = Pings(np.empty(0, dtype=np.intp), np.empty(0))
        return Pings(*(np.concatenate(column) for column in zip(none, *batches, strict=True)))


class PingFeed(Protocol):
    """The pings of the B·N cells of one world, and their time-dependent state."""

    def seed(self, rng: np.random.Generator) -> None:
        """Begin the random stream of the pings that belongs to the seed of `rng`."""

    def start(self, envs: IntArray, steps: FloatArray, items: Iterable[Published]) -> list[Pings]:
        """Return the pings, in batches, of the `steps` (b, N) steps before an episode of the
        environments `envs`, in which `items` were published."""

    def advance(self, items: Iterable[Published]) -> list[Pings]:
        """Return the pings, in batches, of the next step, in which `items` are published."""

    def get_state(self) -> Any:
        """Return a copy of the state."""

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`."""


class SimulatedPings:
    """Pings drawn from a random stream of their own; see `PingFeed`.

    They depend on the items that are published, on the signals of the sources, and on the seed.

    Raises:
        ValueError: there would be too many false pings.
    """

    def __init__(self, sources: Sources, shape: tuple[int, int]) -> None:
        self._shape, self._sources = shape, sources
        self._recall = sources.recall.ravel()
        self._delay = (sources.signal_delay / sources.period).ravel()  # steps
        self._is_delayed = bool((self._delay > 0).any())
        self._everywhere = np.arange(shape[0] * shape[1])
        self._false = self._times(sources.false_rate, self._everywhere, 1.0)
        self._waiting = Pings.concatenate([])
        self._stream: Stream = np.zeros(2, dtype=np.uint64)

    def _flat(self, parameter: FloatArray, cells: IntArray) -> FloatArray:
        return parameter.ravel()[cells % parameter.size]

    def _times(self, rate: FloatArray, cells: IntArray, window: ArrayLike) -> PoissonTimes:
        """Return the times at which pings of a `rate` (N,) or (B, N) per unit of time come within
        the last `window` steps at some cells."""
        line = np.broadcast_to(window, cells.shape)
        pings = self._flat(rate, cells) * self._sources.period
        if (number := float((pings * line).sum())) > MOST_ITEMS:
            raise ValueError(
                f"{number:.3g} false pings would have to be drawn singly; use a higher precision, "
                "another start or a shorter period"
            )
        return PoissonTimes(pings, line)

    def seed(self, rng: np.random.Generator) -> None:
        self._stream = stream(beside(rng, "signals"))

    def start(self, envs: IntArray, steps: FloatArray, items: Iterable[Published]) -> list[Pings]:
        begun = np.zeros(self._shape[0], dtype=bool)
        begun[envs] = True
        self._waiting = self._waiting.only(~begun[self._waiting.cell // self._shape[1]])
        cells, window = self._everywhere.reshape(self._shape)[envs].ravel(), steps.ravel()
        found = [self._announced(batch.cell, batch.age, self._recall) for batch in items]
        if self._is_delayed:
            found += self._overdue(cells, window)
        recent = np.minimum(window, FADED / self._flat(self._sources.decay_per_step, cells))
        false = self._times(self._sources.false_rate, cells, recent)
        found += [Pings(cells[where], age) for where, age in false.drawn(self._stream)]
        return self._received(found)

    def _overdue(self, cells: IntArray, window: FloatArray) -> Iterator[Pings]:
        """Yield the pings of items published before the `window`, at whose begin they were on the
        way."""
        finite = np.isfinite(window)
        on_the_way = self._sources.recall * self._sources.arrival_rate * self._sources.signal_delay
        number = np.where(finite, self._flat(on_the_way, cells), 0.0)
        if (total := float(number.sum())) > MOST_ITEMS:
            raise ValueError(
                f"{total:.3g} pings would be on the way at the start and have to be drawn singly; "
                "use a shorter delay of the signals"
            )
        times = PoissonTimes(number, np.ones(cells.size))
        for where, _ in times.drawn(self._stream):
            yield self._announced(cells[where], window[where], np.ones(1))

    def advance(self, items: Iterable[Published]) -> list[Pings]:
        found = [self._announced(batch.cell, batch.age, self._recall) for batch in items]
        found += [Pings(where, age) for where, age in self._false.drawn(self._stream)]
        if self._is_delayed:
            found.append(Pings(self._waiting.cell, self._waiting.age + 1.0))
            self._waiting = Pings.concatenate([])
        return self._received(found)

    def _announced(self, cell: IntArray, age: FloatArray, recall: FloatArray) -> Pings:
        """Return the pings that items of some ages trigger."""
        where, ages = np.empty(cell.size, dtype=np.intp), np.empty(cell.size)
        n = _announce(cell, age, recall, self._stream, where, ages)
        pings = Pings(where[:n], ages[:n])
        if self._is_delayed:
            _delay(*pings, self._delay, self._stream)
        return pings

    def _received(self, found: list[Pings]) -> list[Pings]:
        """Return the pings that have been received, and keep those on the way."""
        if not self._is_delayed:
            return found
        parts = [_split(*pings) for pings in found]
        self._waiting = Pings.concatenate([*(Pings(*later) for _, later in parts), self._waiting])
        return [Pings(*here) for here, _ in parts]

    def get_state(self) -> dict[str, Any]:
        return {"waiting": deepcopy(self._waiting), "stream": self._stream.copy()}

    def set_state(self, state: Any) -> None:
        self._waiting = Pings(*deepcopy(tuple(state["waiting"])))
        self._stream = np.array(state["stream"], dtype=np.uint64)


@compiled
def _announce(
    cell: IntArray,
    age: FloatArray,
    recall: FloatArray,
    state: Stream,
    where: IntArray,
    ages: FloatArray,
) -> int:
    """Write the cells and ages of the items that trigger pings, and return their number."""
    n, first, counter, step = 0, 0, state[0], state[1] | _ONE
    for j in range(cell.size):
        i = cell[j] - first
        if i < 0 or i >= recall.size:
            first = cell[j] - cell[j] % recall.size
            i = cell[j] - first
        where[n] = cell[j]
        ages[n] = age[j]
        counter += step
        # As `uniform`, with the counter in a register, and without a branch to predict.
        n += (np.float64(mixed(counter) >> _SHIFT) + 0.5) * 2.0**-53 < recall[i]
    state[0] = counter
    return n


@compiled
def _split(
    cell: IntArray, age: FloatArray
) -> tuple[tuple[IntArray, FloatArray], tuple[IntArray, FloatArray]]:
    """Return the pings that have been received, and those on the way."""
    here, here_age = np.empty_like(cell), np.empty_like(age)
    later, later_age = np.empty_like(cell), np.empty_like(age)
    n = 0
    for j in range(cell.size):  # without a branch, which could not be predicted
        here[n], here_age[n] = cell[j], age[j]
        later[j - n], later_age[j - n] = cell[j], age[j]
        n += age[j] >= 0.0
    m = cell.size - n
    return (here[:n], here_age[:n]), (later[:m], later_age[:m])


@compiled
def _delay(cell: IntArray, age: FloatArray, delay: FloatArray, state: Stream) -> None:
    """Subtract an exponential time of mean `delay` from the age of each ping."""
    first = 0
    for j in range(cell.size):
        i = cell[j] - first
        if i < 0 or i >= delay.size:
            first = cell[j] - cell[j] % delay.size
            i = cell[j] - first
        mean = delay[i]
        if mean > 0.0:
            age[j] -= mean * exponential(state)


class RecordedPings:
    """Pings of a log, replayed with the items of another; see `PingFeed`.

    Raises:
        ValueError: the logs cover different spans.
    """

    def __init__(self, log: PingLog, feed: TraceFeed) -> None:
        ones = np.ones(len(log))
        events = ItemLog(log.names, log.source, log.time, ones, log.start, log.end, unit=log.unit)
        self._items, self._replay = feed, feed.replay_of(events)

    def seed(self, rng: np.random.Generator) -> None:
        """Do nothing, since nothing is random."""

    def start(self, envs: IntArray, steps: FloatArray, items: Iterable[Published]) -> list[Pings]:
        self._replay.set_state(self._items.get_state())
        cells = np.arange(self._replay.rate().size).reshape(-1, steps.shape[1])[envs].ravel()
        past = self._replay.published_before(envs, steps.ravel())
        return [Pings(cells[past.cell], past.age)]

    def advance(self, items: Iterable[Published]) -> list[Pings]:
        self._replay.set_state(self._items.get_state())
        return [Pings(*self._replay.published_last()[:2])]

    def get_state(self) -> None:
        """Return None: the state is that of the items."""

    def set_state(self, state: Any) -> None:
        """Do nothing."""
