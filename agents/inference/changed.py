"""Estimators of arrival rates from binary data: whether a crawl found anything new.

Cho & Garcia-Molina (ACM TOIT 2003). After a gap τ nothing is new with probability e^{−Λτ}. The gaps
of each source are stored as a histogram over `NODES`, so that the state has a fixed size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.inference.rates import (
    WEAK,
    CrawlOutcome,
    Posterior,
    State,
    check_prior,
    check_retention,
    copy_to_change,
)
from agents.theory.closed_form import decayed
from crawl_env.compiled import compiled
from crawl_env.errors import check_positive
from crawl_env.numerics import FloatArray, IntArray

# Nodes of the histogram of gaps, in steps: all up to 8, then four per octave. A gap between two
# nodes is split so that its mean is preserved; one beyond the last node counts as the last.
NODES: FloatArray = np.r_[1.0:8.0, 2.0 ** np.arange(3.0, 10.25, 0.25)]  # (K,)
_STEPS = 30  # largest number of Newton steps; the iteration is monotone and converges in fewer
_CLOSE = 1e-5  # last step relative to the root; the error is of the order of its square
_GONE = 1e3  # from here on, e^−x is 0
_LEAST_SHAPE = 0.5  # of the posterior; below it, nearly all of its mass would be near 0


class Gaps(NamedTuple):
    """Sums over the crawls of every source, (..., N), and the posterior that follows from them."""

    crawls: FloatArray  # (..., N)
    changes: FloatArray  # (..., N) crawls that found something new
    idle: FloatArray  # (..., N) steps before the crawls that did not
    steps: FloatArray  # (..., N) steps before all crawls
    histogram: NDArray[np.float32]  # (..., N, K) of the gaps in steps, over `NODES`
    shape: FloatArray  # (..., N) of the posterior
    rate: FloatArray  # (..., N) of it, time


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

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_retention(self.retention)
        check_positive("period", self.period)

    def begin(self, shape: tuple[int, ...]) -> Gaps:
        crawls, changes, idle, steps = (np.zeros(shape) for _ in range(4))
        histogram = np.zeros((*shape, len(NODES)), dtype=np.float32)
        own, rate = (np.broadcast_to(np.asarray(x, float), shape).copy() for x in self.prior)
        return Gaps(crawls, changes, idle, steps, histogram, own, rate)

    def update(self, state: State, outcome: CrawlOutcome) -> Gaps:
        *sums, histogram, shape, rate = Gaps(*state)
        shape, rate = self._faded(shape, rate, outcome.elapsed / self.period)
        crawled = outcome.cells
        if crawled.size:
            gap, new = outcome.gaps / self.period, outcome.changes
            fade = self.retention**gap
            sums = [copy_to_change(array, crawled) for array in sums]
            shape, rate = copy_to_change(shape, crawled), copy_to_change(rate, crawled)
            histogram = copy_to_change(histogram, crawled, len(NODES))
            rows = np.empty((crawled.size, len(NODES)), dtype=np.float32)
            weight = np.where(new, 1.0, 0.0)
            _add_gaps(histogram.reshape(-1, len(NODES)), crawled, fade, gap, weight, NODES, rows)
            more = np.ones_like(gap), new, np.where(new, 0.0, gap), gap
            of_crawled = []
            for array, x in zip(sums, more, strict=True):
                of_crawled.append(fade * _flat(array)[crawled] + x)
                _flat(array)[crawled] = of_crawled[-1]
            start = _flat(shape)[crawled] / _flat(rate)[crawled] * self.period
            prior = self.prior.at(crawled, shape.shape)
            with_prior = of_crawled[2] + prior.rate / self.period
            posterior = changed_posterior(rows, with_prior, prior.shape, start)
            _flat(shape)[crawled] = posterior.shape
            _flat(rate)[crawled] = posterior.rate * self.period
        crawls, changes, idle, steps = sums
        return Gaps(crawls, changes, idle, steps, histogram, shape, rate)

    def _faded(
        self, shape: FloatArray, rate: FloatArray, steps: float
    ) -> tuple[FloatArray, FloatArray]:
        if self.retention == 1:
            return shape, rate
        fade, prior = self.retention**steps, self.prior
        return prior.shape + fade * (shape - prior.shape), prior.rate + fade * (rate - prior.rate)

    def posterior(self, state: State, cells: IntArray | None = None) -> Posterior:
        gaps = Gaps(*state)
        posterior = Posterior(gaps.shape, gaps.rate)
        return posterior if cells is None else posterior.at(cells, gaps.rate.shape)


def changed_posterior(
    histograms: NDArray[np.float32],
    idle: FloatArray,
    shape: float | FloatArray,
    start: FloatArray,
) -> Posterior:
    """Return the Gamma distribution at the root Λ of a + Σ m Λτ/(e^{Λτ} − 1) = ΛU, (M,), 1 / step.

    Arguments:
        histograms: of the gaps τ after which something was new, (M, K).
        idle: U > 0, (M,), the total of the other gaps, plus b of the prior.
        shape: a > 0 of the prior.
        start: initial value of the search.
    """
    law = Posterior(np.empty(len(histograms)), np.empty(len(histograms)))
    prior = np.broadcast_to(np.asarray(shape, dtype=np.float64), idle.shape).copy()
    _solve(histograms, NODES, idle, prior, start, *law)
    return law


@compiled
def _solve(
    histograms: NDArray[np.float32],
    nodes: FloatArray,
    idle: FloatArray,
    prior: FloatArray,
    start: FloatArray,
    shape: FloatArray,
    rate: FloatArray,
) -> None:
    """Fill in shape and rate for every histogram; see `changed_posterior`."""
    gap, weight = np.zeros(nodes.size), np.zeros(nodes.size)
    value, slope = np.zeros(nodes.size), np.zeros(nodes.size)
    for i in range(len(histograms)):
        size, number, time = 0, 0.0, 0.0
        for j in range(nodes.size):
            m = float(histograms[i, j])
            if m != 0.0:
                gap[size], weight[size] = nodes[j], m
                size += 1
            number += m
            time += m * nodes[j]
        # Σ mx/(e^x − 1) lies between Σ m(1 − x/2) and Σ m, which bounds the root.
        least = (prior[i] + number) / (idle[i] + 0.5 * time)
        root = min(max(start[i], least), (prior[i] + number) / idle[i])
        for _ in range(_STEPS):
            _expected_items(root, gap[:size], value[:size], slope[:size])
            score, steepness = prior[i] - root * idle[i], idle[i]
            for j in range(size):
                score += weight[j] * value[j]
                steepness -= weight[j] * slope[j] * gap[j]
            step = score / steepness
            # The score is convex: the step falls short from the left and overshoots from the right.
            root = max(root + step, least)
            if abs(step) <= _CLOSE * root:
                break
        _expected_items(root, gap[:size], value[:size], slope[:size])
        curved = root * idle[i]  # −d/d ln Λ of the score
        for j in range(size):
            curved -= weight[j] * slope[j] * (root * gap[j])
        shape[i] = max(curved, _LEAST_SHAPE)
        rate[i] = shape[i] / root


@compiled
def _expected_items(rate: float, gap: FloatArray, value: FloatArray, slope: FloatArray) -> None:
    """Fill in x/(e^x − 1) and its derivative at x = rate·gap > 0."""
    for j in range(gap.size):
        x = min(rate * gap[j], _GONE)
        survival, bend = decayed(x)
        value[j] = survival / (1.0 - bend)  # 1 − e^−x = x(1 − bend)
        slope[j] = -value[j] * (bend / x) / (1.0 - bend)


def _flat(array: FloatArray) -> FloatArray:
    return array.reshape(-1)


@compiled
def _add_gaps(
    histogram: NDArray[np.float32],
    crawled: IntArray,
    discounts: FloatArray,
    gap: FloatArray,
    weight: FloatArray,
    nodes: FloatArray,
    rows: NDArray[np.float32],
) -> None:
    """Discount the histograms of the crawled sources by `discounts`, (M,), add a gap of some weight
    to each, split between the nearest two nodes, and copy them to `rows`, (M, K)."""
    last = nodes.size - 1
    for i in range(crawled.size):
        inside = min(max(gap[i], nodes[0]), nodes[last])
        low = 0
        while low < last - 1 and nodes[low + 1] <= inside:
            low += 1
        upper = (inside - nodes[low]) / (nodes[low + 1] - nodes[low])
        row, discount = histogram[crawled[i]], np.float32(discounts[i])
        for j in range(nodes.size):
            row[j] *= discount
        row[low] = np.float32(row[low] + weight[i] * (1.0 - upper))
        row[low + 1] = np.float32(row[low + 1] + weight[i] * upper)
        for j in range(nodes.size):
            rows[i, j] = row[j]
