"""Estimators of arrival rates from binary data: whether a crawl found anything new.

Cho & Garcia-Molina (ACM TOIT 2003). After a gap τ nothing is new with probability e^{−Λτ}. The gaps
of each source are stored as a histogram over `NODES`, so that the state has a fixed size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.adaptive.estimators.counts import (
    LEAST_SHAPE,
    WEAK,
    CrawlOutcome,
    Posterior,
    State,
    check_prior,
    check_retention,
)
from agents.adaptive.rows import Rows
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray, IntArray

# Nodes of the histogram of gaps, in steps: all up to 8, then four per octave. A gap between two
# nodes is split so that its mean is preserved; one beyond the last node counts as the last.
NODES: FloatArray = np.r_[1.0:8.0, 2.0 ** np.arange(3.0, 10.25, 0.25)]  # (K,)
_HISTOGRAM = Rows(len(NODES))
_STEPS = 30  # largest number of Newton steps; the iteration is monotone and converges in fewer
_CLOSE = 1e-4  # last step relative to the root; the error is of the order of its square
_NEAR = 1e-3  # below this value x/(e^x − 1) is replaced by its tangent


@dataclass(frozen=True)
class Changed:
    """Gamma posterior of Λ given the gaps after which a crawl found something new, or nothing.

    With z = 1 if a crawl found something new, and sums over crawls, the estimate is the root Λ of

        a + Σ_{z=1} Λτ/(e^{Λτ} − 1) = Λ(b + Σ_{z=0} τ),

    the mode of ln Λ under the Gamma prior (a, b). The posterior is the Gamma distribution with this
    mean and with the standard error that follows from the curvature of the likelihood in ln Λ.

    Only the estimates of sources that were just crawled are updated, by Newton's method, which is
    monotone from the left of the root. Splitting gaps between nodes changes the estimate by at most
    1.5 % for Λτ ≤ 4.

    With a retention ρ < 1 the sums are multiplied by ρ^gap at each crawl; between crawls, the shape
    and rate of the posterior approach those of the prior by the factor ρ per step.

    Arguments:
        prior: shape and rate of the Gamma prior.
        retention: ρ in (0, 1], the weight of past observations after one step.
        period: T, the length of a step.

    Raises:
        ValueError: an argument is out of range.
    """

    prior: Posterior = WEAK
    retention: float = 1.0
    period: float = 1.0
    counts: ClassVar[bool] = False
    signed: ClassVar[tuple[int, ...]] = ()
    all_gaps: ClassVar[bool] = False  # whether the histogram includes the gaps without a change

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_retention(self.retention)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return the number of crawls, of those that found something new, the steps of the others
        and of all, (..., N), the histograms, a table of `Rows`, (..., N, K), and the posterior's
        shape and rate, (..., N)."""
        sums = (np.zeros(shape) for _ in range(4))
        posterior = (np.broadcast_to(np.asarray(x, float), shape).copy() for x in self.prior)
        return *sums, *_HISTOGRAM.begin(shape), *posterior

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        sums, histogram, (shape, rate) = [*state[:4]], state[4:-2], state[-2:]
        shape, rate = self._faded(shape, rate, outcome.elapsed / self.period)
        crawled = outcome.cells
        if crawled.size:
            gap, new = outcome.gaps / self.period, outcome.changes
            kept = self.retention**gap
            sums = [array.copy() for array in sums]
            shape, rate = shape.copy(), rate.copy()
            rows = _HISTOGRAM.at(histogram, crawled) * kept[:, None].astype(np.float32)
            _spread(rows, gap, np.where(new | self.all_gaps, 1.0, 0.0))
            histogram = _HISTOGRAM.replaced(histogram, crawled, rows)
            more = np.ones_like(gap), new, np.where(new, 0.0, gap), gap
            for array, x in zip(sums, more, strict=True):
                _flat(array)[crawled] = kept * _flat(array)[crawled] + x
            start = _flat(shape)[crawled] / _flat(rate)[crawled] * self.period
            prior = self.prior.at(crawled, shape.shape)
            posterior = self.solve(
                Gaps.of(rows), [_flat(array)[crawled] for array in sums], start, prior
            )
            _flat(shape)[crawled] = posterior.shape
            _flat(rate)[crawled] = posterior.rate * self.period
        return *sums, *histogram, shape, rate

    def _faded(
        self, shape: FloatArray, rate: FloatArray, steps: float
    ) -> tuple[FloatArray, FloatArray]:
        if self.retention == 1:
            return shape, rate
        kept, prior = self.retention**steps, self.prior
        return prior.shape + kept * (shape - prior.shape), prior.rate + kept * (rate - prior.rate)

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        posterior = Posterior(state[-2], state[-1])
        return posterior if cells is None else posterior.at(cells, state[-1].shape)

    def solve(
        self, gaps: Gaps, sums: list[FloatArray], start: FloatArray, prior: Posterior
    ) -> Posterior:
        """Return the posterior of ΛT, (M,).

        Arguments:
            gaps: the histograms of M sources.
            sums: the four sums of the state, (M,) each.
            start: the previous mean, from which the root is searched.
            prior: the prior of these sources.
        """
        _, _, idle, _ = sums
        return changed_posterior(gaps, idle + prior.rate / self.period, prior.shape, start)


