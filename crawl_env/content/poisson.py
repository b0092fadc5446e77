"""Poisson arrivals: drawn for a whole epoch at once where this is possible, else item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crawl_env.content.cells import Cells, Stream, cells_of
from crawl_env.content.decay import Decay, ExponentialDecay, make_decay
from crawl_env.content.item_store import Published
from crawl_env.content.utility import Exponential, Law, make_law
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class Poisson:
    """Items arrive as a Poisson process; U = Σ ξ_n exp(−μ·age_n) over one epoch's items.

    E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ).

    Arguments:
        law: of ξ, by name (constant, exponential, lognormal, gamma) or as a `utility.Law`.
        decay: of interest, by name (exponential, stretched, lomax) or as a
            `crawl_env.content.decay.Decay`. Any but the exponential is followed item by item; the
            crawler's belief, and agents, go on taking it for exponential.

    Items are simulated one by one: one draw of how many arrive in all, then each is given to a
    source, so the work is in proportion to the items. Where ξ is exponential, counts are not
    wanted and a source publishes more than `ONE_GO` items an epoch, U itself is drawn in
    constant time (`_gamma_ou`).
    """

    law: str | Law = "exponential"
    decay: str | Decay = "exponential"
    deterministic: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", make_law(self.law))
        object.__setattr__(self, "decay", make_decay(self.decay))

    @property
    def itemised(self) -> bool:
        return not isinstance(self.decay, ExponentialDecay)

    def feed(self, sources: Sources, rows: int) -> PoissonFeed:
        shape = (rows, len(sources))

        def flat(parameter: FloatArray) -> FloatArray:
            return np.broadcast_to(parameter, shape).ravel()

        assert not isinstance(self.decay, str)  # resolved in __post_init__
        return PoissonFeed(cells_of(sources, flat), flat(sources.capacity), self._law, self.decay)

    def stream(self, cells: Cells, count: bool) -> Stream:
        at_once = self._drawn_at_once(cells, np.ones_like(cells.items), count)
        if not at_once.any():
            return self.items(cells)
        everywhere = bool(at_once.all())
        where, one_by_one = np.flatnonzero(at_once), np.flatnonzero(~at_once)
        items_of = self.items(cells[one_by_one])
        dense = cells if everywhere else cells[where]
        shape, odds = dense.items / dense.decay, np.expm1(dense.decay)
        scale = np.exp(-dense.decay) * dense.mean_utility

        def add(value: FloatArray, items: FloatArray | None, rng: np.random.Generator) -> None:
            drawn = _gamma_ou(shape, odds, scale, rng)
            if everywhere:
                value += drawn
                return
            value[where] += drawn
            rest = np.zeros(one_by_one.size)
            items_of(rest, None, rng)
            value[one_by_one] += rest

        return add

    def items(self, cells: Cells) -> OneByOne:
        """Return the stream that draws every item of an epoch, as where they are counted."""
        return OneByOne(cells, np.ones_like(cells.items), self._law)

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        value, items = np.zeros_like(cells.items), np.zeros_like(cells.items)
        if isinstance(self.law, Exponential):
            # After 30 time constants the content is stationary to within e^−30.
            old = np.isinf(epochs) | ((cells.decay * epochs > 30.0) & (not count))
            stationary = old & (cells.items > 0)
            shape = cells.items[stationary] / cells.decay[stationary]
            value[stationary] = rng.standard_gamma(shape) * cells.mean_utility[stationary]
            windows = np.where(old, 0.0, epochs)
        else:
            windows = np.where(np.isinf(epochs), _OLD / cells.decay, epochs)
        if not count:
            windows = np.minimum(windows, _OLD / cells.decay)
        at_once = self._drawn_at_once(cells, windows, count)
        if at_once.any():
            dense, window = cells[at_once], windows[at_once]
            aged = dense.decay * window
            value[at_once] += _gamma_ou(
                dense.items / dense.decay,
                np.expm1(aged),
                np.exp(-aged) * dense.mean_utility,
                rng,
            )
        rest = np.flatnonzero(~at_once)
        part, counts = np.zeros(rest.size), np.zeros(rest.size)
        OneByOne(cells[rest], windows[rest], self._law)(part, counts, rng)
        value[rest] += part
        items[rest] = np.where(np.isinf(epochs[rest]), 0.0, counts)
        return value, items

    @property
    def _law(self) -> Law:
        assert not isinstance(self.law, str)  # resolved in __post_init__
        return self.law

    def _drawn_at_once(self, cells: Cells, epochs: FloatArray, count: bool) -> NDArray[np.bool_]:
        if count or not isinstance(self.law, Exponential):
            return np.zeros(cells.items.shape, dtype=bool)
        aged = cells.decay * epochs
        few_enough = cells.items * np.expm1(np.minimum(aged, 30.0)) / cells.decay < 1e15
        return (cells.items * epochs > ONE_GO) & (aged <= 30.0) & few_enough


ONE_GO = 2.0  # items above which one draw of U is cheaper than its items, roughly
_CHUNK = 2**16  # items simulated at a time: the temporaries stay in the cache
_MOST_ITEMS = 1e9
_OLD = 37.0  # time constants after which an item keeps less than e^−37 of its utility: nothing


def _gamma_ou(
    shape: FloatArray, odds: FloatArray, scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw U for exponential ξ, the innovation of a gamma Ornstein–Uhlenbeck process.

    B ~ NegativeBinomial(Λ/μ, α), itself a Poisson mixture, then U | B ~ Gamma(B, αξ̄). B is not
    the number of items. `odds` is (1 − α)/α, `scale` is αξ̄.
    """
    batches = rng.poisson(rng.standard_gamma(shape) * odds)
    return rng.standard_gamma(batches) * scale


