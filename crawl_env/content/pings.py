"""Pings: simulated from the items that are published, or replayed from a log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import Stream, exponential, mixed, poisson, stream, uniform
from crawl_env.content.items import MOST_ITEMS, PoissonTimes
from crawl_env.content.process import Published, blocks_of
from crawl_env.content.totals import FADED
from crawl_env.content.trace import TraceFeed
from crawl_env.fleet.sources import Sources
from crawl_env.log.item_log import ItemLog
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import FloatArray, IntArray, Written
from crawl_env.rng import beside

_BATCH = 2**14  # false pings drawn at a time, which fit in the cache
_EXPONENT = 30.0  # e to the minus of which is far from the smallest number
_ONE, _SHIFT = np.uint64(1), np.uint64(11)


class Pings(NamedTuple):
    """n pings, in any order."""

    cell: IntArray  # (n,) env·N + source
    age: FloatArray  # (n,) steps since it was received

    def only(self, which: Any) -> Pings:
        """Return the pings selected by a mask."""
        return Pings(self.cell[which], self.age[which])

    @staticmethod
    def concatenate(batches: Sequence[Pings]) -> Pings:
        """Return the pings of all batches, in order."""
        none = Pings(np.empty(0, dtype=np.intp), np.empty(0))
        return Pings(*(np.concatenate(column) for column in zip(none, *batches, strict=True)))


class SimulatedPings(Written):
    """The pings of the B·N cells of one world, drawn from a random stream of their own.

    They depend on the items that are published, on the signals of the sources, and on the seed.
    Delays are exponential, hence memoryless: of the pings on the way no more than their number is
    kept, and each comes within the next step with probability 1 − e^{−1/d}.

    Raises:
        ValueError: there would be too many false pings.
    """

    def __init__(self, sources: Sources, shape: tuple[int, int]) -> None:
        self._shape, self._sources = shape, sources
        self._recall = sources.recall.ravel()
        self._delay = (sources.signal_delay / sources.period).ravel()  # steps
        self._is_delayed = bool((self._delay > 0).any())
        with np.errstate(divide="ignore", over="ignore"):
            self._arrives = -np.expm1(-1.0 / self._delay)  # within a step
        self._everywhere = np.arange(shape[0] * shape[1])
        self._false = self._false_pings()
        self._waiting = np.zeros(self._everywhere.size if self._is_delayed else 0, dtype=np.intp)
        self._stream: Stream = np.zeros(2, dtype=np.uint64)

    def _flat(self, parameter: FloatArray, cells: IntArray) -> FloatArray:
        return parameter.ravel()[cells % parameter.size]

    def _false_pings(self) -> list[tuple[int, _UnsortedTimes]]:
        """Return the false pings of a step, block by block, each with its first cell."""
        rate = self._sources.false_rate
        total = float(rate.sum()) * self._everywhere.size / rate.size * self._sources.period
        _check_number(total)
        of_blocks: dict[int, _UnsortedTimes] = {}
        false_pings = []
        for here, block in blocks_of(self._sources, self._shape[0]):
            if id(block) not in of_blocks:
                pings = self._flat(rate, self._everywhere[here]) * self._sources.period
                of_blocks[id(block)] = _UnsortedTimes(pings)
            false_pings.append((here.start, of_blocks[id(block)]))
        return false_pings

    def seed(self, rng: np.random.Generator) -> None:
        """Begin the random stream of the pings that belongs to the seed of `rng`."""
        self._stream = stream(beside(rng, "signals"))

    def start(self, envs: IntArray, steps: FloatArray, items: Iterable[Published]) -> list[Pings]:
        """Return the pings, in batches, of the `steps` (b, N) steps before an episode of the
        environments `envs`, in which `items` were published."""
        cells, window = self._everywhere.reshape(self._shape)[envs].ravel(), steps.ravel()
        if self._is_delayed:
            self._waiting[cells] = 0
        batches = [self._announced(batch.cell, batch.age, self._recall) for batch in items]
        if self._is_delayed:
            batches += self._overdue(cells, window)
        recent = np.minimum(window, FADED / self._flat(self._sources.decay_per_step, cells))
        pings = self._flat(self._sources.false_rate, cells) * self._sources.period
        _check_number(float((pings * recent).sum()))
        false = PoissonTimes(pings, recent)
        batches += [Pings(cells[where], age) for where, age in false.drawn(self._stream)]
        return batches

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
        """Return the pings, in batches, of the next step, in which `items` are published."""
        batches = []
        if self._is_delayed:
            batches.append(self._late())
        batches += [self._announced(batch.cell, batch.age, self._recall) for batch in items]
        for first, false in self._false:
            batches += [Pings(*batch) for batch in false.drawn(first, self._stream)]
        return batches

    def _late(self) -> Pings:
        """Return the pings that were on the way before the step and come within it."""
        total = int(self._waiting.sum())
        where, ages = np.empty(total + 1, dtype=np.intp), np.empty(total + 1)
        law = self._delay, self._arrives
        n = _arrive(self._waiting, *law, self._stream, where, ages)
        return Pings(where[:n], ages[:n])

    def _announced(self, cell: IntArray, age: FloatArray, recall: FloatArray) -> Pings:
        """Return the pings that items of some ages trigger, without those that remain on the
        way."""
        where, ages = np.empty(cell.size, dtype=np.intp), np.empty(cell.size)
        n = _announce(cell, age, recall, self._stream, where, ages)
        if self._is_delayed:
            n = _postpone(where[:n], ages[:n], self._delay, self._waiting, self._stream)
        return Pings(where[:n], ages[:n])

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {"waiting": self._waiting.copy(), "stream": self._stream.copy()}

    def set_state(self, state: Any) -> None:
        """Restore a state returned by `get_state`."""
        if self._is_delayed:  # sources that replace others may send at once what these delayed
            waiting = np.array(state["waiting"], dtype=np.intp)
            self._waiting = waiting if waiting.size else np.zeros_like(self._waiting)
        self._stream = np.array(state["stream"], dtype=np.uint64)


def _check_number(pings: float) -> None:
    if pings > MOST_ITEMS:
        raise ValueError(
            f"{pings:.3g} false pings would have to be drawn singly; use a higher precision, "
            "another start or a shorter period"
        )


class _UnsortedTimes:
    """The times of the last step, in any order, of Poisson processes of constant `rates` (n,).

    Their number is drawn first, then the process of each, by Walker's alias method: place j of n is
    that of process j with probability `own[j]`, else that of `other[j]`.
    """

    def __init__(self, rates: FloatArray) -> None:
        self._mean = float(rates.sum())
        self._own, self._other = np.ones(rates.size), np.arange(rates.size)
        if self._mean > 0.0:
            _fill_aliases(rates * (rates.size / self._mean), self._own, self._other)

    def drawn(self, first: int, state: Stream) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield batches of processes, numbered from `first` on, and of ages in steps."""
        number = _poisson(state, self._mean) if self._mean > 0.0 else 0
        while number > 0:
            size = min(number, _BATCH)
            where, age = np.empty(size, dtype=np.intp), np.empty(size)
            _place(first, self._own, self._other, state, where, age)
            yield where, age
            number -= size


