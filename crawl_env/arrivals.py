"""Content arriving at the sources, epoch by epoch, whatever the crawler does.

Times are counted in epochs here: ℓ = ΛT items an epoch, m = μT decay an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.errors import unknown
from crawl_env.laws import LAWS, Exponential, Law, make_law
from crawl_env.numerics import FloatArray

# What one epoch adds, in place: value (n,) utility and, unless None, items (n,) counts.
Stream = Callable[[FloatArray, FloatArray | None, np.random.Generator], None]


@dataclass(frozen=True)
class Cells:
    """The parameters of n cells, a cell being one source of one environment."""

    items: FloatArray  # (n,) ℓ = ΛT, items / epoch
    mean_utility: FloatArray  # (n,) ξ̄, utility
    decay: FloatArray  # (n,) m = μT, 1 / epoch

    def __getitem__(self, which: Any) -> Cells:
        return Cells(self.items[which], self.mean_utility[which], self.decay[which])

    def mean_content(self, epochs: ArrayLike) -> FloatArray:
        """Return the mean utility that `epochs` epochs of arrivals leave, (n,)."""
        return (
            self.items
            * self.mean_utility
            / self.decay
            * -np.expm1(-self.decay * np.asarray(epochs, dtype=np.float64))
        )


class Arrivals(Protocol):
    """How content arrives. Implement these to bring your own; see `Deterministic`."""

    @property
    def deterministic(self) -> bool:
        """Whether nothing is drawn at random."""

    def stream(self, cells: Cells, count: bool) -> Stream:
        """Return the function that adds one epoch's content to the cells."""

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return utility and number of items left by `epochs` (n,) epochs of arrivals; infinity
        is the stationary law, whose number of items is 0: it has no finite one."""


@dataclass(frozen=True)
class Deterministic:
    """Every epoch adds exactly its mean: u utility and ΛT items (equation 2 of the paper)."""

    deterministic: bool = field(default=True, init=False)

    def stream(self, cells: Cells, count: bool) -> Stream:
        inflow, arriving = cells.mean_content(1.0), cells.items

        def add(value: FloatArray, items: FloatArray | None, rng: np.random.Generator) -> None:
            np.add(value, inflow, value)
            if items is not None:
                items += arriving

        return add

    def content(
        self, cells: Cells, epochs: FloatArray, count: bool, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        finite = np.where(np.isfinite(epochs), epochs, 0.0)
        return cells.mean_content(epochs), cells.items * finite


@dataclass(frozen=True)
class Poisson:
    """Items arrive as a Poisson process; U = Σ ξ_n exp(−μ·age_n) over one epoch's items.

    E[U] = u and Var[U] = Λ E[ξ²](1 − α²)/(2μ).

    Arguments:
        law: of ξ, by name (constant, exponential, lognormal, gamma) or as a `crawl_env.laws.Law`.

    Items are simulated one by one: one draw of how many arrive in all, then each is given to a
    source, so the work is in proportion to the items. Where ξ is exponential, counts are not
    wanted and a source publishes more than `ONE_GO` items an epoch, U itself is drawn in
    constant time (`_gamma_ou`).
    """

    law: str | Law = "exponential"
    deterministic: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", make_law(self.law))

    def stream(self, cells: Cells, count: bool) -> Stream:
        at_once = self._drawn_at_once(cells, np.ones_like(cells.items), count)
        if not at_once.any():
            return _Items(cells, np.ones_like(cells.items), self._law)
        everywhere = bool(at_once.all())
        where, one_by_one = np.flatnonzero(at_once), np.flatnonzero(~at_once)
        items_of = _Items(cells[one_by_one], np.ones(one_by_one.size), self._law)
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
        _Items(cells[rest], windows[rest], self._law)(part, counts, rng)
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


class _Items:
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
        for chunk in range(self._chunks if self._length else 0):
            self._add(value, items, rng, chunk * self._length / self._chunks)

    def _add(
        self, value: FloatArray, items: FloatArray | None, rng: np.random.Generator, start: float
    ) -> None:
        width = self._length / self._chunks
        n = rng.poisson(width)
        if n == 0:
            return
        where = np.searchsorted(self._line, start + width * _sorted_uniforms(n, rng))
        np.minimum(where, self._last, out=where)
        age = rng.random(n)
        age *= self._window[where]
        age *= self._cells.decay[where]
        worth = self._law.sample(rng, n)
        worth *= self._cells.mean_utility[where]
        worth *= np.exp(-age)
        np.add.at(value, where, worth)
        if items is not None:
            np.add.at(items, where, 1.0)


def _sorted_uniforms(n: int, rng: np.random.Generator) -> FloatArray:
    """Return n sorted uniforms on (0, 1): partial sums of exponentials, no sorting needed."""
    sums = np.cumsum(rng.standard_exponential(n + 1))
    return sums[:-1] / sums[-1]


ARRIVALS = ("deterministic", "poisson", *(f"poisson-{law}" for law in LAWS))


def make_arrivals(arrivals: str | Arrivals) -> Arrivals:
    """Return arrivals by name, or the object given.

    `"poisson"` has exponential ξ; `"poisson-constant"`, `"poisson-lognormal"`, `"poisson-gamma"`
    name another law with its default parameter; `Poisson(Lognormal(0.5))` sets it.

    Raises:
        ValueError: unknown name.
    """
    if not isinstance(arrivals, str):
        wanted = ("stream", "content", "deterministic")
        if isinstance(arrivals, type) or not all(hasattr(arrivals, name) for name in wanted):
            raise ValueError(
                f"arrivals is {arrivals!r}; give one of {', '.join(ARRIVALS)}, or an object with "
                "`deterministic`, `stream` and `content` as in crawl_env.Arrivals"
            )
        return arrivals
    if arrivals == "deterministic":
        return Deterministic()
    if arrivals in ARRIVALS:
        return Poisson(arrivals.partition("-")[2] or "exponential")
    raise unknown("arrivals", arrivals, ARRIVALS)