class Gaps(NamedTuple):
    """The nonzero entries of histograms (M, K)."""

    row: NDArray[np.intp]  # (E,) in 0 … M − 1
    gap: FloatArray  # (E,) steps
    weight: FloatArray  # (E,) number of gaps
    rows: int  # M

    @staticmethod
    def of(histogram: NDArray[np.floating]) -> Gaps:
        held = np.flatnonzero(histogram)
        row, node = np.divmod(held, len(NODES))
        weight = histogram.reshape(-1)[held].astype(np.float64)
        return Gaps(row, NODES[node], weight, len(histogram))

    def joined(self, gap: FloatArray, weight: FloatArray) -> Gaps:
        """Return these gaps and one more per row, (M,)."""
        each = np.arange(self.rows, dtype=np.intp)
        return Gaps(
            np.concatenate((self.row, each)),
            np.concatenate((self.gap, gap)),
            np.concatenate((self.weight, weight)),
            self.rows,
        )

    def total(self, term: FloatArray) -> FloatArray:
        """Return Σ weight·term for every row, (M,)."""
        return np.bincount(self.row, self.weight * term, self.rows).astype(np.float64, copy=False)


def changed_posterior(
    changed: Gaps, idle: FloatArray, shape: float | FloatArray, start: FloatArray
) -> Posterior:
    """Return the Gamma distribution at the root Λ of a + Σ m Λτ/(e^{Λτ} − 1) = ΛU, (M,), 1 / step.

    Arguments:
        changed: the gaps τ after which something was new.
        idle: U > 0, (M,), the total of the other gaps, plus b of the prior.
        shape: a ≥ 0 of the prior; 0 for maximum likelihood, with the error from the curvature in Λ.
        start: initial value of the search.
    """
    gap = changed.gap
    # Σ mx/(e^x − 1) lies between Σ m(1 − x/2) and Σ m, which bounds the root.
    number, time = changed.total(np.ones_like(gap)), changed.total(gap)
    least, most = (shape + number) / (idle + 0.5 * time), (shape + number) / idle
    root = np.clip(start, least, most)
    for _ in range(_STEPS):
        value, slope = _expected_items(root[changed.row] * gap)
        score = shape + changed.total(value) - root * idle
        step = score / (idle - changed.total(slope * gap))
        # The score is convex: the step falls short from the left and overshoots from the right.
        root = np.maximum(root + step, least)
        if (np.abs(step) <= _CLOSE * root).all():
            break
    x = root[changed.row] * gap
    value, slope = _expected_items(x)
    curved = root * idle - changed.total(slope * x)  # −d/d ln Λ of the score
    if np.all(np.asarray(shape) == 0):  # curvature in Λ: the terms of the score itself cancel
        curved = changed.total(value * (value + x))  # x²e^x/(e^x − 1)²
    curved = np.maximum(curved, LEAST_SHAPE)
    return Posterior(curved, curved / root)


def _expected_items(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x/(e^x − 1) and its derivative, for x > 0."""
    safe = np.maximum(x, _NEAR)
    power = np.exp(-safe)
    rest = 1.0 - power
    value = safe * power / rest + 0.5 * (safe - x)
    return value, power * (rest - safe) / (rest * rest)


def _flat(array: FloatArray) -> FloatArray:
    return array.reshape(-1)


def _spread(histogram: NDArray[np.floating], gap: FloatArray, weight: FloatArray) -> None:
    """Add each row's gap, (M,), to its histogram (M, K), split between the nearest two nodes."""
    inside = np.clip(gap, NODES[0], NODES[-1])
    left = np.clip(np.searchsorted(NODES, inside, side="right") - 1, 0, len(NODES) - 2)
    upper = (inside - NODES[left]) / (NODES[left + 1] - NODES[left])
    rows = np.arange(gap.size)
    histogram[rows, left] += weight * (1.0 - upper)
    histogram[rows, left + 1] += weight * upper