@compiled
def _poisson(state: Stream, mean: float) -> int:
    return int(poisson(state, mean))


@compiled
def _fill_aliases(weight: FloatArray, own: FloatArray, other: IntArray) -> None:
    """Fill in the table of the alias method for weights of mean 1, which are used up."""
    low, high, n = 0, 0, weight.size
    while True:
        while high < n and weight[high] <= 1.0:
            high += 1
        while low < n and weight[low] >= 1.0:
            low += 1
        if high == n or low == n:
            return
        j = low
        while weight[j] < 1.0 and high < n:
            own[j], other[j] = weight[j], high
            weight[high] -= 1.0 - weight[j]
            weight[j] = 1.0
            if weight[high] <= 1.0:  # it is filled up next, since `low` may have passed it
                j = high
                while high < n and weight[high] <= 1.0:
                    high += 1


@compiled
def _place(
    first: int, own: FloatArray, other: IntArray, state: Stream, where: IntArray, age: FloatArray
) -> None:
    """Fill in the processes and ages of events."""
    # Loops without random access are compiled to vector instructions.
    counter, step = state[0], state[1] | _ONE
    place = np.empty(where.size)
    for j in range(where.size):
        place[j] = _unit(counter + step * np.uint64(2 * j + 1)) * own.size
        age[j] = _unit(counter + step * np.uint64(2 * j + 2))
    for j in range(where.size):
        i = np.int64(place[j])
        alias = other[i]
        where[j] = first + (i if place[j] - i < own[i] else alias)
    state[0] = counter + step * np.uint64(2 * where.size)


