"""Totals: the utility that arrives at a cell within one step, drawn as a single number."""

from __future__ import annotations

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.content.draws import (
    Stream,
    exponential,
    gamma,
    gamma_from_one,
    poisson,
    stream,
    uniform,
)
from crawl_env.content.items import search
from crawl_env.content.process import Block, Cells
from crawl_env.numerics import FloatArray

FADED = 37.0  # time constants after which less than e^−37 of an item's utility is left
SPARSE = 0.2  # items a cell below which empty cells are skipped
LEAST_ODDS = 1e-20  # lower bound of (1 − α)/α
MANY, WIDE = 14.0, 1e3  # E[B] and (1 − α)/α above which B is not drawn by inversion


class ExponentialTotals(Block):
    """Content of the last `window` (n,) steps for exponential ξ, drawn in constant time.

    U is the innovation of a gamma Ornstein–Uhlenbeck process: B ~ NegativeBinomial(Λ/μ, α), then
    U | B ~ Gamma(B, αξ̄). B is not the number of items, but it is 0 if and only if there are none.
    """

    parallel = True

    def __init__(self, cells: Cells, window: FloatArray | float = 1.0) -> None:
        super().__init__(cells)
        # What is older than FADED time constants is less than rounding, whatever the window.
        self._window = np.minimum(window, FADED / cells.decay)
        z = cells.decay * self._window
        # Smaller odds, of which Λ/μ might overflow, would not change the law beyond rounding.
        self._odds = np.maximum(np.expm1(z), LEAST_ODDS)
        self._scale = np.exp(-z) * cells.mean_utility
        self._mean_of_one = np.expm1(z) / cells.decay  # E[B] at one item / step
        self._none, self._mean = self._law(cells.items)
        self._line = np.cumsum(cells.items * self._window)
        size = cells.items.size
        self._sparse = bool(size and self._line[-1] < SPARSE * size and self._none.all())

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        law = self._none, self._mean, self._odds, self._scale
        if self._sparse:
            _add_sparse(value, self._line, *law, stream(rng))
        else:
            _add_totals(value, *law, stream(rng))

    def add_at(self, rate: FloatArray, value: FloatArray, rng: np.random.Generator) -> None:
        """Add the content that arrives at `rate` (n,) items / step."""
        _add_totals(value, *self._law(rate), self._odds, self._scale, stream(rng))

    def _law(self, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(B = 0), or 0 where B is not drawn by inversion, and E[B]."""
        mean = rate * self._mean_of_one
        none = np.exp(-rate * self._window)
        none[(mean > MANY) | (self._odds > WIDE)] = 0.0
        return none, mean


@compiled
def _add_totals(
    value: FloatArray,
    none: FloatArray,
    mean: FloatArray,
    odds: FloatArray,
    scale: FloatArray,
    state: Stream,
) -> None:
    """Add the content of each cell, given P(B = 0), E[B], (1 − α)/α and αξ̄."""
    for i in range(value.size):
        u = uniform(state)
        if u < none[i]:
            continue
        if none[i] > 0.0:
            batches = _batches(u - none[i], none[i], mean[i], odds[i])
        else:  # a negative binomial number is Poisson with a mean that is gamma distributed
            batches = poisson(state, gamma(state, mean[i] / odds[i]) * odds[i])
        if batches > 0.0:
            value[i] += gamma_from_one(state, batches) * scale[i]


@compiled
def _add_sparse(
    value: FloatArray,
    line: FloatArray,
    none: FloatArray,
    mean: FloatArray,
    odds: FloatArray,
    scale: FloatArray,
    state: Stream,
) -> None:
    """Do the same in time proportional to the cells that get content. `line` cumulates the
    expected numbers of items."""
    if line[-1] == 0.0:
        return
    cell, place = 0, exponential(state)
    while place <= line[-1]:
        cell = search(line, place, cell)
        u = uniform(state) * (1.0 - none[cell])
        batches = _batches(u, none[cell], mean[cell], odds[cell])
        value[cell] += gamma_from_one(state, batches) * scale[cell]
        place = line[cell] + exponential(state)


@inlined
def _batches(u: float, p: float, mean: float, odds: float) -> float:
    """Return B ≥ 1 by inversion: u is the probability of a smaller B, less p = P(B = 0)."""
    k, alpha = 0.0, 1.0 / (1.0 + odds)
    while True:
        p *= (mean + k * odds) * alpha / (k + 1.0)
        k += 1.0
        if u < p or p < 1e-20:
            return k
        u -= p
