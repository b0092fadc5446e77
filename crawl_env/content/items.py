"""Single items: their arrival times, and content drawn item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import Stream, exponential, stream, uniform
from crawl_env.content.process import Block, Cells, Feed, Published
from crawl_env.content.utility import Distribution
from crawl_env.errors import counted
from crawl_env.numerics import FloatArray, IntArray

CHUNK = 2**16  # items simulated at a time, so that temporary arrays fit in the cache
MOST_ITEMS = 1e9
MOST_STORED = 10**8  # items, of which each takes some 100 bytes when room is made for more

# Draws arrival times: yields batches of cells, sorted or not, and of the items' ages in steps.
Times = Callable[[np.random.Generator], Iterator[tuple[IntArray, FloatArray]]]


class ItemSampler(Block):
    """Content drawn item by item: first the arrival times, then the initial utilities."""

    def __init__(
        self, cells: Cells, utility: Distribution, times: Times, parallel: bool = False
    ) -> None:
        super().__init__(cells)
        self._utility, self._times, self.parallel = utility, times, parallel

    def draw(self, rng: np.random.Generator) -> Iterator[Published]:
        for where, age in self._times(rng):
            utility = self._utility.sample(rng, where.size)
            utility *= self.cells.mean_utility[where]
            yield Published(where, age, utility, np.zeros_like(where))


def past_items(cells: Cells, utility: Distribution, steps: FloatArray, end: float) -> ItemSampler:
    """Return the items of the last `steps` (n,) steps that may still have utility.

    These are the items younger than `end` time constants, without those that later items have
    displaced with near certainty.
    """
    window = np.where(np.isinf(steps), end / cells.decay, steps)
    if cells.capacity is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            displaced = (cells.capacity + 9 * np.sqrt(cells.capacity) + 40) / cells.items
        window = np.minimum(window, displaced)
    window = np.where(cells.items > 0, window, 0.0)
    return ItemSampler(cells, utility, PoissonTimes(cells.items, window))


def check_drawable(items: float) -> None:
    """Raise ValueError if there are too many items to draw them singly."""
    if items > MOST_ITEMS:
        raise ValueError(
            f"{items:.3g} items would have to be drawn singly; use arrivals='poisson', which draws "
            "totals, or 'deterministic', fewer sources, another start or a shorter period"
        )


def check_stored(items: int, feed: Feed) -> None:
    """Raise ValueError if there are too many items to keep them all in memory."""
    if items > MOST_STORED:
        rate = feed.rate()
        envs, n = rate.shape
        raise ValueError(
            f"{items:,} items would be stored one by one, and {MOST_STORED:,} take some 10 GB: "
            f"{counted(n, 'source')} publish {rate.sum() / envs:.3g} items per unit of time, in "
            f"{counted(envs, 'environment')}. Check that arrival_rate, decay_rate and period are "
            "in the same unit; if they are, use faster decay, finite capacities, start='fresh', or "
            "fewer sources or environments"
        )


class PoissonTimes:
    """Arrival times of a Poisson process of constant `rates` (n,), items / step, within the last
    `window` (n,) steps."""

    def __init__(self, rates: FloatArray, window: FloatArray) -> None:
        self._window = window
        # Cell i owns the interval (line[i−1], line[i]] of a line of length `line[-1]`, on which
        # the items of all cells are one Poisson process of rate 1.
        self._line = np.cumsum(rates * window)
        self._length = float(self._line[-1]) if self._line.size else 0.0
        check_drawable(self._length)

    def __call__(self, rng: np.random.Generator) -> Iterator[tuple[IntArray, FloatArray]]:
        if self._length:
            yield from self.drawn(stream(rng))

    def drawn(self, state: Stream) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield batches of cells and ages, drawn from a stream."""
        if not self._length:
            return
        most = int(min(self._length + 6.0 * self._length**0.5 + 10.0, CHUNK))
        cell, place, n = 0, 0.0, most
        while n == most:
            where, age = np.empty(most, dtype=np.intp), np.empty(most)
            n, cell, place = _next_items(self._line, self._window, cell, place, where, age, state)
            if n:
                yield where[:n], age[:n]


@compiled
def _next_items(
    line: FloatArray,
    window: FloatArray,
    cell: int,
    place: float,
    where: IntArray,
    age: FloatArray,
    state: Stream,
) -> tuple[int, int, float]:
    """Draw the items that follow `place` on the line, which is in the interval of `cell`.

    Returns the number of items drawn, fewer than there is room for only if the line ends, and the
    cell and place of the last.
    """
    last = line.size - 1
    for n in range(where.size):
        place += exponential(state)
        if place > line[last]:
            return n, last, place
        cell = search(line, place, cell)
        where[n] = cell
        age[n] = uniform(state) * window[cell]
    return where.size, cell, place


@inlined
def search(line: FloatArray, place: float, start: int) -> int:
    """Return the first index from `start` on at which the non-decreasing `line` reaches `place`.

    It must reach it. The search takes ever larger strides, then bisects.
    """
    if line[start] >= place:
        return start
    last = line.size - 1
    low, high, stride = start, min(start + 1, last), 1
    while line[high] < place:
        low = high
        stride *= 2
        high = min(high + stride, last)
    while high - low > 1:
        middle = (low + high) // 2
        if line[middle] < place:
            low = middle
        else:
            high = middle
    return high