# Items of one epoch, drawn a chunk at a time: their cells, ages in epochs, and utilities.
Draw = Callable[[np.random.Generator], Iterator[tuple[NDArray[np.intp], FloatArray, FloatArray]]]


class OneByOne:
    """Item-by-item simulation of the arrivals within `window` epochs, (n,), before now."""

    def __init__(self, cells: Cells, window: FloatArray, law: Law) -> None:
        self._cells, self._window, self._law = cells, window, law
        # Cell i owns the stretch (line[i−1], line[i]] of a line of length `line[-1]`, on which
        # the items of all cells are one Poisson process of rate 1.
        self._line = np.cumsum(cells.items * window)
        self._length = float(self._line[-1]) if self._line.size else 0.0
        if self._length > _MOST_ITEMS:
            raise ValueError(
                f"{self._length:.3g} items an epoch would have to be simulated one by one; use "
                "deterministic arrivals, exponential utilities (arrivals 'poisson') without the "
                "feature 'items', fewer sources, another start or a shorter period"
            )
        self._chunks = max(1, int(np.ceil(self._length / _CHUNK)))
        # Rounding may place an item beyond the end: it belongs to the last source that publishes.
        self._last = int(np.searchsorted(self._line, self._length))

    def __call__(
        self, value: FloatArray, items: FloatArray | None, rng: np.random.Generator
    ) -> None:
        """Add what is left of the items to `value`, and their number to `items`."""
        for where, age, worth in self.drawn(rng):
            age *= self._cells.decay[where]
            worth *= np.exp(-age)
            np.add.at(value, where, worth)
            if items is not None:
                np.add.at(items, where, 1.0)

    def drawn(
        self, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.intp], FloatArray, FloatArray]]:
        """Yield the items, a chunk at a time: their cells, ages in epochs, and utilities."""
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
            worth = self._law.sample(rng, n)
            worth *= self._cells.mean_utility[where]
            yield where, age, worth


class PoissonFeed:
    """Poisson items of a world's cells, one by one; see `item_store.Feed`. `epoch` draws
    those of the epoch that has passed."""

    def __init__(self, cells: Cells, capacity: FloatArray, law: Law, decay: Decay) -> None:
        self.cells, self._capacity, self._law, self._decay = cells, capacity, law, decay
        self.epoch: Draw = OneByOne(cells, np.ones_like(cells.items), law).drawn

    def start(
        self,
        cells: NDArray[np.intp],
        epochs: FloatArray,
        rows: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> Published:
        here, capacity = self.cells[cells], self._capacity[cells]
        # Older items are worth nothing, or have surely been pushed out by later ones.
        window = np.where(np.isinf(epochs), self._decay.end / here.decay, epochs)
        with np.errstate(divide="ignore", invalid="ignore"):
            pushed = (capacity + 9 * np.sqrt(capacity) + 40) / here.items
        window = np.minimum(window, pushed)
        window = np.where(here.items > 0, window, 0.0)
        return _published(OneByOne(here, window, self._law).drawn, cells, rng)

    def advance(self, rng: np.random.Generator) -> Published:
        return _published(self.epoch, None, rng)

    def share(self, items: Published) -> FloatArray:
        return self._decay.share(self.cells.decay[items.cell] * items.age)

    def get_state(self) -> None:
        return None

    def set_state(self, state: None) -> None:
        pass


def _published(draw: Draw, cells: NDArray[np.intp] | None, rng: np.random.Generator) -> Published:
    """Return drawn items as one batch, numbering cells as `cells` says."""
    nowhere = np.empty(0, dtype=np.intp)
    parts = [(nowhere, np.empty(0), np.empty(0)), *draw(rng)]
    cell, age, worth = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Published(cell if cells is None else cells[cell], age, worth, np.zeros_like(cell))


def _sorted_uniforms(n: int, rng: np.random.Generator) -> FloatArray:
    """Return n sorted uniforms on (0, 1): partial sums of exponentials, no sorting needed."""
    sums = np.cumsum(rng.standard_exponential(n + 1))
    return sums[:-1] / sums[-1]
