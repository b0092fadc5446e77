"""Poisson arrivals at constant rates: the total of a step in one draw, or item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.cells import Cells, Published
from crawl_env.content.process import Block
from crawl_env.content.utility import Distribution, Exponential
from crawl_env.numerics import FloatArray, IntArray

FADED = 37.0  # time constants after which less than e^−37 of an item's utility is left: nothing
AT_ONCE = 2.0  # items above which one draw of U is cheaper than its items, roughly
_CHUNK = 2**16  # items simulated at a time: the temporaries stay in the cache
_MOST_ITEMS = 1e9

# Draws when items arrive: batches of their cells, sorted or not, and of their ages in steps.
Times = Callable[[np.random.Generator], Iterator[tuple[IntArray, FloatArray]]]


def check_drawable(items: float) -> None:
    """Raise ValueError where so many items cannot be drawn one by one."""
    if items > _MOST_ITEMS:
        raise ValueError(
            f"{items:.3g} items would have to be drawn one by one; use arrivals='poisson', which "
            "draws totals, or 'deterministic', fewer sources, another start or a shorter period"
        )


class PoissonTimes:
    """Times at which items arrive in the last `window` (n,) steps, at constant rates."""

    def __init__(self, cells: Cells, window: FloatArray) -> None:
        self._window = window
        # Cell i owns the stretch (line[i−1], line[i]] of a line of length `line[-1]`, on which
        # the items of all cells are one Poisson process of rate 1.
        self._line = np.cumsum(cells.items * window)
        self._length = float(self._line[-1]) if self._line.size else 0.0
        check_drawable(self._length)
        self._chunks = max(1, int(np.ceil(self._length / _CHUNK)))
        # Rounding may place an item beyond the end: it belongs to the last source that publishes.
        self._last = int(np.searchsorted(self._line, self._length))

    def __call__(self, rng: np.random.Generator) -> Iterator[tuple[IntArray, FloatArray]]:
        width = self._length / self._chunks
        for chunk in range(self._chunks if self._length else 0):
            n = rng.poisson(width)
            if n == 0:
                continue
            start = chunk * self._length / self._chunks
            where = np.searchsorted(self._line, start + width * _sorted_uniforms(n, rng))
            np.minimum(where, self._last, out=where)
            age = rng.random(n)
            age *= self._window[where]
            yield where, age


class ItemSampler(Block):
    """Content drawn item by item: when the items arrive, then their initial utilities."""

    def __init__(self, cells: Cells, utility: Distribution, times: Times) -> None:
        super().__init__(cells)
        self._utility, self._times = utility, times

    def draw(self, rng: np.random.Generator) -> Iterator[Published]:
        for where, age in self._times(rng):
            utility = self._utility.sample(rng, where.size)
            utility *= self.cells.mean_utility[where]
            yield Published(where, age, utility, np.zeros_like(where))


class TotalSampler(Block):
    """Content of the last `window` (n,) steps, of which only the total is drawn.

    Where ξ is exponential and a cell publishes more than `AT_ONCE` items, the total is drawn in
    constant time, else item by item.
    """

    def __init__(self, cells: Cells, utility: Distribution, window: FloatArray) -> None:
        super().__init__(cells)
        at_once = np.zeros(cells.items.shape, dtype=bool)
        if isinstance(utility, Exponential):
            at_once = _drawn_at_once(cells, window)
        self._none, self._all = not at_once.any(), bool(at_once.all())
        self._where, self._rest = np.flatnonzero(at_once), np.flatnonzero(~at_once)
        if not self._all:
            rest, time = (cells, window) if self._none else (cells[self._rest], window[self._rest])
            self._items = ItemSampler(rest, utility, PoissonTimes(rest, time))
        if not self._none:
            dense = cells if self._all else cells[self._where]
            aged = dense.decay * window[self._where]
            self._shape, self._odds = dense.items / dense.decay, np.expm1(aged)
            self._scale = np.exp(-aged) * dense.mean_utility

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        if self._none:
            self._items.add(value, None, rng)
            return
        drawn = _gamma_ou(self._shape, self._odds, self._scale, rng)
        if self._all:
            value += drawn
            return
        value[self._where] += drawn
        rest = np.zeros(self._rest.size)
        self._items.add(rest, None, rng)
        value[self._rest] += rest


class PastTotals(Block):
    """Content of the last `steps` (n,) steps, of which only the total is drawn."""

    def __init__(self, cells: Cells, utility: Distribution, steps: FloatArray) -> None:
        super().__init__(cells)
        faded = FADED / cells.decay
        if isinstance(utility, Exponential):
            # After 30 time constants the content is stationary to within e^−30.
            old = np.isinf(steps) | (cells.decay * steps > 30.0)
            window = np.minimum(np.where(old, 0.0, steps), faded)
        else:
            old = np.zeros(steps.shape, dtype=bool)
            window = np.minimum(steps, faded)
        self._stationary = old & (cells.items > 0)
        self._recent = TotalSampler(cells, utility, window)

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        old = self._stationary
        shape = self.cells.items[old] / self.cells.decay[old]
        value[old] = rng.standard_gamma(shape) * self.cells.mean_utility[old]
        self._recent.add(value, None, rng)


def past_items(cells: Cells, utility: Distribution, steps: FloatArray, end: float) -> ItemSampler:
    """Return the items of the last `steps` (n,) steps that are not surely worthless: those
    younger than `end` time constants and not surely displaced by later ones."""
    window = np.where(np.isinf(steps), end / cells.decay, steps)
    if cells.capacity is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            displaced = (cells.capacity + 9 * np.sqrt(cells.capacity) + 40) / cells.items
        window = np.minimum(window, displaced)
    window = np.where(cells.items > 0, window, 0.0)
    return ItemSampler(cells, utility, PoissonTimes(cells, window))


def _drawn_at_once(cells: Cells, window: FloatArray) -> NDArray[np.bool_]:
    aged = cells.decay * window
    few_enough = cells.items * np.expm1(np.minimum(aged, 30.0)) / cells.decay < 1e15
    return (cells.items * window > AT_ONCE) & (aged <= 30.0) & few_enough


def _gamma_ou(
    shape: FloatArray, odds: FloatArray, scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw U for exponential ξ, the innovation of a gamma Ornstein–Uhlenbeck process.

    B ~ NegativeBinomial(Λ/μ, α), itself a Poisson mixture, then U | B ~ Gamma(B, αξ̄). B is not
    the number of items. `odds` is (1 − α)/α, `scale` is αξ̄.
    """
    batches = rng.poisson(rng.standard_gamma(shape) * odds)
    return rng.standard_gamma(batches) * scale


def _sorted_uniforms(n: int, rng: np.random.Generator) -> FloatArray:
    """Return n sorted uniforms on (0, 1): partial sums of exponentials, no sorting needed."""
    sums = np.cumsum(rng.standard_exponential(n + 1))
    return sums[:-1] / sums[-1]