@inlined
def _unit(counter: np.uint64) -> float:
    """Return the number in [0, 1) that belongs to a counter."""
    return np.float64(np.int64(mixed(counter) >> _SHIFT)) * 2.0**-53


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
    for j in range(cell.size):  # as `uniform`, in a loop of its own, which is vectorised
        ages[j] = _unit(counter + step * np.uint64(j + 1)) + 2.0**-54
    for j in range(cell.size):
        i = cell[j] - first
        if i < 0 or i >= recall.size:
            first = cell[j] - cell[j] % recall.size
            i = cell[j] - first
        is_announced = ages[j] < recall[i]  # without a branch to predict
        where[n], ages[n] = cell[j], age[j]
        n += is_announced
    state[0] = counter + step * np.uint64(cell.size)
    return n


@compiled
def _postpone(
    cell: IntArray, age: FloatArray, delay: FloatArray, waiting: IntArray, state: Stream
) -> int:
    """Subtract an exponential time of mean `delay` from the age of each ping.

    Those that have been received are moved to the front, and their number is returned; the others
    are counted in `waiting`, (B·N,).
    """
    n, first = 0, 0
    for j in range(cell.size):
        c = cell[j]
        i = c - first
        if i < 0 or i >= delay.size:
            first = c - c % delay.size
            i = c - first
        ping_age = age[j]
        if delay[i] > 0.0:
            ping_age -= delay[i] * exponential(state)
        cell[n], age[n] = c, ping_age
        n += ping_age >= 0.0
        waiting[c] += ping_age < 0.0
    return n


@compiled
def _arrive(
    waiting: IntArray,
    delay: FloatArray,
    arrives: FloatArray,
    state: Stream,
    where: IntArray,
    ages: FloatArray,
) -> int:
    """Write the cells and ages of the pings on the way that come within a step, and return their
    number. Each comes with probability `arrives`, after an exponential time modulo 1, which has the
    distribution of an exponential time below 1."""
    n = 0
    for start in range(0, waiting.size, delay.size):
        for i in range(delay.size):
            remaining, number = waiting[start + i], 0
            most = np.int64(min(_EXPONENT * delay[i], 2.0**31)) + 1
            while remaining > 0:
                few = min(remaining, most)
                number += _binomial(state, few, arrives[i], math.exp(-few / delay[i]))
                remaining -= few
            waiting[start + i] -= number
            for j in range(n, n + number):
                time = delay[i] * exponential(state)
                where[j], ages[j] = start + i, 1.0 - (time - np.floor(time))
            n += number
    return n


@inlined
def _binomial(state: Stream, n: int, p: float, none: float) -> int:
    """Return a binomial number by inversion; `none` is the probability of 0, (1 − p)^n."""
    k, u, mass, odds = 0, uniform(state), none, p / (1.0 - p) if p < 1.0 else np.inf
    if none == 0.0:  # all have come
        return n
    while u >= mass and k < n:
        u -= mass
        mass *= odds * (n - k) / (k + 1.0)
        k += 1
    return k


class RecordedPings:
    """Pings of a log, replayed with the items of another, instead of `SimulatedPings`.

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
